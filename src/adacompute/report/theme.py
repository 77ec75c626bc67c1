"""Colours and line styles that work with colour blindness and on a dark page.

Figures are drawn in the light colours, as plain hex values that any SVG viewer understands;
`dark_css` turns each into its dark partner where the screen prefers dark. A colour that isn't
listed here stays as it is.
"""

from dataclasses import dataclass

# name: light, dark. Okabe and Ito's colours, adjusted until text in them is readable on the page.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#171a1f", "#e8ebef"),
    "dim": ("#5c6570", "#99a3af"),
    "line": ("#c9ced5", "#3a434f"),
    "grid": ("#e9ebee", "#20262f"),
    "page": ("#ffffff", "#0e1116"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#c4540a", "#f0934a"),
    "green": ("#00795a", "#3fc79a"),
    "purple": ("#a0508a", "#d79ac4"),
    "yellow": ("#937000", "#e6c229"),
    "red": ("#b3261e", "#ff8a80"),
    "grey": ("#6b747f", "#7d8793"),
}
_RAMP_LIGHT = ("#d3d8df", "#aecfe2", "#7fb9d9", "#4f9fcb", "#2c82b4", "#17648f", "#0c476a", "#082c46")
_RAMP_DARK = ("#343c47", "#2a5069", "#2c6b8f", "#3387b3", "#4fa6d2", "#7fc2e6", "#b2dcf3", "#e6f5fd")
COLOURS |= {
    f"ramp{at}": pair for at, pair in enumerate(zip(_RAMP_LIGHT, _RAMP_DARK, strict=True))
}  # from little to much, by lightness alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStyle:
    """How one policy is drawn and named, the same in every figure."""

    name: str  # for people
    colour: str  # a key of COLOURS
    line: str = "-"  # matplotlib's: - -- : -.
    marker: str = ""


POLICY_STYLES: dict[str, PolicyStyle] = {
    "stopping": PolicyStyle(name="stopping (ours)", colour="blue", marker="o"),
    "stopping-2": PolicyStyle(name="stopping, 2 rounds", colour="blue", line=":"),
    "stopping-3": PolicyStyle(name="stopping, 3 rounds", colour="blue", line="-."),
    "fixed": PolicyStyle(name="uniform", colour="ink", line="--"),
    "random": PolicyStyle(name="random", colour="grey", line=":"),
    "heuristic": PolicyStyle(name="longest prompts", colour="yellow", line="-."),
    "shuffled": PolicyStyle(name="shuffled labels", colour="grey", line="-."),
    "asc": PolicyStyle(name="Adaptive-Consistency", colour="orange", line="-"),
    "esc": PolicyStyle(name="ESC", colour="purple", line="-"),
    "doubling": PolicyStyle(name="doubling", colour="yellow", line="--"),
    "bayes": PolicyStyle(name="Bayesian stopping", colour="orange", line="--"),
    "pets": PolicyStyle(name="PETS", colour="purple", line="--"),
    "classifier": PolicyStyle(name="the paper's classifier", colour="red", line="-"),
    "curve": PolicyStyle(name="curve", colour="green", line="-"),
    "oracle": PolicyStyle(name="one-shot oracle", colour="green", line="--"),
    "peers": PolicyStyle(name="best mix of the others", colour="grey", line="-"),
    "menu": PolicyStyle(name="menu (ours)", colour="blue", marker="o"),
    "best fixed mix": PolicyStyle(name="best fixed mix", colour="ink", line="--"),
    "stopping, mixed": PolicyStyle(name="stopping, mixed", colour="ink", line=":"),
    "joint fixed vote": PolicyStyle(name="joint fixed vote", colour="yellow", line="--"),
    "threshold cascade": PolicyStyle(name="threshold cascade", colour="orange", line="--"),
    "sequential cascade": PolicyStyle(name="sequential cascade", colour="orange", line="-"),
    "prompt router": PolicyStyle(name="prompt router", colour="purple", line="-"),
    "random router": PolicyStyle(name="random router", colour="purple", line=":"),
}


def policy_style(policy: str) -> PolicyStyle:
    """A policy's style; an unknown one is grey, under its own name."""
    return POLICY_STYLES.get(policy, PolicyStyle(name=policy, colour="grey"))


def colour(name: str) -> str:
    """The colour to draw in: the light one."""
    return COLOURS[name][0]


def ramp(count: int) -> list[str]:
    """Colours from little to much, e.g. for budgets 1 to 16.

    >>> len(ramp(5))
    5
    """
    if not 1 <= count <= len(_RAMP_LIGHT):
        raise ValueError(f"{count} steps; a ramp has 1 to {len(_RAMP_LIGHT)}")
    last = len(_RAMP_LIGHT) - 1
    return [_RAMP_LIGHT[round(at * last / max(1, count - 1))] for at in range(count)]


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
