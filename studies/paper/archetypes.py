"""Kinds of accuracy curve: four groups of problems, found by k-means.

There are four groups wherever there are four different curves; whether they look like the paper's Easy,
Responsive, Diminishing and Hard is checked and reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.report.canvas import colour, set_accuracy_axis, set_samples_axis
from adacompute.report.document import Cell, Column, Picture, Section, Table, join_words, to_plain
from adacompute.score import halves, score
from studies.canvas import LabelledCanvas, clip_label, ramp
from studies.paper.budget_choices import align_budgets, compute_oracle_labels
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import select_reachable

__all__ = [
    "ARCHETYPE_NAMES",
    "Archetypes",
    "BudgetShares",
    "build_section",
    "compute_archetypes",
    "draw_archetypes",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ARCHETYPE_NAMES = ("Easy", "Responsive", "Diminishing", "Hard")
_MIDDLE = ("Responsive", "Diminishing")
BUDGET = 2.0  # samples on average, of the oracle
_SEED = 0
_STARTS = 10
_EASY, _HARD = 0.75, 0.25  # accuracies: the paper's, from which on, and up to which
_FLAT = 0.1  # rise of an Easy curve, at most: the paper says nearly flat
_RISES = 0.2  # of a Responsive one, at least
_GAINS = 0.05  # of a Diminishing one, at least; and half of it by the middle budget
_LARGE = 4  # samples: budgets that the paper calls spent on the Responsive


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archetype:
    """One group: its mean curve, and the problem that is nearest to it."""

    name: str  # of KINDS
    count: int  # problems
    centre: Floats  # (budgets,) mean accuracy
    spread: Floats  # (2, budgets) quarter and three quarters of its problems
    doubt: str  # why it doesn't look like its name; empty where it does
    case: str  # the recording of the nearest problem
    problem: str  # its id
    question: str
    curve: Floats  # (budgets,) its accuracy
    error: Floats  # (budgets,) standard errors; NaN where they can't be known

    @property
    def rise(self) -> float:
        """Accuracy that the largest budget adds to one sample."""
        return float(self.centre[-1] - self.centre[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BudgetShares:
    """Which budgets the oracle gives to each group."""

    shares: Floats  # (groups, budgets) of each group's problems; they add up to 1
    large: Floats  # (groups,) share of all samples drawn with budgets of 4 and more that each group gets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archetypes:
    """Groups of the problems of one recording or several."""

    cases: tuple[str, ...]
    problems: tuple[int, ...]  # (cases,)
    budgets: tuple[int, ...]
    groups: tuple[Archetype, ...]  # by KINDS
    shares: Floats  # (cases, groups) of each recording's problems
    budget: float | None  # the oracle's average; None: the samples don't allow it
    oracle: BudgetShares | None  # groups and budgets told from the same samples, as in the paper
    apart: BudgetShares | None  # groups from one half of the samples, budgets from the other
    curves: tuple[Floats, ...] = field(repr=False)  # (groups,) of (problems, budgets)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups."""
        return tuple(group.name for group in self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Grouping:
    names: tuple[str, ...]
    centres: Floats  # (groups, budgets)
    group: Ints  # (problems,)


def compute_archetypes(cases: Sequence[PaperPool]) -> Archetypes:
    """Groups over all recordings together, at the budgets that they share."""
    cases = align_budgets(cases)
    budgets = cases[0].budgets
    curves = np.concatenate([case.exact.accuracy for case in cases])
    result = _group_curves(curves)
    owner = np.repeat(np.arange(len(cases)), [len(case) for case in cases])
    budget = BUDGET if all(select_reachable(case, [BUDGET]) for case in cases) else None
    own = None if budget is None else _compute_oracle_shares(cases, result, budgets)
    return Archetypes(
        cases=tuple(case.name for case in cases),
        problems=tuple(len(case) for case in cases),
        budgets=budgets,
        groups=tuple(_build_archetype(cases, owner, curves, result, at) for at in range(len(result.names))),
        shares=np.stack(
            [_compute_group_shares(result.group[owner == at], len(result.names)) for at in range(len(cases))],
        ),
        budget=budget,
        oracle=own,
        apart=None if budget is None else _compute_split_shares(cases, result.names, budgets),
        curves=tuple(curves[result.group == at] for at in range(len(result.names))),
    )


def _group_curves(curves: Floats) -> _Grouping:
    """Group curves, (problems, budgets), by k-means; groups come in the order of ARCHETYPE_NAMES."""
    from sklearn.cluster import KMeans

    count = min(len(ARCHETYPE_NAMES), len(np.unique(curves, axis=0)))
    group = KMeans(n_clusters=count, n_init=_STARTS, random_state=_SEED).fit(curves).labels_
    centres = np.stack([curves[group == at].mean(axis=0) for at in range(count)])
    names = _name_centres(centres)
    order = sorted(range(count), key=lambda at: ARCHETYPE_NAMES.index(names[at]))
    place = np.argsort(order)
    return _Grouping(
        names=tuple(names[at] for at in order),
        centres=centres[order],
        group=np.asarray(place[group], dtype=np.int64),
    )


def _name_centres(centres: Floats) -> list[str]:
    """Name each centre, (groups, budgets): the highest, the lowest, and the rest by their rise.

    The rise is the mean over all budgets of what is gained over one sample: between the smallest and
    the largest budget two groups may rise equally, the one early and the other late.
    """
    level, rise = centres.mean(axis=1), (centres - centres[:, :1]).mean(axis=1)
    order = np.argsort(-level, kind="stable")
    if len(order) == 1:
        return ["Easy" if level[0] >= 0.5 else "Hard"]
    names = [""] * len(order)
    names[order[0]], names[order[-1]] = "Easy", "Hard"
    for at, name in zip(sorted(order[1:-1], key=lambda at: -rise[at]), _MIDDLE, strict=False):
        names[at] = name
    return names


def _build_archetype(
    cases: Sequence[PaperPool], owner: Ints, curves: Floats, result: _Grouping, at: int
) -> Archetype:
    rows, centre = np.flatnonzero(result.group == at), result.centres[at]
    nearest = int(rows[((curves[rows] - centre) ** 2).sum(axis=1).argmin()])
    case = cases[owner[nearest]]
    row = nearest - int(np.flatnonzero(owner == owner[nearest])[0])
    error = case.exact.standard_error
    return Archetype(
        name=result.names[at],
        count=len(rows),
        centre=centre,
        spread=np.quantile(curves[rows], (0.25, 0.75), axis=0),
        doubt=_describe_doubt(result.names[at], centre),
        case=case.name,
        problem=case.ballots.ids[row],
        question=case.ballots.prompts[row],
        curve=curves[nearest],
        error=np.full(len(centre), np.nan) if error is None else error[row],
    )


def _describe_doubt(name: str, centre: Floats) -> str:
    """Say why a mean curve doesn't look like what the paper calls so; empty where it does."""
    first, last, rise = float(centre[0]), float(centre[-1]), float(centre[-1] - centre[0])
    description = f"goes from {first:.0%} to {last:.0%}"
    if name == "Easy" and (first < _EASY or abs(rise) > _FLAT):
        return f"{description}, where Easy is flat from {_EASY:.0%} or more"
    if name == "Responsive" and rise < _RISES:
        return f"{description}, where Responsive rises by {100 * _RISES:.0f} points or more"
    if name == "Diminishing" and rise < _GAINS:
        return f"{description}, where Diminishing still rises"
    if name == "Diminishing" and centre[len(centre) // 2] - first < rise / 2:
        return f"{description}, most of it late, where Diminishing saturates early"
    if name == "Hard" and float(centre.max()) > _HARD:
        return f"{description}, where Hard stays below {_HARD:.0%}"
    return ""


def _compute_oracle_shares(
    cases: Sequence[PaperPool], result: _Grouping, budgets: tuple[int, ...]
) -> BudgetShares:
    labels = np.concatenate([compute_oracle_labels(case.windows, BUDGET)[0] for case in cases])
    return _compute_budget_shares(result.group, labels, len(result.names), budgets)


def _compute_split_shares(
    cases: Sequence[PaperPool], names: tuple[str, ...], budgets: tuple[int, ...]
) -> BudgetShares | None:
    """Group by one half of the samples, take budgets from the other; None with too few samples.

    With the same samples, luck that raises a problem's accuracy at 4 samples both calls it Responsive
    and gives it 4 samples; with two halves the two are independent.
    """
    if min(int(case.ballots.drawn.min()) for case in cases) < 2 * budgets[-1]:
        return None
    rng = np.random.default_rng(_SEED)
    curves, labels = [], []
    for case in cases:
        one, other = halves(case.ballots, rng)
        curves.append(score(one, budgets).accuracy)
        labels.append(compute_oracle_labels(score(other, budgets), BUDGET)[0])
    result = _group_curves(np.concatenate(curves))
    if result.names != names:
        return None
    return _compute_budget_shares(result.group, np.concatenate(labels), len(names), budgets)


def _compute_budget_shares(group: Ints, labels: Ints, groups: int, budgets: tuple[int, ...]) -> BudgetShares:
    counts = np.zeros((groups, len(budgets)))
    np.add.at(counts, (group, labels), 1)
    size = np.asarray(budgets, dtype=np.float64)
    drawn = (counts * size * (size >= _LARGE)).sum(axis=1)
    return BudgetShares(
        shares=counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
        large=drawn / max(drawn.sum(), 1.0),
    )


def _compute_group_shares(group: Ints, groups: int) -> Floats:
    return np.bincount(group, minlength=groups) / len(group)


BarPart = tuple[str, str, str]  # its name, its colour, and that of a number on it

_READABLE = 0.09  # share of a bar that a number fits into


def draw_split_bars(
    canvas: LabelledCanvas,
    ax: Axes,
    shares: Floats,
    *,
    rows: Sequence[str],
    parts: Sequence[BarPart],
    numbers: str,
) -> None:
    """Draw one bar per row of `shares`, (rows, parts), with its share or its name on each part."""
    for row, own in enumerate(shares):
        start = 0.0
        for share, (name, tint, ink) in zip(own, parts, strict=True):
            ax.barh(row, share, left=start, height=0.66, color=tint)
            middle = start + share / 2
            if share > 0:
                canvas.mark(ax, middle, row, f"{rows[row]}: {100 * share:.1f}% {name}")
            if share >= _READABLE:
                text = name if numbers == "name" else f"{100 * share:.0f}"
                ax.text(middle, row, text, color=ink, ha="center", va="center_baseline", fontsize=8)
            start += share
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


_TINTS = {"Easy": "green", "Responsive": "blue", "Diminishing": "yellow", "Hard": "red"}
_THIN = 12  # single problems drawn behind a group's mean


def draw_motivation(archetypes: Archetypes, *, key: str = "motivation") -> Picture:
    """One problem of each kind: accuracy by number of samples."""
    with LabelledCanvas(key, height=3.4) as canvas:
        ax = canvas.axes[0]
        set_samples_axis(ax, archetypes.budgets[-1], "samples voted on")
        set_accuracy_axis(ax, "accuracy of the vote")
        ax.set_ylim(-0.03, 1.04)
        ends = []
        for group in archetypes.groups:
            tint = colour(_TINTS[group.name])
            error = np.nan_to_num(group.error)
            low, high = np.clip(group.curve - error, 0, 1), np.clip(group.curve + error, 0, 1)
            ax.fill_between(archetypes.budgets, low, high, color=tint, alpha=0.15, linewidth=0)
            ax.plot(archetypes.budgets, group.curve, color=tint, marker="o", markersize=4.5, mew=0)
            ends.append((archetypes.budgets[-1], float(group.curve[-1]), group.name, tint))
            for budget, value, own in zip(archetypes.budgets, group.curve, group.error, strict=True):
                sure = f" ± {100 * own:.1f}" if np.isfinite(own) else ""
                text = f"{group.name} ({group.problem}): {100 * value:.1f}%{sure} with {budget}"
                canvas.mark(ax, budget, value, text)
        canvas.label_ends(ax, ends)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Four problems, four curves",
        protocol="Over all subsets of each problem's samples; bands are one standard error (jackknife).",
        svg=svg,
        alt=" ".join(
            f"{group.name}: from {group.curve[0]:.0%} with 1 sample to {group.curve[-1]:.0%} with "
            f"{archetypes.budgets[-1]}."
            for group in archetypes.groups
        ),
        caption="The problem nearest to each group's mean curve: "
        + "; ".join(f"{group.name}, {_format_group(archetypes, group)}" for group in archetypes.groups)
        + ".",
        data=to_plain(
            {
                "budgets": archetypes.budgets,
                "problems": {group.name: _format_problem(group) for group in archetypes.groups},
            }
        ),
    )


def draw_archetypes(archetypes: Archetypes, *, key: str = "archetypes") -> Picture:
    """Mean curves, shares of each recording, and what the oracle gives to whom."""
    rows = 2 if archetypes.oracle is not None else 1
    with LabelledCanvas(key, rows=rows, columns=2, height=2.9 * rows) as canvas:
        _draw_curves(canvas, canvas.axes[0], archetypes)
        _draw_shares(canvas, canvas.axes[1], archetypes)
        if archetypes.oracle is not None:
            _draw_budget_shares(
                canvas, canvas.axes[2], archetypes, archetypes.oracle, "c  oracle, the same samples"
            )
        if archetypes.apart is not None:
            _draw_budget_shares(
                canvas, canvas.axes[3], archetypes, archetypes.apart, "d  oracle, other samples"
            )
            canvas.axes[3].tick_params(labelleft=False)
        elif rows == 2:
            canvas.axes[3].set_axis_off()
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Kinds of accuracy curve",
        protocol=_describe_protocol(archetypes),
        svg=svg,
        alt=" ".join(
            f"{group.name}: {group.count} problems, from {group.centre[0]:.0%} to {group.centre[-1]:.0%}."
            for group in archetypes.groups
        ),
        caption=_compose_caption(archetypes),
        data=to_plain(_build_data(archetypes)),
    )


def _draw_curves(canvas: LabelledCanvas, ax: Axes, archetypes: Archetypes) -> None:
    ax.set_title("a  mean curves")
    set_samples_axis(ax, archetypes.budgets[-1], "samples voted on")
    set_accuracy_axis(ax)
    ax.set_ylim(-0.03, 1.04)
    for group, curves in zip(archetypes.groups, archetypes.curves, strict=True):
        tint = colour(_TINTS[group.name])
        ax.plot(archetypes.budgets, _select_curves(curves).T, color=tint, alpha=0.16, linewidth=0.8)
    for group in archetypes.groups:
        ax.plot(
            archetypes.budgets,
            group.centre,
            color=colour(_TINTS[group.name]),
            marker="o",
            markersize=4,
            mew=0,
            linewidth=2.4,
        )
        for at, budget in enumerate(archetypes.budgets):
            low, high = group.spread[:, at]
            text = (
                f"{group.name}, {budget} samples: {100 * group.centre[at]:.1f}% on average, "
                f"half of its problems from {100 * low:.0f} to {100 * high:.0f}%"
            )
            canvas.mark(ax, budget, group.centre[at], text)


def _draw_shares(canvas: LabelledCanvas, ax: Axes, archetypes: Archetypes) -> None:
    """Draw a bar per group for one recording, a bar per recording for several."""
    if len(archetypes.cases) > 1:
        ax.set_title("b  shares by recording")
        parts = [(group.name, colour(_TINTS[group.name]), colour("page")) for group in archetypes.groups]
        names = [clip_label(name) for name in archetypes.cases]
        draw_split_bars(canvas, ax, archetypes.shares, rows=names, parts=parts, numbers="share")
        return
    ax.set_title("b  share of the problems")
    for row, (group, share) in enumerate(zip(archetypes.groups, archetypes.shares[0], strict=True)):
        tint = colour(_TINTS[group.name])
        ax.barh(row, share, height=0.66, color=tint)
        ax.annotate(
            f"{100 * share:.0f}%, {group.count}",
            (share, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
            color=tint,
            fontsize=8.5,
        )
        canvas.mark(ax, share / 2, row, f"{group.name}: {group.count} problems, {100 * share:.1f}%")
    ax.set_yticks(range(len(archetypes.groups)), archetypes.names)
    for label, group in zip(ax.get_yticklabels(), archetypes.groups, strict=True):
        label.set_color(colour(_TINTS[group.name]))
    ax.set_ylim(len(archetypes.groups) - 0.45, -0.55)
    ax.set_xlim(0, min(1.0, float(archetypes.shares.max()) * 1.45))
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _draw_budget_shares(
    canvas: LabelledCanvas, ax: Axes, archetypes: Archetypes, spent: BudgetShares, title: str
) -> None:
    ax.set_title(title)
    tints = ramp(len(archetypes.budgets))
    inks = [colour("ink" if 2 * at < len(tints) - 1 else "page") for at in range(len(tints))]
    parts = [
        (str(budget), tint, ink) for budget, tint, ink in zip(archetypes.budgets, tints, inks, strict=True)
    ]
    draw_split_bars(canvas, ax, spent.shares, rows=archetypes.names, parts=parts, numbers="name")
    for label, name in zip(ax.get_yticklabels(), archetypes.names, strict=True):
        label.set_color(colour(_TINTS[name]))
    ax.set_xlabel("problems, by samples given")


def _describe_protocol(archetypes: Archetypes) -> str:
    text = (
        f"k-means with {len(archetypes.groups)} groups on the accuracy curves of {sum(archetypes.problems)} "
        "problems, over all subsets of their samples."
    )
    if archetypes.oracle is not None:
        text += f" Oracle at B = {archetypes.budget:g}: by the paper's windows of the same samples"
        text += (
            "."
            if archetypes.apart is None
            else "; or groups from one half of the samples, budgets from the other."
        )
    return text


def _compose_caption(archetypes: Archetypes) -> str:
    text = "a: thick, each group's mean; thin, single problems. b: how common each group is."
    if archetypes.oracle is not None:
        text += f" c: samples that the oracle gives at B = {archetypes.budget:g}, by group."
    if archetypes.apart is not None:
        text += (
            " d: the same, the groups told from one half of the samples and the oracle's budgets from the "
            "other, so that no luck is in both."
        )
    return text


def _format_group(archetypes: Archetypes, group: Archetype) -> str:
    return group.problem if len(archetypes.cases) == 1 else f"{group.problem} of {group.case}"


def _format_problem(group: Archetype) -> dict[str, Any]:
    return {
        "case": group.case,
        "problem": group.problem,
        "accuracy": group.curve,
        "standard_error": group.error,
    }


def _select_curves(curves: Floats) -> Floats:
    """A few problems of a group, evenly taken, (some, budgets)."""
    return curves[np.linspace(0, len(curves) - 1, min(_THIN, len(curves))).astype(np.int64)]


def _build_data(archetypes: Archetypes) -> dict[str, Any]:
    groups = {
        group.name: {
            "problems": group.count,
            "accuracy": group.centre,
            "lower_quarter": group.spread[0],
            "upper_quarter": group.spread[1],
            "some_problems": _select_curves(curves),
            "doubt": group.doubt or None,
        }
        for group, curves in zip(archetypes.groups, archetypes.curves, strict=True)
    }
    return {
        "budgets": archetypes.budgets,
        "groups": groups,
        "shares": {
            name: dict(zip(archetypes.names, own, strict=True))
            for name, own in zip(archetypes.cases, archetypes.shares, strict=True)
        },
        "oracle": _build_budget_data(archetypes, archetypes.oracle),
        "apart": _build_budget_data(archetypes, archetypes.apart),
    }


def _build_budget_data(archetypes: Archetypes, spent: BudgetShares | None) -> dict[str, Any] | None:
    return None if spent is None else dict(zip(archetypes.names, spent.shares, strict=True))


def build_section(case: PaperPool) -> Section:
    """Four problems, and the four groups behind them."""
    result = compute_archetypes([case])
    return Section(
        key="archetypes",
        title="Kinds of problem: what more samples do",
        words=_compose_words(result),
        tables=(build_table(result),),
        pictures=(draw_motivation(result), draw_archetypes(result)),
        missing=_list_missing(result, case),
    )


def build_table(result: Archetypes) -> Table:
    """Build a row per group."""
    last = result.budgets[-1]
    rows: list[tuple[Cell, ...]] = []
    for at, group in enumerate(result.groups):
        rows.append(
            (
                group.name,
                group.count,
                group.count / sum(result.problems),
                float(group.centre[0]),
                float(group.centre[-1]),
                group.rise,
                not group.doubt,
                *(_format_budget_share(own, at) for own in (result.oracle, result.apart)),
                *(_format_large_share(own, at) for own in (result.oracle, result.apart)),
            )
        )
    return Table(
        key="archetypes",
        title="Kinds of accuracy curve",
        protocol=(
            f"k-means on the accuracy curves of {sum(result.problems)} problems over all subsets of their "
            f"samples; the oracle at B = {BUDGET:g} from the same samples by windows, as in the paper, and "
            "from other samples than the groups."
        ),
        columns=(
            Column(name="kind"),
            Column(name="problems", kind="count"),
            Column(name="share", kind="share"),
            Column(name="accuracy, 1 sample", kind="share"),
            Column(name=f"accuracy, {last} samples", kind="share"),
            Column(name="rise", kind="points"),
            Column(
                name="like the paper's", kind="flag", about="its mean curve has the shape it is named for"
            ),
            Column(name="given 1, same samples", kind="share", about="by the oracle"),
            Column(name="given 1, other samples", kind="share", about="by the oracle"),
            Column(name="of large budgets, same", kind="share", about="samples in budgets of 4 and more"),
            Column(name="of large budgets, other", kind="share", about="samples in budgets of 4 and more"),
        ),
        rows=tuple(rows),
    )


def _compose_words(result: Archetypes) -> tuple[str, ...]:
    total, last = sum(result.problems), result.budgets[-1]
    sentences = [
        f"{group.name} ({group.count / total:.0%} of them: {group.centre[0]:.0%} with 1 sample, "
        f"{group.centre[-1]:.0%} with {last})"
        for group in result.groups
    ]
    words = [f"By what voting does for them, the {total} problems fall into: {join_words(sentences)}."]
    doubts = [f"{group.name} {group.doubt}" for group in result.groups if group.doubt]
    words.append(
        f"Not all look like what the paper names so: {'; '.join(doubts)}."
        if doubts
        else "Each looks like what the paper names so."
    )
    if result.oracle is not None:
        words.append(_describe_oracle(result, result.oracle))
    return tuple(words)


def _describe_oracle(result: Archetypes, own: BudgetShares) -> str:
    at = int(own.large.argmax())
    text = (
        f"At B = {BUDGET:g} the oracle spends {own.large[at]:.0%} of the samples of its budgets of 4 and "
        f"more on {result.names[at]}"
    )
    if result.apart is not None:
        text += f"; {result.apart.large[at]:.0%} where groups and budgets are told from different samples"
    ends = [
        f"{own.shares[at, 0]:.0%} of {name}"
        for at, name in enumerate(result.names)
        if name in ("Easy", "Hard")
    ]
    return (
        f"{text}. It gives one sample to {join_words(ends)}. The paper has it give nearly all to Responsive."
    )


def _format_budget_share(own: BudgetShares | None, at: int) -> float | None:
    return None if own is None else float(own.shares[at, 0])


def _format_large_share(own: BudgetShares | None, at: int) -> float | None:
    return None if own is None else float(own.large[at])


def _list_missing(result: Archetypes, case: PaperPool) -> tuple[str, ...]:
    missing = []
    least = int(case.ballots.drawn.min())
    if len(result.groups) < len(ARCHETYPE_NAMES):
        missing.append(
            f"{len(ARCHETYPE_NAMES)} kinds of curve: only {len(result.groups)} different curves are there; "
            "collect more problems, or more samples of each"
        )
    if result.oracle is None:
        missing.append(f"oracle at B = {BUDGET:g}: some problem has {least} samples; collect more of each")
    elif result.apart is None:
        missing.append(
            f"groups and oracle from different samples: that needs {2 * result.budgets[-1]} of every "
            f"problem, and some problem has {least}; collect more"
        )
    return tuple(missing)
