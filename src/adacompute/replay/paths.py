"""Recorded samples in random orders, tallied after each draw. Knows nothing of policies.

A problem's samples are shuffled and cut into disjoint windows of the longest length a policy may ask for;
each window is one path, as if the samples had come in that order. The tallies are those of
`adacompute.answers.Tally`, to the last bit, ties to the first seen.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.answers.weigh import UNIT
from adacompute.errors import TooFewSamples
from adacompute.policies.standing import Standing
from adacompute.pool import Ballots
from adacompute.score.grades import class_values, graded, grades
from adacompute.score.weighted import units

__all__ = ["Paths", "paths"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int16]

_CELLS = 1 << 21  # (path, class) pairs held at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """Every path's tally after 1, 2, ... `longest` draws; arrays are (longest, paths), step first.

    Path i * orders + r is the r-th order of problem i.
    """

    ballots: Ballots = field(repr=False)
    orders: int  # paths a problem
    longest: int  # draws a path
    weigh: Weigh | None
    answered: Small
    first: Small
    second: Small
    kinds: Small
    lead: Floats
    runner: Floats
    total: Floats
    entropy: Floats  # (paths,) of the first sample
    grade: Floats  # worth of the answer that leads, 0 to 1; NaN: not known
    agrees: Floats  # 1 where it is the answer of the vote of all the problem's samples, shared in a tie
    tokens: Floats  # output tokens of all draws so far; NaN: not known

    def __len__(self) -> int:
        return len(self.entropy)

    @property
    def problems(self) -> Ints:
        """The row of each path's problem, (paths,)."""
        return np.repeat(np.arange(len(self.ballots)), self.orders)

    def standing(self, rows: Ints, drawn: Ints) -> Standing:
        """Where paths stand after so many draws (1 or more), each (requests,)."""
        at = (drawn - 1, rows)
        return Standing(
            drawn=drawn,
            answered=self.answered[at].astype(np.int64),
            first=self.first[at].astype(np.int64),
            second=self.second[at].astype(np.int64),
            kinds=self.kinds[at].astype(np.int64),
            lead=self.lead[at],
            runner=self.runner[at],
            total=self.total[at],
            entropy=self.entropy[rows],
        )

    def mean(self, values: Floats) -> Floats:
        """The mean over the orders of each problem, (problems,) of (paths,)."""
        return np.asarray(values.reshape(len(self.ballots), self.orders).mean(axis=1))


def paths(
    ballots: Ballots,
    *,
    rng: np.random.Generator,
    orders: int = 100,
    longest: int = 16,
    weigh: Weigh | None = None,
) -> Paths:
    """At least `orders` random paths of each problem: whole shuffles, cut into disjoint windows."""
    least = int(ballots.drawn.min(initial=longest))
    if least < longest:
        raise TooFewSamples(
            f"replaying up to {longest} samples needs as many of each problem, and problem "
            f"{ballots.ids[int(ballots.drawn.argmin())]!r} has {least}; collect more, or lower `longest`"
        )
    windows = max(1, least // longest)
    shuffles = -(-orders // windows)
    orders = shuffles * windows
    count = len(ballots) * orders
    small = {name: np.zeros((longest, count), dtype=np.int16) for name in _SMALL}
    large = {name: np.zeros((longest, count)) for name in _LARGE}
    entropy = np.zeros(count)
    weights = np.full(ballots.classes.shape, UNIT) if weigh is None else units(ballots, weigh)
    worth, full = _worth(ballots), _full(ballots, weights)
    kinds = worth.shape[1]
    step = max(1, _CELLS // (orders * kinds))
    for start in range(0, len(ballots), step):
        rows = np.arange(start, min(start + step, len(ballots)))
        order = _orders(ballots, rows, shuffles, windows, longest, rng)  # (rows * orders, longest)
        owner = np.repeat(rows, orders)
        here = slice(start * orders, start * orders + len(owner))
        parts = _Parts(
            classes=ballots.classes[owner[:, None], order].T,
            weights=weights[owner[:, None], order].T,
            worth=worth[owner],
            full=full[owner],
        )
        _walk(parts, {name: array[:, here] for name, array in {**small, **large}.items()})
        np.cumsum(ballots.tokens[owner[:, None], order].T, axis=0, out=large["tokens"][:, here])
        entropy[here] = ballots.entropy[owner, order[:, 0]]
    return Paths(
        ballots=ballots,
        orders=orders,
        longest=longest,
        weigh=weigh,
        entropy=entropy,
        **small,
        **large,
    )


_SMALL = ("answered", "first", "second", "kinds")
_LARGE = ("lead", "runner", "total", "grade", "agrees", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Some paths, step first."""

    classes: npt.NDArray[np.int32]  # (longest, paths)
    weights: Ints  # (longest, paths)
    worth: Floats  # (paths, classes)
    full: Floats  # (paths, classes) share of the full vote


def _orders(
    ballots: Ballots, rows: Ints, shuffles: int, windows: int, longest: int, rng: np.random.Generator
) -> Ints:
    """Which samples each path draws, (rows * shuffles * windows, longest)."""
    drawn = ballots.drawn[rows]
    keys = rng.random((len(rows), shuffles, ballots.classes.shape[1]), dtype=np.float32)
    keys[np.broadcast_to((np.arange(keys.shape[2]) >= drawn[:, None])[:, None, :], keys.shape)] = 2.0
    order = np.argsort(keys, axis=2)[:, :, : windows * longest]  # absent samples come last
    return np.ascontiguousarray(order.reshape(-1, longest))


def _walk(parts: _Parts, out: dict[str, npt.NDArray[np.generic]]) -> None:
    """Draws step by step, and writes each step's tally."""
    longest, count = parts.classes.shape
    kinds = parts.worth.shape[1]
    weights, counts = np.zeros(count * kinds, dtype=np.int64), np.zeros(count * kinds, dtype=np.int16)
    seen = np.full(count * kinds, longest, dtype=np.int16)  # the step at which a class first came
    base = np.arange(count) * kinds
    top, runner = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    answered, total, different = np.zeros(count, np.int16), np.zeros(count, np.int64), np.zeros(count, np.int16)
    for t in range(longest):
        rows = np.flatnonzero(parts.classes[t] >= 0)
        place = base[rows] + parts.classes[t, rows]
        answered[rows] += 1
        total[rows] += parts.weights[t, rows]
        new = counts[place] == 0
        seen[place[new]] = t
        different[rows] += new
        counts[place] += 1
        weights[place] += parts.weights[t, rows]
        _reorder(rows, place, top, runner, weights, seen)
        for name, at in (("first", top), ("second", runner)):
            out[name][t] = np.where(at >= 0, counts[at], 0)
        for name, at in (("lead", top), ("runner", runner)):
            out[name][t] = np.where(at >= 0, weights[at], 0) / UNIT
        out["answered"][t], out["total"][t], out["kinds"][t] = answered, total / UNIT, different
        out["grade"][t] = np.where(top >= 0, parts.worth.reshape(-1)[top], parts.worth[:, 0] * 0.0)
        out["agrees"][t] = np.where(top >= 0, parts.full.reshape(-1)[top], 0.0)


def _reorder(rows: Ints, place: Ints, top: Ints, runner: Ints, weights: Ints, seen: Small) -> None:
    """Who leads and who follows after one more vote: weights only grow, so it is among these three."""

    def beats(one: Ints, other: Ints) -> npt.NDArray[np.bool_]:
        ahead = (weights[one] > weights[other]) | ((weights[one] == weights[other]) & (seen[one] < seen[other]))
        return (other < 0) | ahead

    leads, follows = top[rows], runner[rows]
    other = place != leads
    to_top = other & beats(place, leads)
    to_runner = other & ~to_top & (place != follows) & beats(place, follows)
    runner[rows[to_top]] = leads[to_top]
    top[rows[to_top]] = place[to_top]
    runner[rows[to_runner]] = place[to_runner]


def _worth(ballots: Ballots) -> Floats:
    """The worth of each class, (problems, classes): its mean grade; NaN where a problem has no grades."""
    values = grades(ballots)
    worth = class_values(ballots.classes, values)[1]
    if worth.shape[1] == 0:  # all abstain
        worth = np.zeros((len(ballots), 1))
    worth[~graded(ballots, values)] = np.nan
    return worth


def _full(ballots: Ballots, weights: Ints) -> Floats:
    """Each class's share of winning the vote of all of a problem's samples, (problems, classes)."""
    kinds = max(1, int(ballots.classes.max(initial=-1)) + 1)
    sums = np.zeros((len(ballots), kinds), dtype=np.int64)
    at, column = np.nonzero(ballots.classes >= 0)
    np.add.at(sums, (at, ballots.classes[at, column]), weights[at, column])
    best = sums.max(axis=1, keepdims=True)
    wins = (sums == best) & (best > 0)
    return np.asarray(wins / np.maximum(wins.sum(axis=1, keepdims=True), 1))
