"""Shares as bars parted by colour, one a row. Knows nothing of what is shared out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.evaluate.figures.canvas import Canvas

__all__ = ["Part", "parted"]

Floats = npt.NDArray[np.float64]
Part = tuple[str, str, str]  # its name, its colour, and that of a number on it

_READABLE = 0.09  # share of a bar that a number fits into


def parted(
    canvas: Canvas, ax: Axes, shares: Floats, *, rows: Sequence[str], parts: Sequence[Part], numbers: str
) -> None:
    """A bar a row of `shares`, (rows, parts); on each part its "share" or its "name"."""
    for row, own in enumerate(shares):
        start = 0.0
        for share, (name, tint, ink) in zip(own, parts, strict=True):
            ax.barh(row, share, left=start, height=0.66, color=tint)
            middle = start + share / 2
            if share > 0:
                canvas.mark(ax, middle, row, f"{rows[row]}: {100 * share:.1f}% {name}")
            if share >= _READABLE:
                text = name if numbers == "name" else f"{100 * share:.0f}"
                ax.text(middle, row, text, color=ink, ha="center", va="center_baseline", fontsize=8)
            start += share
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
