"""`adacompute evaluate`: policies side by side at the same average cost, the verdict first, then tables."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer

from adacompute.cli.menus import FamiliesFlag, MenuOptions, evaluate_modes, refuse_beside_menu
from adacompute.cli.options import (
    BudgetUnitOption,
    JsonFlag,
    PriceOptions,
    load_settings,
    split_budgets,
    warn_counting,
)
from adacompute.cli.pool_options import SourceOptions, read_ballots
from adacompute.cli.terminal import (
    format_count,
    format_ends,
    format_path,
    format_percent,
    format_range,
    print_json,
    print_line,
    print_message,
    print_paragraph,
    print_table,
    show_progress,
)
from adacompute.errors import BudgetInvalid, suggest_name
from adacompute.evaluate import Evaluation, Match, Verdict, VerdictRow
from adacompute.evaluate import evaluate as run_evaluate
from adacompute.evaluate.comparison import Saving
from adacompute.evaluate.measure import leave_out_short
from adacompute.evaluate.protocols import AVERAGE_BUDGETS, POLICY_NAMES
from adacompute.evaluate.rivals import COMPARED
from adacompute.evaluate.unit_comparison import UnitComparison, compare_in_unit
from adacompute.pool import Ballots
from adacompute.records import Budget, BudgetUnit, TokenPrices, format_money

__all__ = ["MAX_DEFAULT_WORKERS", "VoteKind", "VotesOption", "build_savings", "evaluate", "show_verdict"]

_TITLES = {"accuracy": "accuracy", "agreement": "agreement with the vote of all samples"}
_UNGRADED_NOTE = (
    "There are no gold answers and no recorded grades, so accuracy can't be known. Shown instead is how "
    "often the answer is that of the vote of all of a problem's samples."
)


_VERDICT_NOTE = (
    "(gain in points over uniform at the same cost; the joint intervals hold for all rows at once, and the "
    "verdict rests on them; as good as: so many samples for every request)"
)
_HULL_NOTE = (
    "At the same cost: on the upper concave hull of a policy's own settings, mixing two of them by lot; "
    "fixed is the same for every problem. peers is the joint hull of all policies but stopping and the "
    "oracle, picked with hindsight."
)
_PAIRED_NOTE = "differences are surer, being of the same problems"
_ORACLE_NOTE = (
    "oracle: decides beforehand among 1, 2, 4, 8 and 16 samples with the answers known; from chosen and "
    "judged on different samples to the same ones."
)
_IN_SAMPLE_NOTE = (
    "In-sample: policies are judged on problems that they have learned from, which flatters them."
)


def show_evaluation(evaluation: Evaluation, *, name: str, prices: TokenPrices, tables: bool) -> None:
    """Show what pays at which budget, by how much, and how sure that is; with `tables`, of every policy."""
    print_line(
        f"{name}: {format_count(evaluation.problems, 'problem')}, {describe_evaluation_protocol(evaluation)}"
    )
    print_line()
    if evaluation.basis == "agreement":
        print_paragraph(_UNGRADED_NOTE)
        print_line()
    show_verdict(evaluation.verdict, prices)
    print_line()
    if not tables and evaluation.verdict.rows:
        print_line("Every policy beside the others: --tables")
        return
    show_tables(evaluation)
    print_line()
    print_paragraph(_compose_notes(evaluation))


def show_comparison(comparison: UnitComparison, *, name: str) -> None:
    """Show policies at the same cost in tokens or money."""
    scale, unit = (1000, f"{comparison.currency} per 1,000 requests")
    if comparison.unit == "tokens":
        scale, unit = 1, "tokens of prompts and responses"
    votes = "votes weighted by confidence" if comparison.votes == "weighted" else "plain votes"
    problems = format_count(comparison.problems, "problem")
    print_line(f"{name}: {problems}, held-out ({comparison.folds} folds), {votes}")
    print_line()
    budgets = comparison.budgets
    names = list(dict.fromkeys(match.policy for match in comparison.matched))
    headings = ["", *(f"{scale * budget:g}" for budget in budgets)]
    print_line(f"{_TITLES[comparison.basis]} at exactly so much on average: {unit}")

    def format_row(policy: str, cell: Callable[[Match], str]) -> list[str]:
        matches = [comparison.match(policy, budget) for budget in budgets]
        return [policy, *("–" if match is None else cell(match) for match in matches)]

    print_table(headings, [format_row(policy, lambda row: format_percent(row.accuracy)) for policy in names])
    if any(match.gain for match in comparison.matched):
        print_line()
        print_line(
            "gain over fixed at the same cost, points: 95% interval of each alone, paired over problems"
        )
        print_table(headings, [format_row(policy, _format_gain) for policy in names if policy != "fixed"])
    print_line()
    one_sample = f"One sample costs {scale * comparison.least:.3g} {unit} on average."
    print_paragraph(f"{one_sample} {_HULL_NOTE} Without --unit: in samples, with the oracle and a verdict.")


def show_verdict(verdict: Verdict, prices: TokenPrices | None = None) -> None:
    """Show the verdict, what it rests on, and its numbers at each budget; with prices, what is saved."""
    print_paragraph(verdict.sentence)
    if verdict.support:
        print_paragraph(verdict.support)
    if not verdict.rows:
        return
    print_line()
    headings = ["samples", "uniform", verdict.policy or "", "gain", "95% interval", "joint 95%", "as good as"]
    print_table(headings, [_format_verdict_row(row) for row in verdict.rows])
    print_paragraph(_VERDICT_NOTE, indent=2)
    if prices and (savings := verdict.compute_savings(prices)):
        print_line()
        unit = f"{prices.currency}, 1,000 requests"
        print_table(["samples", unit, "uniform, as accurate", "saved"], list(map(_format_saving, savings)))
        print_paragraph(f"({verdict.charge})", indent=2)


def _format_saving(saving: Saving) -> list[str]:
    more = "> " if saving.is_bound else ""
    share = "–" if saving.share is None else f"{more}{saving.share:.0%}"
    return [
        f"{saving.budget:g}",
        format_money(1000 * saving.cost),
        more + format_money(1000 * saving.same_cost),
        share,
    ]


def build_savings(verdict: Verdict, prices: TokenPrices) -> list[dict[str, float | None]]:
    """What each budget costs and saves, for JSON; none without prices, or without recorded tokens."""
    savings = verdict.compute_savings(prices) if prices else ()
    return [{**asdict(saving), "saved": saving.share} for saving in savings]


def _format_verdict_row(row: VerdictRow) -> list[str]:
    worth = row.worth.mean
    return [
        f"{row.budget:g}",
        format_percent(row.uniform),
        format_percent(row.accuracy),
        f"{100 * row.gain.mean:+.1f}",
        format_ends(row.gain),
        format_ends(row.joint),
        f"{worth:.1f}" if math.isfinite(worth) else "more",
    ]


def show_tables(evaluation: Evaluation) -> None:
    """Show accuracy at the same cost, intervals of the gains, and what a calibrated run would have spent."""
    budgets = evaluation.budgets
    names = list(
        dict.fromkeys(row.policy for row in evaluation.rows if row.policy != "oracle")
    )  # peers are last
    headings = ["", *(f"{budget:g}" for budget in budgets)]
    print_line(f"{_TITLES[evaluation.basis]} at exactly so many samples on average")
    rows = [
        [name, *_format_cells(evaluation, name, budgets, lambda match: format_percent(match.accuracy))]
        for name in names
    ]
    if evaluation.oracle:
        ends = [
            format_range(end.high if end.low is None else end.low.mean, end.high) for end in evaluation.oracle
        ]
        rows.append(["oracle", *(text.replace("%", "") if "–" in text else text for text in ends)])
    print_table(headings, rows)
    if any(match.gain for match in evaluation.matched):
        print_line()
        print_line(
            "gain over fixed at the same cost, points: 95% interval of each alone, paired over problems"
        )
        others = [name for name in names if name != "fixed"]
        print_table(
            headings, [[name, *_format_cells(evaluation, name, budgets, _format_gain)] for name in others]
        )
    print_line()
    print_line(_choose_run_title(evaluation))
    replayed = [name for name in names if name != "peers"]
    print_table(headings, [[name, *_format_run(evaluation, name, budgets)] for name in replayed])
    _show_imitation(evaluation, budgets)


def describe_evaluation_protocol(evaluation: Evaluation) -> str:
    """`held-out (5 folds), votes weighted by confidence, 50 orders of the samples`."""
    protocol = f"held-out ({evaluation.folds} folds)"
    if evaluation.protocol == "paper":
        protocol = f"in-sample, the paper's way ({evaluation.folds} seeds: fitted on 80%, judged on all)"
    votes = "votes weighted by confidence" if evaluation.votes == "weighted" else "plain votes"
    dropped = (
        f", {format_count(evaluation.dropped, 'problem')} without grades left out"
        if evaluation.dropped
        else ""
    )
    if evaluation.short:
        dropped += f", {format_count(evaluation.short, 'problem')} with fewer samples left out"
    return f"{protocol}, {votes}, {evaluation.orders} orders of the samples{dropped}"


def _format_cells(
    evaluation: Evaluation, name: str, budgets: Sequence[float], cell: Callable[[Match], str]
) -> list[str]:
    matches = [evaluation.match(name, budget) for budget in budgets]
    return ["–" if match is None else cell(match) for match in matches]


def _format_gain(match: Match) -> str:
    return "–" if match.gain is None else format_ends(match.gain)


def _choose_run_title(evaluation: Evaluation) -> str:
    if evaluation.protocol == "paper":
        return "as it ran at each budget asked for: accuracy (± over seeds) at its cost"
    return "as it would have run, calibrated beforehand on other problems: accuracy at its cost"


def _format_run(evaluation: Evaluation, name: str, budgets: Sequence[float]) -> list[str]:
    cells = []
    for budget in budgets:
        row = evaluation.row(name, budget)
        if row is None:
            cells.append("–")
            continue
        spread = "" if row.accuracy_std is None else f"±{100 * row.accuracy_std:.1f}"
        cells.append(f"{100 * row.accuracy:.1f}{spread} at {row.cost:.2f}")
    return cells


def _show_imitation(evaluation: Evaluation, budgets: Sequence[float]) -> None:
    if not evaluation.imitation:
        return
    print_line()
    print_line("how often the classifier names the oracle's budget (always naming the commonest)")
    rows = []
    for protocol in dict.fromkeys(row.protocol for row in evaluation.imitation):
        by_budget = {row.budget: row for row in evaluation.imitation if row.protocol == protocol}
        cells = [
            f"{100 * by_budget[b].accuracy:.1f} ({100 * by_budget[b].majority:.1f})"
            if b in by_budget
            else "–"
            for b in budgets
        ]
        rows.append([protocol, *cells])
    print_table(["", *(f"{budget:g}" for budget in budgets)], rows)


def _compose_notes(evaluation: Evaluation) -> str:
    """Compose the notes: what the words in the tables mean, and what they leave open."""
    widths = [
        100 * (match.high - match.low) / 2
        for match in evaluation.matched
        if match.low is not None and match.high is not None
    ]
    half_width = max(widths, default=0.0)
    parts = [
        _HULL_NOTE,
        f"An accuracy by itself is known to ±{half_width:.1f} points (95% over problems); {_PAIRED_NOTE}.",
    ]
    if evaluation.oracle:
        parts.append(_ORACLE_NOTE)
    elif evaluation.basis == "agreement":
        parts.append("The oracle is not shown: it needs the answers.")
    if evaluation.left_out:
        parts.append(f"Left out, because they learn from grades: {', '.join(evaluation.left_out)}.")
    missed = sorted({row.policy for row in evaluation.rows if not row.reached})
    if missed:
        parts.append(f"Not every budget can be met by {', '.join(missed)}: the cost shows what was.")
    if evaluation.protocol == "paper":
        parts.append(_IN_SAMPLE_NOTE)
    return " ".join(parts)


_ORDERS = 50  # of the samples
MAX_DEFAULT_WORKERS = 4  # processes, at most, where nobody says how many


class ProtocolName(StrEnum):
    held_out = "held-out"
    paper = "paper"


class VoteKind(StrEnum):
    auto = "auto"
    plain = "plain"
    weighted = "weighted"


AverageBudgetsOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="On average: samples (of a menu: its unit), e.g. 1.5,2,3, or '200,400 tokens', "
        "'0.5,1,2 USD per 1000'. [default: 1.5,2,3,4,6; of a menu, by its costs]",
    ),
]
_COMPARED = tuple(name for name in COMPARED if name != "menu")  # that one pool allows
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
TablesFlag = Annotated[
    bool, typer.Option("--tables", help="Below the verdict, print the tables of all policies.")
]
ProtocolOption = Annotated[
    ProtocolName, typer.Option(help="Judge on problems not fitted on, or as the paper did (in-sample).")
]
FoldsOption = Annotated[
    int, typer.Option(min=2, help="Parts of the problems, each judged by policies fitted on the others.")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Random splits, for --protocol paper.")]
VotesOption = Annotated[
    VoteKind, typer.Option(help="auto: by confidence where all samples have log-probabilities.")
]
OrdersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Random orders of each problem's samples. [default: 50; of a menu 40]"),
]
EvaluationSeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of the tables' folds, orders and intervals; not of the verdict.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Processes to use; results don't depend on it. [default: the cores, at most 4]"),
]


def evaluate(
    context: typer.Context,
    *,
    menu: MenuOptions,
    budgets: AverageBudgetsOption = None,
    policies: PoliciesOption = None,
    families: FamiliesFlag = False,
    protocol: ProtocolOption = ProtocolName.held_out,
    folds: FoldsOption = 5,
    seeds: SeedsOption = 3,
    votes: VotesOption = VoteKind.auto,
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

    Each policy is judged on problems that it has not learned from. Intervals are 95% over problems, by
    bootstrap, paired where policies are compared. Without gold answers, agreement with the vote of all of a
    problem's samples stands in for accuracy. With --join, --cost or --prices, a policy over the menu of
    these modes is compared with each mode alone, fixed mixes, cascades and routers, at the same cost.
    """
    names = _parse_policies(policies)
    settings = load_settings(context)
    is_menu, recorded = menu.detect_menu(settings.answers, which)
    if is_menu:
        is_held_out = protocol is ProtocolName.held_out
        refuse_beside_menu(which, price, policies=policies, protocol=None if is_held_out else protocol)
        evaluate_modes(
            menu,
            answers=settings.answers,
            budgets=budgets,
            unit=unit,
            json=json,
            folds=folds,
            families=families,
            seed=seed,
            workers=workers,
            weigh=None if votes is VoteKind.plain else "auto",
            **({} if orders is None else {"orders": orders}),
        )
        return
    source = menu.get_source()
    if families:
        raise typer.BadParameter("is for a menu; give --join, or leave it out", param_hint="--families")
    name, orders = format_path(source), orders or _ORDERS
    prices = price.choose_prices(settings.endpoint)
    averages = parse_budget_list(budgets, unit, prices.currency)
    in_samples = all(average.unit == "samples" for average in averages)
    requested_budgets = [average.amount for average in averages] if averages and in_samples else None
    if not in_samples and protocol is ProtocolName.paper:
        raise typer.BadParameter("is in samples; leave it out, or --unit", param_hint="--protocol paper")
    ballots = read_ballots(source, settings.answers, menu, which, ballots=recorded)
    workers = workers or min(MAX_DEFAULT_WORKERS, os.cpu_count() or 1)
    if not in_samples:
        warn_counting(averages[-1], prices, ballots.charge)
        with show_progress(f"evaluating {name}") as report_progress:
            comparison = compare_in_unit(
                ballots,
                averages,
                prices=prices,
                policies=names,
                folds=folds,
                votes=votes.value,
                orders=orders,
                seed=seed,
                workers=workers,
                progress=report_progress,
            )
        print_json({"pool": name, **comparison.to_dict()}) if json else show_comparison(comparison, name=name)
        return
    with show_progress(f"evaluating {name}") as report_progress:
        evaluation = run_evaluate(
            ballots,
            budgets=_choose_averages(leave_out_short(ballots)[0])
            if requested_budgets is None
            else requested_budgets,
            policies=names,
            protocol=protocol.value,
            folds=folds,
            seeds=seeds,
            votes=votes.value,
            orders=orders,
            rng=np.random.default_rng(seed),
            workers=workers,
            progress=report_progress,
        )
    if json:
        print_json(
            {"pool": name, **evaluation.to_dict(), "savings": build_savings(evaluation.verdict, prices)}
        )
    else:
        show_evaluation(evaluation, name=name, prices=prices, tables=tables or policies is not None)


def _parse_policies(text: str | None) -> tuple[str, ...]:
    if text is None:
        return POLICY_NAMES
    if text.strip() == "all":
        return (*(name for name in _COMPARED if name != "oracle"), "oracle")
    words = [part.strip().lower().replace("_", "-") for part in text.split(",") if part.strip()]
    names = tuple(_FULL_NAMES.get(word, word) for word in words)
    for name in names:
        if name == "menu":
            raise typer.BadParameter(
                "menu is over several modes; leave --policies out, and give --join NAME=POOL for each",
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
    """Parse average budgets, such as `200,400 tokens`: what stands behind the last number holds for all.

    >>> [str(budget) for budget in parse_budget_list("1,2 USD per 1000", "samples", "USD")]
    ['1 USD per 1,000 requests', '2 USD per 1,000 requests']
    """
    if text is None and unit == "samples":
        return ()
    if text is None:
        name = currency if unit == "money" else unit
        raise typer.BadParameter(f"there is no default in {name}; give a list", param_hint="--budgets")
    try:
        return tuple(Budget.parse(part, unit=unit, currency=currency) for part in split_budgets(text))
    except BudgetInvalid as exc:
        raise typer.BadParameter(f"{text!r}: {exc}", param_hint="--budgets") from exc


def _choose_averages(ballots: Ballots) -> tuple[float, ...]:
    """Return the default budgets that the samples allow; say so where some are left out."""
    fewest = int(ballots.drawn.min())
    budgets = tuple(budget for budget in AVERAGE_BUDGETS if budget <= fewest)
    if budgets and budgets != AVERAGE_BUDGETS:
        listed = ", ".join(f"{budget:g}" for budget in budgets)
        print_message(
            f"evaluated at {listed}: the problem with fewest samples has {format_count(fewest, 'sample')}"
        )
    return budgets or AVERAGE_BUDGETS[:1]
