"""What an average budget allows a batch in all, and what of that is left. Knows nothing of policies."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from adacompute.collect import Left
from adacompute.collect.left import Run
from adacompute.errors import BudgetOutOfRange, CollectError
from adacompute.policies.settings import finite, shown
from adacompute.pool import Pool
from adacompute.records import Problem

__all__ = ["left_within", "samples_of"]


def samples_of(budget: object, requests: int) -> int:
    """The samples that an average budget allows so many requests in all."""
    average = finite(budget)
    if average is None or average < 1:
        raise BudgetOutOfRange(
            f"budget {shown(budget)} can't be samples a request on average; give 1 or more, e.g. 2"
        )
    if not requests:
        raise CollectError("there is no request to answer; give at least one")
    return math.floor(average * requests + 1e-9)  # 1.15 times 100 is a little below 115


def left_within(
    problems: Sequence[Problem],
    pool: Pool | None,
    *,
    budget: float,
    model: str,
    parameters: Mapping[str, Any],
) -> Left:
    """What a budget leaves to draw, for an estimate: a call a sample, as if requests got alike."""
    limit = samples_of(budget, len(problems))
    ids = {problem.id for problem in problems}
    there = () if pool is None else pool.indexes(model, parameters)
    stored = sum(len(indexes) for id_, indexes in there if id_ in ids)
    left = range(max(0, limit - stored))
    runs = tuple(Run(problems[i % len(problems)], i // len(problems), 1) for i in left)
    return Left(runs=runs, planned=max(limit, stored), stored=stored)
