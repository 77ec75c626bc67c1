"""The policy of the paper: a classifier that predicts the best number of samples for a prompt.

For training, an average budget is divided among a pool's problems in the best possible way; the number of
samples that a problem gets is its label. If the first sample's entropy is a feature, this sample is drawn
before the others; otherwise the prompt alone decides. XGBoost is needed only for training.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import BudgetOutOfRange, PolicyError, format_value
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    check_ascending,
    check_choice,
    check_number,
    get_ballots,
    parse_finite,
    score_votes,
)
from adacompute.policies.baselines import BUDGETS
from adacompute.policies.features import FeaturePolicy, FeatureSet, RowCache
from adacompute.policies.trees import Trees, import_xgboost, read_booster, train_booster
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots, Pool
from adacompute.solve import solve

_ROUNDS, _DEPTH, _RATE = 100, 5, 0.1  # number of trees, their depth and the learning rate, as in the paper


def fit_trees(rows: Floats, labels: Ints, *, seed: int) -> tuple[Trees | None, Ints]:
    """Trains trees with one output per distinct label; also returns these labels, ascending.

    The trees are None if all labels are equal.
    """
    classes, indices = np.unique(labels, return_inverse=True)
    if len(classes) == 1:
        return None, classes
    booster = train_classifier(rows, np.asarray(indices, dtype=np.int64), seed)
    return read_booster(booster.save_raw("json"), outputs=len(classes)), classes


def predict_classes(trees: Trees | None, rows: Floats) -> Ints:
    """Returns the index of each row's most likely class; ties go to the first."""
    if trees is None:
        return np.zeros(len(rows), dtype=np.int64)
    return np.asarray(trees.scores(rows).argmax(axis=1), dtype=np.int64)


def train_classifier(rows: Floats, labels: Ints, seed: int) -> Any:  # noqa: ANN401 # a Booster
    """Trains XGBoost with the settings of the paper; labels must be 0, 1, 2, … without gaps."""
    xgboost = import_xgboost()

    settings: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": int(labels.max()) + 1,
        "max_depth": _DEPTH,
        "learning_rate": _RATE,
        "seed": seed,
        "nthread": 1,  # one thread, so that every machine trains the same trees
        "verbosity": 0,
    }
    data = xgboost.DMatrix(rows.astype(np.float32), label=labels)
    return train_booster(settings, data, _ROUNDS)


class ClassifierPolicy(FeaturePolicy):
    """Predicts how many samples the oracle would give to a prompt; fitted for one average budget.

    `features` is "text", "entropy" (of the first sample) or "text+entropy", of which only the text is used if
    the pool lacks entropies.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = ClassifierPolicy(features="text").fit(pool, budget=2.0)
    ...     budgets = policy.predict_budgets(pool)
    >>> set(budgets.tolist()) <= {1, 2, 4, 8, 16}
    True
    """

    kind = "classifier"
    setting_names = ("budgets", "features", "seed", "longest", "weigh")
    learned_names = ("model", "learned")
    model: ClassVar[str] = "xgboost"  # library that trained the trees; written to stored policies

    budget_: float  # average number of samples that the policy was fitted for
    classes_: Ints  # numbers of samples to choose from, ascending
    trees_: Trees | None  # None if `classes_` has only one number

    def __init__(
        self,
        *,
        budgets: Sequence[int] = BUDGETS,
        features: str = "text+entropy",
        seed: int = 0,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, features=features, seed=seed, longest=longest, weigh=weigh)

    def fit(self, pool: Pool | Ballots, *, budget: float | None = None) -> Self:
        """Learns to predict each problem's best number of samples, for an average of `budget` per problem."""
        if budget is None:
            raise PolicyError("the classifier is fitted for one average budget; give fit(pool, budget=2.0)")
        ballots = get_ballots(pool)
        labels = self.compute_labels(ballots, budget)
        feature_set = FeatureSet.parse(self.features).drop_missing_entropy(ballots)
        rows = feature_set.build_rows(feature_set.read(ballots.prompts), ballots.entropy[:, 0])
        self._set_model(*fit_trees(rows, labels, seed=self.seed), feature_set)
        self.budget_, self.source_model = float(budget), ballots.model
        return self

    def compute_labels(self, source: Pool | Ballots, budget: float) -> Ints:
        """Computes the labels: each problem's best number of samples, for an average of `budget`."""
        ballots = get_ballots(source)
        if parse_finite(budget) is None:
            raise BudgetOutOfRange(
                f"budget {format_value(budget)} is not a number of samples; "
                f"give {self.choices[0]} to {self.choices[-1]}"
            )
        table = score_votes(ballots, self.choices, self.weigh)
        return np.asarray(self.choices, dtype=np.int64)[solve(table, budget=budget).choice]

    def predict_budgets(self, source: Pool | Ballots) -> Ints:
        """Predicts the number of samples for each problem, given the entropy of its first recorded sample."""
        ballots = get_ballots(source)
        rows = self.get_feature_set().build_rows(self.read(ballots.prompts), ballots.entropy[:, 0])
        return self.choose_budgets(rows, None)

    def choose_budgets(self, rows: Floats, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        best: Ints = self._predict_class(rows)
        return self.classes_[best]

    def _set_model(self, trees: Trees | None, classes: Ints, feature_set: FeatureSet) -> None:
        self.trees_, self.classes_ = trees, classes
        self._predict_class = RowCache(partial(predict_classes, trees))
        self.set_feature_set(feature_set)

    def settings(self) -> dict[str, Any]:
        return {"model": self.model} | super().settings()

    def dump_learned(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "trees_"):
            learned = {
                "budget": self.budget_,
                "classes": self.classes_.tolist(),
                "scorer": "constant" if self.trees_ is None else "trees",
                "entropy": self.feature_set_.entropy,
            }
        return {"model": self.model, "learned": learned}

    def arrays(self) -> Arrays:
        trees = getattr(self, "trees_", None)
        return {} if trees is None else trees.arrays()

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        check_choice("model", learned["model"], (self.model,))
        stored = learned["learned"]
        if stored is None:
            return
        if not isinstance(stored, Mapping) or set(stored) != {"budget", "classes", "scorer", "entropy"}:
            raise PolicyError("learned lacks budget, classes, scorer or entropy")
        feature_set = FeatureSet.parse(self.features).with_entropy(stored["entropy"])
        classes = check_ascending("learned classes", stored["classes"], high=self.longest)
        check_choice("learned scorer", stored["scorer"], ("trees",) if len(classes) > 1 else ("constant",))
        trees = None
        if len(classes) > 1:
            trees = Trees.restore(arrays, features=feature_set.width, outputs=len(classes))
        self.budget_ = check_number("learned budget", stored["budget"], low=0)
        self._set_model(trees, np.array(classes, dtype=np.int64), feature_set)
