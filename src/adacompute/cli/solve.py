"""`adacompute solve`: shows the best use of an average budget on recorded samples."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.options import (
    AnswerOptions,
    EngineOptions,
    JsonFlag,
    PoolPath,
    choose_from,
    load_settings,
    parse_budget,
)
from adacompute.cli.pool_options import ScoringOptions, SourceOptions, open_ballots
from adacompute.cli.terminal import (
    CostScale,
    choose_scale,
    format_count,
    format_interval,
    format_path,
    format_percent,
    format_point_number,
    format_range,
    print_fact,
    print_json,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.errors import TooFewSamples
from adacompute.evaluate import (
    OracleComparison,
    OracleGain,
    Scoring,
    UniformAllocation,
    compare_with_uniform,
    score_halves,
    uniform_frontier,
)
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable, Budget, BudgetUnit, ModeName, format_points
from adacompute.score import MeanEstimate
from adacompute.solve import frontier
from adacompute.solve import solve as solve_table
from adacompute.solve.pricing import Allocation

_POINTS_BETWEEN_BUDGETS = 4  # the JSON output's curve has this many steps from one budget to the next


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveResult:
    """The best allocation of a budget on a pool, compared with uniform sampling."""

    name: str  # name of the pool
    table: AccuracyTable
    comparison: OracleComparison
    # why the oracle couldn't choose on one half of the samples and be judged on the other; "" if it could
    no_lower_end: str = ""


def build_result_object(result: SolveResult) -> dict[str, Any]:
    """Builds the JSON output: numbers are unrounded, and unknown values are null."""
    table, comparison, allocation = result.table, result.comparison, result.comparison.plan
    uniform, fitted = comparison.uniform, comparison.crossfitted
    return {
        "pool": result.name,
        "problems": len(table),
        "unit": allocation.unit,
        "cost": allocation.cost,
        "bound": allocation.bound,
        "gap": allocation.gap,
        "mix": [
            {
                "problem": table.ids[move.problem] if table.ids else move.problem,
                "mode": allocation.modes[move.mode],
                "probability": move.probability,
            }
            for move in allocation.mix
        ],
        "dropped": list(table.dropped),
        "budget": allocation.budget,
        "price": allocation.price,
        "accuracy": allocation.accuracy,
        "mixed_accuracy": allocation.mixed_accuracy,
        "budgets": list(allocation.modes),
        "counts": list(allocation.counts),
        "uniform": {
            **_build_estimate_object(uniform.accuracy),
            "cost": uniform.cost,
            "budgets": list(uniform.modes),
            "probability": uniform.probability,
        },
        "crossfitted": None
        if fitted is None
        else {**_build_estimate_object(fitted.accuracy), "cost": fitted.cost, "splits": fitted.splits},
        "crossfitted_why": result.no_lower_end or None,
        "difference": asdict(comparison.difference),
        "curve": _build_curve_points(result),
        "protocol": f"{table.protocol}; chosen with the answers known (oracle); 95% intervals over problems",
    }


def _build_estimate_object(estimate: MeanEstimate) -> dict[str, float | None]:
    return {"accuracy": estimate.mean, "low": estimate.low, "high": estimate.high}


def _build_curve_points(result: SolveResult) -> list[dict[str, float]]:
    ticks = np.unique(result.table.cost_matrix.mean(axis=0))
    steps = np.arange(_POINTS_BETWEEN_BUDGETS * (len(ticks) - 1) + 1) / _POINTS_BETWEEN_BUDGETS
    costs = np.interp(steps, np.arange(len(ticks)), ticks)
    best, uniform = frontier(result.table), uniform_frontier(result.table)
    return [
        {"cost": cost, "accuracy": best.at(cost), "uniform": uniform.at(cost), "price": best.price_at(cost)}
        for cost in costs.tolist()
    ]


_ROUNDING = 1e-9  # smaller differences are rounding errors
_SAME_COST = 0.01  # costs with a smaller relative difference count as equal
_ORACLE_NOTE = (
    "uniform: the same for every problem, at the best mix of two budgets. All else is an oracle's choice, "
    "made with the answers known: a ceiling for deciding beforehand, not what a policy will get."
)


def show_result(result: SolveResult) -> None:
    """Shows how many problems get each number of samples, and the gain over uniform sampling."""
    allocation, dropped = result.comparison.plan, result.table.dropped
    left_out = f" ({len(dropped):,} left out: they can't be scored)" if dropped else ""
    scale = choose_scale(allocation.unit, allocation.budget)
    budget_text = f"{scale.format_cost(allocation.budget)} on average"
    print_line(f"{result.name}: {format_count(len(result.table), 'problem')}{left_out}, {budget_text}")
    print_line()
    _show_counts(result)
    print_line()
    for label, value in _build_facts(result, scale):
        if value:
            print_fact(label, value)
    print_line()
    _show_ends(result)
    print_line()
    print_paragraph(f"({result.table.protocol})", indent=2)


def _show_counts(result: SolveResult) -> None:
    """Shows a row per number of samples: how many problems get it, and how often they are right."""
    chosen_table, allocation = result.table, result.comparison.plan
    rows = []
    for column, (mode, count) in enumerate(zip(allocation.modes, allocation.counts, strict=True)):
        accuracies = chosen_table.accuracy[allocation.choice == column]
        rows.append(
            [
                str(mode),
                f"{count:,}",
                format_percent(count / len(chosen_table)),
                format_percent(float(accuracies[:, 0].mean()) if count else None),
                format_percent(float(accuracies[:, column].mean()) if count else None),
                format_percent(float(chosen_table.accuracy[:, column].mean())),
            ]
        )
    first_heading = f"right with {chosen_table.modes[0]}"
    print_table(["samples", "problems", "share", first_heading, "with these", "all problems so"], rows)


def _build_facts(result: SolveResult, scale: CostScale) -> list[tuple[str, str]]:
    comparison, allocation = result.comparison, result.comparison.plan
    accuracy = format_percent(allocation.accuracy)
    return [
        ("price", _describe_price(allocation, last=float(frontier(result.table).cost[-1]))),
        ("accuracy", f"{accuracy} at {scale.format_cost(allocation.cost)} on average"),
        ("bound", _describe_bound(allocation)),
        ("mixed", _describe_mix(result.table, allocation)),
        ("uniform", _describe_uniform(comparison.uniform, scale)),
        ("difference", _describe_difference(result, scale)),
    ]


def _describe_price(allocation: Allocation, *, last: float) -> str:
    if not allocation.binding:
        enough = choose_scale(allocation.unit, last).format_cost(last)
        return f"0: more would buy nothing, {enough} on average is all that pays"
    if allocation.unit == "samples":
        return f"one more sample must buy at least {format_point_number(allocation.price)} points of accuracy"
    # a power of ten: raising the average cost by this amount buys 1 to 10 percentage points of accuracy
    step = 10.0 ** math.ceil(-2 - math.log10(allocation.price))
    more = choose_scale(allocation.unit, step).format_cost(step, more=True)
    return f"{more} must buy at least {format_point_number(allocation.price * step)} points of accuracy"


def _describe_bound(allocation: Allocation) -> str:
    bound = f"no allocation within the budget is above {format_percent(allocation.bound)}"
    if allocation.gap < _ROUNDING:
        return f"{bound}: this is the best there is"
    return f"{bound}; this one is {format_point_number(allocation.gap)} points below that"


def _describe_mix(chosen_table: AccuracyTable, allocation: Allocation) -> str:
    """Describes the problem whose number of samples is random, to spend the whole budget; "" if none is."""
    move = next(iter(allocation.mix), None)
    if move is None:
        return ""
    given = f"{chosen_table.problem(move.problem)} given {_format_samples(allocation.modes[move.mode])}"
    base_mode = allocation.modes[int(allocation.choice[move.problem])]
    share, reached = format_percent(move.probability), format_percent(allocation.mixed_accuracy)
    return f"{given} {share} of the time, else {base_mode}, spends all of it: {reached}"


def _describe_uniform(uniform: UniformAllocation, scale: CostScale) -> str:
    low, high = uniform.modes
    accuracy = format_percent(uniform.accuracy.mean)
    if uniform.probability:
        share = f"{format_percent(uniform.probability)} of the problems, picked blindly"
        return f"{accuracy}: {_format_samples(high)} for {share}, {low} for the rest"
    cost_text = (
        f" at {scale.format_cost(uniform.cost)}" if uniform.cost < uniform.budget * (1 - _ROUNDING) else ""
    )
    return f"{accuracy}{cost_text}: {_format_samples(low)} for every problem"


def _describe_difference(result: SolveResult, scale: CostScale) -> str:
    difference = result.comparison.difference
    low, high = (
        None if end is None else format_point_number(end, sign=True)
        for end in (difference.low_end, difference.high_end)
    )
    cost_text = _describe_cost(result.comparison, scale)
    if low is None:
        return f"up to {high} points (upper end only){cost_text}"
    text = f"{low} points" if low == high else f"{low} to {high} points"
    return f"{text}{cost_text}{_describe_interval(difference)}"


def _describe_interval(difference: OracleGain) -> str:
    if difference.interval is None:
        return ""
    low, high = map(format_points, difference.interval)
    return f" (lower end 95% over problems: {low} to {high})"


def _describe_cost(comparison: OracleComparison, scale: CostScale) -> str:
    """Describes whether the oracle and uniform sampling cost the same, and if not, what the oracle costs."""
    oracle_costs = [
        comparison.plan.mixed_cost,
        *([comparison.crossfitted.cost] if comparison.crossfitted else []),
    ]
    uniform_cost = comparison.uniform.cost
    if all(math.isclose(cost, uniform_cost, rel_tol=_SAME_COST) for cost in oracle_costs):
        return " at the same average cost"
    few, many = (
        scale.format_number(min(oracle_costs), digits=3),
        scale.format_number(max(oracle_costs), digits=3),
    )
    costs_text = scale.format_cost(max(oracle_costs), digits=3)
    if few != many:
        costs_text = f"{few} to {costs_text}"
    return f", at {costs_text} instead of {scale.format_number(uniform_cost, digits=3)}"


def _show_ends(result: SolveResult) -> None:
    fitted = result.comparison.crossfitted
    if fitted is None:
        print_paragraph(f"{_ORACLE_NOTE} Its lower end can't be known: {result.no_lower_end}.", indent=2)
        return
    low, high = fitted.accuracy.mean, result.comparison.plan.mixed_accuracy
    spread = format_interval(fitted.accuracy.low, fitted.accuracy.high)
    method_text = (
        f"is chosen on one half of each problem's samples and judged on the other, both ways, mean of "
        f"{fitted.splits} random splits: {format_percent(low)} (95% interval over problems {spread})"
    )
    print_paragraph(
        f"{_ORACLE_NOTE} Its lower end {method_text}; the upper end chooses and judges on the same samples. "
        f"So the oracle itself is worth {format_range(low, high)} on these problems.",
        indent=2,
    )


def _format_samples(mode: ModeName) -> str:
    return format_count(str(mode), "sample")


BudgetOption = Annotated[
    str,
    typer.Option(
        metavar="B",
        parser=parse_budget,
        help="Average cost per problem: 2 (samples), '500 tokens', '2 USD per 1000'.",
    ),
]
SolveCostOption = Annotated[
    BudgetUnit | None,
    choose_from(BudgetUnit, help="Unit of --budget if it is a bare number. [default: samples]"),
]


def solve(
    context: typer.Context,
    *,
    source: PoolPath,
    budget: BudgetOption,
    scoring: ScoringOptions,
    cost: SolveCostOption = None,
    which: SourceOptions,
    reading: AnswerOptions,
    engine: EngineOptions,
    json: JsonFlag = False,
) -> None:
    """Show the most accuracy that an average budget can buy.

    An oracle, which knows the answers, decides how many samples each problem gets. For comparison, also shows
    the same budget spent evenly on all problems (uniform), and an oracle that chooses on one half of the
    samples and is judged on the other.
    """
    engine.announce()
    config = load_settings(context)
    average, unit, currency = _read_average(budget, cost, scoring.currency)
    scoring_method = scoring.build_scoring(unit, currency)
    with open_ballots(source, config.answers, reading, which, engine=engine) as (ballots, map_blocks):
        budgets = scoring.choose_budgets(ballots, config.score)
        table = scoring_method.score_table(ballots, budgets, too_few=scoring.too_few, map_blocks=map_blocks)
    allocation = solve_table(table, budget=average)
    pairs, reason = _split_samples(ballots, table, scoring_method)
    result = SolveResult(
        name=format_path(source),
        table=table,
        comparison=compare_with_uniform(table, allocation, pairs),
        no_lower_end=reason,
    )
    print_json(build_result_object(result)) if json else show_result(result)


def _read_average(
    budget: float | str, cost: BudgetUnit | None, currency: str | None
) -> tuple[float, BudgetUnit, str | None]:
    """Returns the amount, unit and currency of the average budget, from --budget or the other options."""
    if not isinstance(budget, str):
        return budget, cost or "samples", currency
    average = Budget.parse(budget, currency=currency)
    if cost not in (None, average.unit):
        raise typer.BadParameter(f"{budget!r} is not in {cost}; leave --cost out", param_hint="--cost")
    return average.amount, average.unit, average.currency or currency


def _split_samples(
    ballots: Ballots, table: AccuracyTable, scoring_method: Scoring
) -> tuple[Sequence[tuple[AccuracyTable, AccuracyTable]], str]:
    """Scores random halves of the samples. If there are too few samples, returns no scores and the reason."""
    try:
        return score_halves(ballots, table, scoring=scoring_method), ""
    except TooFewSamples as exc:
        return (), str(exc)
