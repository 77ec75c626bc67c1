"""Coarse, default and fine sets of budgets: frontiers, labels, oracles. Knows not how they were come by."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.figures.samples import accuracy_axis, samples_axis
from adacompute.evaluate.paper.granularity import Granularity, Tier
from adacompute.evaluate.paper.pareto import Curve

__all__ = ["draw_granularity"]

_COLOURS = {"coarse": "yellow", "default": "blue", "fine": "purple"}
_WIDTHS = {"coarse": 1.8, "default": 2.6, "fine": 1.4}  # default and fine lie on one another: both show
_READABLE = 0.07  # share of a bar that a number fits into


def draw_granularity(found: Granularity, *, key: str = "granularity") -> Picture:
    """Four panels: frontiers as the paper scores, and held-out; labels; the oracle by number of budgets."""
    with Canvas(key, rows=2, columns=2, height=6.0) as canvas:
        first, second, third, fourth = canvas.axes
        most = max(float(curve.cost.max()) for tier in found.tiers for curve in _curves(tier))
        for ax, title in ((first, "a  scored as the paper does"), (second, "b  held-out")):
            ax.set_title(title)
            samples_axis(ax, most, "samples spent on average")
        second.sharey(first)
        accuracy_axis(first)
        second.tick_params(labelleft=False)
        for tier in found.tiers:
            _frontier(canvas, first, tier, tier.oracle, tier.paper)
            _frontier(canvas, second, tier, tier.halved, tier.held_out)
        _labels(canvas, third, found)
        _by_count(canvas, fourth, found)
        _legend(canvas, first, found)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="How fine the set of budgets should be",
        protocol=_protocol(found),
        svg=svg,
        alt=f"Frontiers, labels and oracle's accuracy of {len(found.tiers)} budget sets for {found.name}.",
        caption=(
            "a, b: solid, the classifier; dashed, the oracle (a: in-sample, b: cross-fitted). c: which "
            f"budgets the oracle gives at B = {found.at:g}. d: the accuracy there, in-sample by windows "
            "and over all subsets (exact), and cross-fitted, with what each finer set adds in points; with "
            "more budgets the in-sample values gain from luck as well."
        ),
        data=plain(_data(found)),
    )


def _frontier(canvas: Canvas, ax: Axes, tier: Tier, oracle: Curve | None, learned: Curve) -> None:
    style: dict[str, Any] = {"color": colour(_COLOURS[tier.name]), "linewidth": _WIDTHS[tier.name]}
    if oracle is not None:
        ax.plot(oracle.cost, oracle.accuracy, **style | {"linestyle": "--", "linewidth": 1.3})
        for budget, cost, accuracy in list(zip(oracle.budget, oracle.cost, oracle.accuracy, strict=True))[
            ::2
        ]:
            text = f"oracle, {tier.name}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
            canvas.mark(ax, cost, accuracy, text)
    order = learned.cost.argsort(kind="stable")
    ax.plot(learned.cost[order], learned.accuracy[order], marker="o", markersize=3.5, mew=0, **style)
    for budget, cost, accuracy in zip(learned.budget, learned.cost, learned.accuracy, strict=True):
        text = f"classifier, {tier.name}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
        canvas.mark(ax, cost, accuracy, text)


def _curves(tier: Tier) -> list[Curve]:
    return [curve for curve in (tier.oracle, tier.halved, tier.paper, tier.held_out) if curve is not None]


def _labels(canvas: Canvas, ax: Axes, found: Granularity) -> None:
    """A bar a set, parted by the oracle's budgets; the same budget has the same colour in each."""
    every = sorted({budget for tier in found.tiers for budget in tier.budgets})
    tints = dict(zip(every, ramp(len(every)), strict=True))
    for row, tier in enumerate(found.tiers):
        start = 0.0
        for budget, share in zip(tier.budgets, tier.labels, strict=True):
            ax.barh(row, share, left=start, height=0.62, color=tints[budget])
            middle = start + share / 2
            if share:
                canvas.mark(ax, middle, row, f"{tier.name}: {budget} samples for {100 * share:.1f}%")
            if share >= _READABLE:
                tint = colour("ink" if every.index(budget) < len(every) / 2 else "page")
                ax.text(middle, row, f"{budget}", color=tint, ha="center", va="center", fontsize=8.5)
            start += share
    ax.set_yticks(range(len(found.tiers)), [tier.name for tier in found.tiers])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.set_xlabel("problems")
    ax.set_title(f"c  samples the oracle gives, B = {found.at:g}")


def _by_count(canvas: Canvas, ax: Axes, found: Granularity) -> None:
    counts = [len(tier.budgets) for tier in found.tiers]
    kinds: dict[str, tuple[Sequence[float | None], str, str]] = {
        "by windows": ([tier.windows for tier in found.tiers], "red", "-"),
        "exact": ([tier.exact for tier in found.tiers], "green", "--"),
        "cross-fitted": ([tier.crossfitted for tier in found.tiers], "green", "-"),
    }
    ends = []
    for name, (values, tint, line) in kinds.items():
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        ax.plot(counts, known, color=colour(tint), linestyle=line, marker="o", markersize=4, mew=0)
        ends.append((counts[-1], known[-1], name, colour(tint)))
        for count, value in zip(counts, known, strict=True):
            canvas.mark(ax, count, value, f"{count} budgets, {name}: {100 * value:.1f}%")
    canvas.label_ends(ax, ends)
    _steps(ax, found)
    ax.set_xticks(counts, [f"{count}\n{tier.name}" for count, tier in zip(counts, found.tiers, strict=True)])
    ax.set_xlim(counts[0] - 0.5, counts[-1] + 0.4)
    ax.margins(y=0.18)
    ax.set_xlabel("budgets to choose from")
    accuracy_axis(ax, "oracle's accuracy")
    ax.set_title(f"d  more budgets, B = {found.at:g}")


def _steps(ax: Axes, found: Granularity) -> None:
    """What each finer set adds, beside the line that says most: the lowest there is."""
    for before, tier in pairwise(found.tiers):
        last, here = before.crossfitted, tier.crossfitted
        if last is None or here is None:
            last, here = before.exact, tier.exact
        middle = ((len(before.budgets) + len(tier.budgets)) / 2, (last + here) / 2)
        ax.annotate(
            f"{100 * (here - last):+.1f}",
            middle,
            xytext=(7, -12),
            textcoords="offset points",
            fontsize=8.5,
            color=colour("dim"),
        )


def _legend(canvas: Canvas, ax: Axes, found: Granularity) -> None:
    lines = [
        ax.plot([], [], color=colour(_COLOURS[tier.name]), linewidth=_WIDTHS[tier.name])[0]
        for tier in found.tiers
    ]
    names = [f"{tier.name}: {', '.join(map(str, tier.budgets))}" for tier in found.tiers]
    canvas.figure.legend(lines, names, loc="outside upper left", ncols=3, handlelength=1.6)


def _protocol(found: Granularity) -> str:
    return (
        f"{found.problems} problems, {found.folds} folds, one seed. Scored as the paper does: all problems, "
        "disjoint windows. Held-out: the classifier on problems not learned from, over all subsets; the "
        "oracle chosen on one half of each problem's samples and judged on the other, 2 splits."
    )


def _data(found: Granularity) -> dict[str, Any]:
    return {
        tier.name: {
            "budgets": tier.budgets,
            "labels": tier.labels,
            "oracle_windows": tier.windows,
            "oracle_exact": tier.exact,
            "oracle_crossfitted": tier.crossfitted,
            "oracle": _points(tier.oracle),
            "crossfitted": None if tier.halved is None else _points(tier.halved),
            "scored as the paper does": _points(tier.paper),
            "held-out": _points(tier.held_out),
        }
        for tier in found.tiers
    }


def _points(curve: Curve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in ("budget", "cost", "accuracy")}
