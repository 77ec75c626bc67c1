"""The prior of priced stopping: critical prices learned from other recordings than the user's.

A critical price is the highest price at which another sample pays. The prior averages a table by numbers of
votes with trees that also use the model's confidence. The more problems the trees were trained on, the more
they count. Hashes of its training prompts (fingerprints) keep a prior from being evaluated on these prompts.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers.vote import SignalModel
from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.policies.artefact import read_artefact
from adacompute.policies.base import Arrays, read_array
from adacompute.policies.chart import Chart, read_chart
from adacompute.policies.paths import Paths, draw_paths
from adacompute.policies.stopping.critical_price import (
    FEATURE_NAMES,
    WAVE_QUANTILES,
    CriticalPriceTrees,
    build_price_table,
    compute_state_features,
    fit_critical_prices,
    is_unweighted,
    look_up_prices,
)
from adacompute.policies.votes import Floats, VoteState
from adacompute.policies.weights import fit_confidence_weights, fit_signal_model
from adacompute.pool import Ballots

BUNDLED_PRIORS = (  # "all" was learned on all recordings; each other prior leaves out one recording
    "all",
    "without-facts",
    "without-gsm8k",
    "without-math",
    "without-math500",
    "without-reasoning-gym",
    "without-words",
)
# learned on the recordings "facts" and "words" only; used for pools that combine several other recordings
FALLBACK_PRIOR = "facts-words"
_FOLDER = "priors"
_WIDE: Mapping[str, type] = {"float32": np.float64, "int16": np.int32}
_PATHS = 24000  # number of random orders (paths) over all problems; more hardly improve the prior
_TREES = 40  # number of trees at each price
_ORDERS = (8, 64)  # minimum and maximum number of random orders (paths) per problem
_TABLE_ORDERS = 64  # number of random orders per problem for the table, which is fast to fit
_EQUAL_WEIGHT = 500  # number of training problems for which trees and table have equal weight
_MAX_KNOWN_SHARE = 0.05  # a bundled prior isn't used if it was learned on more than 5% of a pool's prompts


def fingerprint_prompts(prompts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Hashes each prompt, so that prompts can be recognised without being stored."""
    digests = [hashlib.blake2b(prompt.encode(errors="replace"), digest_size=8).digest() for prompt in prompts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prior:
    """Estimates from votes a request's critical price: the highest price at which another sample pays."""

    # logarithm of the highest price at which another sample pays (critical price), at [draws - 1, votes for
    # the leader, votes for the runner-up]
    table: Floats
    trees: CriticalPriceTrees | None  # used if votes are weighted; None if confidence wasn't recorded
    problems: int  # number of problems that the trees were trained on; 0 without trees
    # quantiles, over recorded requests, of the logarithm of the highest price at which another sample pays;
    # shape (quantiles, draws)
    price_quantiles: Floats
    # divisor of a sample's mean log-probability when its vote is weighed; a policy adapted to samples
    # (`settle`) uses its own
    scale: float
    fingerprints: npt.NDArray[np.uint64]  # hashes of the training prompts, ascending
    signal_model: SignalModel | None = None  # weighs votes by further signals; None if none were recorded

    def estimate_critical_prices(self, state: VoteState, rows: Floats) -> Floats:
        """Estimates the logarithm of the highest price at which another sample of each request pays.

        `rows` is `compute_state_features(state)`.
        """
        prices = look_up_prices(self.table, state.drawn, state.first, state.second)
        if self.trees is None:
            return prices
        share = self._tree_share
        unweighted = is_unweighted(state)
        if not unweighted.any():
            return share * self.trees.predict(rows) + (1 - share) * prices
        if not unweighted.all():
            weighted = ~unweighted
            prices[weighted] = share * self.trees.predict(rows[weighted]) + (1 - share) * prices[weighted]
        return prices

    def add_trees(self, price: float, row: Sequence[float]) -> float:
        """Averages `price`, from the table, and the trees' prediction from `row`; both are logarithms."""
        if self.trees is None:
            return price
        share = self._tree_share
        return share * self.trees.predict_row(row) + (1 - share) * price

    @property
    def _tree_share(self) -> float:
        """The weight of the trees' critical price when it is averaged with the table's, from 0 to 1."""
        return self.problems / (self.problems + _EQUAL_WEIGHT)

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
        arrays = {"table": self.table, "openings": self.price_quantiles, "prints": self.fingerprints}
        return arrays if self.trees is None else {**arrays, **self.trees.arrays("weighed_")}

    def settings(self) -> dict[str, Any]:
        """Returns the arguments of `restore` other than the arrays, as plain data."""
        settings = {"problems": self.problems, "scale": self.scale}
        return settings if self.signal_model is None else {**settings, "signals": self.signal_model.dump()}

    @classmethod
    def restore(cls, arrays: Arrays, *, problems: int, scale: float, signals: object = None) -> "Prior":
        """Restores a prior from stored data; raises PolicyInvalid if the data is invalid."""
        table = read_array(arrays, "table", np.float64, (None, None, None))
        if min(table.shape) < 1 or table.shape[1] != table.shape[2]:
            raise PolicyInvalid(f"array 'table' of shape {table.shape} is not a table of tallies")
        fingerprints = read_array(arrays, "prints", np.uint64, (None,))
        return cls(
            table=table,
            trees=CriticalPriceTrees.restore(arrays, "weighed_", features=len(FEATURE_NAMES))
            if problems
            else None,
            problems=problems,
            price_quantiles=read_array(arrays, "openings", np.float64, (len(WAVE_QUANTILES), len(table))),
            scale=scale,
            fingerprints=np.sort(fingerprints),
            signal_model=None if signals is None else SignalModel.load(signals),
        )


def fit_prior(recordings: Sequence[Ballots], *, longest: int, seed: int = 0) -> Prior:
    """Learns a prior from recordings: from agreement with a vote of all samples, and from labels if known.

    Signals other than log-probabilities only train the model that weighs votes (`signal_model`). Critical
    prices are learned without them: few recordings have them, and they didn't improve the trees.
    """
    signal_model = fit_signal_model(recordings)
    fingerprints = np.unique(np.concatenate([fingerprint_prompts(ballots.prompts) for ballots in recordings]))
    recordings = _drop_parts(recordings)
    orders = int(np.clip(_PATHS // max(1, sum(map(len, recordings))), *_ORDERS))
    rng = np.random.default_rng(seed)
    plain_paths = [
        draw_paths(ballots, rng=rng, orders=_TABLE_ORDERS, longest=longest) for ballots in recordings
    ]
    table = build_price_table(plain_paths, [drawn.agrees for drawn in plain_paths])
    weights = [fit_confidence_weights(ballots) for ballots in recordings]
    weighted_rows = [k for k, weigh in enumerate(weights) if weigh is not None]
    weighted_paths = [
        draw_paths(recordings[k], rng=rng, orders=orders, longest=longest, weigh=weights[k])
        for k in weighted_rows
    ]
    trees = (
        fit_critical_prices(
            weighted_paths,
            [compute_values(drawn) for drawn in weighted_paths],
            table,
            seed=seed,
            trees=_TREES,
        )
        if weighted_paths
        else None
    )
    scales = [weigh.scale for weigh in weights if weigh is not None]
    prior = Prior(
        table=table,
        trees=trees,
        problems=sum(len(drawn.ballots) for drawn in weighted_paths),
        price_quantiles=np.zeros((len(WAVE_QUANTILES), longest - 1)),
        scale=float(np.mean(scales)) if scales else -1.0,
        fingerprints=fingerprints,
        signal_model=signal_model,
    )
    return _add_quantiles(prior, weighted_paths or plain_paths)


def _drop_parts(recordings: Sequence[Ballots]) -> list[Ballots]:
    """Leaves out recordings whose samples are the first samples of another recording."""
    return [
        ballots
        for ballots in recordings
        if not any(_is_part(ballots, other) for other in recordings if other is not ballots)
    ]


def _is_part(ballots: Ballots, other: Ballots) -> bool:
    """Whether the samples of `ballots` are the first samples of the recording `other`."""
    count = ballots.classes.shape[1]
    rows = {id_: row for row, id_ in enumerate(other.ids)}
    if count >= other.classes.shape[1] or not rows.keys() >= set(ballots.ids):
        return False
    if not np.isfinite(ballots.logprob).any():  # only log-probabilities can tell whether samples are the same
        return False
    logprob = other.logprob[[rows[id_] for id_ in ballots.ids], :count]
    return np.array_equal(ballots.logprob, logprob, equal_nan=True)


def compute_values(paths: Paths, *, labels: bool = True) -> Floats:
    """Computes the value of the leading answer after each draw, to train on; shape (longest, paths).

    The value is agreement with a vote of all samples. With known labels, it is the mean of agreement and
    correctness, because agreement has less noise, but correctness is the goal.
    """
    if not labels:
        return paths.agrees
    return np.where(np.isnan(paths.grade), paths.agrees, (paths.grade + paths.agrees) / 2)


@functools.cache
def load_bundled_prior(name: str = BUNDLED_PRIORS[0]) -> Prior:
    """Loads one of the priors that come with the package."""
    with as_file(files("adacompute.policies.stopping") / _FOLDER / name) as folder:
        artefact = read_artefact(folder)
    return Prior.restore(widen_arrays(artefact.arrays), **artefact.settings)


def widen_arrays(arrays: Arrays) -> Arrays:
    """Converts a bundled prior's arrays to 64-bit floats and 32-bit integers, except thresholds of trees."""
    return {
        name: array if name.endswith("threshold") else array.astype(_WIDE.get(array.dtype.name, array.dtype))
        for name, array in arrays.items()
    }


@functools.cache
def load_bundled_chart() -> Chart | None:
    """Loads the chart of the unfitted policy; None if it is missing.

    The measurements come from recordings, each replayed with a prior that wasn't learned from this recording.
    """
    with as_file(files("adacompute.policies.stopping") / _FOLDER / BUNDLED_PRIORS[0]) as folder:
        return read_chart(folder, policy=read_artefact(folder).sha256)


def _add_quantiles(prior: Prior, recordings: Sequence[Paths]) -> Prior:
    """Returns the prior with new `price_quantiles`, which are computed on these recordings."""
    quantiles = np.empty(prior.price_quantiles.shape)
    for t in range(len(prior.table)):
        vote_states = [paths.state_at(t + 1) for paths in recordings]
        critical = [
            prior.estimate_critical_prices(state, compute_state_features(state)) for state in vote_states
        ]
        quantiles[:, t] = np.quantile(np.concatenate(critical), WAVE_QUANTILES)
    return replace(prior, price_quantiles=quantiles)


def count_known(prior: Prior, ballots: Ballots) -> int:
    """Counts the prompts in `ballots` that are among the prior's training prompts."""
    return int(np.isin(fingerprint_prompts(ballots.prompts), prior.fingerprints).sum())


def select_unseen_prior(prior: Prior, ballots: Ballots) -> Prior:
    """Returns `prior`, or a bundled prior instead if `prior` was learned on some of these prompts.

    Only a bundled prior is replaced: by the one that was learned on the fewest of the prompts, or by
    FALLBACK_PRIOR if these are too many, as in pools that combine recordings. Raises PolicyError if no prior
    is suitable.
    """
    if not count_known(prior, ballots):
        return prior
    bundled = [load_bundled_prior(name) for name in (*BUNDLED_PRIORS, FALLBACK_PRIOR)]
    if any(_has_same_table(prior, candidate) for candidate in bundled):
        least_known = min(bundled[:-1], key=lambda candidate: count_known(candidate, ballots))
        for candidate in (least_known, bundled[-1]):
            if count_known(candidate, ballots) <= _MAX_KNOWN_SHARE * len(ballots):
                return candidate
    raise build_leakage_error(prior, ballots)


def _has_same_table(prior: Prior, bundled: Prior) -> bool:
    """Whether a prior's table is that of a bundled prior, whose numbers are rounded to 32 bits."""
    same_shape = prior.table.shape == bundled.table.shape
    return same_shape and np.allclose(prior.table, bundled.table, rtol=1e-6, atol=1e-6)


def build_leakage_error(prior: Prior, ballots: Ballots) -> PolicyError:
    """Builds the error to raise if a prior would be evaluated on prompts from which it was learned."""
    return PolicyError(
        f"the prior was learned on {count_known(prior, ballots)} of these {len(ballots)} prompts; "
        "give one that was not (pooled(..., without=...)), so that it is judged on new prompts"
    )


def exclude_shared(recording: Ballots, without: Ballots | None) -> Ballots:
    """Returns the problems of a recording whose prompts aren't in the recording `without`."""
    if without is None:
        return recording
    shared = np.isin(fingerprint_prompts(recording.prompts), fingerprint_prompts(without.prompts))
    return recording.only(np.flatnonzero(~shared)) if shared.any() else recording
