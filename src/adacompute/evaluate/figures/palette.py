"""Colours and looks that survive colour blindness and a dark page. Knows nothing of what is drawn.

Figures are drawn in the light colours, as plain hex values that any viewer of SVG understands; `dark_rules`
turns each into its dark partner where a screen prefers dark. A colour that isn't listed here stays as it is.
"""

from dataclasses import dataclass

__all__ = ["COLOURS", "LOOKS", "Look", "colour", "dark_rules", "look", "ramp"]

# name: light, dark. Okabe and Ito's, darkened or lightened until text in them can be read on the page.
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
}  # from little to much: lightness alone tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How one policy is drawn and called, the same in every figure."""

    name: str  # for people
    colour: str  # of COLOURS
    line: str = "-"  # matplotlib's: - -- : -.
    marker: str = ""


LOOKS: dict[str, Look] = {
    "stopping": Look(name="stopping (ours)", colour="blue", marker="o"),
    "fixed": Look(name="uniform", colour="ink", line="--"),
    "random": Look(name="random", colour="grey", line=":"),
    "heuristic": Look(name="longest prompts", colour="yellow", line="-."),
    "shuffled": Look(name="shuffled labels", colour="grey", line="-."),
    "asc": Look(name="Adaptive-Consistency", colour="orange", line="-"),
    "esc": Look(name="ESC", colour="purple", line="-"),
    "doubling": Look(name="doubling", colour="yellow", line="--"),
    "classifier": Look(name="the paper's classifier", colour="red", line="-"),
    "curve": Look(name="curve", colour="green", line="-"),
    "oracle": Look(name="one-shot oracle", colour="green", line="--"),
    "peers": Look(name="best mix of the others", colour="grey", line="-"),
}


def look(policy: str) -> Look:
    """A policy's look; one that isn't known here is grey, under its own name."""
    return LOOKS.get(policy, Look(name=policy, colour="grey"))


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


def dark_rules() -> str:
    """Style rules that show figures in dark colours where a screen prefers them; print stays light."""
    rules = []
    for light, dark in COLOURS.values():
        # no "svg " before it: a marker is a <use>, and inside of one no svg is above the shape
        rules += [
            f'[style*="{way}: {light}"]{{{way}:{dark} !important}}'
            for way in ("fill", "stroke", "stop-color")
        ]
    return "@media screen and (prefers-color-scheme: dark){" + "".join(rules) + "}"
