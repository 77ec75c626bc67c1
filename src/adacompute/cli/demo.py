"""`adacompute demo`: the main job on the recordings inside the package. Knows no numbers of its own."""

import math
import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from adacompute.cli.compared import show_tables, what_was_done
from adacompute.cli.evaluate import progress
from adacompute.cli.live import live, show_live
from adacompute.cli.options import Json, settings
from adacompute.cli.outcome import compared_object
from adacompute.cli.plan import show_curve
from adacompute.cli.show import as_json, counted, line, paragraph, percent, points, table, within
from adacompute.errors import TooFewSamples
from adacompute.evaluate import Compared, Evaluation, Scoring, compared, evaluate, halved
from adacompute.pool import Ballots, bundled, bundled_names
from adacompute.records import AccuracyTable
from adacompute.score import Summary, summarise
from adacompute.solve import solve

__all__ = ["demo"]

_ASKED = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # samples on average
_TOLD = 3.0  # the one that the verdict is about
_HELD_OUT = (2.0, 3.0, 4.0)  # what policies are compared at
_PLAYING = ("fixed", "asc", "stopping")
_ORDERS = 12  # of each problem's samples: enough for a demo, and quick
_FOLDS = 3  # likewise
_WORKERS = 2
_DRAWN = "words"  # the recording whose curve is shown
_WHO = (
    "fixed: all problems alike, at the best mix of two numbers of samples. asc: Adaptive-Consistency, the "
    "published rule that stops when the leader is likely to stay it. stopping: ours, which stops when "
    "the next sample isn't worth its price. peers: the best mix of all the others."
)
_UNIFORM = (
    "What deciding beforehand could reach at best: uniform is all problems alike, at the best mix of two "
    "budgets; oracle is chosen with the answers known."
)
_MORE = (
    "One more buys: what the next sample on average adds. The oracle's and uniform's votes are plain ones, "
    "means over all subsets of a problem's samples; policies' are weighted, which is why they may pass it."
)


Recordings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECORDING]...", help="Only these. [default: all]", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """One recording: what is in it, its table, and what some average budgets buy."""

    summary: Summary
    held_out: Evaluation
    table: AccuracyTable
    compared: tuple[Compared, ...]
    why: str  # there is no lower end


def demo(context: typer.Context, recordings: Recordings = None, json: Json = False) -> None:
    """Show what samples buy on the bundled recordings, by policies and by an oracle; and a gateway, live."""
    budgets = settings(context).score.budgets
    found = {name: _measured(name, budgets) for name in recordings or bundled_names()}
    said = live()
    if json:
        as_json({**{name: _object(shown) for name, shown in found.items()}, "live": said})
        return
    number = counted(len(found), "recording")
    paragraph(f"{number} inside the package: small models, asked each question many times.")
    paragraph("What does an average number of samples buy, when they are spent where they pay?")
    line()
    for name, shown in found.items():
        paragraph(_verdict(name, shown.held_out), hang=2)
    for name, shown in found.items():
        line()
        _show(name, shown)
    line()
    paragraph(f"{_WHO} {_UNIFORM} {_ends_words(list(found.values()))} {_MORE}")
    line()
    show_live(said)
    line()
    paragraph("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    line("  adacompute evaluate words              every policy, at more budgets, with the oracle")
    line("  adacompute fit words -o policy         learn a policy and save it")
    line("  adacompute solve words --budget 2      who gets how many samples, at what price")
    line("  adacompute local                       serve that model; then, in another terminal:")
    line("  adacompute serve --upstream http://127.0.0.1:8081/v1 --budget 2 --policy policy   the gateway")
    line("  adacompute collect facts --limit 20 --samples 8 --max-tokens 24 --pool mine.sqlite \\")
    line("      --endpoint http://127.0.0.1:8081/v1     (or your own endpoint, and a file of problems)")
    line("  adacompute answer facts --limit 20 --budget 3 --max-tokens 24 -o answers.jsonl \\")
    line("      --endpoint http://127.0.0.1:8081/v1")


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
    return _Shown(summary=summary, held_out=_held_out(name, ballots), table=scored, compared=found, why=why)


def _held_out(name: str, ballots: Ballots) -> Evaluation:
    with progress(f"fitting and judging on {name}") as told:
        return evaluate(
            ballots,
            budgets=_HELD_OUT,
            policies=_PLAYING,
            orders=_ORDERS,
            folds=_FOLDS,
            workers=min(_WORKERS, os.cpu_count() or 1),
            progress=told,
        )


def _verdict(name: str, found: Evaluation) -> str:
    """How many uniform samples are as good as fewer spent by stopping; its protocol and interval."""
    match = found.match("stopping", _TOLD)
    if match is None or match.worth is None or match.gain is None:
        return f"{name}: stopping can't be compared at {_TOLD:g} samples on average"
    spent = f"with stopping, {_TOLD:g} samples on average are right on {percent(match.accuracy)}"
    if match.gain.low is None or match.gain.high is None or match.gain.low <= 0:
        return f"{name}: {spent}; uniform is as good here, within what {found.problems:,} problems can tell"
    most = f"more than {found.longest}"
    low, high = (
        most if end is None or math.isinf(end) else f"{end:.1f}"
        for end in (match.worth.low, match.worth.high)
    )
    worth = most if math.isinf(match.worth.mean) else f"{match.worth.mean:.1f}"
    return (
        f"{name}: {spent}, as good as {worth} uniform ones (held-out, {found.folds} folds; 95% interval over "
        f"problems {low} to {high})"
    )


def _show(name: str, shown: _Shown) -> None:
    (source,) = shown.summary.sources
    paragraph(f"{name}: {len(shown.table):,} problems, {source.samples_min} samples each of {source.model}")
    votes = [f"{percent(vote.mean)} with {budget}" for budget, vote in source.votes.items()]
    paragraph(f"right by plain vote: {', '.join(votes)}", indent=2, hang=2)
    line()
    line(f"policies, {what_was_done(shown.held_out)}")
    show_tables(shown.held_out)
    line()
    line("an oracle that decides beforehand, plain votes")
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
        "held_out": shown.held_out.to_dict(),
        "frontier": [compared_object(one, why=shown.why) for one in shown.compared],
    }
