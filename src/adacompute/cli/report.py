"""`adacompute report`: one page that says what a budget buys on a pool. Knows no mathematics and no HTML."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adacompute.cli.evaluate import Votes, Voting, Workers, progress
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.show import as_json, line, message, paragraph, path_text, table
from adacompute.cli.source import Model, Parameters, ballots_from

if TYPE_CHECKING:
    from adacompute.evaluate.beyond.money import Money
    from adacompute.evaluate.report.record import Report

__all__ = ["report"]

_WORKERS = 4  # processes, at most, where nobody says how many

Folder = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write; a report in it is replaced.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer folds, orders and seeds: a minute, and rougher.")]
Name = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What the page calls the pool. [default: its file's name]")
]
Seed = Annotated[int, typer.Option(min=0, help="Of folds, orders, splits and intervals.")]
PromptTokens = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Of a request, on average; pools don't record them.")
]
InputPrice = Annotated[float | None, typer.Option(min=0, metavar="MONEY", help="Of a million prompt tokens.")]
OutputPrice = Annotated[
    float | None, typer.Option(min=0, metavar="MONEY", help="Of a million response tokens.")
]
Currency = Annotated[str, typer.Option(metavar="NAME", help="Of the prices.")]
Requests = Annotated[int | None, typer.Option(min=1, help="A month, for what is saved in one.")]


def report(
    context: typer.Context,
    source: PoolPath,
    out: Folder,
    quick: Quick = False,
    name: Name = None,
    votes: Votes = Voting.auto,
    seed: Seed = 0,
    workers: Workers = None,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    currency: Currency = "USD",
    requests: Requests = None,
    prompt_tokens: PromptTokens = None,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Write one page that says what a budget buys on a pool, with its tables and figures beside it.

    The verdict first, then every policy held-out, then the paper's tables and figures on this pool. DIR gets
    report.html, which needs nothing else, results.json, tables/*.csv and figures/*.svg.
    """
    # here, for it draws: the other commands start without matplotlib
    from adacompute.evaluate.report.files import contents, may_write, write
    from adacompute.evaluate.report.make import report as made
    from adacompute.evaluate.report.plain import as_data

    may_write(out)  # before minutes of work
    ballots = ballots_from(
        source,
        answers=settings(context).answers,
        model=model,
        parameters=parameters,
        extract=extract,
        percent=percent,
    )
    called = path_text(Path(source.name or source)) if name is None else name
    with progress(f"report of {called}") as told:
        found = made(
            ballots,
            name=called,
            command=_command(source, quick=quick, votes=votes, seed=seed),
            quick=quick,
            votes=votes.value,
            seed=seed,
            money=_money(input_price, output_price, currency, requests, prompt_tokens),
            workers=workers or min(_WORKERS, os.cpu_count() or 1),
            progress=told,
        )
    page = write(contents(found), out)
    as_json(as_data(found)) if json else _show(found)
    (message if json else line)(path_text(page))


def _money(
    input_price: float | None,
    output_price: float | None,
    currency: str,
    requests: int | None,
    prompt_tokens: float | None,
) -> "Money":
    """Prices as given; an example's where none is, which the page says."""
    from adacompute.evaluate.beyond.money import EXAMPLE, Money

    example = input_price is None and output_price is None
    return Money(
        input_price=EXAMPLE.input_price if example else input_price or 0.0,
        output_price=EXAMPLE.output_price if example else output_price or 0.0,
        currency=currency,
        requests=requests or EXAMPLE.requests,
        prompt_tokens=prompt_tokens,
    )


def _show(found: "Report") -> None:
    from adacompute.evaluate.exhibits import written

    paragraph(found.headline)
    if found.below:
        paragraph(found.below)
    for notice in found.notices:
        line()
        paragraph(notice)
    first = next(iter(found.tables()), None)
    if first is not None:
        line()
        line(first.title)
        rows = [
            [written(cell, column) for cell, column in zip(row, first.columns, strict=True)]
            for row in first.rows
        ]
        table([column.name for column in first.columns], rows)
    line()


def _command(source: Path, *, quick: bool, votes: Voting, seed: int) -> str:
    """As one would type it again; the folder that the pool lay in is nobody's business."""
    words = ["adacompute report", path_text(Path(source.name or source)), f"-o DIR --seed {seed}"]
    words += [f"--votes {votes.value}"] if votes is not Voting.auto else []
    return " ".join([*words, "--quick"] if quick else words)
