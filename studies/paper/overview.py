"""The figure at the top of the reproduction: imitation and gain of every setting, the paper's above ours."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from adacompute.replay.matching import Interval
from adacompute.report.canvas import Canvas, colour
from adacompute.report.document import Picture, to_plain
from studies.canvas import clip_label
from studies.paper.experiment import Reproduction
from studies.paper.paper_claims import format_setting, load_paper

__all__ = ["build_overview", "draw_overview"]

OVERVIEW_BUDGET = 2.0  # samples on average: where fixed spends what the classifier may


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One setting; what the paper doesn't tell of its own is None."""

    name: str
    ours: bool
    imitation: float  # scored as the paper does
    commonest: float  # of always answering the commonest budget, on the same problems
    gain: float  # over fixed, scored as the paper does
    held_out: float | None  # imitation
    held_out_commonest: float | None
    fair: Interval | None  # held-out gain over the best uniform mix at the same cost


def build_overview(reproduction: Reproduction) -> tuple[OverviewRow, ...]:
    """Build a row per setting at B = 2, the paper's first; recordings that don't reach it are left out."""
    rows = []
    for row in load_paper().rows("tab:oracle_gap", budget=OVERVIEW_BUDGET):
        selection = {name: row[name] for name in ("model", "data", "budget")}
        fixed = load_paper().rows("tab:main", method="fixed", **selection)[0]
        rows.append(
            OverviewRow(
                name=format_setting(row),
                ours=False,
                imitation=row["imitation"],
                commonest=load_paper().rows("tab:oracle_dist", **selection)[0]["b1"],
                gain=row["accuracy"] - fixed["accuracy"],
                held_out=None,
                held_out_commonest=None,
                fair=None,
            )
        )
    for run in reproduction.runs:
        for gap in (one for one in run.gaps if one.budget == OVERVIEW_BUDGET):
            fixed_too = float(run.main.paper["fixed", OVERVIEW_BUDGET].accuracy.mean())
            rows.append(
                OverviewRow(
                    name=run.name,
                    ours=True,
                    imitation=float(gap.paper.imitation.mean()),
                    commonest=float(gap.paper.majority.mean()),
                    gain=float(gap.paper.accuracy.mean()) - fixed_too,
                    held_out=float(gap.held_out.imitation.mean()),
                    held_out_commonest=float(gap.held_out.majority.mean()),
                    fair=run.classifier_outcome(OVERVIEW_BUDGET).gain,
                )
            )
    return tuple(rows)


_ROW = 0.24  # inches
_IN_SAMPLE, _HELD_OUT, _COMMON = colour("red"), colour("blue"), colour("grey")


def draw_overview(rows: Sequence[OverviewRow], *, key: str = "reproduction") -> Picture:
    """Draw imitation on the left and gain on the right, one row per setting."""
    with Canvas(key, columns=2, height=1.4 + _ROW * len(rows), sharey=True) as canvas:
        left, right = canvas.axes
        places = _compute_places(rows)
        for y, row in zip(places, rows, strict=True):
            _draw_imitation(canvas, left, y, row)
            _draw_gain(canvas, right, y, row)
        left.set_yticks(places, [clip_label(row.name) for row in rows])
        left.set_ylim(max(places) + 0.8, -0.8)
        left.set_xlim(
            min(row.commonest if row.held_out is None else row.held_out for row in rows) - 0.05, 1.02
        )
        left.set_title("Given the oracle's budget")
        left.set_xlabel("share of problems\n(above the paper's, below ours)")
        right.axvline(0, color=colour("line"), linewidth=1.0, zorder=1)
        right.set_title(f"Gain in accuracy, B = {OVERVIEW_BUDGET:g}")
        right.set_xlabel("points over fixed\n(held-out: over uniform, same cost)")
        for ax in canvas.axes:
            ax.grid(axis="y", visible=False)
            ax.tick_params(axis="y", length=0)
        _draw_legend(canvas)
        svg = canvas.svg()
    return Picture(
        key=key,
        title=f"At B = {OVERVIEW_BUDGET:g}",
        protocol="scored as the paper does (red), held-out (blue)",
        svg=svg,
        alt=_describe(rows),
        data=to_plain({row.name: _build_data(row) for row in rows}),
    )


def _compute_places(rows: Sequence[OverviewRow]) -> list[float]:
    """Row by row, with a gap between the paper's and ours."""
    return [at + (0.6 if row.ours else 0.0) for at, row in enumerate(rows)]


def _draw_imitation(canvas: Canvas, ax: Axes, y: float, row: OverviewRow) -> None:
    common = row.commonest if row.held_out_commonest is None else row.held_out_commonest
    ax.plot([common] * 2, [y - 0.3, y + 0.3], color=_COMMON, linewidth=2.2, zorder=2)
    canvas.mark(ax, common, y, f"{row.name}: the commonest budget has {common:.1%}")
    if row.held_out is not None:
        ax.plot([row.held_out, row.imitation], [y, y], color=colour("line"), linewidth=1.2, zorder=1)
        ax.plot(row.held_out, y, "o", color=_HELD_OUT, markersize=6, zorder=3)
        canvas.mark(ax, row.held_out, y, f"{row.name}, held-out: {row.held_out:.1%}")
    ax.plot(row.imitation, y, "o", color=_IN_SAMPLE, markersize=6, zorder=3)
    canvas.mark(ax, row.imitation, y, f"{row.name}, scored as the paper does: {row.imitation:.1%}")


def _draw_gain(canvas: Canvas, ax: Axes, y: float, row: OverviewRow) -> None:
    points = 100 * row.gain
    ax.plot(points, y, "o", color=_IN_SAMPLE, markersize=6, zorder=3)
    canvas.mark(ax, points, y, f"{row.name}, scored as the paper does, over fixed: {points:+.1f} points")
    if row.fair is None:
        return
    own = 100 * row.fair.mean
    ax.plot([own, points], [y, y], color=colour("line"), linewidth=1.2, zorder=1)
    text = f"{row.name}, held-out, over uniform at the same cost: {own:+.1f} points"
    if row.fair.low is not None and row.fair.high is not None:
        low, high = 100 * row.fair.low, 100 * row.fair.high
        ax.plot([low, high], [y, y], color=_HELD_OUT, linewidth=2.4, zorder=2)
        text += f" ({low:+.1f} to {high:+.1f})"
    ax.plot(own, y, "o", color=_HELD_OUT, markersize=6, zorder=3)
    canvas.mark(ax, own, y, text)


def _draw_legend(canvas: Canvas) -> None:
    left = canvas.axes[0]
    handles = [
        left.plot([], [], "o", color=_IN_SAMPLE, markersize=6, label="scored as the paper does")[0],
        left.plot([], [], "o-", color=_HELD_OUT, markersize=6, label="held-out")[0],
        left.plot(
            [], [], "|", color=_COMMON, markersize=9, markeredgewidth=2.2, label="always the commonest budget"
        )[0],
    ]
    canvas.figure.legend(handles=handles, loc="outside upper left", ncols=3, handletextpad=0.4)


def _describe(rows: Sequence[OverviewRow]) -> str:
    sentences = [
        f"{row.name}: imitation {row.imitation:.0%} scored as the paper does, {row.held_out:.0%} held-out, "
        f"{row.held_out_commonest:.0%} by the commonest budget"
        for row in rows
        if row.held_out is not None
    ]
    return "; ".join(sentences) or "the paper's own settings alone"


def _build_data(row: OverviewRow) -> dict[str, object]:
    return {
        "scored as the paper does": {
            "imitation": row.imitation,
            "commonest": row.commonest,
            "gain_over_fixed": row.gain,
        },
        "held-out": {
            "imitation": row.held_out,
            "commonest": row.held_out_commonest,
            "gain_over_all_alike": row.fair,
        },
    }
