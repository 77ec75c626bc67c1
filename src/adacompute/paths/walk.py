"""One draw after another on many paths at once, tallied. Knows nothing of orders, problems or policies.

The tallies are those of `adacompute.answers.Tally`, to the last bit, ties to the first seen.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers.weigh import UNIT

__all__ = ["Parts", "runs", "walk"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Some paths, step first."""

    classes: npt.NDArray[np.int32]  # (longest, paths)
    weights: Ints  # (longest, paths)
    worth: Floats  # (paths, classes)
    full: Floats  # (paths, classes) share of the full vote


def walk(parts: Parts, out: dict[str, npt.NDArray[Any]]) -> None:
    """Draws step by step, and writes each step's tally."""
    longest, count = parts.classes.shape
    kinds = parts.worth.shape[1]
    weights, counts = np.zeros(count * kinds, dtype=np.int64), np.zeros(count * kinds, dtype=np.int16)
    seen = np.full(count * kinds, longest, dtype=np.int16)  # the step at which a class first came
    base = np.arange(count) * kinds
    top, runner = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    answered, total, different = (
        np.zeros(count, np.int16),
        np.zeros(count, np.int64),
        np.zeros(count, np.int16),
    )
    for t in range(longest):
        rows = np.flatnonzero(parts.classes[t] >= 0)
        place = base[rows] + parts.classes[t, rows]
        answered[rows] += 1
        total[rows] += parts.weights[t, rows]
        new = counts[place] == 0
        seen[place[new]] = t
        different[rows] += new
        counts[place] += 1
        weights[place] += parts.weights[t, rows]
        _reorder(rows, place, top, runner, weights, seen)
        for name, at in (("first", top), ("second", runner)):
            out[name][t] = np.where(at >= 0, counts[at], 0)
        for name, at in (("lead", top), ("runner", runner)):
            out[name][t] = np.where(at >= 0, weights[at], 0) / UNIT
        out["answered"][t], out["total"][t], out["kinds"][t] = answered, total / UNIT, different
        out["grade"][t] = np.where(top >= 0, parts.worth.reshape(-1)[top], parts.worth[:, 0] * 0.0)
        out["agrees"][t] = np.where(top >= 0, parts.full.reshape(-1)[top], 0.0)


def runs(classes: npt.NDArray[np.int32], out: Small) -> None:
    """How many of the last draws gave one and the same answer, at each step."""
    out[0] = classes[0] >= 0
    for t in range(1, len(classes)):
        out[t] = np.where(classes[t] == classes[t - 1], out[t - 1] + 1, 1) * (classes[t] >= 0)


def _reorder(rows: Ints, place: Ints, top: Ints, runner: Ints, weights: Ints, seen: Small) -> None:
    """Who leads and who follows after one more vote: weights only grow, so it is among these three."""

    def beats(one: Ints, other: Ints) -> npt.NDArray[np.bool_]:
        ours, theirs = weights[one], weights[other]
        ahead = (ours > theirs) | ((ours == theirs) & (seen[one] < seen[other]))
        return np.asarray((other < 0) | ahead)

    leads, follows = top[rows], runner[rows]
    other = place != leads
    to_top = other & beats(place, leads)
    to_runner = other & ~to_top & (place != follows) & beats(place, follows)
    runner[rows[to_top]] = leads[to_top]
    top[rows[to_top]] = place[to_top]
    runner[rows[to_runner]] = place[to_runner]
