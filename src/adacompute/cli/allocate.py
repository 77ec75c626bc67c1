"""`adacompute allocate`: budgets for a batch of prompts, beforehand. Knows how to ask and to tell alone."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from adacompute.cli.engine import Engine, EngineName, Workers, check_workers, say_engine
from adacompute.cli.options import Json
from adacompute.cli.show import as_json, counted, fact, line, message, paragraph, path_text, percent, table
from adacompute.cli.ways import paid, spent
from adacompute.policies.registry import load_policy
from adacompute.scale.allocate import Allotted
from adacompute.scale.allocate import allocate as allotted
from adacompute.scale.allocate.record import Progress

__all__ = ["allocate"]

_EVERY = 0.25  # seconds between two looks of a bar
_LINES = 30.0  # seconds between two lines of a pipe

Prompts = Annotated[
    Path, typer.Argument(metavar="PROMPTS", help="A Parquet file, or a folder of them.", show_default=False)
]
Which = Annotated[
    Path,
    typer.Option(
        "--policy",
        metavar="DIR",
        help="A folder of `adacompute fit`, of a policy that decides on the prompt alone.",
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="The Parquet file to write; a folder for a folder."),
]
Budget = Annotated[
    float | None, typer.Option(metavar="B", parser=spent, help="Samples a prompt, on average over all.")
]
Price = Annotated[
    float | None,
    typer.Option(
        metavar="P", parser=paid, help="Instead of a budget: accuracy that one more sample must add."
    ),
]
Column = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column of prompts. [default: prompt, else question, else text]"),
]


def allocate(
    source: Prompts,
    policy: Which,
    output: Output,
    budget: Budget = None,
    price: Price = None,
    column: Column = None,
    engine: Engine = EngineName.local,
    workers: Workers = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    json: Json = False,
) -> None:
    """Give each prompt of a batch its number of samples, B on average, by one price over all of them.

    Written are the input's columns and `budget`, in the same order, whole or not at all.
    """
    if (budget is None) == (price is None):
        raise typer.BadParameter("give one of --budget and --price", param_hint="--budget")
    check_workers(engine, workers)
    say_engine(engine)
    made = load_policy(policy)
    with _watched(path_text(output)) as told:
        found = allotted(
            source,
            made,
            into=output,
            budget=budget,
            price=price,
            column=column,
            engine=engine.value,
            workers=workers,
            overwrite=overwrite,
            progress=told,
        )
    _as_object(found, output) if json else _show(found, output)


def _as_object(found: Allotted, output: Path) -> None:
    as_json({"output": path_text(output), **found.to_dict()})


def _show(found: Allotted, output: Path) -> None:
    rows = [
        (f"{budget:,}", f"{count:,}", percent(count / found.problems))
        for budget, count in zip(found.budgets, found.counts, strict=True)
    ]
    table(["samples", "prompts", "share"], rows)
    asked = "" if found.budget is None else f" of {found.budget:g} asked for"
    line()
    fact("average", f"{found.cost:.4g} samples{asked}")
    if found.price is not None:
        fact("price", f"{found.price:.4g} of accuracy a sample")
    if found.accuracy is not None:
        fact("accuracy", f"{percent(found.accuracy)}, as the policy predicts it: not measured")
    if found.bound is not None:
        fact("bound", f"{percent(found.bound)}: no allocation within the budget is predicted to be better")
    fact("written", f"{path_text(output)}: {counted(found.problems, 'prompt')} {_rate(found)}")
    for note in found.notes:
        paragraph(f"Note: {note}.", indent=2, hang=2)


def _rate(found: Allotted) -> str:
    rate = found.problems / max(found.seconds, 1e-9)
    return f"in {counted(found.files, 'file')}, {found.seconds:.1f} s, {rate:,.0f} a second"


@contextmanager
def _watched(what: str) -> Iterator[Callable[[Progress], None]]:
    """A function that shows progress as it is told: a bar on a terminal, a line now and then in a pipe."""
    if not sys.stderr.isatty():
        yield _in_lines(what)
        return
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
    )
    last = 0.0
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def shown(progress: Progress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _EVERY or progress.done == progress.prompts:
                last = now
                said = f"{what}: {progress.doing}"
                bar.update(task, description=said, completed=progress.done, total=progress.prompts)

        yield shown


def _in_lines(what: str) -> Callable[[Progress], None]:
    last = time.monotonic()

    def told(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINES:
            last = time.monotonic()
            message(f"{what}: {progress.doing}, {progress.done:,} of {progress.prompts:,} prompts")

    return told
