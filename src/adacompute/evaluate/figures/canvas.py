"""One figure on its way to SVG: axes, marks that tell their values, labels at the ends of lines.

Knows nothing of what is drawn. Text stays text, in the page's own font, and is never taken for a formula; it
is laid out with DejaVu Sans, which is wider than what pages use, so that nothing runs into anything. Twice
the same figure is twice the same file.
"""

import io
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adacompute.evaluate.figures.palette import COLOURS, colour, dark_rules

__all__ = ["WIDTH", "Canvas", "foreign", "standalone"]

WIDTH = 7.2  # inches of 72 points: a page's column
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a pool's text may hold dollars
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": colour("line"),
    "axes.labelcolor": colour("dim"),
    "axes.titlecolor": colour("ink"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.unicode_minus": False,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": colour("grid"),
    "grid.linewidth": 0.8,
    "text.color": colour("ink"),
    "xtick.color": colour("line"),
    "ytick.color": colour("line"),
    "xtick.labelcolor": colour("dim"),
    "ytick.labelcolor": colour("dim"),
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "patch.linewidth": 0.0,
    "hatch.linewidth": 0.8,
}
_REACH = 7  # points around a mark that show its value
_LINE = 11.5  # points that a label at a line's end takes
_MOST = 24  # characters of a label that isn't ours
_WIDE = "WF"  # East Asian characters that take the room of two
_BARE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # controls, halves of characters, and what isn't one
_IN_TAG = r"(?=[^<>]*>)"  # in a figure's text every < and > is escaped
_TAG = re.compile(r"<[^<>]*>")
_LONG = re.compile(r"-?\d+\.\d{3,}")
_USE = r'\s*<use [^<>]*style="'
_DOTS = re.compile(rf'<g( clip-path="[^"<>]*")>({_USE}([^"<>]*)"/>(?:{_USE}\3"/>)+)\s*</g>')


@dataclass(frozen=True, slots=True)
class _Mark:
    axes: Axes
    x: float
    y: float
    text: str


class Canvas:
    """A figure of rows × columns of axes; the style holds inside its `with`.

    >>> with Canvas("frontier", height=3.2) as canvas:
    ...     ax = canvas.axes[0]
    ...     _ = ax.plot([1, 2], [0.5, 0.6], color=colour("blue"))
    ...     canvas.mark(ax, 2, 0.6, "2 samples: 60%")
    ...     svg = canvas.svg()
    >>> svg.startswith("<svg")
    True
    """

    def __init__(
        self,
        key: str,
        *,
        rows: int = 1,
        columns: int = 1,
        width: float = WIDTH,
        height: float = 3.6,
        **grid: Any,  # noqa: ANN401 # width_ratios, sharey and the like, as matplotlib's subplots has them
    ) -> None:
        self.key = key
        self._style = mpl.rc_context(_STYLE | {"svg.hashsalt": key})
        with mpl.rc_context(_STYLE):
            self.figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
            found = self.figure.subplots(rows, columns, squeeze=False, **grid)
        self.axes: list[Axes] = list(np.asarray(found).flat)  # row by row
        self._marks: list[_Mark] = []
        self._ends: list[tuple[Axes, list[tuple[float, float, str, str]]]] = []

    def __enter__(self) -> Self:
        self._style.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._style.__exit__(None, None, None)

    def mark(self, axes: Axes, x: float, y: float, text: str) -> None:
        """A place that tells its value when pointed at, in the axes' own coordinates."""
        self._marks.append(_Mark(axes, float(x), float(y), _sound(text)))

    def label_ends(self, axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
        """Names beside the right ends of lines, (x, y, text, colour), pushed apart where they would touch.

        Once for each axes.
        """
        self._ends.append((axes, list(ends)))
        for x, y, text, tint in ends:  # placed for room now, and moved once the layout is known
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

    def svg(self) -> str:
        """The figure, with its marks. After this it is done with."""
        out = io.StringIO()
        with warnings.catch_warnings():
            # the browser has the glyphs that DejaVu Sans lacks, and an axes too small is seen in the picture
            warnings.filterwarnings("ignore", r"Glyph \d+|constrained_layout", UserWarning)
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")  # it is laid out: saving would do all of it twice more
            self._spread()
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        height = self.figure.get_figheight() * 72
        marks = [_circle(mark, height) for mark in self._marks]
        return _cleaned(out.getvalue(), self.key, marks)

    def _spread(self) -> None:
        for axes, ends in self._ends:
            texts = [text for text in axes.texts if text.get_gid() == "end"][: len(ends)]
            places = np.array([axes.transData.transform((x, y))[1] for x, y, _, _ in ends])
            for text, shift in zip(texts, _apart(places) - places, strict=True):
                text.set_position((6, float(shift)))


def _apart(places: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Heights, moved as little as keeps them a line apart."""
    order = np.argsort(places, kind="stable")
    found = places[order].astype(np.float64)
    for _ in range(60):  # neighbours that touch are pushed apart by half of what is missing, each
        lack = _LINE - np.diff(found)
        if not len(lack) or lack.max() <= 1e-3:
            break
        push = np.where(lack > 0, lack / 2, 0.0)
        found[:-1] -= push
        found[1:] += push
    back = np.empty_like(found)
    back[order] = found
    return back


def _circle(mark: _Mark, height: float) -> str:
    x, y = mark.axes.transData.transform((mark.x, mark.y))
    return (
        f'<circle class="mark" cx="{x:.1f}" cy="{height - y:.1f}" r="{_REACH}" style="fill:transparent">'
        f"<title>{escape(mark.text)}</title></circle>"
    )


def foreign(text: str, most: int = _MOST) -> str:
    """A label that a pool or a recording's name gave: one sound line, cut to the room of `most` letters.

    >>> foreign("uses \\n $ signs"), foreign("a very long name of a level"), foreign("\\x00")
    ('uses $ signs', 'a very long name of a l…', '?')
    """
    line = " ".join(_sound(text).split()) or "?"
    room = np.cumsum([2 if unicodedata.east_asian_width(one) in _WIDE else 1 for one in line])
    return line if room[-1] <= most else line[: int((room < most).sum())].rstrip() + "…"


def _sound(text: str) -> str:
    """Without what no SVG may hold, or what would turn the writing around."""
    kept = (" " if one in "\n\r\t" else one for one in text)
    return "".join(one for one in kept if unicodedata.category(one) not in _BARE)


def _cleaned(svg: str, key: str, marks: Sequence[str]) -> str:
    """Without its prologue and fixed size; ids that no other figure on the page has; marks on top."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(rf'\bid="{_IN_TAG}', f'id="{key}-', svg)
    svg = re.sub(rf'href="#{_IN_TAG}', f'href="#{key}-', svg)
    svg = re.sub(rf"url\(#{_IN_TAG}", f"url(#{key}-", svg)
    svg = re.sub(rf"'DejaVu Sans'{_IN_TAG}", _FONT, svg)
    svg = re.sub(r">\s+<", "><", _DOTS.sub(_styled_once, svg))
    svg = _TAG.sub(lambda tag: _LONG.sub(lambda number: f"{float(number[0]):.2f}", tag[0]), svg)
    return svg.replace("</svg>", f'<g class="marks">{"".join(marks)}</g></svg>').strip()


def _styled_once(dots: re.Match[str]) -> str:
    """Many markers of one style: the style goes to their group, which halves a figure of many problems."""
    group, uses, style = dots.groups()
    bare = uses.replace(f' style="{style}"', "")
    return f'<g{group} style="{style}">{bare}</g>'


def standalone(svg: str) -> str:
    """A figure as a file of its own, in dark colours where the reader's screen prefers them."""
    page = COLOURS["page"][1]
    rules = dark_rules() + f"@media screen and (prefers-color-scheme: dark){{svg{{background:{page}}}}}"
    at = svg.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:at]}<style>{rules}</style>{svg[at:]}\n'
