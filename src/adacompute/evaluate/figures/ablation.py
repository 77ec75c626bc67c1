"""Five learners: accuracy, the regret bound, and what the boosted trees confuse. Knows not who was split."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas, foreign
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.paper.ablation import MODELS, READINGS, Ablation, Points

__all__ = ["draw_ablation"]

_TINTS = dict(zip(READINGS, ("red", "blue"), strict=True))
_APART = 0.17  # of a row, from the middle: where each reading stands
_STEPS = 8
_ROOM = 1.3  # times the highest point: what is shown above it


def draw_ablation(found: Ablation, *, key: str = "ablation") -> Picture:
    """Accuracy by learner, the regret bound with a point a split, and a confusion matrix a reading."""
    with Canvas(key, rows=2, columns=2, height=6.2) as canvas:
        _accuracy(canvas, canvas.axes[0], found)
        _regret(canvas, canvas.axes[1], found)
        for at in range(len(READINGS)):
            _confusion(canvas, canvas.axes[2 + at], found, at)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Five learners of the oracle's budgets",
        protocol=(
            f"{found.rows} rows ({_cases(found)} at B = {', '.join(f'{one:g}' for one in found.targets)}), "
            f"{found.splits} splits into 80% and 20%, judged on the 20%. Scored as the paper does: rows "
            "split at random, by windows. Held-out: split by question, over all subsets."
        ),
        svg=svg,
        alt=_alt(found),
        caption=(
            "Colours as in the titles of c and d. a: accuracy on the judged rows, mean and standard "
            "deviation over splits. b: a point a split and learner; dashed, the mean of M times ε, which the "
            "paper takes for the bound; dotted, the theorem's, with the largest M. c, d: percent of the rows "
            "with each oracle's budget that the boosted trees give each budget."
        ),
        data=plain(_data(found)),
    )


def _accuracy(canvas: Canvas, ax: Axes, found: Ablation) -> None:
    ax.set_title("a  accuracy by learner")
    names = list(MODELS)
    for at, reading in enumerate(READINGS):
        tint = colour(_TINTS[reading])
        for row, model in enumerate(names):
            outcome = found.of(model, reading)
            place = row + (2 * at - 1) * _APART
            for number, (case, value) in enumerate(zip(found.cases, outcome.by_case, strict=True)):
                if not np.isfinite(value.mean):
                    continue
                ax.plot(
                    [value.mean - value.std, value.mean + value.std],
                    [place, place],
                    color=tint,
                    linewidth=1.6,
                    alpha=0.45,
                )
                ax.plot([value.mean], [place], color=tint, marker=_marker(number), markersize=5, mew=0)
                text = (
                    f"{MODELS[model]}, {case}, {reading}: {100 * value.mean:.1f}% ± {100 * value.std:.1f} "
                    f"at {outcome.cost.mean:.2f} samples"
                )
                canvas.mark(ax, value.mean, place, text)
    ax.set_yticks(range(len(names)), [MODELS[name] for name in names])
    ax.set_ylim(len(names) - 0.45, -1.05 if len(found.cases) > 1 else -0.55)
    if len(found.cases) > 1:
        style: dict[str, Any] = {"color": colour("dim"), "linestyle": "", "mew": 0, "markersize": 5}
        handles = [
            Line2D([], [], marker=_marker(number), label=foreign(case), **style)
            for number, case in enumerate(found.cases)
        ]
        ax.legend(
            handles=handles,
            loc="upper center",
            ncols=min(3, len(handles)),
            columnspacing=1,
            handletextpad=0,
            labelcolor=colour("dim"),
            borderaxespad=0,
        )
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    ax.set_xlabel("accuracy on the judged rows")


def _marker(number: int) -> str:
    """Of a recording."""
    return "osD^v<>"[number % 7]


def _regret(canvas: Canvas, ax: Axes, found: Ablation) -> None:
    ax.set_title("b  regret by imitation error")
    reach = max(float(some.error.max(initial=0.0)) for some in found.points)
    reach = 1.12 * reach if reach > 0 else 1.0
    for some in found.points:
        tint = colour(_TINTS[some.reading])
        ax.plot(some.error, some.task, color=tint, linestyle="", marker="o", markersize=4.5, mew=0, alpha=0.7)
        _marks(canvas, ax, some)
    highest = max(float(some.task.max(initial=0.0)) for some in found.points)
    lowest = min(0.0, min(float(some.task.min(initial=0.0)) for some in found.points))
    top = max(_ROOM * highest, found.mean_gap * reach, 0.01)
    ax.set_xlim(0, reach)
    ax.set_ylim(lowest - 0.05 * top, top)
    lines = (
        (found.mean_gap, "--", "mean M · ε", 0.6, "left"),
        (found.worst_gap, ":", "largest M · ε", 0.93, "right"),
    )
    for slope, line, name, height, side in lines:
        ax.plot([0, reach], [0, slope * reach], color=colour("ink"), linestyle=line, linewidth=1.3)
        at = min(0.9 * reach, height * top / max(slope, 1e-9))
        ax.annotate(
            name,
            (at, slope * at),
            xytext=(6 if side == "left" else -6, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8.5,
            color=colour("dim"),
        )
        canvas.mark(ax, at, slope * at, f"{name}: {100 * slope:.1f} points for each 1 of ε")
    ax.set_xlabel("imitation error ε")
    ax.set_ylabel("accuracy below the oracle's, points")
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")


def _marks(canvas: Canvas, ax: Axes, some: Points) -> None:
    for model, error, task, relaxed in zip(some.model, some.error, some.task, some.relaxed, strict=True):
        text = (
            f"{MODELS[model]}, {some.reading}: ε {100 * error:.1f}%, {100 * task:.1f} points below the "
            f"oracle, {100 * relaxed:.1f} in net value"
        )
        canvas.mark(ax, error, task, text)


def _confusion(canvas: Canvas, ax: Axes, found: Ablation, at: int) -> None:
    ax.set_title(f"{'cd'[at]}  {READINGS[at]}", color=colour(_TINTS[READINGS[at]]))
    tints = ramp(_STEPS)
    for (row, column), share in np.ndenumerate(found.normalised[at]):
        if not share > 0:
            continue
        step = min(_STEPS - 1, int(share * _STEPS))
        ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, color=tints[step]))
        text = f"oracle {found.budgets[row]}, trees {found.budgets[column]}: {100 * share:.1f}% of that row"
        canvas.mark(ax, column, row, text)
        ink = colour("page" if step >= _STEPS / 2 else "ink")
        ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center_baseline", fontsize=8, color=ink)
    count = len(found.budgets)
    ax.set_xlim(-0.55, count - 0.45)
    ax.set_ylim(count - 0.45, -0.55)
    ax.set_xticks(range(count), [str(budget) for budget in found.budgets])
    ax.set_yticks(range(count), [str(budget) for budget in found.budgets])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel("samples given by the boosted trees")
    ax.set_ylabel("samples given by the oracle")


def _cases(found: Ablation) -> str:
    return ", ".join(found.cases)


def _alt(found: Ablation) -> str:
    told = []
    for reading in READINGS:
        best = found.best(reading)
        told.append(f"{reading}: {MODELS[best.model]} is the most accurate, {best.accuracy.mean:.1%}.")
    return " ".join(told)


def _data(found: Ablation) -> dict[str, Any]:
    return {
        "mean_gap": found.mean_gap,
        "worst_gap": found.worst_gap,
        "points": {
            some.reading: {
                "model": list(some.model),
                "error": some.error,
                "task": some.task,
                "relaxed": some.relaxed,
            }
            for some in found.points
        },
        "by_case": {
            f"{one.model}, {one.reading}": dict(zip(found.cases, one.by_case, strict=True))
            for one in found.outcomes
        },
        "budgets": list(found.budgets),
        "confusion": {reading: found.confusion[at] for at, reading in enumerate(READINGS)},  # rows
        "confusion_shares": {reading: found.normalised[at] for at, reading in enumerate(READINGS)},
    }
