"""Accuracy by what was recorded: problems, and samples of each. Knows not how it was come by."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look
from adacompute.evaluate.figures.samples import accuracy_axis
from adacompute.evaluate.paper.growth import Amount, Growth

__all__ = ["draw_growth"]

_POLICIES = ("stopping", "classifier")


def draw_growth(found: Growth, *, key: str = "growth") -> Picture:
    """By number of problems, and by samples of each, at one average cost."""
    with Canvas(key, columns=2, height=3.7, sharey=True, width_ratios=(1.25, 1)) as canvas:
        first, second = canvas.axes
        first.set_title("a  by problems learned from")
        second.set_title("b  by samples of each")
        for ax, by in ((first, "problems"), (second, "samples")):
            counts = sorted({getattr(one, by) for policy in _POLICIES for one in found.of(policy, by=by)})
            _uniform(canvas, ax, found, len(counts) - 1)
            for policy in _POLICIES:
                _line(canvas, ax, found.of(policy, by=by), counts, by)
            ax.set_xlim(-0.25, len(counts) - 0.9)
            ax.xaxis.set_major_locator(FixedLocator(range(len(counts))))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_xticks(range(len(counts)), ["none" if count == 0 else str(count) for count in counts])
        ends = [_end(found.of(policy, by="samples"), policy) for policy in _POLICIES]
        place = max(0, len({one.samples for one in found.by_samples}) - 1)
        uniform = (float(place), found.uniform.mean, "uniform", colour("ink"))
        canvas.label_ends(second, [(place, y, name, tint) for y, name, tint in ends] + [uniform])
        first.set_xlabel(f"problems, {found.most} samples of each")
        second.set_xlabel(f"samples of each, {found.across} problems")
        accuracy_axis(first, f"accuracy at {found.budget:g} samples")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="What must be recorded",
        protocol=(
            "Held-out: learned from one half of the problems, judged on the other, both ways; all at exactly "
            f"{found.budget:g} samples on average, {found.orders} orders, "
            f"{'weighted' if found.weighted else 'plain'} votes. Bars: 95% intervals over problems of the "
            "difference to uniform."
        ),
        svg=svg,
        alt=" ".join(_told(found, policy) for policy in _POLICIES),
        caption=(
            "Uniform: all problems alike. With no problem learned from, stopping decides by the prior that "
            "comes with the package, which has seen none of these prompts."
        ),
        data=plain(
            {
                "budget": found.budget,
                "uniform": found.uniform,
                "by_problems": [_data(one) for one in found.by_problems],
                "by_samples": [_data(one) for one in found.by_samples],
            }
        ),
    )


def _uniform(canvas: Canvas, ax: Axes, found: Growth, last: int) -> None:
    like, value = look("fixed"), found.uniform.mean
    ax.plot([-0.25, last], [value, value], color=colour(like.colour), linestyle=like.line, linewidth=1.3)
    canvas.mark(ax, -0.15, found.uniform.mean, f"uniform: {100 * found.uniform.mean:.1f}%")


def _line(canvas: Canvas, ax: Axes, own: Sequence[Amount], counts: Sequence[int], by: str) -> None:
    if not own:
        return
    tint = colour(look(own[0].policy).colour)
    places = [counts.index(getattr(one, by)) for one in own]
    ax.plot(places, [one.accuracy.mean for one in own], color=tint, marker="o", markersize=4.5, mew=0)
    for place, one in zip(places, own, strict=True):
        if one.gain.low is not None and one.gain.high is not None:
            base = one.accuracy.mean - one.gain.mean  # uniform, so that the bar is that of the difference
            ax.plot(
                [place, place],
                [base + one.gain.low, base + one.gain.high],
                color=tint,
                linewidth=1.5,
                alpha=0.5,
            )
        learned = f"{one.problems} problems × {one.samples} samples" if one.problems else "nothing learned"
        gain = f"{100 * one.gain.mean:+.1f} points over uniform"
        if one.gain.low is not None and one.gain.high is not None:
            gain += f" ({100 * one.gain.low:+.1f} to {100 * one.gain.high:+.1f})"
        text = f"{one.policy}, {learned}: {100 * one.accuracy.mean:.1f}%, {gain}"
        canvas.mark(ax, place, one.accuracy.mean, text)


def _end(own: Sequence[Amount], policy: str) -> tuple[float, str, str]:
    return own[-1].accuracy.mean, policy, colour(look(policy).colour)


def _told(found: Growth, policy: str) -> str:
    own = found.of(policy, by="problems")
    return (
        f"{policy}: {own[0].accuracy.mean:.1%} with {own[0].problems} problems, "
        f"{own[-1].accuracy.mean:.1%} with {own[-1].problems}."
    )


def _data(one: Amount) -> dict[str, Any]:
    return {
        "policy": one.policy,
        "problems": one.problems,
        "samples": one.samples,
        "cost": one.cost,
        "accuracy": one.accuracy,
        "gain": one.gain,
    }
