"""`adacompute report`: writes a one-page report on the accuracy that a budget buys on recorded samples."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from adacompute.cli.evaluate import VotesOption
from adacompute.cli.modes import GroupOptions, ModeOptions, read_recorded
from adacompute.cli.options import (
    InputPriceOption,
    JsonFlag,
    OutputPriceOption,
    ProcessesOption,
    SeedOption,
    check_finite,
    choose_process_count,
    clean_text,
    format_command,
    load_settings,
)
from adacompute.cli.pool_options import SourceOptions
from adacompute.cli.terminal import (
    format_path,
    print_json,
    print_line,
    print_message,
    print_report,
    show_progress,
)
from adacompute.records import DEFAULT_CURRENCY, TokenPrices

if TYPE_CHECKING:
    from adacompute.report.exhibits.money import Money

OutputOption = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="Output folder; a report in it is replaced."),
]
QuickFlag = Annotated[bool, typer.Option("--quick", help="Take only a minute, with rougher numbers.")]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", callback=clean_text, help="Name of the pool on the page. [default: its file's name]"
    ),
]


@dataclass(frozen=True, kw_only=True)
class MoneyOptions:
    """Options for token prices and the number of requests."""

    input_price: InputPriceOption = None
    output_price: OutputPriceOption = None
    currency: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=clean_text, help="Currency of the prices. [default: USD]"),
    ] = None
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests per month, to show the saving per month.")
    ] = None
    prompt_tokens: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="N",
            callback=check_finite,
            help="Average prompt tokens per request. [default: as recorded by the pool's calls]",
        ),
    ] = None

    def build_money(self) -> "Money":
        """Builds the prices and the number of requests; the defaults are examples, and the report says so."""
        from adacompute.report.exhibits.money import EXAMPLE_MONEY, Money

        if (self.input_price is None) != (self.output_price is None):
            missing = "--input-price" if self.input_price is None else "--output-price"
            raise typer.BadParameter("give both prices or neither; a price can be 0", param_hint=missing)
        prices = EXAMPLE_MONEY.prices
        if self.input_price is not None and self.output_price is not None:
            prices = TokenPrices(input=self.input_price, output=self.output_price)
        return Money(
            prices=replace(prices, currency=self.currency or DEFAULT_CURRENCY),
            requests=self.requests or EXAMPLE_MONEY.requests,
            prompt_tokens=self.prompt_tokens,
            example=self.output_price is None,
        )


def report(
    context: typer.Context,
    *,
    modes: ModeOptions,
    grouping: GroupOptions,
    output: OutputOption,
    quick: QuickFlag = False,
    name: NameOption = None,
    votes: VotesOption = "auto",
    seed: SeedOption = 0,
    workers: ProcessesOption = None,
    money: MoneyOptions,
    which: SourceOptions,
    json: JsonFlag = False,
) -> None:
    """Write one page that says what a budget buys on a pool.

    The page has the verdict, what is in the pool, and every policy's results on held-out problems. Writes
    report.html, which needs no other file, results.json, tables/*.csv and figures/*.svg into DIR. With
    --join, --cost or --prices, the page is about several modes: which to ask, how often, and what that saves.
    """
    # imported here, because these modules need matplotlib
    from adacompute.report.build import build_report as run_report
    from adacompute.report.folder import RESULTS, check_report_folder, render_files, write_report

    check_report_folder(output)  # reports errors before samples are read
    prices, answers = money.build_money(), load_settings(context).answers
    ballots, mode_set = read_recorded(modes, answers, which, money)
    title = name or modes.title
    with show_progress(f"report of {title}") as report_progress:
        result = run_report(
            grouping.apply(ballots),
            mode_set=mode_set,
            name=title,
            command=format_command(),
            quick=quick,
            votes=votes,
            seed=seed,
            money=prices,
            workers=workers or choose_process_count(),
            progress=report_progress,
        )
    files = render_files(result)
    page = write_report(files, output)
    print_json(orjson.loads(files[RESULTS])) if json else print_report(result)
    (print_message if json else print_line)(format_path(page))
