"""A canvas that names lines at their right ends."""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adacompute.report.canvas import COLOURS, Canvas, strip_controls

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL_LENGTH = 24  # characters of a label that comes from a pool
_WIDE = "WF"  # East Asian characters twice as wide as others
_LABEL_HEIGHT = 11.5  # points of height for a label at a line's end


class LabelledCanvas(Canvas):
    """As `Canvas`, with names beside the ends of lines."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - as those of Canvas
        super().__init__(*arguments, **settings)
        self._ends: list[tuple[Axes, list[tuple[float, float, str, str]]]] = []

    def label_ends(self, axes: "Axes", ends: Sequence[tuple[float, float, str, str]]) -> None:
        """Names beside the right ends of lines, (x, y, text, colour), moved apart where they would touch.

        Call it once for each axes.
        """
        self._ends.append((axes, list(ends)))
        for x, y, text, tint in ends:  # placed now so that the layout leaves room; moved once it is known
            axes.annotate(
                text,
                (x, y),
                xytext=(6, 0),
                textcoords="offset points",
                color=tint,
                va="center",
                fontsize=8.5,
                gid="end",
            )

    def _settle_labels(self) -> None:
        for axes, ends in self._ends:
            texts = [text for text in axes.texts if text.get_gid() == "end"][: len(ends)]
            places = np.array([axes.transData.transform((x, y))[1] for x, y, _, _ in ends])
            for text, shift in zip(texts, _separate(places) - places, strict=True):
                text.set_position((6, float(shift)))


def _separate(places: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Heights, moved as little as needed to be one line apart."""
    order = np.argsort(places, kind="stable")
    moved = places[order].astype(np.float64)
    for _ in range(60):  # each of two touching neighbours moves by half of the overlap
        overlap = _LABEL_HEIGHT - np.diff(moved)
        if not len(overlap) or overlap.max() <= 1e-3:
            break
        push = np.where(overlap > 0, overlap / 2, 0.0)
        moved[:-1] -= push
        moved[1:] += push
    result = np.empty_like(moved)
    result[order] = moved
    return result


def clip_label(text: str, length: int = _LABEL_LENGTH) -> str:
    """A label from a pool or a recording's name: one line of safe text, cut to the width of `length` letters.

    >>> clip_label("uses \\n $ signs"), clip_label("a very long name of a level"), clip_label("\\x00")
    ('uses $ signs', 'a very long name of a l…', '?')
    """
    line = " ".join(strip_controls(text).split()) or "?"
    widths = np.cumsum([2 if unicodedata.east_asian_width(character) in _WIDE else 1 for character in line])
    return line if widths[-1] <= length else line[: int((widths < length).sum())].rstrip() + "…"


def ramp(count: int) -> list[str]:
    """Colours from little to much, e.g. for budgets 1 to 16.

    >>> len(ramp(5))
    5
    """
    tints = [light for name, (light, _) in COLOURS.items() if name.startswith("ramp")]
    if not 1 <= count <= len(tints):
        raise ValueError(f"{count} steps; a ramp has 1 to {len(tints)}")
    last = len(tints) - 1
    return [tints[round(at * last / max(1, count - 1))] for at in range(count)]
