"""Accuracy by output tokens a request. Knows nothing of how it was measured."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.ticker import FixedLocator, NullLocator

from adacompute.evaluate.beyond.lines import Line, measured_by
from adacompute.evaluate.beyond.tokens import Tokens
from adacompute.evaluate.entrants import OURS
from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look
from adacompute.evaluate.figures.samples import accuracy_axis

__all__ = ["draw_tokens"]

_SHOWN = ("fixed", "asc", "esc", "curve", "classifier", "stopping")
_EVERY = 4  # points of a line to a mark


def draw_tokens(found: Tokens, *, key: str = "tokens") -> Picture:
    """As the frontier, in tokens."""
    lines = [line for line in found.lines if line.policy in _SHOWN]
    with Canvas(key, height=3.9) as canvas:
        ax = canvas.axes[0]
        handles: list[Artist] = []
        for line in sorted(lines, key=lambda one: one.policy == OURS):
            own, ours = look(line.policy), line.policy == OURS
            tint = colour(own.colour)
            if ours:
                base = line.accuracy - line.gain
                low, high = base + line.gain_low, base + line.gain_high
                ax.fill_between(line.cost, low, high, color=tint, alpha=0.16, lw=0, zorder=1)
            (drawn,) = ax.plot(
                line.cost, line.accuracy, color=tint, linestyle=own.line, linewidth=2.6 if ours else 1.5,
                zorder=3 if ours else 2, label=own.name,
            )  # fmt: skip
            handles.insert(0, drawn)
            for at in sorted({*range(0, len(line.cost), _EVERY), len(line.cost) - 1}):
                text = f"{own.name} at {line.cost[at]:,.0f} tokens: {line.accuracy[at]:.1%}"
                canvas.mark(ax, line.cost[at], line.accuracy[at], text)
        ticks = found.per_sample * 2.0 ** np.arange(12)
        most = max(float(line.cost[-1]) for line in lines)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks if tick <= most * 1.05]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:.1f}")
        ax.set_xlabel("output tokens a request, on average (ticks: 1, 2, 4, … samples)")
        accuracy_axis(ax, measured_by(found.basis))
        ax.legend(handles=handles, loc="lower right", handlelength=2.4)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="What output tokens buy",
        protocol="held-out, each policy on the hull of its own settings by tokens",
        svg=svg,
        alt=f"{measured_by(found.basis).capitalize()} against output tokens a request, for each policy.",
        caption="The band is the 95% interval, over problems, of the gain over uniform at as many tokens.",
        data=plain({line.policy: _data(line) for line in lines}),
    )


def _data(line: Line) -> dict[str, object]:
    names = ("accuracy", "gain", "gain_low", "gain_high")
    return {"tokens": line.cost} | {name: getattr(line, name) for name in names}
