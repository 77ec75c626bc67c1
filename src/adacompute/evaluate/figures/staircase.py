"""C̄(λ): the oracle's average cost falls, stair by stair, as the price rises. Knows not how it was come by."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour
from adacompute.evaluate.figures.prices import price_axis, price_text
from adacompute.evaluate.paper.search import Search
from adacompute.evaluate.paper.staircase import Staircase, Staircases

__all__ = ["draw_staircase"]

_MARKS = 60  # of one staircase


def draw_staircase(stairs: Staircases, targets: Sequence[Search] = (), *, key: str = "staircase") -> Picture:
    """Both staircases, and the average budgets that were looked for."""
    both = ((stairs.exact, "blue", "all subsets"), (stairs.windows, "orange", "the paper's windows"))
    highest = max(float(one.price[-1]) for one, _, _ in both)
    with Canvas(key, height=3.3) as canvas:
        ax = canvas.axes[0]
        end = price_axis(ax, highest)
        for target in targets:
            ax.axhline(target.budget, color=colour("dim"), linewidth=0.8, linestyle=":", zorder=1)
        canvas.label_ends(ax, [(end, one.budget, f"B = {one.budget:g}", colour("dim")) for one in targets])
        for one, tint, name in both:
            x, y = np.append(one.price, end), np.append(one.cost, one.cost[-1])
            ax.step(x, y, where="post", color=colour(tint), linewidth=1.6, label=name)
            _mark(canvas, one, name)
        ax.legend(loc="upper right")
        top = max(stairs.exact.free, stairs.windows.free, *(one.budget for one in targets), 2.0)
        ax.set_ylim(0.9, 1.08 * top)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        ax.set_ylabel("samples on average")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Cost falls as the price rises",
        protocol="Oracle on all problems, in-sample; every stair of the table, no grid of prices.",
        svg=svg,
        alt=(
            f"A staircase from {stairs.windows.free:.2f} samples on average at price 0 (the paper's windows; "
            f"{stairs.exact.free:.2f} by all subsets) down to {stairs.windows.cost[-1]:.2f}."
        ),
        caption=(
            "C̄(λ), the average cost of the oracle's budgets at each price. Each stair is a price at which "
            "some problem's next samples stop paying; a B between two stairs is not met by any single price."
        ),
        data=plain(
            {
                name: {"price": one.price, "cost": one.cost}
                for one, name in ((stairs.windows, "windows"), (stairs.exact, "exact"))
            }
        ),
    )


def _mark(canvas: Canvas, stairs: Staircase, name: str) -> None:
    """Stairs that are spread evenly over the fall, each telling its price and cost."""
    fall = np.linspace(stairs.cost[0], stairs.cost[-1], min(_MARKS, len(stairs.cost)))
    for at in np.unique(np.searchsorted(-stairs.cost, -fall)):
        price, cost = float(stairs.price[at]), float(stairs.cost[at])
        text = f"{name}: from λ = {price_text(price)} on, {cost:.2f} samples on average"
        canvas.mark(canvas.axes[0], price, cost, text)
