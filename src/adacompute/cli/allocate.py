"""`adacompute allocate`: decides how many samples each prompt of a batch gets, before any sample is drawn."""

from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.options import EngineOptions, JsonFlag, parse_budget, parse_price
from adacompute.cli.terminal import (
    format_count,
    format_path,
    format_percent,
    open_progress,
    print_fact,
    print_json,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.policies import load_policy
from adacompute.pool.modes import ModeSet
from adacompute.records import Budget
from adacompute.replay.calibrate import check_mode_budget
from adacompute.scale.allocate import AllocateProgress, AllocateResult
from adacompute.scale.allocate import allocate as run_allocate

PromptsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PROMPTS", help="A .jsonl, .csv or .parquet file, or a folder of Parquet.", show_default=False
    ),
]
PolicyFolder = Annotated[
    Path,
    typer.Option(
        "--policy",
        metavar="DIR",
        help="Folder from `adacompute fit` with a policy that needs only the prompt.",
    ),
]
OutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Output file, in the input's format; a folder if the input is one.",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="B",
        parser=parse_budget,
        help="Average samples per prompt; for a router, average cost, e.g. '2 USD per 1000'.",
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        parser=parse_price,
        help="Instead of --budget: accuracy that one more sample or unit of cost must add.",
    ),
]
ColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with the prompts. [default: prompt, else question, else text]"),
]


def allocate(
    *,
    source: PromptsArgument,
    policy: PolicyFolder,
    output: OutputOption,
    budget: BudgetOption = None,
    price: PriceOption = None,
    column: ColumnOption = None,
    engine: EngineOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")] = False,
    json: JsonFlag = False,
) -> None:
    """Decide beforehand how many samples each prompt of a batch gets.

    Prompts get B samples on average, more where more samples help. The output is the input with a column
    `budget`; it is written whole or not at all. A router (a policy fitted over several modes) also
    chooses a mode for each prompt: B is then an average cost, and a column `mode` is added too.
    """
    if (budget is None) == (price is None):
        raise typer.BadParameter("give one of --budget and --price", param_hint="--budget")
    engine.announce()
    loaded_policy = load_policy(policy)
    with open_progress(format_path(output), noun="prompts") as update:

        def report_progress(progress: AllocateProgress) -> None:
            update(progress.done, progress.prompts, progress.doing)

        result = run_allocate(
            source,
            loaded_policy,
            into=output,
            budget=_read_average(budget, loaded_policy.mode_set),
            price=price,
            column=column,
            engine=engine.engine,
            workers=engine.workers,
            overwrite=overwrite,
            progress=report_progress,
        )
    if json:
        print_json({"output": format_path(output), **result.to_dict()})
    else:
        _show(result, output)


def _read_average(budget: float | str | None, mode_set: ModeSet | None) -> float | None:
    """Returns the average budget: in samples, or with several modes in the unit of the modes' costs."""
    if not isinstance(budget, str):
        return budget
    if mode_set is not None:
        return check_mode_budget(mode_set, budget)
    average = Budget.parse(budget, currency=None)
    if average.unit != "samples":
        raise typer.BadParameter(f"{budget!r} is not in samples; give a number", param_hint="--budget")
    return average.amount


def _show(result: AllocateResult, output: Path) -> None:
    rows = [
        (f"{budget:,}", f"{count:,}", format_percent(count / result.problems))
        for budget, count in zip(result.budgets, result.counts, strict=True)
    ]
    head = ["samples", "prompts", "share"]
    if result.modes:
        print_table(["mode", *head], [(mode, *row) for mode, row in zip(result.modes, rows, strict=True)])
    else:
        print_table(head, rows)
    requested = "" if result.budget is None else f" of {result.budget:g} asked for"
    print_line()
    print_fact("average", f"{result.cost:.4g} {result.unit}{requested}")
    if result.price is not None:
        unit = "a sample" if result.unit == "samples" else f"per unit of {result.unit}"
        print_fact("price", f"{result.price:.4g} of accuracy {unit}")
    if result.accuracy is not None:
        print_fact("accuracy", f"{format_percent(result.accuracy)}, as the policy predicts it: not measured")
    if result.bound is not None:
        print_fact(
            "bound",
            f"{format_percent(result.bound)}: no allocation within the budget is predicted to be better",
        )
    print_fact(
        "written", f"{format_path(output)}: {format_count(result.problems, 'prompt')} {_format_rate(result)}"
    )
    for note in result.notes:
        print_paragraph(f"Note: {note}.", indent=2, hang=2)


def _format_rate(result: AllocateResult) -> str:
    rate = result.problems / max(result.seconds, 1e-9)
    return f"in {format_count(result.files, 'file')}, {result.seconds:.1f} s, {rate:,.0f} a second"
