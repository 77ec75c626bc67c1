"""Accuracy by difficulty, for one sample and for the largest budget, and what voting gains:
numbers and words.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.replay.matching import Bootstrap, Interval
from adacompute.report.document import Cell, Column, Section, Table
from studies.paper.paper_pool import PaperPool

__all__ = ["LevelTable", "build_section", "compute_levels"]

Floats = npt.NDArray[np.float64]

_CLEAR_LOSS = -0.001  # of accuracy: a loss worth mentioning
_FIFTHS = (
    "no levels recorded: problems are grouped in fifths by one-sample accuracy instead; "
    "give `level` to every problem of the pool to see your own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A group of problems of similar difficulty; intervals are over its problems."""

    name: str
    problems: int
    first: Interval  # accuracy of one sample
    last: Interval  # accuracy of a vote of the largest budget
    gain: Interval  # the difference, problem by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTable:
    """The difficulty groups of a recording, and all its problems together."""

    name: str
    kind: str  # "level", or "fifth of one-sample accuracy"
    budget: int  # the largest
    rows: tuple[Level, ...]
    whole: Level

    @property
    def has_recorded_levels(self) -> bool:
        """Whether the groups are levels of the pool, not derived from its accuracies."""
        return self.kind == "level"

    @property
    def largest_gain(self) -> Level:
        """The group that gains most from voting."""
        return max(self.rows, key=lambda row: row.gain.mean)


def compute_levels(pool: PaperPool) -> LevelTable:
    """Accuracy by level, or by fifth, over all subsets of the samples."""
    first, last = pool.exact.accuracy[:, 0], pool.exact.accuracy[:, -1]
    groups = [(name, pool.difficulty.rows(at)) for at, name in enumerate(pool.difficulty.names)]
    return LevelTable(
        name=pool.name,
        kind=pool.difficulty.kind,
        budget=pool.budgets[-1],
        rows=tuple(_make_level(name, first[rows], last[rows]) for name, rows in groups if len(rows)),
        whole=_make_level("all", first, last),
    )


def _make_level(name: str, first: Floats, last: Floats) -> Level:
    draws = Bootstrap.of(len(first))
    return Level(
        name=name,
        problems=len(first),
        first=draws.interval(first),
        last=draws.interval(last),
        gain=draws.difference(last, first),
    )


def build_section(pool: PaperPool) -> Section:
    """Accuracy by difficulty."""
    level_table = compute_levels(pool)
    return Section(
        key="levels",
        title="Accuracy by difficulty",
        words=_write_words(level_table),
        tables=(build_levels_table(level_table),),
        missing=() if level_table.has_recorded_levels else (_FIFTHS,),
    )


def build_levels_table(levels: LevelTable) -> Table:
    """A row for each group, all problems last."""
    rows = tuple(_table_row(row) for row in (*levels.rows, levels.whole))
    note = "95% intervals over problems."
    if not levels.has_recorded_levels:
        note += (
            " The fifths are made from the same samples that are counted here, so the ends look more extreme."
        )
    return Table(
        key="levels",
        title="Accuracy by level"
        if levels.has_recorded_levels
        else "Accuracy by fifth of one-sample accuracy",
        protocol="All problems, over all subsets of their samples; nothing is fitted.",
        columns=(
            Column(name="level" if levels.has_recorded_levels else "fifth"),
            Column(name="problems", kind="count"),
            Column(name="b = 1", kind="share", about="accuracy of one sample"),
            Column(name=f"b = {levels.budget}", kind="share", about=f"accuracy of a vote of {levels.budget}"),
            Column(name="gain", kind="points", about="points of accuracy, problem by problem"),
        ),
        rows=rows,
        note=note,
        bold=(len(rows) - 1,),
    )


def _table_row(level: Level) -> tuple[Cell, ...]:
    return (level.name, level.problems, level.first, level.last, level.gain)


def _write_words(levels: LevelTable) -> tuple[str, ...]:
    whole, most = levels.whole, levels.largest_gain
    first = (
        f"One sample is right {whole.first.mean:.1%} of the time; a vote of {levels.budget} is right "
        f"{whole.last.mean:.1%} of the time, {_format_points(whole.gain.mean)}."
    )
    if whole.gain.holds_zero:
        return (
            f"{first} The interval of that gain holds zero: on this pool voting buys nothing that shows.",
        )
    least = min(levels.rows, key=lambda row: row.gain.mean)
    place = levels.rows.index(most)
    where = "in the middle" if 0 < place < len(levels.rows) - 1 else "at one end"
    second = (
        f"{_level_name(most)} gains most ({_format_points(most.gain.mean)}) "
        f"and {_level_name(least, capital=False)} least "
        f"({_format_points(least.gain.mean)}): the most to gain is {where} of the scale."
    )
    harmed = [
        _level_name(row, capital=False)
        for row in levels.rows
        if row.gain.high is not None and row.gain.high < 0 and row.gain.mean <= _CLEAR_LOSS
    ]
    if harmed:
        second += f" In {' and '.join(harmed)} voting does harm: the commonest answer is a wrong one."
    return (first, second)


def _level_name(level: Level, *, capital: bool = True) -> str:
    name = level.name if level.name.startswith("level") else f"the {level.name}"
    return name[0].upper() + name[1:] if capital else name


def _format_points(gain: float) -> str:
    return f"{round(100 * gain, 1) + 0.0:+.1f} points"  # no minus before a zero
