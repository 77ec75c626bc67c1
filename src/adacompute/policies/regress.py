"""Accuracy curves from rows of features: boosted trees, trusted as far as other problems bear them out.

Knows nothing of prices or prompts. Trees on few problems find patterns that aren't there. So each group of
columns is tried on problems that its trees have not seen; the weights that would have served best there
(from 0 up, at most 1 in all) are what the trees keep, and where they would not have beaten the mean curve by
more than two standard errors over prompts, the mean curve is all there is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.policies.trees import Trees, joined, of_booster

__all__ = ["curves", "flat"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ROUNDS = 60
_TREES: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "learning_rate": 0.1,
    "min_child_weight": 5.0,  # problems, not rows: a problem's rows weigh 1 together
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
}
_FOLDS = 5
_SURE = 2.0  # standard errors
_FEWEST = 20  # prompts that can be parted into folds


def curves(
    rows: Floats,
    targets: Floats,
    owner: Ints,
    *,
    groups: Sequence[Ints],
    seed: int,
    alike: Ints | None = None,
) -> Trees:
    """Trees whose outputs are a curve's first value and what each later one adds to it.

    `rows` are (rows, features), `targets` (rows, budgets), `owner` each row's problem, `groups` the columns
    that are tried together. `alike` numbers problems from 0, the same for those of one prompt (None: all
    differ): trees are never tried on a prompt they have seen.
    """
    problems = int(owner.max()) + 1
    weights = 1.0 / np.bincount(owner, minlength=problems)[owner]
    parts = np.hstack([targets[:, :1], targets[:, 1:] - targets[:, :1]])  # (rows, budgets)
    mean = np.average(parts, axis=0, weights=weights)
    kin = owner if alike is None else alike[owner]
    if kin.max() + 1 < _FEWEST:
        return flat(mean)
    trust = _trust(rows, parts, kin, weights, groups=groups, seed=seed)  # (groups, budgets)
    boosters = [
        _grown(rows, parts[:, k] - mean[k], weights, columns, seed).scaled(trust[g, k])
        for g, columns in enumerate(groups)
        for k in range(parts.shape[1])
        if trust[g, k] > 0
    ]
    outputs = [k for g in range(len(groups)) for k in range(parts.shape[1]) if trust[g, k] > 0]
    return joined(boosters, outputs, base=mean) if boosters else flat(mean)


def flat(mean: Floats) -> Trees:
    """The same curve for every row."""
    return joined([], [], base=mean)


def _trust(
    rows: Floats, parts: Floats, kin: Ints, weights: Floats, *, groups: Sequence[Ints], seed: int
) -> Floats:
    """How far each group's trees are believed, for the first value and for the gains, (groups, budgets).

    Rows of one `kin` are never parted: what is learned of some of them would be recalled for the others.
    """
    fold = np.random.default_rng(seed).permutation(int(kin.max()) + 1)[kin] % _FOLDS
    means = np.empty(parts.shape)
    told = np.empty((len(groups), *parts.shape))  # what trees that haven't seen a problem say of it
    for each in range(_FOLDS):
        here, rest = fold == each, fold != each
        means[here] = np.average(parts[rest], axis=0, weights=weights[rest])
        for g, columns in enumerate(groups):
            for k in range(parts.shape[1]):
                centred = parts[rest, k] - means[here][0, k]
                trees = _grown(rows[rest], centred, weights[rest], columns, seed)
                told[g, here, k] = trees.scores(rows[here])[:, 0]
    truth = parts - means
    found = np.zeros((len(groups), parts.shape[1]))
    for some in (slice(0, 1), slice(1, None)):
        found[:, some] = _blend(told[:, :, some], truth[:, some], kin, weights)[:, None]
    return found


def _blend(told: Floats, truth: Floats, kin: Ints, weights: Floats) -> Floats:
    """The weights of the groups that fit best, (groups,); none where they don't help."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    if not truth.size:
        return np.zeros(len(told))
    root = np.sqrt(weights)[:, None]
    part = nnls((told * root).reshape(len(told), -1).T, (truth * root).reshape(-1))[0]
    part = np.asarray(part / max(1.0, float(part.sum())))
    better = (truth**2 - (truth - np.tensordot(part, told, axes=1)) ** 2).sum(axis=1)
    each = np.bincount(kin, weights=better * weights)  # (prompts,)
    if each.mean() <= _SURE * each.std(ddof=1) / len(each) ** 0.5:
        return np.zeros(len(told))
    return part


def _grown(rows: Floats, target: Floats, weights: Floats, columns: Ints, seed: int) -> Trees:
    """Trees of one output; their columns are those of `rows`."""
    import xgboost

    data = xgboost.DMatrix(rows[:, columns].astype(np.float32), label=target, weight=weights)
    booster = xgboost.train({**_TREES, "seed": seed}, data, num_boost_round=_ROUNDS)
    return of_booster(booster.save_raw("json"), outputs=1).moved(columns)
