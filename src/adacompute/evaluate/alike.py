"""The baseline: all problems treated alike at an average cost. Knows nothing of who deserves more.

The best one can do without looking at a problem is to stay on the upper concave hull of the modes' averages:
where the budget lies between two modes of it, each problem gets the dearer one with the same probability.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange
from adacompute.records import AccuracyTable, Frontier, at_least
from adacompute.records.table import Mode
from adacompute.score import Estimate
from adacompute.score.summary import estimated
from adacompute.solve import frontier, solve

__all__ = ["Uniform", "cost_for", "uniform", "uniform_frontier"]

Floats = npt.NDArray[np.float64]

_CLOSE = 1e-9  # of accuracy: sums in another order may differ by less


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """All problems alike: each gets `modes[1]` with `probability`, else `modes[0]`."""

    budget: float  # the average cost asked for
    cost: float  # the average cost had
    accuracy: Estimate  # with its 95% interval over problems
    modes: tuple[Mode, Mode]  # the same twice where one serves alone
    probability: float  # of the second; 0 where one serves alone
    each: Floats = field(repr=False, compare=False)  # (problems,) accuracy of each, expected


def uniform(table: AccuracyTable, *, budget: float) -> Uniform:
    """What the same average cost buys when problems are not told apart.

    >>> found = uniform(AccuracyTable.of([[0.5, 0.9], [0.7, 0.7]], costs=[1, 2]), budget=1.5)
    >>> found.modes, found.probability, round(found.accuracy.mean, 3)
    ((1, 2), 0.5, 0.7)
    """
    averages = _average(table)
    if budget < (cheapest := float(averages.costs.min())) * (1 - _CLOSE):
        raise BudgetOutOfRange(
            f"budget {budget} is below what all problems alike can cost ({at_least(cheapest)} {table.unit}, "
            f"the average of the cheapest mode); give {at_least(cheapest)} or more"
        )
    plan = solve(averages, budget=max(budget, cheapest))
    first, share = int(plan.choice[0]), 0.0
    second = first
    for move in plan.mix:
        second, share = move.mode, move.probability
    each = (1 - share) * table.accuracy[:, first] + share * table.accuracy[:, second]  # (problems,)
    return Uniform(
        budget=budget,
        cost=plan.mixed_cost,
        accuracy=estimated(each),
        modes=(table.modes[first], table.modes[second]),
        probability=share,
        each=each,
    )


def uniform_frontier(table: AccuracyTable) -> Frontier:
    """Accuracy of all problems alike at every average cost: the hull of the modes' averages."""
    return frontier(_average(table))


def cost_for(curve: Frontier, accuracy: float) -> float | None:
    """The least average cost at which a frontier is so accurate, to 1e-9; None where it never is."""
    if not accuracy <= curve.accuracy[-1] + _CLOSE:
        return None
    return float(np.interp(accuracy, curve.accuracy, curve.cost))


def _average(table: AccuracyTable) -> AccuracyTable:
    """One row: every mode's averages over problems."""
    return AccuracyTable.of(
        np.clip(table.accuracy.mean(axis=0, keepdims=True), 0.0, 1.0),
        costs=table.cost_matrix.mean(axis=0),
        modes=table.modes,
        unit=table.unit,
        order="any",
    )
