"""Training: rows and classes -> a scorer. Knows nothing of budgets or prompts; serving needs none of it.

XGBoost and scikit-learn are imported inside the functions that train: who serves needs neither.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.policies.scorers import Constant, Forest, Kernel, Linear, Network, Scale, Scorer
from adacompute.policies.trees import of_booster, of_forest

__all__ = ["LEARNERS", "Learner", "gains", "learned", "network"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Learner = Callable[[Floats, Ints, int], Scorer]  # rows, labels from 0 on without a gap, seed

_ROUNDS, _DEPTH, _RATE = 100, 5, 0.1  # the paper's
_FOREST = 100  # trees
_UNITS = 64
_STEPS = 2000  # of a solver, at most


def learned(model: str | Learner, rows: Floats, labels: Ints, *, seed: int) -> tuple[Scorer, Ints]:
    """A scorer of the classes that are there, and which they are, (classes,) rising.

    `model` is one of LEARNERS by name, or a learner of one's own. Labels may be any whole numbers; those that
    no row has are never predicted.
    """
    classes, places = np.unique(labels, return_inverse=True)
    if len(classes) == 1:
        return Constant(), classes
    learn = LEARNERS[model] if isinstance(model, str) else model
    return learn(rows, np.asarray(places, dtype=np.int64), seed), classes


def gains(rows: Floats, labels: Ints, *, seed: int) -> Floats:
    """How much a split on each feature adds to the boosted trees' fit, (features,): shares of their sum.

    XGBoost's own importance: a mean over splits, on the very rows that are learned from. All 0 where nothing
    was split.
    """
    found = np.zeros(rows.shape[1])
    classes, places = np.unique(labels, return_inverse=True)
    if len(classes) > 1:
        booster = _booster(rows, np.asarray(places, dtype=np.int64), seed)
        for name, gain in booster.get_score(importance_type="gain").items():
            found[int(name.removeprefix("f"))] = gain
    return found / max(float(found.sum()), np.finfo(float).tiny)


def _xgboost(rows: Floats, labels: Ints, seed: int) -> Scorer:
    booster = _booster(rows, labels, seed)
    outputs = int(labels.max()) + 1
    return Forest(of_booster(booster.save_raw("json"), outputs=outputs))


def _booster(rows: Floats, labels: Ints, seed: int) -> Any:  # noqa: ANN401 # imported where it trains
    import xgboost

    settings: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": int(labels.max()) + 1,
        "max_depth": _DEPTH,
        "learning_rate": _RATE,
        "seed": seed,
        "nthread": 1,  # the same trees on every machine; hundreds of rows need no more
        "verbosity": 0,
    }
    data = xgboost.DMatrix(rows.astype(np.float32), label=labels)
    return xgboost.train(settings, data, num_boost_round=_ROUNDS)


def _forest(rows: Floats, labels: Ints, seed: int) -> Scorer:
    from sklearn.ensemble import RandomForestClassifier

    fill = Scale.of(rows).mean
    known = np.where(np.isnan(rows), fill, rows)
    model = RandomForestClassifier(n_estimators=_FOREST, random_state=seed, n_jobs=1).fit(known, labels)
    return Forest(of_forest([each.tree_ for each in model.estimators_], outputs=int(labels.max()) + 1), fill)


def _logistic(rows: Floats, labels: Ints, seed: int) -> Scorer:
    from sklearn.linear_model import LogisticRegression

    scale = Scale.of(rows)
    model = _quietly(LogisticRegression(max_iter=_STEPS, random_state=seed), scale(rows), labels)
    weights, offset = model.coef_.T, model.intercept_
    if len(offset) == 1:  # two classes: one score, of the second
        weights, offset = np.hstack([np.zeros_like(weights), weights]), np.append(0.0, offset)
    return Linear(
        scale, np.ascontiguousarray(weights, dtype=np.float64), np.asarray(offset, dtype=np.float64)
    )


def network(rows: Floats, labels: Ints, seed: int, *, steps: int = _STEPS // 2) -> Scorer:
    """The MLP, trained for so many rounds at most."""
    from sklearn.neural_network import MLPClassifier

    scale = Scale.of(rows)
    blank = MLPClassifier(hidden_layer_sizes=(_UNITS,), max_iter=steps, random_state=seed)
    model = _quietly(blank, scale(rows), labels)
    (inner, outer), (inner_offset, outer_offset) = model.coefs_, model.intercepts_
    if len(outer_offset) == 1:
        outer, outer_offset = np.hstack([np.zeros_like(outer), outer]), np.append(0.0, outer_offset)
    return Network(scale, inner, inner_offset, outer, outer_offset)


def _svm(rows: Floats, labels: Ints, seed: int) -> Scorer:
    from sklearn.svm import SVC

    scale = Scale.of(rows)
    scaled = scale(rows)
    width = 1.0 / (rows.shape[1] * max(float(scaled.var()), 1e-12))
    model = SVC(kernel="rbf", gamma=width, random_state=seed).fit(scaled, labels)
    vectors = np.asarray(model.support_vectors_, dtype=np.float64)
    return Kernel(scale, vectors, *_pairs(model), np.array([width]))


def _pairs(model: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 # scikit-learn has no types
    """Weights (pairs, vectors) and offsets (pairs,): a row of dual coefficients serves several pairs."""
    counts = model.n_support_
    edges = np.concatenate([[0], np.cumsum(counts)])
    # with two classes scikit-learn turns the sign round, so that the second class is above 0
    sign = -1.0 if len(counts) == 2 else 1.0
    weights = []
    for one, other in zip(*np.triu_indices(len(counts), 1), strict=True):
        row = np.zeros(edges[-1])
        for mine, theirs in ((one, other - 1), (other, one)):
            here = slice(edges[mine], edges[mine + 1])
            row[here] = model.dual_coef_[theirs, here]
        weights.append(sign * row)
    return np.array(weights), sign * np.asarray(model.intercept_, dtype=np.float64)


def _quietly(model: Any, rows: Floats, labels: Ints) -> Any:  # noqa: ANN401
    """Fitted; that it stopped before it had settled is no news to the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, labels)


LEARNERS: dict[str, Learner] = {
    "xgboost": _xgboost,
    "logistic": _logistic,
    "svm": _svm,
    "forest": _forest,
    "mlp": network,
}
