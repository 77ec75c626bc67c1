"""Colours and line styles that work with colour blindness and on a dark page.

Figures are drawn in the light colours, as plain hex values that any SVG viewer understands;
`dark_css` turns each into its dark partner where the screen prefers dark. A colour that isn't
listed here stays as it is.

`theme.json` has the light and the dark one of each colour, by Okabe and Ito, adjusted until text in
them is readable on the page; how each policy is named and drawn; and matplotlib's own settings, with
colours by name.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_THEME = json.loads(files("adacompute.report").joinpath("theme.json").read_text("utf-8"))
COLOURS = {name: (str(light), str(dark)) for name, (light, dark) in _THEME["colours"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStyle:
    """How one policy is drawn and named, the same in every figure."""

    name: str  # for people
    colour: str  # a key of COLOURS
    line: str = "-"  # matplotlib's: - -- : -.


POLICY_STYLES = {policy: PolicyStyle(**style) for policy, style in _THEME["policies"].items()}


def policy_style(policy: str) -> PolicyStyle:
    """A policy's style; an unknown one is grey, under its own name."""
    return POLICY_STYLES.get(policy, PolicyStyle(name=policy, colour="grey"))


def colour(name: str) -> str:
    """The colour to draw in: the light one."""
    return COLOURS[name][0]


FIGURE_STYLE: Any = {  # for matplotlib
    name: colour(value) if value in COLOURS else value for name, value in _THEME["figure"].items()
}


def dark_css() -> str:
    """CSS rules that show figures in dark colours where a screen prefers them; print stays light."""
    rules = []
    for light, dark in COLOURS.values():
        # no "svg " in the selector: a marker is a <use>, whose shape has no svg above it
        rules += [
            f'[style*="{way}: {light}"]{{{way}:{dark} !important}}'
            for way in ("fill", "stroke", "stop-color")
        ]
    return "@media screen and (prefers-color-scheme: dark){" + "".join(rules) + "}"
