"""Computes each problem's upper concave hull of (cost, accuracy), as slopes.

Whatever the price, the best mode is on this hull. Instead of the hull's corners we keep, for each step from
one mode to the next more expensive one, the slope of the hull over this step:

    slope[k] = min over a <= k of max over b > k of (accuracy[b] - accuracy[a]) / (cost[b] - cost[a])

The slope never rises with k, and is the same for all steps of a hull edge. So at any price, the number of
slopes above the price is the index of the cheapest best mode. Rounding can't make cost rise with price.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable

Floats = npt.NDArray[np.float64]
# (first row, row after the last one, slopes), where slopes have shape (modes - 1, rows)
Chunk = tuple[int, int, Floats]

_MIN_ROWS = 2048  # minimum number of rows per chunk: with fewer, calling numpy takes longer than computing
_CELLS = 50000  # number of table entries per chunk, so that a chunk fits in the second-level cache
_GRAIN = np.uint64(0xFFFF)  # mask of a slope's low bits, which are rounded away


def iterate_slopes(table: AccuracyTable) -> Iterator[Chunk]:
    """Yields the slopes of a table, a chunk of rows at a time. Each chunk overwrites the previous one."""
    accuracy, costs = table.accuracy, table.costs
    size = min(len(accuracy), max(_MIN_ROWS, _CELLS // accuracy.shape[1]))
    # reuse one workspace, because allocating memory for each chunk takes longer than computing its hulls
    workspace = np.empty((3, accuracy.shape[1], size))
    for start in range(0, len(accuracy), size):
        stop = min(start + size, len(accuracy))
        spent = costs if costs.ndim == 1 else costs[start:stop]
        yield start, stop, _compute_slopes(accuracy[start:stop], spent, workspace[:, :, : stop - start])


def compute_step_costs(table: AccuracyTable, start: int, stop: int) -> Floats:
    """Returns the cost of each step to the next mode, for the rows from `start` to before `stop`.

    The shape is (modes - 1, rows), or (modes - 1, 1) if all rows of the table have the same costs.
    """
    if table.shared_costs:
        return np.diff(table.costs)[:, None]
    return np.diff(table.costs[start:stop], axis=1).T


def count_steps(above: npt.NDArray[np.bool_]) -> npt.NDArray[np.unsignedinteger]:
    """Counts the marked steps of each row; `above` has shape (modes - 1, rows)."""
    # summing bytes is eight times as fast as summing 64-bit integers
    small = np.uint8 if len(above) < 256 else np.uint64
    return np.asarray(np.add.reduce(above.view(np.uint8), axis=0, dtype=small))


def compute_slopes(accuracy: Floats, costs: Floats) -> Floats:
    """Computes the hull's slope at each step, 0 if a step gains no accuracy; shape (modes - 1, rows).

    A step to a better mode at the same cost has an infinite slope.

    >>> compute_slopes(np.array([[0.5, 0.5, 0.9]]), np.array([1.0, 2.0, 4.0])).round(3)[:, 0].tolist()
    [0.133, 0.133]
    """
    return _compute_slopes(accuracy, costs, np.empty((3, *accuracy.T.shape)))


def _compute_slopes(accuracy: Floats, costs: Floats, workspace: Floats) -> Floats:
    """Computes the slopes and stores them in part of `workspace`, an array of shape (3, modes, rows)."""
    modes = accuracy.shape[1]
    columns, least, steepest = workspace[0], workspace[1, 1:], workspace[2, 1:]
    if accuracy.strides[0] == accuracy.itemsize:
        columns = accuracy.T
    else:
        np.copyto(columns, accuracy.T)
    spent = costs[:, None] if costs.ndim == 1 else np.ascontiguousarray(costs.T)
    free = bool((np.diff(spent, axis=0) <= 0).any())
    for a in range(modes - 1):
        # into[b] gets the steepest slope from mode a to mode a + 1 + b or to any more expensive mode
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
    """Rounds each value in place, to about 2^-36 of its size, so that equal slopes and prices compare equal.

    Values must not be negative, because the bits of negative doubles don't sort like integers.
    """
    bits = values.view(np.uint64)
    bits += _GRAIN // np.uint64(2) + np.uint64(1)
    bits &= ~_GRAIN
    return values


def _divide(gain: Floats, cost: Floats, *, free: bool) -> None:
    """Computes gain / cost, stored in `gain`. If the cost is 0: inf for a positive gain, else -inf."""
    if free:
        none = cost <= 0
        gain[:] = np.where(none, np.where(gain > 0, np.inf, -np.inf), gain / np.where(none, 1.0, cost))
    elif cost.shape[1] == 1:
        np.multiply(gain, 1.0 / cost, out=gain)  # multiplying is faster than dividing
    else:
        np.divide(gain, cost, out=gain)


def find_hull(cost: npt.ArrayLike, accuracy: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Returns the indices of the upper concave hull's corners, from the cheapest to the most accurate point.

    >>> find_hull([1, 2, 3, 4, 5], [0.5, 0.5, 0.75, 0.8, 0.8]).tolist()
    [0, 2, 3]
    """
    x, y = np.asarray(cost, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    corners: list[int] = []
    for k in np.lexsort((-y, x)).tolist():
        if corners and not y[k] > y[corners[-1]]:
            continue  # this point costs more than the last corner and isn't more accurate
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[k] - x[a]) > (y[k] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(k)
    return np.array(corners, dtype=np.intp)
