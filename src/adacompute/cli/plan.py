"""An allocation as a person wants it. Knows how to lay numbers out, not how they were made."""

import math

from adacompute.cli.amounts import Scale, scale_of
from adacompute.cli.curve import curve_lines
from adacompute.cli.outcome import Outcome, ticks_of
from adacompute.cli.show import (
    can_show,
    counted,
    fact,
    interval,
    line,
    paragraph,
    percent,
    points,
    table,
    width,
    within,
)
from adacompute.evaluate import Compared, Difference, Uniform, uniform_frontier
from adacompute.records import AccuracyTable, Allocation
from adacompute.records.table import Mode
from adacompute.solve import frontier

__all__ = ["show_curve", "show_outcome"]

_NOTHING = 1e-9  # what rounding leaves
_SAME = 0.01  # of a cost: what tokens of another half may differ by
_WIDEST = 80  # of the picture
_SAID = (
    "uniform: all problems alike, at the best mix of two budgets. All else is an oracle's choice, made with "
    "the answers known: a ceiling for deciding beforehand, not what a policy will get."
)


def show_outcome(outcome: Outcome) -> None:
    """Who gets how much, what that buys, what it would buy spent alike, and how far to believe it."""
    plan, dropped = outcome.found.plan, outcome.table.dropped
    left_out = f" ({len(dropped):,} left out: they can't be scored)" if dropped else ""
    scale = scale_of(plan.unit, plan.budget)
    asked = f"{scale.words(plan.budget)} on average"
    line(f"{outcome.name}: {counted(len(outcome.table), 'problem')}{left_out}, {asked}")
    line()
    _show_counts(outcome)
    line()
    for label, value in _facts(outcome, scale):
        if value:
            fact(label, value)
    line()
    _show_ends(outcome)
    line()
    show_curve(outcome.scored, outcome.table, budget=plan.budget)
    paragraph(f"({outcome.table.protocol})", indent=2)


def _show_counts(outcome: Outcome) -> None:
    """How many problems get each mode, and how right these, and all, are with it."""
    chosen, plan = outcome.table, outcome.found.plan
    rows = []
    for column, (mode, count) in enumerate(zip(plan.modes, plan.counts, strict=True)):
        theirs = chosen.accuracy[plan.choice == column]
        rows.append(
            [
                str(mode),
                f"{count:,}",
                percent(count / len(chosen)),
                percent(float(theirs[:, 0].mean()) if count else None),
                percent(float(theirs[:, column].mean()) if count else None),
                percent(float(outcome.scored.accuracy[:, column].mean())),
            ]
        )
    first = f"right with {chosen.modes[0]}"
    table(["samples", "problems", "share", first, "with these", "all problems so"], rows)


def _facts(outcome: Outcome, scale: Scale) -> list[tuple[str, str]]:
    found, plan = outcome.found, outcome.found.plan
    shrunk = " as shrunk" if outcome.shrunk else ""
    return [
        ("price", _price_words(plan, last=float(frontier(outcome.table).cost[-1]))),
        ("accuracy", f"{percent(plan.accuracy)}{shrunk} at {scale.words(plan.cost)} on average"),
        ("bound", _bound_words(plan, shrunk)),
        ("mixed", _mix_words(outcome.table, plan)),
        ("uniform", _uniform_words(found.uniform, scale)),
        ("difference", _difference_words(outcome, scale)),
    ]


def _price_words(plan: Allocation, *, last: float) -> str:
    if not plan.binding:
        enough = scale_of(plan.unit, last).words(last)
        return f"0: more would buy nothing, {enough} on average is all that pays"
    if plan.unit == "samples":
        return f"one more sample must buy at least {points(plan.price)} points of accuracy"
    step = 10.0 ** math.ceil(-2 - math.log10(plan.price))  # so that it buys 1 to 10 points
    more = scale_of(plan.unit, step).more(step)
    return f"{more} must buy at least {points(plan.price * step)} points of accuracy"


def _bound_words(plan: Allocation, shrunk: str) -> str:
    bound = f"no allocation within the budget is above {percent(plan.bound)}{shrunk}"
    if plan.gap < _NOTHING:
        return f"{bound}: this is the best there is"
    return f"{bound}; this one is {points(plan.gap)} points below that"


def _mix_words(chosen: AccuracyTable, plan: Allocation) -> str:
    """What spends the rest of the budget; nothing where there is no rest."""
    moves = list(plan.mix)
    if not moves:
        return ""
    first = moves[0]
    share, reached = f"{percent(first.probability)} of the time", percent(plan.mixed_accuracy)
    if len(moves) > 1:
        return f"{len(moves):,} problems given more {share}, else as above, spend all of it: {reached}"
    given, own = _samples(plan.modes[first.mode]), plan.modes[int(plan.choice[first.problem])]
    return f"{chosen.problem(first.problem)} given {given} {share}, else {own}, spends all of it: {reached}"


def _uniform_words(alike: Uniform, scale: Scale) -> str:
    low, high = alike.modes
    said = percent(alike.accuracy.mean)
    if alike.probability:
        share = percent(alike.probability)
        return f"{said}: {_samples(high)} for {share} of the problems, picked blindly, {low} for the rest"
    spent = f" at {scale.words(alike.cost)}" if alike.cost < alike.budget * (1 - _NOTHING) else ""
    return f"{said}{spent}: {_samples(low)} for every problem"


def _difference_words(outcome: Outcome, scale: Scale) -> str:
    found = outcome.found.difference
    low, high = (None if end is None else points(end, sign=True) for end in (found.low_end, found.high_end))
    at = _cost_words(outcome.found, scale)
    if low is None:
        return f"up to {high} points ({'as shrunk' if outcome.shrunk else 'upper end only'}){at}"
    if outcome.shrunk:
        said = f"{low} points cross-fitted ({high} as shrunk)"
    else:
        said = f"{low} points" if low == high else f"{low} to {high} points"
    return f"{said}{at}{_interval_words(found, shrunk=outcome.shrunk)}"


def _interval_words(found: Difference, *, shrunk: bool) -> str:
    if found.interval is None:
        return ""
    low, high = (f"{round(100 * end, 1) + 0.0:+.1f}" for end in found.interval)
    return f" ({'cross-fitted' if shrunk else 'lower end'} 95% over problems: {low} to {high})"


def _cost_words(found: Compared, scale: Scale) -> str:
    """At which cost: the same, or what the oracle spends instead where it has no use for all of it."""
    spent = [found.plan.mixed_cost, *([found.crossfitted.cost] if found.crossfitted else [])]
    alike = found.uniform.cost
    if all(math.isclose(cost, alike, rel_tol=_SAME) for cost in spent):
        return " at the same average cost"
    few, many = scale.number(min(spent), digits=3), scale.number(max(spent), digits=3)
    own = scale.words(max(spent), digits=3)
    return f", at {own if few == many else f'{few} to {own}'} instead of {scale.number(alike, digits=3)}"


def _show_ends(outcome: Outcome) -> None:
    fitted = outcome.found.crossfitted
    if fitted is None:
        paragraph(f"{_SAID} Its lower end can't be told: {outcome.why}.", indent=2)
        return
    low, high = fitted.accuracy.mean, outcome.found.plan.mixed_accuracy
    spread = interval(fitted.accuracy.low, fitted.accuracy.high)
    how = (
        f"is chosen on one half of each problem's samples and judged on the other, both ways, mean of "
        f"{fitted.splits} random splits: {percent(low)} (95% interval over problems {spread})"
    )
    if outcome.shrunk:
        worth = f"as shrunk {percent(high)}; cross-fitted {percent(low)}"
        paragraph(f"{_SAID} The cross-fitted value {how}. On these problems: {worth}.", indent=2)
        return
    paragraph(
        f"{_SAID} Its lower end {how}; the upper end chooses and judges on the same samples. "
        f"So the oracle itself is worth {within(low, high)} on these problems.",
        indent=2,
    )


def show_curve(scored: AccuracyTable, chosen: AccuracyTable, *, budget: float | None = None) -> None:
    """A small picture of the oracle's frontier on the table it chose on, with uniform as scored."""
    for one in curve_lines(
        frontier(chosen),
        uniform_frontier(scored),
        ticks=ticks_of(chosen),
        budget=budget,
        fine=can_show("⠤┊▲┤"),
        end="upper end" if chosen is scored else "as shrunk",
        columns=min(_WIDEST, width() or _WIDEST),
    ):
        line(one)


def _samples(mode: Mode) -> str:
    return "1 sample" if mode == 1 else f"{mode} samples"
