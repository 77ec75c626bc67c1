"""The diagram of the paper's pipeline, solve, learn and deploy, with this package's beside it."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from adacompute.report.canvas import Canvas, colour
from adacompute.report.document import Picture, Section

__all__ = ["build_section"]

_WIDE, _HIGH = 72.0, 35.0  # the drawing's own units, a tenth of an inch wide
_BOX, _TALL, _GAP = 20.6, 12.6, 3.6  # of a box: width, height, and what is between two
_LEFT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _PipelineBox:
    title: str
    when: str
    lines: tuple[str, ...]


_PAPER = (
    _PipelineBox(
        title="Solve",
        when="offline",
        lines=(
            "accuracy of every problem",
            "at b = 1, 2, 4, 8, 16;",
            "one price λ for the average B",
            "→ a budget each",
        ),
    ),
    _PipelineBox(
        title="Learn",
        when="offline",
        lines=(
            "16 features of the text",
            "(one is a first sample's entropy);",
            "boosted trees foretell",
            "the budget",
        ),
    ),
    _PipelineBox(
        title="Deploy",
        when="each request",
        lines=("features → budget b;", "draw b samples at once,", "vote", "→ answer"),
    ),
)
_OURS = (
    _PipelineBox(
        title="Record",
        when="once",
        lines=(
            "many samples of some",
            "problems, in a pool;",
            "every policy is replayed",
            "from it for free",
        ),
    ),
    _PipelineBox(
        title="Price",
        when="offline",
        lines=("what one more sample", "is worth, given the votes;", "the λ that spends B", "on average"),
    ),
    _PipelineBox(
        title="Stop as votes come in",
        when="each request",
        lines=("draw, count, go on while", "the next is worth λ;", "a pacer moves λ to keep B", "→ answer"),
    ),
)


def draw_pipeline(*, key: str = "pipeline") -> Picture:
    """Two rows of three boxes, in the order in which things are done."""
    with Canvas(key, height=_HIGH / 10) as canvas:
        ax = canvas.axes[0]
        ax.set_axis_off()
        ax.set_xlim(0, _WIDE)
        ax.set_ylim(0, _HIGH)
        _draw_row(ax, _PAPER, 19.2, "The paper: decide beforehand", "red")
        _draw_row(ax, _OURS, 1.0, "adacompute: decide as the votes come in", "blue")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="The pipeline",
        protocol="A diagram; no numbers.",
        svg=svg,
        alt=_describe(),
        caption=(
            "Above, the paper's three stages; below, ours. Both need one recording of many samples a "
            "problem, and both have one dial, the price λ."
        ),
        data={"paper": [box.title for box in _PAPER], "ours": [box.title for box in _OURS]},
    )


def _draw_row(ax: Axes, boxes: tuple[_PipelineBox, ...], bottom: float, name: str, tint: str) -> None:
    ax.text(_LEFT, bottom + _TALL + 1.0, name, fontsize=9.5, fontweight="bold", va="bottom")
    for at, box in enumerate(boxes):
        left = _LEFT + at * (_BOX + _GAP)
        _draw_box(ax, box, left, bottom, colour(tint))
        if at:
            arrow = FancyArrowPatch(
                (left - _GAP + 0.4, bottom + _TALL / 2),
                (left - 0.4, bottom + _TALL / 2),
                arrowstyle="-|>",
                mutation_scale=10,
                linewidth=1.4,
                color=colour("dim"),
                shrinkA=0,
                shrinkB=0,
            )
            ax.add_patch(arrow)


def _draw_box(ax: Axes, box: _PipelineBox, left: float, bottom: float, tint: str) -> None:
    frame = FancyBboxPatch(
        (left, bottom),
        _BOX,
        _TALL,
        boxstyle="round,pad=0,rounding_size=0.9",
        linewidth=1.2,
        edgecolor=tint,
        facecolor="none",
    )
    ax.add_patch(frame)
    middle, top = left + _BOX / 2, bottom + _TALL
    ax.text(
        middle, top - 1.9, box.title, ha="center", va="center", fontsize=9.5, fontweight="bold", color=tint
    )
    ax.text(middle, top - 3.9, box.when, ha="center", va="center", fontsize=8, color=colour("dim"))
    for at, line in enumerate(box.lines):
        ax.text(middle, top - 6.0 - 1.75 * at, line, ha="center", va="center", fontsize=8)


def _describe() -> str:
    def describe_boxes(boxes: tuple[_PipelineBox, ...]) -> str:
        return "; then ".join(f"{box.title} ({box.when}): {' '.join(box.lines)}" for box in boxes)

    return f"The paper: {describe_boxes(_PAPER)}. Ours: {describe_boxes(_OURS)}."


_WORDS = (
    "The paper solves for the best budget of every recorded problem, learns to predict that budget from the "
    "question, and draws so many samples at once. adacompute draws, counts the votes, and goes on only while "
    "the next samples are worth their price."
)


def build_section() -> Section:
    """The diagram, with two sentences."""
    return Section(
        key="pipeline",
        title="How it works",
        words=(_WORDS,),
        pictures=(draw_pipeline(),),
    )
