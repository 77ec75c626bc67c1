"""The paper's policy: a classifier that predicts the oracle's budget, with its learners and scorers.

A problem's label is its budget in the exact solution for one average budget. If the first sample's entropy is
a feature, one sample is drawn before the others; otherwise the prompt alone decides. XGBoost and scikit-learn
are imported only for training; serving evaluates plain arrays.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import (
    BudgetOutOfRange,
    PolicyError,
    PolicyInvalid,
    format_value,
    needs_extra,
)
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    check_ascending,
    check_choice,
    check_flag,
    check_number,
    get_ballots,
    parse_finite,
    read_array,
    score_votes,
)
from adacompute.policies.baselines import BUDGETS
from adacompute.policies.features import FeaturePolicy, FeatureSet, RowCache
from adacompute.policies.trees import Trees, import_xgboost, read_booster, read_forest, train_booster
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots, Pool
from adacompute.solve import solve

_CELLS = 1 << 21  # (row, support vector) pairs in memory at a time
_ROUNDS, _DEPTH, _RATE = 100, 5, 0.1  # boosting parameters from the paper
_FOREST_TREES = 100
_HIDDEN_UNITS = 64
_MAX_STEPS = 2000  # most steps of a solver


class Scorer(ABC):
    """Class scores for rows of features; the highest score is the prediction, ties to the first class.

    A scorer gives the same predictions as the library that trained it, without that library.
    """

    kind: ClassVar[str]

    @abstractmethod
    def scores(self, rows: Floats) -> Floats:
        """Scores (rows, classes) for rows (rows, features); NaN means an unknown feature."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Learned state as arrays."""

    @classmethod
    @abstractmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> Self:
        """Restores a scorer from arrays; PolicyInvalid if they are invalid."""

    def predict(self, rows: Floats) -> Ints:
        """The class of each row, (rows,)."""
        return np.asarray(self.scores(rows).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureScale:
    """Scales features to mean 0 and deviation 1; an unknown feature counts as average."""

    mean: Floats  # (features,)
    deviation: Floats  # (features,) above 0

    @classmethod
    def fit(cls, rows: Floats) -> "FeatureScale":
        known = ~np.isnan(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, rows - mean, 0.0) ** 2).sum(axis=0) / count)
        return cls(mean, np.where(deviation > 1e-12, deviation, 1.0))

    def __call__(self, rows: Floats) -> Floats:
        return np.asarray(np.nan_to_num((rows - self.mean) / self.deviation, nan=0.0))

    def arrays(self) -> Arrays:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def restore(cls, arrays: Arrays, features: int) -> "FeatureScale":
        scale = cls(*(read_array(arrays, name, np.float64, (features,)) for name in ("mean", "deviation")))
        if (scale.deviation <= 0).any():
            raise PolicyInvalid("array 'deviation' holds a number that is not above 0")
        return scale


@dataclass(frozen=True, slots=True, eq=False)
class ConstantScorer(Scorer):
    """A single class for all rows: there was no other label."""

    kind = "constant"

    def scores(self, rows: Floats) -> Floats:
        return np.zeros((len(rows), 1))

    def arrays(self) -> Arrays:
        return {}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> "ConstantScorer":  # noqa: ARG003
        if classes != 1:
            raise PolicyInvalid(f"a constant learner has one class, not {classes}")
        return cls()


@dataclass(frozen=True, slots=True, eq=False)
class TreeScorer(Scorer):
    """A sum of trees, boosted or averaged."""

    kind = "trees"
    trees: Trees
    fill: Floats | None = None  # (features,) values for unknown features; None: the trees handle them

    def scores(self, rows: Floats) -> Floats:
        if self.fill is not None:
            rows = np.where(np.isnan(rows), self.fill, rows)
        return self.trees.scores(rows)

    def arrays(self) -> Arrays:
        return self.trees.arrays() if self.fill is None else {**self.trees.arrays(), "fill": self.fill}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> "TreeScorer":
        fill = read_array(arrays, "fill", np.float64, (features,)) if "fill" in arrays else None
        return cls(Trees.restore(arrays, features=features, outputs=classes), fill)


@dataclass(frozen=True, slots=True, eq=False)
class LinearScorer(Scorer):
    """Logistic regression: scores before normalising to probabilities."""

    kind = "linear"
    scale: FeatureScale
    weights: Floats  # (features, classes)
    offset: Floats  # (classes,)

    def scores(self, rows: Floats) -> Floats:
        return np.asarray(self.scale(rows) @ self.weights + self.offset)

    def arrays(self) -> Arrays:
        return {**self.scale.arrays(), "weights": self.weights, "offset": self.offset}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> "LinearScorer":
        weights = read_array(arrays, "weights", np.float64, (features, classes))
        return cls(
            FeatureScale.restore(arrays, features),
            weights,
            read_array(arrays, "offset", np.float64, (classes,)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class NetworkScorer(Scorer):
    """A network with one hidden layer of rectified linear units."""

    kind = "network"
    scale: FeatureScale
    inner: Floats  # (features, units)
    inner_offset: Floats  # (units,)
    outer: Floats  # (units, classes)
    outer_offset: Floats  # (classes,)

    def scores(self, rows: Floats) -> Floats:
        hidden = np.maximum(self.scale(rows) @ self.inner + self.inner_offset, 0.0)
        return np.asarray(hidden @ self.outer + self.outer_offset)

    def arrays(self) -> Arrays:
        layers = {name: getattr(self, name) for name in ("inner", "inner_offset", "outer", "outer_offset")}
        return {**self.scale.arrays(), **layers}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> "NetworkScorer":
        inner = read_array(arrays, "inner", np.float64, (features, None))
        units = inner.shape[1]
        return cls(
            FeatureScale.restore(arrays, features),
            inner,
            read_array(arrays, "inner_offset", np.float64, (units,)),
            read_array(arrays, "outer", np.float64, (units, classes)),
            read_array(arrays, "outer_offset", np.float64, (classes,)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class KernelScorer(Scorer):
    """A support vector machine with a Gaussian kernel; scores are wins over all pairs of classes."""

    kind = "kernel"
    scale: FeatureScale
    vectors: Floats  # (vectors, features) scaled
    weights: Floats  # (pairs, vectors) for pairs (0, 1), (0, 2), ... (1, 2), ...: above 0 the first wins
    offset: Floats  # (pairs,)
    width: Floats  # (1,) gamma

    def scores(self, rows: Floats) -> Floats:
        classes = _count_classes(len(self.offset))
        step = max(1, _CELLS // max(1, len(self.vectors)))
        wins = np.zeros((len(rows), classes))
        first, second = np.triu_indices(classes, 1)
        for i in range(0, len(rows), step):
            first_wins = self._kernel(self.scale(rows[i : i + step])) @ self.weights.T + self.offset > 0
            for pair, (winner, loser) in enumerate(zip(first, second, strict=True)):
                wins[i : i + step, winner] += first_wins[:, pair]
                wins[i : i + step, loser] += ~first_wins[:, pair]
        return wins

    def _kernel(self, rows: Floats) -> Floats:
        """The kernel between rows and support vectors, (rows, vectors)."""
        distance = (rows**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2 * rows @ self.vectors.T
        return np.asarray(np.exp(-self.width[0] * np.maximum(distance, 0.0)))

    def arrays(self) -> Arrays:
        kernel = {name: getattr(self, name) for name in ("vectors", "weights", "offset", "width")}
        return {**self.scale.arrays(), **kernel}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, classes: int) -> "KernelScorer":
        pairs = classes * (classes - 1) // 2
        vectors = read_array(arrays, "vectors", np.float64, (None, features))
        return cls(
            FeatureScale.restore(arrays, features),
            vectors,
            read_array(arrays, "weights", np.float64, (pairs, len(vectors))),
            read_array(arrays, "offset", np.float64, (pairs,)),
            read_array(arrays, "width", np.float64, (1,)),
        )


def _count_classes(pairs: int) -> int:
    return (1 + math.isqrt(1 + 8 * pairs)) // 2


SCORERS: dict[str, type[Scorer]] = {
    kind.kind: kind for kind in (ConstantScorer, TreeScorer, LinearScorer, NetworkScorer, KernelScorer)
}


Learner = Callable[[Floats, Ints, int], Scorer]  # rows, labels from 0 without gaps, seed


def fit_scorer(model: str | Learner, rows: Floats, labels: Ints, *, seed: int) -> tuple[Scorer, Ints]:
    """A scorer for the classes in `labels`, and these classes, (classes,) ascending.

    `model` is a name from LEARNERS, or a learner function. Labels may be any integers; a class without rows
    is never predicted.
    """
    classes, indices = np.unique(labels, return_inverse=True)
    if len(classes) == 1:
        return ConstantScorer(), classes
    learn = LEARNERS[model] if isinstance(model, str) else model
    return learn(rows, np.asarray(indices, dtype=np.int64), seed), classes


def _fit_xgboost(rows: Floats, labels: Ints, seed: int) -> Scorer:
    booster = train_classifier(rows, labels, seed)
    outputs = int(labels.max()) + 1
    return TreeScorer(read_booster(booster.save_raw("json"), outputs=outputs))


def train_classifier(rows: Floats, labels: Ints, seed: int) -> Any:  # noqa: ANN401 # imported where it trains
    """XGBoost trees with the paper's settings; labels are 0, 1, ... without gaps."""
    xgboost = import_xgboost()

    settings: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": int(labels.max()) + 1,
        "max_depth": _DEPTH,
        "learning_rate": _RATE,
        "seed": seed,
        "nthread": 1,  # the same trees on every machine; enough for hundreds of rows
        "verbosity": 0,
    }
    data = xgboost.DMatrix(rows.astype(np.float32), label=labels)
    return train_booster(settings, data, _ROUNDS)


def _fit_forest(rows: Floats, labels: Ints, seed: int) -> Scorer:
    with needs_extra("fit"):
        from sklearn.ensemble import RandomForestClassifier

    fill = FeatureScale.fit(rows).mean
    filled = np.where(np.isnan(rows), fill, rows)
    model = RandomForestClassifier(n_estimators=_FOREST_TREES, random_state=seed, n_jobs=1).fit(
        filled, labels
    )
    return TreeScorer(
        read_forest([each.tree_ for each in model.estimators_], outputs=int(labels.max()) + 1), fill
    )


def _fit_logistic(rows: Floats, labels: Ints, seed: int) -> Scorer:
    with needs_extra("fit"):
        from sklearn.linear_model import LogisticRegression

    scale = FeatureScale.fit(rows)
    model = _fit_quietly(LogisticRegression(max_iter=_MAX_STEPS, random_state=seed), scale(rows), labels)
    weights, offset = model.coef_.T, model.intercept_
    if len(offset) == 1:  # two classes have one score, for the second
        weights, offset = np.hstack([np.zeros_like(weights), weights]), np.append(0.0, offset)
    return LinearScorer(
        scale, np.ascontiguousarray(weights, dtype=np.float64), np.asarray(offset, dtype=np.float64)
    )


def fit_network(rows: Floats, labels: Ints, seed: int, *, steps: int = _MAX_STEPS // 2) -> Scorer:
    """A multi-layer perceptron, trained for at most `steps` rounds."""
    with needs_extra("fit"):
        from sklearn.neural_network import MLPClassifier

    scale = FeatureScale.fit(rows)
    untrained = MLPClassifier(hidden_layer_sizes=(_HIDDEN_UNITS,), max_iter=steps, random_state=seed)
    model = _fit_quietly(untrained, scale(rows), labels)
    (inner, outer), (inner_offset, outer_offset) = model.coefs_, model.intercepts_
    if len(outer_offset) == 1:
        outer, outer_offset = np.hstack([np.zeros_like(outer), outer]), np.append(0.0, outer_offset)
    return NetworkScorer(scale, inner, inner_offset, outer, outer_offset)


def _fit_svm(rows: Floats, labels: Ints, seed: int) -> Scorer:
    with needs_extra("fit"):
        from sklearn.svm import SVC

    scale = FeatureScale.fit(rows)
    scaled = scale(rows)
    width = 1.0 / (rows.shape[1] * max(float(scaled.var()), 1e-12))
    model = SVC(kernel="rbf", gamma=width, random_state=seed).fit(scaled, labels)
    vectors = np.asarray(model.support_vectors_, dtype=np.float64)
    return KernelScorer(scale, vectors, *_pairwise_weights(model), np.array([width]))


def _pairwise_weights(model: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 # scikit-learn has no types
    """Weights (pairs, vectors) and offsets (pairs,), from scikit-learn's shared dual coefficients."""
    counts = model.n_support_
    edges = np.concatenate([[0], np.cumsum(counts)])
    # with two classes scikit-learn flips the sign: the second class wins above 0
    sign = -1.0 if len(counts) == 2 else 1.0
    weights = []
    for first, second in zip(*np.triu_indices(len(counts), 1), strict=True):
        row = np.zeros(edges[-1])
        for own, row_index in ((first, second - 1), (second, first)):
            columns = slice(edges[own], edges[own + 1])
            row[columns] = model.dual_coef_[row_index, columns]
        weights.append(sign * row)
    return np.array(weights), sign * np.asarray(model.intercept_, dtype=np.float64)


def _fit_quietly(model: Any, rows: Floats, labels: Ints) -> Any:  # noqa: ANN401
    """Fits the model, hiding convergence warnings, which don't concern the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, labels)


LEARNERS: dict[str, Learner] = {
    "xgboost": _fit_xgboost,
    "logistic": _fit_logistic,
    "svm": _fit_svm,
    "forest": _fit_forest,
    "mlp": fit_network,
}


class ClassifierPolicy(FeaturePolicy):
    """Predicts the oracle's budget; fitted for one average budget.

    `model` is "xgboost" (the paper's), "logistic", "svm", "forest" or "mlp". `features` is "text+entropy",
    "text" or "entropy"; entropy is dropped if it isn't recorded.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = ClassifierPolicy(features="text").fit(pool, budget=2.0)
    ...     budgets = policy.predict_budgets(pool)
    >>> set(budgets.tolist()) <= {1, 2, 4, 8, 16}
    True
    """

    kind = "classifier"
    setting_names = ("model", "budgets", "features", "seed", "longest", "weigh")

    budget_: float  # the average that it was fitted for
    classes_: Ints  # (classes,) possible budgets, ascending
    scorer_: Scorer

    def __init__(
        self,
        model: str = "xgboost",
        *,
        budgets: Sequence[int] = BUDGETS,
        features: str = "text+entropy",
        seed: int = 0,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        check_choice("model", model, LEARNERS)
        self.model = model
        super().__init__(budgets=budgets, features=features, seed=seed, longest=longest, weigh=weigh)

    def fit(self, pool: Pool | Ballots, *, budget: float | None = None) -> Self:
        """Learns the oracle's budgets for an average of `budget` samples."""
        if budget is None:
            raise PolicyError("the classifier is fitted for one average budget; give fit(pool, budget=2.0)")
        ballots = get_ballots(pool)
        labels = self.compute_labels(ballots, budget)
        feature_set = FeatureSet.parse(self.features).drop_missing_entropy(ballots)
        rows = feature_set.build_rows(feature_set.read(ballots.prompts), ballots.entropy[:, 0])
        self._set_model(*fit_scorer(self.model, rows, labels, seed=self.seed), feature_set)
        self.budget_, self.source_model = float(budget), ballots.model
        return self

    def compute_labels(self, source: Pool | Ballots, budget: float) -> Ints:
        """The labels: the oracle's budget of each problem in samples, (problems,)."""
        ballots = get_ballots(source)
        if parse_finite(budget) is None:
            raise BudgetOutOfRange(
                f"budget {format_value(budget)} is not a number of samples; "
                f"give {self.modes[0]} to {self.modes[-1]}"
            )
        table = score_votes(ballots, self.modes, self.weigh)
        return np.asarray(self.modes, dtype=np.int64)[solve(table, budget=budget).choice]

    def predict_budgets(self, source: Pool | Ballots) -> Ints:
        """The budget predicted for each problem from its first recorded sample, (problems,)."""
        ballots = get_ballots(source)
        rows = self.get_feature_set().build_rows(self.read(ballots.prompts), ballots.entropy[:, 0])
        return self.choose_budgets(rows, None)

    def choose_budgets(self, rows: Floats, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        best: Ints = self._predict_class(rows)
        return self.classes_[best]

    def _set_model(self, scorer: Scorer, classes: Ints, feature_set: FeatureSet) -> None:
        self.scorer_, self.classes_ = scorer, classes
        self._predict_class = RowCache(scorer.predict)
        self.set_feature_set(feature_set)

    def dump_learned(self) -> dict[str, Any]:
        if not hasattr(self, "scorer_"):
            return {"learned": None}
        learned = {
            "budget": self.budget_,
            "classes": self.classes_.tolist(),
            "scorer": self.scorer_.kind,
            "entropy": self.feature_set_.entropy,
        }
        return {"learned": learned}

    def arrays(self) -> Arrays:
        return self.scorer_.arrays() if hasattr(self, "scorer_") else {}

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        stored = learned["learned"]
        if stored is None:
            return
        if not isinstance(stored, Mapping) or set(stored) != {"budget", "classes", "scorer", "entropy"}:
            raise PolicyError("learned lacks budget, classes, scorer or entropy")
        feature_set = FeatureSet.parse(self.features).with_entropy(
            check_flag("learned entropy", stored["entropy"])
        )
        classes = check_ascending("learned classes", stored["classes"], high=self.longest)
        check_choice("learned scorer", stored["scorer"], SCORERS)
        scorer = SCORERS[stored["scorer"]].restore(arrays, features=feature_set.width, classes=len(classes))
        self.budget_ = check_number("learned budget", stored["budget"], low=0)
        self._set_model(scorer, np.array(classes, dtype=np.int64), feature_set)
