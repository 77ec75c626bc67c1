"""Computes the best accuracy at every budget, by sorting the hull edges of all problems by slope."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange
from adacompute.records import AccuracyTable, format_lower_bound
from adacompute.solve.hull import compute_step_costs, iterate_slopes
from adacompute.solve.pricing import check_table, sort_by_cost, take_chosen

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

# mask of a sort key's low 16 bits: they encode a hull edge's two modes; the other bits are the edge's slope
_CODE_BITS = np.uint64(0xFFFF)
_SIGN_BIT = np.uint64(1 << 63)  # makes slopes negative, so that an ascending sort puts the steepest first
_SLOPE_BITS = ~(_CODE_BITS | _SIGN_BIT)
_MAX_KEYED_MODES = 257  # with more modes, the code of an edge's two modes doesn't fit in 16 bits
_ROUNDING = 1e-14  # relative rounding error to expect in a sum of doubles
_BLOCK = 1 << 14  # number of hull edges summed at a time, so that they stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """The best accuracy at every average cost, as vertices of a concave curve. Arrays are read-only.

    From vertex v - 1 to v, one more unit of cost buys `price[v]` of accuracy. At prices from `price[v + 1]`
    to just below `price[v]`, vertex v is the best allocation, and the cheapest if several are best. Between
    two vertices, one problem gets either of two modes at random.
    """

    cost: Floats  # average cost, ascending; shape (vertices,)
    accuracy: Floats  # average accuracy, ascending; shape (vertices,)
    price: Floats  # accuracy per unit of cost, descending; the first is infinite; shape (vertices,)
    unit: str = "samples"

    def __len__(self) -> int:
        return len(self.cost)

    @overload
    def at(self, cost: float) -> float: ...
    @overload
    def at(self, cost: Sequence[float] | npt.NDArray[Any]) -> Floats: ...
    def at(self, cost: npt.ArrayLike) -> float | Floats:
        """Returns the best accuracy at one or many average costs."""
        costs = self._check_cost(cost)
        accuracies = np.interp(costs, self.cost, self.accuracy)
        return float(accuracies) if costs.ndim == 0 else accuracies

    @overload
    def price_at(self, cost: float) -> float: ...
    @overload
    def price_at(self, cost: Sequence[float] | npt.NDArray[Any]) -> Floats: ...
    def price_at(self, cost: npt.ArrayLike) -> float | Floats:
        """Returns how much accuracy one more unit of cost buys at one or many average costs."""
        costs = self._check_cost(cost)
        after = np.searchsorted(self.cost, costs, side="right")
        prices = np.append(self.price, 0.0)[after]
        return float(prices) if costs.ndim == 0 else prices

    def _check_cost(self, cost: npt.ArrayLike) -> Floats:
        try:
            costs = np.asarray(cost, dtype=np.float64)
        except (TypeError, ValueError) as exc:
            raise BudgetOutOfRange(f"an average cost of {cost!r} is not a number; give one") from exc
        if not (costs >= self.cost[0] * (1 - 1e-12)).all():  # allows a rounding error
            low = np.atleast_1d(costs)[np.atleast_1d(~(costs >= self.cost[0]))][0]
            least = format_lower_bound(float(self.cost[0]))
            raise BudgetOutOfRange(
                f"an average cost of {low} is not among those that an allocation can have "
                f"(from {least} {self.unit}); give {least} or more"
            )
        return np.asarray(np.maximum(costs, self.cost[0]))


def frontier(table: AccuracyTable) -> Frontier:
    """Computes the concave curve of the best average accuracy at each average cost, with its prices.

    >>> curve = frontier(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]))
    >>> curve.cost.tolist(), curve.price.round(3).tolist(), round(curve.at(1.25), 3)
    ([1.0, 1.5, 2.0], [inf, 0.4, 0.2], 0.65)
    """
    check_table(table)
    ordered, _ = sort_by_cost(table)
    if ordered.shared_costs and len(ordered.modes) <= _MAX_KEYED_MODES:
        arrays = _accumulate_vertices(ordered, *_sort_keys(ordered))
    else:
        arrays = _accumulate_vertices(ordered, *_sort_slopes(ordered), None)
    price, cost, accuracy = arrays
    _rescale_accuracy(accuracy, _compute_last_accuracy(ordered))
    for array in arrays:
        array.setflags(write=False)
    return Frontier(cost=cost, accuracy=accuracy, price=price, unit=table.unit)


def _sort_keys(table: AccuracyTable) -> tuple[Keys, Floats, Floats]:
    """Sorts all hull edges, each as one number (key): its negated slope, with its two modes in the low bits.

    All problems must have the same costs. Returns the sorted keys, an uninitialised array of the same length,
    and an array of edge costs, indexed by the code in a key's low bits. Index 0 of the first two arrays is
    for the frontier's first vertex.
    """
    width = len(table.modes) - 1
    free = width > 0 and table.costs[1] == table.costs[0]
    keys, filled = np.empty(1 + len(table) * width, dtype=np.uint64), 1
    for _, _, slopes in iterate_slopes(table):
        codes, ends = _encode_edges(slopes)
        if free:
            # edges that cost nothing are left out, because they are part of the first vertex
            ends &= slopes < np.inf
        bits, marks = slopes.view(np.uint64), codes.astype(np.uint64) | _SIGN_BIT
        if ends.all():
            np.bitwise_or(bits, marks, out=keys[filled : filled + bits.size].reshape(bits.shape))
            filled += bits.size
        else:
            chunk_keys = (bits | marks).reshape(-1).take(np.flatnonzero(ends))
            keys[filled : filled + len(chunk_keys)] = chunk_keys
            filled += len(chunk_keys)
    keys[1:filled].view(np.float64).sort()
    before, last = np.divmod(np.arange(width * width), max(1, width))
    costs = table.costs[last + 1] - table.costs[np.maximum(0, last - before)]
    return keys[:filled], np.empty(filled), costs


def _encode_edges(slopes: Floats) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:
    """Returns, for each step, a code, and whether the step is the last one of its hull edge.

    A step leads from a mode to the next more expensive one. Arrays have shape (steps, rows), but codes have
    shape (steps, 1) if every edge is one step. A last step's code stands for the edge: the step's index, plus
    `width` (steps per problem) times the number of the edge's other steps.
    """
    width = len(slopes)
    ends = np.empty(slopes.shape, dtype=bool)
    np.greater(slopes[:-1], slopes[1:], out=ends[:-1])
    np.greater(slopes[-1:], 0.0, out=ends[-1:])
    numbers = np.arange(width, dtype=np.uint16)[:, None]
    if ends.all():
        return numbers, ends  # if every hull edge is a single step, its code is that step's index
    codes = np.zeros(slopes.shape, dtype=np.uint16)
    for k in range(1, width):
        np.add(codes[k - 1], np.uint16(width), out=codes[k])
        codes[k] *= ~ends[k - 1]
    codes += numbers
    return codes, ends


def _sort_slopes(table: AccuracyTable) -> tuple[Keys, Floats]:
    """Sorts the steps of all problems by slope, the steepest first; returns the slopes' bits, and the costs.

    A step leads from a mode to the next more expensive one. Steps that gain nothing or cost nothing are left
    out. Index 0 of both arrays is for the frontier's first vertex.
    """
    prices, costs = [np.zeros(1)], [np.zeros(1)]
    for start, stop, slopes in iterate_slopes(table):
        places = np.flatnonzero((slopes > 0) & (slopes < np.inf))
        prices.append(slopes.reshape(-1).take(places))
        costs.append(
            np.broadcast_to(compute_step_costs(table, start, stop), slopes.shape).reshape(-1).take(places)
        )
    price, cost = np.concatenate(prices), np.concatenate(costs)
    prices.clear()
    costs.clear()
    order = np.argsort(price[1:])[::-1]
    price[1:] = price[1:].take(order)
    cost[1:] = cost[1:].take(order)
    return price.view(np.uint64), cost


def _accumulate_vertices(
    table: AccuracyTable, keys: Keys, cost: Floats, costs: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Computes each frontier vertex's price, cost and accuracy; overwrites `keys` and `cost` to save memory.

    Edges of equal slope make one vertex. Summing each block separately limits the rounding error over
    millions of edges to a few units in the last place.
    """
    price, accuracy = keys.view(np.float64), np.empty(len(keys))
    price[0], cost[0], accuracy[0] = np.inf, _compute_first_cost(table), _compute_first_accuracy(table)
    filled, reached = 1, complex(cost[0], accuracy[0]) * len(table)
    # each edge's cost and gain form one complex number, so that one running sum is enough
    buffer = np.empty(_BLOCK, dtype=np.complex128)
    for start in range(1, len(keys), _BLOCK):
        block = slice(start, start + _BLOCK)
        step = cost[block] if costs is None else costs.take(_decode_keys(keys[block]))
        sums = buffer[: len(step)]
        sums.real = step
        np.multiply(price[block], step, out=sums.imag)
        np.cumsum(sums, out=sums)
        sums += reached
        reached = complex(sums[-1])
        last = _mark_last(keys, start, start + len(step))
        if not last.all():
            ends = np.flatnonzero(last)
            sums = sums.take(ends)
            price[filled : filled + len(sums)] = price[block].take(ends)
        elif filled < start:
            price[filled : filled + len(sums)] = price[block]
        # turn sums over the problems into averages
        np.divide(sums.real, len(table), out=cost[filled : filled + len(sums)])
        np.divide(sums.imag, len(table), out=accuracy[filled : filled + len(sums)])
        filled += len(sums)
    return _trim(price, filled), _trim(cost, filled), _trim(accuracy, filled)


def _decode_keys(keys: Keys) -> npt.NDArray[np.int64]:
    """Returns the codes in the low bits of `keys`, and clears these bits in place, leaving the slopes."""
    codes = (keys & _CODE_BITS).view(np.int64)
    keys &= _SLOPE_BITS
    return codes


def _mark_last(keys: Keys, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Marks each key of a block whose slope differs from that of the next key."""
    last = np.ones(stop - start, dtype=bool)
    np.not_equal(keys[start + 1 : stop], keys[start : stop - 1], out=last[:-1])
    if stop < len(keys):
        # compare slopes only, because the keys of the next block still contain codes of modes
        last[-1] = keys[stop] & _SLOPE_BITS != keys[stop - 1]
    return last


def _rescale_accuracy(accuracy: Floats, last: float) -> None:
    """Corrects the errors from rounded slopes: rescales accuracies in place so that the last is `last`."""
    first, gain = float(accuracy[0]), float(accuracy[-1] - accuracy[0])
    if gain <= 0:
        return
    if abs(last - first - gain) <= _ROUNDING * gain:  # the last accuracy is already as exact as doubles allow
        accuracy[-1] = max(last, accuracy[-2])
        return
    for start in range(0, len(accuracy), _BLOCK):
        block = accuracy[start : start + _BLOCK]
        block -= first
        block *= (last - first) / gain
        block += first
        np.minimum(block, last, out=block)
    accuracy[-1] = last


def _trim(array: Floats, kept: int) -> Floats:
    # copies if less than half is needed, because a view would keep the whole array in memory
    return array[:kept].copy() if 2 * kept < len(array) else array[:kept]


def _compute_last_accuracy(table: AccuracyTable) -> float:
    """Computes the average accuracy if every problem gets its best mode."""
    total = []
    for start in range(0, len(table), _BLOCK):
        rows = table.accuracy[start : start + _BLOCK]
        best = rows[:, 0].copy()
        for k in range(1, rows.shape[1]):
            np.maximum(best, rows[:, k], out=best)
        total.append(float(best.sum()))
    return math.fsum(total) / len(table)


def _compute_first_cost(table: AccuracyTable) -> float:
    return float(table.costs[0] if table.shared_costs else table.costs[:, 0].mean())


def _compute_first_accuracy(table: AccuracyTable) -> float:
    """Computes the average accuracy of each problem's cheapest mode (in a tie, the most accurate one)."""
    if table.shared_costs and (len(table.costs) == 1 or table.costs[1] > table.costs[0]):
        return float(table.accuracy[:, 0].mean())
    total = 0.0
    for start, stop, slopes in iterate_slopes(table):
        total += float(take_chosen(table.accuracy[start:stop], np.isinf(slopes).sum(axis=0)).sum())
    return total / len(table)
