"""A graded recording with its accuracy tables, its difficulty groups and the paper's features."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, TooFewSamples
from adacompute.policies.features import ENTROPY_COLUMN, FeatureSet
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import score
from adacompute.score.grades import grade_samples, mask_graded

__all__ = ["QUINTILES", "PaperPool", "check_paper_pool", "score_paper_pool"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BUDGETS = (1, 2, 4, 8, 16)  # samples, as in the paper
_MOST_LEVELS = 9  # levels; with more, groups would be too small
QUINTILES = ("hardest fifth", "hard fifth", "middle fifth", "easy fifth", "easiest fifth")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Difficulty:
    """Problems grouped by difficulty: the recorded levels, or fifths by one-sample accuracy."""

    kind: str  # "level" or "fifth of one-sample accuracy"
    names: tuple[str, ...]  # (groups,) from easy levels to hard ones; from the hardest fifth to the easiest
    group: Ints = field(repr=False)  # (problems,)

    def rows(self, at: int) -> Ints:
        """The problems of one group."""
        return np.flatnonzero(self.group == at)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperPool:
    """A recording without its ungraded problems, scored exactly and as the paper does."""

    name: str
    ballots: Ballots = field(repr=False)
    budgets: tuple[int, ...]  # those of `BUDGETS` that every problem has samples for
    exact: AccuracyTable = field(repr=False)  # (problems, budgets) over all subsets
    windows: AccuracyTable = field(repr=False)  # (problems, budgets) the paper's estimator
    features: Floats = field(repr=False)  # (problems, 16) the paper's; 15 where no entropy is recorded
    difficulty: Difficulty

    def __len__(self) -> int:
        return len(self.ballots)

    @property
    def single(self) -> Floats:
        """Accuracy of one sample, (problems,)."""
        return np.asarray(self.exact.accuracy[:, 0])

    @property
    def has_entropy(self) -> bool:
        """Whether the sixteenth feature, the first sample's entropy, is there."""
        return bool(self.features.shape[1] > ENTROPY_COLUMN)


def score_paper_pool(ballots: Ballots, name: str) -> PaperPool:
    """Score a recording; needs grades, and at least 2 samples of every problem."""
    graded, budgets = check_paper_pool(ballots, name)
    exact = score(graded, budgets)
    return PaperPool(
        name=name,
        ballots=graded,
        budgets=budgets,
        exact=exact,
        windows=score(graded, budgets, estimator="windows"),
        features=_read_features(graded),
        difficulty=_group_by_level(graded) or _group_by_fifth(exact.accuracy[:, 0]),
    )


def check_paper_pool(ballots: Ballots, name: str) -> tuple[Ballots, tuple[int, ...]]:
    """The graded problems, and the budgets that each of them has samples for."""
    has_grades = mask_graded(ballots, grade_samples(ballots))
    if not has_grades.any():
        raise NotRecorded(f"{name}: no problem has grades or a gold answer, which difficulty groups need")
    graded = ballots if has_grades.all() else ballots.only(np.flatnonzero(has_grades))
    fewest = int(graded.drawn.min())
    budgets = tuple(budget for budget in BUDGETS if budget <= fewest)
    if len(budgets) < 2:
        raise TooFewSamples(
            f"{name}: some problem has {fewest} samples, and difficulty groups need 2 of each"
        )
    return graded, budgets


def _group_by_level(ballots: Ballots) -> Difficulty | None:
    """Groups by recorded level; None where a problem has none, all have the same, or there are
    too many levels.
    """
    if any(level is None for level in ballots.levels):
        return None
    are_numbers = all(isinstance(level, int | float) for level in ballots.levels)
    order = sorted(set(ballots.levels), key=float if are_numbers else str)  # type: ignore[arg-type]
    if not 2 <= len(order) <= _MOST_LEVELS:
        return None
    index = {level: at for at, level in enumerate(order)}
    names = tuple(f"level {level:g}" if isinstance(level, int | float) else str(level) for level in order)
    return Difficulty(
        kind="level", names=names, group=np.array([index[level] for level in ballots.levels], dtype=np.int64)
    )


def _group_by_fifth(single: Floats) -> Difficulty:
    """Five groups of the same size by one-sample accuracy; ties go by row."""
    count = min(len(QUINTILES), len(single))
    group = np.empty(len(single), dtype=np.int64)
    for at, rows in enumerate(np.array_split(np.argsort(single, kind="stable"), count)):
        group[rows] = at
    return Difficulty(kind="fifth of one-sample accuracy", names=QUINTILES[:count], group=group)


def _read_features(ballots: Ballots) -> Floats:
    feature_set = FeatureSet.parse("text+entropy").drop_missing_entropy(ballots)
    return feature_set.build_rows(feature_set.read(ballots.prompts), ballots.entropy[:, 0])
