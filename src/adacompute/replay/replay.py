"""A policy over a pool, as if live: cost, accuracy, waves. Knows nothing of folds or of other policies."""

import math
from typing import Any, Literal

import numpy as np

from adacompute.paths.paths import paths
from adacompute.policies.base import Policy, ballots_of
from adacompute.pool import Ballots, Pool
from adacompute.replay.asked import adapted, affordable, checked_draws, checked_policy, dial_of, replayable
from adacompute.replay.bootstrap import RESAMPLES, estimate
from adacompute.replay.each import Each, Exact, is_exact
from adacompute.replay.result import Replayed

__all__ = ["protocol", "replay", "told"]


def replay(
    policy: Policy,
    source: Pool | Ballots,
    *,
    price: float | None = None,
    dial: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
) -> Replayed:
    """What the policy costs and how often it is right on recorded samples, drawn in many random orders.

    `price` and `dial` are two names of one thing, the policy's dial; `calibrate` finds it for a budget. The
    policy sees the samples as they would come, and its own votes are counted (`policy.weigh`). Where it
    can be `adapted` to a pool's scale of confidence, which needs no labels, a copy of it is, and is replayed;
    `calibrate` settles the policy itself. What it was fitted on is said (`in_sample`). A policy that
    decides on the prompt alone, with plain votes, is scored exactly, without orders. The interval is by
    bootstrap over problems. Problems with fewer samples than the policy may draw, or without recorded
    answers, are an error, or are left out with `too_few="drop"`.

    >>> from adacompute.pool import bundled
    >>> from adacompute.policies.oneshot import FixedPolicy
    >>> with bundled("words") as pool:
    ...     found = replay(FixedPolicy(budget=4), pool)
    >>> found.cost, round(found.accuracy.mean, 2), found.exact
    (4.0, 0.78, True)
    """
    value = dial_of(checked_policy(policy), price, dial)
    rng = checked_draws(orders, rng)
    ballots, dropped = replayable(ballots_of(source), policy.longest, too_few=too_few)
    policy = adapted(policy, ballots)
    if is_exact(policy):
        each, count = Exact(ballots).each(policy, dial=value), 0
    else:
        affordable(ballots, orders, policy.longest)
        drawn = paths(ballots, rng=rng, orders=orders, longest=policy.longest, weigh=policy.weigh)
        each, count = Each.run(policy, drawn, dial=value), drawn.orders
    return told(policy, value, ballots, each, orders=count, dropped=dropped, rng=rng)


def told(
    policy: Policy,
    dial: float | None,
    ballots: Ballots,
    each: Each,
    *,
    orders: int,
    dropped: tuple[str, ...],
    rng: np.random.Generator,
) -> Replayed:
    """What was found on each problem, put together; of `ballots` only the prompts are looked at."""
    known = each.accuracy[~np.isnan(each.accuracy)]
    tokens = float(each.tokens.mean())
    fitted_on: Any = getattr(policy, "fitted_on", None)
    seen = 0 if fitted_on is None else int(fitted_on(ballots))
    said = f"; in-sample: it was fitted on {seen} of these {len(ballots)} problems" if seen else ""
    return Replayed(
        policy=policy.kind,
        dial=dial,
        problems=len(ballots),
        orders=orders,
        cost=float(each.cost.mean()),
        accuracy=estimate(known, rng) if len(known) else None,
        agreement=float(each.agreement.mean()),
        waves=float(each.waves.mean()),
        most_waves=each.most_waves,
        tokens=None if math.isnan(tokens) else tokens,
        counts=each.counts,
        each_cost=each.cost,
        each_accuracy=each.accuracy,
        dropped=dropped,
        exact=orders == 0,
        protocol=protocol(policy, orders) + said,
        in_sample=seen,
    )


def protocol(policy: Policy, orders: int) -> str:
    """How a replay came by its numbers, in words; `orders` is 0 where none were needed."""
    votes = "plain votes" if policy.weigh is None else f"votes weighted by {policy.weigh.signal}"
    if orders:
        how = f"{orders} random orders of each problem's samples, ties to the first seen"
    else:
        how = "mean over all subsets of b of a problem's samples, ties shared"
    return f"{votes}, {how}, abstentions ignored; 95% interval by {RESAMPLES:,} bootstraps over problems"
