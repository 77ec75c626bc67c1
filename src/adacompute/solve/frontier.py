"""The whole frontier: every hull edge of every problem, steepest first. Knows nothing of a single budget."""

import math

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable, Frontier
from adacompute.solve.hull import chunks, steps
from adacompute.solve.price import by_cost, check_table, taken

__all__ = ["frontier"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

_CODE = np.uint64(0xFFFF)  # the low bits of a slope, which the hull leaves 0: here they say which edge it is
_SIGN = np.uint64(1 << 63)  # of a number: an ascending sort puts the steepest first
_SLOPE = ~(_CODE | _SIGN)
_KEYED = 257  # modes whose edges can be told apart there
_FINE = 1e-14  # of the gain: as near to the truth as sums of doubles are
_BLOCK = 1 << 14  # edges at a time: they stay in the processor's cache from the first sum to the last


def frontier(table: AccuracyTable) -> Frontier:
    """Every vertex of the concave frontier of (average cost, average accuracy), with its price.

    Its value at a budget is the optimum of the linear programme, which mixing one problem reaches.

    >>> curve = frontier(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]))
    >>> curve.cost.tolist(), curve.price.round(3).tolist(), round(curve.at(1.25), 3)
    ([1.0, 1.5, 2.0], [inf, 0.4, 0.2], 0.65)
    """
    check_table(table)
    ordered, _ = by_cost(table)
    if ordered.shared_costs and len(ordered.modes) <= _KEYED:
        arrays = _accumulated(ordered, *_keyed(ordered))
    else:
        arrays = _accumulated(ordered, *_ordered(ordered), None)
    price, cost, accuracy = arrays
    _settle(accuracy, _last_accuracy(ordered))
    for array in arrays:
        array.setflags(write=False)
    return Frontier(cost=cost, accuracy=accuracy, price=price, unit=table.unit)


def _keyed(table: AccuracyTable) -> tuple[Keys, Floats, Floats]:
    """Slopes, falling, negated, with their edge's code in the low bits; room for costs; costs by code.

    Where problems cost alike, from which mode to which an edge goes is all there is to know of it, so that
    one plain sort will do. The first place is left free.
    """
    width = len(table.modes) - 1
    free = width > 0 and table.costs[1] == table.costs[0]
    keys, found = np.empty(1 + len(table) * width, dtype=np.uint64), 1
    for _, _, slopes in chunks(table):
        codes, ends = _edges(slopes)
        if free:
            ends &= slopes < np.inf  # the others are part of the first vertex
        bits, marks = slopes.view(np.uint64), codes.astype(np.uint64) | _SIGN
        if ends.all():
            np.bitwise_or(bits, marks, out=keys[found : found + bits.size].reshape(bits.shape))
            found += bits.size
        else:
            some = (bits | marks).reshape(-1).take(np.flatnonzero(ends))
            keys[found : found + len(some)] = some
            found += len(some)
    keys[1:found].view(np.float64).sort()
    before, last = np.divmod(np.arange(width * width), max(1, width))
    costs = table.costs[last + 1] - table.costs[np.maximum(0, last - before)]
    return keys[:found], np.empty(found), costs


def _edges(slopes: Floats) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:
    """The code of the edge that each step is on, so far, and whether it ends there, (steps, rows) both.

    A code is the edge's last step, plus as many times the number of steps as it has steps before that one.
    """
    width = len(slopes)
    ends = np.empty(slopes.shape, dtype=bool)
    np.greater(slopes[:-1], slopes[1:], out=ends[:-1])
    np.greater(slopes[-1:], 0.0, out=ends[-1:])
    numbers = np.arange(width, dtype=np.uint16)[:, None]
    if ends.all():
        return numbers, ends  # every step an edge of its own
    codes = np.zeros(slopes.shape, dtype=np.uint16)
    for k in range(1, width):
        np.add(codes[k - 1], np.uint16(width), out=codes[k])
        codes[k] *= ~ends[k - 1]
    codes += numbers
    return codes, ends


def _ordered(table: AccuracyTable) -> tuple[Keys, Floats]:
    """Slopes, falling, and their steps' costs, where these differ by problem; the first place is free."""
    found, spent = [np.zeros(1)], [np.zeros(1)]
    for start, stop, slopes in chunks(table):
        some = np.flatnonzero((slopes > 0) & (slopes < np.inf))
        found.append(slopes.reshape(-1).take(some))
        spent.append(np.broadcast_to(steps(table, start, stop), slopes.shape).reshape(-1).take(some))
    price, cost = np.concatenate(found), np.concatenate(spent)
    found.clear()
    spent.clear()
    order = np.argsort(price[1:])[::-1]
    price[1:] = price[1:].take(order)
    cost[1:] = cost[1:].take(order)
    return price.view(np.uint64), cost


def _accumulated(
    table: AccuracyTable, keys: Keys, cost: Floats, costs: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Price, cost and accuracy of each vertex, in place: these arrays are the memory that counts.

    Edges of the same slope make one vertex. Each block is summed by itself and put on top of the sum before
    it, which over millions of edges keeps the rounding error to a few units in the last place.
    """
    price, accuracy = keys.view(np.float64), np.empty(len(keys))
    price[0], cost[0], accuracy[0] = np.inf, _first_cost(table), _first_accuracy(table)
    kept, reached = 1, complex(cost[0], accuracy[0]) * len(table)
    both = np.empty(_BLOCK, dtype=np.complex128)  # cost and gain side by side: one running sum for the two
    for start in range(1, len(keys), _BLOCK):
        block = slice(start, start + _BLOCK)
        step = cost[block] if costs is None else costs.take(_uncoded(keys[block]))
        sums = both[: len(step)]
        sums.real = step
        np.multiply(price[block], step, out=sums.imag)
        np.cumsum(sums, out=sums)
        sums += reached
        reached = complex(sums[-1])
        last = _last(keys, start, start + len(step))
        if not last.all():
            ends = np.flatnonzero(last)
            sums = sums.take(ends)
            price[kept : kept + len(sums)] = price[block].take(ends)
        elif kept < start:
            price[kept : kept + len(sums)] = price[block]
        # what a step costs one problem, it costs all of them 1/N of
        np.divide(sums.real, len(table), out=cost[kept : kept + len(sums)])
        np.divide(sums.imag, len(table), out=accuracy[kept : kept + len(sums)])
        kept += len(sums)
    return _cut(price, kept), _cut(cost, kept), _cut(accuracy, kept)


def _uncoded(keys: Keys) -> npt.NDArray[np.int64]:
    """The codes of keys, which become plain slopes in place."""
    codes = (keys & _CODE).view(np.int64)
    keys &= _SLOPE
    return codes


def _last(keys: Keys, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Where in a block a slope stands for the last time."""
    last = np.ones(stop - start, dtype=bool)
    np.not_equal(keys[start + 1 : stop], keys[start : stop - 1], out=last[:-1])
    if stop < len(keys):
        last[-1] = keys[stop] & _SLOPE != keys[stop - 1]  # it may be a key still
    return last


def _settle(accuracy: Floats, last: float) -> None:
    """Makes the last vertex's accuracy `last`, the others' in proportion, in place: slopes were rounded."""
    first, gain = float(accuracy[0]), float(accuracy[-1] - accuracy[0])
    if gain <= 0:
        return
    if abs(last - first - gain) <= _FINE * gain:  # over many edges roundings cancel: nothing to mend
        accuracy[-1] = max(last, accuracy[-2])
        return
    for start in range(0, len(accuracy), _BLOCK):
        block = accuracy[start : start + _BLOCK]
        block -= first
        block *= (last - first) / gain
        block += first
        np.minimum(block, last, out=block)
    accuracy[-1] = last


def _cut(array: Floats, kept: int) -> Floats:
    # on its own where it would keep a much longer array alive
    return array[:kept].copy() if 2 * kept < len(array) else array[:kept]


def _last_accuracy(table: AccuracyTable) -> float:
    """Average accuracy of each problem's best mode."""
    total = []
    for start in range(0, len(table), _BLOCK):
        rows = table.accuracy[start : start + _BLOCK]
        best = rows[:, 0].copy()
        for k in range(1, rows.shape[1]):
            np.maximum(best, rows[:, k], out=best)
        total.append(float(best.sum()))
    return math.fsum(total) / len(table)


def _first_cost(table: AccuracyTable) -> float:
    return float(table.costs[0] if table.shared_costs else table.costs[:, 0].mean())


def _first_accuracy(table: AccuracyTable) -> float:
    """Average accuracy of the cheapest modes; of several of the same cost, the best."""
    if table.shared_costs and (len(table.costs) == 1 or table.costs[1] > table.costs[0]):
        return float(table.accuracy[:, 0].mean())
    total = 0.0
    for start, stop, slopes in chunks(table):
        total += float(taken(table.accuracy[start:stop], np.isinf(slopes).sum(axis=0)).sum())
    return total / len(table)
