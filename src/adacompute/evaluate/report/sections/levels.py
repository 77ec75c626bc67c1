"""The section on difficulty: accuracy by level or by fifth, and what voting gains. Knows no policy."""

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.levels import Level, Levels, levels

__all__ = ["section", "table_of"]

_HARM = -0.001  # a loss in accuracy that is worth a word
_FIFTHS = (
    "no levels recorded: problems are grouped in fifths by one-sample accuracy instead; "
    "give `level` to every problem of the pool to see your own"
)


def section(case: Case) -> Section:
    """Accuracy by difficulty."""
    found = levels(case)
    return Section(
        key="levels",
        title="Accuracy by difficulty",
        words=_words(found),
        tables=(table_of(found),),
        missing=() if found.recorded else (_FIFTHS,),
    )


def table_of(found: Levels) -> Table:
    """A row a group, all problems last."""
    rows = tuple(_row(row) for row in (*found.rows, found.whole))
    note = "95% intervals over problems."
    if not found.recorded:
        note += (
            " The fifths are made from the same samples that are counted here, so the ends look more extreme."
        )
    return Table(
        key="levels",
        title="Accuracy by level" if found.recorded else "Accuracy by fifth of one-sample accuracy",
        protocol="All problems, over all subsets of their samples; nothing is fitted.",
        columns=(
            Column(name="level" if found.recorded else "fifth"),
            Column(name="problems", kind="count"),
            Column(name="b = 1", kind="share", about="accuracy of one sample"),
            Column(name=f"b = {found.budget}", kind="share", about=f"accuracy of a vote of {found.budget}"),
            Column(name="gain", kind="points", about="points of accuracy, problem by problem"),
        ),
        rows=rows,
        note=note,
        bold=(len(rows) - 1,),
    )


def _row(level: Level) -> tuple[Cell, ...]:
    return (level.name, level.problems, level.first, level.last, level.gain)


def _words(found: Levels) -> tuple[str, ...]:
    whole, most = found.whole, found.most
    first = (
        f"One sample is right {whole.first.mean:.1%} of the time; a vote of {found.budget} is right "
        f"{whole.last.mean:.1%} of the time, {_points(whole.gain.mean)}."
    )
    if whole.gain.holds_zero:
        return (
            f"{first} The interval of that gain holds zero: on this pool voting buys nothing that shows.",
        )
    least = min(found.rows, key=lambda row: row.gain.mean)
    place = found.rows.index(most)
    where = "in the middle" if 0 < place < len(found.rows) - 1 else "at one end"
    second = (
        f"{_name(most)} gains most ({_points(most.gain.mean)}) and {_name(least, start=False)} least "
        f"({_points(least.gain.mean)}): the most to gain is {where} of the scale."
    )
    harmed = [
        _name(row, start=False)
        for row in found.rows
        if row.gain.high is not None and row.gain.high < 0 and row.gain.mean <= _HARM
    ]
    if harmed:
        second += f" In {' and '.join(harmed)} voting does harm: the commonest answer is a wrong one."
    return (first, second)


def _name(level: Level, *, start: bool = True) -> str:
    name = level.name if level.name.startswith("level") else f"the {level.name}"
    return name[0].upper() + name[1:] if start else name


def _points(gain: float) -> str:
    return f"{round(100 * gain, 1) + 0.0:+.1f} points"  # no minus before a nought
