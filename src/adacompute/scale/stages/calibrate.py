"""`calibrate` over shards: the dial for a budget, by passes of several dials. Knows no accuracy."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError
from adacompute.policies.base import Policy
from adacompute.replay.asked import checked_draws, checked_policy
from adacompute.replay.calibrate import checked_budget, dial_for
from adacompute.scale.stages.opened import Opened
from adacompute.scale.stages.settling import adapted_to, prompts_of, rows_of
from adacompute.scale.stages.streams import checked_stream
from adacompute.scale.stages.walking import counted, drawing_of, first_counts, sent

__all__ = ["calibrate_shards"]

Ints = npt.NDArray[np.int64]

_AHEAD = 2  # steps of a bisection that are asked for beforehand


def calibrate_shards(
    policy: Policy,
    shards: Opened,
    budget: float,
    *,
    orders: int = 50,
    rng: np.random.Generator | None = None,
    tolerance: float = 0.005,
    too_few: Literal["error", "drop"] = "error",
) -> float:
    """As `calibrate`, of a policy with a dial, over shards that are open; the policy is settled on them."""
    budget, tolerance = checked_budget(budget, tolerance)
    rng = checked_draws(orders, rng)
    checked_stream(rng)
    if checked_policy(policy).dial is None:
        raise PolicyError(
            f"{policy.kind} has no dial to find over shards; fit it for a budget of {budget:g} first"
        )
    rows, _ = rows_of(policy, shards, too_few)
    policy = adapted_to(policy, shards, rows, prompts_of(shards, rows), apart=False)
    asked = _asking(policy, shards, rows, orders, rng)
    known: dict[float, float] = {}
    needed: set[float] = set()

    def cost(dial: float) -> float:
        if dial not in known:
            wanted = _ahead(dial, sorted(needed), by_ratio=policy.dial != "threshold")
            known.update(zip(wanted, asked(wanted), strict=True))
        needed.add(dial)
        return known[dial]

    return dial_for(policy, cost, budget, tolerance)


def _asking(
    policy: Policy, shards: Opened, rows: Ints, orders: int, rng: np.random.Generator
) -> Callable[[Sequence[float]], list[float]]:
    """What gives the mean cost at each of some dials, in one pass."""

    def costs(dials: Sequence[float]) -> list[float]:
        work: Any = first_counts
        given: Any = tuple(dials)
        count = len(rows)
        if not policy.beforehand:
            work = counted
            given = drawing_of(policy, shards, rows, orders=orders, rng=rng, dials=given)
            count *= given.cut.shuffles * given.cut.windows
        found = shards.ask(work, rows, [(sent(policy), given)] * len(shards.ballots))
        total = np.sum([each["drawn"] for each in found], axis=0)
        return [float(np.float64(each) / count) for each in total.tolist()]

    return costs


def _ahead(dial: float, asked: Sequence[float], *, by_ratio: bool) -> list[float]:
    """The dial, and those that a bisection asks for next: a pass costs more than a dial in it."""
    below = [value for value in asked if value < dial]
    above = [value for value in asked if value > dial]
    wanted = [dial]
    if not below or not above:
        return wanted
    ends = [below[-1], dial, above[0]]
    for _ in range(_AHEAD):
        middles = [
            math.sqrt(low * high) if by_ratio and low > 0 else (low + high) / 2
            for low, high in pairwise(ends)
        ]
        wanted += middles
        ends = sorted([*ends, *middles])
    return wanted
