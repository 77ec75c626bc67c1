"""Solves for one budget: finds the price, each problem's mode, and the one problem whose mode is random.

Each problem has an upper concave hull of (cost, accuracy), see `hull.py`. Suppose that the hull edges of all
problems are bought in order, the steepest first, until the budget runs out: the slope of the last edge is the
price. The price is first estimated from some of the rows, so that only edges near it need sorting.

`method="bisection"` is the method of the paper that this package implements: it bisects for a price in [0, 5]
in 50 steps (see "Binary Search Details" there). At one of the last two prices, the average cost is above the
budget; at the other, it isn't. If a problem's best mode differs between these prices, the problem gets one of
both modes at random. The probability of the more expensive mode is the same for all these problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable
from adacompute.solve.constraints import Cap, solve_with_limits
from adacompute.solve.hull import compute_step_costs, count_steps, iterate_slopes
from adacompute.solve.pricing import (
    COST_TOLERANCE,
    Allocation,
    Mix,
    Trace,
    averages,
    best_at,
    build_allocation,
    check_budget,
    check_table,
    compute_total_cost,
    dual,
    restore_columns,
    sort_by_cost,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

# with fewer rows than this, sorting all hull edges is faster than estimating the price first
_SMALL_TABLE = 4096
_MIN_SLOPE, _MAX_SLOPE = 5e-324, 1.7976931348623157e308  # smallest and largest positive double

_MAX_PRICE = 5.0  # highest price that `method="bisection"` tries, as in the paper
_STEPS = 50  # number of steps of `method="bisection"`, as in the paper
_TOLERANCE = 1e-12
_TRACE_FIELDS = ("low", "high", "price", "cost", "cost_low", "cost_high")


def solve(
    table: AccuracyTable,
    *,
    budget: float,
    method: Literal["exact", "bisection"] = "exact",
    limits: Sequence[Cap] = (),
) -> Allocation:
    """Finds the most accurate allocation with average cost at most `budget`, and its price.

    `limits` are upper limits on the averages of other costs; each gets its own price. `method="bisection"` is
    the method of the paper that this package implements: it bisects for a price in [0, 5] in 50 steps, mixes
    modes for many problems, and takes no `limits`.

    >>> plan = solve(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]), budget=1.25)
    >>> plan.choice.tolist(), [(m.problem, m.mode, m.probability) for m in plan.mix], round(plan.bound, 3)
    ([0, 0], [(0, 1, 0.5)], 0.65)
    """
    if method not in ("exact", "bisection"):
        raise TableInvalid(f"method {method!r} is not known; give 'exact' or 'bisection'")
    if limits and method == "bisection":
        raise TableInvalid("the paper's bisection finds one price; with several limits use method='exact'")
    check_table(table)
    _check_table_budget(table, budget)
    if isinstance(limits, Cap) or not all(isinstance(limit, Cap) for limit in limits):
        raise TableInvalid(f"limits {limits!r} can't be used; give a list of Cap(name=…, costs=…, at_most=…)")
    if limits:
        return solve_with_limits(table, float(budget), limits)
    ordered, columns = sort_by_cost(table)
    plan = (solve_by_bisection if method == "bisection" else _solve_exactly)(ordered, float(budget))
    if columns is None:
        return plan
    mix = replace(plan.mix, modes=restore_columns(columns, plan.mix.problems, plan.mix.modes))
    choice = restore_columns(columns, np.arange(len(table)), plan.choice)
    return replace(plan, choice=choice, mix=mix, modes=table.modes)


def _check_table_budget(table: AccuracyTable, budget: object) -> None:
    cheapest = float(table.costs.min() if table.shared_costs else table.costs.min(axis=1).mean())
    dearest = float(table.costs.max() if table.shared_costs else table.costs.max(axis=1).mean())
    check_budget(budget, cheapest=cheapest, dearest=dearest, unit=table.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BracketSteps:
    """Lists all problems' steps whose slope is in some range.

    A step leads from one mode of a problem to the next more expensive one. Steps steeper than the range
    aren't listed: they are already taken in `choice`.
    """

    # index of each problem's mode if it takes only the steps that are steeper than the listed ones
    choice: Ints
    base_cost: float  # sum of the costs of all problems at the modes in `choice`
    slope: Floats  # slope of the hull at each listed step; shape (steps,)
    # for each listed step: the index of its problem times `width`, plus the index of its cheaper mode
    place: npt.NDArray[np.int64]
    cost: Floats  # for each listed step: how much more the next mode costs; shape (steps,)
    width: int  # number of possible steps per problem: the number of modes minus 1

    def sort_steepest_first(self) -> tuple[Floats, Floats]:
        """Sorts the listed steps. Returns their slopes, and all problems' total cost after each step."""
        order = np.argsort(self.slope)[::-1]
        return self.slope[order], self.base_cost + np.cumsum(self.cost[order])


def _solve_exactly(table: AccuracyTable, budget: float) -> Allocation:
    target = budget * len(table)
    low, high = _find_bracket(table, target)
    steps = _collect_steps(table, low, high)
    if steps.base_cost > target or (low > _MIN_SLOPE and steps.base_cost + steps.cost.sum() <= target):
        # the price isn't in the estimated range, so sort all steps
        steps = _collect_steps(table, _MIN_SLOPE, _MAX_SLOPE)
    price = _find_price(*steps.sort_steepest_first(), target * (1 + COST_TOLERANCE))
    choice = steps.choice
    above = steps.slope > price
    np.add.at(choice, steps.place[above] // max(1, steps.width), 1)
    room = target - steps.base_cost - float(steps.cost[above].sum())
    mix = Mix()
    if price > 0:
        mix, row, mode = _fill_room(steps, choice, price, room, tolerance=target * COST_TOLERANCE)
        price = _compute_edge_slope(table, row, int(choice[row]), mode) or price
    return build_allocation(table, budget=budget, price=price, choice=choice, mix=mix)


def _find_bracket(table: AccuracyTable, target: float) -> tuple[float, float]:
    """Estimates from some of the rows two slopes between which the price probably lies."""
    if len(table) < _SMALL_TABLE:
        return _MIN_SLOPE, _MAX_SLOPE
    # use every `stride`-th row: more rows take longer here, but leave fewer steps to sort later
    stride = round(0.5 * len(table) ** (1 / 3))
    sample = AccuracyTable(
        accuracy=table.accuracy[::stride],
        costs=table.costs if table.shared_costs else table.costs[::stride],
        modes=table.modes,
    )
    steps = _collect_steps(sample, _MIN_SLOPE, _MAX_SLOPE)
    goal = target * len(sample) / len(table)
    slope, reach = steps.sort_steepest_first()
    above = steps.slope > _find_price(slope, reach, goal)
    rows = steps.place[above] // steps.width
    each = np.bincount(rows, weights=steps.cost[above], minlength=len(sample))
    doubt = 5 * float(each.std()) * len(sample) ** 0.5  # five standard errors of the estimated total cost
    first, last = np.searchsorted(reach, [goal - doubt, goal + doubt]).tolist()
    high = float(slope[first]) if 0 < first < len(slope) else _MAX_SLOPE
    return float(slope[last]) if last < len(slope) else _MIN_SLOPE, high


def _collect_steps(table: AccuracyTable, low: float, high: float) -> _BracketSteps:
    width = len(table.modes) - 1
    choice = np.zeros(len(table), dtype=np.intp)
    slope, place, cost = [np.zeros(0)], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for start, stop, slopes in iterate_slopes(table):
        above = slopes > high
        choice[start:stop] = count_steps(above)
        within = slopes >= low
        within ^= above
        cells = np.flatnonzero(within)
        if len(cells):
            step_costs = compute_step_costs(table, start, stop)
            number, row = np.divmod(cells, stop - start)
            slope.append(slopes.reshape(-1).take(cells))
            place.append((row + start) * width + number)
            cost.append(step_costs[number, 0] if table.shared_costs else step_costs[number, row])
    return _BracketSteps(
        choice=choice,
        base_cost=compute_total_cost(table, choice),
        slope=np.concatenate(slope),
        place=np.concatenate(place),
        cost=np.concatenate(cost),
        width=width,
    )


def _find_price(slope: Floats, reach: Floats, target: float) -> float:
    """Returns the slope of the first step with which the total cost (`reach`) exceeds `target`, or 0."""
    first = int(np.searchsorted(reach, target, side="right"))
    return float(slope[first]) if first < len(slope) else 0.0


def _fill_room(
    steps: _BracketSteps, choice: Ints, price: float, room: float, *, tolerance: float
) -> tuple[Mix, int, int]:
    """Spends the rest of the budget (`room`) on hull edges whose slope equals the price, row by row.

    Changes `choice` in place. The first edge that costs more than what is left is taken at random, so that
    the expected cost equals the budget. Returns this random change, and the edge's row and new mode.
    """
    tied = np.flatnonzero(steps.slope == price)
    tied = tied[np.argsort(steps.place[tied])]
    rows, first, width = np.unique(steps.place[tied] // steps.width, return_index=True, return_counts=True)
    cost = np.add.reduceat(steps.cost[tied], first)  # cost of each row's hull edge: the sum over its steps
    reach = np.cumsum(cost)
    fits = int(np.searchsorted(reach, room + tolerance, side="right"))
    choice[rows[:fits]] += width[:fits]
    # if a rounding error lets the budget pay for all edges, no change is random; return the last edge
    if fits == len(rows):
        return Mix(), int(rows[-1]), int(choice[rows[-1]])
    row, mode = int(rows[fits]), int(choice[rows[fits]] + width[fits])
    share = (room - (float(reach[fits - 1]) if fits else 0.0)) / float(cost[fits])
    if share * float(cost[fits]) <= tolerance:  # the rest of the budget is only a rounding error
        return Mix(), row, mode
    mix = Mix(problems=np.array([row]), modes=np.array([mode]), probabilities=np.array([min(1.0, share)]))
    return mix, row, mode


def _compute_edge_slope(table: AccuracyTable, row: int, before: int, after: int) -> float:
    """Divides the gain of a hull edge by its cost, without the rounding that hull.py applies to slopes."""
    costs = table.costs if table.shared_costs else table.costs[row]
    cost = float(costs[after] - costs[before])
    return float(table.accuracy[row, after] - table.accuracy[row, before]) / cost if cost > 0 else 0.0


def solve_by_bisection(table: AccuracyTable, budget: float) -> Allocation:
    """Bisects for the price, as in the paper that this package implements; `Allocation.trace` has the steps.

    Raises BudgetOutOfRange if the cost exceeds the budget even at the paper's highest price.
    """
    low, high = 0.0, _MAX_PRICE
    choice = {price: best_at(table, price) for price in (low, high)}
    cost = {price: averages(table, chosen)[0] for price, chosen in choice.items()}
    if cost[high] > budget * (1 + _TOLERANCE):
        raise BudgetOutOfRange(
            f"at the paper's highest price, {_MAX_PRICE:g}, the average cost is still {cost[high]:g}, above "
            f"the budget {budget:g}; use method='exact', or a larger unit of cost than {table.unit}"
        )
    steps = []
    for _ in range(_STEPS if cost[low] > budget else 0):
        middle = (low + high) / 2
        choice[middle] = best_at(table, middle)
        cost[middle] = averages(table, choice[middle])[0]
        steps.append((low, high, middle, cost[middle], cost[low], cost[high]))
        low, high = (middle, high) if cost[middle] > budget else (low, middle)
        choice = {price: choice[price] for price in (low, high)}
    if cost[low] <= budget:  # the budget pays for every problem's best mode
        high = low
    columns = np.array(steps, dtype=np.float64).reshape(-1, 6).T
    return build_allocation(
        table,
        budget=budget,
        price=high,
        choice=choice[high],
        mix=_mix_choices(choice[low], choice[high], cost[low] - cost[high], budget - cost[high]),
        bound=dual(table, high, budget),
        trace=Trace(**dict(zip(_TRACE_FIELDS, columns, strict=True))),
    )


def _mix_choices(dear: Ints, cheap: Ints, between: float, room: float) -> Mix:
    """Returns random changes from the modes in `cheap` to those in `dear`, all with the same probability.

    `between` is the average cost of `dear` minus that of `cheap`. The budget pays for `room` of it.
    """
    rows = np.flatnonzero(dear != cheap)
    share = room / between if between > 0 else 0.0
    if share <= _TOLERANCE:
        return Mix()
    return Mix(problems=rows, modes=dear[rows], probabilities=np.full(len(rows), min(1.0, share)))
