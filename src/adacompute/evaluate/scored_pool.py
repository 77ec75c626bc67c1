"""A graded recording with its accuracy table and difficulty groups, and how tables are scored."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import NotRecorded, TooFewSamples
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable, TokenPrices
from adacompute.score import score
from adacompute.score.grades import grade_samples, mask_graded
from adacompute.score.score import Aggregate, Estimator

__all__ = ["QUINTILES", "ScoredPool", "Scoring", "score_pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The options of `score`, except for the samples and the budgets.

    >>> Scoring(aggregate="any-correct").cost
    'samples'
    """

    aggregate: Aggregate = "vote"
    estimator: Estimator = "exact"
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob"
    cost: Literal["samples", "tokens"] | TokenPrices = "samples"

    def for_rows(self, rows: Sequence[int], problems: int) -> "Scoring":
        """The same options for some of the problems: prompt tokens given for each problem are
        cut to these rows.
        """
        tokens = self.cost.prompt_tokens if isinstance(self.cost, TokenPrices) else None
        if (
            not isinstance(self.cost, TokenPrices)
            or not isinstance(tokens, Sequence)
            or len(tokens) != problems
        ):
            return self
        return replace(self, cost=replace(self.cost, prompt_tokens=tuple(tokens[row] for row in rows)))

    def score_table(
        self,
        ballots: Ballots,
        budgets: Sequence[int],
        *,
        too_few: Literal["error", "drop"] = "error",
        draws: int = 2000,
    ) -> AccuracyTable:
        """Score these ballots."""
        return score(ballots, budgets, too_few=too_few, draws=draws, **self.options())

    def options(self) -> dict[str, Any]:
        """The keyword arguments of `score`."""
        return {
            "estimator": self.estimator,
            "aggregate": self.aggregate,
            "by": self.by,
            "cost": self.cost,
        }


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
class ScoredPool:
    """A recording without its ungraded problems, scored, with difficulty groups."""

    name: str
    ballots: Ballots = field(repr=False)
    budgets: tuple[int, ...]  # those of `BUDGETS` that every problem has samples for
    exact: AccuracyTable = field(repr=False)  # (problems, budgets) over all subsets
    difficulty: Difficulty
    dropped: int  # problems without grades

    def __len__(self) -> int:
        return len(self.ballots)

    @property
    def single(self) -> Floats:
        """Accuracy of one sample, (problems,)."""
        return np.asarray(self.exact.accuracy[:, 0])


def score_pool(ballots: Ballots, name: str) -> ScoredPool:
    """Score a recording; needs grades, and at least 2 samples of every problem."""
    has_grades = mask_graded(ballots, grade_samples(ballots))
    if not has_grades.any():
        raise NotRecorded(f"{name}: no problem has grades or a gold answer, which difficulty groups need")
    graded_ballots = ballots if has_grades.all() else ballots.only(np.flatnonzero(has_grades))
    fewest = int(graded_ballots.drawn.min())
    budgets = tuple(budget for budget in BUDGETS if budget <= fewest)
    if len(budgets) < 2:
        raise TooFewSamples(
            f"{name}: some problem has {fewest} samples, and difficulty groups need 2 of each"
        )
    exact = score(graded_ballots, budgets)
    return ScoredPool(
        name=name,
        ballots=graded_ballots,
        budgets=budgets,
        exact=exact,
        difficulty=_group_by_level(graded_ballots) or _group_by_fifth(exact.accuracy[:, 0]),
        dropped=len(ballots) - len(graded_ballots),
    )


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
