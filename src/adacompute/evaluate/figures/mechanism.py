"""One price, many decisions: every problem's budget, all together, and one problem's choice.

Knows nothing of how budgets were come by.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.crowd import picked, picked_words
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.figures.prices import price_axis, price_text
from adacompute.evaluate.paper.mechanism import Mechanism, Shown

__all__ = ["draw_mechanism"]

_BANDS = ("0–20%", "20–40%", "40–60%", "60–80%", "80–100%")
_BAND = 0.72  # of the room between two budgets: problems lie side by side, by accuracy
_HALF = 0.1  # of the width that half a name in an area takes
_ROOM = 0.07  # of the height that it takes
_TINTS = ("blue", "orange", "purple")


def draw_mechanism(found: Mechanism, *, key: str = "mechanism") -> Picture:
    """Three panels: all trajectories, shares of budgets by price, net values of one problem."""
    with Canvas(key, rows=2, columns=2, height=6.0, height_ratios=(1.1, 1)) as canvas:
        lines, areas, one = _wide(canvas)
        _trajectories(canvas, lines, found)
        _areas(canvas, areas, found)
        _net(canvas, one, found.shown, found.budgets)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="One price, many decisions",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        svg=svg,
        alt=_alt(found),
        caption=(
            "(a) Every problem's best budget as the price rises, a line each, side by side and coloured by "
            "one-sample accuracy; red: the problem of (c). (b) The share of problems at each budget. (c) One "
            "responsive problem's accuracy less price times samples, at three prices; the triangle is the "
            "best." + picked_words(len(found.single))
        ),
        data=plain(_data(found)),
    )


def _wide(canvas: Canvas) -> tuple[Axes, Axes, Axes]:
    """One panel as wide as the two below it."""
    left, right, areas, one = canvas.axes
    grid = left.get_gridspec()
    assert grid is not None
    left.remove()
    right.remove()
    return canvas.figure.add_subplot(grid[0, :]), areas, one


def _trajectories(canvas: Canvas, ax: Axes, found: Mechanism) -> None:
    ax.set_title("(a) each problem")
    end = price_axis(ax, float(found.prices[-1]) / 1.3)
    order = np.argsort(np.argsort(found.single, kind="stable"), kind="stable")
    shift = _BAND * (order / max(1, len(order) - 1) - 0.5)
    band = np.minimum(4, (found.single * 5).astype(int))
    tints = ramp(len(_BANDS))
    some = picked(len(band))
    for at, tint in enumerate(tints):
        rows = some[band[some] == at]
        if not len(rows):
            continue
        paths = [_path(found.critical[:, row], float(shift[row]), end) for row in rows]
        x, y = np.concatenate([path[0] for path in paths]), np.concatenate([path[1] for path in paths])
        ax.plot(x, y, color=tint, linewidth=0.5, alpha=0.85)
    if found.shown is not None:
        row = found.shown.row
        x, y = _path(found.critical[:, row], float(shift[row]), end)
        ax.plot(x, y, color=colour("red"), linewidth=1.8, zorder=5)
        for price, budget in found.shown.turns:
            level = found.budgets.index(budget) + float(shift[row])
            ax.plot([price], [level], marker="v", color=colour("red"), markersize=5, zorder=6)
            canvas.mark(
                ax, price, level, f"{found.shown.problem}: b = {budget} from λ = {price_text(price)} on"
            )
    ax.set_yticks(range(len(found.budgets)), [str(budget) for budget in found.budgets])
    ax.set_ylim(-0.6, len(found.budgets) - 0.4)
    ax.set_ylabel("budget b*")
    ax.grid(visible=False, axis="y")
    ax.legend(
        [Line2D([], [], color=tint, linewidth=2.4) for tint in tints],
        ["one sample: " * (not at) + name for at, name in enumerate(_BANDS)],
        loc="lower right",
        bbox_to_anchor=(1.0, 0.99),
        ncols=len(_BANDS),
        fontsize=8,
        columnspacing=0.9,
        handlelength=1.0,
        handletextpad=0.4,
        borderpad=0.0,
    )


def _path(
    critical: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", shift: float, end: float
) -> tuple["np.ndarray[tuple[int, ...], np.dtype[np.float64]]", ...]:
    """A falling line of steps, ended by a break: from price 0 to the axis' end."""
    turns = np.unique(critical[critical > 0])  # rising
    x = np.concatenate([[0.0], np.repeat(turns, 2), [end, np.nan]])
    level = np.array([(critical > price).sum() for price in np.append(0.0, turns)], dtype=np.float64)
    y = np.append(np.repeat(level, 2) + shift, np.nan)
    return x, y


def _areas(canvas: Canvas, ax: Axes, found: Mechanism) -> None:
    ax.set_title("(b) all problems")
    price_axis(ax, float(found.prices[-1]) / 1.3)
    tints = ramp(len(found.budgets))
    ax.stackplot(found.prices, found.shares.T, colors=tints, step="post")
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.set_ylabel("share of problems")
    for at in range(0, len(found.prices), 4):
        shares = ", ".join(
            f"b = {b}: {100 * s:.0f}%" for b, s in zip(found.budgets, found.shares[at], strict=True)
        )
        canvas.mark(ax, float(found.prices[at]), 0.5, f"λ = {price_text(float(found.prices[at]))}: {shares}")
    _inside(ax, found)


def _inside(ax: Axes, found: Mechanism) -> None:
    """Each budget's name where its area is tallest over the name's width, if there is room for it."""
    tops = np.cumsum(found.shares, axis=1)
    across = ax.xaxis.get_transform().transform(found.prices)  # as wide as drawn
    half = _HALF * (across[-1] - across[0])
    centres = np.linspace(across[0] + half, across[-1] - half, 80)
    windows = [np.flatnonzero(np.abs(across - centre) <= half) for centre in centres]
    for at, budget in enumerate(found.budgets):
        low = np.array([(tops - found.shares)[window, at].max(initial=0.0) for window in windows])
        high = np.array([tops[window, at].min(initial=1.0) for window in windows])
        place = int((high - low).argmax())
        if high[place] - low[place] < _ROOM:
            continue
        ax.text(
            float(ax.xaxis.get_transform().inverted().transform(centres[place : place + 1])[0]),
            (low[place] + high[place]) / 2,
            f"b = {budget}",
            ha="center",
            va="center",
            fontsize=8.5,
            color=colour("page" if at >= (len(found.budgets) - 1) / 2 else "ink"),
        )


def _net(canvas: Canvas, ax: Axes, shown: Shown | None, budgets: tuple[int, ...]) -> None:
    ax.set_title("(c) one problem")
    ax.set_xlabel("budget b, samples")
    ax.set_ylabel("accuracy − λ·b")
    ax.set_xscale("log", base=2)
    ax.set_xticks(budgets, [str(budget) for budget in budgets])
    ax.minorticks_off()
    if shown is None:
        ax.text(0.5, 0.5, "no problem's vote gains", transform=ax.transAxes, ha="center", fontsize=8.5)
        return
    ends = []
    for regime, tint in zip(shown.regimes, _TINTS, strict=False):
        ax.plot(budgets, regime.net, color=colour(tint), marker="o", markersize=3)
        best = regime.best
        ax.plot([budgets[best]], [regime.net[best]], marker="^", markersize=8, color=colour(tint), zorder=5)
        for budget, net in zip(budgets, regime.net, strict=True):
            chosen = ", the best" if budget == budgets[best] else ""
            canvas.mark(
                ax, budget, float(net), f"λ = {price_text(regime.price)}, b = {budget}: {net:.3f}{chosen}"
            )
        ends.append((budgets[-1], float(regime.net[-1]), f"λ = {price_text(regime.price)}", colour(tint)))
    canvas.label_ends(ax, ends)


def _alt(found: Mechanism) -> str:
    free = ", ".join(
        f"{100 * share:.0f}% have b = {budget}"
        for budget, share in zip(found.budgets, found.shares[0], strict=True)
    )
    if found.shown is None:
        return f"At price 0, {free}; no problem's vote gains from more samples."
    falls = "; ".join(f"from {price_text(price)} on b = {budget}" for price, budget in found.shown.turns)
    return f"At price 0, {free}. Problem {found.shown.problem}: {falls}."


def _data(found: Mechanism) -> dict[str, object]:
    data: dict[str, object] = {
        "budgets": found.budgets,
        "prices": found.prices,
        "shares": found.shares,  # a row a price, a column a budget
        # a row a problem: one-sample accuracy, and the price from which on each further budget isn't bought
        "problems": {"single": found.single, "until": found.critical.T},
    }
    if found.shown is not None:
        data["problem"] = found.shown.problem
        data["turns"] = [{"price": price, "budget": budget} for price, budget in found.shown.turns]
        data["regimes"] = [
            {"price": regime.price, "net": regime.net, "best": found.budgets[regime.best]}
            for regime in found.shown.regimes
        ]
    return data
