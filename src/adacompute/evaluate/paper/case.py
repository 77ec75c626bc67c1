"""One recording as the paper sees it: accuracy by budget, features, difficulty. Knows no classifier.

Accuracies are there twice: by the paper's disjoint windows, for what is scored as the paper does, and
exactly, over all subsets, for everything else.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, TooFewSamples
from adacompute.features import ENTROPY
from adacompute.policies.sight import Sight
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import score
from adacompute.score.grades import graded, grades

__all__ = ["BUDGETS", "QUINTILES", "Case", "Difficulty", "case_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BUDGETS = (1, 2, 4, 8, 16)  # the paper's
_MOST = 9  # levels; more are no groups
QUINTILES = ("hardest fifth", "hard fifth", "middle fifth", "easy fifth", "easiest fifth")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Difficulty:
    """Problems in groups, easiest to tell apart: the recorded levels, or fifths by one-sample accuracy."""

    kind: str  # "level" or "fifth of one-sample accuracy"
    names: tuple[str, ...]  # (groups,) from easy levels to hard ones; from the hardest fifth to the easiest
    group: Ints = field(repr=False)  # (problems,)

    def rows(self, at: int) -> Ints:
        """The problems of one group."""
        return np.flatnonzero(self.group == at)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A recording, its problems without grades left out."""

    name: str
    ballots: Ballots = field(repr=False)
    budgets: tuple[int, ...]  # those of the paper's that every problem has samples for
    windows: AccuracyTable = field(repr=False)  # (problems, budgets) the paper's estimator
    exact: AccuracyTable = field(repr=False)  # (problems, budgets) over all subsets
    features: Floats = field(repr=False)  # (problems, 16) the paper's, or 15 where no entropy is recorded
    difficulty: Difficulty
    dropped: int  # problems without grades

    def __len__(self) -> int:
        return len(self.ballots)

    @property
    def has_entropy(self) -> bool:
        """Whether the sixteenth feature, the first sample's entropy, is there."""
        return bool(self.features.shape[1] > ENTROPY)

    @property
    def single(self) -> Floats:
        """Accuracy of one sample, (problems,)."""
        return np.asarray(self.exact.accuracy[:, 0])


def case_of(ballots: Ballots, name: str) -> Case:
    """A recording for the paper's tables; needs grades, and 2 samples of every problem."""
    known = graded(ballots, grades(ballots))
    if not known.any():
        raise NotRecorded(f"{name}: no problem has grades or a gold answer, which the paper's tables need")
    kept = ballots if known.all() else ballots.only(np.flatnonzero(known))
    least = int(kept.drawn.min())
    budgets = tuple(budget for budget in BUDGETS if budget <= least)
    if len(budgets) < 2:
        raise TooFewSamples(
            f"{name}: some problem has {least} samples, and the paper's tables need 2 of each"
        )
    exact = score(kept, budgets)
    return Case(
        name=name,
        ballots=kept,
        budgets=budgets,
        windows=score(kept, budgets, estimator="windows"),
        exact=exact,
        features=_features(kept),
        difficulty=_levels(kept) or _fifths(exact.accuracy[:, 0]),
        dropped=len(ballots) - len(kept),
    )


def _features(ballots: Ballots) -> Floats:
    sight = Sight.of("text+entropy").seen(ballots)
    return sight.rows(sight.read(ballots.prompts), ballots.entropy[:, 0])


def _levels(ballots: Ballots) -> Difficulty | None:
    """The recorded levels; None where some problem has none, or all have one."""
    if any(level is None for level in ballots.levels):
        return None
    numbered = all(isinstance(level, int | float) for level in ballots.levels)
    order = sorted(set(ballots.levels), key=float if numbered else str)  # type: ignore[arg-type]
    if not 2 <= len(order) <= _MOST:
        return None
    place = {level: at for at, level in enumerate(order)}
    names = tuple(f"level {level:g}" if isinstance(level, int | float) else str(level) for level in order)
    return Difficulty(
        kind="level", names=names, group=np.array([place[level] for level in ballots.levels], dtype=np.int64)
    )


def _fifths(single: Floats) -> Difficulty:
    """Five groups of the same size, by how often one sample is right; ties by row."""
    count = min(len(QUINTILES), len(single))
    group = np.empty(len(single), dtype=np.int64)
    for at, rows in enumerate(np.array_split(np.argsort(single, kind="stable"), count)):
        group[rows] = at
    return Difficulty(kind="fifth of one-sample accuracy", names=QUINTILES[:count], group=group)
