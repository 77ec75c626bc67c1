"""The paper's Pareto frontiers: accuracy against average budget on a dense grid, in both readings.

Rules and oracle stand at every budget of the grid, the classifier at every second one. There it is fitted
once per fold, so that held-out each problem is judged once, by a classifier that never saw its question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.evaluate.oracle_bounds import cross_fit
from adacompute.evaluate.resampling import kfold
from adacompute.records import AccuracyTable
from adacompute.replay.matching import Interval
from adacompute.report.canvas import Canvas, colour, policy_style, set_accuracy_axis, set_samples_axis
from adacompute.report.document import Picture, Section, find_clear_signs, format_gains, to_plain
from adacompute.solve import solve
from studies.paper.budget_choices import (
    RULES,
    ChoiceOutcome,
    JudgedTable,
    choose_by_rule,
    compute_oracle_labels,
    mix_accuracy,
    predict_columns,
)
from studies.paper.main_results import NOTHING, list_missing, split_halves
from studies.paper.paper_pool import PaperPool

__all__ = [
    "ParetoCurve",
    "ParetoFrontiers",
    "build_section",
    "compute_pareto",
    "draw_pareto",
    "fit_folds",
    "space_budgets",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STEPS, _QUICK_STEPS = 24, 10  # of the grid; even, so that every second budget reaches its end
_FOLDS, _QUICK_FOLDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParetoCurve:
    """One way to decide, at some budgets of the grid."""

    budget: Floats  # (points,) asked for
    cost: Floats  # (points,) samples spent on average
    accuracy: Floats  # (points,)
    gain: tuple[Interval, ...] = ()  # (points,) over uniform at the same cost; (): not told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParetoFrontiers:
    """Every way to decide, in both readings."""

    name: str
    grid: Floats  # (budgets,) average budgets, log-spaced
    modes: tuple[int, ...]  # numbers of samples that may be chosen
    problems: int
    folds: int
    paper: Mapping[str, ParetoCurve] = field(
        repr=False
    )  # by method: fixed, random, heuristic, classifier, oracle
    held_out: Mapping[str, ParetoCurve] = field(
        repr=False
    )  # the same; "uniform"; "crossfitted" if it can be told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldFits:
    """Classifiers for one average budget, one per fold."""

    budget: float
    labels: Ints = field(repr=False)  # (problems,) columns: the oracle's
    predicted: Ints = field(repr=False)  # (folds, problems) columns
    train: Bools = field(repr=False)  # (folds, problems) learned from


def compute_pareto(
    case: PaperPool, *, quick: bool = False, model: str = "xgboost", seed: int = 0
) -> ParetoFrontiers:
    """Frontiers of one recording."""
    steps = _QUICK_STEPS if quick else _STEPS
    grid = space_budgets(case.budgets[-1], steps)
    folds = _QUICK_FOLDS if quick else _FOLDS
    taught = fit_folds(case, case.windows, grid[::2], folds=folds, model=model, seed=seed)
    train = taught[0].train
    as_paper = JudgedTable.of(case.windows, np.ones_like(train))
    held_out = JudgedTable.of(case.exact, ~train)
    return ParetoFrontiers(
        name=case.name,
        grid=grid,
        modes=case.budgets,
        problems=len(case),
        folds=len(train),
        paper=_compute_curves(case, as_paper, grid, taught, seen=as_paper.mask),
        held_out=_compute_curves(case, held_out, grid, taught, seen=train)
        | {"uniform": _compute_uniform(case.exact, grid)}
        | _compute_crossfitted(case, grid),
    )


def space_budgets(most: float, steps: int) -> Floats:
    """Average budgets from 1 to `most`, (steps + 1,), each the same multiple of the one before.

    >>> space_budgets(16, 4).tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0]
    """
    return np.round(np.geomspace(1.0, most, steps + 1), 9)  # 8 itself, not a rounding below it


def fit_folds(
    case: PaperPool,
    table: AccuracyTable,
    budgets: Sequence[float] | Floats,
    *,
    folds: int,
    model: str,
    seed: int,
) -> tuple[FoldFits, ...]:
    """Fit classifiers of the oracle's budgets by `table`, for each average budget, on the same folds."""
    rng = np.random.default_rng([seed, 0xFA1D])
    prompts = case.ballots.prompts
    train = np.zeros((min(folds, len(set(prompts))), len(case)), dtype=bool)
    for own, split in zip(train, kfold(prompts, len(train), rng), strict=True):
        own[split.train] = True
    result: list[FoldFits] = []
    for budget in budgets:
        labels, _ = compute_oracle_labels(table, float(budget))
        if result and np.array_equal(labels, result[-1].labels):  # an oracle that wants no more
            predicted = result[-1].predicted
        else:
            each = [
                predict_columns(case.features, labels, own, model=model, seed=at)
                for at, own in enumerate(train)
            ]
            predicted = np.stack(each)
        result.append(FoldFits(budget=float(budget), labels=labels, predicted=predicted, train=train))
    return tuple(result)


def _compute_curves(
    case: PaperPool, judged: JudgedTable, grid: Floats, taught: Sequence[FoldFits], *, seen: Bools
) -> dict[str, ParetoCurve]:
    result = {}
    for rule in RULES:
        outcomes = [
            judged.compute_outcome(choose_by_rule(case, rule, float(budget), seen=seen)) for budget in grid
        ]
        result[rule] = _build_curve(grid, outcomes)
    known = [judged.compute_outcome(own.predicted) for own in taught]
    return result | {
        "classifier": _build_curve(np.array([own.budget for own in taught]), known, gains=True),
        "oracle": _compute_oracle(judged.table, grid),
    }


def _build_curve(budgets: Floats, outcomes: Sequence[ChoiceOutcome], *, gains: bool = False) -> ParetoCurve:
    return ParetoCurve(
        budget=budgets,
        cost=np.array([outcome.spent for outcome in outcomes]),
        accuracy=np.array([outcome.interval.mean for outcome in outcomes]),
        gain=tuple(outcome.gain for outcome in outcomes) if gains else (),
    )


def _compute_oracle(table: AccuracyTable, grid: Floats) -> ParetoCurve:
    plans = [solve(table, budget=float(budget)) for budget in grid]
    return ParetoCurve(
        budget=grid,
        cost=np.array([plan.mixed_cost for plan in plans]),
        accuracy=np.array([plan.mixed_accuracy for plan in plans]),
    )


def _compute_uniform(table: AccuracyTable, grid: Floats) -> ParetoCurve:
    """The same budget for all problems, at the best mix of two budgets."""
    accuracy = np.repeat(table.accuracy.mean(axis=0)[None], len(grid), axis=0)
    return ParetoCurve(budget=grid, cost=grid, accuracy=mix_accuracy(table.costs, accuracy, grid))


def _compute_crossfitted(case: PaperPool, grid: Floats) -> dict[str, ParetoCurve]:
    pairs = split_halves(case)
    if not pairs:
        return {}
    crossfits = [cross_fit(pairs, budget=float(budget)) for budget in grid]
    return {
        "crossfitted": ParetoCurve(
            budget=grid,
            cost=np.array([one.cost for one in crossfits]),
            accuracy=np.array([one.accuracy.mean for one in crossfits]),
        )
    }


_METHOD_NAMES = {
    "oracle": "oracle",
    "classifier": "the paper's classifier",
    "random": "random",
    "heuristic": "longest prompts",
    "fixed": "fixed-b",
    "uniform": "uniform",
}


def draw_pareto(pareto: ParetoFrontiers, *, key: str = "pareto") -> Picture:
    """Two panels with one scale of accuracy: by the budget asked for, and by what was spent."""
    with Canvas(key, columns=2, height=3.7, sharey=True) as canvas:
        left, right = canvas.axes
        _draw_as_paper(canvas, left, pareto)
        _draw_held_out(canvas, right, pareto)
        left.set_title("scored as the paper does")
        right.set_title("held-out")
        set_samples_axis(left, pareto.modes[-1], "average budget B asked for (samples)")
        set_samples_axis(right, pareto.modes[-1], "samples spent on average")
        set_accuracy_axis(left)
        _draw_legend(canvas, left)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Accuracy by average budget",
        protocol=_describe_protocol(pareto),
        svg=svg,
        alt=f"Accuracy against samples for {pareto.name}: left scored as the paper does, right held-out.",
        caption=_compose_caption(pareto),
        data=to_plain(
            {"scored as the paper does": _build_data(pareto.paper), "held-out": _build_data(pareto.held_out)}
        ),
    )


def _draw_as_paper(canvas: Canvas, ax: Axes, pareto: ParetoFrontiers) -> None:
    steps = pareto.paper["fixed"]
    ax.step(steps.budget, steps.accuracy, where="post", **_choose_style("fixed"))
    _add_marks(canvas, ax, steps, "fixed", by_budget=True)
    for method in ("random", "heuristic", "oracle", "classifier"):
        curve = pareto.paper[method]
        ax.plot(curve.budget, curve.accuracy, **_choose_style(method))
        _add_marks(canvas, ax, curve, method, by_budget=True)


def _draw_held_out(canvas: Canvas, ax: Axes, pareto: ParetoFrontiers) -> None:
    high, low = pareto.held_out["oracle"], pareto.held_out.get("crossfitted")
    if low is not None:  # drawn where both were asked for the same
        ax.fill_between(high.budget, low.accuracy, high.accuracy, color=colour("green"), alpha=0.18, lw=0)
    ax.plot(high.budget, high.accuracy, **_choose_style("oracle"))
    _add_marks(canvas, ax, high, "oracle", by_budget=True)
    for method in ("uniform", "random", "heuristic"):
        curve = pareto.held_out[method]
        ax.plot(curve.cost, curve.accuracy, **_choose_style("fixed" if method == "uniform" else method))
        _add_marks(canvas, ax, curve, method)
    _draw_classifier(canvas, ax, pareto.held_out["classifier"])


def _draw_classifier(canvas: Canvas, ax: Axes, curve: ParetoCurve) -> None:
    """Draw the classifier by what it spends, with the interval of its difference from uniform."""
    order = curve.cost.argsort(kind="stable")
    cost, accuracy = curve.cost[order], curve.accuracy[order]
    gains = [curve.gain[at] for at in order]
    low = [a if g.low is None else a - g.mean + g.low for a, g in zip(accuracy, gains, strict=True)]
    high = [a if g.high is None else a - g.mean + g.high for a, g in zip(accuracy, gains, strict=True)]
    ax.fill_between(cost, low, high, color=colour(policy_style("classifier").colour), alpha=0.18, lw=0)
    ax.plot(cost, accuracy, marker="o", markersize=3.5, markeredgewidth=0, **_choose_style("classifier"))
    _add_marks(canvas, ax, curve, "classifier")


def _choose_style(method: str) -> dict[str, Any]:
    own = policy_style(method)
    width = 2.2 if method == "classifier" else 1.6
    return {"color": colour(own.colour), "linestyle": own.line, "linewidth": width}


def _add_marks(canvas: Canvas, ax: Axes, curve: ParetoCurve, method: str, *, by_budget: bool = False) -> None:
    for at, (budget, cost, accuracy) in enumerate(zip(curve.budget, curve.cost, curve.accuracy, strict=True)):
        text = f"{_METHOD_NAMES[method]}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
        if curve.gain:
            text += f" ({100 * curve.gain[at].mean:+.1f} points over uniform at that cost)"
        canvas.mark(ax, budget if by_budget else cost, accuracy, text)


def _draw_legend(canvas: Canvas, ax: Axes) -> None:
    """Draw one legend above both panels: the curves meet at both ends, where labels would be."""
    names = {"oracle": "oracle", "classifier": "the paper's classifier", "heuristic": "longest prompts"}
    names |= {"random": "random", "fixed": "fixed-b, uniform"}
    lines = [ax.plot([], [], **_choose_style(method))[0] for method in names]
    canvas.figure.legend(lines, list(names.values()), loc="outside upper left", ncols=5, handlelength=2.2)


def _describe_protocol(pareto: ParetoFrontiers) -> str:
    return (
        f"{pareto.problems} problems, {pareto.folds} folds, one seed. Scored as the paper does: each fold's "
        "classifier on all problems, accuracy by disjoint windows. Held-out: on the problems of its own fold "
        "alone, accuracy over all subsets of the samples."
    )


def _compose_caption(pareto: ParetoFrontiers) -> str:
    modes = ", ".join(map(str, pareto.modes))
    text = (
        "Left: by the average budget asked for, so that fixed-b is a staircase. Right: by what was spent; "
        "the red band is the 95% interval, over problems, of the classifier's difference from uniform at "
        "its cost."
    )
    if "crossfitted" in pareto.held_out:
        text += " The green band is the oracle's bracket, from cross-fitted up to in-sample."
    return f"{text} All choose among {modes} samples."


def _build_data(curves: Mapping[str, ParetoCurve]) -> dict[str, Any]:
    return {
        name: {"budget": curve.budget, "cost": curve.cost, "accuracy": curve.accuracy}
        | ({"gain": curve.gain} if curve.gain else {})
        for name, curve in curves.items()
    }


_SAME_ACCURACY = 0.0005  # of accuracy: half of what a table shows


def build_section(case: PaperPool, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Section:
    """Accuracy against average budget on a dense grid, in both readings."""
    result = compute_pareto(case, quick=quick, model=model, seed=seed)
    return Section(
        key="pareto",
        title="Pareto frontiers",
        words=(_describe_as_paper(result), _describe_held_out(result))
        if result.paper["oracle"].cost[-1] > 1
        else (NOTHING,),
        pictures=(draw_pareto(result),),
        missing=list_missing(case),
    )


def _describe_as_paper(result: ParetoFrontiers) -> str:
    ours = result.paper["classifier"]
    others = np.max(
        [_read_accuracy(result.paper[rule], ours.budget) for rule in ("fixed", "random", "heuristic")], axis=0
    )
    ahead = int((ours.accuracy > others + _SAME_ACCURACY).sum())
    oracle = result.paper["oracle"]
    text = (
        f"Scored as the paper does, the classifier lies above fixed-b, random and longest prompts at {ahead} "
        f"of {len(ours.budget)} average budgets from 1 to {result.modes[-1]}."
    )
    if oracle.cost[-1] < result.modes[-1] - 0.5:
        text += (
            f" The oracle wants {oracle.cost[-1]:.1f} samples on average and no more: from there on its "
            "curve is flat, and so is the classifier's."
        )
    return text


def _describe_held_out(result: ParetoFrontiers) -> str:
    ours = result.held_out["classifier"]
    spending = [at for at, cost in enumerate(ours.cost) if cost > 1 + 1e-9]  # at one sample all are the same
    gain_intervals = [ours.gain[at] for at in spending]
    above, below = find_clear_signs(gain_intervals)
    if not gain_intervals:
        return "Held-out, the classifier gives one sample to all: it is the same as uniform."
    best = max(range(len(gain_intervals)), key=lambda at: gain_intervals[at].mean)
    cost = ours.cost[spending[best]]
    return (
        f"Held-out, and by what is spent, the classifier is clearly above uniform at {len(above)} of "
        f"{len(gain_intervals)} average budgets and clearly below at {len(below)}. It does best at "
        f"{cost:.1f} samples on average: {format_gains([gain_intervals[best]])} of difference. Curves are "
        "read across at equal spending; where the red band holds the dashed line, the classifier adds "
        "nothing that shows."
    )


def _read_accuracy(
    curve: ParetoCurve, budgets: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> list[float]:
    """The curve's accuracy at some budgets of its own grid."""
    place = {round(float(budget), 6): at for at, budget in enumerate(curve.budget)}
    return [float(curve.accuracy[place[round(float(budget), 6)]]) for budget in budgets]
