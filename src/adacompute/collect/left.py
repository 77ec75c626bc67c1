"""What is left to draw: planned minus stored. Knows nothing of endpoints, prices or how it is stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adacompute.pool import Pool
from adacompute.records import Problem

__all__ = ["Left", "Run", "left_of"]


@dataclass(frozen=True, slots=True)
class Run:
    """Samples of one problem whose indexes follow each other."""

    problem: Problem
    first: int  # index
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a plan still lacks."""

    runs: tuple[Run, ...]  # in the order of the problems
    planned: int  # samples of the whole plan
    stored: int  # of them

    @property
    def samples(self) -> int:
        """How many are left."""
        return sum(run.count for run in self.runs)

    @property
    def problems(self) -> int:
        """How many problems lack some."""
        return len({run.problem.id for run in self.runs})


def left_of(
    problems: Sequence[Problem],
    pool: Pool | None,
    *,
    samples: int,
    model: str,
    parameters: Mapping[str, Any],
) -> Left:
    """The samples 0 to `samples` - 1 of each problem that the pool has not; all of them without a pool."""
    there = {} if pool is None else _there(pool, model, parameters)
    runs = tuple(run for problem in problems for run in _runs(problem, there.get(problem.id), samples))
    planned = samples * len(problems)
    return Left(runs=runs, planned=planned, stored=planned - sum(run.count for run in runs))


def _there(pool: Pool, model: str, parameters: Mapping[str, Any]) -> dict[str, int | set[int]]:
    """By problem, how many samples there are; or, where they don't begin at 0 without a gap, which."""
    found: dict[str, int | set[int]] = {}
    for id_, indexes in pool.indexes(model, parameters):
        whole = max(indexes) + 1 == len(indexes)
        found[id_] = len(indexes) if whole else indexes  # a number, not a set: there may be millions
    return found


def _runs(problem: Problem, there: int | set[int] | None, samples: int) -> Iterator[Run]:
    if not isinstance(there, set):
        have = there or 0
        if have < samples:
            yield Run(problem, have, samples - have)
        return
    start = 0
    for index in range(samples + 1):
        if index == samples or index in there:
            if index > start:
                yield Run(problem, start, index - start)
            start = index + 1
