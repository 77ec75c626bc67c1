"""`adacompute report`: one page that says what a budget buys on a pool."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from adacompute.cli.evaluate import VoteKind, VotesOption
from adacompute.cli.menus import MenuOptions, refuse_beside_menu, report_modes
from adacompute.cli.options import (
    ExtractOption,
    InputPriceOption,
    JsonFlag,
    OptionalPoolPath,
    OutputPriceOption,
    PercentOption,
    ProcessesOption,
    SeedOption,
    check_finite,
    choose_process_count,
    clean_text,
    format_command,
    load_settings,
)
from adacompute.cli.pool_options import (
    JoinOption,
    MissingOption,
    MissingProblems,
    ModeCostOption,
    ModelOption,
    ParametersOption,
    PricesFileOption,
    read_ballots,
)
from adacompute.cli.progress import show_progress
from adacompute.cli.terminal import (
    format_path,
    print_json,
    print_line,
    print_message,
    print_report,
)
from adacompute.records import DEFAULT_CURRENCY

__all__ = ["report"]

if TYPE_CHECKING:
    from adacompute.report.exhibits.money import Money

OutputOption = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="The folder to write; a report in it is replaced."),
]
QuickFlag = Annotated[bool, typer.Option("--quick", help="Fewer folds and orders: a minute, and rougher.")]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", callback=clean_text, help="What the page calls the pool. [default: its file's name]"
    ),
]
PromptTokensOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="N",
        callback=check_finite,
        help="Prompt tokens of a request, on average. [default: as the pool's calls recorded them]",
    ),
]
ReportCurrencyOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", callback=clean_text, help="Currency of the prices. [default: USD]"),
]
RequestsOption = Annotated[
    int | None, typer.Option(min=1, help="Requests a month, to say what is saved in one.")
]


def report(
    context: typer.Context,
    source: OptionalPoolPath = None,
    *,
    output: OutputOption,
    join: JoinOption = None,
    mode_costs: ModeCostOption = None,
    prices_file: PricesFileOption = None,
    missing: MissingOption = MissingProblems.error,
    quick: QuickFlag = False,
    name: NameOption = None,
    votes: VotesOption = VoteKind.auto,
    seed: SeedOption = 0,
    workers: ProcessesOption = None,
    input_price: InputPriceOption = None,
    output_price: OutputPriceOption = None,
    currency: ReportCurrencyOption = None,
    requests: RequestsOption = None,
    prompt_tokens: PromptTokensOption = None,
    model: ModelOption = None,
    parameters: ParametersOption = None,
    extract: ExtractOption = None,
    percent: PercentOption = None,
    json: JsonFlag = False,
) -> None:
    """Write one page that says what a budget buys on a pool.

    The verdict comes first, then what is in the pool, then every policy on held-out problems. DIR gets
    report.html, which needs nothing else, results.json, tables/*.csv and figures/*.svg. With --join, --cost
    or --prices it is of a menu: which of its modes to ask, how often, and what that saves.
    """
    menu_options = MenuOptions(
        source=source,
        joins=join,
        costs=mode_costs,
        prices=prices_file,
        missing=missing,
        extract=extract,
        percent=percent,
    )
    # imported here, so that other commands start without matplotlib
    from adacompute.report.folder import RESULTS, check_report_folder, render_files, write_report

    check_report_folder(output)  # before anything is read
    answers = load_settings(context).answers
    is_menu, recorded = menu_options.detect_menu(answers, model=model, parameters=parameters)
    if is_menu:
        refuse_beside_menu(
            model=model,
            parameters=parameters,
            input_price=input_price,
            output_price=output_price,
            currency=currency,
            requests=requests,
            prompt_tokens=prompt_tokens,
        )
        report_modes(
            menu_options,
            answers=answers,
            output=output,
            name=name,
            command=format_command(context),
            quick=quick,
            seed=seed,
            workers=workers or choose_process_count(),
            plain_votes=votes is VoteKind.plain,
            json=json,
        )
        return
    if source is None:
        raise typer.BadParameter("give a pool, or --join NAME=POOL for each mode", param_hint="POOL")
    from adacompute.report.build import build_report as run_report

    money = _build_money(input_price, output_price, currency or DEFAULT_CURRENCY, requests, prompt_tokens)
    ballots = read_ballots(
        source,
        answers=answers,
        model=model,
        parameters=parameters,
        extract=extract,
        percent=percent,
        ballots=recorded,
    )
    title = format_path(Path(source.name or source)) if name is None else name
    with show_progress(f"report of {title}") as report_progress:
        result = run_report(
            ballots,
            name=title,
            command=format_command(context),
            quick=quick,
            votes=votes.value,
            seed=seed,
            money=money,
            workers=workers or choose_process_count(),
            progress=report_progress,
        )
    files = render_files(result)
    page = write_report(files, output)
    print_json(orjson.loads(files[RESULTS])) if json else print_report(result, "budgets")
    (print_message if json else print_line)(format_path(page))


def _build_money(
    input_price: float | None,
    output_price: float | None,
    currency: str,
    requests: int | None,
    prompt_tokens: float | None,
) -> "Money":
    """Build the prices from the options; without them an example's, which the page says."""
    from adacompute.report.exhibits.money import EXAMPLE_MONEY, Money

    if (input_price is None) != (output_price is None):
        missing = "--input-price" if input_price is None else "--output-price"
        raise typer.BadParameter("give both prices, or none; 0 is one too", param_hint=missing)
    return Money(
        input_price=EXAMPLE_MONEY.input_price if input_price is None else input_price,
        output_price=EXAMPLE_MONEY.output_price if output_price is None else output_price,
        currency=currency,
        requests=requests or EXAMPLE_MONEY.requests,
        prompt_tokens=prompt_tokens,
        example=output_price is None,
    )
