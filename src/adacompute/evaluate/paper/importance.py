"""Which features the boosted trees use, and which of them tell anything of new problems. Draws nothing.

The trees' own importance counts what splits gain on the rows learned from, so a feature of noise has its
share too. Beside it stands what shuffling a feature costs on problems not learned from.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.folds import Split, kfold
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import oracle_labels
from adacompute.features import NAMES
from adacompute.policies.learners import gains, learned

__all__ = ["BUDGET", "Importance", "importance"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BUDGET = 2.0  # samples on average, the paper's
_REPEATS = 5  # shuffles of each feature in each fold
_FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Importance:
    """Features by their importance, and what they are like for each of the oracle's budgets."""

    budget: float  # samples on average
    names: tuple[str, ...]  # (features,) as in docs/features.md
    gain: Floats  # (features,) shares of the trees' importance, scored as the paper does: on all problems
    imitation: tuple[Interval, ...]  # (features,) held-out imitation lost by shuffling it
    accuracy: tuple[Interval, ...]  # (features,) held-out accuracy lost likewise
    kept: float  # held-out imitation with nothing shuffled
    majority: float  # held-out imitation of always the commonest budget
    classes: tuple[int, ...]  # budgets that the oracle gives to some problem
    counts: Ints  # (classes,) problems
    signature: Floats = field(repr=False)  # (features, classes) mean, in deviations over problems
    along: Floats = field(repr=False)  # (features, classes) class means, z-scored over classes: the paper's

    @property
    def order(self) -> tuple[int, ...]:
        """Features from the most gain to the least."""
        return tuple(np.argsort(-self.gain, kind="stable").tolist())

    @property
    def sure(self) -> npt.NDArray[np.bool_]:
        """Which of `signature` lie two standard errors or more from 0, (features, classes)."""
        return np.abs(self.signature) * np.sqrt(self.counts) >= 2.0

    @property
    def telling(self) -> tuple[str, ...]:
        """Features whose shuffling costs imitation held-out, zero being outside the interval."""
        found = zip(self.names, self.imitation, strict=True)
        return tuple(name for name, lost in found if lost.low is not None and lost.low > 0)


def importance(case: Case, *, budget: float = BUDGET, repeats: int = _REPEATS, seed: int = 0) -> Importance:
    """Of the boosted trees for one average budget."""
    labels, _ = oracle_labels(case.windows, min(budget, float(case.budgets[-1])))
    signature, along = _signatures(case.features, labels)
    lost, kept, majority = _shuffled(case, labels, repeats=repeats, seed=seed)
    draws = Bootstrap.of(len(case))
    classes, counts = np.unique(labels, return_counts=True)
    return Importance(
        budget=budget,
        names=NAMES[: case.features.shape[1]],
        gain=gains(case.features, labels, seed=seed),
        imitation=tuple(draws.interval(own) for own in lost[0]),
        accuracy=tuple(draws.interval(own) for own in lost[1]),
        kept=kept,
        majority=majority,
        classes=tuple(case.budgets[at] for at in classes),
        counts=counts,
        signature=signature,
        along=along,
    )


def _shuffled(case: Case, labels: Ints, *, repeats: int, seed: int) -> tuple[Floats, float, float]:
    """What shuffling costs each problem when judged, (2, features, problems): imitation and accuracy.

    And the imitation with nothing shuffled, and that of the commonest label, over all problems.
    """
    rng = np.random.default_rng([seed, 0x1377])
    questions = len(set(case.ballots.prompts))
    lost = np.zeros((2, case.features.shape[1], len(labels)))
    hits = common = 0.0
    for split in kfold(case.ballots.prompts, min(_FOLDS, questions), rng):
        judge = _Judge(case, labels, split, seed)
        rows = case.features[split.test]
        whole = judge.read(rows)  # (2, judged)
        hits += whole[0].sum()
        common += (labels[split.test] == np.bincount(labels[split.train]).argmax()).sum()
        for _ in range(repeats):
            order = rng.permutation(len(rows))
            for at in range(rows.shape[1]):
                shuffled = rows.copy()
                shuffled[:, at] = rows[order, at]
                lost[:, at, split.test] += (whole - judge.read(shuffled)) / repeats
    return lost, hits / len(labels), common / len(labels)


class _Judge:
    """Boosted trees of one fold, asked about its judged problems."""

    def __init__(self, case: Case, labels: Ints, split: Split, seed: int) -> None:
        train, test = split.train, split.test
        self.scorer, self.classes = learned("xgboost", case.features[train], labels[train], seed=seed)
        self.labels, self.exact = labels[test], case.exact.accuracy[test]

    def read(self, rows: Floats) -> Floats:
        """Whether each gets the oracle's budget, and its accuracy with what it gets, (2, judged)."""
        column = self.classes[self.scorer.best(rows)]
        return np.stack([column == self.labels, self.exact[np.arange(len(rows)), column]])


def _signatures(features: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Class means of each feature, (features, classes): in deviations over problems, and over classes."""
    classes = np.unique(labels)
    mean, deviation = np.nanmean(features, axis=0), np.nanstd(features, axis=0)
    scaled = (features - mean) / np.where(deviation > 0, deviation, 1.0)
    scaled = np.where(np.isnan(scaled), 0.0, scaled)  # not known: average
    signature = np.stack([scaled[labels == label].mean(axis=0) for label in classes], axis=1)
    spread = signature.std(axis=1, keepdims=True)
    along = (signature - signature.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    return signature, along
