"""Exact votes over shards, to the last bit those of one machine. Knows nothing of tables or policies.

Problems are scored in slabs, and what stands in a slab may move the last place of a number. So slabs are
those of the whole pool: a shard scores those that lie within it, and hands over its rows of the others, which
are then put together and scored by Ray too. Files of many thousand problems hand over little.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.replay.each import agreeing
from adacompute.scale.stages.opened import Opened, Part
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.passes import failures, spread
from adacompute.score.exact import check_largest, slab_vote, slabs
from adacompute.score.grades import DECIMALS, Scored, grades

__all__ = ["exact_votes"]

Ints = npt.NDArray[np.int64]
Worth = Literal["right", "agrees"]  # what a vote is judged by: grades, or the vote of all samples


def exact_votes(shards: Opened, rows: Ints, budgets: Sequence[int], *, worth: Worth) -> Scored:
    """As `exact_vote` of these problems, (problems, budgets)."""
    check_largest(budgets)
    heads = shards.heads
    known = heads.known[rows] if worth == "right" else np.ones(len(rows), dtype=bool)
    slab = np.full(len(rows), -1)  # (problems,) -1: not scored
    totals: list[int] = []
    for number, (total, some) in enumerate(slabs(heads.drawn[rows], known)):
        slab[some] = number
        totals.append(total)
    sizes = np.bincount(slab[slab >= 0], minlength=len(totals))
    given = [(worth, tuple(budgets), slab[part.ranks], sizes, totals) for part in shards.parts(rows)]
    told = shards.ask(_shard, rows, given)
    accuracy = shards.merged(told, "accuracy", rows)
    error = shards.merged(told, "error", rows)
    _add_split(shards, rows, told, slab, totals, budgets, accuracy, error)
    return Scored(accuracy=accuracy.round(DECIMALS), standard_error=error.round(DECIMALS))


def _shard(ballots: Ballots, part: Part, given: Any) -> Record:  # noqa: ANN401, ARG001
    """The slabs that lie within the shard, scored; the rows of others as they are."""
    worth, budgets, slab, sizes, totals = given
    values = grades(ballots) if worth == "right" else agreeing(ballots)
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    split = np.zeros(len(ballots), dtype=bool)
    for number in np.unique(slab[slab >= 0]).tolist():
        some = np.flatnonzero(slab == number)
        if len(some) < sizes[number]:
            split[some] = True
            continue
        accuracy[some], error[some] = slab_vote(
            ballots.classes[some], values[some], total=totals[number], budgets=budgets
        )
    return {
        "accuracy": accuracy,
        "error": error,
        "split": np.flatnonzero(split),
        "classes": ballots.classes[split],
        "values": values[split],
    }


def _add_split(
    shards: Opened,
    rows: Ints,
    told: Sequence[Record],
    slab: Ints,
    totals: Sequence[int],
    budgets: Sequence[int],
    accuracy: npt.NDArray[np.float64],
    error: npt.NDArray[np.float64],
) -> None:
    """Scores the slabs whose problems lie in several shards."""
    ranks = np.concatenate(
        [part.ranks[each["split"]] for part, each in zip(shards.parts(rows), told, strict=True)]
    )
    if not len(ranks):
        return
    order = np.argsort(ranks, kind="stable")
    classes = np.concatenate([each["classes"] for each in told])[order]
    values = np.concatenate([each["values"] for each in told])[order]
    ranks = ranks[order]
    owner = slab[ranks]
    numbers = np.unique(owner).tolist()
    given = [(classes[owner == k], values[owner == k], totals[k], tuple(budgets)) for k in numbers]
    for number, found in zip(
        numbers, failures(spread(_slab, given, workers=shards.ballots.workers).told), strict=True
    ):
        some = ranks[owner == number]
        accuracy[some], error[some] = found["accuracy"], found["error"]


def _slab(_: Record, given: Any) -> tuple[None, Record]:  # noqa: ANN401
    classes, values, total, budgets = given
    classes = classes[:, : int((classes != ABSENT).sum(axis=1).max(initial=0))]
    accuracy, error = slab_vote(classes, values[:, : classes.shape[1]], total=total, budgets=budgets)
    return None, {"accuracy": accuracy, "error": error}
