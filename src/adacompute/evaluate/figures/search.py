"""The paper's bisection, step by step, in four panels. Knows nothing of what the price is for."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour
from adacompute.evaluate.figures.prices import price_axis, price_text
from adacompute.evaluate.paper.search import TOLERANCE, Search
from adacompute.evaluate.paper.staircase import Staircase

__all__ = ["draw_search"]

_TINTS = ("blue", "orange", "purple", "green")
_STEPS = 25  # shown: by then every bracket is narrower than the line
_FLOOR = 1e-3  # of the residual's axis


def draw_search(found: Sequence[Search], stairs: Staircase, *, key: str = "search") -> Picture:
    """Brackets of price and cost, the residual, and the prices tried, for each binding average budget."""
    binding = [one for one in found if one.binding]
    tints = [colour(_TINTS[at % len(_TINTS)]) for at in range(len(binding))]
    with Canvas(key, rows=2, columns=2, height=5.6) as canvas:
        prices, costs, residual, visited = canvas.axes
        _prices(prices, binding, tints)
        _costs(canvas, costs, binding, tints)
        _residual(canvas, residual, binding, tints)
        _visited(canvas, visited, binding, tints, stairs)
        for ax in (prices, costs, residual):
            ax.set_xlim(0.5, _STEPS + 0.5)
            ax.set_xticks([1, 5, 10, 15, 20, 25])
            ax.set_xlabel("step")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="The bisection for the price",
        protocol="Bisection on [0, 5], 50 steps, on the paper's windows; the first 25 steps are shown.",
        svg=svg,
        alt=" ".join(_told(one) for one in found),
        caption=(
            "(a) The bracket of prices closes on one value (dashed: its lower end). (b) The costs at its "
            "two ends close on B only as far as the stairs allow; what stays shaded is slack. (c) The "
            f"residual of each price tried, with the tolerance {TOLERANCE:g} that the paper names. (d) The "
            "prices tried, on the staircase."
        ),
        data=plain({f"{one.budget:g}": _data(one) for one in found}),
    )


def _prices(ax: Axes, found: Sequence[Search], tints: Sequence[str]) -> None:
    ax.set_title("(a) bracket of λ")
    price_axis(ax, 5.0 / 1.3, vertical=True, label=False)
    ax.set_ylabel("price λ")
    for one, tint in zip(found, tints, strict=True):
        steps = np.arange(1, len(one.trace.low) + 1)
        ax.fill_between(steps, one.trace.low, one.trace.high, color=tint, alpha=0.12)
        ax.plot(steps, one.trace.high, color=tint, linewidth=1.4)
        ax.plot(steps, one.trace.low, color=tint, linewidth=1.4, linestyle="--")


def _costs(canvas: Canvas, ax: Axes, found: Sequence[Search], tints: Sequence[str]) -> None:
    ax.set_title("(b) cost at its ends")
    ax.set_ylabel("samples on average")
    for one, tint in zip(found, tints, strict=True):
        steps = np.arange(1, len(one.trace.low) + 1)
        ax.fill_between(steps, one.trace.cost_high, one.trace.cost_low, color=tint, alpha=0.15)
        ax.plot(steps, one.trace.cost_low, color=tint, linewidth=1.4, linestyle="--")
        ax.plot(steps, one.trace.cost_high, color=tint, linewidth=1.4)
        ax.axhline(one.budget, color=tint, linewidth=0.8, linestyle=":")
    ends = [
        (_STEPS + 0.5, one.budget, f"B = {one.budget:g}", tint)
        for one, tint in zip(found, tints, strict=True)
    ]
    canvas.label_ends(ax, ends)


def _residual(canvas: Canvas, ax: Axes, found: Sequence[Search], tints: Sequence[str]) -> None:
    ax.set_title("(c) residual")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("|cost − B|, samples")
    for one, tint in zip(found, tints, strict=True):
        missed = np.abs(one.trace.cost - one.budget)[:_STEPS]
        steps = np.arange(1, len(missed) + 1)
        ax.plot(steps, np.maximum(missed, _FLOOR), color=tint, linewidth=1.4, marker="o", markersize=2.6)
        for step, much, price in zip(steps, missed, one.trace.price, strict=False):
            text = f"B = {one.budget:g}, step {step}: λ = {price_text(float(price))}, off by {much:.3f}"
            canvas.mark(ax, float(step), max(float(much), _FLOOR), text)
    ax.axhline(TOLERANCE, color=colour("ink"), linewidth=0.9, linestyle="--")
    ax.annotate(
        f"{TOLERANCE:g}",
        (_STEPS, TOLERANCE),
        xytext=(2, 2),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )


def _visited(
    canvas: Canvas, ax: Axes, found: Sequence[Search], tints: Sequence[str], stairs: Staircase
) -> None:
    ax.set_title("(d) prices tried")
    end = price_axis(ax, float(stairs.price[-1]), label=False)
    ax.set_xlabel("price λ")
    ax.set_ylabel("samples on average")
    ax.step(
        np.append(stairs.price, end),
        np.append(stairs.cost, stairs.cost[-1]),
        where="post",
        color=colour("grey"),
        linewidth=1.2,
    )
    for one, tint in zip(found, tints, strict=True):
        here = one.trace.price <= end
        ax.plot(one.trace.price[here], one.trace.cost[here], "o", color=tint, markersize=3.4)
        for price, cost in zip(one.trace.price[here][:_STEPS], one.trace.cost[here], strict=False):
            text = f"B = {one.budget:g}: at λ = {price_text(float(price))}, {cost:.2f} samples on average"
            canvas.mark(ax, float(price), float(cost), text)


def _told(one: Search) -> str:
    if not one.binding:
        return f"B = {one.budget:g} is not binding: at price 0 the oracle spends {one.cost:.2f}."
    return f"For B = {one.budget:g} it ends at price {price_text(one.price)} and {one.cost:.3f} samples."


def _data(one: Search) -> dict[str, object]:
    names = ("low", "high", "price", "cost", "cost_low", "cost_high")
    steps = {name: getattr(one.trace, name) for name in names}
    return {"binding": one.binding, "price": one.price, "cost": one.cost, "steps": steps}
