"""Accuracy of b samples combined into one answer: by a weighted vote, best-of-b or any-correct.

Best-of and any-correct are exact means over all subsets of b samples, computed from ranks. The weighted vote
is exact if there are few subsets, and simulated otherwise.
"""

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers.vote import (
    EXPONENT_LIMIT,
    MAX_DEVIATION,
    NEED_ALTERNATIVES,
    WEIGHT_UNIT,
    Moments,
    Signal,
    SignalModel,
    VoteWeights,
    transform_signal,
)
from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.records import SIGNAL_NAMES
from adacompute.score.grades import DECIMALS, AccuracyEstimates, BlockMap, mask_votable, measure_classes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SAMPLE_CELLS = 1 << 20  # number of (problem, sample) pairs processed at a time
_BLOCK_PROBLEMS = 1024  # number of problems whose votes are simulated at a time
_SUBSET_CELLS = 1 << 20  # number of (sample, subset) pairs in memory at a time
# if a subset has fewer samples than this number times the number of different answers, adding up its weights
# is faster than a matrix product
_SAMPLES_PER_CLASS = 0.75
# ranking puts samples with an answer first, then samples without an answer, then missing samples
_FIRST, _LAST, _NEVER = 0, 1, 2
_MIN_ORDERS = 32  # minimum number of random orders in a simulation, enough to estimate its error


# --- best-of and any-correct: samples ranked by score or grade ---


def score_best_of(
    ballots: Ballots, grades: Floats, budgets: Sequence[int], by: Literal["logprob", "entropy"] | Floats
) -> AccuracyEstimates:
    """Computes the accuracy of answering with the best-scored of b samples.

    `by` is the score: the mean log-probability, the negative entropy, or your own array of shape (problems,
    samples). Higher is better. Raises NotRecorded if a sample that has an answer, or was graded right, has no
    score.
    """
    abstains = (ballots.classes == ABSTAINS) & mask_votable(ballots)[:, None] & ~(grades > 0)
    scores = _read_scores(ballots, by)
    missing = np.isnan(scores) & (ballots.classes != ABSENT) & ~abstains
    if missing.any():
        row, column = (int(i) for i in np.argwhere(missing)[0])
        what = {"logprob": "tokens and log-probability", "entropy": "entropy"}
        description = what.get(by, by) if isinstance(by, str) else "score"
        raise NotRecorded(
            f"sample {column} of problem {ballots.ids[row]!r} has no {description} to rank it by "
            f"(the first of {int(missing.sum())}); record it for every sample, or give scores of your own"
        )
    return score_by_rank(scores, np.where(abstains, 0.0, grades), ballots.classes, abstains, budgets)


def score_any_correct(ballots: Ballots, grades: Floats, budgets: Sequence[int]) -> AccuracyEstimates:
    """Computes how often at least one of b samples is right (pass@b), without bias.

    With partial credit, this is the mean of the best grade among b samples.
    """
    return score_by_rank(grades, grades, ballots.classes, np.zeros(grades.shape, dtype=bool), budgets)


def score_by_rank(
    scores: Floats, grades: Floats, classes: npt.NDArray[np.int32], abstains: Flags, budgets: Sequence[int]
) -> AccuracyEstimates:
    """Computes the mean grade of the best-scored of b samples; shape (problems, budgets).

    The arguments have shape (problems, samples). Of b samples drawn without replacement from n, the one with
    the best score answers. If the samples are sorted from best to worst, the one at place r (from 0) is the
    best one in C(n-1-r, b-1) of the C(n, b) subsets. Samples with equal scores share their places equally, so
    each of them counts with their mean grade. A sample marked in `abstains` is chosen only if nothing else
    was drawn. Standard errors come from the delete-one jackknife, in closed form; they are NaN if b = n.
    """
    shape = (len(scores), len(budgets))
    accuracy, error = np.zeros(shape), np.full(shape, np.nan)
    step = max(1, _SAMPLE_CELLS // max(1, scores.shape[1]))
    for start in range(0, shape[0], step):
        part = slice(start, start + step)
        tier = np.where(classes[part] == ABSENT, _NEVER, np.where(abstains[part], _LAST, _FIRST))
        places = _RankedSamples(np.where(tier == _FIRST, scores[part], 0.0), tier, grades[part])
        for k, budget in enumerate(budgets):
            accuracy[part, k] = places.mean(budget)
            error[part, k] = places.jackknife(budget, accuracy[part, k])
    return AccuracyEstimates(
        accuracy=np.clip(accuracy, 0.0, 1.0).round(DECIMALS), standard_error=error.round(DECIMALS)
    )


def _read_scores(ballots: Ballots, by: Literal["logprob", "entropy"] | Floats) -> Floats:
    """Returns the scores by which samples are ranked, NaN if not recorded; shape (problems, samples)."""
    if not isinstance(by, str):
        return by
    if by not in ("logprob", "entropy"):
        raise ScoreError(f"score {by!r} is not known; give 'logprob', 'entropy' or an array of your own")
    return -ballots.signal(by) if by == "entropy" else ballots.signal(by)


class _RankedSamples:
    """Each problem's samples sorted by score, best first, with ties; arrays of shape (problems, samples)."""

    def __init__(self, scores: Floats, tier: npt.NDArray[np.int64], grades: Floats) -> None:
        order = np.lexsort((-scores, tier), axis=1)
        scores, tier = np.take_along_axis(scores, order, 1), np.take_along_axis(tier, order, 1)
        present = tier != _NEVER
        rows, width = scores.shape
        self.drawn = present.sum(axis=1)  # number of samples of each problem
        self.grades = np.where(present, np.take_along_axis(grades, order, 1), 0.0)
        self.present = present
        # whether a run of samples with equal scores begins at each place; one more place marks the end
        new = np.ones((rows, width + 1), dtype=bool)
        new[:, 1:-1] = (scores[:, 1:] != scores[:, :-1]) | (tier[:, 1:] != tier[:, :-1])
        place = np.arange(width + 1)
        self.begin = np.maximum.accumulate(np.where(new, place, 0), axis=1)[:, :-1]
        # equal scores end where the next ones begin: find the minimum, from the last place to the first
        ends = np.where(new, place, width)[:, :0:-1]
        self.end = np.minimum.accumulate(ends, axis=1)[:, ::-1]
        self.size = self.end - self.begin
        total = _sum_before(self.grades)  # sum of the grades of all samples before each place
        self.sum = np.take_along_axis(total, self.end, 1) - np.take_along_axis(total, self.begin, 1)
        self.tied = self.sum / self.size

    def mean(self, budget: int) -> Floats:
        """Computes each problem's mean grade over all subsets of `budget` samples."""
        return np.asarray(
            (_compute_place_weights(self.drawn, self.grades.shape[1], budget) * self.tied).sum(axis=1)
        )

    def jackknife(self, budget: int, mean: Floats) -> Floats:
        """Computes the jackknife error of each problem's mean; NaN if no sample can be left out."""
        weights = _compute_place_weights(self.drawn - 1, self.grades.shape[1], budget)
        # if a sample is left out, better samples keep their places, and worse ones move up by one
        before = np.take_along_axis(_sum_before(weights * self.tied), self.begin, 1)
        moved = np.concatenate([np.zeros((len(weights), 1)), weights[:, :-1]], axis=1)
        until = _sum_before(moved * self.tied)
        behind = until[:, -1:] - np.take_along_axis(until, self.end, 1)
        share = _sum_before(weights)
        ties = np.take_along_axis(share, self.end - 1, 1) - np.take_along_axis(share, self.begin, 1)
        others = (self.sum - self.grades) / np.maximum(self.size - 1, 1)
        left = before + ties * others + behind  # each problem's mean grade if this sample is left out
        squares = np.where(self.present, left - mean[:, None], 0.0) ** 2
        enough = self.drawn > budget
        drawn = np.maximum(self.drawn, 1)
        return np.where(enough, np.sqrt((drawn - 1) / drawn * squares.sum(axis=1)), np.nan)


def _sum_before(values: Floats) -> Floats:
    """Returns the sum of the values before each place and before the end; shape (problems, samples + 1)."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _compute_place_weights(drawn: npt.NDArray[np.int64], width: int, budget: int) -> Floats:
    """Returns the probability that the sample at each place is the best of `budget` samples drawn at random.

    Places are in order of score, best first. The result has shape (problems, samples).
    """
    place = np.arange(width)
    left = drawn[:, None] - place  # number of samples at this place and after it
    # the ratio of binomial coefficients C(left-1, b-1) / C(left, b-1)
    steps = np.maximum(left - budget + 1, 0) / np.maximum(left, 1)
    steps[:, 0] = np.where(drawn >= budget, budget / np.maximum(drawn, 1), 0.0)
    return np.cumprod(steps, axis=1)


# --- the weighted vote ---


def score_weighted_vote(
    ballots: Ballots,
    grades: Floats,
    budgets: Sequence[int],
    *,
    weigh: VoteWeights | None,
    rng: np.random.Generator,
    draws: int,
    map_blocks: BlockMap = map,
) -> AccuracyEstimates:
    """Computes the accuracy of a vote of b samples, each weighted by the model's confidence.

    The weights of equal answers are summed, and the heaviest answer wins. Exact ties are shared equally.
    Abstentions are ignored; if all samples abstain, the vote is wrong. If `weigh` is None, the scale of the
    weights is fitted to these samples, without labels. Weights are integers, so sums and ties are exact if a
    problem has up to 131,072 votes of average weight.

    The accuracy is the mean over all subsets of b of a problem's n samples. With one or two samples, the most
    confident one decides, so the exact mean follows from their ranks. If there are at most `draws` subsets,
    all are listed. Otherwise at least `draws` subsets are drawn, by cutting random orders of the samples into
    disjoint windows of b. This gives a smaller variance than independent subsets.

    All problems use the same random orders, but each problem's samples are shuffled first, so that the
    problems' errors are uncorrelated. `simulation_error` is the standard error of the mean over random
    orders. Unless all votes must have the same result, it is at least 1 / (votes + 2), because one more
    simulated vote could change the mean by about that.

    `standard_error` combines two variances, and is NaN if b = n. The first is the delete-one jackknife's over
    the same subsets, minus the noise that simulation adds to it. It is limited to Var(one vote) * b/n, the
    bound for U-statistics. The second is the variance of the simulation.
    """
    weights = compute_weight_units(ballots, weigh)
    values = _value_samples(ballots.classes, grades)
    answered = ballots.classes >= 0
    small = [b for b in budgets if b <= 2]
    by_rank = score_by_rank(weights.astype(np.float64), values, ballots.classes, ~answered, small)
    shape = (len(ballots), len(budgets))
    accuracy, error, noise = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape)
    for k, budget in enumerate(budgets):
        if budget in small:
            accuracy[:, k] = by_rank.accuracy[:, small.index(budget)]
            error[:, k] = by_rank.standard_error[:, small.index(budget)]
    present, drawn = ballots.classes != ABSENT, ballots.drawn
    # for each block: the indexes of its problems, and the index of its budget
    places: list[tuple[Ints, int]] = []
    blocks: list[_VoteBlock] = []
    for n in np.unique(drawn).tolist():
        rows = np.flatnonzero(drawn == n)
        shuffled = [
            _ShuffledVotes.of(
                ballots.classes[i],
                weights[i],
                values[i],
                order=rng.permutation(np.flatnonzero(present[i])),
            )
            for i in rows
        ]
        for k, budget in enumerate(budgets):
            if budget in small:
                continue
            # all blocks get a generator in this state, so that they draw the same subsets
            subsets = copy.deepcopy(rng)
            for start in range(0, len(rows), _BLOCK_PROBLEMS):
                part = slice(start, start + _BLOCK_PROBLEMS)
                places.append((rows[part], k))
                blocks.append(_VoteBlock(problems=shuffled[part], n=n, budget=budget, rng=subsets))
            every, windows = _choose_sampling(n, budget, draws)
            for _ in () if every else _draw_subsets(n, budget, windows, draws, rng):
                pass
    results = map_blocks(partial(_score_subsets, draws=draws), blocks)
    for (rows, k), result in zip(places, results, strict=True):
        accuracy[rows, k], error[rows, k], noise[rows, k] = np.array(result).T
    return AccuracyEstimates(
        accuracy=np.clip(accuracy, 0.0, 1.0).round(DECIMALS),
        standard_error=error,
        simulated=bool((noise > 0).any()),
        simulation_error=noise,
    )


def fit_vote_weights(ballots: Ballots, signal: Signal) -> VoteWeights:
    """Fits the scale of vote weights: a confidence signal's mean over these samples. Needs no labels."""
    values, known = _read_signals(ballots, signal)
    if not known.any():
        raise _build_unweighable_error(len(ballots), signal)
    scale = math.fsum(values[known].tolist()) / int(known.sum())
    if scale == 0:  # the model is certain of all samples, so all count equally
        return VoteWeights(signal=signal, scale=-1.0 if signal == "logprob" else 1.0, sharpness=0.0)
    return VoteWeights(signal=signal, scale=scale)


def compute_weight_units(ballots: Ballots, weigh: VoteWeights | None, *, partial: bool = False) -> Ints:
    """Computes every sample's vote weight as a whole number; shape (problems, samples).

    If `weigh` is None, the scale of the weights is fitted to the samples. Raises NotRecorded if no sample has
    the confidence signal, unless `partial` says that these are only some of the samples.
    """
    weigh = fit_vote_weights(ballots, "logprob") if weigh is None else weigh
    values, known = _read_signals(ballots, weigh.signal)
    odds, has_odds = compute_log_odds(ballots, weigh.model)
    scores, has_score = read_scores(ballots)
    has_score = has_score & (weigh.score is not None)
    if not known.any() and not has_odds.any() and not has_score.any() and not partial:
        raise _build_unweighable_error(len(ballots), weigh.signal)
    exponents = np.zeros(values.shape)
    exponents[known] = weigh.sharpness * (1.0 - values[known] / weigh.scale)
    if weigh.model is not None:
        exponents[has_odds] = weigh.model.sharpness * odds[has_odds]
    if weigh.score is not None:
        exponents[has_score] += [weigh.score.exponent(score) for score in scores[has_score].tolist()]
    weight_units = np.full(values.shape, WEIGHT_UNIT, dtype=np.int64)
    weighed = known | has_odds | has_score
    weight_units[weighed] = _weigh_exponents(np.clip(exponents[weighed], -EXPONENT_LIMIT, EXPONENT_LIMIT))
    return weight_units


def read_scores(ballots: Ballots) -> tuple[Floats, Flags]:
    """Returns each sample's verifier score, and a mask of those with a score; shapes (problems, samples)."""
    if ballots.signals is None:
        return np.full(ballots.classes.shape, np.nan), np.zeros(ballots.classes.shape, dtype=bool)
    scores = ballots.signals[:, :, SIGNAL_NAMES.index("score")]
    return scores, np.isfinite(scores) & (ballots.classes != ABSENT)


def _weigh_exponents(exponents: Floats) -> list[int]:
    # math.exp, as in the gateway, because numpy's result may differ in the last digit
    return [round(math.exp(exponent) * WEIGHT_UNIT) for exponent in exponents.tolist()]


def has_signals(ballots: Ballots, model: SignalModel | None) -> bool:
    """Whether any sample has one of the signals that the model reads, other than the mean log-probability."""
    if model is None or ballots.signals is None:
        return False
    columns = [SIGNAL_NAMES.index(name) for name in model.names if name != "logprob"]
    return bool(np.isfinite(ballots.signals[ballots.classes != ABSENT][:, columns]).any())


def compute_log_odds(ballots: Ballots, model: SignalModel | None) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Returns, as log-odds, how much likelier each sample is right than an average sample; and a mask.

    The mask is true for known log-odds. Both arrays have shape (problems, samples). The log-odds equal
    `SignalModel.log_odds` to the last digit.
    """
    total = np.zeros(ballots.classes.shape)
    if model is None or ballots.signals is None:
        return total, np.zeros(total.shape, dtype=bool)
    values = read_model_signals(ballots, model.names)
    finite = np.isfinite(values)
    further = [name != "logprob" for name in model.names]
    need_alternatives = [name in NEED_ALTERNATIVES for name in model.names]
    has_alternatives = finite[:, :, need_alternatives].any(axis=2)
    for k in range(len(model.names)):
        deviation = np.clip(
            (values[:, :, k] - model.centre[k]) / model.spread[k], -MAX_DEVIATION, MAX_DEVIATION
        )
        coefficient = np.where(has_alternatives, model.coefficients[k], model.bare[k])
        total[finite[:, :, k]] += (coefficient * deviation)[finite[:, :, k]]
    return total, np.asarray(finite[:, :, further].any(axis=2))


def read_model_signals(ballots: Ballots, names: Sequence[str]) -> Floats:
    """Returns the transformed signals that a model reads, or NaN; shape (problems, samples, names)."""
    values = np.full((*ballots.classes.shape, len(names)), np.nan)
    for k, name in enumerate(names):
        if name == "logprob":
            values[:, :, k] = ballots.signal("logprob")
        elif ballots.signals is not None:
            values[:, :, k] = ballots.signals[:, :, SIGNAL_NAMES.index(name)]
        present = np.isfinite(values[:, :, k]) & (ballots.classes != ABSENT)
        # one by one with `math`, as the gateway does, because numpy's logarithm may differ in the last digit
        transformed = [transform_signal(name, value) for value in values[:, :, k][present].tolist()]
        values[:, :, k] = np.nan
        values[:, :, k][present] = transformed
    return values


def sum_moments(ballots: Ballots, model: SignalModel) -> Moments:
    """Returns each signal's count, sum and sum of squares over samples with an answer, to refit the model."""
    values = read_model_signals(ballots, model.names)[ballots.classes >= 0]
    moments = {}
    for k, name in enumerate(model.names):
        known = values[np.isfinite(values[:, k]), k]
        bounded = np.clip(known, *model.find_bounds(name))  # clip outliers, to limit their effect
        squares = (bounded * bounded).tolist()
        moments[name] = (float(len(bounded)), math.fsum(bounded.tolist()), math.fsum(squares))
    return moments


def _read_signals(ballots: Ballots, signal: Signal) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Returns each sample's signal, and a mask of known signals; both have shape (problems, samples)."""
    values = ballots.signal(signal)
    return values, np.isfinite(values) & (ballots.classes != ABSENT)


def _build_unweighable_error(problems: int, signal: Signal) -> NotRecorded:
    """Builds the error to raise if no sample of these problems has the signal."""
    what = "tokens and log-probabilities" if signal == "logprob" else "entropies"
    return NotRecorded(
        f"no sample of these {problems} problems has {what} to weigh its vote by; "
        "record them, or give aggregate='vote' (--aggregate vote)"
    )


def _value_samples(classes: npt.NDArray[np.int32], grades: Floats) -> Floats:
    """Returns the mean grade of all samples with the same answer, for each sample; 0 without an answer."""
    values = np.zeros(classes.shape)
    at, column = np.nonzero(classes >= 0)
    values[at, column] = measure_classes(classes, grades)[1][at, classes[at, column]]
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShuffledVotes:
    """One problem's samples as votes, in shuffled order."""

    classes: Ints  # index of each sample's answer in `values`; 0 if the sample has none
    weights: Floats  # each sample's vote weight, a whole number; 0 if it has no answer
    values: Floats  # value of each distinct answer: the mean grade of the samples that give it
    constant: float | None  # value of the winning answer if it is the same in every subset; otherwise None

    @classmethod
    def of(
        cls, classes: npt.NDArray[np.int32], weights: Ints, values: Floats, *, order: Ints
    ) -> "_ShuffledVotes":
        worth = np.zeros(max(1, int(classes.max(initial=-1)) + 1))
        classes, weights, values = classes[order], weights[order], values[order]
        answered = classes >= 0
        same = bool(answered.all()) and float(np.ptp(values)) == 0.0
        constant = float(values[0]) if same else 0.0 if not answered.any() else None
        worth[classes[answered]] = values[answered]
        return cls(
            classes=np.where(answered, classes, 0).astype(np.int64),
            weights=np.where(answered, weights, 0).astype(np.float64),
            values=worth,
            constant=constant,
        )

    def vote_subsets(self, subsets: Ints, chosen: Floats) -> Floats:
        """Returns the value of the answer that wins the vote in each subset; the mean value if answers tie.

        `subsets`, shape (budget, subsets), has the indexes of each subset's samples. `chosen`, shape
        (samples, subsets), is 1 for a sample in the subset, else 0.
        """
        sums = self._sum_weights(subsets, chosen)
        best = sums.max(axis=0)
        wins = sums == best
        worthy = np.flatnonzero(self.values)
        credit = self.values[worthy] @ wins[worthy].astype(np.float64)
        return np.where(best > 0, credit / wins.sum(axis=0), 0.0)

    def _sum_weights(self, subsets: Ints, chosen: Floats) -> Floats:
        """Sums the weights of equal answers in each subset, exactly; shape (answers, subsets)."""
        kinds, count = len(self.values), subsets.shape[1]
        if len(subsets) < _SAMPLES_PER_CLASS * kinds:  # adding is faster here
            cell = self.classes[subsets] * count + np.arange(count)
            sums = np.bincount(cell.ravel(), self.weights[subsets].ravel(), minlength=kinds * count)
            return np.asarray(sums, dtype=np.float64).reshape(kinds, count)
        table = np.zeros((kinds, len(self.classes)))
        table[self.classes, np.arange(len(self.classes))] = self.weights
        return table @ chosen


class _SubsetSums:
    """Adds up, subset by subset, the results of votes over subsets of one problem's samples."""

    def __init__(self, problem: _ShuffledVotes, n: int, budget: int, *, every: bool) -> None:
        self.problem, self.n, self.budget, self.every = problem, n, budget, every
        self.count = self.orders = 0
        self.total = self.squares = self.spread = 0.0
        self.inside = np.zeros(n)  # for each sample: sum of the results of all votes that include it
        self.held = np.zeros(n)  # number of subsets that contain each sample

    def add(self, votes: Floats, chosen: Floats, held: Floats, windows: int) -> None:
        """Adds the results of votes over some subsets of the samples.

        `votes` has the value of the winning answer in each subset. Each random order of the samples gives
        `windows` consecutive subsets. `chosen`, shape (samples, subsets), is 1 for a sample in the subset,
        else 0. `held` has the number of these subsets that contain each sample.
        """
        self.count += len(votes)
        self.total += float(votes.sum())
        self.squares += float(votes @ votes)
        means = votes.reshape(-1, windows).mean(axis=1)
        self.orders += len(means)
        self.spread += float(means @ means)
        self.inside += chosen @ votes
        self.held += held

    def compute_result(self) -> tuple[float, float, float]:
        """Returns the problem's accuracy, its standard error, and the simulation's part of this error."""
        if self.problem.constant is not None:
            return self.problem.constant, 0.0 if self.n > self.budget else math.nan, 0.0
        mean = self.total / self.count
        vote = max(0.0, self.squares / self.count - mean**2)  # variance of a single vote's result
        noise = 0.0 if self.every else self._compute_noise(mean)
        if self.n == self.budget:
            return mean, math.nan, noise
        without = self.count - self.held  # number of subsets without each sample
        left = np.where(without > 0, (self.total - self.inside) / np.maximum(without, 1), mean)
        jackknife = (self.n - 1) * float(left.var())
        if not self.every:
            jackknife -= (self.n - 1) * self.budget / (self.n - self.budget) * vote / self.count
            jackknife = min(max(jackknife, 0.0), self.budget / self.n * vote)
        return mean, math.sqrt(jackknife + noise**2), noise

    def _compute_noise(self, mean: float) -> float:
        between = max(0.0, self.spread / self.orders - mean**2) / max(1, self.orders - 1)
        # an error of 0 would be too small: one more vote could change the mean by about `least`
        least = 1.0 / (self.count + 2)
        return max(math.sqrt(between), least)


@dataclass(frozen=True, slots=True, kw_only=True)
class _VoteBlock:
    """Problems with equally many samples; their votes are simulated on the same subsets of sample indexes."""

    problems: Sequence[_ShuffledVotes]
    n: int  # number of samples of each problem
    budget: int
    rng: np.random.Generator


def _score_subsets(block: _VoteBlock, *, draws: int) -> list[tuple[float, float, float]]:
    """Returns the accuracy, standard error and simulation error of each problem in a block."""
    n, budget, rng = block.n, block.budget, copy.deepcopy(block.rng)
    every, windows = _choose_sampling(n, budget, draws)
    running = [_SubsetSums(problem, n, budget, every=every) for problem in block.problems]
    for subsets in _list_subsets(n, budget) if every else _draw_subsets(n, budget, windows, draws, rng):
        chosen = _mark_subsets(subsets, n)
        held, samples = chosen.sum(axis=1), np.ascontiguousarray(subsets.T)
        for sums in running:
            if sums.problem.constant is None:
                sums.add(sums.problem.vote_subsets(samples, chosen), chosen, held, windows)
    return [sums.compute_result() for sums in running]


def _choose_sampling(n: int, budget: int, draws: int) -> tuple[bool, int]:
    """Returns whether to list all subsets of samples, and otherwise how many to cut from a random order.

    The second value is 1 if all subsets are listed.
    """
    every = math.comb(n, budget) <= draws
    return every, 1 if every else min(n // budget, max(1, draws // _MIN_ORDERS))


def _list_subsets(n: int, budget: int) -> Iterator[Ints]:
    """Yields all subsets in batches: arrays of sample indexes, shape (subsets, budget)."""
    subsets = itertools.combinations(range(n), budget)
    while block := list(itertools.islice(subsets, max(1, _SUBSET_CELLS // n))):
        yield np.array(block)


def _draw_subsets(n: int, budget: int, windows: int, draws: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yields at least `draws` subsets in batches: arrays of sample indexes, shape (subsets, budget).

    Each random order of the samples is cut into `windows` consecutive subsets.
    """
    orders = -(-draws // windows)
    step = max(1, _SUBSET_CELLS // (n * windows))
    for start in range(0, orders, step):
        size = min(step, orders - start)
        order = rng.permuted(np.broadcast_to(np.arange(n), (size, n)), axis=1)
        yield order[:, : windows * budget].reshape(size * windows, budget)


def _mark_subsets(subsets: Ints, n: int) -> Floats:
    """Returns 1 for each sample that a subset contains, 0 for the others; shape (samples, subsets)."""
    chosen = np.zeros((n, len(subsets)))
    chosen[subsets.T, np.arange(len(subsets))] = 1.0
    return chosen
