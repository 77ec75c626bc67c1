"""Several limits at once: one price each, and few mixed problems.

1. `check_limits` checks the limits and scales them. A limit that even the dearest modes keep gets no price;
   one that only the cheapest modes keep forbids the others.
2. `minimise_dual` finds the prices of the rest by cutting planes.
3. `recover_vertex` finds the allocation at these prices by a small linear programme.
4. `round_vertex` gives each problem one mode within all limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, Infeasible, TableInvalid
from adacompute.records import AccuracyTable, Allocation, Cap, CapUse, Mix, format_lower_bound
from adacompute.solve.pricing import build_allocation, compute_mix_change

__all__ = ["DualProblem", "ScaledLimit", "minimise_dual", "solve_with_limits"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_CHUNK_CELLS = 1 << 17  # of a chunk
_DUAL_TOLERANCE = 1e-12  # the planes' lowest point and the best value found have met
_MAX_CUTS = 400  # planes; recovery is exact from any prices that are nearly right
_PRICE_BOX = 8.0  # prices are looked for up to here first; scaled, so that few lie beyond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledLimit:
    """One limit, scaled: costs count from each problem's cheapest, in units of the average range."""

    costs: Floats  # (modes,) or (problems, modes) as given
    floor: Floats  # () or (problems,) the cheapest
    scale: float  # average over problems of dearest less cheapest
    right: float  # what the average may be, scaled
    tolerance: float = 1e-12  # of that: what rounding may add

    def slice_costs(self, start: int, stop: int) -> Floats:
        """Scaled costs of a range of rows: (modes,) where costs are shared, else (rows, modes)."""
        if self.costs.ndim == 1:
            return np.asarray((self.costs - self.floor) / self.scale)
        return np.asarray((self.costs[start:stop] - self.floor[start:stop, None]) / self.scale)

    def select_costs(self, rows: Ints) -> Floats:
        """Scaled costs of these problems: (modes,) or (rows, modes), as `slice_costs`."""
        if self.costs.ndim == 1:
            return self.slice_costs(0, 0)
        return np.asarray((self.costs[rows] - self.floor[rows, None]) / self.scale)

    def compute_choice_costs(self, rows: Ints, choice: Ints) -> Floats:
        """Scaled costs of these problems in these modes, one each."""
        if self.costs.ndim == 1:
            return np.asarray((self.costs[choice] - self.floor) / self.scale)
        return np.asarray((self.costs[rows, choice] - self.floor[rows]) / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualProblem:
    """Maximise a value under several limits, by its dual.

    The dual value, G(prices) = mean over problems of max over modes of (value - prices . costs) +
    prices . right, is convex and piecewise linear.
    """

    values: Floats  # (problems, modes)
    sides: tuple[ScaledLimit, ...]
    allowed: Bools | None = None  # (problems, modes); None: every mode

    @property
    def right(self) -> Floats:
        return np.array([side.right for side in self.sides])

    def split_rows(self) -> list[tuple[int, int]]:
        """Ranges of rows to work on at a time, so that temporary arrays stay small."""
        rows, modes = self.values.shape
        size = max(64, _CHUNK_CELLS // modes)
        return [(start, min(start + size, rows)) for start in range(0, rows, size)]

    def compute_net_values(self, prices: Floats, start: int, stop: int) -> Floats:
        """Values less priced costs, (rows, modes); minus infinity where a mode isn't allowed."""
        priced = [
            price * side.slice_costs(start, stop)
            for price, side in zip(prices, self.sides, strict=True)
            if price
        ]
        shared = sum((p for p in priced if p.ndim == 1), start=np.zeros(self.values.shape[1]))
        net = self.values[start:stop] - shared
        for each in priced:
            if each.ndim == 2:
                net -= each
        if self.allowed is not None:
            net[~self.allowed[start:stop]] = -np.inf
        return net

    def find_best_modes(self, prices: Floats) -> Ints:
        """Each problem's best mode at these prices, the first of equal ones: (problems,)."""
        return np.concatenate(
            [self.compute_net_values(prices, *rows).argmax(axis=1) for rows in self.split_rows()]
        )

    def compute_averages(self, choice: Ints) -> tuple[float, Floats]:
        """Averages of a choice: its value, and its scaled costs (sides,)."""
        rows = np.arange(len(choice))
        value = float(self.values[rows, choice].mean())
        return value, np.array([float(side.compute_choice_costs(rows, choice).mean()) for side in self.sides])

    def compute_dual(self, prices: Floats) -> float:
        """The dual value: no mixture within the limits has a larger value."""
        total = sum(
            float(self.compute_net_values(prices, *rows).max(axis=1).sum()) for rows in self.split_rows()
        )
        return total / len(self.values) + float(prices @ self.right)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualMinimum:
    """The lowest point of the dual that was found."""

    prices: Floats  # (sides,) scaled
    dual: float  # G there
    cut_prices: tuple[Floats, ...]  # prices of the planes that meet below it
    weights: Floats  # (tried,) of their choices in the mixture, adding up to 1
    bounded: bool  # False: it lies at the edge of where we looked, and may be lower still beyond
    evaluations: int  # how many evaluations it took


def minimise_dual(problem: DualProblem, *, radius: float = _PRICE_BOX) -> DualMinimum:
    """Minimises the dual value over prices from 0 up to `radius`, by cutting planes (Kelley).

    Each evaluation gives a plane that lies below the dual everywhere; the lowest point of the planes
    so far is a lower bound, and the next point to evaluate. The planes that meet in it have weights:
    mixed by these, the choices that gave the planes keep the limits.
    """
    right = problem.right
    prices = np.zeros(len(right))
    cut_prices: list[Floats] = []
    cuts = np.empty((0, 1 + len(right)))  # (planes, 1 + sides) height at 0, and slopes
    best, best_prices, weights = np.inf, prices, np.zeros(0)
    while len(cuts) < _MAX_CUTS:
        value, used = problem.compute_averages(problem.find_best_modes(prices))
        cut = np.append(value, right - used)
        height = float(value + prices @ cut[1:])
        if height < best:
            best, best_prices = height, prices
        repeated = bool((cuts == cut).all(axis=1).any())
        if not repeated:
            cuts = np.vstack([cuts, cut])
            cut_prices.append(prices)
        bottom, prices, weights = _find_lowest_point(cuts, radius)
        if repeated or best - bottom <= _DUAL_TOLERANCE * max(1.0, abs(best)):
            break
    active = np.flatnonzero(weights > _DUAL_TOLERANCE)
    return DualMinimum(
        prices=best_prices,
        dual=best,
        cut_prices=tuple(cut_prices[t] for t in active),
        weights=weights[active] / weights[active].sum(),
        bounded=bool((best_prices < radius * (1 - 1e-9)).all()),
        evaluations=len(cuts),
    )


def _find_lowest_point(cuts: Floats, radius: float) -> tuple[float, Floats, Floats]:
    """The lowest point above all planes: its height, its prices, and each plane's weight there."""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    sides = cuts.shape[1] - 1
    solution = linprog(
        np.eye(1 + sides)[0],
        A_ub=np.column_stack([-np.ones(len(cuts)), cuts[:, 1:]]),
        b_ub=-cuts[:, 0],
        bounds=[(None, None)] + [(0.0, radius)] * sides,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.status != 0:  # impossible: every plane bounds it below within the box
        raise ArithmeticError(f"the planes' lowest point was not found: {solution.message}")
    return float(solution.fun), np.maximum(solution.x[1:], 0.0), np.maximum(-solution.ineqlin.marginals, 0.0)


_LIMIT_TOLERANCE = 1e-12  # of a limit: what rounding may add to an average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedLimit:
    """One limit, checked: the table's own cost under the budget, or another cost."""

    name: str
    costs: Floats  # (modes,) or (problems, modes)
    at_most: float

    def slice_costs(self, start: int, stop: int) -> Floats:
        return self.costs if self.costs.ndim == 1 else self.costs[start:stop]

    def scale(self, table: AccuracyTable, allowed: Bools | None) -> ScaledLimit:
        """The limit scaled by the modes that are allowed."""
        if allowed is None:
            floor, top = self.costs.min(axis=-1), self.costs.max(axis=-1)
        else:
            floor, top = np.empty(len(table)), np.empty(len(table))
            for start in range(0, len(table), 1 << 14):
                rows = slice(start, start + (1 << 14))
                part, kept = (
                    np.broadcast_to(self.slice_costs(start, rows.stop), allowed[rows].shape),
                    allowed[rows],
                )
                floor[rows] = np.where(kept, part, np.inf).min(axis=1)
                top[rows] = np.where(kept, part, -np.inf).max(axis=1)
        costs = self.costs
        if allowed is not None and costs.ndim == 1:
            costs = np.broadcast_to(costs, allowed.shape)  # what is cheapest may differ by problem now
        least, scale = float(np.mean(floor)), float(np.mean(top - floor))
        if scale <= _LIMIT_TOLERANCE * least:  # the cost is the same for every choice
            scale = 0.0
        unit = scale if scale > 0 else max(1.0, least)
        room = self.at_most - least
        slip = _LIMIT_TOLERANCE * max(1.0, least / unit)
        return ScaledLimit(
            costs=costs,
            floor=np.asarray(floor),
            scale=scale,
            right=room / unit,
            tolerance=slip,
        )


def check_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> tuple[CheckedLimit, ...]:
    """The table's own cost under the budget first, then each limit; each is feasible on its own."""
    checked_limits = [CheckedLimit(name=table.unit, costs=table.costs, at_most=budget)]
    for limit in limits:
        if any(limit.name == other.name for other in checked_limits):
            raise TableInvalid(
                f"two limits are called {limit.name!r}; the budget's is {table.unit!r}: rename one"
            )
        checked_limits.append(
            CheckedLimit(name=limit.name, costs=_check_costs(table, limit), at_most=_check_at_most(limit))
        )
    for checked_limit in checked_limits:
        side = checked_limit.scale(table, None)
        if side.right < -side.tolerance:
            least = float(np.mean(side.floor))
            raise BudgetOutOfRange(
                f"limit {checked_limit.name!r} at {checked_limit.at_most!r} is below the least possible average "
                f"({format_lower_bound(least)}); give {format_lower_bound(least)} or more"
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
            f"costs of limit {limit.name!r} have shape {costs.shape}; give {shape[1:]} for all problems "
            f"alike, or {shape}"
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


_OPEN_AT_FIRST = 256  # problems left open at first
_WIDENING = 8  # times as many, each time that wasn't enough
_TIE_TOLERANCE = 1e-9  # of value: no clear margin
_GAP_TOLERANCE = 1e-11  # value and dual value agree
_SHARE_TOLERANCE = 1e-9  # of a problem: a share that is only rounding
_GOLDEN = 0.6180339887498949  # its multiples fall evenly between 0 and 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vertex:
    """A mode for each problem but a few, which are mixed."""

    choice: Ints  # (problems,) the mixed ones' largest share
    rows: Ints  # (mixed,) rising
    shares: Floats  # (mixed, modes) of each mode, adding up to 1
    prices: Floats  # (sides,) scaled
    dual: float  # at these prices
    value: float  # average, mixed


def recover_vertex(
    problem: DualProblem, minimum: DualMinimum, *, tie_costs: Floats, budget_index: int | None
) -> Vertex:
    """The vertex at the minimum of the dual: an allocation with few mixed problems.

    Most problems have one best mode at the prices, by a clear margin: they are fixed. Those nearest to
    undecided go into a small linear programme, whose simplex solution is a vertex: it mixes no more
    problems than limits bind. Where thousands are tied (accuracies are fractions), most of them take
    the modes that the cutting planes' own mixture gives them, and the programme decides the rest. It
    is done when the value reached is the dual value, which no allocation exceeds; else more problems
    are left open, in the end all of them.

    Of equally good vertices it takes one that is cheap in `tie_costs`, (problems, modes), where limit
    number `budget_index` has no price.
    """
    best: Vertex | None = None
    count, rows = _OPEN_AT_FIRST, len(problem.values)
    while True:
        candidate = _try_recovery(problem, minimum, count, tie_costs=tie_costs, budget_index=budget_index)
        if candidate is not None and (best is None or candidate.value > best.value):
            best = candidate
        if best is not None and (best.dual - best.value <= _GAP_TOLERANCE or count >= rows):
            return best
        if count >= rows:
            raise ArithmeticError(
                "limits that can be met were found not to be; this is a bug: please report it"
            )
        if candidate is not None and candidate.dual < minimum.dual:
            minimum = replace(minimum, prices=candidate.prices, dual=candidate.dual)
        count *= _WIDENING


def _try_recovery(
    problem: DualProblem, minimum: DualMinimum, count: int, *, tie_costs: Floats, budget_index: int | None
) -> Vertex | None:
    """A vertex with about `count` problems left open.

    None where these can't make up for what the others use.
    """
    choice, rows = _split_decided(problem, minimum, count)
    choice = _choose_cheaper_ties(problem, choice, tie_costs)
    fixed = np.ones(len(choice), dtype=bool)
    fixed[rows] = False
    others = np.flatnonzero(fixed)
    room = problem.right * len(choice)
    room -= [float(side.compute_choice_costs(others, choice[others]).sum()) for side in problem.sides]
    open_problems = _OpenProblems.of(problem, rows, room)
    solution = open_problems.solve(-open_problems.values, equal=np.zeros(len(room), dtype=bool))
    if solution is None:
        return None
    shares, prices = solution
    dual = problem.compute_dual(prices)
    if dual > minimum.dual + _GAP_TOLERANCE:  # these prices fit the open problems only
        prices, dual = minimum.prices, minimum.dual
    if budget_index is None or prices[budget_index] == 0:
        shares = open_problems.find_cheaper_shares(shares, prices, tie_costs[rows])
    prices, dual = _drop_slack_prices(
        problem, prices, dual, open_problems.compute_unused_room(shares) / len(choice)
    )
    choice[rows] = shares.argmax(axis=1)
    value = float(problem.values[others, choice[others]].sum() + (shares * open_problems.values).sum()) / len(
        choice
    )
    mixed = shares.max(axis=1) < 1
    return Vertex(
        choice=choice, rows=rows[mixed], shares=shares[mixed], prices=prices, dual=dual, value=value
    )


def _split_decided(problem: DualProblem, minimum: DualMinimum, count: int) -> tuple[Ints, Ints]:
    """Each problem's mode as far as it is decided, (problems,), and the rows left open."""
    choice, margin = [], []
    for rows in problem.split_rows():
        net = problem.compute_net_values(minimum.prices, *rows)
        choice.append(net.argmax(axis=1))
        top = net.max(axis=1)
        net[np.arange(len(net)), choice[-1]] = -np.inf
        margin.append(top - net.max(axis=1))
    best, margins = np.concatenate(choice), np.concatenate(margin)
    if count >= len(best):
        return best, np.arange(len(best))
    tied = np.flatnonzero(margins <= _TIE_TOLERANCE)
    if len(tied) <= 4 * count:
        near = np.argsort(margins, kind="stable")[:count]
        return best, np.union1d(tied, near)
    modes = np.array(
        [problem.find_best_modes(prices)[tied] for prices in minimum.cut_prices]
    )  # (tried, tied)
    order = np.lexsort(modes)
    stride = len(tied) // (4 * count) + 1
    open_mask = np.zeros(len(tied), dtype=bool)
    open_mask[::stride] = True
    rest = order[~open_mask]
    even = np.arange(1, len(rest) + 1) * _GOLDEN % 1
    which = np.minimum(np.searchsorted(np.cumsum(minimum.weights), even), len(modes) - 1)
    best[tied[rest]] = modes[which, rest]
    return best, np.sort(tied[order[open_mask]])


def _choose_cheaper_ties(problem: DualProblem, choice: Ints, tie_costs: Floats) -> Ints:
    """The choice, with each problem in the cheapest mode that is as good and uses no more of any limit."""
    better = choice.copy()
    for start, stop in problem.split_rows():
        rows = np.arange(stop - start)
        current = choice[start:stop]
        values, costs = problem.values[start:stop], tie_costs[start:stop]
        good = values >= values[rows, current][:, None]
        good &= costs < costs[rows, current][:, None]
        if not good.any():
            continue
        for side in problem.sides:
            part = np.broadcast_to(side.slice_costs(start, stop), values.shape)
            good &= part <= part[rows, current][:, None]
        if problem.allowed is not None:
            good &= problem.allowed[start:stop]
        cheap = np.where(good, costs, np.inf).argmin(axis=1)
        better[start:stop] = np.where(good.any(axis=1), cheap, current)
    return better


def _drop_slack_prices(
    problem: DualProblem, prices: Floats, dual: float, left: Floats
) -> tuple[Floats, float]:
    """Sets the price of a limit that isn't reached to 0, unless that raises the dual value."""
    free = np.where(left > _TIE_TOLERANCE, 0.0, prices)
    if (free == prices).all():
        return prices, dual
    free_dual = problem.compute_dual(free)
    return (free, free_dual) if free_dual <= dual + _GAP_TOLERANCE else (prices, dual)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OpenProblems:
    """The linear programme of the open problems."""

    values: Floats  # (rows, modes)
    costs: Floats  # (sides, rows, modes) scaled
    room: Floats  # (sides,) what all of them together may use
    allowed: npt.NDArray[np.bool_]  # (rows, modes)

    @classmethod
    def of(cls, problem: DualProblem, rows: Ints, room: Floats) -> "_OpenProblems":
        values = problem.values[rows]
        costs = [np.broadcast_to(side.select_costs(rows), values.shape) for side in problem.sides]
        allowed = np.ones(values.shape, dtype=bool) if problem.allowed is None else problem.allowed[rows]
        return cls(
            values=values, costs=np.array(costs).reshape(-1, *values.shape), room=room, allowed=allowed
        )

    def compute_unused_room(self, shares: Floats) -> Floats:
        """The unused part of the room, (sides,)."""
        return np.asarray(self.room - (self.costs * shares).sum(axis=(1, 2)))

    def solve(self, aim: Floats, *, equal: npt.NDArray[np.bool_]) -> tuple[Floats, Floats] | None:
        """Shares (rows, modes) at a vertex that minimises `aim`, and the prices (sides,).

        None: infeasible.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack  # type: ignore[import-untyped]

        rows, modes = self.values.shape
        sides = self.costs.reshape(-1, rows * modes)
        whole = _build_share_sums(rows, modes)
        slip = 1e-12 * np.maximum(1.0, np.abs(self.room))  # so that rounding doesn't make it infeasible
        solution = linprog(
            aim.ravel(),
            A_ub=csr_array(sides[~equal]) if (~equal).any() else None,
            b_ub=(self.room + slip)[~equal] if (~equal).any() else None,
            A_eq=vstack([whole, csr_array(sides[equal])]) if equal.any() else whole,
            b_eq=np.concatenate([np.ones(rows), self.room[equal]]),
            bounds=np.column_stack([np.zeros(rows * modes), self.allowed.ravel().astype(float)]),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if solution.status != 0:
            return None
        shares = np.where(solution.x < _SHARE_TOLERANCE, 0.0, solution.x).reshape(rows, modes)
        shares /= shares.sum(axis=1, keepdims=True)
        prices = np.zeros(len(sides))
        if (~equal).any():
            prices[~equal] = np.maximum(-solution.ineqlin.marginals, 0.0)
        return shares, prices

    def find_cheaper_shares(self, shares: Floats, prices: Floats, tie_costs: Floats) -> Floats:
        """Shares of the same value that are cheapest in `tie_costs`, (rows, modes)."""
        net = np.where(self.allowed, self.values - np.tensordot(prices, self.costs, axes=1), -np.inf)
        equal = (net >= net.max(axis=1, keepdims=True) - _GAP_TOLERANCE / 10) & self.allowed
        solution = replace(self, allowed=equal).solve(
            tie_costs / max(1e-300, float(tie_costs.max())), equal=prices > 0
        )
        if (
            solution is None
            or (solution[0] * self.values).sum() < (shares * self.values).sum() - _GAP_TOLERANCE
        ):
            return shares
        return solution[0]


def _build_share_sums(rows: int, modes: int) -> object:
    """The matrix (rows, rows * modes) by which the shares of one problem add up to 1."""
    from scipy.sparse import csr_array

    places = np.arange(rows * modes)
    return csr_array((np.ones(rows * modes), places, np.arange(0, rows * modes + 1, modes)))


_MAX_COMBINATIONS = 4096  # combinations that are looked at
_MAX_CONCESSIONS = 64  # problems that give way
_INTEGER_PROBLEMS = 400  # problems that an integer programme is asked about
_MAX_NODES = 20_000  # of its search tree: a limit that doesn't depend on the clock


def round_vertex(problem: DualProblem, vertex: Vertex, tie_costs: Floats) -> Ints | None:
    """One mode for each problem, (problems,), within all limits; None where none was found.

    The mixed problems are few, so every combination of their modes is tried. Where none keeps the
    limits, other problems give way, one after the other: the one that loses least value for what it
    saves. Where that fails, an integer programme decides.
    """
    excess = _compute_excess(problem, vertex.choice)
    choice = _choose_combination(problem, vertex, excess, tie_costs)
    excess = _compute_excess(problem, choice)
    for _ in range(_MAX_CONCESSIONS):
        if (excess <= 0).all():
            return choice
        move = _find_concession(problem, choice, excess)
        if move is None:
            break
        choice[move[0]] = move[1]
        excess = _compute_excess(problem, choice)
    return choice if (excess <= 0).all() else _solve_integer_programme(problem, vertex)


def _compute_excess(problem: DualProblem, choice: Ints) -> Floats:
    """What a choice uses beyond each limit, summed over problems, (sides,); negative: unused room."""
    rows = np.arange(len(choice))
    used = np.array([float(side.compute_choice_costs(rows, choice).sum()) for side in problem.sides])
    return used - _compute_room(problem)


def _compute_room(problem: DualProblem) -> Floats:
    return np.array([len(problem.values) * (side.right + side.tolerance) for side in problem.sides])


def _choose_combination(problem: DualProblem, vertex: Vertex, excess: Floats, tie_costs: Floats) -> Ints:
    """The best combination of the mixed problems' modes; where none keeps the limits, the nearest to it."""
    choice, rows = vertex.choice.copy(), vertex.rows
    if not len(rows):
        return choice
    options = [np.flatnonzero(_mask_allowed(problem, rows[[r]])[0]) for r in range(len(rows))]
    if np.prod([float(len(each)) for each in options]) > _MAX_COMBINATIONS:
        options = [np.flatnonzero(share > 0) for share in vertex.shares]
    combinations = np.array(list(product(*options)))[:_MAX_COMBINATIONS]  # (ways, mixed)
    uses = np.array(
        [
            side.compute_choice_costs(rows, combinations) - side.compute_choice_costs(rows, choice[rows])
            for side in problem.sides
        ]
    )
    beyond = np.maximum(0.0, excess[:, None] + uses.sum(axis=2)).sum(axis=0)  # (ways,)
    order = np.lexsort(
        (tie_costs[rows, combinations].sum(axis=1), -problem.values[rows, combinations].sum(axis=1), beyond)
    )
    choice[rows] = combinations[order[0]]
    return choice


def _mask_allowed(problem: DualProblem, rows: Ints) -> npt.NDArray[np.bool_]:
    if problem.allowed is None:
        return np.ones((len(rows), problem.values.shape[1]), dtype=bool)
    return problem.allowed[rows]


def _find_concession(problem: DualProblem, choice: Ints, excesses: Floats) -> tuple[int, int] | None:
    """The problem and mode that lose least value for what they save; None where nothing saves anything."""
    excess = float(np.maximum(excesses, 0.0).sum())
    best_rate = np.inf
    concession: tuple[int, int] | None = None
    for start, stop in problem.split_rows():
        rows = np.arange(stop - start)
        current = choice[start:stop]
        beyond = np.zeros((stop - start, problem.values.shape[1]))
        for side, much in zip(problem.sides, excesses, strict=True):
            part = np.broadcast_to(side.slice_costs(start, stop), beyond.shape)
            beyond += np.maximum(0.0, much + part - part[rows, current][:, None])
        saved = excess - beyond
        saved[~_mask_allowed(problem, np.arange(start, stop))] = 0.0
        loss = problem.values[start:stop][rows, current][:, None] - problem.values[start:stop]
        rate = np.full(saved.shape, np.inf)
        # the constant prefers one large step over many small ones where none loses value
        np.divide(np.maximum(loss, 0.0) + 1e-6, saved, out=rate, where=saved > 1e-9 * excess)
        place = int(rate.argmin())
        if rate.flat[place] < best_rate:
            row, mode = divmod(place, len(problem.values[0]))
            best_rate, concession = float(rate.flat[place]), (start + row, mode)
    return concession


def _solve_integer_programme(problem: DualProblem, vertex: Vertex) -> Ints | None:
    """Solves an integer programme over some problems: the mixed ones, and others spread over the table."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count, modes = problem.values.shape
    subset = np.union1d(vertex.rows, np.arange(0, count, count // _INTEGER_PROBLEMS + 1))
    choice = vertex.choice.copy()
    others = np.setdiff1d(np.arange(count), subset)
    room = _compute_room(problem) - [
        float(side.compute_choice_costs(others, choice[others]).sum()) for side in problem.sides
    ]
    costs = [
        np.broadcast_to(side.select_costs(subset), (len(subset), modes)).ravel() for side in problem.sides
    ]
    ones = np.kron(np.eye(len(subset)), np.ones(modes))
    solution = milp(
        -problem.values[subset].ravel(),
        integrality=np.ones(len(subset) * modes),
        bounds=Bounds(0.0, _mask_allowed(problem, subset).ravel().astype(float)),
        constraints=[LinearConstraint(np.array(costs), ub=room), LinearConstraint(ones, lb=1.0, ub=1.0)],
        options={"node_limit": _MAX_NODES, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return None
    choice[subset] = solution.x.reshape(-1, modes).argmax(axis=1)
    return (
        choice if (_compute_excess(problem, choice) <= 0).all() else None
    )  # the solver's tolerance is wider than ours


_FIRST_RADIUS = 8.0  # scaled prices are looked for up to here first, then further out
_MAX_RADIUS = 1e7
_SAME_COST = 1e-12  # of a cost: costs this near to each other differ by rounding only
_JOINT_TOLERANCE = 1e-9  # of a limit's range: limits that are met together to this are met


def solve_with_limits(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> Allocation:
    """The best allocation within the budget and all limits; `price` is the budget's own.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    >>> plan = solve_with_limits(table, 2.0, [Cap(name="seconds", costs=[1, 5], at_most=2.0)])
    >>> [(use.name, round(use.price, 3), use.mixed_cost) for use in plan.limits], round(plan.bound, 3)
    ([('samples', 0.0, 1.25), ('seconds', 0.1, 2.0)], 0.65)
    """
    all_limits = check_limits(table, budget, limits)
    groups = _group_limits(table, all_limits)
    problem = DualProblem(values=table.accuracy, sides=tuple(groups.sides.values()), allowed=groups.allowed)
    problem, minimum = _find_prices(problem, [all_limits[j] for j in groups.sides])
    budget_index = list(groups.sides).index(0) if 0 in groups.sides else None
    tie_costs = table.cost_matrix
    vertex = recover_vertex(problem, minimum, tie_costs=tie_costs, budget_index=budget_index)
    choice = round_vertex(problem, vertex, tie_costs)
    if choice is None:
        raise Infeasible(_format_only_mixed(problem, vertex, [all_limits[j] for j in groups.sides]))
    prices = np.zeros(len(all_limits))
    prices[list(groups.sides)] = vertex.prices / [side.scale for side in problem.sides]
    _price_forbidden(table, all_limits, groups, prices)
    mix = _build_mix(choice, vertex)
    uses = tuple(
        _build_limit_use(limit, float(price), choice, mix, table)
        for limit, price in zip(all_limits, prices, strict=True)
    )
    return build_allocation(
        table,
        budget=budget,
        price=float(prices[0]),
        choice=choice,
        mix=mix,
        bound=_compute_bound(table, all_limits, prices),
        limits=uses,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LimitGroups:
    """The limits to be priced, and the modes that the other limits allow."""

    sides: dict[int, ScaledLimit]  # by number of the limit
    forbidding: tuple[tuple[int, Bools], ...]  # limits met only by their cheapest modes, and what they forbid
    allowed: Bools | None  # (problems, modes) by all of them together


def _group_limits(table: AccuracyTable, all_limits: Sequence[CheckedLimit]) -> _LimitGroups:
    allowed: Bools | None = None
    forbidding: list[tuple[int, Bools]] = []
    sides: dict[int, ScaledLimit] = {}
    remaining = list(range(len(all_limits)))
    while remaining:
        sides = {}
        for j in remaining:
            side = all_limits[j].scale(table, allowed)
            if side.right < -side.tolerance:
                raise Infeasible(_describe_clash(all_limits, [j for j, _ in forbidding], j, side))
            if side.scale == 0:
                continue
            if side.right <= side.tolerance:
                cheapest = _mask_cheapest(table, side, allowed)
                before = np.ones(cheapest.shape, dtype=bool) if allowed is None else allowed
                forbidding.append((j, before & ~cheapest))
                allowed = cheapest
                remaining.remove(j)
                break  # the cheapest and dearest modes have changed for the other limits
            if side.right < 1:
                sides[j] = side
        else:
            break
    return _LimitGroups(sides=sides, forbidding=tuple(forbidding), allowed=allowed)


def _mask_cheapest(table: AccuracyTable, side: ScaledLimit, allowed: Bools | None) -> Bools:
    """Which modes cost the same as the problem's cheapest, (problems, modes)."""
    mask = np.empty(table.accuracy.shape, dtype=bool)
    for start, stop in DualProblem(values=table.accuracy, sides=()).split_rows():
        floor = side.floor if side.costs.ndim == 1 else side.floor[start:stop, None]
        mask[start:stop] = side.slice_costs(start, stop) * side.scale <= _SAME_COST * floor
    return mask if allowed is None else mask & allowed


def _describe_clash(
    all_limits: Sequence[CheckedLimit], others: Sequence[int], j: int, side: ScaledLimit
) -> str:
    return _format_clash(all_limits[j], [all_limits[other] for other in others], float(np.mean(side.floor)))


def _format_clash(limit: CheckedLimit, others: Sequence[CheckedLimit], least: float) -> str:
    kept = " and ".join(f"{other.name!r} at {other.at_most!r}" for other in others)
    return (
        f"limit {limit.name!r} at {limit.at_most!r} can't be met together with {kept}: with these kept, the "
        f"least average of {limit.name!r} is {format_lower_bound(least)}; give it that or more, or raise another"
    )


def _find_prices(
    problem: DualProblem, priced_limits: Sequence[CheckedLimit]
) -> tuple[DualProblem, DualMinimum]:
    """Prices that minimise the dual value; the radius grows until they no longer lie at its edge."""
    radius = _FIRST_RADIUS
    minimum = minimise_dual(problem, radius=radius)
    while not minimum.bounded and radius < _MAX_RADIUS:
        if radius == _FIRST_RADIUS:
            problem = _check_joint_feasibility(problem, priced_limits)
        radius *= _FIRST_RADIUS
        minimum = minimise_dual(problem, radius=radius)
    return problem, minimum


def _check_joint_feasibility(problem: DualProblem, priced_limits: Sequence[CheckedLimit]) -> DualProblem:
    """The same limits, known to be feasible together.

    Those that only just are get a rounding's worth of room.
    """
    sides = list(problem.sides[:1])
    for limit, side in zip(priced_limits[1:], problem.sides[1:], strict=True):
        costs = np.broadcast_to(side.slice_costs(0, len(problem.values)), problem.values.shape)
        radius, least = _FIRST_RADIUS, -np.inf
        while radius < _MAX_RADIUS:
            minimum = minimise_dual(replace(problem, values=-costs, sides=tuple(sides)), radius=radius)
            least, radius = -minimum.dual, radius * _FIRST_RADIUS
            if minimum.bounded or least > side.right + _JOINT_TOLERANCE:
                break
        if least > side.right + _JOINT_TOLERANCE:
            least = float(np.mean(side.floor)) + least * side.scale
            raise Infeasible(_format_clash(limit, priced_limits[: len(sides)], least))
        sides.append(replace(side, right=max(side.right, least + _JOINT_TOLERANCE / 10)))
    return replace(problem, sides=tuple(sides))


def _format_only_mixed(problem: DualProblem, vertex: Vertex, priced_limits: Sequence[CheckedLimit]) -> str:
    names = " and ".join(f"{one.name!r} at {one.at_most:g}" for one in priced_limits)
    return (
        f"no choice of one mode for each of {len(problem.values)} problems was found that keeps {names}; "
        f"mixing {len(vertex.rows)} of them would, for an accuracy of {vertex.value:.4g}; raise a limit"
    )


def _price_forbidden(
    table: AccuracyTable, all_limits: Sequence[CheckedLimit], groups: _LimitGroups, prices: Floats
) -> None:
    """Sets the prices, in place, at which no problem chooses a forbidden mode; the last limit first."""
    allowed = groups.allowed
    for j, forbidden in reversed(groups.forbidding):
        assert allowed is not None
        problem, known, least = _build_unscaled_problem(table, all_limits, prices), prices[prices > 0], 0.0
        for start, stop in problem.split_rows():
            net = problem.compute_net_values(known, start, stop)
            costs = np.broadcast_to(all_limits[j].slice_costs(start, stop), net.shape)
            kept, out = allowed[start:stop], forbidden[start:stop]
            best = np.where(kept, net, -np.inf).max(axis=1, keepdims=True)
            more = costs - np.where(kept, costs, np.inf).min(axis=1, keepdims=True)
            if out.any():
                least = max(least, float(((net - best)[out] / more[out]).max()))
        prices[j] = least
        allowed = allowed | forbidden


def _build_unscaled_problem(
    table: AccuracyTable, all_limits: Sequence[CheckedLimit], prices: Floats
) -> DualProblem:
    """The dual problem of the limits that have a price, unscaled."""
    sides = tuple(
        replace(one.scale(table, None), scale=1.0) for one, p in zip(all_limits, prices, strict=True) if p > 0
    )
    return DualProblem(values=table.accuracy, sides=sides)


def _compute_bound(table: AccuracyTable, all_limits: Sequence[CheckedLimit], prices: Floats) -> float:
    sides = [
        (one.scale(table, None), price) for one, price in zip(all_limits, prices, strict=True) if price > 0
    ]
    scaled = np.array([price * side.scale for side, price in sides])
    return DualProblem(values=table.accuracy, sides=tuple(side for side, _ in sides)).compute_dual(scaled)


def _build_mix(choice: Ints, vertex: Vertex) -> Mix:
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


def _build_limit_use(
    limit: CheckedLimit, price: float, choice: Ints, mix: Mix, table: AccuracyTable
) -> CapUse:
    costs = np.broadcast_to(limit.costs, table.accuracy.shape)
    cost = float(costs[np.arange(len(choice)), choice].mean())
    return CapUse(
        name=limit.name,
        at_most=limit.at_most,
        price=price,
        cost=cost,
        mixed_cost=cost + compute_mix_change(costs, choice, mix),
    )
