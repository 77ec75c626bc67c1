"""`solve` over a folder of Parquet shards: one price from summaries of each. Knows no samples."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adacompute.records import AccuracyTable, Allocation, Mix, Move
from adacompute.scale.stages.opened import opened
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.passes import spread
from adacompute.scale.stages.score import score_shards, scored
from adacompute.solve import solve
from adacompute.solve.shards import Bracket, Edge, Search, Shard, Share, Summary, Total

__all__ = ["solve_shards", "solved"]


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
    with opened(Path(folder), workers=workers, **source) as shards:
        table = scored(shards, budgets, **scoring)
        return solved(table, budget=budget, workers=shards.ballots.workers, parts=len(shards.ballots))


def solved(table: AccuracyTable, *, budget: float, workers: int, parts: int) -> Allocation:
    """The allocation of a table that is cut into parts, each with a task: only summaries and choices travel.

    At most three rounds of summaries find the price; then each part makes its choice by itself.
    """
    if not table.ascending:  # no table that was scored is otherwise
        return solve(table, budget=budget)
    kept = spread(_part, _cut(table, max(1, min(parts, len(table)))), workers=workers)
    search = Search(budget=budget, unit=table.unit)
    while (bracket := search.bracket) is not None:
        told = kept.ask(_summary, [bracket] * len(kept))
        search.narrow(Summary(bracket=bracket, **each) for each in told)
    taken = kept.ask(_take, [search.share(k) for k in range(len(kept))])
    found = search.settled((Total(**_total(each)), _edge(each)) for each in taken)
    choice = np.concatenate([each["choice"] for each in taken])
    choice.setflags(write=False)
    return Allocation(
        budget=float(budget),
        price=found.price,
        choice=choice,
        mix=_mix(found.mix),
        cost=found.cost,
        accuracy=found.accuracy,
        mixed_cost=found.mixed_cost,
        mixed_accuracy=found.mixed_accuracy,
        bound=found.bound,
        modes=table.modes,
        unit=table.unit,
    )


def _cut(table: AccuracyTable, parts: int) -> list[tuple[Any, Any]]:
    """Consecutive rows, about as many to each part: accuracies and costs."""
    ends = np.linspace(0, len(table), parts + 1).astype(int).tolist()
    return [
        (table.accuracy[start:end], table.costs if table.shared_costs else table.costs[start:end])
        for start, end in pairwise(ends)
    ]


def _part(_: Record, given: Any) -> tuple[Record, Record]:  # noqa: ANN401
    accuracy, costs = given
    return {"accuracy": accuracy, "costs": costs}, {}


def _shard(kept: Record) -> Shard:
    return Shard.of(kept["accuracy"], costs=kept["costs"])


def _summary(kept: Record, bracket: Bracket) -> tuple[None, Record]:
    found = _shard(kept).summary(bracket)
    return None, {name: getattr(found, name) for name in ("problems", "cheapest", "dearest", "keys", "cost")}


def _take(kept: Record, share: Share) -> tuple[None, Record]:
    found = _shard(kept).take(share)
    edge = None if found.edge is None else asdict(found.edge)
    return None, {"choice": found.choice, "total": asdict(found.total), "edge": edge}


def _total(told: Record) -> dict[str, Any]:
    return {**told["total"], "counts": tuple(told["total"]["counts"])}


def _edge(told: Record) -> Edge | None:
    return None if told["edge"] is None else Edge(**told["edge"])


def _mix(move: Move | None) -> Mix:
    if move is None:
        return Mix()
    return Mix(
        problems=np.array([move.problem]),
        modes=np.array([move.mode]),
        probabilities=np.array([move.probability]),
    )
