"""How the command line shows things: tables for a terminal, plain text for a pipe, JSON for a program.

Knows nothing of pools or policies: it gets headings, cells and numbers. What is asked for goes to stdout;
progress and messages go to stderr.
"""

import io
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = [
    "as_json",
    "can_show",
    "counted",
    "fact",
    "interval",
    "line",
    "message",
    "open_streams",
    "paragraph",
    "path_text",
    "percent",
    "points",
    "progress",
    "table",
    "width",
    "within",
]


# What a model's name or an error could do to a terminal: move, colour, retitle, forge lines, turn text round.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WIDEST = 96  # of a paragraph
_INDENT = 2  # of a table
_PLAINER = str.maketrans({"–": "-", "…": "...", "×": "x"})  # for an output that has ASCII only


def open_streams() -> None:
    """Makes stdout and stderr fit to write to, whatever the locale, and even where they are closed."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def as_json(value: object) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")
    sys.stdout.flush()


def can_show(text: str) -> bool:
    """Whether stdout's encoding has these characters: else they would come out as question marks."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def path_text(path: Path) -> str:
    """A path as text that every output can carry, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")


def line(text: str = "") -> None:
    """A line of the result."""
    text = _safe(text)
    if not can_show(text):
        text = text.translate(_PLAINER)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # a full disk or a gone reader shows here, while it can still be told


def width() -> int | None:
    """Columns of the terminal; None where stdout is none, and lines may be of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def paragraph(text: str, *, indent: int = 0, hang: int = 0) -> None:
    """Lines of the result, broken between words; those after the first stand further in, by `hang`."""
    widest = min(_WIDEST, width() or _WIDEST)
    _wrapped(text, first=" " * indent, rest=" " * (indent + hang), columns=widest)


def fact(label: str, value: str, *, column: int = 11) -> None:
    """A label and what it says, on one line; on a terminal too narrow for it, below each other."""
    first = f"  {label:<{column}} "
    columns = width()
    if columns is None:
        line(first + value)
    else:
        _wrapped(value, first=first, rest=" " * len(first), columns=columns)


def _wrapped(text: str, *, first: str, rest: str, columns: int) -> None:
    for part in textwrap.wrap(
        _safe(text),
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        line(part)


def message(text: str) -> None:
    """A line beside the result: on stderr."""
    sys.stderr.write(_safe(text) + "\n")


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A rich table on a terminal; in a pipe or a narrow one, columns aligned by spaces, none of them cut."""
    room = width()
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    if room is not None and _INDENT + sum(widths) + 3 * len(widths) + 1 <= room:  # a rule and two blanks each
        pretty = Table()
        for number, heading in enumerate(headings):
            pretty.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
        for row in rows:
            pretty.add_row(*row)
        Console().print(Padding.indent(pretty, _INDENT))
        return
    top = [list(headings)]
    if room is not None and _INDENT + sum(widths) + 2 * (len(widths) - 1) > room:
        top = _stacked(headings, rows)
    widths = [max(len(cell) for cell in column) for column in zip(*top, *rows, strict=True)]
    for row in [*top, *rows]:
        first, *rest = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        line(" " * _INDENT + "  ".join([first, *rest]).rstrip())


def _stacked(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Headings broken between words, so that columns are as narrow as their cells allow; lines of them."""
    parts = []
    for heading, *cells in zip(headings, *rows, strict=True):
        longest = max(map(len, [*heading.split(), *cells]))
        parts.append(textwrap.wrap(heading, longest))
    most = max(map(len, parts))
    return [list(each) for each in zip(*([""] * (most - len(part)) + part for part in parts), strict=True)]


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A running count of problems and samples on stderr, where that is a terminal; else None."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)
        start = time.monotonic()

        def at(problems: int, samples: int) -> None:
            rate = samples / max(time.monotonic() - start, 1e-9)
            done = f"{counted(problems, 'problem')}, {counted(samples, 'sample')}, {rate:,.0f} a second"
            bar.update(task, description=f"{what}: {done}")

        yield at


def counted(number: int, noun: str) -> str:
    """`1 problem`, `1,200 problems`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(share: float | None) -> str:
    """0.5831 -> `58.3%`; a dash where it isn't known."""
    return "–" if share is None else f"{share:.1%}"


def points(share: float, *, sign: bool = False) -> str:
    """0.0674 -> `6.7`: percentage points; more digits where they would be lost."""
    value = 100 * share if abs(share) > 5e-6 else 0.0  # no -0.000
    digits = 1 if abs(value) >= 0.1 or value == 0 else 3
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def within(one: float, other: float) -> str:
    """`71.0–71.6%`, the lower first; `71.0%` where they show alike."""
    low, high = sorted([one, other])
    return percent(low) if percent(low) == percent(high) else interval(low, high)


def interval(low: float | None, high: float | None) -> str:
    """`53.1–63.4%`; a dash where it isn't known."""
    return "–" if low is None or high is None else f"{100 * low:.1f}–{high:.1%}"
