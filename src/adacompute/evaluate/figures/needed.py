"""Samples needed for the accuracy of the most samples, a row for each policy. Knows not how they come."""

import math

from adacompute.evaluate.beyond.lines import measured_by
from adacompute.evaluate.beyond.needed import Need, Needed
from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look
from adacompute.evaluate.figures.samples import samples_axis

__all__ = ["draw_needed"]


def draw_needed(found: Needed, *, key: str = "needed") -> Picture:
    """The fewest on top; who never gets there is said to."""
    rows = list(found.rows)
    with Canvas(key, height=0.9 + 0.3 * len(rows)) as canvas:
        ax = canvas.axes[0]
        for at, one in enumerate(rows):
            tint = colour(look(one.policy).colour)
            mean = one.samples.mean
            if not math.isfinite(mean):
                ax.annotate(
                    _never(one), (1.0, at), xytext=(2, 0), textcoords="offset points", va="center",
                    color=colour("dim"), fontsize=8.5,
                )  # fmt: skip
                canvas.mark(ax, 1.05, at, _said(one, found))
                continue
            low, high = (
                mean if end is None else min(end, float(found.target))
                for end in (one.samples.low, one.samples.high)
            )
            ax.plot([low, high], [at, at], color=tint, linewidth=1.6, zorder=2)
            ax.plot([mean], [at], marker="o", markersize=7, color=tint, zorder=3)
            canvas.mark(ax, mean, at, _said(one, found))
        samples_axis(ax, found.target, "samples a request, on average")
        ax.axvline(found.target, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
        ax.set_yticks(range(len(rows)), [look(one.policy).name for one in rows])
        for label, one in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_color(colour(look(one.policy).colour))
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
        svg = canvas.svg()
    what = measured_by(found.basis)
    return Picture(
        key=key,
        title=f"Samples needed for the {what} of {found.target} samples each",
        protocol="held-out, each policy on the hull of its own settings",
        svg=svg,
        alt="; ".join(_said(one, found) for one in rows),
        caption=(
            f"All alike with {found.target} samples each: {found.accuracy.mean:.1%}. Lines are 95% intervals "
            "over problems; in each draw of problems the target is read anew."
        ),
        data=plain(
            {
                "target": found.target,
                "accuracy": found.accuracy,
                "samples": {one.policy: one.samples for one in rows},
                "most": {one.policy: one.most for one in rows},
            }
        ),
    )


def _never(one: Need) -> str:
    return f"not reached, with up to {one.most:.1f} samples on average"


def _said(one: Need, found: Needed) -> str:
    name = look(one.policy).name
    if not math.isfinite(one.samples.mean):
        return f"{name}: {_never(one)}"
    text = f"{name}: {one.samples.mean:.1f} samples"
    if one.samples.low is not None and one.samples.high is not None:
        high = f"{one.samples.high:.1f}" if math.isfinite(one.samples.high) else f"more than {found.target}"
        text += f" ({one.samples.low:.1f} to {high})"
    return text
