"""How far a collection is, on stderr: a bar on a terminal, some lines in a pipe. Knows nothing of calls."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from adacompute.cli.show import counted, message
from adacompute.collect import Progress

__all__ = ["errors_text", "money", "watched"]

_EVERY = 0.25  # seconds between two looks of a bar
_LINES = 30.0  # seconds between two lines of a pipe


@contextmanager
def watched(what: str, *, priced: bool) -> Iterator[Callable[[Progress], None]]:
    """A function that shows progress as it is told, not more often than can be read."""
    start, said = time.monotonic(), False
    last = -math.inf if sys.stderr.isatty() else start  # a bar shows at once what is there, a pipe only news

    def due(every: float, progress: Progress) -> bool:
        nonlocal last, said
        if progress.stopping and progress.in_flight and not said:
            said = True
            calls = counted(progress.in_flight, "call")
            message(f"{what}: finishing {calls} in flight; Ctrl-C again gives them up")
        now = time.monotonic()
        if now - last < every and progress.stored < progress.planned:
            return False
        last = now
        return True

    if not sys.stderr.isatty():

        def told(progress: Progress) -> None:
            if due(_LINES, progress):
                line = _line(progress, time.monotonic() - start, priced=priced)
                message(f"{what}: {progress.stored:,} of {progress.planned:,} samples, {line}")

        yield told
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
    with Bar(*columns, TextColumn("{task.fields[line]}", markup=False), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, line="", total=None)

        def shown(progress: Progress) -> None:
            if due(_EVERY, progress):
                line = _line(progress, time.monotonic() - start, priced=priced)
                bar.update(task, completed=progress.stored, total=progress.planned, line=line)

        yield shown


def _line(progress: Progress, seconds: float, *, priced: bool) -> str:
    rate = progress.added / max(seconds, 1e-9)
    left = progress.planned - progress.stored
    parts = [f"{rate:,.1f} a second", f"{progress.tokens:,} tokens"]
    if priced:
        parts.append(f"cost {money(progress.cost)}")
    if left and rate > 0:
        parts.append(f"{timedelta(seconds=round(left / rate))} to go")
    if progress.errors:
        parts.append(errors_text(progress.errors))
    return ", ".join(parts)


def errors_text(errors: Mapping[str, int]) -> str:
    """`3 × rate-limit, 1 × timeout`: the commonest first."""
    return ", ".join(f"{n:,} × {kind}" for kind, n in sorted(errors.items(), key=lambda item: -item[1]))


def money(amount: float) -> str:
    """Two digits behind the point, or as many as a small amount needs."""
    return f"{amount:,.2f}" if amount >= 1 or amount == 0 else f"{amount:.2g}"
