"""`adacompute demo`: the main job on the recordings inside the package. Knows no numbers of its own."""

from dataclasses import dataclass
from typing import Any

import typer

from adacompute.cli.options import Json, settings
from adacompute.cli.outcome import compared_object
from adacompute.cli.plan import show_curve
from adacompute.cli.show import as_json, counted, line, paragraph, percent, points, table, within
from adacompute.errors import TooFewSamples
from adacompute.evaluate import Compared, Scoring, compared, cost_for, halved, uniform_frontier
from adacompute.pool import bundled, bundled_names
from adacompute.records import AccuracyTable
from adacompute.score import Summary, summarise
from adacompute.solve import solve

__all__ = ["demo"]

_ASKED = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # samples on average
_TOLD = 4.0  # the one that the verdict is about
_DRAWN = "words"  # the recording whose curve is shown
_UNIFORM = (
    "uniform: all problems alike, at the best mix of two budgets: 2 on average is 4 samples for a random "
    "third and 1 for the rest, where that beats 2 for everyone. oracle: chosen with the answers known; a "
    "ceiling for deciding beforehand."
)
_MORE = (
    "One more buys: what the next sample on average adds. Votes are plain ones, means over all subsets of a "
    "problem's samples."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """One recording: what is in it, its table, and what some average budgets buy."""

    summary: Summary
    table: AccuracyTable
    compared: tuple[Compared, ...]
    why: str  # there is no lower end


def demo(context: typer.Context, json: Json = False) -> None:
    """Show what samples buy on the bundled recordings, spent on all problems alike and by an oracle."""
    budgets = settings(context).score.budgets
    found = {name: _measured(name, budgets) for name in bundled_names()}
    if json:
        as_json({name: _object(shown) for name, shown in found.items()})
        return
    recordings = counted(len(found), "recording")
    paragraph(f"{recordings} inside the package: small models, asked each question many times.")
    paragraph("What does an average number of samples buy: all problems alike, or spent where it pays?")
    line()
    for name, shown in found.items():
        paragraph(_verdict(name, shown), hang=2)
    for name, shown in found.items():
        line()
        _show(name, shown)
    line()
    paragraph(f"{_UNIFORM} {_ends_words(list(found.values()))} {_MORE}")
    line()
    paragraph("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    line("  adacompute solve words --budget 2      who gets how many samples, at what price")
    line("  adacompute pool words                  what is in a recording")
    line("  adacompute import FILE --pool pool.sqlite && adacompute solve pool.sqlite --budget 2")


def _measured(name: str, budgets: tuple[int, ...]) -> _Shown:
    how = Scoring()
    with bundled(name) as pool:
        summary, ballots = summarise(pool, budgets=budgets), pool.ballots()
    scored = how.table(ballots, budgets)
    try:
        pairs, why = halved(ballots, scored, how=how), ""
    except TooFewSamples as exc:  # of budgets in the settings that half of the samples don't allow
        pairs, why = (), str(exc)
    plans = [solve(scored, budget=asked) for asked in _ASKED if asked >= budgets[0]]
    found = tuple(compared(scored, plan, pairs) for plan in plans)
    return _Shown(summary=summary, table=scored, compared=found, why=why)


def _verdict(name: str, shown: _Shown) -> str:
    """How many samples spent alike are worth as much as fewer spent by the oracle."""
    told = next((one for one in shown.compared if one.plan.budget == _TOLD), None)
    if told is None:
        return f"{name}: no average of {_TOLD:g} samples was looked at"
    costs = [cost_for(uniform_frontier(shown.table), accuracy) for accuracy in _ends(told)]
    most = shown.table.modes[-1]
    low, high = (f"more than {most}" if cost is None else f"{cost:.1f}" for cost in costs)
    worth = low if low == high else f"{low} to {high}"
    up_to = "up to " if told.crossfitted is None else ""
    return (
        f"{name}: the oracle's {_TOLD:g} samples on average (chosen with the answers known) are worth "
        f"{up_to}{worth} uniform ones ({within(*_ends(told))})"
    )


def _show(name: str, shown: _Shown) -> None:
    (source,) = shown.summary.sources
    paragraph(f"{name}: {len(shown.table):,} problems, {source.samples_min} samples each of {source.model}")
    votes = [f"{percent(vote.mean)} with {budget}" for budget, vote in source.votes.items()]
    paragraph(f"right by vote: {', '.join(votes)}", indent=2, hang=2)
    table(
        ["samples on average", "uniform", "oracle", "one more buys"],
        [
            [
                f"{one.plan.budget:g}",
                percent(one.uniform.accuracy.mean),
                within(*_ends(one)),
                f"{points(one.plan.price)} points",
            ]
            for one in shown.compared
        ],
    )
    if name == _DRAWN:
        line()
        show_curve(shown.table, shown.table)


def _ends(one: Compared) -> tuple[float, float]:
    """Accuracy of the oracle: cross-fitted and in-sample, the lower first."""
    inside = one.plan.mixed_accuracy
    other = inside if one.crossfitted is None else one.crossfitted.accuracy.mean
    return min(inside, other), max(inside, other)


def _ends_words(shown: list[_Shown]) -> str:
    """Which end is which; or that there is one only, and why."""
    if why := next((one.why for one in shown if one.why), ""):
        return f"It chooses and judges on the same samples: an upper end only ({why})."
    splits = {one.crossfitted.splits for each in shown for one in each.compared if one.crossfitted}
    return (
        "Its lower end is chosen on one half of each problem's samples and judged on the other (both ways, "
        f"mean of {max(splits, default=0)} random splits); the upper end chooses and judges on the same "
        "samples."
    )


def _object(shown: _Shown) -> dict[str, Any]:
    return {
        **shown.summary.to_dict(),
        "frontier": [compared_object(one, why=shown.why) for one in shown.compared],
    }
