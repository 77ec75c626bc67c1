"""Draws the reproduction at a glance: a row a setting, the paper's above ours. Computes nothing."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas, foreign
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour
from adacompute.evaluate.reproduction.glance import BUDGET, Glance

__all__ = ["draw_glance"]

_ROW = 0.24  # inches
_IN_SAMPLE, _HELD_OUT, _COMMON = colour("red"), colour("blue"), colour("grey")


def draw_glance(rows: Sequence[Glance], *, key: str = "reproduction") -> Picture:
    """Imitation on the left, gain on the right."""
    with Canvas(key, columns=2, height=1.4 + _ROW * len(rows), sharey=True) as canvas:
        left, right = canvas.axes
        places = _places(rows)
        for y, row in zip(places, rows, strict=True):
            _imitation(canvas, left, y, row)
            _gain(canvas, right, y, row)
        left.set_yticks(places, [foreign(row.name) for row in rows])
        left.set_ylim(max(places) + 0.8, -0.8)
        left.set_xlim(
            min(row.commonest if row.held_out is None else row.held_out for row in rows) - 0.05, 1.02
        )
        left.set_title("Given the oracle's budget")
        left.set_xlabel("share of problems\n(above the paper's, below ours)")
        right.axvline(0, color=colour("line"), linewidth=1.0, zorder=1)
        right.set_title(f"Gain in accuracy, B = {BUDGET:g}")
        right.set_xlabel("points over fixed\n(held-out: over all alike, same cost)")
        for ax in canvas.axes:
            ax.grid(axis="y", visible=False)
            ax.tick_params(axis="y", length=0)
        _legend(canvas)
        svg = canvas.svg()
    return Picture(
        key=key,
        title=f"At B = {BUDGET:g}",
        protocol="scored as the paper does (red), held-out (blue)",
        svg=svg,
        alt=_alt(rows),
        data=plain({row.name: _data(row) for row in rows}),
    )


def _places(rows: Sequence[Glance]) -> list[float]:
    """Row by row, with a gap between the paper's and ours."""
    return [at + (0.6 if row.ours else 0.0) for at, row in enumerate(rows)]


def _imitation(canvas: Canvas, ax: Axes, y: float, row: Glance) -> None:
    common = row.commonest if row.held_out_commonest is None else row.held_out_commonest
    ax.plot([common] * 2, [y - 0.3, y + 0.3], color=_COMMON, linewidth=2.2, zorder=2)
    canvas.mark(ax, common, y, f"{row.name}: the commonest budget has {common:.1%}")
    if row.held_out is not None:
        ax.plot([row.held_out, row.imitation], [y, y], color=colour("line"), linewidth=1.2, zorder=1)
        ax.plot(row.held_out, y, "o", color=_HELD_OUT, markersize=6, zorder=3)
        canvas.mark(ax, row.held_out, y, f"{row.name}, held-out: {row.held_out:.1%}")
    ax.plot(row.imitation, y, "o", color=_IN_SAMPLE, markersize=6, zorder=3)
    canvas.mark(ax, row.imitation, y, f"{row.name}, scored as the paper does: {row.imitation:.1%}")


def _gain(canvas: Canvas, ax: Axes, y: float, row: Glance) -> None:
    points = 100 * row.gain
    ax.plot(points, y, "o", color=_IN_SAMPLE, markersize=6, zorder=3)
    canvas.mark(ax, points, y, f"{row.name}, scored as the paper does, over fixed: {points:+.1f} points")
    if row.fair is None:
        return
    own = 100 * row.fair.mean
    ax.plot([own, points], [y, y], color=colour("line"), linewidth=1.2, zorder=1)
    told = f"{row.name}, held-out, over all alike at the same cost: {own:+.1f} points"
    if row.fair.low is not None and row.fair.high is not None:
        low, high = 100 * row.fair.low, 100 * row.fair.high
        ax.plot([low, high], [y, y], color=_HELD_OUT, linewidth=2.4, zorder=2)
        told += f" ({low:+.1f} to {high:+.1f})"
    ax.plot(own, y, "o", color=_HELD_OUT, markersize=6, zorder=3)
    canvas.mark(ax, own, y, told)


def _legend(canvas: Canvas) -> None:
    left = canvas.axes[0]
    handles = [
        left.plot([], [], "o", color=_IN_SAMPLE, markersize=6, label="scored as the paper does")[0],
        left.plot([], [], "o-", color=_HELD_OUT, markersize=6, label="held-out")[0],
        left.plot(
            [], [], "|", color=_COMMON, markersize=9, markeredgewidth=2.2, label="always the commonest budget"
        )[0],
    ]
    canvas.figure.legend(handles=handles, loc="outside upper left", ncols=3, handletextpad=0.4)


def _alt(rows: Sequence[Glance]) -> str:
    told = [
        f"{row.name}: imitation {row.imitation:.0%} scored as the paper does, {row.held_out:.0%} held-out, "
        f"{row.held_out_commonest:.0%} by the commonest budget"
        for row in rows
        if row.held_out is not None
    ]
    return "; ".join(told) or "the paper's own settings alone"


def _data(row: Glance) -> dict[str, object]:
    return {
        "scored as the paper does": {
            "imitation": row.imitation,
            "commonest": row.commonest,
            "gain_over_fixed": row.gain,
        },
        "held-out": {
            "imitation": row.held_out,
            "commonest": row.held_out_commonest,
            "gain_over_all_alike": row.fair,
        },
    }
