"""Budgets by difficulty, the oracle's over the classifier's in both readings. Knows not who decided."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas, foreign
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.paper.heatmap import Heatmap

__all__ = ["draw_heatmap"]

_STEPS = 8  # of the colours
_LINE = 0.2  # inches that a group takes


def draw_heatmap(found: Sequence[Heatmap], *, key: str = "heatmap") -> Picture:
    """A column for each average budget: oracle, classifier on all problems, classifier held-out."""
    groups = len(found[0].groups)
    height = 0.75 + 3 * (0.32 + _LINE * groups)
    with Canvas(key, rows=3, columns=len(found), height=height, sharex=True, sharey=True) as canvas:
        for at, one in enumerate(found):
            readings = (
                (f"oracle, B = {one.budget:g}", one.oracle),
                ("scored as the paper does", one.paper),
                ("held-out", one.held_out),
            )
            for row, (title, shares) in enumerate(readings):
                ax = canvas.axes[row * len(found) + at]
                if row == 0 or at == 0:  # a reading's name may be wider than a column
                    ax.set_title(title)
                _cells(canvas, ax, one, shares, title)
            canvas.axes[2 * len(found) + at].set_xlabel("budget b, samples")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Budgets by difficulty",
        protocol=(
            "Oracle on all problems by the paper's windows; classifier on all problems (scored as the paper "
            "does), and on the problems not learned from, all seeds together (held-out)."
        ),
        svg=svg,
        alt=" ".join(_told(one) for one in found),
        caption=(
            f"Percent of each group's problems that get each budget, by {found[0].kind}. First row: the "
            "oracle. Below it the same classifier, asked about all problems and about those it hadn't seen."
        ),
        data=plain({f"{one.budget:g}": _data(one) for one in found}),
    )


def _cells(canvas: Canvas, ax: Axes, one: Heatmap, shares: npt.NDArray[np.float64], title: str) -> None:
    tints = ramp(_STEPS)
    for (row, column), share in np.ndenumerate(shares):
        if not share > 0:  # none, or none held out
            continue
        step = min(_STEPS - 1, int(share * _STEPS))
        ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, color=tints[step]))
        where = f"{title}, {one.groups[row]}"
        canvas.mark(ax, column, row, f"{where}: {100 * share:.1f}% get b = {one.budgets[column]}")
        if round(100 * share):
            ink = colour("page" if step >= _STEPS / 2 else "ink")
            ax.text(
                column, row, f"{100 * share:.0f}", ha="center", va="center_baseline", fontsize=8, color=ink
            )
    ax.set_xlim(-0.55, len(one.budgets) - 0.45)
    ax.set_ylim(len(one.groups) - 0.45, -0.55)
    ax.set_xticks(range(len(one.budgets)), [str(budget) for budget in one.budgets])
    ax.set_yticks(range(len(one.groups)), [foreign(name) for name in one.groups])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def _told(one: Heatmap) -> str:
    return (
        f"At B = {one.budget:g}, {100 * one.paper_moved:.0f}% of the classifier's decisions would have to "
        f"change for the oracle's picture on all problems, {100 * one.held_out_moved:.0f}% held-out."
    )


def _data(one: Heatmap) -> dict[str, object]:
    return {
        "kind": one.kind,
        "groups": one.groups,
        "problems": one.sizes,
        "budgets": one.budgets,
        "oracle": one.oracle,  # a row a group, a column a budget
        "paper": one.paper,
        "held_out": one.held_out,
    }
