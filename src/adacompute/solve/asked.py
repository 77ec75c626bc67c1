"""The limits that were asked for, checked. Knows nothing of prices."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable, Limit, at_least
from adacompute.solve.planes import Side

__all__ = ["Asked", "asked"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SLIP = 1e-12  # of a limit: what rounding may add to an average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """One limit: the table's own cost under the budget, or another."""

    name: str
    costs: Floats  # (modes,) or (problems, modes)
    at_most: float

    def part(self, start: int, stop: int) -> Floats:
        return self.costs if self.costs.ndim == 1 else self.costs[start:stop]

    def side(self, table: AccuracyTable, allowed: Bools | None) -> Side:
        """Scaled by the modes that are allowed."""
        if allowed is None:
            floor, top = self.costs.min(axis=-1), self.costs.max(axis=-1)
        else:
            floor, top = np.empty(len(table)), np.empty(len(table))
            for start in range(0, len(table), 1 << 14):
                rows = slice(start, start + (1 << 14))
                part, kept = np.broadcast_to(self.part(start, rows.stop), allowed[rows].shape), allowed[rows]
                floor[rows] = np.where(kept, part, np.inf).min(axis=1)
                top[rows] = np.where(kept, part, -np.inf).max(axis=1)
        costs = self.costs
        if allowed is not None and costs.ndim == 1:
            costs = np.broadcast_to(costs, allowed.shape)  # what is cheapest may differ by problem now
        least, scale = float(np.mean(floor)), float(np.mean(top - floor))
        if scale <= _SLIP * least:  # a cost that is the same whatever is chosen
            scale = 0.0
        unit = scale if scale > 0 else max(1.0, least)
        room = self.at_most - least
        slip = _SLIP * max(1.0, least / unit)
        return Side(
            costs=costs,
            floor=np.asarray(floor),
            scale=scale,
            right=room / unit,
            slip=slip,
        )


def asked(table: AccuracyTable, budget: float, limits: Sequence[Limit]) -> tuple[Asked, ...]:
    """The table's own cost under the budget first, then each limit; each can be met on its own."""
    found = [Asked(name=table.unit, costs=table.costs, at_most=budget)]
    for limit in limits:
        if any(limit.name == other.name for other in found):
            raise TableInvalid(
                f"two limits are called {limit.name!r}; the budget's is {table.unit!r}: rename one"
            )
        found.append(Asked(name=limit.name, costs=_costs(table, limit), at_most=_at_most(limit)))
    for one in found:
        side = one.side(table, None)
        if side.right < -side.slip:
            least = float(np.mean(side.floor))
            raise BudgetOutOfRange(
                f"limit {one.name!r} at {one.at_most!r} is below the least possible average "
                f"({at_least(least)}); give {at_least(least)} or more"
            )
    return tuple(found)


def _at_most(limit: Limit) -> float:
    given: object = limit.at_most
    if isinstance(given, bool) or not isinstance(given, Real) or not np.isfinite(float(given)):
        raise BudgetOutOfRange(
            f"limit {limit.name!r} has at_most {given!r}; give a finite number, or leave the limit out"
        )
    return float(given)


def _costs(table: AccuracyTable, limit: Limit) -> Floats:
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
