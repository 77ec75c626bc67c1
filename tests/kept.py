"""Compare what is computed now with what is kept in the repository, whatever processor kept it.

Processors and library builds differ in the last bits of logarithms, of sums and of whatever is drawn from
them. So no kept number is compared bit by bit. CONTRIBUTING.md ("Kept numbers") states the rules.
"""

import doctest
import math
import re

import numpy as np
import numpy.typing as npt

__all__ = ["Examples", "assert_same_array", "assert_same_drawing", "assert_same_text", "text_difference"]

NEAR = 1e-6  # of arrays, absolute and relative: far above rounding, far below any change of meaning
POINT = 0.02  # of drawings, in points of 1/72 inch: they are written with two decimals
FLIPPED = 50  # one printed number in so many may differ by one unit of its last digit

_DECIMAL = re.compile(r"(?<![\w.])(?P<number>\d[\d,]*\.\d+(?:e[+-]?\d+)?|\d+(?=%))(?!\.?\w)")
_COORDINATE = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w#])")
_GENERATED_ID = re.compile(r"\b([\w]+-)?[mp][0-9a-f]{10}\b")  # matplotlib hashes coordinates into names
_LAYOUT = re.compile(r"[ \t]+|─+|-{2,}")


def assert_same_array(found: npt.ArrayLike, kept: npt.ArrayLike, remedy: str = "") -> None:
    """Both arrays have one shape and the same numbers, up to `NEAR`."""
    found, kept = np.asarray(found), np.asarray(kept)
    assert found.shape == kept.shape, remedy
    assert np.allclose(found, kept, rtol=NEAR, atol=NEAR, equal_nan=True), (
        f"{remedy}: they differ by up to {np.nanmax(np.abs(found - kept))}"
    )


def assert_same_drawing(found: str, kept: str, remedy: str = "") -> None:
    """Both SVG files show the same elements at the same places, up to `POINT`."""
    ours, theirs = _parts_of_drawing(found), _parts_of_drawing(kept)
    assert ours[0] == theirs[0], f"{remedy}: other elements"
    moved = [abs(a - b) for a, b in zip(ours[1], theirs[1], strict=True)]
    assert max(moved, default=0.0) <= POINT, f"{remedy}: something moved by {max(moved)} points"


def assert_same_text(found: str, kept: str, remedy: str = "") -> None:
    """Both texts say the same words and, up to rounding, the same measured numbers."""
    difference = text_difference(found, kept)
    assert difference is None, f"{remedy}: {difference}"


def text_difference(found: str, kept: str) -> str | None:
    """What differs between two texts, or None. Whole numbers that aren't percentages count as words.

    A decimal or a percentage may differ by one unit of its last printed digit, since a value that lies on a
    boundary of rounding can fall to either side. No more than one number in `FLIPPED` may, but always one.
    """
    if found == kept:
        return None
    (words, numbers), (kept_words, kept_numbers) = _parts_of_text(found), _parts_of_text(kept)
    if words != kept_words:
        at = next(
            (i for i, (a, b) in enumerate(zip(words, kept_words, strict=False)) if a != b),
            min(len(words), len(kept_words)) - 1,
        )
        return f"{words[at]!r} instead of {kept_words[at]!r}"
    flipped = []
    for ours, theirs in zip(numbers, kept_numbers, strict=True):
        value, kept_value = (float(text.replace(",", "")) for text in (ours, theirs))
        if math.isclose(value, kept_value, rel_tol=1e-9, abs_tol=1e-12):
            continue
        if abs(value - kept_value) > 1.001 * min(_unit(ours), _unit(theirs)):
            return f"{ours} instead of {theirs}"
        flipped.append(f"{ours} instead of {theirs}")
    return ", ".join(flipped) if len(flipped) > max(1, len(numbers) // FLIPPED) else None


class Examples(doctest.OutputChecker):
    """Checks the output of examples in docs: measured numbers are compared as in any kept text."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        return "..." not in want and text_difference(" ".join(got.split()), " ".join(want.split())) is None


def _parts_of_text(text: str) -> tuple[list[str], list[str]]:
    """The words between measured numbers, without how wide the columns are, and these numbers."""
    numbers = [match["number"] for match in _DECIMAL.finditer(text)]
    words = [_LAYOUT.sub(" ", part).strip() for part in _DECIMAL.sub("\0", text).split("\0")]
    return words, numbers


def _unit(text: str) -> float:
    """One unit of the last printed digit."""
    digits, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _parts_of_drawing(svg: str) -> tuple[str, list[float]]:
    """A drawing without its coordinates, names of its own numbered as they come; and the coordinates."""
    names: dict[str, str] = {}
    svg = _GENERATED_ID.sub(lambda m: names.setdefault(m[0], f"name_{_letters(len(names))}"), svg)
    numbers = [float(match[0]) for match in _COORDINATE.finditer(svg)]
    return _COORDINATE.sub("\0", svg), numbers


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
