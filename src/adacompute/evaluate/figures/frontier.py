"""The held-out frontier: every policy, or the few that tell the story. Knows not how it was measured."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from adacompute.evaluate.beyond.frontier import Frontier, OracleLine
from adacompute.evaluate.beyond.headline import number
from adacompute.evaluate.beyond.lines import Line, measured_by, samples_text
from adacompute.evaluate.entrants import OURS, PLAIN
from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import WIDTH, Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import Look, colour, look
from adacompute.evaluate.figures.samples import accuracy_axis, samples_axis
from adacompute.evaluate.rows import Match

__all__ = ["draw_frontier"]

_BAND: Any = {"alpha": 0.16, "lw": 0, "zorder": 1}
_MARKED = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # samples at which values are told
_PUBLISHED = Look(name="published rules", colour="orange")
_TOLD = "samples a request, on average"


def draw_frontier(
    found: Frontier,
    *,
    few: bool = False,
    same: Match | None = None,
    width: float = WIDTH,
    key: str = "frontier",
) -> Picture:
    """Accuracy by average cost. With `few`, a calm picture, so many inches wide; `same` is a match to draw an
    arrow for."""
    return _few(found, same, width, key) if few else _all(found, key)


def _few(found: Frontier, same: Match | None, width: float, key: str) -> Picture:
    alike, ours, rules = found.of(PLAIN), found.of(OURS), found.published
    with Canvas(key, width=width, height=4.1) as canvas:
        ax = canvas.axes[0]
        handles: list[Any] = []
        if ours is not None:
            tint, low = colour(look(OURS).colour), ours.accuracy - ours.gain
            ax.fill_between(ours.cost, low + ours.gain_low, low + ours.gain_high, color=tint, **_BAND)
            handles.append(_drawn(canvas, ax, ours, look(OURS), wide=True))
        if found.oracle is not None:
            handles.append(_bracket(canvas, ax, found.oracle))
        for line, own in ((rules, _PUBLISHED), (alike, look(PLAIN))):
            if line is not None:
                handles.append(_drawn(canvas, ax, line, own, wide=False))
        if same is not None:
            _arrow(ax, same, [line for line in (alike, rules) if line is not None], found)
        _axes(ax, found)
        ax.legend(handles=handles, loc="upper left", handlelength=2.4, labelspacing=0.5, borderaxespad=0.2)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="What an average number of samples buys",
        protocol=_protocol(found),
        svg=svg,
        alt=_alt(found, same),
        caption=_caption(found, few=True),
        data=plain(_data(found, [line for line in (alike, ours, rules) if line is not None])),
    )


def _all(found: Frontier, key: str) -> Picture:
    shown = sorted(found.lines, key=lambda one: one.policy == OURS)  # ours on top
    with Canvas(key, rows=2, height=7.0, sharex=True, height_ratios=(1.15, 1)) as canvas:
        upper, lower = canvas.axes
        if found.oracle is not None:
            _bracket(canvas, upper, found.oracle)
        for line in shown:
            own = look(line.policy)
            _drawn(canvas, upper, line, own, wide=line.policy == OURS)
            if line.policy != PLAIN:
                _gain(canvas, lower, line, own)
        lower.axhline(0.0, color=colour("ink"), linewidth=1.4, linestyle="--", zorder=1.5)
        _axes(upper, found)
        upper.set_xlabel("")
        upper.set_title(measured_by(found.basis))
        lower.set_title("gain over uniform at the same cost")
        samples_axis(lower, found.longest, _TOLD)
        lower.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}" if abs(value) > 1e-9 else "0")
        lower.set_ylabel("points")
        _legend(canvas, upper, found)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Every policy at every average cost",
        protocol=_protocol(found),
        svg=svg,
        alt=_alt(found, None),
        caption=_caption(found, few=False),
        data=plain(_data(found, found.lines)),
    )


def _drawn(canvas: Canvas, ax: Axes, line: Line, own: Look, *, wide: bool) -> Artist:
    (drawn,) = ax.plot(
        line.cost, line.accuracy, zorder=3 if wide else 2, label=own.name, **_style(own, wide=wide)
    )
    for at in _marked(line.cost):
        text = f"{own.name} at {samples_text(line.cost[at])}: {line.accuracy[at]:.1%}"
        text += f" ({line.low[at]:.1%} to {line.high[at]:.1%})"
        if math.isfinite(line.gain[at]) and line.policy != PLAIN:
            text += f", {100 * line.gain[at]:+.1f} points over uniform"
        canvas.mark(ax, line.cost[at], line.accuracy[at], text)
    return drawn


def _gain(canvas: Canvas, ax: Axes, line: Line, own: Look) -> None:
    ours = line.policy == OURS
    if ours or line.policy == "classifier":
        tint = colour(own.colour)
        ax.fill_between(line.cost, line.gain_low, line.gain_high, color=tint, **_BAND)
    ax.plot(line.cost, line.gain, zorder=3 if ours else 2, **_style(own, wide=ours))
    for at in _marked(line.cost):
        low, high = 100 * line.gain_low[at], 100 * line.gain_high[at]
        text = f"{own.name} at {samples_text(line.cost[at])}: {100 * line.gain[at]:+.1f} points "
        canvas.mark(ax, line.cost[at], line.gain[at], f"{text}({low:+.1f} to {high:+.1f})")


def _bracket(canvas: Canvas, ax: Axes, oracle: OracleLine) -> Artist:
    """The oracle's band, or its one line where the other end can't be told."""
    tint, name = colour("green"), look("oracle").name
    drawn: Artist
    if oracle.low is None:
        (drawn,) = ax.plot(oracle.cost, oracle.high, color=tint, linestyle="--", linewidth=1.4, label=name)
    else:
        drawn = ax.fill_between(
            oracle.cost, oracle.low, oracle.high, color=tint, alpha=0.35, lw=0, zorder=1, label=name
        )
    for at in _marked(oracle.cost):
        low = "" if oracle.low is None else f"{oracle.low[at]:.1%} cross-fitted, "
        text = f"{name} at {samples_text(oracle.cost[at])}: {low}{oracle.high[at]:.1%} in-sample"
        canvas.mark(ax, oracle.cost[at], oracle.high[at], text)
    return drawn


def _arrow(ax: Axes, same: Match, below: Sequence[Line], found: Frontier) -> None:
    """From what uniform takes to what ours takes, at the same height; its words lie below all lines."""
    worth = math.inf if same.worth is None else same.worth.mean
    if not math.isfinite(worth) or worth <= 1.05 * same.cost:
        return
    height, ink = same.accuracy, colour("ink")
    style = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.3, "mutation_scale": 11}
    ends = {"shrinkA": 0, "shrinkB": 3}
    ax.annotate("", (same.cost, height), xytext=(worth, height), arrowprops=style | ends, zorder=4)
    ax.plot([worth], [height], marker="o", markersize=4.5, color=ink, linestyle="", zorder=4)
    what = "accuracy" if found.basis == "accuracy" else "agreement"
    words = f"{number(same.cost)} samples instead of {number(worth)}:"
    words += f"\nsame {what}, {1 - same.cost / worth:.0%} less"
    lowest = [float(np.interp(found.longest / 2.4, one.cost, one.accuracy)) for one in below]
    ax.annotate(
        words,
        (found.longest, min([height, *lowest])),
        xytext=(2, -14),
        textcoords="offset points",
        ha="right",
        va="top",
        color=ink,
        fontweight="bold",
        linespacing=1.35,
        zorder=5,
    )


def _axes(ax: Axes, found: Frontier) -> None:
    samples_axis(ax, found.longest, _TOLD)
    accuracy_axis(ax, measured_by(found.basis))


def _legend(canvas: Canvas, ax: Axes, found: Frontier) -> None:
    """One for both panels, beside them: so many lines meet at their ends, where labels would."""
    lines = sorted(found.lines, key=lambda one: -float(np.interp(4.0, one.cost, one.accuracy)))
    handles: list[Any] = [
        ax.plot([], [], **_style(look(one.policy), wide=one.policy == OURS))[0] for one in lines
    ]
    names = [look(one.policy).name for one in lines]
    if found.oracle is not None:
        handles.insert(0, ax.fill_between([], [], [], color=colour("green"), alpha=0.35, lw=0))
        names.insert(0, look("oracle").name)
    canvas.figure.legend(handles, names, loc="outside upper left", ncols=4, handlelength=2.4)


def _style(own: Look, *, wide: bool) -> dict[str, Any]:
    return {"color": colour(own.colour), "linestyle": own.line, "linewidth": 2.6 if wide else 1.5}


def _marked(cost: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    """Where a line tells its values: at round numbers of samples, and at its end."""
    found = {len(cost) - 1}
    for samples in _MARKED:
        at = int(np.abs(cost - samples).argmin())
        if abs(cost[at] - samples) < 1e-3:
            found.add(at)
    return sorted(found)


def _protocol(found: Frontier) -> str:
    votes = "weighted" if found.weighted else "plain"
    return (
        f"held-out: {found.problems:,} problems, {found.folds} folds, {votes} votes; each policy on the hull "
        "of its own settings"
    )


def _caption(found: Frontier, *, few: bool) -> str:
    text = "Bands are 95% intervals, over problems, of the gain over uniform at the same cost. "
    if few:
        text += "Published rules: the best mix of uniform, Adaptive-Consistency, ESC and doubling. "
    if found.oracle is not None:
        choices = ", ".join(map(str, found.oracle.choices))
        text += f"The one-shot oracle knows the answers and gives each problem {choices} samples beforehand"
        ends = ": its band is from cross-fitted up to in-sample." if found.oracle.low is not None else "."
        text += ends
        if found.oracle.why:
            text += " Only its in-sample end can be told here."
    return text.strip()


def _alt(found: Frontier, same: Match | None) -> str:
    names = ", ".join(look(one.policy).name for one in found.lines)
    what = measured_by(found.basis).capitalize()
    text = f"{what} against samples on average, 1 to {found.longest}, for {names}."
    if same is not None and same.worth is not None and math.isfinite(same.worth.mean):
        text += (
            f" At {number(same.cost)} samples on average {same.policy} is as good as {same.worth.mean:.1f} "
            "for all alike."
        )
    return text


def _data(found: Frontier, lines: Sequence[Line]) -> dict[str, Any]:
    names = ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high")
    data: dict[str, Any] = {one.policy: {name: getattr(one, name) for name in names} for one in lines}
    if found.oracle is not None:
        data["oracle"] = {
            "choices": found.oracle.choices,
            "cost": found.oracle.cost,
            "cross-fitted": found.oracle.low,
            "in-sample": found.oracle.high,
        }
    return data
