"""Accuracy by difficulty: of one sample, of the largest budget, and what voting gains. Knows no policy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.paper.case import Case

__all__ = ["Level", "Levels", "levels"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A group of problems of like difficulty; intervals are over its problems."""

    name: str
    problems: int
    first: Interval  # accuracy of one sample
    last: Interval  # accuracy of a vote of the largest budget
    gain: Interval  # the difference, problem by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """A recording's groups, and all its problems together."""

    name: str
    kind: str  # "level", or "fifth of one-sample accuracy"
    budget: int  # the largest
    rows: tuple[Level, ...]
    whole: Level

    @property
    def recorded(self) -> bool:
        """Whether the groups are levels of the pool, not made from its accuracies."""
        return self.kind == "level"

    @property
    def most(self) -> Level:
        """The group that gains most."""
        return max(self.rows, key=lambda row: row.gain.mean)


def levels(case: Case) -> Levels:
    """Accuracy by level, or by fifth, over all subsets of the samples."""
    first, last = case.exact.accuracy[:, 0], case.exact.accuracy[:, -1]
    groups = [(name, case.difficulty.rows(at)) for at, name in enumerate(case.difficulty.names)]
    return Levels(
        name=case.name,
        kind=case.difficulty.kind,
        budget=case.budgets[-1],
        rows=tuple(_level(name, first[rows], last[rows]) for name, rows in groups if len(rows)),
        whole=_level("all", first, last),
    )


def _level(name: str, first: Floats, last: Floats) -> Level:
    draws = Bootstrap.of(len(first))
    return Level(
        name=name,
        problems=len(first),
        first=draws.interval(first),
        last=draws.interval(last),
        gain=draws.difference(last, first),
    )
