"""Who gets how much: each problem's budget by its one-sample accuracy, and by fifths. Knows no policy."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.crowd import picked, picked_words
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, ramp
from adacompute.evaluate.paper.labels import Scatter

__all__ = ["draw_scatter"]

_SIZES = (1.6, 2.8, 4.2, 5.8)  # points across, by what there is to gain
_GAINS = (0.1, 0.3, 0.5)  # from which on a marker is larger
_NAMED = 60  # problems of a panel that tell their values: those with most to gain
_GOLDEN = 0.618034
_SPREAD = 0.6  # of the room between two budgets, over which problems of one budget are strewn


def draw_scatter(found: Sequence[Scatter], *, key: str = "scatter") -> Picture:
    """A column for each average budget: problems above, fifths below."""
    with Canvas(key, rows=2, columns=len(found), height=5.4, sharey="row") as canvas:
        for at, one in enumerate(found):
            above, below = canvas.axes[at], canvas.axes[at + len(found)]
            above.set_title(f"B = {one.budget:g}")
            _problems(canvas, above, one)
            _fifths(canvas, below, one)
        canvas.axes[0].set_ylabel("oracle's budget, samples")
        canvas.axes[len(found)].set_ylabel("share of the fifth")
        _budget_key(canvas, found[0])
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Who gets how much",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        svg=svg,
        alt=" ".join(_told(one) for one in found),
        caption=(
            "Above: a dot is a problem, larger where its best budget gains more over one sample; the line "
            "is the mean budget of each tenth of the problems. Below: the same problems in fifths by "
            "one-sample accuracy, and the budgets they get." + picked_words(len(found[0].ids))
        ),
        data=plain(_data(found)),
    )


def _problems(canvas: Canvas, ax: Axes, one: Scatter) -> None:
    level = np.searchsorted(one.budgets, one.chosen)
    shift = _SPREAD * ((np.arange(len(level)) * _GOLDEN) % 1 - 0.5)  # strewn evenly, the same every time
    some = picked(len(level))
    y = level + shift
    size = np.searchsorted(_GAINS, one.gain, side="right")
    for at, across in enumerate(_SIZES):
        rows = some[size[some] == at]
        ax.plot(
            one.single[rows],
            y[rows],
            "o",
            color=colour("blue"),
            alpha=0.4,
            markersize=across,
            markeredgewidth=0,
        )
    ax.plot(
        one.decile_single,
        np.interp(np.log2(one.decile_chosen), np.log2(one.budgets), np.arange(len(one.budgets))),
        color=colour("red"),
        marker="o",
        markersize=3.5,
        linewidth=1.6,
    )
    for row in some[np.argsort(-one.gain[some], kind="stable")[:_NAMED]]:
        text = f"{one.ids[row]}: one sample {_percent(one.single[row])}, b = {one.chosen[row]}"
        canvas.mark(ax, one.single[row], y[row], f"{text}, at most {100 * one.gain[row]:+.0f} points")
    for x, mean in zip(one.decile_single, one.decile_chosen, strict=True):
        place = float(np.interp(np.log2(mean), np.log2(one.budgets), np.arange(len(one.budgets))))
        canvas.mark(ax, x, place, f"a tenth with one sample at {_percent(x)}: {mean:.2f} samples on average")
    ax.set_yticks(range(len(one.budgets)), [str(budget) for budget in one.budgets])
    ax.set_ylim(-0.6, len(one.budgets) - 0.4)
    ax.set_xlim(-0.04, 1.04)
    ax.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
    ax.set_xlabel("accuracy of one sample")


def _fifths(canvas: Canvas, ax: Axes, one: Scatter) -> None:
    places = np.arange(len(one.fifths))
    bottom = np.zeros(len(places))
    for at, (budget, tint) in enumerate(zip(one.budgets, ramp(len(one.budgets)), strict=True)):
        share = one.composition[:, at]
        ax.bar(places, share, bottom=bottom, width=0.8, color=tint)
        for place in np.flatnonzero(share > 0):
            text = f"{one.fifths[place]}: {_percent(share[place])} get b = {budget}"
            canvas.mark(ax, float(place), float(bottom[place] + share[place] / 2), text)
        bottom += share
    ax.set_xticks(places, [_short(name) for name in one.fifths])
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("fifths, hardest to easiest")


def _budget_key(canvas: Canvas, one: Scatter) -> None:
    tints = ramp(len(one.budgets))
    canvas.figure.legend(
        [Patch(color=tint) for tint in tints],
        [f"b = {budget}" for budget in one.budgets],
        loc="outside lower center",
        ncols=len(tints),
    )


def _short(name: str) -> str:
    return {"hardest fifth": "1st", "hard fifth": "2nd", "middle fifth": "3rd", "easy fifth": "4th"}.get(
        name, "5th"
    )


def _told(one: Scatter) -> str:
    return (
        f"At B = {one.budget:g} the tenth of problems with most samples has a one-sample accuracy of "
        f"{_percent(one.peak)} and gets {one.decile_chosen.max():.1f} on average."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _data(found: Sequence[Scatter]) -> dict[str, object]:
    """A row a problem, which has one budget at each average, and then the tenths and fifths."""
    first = found[0]
    chosen = {f"{one.budget:g}": one.chosen for one in found}
    return {
        "problems": [
            {"id": name, "single": first.single[row], "gain": first.gain[row]}
            | {"budget": {average: own[row] for average, own in chosen.items()}}
            for row, name in enumerate(first.ids)
        ],
        "averages": {
            f"{one.budget:g}": {
                "tenths": {"single": one.decile_single, "budget": one.decile_chosen},
                "fifths": {
                    name: dict(zip(one.budgets, shares, strict=True))
                    for name, shares in zip(one.fifths, one.composition, strict=True)
                },
            }
            for one in found
        },
    }
