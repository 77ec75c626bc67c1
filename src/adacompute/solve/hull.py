"""Each problem's upper concave hull, as slopes.

Only modes on the hull of (cost, accuracy) are ever chosen by a price. Instead of the hull's
corners we keep, for every step from one mode to the next dearer one, the slope of the hull above
it:

    slope[k] = min over a <= k of max over b > k of (accuracy[b] - accuracy[a]) / (cost[b] - cost[a])

It never rises with k, and is the same number all along one edge. So the cheapest best mode at a
price is simply how many slopes lie above that price, and its cost can't rise with the price,
rounding or not.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable

Floats = npt.NDArray[np.float64]
Chunk = tuple[int, int, Floats]  # first row, row after the last, slopes (modes - 1, rows)

_MIN_ROWS = 2048  # in a chunk: fewer cost more in calls than in numbers
_CELLS = 50000  # in a chunk: its columns stay in the processor's second cache
_GRAIN = np.uint64(0xFFFF)  # the bits that are rounded away


def iterate_slopes(table: AccuracyTable) -> Iterator[Chunk]:
    """Slopes of consecutive rows, a chunk at a time. Each chunk overwrites the one before."""
    accuracy, costs = table.accuracy, table.costs
    size = min(len(accuracy), max(_MIN_ROWS, _CELLS // accuracy.shape[1]))
    # one workspace: fresh memory for each chunk would cost more than its hulls
    workspace = np.empty((3, accuracy.shape[1], size))
    for start in range(0, len(accuracy), size):
        stop = min(start + size, len(accuracy))
        spent = costs if costs.ndim == 1 else costs[start:stop]
        yield start, stop, _compute_slopes(accuracy[start:stop], spent, workspace[:, :, : stop - start])


def compute_step_costs(table: AccuracyTable, start: int, stop: int) -> Floats:
    """What each step to the next mode costs, (modes - 1, rows), or (modes - 1, 1) where costs are shared."""
    if table.shared_costs:
        return np.diff(table.costs)[:, None]
    return np.diff(table.costs[start:stop], axis=1).T


def count_steps(above: npt.NDArray[np.bool_]) -> npt.NDArray[np.unsignedinteger]:
    """How many steps of each problem are marked, (rows,), of (modes - 1, rows)."""
    small = np.uint8 if len(above) < 256 else np.uint64  # adding bytes is eight times as quick
    return np.asarray(np.add.reduce(above.view(np.uint8), axis=0, dtype=small))


def compute_slopes(accuracy: Floats, costs: Floats) -> Floats:
    """The hull's slope over each step, (modes - 1, rows): 0 where a step buys nothing.

    A better mode of the very same cost is free, and has an infinite slope.

    >>> compute_slopes(np.array([[0.5, 0.5, 0.9]]), np.array([1.0, 2.0, 4.0])).round(3)[:, 0].tolist()
    [0.133, 0.133]
    """
    return _compute_slopes(accuracy, costs, np.empty((3, *accuracy.T.shape)))


def _compute_slopes(accuracy: Floats, costs: Floats, workspace: Floats) -> Floats:
    """The slopes, written into a part of `workspace`, (3, modes, rows)."""
    modes = accuracy.shape[1]
    columns, least, steepest = workspace[0], workspace[1, 1:], workspace[2, 1:]
    if accuracy.strides[0] == accuracy.itemsize:
        columns = accuracy.T
    else:
        np.copyto(columns, accuracy.T)
    spent = costs[:, None] if costs.ndim == 1 else np.ascontiguousarray(costs.T)
    free = bool((np.diff(spent, axis=0) <= 0).any())
    for a in range(modes - 1):
        # the steepest way from mode a to any mode from b on: that never rises with b
        into = (steepest if a else least)[a:]
        np.subtract(columns[a + 1 :], columns[a], out=into)
        _divide(into, spent[a + 1 :] - spent[a], free=free)
        for b in range(len(into) - 2, -1, -1):
            np.maximum(into[b], into[b + 1], out=into[b])
        if a:
            np.minimum(least[a:], into, out=least[a:])
    np.maximum(least, 0.0, out=least)
    return round_slopes(least)


def round_slopes(values: Floats) -> Floats:
    """Rounds in place to 2^-36 of their size, so that equal slopes, or a price and a slope, compare equal.

    None may be negative: the bits of such numbers order and round as whole numbers do.
    """
    bits = values.view(np.uint64)
    bits += _GRAIN // np.uint64(2) + np.uint64(1)
    bits &= ~_GRAIN
    return values


def _divide(gain: Floats, cost: Floats, *, free: bool) -> None:
    """gain / cost in place; where a step costs nothing, infinite for a gain, and minus infinity for none."""
    if free:
        none = cost <= 0
        gain[:] = np.where(none, np.where(gain > 0, np.inf, -np.inf), gain / np.where(none, 1.0, cost))
    elif cost.shape[1] == 1:
        np.multiply(gain, 1.0 / cost, out=gain)  # quicker than dividing
    else:
        np.divide(gain, cost, out=gain)


def find_hull(cost: npt.ArrayLike, accuracy: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """The corners of the upper concave hull by rising cost, from the cheapest point to the best.

    >>> find_hull([1, 2, 3, 4, 5], [0.5, 0.5, 0.75, 0.8, 0.8]).tolist()
    [0, 2, 3]
    """
    x, y = np.asarray(cost, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    corners: list[int] = []
    for k in np.lexsort((-y, x)).tolist():
        if corners and not y[k] > y[corners[-1]]:
            continue  # more expensive and no better
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[k] - x[a]) > (y[k] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(k)
    return np.array(corners, dtype=np.intp)
