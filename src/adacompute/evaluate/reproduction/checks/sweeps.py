"""What the paper says of frontiers, budget sets, features and numbers of problems. Knows no single budget."""

import numpy as np

from adacompute.evaluate.paper.efficiency import Followed
from adacompute.evaluate.paper.granularity import Tier
from adacompute.evaluate.paper.pareto import Curve
from adacompute.evaluate.paper.rules import RULES
from adacompute.evaluate.reproduction.checks.check import Check, Seen
from adacompute.evaluate.reproduction.runs import Run

__all__ = ["SWEEPS"]

_SLIP = 1e-9
_CROSS = "cross-fitted"


def _at(curve: Curve, budgets: Curve) -> list[float]:
    """The accuracies of one curve at the budgets of another."""
    return [float(curve.accuracy[np.abs(curve.budget - one).argmin()]) for one in budgets.budget]


def _dominates(run: Run) -> Seen:
    """The share of budgets between the least and the most at which it is no worse than any rule.

    Held-out once more at the same cost: no worse than the best mix for all alike.
    """
    shares = []
    for table in (run.pareto.paper, run.pareto.held_out):
        ours = table["classifier"]
        best = np.max([_at(table[rule], ours) for rule in RULES], axis=0)
        inner = (ours.budget > 1) & (ours.budget < run.case.budgets[-1])
        shares.append(float((ours.accuracy >= best - _SLIP)[inner].mean()) if inner.any() else 1.0)
    curve = run.pareto.held_out["classifier"]
    inner = (curve.budget > 1) & (curve.budget < run.case.budgets[-1])
    gains = [one for one, here in zip(curve.gain, inner, strict=True) if here]
    fair = float(np.mean([one.mean >= -_SLIP for one in gains])) if gains else 1.0
    sure = sum(one.low is not None and one.low > 0 for one in gains)
    note = f"{run.name}: interval above zero at {sure} of {len(gains)} budgets" if sure else ""
    return Seen(paper=shares[0] == 1, value=shares[0], ours=fair == 1, own=fair, beside=shares[1], note=note)


def _middle(run: Run) -> Seen:
    """The average budget at which its gain over fixed is largest, in parts of fixed's accuracy."""
    peaks = []
    for table in (run.pareto.paper, run.pareto.held_out):
        ours, fixed = table["classifier"], np.array(_at(table["fixed"], table["classifier"]))
        gain = ours.accuracy / np.maximum(fixed, _SLIP)
        peaks.append(float(ours.budget[gain.argmax()]))
    held = [2 <= peak <= 6 for peak in peaks]
    return Seen(paper=held[0], value=peaks[0], ours=held[1], own=peaks[1])


def _plateau(run: Run) -> Seen:
    """The most that anyone still gains beyond 3 samples."""
    if run.case.budgets[-1] <= 4:
        return Seen()
    most = []
    for table in (run.pareto.paper, run.pareto.held_out):
        rises = []
        for curve in table.values():
            after = curve.accuracy[curve.budget >= 3]
            rises.append(float(after.max() - after[0]))
        most.append(max(rises))
    return Seen(paper=most[0] <= 0.01, value=most[0], ours=most[1] <= 0.01, own=most[1])


def _step(run: Run, before: str, after: str) -> tuple[float, float | None] | None:
    """What the oracle gains from one set to the next: in-sample by windows, and cross-fitted."""
    tiers: dict[str, Tier] = (
        {} if run.granularity is None else {one.name: one for one in run.granularity.tiers}
    )
    if not {before, after} <= set(tiers):
        return None
    one, other = tiers[before], tiers[after]
    cross = (
        None if one.crossfitted is None or other.crossfitted is None else other.crossfitted - one.crossfitted
    )
    return other.windows - one.windows, cross


def _coarse(run: Run) -> Seen:
    found = _step(run, "coarse", "default")
    if found is None:
        return Seen()
    first, second = found
    own = None if second is None else second >= 0.005
    return Seen(paper=first >= 0.005, value=first, ours=own, own=second)


def _fine(run: Run) -> Seen:
    found = _step(run, "default", "fine")
    if found is None:
        return Seen()
    first, second = found
    own = None if second is None else second < 0.001
    return Seen(paper=first < 0.001, value=first, ours=own, own=second)


def _even(run: Run) -> Seen:
    if run.importance is None:
        return Seen()
    found, name = run.importance, run.importance.names[run.importance.order[0]]
    most, least = float(found.gain.max()), float(found.gain.min())
    note = f"{run.name}: `{name}`, least {least:.3f}"
    return Seen(paper=most <= 0.115 and least >= 0.055, value=most, note=note)


def _curves(run: Run) -> tuple[list[Followed], list[Followed]] | None:
    if run.efficiency is None or not run.efficiency.curves:
        return None
    curves = run.efficiency.curves
    return [one.paper for one in curves], [one.held_out for one in curves]


def _quarter(run: Run) -> Seen:
    """The share of the training problems from which on it stays above fixed, at the worst B."""
    readings = _curves(run)
    if readings is None or run.efficiency is None:
        return Seen()
    needed = [[one.crosses(run.efficiency.shares) for one in reading] for reading in readings]
    worst = [None if None in each else max(one for one in each if one is not None) for each in needed]
    held = [share is not None and share <= 0.25 for share in worst]
    note = f"{run.name}: held-out it doesn't get there" if worst[1] is None else ""
    return Seen(paper=held[0], value=worst[0], ours=held[1], own=worst[1], note=note)


def _more(run: Run) -> Seen:
    """What the training problems beyond the first fifth add, at the B where that is least."""
    readings = _curves(run)
    if readings is None or run.efficiency is None:
        return Seen()
    first = next(at for at, share in enumerate(run.efficiency.shares) if share >= 0.2)
    added = [min(one.accuracy[-1].mean - one.accuracy[first].mean for one in reading) for reading in readings]
    rising = [
        all(bool((np.diff([spread.mean for spread in one.accuracy]) >= 0).all()) for one in reading)
        for reading in readings
    ]
    return Seen(paper=rising[0], value=added[0], ours=rising[1], own=added[1])


def _slower(run: Run) -> Seen:
    """What a fifth of the training problems adds beyond 60%, less what one adds before, at the worst B."""
    readings = _curves(run)
    if readings is None or run.efficiency is None:
        return Seen()
    shares = np.array(run.efficiency.shares)
    at = int(np.abs(shares - 0.6).argmin())
    if not 0 < at < len(shares) - 1:
        return Seen()
    worst = []
    for reading in readings:
        steps = []
        for one in reading:
            means = np.array([spread.mean for spread in one.accuracy])
            before = (means[at] - means[0]) / (shares[at] - shares[0])
            after = (means[-1] - means[at]) / (shares[-1] - shares[at])
            steps.append(float(after - before) / 5)
        worst.append(max(steps))
    return Seen(paper=worst[0] < 0, value=worst[0], ours=worst[1] < 0, own=worst[1])


def _left(run: Run) -> Seen:
    readings = _curves(run)
    if readings is None:
        return Seen()
    gaps = [max(one.oracle - one.accuracy[-1].mean for one in reading) for reading in readings]
    return Seen(paper=gaps[0] <= 0.02, value=gaps[0], ours=gaps[1] <= 0.02, own=gaps[1])


_REPLAY = "On all problems the classifier recalls what it learned; on others it hardly tells them apart."
_FEWER = "fixed spends 1 or 2 samples; and a share of learned problems is judged with the rest."
_MORE = "A larger share of learned problems is a larger share of answers known beforehand."
_STRAIGHT = (
    "Scored on all problems, each problem learned from is one more known beforehand, so the curve rises "
    "nearly straight; held-out it hardly rises at all."
)
_LUCK = "Most of what it gains in-sample is luck of choosing among more; cross-fitted little is left."

SWEEPS = (
    Check(
        key="pareto-dominates",
        value="share of budgets at which it is no worse than all three",
        kind="share",
        see=_dominates,
        holds="at every budget of the grid, in the mean",
        reading="held-out, than the best mix for all alike at the same cost,",
        beside="held-out, than all three at the same B, whatever each spends,",
        why=dict.fromkeys(("only in-sample", "in part", "doesn't"), _REPLAY),
    ),
    Check(
        key="pareto-middle",
        value="budget of the largest relative gain over fixed",
        kind="number",
        see=_middle,
        holds="from 2 to 6",
        why={"agrees": "fixed gives 2 samples up to B = 4: just below, the gain over it is largest."},
    ),
    Check(
        key="pareto-plateau",
        value="most that a method still gains beyond B = 3",
        kind="points",
        see=_plateau,
        holds="1 point or less, for all methods",
        why=dict.fromkeys(
            ("doesn't", "in part"), "These models gain from votes up to 16; three of them are not enough."
        ),
    ),
    Check(
        key="efficiency-quarter",
        value="share of the training problems needed, at the worst B",
        kind="share",
        see=_quarter,
        holds="a quarter or less, at every B",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _FEWER),
    ),
    Check(
        key="efficiency-more",
        value="what the training problems beyond the first fifth add, at the worst B",
        kind="points",
        see=_more,
        holds="no share has less than the one before, in the mean over seeds, at every B",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _MORE),
    ),
    Check(
        key="efficiency-less",
        value="points that a fifth of them adds beyond 60%, less those that one adds before, at the worst B",
        kind="points",
        see=_slower,
        holds="below zero at every B",
        reading="on the problems held out",  # where it hardly rises, in-sample would be the wrong word
        why=dict.fromkeys(("doesn't", "in part"), _STRAIGHT),
    ),
    Check(
        key="efficiency-gap",
        value="largest gap with all of them",
        kind="points",
        see=_left,
        holds="2 points or less",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _MORE),
    ),
    Check(
        key="granularity-coarse",
        value="gain",
        kind="points",
        see=_coarse,
        holds="0.5 points or more",
        reading=_CROSS,
    ),
    Check(
        key="granularity-fine",
        value="gain",
        kind="points",
        see=_fine,
        holds="less than 0.1 points",
        reading=_CROSS,
        why=dict.fromkeys(("doesn't", "in part"), _LUCK),
    ),
    Check(
        key="importance-even",
        value="largest share of gain of one feature",
        kind="fraction",
        see=_even,
        holds="none above 0.11 and none below 0.06, rounded",
        why=dict.fromkeys(("doesn't", "in part"), "Features that are the same for all prompts gain nothing."),
    ),
)
