"""Several limits at once: one price each, few mixed problems. Knows nothing of how prices are found.

A limit that even the dearest modes keep has no say; one that only the cheapest modes keep forbids the others.
The rest are priced by `planes`, and their allocation is recovered by `recover` and made whole by `rounding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.errors import Infeasible
from adacompute.records import AccuracyTable, Allocation, Limit, LimitUse, Mix, at_least
from adacompute.solve.asked import Asked, asked
from adacompute.solve.plan import mixed, planned
from adacompute.solve.planes import Lowest, Planes, Side, lowest
from adacompute.solve.recover import Vertex, recovered
from adacompute.solve.rounding import rounded

__all__ = ["limited"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_NEAR = 8.0  # scaled prices are looked for up to here first, then further out
_FARTHEST = 1e7
_SAME = 1e-12  # of a cost: costs this near to each other differ by rounding only
_TOUCHING = 1e-9  # of a limit's range: limits that are met together to this are met


def limited(table: AccuracyTable, budget: float, limits: Sequence[Limit]) -> Allocation:
    """The best allocation within the budget and all limits; `price` is the budget's own.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    >>> plan = limited(table, 2.0, [Limit(name="seconds", costs=[1, 5], at_most=2.0)])
    >>> [(use.name, round(use.price, 3), use.mixed_cost) for use in plan.limits], round(plan.bound, 3)
    ([('samples', 0.0, 1.25), ('seconds', 0.1, 2.0)], 0.65)
    """
    wanted = asked(table, budget, limits)
    parted = _parted(table, wanted)
    planes = Planes(values=table.accuracy, sides=tuple(parted.sides.values()), allowed=parted.allowed)
    planes, found = _priced(planes, [wanted[j] for j in parted.sides])
    first = list(parted.sides).index(0) if 0 in parted.sides else None
    spare = table.cost_matrix
    vertex = recovered(planes, found, spare=spare, first=first)
    choice = rounded(planes, vertex, spare)
    if choice is None:
        raise Infeasible(_only_mixed(planes, vertex, [wanted[j] for j in parted.sides]))
    prices = np.zeros(len(wanted))
    prices[list(parted.sides)] = vertex.prices / [side.scale for side in planes.sides]
    _price_forbidden(table, wanted, parted, prices)
    mix = _mix(choice, vertex)
    uses = tuple(
        _use(one, float(price), choice, mix, table) for one, price in zip(wanted, prices, strict=True)
    )
    return planned(
        table,
        budget=budget,
        price=float(prices[0]),
        choice=choice,
        mix=mix,
        bound=_bound(table, wanted, prices),
        limits=uses,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parted:
    """The limits that are to be priced, and what the others leave."""

    sides: dict[int, Side]  # by number of the limit
    forbidding: tuple[tuple[int, Bools], ...]  # limits met only by their cheapest modes, and what they forbid
    allowed: Bools | None  # (problems, modes) by all of them together


def _parted(table: AccuracyTable, wanted: Sequence[Asked]) -> _Parted:
    allowed: Bools | None = None
    forbidding: list[tuple[int, Bools]] = []
    sides: dict[int, Side] = {}
    left = list(range(len(wanted)))
    while left:
        sides = {}
        for j in left:
            side = wanted[j].side(table, allowed)
            if side.right < -side.slip:
                raise Infeasible(_clash(wanted, [j for j, _ in forbidding], j, side))
            if side.scale == 0:
                continue
            if side.right <= side.slip:
                kept = _cheapest(table, side, allowed)
                before = np.ones(kept.shape, dtype=bool) if allowed is None else allowed
                forbidding.append((j, before & ~kept))
                allowed = kept
                left.remove(j)
                break  # what is the cheapest, and the dearest, has changed for the others
            if side.right < 1:
                sides[j] = side
        else:
            break
    return _Parted(sides=sides, forbidding=tuple(forbidding), allowed=allowed)


def _cheapest(table: AccuracyTable, side: Side, allowed: Bools | None) -> Bools:
    """Which modes cost what the problem's cheapest does, (problems, modes)."""
    kept = np.empty(table.accuracy.shape, dtype=bool)
    for start, stop in Planes(values=table.accuracy, sides=()).chunks():
        floor = side.floor if side.costs.ndim == 1 else side.floor[start:stop, None]
        kept[start:stop] = side.part(start, stop) * side.scale <= _SAME * floor
    return kept if allowed is None else kept & allowed


def _clash(wanted: Sequence[Asked], others: Sequence[int], j: int, side: Side) -> str:
    return _together(wanted[j], [wanted[other] for other in others], float(np.mean(side.floor)))


def _together(one: Asked, others: Sequence[Asked], least: float) -> str:
    kept = " and ".join(f"{other.name!r} at {other.at_most!r}" for other in others)
    return (
        f"limit {one.name!r} at {one.at_most!r} can't be met together with {kept}: with these kept, the "
        f"least average of {one.name!r} is {at_least(least)}; give it that or more, or raise another"
    )


def _priced(planes: Planes, wanted: Sequence[Asked]) -> tuple[Planes, Lowest]:
    """Prices that make the dual value lowest; looks further out until they no longer lie at the edge."""
    furthest = _NEAR
    found = lowest(planes, furthest=furthest)
    while not found.bounded and furthest < _FARTHEST:
        if furthest == _NEAR:
            planes = _met_together(planes, wanted)
        furthest *= _NEAR
        found = lowest(planes, furthest=furthest)
    return planes, found


def _met_together(planes: Planes, wanted: Sequence[Asked]) -> Planes:
    """The same limits, known to be met together; those that only just are, with rounding's worth of room."""
    sides = list(planes.sides[:1])
    for one, side in zip(wanted[1:], planes.sides[1:], strict=True):
        costs = np.broadcast_to(side.part(0, len(planes.values)), planes.values.shape)
        furthest, least = _NEAR, -np.inf
        while furthest < _FARTHEST:
            found = lowest(replace(planes, values=-costs, sides=tuple(sides)), furthest=furthest)
            least, furthest = -found.dual, furthest * _NEAR
            if found.bounded or least > side.right + _TOUCHING:
                break
        if least > side.right + _TOUCHING:
            least = float(np.mean(side.floor)) + least * side.scale
            raise Infeasible(_together(one, wanted[: len(sides)], least))
        sides.append(replace(side, right=max(side.right, least + _TOUCHING / 10)))
    return replace(planes, sides=tuple(sides))


def _only_mixed(planes: Planes, vertex: Vertex, wanted: Sequence[Asked]) -> str:
    told = " and ".join(f"{one.name!r} at {one.at_most:g}" for one in wanted)
    return (
        f"no choice of one mode for each of {len(planes.values)} problems was found that keeps {told}; "
        f"mixing {len(vertex.rows)} of them would, for an accuracy of {vertex.value:.4g}; raise a limit"
    )


def _price_forbidden(table: AccuracyTable, wanted: Sequence[Asked], parted: _Parted, prices: Floats) -> None:
    """Prices, in place, at which nobody wants the modes that are forbidden; the last limit first."""
    allowed = parted.allowed
    for j, forbidden in reversed(parted.forbidding):
        assert allowed is not None
        planes, known, least = _raw(table, wanted, prices), prices[prices > 0], 0.0
        for start, stop in planes.chunks():
            net = planes.net(known, start, stop)
            costs = np.broadcast_to(wanted[j].part(start, stop), net.shape)
            kept, out = allowed[start:stop], forbidden[start:stop]
            best = np.where(kept, net, -np.inf).max(axis=1, keepdims=True)
            more = costs - np.where(kept, costs, np.inf).min(axis=1, keepdims=True)
            if out.any():
                least = max(least, float(((net - best)[out] / more[out]).max()))
        prices[j] = least
        allowed = allowed | forbidden


def _raw(table: AccuracyTable, wanted: Sequence[Asked], prices: Floats) -> Planes:
    """The limits that have a price, unscaled."""
    sides = tuple(
        replace(one.side(table, None), scale=1.0) for one, p in zip(wanted, prices, strict=True) if p > 0
    )
    return Planes(values=table.accuracy, sides=sides)


def _bound(table: AccuracyTable, wanted: Sequence[Asked], prices: Floats) -> float:
    sides = [(one.side(table, None), price) for one, price in zip(wanted, prices, strict=True) if price > 0]
    scaled = np.array([price * side.scale for side, price in sides])
    return Planes(values=table.accuracy, sides=tuple(side for side, _ in sides)).dual(scaled)


def _mix(choice: Ints, vertex: Vertex) -> Mix:
    """What to change of `choice`, and how often, so that the averages are the vertex's."""
    moved = np.setdiff1d(np.flatnonzero(choice != vertex.choice), vertex.rows)  # gave way: always moved back
    at, modes = np.nonzero(vertex.shares)
    rows = vertex.rows[at]
    other = modes != choice[rows]
    problems = np.concatenate([moved, rows[other]])
    order = np.argsort(problems, kind="stable")
    return Mix(
        problems=problems[order],
        modes=np.concatenate([vertex.choice[moved], modes[other]])[order],
        probabilities=np.concatenate([np.ones(len(moved)), vertex.shares[at, modes][other]])[order],
    )


def _use(one: Asked, price: float, choice: Ints, mix: Mix, table: AccuracyTable) -> LimitUse:
    costs = np.broadcast_to(one.costs, table.accuracy.shape)
    cost = float(costs[np.arange(len(choice)), choice].mean())
    return LimitUse(
        name=one.name,
        at_most=one.at_most,
        price=price,
        cost=cost,
        mixed_cost=cost + mixed(costs, choice, mix),
    )
