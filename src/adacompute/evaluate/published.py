"""Methods published by others, run on recorded samples as their authors define them; for comparison only.

- `cges`: CGES (Aghazadeh et al., 2026, arXiv 2511.02603v2), a Bayesian stopping rule for one mode. The
  posterior (the paper's Algorithm 1) is over the answers seen so far and one unseen answer. Sampling stops
  once the posterior of a seen answer reaches a threshold (Remark D.4). A sample's confidence is the
  exponential of its mean log-probability.
- `C3PO` (Valkanas et al., 2025, arXiv 2511.07396v1), a cascade that needs no labels. It draws some samples
  from one mode after another. It stops at a mode if the share of the most common answer reaches the mode's
  threshold. A conformal quantile of the cost, measured on other problems, must be within a cap. Among the
  thresholds for which it is, C3PO uses those that differ least often from the most expensive mode's answer.
  The numbers of samples are our choice, because only a summary of the paper was available.
- `confidence cascade`: from vLLM's semantic-router (`confidence`, method `avg_logprob`). It draws one sample
  from one mode after another, until a sample's mean log-probability reaches a threshold. All modes have the
  same threshold.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.measure import (
    EvaluationSetup,
    SplitData,
    SplitResult,
    measure_dial,
    records_confidence,
)
from adacompute.evaluate.mode_rivals import (
    Settings,
    apply_mixes,
    draw_mode_paths,
    list_targets,
    mix_settings,
)
from adacompute.policies.paths import ModePaths, PathLayout, compute_class_worth, compute_full_vote
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# thresholds to try for CGES, descending; CGES stops once an answer's posterior log-odds reach the threshold
_CERTAINTIES = np.concatenate([[np.inf], np.linspace(40, 8, 17), np.linspace(7.5, -2.0, 39), [-np.inf]])
_BLOCK_PATHS = 8192  # number of random orders of the samples processed at a time
_LEAST_DOUBT = 1e-12  # confidences are limited to the range from this number to 1 minus this number
_SAMPLES = (3, 5, 8)  # numbers of samples per mode to try for C3PO; also 1 for the last mode
_OVERRUN = 0.1  # share of requests that may cost more than C3PO's cap
_CONFIDENCES = 40  # number of thresholds to try for the confidence cascade


@dataclass(frozen=True, slots=True)
class PosteriorStopping:
    """Runs CGES on one split; for each budget, uses the threshold that meets it on training problems."""

    name: str = "cges"

    def applies(self, setup: EvaluationSetup) -> bool:
        """Whether every sample has the log-probability that CGES needs."""
        return records_confidence(setup.ballots)

    def measure(self, data: SplitData) -> dict[str, SplitResult]:
        """Measures CGES at each budget, and at each threshold."""
        dials = [1.0 / (1.0 + math.exp(-odds)) if odds > -700 else 0.0 for odds in _CERTAINTIES.tolist()]
        result = measure_dial(data.setup, dials, lambda training: _follow_stopping(data, training=training))
        return {self.name: result}


PUBLISHED: Mapping[str, PosteriorStopping] = {"cges": PosteriorStopping()}


def _follow_stopping(data: SplitData, *, training: bool) -> tuple[Floats, Floats]:
    """Runs CGES; returns mean cost, accuracy, rounds and tokens, of shape (4, thresholds, problems).

    Also returns the share of requests with 0, 1, ... rounds, of shape (thresholds, rounds + 1). Each sample
    is a round.
    """
    setup, ballots = data.setup, data.train if training else data.test
    orders = data.count_orders(training=training)
    layout = PathLayout.for_orders(int(ballots.drawn.min()), orders=orders, longest=setup.longest)
    order = layout.draw_orders(ballots, data.make_rng(training=training))  # shape (problems, orders, samples)
    confidence = np.exp(ballots.signal("logprob"))
    worth = compute_class_worth(ballots)
    values = np.empty((4, len(_CERTAINTIES), len(ballots)))
    rounds = np.zeros((len(_CERTAINTIES), setup.longest + 1))
    for rows in np.array_split(np.arange(len(ballots)), len(ballots) * layout.orders // _BLOCK_PATHS + 1):
        owner = np.repeat(rows, layout.orders)[:, None]
        samples = order[rows].reshape(-1, layout.longest)
        certainty, leader = trace_posteriors(ballots.classes[owner, samples], confidence[owner, samples])
        right = np.where(leader >= 0, worth[owner, np.maximum(leader, 0)], worth[owner, 0] * 0.0)
        tokens = np.cumsum(ballots.tokens[owner, samples], axis=1)
        highest = np.maximum.accumulate(certainty[:, :-1], axis=1)
        for place, odds in enumerate(_CERTAINTIES.tolist()):
            last = (highest < odds).sum(axis=1)[:, None]
            ends = (
                last + 1.0,
                np.take_along_axis(right, last, 1),
                last + 1.0,
                np.take_along_axis(tokens, last, 1),
            )
            rounds[place] += np.bincount(last[:, 0] + 1, minlength=setup.longest + 1)
            values[:, place, rows] = np.stack(ends).reshape(4, len(rows), -1).mean(axis=2)
    return values, rounds / (len(ballots) * layout.orders)


def trace_posteriors(classes: npt.NDArray[np.int32], confidence: Floats) -> tuple[Floats, Ints]:
    """Returns the most likely answer's log-odds and index after each sample; shape (requests, samples).

    The index is -1 before the first answer. The k answers seen so far and one unseen answer are equally
    likely a priori. A sample's confidence c is its probability of giving the right answer; the k wrong ones
    share the rest equally. So if an answer is right, its samples have likelihood c, and all others have
    likelihood (1 - c) / k.

    >>> odds, answer = trace_posteriors(np.array([[0, 1, 0]]), np.array([[0.8, 0.6, 0.7]]))
    >>> (1 / (1 + np.exp(-odds))).round(3).tolist(), answer.tolist()
    ([[0.8, 0.667, 0.903]], [[0, 0, 0]])
    """
    paths, draws = classes.shape
    rows, kinds = np.arange(paths), max(1, int(classes.max(initial=-1)) + 1)
    bounded = np.clip(confidence, _LEAST_DOUBT, 1 - _LEAST_DOUBT)
    odds = np.log(bounded) - np.log1p(-bounded)
    evidence, votes = np.zeros((2, paths, kinds))
    certainty, leaders = np.full((paths, draws), -np.inf), np.full((paths, draws), -1)
    for draw in range(draws):
        given = rows[classes[:, draw] >= 0]
        evidence[given, classes[given, draw]] += odds[given, draw]
        votes[given, classes[given, draw]] += 1
        seen = votes > 0
        count = np.maximum(seen.sum(axis=1), 1)
        scores = np.where(seen, evidence + votes * np.log(count)[:, None], -np.inf)
        leader = scores.argmax(axis=1)
        best = scores[rows, leader]
        scores[rows, leader] = -np.inf
        # `initial` is 0, the log-odds of an answer that hasn't been seen yet
        certainty[:, draw] = best - np.logaddexp.reduce(scores, axis=1, initial=0.0)
        leaders[:, draw] = np.where(best > -np.inf, leader, -1)
    return certainty, leaders


@dataclass(frozen=True, slots=True)
class PublishedCascades:
    """Runs C3PO and semantic-router's cascade on one split, with settings chosen on training problems."""

    name: str = "published cascades"

    def measure(self, data: SplitData) -> dict[str, SplitResult]:
        """Measures the cascades for which the samples have the necessary data, at each budget and near it."""
        setup, train = data.setup, data.split.train
        longest = [min(max(_SAMPLES), int(part.drawn.min())) for part in setup.ballots.parts]
        paths = draw_mode_paths(setup, None, longest, data.number)
        settings = {}
        if min(longest) > 1:  # C3PO needs samples that can agree, so at least two
            settings["C3PO"] = follow_conformal_cascades(paths, train)
        if all(map(records_confidence, setup.ballots.parts)):
            settings["confidence cascade"] = follow_confidence_cascades(setup, train)
        return {
            name: apply_mixes(
                setup,
                own,
                [mix_settings(own, train, target) for target in list_targets(setup)],
                data.split.test,
            )
            for name, own in settings.items()
        }


def follow_conformal_cascades(paths: ModePaths, train: Ints) -> Settings:
    """Finds and measures C3PO's best thresholds for every cap on cost, from the lowest cap to the highest.

    Half of the training problems show how often a cascade disagrees with the most expensive mode; the other
    half, the conformal quantile of costs. `worth` is agreement, because C3PO uses no labels.
    """
    cost, accuracy, agreement, reached, draws, single = map(
        np.stack, zip(*_list_cascades(paths), strict=True)
    )
    calibration = np.sort(single[:, train[1::2]], axis=1)
    rank = math.ceil((calibration.shape[1] + 1) * (1 - _OVERRUN))
    caps = calibration[:, min(rank, calibration.shape[1]) - 1]
    regret = 1.0 - agreement[:, train[::2]].mean(axis=1)
    chosen, least = [], np.inf
    for place in np.lexsort((cost.mean(axis=1), regret, caps)).tolist():
        if regret[place] < least:
            least = regret[place]
            chosen.append(place)
    return Settings(
        cost=cost[chosen],
        accuracy=accuracy[chosen],
        worth=agreement[chosen],
        draws=draws[chosen],
        rounds=_share_rounds(reached[chosen], train),
    )


def _share_rounds(reached: Floats, train: Ints) -> Floats:
    """Computes the share of test requests that end after 0, 1, ... modes; shape (settings, modes + 1).

    `reached` has the share of requests that reach each mode; shape (settings, modes, problems).
    """
    problems = np.arange(reached.shape[2])
    tested = np.setdiff1d(problems, train)  # empty if the training problems are all problems
    means = reached[:, :, tested if len(tested) else problems].mean(axis=2)
    return np.diff(-means, axis=1, prepend=-1.0, append=0.0)


def _list_cascades(paths: ModePaths) -> Iterator[tuple[Floats, ...]]:
    """Yields the results of each possible C3PO cascade, by problem.

    These are: cost; accuracy; agreement; the share of requests that reach each mode; the samples from each
    mode; the cost with the problem's first random order. The two by mode have shape (modes, problems).
    """
    rows, modes = np.arange(len(paths)), paths.modes
    counts = sorted({1, *(min(count, *paths.longest) for count in _SAMPLES)})
    for count, last in product(counts[1:], counts):
        drawn = np.array([count] * (len(modes) - 1) + [last])
        votes = [mode.counts[each] for mode, each in zip(modes, drawn, strict=True)]
        first = [each.max(axis=1) for each in votes]
        leaders = [
            np.where(most > 0, each.argmax(axis=1), -1) for each, most in zip(votes, first, strict=True)
        ]
        worth = [paths.worth_of(rows, leader) for leader in leaders]
        agrees = [paths.worth_of(rows, leader, by_agreement=True) for leader in leaders]
        spent = np.cumsum([mode.cost[each] for mode, each in zip(modes, drawn, strict=True)], axis=0)
        for least in product(range(1, count + 2), repeat=len(modes) - 1):
            stops = np.array([most >= needed for most, needed in zip(first, (*least, 0), strict=True)])
            end = stops.argmax(axis=0)  # index of the mode that gives each request's answer
            cost, reached = spent[end, rows], np.arange(len(modes)) <= end[:, None]
            means = map(paths.mean_per_problem, (cost, np.choose(end, worth), np.choose(end, agrees)))
            share = paths.mean_per_problem(reached.astype(np.float64)).T
            yield *means, share, share * drawn[:, None], cost[:: paths.orders]


def follow_confidence_cascades(setup: EvaluationSetup, train: Ints) -> Settings:
    """Computes the confidence cascade's expected results at each threshold, from all recorded samples."""
    ballots = setup.ballots
    judged = compute_class_worth(ballots)
    chosen = compute_full_vote(ballots) if setup.learns_by_agreement else judged
    parts = ballots.parts
    known = np.concatenate([part.signal("logprob")[train].ravel() for part in parts[:-1]])
    levels = np.quantile(known[np.isfinite(known)], np.linspace(0, 1, _CONFIDENCES))
    settings = [_accept_above(parts, (judged, chosen), level) for level in (-np.inf, *levels, np.inf)]
    cost, accuracy, worth, draws = (np.stack(column) for column in zip(*settings, strict=True))
    rounds = _share_rounds(draws, train)
    return Settings(cost=cost, accuracy=accuracy, worth=worth, draws=draws, rounds=rounds)


def _accept_above(
    parts: tuple[Ballots, ...], worths: tuple[Floats, Floats], level: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Computes a cascade's expected results if a log-probability of at least `level` stops it.

    Returns each problem's cost, accuracy to report, and accuracy to choose settings by. The fourth array is
    the number of samples from each mode, of shape (modes, problems).
    """
    problems = np.arange(len(parts[0]))[:, None]
    reached, cost = np.ones(len(problems)), np.zeros(len(problems))
    sums, draws = np.zeros((2, len(problems))), []
    for part in parts:
        present = part.classes != ABSENT
        accepted = present & (part.signal("logprob") >= level) if part is not parts[-1] else present
        draws.append(reached)
        cost += reached * np.nanmean(part.sample_costs(), axis=1)
        for place, worth in enumerate(worths):
            given = np.where(part.classes >= 0, worth[problems, np.maximum(part.classes, 0)], 0.0)
            sums[place] += reached * np.where(accepted, given, 0.0).sum(axis=1) / part.drawn
        reached = reached * (1.0 - accepted.sum(axis=1) / part.drawn)
    return cost, sums[0], sums[1], np.stack(draws)
