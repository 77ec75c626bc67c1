"""Recorded paths -> a judge: the advantage of going on, by backward induction, learned at a few prices.

Doesn't know what an answer is worth (right, or agreeing with the full vote): it is told. At each price the
paths are followed back from their end: going on from a state is worth what its paths went on to get under a
first policy over plain tallies, less the price of their draws; trees learn how that advantage depends on the
state: one step of policy improvement over a policy that is good already. The price at which the advantage
falls through zero is the state's critical price, which a last set of trees learns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.paths import Paths
from adacompute.policies.stopping.counts import look_up
from adacompute.policies.stopping.judge import Judge, crossing
from adacompute.policies.stopping.states import SIGNS, states
from adacompute.policies.trees import of_booster

__all__ = ["PRICES", "learned"]

Floats = npt.NDArray[np.float64]

PRICES = np.geomspace(0.0015, 0.13, 7)
_TREES = 40
_SETTINGS: dict[str, Any] = {
    "max_depth": 4,
    "eta": 0.1,
    "tree_method": "hist",
    "min_child_weight": 100,  # rows, many of them of one problem
    "reg_lambda": 50,
    "max_bin": 64,
    "subsample": 0.7,
    "colsample_bynode": 0.7,
    "nthread": 1,
    "base_score": 0.0,
    "verbosity": 0,
}
_LAST: dict[str, Any] = {"max_depth": 5, "eta": 0.2, "min_child_weight": 20, "reg_lambda": 1}
_LAST_TREES = 40


def learned(
    recordings: Sequence[Paths],
    values: Sequence[Floats],
    table: Floats,
    *,
    hints: Sequence[Floats] | None = None,
    seed: int = 0,
) -> Judge:
    """A judge of states, and of what prompts hint at where `hints` are given, (problems, hints) each.

    `values` are (longest, paths), one a recording; `table` is what `counts_table` gives.
    """
    import xgboost as xgb

    steps = recordings[0].longest - 1
    rows = np.concatenate([_rows(recordings, t, hints) for t in range(steps)]).astype(np.float32)
    worth = np.concatenate(values, axis=1)
    first = np.stack([_first(recordings, t, table) for t in range(steps)])  # (steps, paths)
    data = xgb.QuantileDMatrix(rows, label=np.zeros(len(rows)), max_bin=_SETTINGS["max_bin"])
    extra = rows.shape[1] - len(SIGNS)
    settings = {**_SETTINGS, "seed": seed, "monotone_constraints": (*SIGNS, *(0,) * extra)}
    advantages = []
    for price in PRICES:
        data.set_label(_advantages(worth, first > np.log(price), price).ravel())
        advantages.append(xgb.train(settings, data, _TREES).predict(data))
    # one set of trees for the critical price itself: a request is decided by these alone
    data.set_label(crossing(PRICES, np.stack(advantages, axis=1)))
    grown = xgb.train({**settings, **_LAST}, data, _LAST_TREES)
    return Judge(trees=of_booster(grown.save_raw("json"), outputs=1))


def _advantages(worth: Floats, goes: npt.NDArray[np.bool_], price: float) -> Floats:
    """What going on has brought over stopping, net of its price, (steps, paths)."""
    found = np.empty(goes.shape)
    later = worth[-1].copy()
    for t in range(len(goes) - 1, -1, -1):
        found[t] = later - price - worth[t]
        later = np.where(goes[t], later - price, worth[t])
    return found


def _rows(recordings: Sequence[Paths], t: int, hints: Sequence[Floats] | None) -> Floats:
    parts = []
    for k, one in enumerate(recordings):
        every = np.arange(len(one))
        found = states(one.standing(every, np.full(len(one), t + 1)))
        parts.append(found if hints is None else np.hstack([found, np.repeat(hints[k], one.orders, axis=0)]))
    return np.concatenate(parts)


def _first(recordings: Sequence[Paths], t: int, table: Floats) -> Floats:
    parts = []
    for one in recordings:
        first, second = one.first[t].astype(np.int64), one.second[t].astype(np.int64)
        parts.append(look_up(table, np.full(len(one), t + 1), first, second))
    return np.concatenate(parts)
