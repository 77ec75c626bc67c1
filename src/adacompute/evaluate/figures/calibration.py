"""What was foretold against what came. Knows nothing of how either was measured."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from adacompute.evaluate.beyond.calibration import Calibrated, Calibration
from adacompute.evaluate.beyond.lines import measured_by
from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look

__all__ = ["draw_calibration", "draw_spent"]


def draw_calibration(found: Calibration, *, key: str = "calibration") -> Picture:
    """A panel for each policy that says how sure it is."""
    with Canvas(key, columns=len(found.policies), height=3.8, sharey=True) as canvas:
        for ax, one in zip(canvas.axes, found.policies, strict=True):
            _panel(canvas, ax, one)
        canvas.axes[0].set_ylabel("right" if found.basis == "accuracy" else measured_by(found.basis))
        svg = canvas.svg()
    errors = ", ".join(f"{look(one.policy).name} {one.error:.3f}" for one in found.policies)
    return Picture(
        key=key,
        title="Said against realised",
        protocol="held-out: said of problems that weren't learned from",
        svg=svg,
        alt=f"What policies say of their answers against how often those are right; error {errors}.",
        caption=(
            "On the dashed line what is said is true. Each point is about a tenth of all requests, or more "
            "where the same is said of many (larger points), with its 95% interval over problems."
        ),
        data=plain({one.policy: _data(one) for one in found.policies}),
    )


def _panel(canvas: Canvas, ax: Axes, one: Calibrated) -> None:
    own = look(one.policy)
    tint = colour(own.colour)
    ax.plot([0, 1], [0, 1], color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
    for each in one.bins:
        low, high = (each.right.mean if end is None else end for end in (each.right.low, each.right.high))
        ax.plot([each.said, each.said], [low, high], color=tint, linewidth=1.4, zorder=2)
        size = 4.0 + 14.0 * each.share
        ax.plot([each.said], [each.right.mean], marker="o", markersize=size, color=tint, zorder=3)
        text = (
            f"said {each.said:.1%}, right {each.right.mean:.1%} ({low:.1%} to {high:.1%}); "
            f"{each.share:.0%} of requests"
        )
        canvas.mark(ax, each.said, each.right.mean, text)
    ax.set_title(own.name, color=tint)
    ax.set_xlabel(f"{one.what} at B = {one.budget:g}")
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.annotate(
        f"calibration error {one.error:.3f}", (0.03, 0.95), xycoords="axes fraction", va="top", fontsize=8.5
    )


def draw_spent(found: Calibration, *, key: str = "spent") -> Picture:
    """Samples spent out of fold against samples asked for, as a ratio."""
    names = list(dict.fromkeys(one.policy for one in found.spent))
    with Canvas(key, height=3.6) as canvas:
        ax = canvas.axes[0]
        ax.axhline(0.0, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
        ends = []
        for name in names:
            own = look(name)
            rows = found.budgets_of(name)
            budgets = [one.budget for one in rows]
            over = [one.cost.mean / one.budget - 1 for one in rows]
            tint = colour(own.colour)
            ax.plot(budgets, over, color=tint, linestyle=own.line, linewidth=1.5, marker="o", markersize=3.5)
            ends.append((budgets[-1], over[-1], own.name, tint))
            for one, value in zip(rows, over, strict=True):
                text = f"{own.name}: {one.cost.mean:.2f} samples for {one.budget:g} asked for ({value:+.0%})"
                canvas.mark(ax, one.budget, value, text + ("" if one.reached else "; no setting meets it"))
        ax.set_xscale("log", base=2)
        budgets = sorted({one.budget for one in found.spent})
        ax.xaxis.set_major_locator(FixedLocator(budgets))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel("samples on average asked for")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f}%" if abs(value) > 1e-9 else "0")
        ax.set_ylabel("spent, beyond what was asked")
        canvas.label_ends(ax, ends)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Spent against asked for",
        protocol="held-out: dials set on other problems than those that are paid for here",
        svg=svg,
        alt="How far each policy's cost is from the average budget that was asked for.",
        caption=(
            "Uniform has no dial to set, and is left out. Doubling can't meet an average below 2 samples: "
            "there it is the nearest setting's cost."
        ),
        data=plain(
            {
                name: [
                    {"budget": one.budget, "cost": one.cost, "reached": one.reached}
                    for one in found.budgets_of(name)
                ]
                for name in names
            }
        ),
    )


def _data(one: Calibrated) -> dict[str, Any]:
    bins = [{"said": each.said, "right": each.right, "share": each.share} for each in one.bins]
    return {"what": one.what, "budget": one.budget, "error": one.error, "bins": bins}
