"""Predicts accuracy at every budget and buys by price, so one fit serves every average budget.

The curves come from boosted trees. On few problems trees find patterns that aren't there, so each group
of columns is tested on held-out prompts and trusted only as far as it helped there. Where entropies are
recorded, one sample is drawn first, and the curve is that of votes that begin with such a sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.answers.vote import WEIGHT_UNIT
from adacompute.errors import NotFitted, PolicyError, needs_extra
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Floats,
    Ints,
    VoteState,
    check_dial,
    check_flag,
    dump_weights,
    get_ballots,
    load_settings,
    read_array,
    wrap_restore_errors,
)
from adacompute.policies.baselines import BUDGETS
from adacompute.policies.features import FeaturePolicy, FeatureSet, RowCache
from adacompute.policies.trees import Trees, join_trees, read_booster
from adacompute.pool import Ballots, Pool
from adacompute.pool.ballots import number_prompts
from adacompute.score import score
from adacompute.score.aggregates import compute_weight_units
from adacompute.score.grades import grade_samples, measure_classes

__all__ = ["CurvePolicy", "compute_critical_prices", "draw_first_sample_votes", "fit_curves"]

_CELLS = 1 << 22  # pairs of draws compared at a time
_ROUNDS = 60  # of boosting
_TREE_SETTINGS: dict[str, Any] = {
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
_STANDARD_ERRORS = 2.0  # by which a group of columns must do better than the mean curve
_MIN_PROMPTS = 20  # prompts that can be split into folds
_SETTING_NAMES = ("budgets", "features", "seed", "longest", "weigh")
_TARGET_ROWS = 5_000  # to learn from, about: each problem gets as many orders as make so many rows
_MAX_FALL = 0.05  # share of the gains that may be lost on other problems where a curve counts as rising
_ORDERS = (8, 32)  # of a problem, at least and at most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSampleVotes:
    """Votes along random orders of each problem's samples, with the entropy of the first sample."""

    entropy: Floats  # (problems, orders) of the first sample, nats; NaN: not known
    accuracy: Floats  # (problems, orders, budgets) worth of the answer that leads after so many samples


def draw_first_sample_votes(
    ballots: Ballots,
    budgets: Sequence[int],
    *,
    orders: int,
    rng: np.random.Generator,
    weigh: VoteWeights | None = None,
) -> FirstSampleVotes:
    """Votes along random orders, ties to the first seen; every sample comes first about equally often.

    A policy that looks at the first sample keeps it, so the votes to compare are those that begin with
    it. Problems must have grades, and as many samples as the largest budget.
    """
    sample_counts, longest = ballots.drawn, budgets[-1]
    weights = (
        np.full(ballots.classes.shape, WEIGHT_UNIT) if weigh is None else compute_weight_units(ballots, weigh)
    )
    sizes, worth = measure_classes(ballots.classes, grade_samples(ballots))
    worth = np.where(sizes > 0, worth, 0.0)
    entropy = np.empty((len(ballots), orders))
    accuracy = np.empty((len(ballots), orders, len(budgets)))
    chunk = max(1, _CELLS // (orders * longest**2))
    for start in range(0, len(ballots), chunk):
        rows = np.arange(start, min(start + chunk, len(ballots)))
        order = _draw_orders(
            sample_counts[rows], orders, ballots.classes.shape[1], longest, rng
        )  # (rows, orders, longest)
        problem = rows[:, None, None]
        entropy[rows] = ballots.entropy[rows[:, None], order[:, :, 0]]
        classes = ballots.classes[problem, order].reshape(-1, longest)
        leaders = _find_leaders(
            classes, weights[problem, order].reshape(-1, longest), budgets
        )  # (paths, budgets)
        owner = np.repeat(rows, orders)[:, None]
        value = (
            np.where(leaders >= 0, worth[owner, np.maximum(leaders, 0)], 0.0)
            if worth.shape[1]
            else leaders * 0.0
        )
        accuracy[rows] = value.reshape(len(rows), orders, len(budgets))
    return FirstSampleVotes(entropy=entropy, accuracy=accuracy)


def _draw_orders(
    sample_counts: Ints, orders: int, samples: int, longest: int, rng: np.random.Generator
) -> Ints:
    """Which samples are drawn, in turn, (problems, orders, longest); the first ones evenly spread."""
    sort_keys = rng.random((len(sample_counts), orders, samples))
    absent = np.arange(samples) >= sample_counts[:, None]
    sort_keys[np.broadcast_to(absent[:, None, :], sort_keys.shape)] = 2.0
    first_order = np.argsort(np.where(absent, 2.0, rng.random((len(sample_counts), samples))), axis=1)
    position = np.arange(orders) % sample_counts[:, None]  # (problems, orders)
    first = np.take_along_axis(first_order, position, axis=1)
    np.put_along_axis(sort_keys, first[:, :, None], -1.0, axis=2)
    return np.asarray(np.argsort(sort_keys, axis=2)[:, :, :longest])


def _find_leaders(classes: npt.NDArray[np.int32], weights: Ints, budgets: Sequence[int]) -> Ints:
    """The class that leads after each budget, (paths, budgets); -1 where none has answered."""
    longest = classes.shape[1]
    first_draw = (classes[:, :, None] == classes[:, None, :]).argmax(
        axis=2
    )  # (paths, longest) first such draw
    cast = np.where(classes >= 0, weights, 0)
    sums = np.zeros(classes.shape, dtype=np.int64)
    rows, leaders, counted = np.arange(len(classes)), [], 0
    for budget in budgets:
        for draw in range(counted, min(budget, longest)):
            sums[rows, first_draw[:, draw]] += cast[:, draw]
        counted = budget
        best = sums.argmax(axis=1)  # ties go to the first seen
        leaders.append(np.where(sums[rows, best] > 0, classes[rows, best], -1))
    return np.stack(leaders, axis=1).astype(np.int64)


def fit_curves(
    rows: Floats,
    targets: Floats,
    owner: Ints,
    *,
    groups: Sequence[Ints],
    seed: int,
    prompt_ids: Ints | None = None,
) -> Trees:
    """Trees whose outputs are a curve's first value and what each later one adds to it.

    `rows` are (rows, features), `targets` (rows, budgets), `owner` each row's problem, `groups` the
    columns that are tried together. `prompt_ids` numbers problems from 0, equal for those of one prompt
    (None: all differ): trees are never tested on a prompt they were trained on.
    """
    problems = int(owner.max()) + 1
    weights = 1.0 / np.bincount(owner, minlength=problems)[owner]
    parts = np.hstack([targets[:, :1], targets[:, 1:] - targets[:, :1]])  # (rows, budgets)
    mean = np.average(parts, axis=0, weights=weights)
    row_prompts = owner if prompt_ids is None else prompt_ids[owner]
    if row_prompts.max() + 1 < _MIN_PROMPTS:
        return make_constant(mean)
    trust = _estimate_trust(rows, parts, row_prompts, weights, groups=groups, seed=seed)  # (groups, budgets)
    boosters = [
        _train_trees(rows, parts[:, k] - mean[k], weights, columns, seed).scale(trust[g, k])
        for g, columns in enumerate(groups)
        for k in range(parts.shape[1])
        if trust[g, k] > 0
    ]
    outputs = [k for g in range(len(groups)) for k in range(parts.shape[1]) if trust[g, k] > 0]
    return join_trees(boosters, outputs, base=mean) if boosters else make_constant(mean)


def make_constant(mean: Floats) -> Trees:
    """Trees that give the same curve for every row."""
    return join_trees([], [], base=mean)


def _estimate_trust(
    rows: Floats, parts: Floats, row_prompts: Ints, weights: Floats, *, groups: Sequence[Ints], seed: int
) -> Floats:
    """How far each group's trees are trusted, for the first value and for the gains, (groups, budgets).

    The weights, from 0 up and at most 1 in all, that fit best on held-out prompts. Rows of one prompt
    always stay together: what is learned from some of them would be recalled for the others.
    """
    fold = np.random.default_rng(seed).permutation(int(row_prompts.max()) + 1)[row_prompts] % _FOLDS
    means = np.empty(parts.shape)
    predicted = np.empty((len(groups), *parts.shape))  # by trees that were not trained on the problem
    for fold_number in range(_FOLDS):
        held_out, training = fold == fold_number, fold != fold_number
        means[held_out] = np.average(parts[training], axis=0, weights=weights[training])
        for g, columns in enumerate(groups):
            for k in range(parts.shape[1]):
                centred = parts[training, k] - means[held_out][0, k]
                trees = _train_trees(rows[training], centred, weights[training], columns, seed)
                predicted[g, held_out, k] = trees.scores(rows[held_out])[:, 0]
    truth = parts - means
    trust = np.zeros((len(groups), parts.shape[1]))
    for outputs in (slice(0, 1), slice(1, None)):
        trust[:, outputs] = _fit_blend(predicted[:, :, outputs], truth[:, outputs], row_prompts, weights)[
            :, None
        ]
    return trust


def _fit_blend(predicted: Floats, truth: Floats, row_prompts: Ints, weights: Floats) -> Floats:
    """The weights of the groups that fit best, (groups,); 0 where they don't beat the mean curve."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    if not truth.size:
        return np.zeros(len(predicted))
    root = np.sqrt(weights)[:, None]
    blend = nnls((predicted * root).reshape(len(predicted), -1).T, (truth * root).reshape(-1))[0]
    blend = np.asarray(blend / max(1.0, float(blend.sum())))
    improvement = (truth**2 - (truth - np.tensordot(blend, predicted, axes=1)) ** 2).sum(axis=1)
    gain = np.bincount(row_prompts, weights=improvement * weights)  # (prompts,)
    if gain.mean() <= _STANDARD_ERRORS * gain.std(ddof=1) / len(gain) ** 0.5:
        return np.zeros(len(predicted))
    return blend


def _train_trees(rows: Floats, target: Floats, weights: Floats, columns: Ints, seed: int) -> Trees:
    """Trains trees of one output, with columns numbered as in `rows`."""
    with needs_extra("fit"):
        import xgboost

    data = xgboost.DMatrix(rows[:, columns].astype(np.float32), label=target, weight=weights)
    booster = xgboost.train({**_TREE_SETTINGS, "seed": seed}, data, num_boost_round=_ROUNDS)
    return read_booster(booster.save_raw("json"), outputs=1).remap_columns(columns)


class CurvePolicy(FeaturePolicy):
    """Draws up to the budget whose predicted accuracy, less its price, is best; ties to the cheaper.

    The price is accuracy per sample. `features` is "text+entropy", "text" or "entropy"; the entropy is
    left out where it isn't recorded.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = CurvePolicy(features="text").fit(pool)
    >>> policy.predict_curve(["Ann has 3 apples and buys 4 more. How many has she now?"]).shape
    (1, 5)
    """

    kind = "curve"
    dial = "price"

    trees_: Trees  # outputs: accuracy of the cheapest budget, and what each larger one adds to it
    rises_: Ints  # (budgets - 1,) 1 where hardly any curve falls: there no predicted one may
    feature_set_: FeatureSet

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

    @property
    def uses_features(self) -> bool:
        """Whether requests get different curves: the features helped on held-out problems."""
        return bool((self._check_fitted().output > 0).any())

    def fit(self, pool: Pool | Ballots) -> Self:
        """Learns curves from graded samples, as many of each problem as the largest budget."""
        ballots = get_ballots(pool)
        table = score(ballots, self.modes)  # refuses what can't be scored, saying why
        feature_set = FeatureSet.parse(self.features).drop_missing_entropy(ballots)
        reading = feature_set.read(ballots.prompts)
        if not feature_set.entropy and self.weigh is None:
            orders, targets, entropy = 1, table.accuracy, np.full(len(ballots), np.nan)
        else:
            orders = int(np.clip(_TARGET_ROWS // len(ballots), *_ORDERS))
            rng = np.random.default_rng(self.seed)
            votes = draw_first_sample_votes(ballots, self.modes, orders=orders, rng=rng, weigh=self.weigh)
            targets, entropy = votes.accuracy.reshape(-1, len(self.modes)), votes.entropy.reshape(-1)
            if not feature_set.entropy:
                orders, targets = 1, votes.accuracy.mean(axis=1)
                entropy = np.full(len(ballots), np.nan)
        rows = feature_set.build_rows(np.repeat(reading, orders, axis=0), entropy)
        owner = np.repeat(np.arange(len(ballots)), orders)
        columns = np.arange(feature_set.width)
        groups = [columns[-1:], columns] if feature_set.entropy and feature_set.width > 1 else [columns]
        prompt_ids = number_prompts(ballots.prompts)
        trees = fit_curves(rows, targets, owner, prompt_ids=prompt_ids, groups=groups, seed=self.seed)
        self._set_model(trees, _find_rising(table.accuracy), feature_set)
        return self

    def predict_curve(self, prompts: Sequence[str], entropy: Sequence[float] | None = None) -> Floats:
        """Predicted accuracy at each budget, (prompts, budgets); `entropy` of first samples, in nats."""
        known_entropy = (
            np.full(len(prompts), np.nan) if entropy is None else np.asarray(entropy, dtype=np.float64)
        )
        return self._predict_curves(self.feature_set_.build_rows(self.read(prompts), known_entropy))

    def predict_accuracy(self, reading: Floats, state: VoteState) -> Floats:
        """Predicted accuracy of requests that have drawn one of its budgets, (requests,)."""
        curves = self._predict_curves(self.feature_set_.build_rows(reading, state.entropy))
        mode = np.searchsorted(self.modes, state.drawn)
        return np.asarray(np.clip(curves[np.arange(len(mode)), mode], 0.0, 1.0))

    def read(self, prompts: Sequence[str]) -> Floats:
        self._check_fitted()
        return self.feature_set_.read(prompts)

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:
        self._check_fitted()
        price = check_dial("price", dial)
        more = np.full(len(state), self.modes[0], dtype=np.int64)
        started = np.arange(len(state))
        if self.feature_set_.entropy:
            more[:] = 1  # the first sample's entropy comes first
            started = np.flatnonzero(state.drawn)
        if len(started):
            prices = self._critical_prices(
                self.feature_set_.build_rows(reading[started], state.entropy[started])
            )
            budget = np.array(self.modes, dtype=np.int64)[(prices > price).sum(axis=1)]
            more[started] = np.maximum(budget - state.drawn[started], 0)
        return more

    def _predict_curves(self, rows: Floats) -> Floats:
        """(rows, budgets)"""
        curves = self.trees_.scores(rows)
        steps = curves[:, 1:].copy()
        steps[:, 1:] -= curves[:, 1:-1]
        np.maximum(steps, self._min_steps, out=steps)
        np.clip(curves[:, 0], 0.0, 1.0, out=curves[:, 0])
        np.add(curves[:, :1], np.cumsum(steps, axis=1), out=curves[:, 1:])
        return curves

    def _check_fitted(self) -> Trees:
        if not hasattr(self, "trees_"):
            raise NotFitted("curve has learned nothing yet; call fit(pool) first")
        return self.trees_

    def _set_model(self, trees: Trees, rises: Any, feature_set: FeatureSet) -> None:  # noqa: ANN401
        self.trees_, self.rises_, self.feature_set_ = trees, np.asarray(rises, dtype=np.int64), feature_set
        self.one_shot = not feature_set.entropy
        self.reads_entropy = feature_set.entropy
        self.max_waves = 1 if self.one_shot else 2
        self._min_steps = np.where(self.rises_ > 0, 0.0, -np.inf)  # lower bound of each step of a curve
        modes = np.array(self.modes, dtype=np.float64)
        self._critical_prices = RowCache(
            lambda rows: compute_critical_prices(self._predict_curves(rows), modes)
        )

    def settings(self) -> dict[str, Any]:
        learned = {"entropy": self.feature_set_.entropy} if hasattr(self, "trees_") else None
        return {
            "budgets": list(self.budgets),
            "features": self.features,
            "seed": self.seed,
            "longest": self.longest,
            "weigh": dump_weights(self.weigh),
            "learned": learned,
        }

    def arrays(self) -> Arrays:
        return {**self.trees_.arrays(), "rises": self.rises_} if hasattr(self, "trees_") else {}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        with wrap_restore_errors(cls.kind):
            arguments = load_settings(settings, (*_SETTING_NAMES, "learned"))
            learned = arguments.pop("learned")
            policy = cls(**arguments)
            if learned is not None:
                policy._load_learned(learned, arrays)
        return policy

    def _load_learned(self, learned: object, arrays: Arrays) -> None:
        if not isinstance(learned, Mapping) or set(learned) != {"entropy"}:
            raise PolicyError("learned lacks entropy")
        feature_set = FeatureSet.parse(self.features).with_entropy(
            check_flag("learned entropy", learned["entropy"])
        )
        trees = Trees.restore(arrays, features=feature_set.width, outputs=len(self.modes))
        self._set_model(trees, read_array(arrays, "rises", np.int64, (len(self.modes) - 1,)), feature_set)


def _find_rising(accuracy: Floats) -> Any:  # noqa: ANN401 # truth values
    """Between which budgets more votes hardly ever hurt, (budgets - 1,)."""
    steps = np.diff(accuracy, axis=1)
    return np.maximum(-steps, 0.0).mean(axis=0) <= _MAX_FALL * np.maximum(steps, 0.0).mean(axis=0)


def compute_critical_prices(curves: Floats, budgets: Floats) -> Floats:
    """The price below which each budget but the cheapest, or a larger one, is bought, (rows, budgets - 1).

    It falls along a row, so only the upper concave hull is bought from, and cost never rises with the
    price.

    >>> compute_critical_prices(np.array([[0.5, 0.5, 0.8]]), np.array([1.0, 2.0, 4.0])).round(3).tolist()
    [[0.1, 0.1]]
    """
    distance = budgets[None, :] - budgets[:, None]
    distance[distance <= 0] = 1.0  # such pairs aren't used
    slopes = (curves[:, None, :] - curves[:, :, None]) / distance  # (rows, from, to)
    # a step is taken where some budget after it has a higher slope from every budget before it
    lowest = np.minimum.accumulate(slopes, axis=1)
    best = np.maximum.accumulate(lowest[:, :, ::-1], axis=2)[:, :, ::-1]
    step = np.arange(len(budgets) - 1)
    return np.asarray(np.minimum.accumulate(best[:, step, step + 1], axis=1))
