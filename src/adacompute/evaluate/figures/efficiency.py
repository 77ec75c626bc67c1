"""The paper's classifier by how much it learned from, in both readings. Knows not how it was fitted."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from adacompute.evaluate.exhibits import Picture, Spread
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour
from adacompute.evaluate.figures.samples import accuracy_axis
from adacompute.evaluate.paper.efficiency import Curve, Efficiency, Followed

__all__ = ["draw_efficiency"]

_TINTS = ("yellow", "blue", "purple", "green", "red")


def draw_efficiency(found: Efficiency, *, key: str = "efficiency") -> Picture:
    """Two panels of the same fits: judged on all problems, and on those that none has seen."""
    with Canvas(key, columns=2, height=3.9, sharey=True) as canvas:
        readings = (("a  scored as the paper does", "paper"), ("b  held-out", "held_out"))
        for ax, (title, reading) in zip(canvas.axes, readings, strict=True):
            ax.set_title(title)
            for at, curve in enumerate(found.curves):
                tint = colour(_TINTS[at % len(_TINTS)])
                _curve(canvas, ax, found, curve, getattr(curve, reading), tint)
            ends = [
                (found.learned[-1], getattr(curve, reading).accuracy[-1].mean, f"B = {curve.budget:g}", at)
                for at, curve in enumerate(found.curves)
            ]
            canvas.label_ends(ax, [(x, y, name, colour(_TINTS[at % len(_TINTS)])) for x, y, name, at in ends])
            ax.set_xlim(0, found.learned[-1] * 1.02)
            ax.set_xlabel("problems learned from")
        accuracy_axis(canvas.axes[0])
        svg = canvas.svg()
    return Picture(
        key=key,
        title="The classifier by how much it learned from",
        protocol=(
            f"Boosted trees on shares of a random 80% of {found.problems} problems, {found.seeds} seeds; "
            "bands are a standard deviation over seeds. Scored as the paper does: on all problems, those "
            "learned from included, by windows. Held-out: on the other 20%, over all subsets."
        ),
        svg=svg,
        alt=" ".join(
            f"B = {curve.budget:g}: from {_ends(curve.paper)} scored as the paper does, from "
            f"{_ends(curve.held_out)} held-out."
            for curve in found.curves
        ),
        caption=(
            "Dashed: the oracle, which knows the answers. Dotted: all alike, with the largest budget not "
            "above B, which may spend less than the classifier does."
        ),
        data=plain(_data(found)),
    )


def _curve(canvas: Canvas, ax: Axes, found: Efficiency, curve: Curve, own: Followed, tint: str) -> None:
    mean = np.array([one.mean for one in own.accuracy])
    std = np.array([one.std for one in own.accuracy])
    ax.fill_between(found.learned, mean - std, mean + std, color=tint, alpha=0.14, linewidth=0)
    ax.plot(found.learned, mean, color=tint, marker="o", markersize=4, mew=0)
    for value, line, name in ((own.oracle, "--", "oracle"), (own.fixed, ":", "all alike")):
        ax.axhline(value, color=tint, linestyle=line, linewidth=1.1, alpha=0.8)
        spent = f", {own.fixed_cost:g} samples each" if name == "all alike" else ""
        canvas.mark(
            ax, 0.03 * found.learned[-1], value, f"{name}, B = {curve.budget:g}: {100 * value:.1f}%{spent}"
        )
    for count, accuracy, cost, gain in zip(found.learned, own.accuracy, own.cost, own.gain, strict=True):
        text = (
            f"B = {curve.budget:g}, {count} problems: {_told(accuracy)} at {cost.mean:.2f} samples, "
            f"{100 * gain.mean:+.1f} points over all alike at that cost"
        )
        canvas.mark(ax, count, accuracy.mean, text)


def _told(value: Spread) -> str:
    return f"{100 * value.mean:.1f}% ± {100 * value.std:.1f}"


def _ends(own: Followed) -> str:
    return f"{own.accuracy[0].mean:.1%} to {own.accuracy[-1].mean:.1%}"


def _data(found: Efficiency) -> dict[str, Any]:
    def followed(own: Followed) -> dict[str, Any]:
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
        "learned": list(found.learned),
        "curves": {
            f"{curve.budget:g}": {"paper": followed(curve.paper), "held_out": followed(curve.held_out)}
            for curve in found.curves
        },
    }
