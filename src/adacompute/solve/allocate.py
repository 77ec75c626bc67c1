"""One budget: price, choice, the one mixed problem, bound. Knows nothing of how a table was come by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import TableInvalid
from adacompute.records import AccuracyTable, Allocation, Limit, Mix
from adacompute.solve.bisection import bisected
from adacompute.solve.hull import chunks, counts, steps
from adacompute.solve.limits import limited
from adacompute.solve.plan import planned
from adacompute.solve.price import SLIP, by_cost, check_budget, check_table, former, total_cost

__all__ = ["solve"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_FEW = 4096  # rows that are quicker taken whole than bracketed
_LEAST, _MOST = 5e-324, 1.7976931348623157e308  # every slope that is neither 0 nor free


def solve(
    table: AccuracyTable,
    *,
    budget: float,
    method: Literal["exact", "bisection"] = "exact",
    limits: Sequence[Limit] = (),
) -> Allocation:
    """The best allocation whose average cost is at most `budget`, with its price and a bound to certify it.

    `limits` are further averages to keep, each with a price of its own. `method="bisection"` is the paper's:
    a price in [0, 5] found in 50 steps, and every problem that is undecided there mixed.

    >>> plan = solve(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]), budget=1.25)
    >>> plan.choice.tolist(), [(m.problem, m.mode, m.probability) for m in plan.mix], round(plan.bound, 3)
    ([0, 0], [(0, 1, 0.5)], 0.65)
    """
    if method not in ("exact", "bisection"):
        raise TableInvalid(f"method {method!r} is not known; give 'exact' or 'bisection'")
    if limits and method == "bisection":
        raise TableInvalid("the paper's bisection finds one price; with several limits use method='exact'")
    check_table(table)
    _check_budget(table, budget)
    if isinstance(limits, Limit) or not all(isinstance(limit, Limit) for limit in limits):
        raise TableInvalid(
            f"limits {limits!r} can't be used; give a list of Limit(name=…, costs=…, at_most=…)"
        )
    if limits:
        return limited(table, float(budget), limits)
    ordered, columns = by_cost(table)
    plan = (bisected if method == "bisection" else _allocated)(ordered, float(budget))
    if columns is None:
        return plan
    mix = replace(plan.mix, modes=former(columns, plan.mix.problems, plan.mix.modes))
    choice = former(columns, np.arange(len(table)), plan.choice)
    return replace(plan, choice=choice, mix=mix, modes=table.modes)


def _check_budget(table: AccuracyTable, budget: object) -> None:
    cheapest = float(table.costs.min() if table.shared_costs else table.costs.min(axis=1).mean())
    dearest = float(table.costs.max() if table.shared_costs else table.costs.max(axis=1).mean())
    check_budget(budget, cheapest=cheapest, dearest=dearest, unit=table.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The steps of all problems, parted by a bracket of slopes."""

    choice: Ints  # (problems,) how many steps of each lie above the bracket
    spent: float  # cost of all of these, with the cheapest modes'
    slope: Floats  # (within,) of the steps inside the bracket
    place: npt.NDArray[np.int64]  # (within,) row times width plus step
    cost: Floats  # (within,)
    width: int  # steps a problem

    def falling(self) -> tuple[Floats, Floats]:
        """Slopes inside the bracket, steepest first, and the cost that is reached with each."""
        order = np.argsort(self.slope)[::-1]
        return self.slope[order], self.spent + np.cumsum(self.cost[order])


def _allocated(table: AccuracyTable, budget: float) -> Allocation:
    target = budget * len(table)
    low, high = _bracket(table, target)
    counted = _counted(table, low, high)
    if counted.spent > target or (low > _LEAST and counted.spent + counted.cost.sum() <= target):
        counted = _counted(table, _LEAST, _MOST)  # the sampled rows misled us
    price = _price(*counted.falling(), target * (1 + SLIP))
    choice = counted.choice
    above = counted.slope > price
    np.add.at(choice, counted.place[above] // max(1, counted.width), 1)
    room = target - counted.spent - float(counted.cost[above].sum())
    mix = Mix()
    if price > 0:
        mix, row, mode = _fill(counted, choice, price, room, slip=target * SLIP)
        price = _slope(table, row, int(choice[row]), mode) or price
    return planned(table, budget=budget, price=price, choice=choice, mix=mix)


def _bracket(table: AccuracyTable, target: float) -> tuple[float, float]:
    """Two slopes between which the price most likely lies, told from some of the rows."""
    if len(table) < _FEW:
        return _LEAST, _MOST
    stride = round(0.5 * len(table) ** (1 / 3))  # about as many rows are sampled as are then left in doubt
    sampled = AccuracyTable(
        accuracy=table.accuracy[::stride],
        costs=table.costs if table.shared_costs else table.costs[::stride],
        modes=table.modes,
    )
    counted = _counted(sampled, _LEAST, _MOST)
    goal = target * len(sampled) / len(table)
    slope, reach = counted.falling()
    above = counted.slope > _price(slope, reach, goal)
    rows = counted.place[above] // counted.width
    each = np.bincount(rows, weights=counted.cost[above], minlength=len(sampled))
    doubt = 5 * float(each.std()) * len(sampled) ** 0.5  # in cost: five standard deviations
    first, last = np.searchsorted(reach, [goal - doubt, goal + doubt]).tolist()
    high = float(slope[first]) if 0 < first < len(slope) else _MOST
    return float(slope[last]) if last < len(slope) else _LEAST, high


def _counted(table: AccuracyTable, low: float, high: float) -> _Counted:
    width = len(table.modes) - 1
    choice = np.zeros(len(table), dtype=np.intp)
    slope, place, cost = [np.zeros(0)], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for start, stop, slopes in chunks(table):
        above = slopes > high
        choice[start:stop] = counts(above)
        within = slopes >= low
        within ^= above
        at = np.flatnonzero(within)
        if len(at):
            step = steps(table, start, stop)
            number, row = np.divmod(at, stop - start)
            slope.append(slopes.reshape(-1).take(at))
            place.append((row + start) * width + number)
            cost.append(step[number, 0] if table.shared_costs else step[number, row])
    return _Counted(
        choice=choice,
        spent=total_cost(table, choice),
        slope=np.concatenate(slope),
        place=np.concatenate(place),
        cost=np.concatenate(cost),
        width=width,
    )


def _price(slope: Floats, reach: Floats, target: float) -> float:
    """The slope of the first step that doesn't fit any more, steepest first; 0 where all do."""
    first = int(np.searchsorted(reach, target, side="right"))
    return float(slope[first]) if first < len(slope) else 0.0


def _slope(table: AccuracyTable, row: int, here: int, there: int) -> float:
    """What an edge buys for its cost, without the rounding that makes slopes comparable."""
    costs = table.costs if table.shared_costs else table.costs[row]
    cost = float(costs[there] - costs[here])
    return float(table.accuracy[row, there] - table.accuracy[row, here]) / cost if cost > 0 else 0.0


def _fill(counted: _Counted, choice: Ints, price: float, room: float, *, slip: float) -> tuple[Mix, int, int]:
    """Takes edges of this slope, in order of rows, while there is room, in place; the next one is mixed.

    Also answers that next edge: its row, and the mode it leads to.
    """
    tied = np.flatnonzero(counted.slope == price)
    tied = tied[np.argsort(counted.place[tied])]
    rows, first, width = np.unique(
        counted.place[tied] // counted.width, return_index=True, return_counts=True
    )
    cost = np.add.reduceat(counted.cost[tied], first)  # (rows,) an edge may be several steps
    reach = np.cumsum(cost)
    fits = int(np.searchsorted(reach, room + slip, side="right"))
    choice[rows[:fits]] += width[:fits]
    if fits == len(rows):  # by rounding only
        return Mix(), int(rows[-1]), int(choice[rows[-1]])
    row, mode = int(rows[fits]), int(choice[rows[fits]] + width[fits])
    share = (room - (float(reach[fits - 1]) if fits else 0.0)) / float(cost[fits])
    if share * float(cost[fits]) <= slip:  # of all there is to spend, that is rounding
        return Mix(), row, mode
    mix = Mix(problems=np.array([row]), modes=np.array([mode]), probabilities=np.array([min(1.0, share)]))
    return mix, row, mode
