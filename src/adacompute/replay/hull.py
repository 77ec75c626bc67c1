"""Points of cost and accuracy, and what mixing two of them gives. Knows nothing of where they come from.

A request may always be given one setting or another by lot, so what a policy can do at an average cost is the
upper concave hull of its points. Below the cheapest point there is nothing; above the best one, that one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Mixed", "hull", "hull_at", "hull_height"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_SLIP = 1e-9  # of a cost: means in another order differ by less


class Mixed(NamedTuple):
    """Point `second` with probability `share`, else point `first`; the same twice where one serves alone."""

    first: int
    second: int
    share: float

    def of(self, values: Floats) -> Floats:
        """The mixture's values, of (points, ...)."""
        return np.asarray((1 - self.share) * values[self.first] + self.share * values[self.second])


def hull(cost: npt.ArrayLike, accuracy: npt.ArrayLike) -> Ints:
    """The corners of the upper concave hull by rising cost, from the cheapest point to the best.

    >>> hull([1, 2, 3, 4, 5], [0.5, 0.5, 0.75, 0.8, 0.8]).tolist()
    [0, 2, 3]
    """
    x, y = np.asarray(cost, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    corners: list[int] = []
    for k in np.lexsort((-y, x)).tolist():
        if corners and not y[k] > y[corners[-1]]:
            continue  # dearer and no better
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[k] - x[a]) > (y[k] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(k)
    return np.array(corners, dtype=np.intp)


def hull_at(cost: npt.ArrayLike, accuracy: npt.ArrayLike, budget: float) -> Mixed | None:
    """Which two points to mix, and how, at an average cost; None: even the cheapest point costs more.

    >>> hull_at([1, 2, 4], [0.5, 0.6, 0.9], 2.5)
    Mixed(first=0, second=2, share=0.5)
    """
    x = np.asarray(cost, dtype=np.float64)
    corners = hull(cost, accuracy)
    if not len(corners) or x[corners[0]] > budget * (1 + _SLIP):
        return None
    after = int(np.searchsorted(x[corners], budget, side="right"))
    if after in (0, len(corners)):
        at = int(corners[max(0, after - 1)])
        return Mixed(at, at, 0.0)
    one, other = int(corners[after - 1]), int(corners[after])
    share = float((budget - x[one]) / (x[other] - x[one]))
    return Mixed(one, other, share) if share > 0 else Mixed(one, one, 0.0)


def hull_height(cost: Floats, accuracy: Floats, budget: float) -> Floats:
    """The hull's accuracy at a budget for many sets of points at once, (sets,) of (sets, points); NaN: none.

    For bootstraps: every resample of problems moves the points, and so their hull.
    """
    best = np.full(len(cost), -np.inf)
    within = cost <= budget * (1 + _SLIP)
    for k in range(cost.shape[1]):
        gap, gain = cost - cost[:, k, None], accuracy - accuracy[:, k, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            along = accuracy[:, k, None] + (budget - cost[:, k, None]) / gap * gain
        mixed = np.where(~within & (gap > 0), along, -np.inf).max(axis=1)
        best = np.maximum(best, np.where(within[:, k], np.maximum(accuracy[:, k], mixed), -np.inf))
    return np.where(np.isfinite(best), best, np.nan)
