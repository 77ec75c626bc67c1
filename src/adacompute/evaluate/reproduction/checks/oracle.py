"""What the paper says of the oracle's budgets: how many problems get each, and which. Knows no classifier.

Where there is a second reading, it is by accuracies over all subsets of the samples instead of the paper's
windows.
"""

import numpy as np

from adacompute.evaluate.paper.fits import oracle_labels
from adacompute.evaluate.reproduction.checks.check import Check, Seen
from adacompute.evaluate.reproduction.runs import Run

__all__ = ["EXACT", "FIFTHS", "MORE", "ORACLE", "ROOM"]

EXACT = "over all subsets"
FIFTHS = 5
MORE = "These models gain more from votes than the paper's, on more of the problems."
_EASY = 0.9  # accuracy of one sample, from which on a recording is as easy as the paper's GSM8K


def _selective(run: Run) -> Seen:
    last = run.labels[-1]
    if last.budget < 3:
        return Seen()
    exact = _share(run, 3.0)[0]
    return Seen(paper=last.ones >= 0.63, value=last.ones, ours=exact >= 0.63, own=exact)


def _sixteen(run: Run) -> Seen:
    first, last = run.labels[0], run.labels[-1]
    if last.budget < 3 or last.budgets[-1] < 16:
        return Seen()
    exact = [_share(run, budget)[-1] for budget in (1.5, 3.0)]
    return Seen(
        paper=first.shares[-1] < 0.005 and last.shares[-1] >= 0.035,
        value=float(last.shares[-1]),
        ours=exact[0] < 0.005 and exact[1] >= 0.035,
        own=exact[1],
    )


def _two(run: Run) -> Seen:
    if len(run.case.budgets) < 3:
        return Seen()
    windows = [one.shares[1] - one.shares[2] for one in run.labels]
    exact = [_share(run, one.budget) for one in run.labels]
    return Seen(
        paper=max(windows) < 0,
        value=float(max(one.shares[1] for one in run.labels)),
        ours=all(shares[1] < shares[2] for shares in exact),
        own=max(shares[1] for shares in exact),
    )


def _free(run: Run) -> Seen:
    if run.case.single.mean() < _EASY:
        return Seen(value=run.staircases.windows.free, own=run.staircases.exact.free)
    windows, exact = run.staircases.windows.free, run.staircases.exact.free
    return Seen(paper=windows < 2, value=windows, ours=exact < 2, own=exact)


def _inverted(run: Run) -> Seen:
    if len(run.case) < 10 * FIFTHS:
        return Seen()
    peaks = [one.peak for one in run.scatters]
    return Seen(paper=all(one.inverted for one in run.scatters), value=float(np.mean(peaks)))


def _tight(run: Run) -> Seen:
    found = [one for one in run.heatmaps if one.budget == 1.2]
    if not found:
        return Seen()
    share = float(np.average(found[0].oracle[:, 0], weights=found[0].sizes))
    exact = _share(run, 1.2)[0]
    return Seen(paper=share >= 0.9, value=share, ours=exact >= 0.9, own=exact)


def _middle(run: Run) -> Seen:
    """By recorded levels alone: fifths by one-sample accuracy leave their ends no room."""
    rows = run.levels.rows
    if len(rows) < 3 or not run.levels.recorded:
        return Seen()
    at = max(range(len(rows)), key=lambda at: rows[at].gain.mean)
    note = f"{run.name}: {rows[at].name} of {len(rows)} gains most"
    return Seen(paper=0 < at < len(rows) - 1, value=rows[at].gain.mean, note=note)


def _hardest(run: Run) -> Seen:
    rows = run.levels.rows
    if len(rows) < 3 or not run.levels.recorded:
        return Seen()
    least = min(row.gain.mean for row in rows)
    note = f"{run.name}: the least is {round(100 * least, 1) + 0.0:+.1f}"  # no -0.0
    return Seen(paper=rows[-1].gain.mean <= least, value=rows[-1].gain.mean, note=note)


def _share(run: Run, budget: float) -> list[float]:
    """How many problems get each budget, by accuracies over all subsets, (budgets,)."""
    column, _ = oracle_labels(run.case.exact, budget)
    found: list[float] = (np.bincount(column, minlength=len(run.case.budgets)) / len(run.case)).tolist()
    return found


ROOM = (
    "By one-sample accuracy, as Figures 6 and 9 have it, who is always or never right has no room to gain: "
    "this is nearly so by definition."
)
_LEVELS = (
    "Counted where levels are recorded, and nowhere else: fifths of one-sample accuracy make it so by "
    "definition."
)
_TWO = (
    "Ties being shared, two votes are right as often as one, unless a sample has no answer: only there does "
    "b = 2 pay. By windows it is noise as well."
)

ORACLE = (
    Check(
        key="heat-u",
        value="one-sample accuracy of the tenth that gets most",
        kind="fraction",
        see=_inverted,
        holds="at B = 1.5, 2 and 3 neither the hardest nor the easiest tenth gets most",
        why=dict.fromkeys(("agrees", "in part"), ROOM),
    ),
    Check(
        key="heat-tight",
        value="share with b = 1 at B = 1.2",
        kind="share",
        see=_tight,
        holds="90% or more",
        reading=EXACT,
    ),
    Check(
        key="levels-middle",
        value="largest gain of a level",
        kind="points",
        see=_middle,
        holds="the level that gains most is neither the first nor the last",
        why=dict.fromkeys(("agrees", "doesn't", "in part", "can't be told"), _LEVELS),
    ),
    Check(
        key="levels-hard",
        value="gain of the hardest level",
        kind="points",
        see=_hardest,
        holds="no level gains less",
        why=dict.fromkeys(("agrees", "doesn't", "in part", "can't be told"), _LEVELS),
    ),
    Check(
        key="labels-selective",
        value="share with b = 1 at B = 3",
        kind="share",
        see=_selective,
        holds="63% or more",
        reading=EXACT,
        why=dict.fromkeys(("doesn't", "in part"), MORE),
    ),
    Check(
        key="labels-sixteen",
        value="share with b = 16 at B = 3",
        kind="share",
        see=_sixteen,
        holds="0% at B = 1.5, and 3.5% or more at B = 3",
        reading=EXACT,
        why=dict.fromkeys(
            ("doesn't", "in part"),
            "With more problems that respond there are better uses for the samples than a sixteenth vote.",
        ),
    ),
    Check(
        key="labels-two",
        value="largest share with b = 2",
        kind="share",
        see=_two,
        holds="fewer than b = 4 at B = 1.5, 2 and 3",
        reading=EXACT,
        why=dict.fromkeys(("agrees", "in part"), _TWO),
    ),
    Check(
        key="labels-free",
        value="cost at λ = 0",
        kind="number",
        see=_free,
        holds="below 2, where one sample is right in 90%",
        reading=EXACT,
        why={"can't be told": "None of our recordings is that easy."},
    ),
)
