"""How many labelled problems the paper's classifier needs: accuracy by share of the training part.

Each curve is read twice off the same fits: on all problems, as in the paper, and on the fifth that no fit
has seen, which is the same for every share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.evaluate.resampling import random_split
from adacompute.records import AccuracyTable
from adacompute.report.canvas import colour, set_accuracy_axis
from adacompute.report.document import Cell, Column, Picture, Section, Spread, Table, join_words, to_plain
from studies.canvas import LabelledCanvas
from studies.paper.budget_choices import (
    ClassifierFits,
    FitReading,
    compute_oracle_labels,
    compute_spread,
    predict_columns,
)
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import TARGET_BUDGETS, describe_unreachable, select_reachable
from studies.paper.wording import format_points

__all__ = ["EfficiencyReading", "LabelEfficiency", "compute_efficiency"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyReading:
    """One reading of one curve: a spread over seeds for each share."""

    accuracy: tuple[Spread, ...]  # (shares,)
    cost: tuple[Spread, ...]  # samples on average
    gain: tuple[Spread, ...]  # over uniform at the same cost
    oracle: float  # accuracy of the oracle's budgets, mean over seeds
    fixed: float  # accuracy of the largest budget not above B for all
    fixed_cost: float

    def find_crossing(self, shares: Sequence[float]) -> float | None:
        """The share from which on the mean stays above `fixed`; None where it ends below."""
        above = [one.mean > self.fixed for one in self.accuracy]
        last = max((at for at, so in enumerate(above) if not so), default=-1)
        return None if last == len(above) - 1 else shares[last + 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyCurve:
    """One average budget."""

    budget: float
    paper: EfficiencyReading  # scored as the paper does
    held_out: EfficiencyReading


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelEfficiency:
    """Curves for each average budget."""

    shares: tuple[float, ...]  # of the training part
    learned: tuple[int, ...]  # (shares,) problems learned from
    problems: int
    seeds: int
    curves: tuple[EfficiencyCurve, ...]


def compute_efficiency(
    case: PaperPool,
    *,
    targets: Sequence[float] = TARGET_BUDGETS,
    fractions: Sequence[float] = SHARES,
    seeds: int = 4,
    seed: int = 0,
) -> LabelEfficiency:
    """Fit boosted trees on growing parts of the same 80%, for the average budgets within reach."""
    train = np.zeros((seeds, len(case)), dtype=bool)
    parts: list[list[Bools]] = []  # a seed's shares, each within the next
    for at, own in enumerate(train):
        rng = np.random.default_rng([seed, 0xEFF1, at])
        rows = random_split(case.ballots.prompts, rng).train
        own[rows] = True
        order = rng.permutation(rows)
        parts.append([_build_mask(order[: _count(part, len(rows))], len(case)) for part in fractions])
    return LabelEfficiency(
        shares=tuple(fractions),
        learned=tuple(int(np.mean([own[at].sum() for own in parts])) for at in range(len(fractions))),
        problems=len(case),
        seeds=seeds,
        curves=tuple(
            _compute_curve(case, target, train, parts) for target in select_reachable(case, targets)
        ),
    )


def _compute_curve(
    case: PaperPool, budget: float, train: Bools, parts: Sequence[Sequence[Bools]]
) -> EfficiencyCurve:
    labels, price = compute_oracle_labels(case.windows, budget)
    paper, held_out = [], []
    for at in range(len(parts[0])):
        predicted = [
            predict_columns(case.features, labels, own[at], model="xgboost", seed=seed)
            for seed, own in enumerate(parts)
        ]
        fits = ClassifierFits(
            budget=budget,
            price=price,
            model="xgboost",
            labels=labels,
            predicted=np.stack(predicted),
            train=train,  # the whole part, whatever was learned from: the judged stay the same
        )
        paper.append(fits.paper(case))
        held_out.append(fits.held_out(case))
    return EfficiencyCurve(
        budget=budget,
        paper=_score_readings(paper, case.windows, np.ones_like(train), budget),
        held_out=_score_readings(held_out, case.exact, ~train, budget),
    )


def _score_readings(
    readings: Sequence[FitReading], table: AccuracyTable, judged: Bools, budget: float
) -> EfficiencyReading:
    within = np.flatnonzero(np.asarray(table.costs) <= budget)
    column = int(within[-1]) if len(within) else 0
    return EfficiencyReading(
        accuracy=tuple(compute_spread(one.accuracy) for one in readings),
        cost=tuple(compute_spread(one.cost) for one in readings),
        gain=tuple(compute_spread(one.accuracy - one.uniform) for one in readings),
        oracle=float(readings[-1].oracle.mean()),
        fixed=float(np.mean([table.accuracy[own, column].mean() for own in judged])),
        fixed_cost=float(np.asarray(table.costs)[column]),
    )


def _count(part: float, rows: int) -> int:
    return min(rows, max(1, round(part * rows)))


def _build_mask(rows: npt.NDArray[np.int64], size: int) -> Bools:
    result = np.zeros(size, dtype=bool)
    result[rows] = True
    return result


_TINTS = ("yellow", "blue", "purple", "green", "red")


def draw_efficiency(efficiency: LabelEfficiency, *, key: str = "efficiency") -> Picture:
    """Two panels of the same fits: judged on all problems, and on those that none has seen."""
    with LabelledCanvas(key, columns=2, height=3.9, sharey=True) as canvas:
        readings = (("a  scored as the paper does", "paper"), ("b  held-out", "held_out"))
        for ax, (title, reading) in zip(canvas.axes, readings, strict=True):
            ax.set_title(title)
            for at, curve in enumerate(efficiency.curves):
                tint = colour(_TINTS[at % len(_TINTS)])
                _draw_curve(canvas, ax, efficiency, curve, getattr(curve, reading), tint)
            ends = [
                (
                    efficiency.learned[-1],
                    getattr(curve, reading).accuracy[-1].mean,
                    f"B = {curve.budget:g}",
                    at,
                )
                for at, curve in enumerate(efficiency.curves)
            ]
            canvas.label_ends(ax, [(x, y, name, colour(_TINTS[at % len(_TINTS)])) for x, y, name, at in ends])
            ax.set_xlim(0, efficiency.learned[-1] * 1.02)
            ax.set_xlabel("problems learned from")
        set_accuracy_axis(canvas.axes[0])
        svg = canvas.svg()
    return Picture(
        key=key,
        title="The classifier by how much it learned from",
        protocol=(
            f"Boosted trees on shares of a random 80% of {efficiency.problems} problems, {efficiency.seeds} "
            "seeds; bands are a standard deviation over seeds. Scored as the paper does: on all problems, "
            "those learned from included, by windows. Held-out: on the other 20%, over all subsets."
        ),
        svg=svg,
        alt=" ".join(
            f"B = {curve.budget:g}: from {_list_ends(curve.paper)} scored as the paper does, from "
            f"{_list_ends(curve.held_out)} held-out."
            for curve in efficiency.curves
        ),
        caption=(
            "Dashed: the oracle, which knows the answers. Dotted: uniform, with the largest budget not "
            "above B, which may spend less than the classifier does."
        ),
        data=to_plain(_build_data(efficiency)),
    )


def _draw_curve(
    canvas: LabelledCanvas,
    ax: Axes,
    efficiency: LabelEfficiency,
    curve: EfficiencyCurve,
    own: EfficiencyReading,
    tint: str,
) -> None:
    mean = np.array([one.mean for one in own.accuracy])
    std = np.array([one.std for one in own.accuracy])
    ax.fill_between(efficiency.learned, mean - std, mean + std, color=tint, alpha=0.14, linewidth=0)
    ax.plot(efficiency.learned, mean, color=tint, marker="o", markersize=4, mew=0)
    for value, line, name in ((own.oracle, "--", "oracle"), (own.fixed, ":", "uniform")):
        ax.axhline(value, color=tint, linestyle=line, linewidth=1.1, alpha=0.8)
        spent = f", {own.fixed_cost:g} samples each" if name == "uniform" else ""
        canvas.mark(
            ax,
            0.03 * efficiency.learned[-1],
            value,
            f"{name}, B = {curve.budget:g}: {100 * value:.1f}%{spent}",
        )
    for count, accuracy, cost, gain in zip(efficiency.learned, own.accuracy, own.cost, own.gain, strict=True):
        text = (
            f"B = {curve.budget:g}, {count} problems: {_format_spread(accuracy)} at {cost.mean:.2f} samples, "
            f"{100 * gain.mean:+.1f} points over uniform at that cost"
        )
        canvas.mark(ax, count, accuracy.mean, text)


def _format_spread(value: Spread) -> str:
    return f"{100 * value.mean:.1f}% ± {100 * value.std:.1f}"


def _list_ends(own: EfficiencyReading) -> str:
    return f"{own.accuracy[0].mean:.1%} to {own.accuracy[-1].mean:.1%}"


def _build_data(efficiency: LabelEfficiency) -> dict[str, Any]:
    def describe_reading(own: EfficiencyReading) -> dict[str, Any]:
        return {
            "accuracy": [one.mean for one in own.accuracy],
            "std": [one.std for one in own.accuracy],
            "cost": [one.mean for one in own.cost],
            "gain": [one.mean for one in own.gain],
            "oracle": own.oracle,
            "fixed": own.fixed,
            "fixed_cost": own.fixed_cost,
        }

    return {
        "learned": list(efficiency.learned),
        "curves": {
            f"{curve.budget:g}": {
                "paper": describe_reading(curve.paper),
                "held_out": describe_reading(curve.held_out),
            }
            for curve in efficiency.curves
        },
    }


_QUICK_SHARES, _QUICK_SEEDS = (0.2, 0.6, 1.0), 2


def build_section(case: PaperPool, *, quick: bool = False, seed: int = 0) -> Section:
    """Accuracy by share of the training part, in both readings."""
    result = compute_efficiency(
        case,
        fractions=_QUICK_SHARES if quick else SHARES,
        seeds=_QUICK_SEEDS if quick else 4,
        seed=seed,
    )
    return Section(
        key="efficiency",
        title="Data efficiency of the classifier",
        words=_compose_words(result),
        tables=(build_table(result),),
        pictures=(draw_efficiency(result),) if result.curves else (),
        missing=describe_unreachable(case),
    )


def build_table(result: LabelEfficiency) -> Table:
    """Build a row per budget and share."""
    rows: list[tuple[Cell, ...]] = []
    for curve in result.curves:
        for at, count in enumerate(result.learned):
            row: tuple[Cell, ...] = (curve.budget, result.shares[at], count)
            for own in (curve.paper, curve.held_out):
                row = (*row, own.accuracy[at], own.cost[at], own.gain[at])
            rows.append(row)
    kinds: list[Column] = []
    for reading in ("scored as the paper does", "held-out"):
        kinds += [
            Column(name=f"accuracy, {reading}", kind="share"),
            Column(name=f"cost, {reading}", kind="number", about="samples on average"),
            Column(name=f"over uniform, {reading}", kind="points", about="points, at the same cost"),
        ]
    return Table(
        key="efficiency",
        title="The classifier by how much it learned from",
        protocol=(
            f"Boosted trees on shares of a random 80% of {result.problems} problems, {result.seeds} seeds, "
            "mean and standard deviation over them. Scored as the paper does: on all problems, by windows. "
            "Held-out: on the other 20%, over all subsets."
        ),
        columns=(
            Column(name="B", kind="amount"),
            Column(name="share", kind="share", about="of the training part"),
            Column(name="problems", kind="count", about="learned from"),
            *kinds,
        ),
        rows=tuple(rows),
    )


def _compose_words(result: LabelEfficiency) -> tuple[str, ...]:
    if not result.curves:
        return ()
    budgets = join_words([f"{curve.budget:g}" for curve in result.curves])
    grown = [
        format_points(_compute_growth(own) for own in _list_readings(result, which))
        for which in ("paper", "held_out")
    ]
    last = format_points(own.gain[-1].mean for own in _list_readings(result, "held_out"))
    first = (
        f"From {result.learned[0]} to {result.learned[-1]} problems learned from, accuracy at B = {budgets} "
        f"grows by {grown[0]} scored as the paper does, and by {grown[1]} held-out. All problems include "
        "those learned from, whose share grows too."
    )
    second = (
        f"{_describe_crossing(result)} Such a budget may cost less than the classifier: with all that it "
        f"learned, held-out, the classifier is {last} from uniform at its own cost."
    )
    return first, second


def _describe_crossing(result: LabelEfficiency) -> str:
    paper, held_out = (
        join_words([_format_crossing(result, own) for own in _list_readings(result, which)])
        for which in ("paper", "held_out")
    )
    return (
        "The share of the training part from which on it stays above uniform with the largest budget not "
        f"above B: {paper} scored as the paper does, {held_out} held-out; the paper says 20 to 25%."
    )


def _format_crossing(result: LabelEfficiency, own: EfficiencyReading) -> str:
    share = own.find_crossing(result.shares)
    return "none" if share is None else f"{share:.0%}"


def _compute_growth(own: EfficiencyReading) -> float:
    return own.accuracy[-1].mean - own.accuracy[0].mean


def _list_readings(result: LabelEfficiency, which: str) -> list[EfficiencyReading]:
    def one(curve: EfficiencyCurve) -> EfficiencyReading:
        return curve.paper if which == "paper" else curve.held_out

    return [one(curve) for curve in result.curves]
