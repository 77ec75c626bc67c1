"""Learns critical prices (the highest prices at which another sample pays) from one pool.

They depend on votes and on hints: numbers that a ridge regression predicts from a prompt's words and word
pairs. Critical prices are averaged with the prior's, which count less the more problems the pool has. Hints
are used only if they predict held-out problems better than the mean by two standard errors. A training prompt
gets hints that were learned from other prompts.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays, read_array
from adacompute.policies.paths import Paths, draw_paths
from adacompute.policies.stopping.critical_price import FEATURE_NAMES, CriticalPriceTrees, fit_critical_prices
from adacompute.policies.stopping.prior import Prior, compute_values, fingerprint_prompts
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots

HINT_COUNT = 3  # number of hints per prompt (numbers that are predicted from its words)
BUCKETS = 4096  # number of hash buckets for words
_MAX_CHARACTERS = 4000  # number of characters of a prompt that are read, to save time
_TOKENS = re.compile(r"[a-z]{1,40}|\d|[^\sa-z\d]")  # a word, a digit or another character
_PENALTIES = (0.3, 1.0, 3.0, 10.0)
_FOLDS = 5
_PAIR_FACTOR = 31  # multiplies the hash of a word pair's first word, so that pairs in reverse order differ
_STANDARD_ERRORS = 2.0  # words are used only if they predict better than the mean by 2 standard errors
_PATHS = 6000  # number of random orders (paths) over all problems; twice as many don't improve the model
_ORDERS = (8, 64)  # minimum and maximum number of random orders per problem
_MAX_HINT_PROBLEMS = 2000  # maximum number of problems to learn from words; training time grows with its cube
_EQUAL_WEIGHT_HINTS = 120  # number of problems for which a model that uses words weighs as much as the prior
_EQUAL_WEIGHT_BARE = 480  # number of problems for which a model without words weighs as much as the prior


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptHints:
    """Predicts three numbers (hints) from a prompt: accuracy of a sample and of a vote, gain of voting."""

    mean: Floats  # mean of each predicted number (hint) over the training prompts
    rarity: Floats  # weight of each hash bucket of words; rare words weigh more
    weights: Floats  # coefficients of the regression; shape (buckets, hints)
    fingerprints: npt.NDArray[np.uint64]  # hashes of the training prompts, ascending
    held_out: Floats  # predictions (hints) for each training prompt, learned from other prompts

    def predict(self, prompts: Sequence[str]) -> Floats:
        """Predicts the hints of each prompt, independently of the other prompts."""
        hints = np.empty((len(prompts), HINT_COUNT))
        hashes = fingerprint_prompts(prompts)
        nearest = np.minimum(np.searchsorted(self.fingerprints, hashes), len(self.fingerprints) - 1)
        for row, prompt in enumerate(prompts):
            known = self.fingerprints[nearest[row]] == hashes[row]
            hints[row] = self.held_out[nearest[row]] if known else self._predict_new(prompt)
        return hints

    def _predict_new(self, prompt: str) -> Floats:
        buckets = hash_words(prompt)
        rarity = self.rarity[buckets]
        length = float(np.sqrt((rarity**2).sum()))
        return (
            self.mean
            if length == 0
            else self.mean + (self.weights[buckets] * rarity[:, None]).sum(axis=0) / length
        )

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
        return {
            "hint_mean": self.mean,
            "hint_rarity": self.rarity,
            "hint_weights": self.weights,
            "hint_taught": self.fingerprints,
            "hint_told": self.held_out,
        }

    @classmethod
    def restore(cls, arrays: Arrays) -> "PromptHints":
        """Restores the regression from arrays; raises PolicyInvalid if they are invalid."""
        fingerprints = read_array(arrays, "hint_taught", np.uint64, (None,))
        if not len(fingerprints) or (fingerprints[1:] < fingerprints[:-1]).any():
            raise PolicyInvalid("array 'hint_taught' doesn't ascend, or is empty")
        hints = cls(
            mean=read_array(arrays, "hint_mean", np.float64, (HINT_COUNT,)),
            rarity=read_array(arrays, "hint_rarity", np.float64, (BUCKETS,)),
            weights=read_array(arrays, "hint_weights", np.float64, (BUCKETS, HINT_COUNT)),
            fingerprints=fingerprints,
            held_out=read_array(arrays, "hint_told", np.float64, (len(fingerprints), HINT_COUNT)),
        )
        if (hints.rarity < 0).any():
            raise PolicyInvalid("array 'hint_rarity' holds a number below 0")
        return hints


def fit_hints(prompts: Sequence[str], targets: Floats, *, seed: int) -> PromptHints | None:
    """Learns to predict `targets`, of shape (problems, HINT_COUNT), from the words of prompts.

    The targets of equal prompts are averaged. Returns None if there are too few prompts, or if words don't
    help to predict held-out ones.
    """
    fingerprints, first, prompt_index = np.unique(
        fingerprint_prompts(prompts), return_index=True, return_inverse=True
    )
    if len(fingerprints) < 2 * _FOLDS:  # too few prompts to test whether words help
        return None
    counts = np.bincount(prompt_index)[:, None]
    targets = np.stack([np.bincount(prompt_index, column) for column in targets.T], axis=1) / counts
    word_marks = mark_words([prompts[row] for row in first])
    used = np.flatnonzero(word_marks.any(axis=0))  # buckets that occur in a prompt
    word_marks = np.ascontiguousarray(word_marks[:, used])
    folds = np.random.default_rng(seed).permutation(len(fingerprints)) % _FOLDS
    guesses = _predict_held_out(word_marks, targets, folds)
    errors = [((targets - out) ** 2).sum(axis=1) for out in guesses]  # squared error on each prompt
    best = int(np.argmin([error.sum() for error in errors]))
    gain = ((targets - targets.mean(axis=0)) ** 2).sum(axis=1) - errors[best]
    if not gain.mean() > _STANDARD_ERRORS * gain.std() / len(gain) ** 0.5:
        return None
    rarity, weights = np.full(BUCKETS, compute_rarity(0, len(word_marks))), np.zeros((BUCKETS, HINT_COUNT))
    rarity[used], (weights[used],) = _fit_ridges(word_marks, targets, _PENALTIES[best : best + 1])
    return PromptHints(
        mean=targets.mean(axis=0),
        rarity=rarity,
        weights=weights,
        fingerprints=fingerprints,
        held_out=guesses[best],
    )


def _predict_held_out(word_marks: Floats, targets: Floats, folds: Ints) -> Floats:
    """Predicts `targets` in each fold, with ridge regressions trained on the other folds.

    There is one regression per penalty. The result has shape (penalties, prompts, HINT_COUNT).
    """
    predictions = np.empty((len(_PENALTIES), *targets.shape))
    for fold in range(_FOLDS):
        training = folds != fold
        rarity, fitted = _fit_ridges(word_marks[training], targets[training], _PENALTIES)
        rows = normalise(word_marks[~training], rarity)
        for index, weights in enumerate(fitted):
            predictions[index, ~training] = targets[training].mean(axis=0) + rows @ weights
    return predictions


def hash_words(prompt: str) -> Ints:
    """Hashes a prompt's words and word pairs to buckets; returns distinct buckets in ascending order."""
    hashes = np.array(
        [
            zlib.crc32(word.encode(errors="replace"))
            for word in _TOKENS.findall(prompt[:_MAX_CHARACTERS].lower())
        ],
        dtype=np.int64,
    )
    pairs = hashes[:-1] * _PAIR_FACTOR + hashes[1:]
    return np.unique(np.concatenate([hashes, pairs]) % BUCKETS)


def mark_words(prompts: Sequence[str]) -> Floats:
    """Marks the hash buckets of each prompt's words and word pairs with 1; shape (prompts, BUCKETS)."""
    marks = np.zeros((len(prompts), BUCKETS))
    for row, prompt in enumerate(prompts):
        marks[row, hash_words(prompt)] = 1.0
    return marks


def _fit_ridges(marks: Floats, targets: Floats, penalties: Sequence[float]) -> tuple[Floats, list[Floats]]:
    """Fits a ridge regression for each penalty; returns the rarity of words, and coefficients by penalty.

    A regression predicts the mean target plus `normalise(marks, rarity) @ coefficients`.
    """
    rarity = compute_rarity(marks.sum(axis=0), len(marks))
    rows = normalise(marks, rarity)
    centred = targets - targets.mean(axis=0)
    gram = rows @ rows.T
    duals = [np.linalg.solve(gram + penalty * np.eye(len(rows)), centred) for penalty in penalties]
    return rarity, [rows.T @ dual for dual in duals]


def compute_rarity(counts: Floats | int, prompts: int) -> Floats:
    """Computes the weight (rarity) of a hash bucket, given how many of the prompts contain its words."""
    return np.asarray(np.log((1 + prompts) / (1 + counts)) + 0.1)


def normalise(marks: Floats, rarity: Floats) -> Floats:
    """Multiplies marks of words by their rarity, and scales each prompt's row to length 1."""
    weighted = marks * rarity
    return np.asarray(weighted / np.maximum(np.sqrt((weighted**2).sum(axis=1, keepdims=True)), 1e-12))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolModel:
    """A model, learned from one pool, of the highest price at which another sample pays (critical price).

    Its critical prices are averaged with the prior's.
    """

    trees: CriticalPriceTrees  # predict from votes, and `hints` if any, up to which price another sample pays
    hints: PromptHints | None
    problems: int
    labels: bool  # whether the model learned from labels in addition to agreement
    weighted: bool  # whether the model learned from weighted votes
    fingerprints: npt.NDArray[np.uint64]  # hashes of the training prompts, ascending

    @property
    def share(self) -> float:
        """The weight of this model's critical prices in their average with the prior's, from 0 to 1.

        It is 0 if the model uses neither weighted votes nor prompts, as it then can't improve on the prior.
        """
        if self.hints is None and not self.weighted:
            return 0.0
        return self.problems / (
            self.problems + (_EQUAL_WEIGHT_BARE if self.hints is None else _EQUAL_WEIGHT_HINTS)
        )

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
        arrays = {**self.trees.arrays("own_"), "taught": self.fingerprints}
        return arrays if self.hints is None else {**arrays, **self.hints.arrays()}

    @classmethod
    def restore(
        cls, arrays: Arrays, *, problems: int, labels: bool, weighted: bool, has_hints: bool
    ) -> "PoolModel":
        """Restores a model from arrays; raises PolicyInvalid if they are invalid."""
        trees = CriticalPriceTrees.restore(
            arrays, "own_", features=len(FEATURE_NAMES) + (HINT_COUNT if has_hints else 0)
        )
        hints = PromptHints.restore(arrays) if has_hints else None
        fingerprints = np.sort(read_array(arrays, "taught", np.uint64, (None,)))
        return cls(
            trees=trees,
            hints=hints,
            problems=problems,
            labels=labels,
            weighted=weighted,
            fingerprints=fingerprints,
        )


def fit_pool_model(
    ballots: Ballots,
    prior: Prior,
    *,
    weigh: VoteWeights | None,
    longest: int,
    labels: bool,
    features: bool,
    seed: int,
) -> PoolModel:
    """Fits a model to these samples; with `features`, also uses the words of prompts if they help."""
    orders = int(np.clip(_PATHS // max(1, len(ballots)), *_ORDERS))
    recorded_paths = draw_paths(
        ballots, rng=np.random.default_rng(seed), orders=orders, longest=longest, weigh=weigh
    )
    values = compute_values(recorded_paths, labels=labels)
    hints = _fit_pool_hints(ballots, recorded_paths, labels=labels, seed=seed) if features else None
    # three numbers per prompt, predicted by regressions that weren't trained on this prompt
    prompt_hints = None if hints is None else [hints.predict(ballots.prompts)]
    trees = fit_critical_prices([recorded_paths], [values], prior.table, hints=prompt_hints, seed=seed)
    return PoolModel(
        trees=trees,
        hints=hints,
        problems=len(ballots),
        labels=labels,
        weighted=weigh is not None,
        fingerprints=np.unique(fingerprint_prompts(ballots.prompts)),
    )


def _fit_pool_hints(
    ballots: Ballots, recorded_paths: Paths, *, labels: bool, seed: int
) -> PromptHints | None:
    """Learns to predict hints from words, on at most 2,000 problems; with `labels`, only on labelled ones."""
    targets = _hint_targets(recorded_paths, labels=labels)
    rows = np.flatnonzero(np.isfinite(targets).all(axis=1))
    if len(rows) > _MAX_HINT_PROBLEMS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _MAX_HINT_PROBLEMS, replace=False))
    return fit_hints([ballots.prompts[row] for row in rows], targets[rows], seed=seed)


def _hint_targets(recorded_paths: Paths, *, labels: bool) -> Floats:
    """Computes, for each problem, what is predicted from its prompt's words; shape (problems, HINT_COUNT).

    The three numbers are the value of one sample, the value of a vote of a path's samples, and how much a
    vote of half of them gains over one sample.
    """
    values = recorded_paths.grade if labels else recorded_paths.agrees
    single, half, last = (
        recorded_paths.mean_per_problem(values[t])
        for t in (0, recorded_paths.longest // 2 - 1, recorded_paths.longest - 1)
    )
    return np.stack([single, last, half - single], axis=1)
