"""Learns critical prices: for each state of the votes, the highest price at which another sample pays.

Backward induction over recorded samples in random orders (paths) gives a table of critical prices by numbers
of votes. Trees, which also use the model's confidence, improve on the table by one step of policy iteration.
`WavePlan` turns critical prices into the number of samples to draw now.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally
from adacompute.errors import needs_extra
from adacompute.policies.base import Arrays, log_price
from adacompute.policies.paths import Paths
from adacompute.policies.trees import Trees, import_xgboost, read_booster, train_booster
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.records import quick_dataclass

Bools = npt.NDArray[np.bool_]

# feature -> sign of its effect on the critical price (the highest price at which another sample pays); 0
# allows any effect. For example, "margin" has -1, so with a larger margin a policy never draws more samples.
_FEATURES: Final = {
    "drawn": 0,
    "first": -1,
    "second": 1,
    "answered": 0,
    "kinds": 0,
    "share": -1,  # leading answer's share of the votes
    "weighed_share": -1,  # leading answer's share of the total weight of votes
    "margin": -1,  # weight of the leading answer's votes minus the runner-up's
    "sureness": 0,  # logarithm of the mean weight of all votes
    "leader_sureness": 0,  # logarithm of the mean weight of the leader's votes
    "odds": -1,  # logarithm of the leader's weight divided by the runner-up's
}
FEATURE_NAMES: Final = tuple(_FEATURES)
MONOTONE_SIGNS: Final = tuple(_FEATURES.values())
_NO_ANSWER = -9.0  # value of "leader_sureness" if no sample gave an answer
_ODDS_PRIOR = 0.3  # added to the weights of both answers before dividing one by the other, for "odds"

# The gain from another sample is computed at several prices. If it is negative at all prices, or positive at
# all, the price at which the gain is 0 is extrapolated: the logarithm of the lowest or highest price is
# changed by the gain at this price times a slope, within limits.
_SLOPE_BELOW, _SLOPE_ABOVE = 50.0, 10.0  # slopes below the lowest and above the highest price
_MIN_BELOW, _MAX_ABOVE = -3.0, 2.0  # limits of the change, below the lowest and above the highest price

# --- the table of critical prices by numbers of votes ---
_TABLE_PRICES = np.geomspace(0.0005, 0.25, 28)
_MIN_PROBLEMS = 4  # a state of the votes that fewer problems reach gets its price from similar states
MIN_PRICE = 1e-5  # price up to which drawing is taken to pay if it pays at none of `_TABLE_PRICES`

# --- drawing several samples at a time (waves) ---
# quantiles of recorded requests' critical prices (the highest prices at which another sample pays) that set
# the size of the first wave: for an unlimited number of waves, for a limited number, and for a single wave
WAVE_QUANTILES = (0.0, 0.3, 0.5)
# a wave that is neither first nor last is halved if the highest price at which another sample pays is at most
# this many times the given price
_STEEP_RATIO = 2.5

# --- the trees that predict critical prices ---
TRAINING_PRICES = np.geomspace(0.0015, 0.13, 7)
_TREES = 24  # number of trees in the ensemble for each price
_TOTAL_STEP = 4.0  # learning rate times number of trees
_SETTINGS: dict[str, Any] = {
    "max_depth": 4,
    "tree_method": "hist",
    "min_child_weight": 100,  # counted in rows, of which each problem has many
    "reg_lambda": 50,
    "max_bin": 64,
    "subsample": 0.7,
    "colsample_bynode": 0.7,
    "nthread": 1,
    "base_score": 0.0,
    "verbosity": 0,
}
_FINAL_SETTINGS: dict[str, Any] = {"max_depth": 5, "eta": 0.2, "min_child_weight": 20, "reg_lambda": 1}
_FINAL_TREES = 40


def compute_state_features(state: VoteState) -> Floats:
    """Computes features of each request's votes, in the order of FEATURE_NAMES; shape (requests, features).

    The weights of votes are comparable between models, because a sample of average confidence weighs 1.
    """
    rows = np.empty((len(state), len(FEATURE_NAMES)))
    for column, values in enumerate(_list_features(state, larger=np.maximum, choose=np.where)):
        rows[:, column] = values
    return rows


def compute_tally_features(tally: Tally) -> tuple[float, ...]:
    """Computes the features of `compute_state_features` for a single request.

    Uses no arrays, because this is faster.
    """
    return _list_features(tally, larger=max, choose=_choose)


def _list_features(
    state: Any,  # noqa: ANN401 - a VoteState or a Tally, whose numbers have the same names
    *,
    larger: Callable[[Any, Any], Any],
    choose: Callable[[Any, Any, Any], Any],
) -> tuple[Any, ...]:
    first, second, answered = state.first, state.second, state.answered
    lead, runner = state.lead, state.runner
    has_answer, some_answered = answered > 0, larger(answered, 1)
    total = larger(state.total, 1e-9)
    return (
        state.drawn,
        first,
        second,
        answered,
        state.kinds,
        first / some_answered,
        lead / total,
        lead - runner,
        choose(has_answer, np.log(total / some_answered), 0.0),
        choose(has_answer, np.log(larger(lead, 1e-9) / larger(first, 1)), _NO_ANSWER),
        np.log((lead + _ODDS_PRIOR) / (runner + _ODDS_PRIOR)),
    )


def _choose(condition: bool, value: float, other: float) -> float:
    return value if condition else other


def is_unweighted(state: Any) -> Any:  # noqa: ANN401 - a truth value, or an array of them
    """Whether all votes so far weigh exactly 1: for one Tally, or for each request of a VoteState."""
    return (state.total == state.answered) & (state.lead == state.first) & (state.runner == state.second)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CriticalPriceTrees:
    """Trees that predict a request's critical price: the highest price at which another sample pays."""

    trees: Trees  # their only output is the logarithm of a request's critical price

    def predict(self, rows: Floats) -> Floats:
        """Predicts, from each row of features, the logarithm of the highest price at which drawing pays."""
        return self.trees.scores(rows)[:, 0]

    def predict_row(self, row: Sequence[float]) -> float:
        """Predicts, from one row of features, the logarithm of the highest price at which drawing pays."""
        return self.trees.score_row(row)

    def arrays(self, prefix: str) -> Arrays:
        """Returns the learned state as arrays, with names that begin with `prefix`."""
        return {f"{prefix}{name}": array for name, array in self.trees.arrays().items()}

    @classmethod
    def restore(cls, arrays: Arrays, prefix: str, *, features: int) -> "CriticalPriceTrees":
        """Restores trees from arrays; raises PolicyInvalid if they aren't valid trees."""
        tree_arrays = {
            name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)
        }
        return cls(trees=Trees.restore(tree_arrays, features=features, outputs=1))


def find_crossing(prices: Floats, advantages: Floats) -> Floats:
    """Finds, for each row, the logarithm of the price at which the gain of drawing over stopping is zero.

    `advantages` has this gain at each of `prices`, which ascend; shape (rows, prices). If a gain rises with
    the price, the lowest gain so far is used instead.

    >>> float(np.exp(find_crossing(np.array([0.01, 0.04]), np.array([[0.1, -0.1]]))[0]).round(3))
    0.02
    """
    falling = np.minimum.accumulate(advantages, axis=1)
    count = (falling > 0).sum(axis=1)
    grid, rows = np.log(prices), np.arange(len(falling))
    left = np.clip(count - 1, 0, len(prices) - 2)
    before, after = falling[rows, left], falling[rows, left + 1]
    share = np.clip(before / np.maximum(before - after, 1e-12), 0.0, 1.0)
    inside = grid[left] + share * (grid[left + 1] - grid[left])
    below = grid[0] + np.clip(falling[:, 0] * _SLOPE_BELOW, _MIN_BELOW, 0.0)
    above = grid[-1] + np.clip(falling[:, -1] * _SLOPE_ABOVE, 0.0, _MAX_ABOVE)
    return np.asarray(np.where(count == 0, below, np.where(count == len(prices), above, inside)))


def build_price_table(recordings: Sequence[Paths], values: Sequence[Floats]) -> Floats:
    """Learns a table of critical prices (logarithms), by number of draws and votes for the top two answers.

    A critical price is the highest price at which another sample pays. At each price, decisions are found
    from the last draw back to the first. A request draws in a state of its votes if random orders of samples
    (paths) through this state gain more than the price of their draws, given the decisions in later states. A
    state that few problems reach takes its critical price from similar states. `values` has, for each
    recording, the value of each path's leading answer after each draw; shape (longest, paths).
    """
    longest = recordings[0].longest
    worth = np.concatenate(values, axis=1)
    keys = [_tally_keys(recordings, t, longest) for t in range(longest - 1)]
    problems = _number_problems(recordings)
    draws_on = [np.ones((len(_TABLE_PRICES), (longest + 1) ** 2), dtype=bool) for _ in keys]
    for row, price in enumerate(_TABLE_PRICES):
        later = worth[-1].copy()
        for t in range(longest - 2, -1, -1):
            gain = np.bincount(keys[t], later - price - worth[t], minlength=(longest + 1) ** 2)
            draws_on[t][row] = gain > 0
            later = np.where(draws_on[t][row][keys[t]], later - price, worth[t])
    table = np.zeros((longest - 1, longest + 1, longest + 1))
    for t, key in enumerate(keys):
        # number of prices, counted from the lowest, at which drawing pays
        price_count = np.minimum.accumulate(draws_on[t], axis=0).sum(axis=0)
        critical = np.log(_price_levels()[price_count]).reshape(longest + 1, longest + 1)
        known = (_count_problems(key, problems, longest) >= _MIN_PROBLEMS).reshape(longest + 1, longest + 1)
        table[t] = _smooth(critical, known)
    return table


def look_up_prices(table: Floats, drawn: Ints, first: Ints, second: Ints) -> Floats:
    """Looks up the logarithm of the highest price at which another sample of each request pays.

    Numbers of draws and votes beyond the table are replaced by the table's nearest.
    """
    last_index = table.shape[1] - 1
    return np.asarray(
        table[
            np.minimum(np.maximum(drawn, 1), len(table)) - 1,
            np.minimum(first, last_index),
            np.minimum(second, last_index),
        ]
    )


def look_up_price(table: Floats, tally: Tally) -> float:
    """Looks up the logarithm of the highest price at which another sample of this request pays."""
    last_index = table.shape[1] - 1
    row = min(max(tally.drawn, 1), len(table)) - 1
    return table.item(row, min(tally.first, last_index), min(tally.second, last_index))


def _tally_keys(recordings: Sequence[Paths], t: int, longest: int) -> Ints:
    return np.concatenate(
        [paths.first[t].astype(np.int64) * (longest + 1) + paths.second[t] for paths in recordings]
    )


def _number_problems(recordings: Sequence[Paths]) -> Ints:
    """Returns the problem of each random order, as an index that runs through all recordings."""
    starts = np.cumsum([0, *(len(paths.ballots) for paths in recordings)])
    return np.concatenate([paths.problems + start for paths, start in zip(recordings, starts, strict=False)])


def _count_problems(key: Ints, problems: Ints, longest: int) -> Ints:
    """Counts, for each state of the votes, the problems with a random order of samples that reaches it."""
    pairs = np.unique(key * (problems.max() + 1) + problems)
    return np.bincount(pairs // (problems.max() + 1), minlength=(longest + 1) ** 2)


def _price_levels() -> Floats:
    """Returns the possible critical prices (highest prices at which a sample pays) before smoothing.

    Element k is for states in which drawing pays at the k lowest of `_TABLE_PRICES` and at no higher price.
    """
    middle = np.sqrt(_TABLE_PRICES[:-1] * _TABLE_PRICES[1:])
    return np.concatenate([[MIN_PRICE], middle, [_TABLE_PRICES[-1] * 1.1]])


def _smooth(critical: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Makes critical prices monotone, by averaging the upper and the lower monotone envelope of known prices.

    Then more votes for the first answer, or fewer for the second, never lead to more sampling.
    """
    if not known.any():
        return np.full(critical.shape, np.log(MIN_PRICE))
    # highest known price of all states with at least as many votes for the leader, and at most as many for
    # the second answer
    upper = np.where(known, critical, -np.inf)
    upper = np.maximum.accumulate(np.maximum.accumulate(upper[::-1], axis=0)[::-1], axis=1)
    # lowest known price of all states with at most as many votes for the leader, and at least as many for
    # the second answer
    lower = np.where(known, critical, np.inf)
    lower = np.minimum.accumulate(np.minimum.accumulate(lower, axis=0)[:, ::-1], axis=1)[:, ::-1]
    upper = np.where(np.isfinite(upper), upper, np.log(MIN_PRICE))
    lower = np.where(np.isfinite(lower), lower, critical[known].max())
    return np.asarray((upper + lower) / 2)


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class WavePlan:
    """Decides how many samples to draw at the same time.

    Samples drawn at the same time are a wave. If the number of waves is unlimited, the first wave has the
    samples that every recorded request would draw. Then one sample at a time is drawn while the price is
    below the critical price (the highest price at which another sample pays).

    With `max_waves`, the first wave has the samples that 70% of recorded requests would draw (50% if it is
    the only wave). Later waves are larger the further the price is below the critical price. A wave between
    first and last has at most as many samples as the first one (but at least two are allowed), so the number
    of waves so far can be derived from the number of samples. The last wave may have more.
    """

    longest: int  # maximum number of samples per request
    max_waves: int | None = None
    ladder: tuple[int, ...] | None = None  # numbers of samples at which a request may stop; None: any

    def count_draws(self, price: float | Floats, drawn: Ints, critical: Floats, quantiles: Floats) -> Ints:
        """Returns how many more samples each request draws now.

        `price` is one number, or an array with one per request. `critical` has, as logarithms, the highest
        price at which another sample of each request pays; it is ignored before the first sample. `quantiles`
        has WAVE_QUANTILES of `critical` over recorded requests after 1, 2, … draws; shape (quantiles, draws).
        """
        log = log_price(price)
        draws_on = critical > log
        if self.ladder is not None:
            target = self._next_rung(drawn, draws_on)
        elif self.draws_one_by_one:
            start = self._first_waves(log, quantiles[0])
            target = np.where(drawn < start, start, np.where(draws_on, drawn + 1, drawn))
        else:
            target = self._next_wave(log, drawn, critical, quantiles)
        return np.maximum(np.minimum(target, self.longest) - drawn, 0)

    def count_next(self, price: float, drawn: int, critical: float, quantiles: Floats) -> int:
        """Returns how many more samples one request draws now, like `count_draws`."""
        if not self.draws_one_by_one:
            counts = self.count_draws(price, np.array([drawn]), np.array([critical]), quantiles)
            return int(counts[0])
        log = float(log_price(price))
        start = self._first_wave(log, quantiles[0])
        target = start if drawn < start else drawn + (critical > log)
        return max(min(target, self.longest) - drawn, 0)

    def find_stopping_rule(
        self, price: float | Floats, quantiles: Floats
    ) -> tuple[int, float | Floats] | None:
        """Returns the size of the first wave, and the logarithm of the price.

        `draws_one_by_one` must be true. After the first wave, one sample at a time is drawn while the highest
        price at which it pays exceeds the price. Returns None if the size differs between requests.
        """
        log = log_price(price)
        start = self._first_waves(log, quantiles[0])
        return None if isinstance(start, np.ndarray) else (start, log)

    @property
    def draws_one_by_one(self) -> bool:
        """Whether samples after the first wave are drawn one at a time."""
        return self.ladder is None and (self.max_waves is None or self.max_waves >= self.longest)

    def _first_wave(self, log: float, critical: Floats) -> int:
        """Returns the size of the first wave: the first number of samples after which another doesn't pay.

        `log` is the logarithm of the price. `critical` has, as logarithms, the highest prices at which
        another sample pays after 1, 2, … draws.
        """
        count = 1
        for price in critical:  # the loop usually ends in its first round
            if not price > log:
                break
            count += 1
        return min(count, self.longest)

    def _first_waves(self, log: float | Floats, critical: Floats) -> int | Ints:
        """Returns the size of the first wave: one number, or an array if it differs between requests.

        `log` is the logarithm of the price: one number, or an array with one per request.
        """
        fewest, most = (self._first_wave(value, critical) for value in (np.max(log), np.min(log)))
        if fewest == most:
            return fewest
        going = np.cumprod(critical[:, None] > log, axis=0, dtype=np.int64)
        return np.asarray(np.minimum(1 + going.sum(axis=0), self.longest))

    def _next_rung(self, drawn: Ints, draws_on: npt.NDArray[np.bool_]) -> Ints:
        rungs = np.array(self.ladder, dtype=np.int64)
        above = np.searchsorted(rungs, drawn, side="right")
        following = rungs[np.minimum(above, len(rungs) - 1)]
        moves = (above < len(rungs)) & (draws_on | (drawn < rungs[0]))
        return np.where(moves, following, drawn)

    def _next_wave(self, log: float | Floats, drawn: Ints, critical: Floats, quantiles: Floats) -> Ints:
        wave_limit = self.max_waves or 1
        start = self._first_waves(log, quantiles[2 if wave_limit == 1 else 1])
        steepness = np.exp(np.minimum(critical - log, 20.0))
        width = np.maximum(2, start)
        # number of waves so far, derived from the number of samples
        done = 1 + np.maximum(0, -(-(drawn - start) // width))
        base = start + width * (done - 1)
        between = base + np.where(steepness > _STEEP_RATIO, width, width // 2)
        final = start + width * (wave_limit - 2)  # maximum number of samples before the last wave
        more = np.maximum(1, np.round(np.minimum(steepness, 1e6) - 0.5)).astype(np.int64)
        last = np.maximum(drawn + more, final + 1)
        target = np.where(done < wave_limit - 1, between, last)
        draws_on = (steepness > 1) & (done < wave_limit)
        return np.where(drawn < start, start, np.where(draws_on, target, drawn))


def fit_critical_prices(
    recordings: Sequence[Paths],
    values: Sequence[Floats],
    table: Floats,
    *,
    hints: Sequence[Floats] | None = None,
    seed: int = 0,
    trees: int = _TREES,
) -> CriticalPriceTrees:
    """Trains trees that predict critical prices from votes and, if given, from `hints`.

    A critical price is the highest price at which another sample pays. At several prices, trees learn how
    much drawing gains over stopping, depending on the votes, if later decisions follow `table`. A final set
    of trees learns the price at which this gain becomes zero. `values` has, for each recording, the value of
    the leading answer on each random order of samples (path) after each draw; shape (longest, paths). `hints`
    has, for each recording, numbers predicted from prompts; shape (problems, hints). `table` comes from
    `build_price_table`.
    """
    xgb = import_xgboost()
    with needs_extra("fit"):
        from threadpoolctl import threadpool_info

    steps = recordings[0].longest - 1
    rows = np.concatenate([_build_rows(recordings, t, hints) for t in range(steps)])
    worth = np.concatenate(values, axis=1)
    # logarithm of the table's critical price after each draw in each random order of samples
    table_prices = np.stack([_look_up_table(recordings, t, table) for t in range(steps)])
    extra = rows.shape[1] - len(MONOTONE_SIGNS)
    settings = {
        **_SETTINGS,
        "eta": _TOTAL_STEP / trees,
        "seed": seed,
        "monotone_constraints": (*MONOTONE_SIGNS, *(0,) * extra),
    }

    def predict_advantages(prices: Floats) -> tuple[Any, list[Floats]]:
        """Trains trees at each of these prices to predict the advantage of drawing over stopping.

        Returns the training data, and the predictions at each price.
        """
        data = xgb.QuantileDMatrix(rows, label=np.zeros(len(rows)), max_bin=_SETTINGS["max_bin"])
        predictions = []
        for price in prices:
            data.set_label(_compute_advantages(worth, table_prices > np.log(price), price).ravel())
            predictions.append(train_booster(settings, data, trees).predict(data))
        return data, predictions

    # Trains in as many threads as linear algebra libraries may use (one in an evaluation's worker processes).
    # The lowest limit counts, because a library that was loaded after limits were set has no limit.
    limits = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    shares = np.array_split(TRAINING_PRICES, min(min(limits, default=1), len(TRAINING_PRICES)))
    if len(shares) == 1:
        parts = [predict_advantages(TRAINING_PRICES)]
    else:
        with ThreadPoolExecutor(len(shares)) as executor:
            parts = list(executor.map(predict_advantages, shares))
    data, advantages = parts[0][0], [each for _, predictions in parts for each in predictions]
    # a final set of trees predicts the critical price itself; only this set is used for requests
    data.set_label(find_crossing(TRAINING_PRICES, np.stack(advantages, axis=1)))
    booster = train_booster({**settings, **_FINAL_SETTINGS}, data, _FINAL_TREES)
    return CriticalPriceTrees(trees=read_booster(booster.save_raw("json"), outputs=1))


def _compute_advantages(worth: Floats, draws_on: npt.NDArray[np.bool_], price: float) -> Floats:
    """Computes the gain of drawing over stopping, at each step of each random order; shape (steps, paths).

    At later steps, a request draws as long as `draws_on` is true. The gain is net of the price of all samples
    drawn from this step on.
    """
    advantages = np.empty(draws_on.shape)
    later = worth[-1].copy()
    for t in range(len(draws_on) - 1, -1, -1):
        advantages[t] = later - price - worth[t]
        later = np.where(draws_on[t], later - price, worth[t])
    return advantages


def _build_rows(
    recordings: Sequence[Paths], t: int, hints: Sequence[Floats] | None
) -> npt.NDArray[np.float32]:
    parts = []
    for k, paths in enumerate(recordings):
        features = compute_state_features(paths.state_at(t + 1))
        parts.append(
            features if hints is None else np.hstack([features, np.repeat(hints[k], paths.orders, axis=0)])
        )
    return np.concatenate(parts).astype(np.float32)


def _look_up_table(recordings: Sequence[Paths], t: int, table: Floats) -> Floats:
    parts = []
    for paths in recordings:
        first, second = paths.first[t].astype(np.int64), paths.second[t].astype(np.int64)
        parts.append(look_up_prices(table, np.full(len(paths), t + 1), first, second))
    return np.concatenate(parts)
