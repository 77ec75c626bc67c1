"""What one price gives: each problem's best mode, and the averages. Knows nothing of budgets to be met."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable, at_least
from adacompute.solve.hull import chunks, counts, grained

__all__ = [
    "SLIP",
    "averages",
    "best_at",
    "by_cost",
    "check_budget",
    "check_price",
    "check_table",
    "dual",
    "former",
    "taken",
    "total_cost",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

SLIP = 1e-12  # of the cost: what rounding may add to it
_ROWS = 1 << 14  # at a time, so that nothing the size of the table is made on the way


def best_at(table: AccuracyTable, price: float) -> Ints:
    """Each problem's best mode at a price, (problems,) columns: the most accuracy less price times cost.

    Ties go to the cheaper mode, so the average cost never rises with the price.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.8, 0.8]], costs=[1, 4])
    >>> best_at(table, 0.1).tolist(), best_at(table, 0.2).tolist()
    ([1, 0], [0, 0])
    """
    check_table(table)
    check_price(price)
    least = grained(np.array([price], dtype=np.float64))
    ordered, columns = by_cost(table)
    choice = np.empty(len(table), dtype=np.intp)
    for start, stop, slopes in chunks(ordered):
        choice[start:stop] = counts(slopes > least)
    return choice if columns is None else former(columns, np.arange(len(choice)), choice)


def averages(table: AccuracyTable, choice: npt.ArrayLike) -> tuple[float, float]:
    """Average cost and accuracy of a choice, (problems,) columns."""
    columns = _checked_choice(table, choice)
    return total_cost(table, columns) / len(table), math.fsum(_sums(table.accuracy, columns)) / len(table)


def _checked_choice(table: AccuracyTable, choice: npt.ArrayLike) -> npt.NDArray[np.integer]:
    columns, modes = np.asarray(choice), len(table.modes)
    if columns.shape != (len(table),):
        raise TableInvalid(f"a choice of shape {columns.shape} doesn't fit; give ({len(table)},) columns")
    if columns.dtype.kind not in "iu":
        raise TableInvalid(f"a choice of {columns.dtype} can't be; give whole numbers, columns of the table")
    if not (columns.min() >= 0 and columns.max() < modes):
        row = int(np.flatnonzero((columns < 0) | (columns >= modes))[0])
        raise TableInvalid(f"the choice of {table.problem(row)} is {columns[row]}; give 0 to {modes - 1}")
    return columns


def check_price(price: object) -> None:
    """A price is a finite number from 0 up."""
    if not isinstance(price, int | float | np.floating) or not 0 <= price < math.inf:
        raise BudgetOutOfRange(f"price {price!r} can't be used; give a number from 0 up")


def check_budget(budget: object, *, cheapest: float, dearest: float, unit: str) -> None:
    """A budget is a number, not below the cheapest average; `dearest` is for the message."""
    least = at_least(cheapest)
    if not isinstance(budget, int | float | np.integer | np.floating) or isinstance(budget, bool):
        raise BudgetOutOfRange(f"budget {budget!r} is not a number; give {least} to {dearest:g}")
    if not budget >= cheapest * (1 - SLIP):
        name = unit[:-1] if least == "1" and unit.endswith("s") else unit
        raise BudgetOutOfRange(
            f"budget {budget} is below the cheapest allocation ({least} {name} on average); "
            f"give {least} to {dearest:g}"
        )


def check_table(table: object) -> None:
    """What is solved is an AccuracyTable."""
    if not isinstance(table, AccuracyTable):
        kind = type(table).__name__
        raise TableInvalid(f"a {kind} is no accuracy table; make one with AccuracyTable.of(…, costs=…)")


def total_cost(table: AccuracyTable, choice: npt.NDArray[np.integer]) -> float:
    """What a choice, (problems,) columns, costs over all problems."""
    if not table.shared_costs:
        return math.fsum(_sums(table.costs, choice))
    return math.fsum(np.bincount(choice, minlength=len(table.modes)) * table.costs)


def _sums(values: Floats, choice: npt.NDArray[np.integer]) -> Iterator[float]:
    """The sum of the chosen values, a block of rows at a time."""
    for start in range(0, len(values), _ROWS):
        yield float(taken(values[start : start + _ROWS], choice[start : start + _ROWS]).sum())


def dual(table: AccuracyTable, price: float, budget: float) -> float:
    """The dual value at a price: no allocation of average cost `budget` is more accurate.

    The mean over problems of the best accuracy less price times cost, plus price times budget.
    """
    check_price(price)
    total = []
    for start in range(0, len(table), _ROWS):
        costs = table.costs if table.shared_costs else table.costs[start : start + _ROWS]
        total.append(float((table.accuracy[start : start + _ROWS] - price * costs).max(axis=1).sum()))
    return math.fsum(total) / len(table) + price * budget


def taken(values: Floats, choice: npt.NDArray[np.integer]) -> Floats:
    """One value a row, (problems,), of (problems, modes)."""
    return np.asarray(values[np.arange(len(values)), choice])


def former(columns: Ints, rows: Ints, modes: Ints) -> Ints:
    """The columns that modes of some rows had before `by_cost`."""
    return np.asarray(columns[modes] if columns.ndim == 1 else columns[rows, modes])


def by_cost(table: AccuracyTable) -> tuple[AccuracyTable, Ints | None]:
    """The table with each row's modes in ascending cost, and their former columns; None: nothing moved.

    Columns are (modes,) where all problems cost alike, else (problems, modes).
    """
    if table.ascending:
        return table, None
    columns = np.argsort(table.costs, axis=-1, kind="stable")
    alike = columns.ndim == 1
    ordered = AccuracyTable(
        accuracy=table.accuracy[:, columns] if alike else np.take_along_axis(table.accuracy, columns, axis=1),
        costs=table.costs[columns] if alike else np.take_along_axis(table.costs, columns, axis=1),
        modes=tuple(range(len(table.modes))),
        ids=table.ids,
        unit=table.unit,
    )
    return ordered, columns
