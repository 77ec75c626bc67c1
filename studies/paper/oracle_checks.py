"""How a statement of the paper is checked, and the checks about the oracle's budgets and the price.

Each is tried as the paper scores it and, where that makes sense, as it should be scored: for the oracle by
accuracies over all subsets of the samples instead of the paper's windows. The verdict is computed from how
many recordings bear the statement out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from adacompute.report.document import Column, Kind, format_cell
from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.labels import split_groups
from studies.paper.price_search import TOLERANCE, BudgetSearch
from studies.paper.runs import RecordingRun

__all__ = [
    "BOTH_SIDES",
    "ORACLE_CHECKS",
    "PRICE_CHECKS",
    "Check",
    "Finding",
    "Observation",
    "Verdict",
    "judge_claim",
]

Verdict = Literal[
    "agrees",
    "in part",
    "only in-sample",
    "only with the same question on both sides",
    "doesn't",
    "can't be known",
]
BOTH_SIDES: Verdict = "only with the same question on both sides"  # of a split: nothing is judged in-sample
AGREES_FROM, HALF_SHARE, FAILS_UP_TO = 0.8, 0.5, 0.2  # shares of the recordings
HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one statement comes to on one recording; None where it can't be tried there."""

    paper: bool | None = None  # whether it holds, scored as the paper does
    value: float | None = None  # by which that is told
    ours: bool | None = None  # whether it holds in the second reading
    own: float | None = None
    beside: float | None = None  # a third number, which decides nothing
    note: str = ""  # what the number alone doesn't tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a statement is tried, on one recording or on several together."""

    key: str
    value: str  # what is looked at
    kind: Kind
    see: Callable[
        [Any], Observation | Mapping[str, Observation]
    ]  # of a `Run`, or of a `Pooled`, perhaps part by part
    holds: str  # when it is taken to hold
    reading: str = HELD_OUT  # what the second reading is; an oracle has nothing to hold out
    beside: str = ""  # what the third number is
    only: Verdict = "only in-sample"  # what it is called if the first reading alone bears it out
    pooled: bool = False
    once: bool = False  # one recording is enough, where the paper says "up to"
    why: Mapping[Verdict, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on a statement, with what it is based on."""

    key: str
    verdict: Verdict
    paper: tuple[int, int]  # held, tried: scored as the paper does
    ours: tuple[int, int]  # in the second reading
    found: str  # in words
    why: str
    seen: dict[str, Observation]  # by recording


def judge_claim(check: Check, observations: Mapping[str, Observation]) -> Finding:
    """Judge a statement by what was observed on all recordings."""
    paper = [bool(one.paper) for one in observations.values() if one.paper is not None]
    ours = [bool(one.ours) for one in observations.values() if one.ours is not None]
    verdict = _choose_verdict(paper, ours, check)
    return Finding(
        key=check.key,
        verdict=verdict,
        paper=(sum(paper), len(paper)),
        ours=(sum(ours), len(ours)),
        found=_describe_observations(check, observations),
        why=check.why.get(verdict, ""),
        seen=dict(observations),
    )


def _choose_verdict(paper: Sequence[bool], ours: Sequence[bool], check: Check) -> Verdict:
    """Judge by the second reading where there is one; `check.only` if the first alone bears it out."""
    judged = ours or paper
    if not judged:
        return "can't be known"
    if check.once:
        judged, paper = [any(judged)], [any(paper)]
    share = sum(judged) / len(judged)
    if share >= AGREES_FROM:
        return "agrees"
    if (
        check.reading.startswith(HELD_OUT)
        and ours
        and paper
        and share <= HALF_SHARE <= sum(paper) / len(paper) > share
    ):
        return check.only
    return "doesn't" if share <= FAILS_UP_TO else "in part"


def _describe_observations(check: Check, observations: Mapping[str, Observation]) -> str:
    first = _format_range([one.value for one in observations.values()], check.kind)
    second = _format_range([one.own for one in observations.values()], check.kind)
    third = _format_range([one.beside for one in observations.values()], check.kind)
    if first is None and second is None:
        return f"{check.value}: not to be had from these recordings"
    others = ((check.reading, second), (check.beside, third))
    parts = [*([first] if first else []), *(f"{name} {told}" for name, told in others if told)]
    notes = dict.fromkeys(one.note for one in observations.values() if one.note)
    return ". ".join([f"{check.value}: {'; '.join(parts)}", *notes])


def _format_range(values: Sequence[float | None], kind: Kind) -> str | None:
    known = sorted(value for value in values if value is not None and value == value)
    if not known:
        return None
    column = Column(name="", kind=kind)
    low, high = (format_cell(end, column) for end in (known[0], known[-1]))
    return low if low == high else f"{low} to {high}"


EXACT = "over all subsets"
FIFTHS = 5
MORE_GAIN = "These models gain more from votes than the paper's, on more of the problems."
_EASY = 0.9  # accuracy of one sample, from which on a recording is as easy as the paper's GSM8K


def _check_selective(run: RecordingRun) -> Observation:
    last = run.labels[-1]
    if last.budget < 3:
        return Observation()
    exact = _compute_shares(run, 3.0)[0]
    return Observation(paper=last.ones >= 0.63, value=last.ones, ours=exact >= 0.63, own=exact)


def _check_sixteen(run: RecordingRun) -> Observation:
    first, last = run.labels[0], run.labels[-1]
    if last.budget < 3 or last.budgets[-1] < 16:
        return Observation()
    exact = [_compute_shares(run, budget)[-1] for budget in (1.5, 3.0)]
    return Observation(
        paper=first.shares[-1] < 0.005 and last.shares[-1] >= 0.035,
        value=float(last.shares[-1]),
        ours=exact[0] < 0.005 and exact[1] >= 0.035,
        own=exact[1],
    )


def _check_two(run: RecordingRun) -> Observation:
    if len(run.case.budgets) < 3:
        return Observation()
    windows = [one.shares[1] - one.shares[2] for one in run.labels]
    exact = [_compute_shares(run, one.budget) for one in run.labels]
    return Observation(
        paper=max(windows) < 0,
        value=float(max(one.shares[1] for one in run.labels)),
        ours=all(shares[1] < shares[2] for shares in exact),
        own=max(shares[1] for shares in exact),
    )


def _check_free(run: RecordingRun) -> Observation:
    if run.case.single.mean() < _EASY:
        return Observation(value=run.staircases.windows.free, own=run.staircases.exact.free)
    windows, exact = run.staircases.windows.free, run.staircases.exact.free
    return Observation(paper=windows < 2, value=windows, ours=exact < 2, own=exact)


def _check_inverted(run: RecordingRun) -> Observation:
    if len(run.case) < 10 * FIFTHS:
        return Observation()
    peaks = [one.peak for one in run.scatters]
    return Observation(paper=all(one.inverted for one in run.scatters), value=float(np.mean(peaks)))


def _check_tight(run: RecordingRun) -> Observation:
    result = [one for one in run.heatmaps if one.budget == 1.2]
    if not result:
        return Observation()
    share = float(np.average(result[0].oracle[:, 0], weights=result[0].sizes))
    exact = _compute_shares(run, 1.2)[0]
    return Observation(paper=share >= 0.9, value=share, ours=exact >= 0.9, own=exact)


def _check_middle(run: RecordingRun) -> Observation:
    """By recorded levels alone: fifths by one-sample accuracy leave their ends no room."""
    rows = run.levels.rows
    if len(rows) < 3 or not run.levels.has_recorded_levels:
        return Observation()
    at = max(range(len(rows)), key=lambda at: rows[at].gain.mean)
    note = f"{run.name}: {rows[at].name} of {len(rows)} gains most"
    return Observation(paper=0 < at < len(rows) - 1, value=rows[at].gain.mean, note=note)


def _check_hardest(run: RecordingRun) -> Observation:
    rows = run.levels.rows
    if len(rows) < 3 or not run.levels.has_recorded_levels:
        return Observation()
    least = min(row.gain.mean for row in rows)
    note = f"{run.name}: the least is {round(100 * least, 1) + 0.0:+.1f}"  # no -0.0
    return Observation(paper=rows[-1].gain.mean <= least, value=rows[-1].gain.mean, note=note)


def _compute_shares(run: RecordingRun, budget: float) -> list[float]:
    """How many problems get each budget, by accuracies over all subsets, (budgets,)."""
    column, _ = compute_oracle_labels(run.case.exact, budget)
    result: list[float] = (np.bincount(column, minlength=len(run.case.budgets)) / len(run.case)).tolist()
    return result


ROOM_NOTE = (
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

ORACLE_CHECKS = (
    Check(
        key="heat-u",
        value="one-sample accuracy of the tenth that gets most",
        kind="fraction",
        see=_check_inverted,
        holds="at B = 1.5, 2 and 3 neither the hardest nor the easiest tenth gets most",
        why=dict.fromkeys(("agrees", "in part"), ROOM_NOTE),
    ),
    Check(
        key="heat-tight",
        value="share with b = 1 at B = 1.2",
        kind="share",
        see=_check_tight,
        holds="90% or more",
        reading=EXACT,
    ),
    Check(
        key="levels-middle",
        value="largest gain of a level",
        kind="points",
        see=_check_middle,
        holds="the level that gains most is neither the first nor the last",
        why=dict.fromkeys(("agrees", "doesn't", "in part", "can't be known"), _LEVELS),
    ),
    Check(
        key="levels-hard",
        value="gain of the hardest level",
        kind="points",
        see=_check_hardest,
        holds="no level gains less",
        why=dict.fromkeys(("agrees", "doesn't", "in part", "can't be known"), _LEVELS),
    ),
    Check(
        key="labels-selective",
        value="share with b = 1 at B = 3",
        kind="share",
        see=_check_selective,
        holds="63% or more",
        reading=EXACT,
        why=dict.fromkeys(("doesn't", "in part"), MORE_GAIN),
    ),
    Check(
        key="labels-sixteen",
        value="share with b = 16 at B = 3",
        kind="share",
        see=_check_sixteen,
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
        see=_check_two,
        holds="fewer than b = 4 at B = 1.5, 2 and 3",
        reading=EXACT,
        why=dict.fromkeys(("agrees", "in part"), _TWO),
    ),
    Check(
        key="labels-free",
        value="cost at λ = 0",
        kind="number",
        see=_check_free,
        holds="below 2, where one sample is right in 90%",
        reading=EXACT,
        why={"can't be known": "None of our recordings is that easy."},
    ),
)


def _check_monotone(run: RecordingRun) -> Observation:
    stairs = run.staircases
    holds = all(one.monotone for one in run.searches) and all(
        law.holds for law in run.laws if law.key == "monotone"
    )
    return Observation(paper=holds, value=stairs.windows.tallest, own=stairs.exact.tallest)


def _check_range(run: RecordingRun) -> Observation:
    windows, exact = run.staircases.windows, run.staircases.exact
    return Observation(
        paper=windows.free <= 4 and windows.at(0.1) <= 1.05,
        value=windows.free,
        ours=exact.free <= 4 and exact.at(0.1) <= 1.05,
        own=exact.free,
    )


def _check_transition(run: RecordingRun) -> Observation:
    shares = [
        (one.at(0.01) - one.at(0.10)) / (one.free - one.cost[-1]) if one.free > one.cost[-1] else None
        for one in (run.staircases.windows, run.staircases.exact)
    ]
    held = [None if share is None else share >= 0.5 for share in shares]
    return Observation(paper=held[0], value=shares[0], ours=held[1], own=shares[1])


def _compute_nearest(budget_search: BudgetSearch) -> float:
    """Samples between the target and the nearest of the two costs that a single price has beside it."""
    return (
        budget_search.error
        if budget_search.above is None
        else min(budget_search.error, budget_search.above - budget_search.budget)
    )


def _check_close(run: RecordingRun) -> Observation:
    binding = [one for one in run.searches if one.binding]
    if not binding:
        return Observation()
    worst = max(map(_compute_nearest, binding))
    return Observation(paper=worst < TOLERANCE, value=worst)


def _check_falls(run: RecordingRun) -> Observation:
    prices = [one.price for one in run.searches]
    if len(prices) < 2:
        return Observation()
    return Observation(
        paper=bool((np.diff(prices) < 0).all() or prices[-1] == 0),
        value=prices[0] / prices[-1] if prices[-1] > 0 else None,
    )


def _check_steps(run: RecordingRun) -> Observation:
    binding = [one for one in run.searches if one.binding]
    if not binding:
        return Observation()
    reached = [one.within for one in binding if one.within is not None]
    holds = len(reached) == len(binding) and max(reached) <= 10
    return Observation(paper=holds, value=float(max(reached)) if reached else None)


def _check_lasting(run: RecordingRun) -> Observation:
    """Up to which price a problem keeps more than one sample, by fifths of one-sample accuracy."""
    mechanism = run.mechanism
    if len(run.case) < 10 * FIFTHS:
        return Observation()
    until = mechanism.critical.max(axis=0, initial=0.0)
    means = [float(until[rows].mean()) for rows in split_groups(mechanism.single, FIFTHS)]
    inner, ends = max(means[1:-1]), max(means[0], means[-1])
    return Observation(paper=inner > ends, value=inner / ends if ends > 0 else None)


_TIES = (
    "Accuracies are multiples of 1 over the number of windows, so many edges tie, and one price takes all."
)


PRICE_CHECKS = (
    Check(
        key="cost-monotone",
        value="highest stair, samples on average",
        kind="number",
        see=_check_monotone,
        holds="at every price tried",
        reading=EXACT,
    ),
    Check(
        key="cost-range",
        value="cost at λ = 0",
        kind="number",
        see=_check_range,
        holds="cost at λ = 0 up to 4, and at 0.10 up to 1.05",
        reading=EXACT,
        why={"doesn't": MORE_GAIN, "in part": MORE_GAIN},
    ),
    Check(
        key="cost-transition",
        value="share of the fall in cost",
        kind="share",
        see=_check_transition,
        holds="half of the fall or more",
        reading=EXACT,
        why=dict.fromkeys(
            ("doesn't", "in part"),
            "Over all subsets, nearly free prices buy the last votes: much of the fall is below 0.01.",
        ),
    ),
    Check(
        key="search-close",
        value="largest distance of a single price's cost from B",
        kind="fraction",
        see=_check_close,
        holds="below 0.05 at every B that binds, by the nearer of the two prices around it",
        why=dict.fromkeys(("doesn't", "in part"), _TIES),
    ),
    Check(
        key="search-falls",
        value="how many times higher the price is at the least B than at the most",
        kind="number",
        see=_check_falls,
        holds="falls, or is 0",
    ),
    Check(
        key="search-steps",
        value="most steps until a price tried costs B ± 0.05",
        kind="count",
        see=_check_steps,
        holds="10 or fewer, at every B that binds",
        why=dict.fromkeys(("doesn't", "in part"), _TIES),
    ),
    Check(
        key="mechanism-middle",
        value="how many times longer the best inner fifth keeps more than one sample than the ends, in λ",
        kind="number",
        see=_check_lasting,
        holds="an inner fifth of one-sample accuracy lasts to a higher price than both ends",
        why=dict.fromkeys(("agrees", "in part"), ROOM_NOTE),
    ),
)
