"""Several limits at once: one price each, and few mixed problems.

The best mixture of modes is a linear programme: each problem's modes have shares that add up to 1,
and every average cost is within its limit. HiGHS solves it.

1. `_check_limits` checks the limits.
2. `_build_programme` scales them. A limit that even the dearest modes keep gets no price; one that only
   the cheapest modes keep forbids the others.
3. `_find_vertex` solves the linear programme, on large tables for the undecided problems alone; equal
   problems are one row of it.
4. `_round_vertex` gives each problem one mode within all limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, Infeasible, TableInvalid, needs_extra
from adacompute.records import AccuracyTable, Allocation, Cap, CapUse, Mix, format_lower_bound
from adacompute.solve.pricing import build_allocation, compute_mix_change

__all__ = ["solve_with_limits"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_LIMIT_TOLERANCE = 1e-12  # of a limit: what rounding may add to an average
_SAME_COST = 1e-12  # of a cost: costs this near to each other differ by rounding only
_JOINT_TOLERANCE = 1e-9  # of a limit's range: limits that are met together to this are met


def solve_with_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> Allocation:
    """The best allocation within the budget and all limits; `price` is the budget's own.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    >>> plan = solve_with_limits(table, 2.0, [Cap(name="seconds", costs=[1, 5], at_most=2.0)])
    >>> [(use.name, round(use.price, 3), use.mixed_cost) for use in plan.limits], round(plan.bound, 3)
    ([('samples', 0.0, 1.25), ('seconds', 0.1, 2.0)], 0.65)
    """
    checked_limits = _check_limits(table, budget, limits)
    scaled = _build_programme(table, checked_limits)
    priced_limits = [checked_limits[j] for j in scaled.priced]
    budget_index = scaled.priced.index(0) if 0 in scaled.priced else None
    programme, vertex = _solve_or_explain(scaled.programme, priced_limits, budget_index)
    choice = _round_vertex(programme, vertex)
    if choice is None:
        raise Infeasible(_format_only_mixed(vertex, priced_limits))
    prices = np.zeros(len(checked_limits))
    prices[list(scaled.priced)] = vertex.prices / scaled.units
    _price_forbidden(table, checked_limits, scaled, prices)
    mix = _build_mix(choice, vertex)
    return build_allocation(
        table,
        budget=budget,
        price=float(prices[0]),
        choice=choice,
        mix=mix,
        bound=_compute_bound(table, checked_limits, prices),
        limits=tuple(
            _build_limit_use(limit, float(price), choice, mix)
            for limit, price in zip(checked_limits, prices, strict=True)
        ),
    )


# --- the limits, checked ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CheckedLimit:
    """One limit, checked: the table's own cost under the budget, or another cost."""

    name: str
    costs: Floats  # (problems, modes)
    at_most: float


def _check_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> tuple[_CheckedLimit, ...]:
    """The table's own cost under the budget first, then each limit; each is feasible on its own."""
    checked_limits = [_CheckedLimit(name=table.unit, costs=table.cost_matrix, at_most=budget)]
    for limit in limits:
        if any(limit.name == other.name for other in checked_limits):
            raise TableInvalid(
                f"two limits are called {limit.name!r}; the budget's is {table.unit!r}: rename one"
            )
        costs = np.broadcast_to(_check_costs(table, limit), table.accuracy.shape)
        checked_limits.append(_CheckedLimit(name=limit.name, costs=costs, at_most=_check_at_most(limit)))
    allowed = np.ones(table.accuracy.shape, dtype=bool)
    for checked_limit in checked_limits:
        scaled = _scale_limit(checked_limit, allowed)
        if scaled.room < -scaled.tolerance:
            least = format_lower_bound(scaled.least)
            raise BudgetOutOfRange(
                f"limit {checked_limit.name!r} at {checked_limit.at_most!r} is below the least possible "
                f"average ({least}); give {least} or more"
            )
    return tuple(checked_limits)


def _check_at_most(limit: Cap) -> float:
    at_most: object = limit.at_most
    if isinstance(at_most, bool) or not isinstance(at_most, Real) or not np.isfinite(float(at_most)):
        raise BudgetOutOfRange(
            f"limit {limit.name!r} has at_most {at_most!r}; give a finite number, or leave the limit out"
        )
    return float(at_most)


def _check_costs(table: AccuracyTable, limit: Cap) -> Floats:
    shape = table.accuracy.shape
    try:
        costs = np.asarray(limit.costs, dtype=np.float64)
    except (TypeError, ValueError) as exc:
        raise TableInvalid(
            f"costs of limit {limit.name!r} can't be read as an array of numbers ({exc}); give (modes,) or "
            f"(problems, modes) = {shape}"
        ) from exc
    if costs.shape not in (shape, shape[1:]):
        raise TableInvalid(
            f"costs of limit {limit.name!r} have shape {costs.shape}; give {shape[1:]} for every "
            f"problem, or {shape}"
        )
    if not (costs.min() >= 0 and costs.max() < np.inf):  # false where there is a NaN
        *row, column = (int(i) for i in np.argwhere(~((costs >= 0) & (costs < np.inf)))[0])
        place = (
            f" for {table.problem(row[0])} (row {row[0]}, column {column})" if row else f" (column {column})"
        )
        raise TableInvalid(
            f"cost of mode {table.modes[column]!r}{place} in limit {limit.name!r} is {costs[*row, column]}; "
            "give a finite number from 0 up"
        )
    return costs


# --- the linear programme ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Programme:
    """Shares of modes are looked for that maximise the average value within the limits.

    The dual value at some prices, the mean over problems of the best (value - prices . costs) plus
    prices . room, is no smaller than the value of any shares within the limits. At the best prices the
    two are equal.
    """

    values: Floats  # (problems, modes)
    costs: Floats  # (limits, problems, modes) scaled
    room: Floats  # (limits,) what the average of each cost may be
    tolerance: Floats  # (limits,) of that: what rounding may add
    tie_costs: Floats  # (problems, modes) the table's own: of equally good shares the cheaper are taken
    allowed: Bools  # (problems, modes)

    def select_rows(self, rows: Ints, room: Floats) -> "_Programme":
        """The programme of these problems alone."""
        return replace(
            self,
            values=self.values[rows],
            costs=self.costs[:, rows],
            room=room,
            tie_costs=self.tie_costs[rows],
            allowed=self.allowed[rows],
        )

    def compute_net_values(self, prices: Floats) -> Floats:
        """Values less priced costs, (problems, modes); minus infinity where a mode isn't allowed."""
        net = self.values.copy()
        for price, costs in zip(prices, self.costs, strict=True):
            if price:
                net -= price * costs
        net[~self.allowed] = -np.inf
        return net

    def compute_dual(self, prices: Floats) -> float:
        return float(self.compute_net_values(prices).max(axis=1).mean() + prices @ self.room)

    def sum_costs(self, choice: Ints, rows: Ints) -> Floats:
        """What these problems cost together in the modes of `choice`, (limits,)."""
        return np.asarray(self.costs[:, rows, choice[rows]].sum(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ScaledLimit:
    """Costs counted from each problem's cheapest allowed mode, in units of the average range."""

    costs: Floats  # (problems, modes)
    floor: Floats  # (problems, 1) the cheapest allowed mode's, unscaled
    unit: float  # average over problems of dearest less cheapest; 0: the same for every choice
    room: float  # what the average may be
    tolerance: float

    @property
    def least(self) -> float:
        """The least possible average, unscaled."""
        return float(self.floor.mean())


def _scale_limit(limit: _CheckedLimit, allowed: Bools) -> _ScaledLimit:
    floor = np.where(allowed, limit.costs, np.inf).min(axis=1, keepdims=True)
    top = np.where(allowed, limit.costs, -np.inf).max(axis=1, keepdims=True)
    least, spread = float(floor.mean()), float((top - floor).mean())
    unit = spread if spread > _LIMIT_TOLERANCE * least else 0.0
    divisor = unit or max(1.0, least)
    return _ScaledLimit(
        costs=(limit.costs - floor) / divisor,
        floor=floor,
        unit=unit,
        room=(limit.at_most - least) / divisor,
        tolerance=_LIMIT_TOLERANCE * max(1.0, least / divisor),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ScaledProgramme:
    """The programme of the limits that need a price, and what the other limits forbid."""

    programme: _Programme
    priced: tuple[int, ...]  # numbers of the limits in the programme
    units: Floats  # (priced,) of their scaled costs
    forbidding: tuple[tuple[int, Bools], ...]  # limits met only by their cheapest modes, and what they forbid
    allowed: Bools  # (problems, modes) by all of these together


def _build_programme(table: AccuracyTable, limits: Sequence[_CheckedLimit]) -> _ScaledProgramme:
    allowed = np.ones(table.accuracy.shape, dtype=bool)
    forbidding: list[tuple[int, Bools]] = []
    while True:
        rest = [j for j in range(len(limits)) if j not in dict(forbidding)]
        scaled = {j: _scale_limit(limits[j], allowed) for j in rest}
        for j in rest:
            if scaled[j].room < -scaled[j].tolerance:
                others = [limits[i] for i, _ in forbidding]
                raise Infeasible(_format_clash(limits[j], others, scaled[j].least))
        tightest = next((j for j in rest if scaled[j].unit and scaled[j].room <= scaled[j].tolerance), None)
        if tightest is None:
            break
        limit = scaled[tightest]  # met by its cheapest modes alone
        cheapest = allowed & (limit.costs * limit.unit <= _SAME_COST * limit.floor)
        forbidding.append((tightest, allowed & ~cheapest))
        allowed = cheapest  # so the cheapest and dearest modes have changed for the other limits
    priced = [j for j in rest if scaled[j].unit and scaled[j].room < 1]
    programme = _Programme(
        values=table.accuracy,
        costs=np.array([scaled[j].costs for j in priced]).reshape(-1, *table.accuracy.shape),
        room=np.array([scaled[j].room for j in priced]),
        tolerance=np.array([scaled[j].tolerance for j in priced]),
        tie_costs=table.cost_matrix,
        allowed=allowed,
    )
    return _ScaledProgramme(
        programme=replace(programme, allowed=_mask_undominated(programme)),
        priced=tuple(priced),
        units=np.array([scaled[j].unit for j in priced]),
        forbidding=tuple(forbidding),
        allowed=allowed,
    )


def _mask_undominated(programme: _Programme) -> Bools:
    """Which allowed modes have no other that is as good and as cheap in every cost, (problems, modes).

    Of equal ones the first stays.
    """
    kept = programme.allowed.copy()
    columns = [-programme.values, programme.tie_costs, *programme.costs]
    for mode, other in product(range(kept.shape[1]), repeat=2):
        if mode == other:
            continue
        worse = kept[:, mode] & kept[:, other]
        for column in columns:
            worse &= column[:, other] <= column[:, mode]
        kept[:, mode] &= ~worse
    return kept


# --- the solution of the linear programme ---

_SMALL = 1000  # problems that are solved as they are
_SAMPLE_STRIDE = 8  # a larger table's prices are near those of every eighth row
_OPEN_AT_FIRST = 8.0  # problems left open at first, times the root of how many there are
_WIDENING = 2  # times as many, each time that wasn't enough
_SIMPLEX_PROBLEMS = 500  # beyond, HiGHS's interior point method (and crossover) is faster than its simplex
_HIGHS_ATTEMPTS = (("highs-ipm", 1e-10), ("highs-ipm", 1e-9), ("highs-ds", 1e-9))  # method, tolerance
_HIGHS_SMALL_ATTEMPTS = (("highs-ds", 1e-10), ("highs-ds", 1e-9), ("highs-ipm", 1e-9))
_OPTIMAL, _INFEASIBLE = 0, 2  # status of a result of `linprog`
_TIE_TOLERANCE = 1e-9  # of value: no clear margin
_GAP_TOLERANCE = 1e-11  # value and dual value agree
_SHARE_TOLERANCE = 1e-9  # of a problem: a share that is only rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Vertex:
    """A mode for each problem but a few, which are mixed."""

    choice: Ints  # (problems,) the mixed ones' largest share
    rows: Ints  # (mixed,) rising
    shares: Floats  # (mixed, modes) of each mode, adding up to 1
    prices: Floats  # (limits,) scaled
    dual: float  # at these prices
    value: float  # average, mixed


def _find_vertex(programme: _Programme, budget_index: int | None) -> _Vertex | None:
    """A vertex of the programme: it mixes no more problems than limits bind. None: infeasible.

    The prices of every eighth row are nearly right. At these most problems have one best mode by a
    clear margin, and are fixed; HiGHS decides the others. The value reached is then compared with the
    dual value: where they differ, more problems are left open, in the end all of them.

    Of equally good vertices it takes one that is cheap in the table's own cost, where the budget, which
    is limit number `budget_index`, has no price.
    """
    count = len(programme.values)
    prices, open_count = np.zeros(len(programme.room)), float(count)
    if count > _SMALL:
        sample = programme.select_rows(np.arange(0, count, _SAMPLE_STRIDE), programme.room)
        if (sample_vertex := _find_vertex(sample, budget_index)) is not None:
            prices, open_count = sample_vertex.prices, _OPEN_AT_FIRST * count**0.5
    dual = programme.compute_dual(prices)
    while True:
        choice, rows = _fix_decided(programme, prices, 1 + int(open_count))
        vertex = _solve_open(programme, choice, rows, (prices, dual), budget_index)
        if len(rows) == count or (vertex is not None and vertex.dual - vertex.value <= _GAP_TOLERANCE):
            return vertex
        if vertex is not None:
            prices, dual = vertex.prices, vertex.dual
        open_count *= _WIDENING


def _fix_decided(programme: _Programme, prices: Floats, open_count: int) -> tuple[Ints, Ints]:
    """Each problem's best mode at these prices, (problems,), and the rows with the least margin, rising."""
    net = programme.compute_net_values(prices)
    choice = net.argmax(axis=1)
    if open_count >= len(choice):
        return choice, np.arange(len(choice))
    best = net.max(axis=1)
    net[np.arange(len(net)), choice] = -np.inf
    margins = best - net.max(axis=1)
    nearest = np.argsort(margins, kind="stable")[:open_count]
    return choice, np.union1d(np.flatnonzero(margins <= _TIE_TOLERANCE), nearest)


def _solve_open(
    programme: _Programme,
    choice: Ints,
    rows: Ints,
    known: tuple[Floats, float],
    budget_index: int | None,
) -> _Vertex | None:
    """The best vertex with all but these rows fixed; None where they can't make up for what others use.

    `known`: prices, and the dual value there; they are kept where the new prices fit these rows only.
    """
    fixed = np.setdiff1d(np.arange(len(choice)), rows)
    room = programme.room * len(choice) - programme.sum_costs(choice, fixed)
    part = programme.select_rows(rows, room / len(rows))
    if (solution := _solve_programme(part, -part.values)) is None:
        return None
    shares, prices = solution
    dual = programme.compute_dual(prices)
    if dual > known[1] + _GAP_TOLERANCE:
        prices, dual = known
    if budget_index is None or prices[budget_index] == 0:
        shares = _find_cheaper_shares(part, shares, prices)
    unused = (part.room - (part.costs * shares).sum(axis=(1, 2)) / len(rows)) * len(rows) / len(choice)
    prices, dual = _drop_slack_prices(programme, prices, dual, unused)
    choice = choice.copy()
    choice[rows] = shares.argmax(axis=1)
    total = programme.values[fixed, choice[fixed]].sum() + (shares * part.values).sum()
    mixed = shares.max(axis=1) < 1
    return _Vertex(
        choice=choice,
        rows=rows[mixed],
        shares=shares[mixed],
        prices=prices,
        dual=dual,
        value=float(total) / len(choice),
    )


def _find_cheaper_shares(part: _Programme, shares: Floats, prices: Floats) -> Floats:
    """Shares of the same value that are cheapest in the table's own cost, (problems, modes)."""
    net = part.compute_net_values(prices)
    best = net >= net.max(axis=1, keepdims=True) - _GAP_TOLERANCE / 10
    aim = part.tie_costs / max(1e-300, float(part.tie_costs.max()))
    solution = _solve_programme(replace(part, allowed=best & part.allowed), aim, equal=prices > 0)
    if solution is None or (solution[0] * part.values).sum() < (shares * part.values).sum() - _GAP_TOLERANCE:
        return shares
    return solution[0]


def _drop_slack_prices(
    programme: _Programme, prices: Floats, dual: float, unused: Floats
) -> tuple[Floats, float]:
    """Sets the price of a limit that isn't reached to 0, unless that raises the dual value."""
    free = np.where(unused > _TIE_TOLERANCE, 0.0, prices)
    if (free == prices).all():
        return prices, dual
    free_dual = programme.compute_dual(free)
    return (free, free_dual) if free_dual <= dual + _GAP_TOLERANCE else (prices, dual)


def _solve_programme(
    part: _Programme, aim: Floats, *, equal: Bools | None = None
) -> tuple[Floats, Floats] | None:
    """Shares (problems, modes) at a vertex that minimises `aim`, and the limits' prices; None: infeasible.

    `equal`, (limits,): the limits whose room must be used up; they get no price. Equal problems are one
    row of the programme, so that ties make it smaller and not harder.
    """
    with needs_extra("fit"):
        from scipy.sparse import csr_array, vstack  # type: ignore[import-untyped]

    groups = _group_equal_rows(part, aim)
    equal = np.zeros(len(part.room), dtype=bool) if equal is None else equal
    allowed = part.allowed[groups.first]
    costs = part.costs[:, groups.first][:, allowed]  # (limits, cells)
    room = part.room * len(part.values)
    ends = np.cumsum(allowed.sum(axis=1))
    whole = csr_array((np.ones(ends[-1]), np.arange(ends[-1]), np.append(0, ends)))
    slip = 1e-12 * np.maximum(1.0, np.abs(room))  # so that rounding doesn't make it infeasible
    programme = {
        "c": aim[groups.first][allowed],
        "A_ub": None if equal.all() else csr_array(costs[~equal]),
        "b_ub": None if equal.all() else (room + slip)[~equal],
        "A_eq": vstack([whole, csr_array(costs[equal])]) if equal.any() else whole,
        "b_eq": np.concatenate([groups.sizes, room[equal]]),
    }
    solution = _call_highs(programme, large=len(groups.sizes) > _SIMPLEX_PROBLEMS)
    if solution is None:
        return None
    cells, marginals = solution
    amounts = np.zeros(allowed.shape)
    amounts[allowed] = np.where(cells < _SHARE_TOLERANCE, 0.0, cells)
    prices = np.zeros(len(room))
    if not equal.all():
        prices[~equal] = np.maximum(-marginals, 0.0)
    return groups.spread_amounts(amounts), prices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RowGroups:
    """Problems whose rows are equal, as groups."""

    first: Ints  # (groups,) the first problem of each
    sizes: Ints  # (groups,)
    group: Ints  # (problems,) the number of each problem's group
    rank: Ints  # (problems,) its place within the group, from 0

    def spread_amounts(self, amounts: Floats) -> Floats:
        """Each problem's shares, (problems, modes), from how many of its group have each mode.

        The problems of a group get its modes in order: the first mode's problems come first. Only where
        one mode's amount ends and the next one's begins may a problem be mixed, so a group has fewer
        mixed problems than modes in use, as a vertex promises.
        """
        ends = np.cumsum(amounts, axis=1)  # (groups, modes)
        ends *= self.sizes[:, None] / ends[:, -1:]
        nearest = np.rint(ends)
        ends = np.where(np.abs(ends - nearest) < _SHARE_TOLERANCE, nearest, ends)
        filled = np.clip(ends[self.group] - self.rank[:, None], 0.0, 1.0)  # of each problem, by these modes
        return np.diff(filled, axis=1, prepend=0.0)


def _group_equal_rows(part: _Programme, aim: Floats) -> _RowGroups:
    """Groups of the problems that have the same numbers for every allowed mode."""
    columns = [
        np.where(part.allowed, column, 0.0) for column in (aim, part.values, part.tie_costs, *part.costs)
    ]
    numbers = np.concatenate([part.allowed, *columns], axis=1)
    rows = numbers.view(f"V{numbers.itemsize * numbers.shape[1]}").ravel()  # as bytes: they sort much faster
    _, first, group, sizes = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    rank = np.empty(len(group), dtype=np.intp)
    rank[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return _RowGroups(first=first, sizes=sizes, group=group, rank=rank)


def _call_highs(programme: Mapping[str, object], *, large: bool) -> tuple[Floats, Floats] | None:
    """The solution of `linprog` at a vertex, and the marginal values of its upper limits; None: infeasible.

    HiGHS may give up at the tightest tolerance, as it did where thousands of problems were tied, so
    others follow.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    message = ""
    for method, tolerance in _HIGHS_ATTEMPTS if large else _HIGHS_SMALL_ATTEMPTS:
        options = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        solution = linprog(**programme, bounds=(0.0, None), method=method, options=options)
        if solution.status == _OPTIMAL:
            return solution.x, solution.ineqlin.marginals
        if solution.status == _INFEASIBLE:
            return None
        message = solution.message
    raise ArithmeticError(f"HiGHS found no solution ({message}); this is a bug: please report it")


def _solve_or_explain(
    programme: _Programme, priced_limits: Sequence[_CheckedLimit], budget_index: int | None
) -> tuple[_Programme, _Vertex]:
    """The programme and its vertex; Infeasible, naming the limits that clash, where there is none."""
    vertex = _find_vertex(programme, budget_index)
    if vertex is None:  # limits that only just can be met together get a rounding's worth of room
        programme = _check_joint_feasibility(programme, priced_limits)
        vertex = _find_vertex(programme, budget_index)
    if vertex is None:
        raise ArithmeticError("limits that can be met were found not to be; this is a bug: please report it")
    return programme, vertex


def _check_joint_feasibility(programme: _Programme, priced_limits: Sequence[_CheckedLimit]) -> _Programme:
    """The programme with room for limits that are feasible together but for rounding."""
    room = programme.room.copy()
    for j, limit in enumerate(priced_limits):
        before = replace(programme, costs=programme.costs[:j], room=room[:j])
        solution = _solve_programme(before, programme.costs[j])
        assert solution is not None  # the limits before it are feasible together
        scaled_least = float((solution[0] * programme.costs[j]).sum()) / len(programme.values)
        if scaled_least > room[j] + _JOINT_TOLERANCE:
            least = float((solution[0] * limit.costs).sum()) / len(programme.values)
            raise Infeasible(_format_clash(limit, priced_limits[:j], least))
        room[j] = max(room[j], scaled_least + _JOINT_TOLERANCE / 10)
    return replace(programme, room=room)


def _format_clash(limit: _CheckedLimit, others: Sequence[_CheckedLimit], least: float) -> str:
    kept = " and ".join(f"{other.name!r} at {other.at_most!r}" for other in others)
    return (
        f"limit {limit.name!r} at {limit.at_most!r} can't be met together with {kept}: with these kept, "
        f"the least average of {limit.name!r} is {format_lower_bound(least)}; give it that or more, or raise "
        "another"
    )


def _format_only_mixed(vertex: _Vertex, priced_limits: Sequence[_CheckedLimit]) -> str:
    names = " and ".join(f"{limit.name!r} at {limit.at_most:g}" for limit in priced_limits)
    return (
        f"no choice of one mode for each of {len(vertex.choice)} problems was found that keeps {names}; "
        f"mixing {len(vertex.rows)} of them would, for an accuracy of {vertex.value:.4g}; raise a limit"
    )


# --- one mode for each problem ---

_MAX_COMBINATIONS = 4096  # combinations that are looked at
_MAX_CONCESSIONS = 64  # problems that give way
_INTEGER_PROBLEMS = 400  # problems that an integer programme is asked about
_MAX_NODES = 20_000  # of its search tree: a limit that doesn't depend on the clock


def _round_vertex(programme: _Programme, vertex: _Vertex) -> Ints | None:
    """One mode for each problem, (problems,), within all limits; None where none was found.

    The mixed problems are few, so every combination of their modes is tried. Where none keeps the
    limits, other problems give way, one after the other: the one that loses least value for what it
    saves. Where that fails, an integer programme decides.
    """
    choice = _choose_combination(programme, vertex)
    for _ in range(_MAX_CONCESSIONS):
        excess = _compute_excess(programme, choice)
        if (excess <= 0).all():
            return choice
        move = _find_concession(programme, choice, excess)
        if move is None:
            break
        choice[move[0]] = move[1]
    if (_compute_excess(programme, choice) <= 0).all():
        return choice
    return _solve_integer_programme(programme, vertex)


def _compute_excess(programme: _Programme, choice: Ints) -> Floats:
    """What a choice uses beyond each limit, summed over problems, (limits,); negative: unused room."""
    return programme.sum_costs(choice, np.arange(len(choice))) - _compute_total_room(programme)


def _compute_total_room(programme: _Programme) -> Floats:
    return np.asarray(len(programme.values) * (programme.room + programme.tolerance))


def _choose_combination(programme: _Programme, vertex: _Vertex) -> Ints:
    """The best combination of the mixed problems' modes; where none keeps the limits, the nearest to it."""
    choice, rows = vertex.choice.copy(), vertex.rows
    if not len(rows):
        return choice
    options = [np.flatnonzero(allowed) for allowed in programme.allowed[rows]]
    if np.prod([float(len(modes)) for modes in options]) > _MAX_COMBINATIONS:
        options = [np.flatnonzero(share > 0) for share in vertex.shares]
    combinations = np.array(list(product(*options)))[:_MAX_COMBINATIONS]  # (ways, mixed)
    excess = _compute_excess(programme, choice) - programme.sum_costs(choice, rows)
    uses = programme.costs[:, rows, combinations].sum(axis=2)  # (limits, ways)
    beyond = np.maximum(0.0, excess[:, None] + uses).sum(axis=0)  # (ways,)
    values = programme.values[rows, combinations].sum(axis=1)
    order = np.lexsort((programme.tie_costs[rows, combinations].sum(axis=1), -values, beyond))
    choice[rows] = combinations[order[0]]
    return choice


def _find_concession(programme: _Programme, choice: Ints, excess: Floats) -> tuple[int, int] | None:
    """The problem and mode that lose least value for what they save; None where nothing saves anything."""
    rows = np.arange(len(choice))
    total = float(np.maximum(excess, 0.0).sum())
    beyond = np.zeros(programme.values.shape)
    for much, costs in zip(excess, programme.costs, strict=True):
        beyond += np.maximum(0.0, much + costs - costs[rows, choice][:, None])
    saved = np.where(programme.allowed, total - beyond, 0.0)
    loss = programme.values[rows, choice][:, None] - programme.values
    rate = np.full(saved.shape, np.inf)
    # the constant prefers one large step over many small ones where none loses value
    np.divide(np.maximum(loss, 0.0) + 1e-6, saved, out=rate, where=saved > 1e-9 * total)
    row, mode = divmod(int(rate.argmin()), programme.values.shape[1])
    return (row, mode) if rate[row, mode] < np.inf else None


def _solve_integer_programme(programme: _Programme, vertex: _Vertex) -> Ints | None:
    """Solves an integer programme over some problems: the mixed ones, and others spread over the table."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count, modes = programme.values.shape
    subset = np.union1d(vertex.rows, np.arange(0, count, count // _INTEGER_PROBLEMS + 1))
    others = np.setdiff1d(np.arange(count), subset)
    room = _compute_total_room(programme) - programme.sum_costs(vertex.choice, others)
    costs = programme.costs[:, subset].reshape(len(room), -1)
    ones = np.kron(np.eye(len(subset)), np.ones(modes))
    solution = milp(
        -programme.values[subset].ravel(),
        integrality=np.ones(len(subset) * modes),
        bounds=Bounds(0.0, programme.allowed[subset].ravel().astype(float)),
        constraints=[LinearConstraint(costs, ub=room), LinearConstraint(ones, lb=1.0, ub=1.0)],
        options={"node_limit": _MAX_NODES, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return None
    choice = vertex.choice.copy()
    choice[subset] = solution.x.reshape(-1, modes).argmax(axis=1)
    # the solver's tolerance is wider than ours
    return choice if (_compute_excess(programme, choice) <= 0).all() else None


# --- prices, bound and mix in the table's own units ---


def _price_forbidden(
    table: AccuracyTable, limits: Sequence[_CheckedLimit], scaled: _ScaledProgramme, prices: Floats
) -> None:
    """Sets the prices, in place, at which no problem chooses a forbidden mode; the last limit first."""
    allowed = scaled.allowed
    for j, forbidden in reversed(scaled.forbidding):
        net = table.accuracy - sum(
            price * limit.costs for price, limit in zip(prices, limits, strict=True) if price
        )
        best = np.where(allowed, net, -np.inf).max(axis=1, keepdims=True)
        more = limits[j].costs - np.where(allowed, limits[j].costs, np.inf).min(axis=1, keepdims=True)
        if forbidden.any():
            prices[j] = max(0.0, float(((net - best)[forbidden] / more[forbidden]).max()))
        allowed = allowed | forbidden


def _compute_bound(table: AccuracyTable, limits: Sequence[_CheckedLimit], prices: Floats) -> float:
    """The dual value at these prices; costs count from each problem's cheapest, so that less is rounded."""
    net, bound = table.accuracy.copy(), 0.0
    for limit, price in zip(limits, prices, strict=True):
        if price:
            floor = limit.costs.min(axis=1, keepdims=True)
            net -= price * (limit.costs - floor)
            bound += float(price) * (limit.at_most - float(floor.mean()))
    return bound + float(net.max(axis=1).mean())


def _build_mix(choice: Ints, vertex: _Vertex) -> Mix:
    """The changes to `choice`, with probabilities, that make the averages those of the vertex."""
    moved = np.setdiff1d(np.flatnonzero(choice != vertex.choice), vertex.rows)  # gave way: moved back
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


def _build_limit_use(limit: _CheckedLimit, price: float, choice: Ints, mix: Mix) -> CapUse:
    cost = float(limit.costs[np.arange(len(choice)), choice].mean())
    return CapUse(
        name=limit.name,
        at_most=limit.at_most,
        price=price,
        cost=cost,
        mixed_cost=cost + compute_mix_change(limit.costs, choice, mix),
    )
