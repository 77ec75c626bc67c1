"""`adacompute evaluate`: compares policies at the same average cost; shows the verdict, then tables."""

from collections.abc import Sequence
from typing import Annotated

import typer

from adacompute.cli.evaluation_tables import build_savings, show_evaluation
from adacompute.cli.modes import SEVERAL, GroupOptions, ModeOptions, parse_mode_budgets, read_recorded
from adacompute.cli.options import (
    BudgetUnitOption,
    JsonFlag,
    PriceOptions,
    choose_from,
    choose_process_count,
    load_settings,
    split_budgets,
    warn_counting,
)
from adacompute.cli.pool_options import SourceOptions
from adacompute.cli.terminal import format_count, print_json, print_message, show_progress
from adacompute.errors import BudgetInvalid, suggest_name
from adacompute.evaluate import evaluate as run_evaluate
from adacompute.evaluate.comparison import ProtocolName
from adacompute.evaluate.measure import AVERAGE_BUDGETS, ROUND_LIMITS, Votes, leave_out_short, select_graded
from adacompute.evaluate.protocols import POLICY_NAMES
from adacompute.evaluate.published import PUBLISHED
from adacompute.evaluate.rivals import COMPARED
from adacompute.pool import Ballots
from adacompute.records import Budget, BudgetUnit

AverageBudgetsOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Average samples per request (for several modes: cost), e.g. 1.5,2,3, or '200,400 tokens', "
        "'0.5,1,2 USD per 1000'. [default: 1.5,2,3,4,6; for several modes, by their costs]",
    ),
]
# names of the policies that can be compared on a pool with a single mode
_COMPARED = (
    *(name for name in COMPARED if name != SEVERAL),
    *ROUND_LIMITS,
    *PUBLISHED,
)
_FULL_NAMES = {"adaptive-consistency": "asc", "early-stopping": "esc"}
_LISTED = ", ".join(sorted(set(_COMPARED) - set(_FULL_NAMES.values())))
_LISTED += "".join(f", {full} ({short})" for full, short in _FULL_NAMES.items())
PoliciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help=f"Any of {_LISTED}; or all. Also prints their tables. "
        "[default: all but bayes, guarantee, pets and shuffled]",
    ),
]
TablesFlag = Annotated[bool, typer.Option("--tables", help="Print tables of all policies below the verdict.")]
ProtocolOption = Annotated[
    ProtocolName,
    choose_from(ProtocolName, help="Judge on held-out problems, or in-sample as in the paper."),
]
FoldsOption = Annotated[
    int, typer.Option(min=2, help="Parts of the problems; on each, policies fitted on the others are judged.")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Number of random splits, for --protocol paper.")]
VotesOption = Annotated[
    Votes, choose_from(Votes, help="auto: weighted by confidence or score, if all samples have it.")
]
OrdersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Random orders of each problem's samples. [default: 50; for several modes 40]"),
]
EvaluationSeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of the tables' folds, orders and intervals; not of the verdict.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Processes to use; the result doesn't change. [default: the cores, at most 4]"),
]


def evaluate(
    context: typer.Context,
    *,
    modes: ModeOptions,
    grouping: GroupOptions,
    budgets: AverageBudgetsOption = None,
    policies: PoliciesOption = None,
    protocol: ProtocolOption = "held-out",
    folds: FoldsOption = 5,
    seeds: SeedsOption = 3,
    votes: VotesOption = "auto",
    orders: OrdersOption = None,
    seed: EvaluationSeedOption = 0,
    workers: WorkersOption = None,
    unit: BudgetUnitOption = "samples",
    price: PriceOptions,
    which: SourceOptions,
    tables: TablesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Compare policies at the same average cost, on held-out problems.

    A policy is judged on problems that are neither those it learned from nor similar to them. 95% intervals
    come from a bootstrap over groups of similar problems; differences between policies are paired. Without
    gold answers, accuracy is replaced by agreement with the vote of half of the problem's samples, which no
    policy draws from. With --join, --cost or --prices, a policy over these modes is compared with each mode
    alone, fixed mixes, cascades and routers, at the same cost.
    """
    names = _parse_policies(policies)
    settings = load_settings(context)
    prices = price.choose_prices(settings.endpoint)
    with show_progress(f"evaluating {modes.name}") as report_progress:
        is_paper = protocol == "paper"
        refused = {"policies": policies, "protocol": protocol if is_paper else None}
        ballots, mode_set = read_recorded(modes, settings.answers, which, price, **refused)
        ballots = grouping.apply(ballots)
        averages: Sequence[float | Budget] | None
        if mode_set is None:
            requested = parse_budget_list(budgets, unit, prices.currency)
            if requested and requested[-1].unit != "samples":
                if is_paper:
                    hint = "--protocol paper"
                    raise typer.BadParameter("is in samples only; drop it, or --unit", param_hint=hint)
                warn_counting(requested[-1], prices, ballots.charge)
            averages = requested or _choose_averages(select_graded(leave_out_short(ballots)[0])[0])
        else:
            averages = parse_mode_budgets(budgets, mode_set, unit=unit)
        evaluation = run_evaluate(
            ballots,
            modes=mode_set,
            budgets=averages,
            policies=names,
            protocol=protocol,
            folds=folds,
            seeds=seeds,
            votes=votes,
            orders=orders,
            seed=seed,
            prices=prices,
            workers=workers or choose_process_count(4),
            progress=report_progress,
        )
    if json:
        savings = build_savings(evaluation.verdict, prices)
        print_json({**modes.describe(), **evaluation.to_dict(), "savings": savings})
    else:
        show_all = tables or mode_set is not None or policies is not None
        show_evaluation(evaluation, name=modes.name, prices=prices, tables=show_all)


def _parse_policies(text: str | None) -> tuple[str, ...]:
    if text is None:
        return POLICY_NAMES
    if text.strip() == "all":
        return (*(name for name in _COMPARED if name != "oracle"), "oracle")
    words = [part.strip().lower().replace("_", "-") for part in text.split(",") if part.strip()]
    names = tuple(_FULL_NAMES.get(word, word) for word in words)
    for name in names:
        if name == SEVERAL:
            raise typer.BadParameter(
                f"{name} is over several modes; leave --policies out, and give --join NAME=POOL for each",
                param_hint="--policies",
            )
        if name not in _COMPARED:
            hint = suggest_name(name, (*_COMPARED, *_FULL_NAMES))
            raise typer.BadParameter(
                f"there is no policy {name!r}; {hint}the policies are {_LISTED}", param_hint="--policies"
            )
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"{text!r} names no policy, or one twice", param_hint="--policies")
    return names


def parse_budget_list(text: str | None, unit: BudgetUnit, currency: str) -> tuple[Budget, ...]:
    """Parses average budgets such as `200,400 tokens`; a unit at the end applies to all numbers.

    >>> [str(budget) for budget in parse_budget_list("1,2 USD per 1000", "samples", "USD")]
    ['1 USD per 1,000 requests', '2 USD per 1,000 requests']
    """
    if text is None and unit == "samples":
        return ()
    if text is None:
        name = currency if unit == "money" else unit
        raise typer.BadParameter(f"there is no default in {name}; give budgets", param_hint="--budgets")
    try:
        return tuple(Budget.parse(part, unit=unit, currency=currency) for part in split_budgets(text))
    except BudgetInvalid as exc:
        raise typer.BadParameter(f"{text!r}: {exc}", param_hint="--budgets") from exc


def _choose_averages(ballots: Ballots) -> tuple[float, ...]:
    """Returns the default budgets that need no more samples than are recorded; says if some are left out."""
    fewest = int(ballots.drawn.min())
    budgets = tuple(budget for budget in AVERAGE_BUDGETS if budget <= fewest)
    budgets = budgets or (1.0,)
    if budgets != AVERAGE_BUDGETS:
        listed = ", ".join(f"{budget:g}" for budget in budgets)
        print_message(
            f"evaluated at {listed}: the problem with fewest samples has {format_count(fewest, 'sample')}"
        )
    return budgets
