"""The learners that the paper's ablation compares: boosted trees, and four of scikit-learn.

A feature that isn't known counts as average, but for boosted trees, which learn where it goes.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from adacompute.policies.classifier import fit_trees, predict_classes

__all__ = ["Learner", "Predict", "fit_learner"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Predict = Callable[[Floats], Ints]  # the class of each row
Learner = Callable[[Floats, Ints, int], Predict]  # rows, labels, seed

_STEPS = 2000  # of a solver, at most
MLP_STEPS = 200  # rounds of the MLP, scikit-learn's own default: with 1,000 it overfits
_FOREST_TREES, _HIDDEN_UNITS = 100, 64


def fit_learner(name: str, rows: Floats, labels: Ints, *, seed: int) -> Predict:
    """What a learner, by its name, predicts of rows; labels may be any integers."""
    if len(np.unique(labels)) == 1 or name == "xgboost":
        trees, classes = fit_trees(rows, labels, seed=seed)
        return lambda others: classes[predict_classes(trees, others)]
    return _LEARNERS[name](rows, labels, seed)


def _scale(rows: Floats) -> tuple[Floats, Floats]:
    """The mean of each feature, and its standard deviation, or 1, (features,) both."""
    known = ~np.isnan(rows)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rows, 0.0).sum(axis=0) / count
    deviation = np.sqrt((np.where(known, rows - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(deviation > 1e-12, deviation, 1.0)


def _fit_scaled(build: Callable[[Floats, int], Any], rows: Floats, labels: Ints, seed: int) -> Predict:
    """A model of scikit-learn's on features of mean 0 and deviation 1."""
    mean, deviation = _scale(rows)

    def scale(others: Floats) -> Floats:
        return np.asarray(np.nan_to_num((others - mean) / deviation, nan=0.0))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        model = build(scale(rows), seed).fit(scale(rows), labels)
    return lambda others: np.asarray(model.predict(scale(others)))


def _fit_forest(rows: Floats, labels: Ints, seed: int) -> Predict:
    mean, _ = _scale(rows)
    model = RandomForestClassifier(n_estimators=_FOREST_TREES, random_state=seed, n_jobs=1)
    model.fit(np.where(np.isnan(rows), mean, rows), labels)
    return lambda others: np.asarray(model.predict(np.where(np.isnan(others), mean, others)))


def _build_logistic(_: Floats, seed: int) -> Any:  # noqa: ANN401 # scikit-learn has no types
    return LogisticRegression(max_iter=_STEPS, random_state=seed)


def _build_svm(rows: Floats, seed: int) -> Any:  # noqa: ANN401
    return SVC(kernel="rbf", gamma=1.0 / (rows.shape[1] * max(float(rows.var()), 1e-12)), random_state=seed)


def _build_network(_: Floats, seed: int) -> Any:  # noqa: ANN401
    return MLPClassifier(hidden_layer_sizes=(_HIDDEN_UNITS,), max_iter=MLP_STEPS, random_state=seed)


_LEARNERS: dict[str, Learner] = {
    "logistic": partial(_fit_scaled, _build_logistic),
    "svm": partial(_fit_scaled, _build_svm),
    "forest": _fit_forest,
    "mlp": partial(_fit_scaled, _build_network),
}
