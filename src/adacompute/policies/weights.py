"""Learns how to weigh each sample's vote, and converts vote weights to and from stored data.

A vote's weight depends on its sample's mean log-probability, other confidence signals, verifier's score and
mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.answers.vote import (
    DEFAULT_SIGNALS,
    MAX_DEVIATION,
    NEED_ALTERNATIVES,
    ScoreWeights,
    SignalModel,
)
from adacompute.errors import NotRecorded, PolicyError, format_value
from adacompute.policies.votes import Floats
from adacompute.pool import Ballots
from adacompute.score.aggregates import compute_log_odds, fit_vote_weights, read_model_signals, sum_moments
from adacompute.score.grades import grade_samples, mask_graded

SHARPNESS = 1.0  # how strongly vote weights depend on confidence; studies/findings.md explains the choice
_RIDGE = 1.0  # penalty on squared coefficients when fitting a signal model
_SCORE_FIELDS = {field.name for field in fields(ScoreWeights)}
_MAX_PAIRED = 32  # maximum number of right samples per problem, and of wrong ones, from which pairs are made
_HUGE = 1e100  # larger numbers are clipped, so that squares stay finite
_OUTLIER_MARGIN = 4.0  # values further outside the middle 90% than 4 times its range are clipped
_NEWTON_STEPS = 12  # number of iterations of Newton's method; more change nothing


def fit_confidence_weights(ballots: Ballots, model: SignalModel | None = None) -> VoteWeights | None:
    """Makes vote weights from confidence; the vote of a sample with average confidence weighs 1.

    Returns None if no log-probabilities are recorded, or if all of them are 0. `model` weighs votes by
    further signals; its means and spreads are adapted to these samples.
    """
    try:
        weights = fit_vote_weights(ballots, "logprob")
    except NotRecorded:
        return None
    if not weights.sharpness:  # all samples have log-probability 0
        return None
    if model is not None:
        model = model.settle(sum_moments(ballots, model))
    return replace(weights, sharpness=SHARPNESS, model=model)


def fit_weights(ballots: Ballots, model: SignalModel | None = None, *, labels: bool) -> VoteWeights | None:
    """Learns vote weights from confidence and a verifier's scores; None if neither is recorded."""
    weigh, score = fit_confidence_weights(ballots, model), fit_score_weights(ballots, labels=labels)
    if weigh is not None and weigh.model is not None:
        weigh = replace(weigh, model=calibrate_signal_model(weigh.model, [ballots], labels=labels))
    if score is None:
        return weigh
    return VoteWeights.by_score(score) if weigh is None else replace(weigh, score=score)


def fit_score_weights(ballots: Ballots, *, labels: bool) -> ScoreWeights | None:
    """Learns how much a verifier's score counts beside the other signals; None if it can't be learned.

    Compares right and wrong samples of the same problem, as `fit_signal_model` does. If right ones don't tend
    to have higher scores, the score's weight (`beta`) is 0.
    """
    model = fit_signal_model([ballots], labels=labels, names=(*DEFAULT_SIGNALS, "score"), required="score")
    if model is None:
        return None
    return ScoreWeights(
        beta=max(0.0, model.sharpness * model.coefficients[-1]),
        centre=model.centre[-1],
        spread=model.spread[-1],
    )


def fit_signal_model(
    recordings: Sequence[Ballots],
    *,
    labels: bool = True,
    names: Sequence[str] = DEFAULT_SIGNALS,
    required: str = "",
) -> SignalModel | None:
    """Learns which signals tell a right sample from a wrong one, from pairs of samples of the same problem.

    Such pairs ignore that some problems are easier, which doesn't affect votes. Without labels, a sample is
    right if it agrees with the vote of the problem's other samples. Uses only samples with the signal
    `required` or, if it is "", with any signal besides the mean log-probability. Returns None if there are
    none, or if no problem has both right and wrong ones.
    """
    parts = []
    for ballots in recordings:
        values = read_model_signals(ballots, names)
        wanted = [name == required if required else name != "logprob" for name in names]
        further = np.isfinite(values[:, :, wanted]).any(axis=2)
        rows = further & (ballots.classes >= 0)
        if rows.any():
            parts.append((ballots, values, rows, *_measure_spread(values[rows])))
    if not parts:
        return None
    differences, weights = [], []
    for ballots, values, rows, centre, spread in parts:
        deviations = np.clip((values - centre) / spread, -MAX_DEVIATION, MAX_DEVIATION)
        right = _mark_right(ballots, labels=labels)
        for problem, own in enumerate(np.nan_to_num(deviations)):
            answered = rows[problem] & np.isfinite(right[problem])
            right_ones = own[answered & (right[problem] >= 0.5)][:_MAX_PAIRED]
            wrong_ones = own[answered & (right[problem] < 0.5)][:_MAX_PAIRED]
            pairs = (right_ones[:, None] - wrong_ones[None]).reshape(-1, len(names))
            if len(pairs):
                differences.append(pairs)
                weights.append(np.full(len(pairs), len(pairs) ** -0.5))
    if not differences:
        return None
    pairs, counts = np.concatenate(differences), np.concatenate(weights)
    is_bare = np.array([name not in NEED_ALTERNATIVES for name in names])
    bare = np.zeros(len(names))
    bare[is_bare] = _fit_odds(pairs[:, is_bare], counts)
    model = SignalModel(
        names=tuple(names),
        centre=tuple(np.mean([centre for *_, centre, _ in parts], axis=0).tolist()),
        spread=tuple(np.mean([spread for *_, spread in parts], axis=0).tolist()),
        coefficients=tuple(_fit_odds(pairs, counts).tolist()),
        bare=tuple(bare.tolist()),
    )
    return calibrate_signal_model(model, recordings, labels=labels)


def calibrate_signal_model(
    model: SignalModel, recordings: Sequence[Ballots], *, labels: bool = True
) -> SignalModel:
    """Fits the model's slope and intercept so that its `probability` is the chance that a sample is right.

    Votes don't use slope and intercept. Without labels, `probability` is the chance that a sample agrees with
    the vote of the problem's other samples.
    """
    rows, outcomes, weights = [], [], []
    for ballots in recordings:
        odds, known = compute_log_odds(ballots, model.settle(sum_moments(ballots, model)))
        right = _mark_right(ballots, labels=labels)
        known = known & (ballots.classes >= 0) & np.isfinite(right)
        rows.append(np.stack([odds[known], np.ones(int(known.sum()))], axis=1))
        outcomes.append(right[known])
        # all samples of one problem together have a weight of 1
        weights.append((known / np.maximum(known.sum(axis=1, keepdims=True), 1))[known])
    joined = np.concatenate(rows)
    if not len(joined):
        return model
    slope, intercept = _fit_logistic(joined, np.concatenate(outcomes), np.concatenate(weights))
    return replace(model, slope=float(slope), intercept=float(intercept))


def _measure_spread(values: Floats) -> tuple[Floats, Floats]:
    """Computes each column's mean and standard deviation; 0 and 1 for a column without values.

    Clips outliers first, such as a placeholder of -9999. A deviation of 0 becomes 1.
    """
    centre, spread = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for k, column in enumerate(values.T):
        known = np.clip(column[np.isfinite(column)], -_HUGE, _HUGE)
        if not len(known):
            continue
        low, high = np.quantile(known, [0.05, 0.95])
        if high > low:
            margin = _OUTLIER_MARGIN * (high - low)
            known = np.clip(known, low - margin, high + margin)
        centre[k], deviation = known.mean(), known.std()
        spread[k] = deviation if deviation > 0 else 1.0
    return centre, spread


def _mark_right(ballots: Ballots, *, labels: bool) -> Floats:
    """Returns how right each sample is: its grade, or its agreement with the problem's other samples."""
    if labels:
        grades = grade_samples(ballots)
        return np.where(mask_graded(ballots, grades)[:, None], grades, _mark_agreement(ballots.classes))
    return _mark_agreement(ballots.classes)


def _mark_agreement(classes: npt.NDArray[np.int32]) -> Floats:
    """Returns 1 for each sample whose answer wins a vote of its problem's other samples, else 0.

    If n answers tie for the win, each gets 1/n. A problem with fewer than two answers gets NaN.
    """
    agrees = np.zeros(classes.shape)
    for problem, row in enumerate(classes):
        answered = np.flatnonzero(row >= 0)
        if len(answered) < 2:
            agrees[problem] = np.nan
            continue
        others = (
            np.bincount(row[answered])[None, :] - np.eye(int(row.max()) + 1, dtype=np.int64)[row[answered]]
        )
        wins = others == others.max(axis=1, keepdims=True)
        agrees[problem, answered] = wins[np.arange(len(answered)), row[answered]] / wins.sum(axis=1)
    return agrees


def _fit_odds(pairs: Floats, weights: Floats) -> Floats:
    """Fits coefficients so that the right sample of each pair has higher log-odds than the wrong one."""
    return _fit_logistic(pairs, np.ones(len(pairs)), weights)


def _fit_logistic(rows: Floats, outcomes: Floats, weights: Floats) -> Floats:
    """Fits the coefficients of a logistic regression by Newton's method; outcomes are 0 to 1."""
    coefficients = np.zeros(rows.shape[1])
    for _ in range(_NEWTON_STEPS):
        expected = 1.0 / (1.0 + np.exp(-(rows @ coefficients)))
        gradient = rows.T @ (weights * (outcomes - expected)) - _RIDGE * coefficients
        curvature = (rows * (weights * expected * (1 - expected))[:, None]).T @ rows
        coefficients = coefficients + np.linalg.solve(
            curvature + _RIDGE * np.eye(len(coefficients)), gradient
        )
    return coefficients


def check_weights(value: object) -> VoteWeights | None:
    """Returns the value if it is VoteWeights or None; raises PolicyError otherwise."""
    if value is not None and not isinstance(value, VoteWeights):
        raise PolicyError(
            f"weigh {format_value(value)} can't weigh votes; give VoteWeights, or None for plain votes"
        )
    return value


def dump_weights(weigh: VoteWeights | None) -> dict[str, Any] | None:
    """Converts vote weights to plain data for JSON."""
    if weigh is None:
        return None
    settings: dict[str, Any] = {"signal": weigh.signal, "scale": weigh.scale, "sharpness": weigh.sharpness}
    if weigh.model is not None:
        settings["model"] = weigh.model.dump()
    if weigh.score is not None:
        settings["score"] = asdict(weigh.score)
    return settings


def load_weights(value: object) -> VoteWeights | None:
    """Restores vote weights from the result of `dump_weights`."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) - {"model", "score"} != {"signal", "scale", "sharpness"}:
        raise PolicyError(
            f"weigh {format_value(value)} doesn't say how votes are weighed; it has signal, scale, sharpness"
        )
    # policies that older versions saved have no "model"
    model = SignalModel.load(value["model"]) if value.get("model") is not None else None
    scores = value.get("score")  # policies that older versions saved have no "score"
    if scores is not None and (not isinstance(scores, Mapping) or set(scores) != _SCORE_FIELDS):
        raise PolicyError(f"weigh.score {format_value(scores)} can't be read; it has beta, centre, spread")
    score_weights = None if scores is None else ScoreWeights(**scores)
    return VoteWeights(**{**value, "model": model, "score": score_weights})


def join_weights(names: Sequence[str], weights: Sequence[VoteWeights | None], factors: Floats) -> VoteWeights:
    """Combines the vote weights of all modes; votes are unweighted in modes without log-probabilities."""
    plain = VoteWeights(signal="logprob", scale=-1.0, sharpness=0.0)
    modes = tuple(
        (name, replace(plain if own is None else own, factor=float(factor)))
        for name, own, factor in zip(names, weights, factors, strict=True)
    )
    return replace(plain, modes=modes)


def dump_mode_weights(weigh: VoteWeights | None) -> list[dict[str, Any]] | None:
    """Converts each mode's vote weights to plain data for JSON; None if all modes have the same."""
    if weigh is None or not weigh.modes:
        return None
    return [
        {"mode": name, "factor": own.factor, "weigh": dump_weights(replace(own, factor=1.0))}
        for name, own in weigh.modes
    ]


def load_mode_weights(stored: object, names: Sequence[str]) -> VoteWeights:
    """Restores vote weights from the result of `dump_mode_weights`.

    Raises PolicyError if they aren't for the modes `names`.
    """
    if not isinstance(stored, list) or [each["mode"] for each in stored] != list(names):
        raise PolicyError(f"votes {stored!r} don't say what a vote of each of {', '.join(names)} weighs")
    factors = np.array([each["factor"] for each in stored], dtype=np.float64)
    return join_weights(names, [load_weights(each["weigh"]) for each in stored], factors)
