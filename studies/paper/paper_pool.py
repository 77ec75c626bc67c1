"""A scored recording with what only the paper's tables need: its own estimate of accuracy, and features."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.scored_pool import ScoredPool, score_pool
from adacompute.policies.features import ENTROPY_COLUMN, FeatureSet
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import score

__all__ = ["PaperPool", "extend_pool", "score_paper_pool"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperPool(ScoredPool):
    """A scored pool with accuracies by disjoint windows too, as in the paper, and the paper's features."""

    windows: AccuracyTable = field(repr=False)  # (problems, budgets) the paper's estimator
    features: Floats = field(repr=False)  # (problems, 16) the paper's; 15 where no entropy is recorded

    @property
    def has_entropy(self) -> bool:
        """Whether the sixteenth feature, the first sample's entropy, is there."""
        return bool(self.features.shape[1] > ENTROPY_COLUMN)


def score_paper_pool(ballots: Ballots, name: str) -> PaperPool:
    """Score a recording; needs grades, and at least 2 samples of every problem."""
    return extend_pool(score_pool(ballots, name))


def extend_pool(pool: ScoredPool) -> PaperPool:
    """Add what the paper's tables need to a scored pool."""
    return PaperPool(
        name=pool.name,
        ballots=pool.ballots,
        budgets=pool.budgets,
        exact=pool.exact,
        difficulty=pool.difficulty,
        dropped=pool.dropped,
        windows=score(pool.ballots, pool.budgets, estimator="windows"),
        features=_read_features(pool.ballots),
    )


def _read_features(ballots: Ballots) -> Floats:
    feature_set = FeatureSet.parse("text+entropy").drop_missing_entropy(ballots)
    return feature_set.build_rows(feature_set.read(ballots.prompts), ballots.entropy[:, 0])
