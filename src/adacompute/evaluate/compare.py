"""Policies side by side at the same average cost. Knows nothing of folds, or of how a policy decides."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.entrants import OURS, PEERS, PLAIN
from adacompute.evaluate.matched import Matched, Points, joined, matched
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.rows import Bracket, Match

__all__ = ["matches", "worth"]

Floats = npt.NDArray[np.float64]

_BEYOND = 1e9  # samples: more than any
_LITTLE = 0.001  # of accuracy: a gain so small has no shares


def matches(
    everyone: Sequence[Pooled], budgets: Sequence[float], *, boot: Bootstrap, oracle: Sequence[Bracket]
) -> tuple[Match, ...]:
    """Every policy at every budget, and the joint hull of the peers as one more."""
    points = {one.name: one.points for one in everyone}
    peers = [one.points for one in everyone if one.name != OURS]
    if peers:
        points[PEERS] = joined(peers)
    found = []
    for budget in budgets:
        at = {name: matched(own, budget) for name, own in points.items()}
        bracket = next((one for one in oracle if one.budget == budget), None)
        for name, one in at.items():
            if one is not None:
                found.append(_match(name, one, at, points.get(PLAIN), boot=boot, bracket=bracket))
    return tuple(found)


def _match(
    name: str,
    one: Matched,
    at: dict[str, Matched | None],
    plain: Points | None,
    *,
    boot: Bootstrap,
    bracket: Bracket | None,
) -> Match:
    own = boot.interval(one.each)
    base, peers = at.get(PLAIN), at.get(PEERS)
    gain = None if base is None or name == PLAIN else boot.difference(one.each, base.each)
    return Match(
        policy=name,
        budget=one.budget,
        cost=one.cost,
        accuracy=one.accuracy,
        low=None if own.low is None else max(0.0, own.low),
        high=None if own.high is None else min(1.0, own.high),
        gain=gain,
        lead=None if peers is None or name != OURS else boot.difference(one.each, peers.each),
        recovered=(None, None) if base is None or name == PLAIN else _recovered(one, base, bracket),
        worth=None if plain is None or name == PLAIN else worth(one, plain, boot=boot),
    )


def _recovered(one: Matched, base: Matched, bracket: Bracket | None) -> tuple[float | None, float | None]:
    """The share of the oracle's gain over all alike that a policy has, of either end."""
    if bracket is None:
        return None, None
    gains = [None if bracket.low is None else bracket.low.mean - base.accuracy, bracket.high - base.accuracy]
    low, high = (
        None if gain is None or gain < _LITTLE else (one.accuracy - base.accuracy) / gain for gain in gains
    )
    return low, high


def worth(one: Matched, plain: Points, *, boot: Bootstrap) -> Interval:
    """How many samples for all alike are as accurate; infinite where even the most aren't.

    In each draw of problems both sides are read anew, so the interval is of the pair.
    """
    cost, accuracy = plain.cost.mean(axis=1), plain.accuracy  # (settings,), (settings, problems)
    order = np.argsort(cost, kind="stable")
    cost, drawn = cost[order], boot.shares @ accuracy[order].T  # (draws, settings)
    reached = boot.means(one.each)  # (draws,)
    mean = _first(cost, accuracy[order].mean(axis=1), one.accuracy)
    if accuracy.shape[1] < 2:
        return Interval(mean=mean, low=None, high=None)
    values = np.array([_first(cost, drawn[i], reached[i]) for i in range(len(drawn))])
    found = interval_of(mean, np.minimum(values, _BEYOND))  # percentiles can't pass between infinities
    low, high = (math.inf if end is None or end > cost[-1] else end for end in (found.low, found.high))
    return Interval(mean=mean, low=low, high=high)


def _first(cost: Floats, accuracy: Floats, wanted: float) -> float:
    """The least cost at which a curve, made to rise and be concave, is so accurate."""
    points = Points(cost=cost[:, None], accuracy=accuracy[:, None])
    spent, reached = points.curve()
    if wanted > reached[-1] + 1e-12:
        return math.inf
    return float(np.interp(wanted, reached, spent))
