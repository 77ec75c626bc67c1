"""`score` over a folder of Parquet shards, equal to the local one. Knows nothing of allocations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task, Weigh
from adacompute.answers.weigh import Signal
from adacompute.errors import ScaleError, ScoreError
from adacompute.pool import Ballots, open_pool
from adacompute.records import AccuracyTable
from adacompute.scale.stages.exact import exact_votes
from adacompute.scale.stages.opened import Opened, Part, opened
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.sums import exact_sum
from adacompute.score import Price, score
from adacompute.score.costs import Costs, check_prompts, costs_of, untold
from adacompute.score.grades import Scored, grades
from adacompute.score.ranks import any_correct, best_of, lacking, unranked
from adacompute.score.score import (
    SEED,
    Aggregate,
    Estimator,
    check_ranking,
    check_simulation,
    checked_way,
    scorable,
    simulated,
    weighing,
    words_of,
)
from adacompute.score.shrink import shrink as shrunk
from adacompute.score.weighted import Chances, foresee, scaled, signals, unweighable, weighted_vote
from adacompute.score.windows import window_vote

__all__ = ["score_shards", "scored", "weigh_of"]

Ints = npt.NDArray[np.int64]
Cost = Literal["samples", "tokens"] | Price


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a shard scores its problems."""

    estimator: Estimator
    aggregate: Aggregate
    by: Literal["logprob", "entropy"] | Weigh
    budgets: tuple[int, ...]
    draws: int


def score_shards(
    folder: Path | str,
    budgets: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: Literal["logprob", "entropy"] | Weigh = "logprob",
    cost: Cost = "samples",
    too_few: Literal["error", "drop"] = "error",
    shrink: bool = False,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 2000,
    task: Task | None = None,
    engine: Literal["local", "ray"] = "ray",
    workers: int | None = None,
) -> AccuracyTable:
    """As `score(open_pool(folder), ...)`, and the very same table; by Ray, each shard in its own task."""
    way: dict[str, Any] = {
        "estimator": estimator,
        "aggregate": aggregate,
        "by": by,
        "cost": cost,
        "too_few": too_few,
        "shrink": shrink,
        "rng": rng,
        "draws": draws,
    }
    source: dict[str, Any] = {"model": model, "parameters": parameters}
    if engine == "local":
        with open_pool(folder, task=task) as pool:
            return score(pool, budgets, **way, **source)
    checked_way(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    with opened(Path(folder), task=task, workers=workers, **source) as shards:
        return scored(shards, budgets, **way)


def scored(
    shards: Opened,
    budgets: Sequence[int],
    *,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: Literal["logprob", "entropy"] | Weigh = "logprob",
    cost: Cost = "samples",
    too_few: Literal["error", "drop"] = "error",
    shrink: bool = False,
    rng: np.random.Generator | None = None,
    draws: int = 2000,
) -> AccuracyTable:
    """The accuracy table of shards that are open."""
    sizes = checked_way(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    heads = shards.heads
    rows = scorable(heads.told, sizes[-1], aggregate=aggregate, drop=too_few == "drop")
    _check_costs(shards, cost, rows)
    if not isinstance(by, str | Weigh):
        raise ScaleError("scores of your own can't be shared out to shards; score them with engine='local'")
    way = _Way(estimator=estimator, aggregate=aggregate, by=by, budgets=sizes, draws=draws)
    chances = None
    if aggregate == "weighted":
        way, chances = _weighted(shards, rows, way, rng)
    if aggregate == "best-of":
        check_ranking(by)
        _check_ranks(shards, rows, way)
    told = shards.ask(_shard, rows, [(way, one, more) for one, more in _given(shards, rows, cost, chances)])
    found = _found(shards, rows, way, told)
    spent = _costs(shards, rows, told)
    name = way.by.signal if isinstance(way.by, Weigh) else way.by
    words = words_of(estimator, aggregate, name, simulated=simulated(found), draws=draws)
    kept = np.zeros(len(heads), dtype=bool)
    kept[rows] = True
    table = AccuracyTable.of(
        found.accuracy,
        costs=spent.amounts,
        modes=sizes,
        standard_error=found.standard_error,
        ids=[heads.ids[row] for row in rows.tolist()],
        unit=spent.unit,
        dropped=[heads.ids[row] for row in np.flatnonzero(~kept).tolist()],
        protocol="; ".join(filter(None, [words, spent.note])),
    )
    return shrunk(table) if shrink else table


def weigh_of(shards: Opened, rows: Ints, signal: Signal) -> Weigh:
    """As `fitted` to these problems: the scale is their samples' mean, and the same number."""
    told = shards.ask(_signals, rows, [signal] * len(shards.ballots))
    count = sum(int(each["count"]) for each in told)
    if not count:
        raise unweighable(len(rows), signal)
    total = sum((Fraction(each["sum"]) for each in told), Fraction(0))
    return scaled(float(total) / count, signal)


def _signals(ballots: Ballots, _: Part, signal: Signal) -> Record:
    values, known = signals(ballots, signal)
    return {"sum": str(exact_sum(values[known])), "count": int(known.sum())}


def _weighted(shards: Opened, rows: Ints, way: _Way, rng: np.random.Generator | None) -> tuple[_Way, Chances]:
    """How votes are weighed, and all that will be drawn: it depends on numbers of samples alone."""
    asked = weighing(way.by)
    weigh = asked if isinstance(asked, Weigh) else weigh_of(shards, rows, asked)
    rng = np.random.default_rng(SEED) if rng is None else rng
    check_simulation(rng, way.draws)
    chances = foresee(shards.heads.drawn[rows], way.budgets, rng=rng, draws=way.draws)
    return replace(way, by=weigh), chances


def _check_costs(shards: Opened, cost: Cost, rows: Ints) -> None:
    counted = cost.output_per_million > 0 if isinstance(cost, Price) else cost == "tokens"
    unknown = rows[~shards.heads.tokens[rows]]
    if counted and len(unknown):
        raise untold(shards.heads.ids[int(unknown[0])], unknown=len(unknown), problems=len(rows))
    if isinstance(cost, Price):
        check_prompts(cost, len(shards.heads))


def _check_ranks(shards: Opened, rows: Ints, way: _Way) -> None:
    votes = shards.heads.votable(rows)
    told = shards.ask(_lacking, rows, [(way.by, votes[part.ranks]) for part in shards.parts(rows)])
    missing = sum(int(each["count"]) for each in told)
    if missing:
        first = [
            (int(part.ranks[each["row"]]), int(each["column"]))
            for part, each in zip(shards.parts(rows), told, strict=True)
            if each["count"]
        ]
        rank, column = min(first)
        raise unranked(shards.heads.ids[int(rows[rank])], column, missing=missing, by=way.by)


def _lacking(ballots: Ballots, _: Part, given: Any) -> Record:  # noqa: ANN401
    by, votes = given
    if by not in ("logprob", "entropy"):
        raise ScoreError(f"score {by!r} is not known; give 'logprob', 'entropy' or an array of your own")
    found = np.argwhere(lacking(ballots, grades(ballots), by, votes=votes))
    row, column = found[0].tolist() if len(found) else (0, 0)
    return {"count": len(found), "row": row, "column": column}


def _given(
    shards: Opened, rows: Ints, cost: Cost, chances: Chances | None
) -> list[tuple[Cost, dict[str, Any]]]:
    """What each shard's problems cost by, and what is drawn for them."""
    found: list[tuple[Cost, dict[str, Any]]] = []
    votes = shards.heads.votable(rows)
    for part in shards.parts(rows):
        own = cost
        if isinstance(cost, Price) and isinstance(cost.prompt_tokens, Sequence):
            own = replace(cost, prompt_tokens=[cost.prompt_tokens[row] for row in rows[part.ranks].tolist()])
        drawn = None if chances is None else replace(chances, orders=chances.orders[part.ranks])
        found.append((own, {"votes": votes[part.ranks], "chances": drawn}))
    return found


def _shard(ballots: Ballots, _: Part, given: Any) -> Record:  # noqa: ANN401
    """A shard's costs, and its scores but for exact votes, which go by slabs."""
    way, cost, more = given
    spent = costs_of(ballots, way.budgets, cost, rows=np.arange(len(ballots)))
    told: dict[str, Any] = {"amounts": spent.amounts, "unit": spent.unit, "note": spent.note}
    if (way.aggregate, way.estimator) == ("vote", "exact"):
        return told
    found = _problems(ballots, way, more)
    noise = found.simulation_error
    return told | {
        "accuracy": found.accuracy,
        "error": found.standard_error,
        "noise": np.zeros(found.accuracy.shape) if noise is None else noise,
    }


def _problems(ballots: Ballots, way: _Way, more: dict[str, Any]) -> Scored:
    values = grades(ballots)
    if not len(ballots):
        return Scored(accuracy=(none := np.zeros((0, len(way.budgets)))), standard_error=none)
    if way.aggregate == "vote":
        return window_vote(ballots, values, way.budgets)
    if way.aggregate == "any-correct":
        return any_correct(ballots, values, way.budgets)
    if isinstance(way.by, str):
        return best_of(ballots, values, way.budgets, by=way.by, votes=more["votes"])
    return weighted_vote(
        ballots,
        values,
        way.budgets,
        weigh=way.by,
        rng=np.random.default_rng(SEED),
        draws=way.draws,
        foreseen=more["chances"],
    )


def _found(shards: Opened, rows: Ints, way: _Way, told: Sequence[Record]) -> Scored:
    if (way.aggregate, way.estimator) == ("vote", "exact"):
        return exact_votes(shards, rows, way.budgets, worth="right")
    noise = shards.merged(told, "noise", rows)
    return Scored(
        accuracy=shards.merged(told, "accuracy", rows),
        standard_error=shards.merged(told, "error", rows),
        simulated=bool((noise > 0).any()),
        simulation_error=noise,
    )


def _costs(shards: Opened, rows: Ints, told: Sequence[Record]) -> Costs:
    first = next(each for each, part in zip(told, shards.parts(rows), strict=True) if len(part.rows))
    amounts = first["amounts"]
    if amounts.ndim == 2:
        amounts = shards.merged(told, "amounts", rows)
    return Costs(amounts=amounts, unit=first["unit"], note=first["note"])
