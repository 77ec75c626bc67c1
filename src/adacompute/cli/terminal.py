"""Prints a command's output: tables and text for a terminal, plain text for a pipe, JSON for programs.

Results go to stdout; progress and messages go to stderr. Costs are shown without an exponent; tiny costs
are shown per thousand problems.
"""

import io
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adacompute.errors import format_count as format_count

if TYPE_CHECKING:
    from adacompute.replay.matching import Interval
    from adacompute.report.document import Report

# matches control characters, which could forge lines or reverse text if a model's name or an error has them
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PARAGRAPH_WIDTH = 96
_TABLE_INDENT = 2
# an example that even a small model answers correctly
EXAMPLE_QUESTION = "What is the chemical symbol of chlorine?"
_ASCII = str.maketrans({"–": "-", "…": "...", "×": "x"})  # replacements if the output can only show ASCII


def format_curl(
    url: str, *, model: str | None = None, max_tokens: int | None = None, with_key: bool = False
) -> str:
    """Returns a curl command that asks a chat endpoint the example question.

    >>> format_curl("http://127.0.0.1:8080/v1", model="m").split(" -d ")[0]
    "curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json'"
    """
    import json
    import shlex

    body: dict[str, object] = {} if model is None else {"model": model}
    body["messages"] = [{"role": "user", "content": EXAMPLE_QUESTION}]
    body |= {} if max_tokens is None else {"max_tokens": max_tokens}
    key = " -H 'authorization: Bearer KEY'" if with_key else ""
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {url}/chat/completions{key} -H 'content-type: application/json' -d {data}"


def prepare_streams() -> None:
    """Makes sure that printing never fails, even if the locale lacks a character or stdout is closed."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: object) -> None:
    """Prints a JSON object to stdout."""
    import orjson  # imported here, because `adacompute --version` doesn't need orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")
    sys.stdout.flush()


def format_path(path: Path) -> str:
    """Formats a path as text that can always be printed, even if its name isn't valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def print_line(text: str = "") -> None:
    """Prints a line to stdout."""
    text = _escape(text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        text = text.translate(_ASCII)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()  # flush now, so that a full disk or closed pipe is noticed here


def terminal_width() -> int | None:
    """Returns the terminal's width in columns; None if stdout isn't a terminal."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_paragraph(text: str, *, indent: int = 0, hang: int = 0) -> None:
    """Prints wrapped text; lines after the first are indented further, by `hang`."""
    widest = min(_PARAGRAPH_WIDTH, terminal_width() or _PARAGRAPH_WIDTH)
    _print_wrapped(text, first=" " * indent, rest=" " * (indent + hang), columns=widest)


def print_fact(label: str, value: str, *, column: int = 11) -> None:
    """Prints a label and its value on one line; wraps the value on narrow terminals."""
    first = f"  {label:<{column}} "
    columns = terminal_width()
    if columns is None:
        print_line(first + value)
    else:
        _print_wrapped(value, first=first, rest=" " * len(first), columns=columns)


def _print_wrapped(text: str, *, first: str, rest: str, columns: int) -> None:
    for part in textwrap.wrap(
        _escape(text),
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        print_line(part)


def print_message(text: str) -> None:
    """Prints a line to stderr."""
    sys.stderr.write(_escape(text) + "\n")


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns, never truncated; on narrow terminals, headings take several lines."""
    columns = terminal_width()
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    heading_lines = [list(headings)]
    if columns is not None and _TABLE_INDENT + sum(widths) + 2 * (len(widths) - 1) > columns:
        heading_lines = _stack_headings(headings, rows)
    widths = [max(len(cell) for cell in column) for column in zip(*heading_lines, *rows, strict=True)]
    for row in [*heading_lines, *rows]:
        first, *rest = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print_line(" " * _TABLE_INDENT + "  ".join([first, *rest]).rstrip())


def _stack_headings(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Breaks headings at spaces, so that columns are no wider than needed; returns the rows of headings."""
    parts = []
    for heading, *cells in zip(headings, *rows, strict=True):
        longest = max(map(len, [*heading.split(), *cells]))
        parts.append(textwrap.wrap(heading, longest))
    height = max(map(len, parts))
    return [list(each) for each in zip(*([""] * (height - len(part)) + part for part in parts), strict=True)]


def format_percent(share: float | None) -> str:
    """Formats 0.5831 as `58.3%`; a dash if unknown."""
    return "–" if share is None else f"{share:z.1%}"


def format_point_number(share: float, *, sign: bool = False) -> str:
    """Formats 0.0674 as `6.7` percentage points; small values get more digits."""
    value = 100 * share if abs(share) > 5e-6 else 0.0  # tiny values are shown as 0, not as -0.000
    digits = 1 if abs(value) >= 0.1 or value == 0 else 3
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def format_range(first: float, second: float) -> str:
    """Formats a range as `71.0–71.6%`, the lower end first; as `71.0%` if both look the same."""
    low, high = sorted([first, second])
    return format_percent(low) if format_percent(low) == format_percent(high) else format_interval(low, high)


def format_interval(low: float | None, high: float | None) -> str:
    """Formats an interval as `53.1–63.4%`; a dash if unknown."""
    return "–" if low is None or high is None else f"{100 * low:.1f}–{high:.1%}"


_TINY_COST = 0.01  # smaller amounts of money are shown per thousand problems
_MANY_PROBLEMS = 1000
_COUNTED_UNITS = ("samples", "tokens")  # units of cost other than money


@dataclass(frozen=True, slots=True, kw_only=True)
class CostScale:
    """How to show costs: per problem, or per thousand problems for tiny sums of money."""

    unit: str
    problems: int

    def format_number(self, cost: float, *, digits: int = 4) -> str:
        return format_fixed(cost * self.problems, digits=digits)

    def format_cost(self, cost: float, *, digits: int = 4, more: bool = False) -> str:
        """Formats a cost with its unit: `1 sample`, `612 tokens`, `0.12 USD per 1,000 problems`.

        If `more`, formats it as a difference in cost: `100 more tokens`.
        """
        number = self.format_number(cost, digits=digits)
        noun = self.unit[:-1] if number == "1" and self.unit.endswith("s") else self.unit
        per = "" if self.problems == 1 else f" per {self.problems:,} problems"
        return f"{number} {'more ' if more else ''}{noun}{per}"


def choose_scale(unit: str, largest_cost: float) -> CostScale:
    """Chooses whether to show costs per problem or per thousand problems."""
    tiny = unit not in _COUNTED_UNITS and 0 < largest_cost < _TINY_COST
    return CostScale(unit=unit, problems=_MANY_PROBLEMS if tiny else 1)


def format_fixed(value: float, *, digits: int = 4) -> str:
    """Formats a number with `digits` significant digits, from 1,000 up as a whole number; never an exponent.

    >>> format_fixed(0.0000564), format_fixed(2.0), format_fixed(1234567.0), format_fixed(1.99773)
    ('0.0000564', '2', '1,234,567', '1.998')
    """
    if value == 0 or abs(value) >= _MANY_PROBLEMS:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_ends(interval: "Interval") -> str:
    """Formats the ends of an interval in percentage points, `1.2 to 3.4`; a dash if unknown."""
    if interval.low is None or interval.high is None:
        return "–"
    low, high = (round(100 * end, 1) + 0.0 for end in (interval.low, interval.high))
    return f"{low:.1f} to {high:.1f}"


def print_report(report: "Report") -> None:
    """Prints a report's headline, notices, and its table of budgets."""
    # imported here, because other output doesn't need the report's modules
    from adacompute.report.document import format_cell

    print_paragraph(report.headline)
    if report.below:
        print_paragraph(report.below)
    if report.money is not None and report.money["words"]:
        print_paragraph(report.money["words"])
    for notice in report.notices:
        print_line()
        print_paragraph(notice)
    (table,) = (table for table in report.tables() if table.key == "budgets")
    print_line()
    print_line(table.title)
    rows = [
        [format_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    print_table([column.name for column in table.columns], rows)
    print_line()


# --- progress of long jobs, on stderr: a bar on a terminal, otherwise a line from time to time ---

_BAR_SECONDS = 0.25  # minimum seconds between updates of a progress bar
_LINE_SECONDS = 30.0  # minimum seconds between lines of progress if stderr isn't a terminal
_LINES = 10  # maximum number of progress lines for a job with few, long steps


# a function that takes the number of items done, the total (None if unknown), and a text to show beside them
ProgressUpdate = Callable[[int, int | None, str], None]


@contextmanager
def open_progress(
    label: str,
    *,
    noun: str = "",
    by_tenths: bool = False,
    last_line: bool = False,
    transient: bool = True,
) -> Iterator[ProgressUpdate]:
    """Yields a function that shows progress: a bar on a terminal, else lines.

    A line is written every 30 seconds, or with `by_tenths`, after each tenth of the job. `last_line` adds a
    line at the end. `noun` names the items that are counted. A `transient` bar is removed at the end.
    """
    if sys.stderr.isatty():
        with _open_bar(label, transient=transient) as update:
            yield update
        return
    last = time.monotonic()

    def print_progress(done: int, total: int | None, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if by_tenths:
            is_due = bool(total) and done * _LINES // (total or 1) > (done - 1) * _LINES // (total or 1)
        else:
            is_due = now - last >= _LINE_SECONDS or (last_line and done == total)
        if is_due:
            last = now
            count = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
            print_message(f"{label}: {count}{noun and f' {noun}'}, {text}")

    yield print_progress


@contextmanager
def _open_bar(label: str, *, transient: bool) -> Iterator[ProgressUpdate]:
    # imported here, because output to a pipe doesn't need rich
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    last = -math.inf
    with Progress(*columns, console=Console(stderr=True), transient=transient) as bar:
        task = bar.add_task(label, total=None, text="")

        def update_bar(done: int, total: int | None, text: str) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _BAR_SECONDS or done == total:
                last = now
                bar.update(task, completed=done, total=total, text=text)

        yield update_bar


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yields a function that shows the progress of a job with few, long steps.

    The function takes the number of steps done, the number of all steps, and the name of the last step done.
    """
    start = time.monotonic()
    with open_progress(label, by_tenths=True) as update:

        def report(done: int, total: int, last_step: str) -> None:
            update(done, total, f"{last_step}, {time.monotonic() - start:.0f} s")

        yield report
