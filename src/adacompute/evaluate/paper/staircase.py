"""C̄(λ), the oracle's average cost at every price: exact, from the edges. Knows nothing of a search."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.records import AccuracyTable
from adacompute.solve import frontier

__all__ = ["Staircase", "Staircases", "staircase", "staircases"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircase:
    """Average cost by price: `cost[k]` from `price[k]` on, up to the next; the last one for ever."""

    price: Floats = field(repr=False)  # (stairs,) rising, from 0
    cost: Floats = field(repr=False)  # (stairs,) falling, samples on average

    def at(self, price: float) -> float:
        """The average cost at a price."""
        return float(self.cost[np.searchsorted(self.price, price, side="right") - 1])

    @property
    def free(self) -> float:
        """The average cost where samples cost nothing: no problem wants more."""
        return float(self.cost[0])

    @property
    def tallest(self) -> float:
        """The highest stair, samples on average: by as much a single price can miss a budget."""
        return float(-np.diff(self.cost).min(initial=0.0))

    def between(self, share: float) -> tuple[float, float]:
        """The prices between which the middle `share` of all the fall happens; both 0 where none does."""
        fall = self.cost[0] - self.cost
        if fall[-1] <= 0:
            return 0.0, 0.0
        ends = np.searchsorted(fall / fall[-1], [(1 - share) / 2, (1 + share) / 2])
        return float(self.price[ends[0]]), float(self.price[ends[1]])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircases:
    """The staircase of one recording, by both estimators of accuracy."""

    name: str
    windows: Staircase  # the paper's
    exact: Staircase  # over all subsets


def staircase(table: AccuracyTable) -> Staircase:
    """Every stair of a table; ties go to the cheaper budget, as everywhere.

    >>> stairs = staircase(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]))
    >>> stairs.price.round(3).tolist(), stairs.cost.tolist()
    ([0.0, 0.2, 0.4], [2.0, 1.5, 1.0])
    """
    curve = frontier(table)  # from the highest price down; the first is infinite
    price = np.append(curve.price[1:], 0.0)  # each vertex is left where the next edge begins to pay
    return Staircase(price=price[::-1].copy(), cost=curve.cost[::-1].copy())


def staircases(case: Case) -> Staircases:
    """Both staircases of a recording."""
    return Staircases(name=case.name, windows=staircase(case.windows), exact=staircase(case.exact))
