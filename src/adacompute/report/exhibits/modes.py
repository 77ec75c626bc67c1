"""Compares several modes: their costs and accuracies, and how much our policy uses each of them."""

import math

from adacompute.errors import format_count
from adacompute.evaluate.comparison import Evaluation, Match
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.mode_rivals import ALL_MODES, CASCADES
from adacompute.pool.modes import ModeSet
from adacompute.records import format_points
from adacompute.report.document import Cell, Column, Section, Table, find_clear_signs, join_words
from adacompute.score import score

_UNIFORM_SAMPLES = (1, 2, 4, 8, 16)  # numbers of samples at which the votes of a single mode are scored
_SMALL_SHARE = 0.02  # a mode counts as unused if its share of the cost is smaller
_LIMITS = (
    "Several modes pay on problems where the cheap one is right, and shows it by agreeing with itself. They "
    "gain little where prices are close, where the cheap mode is hardly ever right, or where the budget is "
    "so large that everyone can have the expensive mode. What is shown is of these problems, "
    "models and prices: others need recordings of their own."
)
_CASCADE_LEVEL = (
    "No clear difference from a cascade whose settings are chosen on the same recordings, anew for every "
    "budget. Our policy is fitted once, and has one price for every budget."
)


def cost_column(mode_set: ModeSet, name: str, about: str = "") -> Column:
    """Makes a column for costs that were computed with `scale_cost`."""
    return Column(name=name, kind="money" if mode_set.unit == "money" else "amount", about=about)


def scale_cost(mode_set: ModeSet, cost: float) -> float:
    """Multiplies a cost per request by `ModeSet.shown_requests`, and rounds it to 3 significant digits."""
    return float(f"{cost * mode_set.shown_requests:.3g}")


def build_section(runs: EvaluationRuns, evaluation: Evaluation) -> Section:
    """Builds the section with each mode's cost and accuracy, and how often our policy samples it."""
    return Section(
        key="modes",
        title="Whom it asks",
        words=describe_shares(evaluation),
        tables=(_build_modes_table(runs), _build_shares_table(evaluation)),
    )


def _build_modes_table(runs: EvaluationRuns) -> Table:
    """Builds the table of each mode's cost per sample, and its accuracy with one and with many samples."""
    mode_set, ballots, rows = runs.setup.modes, runs.setup.ballots, []
    for mode in mode_set.modes:
        drawn = ballots[mode.name].drawn
        least, most = int(drawn.min()), int(drawn.max())
        budgets = tuple(count for count in _UNIFORM_SAMPLES if count <= least)
        votes: list[float] = []
        if budgets and runs.setup.basis == "accuracy":
            votes = score(ballots[mode.name], budgets).accuracy.mean(axis=0).tolist()
        row: tuple[Cell, ...] = (
            mode.name,
            scale_cost(mode_set, mode.cost),
            mode.cost / mode_set.modes[0].cost if mode_set.modes[0].cost else None,
            votes[0] if votes else None,
            f"{votes[-1]:.1%} ({format_count(budgets[-1], 'sample')})" if votes else None,
            f"{most}" if least == most else f"{least} to {most}",
        )
        rows.append(row)
    per = (
        f"{mode_set.currency} for 1,000 samples"
        if mode_set.unit == "money"
        else f"{mode_set.unit} of a sample"
    )
    return Table(
        key="modes",
        title="The modes",
        protocol="uniform votes are exact, over all subsets of the recorded samples",
        columns=(
            Column(name="mode"),
            cost_column(mode_set, per, "on average over the recorded samples where prices are given"),
            Column(name="times the cheapest", kind="tenths"),
            Column(name="one sample", kind="share", about="how often it is right"),
            Column(name="most samples", about="a vote for everyone, as many as were recorded, 16 at most"),
            Column(name="recorded", about="samples of a problem"),
        ),
        rows=tuple(rows),
    )


def _list_drawn(evaluation: Evaluation) -> list[Match]:
    matches = (evaluation.match(ALL_MODES, budget) for budget in evaluation.budgets)
    return [match for match in matches if match is not None]


def _compute_spent(mode_set: ModeSet, match: Match) -> dict[str, float]:
    """Estimates each mode's share of the cost from its mean cost per sample."""
    spent = {name: count * mode_set[name].cost for name, count in match.draws.items()}
    return {name: cost / (sum(spent.values()) or 1.0) for name, cost in spent.items()}


def _build_shares_table(evaluation: Evaluation) -> Table:
    """Builds the table of how many samples of each mode our policy draws at each budget."""
    mode_set = evaluation.get_modes()
    rows: list[tuple[Cell, ...]] = []
    for match in _list_drawn(evaluation):
        spent = _compute_spent(mode_set, match)
        pairs = [(match.draws[name], spent[name]) for name in mode_set.names]
        rows.append((scale_cost(mode_set, match.budget), *(cell for pair in pairs for cell in pair)))
    columns = [cost_column(mode_set, mode_set.cost_unit)]
    for name in mode_set.names:
        columns += [
            Column(name=f"samples of {name}", kind="number", about="a request, on average"),
            Column(name=f"share of cost, {name}", kind="percent", about="of what our policy spends"),
        ]
    return Table(
        key="shares",
        title="What our policy draws at each average cost",
        protocol=evaluation.verdict.protocol,
        columns=tuple(columns),
        rows=tuple(rows),
    )


def describe_shares(evaluation: Evaluation) -> tuple[str, ...]:
    """Describes the modes used at the smallest and the largest budget, and the modes that are never used."""
    mode_set, drawn = evaluation.get_modes(), _list_drawn(evaluation)
    if not drawn:
        return ()
    texts = []
    for match in [drawn[0], drawn[-1]][: len(drawn)]:
        parts = [f"{count:.2f} of {name}" for name, count in match.draws.items()]
        texts.append(
            f"at {mode_set.format_cost(match.budget, unit=False)} a request gets {join_words(parts)}"
        )
    sentence = f"In samples on average, {'; '.join(texts)} ({mode_set.cost_unit})."
    spent = [_compute_spent(mode_set, match) for match in drawn]
    unused = [name for name in mode_set.names if all(share[name] < _SMALL_SHARE for share in spent)]
    if not unused:
        return (sentence,)
    return (sentence, f"It has no use for {join_words(unused)} here: less than 2% of the cost at any budget.")


def build_limits(evaluation: Evaluation) -> Section:
    """Builds the section on when using several modes isn't worth it on this pool."""
    words = (*_describe_unclear(evaluation), *_describe_cascade(evaluation))
    ratio = _describe_ratio(evaluation.get_modes())
    return Section(key="limits", title="When it isn't worth it", words=(*words, *ratio, _LIMITS))


def _describe_unclear(evaluation: Evaluation) -> tuple[str, ...]:
    mode_set, rows = evaluation.get_modes(), evaluation.verdict.rows
    if not rows or rows[0].gain.low is None:  # too few groups of problems for an interval
        return ()
    above, below = find_clear_signs([row.gain for row in rows])
    if len(above) == len(rows):
        return (f"Over single modes, the gain is clear at every cost looked at ({mode_set.cost_unit}).",)
    unclear = [
        f"{mode_set.format_cost(row.budget, unit=False)}: {format_points(row.gain.mean)} "
        f"({format_points(row.gain.low or 0.0)} to {format_points(row.gain.high or 0.0)})"
        for at, row in enumerate(rows)
        if at not in above
    ]
    text = (
        f"No clear gain over single modes at {join_words(unclear)} points ({mode_set.cost_unit}, 95% "
        "interval)."
    )
    if below:
        text += " Where the interval is below zero, stay with one mode."
    return (text,)


def _describe_cascade(evaluation: Evaluation) -> tuple[str, ...]:
    matches = [evaluation.find_best(CASCADES, budget) for budget in evaluation.budgets]
    leads = [match.lead for match in matches if match is not None and match.lead is not None]
    if not leads:
        return ()
    above, below = find_clear_signs(leads)
    if below:
        count = f"{len(below)} of {len(leads)}"
        return (f"A cascade, tuned as it was, is clearly better at {count} costs: prefer one there.",)
    if not above:
        return (_CASCADE_LEVEL,)
    count = f"{len(above)} of {len(leads)}"
    return (f"It is clearly ahead of the better of two cascades, tuned as it was, at {count} costs.",)


def _describe_ratio(mode_set: ModeSet) -> tuple[str, ...]:
    cheapest, dearest = mode_set.modes[0], mode_set.modes[-1]
    if not cheapest.cost or not math.isfinite(dearest.cost):
        return ()
    ratio = dearest.cost / cheapest.cost
    text = f"Here a sample of {dearest.name} costs {ratio:.3g} times one of {cheapest.name}."
    return (f"{text} With other prices, make this page again: they decide more than the policy does.",)
