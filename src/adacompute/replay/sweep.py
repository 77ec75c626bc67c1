"""A policy at many settings of its dial, and the concave hull of the points of cost and accuracy this gives.

A request may always be given one of two settings at random, so what a policy reaches at an average cost
is the upper concave hull of its points: nothing below the cheapest point, the best point above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adacompute.policies.base import Floats, Policy
from adacompute.policies.paths import Paths
from adacompute.replay.per_problem import ExactReplay, ProblemResults, can_replay_exactly

__all__ = ["Mixture", "Sweep", "compute_hull_height", "find_hull", "find_mixture", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Expected results per setting and problem, all (dials, problems) except the dials."""

    dials: tuple[float | None, ...]
    cost: Floats  # samples
    accuracy: Floats  # 0 to 1; NaN: not known
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # NaN: not known

    def __len__(self) -> int:
        return len(self.dials)

    def select(self, problems: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> "Sweep":
        """Some of the problems, by row."""
        rows = np.asarray(problems, dtype=np.intp)
        arrays = {f.name: getattr(self, f.name)[:, rows] for f in fields(self) if f.name != "dials"}
        return Sweep(dials=self.dials, **arrays)


def sweep(
    policy: Policy, paths: Paths, dials: Sequence[float | None], *, exact: ExactReplay | None = None
) -> Sweep:
    """The policy at each dial (`[None]` where it has none), on paths with the policy's own votes.

    With `exact`, made of the same ballots, a policy that decides from the prompt alone is scored
    exactly.
    """
    reading = policy.read(paths.ballots.prompts)
    if exact is not None and can_replay_exactly(policy):
        results = [exact.replay(policy, dial=dial, reading=reading) for dial in dials]
    else:
        results = [ProblemResults.from_policy(policy, paths, dial=dial, reading=reading) for dial in dials]
    shape = (len(results), len(paths.ballots))
    names = [f.name for f in fields(Sweep) if f.name != "dials"]
    stacked = {name: np.array([getattr(each, name) for each in results]).reshape(shape) for name in names}
    return Sweep(dials=tuple(dials), **stacked)


Indices = npt.NDArray[np.intp]

_TOLERANCE = 1e-9  # of a cost: means computed in another order differ by less


class Mixture(NamedTuple):
    """Point `second` with probability `share`, else `first`; the same twice where one point suffices."""

    first: int
    second: int
    share: float

    def mix(self, values: Floats) -> Floats:
        """The mixture's values, of (points, ...)."""
        return np.asarray((1 - self.share) * values[self.first] + self.share * values[self.second])


def find_hull(cost: npt.ArrayLike, accuracy: npt.ArrayLike) -> Indices:
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


def find_mixture(cost: npt.ArrayLike, accuracy: npt.ArrayLike, budget: float) -> Mixture | None:
    """Which two points to mix, and how, at an average cost; None: even the cheapest point costs more.

    >>> find_mixture([1, 2, 4], [0.5, 0.6, 0.9], 2.5)
    Mixture(first=0, second=2, share=0.5)
    """
    x = np.asarray(cost, dtype=np.float64)
    corners = find_hull(cost, accuracy)
    if not len(corners) or x[corners[0]] > budget * (1 + _TOLERANCE):
        return None
    position = int(np.searchsorted(x[corners], budget, side="right"))
    if position in (0, len(corners)):
        corner = int(corners[max(0, position - 1)])
        return Mixture(corner, corner, 0.0)
    lower, upper = int(corners[position - 1]), int(corners[position])
    share = float((budget - x[lower]) / (x[upper] - x[lower]))
    return Mixture(lower, upper, share) if share > 0 else Mixture(lower, lower, 0.0)


def compute_hull_height(cost: Floats, accuracy: Floats, budget: float) -> Floats:
    """The hull's accuracy at a budget for many sets of points at once, (sets,) from (sets, points).

    NaN where even the cheapest point costs more. For bootstraps: every resample of problems moves the
    points, and so their hull.
    """
    best = np.full(len(cost), -np.inf)
    within = cost <= budget * (1 + _TOLERANCE)
    for k in range(cost.shape[1]):
        gap, gain = cost - cost[:, k, None], accuracy - accuracy[:, k, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            along = accuracy[:, k, None] + (budget - cost[:, k, None]) / gap * gain
        mixture = np.where(~within & (gap > 0), along, -np.inf).max(axis=1)
        best = np.maximum(best, np.where(within[:, k], np.maximum(accuracy[:, k], mixture), -np.inf))
    return np.where(np.isfinite(best), best, np.nan)
