"""One shard's side of a price over many: what its steps cost by slope, and its choice. Knows no other shard.

A slope, as hull.py rounds it, has 47 bits that count: 15 of them are told in the first summary, and 16 in
each of two more, for the slopes that share what was found before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.solve.hull import counts, slopes
from adacompute.solve.price import taken

__all__ = ["WHOLE", "Bracket", "Edge", "Shard", "Share", "Summary", "Taken", "Total", "merged"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_BINS = 1 << 16
_FREE = 0x7FF0  # the first bin of an infinite slope: such steps cost nothing, and are always taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The slopes whose bits begin alike: `bits >> (shift + 16) == prefix`. A bin is told by the next 16."""

    prefix: int
    shift: int  # 48, 32 and then 16, where a bin is one slope

    def inner(self, key: int) -> "Bracket":
        """One bin of it, to be looked at more closely."""
        return Bracket(prefix=self.prefix << 16 | key, shift=self.shift - 16)

    def slope(self, key: int) -> float:
        """The least slope of a bin."""
        bits = np.array([(self.prefix << 16 | key) << self.shift], dtype=np.uint64)
        return float(bits.view(np.float64)[0])


WHOLE = Bracket(prefix=0, shift=48)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """What the steps within a bracket cost, by bins of slopes; only bins that occur. Summaries add up."""

    bracket: Bracket
    problems: int
    cheapest: float  # cost of every problem's cheapest mode
    dearest: float  # and of its dearest
    keys: npt.NDArray[np.uint16]  # (bins,) rising
    cost: Floats  # (bins,)

    @property
    def nbytes(self) -> int:
        """Of what is sent: 10 for a bin, and 40."""
        return int(self.keys.nbytes + self.cost.nbytes) + 40

    def at(self, key: int) -> float:
        """Cost of the steps in one bin."""
        place = int(np.searchsorted(self.keys, key))
        return float(self.cost[place]) if place < len(self.keys) and self.keys[place] == key else 0.0


def merged(summaries: Iterable[Summary], *, bracket: Bracket = WHOLE) -> Summary:
    """Several summaries of one bracket as one, in one pass: nothing but their sum is kept."""
    problems, cheapest, dearest, dense = 0, 0.0, 0.0, np.zeros(_BINS)
    for summary in summaries:
        problems += summary.problems
        cheapest += summary.cheapest
        dearest += summary.dearest
        dense[summary.keys] += summary.cost
    return _sparse(bracket, problems, cheapest, dearest, dense)


def _sparse(bracket: Bracket, problems: int, cheapest: float, dearest: float, dense: Floats) -> Summary:
    found = np.flatnonzero(dense)
    return Summary(
        bracket=bracket,
        problems=problems,
        cheapest=cheapest,
        dearest=dearest,
        keys=found.astype(np.uint16),
        cost=dense[found],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a shard is to take: all steps steeper than the price, and of those at the price what has room."""

    price: float  # a slope, as the hull rounds it
    room: float  # cost left for edges of that very slope; infinite: for all; minus infinity: for none
    slip: float = 0.0  # of cost: what rounding may add

    def after(self, taken: "Taken") -> "Share":
        """For the rows that follow those that have been served."""
        return replace(self, room=self.room - taken.tied if taken.edge is None else -np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The first edge at the price that found no room: one problem's, from the mode it has to a dearer one."""

    row: int  # of the shard
    before: int  # mode, a column
    mode: int
    cost: float
    gain: float  # of accuracy
    probability: float  # of the dearer mode, so that all of the budget is spent; 0: not mixed

    @property
    def slope(self) -> float:
        """What it buys for its cost, without the rounding that makes slopes comparable."""
        return self.gain / self.cost if self.cost > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What a choice comes to over a shard's problems; totals add up."""

    problems: int
    counts: tuple[int, ...]  # (modes,) problems that have each
    cost: float
    accuracy: float

    def __add__(self, other: "Total") -> "Total":
        return Total(
            problems=self.problems + other.problems,
            counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            cost=self.cost + other.cost,
            accuracy=self.accuracy + other.accuracy,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """A shard's choice."""

    choice: Ints  # (rows,) columns
    total: Total
    tied: float  # cost of the edges at the price that were taken
    edge: Edge | None  # the one that found no room; None: it isn't in this shard


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Consecutive problems, with the slopes of their hulls. None at all is fine."""

    accuracy: Floats  # (rows, modes)
    costs: Floats  # (modes,) or (rows, modes), ascending
    slopes: Floats  # (modes - 1, rows)

    @classmethod
    def of(cls, accuracy: Floats, *, costs: Floats) -> "Shard":
        """From the columns of an accuracy table whose modes stand in ascending cost.

        >>> shard = Shard.of(np.array([[0.5, 0.9], [0.6, 0.8]]), costs=np.array([1.0, 2.0]))
        >>> shard.summary().cost.tolist(), shard.take(Share(price=0.3, room=0.0)).choice.tolist()
        ([1.0, 1.0], [1, 0])
        """
        return cls(accuracy=accuracy, costs=costs, slopes=slopes(accuracy, costs))

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def steps(self) -> Floats:
        """What each step to the next mode costs, (modes - 1, rows); (modes - 1, 1) where all cost alike."""
        found = np.diff(self.costs, axis=-1)
        return found[:, None] if found.ndim == 1 else found.T

    def summary(self, bracket: Bracket = WHOLE) -> Summary:
        """What its steps within a bracket cost, by slope."""
        bits = self.slopes.view(np.uint64)
        dense = np.zeros(_BINS)
        steps = self.steps
        for k in range(len(bits)):
            keys, rows = _keys(bits[k], bracket)
            if self.costs.ndim == 1:
                dense += np.bincount(keys, minlength=_BINS) * steps[k, 0]
            else:
                dense += np.bincount(
                    keys, weights=steps[k] if rows is None else steps[k, rows], minlength=_BINS
                )
        if bracket == WHOLE:
            dense[_FREE:] = 0.0
        ends = self.costs[..., [0, -1]]
        cheapest, dearest = (ends * len(self) if ends.ndim == 1 else ends.sum(axis=0)).tolist()
        return _sparse(bracket, len(self), cheapest, dearest, dense)

    def take(self, share: Share) -> Taken:
        """Its choice: steps steeper than the price; then edges at the price, in order of rows, with room."""
        choice = counts(self.slopes > share.price).astype(np.intp)
        tied, edge = 0.0, None
        if share.price > 0 and share.room > -np.inf and len(self):
            tied, edge = self._fill(choice, share)
        return Taken(choice=choice, total=self._total(choice), tied=tied, edge=edge)

    def _fill(self, choice: Ints, share: Share) -> tuple[float, Edge | None]:
        """Takes edges at the price, in place; their cost, and the first that found no room."""
        level = self.slopes == share.price
        width = counts(level).astype(np.intp)
        rows = np.flatnonzero(width)
        steps = self.steps if self.costs.ndim == 1 else self.steps[:, rows]
        cost = (level[:, rows] * steps).sum(axis=0)  # (rows,) an edge may be several steps
        reach = np.cumsum(cost)
        fits = int(np.searchsorted(reach, share.room + share.slip, side="right"))
        choice[rows[:fits]] += width[rows[:fits]]
        spent = float(reach[fits - 1]) if fits else 0.0
        if fits == len(rows):
            return spent, None
        row, left = int(rows[fits]), share.room - spent
        part = min(1.0, left / float(cost[fits])) if left > share.slip else 0.0  # else that is rounding
        return spent, self._edge(row, int(choice[row]), int(choice[row] + width[row]), part)

    def _edge(self, row: int, before: int, mode: int, probability: float) -> Edge:
        costs = self.costs if self.costs.ndim == 1 else self.costs[row]
        return Edge(
            row=row,
            before=before,
            mode=mode,
            cost=float(costs[mode] - costs[before]),
            gain=float(self.accuracy[row, mode] - self.accuracy[row, before]),
            probability=probability,
        )

    def _total(self, choice: Ints) -> Total:
        modes = self.accuracy.shape[1]
        found = np.bincount(choice, minlength=modes)
        shared = self.costs.ndim == 1
        return Total(
            problems=len(self),
            counts=tuple(found.tolist()),
            cost=float((found * self.costs).sum() if shared else taken(self.costs, choice).sum()),
            accuracy=float(taken(self.accuracy, choice).sum()),
        )


def _keys(bits: npt.NDArray[np.uint64], bracket: Bracket) -> tuple[npt.NDArray[np.int64], Ints | None]:
    """Bins of one step's slopes that are within a bracket, and their rows; None: all of them in order."""
    shift = np.uint64(bracket.shift)
    if bracket == WHOLE and bits.all():
        return (bits >> shift).view(np.int64), None
    within = bits > 0  # a slope of 0 is never bought
    if bracket != WHOLE:
        within &= (bits >> (shift + np.uint64(16))) == np.uint64(bracket.prefix)
    rows = np.flatnonzero(within)
    return ((bits.take(rows) >> shift) & np.uint64(_BINS - 1)).view(np.int64), rows
