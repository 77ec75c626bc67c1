"""Two frontiers as a small picture in text: accuracy against average cost. Knows nothing of terminals.

Lines of braille dots where the output can carry them, else of plain ASCII. Costs stand on a logarithmic
scale, because budgets double; on a linear one where one of them is free.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adacompute.cli.amounts import Scale, scale_of
from adacompute.records import Frontier

__all__ = ["curve_lines"]

_WIDTH, _HEIGHT = 60, 12  # of the picture, in characters, without its labels; narrower where it must be
_STEPS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # between labels of accuracy
_LABELS = 5  # of accuracy, about
_MARGIN = 8  # left of the axis
_HANG = 5  # right of the picture, for half of the last label
_NARROWEST = 10
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille character, by column and row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """The characters that a picture is made of."""

    side: str
    tick: str
    corner: str
    floor: str
    foot: str
    budget: str
    pointer: str
    oracle: str  # in the legend
    alike: str


_FINE = _Marks(
    side="│", tick="┤", corner="└", floor="─", foot="┴", budget="┊", pointer="▲", oracle="⠤⠤⠤", alike="⠄⠠⠄"
)
_PLAIN = _Marks(
    side="|", tick="+", corner="+", floor="-", foot="+", budget=":", pointer="^", oracle="***", alike="..."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where costs and accuracies lie in the picture, 0 to 1 from left to right and from bottom to top."""

    left: float
    right: float
    low: float
    high: float
    step: float  # between labels of accuracy
    width: int  # of the picture, in characters

    def across(self, cost: float) -> float:
        if self.left > 0:
            return math.log(cost / self.left) / math.log(self.right / self.left)
        return (cost - self.left) / (self.right - self.left)

    def cost(self, across: float) -> float:
        if self.left > 0:
            return min(self.right, self.left * math.pow(self.right / self.left, across))
        return self.left + across * (self.right - self.left)

    def row(self, accuracy: float) -> float:
        """In characters from the top, not yet whole."""
        return (self.high - accuracy) / (self.high - self.low) * (_HEIGHT - 1)


@dataclass(slots=True)
class _Canvas:
    """Characters, (row, column); unset ones are blank."""

    cells: dict[tuple[int, int], str] = field(default_factory=dict)

    def dot(self, x: int, y: int) -> None:
        """One braille dot, twice as fine across and four times as fine down as characters."""
        if 0 <= y < 4 * _HEIGHT:
            at = (y // 4, x // 2)
            old = ord(self.cells.get(at, "\u2800"))
            self.cells[at] = chr((old if old >= 0x2800 else 0x2800) | _DOTS[x % 2][y % 4])

    def line(self, row: int) -> str:
        last = max((column for at, column in self.cells if at == row), default=-1)
        return "".join(self.cells.get((row, column), " ") for column in range(last + 1))


def curve_lines(
    oracle: Frontier,
    alike: Frontier,
    *,
    ticks: Sequence[float],
    budget: float | None,
    fine: bool,
    end: str = "upper end",
    columns: int = 80,
) -> list[str]:
    """The picture, line by line: the oracle, uniform, and the budget asked for. At most `columns` wide.

    `ticks` are the costs to label, ascending; nothing is drawn where the first is the last. `fine` says
    whether the output can carry more than ASCII, `end` which of the oracle's values is drawn.
    """
    if not ticks[0] < ticks[-1]:
        return []
    marks = _FINE if fine else _PLAIN
    frame = _frame(oracle, alike, ticks, width=min(_WIDTH, columns - _MARGIN - _HANG))
    canvas = _Canvas()
    if budget is not None and not frame.left <= budget <= frame.right:
        budget = None
    if budget is not None:
        for row in range(_HEIGHT):
            canvas.cells[row, _column(frame, budget)] = marks.budget
    if fine:
        _draw_dots(canvas, frame, alike, solid=False)
        _draw_dots(canvas, frame, oracle, solid=True)
    else:
        _draw_letters(canvas, frame, alike, letter=marks.alike[0])
        _draw_letters(canvas, frame, oracle, letter=marks.oracle[0])
    labels = _labels(frame)
    lines = [f"{'accuracy':>{_MARGIN}}"]
    for row in range(_HEIGHT):
        side = marks.tick if row in labels else marks.side
        lines.append(f"{labels.get(row, ''):>{_MARGIN - 1}} {side}{canvas.line(row)}")
    lines += _foot(frame, ticks, budget, scale_of(oracle.unit, ticks[-1]), marks)
    lines += _legend(marks, end, scale_of(oracle.unit, ticks[-1]), budget, columns=columns)
    return [line.rstrip() for line in lines]


def _frame(oracle: Frontier, alike: Frontier, ticks: Sequence[float], *, width: int) -> _Frame:
    low, high = min(oracle.at(ticks[0]), alike.at(ticks[0])), max(oracle.at(ticks[-1]), alike.at(ticks[-1]))
    span = max(high - low, _STEPS[0])
    step = next((step for step in _STEPS if span / step <= _LABELS), _STEPS[-1])
    return _Frame(
        left=ticks[0],
        right=ticks[-1],
        low=low - span / 50,
        high=low + span * 1.02,
        step=step,
        width=max(width, _NARROWEST),
    )


def _labels(frame: _Frame) -> dict[int, str]:
    """Labels of accuracy by row."""
    numbers = range(math.ceil(frame.low / frame.step), math.floor(frame.high / frame.step) + 1)
    digits = 1 if frame.step < 0.01 else 0
    return {round(frame.row(n * frame.step)): f"{n * frame.step:.{digits}%}" for n in numbers}


def _draw_dots(canvas: _Canvas, frame: _Frame, curve: Frontier, *, solid: bool) -> None:
    before: int | None = None
    for x in range(2 * frame.width):
        y = round(4 * frame.row(curve.at(frame.cost(x / (2 * frame.width - 1)))) + 1.5)
        if solid:  # no gaps where it is steep
            for between in range(y, y if before is None else before):
                canvas.dot(x, between)
        if solid or x % 3 == 0:
            canvas.dot(x, y)
        before = y


def _draw_letters(canvas: _Canvas, frame: _Frame, curve: Frontier, *, letter: str) -> None:
    for x in range(frame.width):
        row = round(frame.row(curve.at(frame.cost(x / (frame.width - 1)))))
        canvas.cells[row, x] = letter


def _column(frame: _Frame, cost: float) -> int:
    return round(frame.across(cost) * (frame.width - 1))


def _foot(
    frame: _Frame, ticks: Sequence[float], budget: float | None, scale: Scale, marks: _Marks
) -> list[str]:
    """The axis of costs with the budget on it, its labels and its title."""
    axis, names = [marks.floor] * frame.width, ""
    for tick in ticks:
        at, label = _column(frame, tick), scale.number(tick, digits=3)
        start = max(0, at - len(label) // 2)
        if start > len(names) or not names:
            names = names.ljust(start) + label
            axis[at] = marks.foot
    if budget is not None:
        axis[_column(frame, budget)] = marks.pointer
    title = f"{scale.unit}{scale.per or ' a problem'} on average{', log scale' if frame.left > 0 else ''}"
    blank = " " * (_MARGIN + 1)
    return [f"{blank[1:]}{marks.corner}{''.join(axis)}", blank + names, blank + title.center(frame.width)]


def _legend(marks: _Marks, end: str, scale: Scale, budget: float | None, *, columns: int) -> list[str]:
    """What is what, in as many lines as it takes."""
    parts = [f"{marks.oracle} oracle, {end}", f"{marks.alike} uniform"]
    if budget is not None:
        parts.append(f"{marks.pointer} the budget, {scale.number(budget, digits=3)}")
    lines = [" " * (_MARGIN + 1) + parts[0]]
    for part in parts[1:]:
        together = f"{lines[-1]}   {part}"
        if len(together) <= columns:
            lines[-1] = together
        else:
            lines.append(" " * (_MARGIN + 1) + part)
    return lines
