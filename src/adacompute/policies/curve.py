"""Predicts the accuracy of each number of samples, and chooses the number that is best at a given price.

So one fitted policy serves all average budgets. Boosted trees predict the curves of accuracy. With few
problems, trees find spurious patterns, so each group of features is weighted by how much it improves
predictions for held-out prompts. If the first sample's entropy is used, this sample is drawn before deciding,
and its vote counts.

With several modes, a curve is predicted for each mode from the prompt's text alone. The policy chooses the
mode and number of samples with the best predicted accuracy minus price times cost.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import PolicyError, format_value
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Draw,
    check_ascending,
    check_dial,
    check_dials,
    get_ballots,
    read_array,
)
from adacompute.policies.baselines import BUDGETS
from adacompute.policies.features import FeaturePolicy, FeatureSet, RowCache
from adacompute.policies.paths import Paths, build_paths
from adacompute.policies.trees import Trees, import_xgboost, join_trees, read_booster, train_booster
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.pool import Ballots, Pool
from adacompute.pool.groups import number_alike
from adacompute.pool.modes import JoinedPool, ModeSet, read_modes
from adacompute.score import ModeColumn, list_columns, score
from adacompute.score.score import Budgets
from adacompute.solve.hull import compute_slopes, count_steps, round_slopes

_CELLS = 1 << 22  # problems are processed in chunks, to limit arrays to about this many elements
_ROUNDS = 60  # number of trees
_TREE_SETTINGS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "learning_rate": 0.1,
    "min_child_weight": 5.0,  # a number of problems, because all rows of one problem together weigh 1
    "subsample": 0.7,
    "colsample_bytree": 0.5,
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
}
_FOLDS = 5
_STANDARD_ERRORS = 2.0  # features are used only if they predict better than the mean by 2 standard errors
_MIN_PROMPTS = 20  # with fewer prompts, features aren't used, because they can't be tested
_TARGET_ROWS = 5_000  # approximate number of training rows: number of problems times random orders of each
# from one budget to the next, predictions can't fall if falls on the training problems are below 5% of rises
_MAX_FALL = 0.05
_ORDERS = (8, 32)  # minimum and maximum number of random orders of each problem's samples


def draw_first_samples(
    ballots: Ballots,
    longest: int,
    *,
    orders: int,
    rng: np.random.Generator,
    weigh: VoteWeights | None = None,
) -> Paths:
    """Draws random orders of each problem's samples, and counts votes along them.

    Each sample comes first about equally often, because policies use the first sample's entropy. Each problem
    needs at least `longest` samples.
    """
    chunk = max(1, _CELLS // (orders * longest**2))
    parts = [
        _draw_orders(ballots.drawn[start : start + chunk], orders, ballots.classes.shape[1], longest, rng)
        for start in range(0, len(ballots), chunk)
    ]
    return build_paths(ballots, np.concatenate(parts), weigh=weigh)


def _draw_orders(
    sample_counts: Ints, orders: int, samples: int, longest: int, rng: np.random.Generator
) -> Ints:
    """Draws sample indices in random orders, each first about equally often.

    The result has shape (problems, orders, longest).
    """
    sort_keys = rng.random((len(sample_counts), orders, samples))
    absent = np.arange(samples) >= sample_counts[:, None]
    sort_keys[np.broadcast_to(absent[:, None, :], sort_keys.shape)] = 2.0
    first_order = np.argsort(np.where(absent, 2.0, rng.random((len(sample_counts), samples))), axis=1)
    # index of each order's first sample in a shuffled list of samples; shape (problems, orders)
    position = np.arange(orders) % sample_counts[:, None]
    first = np.take_along_axis(first_order, position, axis=1)
    np.put_along_axis(sort_keys, first[:, :, None], -1.0, axis=2)
    return np.asarray(np.argsort(sort_keys, axis=2)[:, :, :longest])


def fit_curves(
    rows: Floats,
    targets: Floats,
    owner: Ints,
    *,
    groups: Sequence[Ints],
    seed: int,
    prompt_ids: Ints | None = None,
    curves: Sequence[slice] = (slice(None),),
) -> Trees:
    """Trains trees that predict an accuracy curve: its first value, and the increases from this value.

    `rows` has shape (rows, features), `targets` has shape (rows, budgets), and `owner` is each row's problem.
    Each of `groups`, which are sets of columns of `rows`, gets trees of its own, weighted by how well they
    predict held-out prompts. Problems with equal `prompt_ids` are held out together; None means that all
    prompts differ. `curves` has the columns of each curve in `targets`, if there are several.
    """
    problems = int(owner.max()) + 1
    weights = 1.0 / np.bincount(owner, minlength=problems)[owner]
    parts = np.hstack([_split_curve(targets[:, curve]) for curve in curves])  # same shape as `targets`
    mean = np.average(parts, axis=0, weights=weights)
    row_prompts = owner if prompt_ids is None else prompt_ids[owner]
    if row_prompts.max() + 1 < _MIN_PROMPTS:
        return join_trees([], [], base=mean)
    # weights of each feature group's trees in predicting each column of `parts`; shape (groups, columns)
    trust = _estimate_trust(rows, parts, row_prompts, weights, groups=groups, seed=seed, curves=curves)
    boosters = [
        _train_trees(rows, parts[:, k] - mean[k], weights, columns, seed).scale(trust[g, k])
        for g, columns in enumerate(groups)
        for k in range(parts.shape[1])
        if trust[g, k] > 0
    ]
    outputs = [k for g in range(len(groups)) for k in range(parts.shape[1]) if trust[g, k] > 0]
    return join_trees(boosters, outputs, base=mean)


def _split_curve(targets: Floats) -> Floats:
    """Subtracts the first value of each curve from the others; shape (rows, budgets)."""
    return np.hstack([targets[:, :1], targets[:, 1:] - targets[:, :1]])


def _estimate_trust(
    rows: Floats,
    parts: Floats,
    row_prompts: Ints,
    weights: Floats,
    *,
    groups: Sequence[Ints],
    seed: int,
    curves: Sequence[slice],
) -> Floats:
    """Computes weights for the trees of each group of features; shape (groups, outputs).

    These weights fit held-out prompts best. None is negative, and the groups' sum is at most 1. A curve's
    first value has other weights than its increases. All rows of a prompt are held out together, because
    trees could memorise the prompt.
    """
    fold = np.random.default_rng(seed).permutation(int(row_prompts.max()) + 1)[row_prompts] % _FOLDS
    means = np.empty(parts.shape)
    # predictions for each row by trees that weren't trained on the row's prompt
    predicted = np.empty((len(groups), *parts.shape))
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
    for curve in curves:
        places = np.arange(parts.shape[1])[curve]
        for outputs in (places[:1], places[1:]):
            blend = _fit_blend(predicted[:, :, outputs], truth[:, outputs], row_prompts, weights)
            trust[:, outputs] = blend[:, None]
    return trust


def _fit_blend(predicted: Floats, truth: Floats, row_prompts: Ints, weights: Floats) -> Floats:
    """Fits a weight for the predictions from each feature group.

    All weights are 0 unless the weighted predictions are better than the mean by two standard errors.
    """
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    if not truth.size:
        return np.zeros(len(predicted))
    root = np.sqrt(weights)[:, None]
    blend = nnls((predicted * root).reshape(len(predicted), -1).T, (truth * root).reshape(-1))[0]
    blend = np.asarray(blend / max(1.0, float(blend.sum())))
    improvement = (truth**2 - (truth - np.tensordot(blend, predicted, axes=1)) ** 2).sum(axis=1)
    gain = np.bincount(row_prompts, weights=improvement * weights)  # fall in each prompt's squared error
    if gain.mean() <= _STANDARD_ERRORS * gain.std(ddof=1) / len(gain) ** 0.5:
        return np.zeros(len(predicted))
    return blend


def _train_trees(rows: Floats, target: Floats, weights: Floats, columns: Ints, seed: int) -> Trees:
    """Trains trees that predict one number from the given columns of `rows`."""
    xgboost = import_xgboost()

    data = xgboost.DMatrix(rows[:, columns].astype(np.float32), label=target, weight=weights)
    booster = train_booster({**_TREE_SETTINGS, "seed": seed}, data, _ROUNDS)
    return read_booster(booster.save_raw("json"), outputs=1).remap_columns(columns)


class CurvePolicy(FeaturePolicy):
    """Draws the number of samples with the best predicted accuracy minus price; ties go to fewer samples.

    The price is in accuracy per sample. `features` is "text", "entropy" (of the first sample) or
    "text+entropy", of which only the text is used if the pool lacks entropies.

    With a `menu`, the policy chooses a pair of a mode and a number of samples from `columns`, by the prompt's
    text alone. The price is then in accuracy per unit of the modes' costs, and votes are unweighted.
    `budgets` are the allowed numbers of samples, for all modes or by mode name.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = CurvePolicy(features="text").fit(pool)
    >>> policy.predict_curve(["Ann has 3 apples and buys 4 more. How many has she now?"]).shape
    (1, 5)
    """

    kind = "curve"
    dial = "price"
    setting_names = ("menu", "budgets", "features", "seed", "longest", "weigh")
    optional: ClassVar[Mapping[str, Any]] = {"menu": None}
    parsers: ClassVar[Mapping[str, Any]] = {"menu": ModeSet.load}

    trees_: Trees  # predict the accuracy of the smallest budget, and the gains of larger budgets
    rises_: Ints  # for each step from a budget to the next: 1 if predicted accuracy can't fall there, else 0

    def __init__(
        self,
        *,
        budgets: Budgets = BUDGETS,
        features: str = "text+entropy",
        seed: int = 0,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
        menu: ModeSet | None = None,
    ) -> None:
        self.route = None if menu is None else ModeRoute.of(menu, budgets, longest=longest)
        super().__init__(
            budgets=self.route.counts if self.route else budgets,  # type: ignore[arg-type] # checked there
            features=features,
            seed=seed,
            longest=longest,
            weigh=weigh,
        )
        if self.route and (weigh is not None or not FeatureSet.parse(features).text):
            fault = f"features {features!r}" if weigh is None else f"weigh {weigh!r}"
            raise PolicyError(
                f"{fault} can't be used with a menu, whose modes are chosen by the text, before any sample; "
                "leave it out"
            )

    @property
    def menu(self) -> ModeSet | None:
        """The modes to choose from; None if there is a single mode."""
        return self.route.menu if self.route else None

    @property
    def mode_set(self) -> ModeSet | None:
        return self.menu

    @property
    def names(self) -> tuple[str, ...]:
        return self.route.menu.names if self.route else super().names

    @property
    def columns(self) -> tuple[ModeColumn, ...]:
        """With several modes, all pairs of a mode and a number of samples, by ascending cost; else empty."""
        return self.route.columns if self.route else ()

    @property
    def costs(self) -> Floats:
        """Average cost of each of `columns`, ascending, in the unit of the modes' costs."""
        return self.route.costs if self.route else np.zeros(0)

    @property
    def uses_features(self) -> bool:
        """Whether predictions differ between requests, because features helped on held-out problems."""
        self.get_feature_set()
        return bool((self.trees_.output > 0).any())

    def fit(self, pool: Pool | JoinedPool | Ballots) -> Self:
        """Learns accuracy curves from graded samples.

        Each problem needs at least as many samples as the largest budget, with several modes from each mode.
        """
        if self.route:
            return self._fit_route(self.route, pool)
        if isinstance(pool, JoinedPool) or (isinstance(pool, Ballots) and len(pool.modes) > 1):
            raise PolicyError("a curve of one mode can't learn from joined pools; give CurvePolicy(menu=…)")
        ballots = get_ballots(pool)
        table = score(ballots, self.choices)  # raises an error if a problem has too few samples or no grades
        feature_set = FeatureSet.parse(self.features).drop_missing_entropy(ballots)
        reading = feature_set.read(ballots.prompts)
        if not feature_set.entropy and self.weigh is None:
            orders, targets, entropy = 1, table.accuracy, np.full(len(ballots), np.nan)
        else:
            orders = int(np.clip(_TARGET_ROWS // len(ballots), *_ORDERS))
            rng = np.random.default_rng(self.seed)
            paths = draw_first_samples(ballots, self.choices[-1], orders=orders, rng=rng, weigh=self.weigh)
            targets, entropy = paths.grade[np.array(self.choices) - 1].T, paths.entropy
            if not feature_set.entropy:
                orders, targets = 1, paths.mean_per_problem(targets)
                entropy = np.full(len(ballots), np.nan)
        rows = feature_set.build_rows(np.repeat(reading, orders, axis=0), entropy)
        owner = np.repeat(np.arange(len(ballots)), orders)
        columns = np.arange(feature_set.width)
        groups = [columns[-1:], columns] if feature_set.entropy and feature_set.width > 1 else [columns]
        prompt_ids = number_alike(ballots.prompts)
        trees = fit_curves(rows, targets, owner, prompt_ids=prompt_ids, groups=groups, seed=self.seed)
        self._set_model(trees, _find_rising(table.accuracy), feature_set)
        self.source_model = ballots.model
        return self

    def _fit_route(self, route: "ModeRoute", pool: Pool | JoinedPool | Ballots) -> Self:
        """Learns one curve per mode from the prompts' texts."""
        ballots = read_modes(pool)
        table = score(ballots, route.budgets, modes=route.menu, mixed=False)
        feature_set = FeatureSet(text=True, entropy=False)
        trees = fit_curves(
            feature_set.read(ballots.prompts),
            table.accuracy,
            np.arange(len(ballots)),
            prompt_ids=number_alike(ballots.prompts),
            groups=[np.arange(feature_set.width)],
            seed=self.seed,
            curves=route.curves,
        )
        rises = np.concatenate([_find_rising(table.accuracy[:, curve]) for curve in route.curves])
        self._set_model(trees, rises, feature_set)
        return self

    def choose(self, prompts: Sequence[str], price: float) -> Ints:
        """Chooses a mode and a number of samples for each prompt; returns indices into `columns`.

        Maximises predicted accuracy minus price times cost. Ties go to the cheaper choice, so cost never
        rises with the price.
        """
        self.get_feature_set()
        if not self.route:
            raise PolicyError("a curve of one mode has no columns to choose; use more(…), or give it a menu")
        limit = float(round_slopes(np.array([check_dial("price", price)], dtype=np.float64))[0])
        slopes = compute_slopes(self.predict_curve(prompts), self.costs)  # shape (choices - 1, prompts)
        return count_steps(slopes > limit).astype(np.int64)

    def next(
        self,
        prompt: str,
        tally: Tally,
        price: float | None = None,
        *,
        reading: Floats | None = None,
        modes: Collection[str] | None = None,
    ) -> Draw | None:
        """Returns what to draw now, or None to stop.

        With several modes, draws the samples that are missing to the number that `choose` selects. If the
        selected mode isn't in `modes`, draws from the most expensive mode in `modes` instead.
        """
        if not self.route:
            return super().next(prompt, tally, price, reading=reading, modes=modes)
        allowed = [name for name in self.route.menu.names if modes is None or name in modes]
        own = check_dial("price", self.place_price(price, prompt))
        (number,) = self.choose([prompt], own).tolist()
        drawn = tally.drawn_by_mode
        for mode, count in self.columns[number].draws if allowed else ():
            name = mode if mode in allowed else allowed[-1]
            if count > drawn.get(name, 0):
                return Draw(mode=name, count=count - drawn.get(name, 0))
        return None

    def predict_curve(self, prompts: Sequence[str], entropy: Sequence[float] | None = None) -> Floats:
        """Predicts the accuracy of each budget (with several modes: of each of `columns`) for each prompt.

        `entropy` has the entropy of each prompt's first sample, in nats; None if unknown.
        """
        if self.route:
            return self._predict_curves(self.read(prompts))[:, self.route.order]
        known_entropy = (
            np.full(len(prompts), np.nan) if entropy is None else np.asarray(entropy, dtype=np.float64)
        )
        return self._predict_curves(self.feature_set_.build_rows(self.read(prompts), known_entropy))

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        if self.route:
            raise PolicyError(
                "a curve over a menu chooses a mode and a number of samples; ask choose(prompts, price)"
            )
        return super().count_draws(reading, state, check_dials("price", dial))

    def choose_budgets(self, rows: Floats, dial: float | Floats | None) -> Ints:
        limits = dial[:, None] if isinstance(dial, np.ndarray) else dial
        steps: Ints = (self._critical_prices(rows) > limits).sum(axis=1)
        return np.array(self.choices, dtype=np.int64)[steps]

    def _predict_curves(self, rows: Floats) -> Floats:
        """Predicts the accuracy of each budget from rows of features; shape (rows, budgets)."""
        outputs = self.trees_.scores(rows)
        for curve, min_steps in self._curves:
            _build_curve(outputs[:, curve], min_steps)
        return outputs

    def _set_model(self, trees: Trees, rises: Any, feature_set: FeatureSet) -> None:  # noqa: ANN401
        self.trees_, self.rises_ = trees, np.asarray(rises, dtype=np.int64)
        self.set_feature_set(feature_set)
        curves = self.route.curves if self.route else [slice(0, len(self.choices))]
        min_steps = np.where(self.rises_ > 0, 0.0, -np.inf)  # minimum increase at each step of a curve
        ends = np.cumsum([curve.stop - curve.start - 1 for curve in curves])[:-1]
        self._curves = list(zip(curves, np.split(min_steps, ends), strict=True))
        costs = np.array(self.choices, dtype=np.float64)
        self._critical_prices = RowCache(
            lambda rows: compute_critical_prices(self._predict_curves(rows), costs)
        )

    def settings(self) -> dict[str, Any]:
        return super().settings() | ({"budgets": self.route.dump_budgets()} if self.route else {})

    def dump_learned(self) -> dict[str, Any]:
        return {"learned": {"entropy": self.feature_set_.entropy} if hasattr(self, "trees_") else None}

    def arrays(self) -> Arrays:
        return {**self.trees_.arrays(), "rises": self.rises_} if hasattr(self, "trees_") else {}

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        stored = learned["learned"]
        if stored is None:
            return
        if not isinstance(stored, Mapping) or set(stored) != {"entropy"}:
            raise PolicyError("learned lacks entropy")
        feature_set = FeatureSet.parse(self.features).with_entropy(stored["entropy"])
        curves = self.route.curves if self.route else [slice(0, len(self.choices))]
        outputs = curves[-1].stop
        trees = Trees.restore(arrays, features=feature_set.width, outputs=outputs)
        rises = read_array(arrays, "rises", np.int64, (outputs - len(curves),))
        self._set_model(trees, rises, feature_set)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRoute:
    """The pairs of a mode and a number of samples among which a policy over several modes chooses."""

    menu: ModeSet
    budgets: Mapping[str, tuple[int, ...]]  # allowed numbers of samples, for each mode with a finite cost

    @classmethod
    def of(cls, menu: object, budgets: object, *, longest: int) -> Self:
        """Checks the modes and their budgets, and leaves out budgets above `longest`."""
        if not isinstance(menu, ModeSet):
            raise PolicyError(f"menu {format_value(menu)} is not a menu; give Menu.of(pool, costs={{…}})")
        named = budgets if isinstance(budgets, Mapping) else dict.fromkeys(menu.names, budgets)
        if set(named) != set(menu.names):
            raise PolicyError(
                f"budgets are for {', '.join(map(str, named))}, and the menu has {', '.join(menu.names)}; "
                "give each mode its own, or one sequence for all"
            )
        allowed = {
            mode.name: tuple(b for b in check_ascending("budgets", named[mode.name]) if b <= longest)
            for mode in menu.modes
            if isfinite(mode.cost)
        }
        if not allowed or not all(allowed.values()):
            raise PolicyError(
                f"a mode has no budget up to longest {longest}, or none has a finite cost; "
                "give smaller budgets, or costs"
            )
        return cls(menu=menu, budgets=allowed)

    @property
    def unit(self) -> str:
        """The unit or currency of the costs."""
        return self.menu.currency or self.menu.unit

    @property
    def counts(self) -> tuple[int, ...]:
        """All numbers of samples that are allowed for any mode, ascending."""
        return tuple(sorted({count for counts in self.budgets.values() for count in counts}))

    @property
    def curves(self) -> list[slice]:
        """For each mode, the slice of its budgets among the columns of an array of accuracies."""
        ends = np.cumsum([len(counts) for counts in self.budgets.values()]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    @property
    def order(self) -> Ints:
        """Indices that sort the columns of an array of accuracies by cost."""
        return np.argsort(self._table_costs, kind="stable")

    @property
    def columns(self) -> tuple[ModeColumn, ...]:
        """All pairs of a mode and a number of samples, by ascending cost."""
        columns = list_columns(self.menu, self.budgets, mixed=False)
        return tuple(columns[place] for place in self.order)

    @property
    def costs(self) -> Floats:
        """The cost of each of `columns`, ascending."""
        return np.sort(self._table_costs)

    @property
    def _table_costs(self) -> Floats:
        costs = {mode.name: mode.cost for mode in self.menu.modes}
        return np.array([costs[name] * count for name, counts in self.budgets.items() for count in counts])

    def dump_budgets(self) -> dict[str, list[int]]:
        """Returns each mode's budgets as plain data: name -> list of numbers of samples.

        A mode with infinite cost has none, but `of` needs some, so it gets those of another mode.
        """
        first = next(iter(self.budgets.values()))
        return {name: list(self.budgets.get(name, first)) for name in self.menu.names}


def _build_curve(outputs: Floats, min_steps: Floats) -> None:
    """Converts each row of `outputs`, a first value and the increases from it, to a curve, in place.

    Step k of a curve rises by at least `min_steps[k]`.
    """
    steps = outputs[:, 1:].copy()
    steps[:, 1:] -= outputs[:, 1:-1]
    np.maximum(steps, min_steps, out=steps)
    np.clip(outputs[:, 0], 0.0, 1.0, out=outputs[:, 0])
    np.add(outputs[:, :1], np.cumsum(steps, axis=1), out=outputs[:, 1:])


def _find_rising(accuracy: Floats) -> Any:  # noqa: ANN401 # truth values
    """Marks the steps from one budget to the next at which accuracy hardly ever falls."""
    steps = np.diff(accuracy, axis=1)
    return np.maximum(-steps, 0.0).mean(axis=0) <= _MAX_FALL * np.maximum(steps, 0.0).mean(axis=0)


def compute_critical_prices(curves: Floats, budgets: Floats) -> Floats:
    """Computes for each budget the price below which it, or a larger budget, is worth its cost.

    The result has shape (curves, budgets - 1), without the smallest budget. Along a curve, prices never rise.
    So only budgets on the upper hull are chosen, and a higher price never leads to a larger budget.

    >>> compute_critical_prices(np.array([[0.5, 0.5, 0.8]]), np.array([1.0, 2.0, 4.0])).round(3).tolist()
    [[0.1, 0.1]]
    """
    distance = budgets[None, :] - budgets[:, None]
    distance[distance <= 0] = 1.0  # avoids a division by zero; the slopes to smaller budgets aren't used
    slopes = (curves[:, None, :] - curves[:, :, None]) / distance  # [row, j, k]: slope from budget j to k
    # `lowest[row, j, k]` is the smallest slope to budget k from any of the budgets 0, …, j. A budget above j
    # is worth its cost at every price below the largest of these slopes over k > j.
    lowest = np.minimum.accumulate(slopes, axis=1)
    best = np.maximum.accumulate(lowest[:, :, ::-1], axis=2)[:, :, ::-1]
    step = np.arange(len(budgets) - 1)
    return np.asarray(np.minimum.accumulate(best[:, step, step + 1], axis=1))
