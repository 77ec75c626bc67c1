"""Policies side by side at the same average cost. Knows nothing of folds, or of how a policy decides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.entrants import OURS, PEERS, PLAIN
from adacompute.evaluate.matched import Matched, Points, joined, matched
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.rows import Bracket, Match
from adacompute.replay.hull import hull

__all__ = ["matches", "worth"]

Floats = npt.NDArray[np.float64]
_Curve: TypeAlias = tuple[Floats, Floats]  # cost and accuracy, (corners,) both

_BEYOND = 1e9  # samples: more than any
_LITTLE = 0.001  # of accuracy: a gain so small has no shares


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """What all alike gives by cost, made to rise and be concave: over all problems, and in each draw."""

    most: float  # samples
    whole: _Curve
    drawn: list[_Curve]  # (draws,); none where one problem is all there is

    @classmethod
    def of(cls, plain: Points, boot: Bootstrap) -> Self:
        cost, accuracy = plain.cost.mean(axis=1), plain.accuracy  # (settings,), (settings, problems)
        order = np.argsort(cost, kind="stable")
        cost, accuracy = cost[order], accuracy[order]
        drawn = boot.shares @ accuracy.T if accuracy.shape[1] > 1 else ()  # (draws, settings)
        return cls(
            float(cost[-1]), _curve(cost, accuracy.mean(axis=1)), [_curve(cost, each) for each in drawn]
        )


def matches(
    everyone: Sequence[Pooled], budgets: Sequence[float], *, boot: Bootstrap, oracle: Sequence[Bracket]
) -> tuple[Match, ...]:
    """Every policy at every budget, and the joint hull of the peers as one more."""
    points = {one.name: one.points for one in everyone}
    peers = [one.points for one in everyone if one.name != OURS]
    if peers:
        points[PEERS] = joined(peers)
    # the same curves for every policy and budget
    alike = _Alike.of(points[PLAIN], boot) if PLAIN in points else None
    found = []
    for budget in budgets:
        at = {name: matched(own, budget) for name, own in points.items()}
        bracket = next((one for one in oracle if one.budget == budget), None)
        for name, one in at.items():
            if one is not None:
                found.append(_match(name, one, at, alike, boot=boot, bracket=bracket))
    return tuple(found)


def _match(
    name: str,
    one: Matched,
    at: dict[str, Matched | None],
    alike: _Alike | None,
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
        worth=None if alike is None or name == PLAIN else _worth(one, alike, boot=boot),
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
    return _worth(one, _Alike.of(plain, boot), boot=boot)


def _worth(one: Matched, alike: _Alike, *, boot: Bootstrap) -> Interval:
    mean = _first(alike.whole, one.accuracy)
    if not alike.drawn:
        return Interval(mean=mean, low=None, high=None)
    reached = boot.means(one.each)  # (draws,)
    values = np.array([_first(own, wanted) for own, wanted in zip(alike.drawn, reached, strict=True)])
    found = interval_of(mean, np.minimum(values, _BEYOND))  # percentiles can't pass between infinities
    low, high = (math.inf if end is None or end > alike.most else end for end in (found.low, found.high))
    return Interval(mean=mean, low=low, high=high)


def _curve(cost: Floats, accuracy: Floats) -> _Curve:
    corners = hull(cost, accuracy)
    return cost[corners], accuracy[corners]


def _first(curve: _Curve, wanted: float) -> float:
    """The least cost at which a curve that rises is so accurate."""
    spent, reached = curve
    if wanted > reached[-1] + 1e-12:
        return math.inf
    return float(np.interp(wanted, reached, spent))
