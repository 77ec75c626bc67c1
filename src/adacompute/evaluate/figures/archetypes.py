"""Kinds of accuracy curve: one problem of each, and the groups behind them. Knows not how they were found."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.bars import parted
from adacompute.evaluate.figures.canvas import Canvas, foreign
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.figures.samples import accuracy_axis, samples_axis
from adacompute.evaluate.paper.archetypes import Archetype, Archetypes, Spent

__all__ = ["draw_archetypes", "draw_motivation"]

Floats = npt.NDArray[np.float64]

_TINTS = {"Easy": "green", "Responsive": "blue", "Diminishing": "yellow", "Hard": "red"}
_THIN = 12  # single problems drawn behind a group's mean


def draw_motivation(found: Archetypes, *, key: str = "motivation") -> Picture:
    """One problem of each kind: accuracy by number of samples."""
    with Canvas(key, height=3.4) as canvas:
        ax = canvas.axes[0]
        samples_axis(ax, found.budgets[-1], "samples voted on")
        accuracy_axis(ax, "accuracy of the vote")
        ax.set_ylim(-0.03, 1.04)
        ends = []
        for group in found.groups:
            tint = colour(_TINTS[group.name])
            error = np.nan_to_num(group.error)
            low, high = np.clip(group.curve - error, 0, 1), np.clip(group.curve + error, 0, 1)
            ax.fill_between(found.budgets, low, high, color=tint, alpha=0.15, linewidth=0)
            ax.plot(found.budgets, group.curve, color=tint, marker="o", markersize=4.5, mew=0)
            ends.append((found.budgets[-1], float(group.curve[-1]), group.name, tint))
            for budget, value, own in zip(found.budgets, group.curve, group.error, strict=True):
                sure = f" ± {100 * own:.1f}" if np.isfinite(own) else ""
                text = f"{group.name} ({group.problem}): {100 * value:.1f}%{sure} with {budget}"
                canvas.mark(ax, budget, value, text)
        canvas.label_ends(ax, ends)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Four problems, four curves",
        protocol="Over all subsets of each problem's samples; bands are one standard error (jackknife).",
        svg=svg,
        alt=" ".join(
            f"{group.name}: from {group.curve[0]:.0%} with 1 sample to {group.curve[-1]:.0%} with "
            f"{found.budgets[-1]}."
            for group in found.groups
        ),
        caption="The problem nearest to each group's mean curve: "
        + "; ".join(f"{group.name}, {_named(found, group)}" for group in found.groups)
        + ".",
        data=plain(
            {"budgets": found.budgets, "problems": {group.name: _problem(group) for group in found.groups}}
        ),
    )


def draw_archetypes(found: Archetypes, *, key: str = "archetypes") -> Picture:
    """Mean curves, shares of each recording, and what the oracle gives to whom."""
    rows = 2 if found.oracle is not None else 1
    with Canvas(key, rows=rows, columns=2, height=2.9 * rows) as canvas:
        _curves(canvas, canvas.axes[0], found)
        _mix(canvas, canvas.axes[1], found)
        if found.oracle is not None:
            _spent(canvas, canvas.axes[2], found, found.oracle, "c  oracle, the same samples")
        if found.apart is not None:
            _spent(canvas, canvas.axes[3], found, found.apart, "d  oracle, other samples")
            canvas.axes[3].tick_params(labelleft=False)
        elif rows == 2:
            canvas.axes[3].set_axis_off()
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Kinds of accuracy curve",
        protocol=_protocol(found),
        svg=svg,
        alt=" ".join(
            f"{group.name}: {group.count} problems, from {group.centre[0]:.0%} to {group.centre[-1]:.0%}."
            for group in found.groups
        ),
        caption=_caption(found),
        data=plain(_data(found)),
    )


def _curves(canvas: Canvas, ax: Axes, found: Archetypes) -> None:
    ax.set_title("a  mean curves")
    samples_axis(ax, found.budgets[-1], "samples voted on")
    accuracy_axis(ax)
    ax.set_ylim(-0.03, 1.04)
    for group, curves in zip(found.groups, found.curves, strict=True):
        tint = colour(_TINTS[group.name])
        ax.plot(found.budgets, _some(curves).T, color=tint, alpha=0.16, linewidth=0.8)
    for group in found.groups:
        ax.plot(
            found.budgets,
            group.centre,
            color=colour(_TINTS[group.name]),
            marker="o",
            markersize=4,
            mew=0,
            linewidth=2.4,
        )
        for at, budget in enumerate(found.budgets):
            low, high = group.spread[:, at]
            text = (
                f"{group.name}, {budget} samples: {100 * group.centre[at]:.1f}% on average, "
                f"half of its problems from {100 * low:.0f} to {100 * high:.0f}%"
            )
            canvas.mark(ax, budget, group.centre[at], text)


def _mix(canvas: Canvas, ax: Axes, found: Archetypes) -> None:
    """One recording: a bar a group. Several: a bar a recording."""
    if len(found.cases) > 1:
        ax.set_title("b  shares by recording")
        parts = [(group.name, colour(_TINTS[group.name]), colour("page")) for group in found.groups]
        names = [foreign(name) for name in found.cases]
        parted(canvas, ax, found.shares, rows=names, parts=parts, numbers="share")
        return
    ax.set_title("b  share of the problems")
    for row, (group, share) in enumerate(zip(found.groups, found.shares[0], strict=True)):
        tint = colour(_TINTS[group.name])
        ax.barh(row, share, height=0.66, color=tint)
        ax.annotate(
            f"{100 * share:.0f}%, {group.count}",
            (share, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
            color=tint,
            fontsize=8.5,
        )
        canvas.mark(ax, share / 2, row, f"{group.name}: {group.count} problems, {100 * share:.1f}%")
    ax.set_yticks(range(len(found.groups)), found.names)
    for label, group in zip(ax.get_yticklabels(), found.groups, strict=True):
        label.set_color(colour(_TINTS[group.name]))
    ax.set_ylim(len(found.groups) - 0.45, -0.55)
    ax.set_xlim(0, min(1.0, float(found.shares.max()) * 1.45))
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _spent(canvas: Canvas, ax: Axes, found: Archetypes, spent: Spent, title: str) -> None:
    ax.set_title(title)
    tints = ramp(len(found.budgets))
    inks = [colour("ink" if 2 * at < len(tints) - 1 else "page") for at in range(len(tints))]
    parts = [(str(budget), tint, ink) for budget, tint, ink in zip(found.budgets, tints, inks, strict=True)]
    parted(canvas, ax, spent.shares, rows=found.names, parts=parts, numbers="name")
    for label, name in zip(ax.get_yticklabels(), found.names, strict=True):
        label.set_color(colour(_TINTS[name]))
    ax.set_xlabel("problems, by samples given")


def _protocol(found: Archetypes) -> str:
    told = (
        f"k-means with {len(found.groups)} groups on the accuracy curves of {sum(found.problems)} problems, "
        "over all subsets of their samples."
    )
    if found.oracle is not None:
        told += f" Oracle at B = {found.budget:g}: by the paper's windows of the same samples"
        told += (
            "."
            if found.apart is None
            else "; or groups from one half of the samples, budgets from the other."
        )
    return told


def _caption(found: Archetypes) -> str:
    told = "a: thick, each group's mean; thin, single problems. b: how common each group is."
    if found.oracle is not None:
        told += f" c: samples that the oracle gives at B = {found.budget:g}, by group."
    if found.apart is not None:
        told += (
            " d: the same, the groups told from one half of the samples and the oracle's budgets from the "
            "other, so that no luck is in both."
        )
    return told


def _named(found: Archetypes, group: Archetype) -> str:
    return group.problem if len(found.cases) == 1 else f"{group.problem} of {group.case}"


def _problem(group: Archetype) -> dict[str, Any]:
    return {
        "case": group.case,
        "problem": group.problem,
        "accuracy": group.curve,
        "standard_error": group.error,
    }


def _some(curves: Floats) -> Floats:
    """A few problems of a group, evenly taken, (some, budgets)."""
    return curves[np.linspace(0, len(curves) - 1, min(_THIN, len(curves))).astype(np.int64)]


def _data(found: Archetypes) -> dict[str, Any]:
    groups = {
        group.name: {
            "problems": group.count,
            "accuracy": group.centre,
            "lower_quarter": group.spread[0],
            "upper_quarter": group.spread[1],
            "some_problems": _some(curves),
            "doubt": group.doubt or None,
        }
        for group, curves in zip(found.groups, found.curves, strict=True)
    }
    return {
        "budgets": found.budgets,
        "groups": groups,
        "shares": {
            name: dict(zip(found.names, own, strict=True))
            for name, own in zip(found.cases, found.shares, strict=True)
        },
        "oracle": _given(found, found.oracle),
        "apart": _given(found, found.apart),
    }


def _given(found: Archetypes, spent: Spent | None) -> dict[str, Any] | None:
    return None if spent is None else dict(zip(found.names, spent.shares, strict=True))
