"""One price over many shards, exact, from histograms that add up.

The price is the slope at which the budget ends, steepest first, of all steps of all problems. Each
round, every shard adds up what its steps cost by bins of slopes (`TableShard.histogram`), the sums
say in which bin the budget ends, and the next round looks into that bin alone. A slope, as hull.py
rounds it, has 47 bits that count: 15 in the first round, then 16, then 16, so there are at most
three rounds. Then each shard takes its problems' steps above the price by itself; edges at the
price are taken in order of rows while there is room, so all shards but one take all of theirs, or
none.

| after round | price is within | a histogram is at most | and typically, of 100,000 problems |
| --- | --- | --- | --- |
| 1 | 1/16 of itself | 330 KB | 8 KB |
| 2 | 2^-20 of itself | 660 KB | 25 KB |
| 3 | exact, as hulls round slopes | 660 KB | 50 bytes |

A caller that stops after a round and takes the bin's upper end as the price spends less than the
budget, by at most `PriceSearch.doubt`; that shrinks with the bin.

    search = PriceSearch(budget=2.0)
    while (bracket := search.bracket) is not None:
        search.narrow(shard.histogram(bracket) for shard in shards)
    choices = [shard.take(search.quota(k)) for k, shard in enumerate(shards)]
    result = search.build_allocation((choice.total, choice.edge) for choice in choices)
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from adacompute.errors import TableInvalid
from adacompute.records import Move
from adacompute.solve.hull import compute_slopes, count_steps
from adacompute.solve.pricing import COST_TOLERANCE, check_budget, take_chosen

__all__ = [
    "ALL_SLOPES",
    "ChoiceTotal",
    "Edge",
    "PriceSearch",
    "ShardQuota",
    "ShardedAllocation",
    "SlopeBracket",
    "SlopeHistogram",
    "TableShard",
    "merge_histograms",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_BINS = 1 << 16
_FREE_BIN = 0x7FF0  # the first bin of an infinite slope: such steps cost nothing, and are always taken


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeBracket:
    """The slopes whose bits start alike: `bits >> (shift + 16) == prefix`.

    The next 16 bits number its bins.
    """

    prefix: int
    shift: int  # 48, 32 and then 16, where a bin is one slope

    def inner(self, key: int) -> "SlopeBracket":
        """One of its bins as a bracket, to be looked at more closely."""
        return SlopeBracket(prefix=self.prefix << 16 | key, shift=self.shift - 16)

    def slope(self, key: int) -> float:
        """The least slope of a bin."""
        bits = np.array([(self.prefix << 16 | key) << self.shift], dtype=np.uint64)
        return float(bits.view(np.float64)[0])


ALL_SLOPES = SlopeBracket(prefix=0, shift=48)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlopeHistogram:
    """What the steps within a bracket cost, by bins of slopes; empty bins are left out. Histograms add up."""

    bracket: SlopeBracket
    problems: int
    cheapest: float  # cost of every problem's cheapest mode
    dearest: float  # and of its dearest
    keys: npt.NDArray[np.uint16]  # (bins,) rising
    cost: Floats  # (bins,)

    @property
    def nbytes(self) -> int:
        """Bytes to send: 10 for each bin, and 40."""
        return int(self.keys.nbytes + self.cost.nbytes) + 40

    def at(self, key: int) -> float:
        """Cost of the steps in one bin."""
        place = int(np.searchsorted(self.keys, key))
        return float(self.cost[place]) if place < len(self.keys) and self.keys[place] == key else 0.0


def merge_histograms(
    histograms: Iterable[SlopeHistogram], *, bracket: SlopeBracket = ALL_SLOPES
) -> SlopeHistogram:
    """Several histograms of one bracket as one, in one pass; only their sum is kept."""
    problems, cheapest, dearest, dense = 0, 0.0, 0.0, np.zeros(_BINS)
    for histogram in histograms:
        problems += histogram.problems
        cheapest += histogram.cheapest
        dearest += histogram.dearest
        dense[histogram.keys] += histogram.cost
    return _build_histogram(bracket, problems, cheapest, dearest, dense)


def _build_histogram(
    bracket: SlopeBracket, problems: int, cheapest: float, dearest: float, dense: Floats
) -> SlopeHistogram:
    bins = np.flatnonzero(dense)
    return SlopeHistogram(
        bracket=bracket,
        problems=problems,
        cheapest=cheapest,
        dearest=dearest,
        keys=bins.astype(np.uint16),
        cost=dense[bins],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardQuota:
    """What a shard may take: all steps steeper than the price, and those at the price that have room."""

    price: float  # a slope, as the hull rounds it
    room: float  # cost left for edges of that very slope; infinite: for all; minus infinity: for none
    tolerance: float = 0.0  # of cost: what rounding may add

    def after(self, served: "ShardChoice") -> "ShardQuota":
        """The quota of the rows that follow those already served."""
        return replace(self, room=self.room - served.tied if served.edge is None else -np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The first edge at the price without room: one problem's, from its mode to a dearer one."""

    row: int  # of the shard
    before: int  # mode, a column
    mode: int
    cost: float
    gain: float  # of accuracy
    probability: float  # of the dearer mode, so that all of the budget is spent; 0: not mixed

    @property
    def slope(self) -> float:
        """Its gain divided by its cost, without the rounding that makes slopes comparable."""
        return self.gain / self.cost if self.cost > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceTotal:
    """What a choice adds up to over a shard's problems; totals add up."""

    problems: int
    counts: tuple[int, ...]  # (modes,) problems that have each
    cost: float
    accuracy: float

    def __add__(self, other: "ChoiceTotal") -> "ChoiceTotal":
        return ChoiceTotal(
            problems=self.problems + other.problems,
            counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            cost=self.cost + other.cost,
            accuracy=self.accuracy + other.accuracy,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardChoice:
    """A shard's choice."""

    choice: Ints  # (rows,) columns
    total: ChoiceTotal
    tied: float  # cost of the edges at the price that were taken
    edge: Edge | None  # the one that found no room; None: it isn't in this shard


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableShard:
    """Consecutive problems, with the slopes of their hulls. It may be empty."""

    accuracy: Floats  # (rows, modes)
    costs: Floats  # (modes,) or (rows, modes), ascending
    slopes: Floats  # (modes - 1, rows)

    @classmethod
    def of(cls, accuracy: Floats, *, costs: Floats) -> "TableShard":
        """From the columns of an accuracy table whose modes stand in ascending cost.

        >>> shard = TableShard.of(np.array([[0.5, 0.9], [0.6, 0.8]]), costs=np.array([1.0, 2.0]))
        >>> shard.histogram().cost.tolist(), shard.take(ShardQuota(price=0.3, room=0.0)).choice.tolist()
        ([1.0, 1.0], [1, 0])
        """
        return cls(accuracy=accuracy, costs=costs, slopes=compute_slopes(accuracy, costs))

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def step_costs(self) -> Floats:
        """What each step to the next mode costs, (modes - 1, rows); (modes - 1, 1) where costs are shared."""
        costs = np.diff(self.costs, axis=-1)
        return costs[:, None] if costs.ndim == 1 else costs.T

    def histogram(self, bracket: SlopeBracket = ALL_SLOPES) -> SlopeHistogram:
        """What its steps within a bracket cost, by slope."""
        bits = self.slopes.view(np.uint64)
        dense = np.zeros(_BINS)
        step_costs = self.step_costs
        for k in range(len(bits)):
            keys, rows = _find_bins(bits[k], bracket)
            if self.costs.ndim == 1:
                dense += np.bincount(keys, minlength=_BINS) * step_costs[k, 0]
            else:
                dense += np.bincount(
                    keys, weights=step_costs[k] if rows is None else step_costs[k, rows], minlength=_BINS
                )
        if bracket == ALL_SLOPES:
            dense[_FREE_BIN:] = 0.0
        ends = self.costs[..., [0, -1]]
        cheapest, dearest = (ends * len(self) if ends.ndim == 1 else ends.sum(axis=0)).tolist()
        return _build_histogram(bracket, len(self), cheapest, dearest, dense)

    def take(self, quota: ShardQuota) -> ShardChoice:
        """Its choice: steps steeper than the price; then edges at the price, in order of rows, with room."""
        choice = count_steps(self.slopes > quota.price).astype(np.intp)
        tied, edge = 0.0, None
        if quota.price > 0 and quota.room > -np.inf and len(self):
            tied, edge = self._take_tied_edges(choice, quota)
        return ShardChoice(choice=choice, total=self._sum_choice(choice), tied=tied, edge=edge)

    def _take_tied_edges(self, choice: Ints, quota: ShardQuota) -> tuple[float, Edge | None]:
        """Takes edges at the price, in place; returns their cost, and the first edge without room."""
        level = self.slopes == quota.price
        width = count_steps(level).astype(np.intp)
        rows = np.flatnonzero(width)
        step_costs = self.step_costs if self.costs.ndim == 1 else self.step_costs[:, rows]
        cost = (level[:, rows] * step_costs).sum(axis=0)  # (rows,) an edge may be several steps
        reach = np.cumsum(cost)
        fits = int(np.searchsorted(reach, quota.room + quota.tolerance, side="right"))
        choice[rows[:fits]] += width[rows[:fits]]
        spent = float(reach[fits - 1]) if fits else 0.0
        if fits == len(rows):
            return spent, None
        row, left = int(rows[fits]), quota.room - spent
        part = min(1.0, left / float(cost[fits])) if left > quota.tolerance else 0.0  # else that is rounding
        return spent, self._build_edge(row, int(choice[row]), int(choice[row] + width[row]), part)

    def _build_edge(self, row: int, before: int, mode: int, probability: float) -> Edge:
        costs = self.costs if self.costs.ndim == 1 else self.costs[row]
        return Edge(
            row=row,
            before=before,
            mode=mode,
            cost=float(costs[mode] - costs[before]),
            gain=float(self.accuracy[row, mode] - self.accuracy[row, before]),
            probability=probability,
        )

    def _sum_choice(self, choice: Ints) -> ChoiceTotal:
        modes = self.accuracy.shape[1]
        counts_by_mode = np.bincount(choice, minlength=modes)
        shared = self.costs.ndim == 1
        return ChoiceTotal(
            problems=len(self),
            counts=tuple(counts_by_mode.tolist()),
            cost=float(
                (counts_by_mode * self.costs).sum() if shared else take_chosen(self.costs, choice).sum()
            ),
            accuracy=float(take_chosen(self.accuracy, choice).sum()),
        )


def _find_bins(
    bits: npt.NDArray[np.uint64], bracket: SlopeBracket
) -> tuple[npt.NDArray[np.int64], Ints | None]:
    """Bins of one step's slopes within a bracket, and their rows; None: all rows in order."""
    shift = np.uint64(bracket.shift)
    if bracket == ALL_SLOPES and bits.all():
        return (bits >> shift).view(np.int64), None
    within = bits > 0  # a slope of 0 is never bought
    if bracket != ALL_SLOPES:
        within &= (bits >> (shift + np.uint64(16))) == np.uint64(bracket.prefix)
    rows = np.flatnonzero(within)
    return ((bits.take(rows) >> shift) & np.uint64(_BINS - 1)).view(np.int64), rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedAllocation:
    """An allocation over all shards, like `Allocation` without the choice, which the shards hold."""

    problems: int
    budget: float
    price: float  # accuracy per unit of cost; 0: the budget isn't binding
    counts: tuple[int, ...]  # (modes,) problems that have each
    cost: float  # average of the choice
    accuracy: float  # average of the choice
    mixed_cost: float  # expected, with the mix
    mixed_accuracy: float
    bound: float  # no allocation within the budget is more accurate
    mix: Move | None  # its problem counted over all shards

    @property
    def gap(self) -> float:
        """How far the choice may be from the best there is."""
        return max(0.0, self.bound - self.accuracy)


class PriceSearch:
    """The price of a budget, found by rounds of histograms. It is found when `bracket` is None."""

    def __init__(self, *, budget: float, unit: str = "samples") -> None:
        self.budget = budget
        self.unit = unit
        self.bracket: SlopeBracket | None = ALL_SLOPES  # what the next summaries are to tell
        self.price = 0.0  # the least slope that may be it, so far
        self.rounds = 0
        self.nbytes = 0  # of all summaries so far
        self.doubt = np.inf  # cost, on average, of the steps that aren't yet known to be above the price
        self.starts: list[int] = []  # (shards,) each one's first problem, counted over all
        self._spent = 0.0  # by the cheapest modes and the steps above
        self._problems = 0
        self._rooms: list[float] = []  # (shards,) for edges at the price

    def narrow(self, histograms: Iterable[SlopeHistogram]) -> None:
        """One round: a histogram of each shard, in order of rows."""
        if self.bracket is None:
            raise TableInvalid("the price is found already; give no more summaries")
        bracket, shard_histograms = self.bracket, list(histograms)
        whole = merge_histograms(shard_histograms, bracket=bracket)
        self.rounds += 1
        self.nbytes += sum(histogram.nbytes for histogram in shard_histograms)
        if self.rounds == 1:
            self._begin(whole, shard_histograms)
        reach = self._spent + np.cumsum(whole.cost[::-1])  # steepest first
        place = int(np.searchsorted(reach, self._target * (1 + COST_TOLERANCE), side="right"))
        if place == len(reach) and self.rounds == 1:
            self.bracket, self.price, self.doubt = None, 0.0, 0.0  # all of it fits
            return
        place = min(place, len(reach) - 1)  # by rounding only
        key = int(whole.keys[::-1][place])
        self._spent = float(reach[place - 1]) if place else self._spent
        self.price = bracket.slope(key)
        self.doubt = whole.at(key) / self._problems
        if bracket.shift > 16:
            self.bracket = bracket.inner(key)
            return
        self.bracket = None
        self._rooms = self._share_room([summary.at(key) for summary in shard_histograms])

    def _begin(self, whole: SlopeHistogram, histograms: list[SlopeHistogram]) -> None:
        if not whole.problems:
            raise TableInvalid("no shard has a problem; give at least one")
        self._problems, self._spent = whole.problems, whole.cheapest
        self.starts = np.cumsum([0, *(histogram.problems for histogram in histograms)])[:-1].tolist()
        check_budget(
            self.budget,
            cheapest=whole.cheapest / whole.problems,
            dearest=whole.dearest / whole.problems,
            unit=self.unit,
        )

    @property
    def _target(self) -> float:
        return float(self.budget) * self._problems

    @property
    def total_quota(self) -> ShardQuota:
        """What all shards may take, one after the other; continue with `ShardQuota.after`."""
        room = self._target - self._spent if self.price > 0 else -np.inf
        return ShardQuota(price=self.price, room=room, tolerance=self._target * COST_TOLERANCE)

    def quota(self, shard: int) -> ShardQuota:
        """What one shard may take, by its number."""
        total = self.total_quota
        return replace(total, room=self._rooms[shard]) if self._rooms else total

    def _share_room(self, tied: list[float]) -> list[float]:
        """Room for each shard's edges at the price, (shards,), from what they cost together."""
        total = self.total_quota
        reach = np.cumsum([0.0, *tied])
        # the first shard whose edges don't all have room
        full = int(np.searchsorted(reach[1:], total.room + total.tolerance, side="right"))
        return [
            np.inf if shard < full else -np.inf if shard > full else total.room - float(reach[shard])
            for shard in range(len(tied))
        ]

    def build_allocation(self, parts: Iterable[tuple[ChoiceTotal, Edge | None]]) -> ShardedAllocation:
        """The allocation, from each shard's total and edge, in order of rows."""
        totals, edge, start = [], None, 0
        for place, (total, shard_edge) in enumerate(parts):
            totals.append(total)
            if shard_edge is not None:
                edge, start = shard_edge, self.starts[place]
        return build_sharded_allocation(
            reduce(add, totals), edge, budget=self.budget, price=self.price, start=start
        )


def build_sharded_allocation(
    total: ChoiceTotal, edge: Edge | None, *, budget: float, price: float, start: int = 0
) -> ShardedAllocation:
    """An allocation from its total, and the edge at which the budget ends, if any.

    `start` is the first problem of the edge's shard, counted over all shards.
    """
    cost, accuracy = total.cost / total.problems, total.accuracy / total.problems
    mix, part = None, 0.0
    if edge is not None:
        price = edge.slope or price
        part = edge.probability / total.problems
        if edge.probability > 0:
            mix = Move(problem=start + edge.row, mode=edge.mode, probability=edge.probability)
    mixed = accuracy + part * (edge.gain if edge is not None else 0.0)
    return ShardedAllocation(
        problems=total.problems,
        budget=budget,
        price=price,
        counts=total.counts,
        cost=cost,
        accuracy=accuracy,
        mixed_cost=cost + part * (edge.cost if edge is not None else 0.0),
        mixed_accuracy=mixed,
        bound=max(accuracy, mixed),
        mix=mix,
    )
