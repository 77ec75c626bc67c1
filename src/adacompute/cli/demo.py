"""`adacompute demo`: the main job on the recordings inside the package. Knows no numbers of its own."""

from dataclasses import dataclass
from typing import Any

import typer

from adacompute.cli.options import Json, settings
from adacompute.cli.plan import show_curve
from adacompute.cli.show import as_json, line, paragraph, percent, points, table, within
from adacompute.errors import TooFewSamples
from adacompute.evaluate import Compared, compared, cost_for, halved, uniform_frontier
from adacompute.pool import bundled, bundled_names
from adacompute.records import AccuracyTable
from adacompute.score import Summary, score, summarise
from adacompute.solve import solve

__all__ = ["demo"]

_ASKED = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # samples on average
_TOLD = 4.0  # the one that the verdict is about
_DRAWN = "words"  # the recording whose curve is shown
_ORACLE = (
    "Where it pays is an oracle's choice: it knows the answers, so it is a ceiling for deciding beforehand. "
    "Its two ends: chosen on half of each problem's samples and judged on the other half (both ways, mean of "
    "5 random splits), and chosen and judged on the same samples. One more buys: what the next sample on "
    "average adds. Votes are plain ones, means over all subsets of a problem's samples."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """One recording: what is in it, its table, and what some average budgets buy."""

    summary: Summary
    table: AccuracyTable
    compared: tuple[Compared, ...]


def demo(context: typer.Context, json: Json = False) -> None:
    """Show what samples buy on the bundled recordings, spent on all problems alike and where they pay."""
    budgets = settings(context).score.budgets
    found = {name: _measured(name, budgets) for name in bundled_names()}
    if json:
        as_json({name: _object(shown) for name, shown in found.items()})
        return
    line("Two recordings inside the package: small models, asked each question many times.")
    line("What does an average number of samples buy: all problems alike, or spent where it pays?")
    for name, shown in found.items():
        line()
        _show(name, shown)
    line()
    paragraph(_ORACLE)
    line()
    for name, shown in found.items():
        line(_verdict(name, shown))
    line()
    line("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    line("  adacompute solve words --budget 2      who gets how many samples, at what price")
    line("  adacompute pool words                  what is in a recording")
    line("  adacompute import FILE --pool pool.sqlite && adacompute solve pool.sqlite --budget 2")


def _measured(name: str, budgets: tuple[int, ...]) -> _Shown:
    with bundled(name) as pool:
        summary, ballots = summarise(pool, budgets=budgets), pool.ballots()
    scored = score(ballots, budgets)
    try:
        pairs = halved(ballots, scored)
    except TooFewSamples:  # of budgets in the settings that half of the samples don't allow
        pairs = ()
    plans = [solve(scored, budget=asked) for asked in _ASKED if asked >= budgets[0]]
    return _Shown(
        summary=summary, table=scored, compared=tuple(compared(scored, plan, pairs) for plan in plans)
    )


def _show(name: str, shown: _Shown) -> None:
    (source,) = shown.summary.sources
    line(f"{name}: {len(shown.table):,} problems, {source.samples_min} samples each of {source.model}")
    votes = [f"{percent(vote.mean)} with {budget}" for budget, vote in source.votes.items()]
    line(f"  right by vote: {', '.join(votes)}")
    fewest = shown.table.modes[0]
    table(
        ["samples on average", "all alike", "where it pays", "one more buys", f"get {fewest} only"],
        [
            [
                f"{one.plan.budget:g}",
                percent(one.uniform.accuracy.mean),
                within(*_ends(one)),
                f"{points(one.plan.price)} points",
                percent(one.plan.counts[0] / len(shown.table)),
            ]
            for one in shown.compared
        ],
    )
    if name == _DRAWN:
        line()
        show_curve(shown.table)


def _ends(one: Compared) -> tuple[float, float]:
    """Accuracy of the oracle: cross-fitted and in-sample, the lower first."""
    inside = one.plan.mixed_accuracy
    other = inside if one.crossfitted is None else one.crossfitted.accuracy.mean
    return min(inside, other), max(inside, other)


def _verdict(name: str, shown: _Shown) -> str:
    """How many samples spent alike are worth as much as fewer spent where they pay."""
    told = next((one for one in shown.compared if one.plan.budget == _TOLD), None)
    if told is None:
        return f"{name}: no average of {_TOLD:g} samples was looked at"
    costs = [cost_for(uniform_frontier(shown.table), accuracy) for accuracy in _ends(told)]
    most = shown.table.modes[-1]
    low, high = (f"more than {most}" if cost is None else f"{cost:.1f}" for cost in costs)
    worth = low if low == high else f"{low} to {high}"
    return (
        f"{name}: {_TOLD:g} samples on average, spent where they pay, are as good as {worth} for all alike "
        f"({within(*_ends(told))})"
    )


def _object(shown: _Shown) -> dict[str, Any]:
    return {
        **shown.summary.to_dict(),
        "frontier": [
            {
                "budget": one.plan.budget,
                "price": one.plan.price,
                "uniform": one.uniform.accuracy.mean,
                "accuracy": one.plan.mixed_accuracy,
                "crossfitted": one.crossfitted and one.crossfitted.accuracy.mean,
                "budgets": list(one.plan.modes),
                "counts": list(one.plan.counts),
            }
            for one in shown.compared
        ],
    }
