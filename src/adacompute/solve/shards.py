"""One price over many shards, exact, from summaries that add up. Knows nothing of where the shards are.

The price is the slope at which the budget ends, steepest first, of all steps of all problems. Each round,
every shard tells what its steps cost by bins of slopes (`Shard.summary`), the sums say in which bin the
budget ends, and the next round looks into that bin alone: 15 bits of the slope, then 16, then 16, so three
rounds at the most. Then shards take their problems' steps above the price by themselves; edges at the price
are taken in order of rows while there is room, so that all shards but one take all of theirs, or none.

| after round | price is within | a summary is at most | and typically, of 100,000 problems |
| --- | --- | --- | --- |
| 1 | 1/16 of itself | 330 KB | 8 KB |
| 2 | 2^-20 of itself | 660 KB | 25 KB |
| 3 | exact, as hulls round slopes | 660 KB | 50 bytes |

Who stops after a round and takes the bin's upper end as the price spends less than the budget, by at most
`Search.doubt`; that shrinks with the bin.

    search = Search(budget=2.0)
    while (bracket := search.bracket) is not None:
        search.narrow(shard.summary(bracket) for shard in shards)
    taken = [shard.take(search.share(k)) for k, shard in enumerate(shards)]
    result = search.settled((each.total, each.edge) for each in taken)
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from adacompute.errors import TableInvalid
from adacompute.records import Move
from adacompute.solve.price import SLIP, check_budget
from adacompute.solve.shard import (
    WHOLE,
    Bracket,
    Edge,
    Shard,
    Share,
    Summary,
    Taken,
    Total,
    merged,
)

__all__ = [
    "WHOLE",
    "Bracket",
    "Edge",
    "Search",
    "Settled",
    "Shard",
    "Share",
    "Summary",
    "Taken",
    "Total",
    "merged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An allocation over all shards, but for the choice, which they hold: as `Allocation` tells it."""

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


class Search:
    """The price of a budget, by rounds of summaries. It is found when `bracket` is None."""

    def __init__(self, *, budget: float, unit: str = "samples") -> None:
        self.budget = budget
        self.unit = unit
        self.bracket: Bracket | None = WHOLE  # what the next summaries are to tell
        self.price = 0.0  # the least slope that may be it, so far
        self.rounds = 0
        self.nbytes = 0  # of all summaries so far
        self.doubt = np.inf  # cost, on average, of the steps that aren't yet known to be above the price
        self.starts: list[int] = []  # (shards,) each one's first problem, counted over all
        self._spent = 0.0  # by the cheapest modes and the steps above
        self._problems = 0
        self._rooms: list[float] = []  # (shards,) for edges at the price

    def narrow(self, summaries: Iterable[Summary]) -> None:
        """One round: a summary of each shard, in order of rows."""
        if self.bracket is None:
            raise TableInvalid("the price is found already; give no more summaries")
        bracket, kept = self.bracket, list(summaries)
        whole = merged(kept, bracket=bracket)
        self.rounds += 1
        self.nbytes += sum(summary.nbytes for summary in kept)
        if self.rounds == 1:
            self._begin(whole, kept)
        reach = self._spent + np.cumsum(whole.cost[::-1])  # steepest first
        place = int(np.searchsorted(reach, self._target * (1 + SLIP), side="right"))
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
        self._rooms = self._shared_out([summary.at(key) for summary in kept])

    def _begin(self, whole: Summary, summaries: list[Summary]) -> None:
        if not whole.problems:
            raise TableInvalid("no shard has a problem; give at least one")
        self._problems, self._spent = whole.problems, whole.cheapest
        self.starts = np.cumsum([0, *(summary.problems for summary in summaries)])[:-1].tolist()
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
    def whole_share(self) -> Share:
        """What all shards are to take, one after the other: go on with `Share.after`."""
        room = self._target - self._spent if self.price > 0 else -np.inf
        return Share(price=self.price, room=room, slip=self._target * SLIP)

    def share(self, shard: int) -> Share:
        """What one shard is to take, by its number."""
        whole = self.whole_share
        return replace(whole, room=self._rooms[shard]) if self._rooms else whole

    def _shared_out(self, tied: list[float]) -> list[float]:
        """Room for each shard's edges at the price, (shards,), from what they cost together."""
        whole = self.whole_share
        reach = np.cumsum([0.0, *tied])
        full = int(
            np.searchsorted(reach[1:], whole.room + whole.slip, side="right")
        )  # the first with too many
        return [
            np.inf if shard < full else -np.inf if shard > full else whole.room - float(reach[shard])
            for shard in range(len(tied))
        ]

    def settled(self, parts: Iterable[tuple[Total, Edge | None]]) -> Settled:
        """The allocation, from each shard's total and edge, in order of rows."""
        totals, edge, start = [], None, 0
        for place, (total, found) in enumerate(parts):
            totals.append(total)
            if found is not None:
                edge, start = found, self.starts[place]
        return settled(reduce(add, totals), edge, budget=self.budget, price=self.price, start=start)


def settled(total: Total, edge: Edge | None, *, budget: float, price: float, start: int = 0) -> Settled:
    """An allocation from what it comes to, and the edge at which the budget ends, if any.

    `start` is the first problem of the edge's shard, counted over all.
    """
    cost, accuracy = total.cost / total.problems, total.accuracy / total.problems
    mix, part = None, 0.0
    if edge is not None:
        price = edge.slope or price
        part = edge.probability / total.problems
        if edge.probability > 0:
            mix = Move(problem=start + edge.row, mode=edge.mode, probability=edge.probability)
    mixed = accuracy + part * (edge.gain if edge is not None else 0.0)
    return Settled(
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
