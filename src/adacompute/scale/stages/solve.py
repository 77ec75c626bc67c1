"""`solve` over a folder of Parquet shards: one price, found from a summary of each shard."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adacompute.records import AccuracyTable, Allocation, Mix, Move
from adacompute.scale.shard_passes import (
    ShardRecord,
    parse_histogram,
    parse_total,
    report_histogram,
    report_total,
    start_pass,
)
from adacompute.scale.stages.score import score_open_shards, score_shards
from adacompute.scale.stages.sharded_pool import open_sharded_pool
from adacompute.solve import solve
from adacompute.solve.shard_search import (
    PriceSearch,
    ShardQuota,
    SlopeBracket,
    TableShard,
)

__all__ = ["solve_shards", "solve_table_on_ray"]


def solve_shards(
    folder: Path | str,
    budgets: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    budget: float,
    engine: Literal["local", "ray"] = "ray",
    workers: int | None = None,
    **scoring: Any,  # noqa: ANN401 - as `score_shards` takes it
) -> Allocation:
    """As `solve(score(open_pool(folder), budgets, ...), budget=budget)`: the same price, choice and mix."""
    if engine == "local":
        return solve(score_shards(folder, budgets, engine="local", **scoring), budget=budget)
    source = {name: scoring.pop(name, None) for name in ("task", "model", "parameters")}
    with open_sharded_pool(Path(folder), workers=workers, **source) as shards:
        table = score_open_shards(shards, budgets, **scoring)
        return solve_table_on_ray(
            table, budget=budget, workers=shards.ballots.workers, parts=len(shards.ballots)
        )


def solve_table_on_ray(table: AccuracyTable, *, budget: float, workers: int, parts: int) -> Allocation:
    """The allocation of a table that is split into parts, one task each: only summaries and choices travel.

    At most three rounds of summaries find the price; then each part makes its choice by itself.
    """
    if not table.ascending:  # no table that was scored is otherwise
        return solve(table, budget=budget)
    dataset = start_pass(_keep_part, _split_table(table, max(1, min(parts, len(table)))), workers=workers)
    search = PriceSearch(budget=budget, unit=table.unit)
    while (bracket := search.bracket) is not None:
        reports = dataset.ask(_summarise_part, [bracket] * len(dataset))
        search.narrow(parse_histogram(report, bracket) for report in reports)
    choices = dataset.ask(_choose, [search.quota(k) for k in range(len(dataset))])
    solution = search.build_allocation(map(parse_total, choices))
    choice = np.concatenate([report["choice"] for report in choices])
    choice.setflags(write=False)
    return Allocation(
        budget=float(budget),
        price=solution.price,
        choice=choice,
        mix=_build_mix(solution.mix),
        cost=solution.cost,
        accuracy=solution.accuracy,
        mixed_cost=solution.mixed_cost,
        mixed_accuracy=solution.mixed_accuracy,
        bound=solution.bound,
        modes=table.modes,
        unit=table.unit,
    )


def _split_table(table: AccuracyTable, parts: int) -> list[tuple[Any, Any]]:
    """Consecutive rows, about as many to each part: accuracies and costs."""
    ends = np.linspace(0, len(table), parts + 1).astype(int).tolist()
    return [
        (table.accuracy[start:end], table.costs if table.shared_costs else table.costs[start:end])
        for start, end in pairwise(ends)
    ]


def _keep_part(_: ShardRecord, argument: Any) -> tuple[ShardRecord, ShardRecord]:  # noqa: ANN401
    accuracy, costs = argument
    return {"accuracy": accuracy, "costs": costs}, {}


def _load_shard(data: ShardRecord) -> TableShard:
    return TableShard.of(data["accuracy"], costs=data["costs"])


def _summarise_part(data: ShardRecord, bracket: SlopeBracket) -> tuple[None, ShardRecord]:
    return None, report_histogram(_load_shard(data).histogram(bracket))


def _choose(data: ShardRecord, share: ShardQuota) -> tuple[None, ShardRecord]:
    taken = _load_shard(data).take(share)
    return None, {"choice": taken.choice, **report_total(taken.total, taken.edge)}


def _build_mix(move: Move | None) -> Mix:
    if move is None:
        return Mix()
    return Mix(
        problems=np.array([move.problem]),
        modes=np.array([move.mode]),
        probabilities=np.array([move.probability]),
    )
