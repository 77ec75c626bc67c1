"""`score` over a folder of Parquet shards, equal to the local result to the last bit.

Problems are scored in slabs, and a slab's members may move the last digit of a number. So slabs are those
of the whole pool: a shard scores those that lie within it, and hands over its rows of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task, VoteWeights
from adacompute.answers.vote import Moments, Signal, SignalModel
from adacompute.errors import ScaleError, ScoreError
from adacompute.pool import Ballots, open_pool
from adacompute.pool.ballots import ABSENT
from adacompute.records import AccuracyTable, TokenPrices
from adacompute.replay.per_problem import compute_agreement
from adacompute.scale.shard_passes import ShardRecord, raise_failures, start_pass
from adacompute.scale.stages.sharded_pool import ShardedPool, ShardPart, open_sharded_pool
from adacompute.score import score
from adacompute.score.aggregates import (
    SimulationPlan,
    build_unranked_error,
    build_unweighable_error,
    build_vote_weights,
    find_unranked,
    plan_simulation,
    read_bounded_signals,
    read_signals,
    score_any_correct,
    score_best_of,
    score_weighted_vote,
)
from adacompute.score.costs import (
    Costs,
    build_missing_tokens_error,
    check_prompt_tokens,
    compute_costs,
)
from adacompute.score.grades import DECIMALS, AccuracyEstimates, grade_samples, select_scorable
from adacompute.score.plain_vote import (
    check_exact_budgets,
    group_by_sample_count,
    score_slab,
    score_window_vote,
)
from adacompute.score.score import (
    SEED,
    Aggregate,
    Estimator,
    check_method,
    check_ranking,
    check_simulation,
    check_weighting,
    describe_score_protocol,
    largest_simulation_error,
)

__all__ = ["exact_votes", "fit_weights_on_shards", "score_open_shards", "score_shards", "sum_exactly"]

Ints = npt.NDArray[np.int64]

VoteTarget = Literal["right", "agrees"]  # what a vote is judged by: grades, or the vote of all samples


def exact_votes(
    shards: ShardedPool, rows: Ints, budgets: Sequence[int], *, target: VoteTarget
) -> AccuracyEstimates:
    """As `exact_vote` of these problems, (problems, budgets)."""
    check_exact_budgets(budgets)
    index = shards.index
    known = index.known[rows] if target == "right" else np.ones(len(rows), dtype=bool)
    slab = np.full(len(rows), -1)  # (problems,) -1: not scored
    totals: list[int] = []
    for number, (total, members) in enumerate(group_by_sample_count(index.drawn[rows], known)):
        slab[members] = number
        totals.append(total)
    sizes = np.bincount(slab[slab >= 0], minlength=len(totals))
    arguments = [
        (target, tuple(budgets), slab[part.ranks], sizes, totals) for part in shards.split_rows(rows)
    ]
    reports = shards.ask_shards(_score_own_slabs, rows, arguments)
    accuracy = shards.merge_reports(reports, "accuracy", rows)
    error = shards.merge_reports(reports, "error", rows)
    _score_split_slabs(shards, rows, reports, slab, totals, budgets, accuracy, error)
    return AccuracyEstimates(accuracy=accuracy.round(DECIMALS), standard_error=error.round(DECIMALS))


def _score_own_slabs(ballots: Ballots, part: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401, ARG001
    """Scores the slabs that lie within the shard; hands over its rows of the others."""
    target, budgets, slab, sizes, totals = argument
    values = grade_samples(ballots) if target == "right" else compute_agreement(ballots)
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    split = np.zeros(len(ballots), dtype=bool)
    for number in np.unique(slab[slab >= 0]).tolist():
        members = np.flatnonzero(slab == number)
        if len(members) < sizes[number]:
            split[members] = True
            continue
        accuracy[members], error[members] = score_slab(
            ballots.classes[members], values[members], total=totals[number], budgets=budgets
        )
    return {
        "accuracy": accuracy,
        "error": error,
        "split": np.flatnonzero(split),
        "classes": ballots.classes[split],
        "values": values[split],
    }


def _score_split_slabs(
    shards: ShardedPool,
    rows: Ints,
    reports: Sequence[ShardRecord],
    slab: Ints,
    totals: Sequence[int],
    budgets: Sequence[int],
    accuracy: npt.NDArray[np.float64],
    error: npt.NDArray[np.float64],
) -> None:
    """Scores the slabs whose problems lie in several shards."""
    ranks = np.concatenate(
        [part.ranks[report["split"]] for part, report in zip(shards.split_rows(rows), reports, strict=True)]
    )
    if not len(ranks):
        return
    order = np.argsort(ranks, kind="stable")
    classes = np.concatenate([report["classes"] for report in reports])[order]
    values = np.concatenate([report["values"] for report in reports])[order]
    ranks = ranks[order]
    owner = slab[ranks]
    numbers = np.unique(owner).tolist()
    arguments = [(classes[owner == k], values[owner == k], totals[k], tuple(budgets)) for k in numbers]
    for number, report_of_slab in zip(
        numbers,
        raise_failures(start_pass(_score_slab, arguments, workers=shards.ballots.workers).reports),
        strict=True,
    ):
        members = ranks[owner == number]
        accuracy[members], error[members] = report_of_slab["accuracy"], report_of_slab["error"]


def _score_slab(_: ShardRecord, argument: Any) -> tuple[None, ShardRecord]:  # noqa: ANN401
    classes, values, total, budgets = argument
    classes = classes[:, : int((classes != ABSENT).sum(axis=1).max(initial=0))]
    accuracy, error = score_slab(classes, values[:, : classes.shape[1]], total=total, budgets=budgets)
    return None, {"accuracy": accuracy, "error": error}


_MANTISSA_BITS = 53  # of a mantissa
_HALF_BITS = 26


def sum_exactly(values: npt.NDArray[np.float64]) -> Fraction:
    """The sum of finite numbers, not rounded: `float` of it is `math.fsum` of them all.

    >>> float(sum_exactly(np.array([0.1] * 10)))
    1.0
    """
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, _MANTISSA_BITS).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents).tolist():
        group = whole[exponents == exponent]
        # in two parts, for 2^10 mantissas together would be too many bits
        group_sum = (int((group >> _HALF_BITS).sum()) << _HALF_BITS) + int(
            (group & ((1 << _HALF_BITS) - 1)).sum()
        )
        total += Fraction(group_sum) * Fraction(2) ** (exponent - _MANTISSA_BITS)
    return total


Cost = Literal["samples", "tokens"] | TokenPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreSettings:
    """How a shard scores its problems."""

    estimator: Estimator
    aggregate: Aggregate
    by: Literal["logprob", "entropy"] | VoteWeights
    budgets: tuple[int, ...]
    draws: int


def score_shards(
    folder: Path | str,
    budgets: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob",
    cost: Cost = "samples",
    too_few: Literal["error", "drop"] = "error",
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 2000,
    task: Task | None = None,
    engine: Literal["local", "ray"] = "ray",
    workers: int | None = None,
) -> AccuracyTable:
    """As `score(open_pool(folder), ...)`, with exactly the same table; by Ray, each shard in its own task."""
    settings: dict[str, Any] = {
        "estimator": estimator,
        "aggregate": aggregate,
        "by": by,
        "cost": cost,
        "too_few": too_few,
        "rng": rng,
        "draws": draws,
    }
    source: dict[str, Any] = {"model": model, "parameters": parameters}
    if engine == "local":
        with open_pool(folder, task=task) as pool:
            return score(pool, budgets, **settings, **source)
    check_method(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    with open_sharded_pool(Path(folder), task=task, workers=workers, **source) as shards:
        return score_open_shards(shards, budgets, **settings)


def score_open_shards(
    shards: ShardedPool,
    budgets: Sequence[int],
    *,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob",
    cost: Cost = "samples",
    too_few: Literal["error", "drop"] = "error",
    rng: np.random.Generator | None = None,
    draws: int = 2000,
) -> AccuracyTable:
    """The accuracy table of shards that are open."""
    sizes = check_method(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    index = shards.index
    rows = select_scorable(index.scorable_problems, sizes[-1], aggregate=aggregate, drop=too_few == "drop")
    _check_costs(shards, cost, rows)
    if not isinstance(by, str | VoteWeights):
        raise ScaleError("scores of your own can't be shared out to shards; score them with engine='local'")
    settings = _ScoreSettings(estimator=estimator, aggregate=aggregate, by=by, budgets=sizes, draws=draws)
    chances = None
    if aggregate == "weighted":
        settings, chances = _prepare_weights(shards, rows, settings, rng)
    if aggregate == "best-of":
        check_ranking(by)
        _check_ranks(shards, rows, settings)
    reports = shards.ask_shards(
        _score_shard,
        rows,
        [
            (settings, shard_cost, extra)
            for shard_cost, extra in _build_arguments(shards, rows, cost, chances)
        ],
    )
    scores = _merge_scores(shards, rows, settings, reports)
    costs = _merge_costs(shards, rows, reports)
    name = settings.by.signal if isinstance(settings.by, VoteWeights) else settings.by
    words = describe_score_protocol(
        estimator, aggregate, name, simulation_error=largest_simulation_error(scores), draws=draws
    )
    is_scored = np.zeros(len(index), dtype=bool)
    is_scored[rows] = True
    return AccuracyTable.of(
        scores.accuracy,
        costs=costs.amounts,
        modes=sizes,
        standard_error=scores.standard_error,
        ids=[index.ids[row] for row in rows.tolist()],
        unit=costs.unit,
        dropped=[index.ids[row] for row in np.flatnonzero(~is_scored).tolist()],
        protocol="; ".join(filter(None, [words, costs.note])),
    )


def fit_weights_on_shards(shards: ShardedPool, rows: Ints, signal: Signal) -> VoteWeights:
    """As fitting weights to these problems locally: the scale is their samples' mean, the same number."""
    reports = shards.ask_shards(_sum_signals, rows, [signal] * len(shards.ballots))
    count = sum(int(report["count"]) for report in reports)
    if not count:
        raise build_unweighable_error(len(rows), signal)
    total = sum((Fraction(report["sum"]) for report in reports), Fraction(0))
    return build_vote_weights(float(total) / count, signal)


def settle_model_on_shards(shards: ShardedPool, rows: Ints, model: SignalModel) -> SignalModel:
    """As settling a model on these problems' samples locally: the same numbers."""
    reports = shards.ask_shards(report_moments, rows, [model] * len(shards.ballots))
    return model.settle(merge_moments(reports, model.names))


def report_moments(ballots: Ballots, _: ShardPart | None, model: SignalModel) -> ShardRecord:
    """A shard's share of `sum_moments`, not rounded."""
    return {
        name: [len(values), str(sum_exactly(values)), str(sum_exactly(values * values))]
        for name, values in read_bounded_signals(ballots, model).items()
    }


def merge_moments(reports: Sequence[ShardRecord], names: Sequence[str]) -> Moments:
    """What `sum_moments` gives for the samples of all shards."""
    sums = {name: [sum(Fraction(report[name][k]) for report in reports) for k in range(3)] for name in names}
    return {
        name: (float(count), float(total), float(squares)) for name, (count, total, squares) in sums.items()
    }


def _sum_signals(ballots: Ballots, _: ShardPart, signal: Signal) -> ShardRecord:
    values, known = read_signals(ballots, signal)
    return {"sum": str(sum_exactly(values[known])), "count": int(known.sum())}


def _prepare_weights(
    shards: ShardedPool, rows: Ints, settings: _ScoreSettings, rng: np.random.Generator | None
) -> tuple[_ScoreSettings, SimulationPlan]:
    """The weights of votes, and all random draws in advance: they depend on numbers of samples alone."""
    requested = check_weighting(settings.by)
    weigh = (
        requested if isinstance(requested, VoteWeights) else fit_weights_on_shards(shards, rows, requested)
    )
    rng = np.random.default_rng(SEED) if rng is None else rng
    check_simulation(rng, settings.draws)
    chances = plan_simulation(shards.index.drawn[rows], settings.budgets, rng=rng, draws=settings.draws)
    return replace(settings, by=weigh), chances


def _check_costs(shards: ShardedPool, cost: Cost, rows: Ints) -> None:
    needs_tokens = cost.output > 0 if isinstance(cost, TokenPrices) else cost == "tokens"
    unknown = rows[~shards.index.tokens[rows]]
    if needs_tokens and len(unknown):
        raise build_missing_tokens_error(
            shards.index.ids[int(unknown[0])], unknown=len(unknown), problems=len(rows)
        )
    if isinstance(cost, TokenPrices):
        check_prompt_tokens(cost, len(shards.index))


def _check_ranks(shards: ShardedPool, rows: Ints, settings: _ScoreSettings) -> None:
    votes = shards.index.votable(rows)
    reports = shards.ask_shards(
        _count_lacking, rows, [(settings.by, votes[part.ranks]) for part in shards.split_rows(rows)]
    )
    missing = sum(int(report["count"]) for report in reports)
    if missing:
        first = [
            (int(part.ranks[report["row"]]), int(report["column"]))
            for part, report in zip(shards.split_rows(rows), reports, strict=True)
            if report["count"]
        ]
        rank, column = min(first)
        raise build_unranked_error(shards.index.ids[int(rows[rank])], column, missing=missing, by=settings.by)


def _count_lacking(ballots: Ballots, _: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    by, votes = argument
    if by not in ("logprob", "entropy"):
        raise ScoreError(f"score {by!r} is not known; give 'logprob', 'entropy' or an array of your own")
    missing = np.argwhere(find_unranked(ballots, grade_samples(ballots), by, votes=votes))
    row, column = missing[0].tolist() if len(missing) else (0, 0)
    return {"count": len(missing), "row": row, "column": column}


def _build_arguments(
    shards: ShardedPool, rows: Ints, cost: Cost, chances: SimulationPlan | None
) -> list[tuple[Cost, dict[str, Any]]]:
    """What each shard's problems cost, and what is drawn for them."""
    arguments: list[tuple[Cost, dict[str, Any]]] = []
    votes = shards.index.votable(rows)
    for part in shards.split_rows(rows):
        shard_cost = cost
        if isinstance(cost, TokenPrices) and isinstance(cost.prompt_tokens, Sequence):
            shard_cost = replace(
                cost, prompt_tokens=[cost.prompt_tokens[row] for row in rows[part.ranks].tolist()]
            )
        shard_chances = None if chances is None else replace(chances, orders=chances.orders[part.ranks])
        arguments.append((shard_cost, {"votes": votes[part.ranks], "chances": shard_chances}))
    return arguments


def _score_shard(ballots: Ballots, _: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    """A shard's costs, and its scores but for exact votes, which go by slabs."""
    settings, cost, extra = argument
    costs = compute_costs(ballots, settings.budgets, cost, rows=np.arange(len(ballots)))
    report: dict[str, Any] = {"amounts": costs.amounts, "unit": costs.unit, "note": costs.note}
    if (settings.aggregate, settings.estimator) == ("vote", "exact"):
        return report
    scores = _score_problems(ballots, settings, extra)
    noise = scores.simulation_error
    return report | {
        "accuracy": scores.accuracy,
        "error": scores.standard_error,
        "noise": np.zeros(scores.accuracy.shape) if noise is None else noise,
    }


def _score_problems(ballots: Ballots, settings: _ScoreSettings, extra: dict[str, Any]) -> AccuracyEstimates:
    values = grade_samples(ballots)
    if not len(ballots):
        return AccuracyEstimates(accuracy=(none := np.zeros((0, len(settings.budgets)))), standard_error=none)
    if settings.aggregate == "vote":
        return score_window_vote(ballots, values, settings.budgets)
    if settings.aggregate == "any-correct":
        return score_any_correct(ballots, values, settings.budgets)
    if isinstance(settings.by, str):
        return score_best_of(ballots, values, settings.budgets, by=settings.by, votes=extra["votes"])
    return score_weighted_vote(
        ballots,
        values,
        settings.budgets,
        weigh=settings.by,
        rng=np.random.default_rng(SEED),
        draws=settings.draws,
        plan=extra["chances"],
    )


def _merge_scores(
    shards: ShardedPool, rows: Ints, settings: _ScoreSettings, reports: Sequence[ShardRecord]
) -> AccuracyEstimates:
    if (settings.aggregate, settings.estimator) == ("vote", "exact"):
        return exact_votes(shards, rows, settings.budgets, target="right")
    noise = shards.merge_reports(reports, "noise", rows)
    return AccuracyEstimates(
        accuracy=shards.merge_reports(reports, "accuracy", rows),
        standard_error=shards.merge_reports(reports, "error", rows),
        simulated=bool((noise > 0).any()),
        simulation_error=noise,
    )


def _merge_costs(shards: ShardedPool, rows: Ints, reports: Sequence[ShardRecord]) -> Costs:
    first = next(
        report for report, part in zip(reports, shards.split_rows(rows), strict=True) if len(part.rows)
    )
    amounts = first["amounts"]
    if amounts.ndim == 2:
        amounts = shards.merge_reports(reports, "amounts", rows)
    return Costs(amounts=amounts, unit=first["unit"], note=first["note"])
