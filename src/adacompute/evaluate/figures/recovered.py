"""Shares of the oracle's gain, a small panel for each policy. Knows nothing of how they were come by."""

from typing import Any

from matplotlib.axes import Axes

from adacompute.evaluate.beyond.recovered import Recovered, Shares
from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look

__all__ = ["draw_recovered"]

_SHOWN = ("stopping", "asc", "esc", "curve", "classifier", "heuristic")
_FLOOR, _CEILING = -1.2, 2.2  # shares beyond are drawn at the edge


def draw_recovered(found: Shares, *, key: str = "recovered") -> Picture:
    """From the share of the in-sample gain to that of the cross-fitted one, at each budget."""
    names = [name for name in _SHOWN if name in found.policies]
    columns = min(3, len(names))
    rows = -(-len(names) // max(1, columns))
    with Canvas(
        key, rows=rows, columns=columns, height=0.5 + 1.95 * rows, sharex=True, sharey=True
    ) as canvas:
        for ax, name in zip(canvas.axes, names, strict=False):
            _panel(canvas, ax, found, name)
        for ax in canvas.axes[len(names) :]:
            ax.set_visible(False)
        for ax in canvas.axes[::columns]:
            ax.set_ylabel("share of the gain")
        for ax in canvas.axes[-columns:]:
            ax.set_xlabel("samples on average")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Share of the oracle's gain over uniform",
        protocol="held-out, matched cost; the oracle in-sample and cross-fitted",
        svg=svg,
        alt="For each policy, which share of the one-shot oracle's gain over uniform it has at each budget.",
        caption=(
            "0% is uniform, 100% the one-shot oracle. The thick part is from the share of the in-sample gain "
            "to that of the cross-fitted gain, the thin one adds the 95% interval over problems. Above 100% "
            "is possible for those who look at votes as they come in; what is below -120% is drawn there."
        ),
        data=plain(
            {name: [_data(one) for one in found.rows if one.policy == name] for name in found.policies}
        ),
    )


def _panel(canvas: Canvas, ax: Axes, found: Shares, name: str) -> None:
    own = look(name)
    tint = colour(own.colour)
    ax.axhline(0.0, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
    ax.axhline(1.0, color=colour("green"), linewidth=1.2, zorder=1)
    for at, budget in enumerate(found.budgets):
        one = found.of(name, budget)
        ends = [] if one is None else [end for end in (one.of_high, one.of_low) if end is not None]
        if one is None or not ends:
            continue
        means = [end.mean for end in ends]
        low = min(end.mean if end.low is None else end.low for end in ends)
        high = max(end.mean if end.high is None else end.high for end in ends)
        ax.plot([at, at], [_within(low), _within(high)], color=tint, linewidth=1.2, zorder=2)
        ax.plot([at, at], [_within(min(means)), _within(max(means))], color=tint, linewidth=6.0, zorder=3)
        ax.plot([at], [_within(means[0])], marker="o", markersize=5, color=tint, zorder=4)
        text = f"{own.name} at {budget:g}: {_said(one)}"
        for mean in means:
            canvas.mark(ax, at, _within(mean), text)
    ax.set_title(own.name, color=tint)
    ax.set_xticks(range(len(found.budgets)), [f"{budget:g}" for budget in found.budgets])
    ax.set_xlim(-0.6, len(found.budgets) - 0.4)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.grid(visible=False, axis="x")


def _within(share: float) -> float:
    return min(_CEILING, max(_FLOOR, share))


def _said(one: Recovered) -> str:
    parts = []
    for end, name in ((one.of_high, "in-sample"), (one.of_low, "cross-fitted")):
        if end is not None:
            ends = "" if end.low is None or end.high is None else f" ({end.low:.0%} to {end.high:.0%})"
            parts.append(f"{end.mean:.0%}{ends} of the {name} gain")
    return ", ".join(parts)


def _data(one: Recovered) -> dict[str, Any]:
    return {"budget": one.budget, "cross-fitted": one.of_low, "in-sample": one.of_high}
