"""Features: what the trees gain by them, what they tell of new problems, what budgets they go with.

Knows nothing of how they are read off a prompt.
"""

from typing import Any

import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour
from adacompute.evaluate.paper.importance import Importance

__all__ = ["draw_importance"]

_LINE = 0.245  # inches that a feature takes
_NONE = 0.05  # deviations that are as good as none
_FULL = 1.0  # deviations from the average that have the full colour


def draw_importance(found: Importance, *, key: str = "importance") -> Picture:
    """Gain on what was learned from, loss held-out by shuffling, and the mean feature of each class."""
    height = 0.95 + _LINE * len(found.names)
    with Canvas(key, columns=3, height=height, sharey=True, width_ratios=(1, 1, 1.35)) as canvas:
        first, second, third = canvas.axes
        _gain(canvas, first, found)
        _lost(canvas, second, found)
        _signature(canvas, third, found)
        first.set_yticks(range(len(found.names)), [found.names[at] for at in found.order])
        first.set_ylim(len(found.names) - 0.4, -0.6)
        for ax in canvas.axes:
            ax.tick_params(axis="y", length=0)
            ax.grid(visible=False, axis="y")
        svg = canvas.svg()
    most = found.names[found.order[0]]
    return Picture(
        key=key,
        title=f"The {len(found.names)} features at B = {found.budget:g}",
        protocol=(
            "a, scored as the paper does: boosted trees on all problems, their own importance. b, held-out: "
            "five folds by question, each feature shuffled among the judged problems, 95% interval over "
            "problems. c: all problems."
        ),
        svg=svg,
        alt=(
            f"{most} has the most gain, {100 * found.gain[found.order[0]]:.0f}%; features whose shuffling "
            f"clearly loses: {', '.join(found.telling) or 'none'}."
        ),
        caption=(
            "a: gain of a split on each feature, shares of their sum. b: points of imitation lost when the "
            "feature is shuffled; with dots left of 0 the trees are better without. c: mean of the feature "
            "among the problems that the oracle gives each budget, in standard deviations over all problems; "
            "bold where it is two standard errors or more from the average."
        ),
        data=plain(_data(found)),
    )


def _gain(canvas: Canvas, ax: Axes, found: Importance) -> None:
    ax.set_title("a  gain, in-sample")
    for row, at in enumerate(found.order):
        ax.barh(row, found.gain[at], height=0.62, color=colour("red"))
        canvas.mark(
            ax, found.gain[at] / 2, row, f"{found.names[at]}: {100 * found.gain[at]:.1f}% of the gain"
        )
    ax.set_xlim(0, max(float(found.gain.max()) * 1.08, 0.01))
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    ax.set_xlabel("share of the gain")


def _lost(canvas: Canvas, ax: Axes, found: Importance) -> None:
    ax.set_title("b  loss, held-out")
    ax.axvline(0, color=colour("line"), linewidth=1)
    for row, at in enumerate(found.order):
        lost = found.imitation[at]
        low, high = (lost.mean if end is None else end for end in (lost.low, lost.high))
        tint = colour("blue" if found.names[at] in found.telling else "grey")
        ax.plot([low, high], [row, row], color=tint, linewidth=1.6, alpha=0.6)
        ax.plot([lost.mean], [row], color=tint, marker="o", markersize=4.5, mew=0)
        text = (
            f"{found.names[at]}, shuffled: {100 * lost.mean:+.1f} points of imitation lost "
            f"({100 * low:+.1f} to {100 * high:+.1f}), {100 * found.accuracy[at].mean:+.1f} of accuracy"
        )
        canvas.mark(ax, lost.mean, row, text)
    ax.margins(x=0.06)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")
    ax.set_xlabel("points of imitation")


def _signature(canvas: Canvas, ax: Axes, found: Importance) -> None:
    """Two colours, fainter the nearer to the average: the palette's own, so that dark pages turn them too."""
    ax.set_title("c  mean by oracle's budget")
    for row, at in enumerate(found.order):
        for column, budget in enumerate(found.classes):
            value = float(found.signature[at, column])
            faint = min(1.0, abs(value) / _FULL)
            near = abs(value) < _NONE
            tint = colour("grey" if near else "orange" if value > 0 else "blue")
            place = (column - 0.47, row - 0.43)
            ax.add_patch(Rectangle(place, 0.94, 0.86, color=tint, alpha=0.08 + 0.47 * faint))
            weight = "bold" if found.sure[at, column] else "normal"
            ax.text(
                column,
                row,
                "0" if near else f"{value:+.1f}",
                ha="center",
                va="center_baseline",
                fontsize=8,
                fontweight=weight,
                color=colour("ink" if found.sure[at, column] else "dim"),
            )
            text = (
                f"{found.names[at]} at b = {budget} ({found.counts[column]} problems): {value:+.2f} "
                f"deviations from the average; z-scored over budgets, as in the paper, "
                f"{found.along[at, column]:+.1f}"
            )
            canvas.mark(ax, column, row, text)
    ax.set_xlim(-0.55, len(found.classes) - 0.45)
    names = [f"{budget}\n({count})" for budget, count in zip(found.classes, found.counts, strict=True)]
    ax.set_xticks(range(len(found.classes)), names)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel("samples given (problems)")


def _data(found: Importance) -> dict[str, Any]:
    features = {
        found.names[at]: {
            "gain": found.gain[at],
            "imitation_lost": found.imitation[at],
            "accuracy_lost": found.accuracy[at],
            "mean_by_budget": _by_budget(found, found.signature[at]),
            "z_over_budgets": _by_budget(found, found.along[at]),
        }
        for at in found.order
    }
    return {"problems": _by_budget(found, found.counts), "features": features}


def _by_budget(found: Importance, values: npt.NDArray[Any]) -> dict[int, Any]:
    return dict(zip(found.classes, values, strict=True))
