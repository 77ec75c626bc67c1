"""An allocation as a person and a program want it. Knows how to lay numbers out, not how they were made."""

import math
from typing import Any

import numpy as np

from adacompute.cli.curve import curve_lines
from adacompute.cli.show import can_show, counted, interval, line, paragraph, percent, points, table, within
from adacompute.evaluate import Compared, Uniform, uniform_frontier
from adacompute.records import AccuracyTable, Allocation
from adacompute.records.table import Mode
from adacompute.score import Estimate
from adacompute.solve import frontier

__all__ = ["amount", "plan_object", "show_curve", "show_plan"]

_POINTS = 4  # of the curve in JSON, between two budgets
_NOTHING = 1e-9  # what rounding leaves


def plan_object(scored: AccuracyTable, found: Compared) -> dict[str, Any]:
    """Plain data, for JSON: full numbers, null for what can't be told."""
    plan, alike, fitted = found.plan, found.uniform, found.crossfitted
    return {
        "problems": len(scored),
        "unit": plan.unit,
        "budget": plan.budget,
        "price": plan.price,
        "cost": plan.cost,
        "accuracy": plan.accuracy,
        "bound": plan.bound,
        "gap": plan.gap,
        "budgets": list(plan.modes),
        "counts": list(plan.counts),
        "mix": _mix_object(scored, plan),
        "dropped": list(scored.dropped),
        "uniform": {
            **_estimate_object(alike.accuracy),
            "cost": alike.cost,
            "budgets": list(alike.modes),
            "probability": alike.probability,
        },
        "crossfitted": fitted
        and {**_estimate_object(fitted.accuracy), "cost": fitted.cost, "splits": fitted.splits},
        "curve": _curve_points(scored),
        "protocol": f"{scored.protocol}; chosen with the answers known (oracle); 95% intervals over problems",
    }


def _mix_object(scored: AccuracyTable, plan: Allocation) -> list[dict[str, Any]]:
    return [
        {
            "problem": scored.ids[move.problem] if scored.ids else move.problem,
            "mode": plan.modes[move.mode],
            "probability": move.probability,
        }
        for move in plan.mix
    ]


def _estimate_object(estimate: Estimate) -> dict[str, float | None]:
    return {"accuracy": estimate.mean, "low": estimate.low, "high": estimate.high}


def _curve_points(scored: AccuracyTable) -> list[dict[str, float]]:
    ticks = _ticks(scored)
    steps = np.arange(_POINTS * (len(ticks) - 1) + 1) / _POINTS
    costs = np.interp(steps, np.arange(len(ticks)), ticks)
    best, alike = frontier(scored), uniform_frontier(scored)
    return [
        {"cost": cost, "accuracy": best.at(cost), "uniform": alike.at(cost), "price": best.price_at(cost)}
        for cost in costs.tolist()
    ]


def show_plan(scored: AccuracyTable, found: Compared, *, name: str, why: str) -> None:
    """Who gets how much, what that buys, what it would buy spent alike, and how far to believe it."""
    plan = found.plan
    left_out = f" ({len(scored.dropped):,} left out: they can't be scored)" if scored.dropped else ""
    asked = f"{amount(plan.budget, plan.unit)} on average"
    line(f"{name}: {counted(len(scored), 'problem')}{left_out}, {asked}")
    line()
    _show_counts(scored, plan)
    line()
    gain = plan.mixed_accuracy - found.uniform.accuracy.mean  # both by lot where that spends the budget
    facts = [
        ("price", _price_words(plan, last=float(frontier(scored).cost[-1]))),
        ("accuracy", f"{percent(plan.accuracy)} at {amount(plan.cost, plan.unit)} on average"),
        ("bound", _bound_words(plan)),
        ("mixed", _mix_words(scored, plan)),
        ("all alike", _alike_words(found.uniform, plan.unit)),
        ("difference", f"{points(gain, sign=True)} points at the same average cost"),
    ]
    for label, value in facts:
        if value:
            line(f"  {label:<11} {value}")
    line()
    _show_bracket(found, why)
    line()
    show_curve(scored, budget=plan.budget)
    paragraph(f"({scored.protocol})", indent=2)


def _show_counts(scored: AccuracyTable, plan: Allocation) -> None:
    """How many problems get each mode, and how right these, and all, are with it."""
    first = scored.modes[0]
    rows = []
    for column, (mode, count) in enumerate(zip(plan.modes, plan.counts, strict=True)):
        theirs = scored.accuracy[plan.choice == column]
        rows.append(
            [
                str(mode),
                f"{count:,}",
                percent(count / len(scored)),
                percent(float(theirs[:, 0].mean()) if count else None),
                percent(float(theirs[:, column].mean()) if count else None),
                percent(float(scored.accuracy[:, column].mean())),
            ]
        )
    table(["samples", "problems", "share", f"right with {first}", "with these", "all with these"], rows)


def _show_bracket(found: Compared, why: str) -> None:
    fitted = found.crossfitted
    said = "This is an oracle: it chose with the answers known. It is a ceiling for deciding beforehand, not "
    said += "what a policy will get."
    if fitted is None:
        paragraph(f"{said} Its lower end can't be told: {why}.", indent=2)
        return
    spread = interval(fitted.accuracy.low, fitted.accuracy.high)
    worth = within(fitted.accuracy.mean, found.plan.mixed_accuracy)
    paragraph(
        f"{said} Chosen on half of each problem's samples and judged on the other half, both ways, mean of "
        f"{fitted.splits} random splits: {percent(fitted.accuracy.mean)} (95% interval over problems "
        f"{spread}). So the oracle itself is worth {worth}.",
        indent=2,
    )


def show_curve(scored: AccuracyTable, *, budget: float | None = None) -> None:
    """A small picture of the frontier, with all alike beside it."""
    lines = curve_lines(
        frontier(scored), uniform_frontier(scored), ticks=_ticks(scored), budget=budget, fine=can_show("⠤┊▲┤")
    )
    for one in lines:
        line(one)


def _ticks(scored: AccuracyTable) -> list[float]:
    """The modes' average costs, ascending."""
    return [float(cost) for cost in np.unique(scored.cost_matrix.mean(axis=0))]


def _price_words(plan: Allocation, *, last: float) -> str:
    if not plan.binding:
        return f"0: more would buy nothing, {amount(last, plan.unit)} on average is all that pays"
    if plan.unit == "samples":
        return f"one more sample must buy at least {points(plan.price)} points of accuracy"
    step = 10.0 ** math.ceil(-2 - math.log10(plan.price))  # so that it buys 1 to 10 points
    more = f"{step:,.0f}" if step >= 1 else f"{step:g}"
    return f"{more} more {plan.unit} must buy at least {points(plan.price * step)} points of accuracy"


def _bound_words(plan: Allocation) -> str:
    bound = f"no allocation within the budget is above {percent(plan.bound)}"
    if plan.gap < _NOTHING:
        return f"{bound}: this is the best there is"
    return f"{bound}; this one is at most {points(plan.gap)} points below it"


def _mix_words(scored: AccuracyTable, plan: Allocation) -> str:
    """What would spend the rest of the budget; nothing where there is no rest."""
    moves = list(plan.mix)
    if not moves:
        return ""
    reached = f"would spend all of it: {percent(plan.mixed_accuracy)}"
    first = moves[0]
    share = f"{percent(first.probability)} of the time"
    if len(moves) > 1:
        return f"{len(moves):,} problems given the next budget {share} {reached}"
    return f"{scored.problem(first.problem)} given {_samples(plan.modes[first.mode])} {share} {reached}"


def _alike_words(alike: Uniform, unit: str) -> str:
    low, high = alike.modes
    said = percent(alike.accuracy.mean)
    if alike.probability:
        share = percent(alike.probability)
        return f"{said}: {_samples(high)} for {share} of the problems, picked blindly, {low} for the rest"
    spent = f" at {amount(alike.cost, unit)}" if alike.cost < alike.budget * (1 - _NOTHING) else ""
    return f"{said}{spent}: {_samples(low)} for every problem"


def _samples(mode: Mode) -> str:
    return "1 sample" if mode == 1 else f"{mode} samples"


def amount(cost: float, unit: str) -> str:
    """`1 sample`, `1.998 samples`, `612 tokens`, `0.00012 dollars`."""
    shown = f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"
    return f"{shown} {unit[:-1] if shown == '1' and unit.endswith('s') else unit}"
