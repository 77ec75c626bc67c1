"""How fine the set of budgets should be: three sets, their frontiers, labels and oracles.

An oracle with more budgets to choose from also has more luck to choose from, so its in-sample value rises
with the number of budgets whatever they are worth; the cross-fitted value stands beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.errors import TooFewSamples
from adacompute.evaluate.oracle_bounds import CrossFit, Pair, Scoring, cross_fit, score_halves
from adacompute.records import AccuracyTable
from adacompute.replay.matching import Bootstrap, Interval
from adacompute.report.canvas import colour, set_accuracy_axis, set_samples_axis
from adacompute.report.document import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    find_clear_signs,
    format_gains,
    join_words,
    to_plain,
)
from adacompute.score import score
from adacompute.solve import solve
from studies.canvas import LabelledCanvas, ramp
from studies.paper.budget_choices import JudgedTable
from studies.paper.paper_pool import PaperPool
from studies.paper.pareto import ParetoCurve, fit_folds, space_budgets
from studies.paper.wording import format_points

__all__ = ["BUDGET_SETS", "BudgetSet", "Granularity", "build_section", "compute_granularity"]

Floats = npt.NDArray[np.float64]

BUDGET_SETS = {
    "coarse": (1, 8, 16),
    "default": (1, 2, 4, 8, 16),
    "fine": (1, 2, 3, 4, 6, 8, 12, 16),
}  # the paper's
COMPARED_BUDGET = 2.0  # average budget at which the paper compares
_STEPS = 16  # of the oracles' grid
_BUDGETS, _QUICK_BUDGETS = (1.0, 1.5, 2.0, 3.0, 5.0), (1.0, 2.0, 4.0)  # at which classifiers are fitted
_FOLDS, _QUICK_FOLDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BudgetSet:
    """One set of budgets."""

    name: str
    budgets: tuple[int, ...]
    labels: Floats  # (budgets,) share of problems that the oracle gives each, at `at`, by windows
    windows: float  # the oracle's accuracy at `at`, in-sample by windows: scored as the paper does
    exact: float  # in-sample, over all subsets
    crossfitted: float | None  # chosen on one half of the samples, judged on the other; None: too few
    step: Interval | None  # cross-fitted gain over the set before this one, over problems
    oracle: ParetoCurve = field(repr=False)  # by windows
    halved: ParetoCurve | None = field(repr=False)  # cross-fitted
    paper: ParetoCurve = field(repr=False)  # the classifier, scored as the paper does
    held_out: ParetoCurve = field(repr=False)  # the classifier on problems not learned from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Granularity:
    """All sets, from the coarsest on."""

    name: str
    at: float  # average budget of labels and single values
    tiers: tuple[BudgetSet, ...]
    folds: int
    problems: int


def compute_granularity(
    case: PaperPool, *, quick: bool = False, model: str = "xgboost", seed: int = 0
) -> Granularity:
    """Compare the three sets on one recording, as far as its samples reach and the sets differ."""
    sets = _select_sets(case)
    every = tuple(sorted({budget for budgets in sets.values() for budget in budgets}))
    windows = score(case.ballots, every, estimator="windows")
    exact = score(case.ballots, every)
    pairs = _split_pairs(case, exact)
    tiers: list[BudgetSet] = []
    before: CrossFit | None = None
    for name, budgets in sets.items():
        own = tuple(
            (_select_columns(chosen, budgets), _select_columns(judge, budgets)) for chosen, judge in pairs
        )
        there = cross_fit(own, budget=COMPARED_BUDGET) if own else None
        fine = _SetTables(
            case, _select_columns(windows, budgets), _select_columns(exact, budgets), own, model
        )
        tiers.append(fine.build_set(name, there, before, quick=quick, seed=seed))
        before = there
    folds = min(_QUICK_FOLDS if quick else _FOLDS, len(set(case.ballots.prompts)))
    return Granularity(
        name=case.name, at=COMPARED_BUDGET, tiers=tuple(tiers), folds=folds, problems=len(case)
    )


def _select_sets(case: PaperPool) -> dict[str, tuple[int, ...]]:
    """The paper's sets as far as the samples reach, without duplicates and sets of a single budget."""
    least, result = int(case.ballots.drawn.min()), dict[str, tuple[int, ...]]()
    for name, budgets in BUDGET_SETS.items():
        reached = tuple(budget for budget in budgets if budget <= least)
        if len(reached) > 1 and reached not in result.values():
            result[name] = reached
    if len(result) < 2:
        raise TooFewSamples(
            f"{case.name}: with {least} samples of some problem the paper's sets of budgets don't differ; "
            "collect 3 or more of each"
        )
    return result


def _split_pairs(case: PaperPool, exact: AccuracyTable) -> tuple[Pair, ...]:
    try:
        return score_halves(case.ballots, exact, scoring=Scoring(), splits=2)
    except TooFewSamples:
        return ()


def _select_columns(table: AccuracyTable, budgets: Sequence[int]) -> AccuracyTable:
    """Some columns of a table."""
    at = [table.modes.index(budget) for budget in budgets]
    return AccuracyTable.of(table.accuracy[:, at], costs=table.costs[at], modes=budgets, ids=table.ids)


@dataclass(frozen=True, slots=True)
class _SetTables:
    """One set's tables."""

    case: PaperPool
    windows: AccuracyTable
    exact: AccuracyTable
    pairs: tuple[Pair, ...]
    model: str

    def build_set(
        self, name: str, there: CrossFit | None, before: CrossFit | None, *, quick: bool, seed: int
    ) -> BudgetSet:
        plan = solve(self.windows, budget=COMPARED_BUDGET)
        counts = np.bincount(plan.choice, minlength=len(self.windows.modes))
        step = None
        if there is not None and before is not None:
            step = Bootstrap.of(len(self.case)).difference(there.each, before.each)
        paper, held_out = self._fit_curves(quick=quick, seed=seed)
        return BudgetSet(
            name=name,
            budgets=tuple(int(mode) for mode in self.windows.modes),
            labels=counts / len(self.case),
            windows=plan.mixed_accuracy,
            exact=solve(self.exact, budget=COMPARED_BUDGET).mixed_accuracy,
            crossfitted=None if there is None else there.accuracy.mean,
            step=step,
            oracle=self._oracle(),
            halved=self._cross_fit_curve(),
            paper=paper,
            held_out=held_out,
        )

    @property
    def _grid(self) -> Floats:
        return space_budgets(float(self.windows.costs[-1]), _STEPS)

    def _oracle(self) -> ParetoCurve:
        plans = [solve(self.windows, budget=float(budget)) for budget in self._grid]
        return ParetoCurve(
            budget=self._grid,
            cost=np.array([plan.mixed_cost for plan in plans]),
            accuracy=np.array([plan.mixed_accuracy for plan in plans]),
        )

    def _cross_fit_curve(self) -> ParetoCurve | None:
        """The oracle's curve, chosen on half of the samples and judged on the other half."""
        if not self.pairs:
            return None
        points = [cross_fit(self.pairs, budget=float(budget)) for budget in self._grid]
        return ParetoCurve(
            budget=self._grid,
            cost=np.array([point.cost for point in points]),
            accuracy=np.array([point.accuracy.mean for point in points]),
        )

    def _fit_curves(self, *, quick: bool, seed: int) -> tuple[ParetoCurve, ParetoCurve]:
        """The classifier's curves: scored as the paper does, and held-out."""
        most = float(self.windows.costs[-1])
        budgets = [budget for budget in (_QUICK_BUDGETS if quick else _BUDGETS) if budget <= most]
        folds = _QUICK_FOLDS if quick else _FOLDS
        fits = fit_folds(self.case, self.windows, budgets, folds=folds, model=self.model, seed=seed)
        train, curves = fits[0].train, []
        for table, mask in ((self.windows, np.ones_like(train)), (self.exact, ~train)):
            judged = JudgedTable.of(table, mask)
            outcomes = [judged.compute_outcome(own.predicted) for own in fits]
            curves.append(
                ParetoCurve(
                    budget=np.array(budgets),
                    cost=np.array([outcome.spent for outcome in outcomes]),
                    accuracy=np.array([outcome.interval.mean for outcome in outcomes]),
                )
            )
        return curves[0], curves[1]


_COLOURS = {"coarse": "yellow", "default": "blue", "fine": "purple"}
_WIDTHS = {"coarse": 1.8, "default": 2.6, "fine": 1.4}  # default and fine lie on one another: both show
_READABLE = 0.07  # share of a bar that a number fits into


def draw_granularity(granularity: Granularity, *, key: str = "granularity") -> Picture:
    """Four panels: frontiers as the paper scores, and held-out; labels; the oracle by number of budgets."""
    with LabelledCanvas(key, rows=2, columns=2, height=6.0) as canvas:
        first, second, third, fourth = canvas.axes
        most = max(float(curve.cost.max()) for tier in granularity.tiers for curve in _list_curves(tier))
        for ax, title in ((first, "a  scored as the paper does"), (second, "b  held-out")):
            ax.set_title(title)
            set_samples_axis(ax, most, "samples spent on average")
        second.sharey(first)
        set_accuracy_axis(first)
        second.tick_params(labelleft=False)
        for tier in granularity.tiers:
            _draw_frontier(canvas, first, tier, tier.oracle, tier.paper)
            _draw_frontier(canvas, second, tier, tier.halved, tier.held_out)
        _draw_labels(canvas, third, granularity)
        _draw_by_count(canvas, fourth, granularity)
        _draw_legend(canvas, first, granularity)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="How fine the set of budgets should be",
        protocol=_describe_protocol(granularity),
        svg=svg,
        alt=(
            f"Frontiers, labels and oracle's accuracy of {len(granularity.tiers)} budget sets for "
            f"{granularity.name}."
        ),
        caption=(
            "a, b: solid, the classifier; dashed, the oracle (a: in-sample, b: cross-fitted). c: which "
            f"budgets the oracle gives at B = {granularity.at:g}. d: the accuracy there, in-sample by "
            "windows and over all subsets (exact), and cross-fitted, with what each finer set adds in "
            "points; with more budgets the in-sample values gain from luck as well."
        ),
        data=to_plain(_build_data(granularity)),
    )


def _draw_frontier(
    canvas: LabelledCanvas, ax: Axes, tier: BudgetSet, oracle: ParetoCurve | None, learned: ParetoCurve
) -> None:
    style: dict[str, Any] = {"color": colour(_COLOURS[tier.name]), "linewidth": _WIDTHS[tier.name]}
    if oracle is not None:
        ax.plot(oracle.cost, oracle.accuracy, **style | {"linestyle": "--", "linewidth": 1.3})
        for budget, cost, accuracy in list(zip(oracle.budget, oracle.cost, oracle.accuracy, strict=True))[
            ::2
        ]:
            text = f"oracle, {tier.name}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
            canvas.mark(ax, cost, accuracy, text)
    order = learned.cost.argsort(kind="stable")
    ax.plot(learned.cost[order], learned.accuracy[order], marker="o", markersize=3.5, mew=0, **style)
    for budget, cost, accuracy in zip(learned.budget, learned.cost, learned.accuracy, strict=True):
        text = f"classifier, {tier.name}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
        canvas.mark(ax, cost, accuracy, text)


def _list_curves(tier: BudgetSet) -> list[ParetoCurve]:
    return [curve for curve in (tier.oracle, tier.halved, tier.paper, tier.held_out) if curve is not None]


def _draw_labels(canvas: LabelledCanvas, ax: Axes, granularity: Granularity) -> None:
    """Draw one bar per set, divided by the oracle's budgets; a budget has the same colour in each."""
    every = sorted({budget for tier in granularity.tiers for budget in tier.budgets})
    tints = dict(zip(every, ramp(len(every)), strict=True))
    for row, tier in enumerate(granularity.tiers):
        start = 0.0
        for budget, share in zip(tier.budgets, tier.labels, strict=True):
            ax.barh(row, share, left=start, height=0.62, color=tints[budget])
            middle = start + share / 2
            if share:
                canvas.mark(ax, middle, row, f"{tier.name}: {budget} samples for {100 * share:.1f}%")
            if share >= _READABLE:
                tint = colour("ink" if every.index(budget) < len(every) / 2 else "page")
                ax.text(middle, row, f"{budget}", color=tint, ha="center", va="center", fontsize=8.5)
            start += share
    ax.set_yticks(range(len(granularity.tiers)), [tier.name for tier in granularity.tiers])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.set_xlabel("problems")
    ax.set_title(f"c  samples the oracle gives, B = {granularity.at:g}")


def _draw_by_count(canvas: LabelledCanvas, ax: Axes, granularity: Granularity) -> None:
    counts = [len(tier.budgets) for tier in granularity.tiers]
    kinds: dict[str, tuple[Sequence[float | None], str, str]] = {
        "by windows": ([tier.windows for tier in granularity.tiers], "red", "-"),
        "exact": ([tier.exact for tier in granularity.tiers], "green", "--"),
        "cross-fitted": ([tier.crossfitted for tier in granularity.tiers], "green", "-"),
    }
    ends = []
    for name, (values, tint, line) in kinds.items():
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        ax.plot(counts, known, color=colour(tint), linestyle=line, marker="o", markersize=4, mew=0)
        ends.append((counts[-1], known[-1], name, colour(tint)))
        for count, value in zip(counts, known, strict=True):
            canvas.mark(ax, count, value, f"{count} budgets, {name}: {100 * value:.1f}%")
    canvas.label_ends(ax, ends)
    _draw_steps(ax, granularity)
    ax.set_xticks(
        counts, [f"{count}\n{tier.name}" for count, tier in zip(counts, granularity.tiers, strict=True)]
    )
    ax.set_xlim(counts[0] - 0.5, counts[-1] + 0.4)
    ax.margins(y=0.18)
    ax.set_xlabel("budgets to choose from")
    set_accuracy_axis(ax, "oracle's accuracy")
    ax.set_title(f"d  more budgets, B = {granularity.at:g}")


def _draw_steps(ax: Axes, granularity: Granularity) -> None:
    """Write what each finer set adds beside the lowest line, which says most."""
    for before, tier in pairwise(granularity.tiers):
        last, here = before.crossfitted, tier.crossfitted
        if last is None or here is None:
            last, here = before.exact, tier.exact
        middle = ((len(before.budgets) + len(tier.budgets)) / 2, (last + here) / 2)
        ax.annotate(
            f"{100 * (here - last):+.1f}",
            middle,
            xytext=(7, -12),
            textcoords="offset points",
            fontsize=8.5,
            color=colour("dim"),
        )


def _draw_legend(canvas: LabelledCanvas, ax: Axes, granularity: Granularity) -> None:
    lines = [
        ax.plot([], [], color=colour(_COLOURS[tier.name]), linewidth=_WIDTHS[tier.name])[0]
        for tier in granularity.tiers
    ]
    names = [f"{tier.name}: {', '.join(map(str, tier.budgets))}" for tier in granularity.tiers]
    canvas.figure.legend(lines, names, loc="outside upper left", ncols=3, handlelength=1.6)


def _describe_protocol(granularity: Granularity) -> str:
    return (
        f"{granularity.problems} problems, {granularity.folds} folds, one seed. Scored as the paper does: "
        "all problems, disjoint windows. Held-out: the classifier on problems not learned from, over all "
        "subsets; the oracle chosen on one half of each problem's samples and judged on the other, 2 splits."
    )


def _build_data(granularity: Granularity) -> dict[str, Any]:
    return {
        tier.name: {
            "budgets": tier.budgets,
            "labels": tier.labels,
            "oracle_windows": tier.windows,
            "oracle_exact": tier.exact,
            "oracle_crossfitted": tier.crossfitted,
            "oracle": _build_points(tier.oracle),
            "crossfitted": None if tier.halved is None else _build_points(tier.halved),
            "scored as the paper does": _build_points(tier.paper),
            "held-out": _build_points(tier.held_out),
        }
        for tier in granularity.tiers
    }


def _build_points(curve: ParetoCurve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in ("budget", "cost", "accuracy")}


def build_section(case: PaperPool, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Section:
    """Coarse, default and fine sets of budgets."""
    result = compute_granularity(case, quick=quick, model=model, seed=seed)
    return Section(
        key="granularity",
        title="How fine the set of budgets should be",
        words=_compose_words(result),
        tables=(build_table(result),),
        pictures=(draw_granularity(result),),
        missing=_list_missing(result, case),
    )


def build_table(result: Granularity) -> Table:
    """Build a row per set."""
    rows: list[tuple[Cell, ...]] = [_build_row(tier) for tier in result.tiers]
    return Table(
        key="granularity",
        title=f"The oracle at B = {result.at:g} by set of budgets",
        protocol=(
            f"{result.problems} problems. In-sample by windows: scored as the paper does. Cross-fitted: "
            "chosen on one half of each problem's samples, judged on the other, 2 splits, 95% interval over "
            "problems."
        ),
        columns=(
            Column(name="set"),
            Column(name="samples to choose from"),
            Column(name="in-sample, windows", kind="share", about="the oracle's accuracy"),
            Column(name="in-sample, exact", kind="share", about="over all subsets of the samples"),
            Column(name="cross-fitted", kind="share"),
            Column(name="gain over the set above", kind="points", about="cross-fitted, points"),
        ),
        rows=tuple(rows),
    )


def _build_row(tier: BudgetSet) -> tuple[Cell, ...]:
    budgets = ", ".join(map(str, tier.budgets))
    return (tier.name, budgets, tier.windows, tier.exact, tier.crossfitted, tier.step)


def _compose_words(result: Granularity) -> tuple[str, ...]:
    steps = [f"{before.name} to {tier.name}" for before, tier in pairwise(result.tiers)]
    lucky = format_points(tier.windows - before.windows for before, tier in pairwise(result.tiers))
    first = (
        f"At B = {result.at:g} finer sets of budgets ({join_words(steps)}) change the oracle's accuracy by "
        f"{lucky}"
    )
    known = [tier.step for tier in result.tiers[1:] if tier.step is not None]
    if len(known) < len(steps):
        return (
            f"{first}, scored as the paper does. That holds luck as well: more to choose from, more of it.",
        )
    above, _ = find_clear_signs(known)
    sure = join_words([steps[at] for at in above]) if above else "no step"
    first += (
        f", scored as the paper does, and by {format_gains(known)} cross-fitted, where luck in choosing "
        f"doesn't count. What is clearly more than nothing: {sure}."
    )
    return first, _describe_classifier(result)


def _describe_classifier(result: Granularity) -> str:
    """Describe the classifier at the average budget that the labels are shown for."""
    sentences = []
    for tier in result.tiers:
        at = [place for place, budget in enumerate(tier.held_out.budget) if budget == result.at]
        sentences += [
            f"{tier.name} {tier.held_out.accuracy[k]:.1%} at {tier.held_out.cost[k]:.2f} samples" for k in at
        ]
    return (
        f"The classifier that imitates these oracles, asked for B = {result.at:g}, held-out: "
        f"{join_words(sentences)}."
    )


def _list_missing(result: Granularity, case: PaperPool) -> tuple[str, ...]:
    least, missing = int(case.ballots.drawn.min()), []
    there = {tier.name: tier.budgets for tier in result.tiers}
    for name, budgets in BUDGET_SETS.items():
        if there.get(name) != budgets:
            most = "left out" if name not in there else f"only {', '.join(map(str, there[name]))}"
            missing.append(
                f"{name} set {', '.join(map(str, budgets))}: {most}, since some problem has {least} samples; "
                "collect 16 of each"
            )
    if result.tiers[-1].crossfitted is None:
        needed = 2 * result.tiers[-1].budgets[-1]
        missing.append(
            f"cross-fitted oracle: choosing on half of the samples needs {needed} of every problem, and some "
            f"problem has {least}; collect more"
        )
    return tuple(missing)
