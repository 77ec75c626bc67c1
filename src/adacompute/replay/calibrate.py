"""The dial for a budget, by bisection on replayed cost. Knows nothing of accuracy, so it needs no labels."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from adacompute.errors import BudgetOutOfRange, PolicyError, PolicyInvalid
from adacompute.paths.paths import paths
from adacompute.policies.base import Policy, ballots_of
from adacompute.policies.settings import finite, one_of, shown
from adacompute.policies.shuffled import ShuffledPolicy
from adacompute.pool import Ballots, Pool
from adacompute.records import at_least
from adacompute.replay.asked import affordable, checked_draws, checked_policy, replayable, settled
from adacompute.replay.run import first_wave, run

__all__ = ["calibrate", "checked_budget", "dial_for"]

_LOW, _HIGH = 1e-6, 1.0  # the first bracket of a price
_LOWEST, _HIGHEST = 1e-18, 1e12  # prices beyond which nothing is looked for
_STEPS = 60
_FINE = 1e-9  # of a dial: steps of cost nearer to each other than that are taken as one


def calibrate(
    policy: Policy,
    source: Pool | Ballots,
    budget: float,
    *,
    orders: int = 50,
    rng: np.random.Generator | None = None,
    tolerance: float = 0.005,
    too_few: Literal["error", "drop"] = "error",
) -> float | None:
    """The dial at which the policy costs `budget` samples a request on average, by replay; needs no labels.

    Cost falls with the dial in steps, so a budget is seldom met: this is the lowest dial found whose cost is
    not above it, and within `tolerance` of it (a share of the budget) where the steps allow. All dials are
    tried on the same orders. A policy that can `settle` on a pool's samples (their scale of confidence, a
    prior that hasn't seen them) does so, in place: the policy that was calibrated is the one to run. A policy
    without a dial is fitted again, for this budget, and there is None to return. Problems with fewer samples
    than the policy may draw are an error, or are left out with `too_few="drop"`, as in `replay`.
    """
    budget, tolerance = checked_budget(budget, tolerance)
    rng = checked_draws(orders, rng)
    ballots = _some(checked_policy(policy), ballots_of(source), too_few)
    if policy.dial is None:
        _refit(policy, ballots, budget)
        return None
    return dial_for(policy, _cost(settled(policy, ballots), ballots, orders, rng), budget, tolerance)


def dial_for(
    policy: Policy, cost: Callable[[float], float], budget: float, tolerance: float = 0.005
) -> float:
    """The dial for a budget, by what each dial costs; every dial is asked for again and again."""
    threshold = policy.dial == "threshold"
    most, least = cost(0.0), cost(1.0 if threshold else _HIGHEST)
    if not least <= budget <= most * (1 + tolerance):
        raise BudgetOutOfRange(
            f"budget {budget:g} can't be reached by {policy.kind} on these samples, whose cost is from "
            f"{at_least(least)} to {most:.4g} a request; give a budget within that"
        )
    if most <= budget:
        return 0.0
    low, high = (0.0, 1.0) if threshold else _bracket(cost, budget)
    return _bisected(cost, budget, low, high, near=budget * (1 - tolerance), by_ratio=not threshold)


def checked_budget(budget: object, tolerance: object) -> tuple[float, float]:
    """A budget and a tolerance that can be used."""
    average, share = finite(budget), finite(tolerance)
    if average is None or average <= 0:
        raise BudgetOutOfRange(
            f"budget {shown(budget)} can't be an average cost; give samples a request, e.g. 2.0"
        )
    if share is None or not 0 <= share < 1:
        raise PolicyError(
            f"tolerance {shown(tolerance)} can't be used; give a share of the budget, e.g. 0.005"
        )
    return average, share


def _some(policy: Policy, ballots: Ballots, too_few: Literal["error", "drop"]) -> Ballots:
    """The problems to calibrate on. A policy without a dial is fitted, and its `fit` says what it needs."""
    one_of("too_few", too_few, ("error", "drop"))
    if policy.dial is None and too_few == "error":
        return ballots
    return replayable(ballots, policy.longest, too_few=too_few)[0]


def _bisected(
    cost: Callable[[float], float], budget: float, low: float, high: float, *, near: float, by_ratio: bool
) -> float:
    """The dial from (low, high] whose cost is the nearest not above the budget; cost(low) is above it."""
    for _ in range(_STEPS):
        if cost(high) >= near or high - low <= _FINE * high:
            break
        middle = math.sqrt(low * high) if by_ratio and low > 0 else (low + high) / 2
        low, high = (middle, high) if cost(middle) > budget else (low, middle)
    return high


def _bracket(cost: Callable[[float], float], budget: float) -> tuple[float, float]:
    """A price that costs too much (or 0), and one that doesn't."""
    low, high = _LOW, _HIGH
    while cost(high) > budget and high < _HIGHEST:
        low, high = high, high * 2
    while low > _LOWEST and cost(low) <= budget:
        low, high = low / 16, low
    return (low if low > _LOWEST else 0.0), high


def _cost(
    policy: Policy, ballots: Ballots, orders: int, rng: np.random.Generator
) -> Callable[[float], float]:
    """The mean cost at a dial, each dial replayed once."""
    reading = policy.read(ballots.prompts)
    known: dict[float, float] = {}
    drawn = None
    if not policy.beforehand:
        affordable(ballots, orders, policy.longest)
        drawn = paths(ballots, rng=rng, orders=orders, longest=policy.longest, weigh=policy.weigh)

    def cost(dial: float) -> float:
        if dial not in known:
            counts = (
                first_wave(policy, reading, dial)
                if drawn is None
                else run(policy, drawn, dial=dial, reading=reading).drawn
            )
            known[dial] = float(counts.mean())
        return known[dial]

    return cost


def _refit(policy: Policy, source: Ballots, budget: float) -> None:
    """Fits a policy without a dial for a budget: by its `fit`, or made anew with that budget."""
    if isinstance(policy, ShuffledPolicy) and policy.given_:
        raise PolicyError(
            f"{policy.kind} was given its histogram, which a budget of {budget:g} would replace; give it "
            f"another one, or calibrate ShuffledPolicy({budget:g}), which has the oracle's"
        )
    fit: Any = policy.fit
    if "budget" in inspect.signature(fit).parameters:
        fit(source, budget=budget)
        return
    settings = policy.settings()
    if "budget" not in settings:
        raise PolicyError(
            f"{policy.kind} has neither a dial nor a budget to set; fit it for {budget:g} first"
        )
    try:
        made = type(policy).restored(settings | {"budget": budget}, policy.arrays())
    except PolicyInvalid as exc:
        raise BudgetOutOfRange(f"budget {budget:g} is none for {policy.kind}: {exc}") from exc
    vars(policy).update(vars(made))
    fit(source)
