"""Finds the exact price for many blocks of problems; each pass counts how often modes are chosen.

A step changes one problem's mode to the next more expensive one; its slope is the accuracy gained per cost.
The price is the slope at which the budget runs out, if the steps of all problems are bought in order, the
steepest first. In each pass every block counts how many of its problems choose each mode at a thousand
prices. The sums show between which two prices the budget runs out, and the next pass looks there. A slope, as
hull.py rounds it, has 47 bits and each pass determines 10 of them, so there are at most five passes. Then
each block takes all steps steeper than the price, and hull edges whose slope is the price, row by row, while
the budget lasts.

    search = PriceSearch(costs, budget=2.0, problems=sum(map(len, blocks)))
    while len(search.prices):
        search.narrow([count_choices(curves, costs, search.prices) for curves in blocks])
    choices = [choose(curves, costs, quota) for curves, quota in zip(blocks, search.quotas(len(blocks)))]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.solve.hull import compute_slopes, count_steps
from adacompute.solve.pricing import COST_TOLERANCE, take_chosen

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PRICES = 1 << 10  # number of prices at which each pass counts how many problems choose each mode
_GRAIN_BITS = 16  # number of low bits that hull.py rounds away in each slope
_LARGEST = 0x7FEF_FFFF_FFFF_FFFF >> _GRAIN_BITS  # the largest finite slope without its low bits


def count_choices(curves: Floats, costs: Floats, prices: Floats) -> Ints:
    """Counts how many problems choose each mode at each price; shape (prices, modes).

    `curves` are accuracies of shape (problems, modes). `costs` and `prices` ascend.

    >>> count_choices(np.array([[0.5, 0.9], [0.6, 0.8]]), np.array([1.0, 2.0]), np.array([0.0, 0.3])).tolist()
    [[0, 2], [1, 1]]
    """
    steps = []  # for each step to the next mode: how many problems take it, at each price
    for slopes in compute_slopes(curves, costs):
        cheaper = np.bincount(np.searchsorted(prices, slopes), minlength=len(prices) + 1)
        steps.append(len(curves) - np.cumsum(cheaper)[:-1])
    ends = np.full(len(prices), len(curves)), np.zeros(len(prices), dtype=np.int64)
    return -np.diff(np.array([ends[0], *steps, ends[1]]), axis=0).T


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a block of problems may take: all steps steeper than the price, and some as steep as the price."""

    price: float  # the price, rounded in the same way as slopes in hull.py
    # maximum total cost of hull edges whose slope equals the price; inf: take all of them; -inf: take none
    room: float = -np.inf
    tolerance: float = 0.0  # rounding error by which the cost may exceed `room`

    def after(self, choice: "ModeChoice") -> "Quota":
        """Returns the quota that is left for later problems after this choice."""
        return replace(self, room=self.room - choice.tied if choice.edge is None else -np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One problem's change to a more expensive mode: the first one that the budget can't fully pay."""

    row: int
    mode: int  # index of the more expensive mode
    cost: float
    gain: float  # accuracy gained by the change
    # probability of the more expensive mode, which makes the expected cost equal to the budget
    probability: float

    @property
    def slope(self) -> float:
        """The gain divided by the cost, without the rounding that hull.py applies to slopes."""
        return self.gain / self.cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModeChoice:
    """The modes chosen for a block of problems."""

    columns: npt.NDArray[np.intp]  # index of each problem's mode; shape (problems,)
    accuracy: float  # sum of the problems' accuracies
    tied: float  # total cost of the taken hull edges whose slope equals the price
    edge: Edge | None  # the first hull edge that the budget can't fully pay; None if none is in this block


def choose(curves: Floats, costs: Floats, quota: Quota) -> ModeChoice:
    """Chooses the modes of a block of problems within the block's quota.

    Takes all steps steeper than the price; then, row by row, hull edges as steep as the price.
    """
    slopes = compute_slopes(curves, costs)
    columns = count_steps(slopes > quota.price).astype(np.intp)
    tied, edge = 0.0, None
    if quota.price > 0 and quota.room > -np.inf:
        level = slopes == quota.price
        rows = np.flatnonzero(level.any(axis=0))
        before, after = columns[rows], columns[rows] + count_steps(level[:, rows])
        reach = np.cumsum(costs[after] - costs[before])
        fits = int(np.searchsorted(reach, quota.room + quota.tolerance, side="right"))
        columns[rows[:fits]] = after[:fits]
        tied = float(reach[fits - 1]) if fits else 0.0
        if fits < len(rows):
            row, old, new = (int(numbers[fits]) for numbers in (rows, before, after))
            cost, left = float(costs[new] - costs[old]), quota.room - tied
            edge = Edge(
                row=row,
                mode=new,
                cost=cost,
                gain=float(curves[row, new] - curves[row, old]),
                # 0 if the rest of the budget is only a rounding error
                probability=min(1.0, left / cost) if left > quota.tolerance else 0.0,
            )
    return ModeChoice(
        columns=columns, accuracy=float(take_chosen(curves, columns).sum()), tied=tied, edge=edge
    )


class PriceSearch:
    """Finds the price for a budget in several passes over all problems. It is done when `prices` is empty."""

    def __init__(self, costs: Floats, *, budget: float, problems: int) -> None:
        self.price = 0.0
        self.passes = 0
        self.nbytes = 0  # size in bytes of all counts received so far
        self._costs = costs
        self._target = float(budget) * problems
        # lower and upper bound of the price, each as the bits of a double without its 16 low bits. The cost
        # exceeds the budget at the lower bound, if that isn't 0. It doesn't at the upper bound.
        self._ends = 0, _LARGEST
        self._spent = 0.0  # total cost of all problems at the price found
        # total cost of each block's hull edges as steep as the price; shape (blocks,) or empty
        self._tied = np.zeros(0)

    @property
    def prices(self) -> Floats:
        """The prices at which to count choices in the next pass, ascending."""
        low, high = self._ends
        numbers = np.unique(low + (high - low) * np.arange(_PRICES) // (_PRICES - 1))
        return (numbers << _GRAIN_BITS).view(np.float64) if high > low else np.zeros(0)

    def narrow(self, counts: Sequence[Ints]) -> None:
        """Narrows the range of prices; `counts` has each block's result of `count_choices` at `prices`."""
        numbers = self.prices.view(np.int64) >> _GRAIN_BITS
        spent = sum(counts[1:], counts[0]) @ self._costs  # total cost at each price, descending
        fits = spent <= self._target * (1 + COST_TOLERANCE)
        fits[-1] = True  # the cost at the highest price is always within the budget, apart from rounding
        first = int(fits.argmax())
        self._ends = int(numbers[max(0, first - 1)]), int(numbers[first])
        self.passes += 1
        self.nbytes += sum(block.nbytes for block in counts)
        if self._ends[1] - self._ends[0] > 1:
            return
        self.price, self._spent = float(self.prices[-1]) if first else 0.0, float(spent[first])
        if first:
            self._tied = np.array([(block[first - 1] - block[first]) @ self._costs for block in counts])
        self._ends = 0, 0

    def quotas(self, blocks: int) -> list[Quota]:
        """Returns each block's quota, after the price is found.

        The rest of the budget is for hull edges as steep as the price; earlier blocks get it first.
        """
        quota = Quota(price=self.price, tolerance=self._target * COST_TOLERANCE)
        if not len(self._tied):
            return [quota] * blocks
        room, reach = self._target - self._spent, np.cumsum(self._tied)
        return [
            replace(quota, room=np.inf if end <= room + quota.tolerance else room - (end - tied))
            for end, tied in zip(reach.tolist(), self._tied.tolist(), strict=True)
        ]
