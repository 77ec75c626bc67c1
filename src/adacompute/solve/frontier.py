"""The whole frontier: every hull edge of every problem, steepest first. Knows nothing of a single budget."""

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable, Frontier
from adacompute.solve.hull import chunks, steps
from adacompute.solve.price import by_cost, taken

__all__ = ["frontier"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

_STEP = np.uint64(0xFF)  # the low bits of a slope, which the hull leaves 0: here they say which step it is
_KEYED = 0x100  # steps that fit in there
_BLOCK = 1 << 14  # edges at a time: they stay in the processor's cache from the first sum to the last


def frontier(table: AccuracyTable) -> Frontier:
    """Every vertex of the concave frontier of (average cost, average accuracy), with its price.

    Its value at a budget is the optimum of the linear programme, which mixing one problem reaches.

    >>> curve = frontier(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]))
    >>> curve.cost.tolist(), curve.price.round(3).tolist(), round(curve.at(1.25), 3)
    ([1.0, 1.5, 2.0], [inf, 0.4, 0.2], 0.65)
    """
    ordered, _ = by_cost(table)
    if ordered.shared_costs and len(ordered.modes) <= _KEYED:
        keys, costs = _keyed(ordered), np.diff(ordered.costs)
        price, cost, accuracy = _accumulated(ordered, keys, np.empty(len(keys)), costs)
    else:
        slopes, cost = _ordered(ordered)
        price, cost, accuracy = _accumulated(ordered, slopes.view(np.uint64), cost, None)
    for array in (price, cost, accuracy):
        array.setflags(write=False)
    return Frontier(cost=cost, accuracy=accuracy, price=price, unit=table.unit)


def _keyed(table: AccuracyTable) -> Keys:
    """Slopes, falling, each with its step's number in its low bits; the first place is left for infinity.

    Where problems cost alike that number is all there is to know of a step, so one plain sort will do.
    """
    width = len(table.modes) - 1
    keys = np.empty(1 + len(table) * width, dtype=np.uint64)
    numbers = np.arange(width, dtype=np.uint64)[:, None]
    free = width > 0 and table.costs[0] == table.costs[1]
    for start, stop, slopes in chunks(table):
        if free:
            slopes[np.isinf(slopes)] = 0.0  # part of the first vertex
        bits = slopes.view(np.uint64)
        bits |= numbers
        np.invert(bits, out=keys[1 + start * width : 1 + stop * width].reshape(bits.shape))
    keys[1:].sort()
    found = 1 + int(np.searchsorted(keys[1:], ~_STEP))  # the rest have a slope of 0: they buy nothing
    return np.invert(keys[:found], out=keys[:found])


def _ordered(table: AccuracyTable) -> tuple[Floats, Floats]:
    """Slopes, falling, and their steps' costs, where these differ by problem; the first place is free."""
    found, spent = [np.zeros(1)], [np.zeros(1)]
    for start, stop, slopes in chunks(table):
        some = (slopes > 0) & (slopes < np.inf)
        found.append(slopes[some])
        spent.append(np.broadcast_to(steps(table, start, stop), slopes.shape)[some])
    price, cost = np.concatenate(found), np.concatenate(spent)
    found.clear()
    spent.clear()
    order = np.argsort(price[1:])[::-1]
    price[1:] = price[1:][order]
    cost[1:] = cost[1:][order]
    return price, cost


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
        stop = min(start + _BLOCK, len(keys))
        slope, part, sums = price[start:stop], keys[start:stop], both[: stop - start]
        sums.real = cost[start:stop] if costs is None else costs.take((part & _STEP).view(np.int64))
        part &= ~_STEP
        np.multiply(slope, sums.real, out=sums.imag)
        np.cumsum(sums, out=sums)
        sums += reached
        reached = complex(sums[-1])
        sums.view(np.float64)[:] /= len(table)  # what a step costs one problem, it costs all of them 1/N of
        last = np.empty(len(part), dtype=bool)
        np.not_equal(part[1:], part[:-1], out=last[:-1])
        last[-1] = stop == len(keys) or keys[stop] & ~_STEP != part[-1]
        ends = slice(None) if last.all() else np.flatnonzero(last)
        count = int(np.count_nonzero(last))
        for target, values in ((price, slope), (cost, sums.real), (accuracy, sums.imag)):
            target[kept : kept + count] = values[ends]
        kept += count
    return _cut(price, kept), _cut(cost, kept), _cut(accuracy, kept)


def _cut(array: Floats, kept: int) -> Floats:
    # on its own where it would keep a much longer array alive
    return array[:kept].copy() if 2 * kept < len(array) else array[:kept]


def _first_cost(table: AccuracyTable) -> float:
    return float(table.costs[0] if table.shared_costs else table.costs[:, 0].mean())


def _first_accuracy(table: AccuracyTable) -> float:
    """Average accuracy of the cheapest modes; of several of the same cost, the best."""
    if table.shared_costs and (len(table.costs) == 1 or table.costs[0] < table.costs[1]):
        return float(table.accuracy[:, 0].mean())
    total = 0.0
    for start, stop, slopes in chunks(table):
        total += float(taken(table.accuracy[start:stop], np.isinf(slopes).sum(axis=0)).sum())
    return total / len(table)
