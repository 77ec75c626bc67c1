"""Finds each problem's best column of the table at a price; builds an `Allocation`, the result of `solve`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable, ModeName, format_lower_bound
from adacompute.solve.hull import count_steps, iterate_slopes, round_slopes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

COST_TOLERANCE = 1e-12  # share of a budget by which a cost may exceed it, because of rounding
_ROWS = 1 << 14  # number of rows processed at a time, so that temporary arrays stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A random change: with `probability`, one problem gets `mode` instead of the mode chosen for it."""

    problem: int  # index of the problem, i.e. row of the accuracy table
    mode: int  # index of the new mode, i.e. column of the accuracy table
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mix:
    """Random changes to a choice of modes, which raise its expected accuracy within the budget.

    A budget needs a random mode for at most one problem, and every further limit for at most one more. The
    paper's method (`method="bisection"`) uses a random mode for every problem whose best mode differs between
    the last two prices. Iterating over a `Mix` yields a `Move` for each random change.
    """

    # for each change: the index of its problem (a row of the table)
    problems: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    # for each change: the index of the new mode (a column of the table)
    modes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    # for each change: the probability that the problem gets the new mode
    probabilities: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Move]:
        for i, k, p in zip(self.problems, self.modes, self.probabilities, strict=True):
            yield Move(problem=int(i), mode=int(k), probability=float(p))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The steps of a search for the price by bisection, for diagnosis. Every array has one entry per step."""

    low: Floats  # lower end of the range of prices before the step
    high: Floats  # upper end of the range of prices before the step
    price: Floats  # the price tried: the middle of the range
    cost: Floats  # average cost at the price tried
    cost_low: Floats  # average cost at the lower end of the range
    cost_high: Floats  # average cost at the upper end of the range


@dataclass(frozen=True, slots=True, kw_only=True)
class CapUse:
    """How much of a limit is used. The budget is one of the limits, with the unit of cost as its `name`."""

    name: str
    at_most: float
    price: float  # accuracy gained per additional unit of this cost; 0 if a higher limit would gain nothing
    cost: float  # average of this cost for `Allocation.choice`
    mixed_cost: float  # expected average of this cost with the random changes in `Allocation.mix`

    @property
    def slack(self) -> float:
        """The part of the limit that is unused on average; 0 if it is used up."""
        return max(0.0, self.at_most - self.mixed_cost)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """A mode for each problem: `choice`, which is within the budget. Arrays are read-only.

    No choice within the budget has an accuracy above `bound`. With the random changes in `mix`, the expected
    accuracy is `bound` (with `method="bisection"`, it may be a little lower).
    """

    budget: float  # the requested average cost
    price: float  # accuracy gained per additional unit of cost; 0 if a larger budget would gain nothing
    choice: Ints  # each problem's mode, as a column of the table; shape (problems,)
    mix: Mix  # random changes to `choice`, which raise the expected accuracy within the budget
    cost: float  # average cost of `choice`
    accuracy: float  # average accuracy of `choice`
    mixed_cost: float  # expected average cost with the random changes in `mix`
    mixed_accuracy: float  # expected average accuracy with the random changes in `mix`
    bound: float  # upper bound of the accuracy of any allocation within the budget
    modes: tuple[ModeName, ...]
    unit: str = "samples"
    # how much of the budget and of each further limit is used; empty without limits
    limits: tuple[CapUse, ...] = ()
    trace: Trace | None = None  # the steps of the search; only with method="bisection"

    @property
    def gap(self) -> float:
        """Upper bound of the accuracy that a better choice could gain: `bound` minus `accuracy`."""
        return max(0.0, self.bound - self.accuracy)

    @property
    def binding(self) -> bool:
        """Whether a larger budget would improve accuracy."""
        return self.price > 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of problems that get each mode, in the order of `modes`."""
        return tuple(np.bincount(self.choice, minlength=len(self.modes)).tolist())

    def draw(self, rng: np.random.Generator) -> Ints:
        """Returns each problem's mode after making the changes in `mix` at random.

        The expected average cost is `mixed_cost`.
        """
        if not isinstance(rng, np.random.Generator):
            raise TableInvalid(f"rng {rng!r} can't draw; give np.random.default_rng(seed)")
        modes = self.choice.copy()
        rows, which = np.unique(self.mix.problems, return_inverse=True)
        chance = rng.random(len(rows))[which]  # one random number for each problem
        # a change happens if its problem's random number is in the change's interval, which begins at `start`
        start = np.zeros(len(which))
        used = np.zeros(len(rows))
        for at, row in enumerate(which) if len(rows) < len(which) else ():
            start[at] = used[row]
            used[row] += self.mix.probabilities[at]
        hit = (start <= chance) & (chance < start + self.mix.probabilities)
        modes[self.mix.problems[hit]] = self.mix.modes[hit]
        return modes


def best_at(table: AccuracyTable, price: float) -> Ints:
    """Returns each problem's best mode at a price: the column with the largest accuracy - price * cost.

    Ties go to the cheaper mode, so the average cost never rises with the price.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.8, 0.8]], costs=[1, 4])
    >>> best_at(table, 0.1).tolist(), best_at(table, 0.2).tolist()
    ([1, 0], [0, 0])
    """
    check_table(table)
    check_price(price)
    rounded_price = round_slopes(np.array([price], dtype=np.float64))
    ordered, columns = sort_by_cost(table)
    choice = np.empty(len(table), dtype=np.intp)
    for start, stop, slopes in iterate_slopes(ordered):
        choice[start:stop] = count_steps(slopes > rounded_price)
    return choice if columns is None else restore_columns(columns, np.arange(len(choice)), choice)


def averages(table: AccuracyTable, choice: npt.ArrayLike) -> tuple[float, float]:
    """Computes the average cost and accuracy of a choice of one column for each problem."""
    columns = _check_choice(table, choice)
    return compute_total_cost(table, columns) / len(table), math.fsum(
        _sum_blocks(table.accuracy, columns)
    ) / len(table)


def _check_choice(table: AccuracyTable, choice: npt.ArrayLike) -> npt.NDArray[np.integer]:
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
    """Raises BudgetOutOfRange unless the price is finite and not negative."""
    if not isinstance(price, int | float | np.floating) or not 0 <= price < math.inf:
        raise BudgetOutOfRange(f"price {price!r} can't be used; give a number from 0 up")


def check_budget(budget: object, *, cheapest: float, dearest: float, unit: str) -> None:
    """Raises BudgetOutOfRange unless the budget is a number, and at least the cheapest average cost.

    `dearest` is only shown in the message.
    """
    cheapest_text = format_lower_bound(cheapest)
    if not isinstance(budget, int | float | np.integer | np.floating) or isinstance(budget, bool):
        raise BudgetOutOfRange(f"budget {budget!r} is not a number; give {cheapest_text} to {dearest:g}")
    if not budget >= cheapest * (1 - COST_TOLERANCE):
        name = unit[:-1] if cheapest_text == "1" and unit.endswith("s") else unit
        raise BudgetOutOfRange(
            f"budget {budget} is below the cheapest allocation ({cheapest_text} {name} on average); "
            f"give {cheapest_text} to {dearest:g}"
        )


def check_table(table: object) -> None:
    """Raises TableInvalid unless `table` is an AccuracyTable."""
    if not isinstance(table, AccuracyTable):
        kind = type(table).__name__
        raise TableInvalid(f"a {kind} is not an accuracy table; make one with AccuracyTable.of(…, costs=…)")


def compute_total_cost(table: AccuracyTable, choice: npt.NDArray[np.integer]) -> float:
    """Computes the total cost of a choice of one column for each problem."""
    if not table.shared_costs:
        return math.fsum(_sum_blocks(table.costs, choice))
    return math.fsum(np.bincount(choice, minlength=len(table.modes)) * table.costs)


def _sum_blocks(values: Floats, choice: npt.NDArray[np.integer]) -> Iterator[float]:
    """Yields sums over blocks of rows; each row adds the value in the column that `choice` has for it."""
    for start in range(0, len(values), _ROWS):
        yield float(take_chosen(values[start : start + _ROWS], choice[start : start + _ROWS]).sum())


def dual(table: AccuracyTable, price: float, budget: float) -> float:
    """Computes an upper bound of the accuracy of any allocation within the budget: the dual value at a price.

    This is price * budget, plus the mean over all problems of the largest accuracy - price * cost.
    """
    check_price(price)
    total = []
    for start in range(0, len(table), _ROWS):
        costs = table.costs if table.shared_costs else table.costs[start : start + _ROWS]
        total.append(float((table.accuracy[start : start + _ROWS] - price * costs).max(axis=1).sum()))
    return math.fsum(total) / len(table) + price * budget


def take_chosen(values: Floats, choice: npt.NDArray[np.integer]) -> Floats:
    """Takes one value from each row: the one in the chosen column."""
    return np.asarray(values[np.arange(len(values)), choice])


def restore_columns(columns: Ints, rows: Ints, modes: Ints) -> Ints:
    """Converts columns of a table sorted by `sort_by_cost` to columns of the original table."""
    return np.asarray(columns[modes] if columns.ndim == 1 else columns[rows, modes])


def sort_by_cost(table: AccuracyTable) -> tuple[AccuracyTable, Ints | None]:
    """Sorts the modes of each row by cost. Returns the sorted table, and the modes' original columns.

    The columns have shape (modes,) if all rows have the same costs, else (problems, modes). They are None if
    the table was already sorted.
    """
    if table.ascending:
        return table, None
    columns = np.argsort(table.costs, axis=-1, kind="stable")
    shared = columns.ndim == 1
    ordered = AccuracyTable(
        accuracy=table.accuracy[:, columns]
        if shared
        else np.take_along_axis(table.accuracy, columns, axis=1),
        costs=table.costs[columns] if shared else np.take_along_axis(table.costs, columns, axis=1),
        modes=tuple(range(len(table.modes))),
        ids=table.ids,
        unit=table.unit,
    )
    return ordered, columns


def build_allocation(
    table: AccuracyTable,
    *,
    budget: float,
    price: float,
    choice: Ints,
    mix: Mix,
    bound: float | None = None,
    limits: tuple[CapUse, ...] = (),
    trace: Trace | None = None,
) -> Allocation:
    """Builds the allocation. `mix` changes `choice` at random; `bound` is by default the accuracy with it."""
    cost, accuracy = averages(table, choice)
    mixed_cost = cost + compute_mix_change(table.cost_matrix, choice, mix)
    mixed_accuracy = accuracy + compute_mix_change(table.accuracy, choice, mix)
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
        # `max`, because rounding must not put the bound below the accuracy
        bound=max(accuracy, mixed_accuracy if bound is None else bound),
        modes=table.modes,
        unit=table.unit,
        limits=limits,
        trace=trace,
    )


def compute_mix_change(values: Floats, choice: Ints, mix: Mix) -> float:
    """Computes by how much `mix` changes the expected average of `values`, of shape (problems, modes)."""
    rows = mix.problems
    change = values[rows, mix.modes] - values[rows, choice[rows]]
    return float((mix.probabilities * change).sum()) / len(choice)
