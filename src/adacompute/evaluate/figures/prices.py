"""An axis of prices: 0, then decades. Knows nothing of what is drawn over it.

Shared by the figures of the solve side, so that the same price stands at the same place in each of them.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

__all__ = ["price_axis", "price_text"]

_LINEAR = 0.005  # below this the axis is linear, so that 0 has a place


def price_axis(axes: Axes, highest: float, *, vertical: bool = False, label: bool = True) -> float:
    """Prices from 0 to a little above `highest`, on x or y; answers the end of the axis."""
    end = max(0.02, highest * 1.3)
    ticks = [at for at in (0.0, 0.01, 0.1, 1.0) if at <= end]
    if vertical:
        axes.set_yscale("symlog", linthresh=_LINEAR, linscale=0.6)
        axes.set_ylim(-_LINEAR / 8, end)
    else:
        axes.set_xscale("symlog", linthresh=_LINEAR, linscale=0.6)
        axes.set_xlim(-_LINEAR / 8, end)
    axis = axes.yaxis if vertical else axes.xaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    if label:
        (axes.set_ylabel if vertical else axes.set_xlabel)("price λ (accuracy per sample)")
    return end


def price_text(price: float) -> str:
    """A price in words' length.

    >>> price_text(0.0123456), price_text(0.0)
    ('0.0123', '0')
    """
    return np.format_float_positional(price, precision=3, fractional=False, trim="-") if price else "0"
