"""The progress of long jobs on stderr: a bar on a terminal, else a line now and then."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from adacompute.cli.terminal import format_count, print_message

__all__ = ["ProgressUpdate", "open_progress", "show_progress", "show_sample_count"]

_BAR_SECONDS = 0.25  # between two updates of a bar
_LINE_SECONDS = 30.0  # between two lines in a pipe
_LINES = 10  # of one job, where a line is written for each tenth


class ProgressUpdate(Protocol):
    """What a command calls as its job goes on."""

    def __call__(self, done: int, total: int | None, text: str) -> None:
        """So many of the total are done; `text` says more, beside the bar or at the end of the line."""


@contextmanager
def open_progress(
    label: str,
    *,
    noun: str = "",
    lines: Literal["timed", "tenths", "never"] = "timed",
    last_line: bool = False,
    transient: bool = True,
) -> Iterator[ProgressUpdate]:
    """Yield the function that shows progress: a bar on a terminal, else lines.

    Lines are written every 30 seconds (timed) or for each tenth of the job (tenths), and count in `noun`s.
    `last_line`: also write a line at the end of a timed job. `transient`: remove the bar at the end.
    """
    if sys.stderr.isatty():
        with _open_bar(label, transient=transient) as update:
            yield update
        return
    last = time.monotonic()

    def print_progress(done: int, total: int | None, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if lines == "tenths":
            is_due = bool(total) and done * _LINES // (total or 1) > (done - 1) * _LINES // (total or 1)
        else:
            is_due = lines == "timed" and (now - last >= _LINE_SECONDS or (last_line and done == total))
        if is_due:
            last = now
            count = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
            print_message(f"{label}: {count}{noun and f' {noun}'}, {text}")

    yield print_progress


@contextmanager
def _open_bar(label: str, *, transient: bool) -> Iterator[ProgressUpdate]:
    # imported here, because a pipe has no use for it
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
    """Yield a function of (steps done, steps in total, the last step), for jobs with few and long steps."""
    start = time.monotonic()
    with open_progress(label, lines="tenths") as update:

        def report(done: int, total: int, last_step: str) -> None:
            update(done, total, f"{last_step}, {time.monotonic() - start:.0f} s")

        yield report


@contextmanager
def show_sample_count(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (problems, samples) read so far, for a job whose end isn't known."""
    start = time.monotonic()
    with open_progress(label, lines="never") as update:

        def report(problems: int, samples: int) -> None:
            rate = samples / max(time.monotonic() - start, 1e-9)
            update(problems, None, f"problems, {format_count(samples, 'sample')}, {rate:,.0f} a second")

        yield report
