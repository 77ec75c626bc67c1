"""A choice and its mix, with their averages and the bound. Knows nothing of how they were found."""

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable, Allocation, LimitUse, Mix, Trace
from adacompute.solve.price import averages

__all__ = ["mixed", "planned"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


def planned(
    table: AccuracyTable,
    *,
    budget: float,
    price: float,
    choice: Ints,
    mix: Mix,
    bound: float | None = None,
    limits: tuple[LimitUse, ...] = (),
    trace: Trace | None = None,
) -> Allocation:
    """The allocation; without a `bound`, the mix reaches it."""
    cost, accuracy = averages(table, choice)
    mixed_cost = cost + mixed(table.cost_matrix, choice, mix)
    mixed_accuracy = accuracy + mixed(table.accuracy, choice, mix)
    for array in (choice, mix.problems, mix.modes, mix.probabilities):
        array.setflags(write=False)
    return Allocation(
        budget=budget,
        price=price,
        choice=choice,
        mix=mix,
        cost=cost,
        accuracy=accuracy,
        mixed_cost=mixed_cost,
        mixed_accuracy=mixed_accuracy,
        bound=max(accuracy, mixed_accuracy if bound is None else bound),  # rounding aside, it is
        modes=table.modes,
        unit=table.unit,
        limits=limits,
        trace=trace,
    )


def mixed(values: Floats, choice: Ints, mix: Mix) -> float:
    """What mixing adds to the average of values, (problems, modes)."""
    rows = mix.problems
    change = values[rows, mix.modes] - values[rows, choice[rows]]
    return float((mix.probabilities * change).sum()) / len(choice)
