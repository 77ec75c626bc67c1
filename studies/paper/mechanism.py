"""How one price makes many different decisions: every problem's budget by price, and one problem's choice.

Exact: a problem's budget changes at the slopes of its own hull. Also the axis of prices that the figures
share, and which problems are drawn where a pool has too many.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from adacompute.report.canvas import colour
from adacompute.report.document import Picture, to_plain
from adacompute.solve.hull import compute_slopes
from studies.canvas import LabelledCanvas, ramp
from studies.paper.paper_pool import PaperPool

__all__ = [
    "Mechanism",
    "compute_mechanism",
    "describe_sample",
    "draw_mechanism",
    "draw_price_axis",
    "format_price",
    "sample_rows",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_GRID = 120  # prices
_SMALLEST_PRICE = 1e-3  # the smallest price looked at, but for 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceRegime:
    """One problem at one price."""

    price: float
    net: Floats  # (budgets,) accuracy less price times samples
    best: int  # column of the most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExampleProblem:
    """The problem with most to gain among those whose budget changes most often."""

    row: int
    problem: str  # its id
    accuracy: Floats  # (budgets,)
    turns: tuple[tuple[float, int], ...]  # price from which on, and the budget it falls to; rising prices
    regimes: tuple[PriceRegime, ...]  # up to three, at rising prices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mechanism:
    """The oracle at every price."""

    budgets: tuple[int, ...]
    prices: Floats = field(repr=False)  # (prices,) rising, from 0
    chosen: Ints = field(repr=False)  # (problems, prices) columns
    shares: Floats = field(repr=False)  # (prices, budgets) of all problems
    single: Floats = field(repr=False)  # (problems,) accuracy of one sample
    critical: Floats = field(repr=False)  # (budgets - 1, problems) the price that ends each step up
    shown: ExampleProblem | None  # None: no problem's vote ever gains


def compute_mechanism(case: PaperPool) -> Mechanism:
    """Every problem's budget at every price, by the paper's windows."""
    table = case.windows
    critical = compute_slopes(np.asarray(table.accuracy), np.asarray(table.costs))  # (budgets - 1, problems)
    highest = max(20 * _SMALLEST_PRICE, 1.2 * float(critical.max(initial=0.0)))
    prices = np.append(0.0, np.geomspace(_SMALLEST_PRICE, highest, _GRID))
    chosen = (critical[:, :, None] > prices).sum(axis=0)
    width = len(case.budgets)
    counts = np.stack([np.bincount(column, minlength=width) for column in chosen.T])
    return Mechanism(
        budgets=case.budgets,
        prices=prices,
        chosen=chosen,
        shares=counts / len(case),
        single=table.accuracy[:, 0],
        critical=critical,
        shown=_choose_example(case, critical),
    )


def _choose_example(case: PaperPool, critical: Floats) -> ExampleProblem | None:
    paying = np.where(critical > 0, critical, np.nan)
    edges = [np.unique(row[~np.isnan(row)]) for row in paying.T]  # rising slopes, an edge each
    accuracy = np.asarray(case.windows.accuracy)
    gain = accuracy.max(axis=1) - accuracy[:, 0]
    count = np.array([min(3, len(own)) for own in edges])
    row = int(np.lexsort((-gain, -count))[0])
    if not len(edges[row]):
        return None
    budgets = np.asarray(case.budgets)

    def falls_to(price: float) -> int:
        return int((critical[:, row] > price).sum())

    regimes = []
    for price in _choose_prices(edges[row]):
        net = accuracy[row] - price * budgets
        regimes.append(PriceRegime(price=price, net=net, best=falls_to(price)))
    return ExampleProblem(
        row=row,
        problem=case.ballots.ids[row],
        accuracy=accuracy[row],
        turns=tuple((float(edge), int(budgets[falls_to(float(edge))])) for edge in edges[row]),
        regimes=tuple(regimes),
    )


def _choose_prices(edges: Floats) -> list[float]:
    """Choose up to three prices with different budgets: below, between and above the edges."""
    result = [float(edges[0]) / 2]
    if len(edges) > 1:
        at = len(edges) // 2
        result.append(float(np.sqrt(edges[at - 1] * edges[at])))
    return [*result, float(edges[-1]) * 1.3]


_MAX_DRAWN = 1500  # problems
_SEED = 0xC20D


def sample_rows(problems: int, most: int = _MAX_DRAWN) -> npt.NDArray[np.int64]:
    """The rows to draw, rising: all, or a fixed random sample of `most`.

    >>> len(sample_rows(40)), len(sample_rows(40_000))
    (40, 1500)
    """
    if problems <= most:
        return np.arange(problems)
    return np.sort(np.random.default_rng(_SEED).choice(problems, most, replace=False))


def describe_sample(problems: int, most: int = _MAX_DRAWN) -> str:
    """What a caption says of the sample: nothing where all are drawn, else a sentence after a space."""
    if problems <= most:
        return ""
    return f" Of the {problems:,} problems a random {most:,} are drawn one by one; all else is of all."


_LINEAR = 0.005  # below this the axis is linear, so that 0 has a place


def draw_price_axis(axes: Axes, highest: float, *, vertical: bool = False, label: bool = True) -> float:
    """Draw an axis of prices from 0 to a little above `highest`, on x or y; returns its end."""
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


def format_price(price: float) -> str:
    """Write a price with three significant digits.

    >>> format_price(0.0123456), format_price(0.0)
    ('0.0123', '0')
    """
    return np.format_float_positional(price, precision=3, fractional=False, trim="-") if price else "0"


_BANDS = ("0–20%", "20–40%", "40–60%", "60–80%", "80–100%")
_BAND = 0.72  # of the room between two budgets: problems lie side by side, by accuracy
_HALF = 0.1  # of the width that half a name in an area takes
_ROOM = 0.07  # of the height that it takes
_TINTS = ("blue", "orange", "purple")


def draw_mechanism(mechanism: Mechanism, *, key: str = "mechanism") -> Picture:
    """Three panels: all trajectories, shares of budgets by price, net values of one problem."""
    with LabelledCanvas(key, rows=2, columns=2, height=6.0, height_ratios=(1.1, 1)) as canvas:
        lines, areas, example_axes = _arrange_panels(canvas)
        _draw_trajectories(canvas, lines, mechanism)
        _draw_areas(canvas, areas, mechanism)
        _draw_net_values(canvas, example_axes, mechanism.shown, mechanism.budgets)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="One price, many decisions",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        svg=svg,
        alt=_describe(mechanism),
        caption=(
            "(a) Every problem's best budget as the price rises, a line each, side by side and coloured by "
            "one-sample accuracy; red: the problem of (c). (b) The share of problems at each budget. (c) One "
            "responsive problem's accuracy less price times samples, at three prices; the triangle is the "
            "best." + describe_sample(len(mechanism.single))
        ),
        data=to_plain(_build_data(mechanism)),
    )


def _arrange_panels(canvas: LabelledCanvas) -> tuple[Axes, Axes, Axes]:
    """One panel as wide as the two below it."""
    left, right, areas, example_axes = canvas.axes
    grid = left.get_gridspec()
    assert grid is not None
    left.remove()
    right.remove()
    return canvas.figure.add_subplot(grid[0, :]), areas, example_axes


def _draw_trajectories(canvas: LabelledCanvas, ax: Axes, mechanism: Mechanism) -> None:
    ax.set_title("(a) each problem")
    end = draw_price_axis(ax, float(mechanism.prices[-1]) / 1.3)
    order = np.argsort(np.argsort(mechanism.single, kind="stable"), kind="stable")
    shift = _BAND * (order / max(1, len(order) - 1) - 0.5)
    band = np.minimum(4, (mechanism.single * 5).astype(int))
    tints = ramp(len(_BANDS))
    some = sample_rows(len(band))
    for at, tint in enumerate(tints):
        rows = some[band[some] == at]
        if not len(rows):
            continue
        paths = [_build_path(mechanism.critical[:, row], float(shift[row]), end) for row in rows]
        x, y = np.concatenate([path[0] for path in paths]), np.concatenate([path[1] for path in paths])
        ax.plot(x, y, color=tint, linewidth=0.5, alpha=0.85)
    if mechanism.shown is not None:
        row = mechanism.shown.row
        x, y = _build_path(mechanism.critical[:, row], float(shift[row]), end)
        ax.plot(x, y, color=colour("red"), linewidth=1.8, zorder=5)
        for price, budget in mechanism.shown.turns:
            level = mechanism.budgets.index(budget) + float(shift[row])
            ax.plot([price], [level], marker="v", color=colour("red"), markersize=5, zorder=6)
            canvas.mark(
                ax, price, level, f"{mechanism.shown.problem}: b = {budget} from λ = {format_price(price)} on"
            )
    ax.set_yticks(range(len(mechanism.budgets)), [str(budget) for budget in mechanism.budgets])
    ax.set_ylim(-0.6, len(mechanism.budgets) - 0.4)
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


def _build_path(
    critical: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", shift: float, end: float
) -> tuple["np.ndarray[tuple[int, ...], np.dtype[np.float64]]", ...]:
    """Build a falling line of steps from price 0 to the end of the axis, ended by a break."""
    turns = np.unique(critical[critical > 0])  # rising
    x = np.concatenate([[0.0], np.repeat(turns, 2), [end, np.nan]])
    level = np.array([(critical > price).sum() for price in np.append(0.0, turns)], dtype=np.float64)
    y = np.append(np.repeat(level, 2) + shift, np.nan)
    return x, y


def _draw_areas(canvas: LabelledCanvas, ax: Axes, mechanism: Mechanism) -> None:
    ax.set_title("(b) all problems")
    draw_price_axis(ax, float(mechanism.prices[-1]) / 1.3)
    tints = ramp(len(mechanism.budgets))
    ax.stackplot(mechanism.prices, mechanism.shares.T, colors=tints, step="post")
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.set_ylabel("share of problems")
    for at in range(0, len(mechanism.prices), 4):
        shares = ", ".join(
            f"b = {b}: {100 * s:.0f}%" for b, s in zip(mechanism.budgets, mechanism.shares[at], strict=True)
        )
        canvas.mark(
            ax, float(mechanism.prices[at]), 0.5, f"λ = {format_price(float(mechanism.prices[at]))}: {shares}"
        )
    _label_areas(ax, mechanism)


def _label_areas(ax: Axes, mechanism: Mechanism) -> None:
    """Write each budget's name where its area is tallest, if there is room for it."""
    tops = np.cumsum(mechanism.shares, axis=1)
    across = ax.xaxis.get_transform().transform(mechanism.prices)  # as wide as drawn
    half = _HALF * (across[-1] - across[0])
    centres = np.linspace(across[0] + half, across[-1] - half, 80)
    windows = [np.flatnonzero(np.abs(across - centre) <= half) for centre in centres]
    for at, budget in enumerate(mechanism.budgets):
        low = np.array([(tops - mechanism.shares)[window, at].max(initial=0.0) for window in windows])
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
            color=colour("page" if at >= (len(mechanism.budgets) - 1) / 2 else "ink"),
        )


def _draw_net_values(
    canvas: LabelledCanvas, ax: Axes, shown: ExampleProblem | None, budgets: tuple[int, ...]
) -> None:
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
                ax, budget, float(net), f"λ = {format_price(regime.price)}, b = {budget}: {net:.3f}{chosen}"
            )
        ends.append((budgets[-1], float(regime.net[-1]), f"λ = {format_price(regime.price)}", colour(tint)))
    canvas.label_ends(ax, ends)


def _describe(mechanism: Mechanism) -> str:
    free = ", ".join(
        f"{100 * share:.0f}% have b = {budget}"
        for budget, share in zip(mechanism.budgets, mechanism.shares[0], strict=True)
    )
    if mechanism.shown is None:
        return f"At price 0, {free}; no problem's vote gains from more samples."
    falls = "; ".join(
        f"from {format_price(price)} on b = {budget}" for price, budget in mechanism.shown.turns
    )
    return f"At price 0, {free}. Problem {mechanism.shown.problem}: {falls}."


def _build_data(mechanism: Mechanism) -> dict[str, object]:
    data: dict[str, object] = {
        "budgets": mechanism.budgets,
        "prices": mechanism.prices,
        "shares": mechanism.shares,  # a row a price, a column a budget
        # a row a problem: one-sample accuracy, and the price from which on each further budget isn't bought
        "problems": {"single": mechanism.single, "until": mechanism.critical.T},
    }
    if mechanism.shown is not None:
        data["problem"] = mechanism.shown.problem
        data["turns"] = [{"price": price, "budget": budget} for price, budget in mechanism.shown.turns]
        data["regimes"] = [
            {"price": regime.price, "net": regime.net, "best": mechanism.budgets[regime.best]}
            for regime in mechanism.shown.regimes
        ]
    return data
