"""Chooses a rule for each prompt: a ridge regression on hints predicts each rule's value and cost.

Hints are known before any sample: the prompt's letters (which indicate language and script), its length, and
its kinds of words and numbers. The penalty is chosen on held-out groups of problems, and hints that don't
predict them are dropped. A prompt unlike all training prompts gets about their mean, so that votes decide.
"""

import itertools
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays, read_array
from adacompute.policies.features import ENTROPY_COLUMN, FEATURE_KINDS, PROMPT_LIMIT, compute_prompt_features
from adacompute.policies.modes.rules import RoutedRule, Rule, RulePoint
from adacompute.policies.stopping.pool_model import BUCKETS, compute_rarity, mark_words, normalise
from adacompute.policies.stopping.prior import fingerprint_prompts
from adacompute.policies.votes import Floats, Ints
from adacompute.solve.hull import find_hull

_LETTERS = 64  # hash buckets for letters
_PLAIN = ENTROPY_COLUMN + _LETTERS
_HINTS = _PLAIN + BUCKETS
_ARE_COUNTS = np.array([kind == "count" for kind in FEATURE_KINDS[:ENTROPY_COLUMN]])
_WIDTHS = (ENTROPY_COLUMN, _LETTERS, BUCKETS)
_PLAIN_SCALE = np.repeat(1 / np.sqrt(_WIDTHS[:2]), _WIDTHS[:2])  # makes features count as much as letters
# relative weights of features, letters and words
_SHARES = ((1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 3.0))
_FARTHEST = 3.0  # standard deviations at which a hint is clipped
_REACH = 0.99  # share of prompts within reach; those further away count less
_PENALTIES = (10.0, 30.0, 100.0, 300.0)  # in problems
_CHOICES = tuple(itertools.product(_SHARES, _PENALTIES))
_FOLDS = 5
_MAX_PROBLEMS = 2000  # most training problems: time grows with the cube
_PRICES = 24  # prices at which prompts are divided among rules
_SPREAD = 1.5  # range of prices: times the steepest slope of the rules' hull, and below the flattest
_DECIMALS = 9  # predictions are rounded, so that the last bits of a sum don't matter
_Choice = tuple[tuple[float, float, float], float]


def read_hints(prompts: Sequence[str]) -> Floats:
    """The paper's features, the square root of each letter's share, and the words, (prompts, hints)."""
    features = compute_prompt_features(prompts)[:, :ENTROPY_COLUMN]
    letters = np.zeros((len(prompts), _LETTERS))
    for row, prompt in enumerate(prompts):
        for letter, count in Counter(prompt[:PROMPT_LIMIT].lower()).items():
            if letter.isalpha():
                letters[row, zlib.crc32(letter.encode()) % _LETTERS] += count
    letters /= np.maximum(letters.sum(axis=1, keepdims=True), 1)
    counted = np.where(_ARE_COUNTS, np.log1p(features), features)
    return np.hstack([counted, np.sqrt(letters), mark_words(prompts)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleRouter:
    """A ridge regression from hints to each rule's value and cost."""

    rules: tuple[Rule, ...]
    centre: Floats = field(repr=False)  # (plain hints,)
    scale: Floats = field(repr=False)  # (hints,) inverse standard deviation, 0 if constant; for words, rarity
    reach: float  # squared distance from the centre beyond which a prompt counts less
    mean: Floats = field(repr=False)  # (2 * rules,) each rule's value, then each rule's cost
    weights: Floats = field(repr=False)  # (hints, 2 * rules)
    # (problems,) training prompts, ascending
    fingerprints: npt.NDArray[np.uint64] = field(repr=False)  # (problems,)
    # (problems, 2 * rules) predictions from the other groups of problems
    held_out: Floats = field(repr=False)

    @classmethod
    def fit(
        cls, rules: Sequence[Rule], hints: Floats, targets: Floats, choices: Sequence[_Choice]
    ) -> list[Self]:
        """One router per choice of weights and penalty; `targets` are (problems, 2 * rules)."""
        deviation = hints[:, :_PLAIN].std(axis=0)
        scale = np.divide(1.0, deviation, out=np.zeros(_PLAIN), where=deviation > 0)
        rarity = compute_rarity(hints[:, _PLAIN:].sum(axis=0), len(hints))
        router = cls(
            rules=tuple(rules),
            centre=hints[:, :_PLAIN].mean(axis=0),
            scale=np.concatenate([scale, rarity]),
            reach=np.inf,
            mean=targets.mean(axis=0),
            weights=np.zeros((0, 0)),
            fingerprints=np.zeros(0, dtype=np.uint64),
            held_out=np.zeros((0, 2 * len(rules))),
        )
        distances = (router.place(hints)[:, :_PLAIN] ** 2).sum(axis=1)
        router = replace(router, reach=float(np.quantile(distances, _REACH)))
        places = router.place(hints)
        parts = np.split(places, np.cumsum(_WIDTHS)[:2], axis=1)
        grams, ones = [part @ part.T for part in parts], np.eye(len(hints))
        fitted = []
        for shares, penalty in choices:
            gram = sum((share * own for share, own in zip(shares, grams, strict=True)), penalty * ones)
            dual = np.linalg.solve(gram, targets - router.mean)
            fitted.append(replace(router, weights=np.repeat(shares, _WIDTHS)[:, None] * (places.T @ dual)))
        return fitted

    def place(self, hints: Floats) -> Floats:
        """Hints on a common scale; a prompt beyond reach is moved towards the centre."""
        plain = (hints[:, :_PLAIN] - self.centre) * self.scale[:_PLAIN]
        plain = np.clip(plain, -_FARTHEST, _FARTHEST) * _PLAIN_SCALE
        distance = (plain**2).sum(axis=1, keepdims=True)
        words = normalise(hints[:, _PLAIN:], self.scale[_PLAIN:])
        return np.hstack([plain / np.maximum(distance / self.reach, 1.0), words])

    def predict(self, hints: Floats) -> Floats:
        """Each rule's predicted value for each prompt, then its cost, (prompts, 2 * rules)."""
        rows = [
            place @ self.weights for place in self.place(hints)
        ]  # one by one, so that sums don't depend on the batch
        return np.round(self.mean + np.reshape(rows, (len(hints), len(self.mean))), _DECIMALS)

    def read(self, prompts: Sequence[str]) -> Floats:
        """Predictions from the prompts; for a training prompt, those from other problems."""
        hashes = fingerprint_prompts(prompts)
        nearest = np.minimum(np.searchsorted(self.fingerprints, hashes), len(self.fingerprints) - 1)
        known = self.fingerprints[nearest] == hashes
        forecast = self.held_out[nearest]
        for row in np.flatnonzero(~known):
            forecast[row] = self.predict(read_hints([prompts[int(row)]]))[0]
        return forecast

    def arrays(self) -> Arrays:
        """Learned state as arrays."""
        return {
            "router_centre": self.centre,
            "router_scale": self.scale,
            "router_reach": np.array([self.reach]),
            "router_mean": self.mean,
            "router_weights": self.weights,
            "router_taught": self.fingerprints,
            "router_told": self.held_out,
        }

    @classmethod
    def restore(cls, arrays: Arrays, rules: tuple[Rule, ...]) -> Self:
        """Restores a router from arrays; PolicyInvalid if they are invalid."""
        fingerprints = read_array(arrays, "router_taught", np.uint64, (None,))
        if not len(fingerprints) or (fingerprints[1:] <= fingerprints[:-1]).any():
            raise PolicyInvalid("array 'router_taught' doesn't ascend, or is empty")
        return cls(
            rules=rules,
            centre=read_array(arrays, "router_centre", np.float64, (_PLAIN,)),
            scale=read_array(arrays, "router_scale", np.float64, (_HINTS,)),
            reach=float(read_array(arrays, "router_reach", np.float64, (1,))[0]),
            mean=read_array(arrays, "router_mean", np.float64, (2 * len(rules),)),
            weights=read_array(arrays, "router_weights", np.float64, (_HINTS, 2 * len(rules))),
            fingerprints=fingerprints,
            held_out=read_array(arrays, "router_told", np.float64, (len(fingerprints), 2 * len(rules))),
        )


def fit_router(
    points: Sequence[RulePoint], prompts: Sequence[str], groups: Ints, *, seed: int
) -> tuple[RuleRouter | None, list[RulePoint]]:
    """A router among these points' rules, and its value at several prices on held-out groups.

    None if hints don't predict held-out groups, (problems,), better than the mean.
    """
    cost = np.stack([point.cost for point in points])
    worth = np.stack([point.worth - point.doubt for point in points])  # each (rules, problems)
    corners = find_hull(cost.mean(axis=1), worth.mean(axis=1))
    if len(corners) < 2 or int(groups.max()) < 2 * _FOLDS:
        return None, []
    slopes = np.diff(worth[corners].mean(axis=1)) / np.diff(cost[corners].mean(axis=1))
    rules, targets = [point.rule for point in points], np.concatenate([worth, cost]).T
    units = np.repeat([1.0, float(np.median(slopes))], len(rules))  # converts a cost to a value
    router = _cross_fit(rules, prompts, targets, groups, units, seed=seed)
    if router is None:
        return None, []
    forecast, rows = router.read(prompts), np.arange(len(prompts))
    routed = [
        RoutedRule(float(price), router.rules)
        for price in np.geomspace(slopes.max() * _SPREAD, slopes.min() / _SPREAD, _PRICES)
    ]
    places = [rule.choose(forecast) for rule in routed]
    return router, [
        RulePoint(rule=rule, cost=cost[place, rows], worth=worth[place, rows])
        for rule, place in zip(routed, places, strict=True)
    ]


def _cross_fit(
    rules: Sequence[Rule], prompts: Sequence[str], targets: Floats, groups: Ints, units: Floats, *, seed: int
) -> RuleRouter | None:
    """The router with the best held-out predictions in these units; None if the mean is better."""
    rng = np.random.default_rng(seed)
    fingerprints, rows = np.unique(fingerprint_prompts(prompts), return_index=True)
    if len(rows) > _MAX_PROBLEMS:
        kept = np.sort(rng.choice(len(rows), _MAX_PROBLEMS, replace=False))
        fingerprints, rows = fingerprints[kept], rows[kept]
    hints, targets = read_hints([prompts[row] for row in rows]), targets[rows]
    folds = (rng.permutation(int(groups.max()) + 1) % _FOLDS)[groups[rows]]
    mean, held_out = np.empty(targets.shape), np.empty((len(_CHOICES), *targets.shape))
    for fold in range(_FOLDS):
        own = folds == fold
        mean[own] = targets[~own].mean(axis=0)
        for number, router in enumerate(RuleRouter.fit(rules, hints[~own], targets[~own], _CHOICES)):
            held_out[number, own] = router.predict(hints[own])

    def measure_error(predicted: Floats) -> float:
        """The squared error of each rule's difference from the mean of all rules, in value and cost."""
        parts = ((targets - predicted) * units).reshape(len(targets), 2, len(rules))
        return float(((parts - parts.mean(axis=2, keepdims=True)) ** 2).sum())

    errors = [measure_error(each) for each in held_out]
    best = int(np.argmin(errors))
    if errors[best] >= measure_error(mean):
        return None
    (router,) = RuleRouter.fit(rules, hints, targets, _CHOICES[best : best + 1])
    return replace(router, fingerprints=fingerprints, held_out=held_out[best])
