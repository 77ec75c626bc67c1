"""`adacompute report`: one page that says what a budget buys on a pool. Knows no mathematics and no HTML."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from adacompute.cli.evaluate import Votes, Voting, progress
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.show import as_json, line, message, paragraph, path_text, table
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.cli.typed import Seed, Workers, clean, default_workers, finite, typed

if TYPE_CHECKING:
    from adacompute.evaluate.beyond.money import Money
    from adacompute.evaluate.report.record import Report

__all__ = ["report"]

Folder = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="The folder to write; a report in it is replaced."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer folds and orders: a minute, and rougher.")]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", callback=clean, help="What the page calls the pool. [default: its file's name]"
    ),
]
PromptTokens = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="N", callback=finite, help="Of a request, on average; pools don't record them."
    ),
]
InputPrice = Annotated[
    float | None,
    typer.Option(min=0, metavar="MONEY", callback=finite, help="Of a million prompt tokens; with the next."),
]
OutputPrice = Annotated[
    float | None,
    typer.Option(min=0, metavar="MONEY", callback=finite, help="Of a million response tokens."),
]
Currency = Annotated[str, typer.Option(metavar="NAME", callback=clean, help="Of the prices.")]
Requests = Annotated[int | None, typer.Option(min=1, help="A month, for what is saved in one.")]


def report(
    context: typer.Context,
    source: PoolPath,
    output: Folder,
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

    The verdict first, then what is in the pool, then every policy held-out. DIR gets report.html, which needs
    nothing else, results.json, tables/*.csv and figures/*.svg.
    """
    # here, for it draws: the other commands start without matplotlib
    from adacompute.evaluate.report.files import RESULTS, contents, may_write, write
    from adacompute.evaluate.report.make import report as made

    money = _money(input_price, output_price, currency, requests, prompt_tokens)
    may_write(output)  # before minutes of work
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
            command=typed(context),
            quick=quick,
            votes=votes.value,
            seed=seed,
            money=money,
            workers=workers or default_workers(),
            progress=told,
        )
    files = contents(found)
    page = write(files, output)
    as_json(orjson.loads(files[RESULTS])) if json else _show(found)
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

    if (input_price is None) != (output_price is None):
        missing = "--input-price" if input_price is None else "--output-price"
        raise typer.BadParameter("give both prices, or none; 0 is one too", param_hint=missing)
    return Money(
        input_price=EXAMPLE.input_price if input_price is None else input_price,
        output_price=EXAMPLE.output_price if output_price is None else output_price,
        currency=currency,
        requests=requests or EXAMPLE.requests,
        prompt_tokens=prompt_tokens,
        example=output_price is None,
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
