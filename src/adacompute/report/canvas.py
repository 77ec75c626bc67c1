"""Draws matplotlib figures as SVG, with axes in a common style and marks that show their values on hover.

Text isn't converted to shapes, so that it appears in the page's font. The layout is computed with DejaVu
Sans: it is wider than web fonts, so texts don't overlap on the page. Text is never parsed as a formula. The
same figure always gives the same file.
"""

import io
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from adacompute.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


WIDTH = 7.2  # width of a figure in inches, which is also the width of the page's text column
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
_LOG_RATIO = 6.0  # a cost axis is logarithmic if its largest cost is more than this many times its smallest
_MARK_RADIUS = 7  # a mark reacts to the mouse within this distance, in points
# Unicode categories of characters that are removed from text, such as control characters
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_IN_TAG = r"(?=[^<>]*>)"  # matches only inside a tag, because < and > are escaped in a figure's text
_TAG = re.compile(r"<[^<>]*>")
_LONG = re.compile(r"-?\d+\.\d{3,}")
_USE = r'\s*<use [^<>]*style="'
_DOTS = re.compile(rf'<g( clip-path="[^"<>]*")>({_USE}([^"<>]*)"/>(?:{_USE}\3"/>)+)\s*</g>')


@dataclass(frozen=True, slots=True)
class _Mark:
    axes: "Axes"
    x: float
    y: float
    text: str


def check_drawing() -> None:
    """Fails with a short message if matplotlib isn't installed; call it before long computations."""
    with needs_extra("fit"):
        import matplotlib  # noqa: F401


class Canvas:
    """A matplotlib figure with a grid of axes. Inside the `with` block, matplotlib uses the reports' style.

    >>> with Canvas("frontier", height=3.2) as canvas:
    ...     ax = canvas.axes[0]
    ...     _ = ax.plot([1, 2], [0.5, 0.6], color=COLOURS["blue"][0])
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
        **grid: Any,  # noqa: ANN401 # width_ratios, sharey and so on, as for matplotlib's subplots
    ) -> None:
        check_drawing()
        import matplotlib as mpl
        from matplotlib.figure import Figure

        self.key = key
        self._style = mpl.rc_context(FIGURE_STYLE | {"svg.hashsalt": key})
        with mpl.rc_context(FIGURE_STYLE):
            self.figure = Figure(figsize=(width, height), dpi=72, layout="constrained")
            axes = self.figure.subplots(rows, columns, squeeze=False, **grid)
        self.axes: list[Axes] = list(np.asarray(axes).flat)  # the figure's axes, row by row
        self._marks: list[_Mark] = []

    def __enter__(self) -> Self:
        self._style.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._style.__exit__(None, None, None)

    def mark(self, axes: "Axes", x: float, y: float, text: str) -> None:
        """Adds an invisible mark that shows `text` on hover; x and y are in data coordinates."""
        self._marks.append(_Mark(axes, float(x), float(y), strip_controls(text)))

    def _settle_labels(self) -> None:
        """Places labels that depend on the final layout. Subclasses override it; here it does nothing."""

    def svg(self) -> str:
        """Returns the figure with its marks as SVG; must be called only once."""
        out = io.StringIO()
        with warnings.catch_warnings():
            # harmless: browsers have the glyphs that DejaVu Sans lacks, and too small axes are easy to see
            warnings.filterwarnings("ignore", r"Glyph \d+|constrained_layout", UserWarning)
            self.figure.draw_without_rendering()
            # keep the layout, which saving would otherwise compute two more times
            self.figure.set_layout_engine("none")
            self._settle_labels()
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        height = self.figure.get_figheight() * 72
        marks = [_mark_circle(mark, height) for mark in self._marks]
        return _clean_svg(out.getvalue(), self.key, marks)


def _mark_circle(mark: _Mark, height: float) -> str:
    x, y = mark.axes.transData.transform((mark.x, mark.y))
    return (
        f'<circle class="mark" cx="{x:.1f}" cy="{height - y:.1f}" r="{_MARK_RADIUS}" '
        f'style="fill:transparent"><title>{escape(mark.text)}</title></circle>'
    )


def strip_controls(text: str) -> str:
    """Removes characters that SVG can't hold or that reverse text direction."""
    characters = (" " if character in "\n\r\t" else character for character in text)
    return "".join(
        character for character in characters if unicodedata.category(character) not in _UNSAFE_CATEGORIES
    )


def _clean_svg(svg: str, key: str, marks: Sequence[str]) -> str:
    """Removes the SVG's prologue and fixed size, makes its ids unique on the page, and adds the marks."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(rf'\bid="{_IN_TAG}', f'id="{key}-', svg)
    svg = re.sub(rf'href="#{_IN_TAG}', f'href="#{key}-', svg)
    svg = re.sub(rf"url\(#{_IN_TAG}", f"url(#{key}-", svg)
    svg = re.sub(rf"'DejaVu Sans'{_IN_TAG}", _FONT, svg)
    svg = re.sub(r">\s+<", "><", _DOTS.sub(_share_style, svg))
    svg = _TAG.sub(lambda tag: _LONG.sub(lambda number: f"{float(number[0]):.2f}", tag[0]), svg)
    return svg.replace("</svg>", f'<g class="marks">{"".join(marks)}</g></svg>').strip()


def _share_style(dots: re.Match[str]) -> str:
    """Moves the style that all markers of a group share to the group, which makes figures smaller."""
    group, uses, style = dots.groups()
    bare = uses.replace(f' style="{style}"', "")
    return f'<g{group} style="{style}">{bare}</g>'


def to_standalone_svg(svg: str) -> str:
    """Converts a figure to an SVG file with a background, and with dark colours for readers in dark mode."""
    light, dark = COLOURS["page"]
    rules = f"svg{{background:{light}}}{dark_css()}"
    rules += f"@media screen and (prefers-color-scheme: dark){{svg{{background:{dark}}}}}"
    at = svg.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:at]}<style>{rules}</style>{svg[at:]}\n'


def set_ticks(axis: "Axis", values: Sequence[float]) -> None:
    """Puts the ticks of an axis at these values, without minor ticks."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(values))
    axis.set_minor_locator(NullLocator())


def set_samples_axis(axes: "Axes", largest: float, label: str) -> None:
    """Sets up a logarithmic x axis from 1 sample to `largest` (at least 2), with a tick at each doubling."""
    largest = max(2.0, largest)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.95, largest * 1.05)
    set_ticks(axes.xaxis, [2.0**at for at in range(12) if 2**at <= largest])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(label)


def set_cost_axis(
    axes: "Axes", budgets: Sequence[float], format_cost: Callable[[float], str], label: str
) -> None:
    """Sets up an x axis of average costs, with ticks at budgets; leaves out ticks that would overlap."""
    ticks: list[float] = []
    for budget in budgets:
        if not ticks or budget > 1.15 * ticks[-1]:
            ticks.append(budget)
    if budgets[0] > 0 and budgets[-1] > _LOG_RATIO * budgets[0]:
        axes.set_xscale("log")
    set_ticks(axes.xaxis, ticks)
    axes.xaxis.set_major_formatter(lambda value, _: format_cost(value))
    axes.set_xlabel(label)


def set_accuracy_axis(axes: "Axes", label: str = "accuracy") -> None:
    """Sets up a y axis of percentages; ticks below 0% or above 100% have no label."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%" if 0 <= value <= 1 + 1e-9 else "")
    axes.set_ylabel(label)


_THEME = json.loads(files("adacompute.report").joinpath("theme.json").read_text("utf-8"))
COLOURS = {name: (str(light), str(dark)) for name, (light, dark) in _THEME["colours"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStyle:
    """How figures show a policy: its name, colour and line style."""

    name: str  # the policy's name in figures and tables
    colour: str  # name of a colour, a key of COLOURS
    line: str = "-"  # one of matplotlib's line styles: - -- : -.


POLICY_STYLES = {policy: PolicyStyle(**style) for policy, style in _THEME["policies"].items()}


def policy_style(policy: str) -> PolicyStyle:
    """Returns a policy's style; a policy without a style of its own is grey."""
    return POLICY_STYLES.get(policy, PolicyStyle(name=policy, colour="grey"))


def colour(name: str) -> str:
    """Returns the light-mode colour of that name, because figures are drawn for light mode."""
    return COLOURS[name][0]


FIGURE_STYLE: Any = {  # matplotlib's rcParams for figures; names of colours are replaced with the colours
    name: colour(value) if value in COLOURS else value for name, value in _THEME["figure"].items()
}


def dark_css() -> str:
    """Returns CSS that gives figures dark colours in dark mode; printed pages stay light."""
    rules = []
    for light, dark in COLOURS.values():
        # Selectors don't begin with "svg", which wouldn't match shapes that <use> copies.
        rules += [
            f'[style*="{way}: {light}"]{{{way}:{dark} !important}}'
            for way in ("fill", "stroke", "stop-color")
        ]
    return "@media screen and (prefers-color-scheme: dark){" + "".join(rules) + "}"
