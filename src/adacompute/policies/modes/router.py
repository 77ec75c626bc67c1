"""Chooses a rule for each prompt: a ridge regression predicts each rule's value and cost from the prompt.

The regression's inputs, called hints, describe the prompt: its letters (which indicate language and script),
its words, and the paper's features. The kinds of hints and the penalty are those that predict held-out groups
of problems best. For a prompt unlike all training prompts, predictions are close to the mean.
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

_LETTERS = 64  # number of hash buckets for the letters of prompts
_PLAIN = ENTROPY_COLUMN + _LETTERS
_HINTS = _PLAIN + BUCKETS
_ARE_COUNTS = np.array([kind == "count" for kind in FEATURE_KINDS[:ENTROPY_COLUMN]])
_WIDTHS = (ENTROPY_COLUMN, _LETTERS, BUCKETS)
# factors that give all features of the prompt together the same weight as all letters together
_PLAIN_SCALE = np.repeat(1 / np.sqrt(_WIDTHS[:2]), _WIDTHS[:2])
# weights of features, letters and words in the regression: three alternatives, one of which is selected
_SHARES = ((1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 3.0))
_FARTHEST = 3.0  # the regression's inputs are clipped at 3 standard deviations from their mean
_REACH = 0.99  # prompts further from the mean than 99% of the training prompts are moved towards it
_PENALTIES = (10.0, 30.0, 100.0, 300.0)  # alternative penalties of the regression, one of which is selected
_CHOICES = tuple(itertools.product(_SHARES, _PENALTIES))
_FOLDS = 5
_MAX_PROBLEMS = 2000  # maximum number of training problems; training time grows with its cube
_PRICES = 24  # number of prices at which the router is measured
# tried prices range from the smallest gain in value per cost between two rules, divided by this number, to
# the largest such gain, multiplied by this number
_SPREAD = 1.5
_DECIMALS = 9  # predictions are rounded to 9 decimals, so that tiny numerical errors don't change a choice
_Choice = tuple[tuple[float, float, float], float]


def read_hints(prompts: Sequence[str]) -> Floats:
    """Extracts numbers (hints) from prompts: the paper's features, letters and words; shape (prompts, hints).

    A letter's hint is the square root of its share of all letters; a word's hint is 1 if the word occurs.
    """
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
    """A ridge regression that predicts each rule's value and cost from numbers (hints) about the prompt."""

    rules: tuple[Rule, ...]
    centre: Floats = field(repr=False)  # mean of each hint over training prompts; hints for words have none
    scale: Floats = field(repr=False)  # factor for each input: 1 / standard deviation, or a word's rarity
    reach: float  # prompts beyond this squared distance from the mean are moved towards it
    mean: Floats = field(repr=False)  # mean value of each rule, followed by mean cost of each rule
    weights: Floats = field(repr=False)  # coefficients of the regression; shape (hints, 2 * rules)
    # hashes of the training prompts, ascending
    fingerprints: npt.NDArray[np.uint64] = field(repr=False)
    # predictions for each training prompt, learned from other problems; shape (problems, 2 * rules)
    held_out: Floats = field(repr=False)

    @classmethod
    def fit(
        cls, rules: Sequence[Rule], hints: Floats, targets: Floats, choices: Sequence[_Choice]
    ) -> list[Self]:
        """Fits a router for each of `choices`: weights of the three kinds of hints, and a penalty.

        `targets` has the rules' values, then their costs, on each problem; shape (problems, 2 * rules).
        """
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
        """Scales the regression's inputs; prompts unlike the training prompts are moved towards the mean."""
        plain = (hints[:, :_PLAIN] - self.centre) * self.scale[:_PLAIN]
        plain = np.clip(plain, -_FARTHEST, _FARTHEST) * _PLAIN_SCALE
        distance = (plain**2).sum(axis=1, keepdims=True)
        words = normalise(hints[:, _PLAIN:], self.scale[_PLAIN:])
        return np.hstack([plain / np.maximum(distance / self.reach, 1.0), words])

    def predict(self, hints: Floats) -> Floats:
        """Predicts each rule's value and cost for each prompt; shape (prompts, 2 * rules)."""
        # one prompt at a time, because in a batch rounding would depend on the other prompts
        rows = [place @ self.weights for place in self.place(hints)]
        return np.round(self.mean + np.reshape(rows, (len(hints), len(self.mean))), _DECIMALS)

    def read(self, prompts: Sequence[str]) -> Floats:
        """Predicts each rule's value and cost; for training prompts, by a model fitted to other problems."""
        hashes = fingerprint_prompts(prompts)
        nearest = np.minimum(np.searchsorted(self.fingerprints, hashes), len(self.fingerprints) - 1)
        known = self.fingerprints[nearest] == hashes
        forecast = self.held_out[nearest]
        for row in np.flatnonzero(~known):
            forecast[row] = self.predict(read_hints([prompts[int(row)]]))[0]
        return forecast

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
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
        """Restores a router from arrays; raises PolicyInvalid if they are invalid."""
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
    """Fits a router that chooses among these rules, and measures it at several prices on held-out problems.

    `groups` has the index of each problem's group; the problems of a group are held out together. Returns
    (None, []) if there are too few groups, or if a router doesn't predict better than the mean.
    """
    cost = np.stack([point.cost for point in points])
    worth = np.stack([point.worth - point.doubt for point in points])  # shape (rules, problems), like `cost`
    corners = find_hull(cost.mean(axis=1), worth.mean(axis=1))
    if len(corners) < 2 or int(groups.max()) < 2 * _FOLDS:
        return None, []
    slopes = np.diff(worth[corners].mean(axis=1)) / np.diff(cost[corners].mean(axis=1))
    rules, targets = [point.rule for point in points], np.concatenate([worth, cost]).T
    units = np.repeat([1.0, float(np.median(slopes))], len(rules))  # makes costs comparable to values
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
    """Fits the router that predicts held-out problems best; returns None if the mean predicts them better."""
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
        """Sums squared errors in value and cost, after subtracting each prompt's mean error over rules."""
        parts = ((targets - predicted) * units).reshape(len(targets), 2, len(rules))
        return float(((parts - parts.mean(axis=2, keepdims=True)) ** 2).sum())

    errors = [measure_error(each) for each in held_out]
    best = int(np.argmin(errors))
    if errors[best] >= measure_error(mean):
        return None
    (router,) = RuleRouter.fit(rules, hints, targets, _CHOICES[best : best + 1])
    return replace(router, fingerprints=fingerprints, held_out=held_out[best])
