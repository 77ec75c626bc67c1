"""The section on when routing pays, when it doesn't, and what each policy needs. Knows not how it comes."""

import math

from adacompute.evaluate.beyond.lines import measured_by
from adacompute.evaluate.beyond.needed import Needed, needed_of
from adacompute.evaluate.beyond.worth import BEFOREHAND, Makeup, Worth, worth_of
from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.needed import draw_needed
from adacompute.evaluate.figures.palette import look
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.report.phrases import gains, listed
from adacompute.evaluate.rows import Evaluation, Match

__all__ = ["section"]


def section(found: Played, evaluation: Evaluation) -> Section:
    """Words at each budget, the problems' make-up, and samples needed for the accuracy of the most."""
    worth, needed = worth_of(found, evaluation), needed_of(found)
    words = [f"{_pays(worth)} {_beforehand(worth)}".strip(), _needed(needed)]
    if worth.makeup is not None:
        words.insert(1, _why(worth.makeup, worth))
    return Section(
        key="worth",
        title="When it is worth it",
        words=tuple(words),
        tables=(_standing(worth, evaluation), _table(needed)),
        pictures=(draw_needed(needed),),
    )


def _pays(worth: Worth) -> str:
    """At which budgets any policy is above uniform."""
    rest = [f"{row.budget:g}" for row in worth.rows if not row.above]
    if not worth.pays:
        return f"Routing isn't worth it here: uniform is as good at {listed(rest)} samples on average."
    pays = listed([f"{budget:g}" for budget in worth.pays])
    tail = f"; at {listed(rest)} uniform is as good" if rest else ""
    return f"Routing pays at {pays} samples on average{tail}."


def _standing(worth: Worth, evaluation: Evaluation) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (row.budget, *(_named(some, gain=True) for some in (row.above, row.level, row.below)))
        for row in worth.rows
    )
    return Table(
        key="standing",
        title="Who is above uniform",
        protocol=f"held-out, {evaluation.folds} folds, at exactly so many samples on average",
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="clearly above", about="points over uniform; their 95% interval is above zero"),
            Column(name="no clear difference", about="the interval holds zero"),
            Column(name="clearly below"),
        ),
        rows=rows,
        note="Points over uniform at the same cost, the best first; those that draw lots are left out.",
    )


def _beforehand(worth: Worth) -> str:
    """Whether it pays to decide before votes are seen."""
    better: dict[str, list[str]] = {}
    for row in worth.rows:
        for one in row.above:
            if one.policy in BEFOREHAND:
                better.setdefault(one.policy, []).append(f"{row.budget:g}")
    if better:
        said = listed([f"{look(name).name} at {listed(at)}" for name, at in better.items()])
        return f"Deciding beforehand is enough to be clearly above it for {said}."
    some = [one for row in worth.rows for one in (*row.level, *row.below) if one.policy in BEFOREHAND]
    if not some:
        return ""
    best = max(some, key=lambda one: one.gain.mean if one.gain else -1.0)
    gain = gains([best.gain]) if best.gain else ""
    return (
        f"Deciding beforehand is no better than uniform here: at best {look(best.policy).name} at "
        f"{best.budget:g}, {gain}."
    )


def _why(makeup: Makeup, worth: Worth) -> str:
    text = (
        f"Of the problems, {makeup.always:.0%} are right in every recorded sample and {makeup.never:.0%} in "
        f"none: more samples change nothing there. A vote of {makeup.samples} is right more often than one "
        f"sample, by over 2 points, on {makeup.rises:.0%} of the problems, and less often on "
        f"{makeup.falls:.0%}."
    )
    if not worth.pays and makeup.rises < 0.2:
        text += " With so few problems that voting helps there is little to gain by deciding who gets more."
    return text


def _needed(needed: Needed) -> str:
    what = measured_by(needed.basis)
    told = [one for one in needed.rows if math.isfinite(one.samples.mean) and one.policy != PLAIN]
    votes = "weighted" if needed.weighted else "plain"
    head = f"For the {what} of {needed.target} samples each ({needed.accuracy.mean:.1%}, {votes} votes)"
    never = [look(one.policy).name for one in needed.rows if not math.isfinite(one.samples.mean)]
    tail = f" Not reached at any setting tried: {listed(never)}." if never else ""
    if not told:
        return f"{head} no policy needs less.{tail}"
    said = [f"{look(one.policy).name} needs {_samples(one.samples, needed.target)}" for one in told]
    return f"{head}, {listed(said)} on average.{tail}"


def _samples(found: Interval, most: int) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:.1f}"
    high = f"{found.high:.1f}" if math.isfinite(found.high) else f"more than {most}"
    return f"{found.mean:.1f} (95% interval {found.low:.1f} to {high})"


def _table(needed: Needed) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in needed.rows:
        reached = math.isfinite(one.samples.mean)
        rows.append(
            (
                look(one.policy).name,
                one.samples if reached else None,
                1 - one.samples.mean / needed.target if reached and one.policy != PLAIN else None,
                one.reached,
                one.most,
            )
        )
    return Table(
        key="needed",
        title=f"Samples needed for the {measured_by(needed.basis)} of {needed.target} samples each",
        protocol="held-out, each policy on the hull of its own settings",
        columns=(
            Column(name="policy"),
            Column(name="samples needed", kind="number", about="on average, 95% interval over problems"),
            Column(name="saved", kind="share", about=f"of {needed.target} samples"),
            Column(name="reached", kind="share", about="of the draws of problems"),
            Column(name="most spent", kind="number", about="samples on average of its most accurate setting"),
        ),
        rows=tuple(rows),
        note="Blank: never so accurate, at any of the settings tried.",
    )


def _named(some: tuple[Match, ...], *, gain: bool = False) -> str:
    told = [
        f"{look(one.policy).name} {100 * one.gain.mean:+.1f}" if gain and one.gain else look(one.policy).name
        for one in some
    ]
    return ", ".join(told) or "–"
