"""The paper's policy: a classifier of oracle budgets. Knows nothing of votes but what the pool's score says.

Each problem's label is the budget that the exact solution for one average budget gives it; the features of
its prompt, and the entropy of one first sample where that is recorded, are to foretell it. With the entropy
one sample is drawn and paid for, then the rest; without, all is decided beforehand.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from adacompute.answers import Weigh
from adacompute.errors import BudgetOutOfRange, NotFitted, PolicyError
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import LONGEST, Arrays, ballots_of
from adacompute.policies.foretelling import Foretelling
from adacompute.policies.learners import LEARNERS, learned
from adacompute.policies.oneshot import BUDGETS
from adacompute.policies.repeated import Repeated
from adacompute.policies.scored import scored
from adacompute.policies.scorers import SCORERS, Scorer
from adacompute.policies.settings import (
    ascending,
    finite,
    flag,
    number,
    one_of,
    plain_weigh,
    restoring,
    shown,
    taken,
)
from adacompute.policies.sight import Sight
from adacompute.pool import Ballots, Pool
from adacompute.solve import solve

__all__ = ["ClassifierPolicy"]

_NAMES = ("model", "budgets", "features", "seed", "longest", "weigh")


class ClassifierPolicy(Foretelling):
    """Foretells the budget that the oracle would give; fitted for one average budget.

    `model` is "xgboost" (the paper's), "logistic", "svm", "forest" or "mlp". `features` joins parts of
    "text", "embedding" (an extra) and "entropy" by "+"; the entropy is left out where it isn't recorded.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = ClassifierPolicy(features="text").fit(pool, budget=2.0)
    ...     found = policy.predicted(pool)
    >>> set(found.tolist()) <= {1, 2, 4, 8, 16}
    True
    """

    kind = "classifier"

    budget_: float  # the average it was fitted for
    classes_: Ints  # (classes,) budgets that it may give, rising
    scorer_: Scorer
    sight_: Sight  # what it was fitted to see

    def __init__(
        self,
        model: str = "xgboost",
        *,
        budgets: Sequence[int] = BUDGETS,
        features: str = "text+entropy",
        seed: int = 0,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        one_of("model", model, LEARNERS)
        self.model = model
        super().__init__(budgets=budgets, features=features, seed=seed, longest=longest, weigh=weigh)

    def fit(self, pool: Pool | Ballots, *, budget: float | None = None) -> Self:
        """Learns the oracle's budgets for an average of `budget` samples."""
        if budget is None:
            raise PolicyError("the classifier is fitted for one average budget; give fit(pool, budget=2.0)")
        ballots = ballots_of(pool)
        labels = self.labels_of(ballots, budget)
        sight = Sight.of(self.features).seen(ballots)
        rows = sight.rows(sight.read(ballots.prompts), ballots.entropy[:, 0])
        self.scorer_, self.classes_ = learned(self.model, rows, labels, seed=self.seed)
        self.budget_, self.sight_ = float(budget), sight
        self._settle()
        return self

    def labels_of(self, source: Pool | Ballots, budget: float) -> Ints:
        """The oracle's budget of each problem, in samples, (problems,): what is to be foretold."""
        ballots = ballots_of(source)
        if finite(budget) is None:
            raise BudgetOutOfRange(
                f"budget {shown(budget)} is not a number of samples; give {self.modes[0]} to {self.modes[-1]}"
            )
        table = scored(ballots, self.modes, self.weigh)
        return np.asarray(self.modes, dtype=np.int64)[solve(table, budget=budget).choice]

    def predicted(self, source: Pool | Ballots) -> Ints:
        """The budget foretold for each problem, in samples, (problems,), by its first recorded sample."""
        ballots = ballots_of(source)
        return self._budgets(self.read(ballots.prompts), ballots.entropy[:, 0])

    def read(self, prompts: Sequence[str]) -> Floats:
        return self._fitted().read(prompts)

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:  # noqa: ARG002
        sight = self._fitted()
        if not sight.entropy:
            return np.asarray(np.maximum(self._budgets(reading, standing.entropy) - standing.drawn, 0))
        more = np.ones(len(standing), dtype=np.int64)  # the first sample's entropy is to be seen first
        begun = np.flatnonzero(standing.drawn)
        if len(begun):
            budgets = self._budgets(reading[begun], standing.entropy[begun])
            more[begun] = np.maximum(budgets - standing.drawn[begun], 0)
        return more

    def _budgets(self, reading: Floats, entropy: Floats) -> Ints:
        best: Ints = self._best(self._fitted().rows(reading, entropy))
        return self.classes_[best]

    def _fitted(self) -> Sight:
        if not hasattr(self, "scorer_"):
            raise NotFitted("the classifier has learned nothing yet; call fit(pool, budget=2.0) first")
        return self.sight_

    def _settle(self) -> None:
        self.beforehand = not self.sight_.entropy
        self.reads_entropy = self.sight_.entropy
        self.max_waves = 1 if self.beforehand else 2
        self._best = Repeated(self.scorer_.best)

    def settings(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "scorer_"):
            learned = {
                "budget": self.budget_,
                "classes": self.classes_.tolist(),
                "scorer": self.scorer_.kind,
                "entropy": self.sight_.entropy,
            }
        return {
            "model": self.model,
            "budgets": list(self.budgets),
            "features": self.features,
            "seed": self.seed,
            "longest": self.longest,
            "weigh": plain_weigh(self.weigh),
            "learned": learned,
        }

    def arrays(self) -> Arrays:
        return self.scorer_.arrays() if hasattr(self, "scorer_") else {}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        with restoring(cls.kind):
            given = taken(settings, (*_NAMES, "learned"))
            learned = given.pop("learned")
            policy = cls(**given)
            if learned is not None:
                policy._learn(learned, arrays)
        return policy

    def _learn(self, learned: object, arrays: Arrays) -> None:
        if not isinstance(learned, Mapping) or set(learned) != {"budget", "classes", "scorer", "entropy"}:
            raise PolicyError("learned has not budget, classes, scorer and entropy")
        sight = Sight.of(self.features).with_entropy(flag("learned entropy", learned["entropy"]))
        classes = ascending("learned classes", learned["classes"], high=self.longest)
        one_of("learned scorer", learned["scorer"], SCORERS)
        scorer = SCORERS[learned["scorer"]].restored(arrays, features=sight.width, classes=len(classes))
        self.budget_ = number("learned budget", learned["budget"], low=0)
        self.classes_, self.scorer_, self.sight_ = np.array(classes, dtype=np.int64), scorer, sight
        self._settle()
