"""Finds the best allocation under several limits at once (money, latency). Each limit gets its own price.

If a problem may get each mode with some probability (a share), a linear programme finds the best shares. A
problem's shares must sum to 1, and every average cost must be within its limit. HiGHS solves the programme.

1. `_check_limits` checks the limits and scales them.
2. `_find_vertex` solves the linear programme.
3. `_round_vertex` gives each problem a single mode, within all limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, Infeasible, TableInvalid, needs_extra
from adacompute.records import AccuracyTable, format_lower_bound
from adacompute.solve.pricing import Allocation, CapUse, Mix, build_allocation, compute_mix_change

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_LIMIT_TOLERANCE = 1e-12  # share of a limit by which an average may exceed it, because of rounding
# how much an average cost (in units of `_Limit`) may exceed its limit if limits can barely be met together
_JOINT_TOLERANCE = 1e-9
_SHARE_TOLERANCE = 1e-9  # a smaller share (the probability that a problem gets a mode) is a rounding error
_VALUE_TOLERANCE = 1e-11  # accuracies that differ by less than this count as equal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cap:
    """An upper limit on the average of a further cost, such as latency, tokens or money.

    >>> Cap(name="seconds", costs=[1.0, 2.5], at_most=1.5).at_most
    1.5
    """

    name: str
    costs: npt.ArrayLike  # cost of each mode; shape (modes,), or (problems, modes) if problems differ
    at_most: float  # upper limit of the average cost over all problems


def solve_with_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> Allocation:
    """Finds the best allocation within the budget and all limits; the result's `price` is the budget's.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    >>> plan = solve_with_limits(table, 2.0, [Cap(name="seconds", costs=[1, 5], at_most=2.0)])
    >>> [(use.name, round(use.price, 3), use.mixed_cost) for use in plan.limits], round(plan.bound, 3)
    ([('samples', 0.0, 1.25), ('seconds', 0.1, 2.0)], 0.65)
    """
    checked = _check_limits(table, budget, limits)
    priced = [j for j, limit in enumerate(checked) if limit.unit and limit.room < 1]
    programme = _Programme(
        values=table.accuracy,
        own_costs=table.cost_matrix,
        costs=np.array([checked[j].scaled for j in priced]).reshape(-1, *table.accuracy.shape),
        room=np.array([checked[j].room for j in priced]),
        tolerance=np.array([checked[j].tolerance for j in priced]),
    )
    programme, vertex = _solve_or_explain(programme, [checked[j] for j in priced])
    choice = _round_vertex(programme, vertex)
    if choice is None:
        raise Infeasible(_format_only_mixed(vertex, [checked[j] for j in priced]))
    prices = np.zeros(len(checked))
    prices[priced] = vertex.prices / [checked[j].unit for j in priced]
    mix = _build_mix(choice, vertex)
    return build_allocation(
        table,
        budget=budget,
        price=float(prices[0]),
        choice=choice,
        mix=mix,
        bound=_compute_bound(table, checked, prices),
        limits=tuple(
            _build_limit_use(limit, float(price), choice, mix)
            for limit, price in zip(checked, prices, strict=True)
        ),
    )


# --- checking and scaling the limits ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Limit:
    """A cost whose average is limited: the table's own cost (limited by the budget) or another one.

    After scaling, each problem's cheapest mode costs 0, and the most expensive modes cost 1 on average.
    """

    name: str
    costs: Floats  # unscaled costs; shape (problems, modes)
    at_most: float
    scaled: Floats  # scaled costs; shape (problems, modes)
    unit: float  # the unscaled cost difference that becomes 1; 0 if all modes cost the same
    room: float  # upper limit of the average scaled cost
    tolerance: float  # how much the average may exceed `room` because of rounding


def _check_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> list[_Limit]:
    """Checks and scales the budget and all limits. Raises an error if one of them alone can't be met."""
    checked = [_scale_limit(table.unit, table.cost_matrix, budget)]
    for limit in limits:
        if any(limit.name == other.name for other in checked):
            raise TableInvalid(
                f"two limits are called {limit.name!r}; the budget's is {table.unit!r}: rename one"
            )
        checked.append(_scale_limit(limit.name, _check_costs(table, limit), _check_at_most(limit)))
    return checked


def _scale_limit(name: str, costs: Floats, at_most: float) -> _Limit:
    floor = costs.min(axis=1, keepdims=True)
    least, spread = float(floor.mean()), float((costs.max(axis=1, keepdims=True) - floor).mean())
    unit = spread if spread > _LIMIT_TOLERANCE * least else 0.0
    divisor = unit or max(1.0, least)
    room, tolerance = (at_most - least) / divisor, _LIMIT_TOLERANCE * max(1.0, least / divisor)
    if room < -tolerance:
        raise BudgetOutOfRange(
            f"limit {name!r} at {at_most!r} is below the least possible average "
            f"({format_lower_bound(least)}); give {format_lower_bound(least)} or more"
        )
    return _Limit(
        name=name,
        costs=costs,
        at_most=at_most,
        scaled=(costs - floor) / divisor,
        unit=unit,
        room=max(0.0, room),
        tolerance=tolerance,
    )


def _check_at_most(limit: Cap) -> float:
    at_most: object = limit.at_most
    if isinstance(at_most, bool) or not isinstance(at_most, Real) or not np.isfinite(float(at_most)):
        raise BudgetOutOfRange(
            f"limit {limit.name!r} has at_most {at_most!r}; give a finite number, or leave the limit out"
        )
    return float(at_most)


def _check_costs(table: AccuracyTable, limit: Cap) -> Floats:
    try:
        checked = AccuracyTable.of(
            table.accuracy, costs=limit.costs, modes=table.modes, ids=table.ids, order="any"
        )
    except TableInvalid as exc:
        raise TableInvalid(f"limit {limit.name!r}: {exc}") from exc
    return checked.cost_matrix


# --- solving the linear programme ---

# number of problems above which HiGHS's interior point method is faster than its simplex method
_LARGE = 500
_OPTIMAL, _INFEASIBLE = 0, 2  # status codes of scipy's `linprog`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Programme:
    """A linear programme that finds each problem's shares of modes, for the best accuracy within limits."""

    values: Floats  # accuracies; shape (problems, modes)
    # the table's costs: of equally accurate solutions, the cheaper one is taken; shape (problems, modes)
    own_costs: Floats
    costs: Floats  # scaled costs of each limit; shape (limits, problems, modes)
    room: Floats  # limits of the average scaled costs; shape (limits,)
    tolerance: Floats  # how much the averages may exceed `room` because of rounding; shape (limits,)

    def compute_excess(self, choice: Ints) -> Floats:
        """Returns by how much the total scaled cost of a choice exceeds each limit (negative: it is below).

        `choice` has the index of one mode for each problem.
        """
        used = self.costs[:, np.arange(len(choice)), choice].sum(axis=1)
        return np.asarray(used - len(choice) * (self.room + self.tolerance))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Vertex:
    """A solution of the linear programme. Each problem gets one mode, but a few get shares of several."""

    choice: Ints  # index of each problem's mode with the largest share; shape (problems,)
    rows: Ints  # indexes of the problems that get shares of several modes, ascending
    shares: Floats  # shares of the modes for the problems in `rows`; shape (len(rows), modes)
    prices: Floats  # price of each limit: accuracy gained per unit of scaled cost; shape (limits,)
    value: float  # average accuracy of this solution over all problems


def _find_vertex(programme: _Programme) -> _Vertex | None:
    """Solves the linear programme; returns None if no shares of modes meet all limits.

    Of equally accurate solutions, returns a cheap one.
    """
    if (solution := _solve_programme(programme, -programme.values)) is None:
        return None
    shares, prices = solution
    unused = programme.room - (programme.costs * shares).sum(axis=(1, 2)) / len(shares)
    prices = np.where(unused > _SHARE_TOLERANCE, 0.0, prices)
    shares = _find_cheaper_shares(programme, shares, prices)
    mixed = shares.max(axis=1) < 1
    return _Vertex(
        choice=shares.argmax(axis=1),
        rows=np.flatnonzero(mixed),
        shares=shares[mixed],
        prices=prices,
        value=float((shares * programme.values).sum()) / len(shares),
    )


def _find_cheaper_shares(programme: _Programme, shares: Floats, prices: Floats) -> Floats:
    """Returns the cheapest shares of modes, by the table's costs, that are as accurate as `shares`."""
    net = programme.values - np.tensordot(prices, programme.costs, axes=1)
    best = net >= net.max(axis=1, keepdims=True) - _VALUE_TOLERANCE
    aim = programme.own_costs / max(1e-300, float(programme.own_costs.max()))
    solution = _solve_programme(programme, aim, most=np.where(best, 1.0, 0.0), equal=prices > 0)
    least = float((shares * programme.values).sum()) - _VALUE_TOLERANCE
    return shares if solution is None or (solution[0] * programme.values).sum() < least else solution[0]


def _solve_programme(
    programme: _Programme, aim: Floats, *, most: Floats | float = 1.0, equal: Bools | None = None
) -> tuple[Floats, Floats] | None:
    """Finds the shares of modes with the smallest sum of shares * `aim`; None if no shares meet all limits.

    Returns the shares, of shape (problems, modes), and each limit's price. `most` is the shares' upper bound.
    `equal` marks limits that must be used up exactly; their price is 0.
    """
    with needs_extra("fit"):
        from scipy.optimize import linprog  # type: ignore[import-untyped]
        from scipy.sparse import csr_array, eye_array, kron, vstack  # type: ignore[import-untyped]

    count, modes = aim.shape
    equal = np.zeros(len(programme.room), dtype=bool) if equal is None else equal
    ones = kron(eye_array(count), np.ones((1, modes)), format="csr")
    used, room = csr_array(programme.costs.reshape(len(equal), count * modes)), programme.room * count
    # widens the limits a little, because rounding errors could make the programme infeasible
    slip = 1e-12 * np.maximum(1.0, room)
    largest = np.broadcast_to(most, aim.shape).ravel()
    method = "highs-ipm" if count > _LARGE else "highs-ds"
    # if HiGHS finds no solution, try again with other settings
    for name, tolerance in ((method, 1e-10), (method, 1e-9), ("highs-ds", 1e-9)):
        solution = linprog(
            aim.ravel(),
            A_ub=used[~equal],
            b_ub=(room + slip)[~equal],
            A_eq=vstack([ones, used[equal]], format="csr"),
            b_eq=np.concatenate([np.ones(count), room[equal]]),
            bounds=np.stack([np.zeros(len(largest)), largest], axis=1),
            method=name,
            options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
        )
        if solution.status == _INFEASIBLE:
            return None
        if solution.status == _OPTIMAL:
            break
    else:
        raise ArithmeticError(f"HiGHS found no solution of {aim.shape}; this is a bug: please report it")
    prices = np.zeros(len(equal))
    prices[~equal] = np.maximum(-solution.ineqlin.marginals, 0.0)
    shares = np.where(solution.x < _SHARE_TOLERANCE, 0.0, solution.x).reshape(aim.shape)
    return shares / shares.sum(axis=1, keepdims=True), prices


def _solve_or_explain(programme: _Programme, priced_limits: Sequence[_Limit]) -> tuple[_Programme, _Vertex]:
    """Solves the programme; raises Infeasible if the limits can't be met together.

    Returns the programme and its solution; the limits are higher if only rounding prevented a solution.
    """
    vertex = _find_vertex(programme)
    if vertex is None:  # perhaps all limits can only just be met together, so allow a rounding error
        programme = _check_joint_feasibility(programme, priced_limits)
        vertex = _find_vertex(programme)
    if vertex is None:
        raise ArithmeticError("limits that can be met were found not to be; this is a bug: please report it")
    return programme, vertex


def _check_joint_feasibility(programme: _Programme, priced_limits: Sequence[_Limit]) -> _Programme:
    """Raises Infeasible if the limits can't be met together; otherwise returns the programme.

    Limits in the returned programme are a little higher if rounding could prevent a solution.
    """
    room = programme.room.copy()
    for j, limit in enumerate(priced_limits):
        before = replace(programme, costs=programme.costs[:j], room=room[:j])
        # marks limits so tight that only the cheapest modes meet them
        no_room = programme.room[:j] <= programme.tolerance[:j]
        cheapest = (programme.costs[:j][no_room] <= _LIMIT_TOLERANCE).all(axis=0)
        solution = _solve_programme(before, programme.costs[j], most=cheapest.astype(float))
        # earlier rounds of this loop have shown that the limits before this one can be met together
        assert solution is not None
        scaled_least = float((solution[0] * programme.costs[j]).sum()) / len(programme.values)
        if scaled_least > room[j] + _JOINT_TOLERANCE:
            least = float((solution[0] * limit.costs).sum()) / len(programme.values)
            raise Infeasible(_format_clash(limit, priced_limits[:j], least))
        room[j] = max(room[j], scaled_least + _JOINT_TOLERANCE / 10)
    return replace(programme, room=room)


def _format_clash(limit: _Limit, others: Sequence[_Limit], least: float) -> str:
    kept = " and ".join(f"{other.name!r} at {other.at_most!r}" for other in others)
    return (
        f"limit {limit.name!r} at {limit.at_most!r} can't be met together with {kept}: with these kept, "
        f"the least average of {limit.name!r} is {format_lower_bound(least)}; give it that or more, or raise "
        "another"
    )


def _format_only_mixed(vertex: _Vertex, priced_limits: Sequence[_Limit]) -> str:
    names = " and ".join(f"{limit.name!r} at {limit.at_most:g}" for limit in priced_limits)
    return (
        f"no choice of one mode for each of {len(vertex.choice)} problems was found that keeps {names}; "
        f"mixing {len(vertex.rows)} of them would, for an accuracy of {vertex.value:.4g}; raise a limit"
    )


# --- choosing one mode for each problem ---

# a few problems have shares of several modes; maximum number of combinations of their modes to try
_MAX_COMBINATIONS = 4096
_MAX_CONCESSIONS = 64  # maximum number of times that a problem's mode is changed to meet the limits
_INTEGER_PROBLEMS = 400  # approximate maximum number of problems in the integer programme
# maximum number of search nodes of the integer programme; a time limit would give varying results
_MAX_NODES = 20_000


def _round_vertex(programme: _Programme, vertex: _Vertex) -> Ints | None:
    """Chooses one mode for each problem, within all limits. Returns None if it finds no such choice.

    Only a few problems have shares of several modes. Up to 4,096 combinations of their modes are tried. If
    none meets the limits, modes are changed one by one, with the least loss of accuracy per cost saved. If
    that fails, an integer programme decides.
    """
    choice = _choose_combination(programme, vertex)
    for _ in range(_MAX_CONCESSIONS):
        excess = programme.compute_excess(choice)
        if (excess <= 0).all():
            return choice
        if (move := _find_concession(programme, choice, excess)) is None:
            break
        choice[move[0]] = move[1]
    return _solve_integer_programme(programme, vertex)


def _choose_combination(programme: _Programme, vertex: _Vertex) -> Ints:
    """Chooses one mode for each problem, by trying combinations for problems with shares of several modes.

    Takes the best combination within the limits or, if there is none, the one that exceeds the limits least.
    """
    choice, rows = vertex.choice.copy(), vertex.rows
    count, modes = len(rows), programme.values.shape[1]
    options = [np.arange(modes)] * count
    if float(modes) ** count > _MAX_COMBINATIONS:
        options = [np.flatnonzero(share) for share in vertex.shares]
    # each row is one combination: a mode for every problem in `rows`
    combinations = np.array(list(product(*options)), dtype=np.intp)[:_MAX_COMBINATIONS]
    excess = programme.compute_excess(choice) - programme.costs[:, rows, choice[rows]].sum(axis=1)
    uses = programme.costs[:, rows, combinations].sum(axis=2)  # cost of each combination, for each limit
    # how far each combination exceeds the limits, in total
    beyond = np.maximum(0.0, excess[:, None] + uses).sum(axis=0)
    values = programme.values[rows, combinations].sum(axis=1)
    order = np.lexsort((programme.own_costs[rows, combinations].sum(axis=1), -values, beyond))
    choice[rows] = combinations[order[0]]
    return choice


def _find_concession(programme: _Programme, choice: Ints, excess: Floats) -> tuple[int, int] | None:
    """Finds the change of one problem's mode that loses least accuracy per cost saved.

    Only a reduction of the cost above the limits (`excess`) counts as saved. Returns the indexes of the
    problem and of its new mode; None if no change saves any cost.
    """
    rows = np.arange(len(choice))
    total = float(np.maximum(excess, 0.0).sum())
    changes = programme.costs - programme.costs[:, rows, choice][:, :, None]
    saved = total - np.maximum(0.0, excess[:, None, None] + changes).sum(axis=0)
    loss = programme.values[rows, choice][:, None] - programme.values
    rate = np.full(saved.shape, np.inf)
    # because of the 1e-6, if several changes lose nothing, the one that saves most wins
    np.divide(np.maximum(loss, 0.0) + 1e-6, saved, out=rate, where=saved > 1e-9 * total)
    row, mode = divmod(int(rate.argmin()), programme.values.shape[1])
    return (row, mode) if rate[row, mode] < np.inf else None


def _solve_integer_programme(programme: _Programme, vertex: _Vertex) -> Ints | None:
    """Chooses one mode for each problem by an integer programme; None if no choice within limits is found.

    The programme has the problems with shares of several modes (`vertex.rows`), and up to 400 others. The
    remaining problems keep their modes.
    """
    from scipy.optimize import LinearConstraint, milp

    choice, (count, modes) = vertex.choice.copy(), programme.values.shape
    subset = np.union1d(vertex.rows, np.arange(0, count, count // _INTEGER_PROBLEMS + 1))
    room = programme.costs[:, subset, choice[subset]].sum(axis=1) - programme.compute_excess(choice)
    costs = programme.costs[:, subset].reshape(len(room), -1)
    ones = np.kron(np.eye(len(subset)), np.ones(modes))
    solution = milp(
        -programme.values[subset].ravel(),
        integrality=np.ones(len(subset) * modes),
        constraints=[LinearConstraint(costs, ub=room), LinearConstraint(ones, lb=1.0, ub=1.0)],
        options={"node_limit": _MAX_NODES, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return None
    choice[subset] = solution.x.reshape(-1, modes).argmax(axis=1)
    # check again, because the solver allows larger rounding errors than this module
    return choice if (programme.compute_excess(choice) <= 0).all() else None


# --- the result, in the table's own units ---


def _compute_bound(table: AccuracyTable, limits: Sequence[_Limit], prices: Floats) -> float:
    """Computes an upper bound of the accuracy within the limits, by Lagrangian duality at these prices."""
    net, bound = table.accuracy.copy(), 0.0
    for limit, price in zip(limits, prices, strict=True):
        if price:
            floor = limit.costs.min(axis=1, keepdims=True)
            net -= price * (limit.costs - floor)
            bound += float(price) * (limit.at_most - float(floor.mean()))
    return bound + float(net.max(axis=1).mean())


def _build_mix(choice: Ints, vertex: _Vertex) -> Mix:
    """Returns random changes to `choice`, with which it equals the linear programme's solution on average."""
    # problems whose mode was changed to meet the limits; the mix changes it back with probability 1
    moved = np.setdiff1d(np.flatnonzero(choice != vertex.choice), vertex.rows)
    mixed_index, modes = np.nonzero(vertex.shares)
    rows = vertex.rows[mixed_index]
    other = modes != choice[rows]
    problems = np.concatenate([moved, rows[other]])
    order = np.argsort(problems, kind="stable")
    return Mix(
        problems=problems[order],
        modes=np.concatenate([vertex.choice[moved], modes[other]])[order],
        probabilities=np.concatenate([np.ones(len(moved)), vertex.shares[mixed_index, modes][other]])[order],
    )


def _build_limit_use(limit: _Limit, price: float, choice: Ints, mix: Mix) -> CapUse:
    cost = float(limit.costs[np.arange(len(choice)), choice].mean())
    return CapUse(
        name=limit.name,
        at_most=limit.at_most,
        price=price,
        cost=cost,
        mixed_cost=cost + compute_mix_change(limit.costs, choice, mix),
    )
