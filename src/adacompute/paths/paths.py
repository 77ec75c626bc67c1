"""Recorded samples in random orders, tallied after each draw. Knows nothing of policies.

A problem's samples are shuffled and cut into disjoint windows of the longest length a policy may ask for;
each window is one path, as if the samples had come in that order.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.answers.weigh import UNIT
from adacompute.errors import TooFewSamples
from adacompute.paths.standing import Standing
from adacompute.paths.walk import Parts, runs, walk
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.score.grades import class_values, graded, grades
from adacompute.score.weighted import units

__all__ = ["Cut", "Paths", "full_vote", "paths", "paths_of_orders"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int16]

_Kind = TypeVar("_Kind", bound=np.generic)

_CELLS = 1 << 16  # (path, class) pairs at a time: they stay in the processor's second cache


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
    run: Small
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
            run=self.run[at].astype(np.int64),
            lead=self.lead[at],
            runner=self.runner[at],
            total=self.total[at],
            entropy=self.entropy[rows],
        )

    def mean(self, values: Floats | Ints) -> Floats:
        """The mean over the orders of each problem, (problems,) of (paths,)."""
        return np.asarray(values.reshape(len(self.ballots), self.orders).mean(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How shuffles of samples become paths: each is cut into windows."""

    longest: int  # draws a path
    windows: int  # a shuffle
    shuffles: int  # a problem

    @classmethod
    def of(cls, fewest: int, *, orders: int, longest: int) -> "Cut":
        """At least `orders` paths of every problem, that with fewest samples among them."""
        windows = max(1, fewest // longest)
        return cls(longest=longest, windows=windows, shuffles=-(-orders // windows))

    def orders(self, ballots: Ballots, rng: np.random.Generator) -> Ints:
        """Which samples each path draws, (problems, orders, longest)."""
        order = _shuffled(ballots, self.shuffles, rng)[:, :, : self.windows * self.longest]
        return order.reshape(len(ballots), self.shuffles * self.windows, self.longest)


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
    fewest = int(ballots.drawn.min(initial=ballots.classes.shape[1]))
    cut = Cut.of(fewest, orders=orders, longest=longest)
    return paths_of_orders(ballots, cut.orders(ballots, rng), weigh=weigh)


def paths_of_orders(ballots: Ballots, order: npt.NDArray[np.integer], *, weigh: Weigh | None = None) -> Paths:
    """The paths that draw these samples, by number and in this order, (problems, orders, longest)."""
    problems, orders, longest = order.shape
    count = problems * orders
    small = {name: np.zeros((longest, count), dtype=np.int16) for name in _SMALL}
    large = {name: np.zeros((longest, count)) for name in _LARGE}
    entropy = np.zeros(count)
    weights = _weights(ballots, weigh)
    worth, full = _worth(ballots), full_vote(ballots, weights)
    step = max(1, _CELLS // max(1, orders * worth.shape[1]))
    for start in range(0, problems, step):
        rows = np.arange(start, min(start + step, problems))
        owner = np.repeat(rows, orders)
        sample = order[rows].reshape(-1, longest)
        at = owner[:, None] * ballots.classes.shape[1] + sample  # (paths, longest)
        here = slice(start * orders, start * orders + len(owner))
        parts = Parts(
            classes=_taken(ballots.classes, at),
            weights=_taken(weights, at),
            worth=worth[owner],
            full=full[owner],
        )
        walk(parts, {name: array[:, here] for name, array in {**small, **large}.items()})
        runs(parts.classes, small["run"][:, here])
        np.cumsum(_taken(ballots.tokens, at), axis=0, out=large["tokens"][:, here])
        entropy[here] = ballots.entropy[owner, sample[:, 0]]
    return Paths(
        ballots=ballots, orders=orders, longest=longest, weigh=weigh, entropy=entropy, **small, **large
    )


_SMALL = ("answered", "first", "second", "kinds", "run")
_LARGE = ("lead", "runner", "total", "grade", "agrees", "tokens")


def _shuffled(ballots: Ballots, shuffles: int, rng: np.random.Generator) -> Ints:
    """Random orders of each problem's samples, (problems, shuffles, samples); absent samples come last."""
    problems, samples = ballots.classes.shape
    bits = max(1, (samples - 1).bit_length())
    # the number of the sample is in the key: sorting whole numbers is quick, and the same on every machine
    keys: Ints = rng.integers(0, 1 << (62 - bits), (problems, shuffles, samples), dtype=np.int64) << bits
    keys |= np.arange(samples)
    keys += ((ballots.classes == ABSENT).astype(np.int64) << 62)[:, None, :]
    keys.sort(axis=2)
    keys &= (1 << bits) - 1
    return keys


def _taken(values: npt.NDArray[_Kind], at: Ints) -> npt.NDArray[_Kind]:
    """Values of samples, (longest, paths), step first."""
    return np.ascontiguousarray(np.take(values.reshape(-1), at).T)


def _weights(ballots: Ballots, weigh: Weigh | None) -> Ints:
    """What each sample's vote weighs, in units, (problems, samples); without its signal it weighs 1."""
    if weigh is None or not np.isfinite(ballots.signal(weigh.signal)).any():
        return np.full(ballots.classes.shape, UNIT)
    return units(ballots, weigh)


def _worth(ballots: Ballots) -> Floats:
    """The worth of each class, (problems, classes): its mean grade; NaN where a problem has no grades."""
    values = grades(ballots)
    worth = class_values(ballots.classes, values)[1]
    if worth.shape[1] == 0:  # all abstain
        worth = np.zeros((len(ballots), 1))
    worth[~graded(ballots, values)] = np.nan
    return worth


def full_vote(ballots: Ballots, weights: Ints | None = None) -> Floats:
    """Each class's share of winning the vote of all of a problem's samples, (problems, classes)."""
    weights = np.full(ballots.classes.shape, UNIT) if weights is None else weights
    kinds = max(1, int(ballots.classes.max(initial=-1)) + 1)
    sums = np.zeros((len(ballots), kinds), dtype=np.int64)
    at, column = np.nonzero(ballots.classes >= 0)
    np.add.at(sums, (at, ballots.classes[at, column]), weights[at, column])
    best = sums.max(axis=1, keepdims=True)
    wins = (sums == best) & (best > 0)
    return np.asarray(wins / np.maximum(wins.sum(axis=1, keepdims=True), 1))
