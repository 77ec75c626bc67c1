"""The paper's way: bisect for one price, then mix the two choices beside it. Knows nothing of edges sorted.

The price is looked for in [0, 5] in 50 steps (the paper's "Binary Search Details"). Cost is a staircase in
the price, so the search ends on a step that misses the budget; the problems whose mode differs between the
two ends are then mixed, all with one probability, so that the expected cost is the budget.
"""

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange
from adacompute.records import AccuracyTable, Allocation, Mix, Trace
from adacompute.solve.plan import planned
from adacompute.solve.price import averages, best_at, dual

__all__ = ["bisected"]

Ints = npt.NDArray[np.intp]

_HIGHEST = 5.0
_STEPS = 50
_SLIP = 1e-12
_FIELDS = ("low", "high", "price", "cost", "cost_low", "cost_high")


def bisected(table: AccuracyTable, budget: float) -> Allocation:
    """The allocation at the price that bisection finds, with the steps of the search as its trace."""
    low, high = 0.0, _HIGHEST
    choice = {price: best_at(table, price) for price in (low, high)}
    cost = {price: averages(table, chosen)[0] for price, chosen in choice.items()}
    if cost[high] > budget * (1 + _SLIP):
        raise BudgetOutOfRange(
            f"at the paper's highest price, {_HIGHEST:g}, the average cost is still {cost[high]:g}, above "
            f"the budget {budget:g}; use method='exact', or a larger unit of cost than {table.unit}"
        )
    tried = []
    for _ in range(_STEPS if cost[low] > budget else 0):
        middle = (low + high) / 2
        choice[middle] = best_at(table, middle)
        cost[middle] = averages(table, choice[middle])[0]
        tried.append((low, high, middle, cost[middle], cost[low], cost[high]))
        low, high = (middle, high) if cost[middle] > budget else (low, middle)
        choice = {price: choice[price] for price in (low, high)}
    if cost[low] <= budget:  # even for free, no problem wants more
        high = low
    columns = np.array(tried, dtype=np.float64).reshape(-1, 6).T
    return planned(
        table,
        budget=budget,
        price=high,
        choice=choice[high],
        mix=_mix(choice[low], choice[high], cost[low] - cost[high], budget - cost[high]),
        bound=dual(table, high, budget),
        trace=Trace(**dict(zip(_FIELDS, columns, strict=True))),
    )


def _mix(dear: Ints, cheap: Ints, between: float, room: float) -> Mix:
    """Every problem whose mode differs takes the dearer one with the same probability."""
    rows = np.flatnonzero(dear != cheap)
    share = room / between if between > 0 else 0.0
    if share <= _SLIP:
        return Mix()
    return Mix(problems=rows, modes=dear[rows], probabilities=np.full(len(rows), min(1.0, share)))
