"""Answer -> canonical form, whose key equal answers share, or "open" where it can't tell.

Doesn't know of classes or graders. Rounded values are not the values they round: 0.33 is not 1/3.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from adacompute.answers import brackets
from adacompute.answers.clean import clean
from adacompute.answers.parse import parse
from adacompute.answers.task import Percent
from adacompute.answers.tokens import FUNCTIONS, FormulaError
from adacompute.answers.units import split_unit
from adacompute.answers.value import Key, NoValueError, value_keys
from adacompute.answers.words import folded

__all__ = ["Form", "forget_forms", "normalise"]


class Form(NamedTuple):
    """What an answer means: a kind, a key shared by equal answers of that kind, and a unit ("" for none)."""

    kind: str  # "number", "set", ..., "text"; "open": a formula that another judge must compare
    key: object
    unit: str = ""
    places: int = 0  # decimals of a number written as a decimal of ten digits or more, else 0


LONGEST = 1000  # characters; a longer answer is text, compared as it is written
_DEEPEST = 4  # levels of sets, tuples and lists

_PLAIN = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_DECIMAL = re.compile(r"-?\d*\.\d+")
_DIGITS = 10
_LETTER = re.compile(r"\(?([A-Za-z])[).]?|\(([A-Za-z])\)[.:]?")
_CLOCK = re.compile(r"\d{1,9}(?:\s?:\s?\d{1,9})+(?:\.\d{1,9})?(?:\s.*)?")
_SPACED = re.compile(r"[A-Za-z](?: [A-Za-z]){1,3}")  # x y is xy
_ZEROS = re.compile(r"^0+(?=\d)")  # 04:12 is 4:12
_BASE = re.compile(r"([0-9]{1,60}|[0-9A-Z]{1,60})\s?_\s?\{?\s?([0-9]{1,2}|[a-z]{2,9})\s?\}?")
_BASES = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
}
_BASES |= {"ten": "10", "twelve": "12", "sixteen": "16"}
_NAME = (
    r"(?:\\?[A-Za-z]+(?:_\{?\w{1,9}\}?)?'{0,3}(?:\^\{?-1\}?)?(?:\([^()=]{1,30}\))?"
    r"|\([A-Za-z](?:\s?,\s?[A-Za-z]){1,5}\))"
)
_LABEL = re.compile(rf"({_NAME})\s*(?:=|∈|:=)\s*(?![=])")
_NAMED = re.compile(_NAME)
_WORD = re.compile(r"[^\W\d_]{2,}")
_MATRIX = re.compile(r"\\begin\s?\{([pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\s?\{\1\}", re.DOTALL)
_JOINT = re.compile(r"\s(?:and|or)\s|,?\s(?:and|or)\s")
_CONSTANTS = frozenset({"pi"})
_MIRROR = {">": "<", "≥": "≤"}


def normalise(answer: str, percent: Percent = "unit") -> Form:
    r"""The canonical form of an answer.

    >>> normalise(r"\frac12") == normalise("0.50"), normalise("12 cm")
    (True, Form(kind='number', key=Fraction(12, 1), unit='cm', places=0))
    """
    if len(answer) > LONGEST:
        return Form("text", folded(answer))  # not cached: a few long ones would fill the memory
    return _normalise(answer, percent)


def forget_forms() -> None:
    """Empties the cache of forms."""
    _normalise.cache_clear()


@lru_cache(maxsize=65_536)
def _normalise(answer: str, percent: Percent) -> Form:
    if _PLAIN.fullmatch(answer):
        if "." not in answer:
            return Form("number", Fraction(int(answer)))
        return Form("number", Fraction(answer), "", _places(answer))
    text = clean(answer)
    return _form(text, percent, 0) if text else Form("text", folded(answer))


def _form(text: str, percent: Percent, depth: int) -> Form:
    text = text.strip()
    text = text.replace(" ", "") if _SPACED.fullmatch(text) else text
    letter = _LETTER.fullmatch(text)
    if letter is not None:
        name = letter.group(1) or letter.group(2)
        return Form("complex", (Fraction(0), Fraction(1))) if text == "i" else Form("letter", name)
    if text.isalpha() and text not in _CONSTANTS:
        return Form("text", folded(text))  # a word is no product of its letters, but for xy and its like
    if _CLOCK.fullmatch(text):
        return Form("text", folded(_ZEROS.sub("", re.sub(r"\s?:\s?", ":", text))))
    if depth < _DEEPEST:
        found = _structure(text, percent, depth)
        if found is not None:
            return found
    return _scalar(text, percent)


def _structure(text: str, percent: Percent, depth: int) -> Form | None:
    """Sets, tuples, intervals, lists, matrices, relations; None where the text is none of them."""
    if text == "∅" or text == "⦃⦄" or text == "⦃ ⦄":
        return Form("set", frozenset())
    matrix = _MATRIX.fullmatch(text)
    if matrix is not None:
        return _matrix(matrix.group(2), percent, depth)
    unions = brackets.split(text, "∪")
    if len(unions) > 1:
        return _several("union", unions, percent, depth)
    if brackets.encloses(text):
        return _enclosed(text, percent, depth)
    parts = [part for part in brackets.split(_JOINT.sub(", ", text), ",;") if part.strip()]
    if len(parts) > 1:
        return _several("set", _unlabelled(parts), percent, depth)
    relation = brackets.split(text, "<>≤≥≠")
    if len(relation) > 1:
        return _relation(text, relation, percent, depth)
    return _equation(text, percent, depth)


def _inner(text: str, percent: Percent, depth: int) -> Form:
    return _form(text, percent, depth + 1)._replace(places=0)  # inside others, values are compared exactly


def _several(kind: str, parts: list[str], percent: Percent, depth: int) -> Form:
    forms = [_inner(part, percent, depth) for part in parts]
    if any(form.kind == "open" for form in forms):
        return Form("open", " ".join(parts))
    return Form(kind, frozenset(form for form in forms))


def _enclosed(text: str, percent: Percent, depth: int) -> Form | None:
    opening, inner, closing = text[0], text[1:-1], text[-1]
    parts = brackets.split(inner, ",")
    if opening == "⦃" or (opening == "{" and len(parts) > 1):
        return _several("set", parts, percent, depth)
    if len(parts) == 1:
        # brackets of one number are only brackets
        return _form(inner, percent, depth + 1) if opening in "({" and inner.strip() else None
    forms = tuple(_inner(part, percent, depth) for part in parts)
    if any(form.kind == "open" for form in forms):
        return Form("open", text)
    return Form("tuple", (opening, forms, closing))


def _matrix(body: str, percent: Percent, depth: int) -> Form:
    rows = [row for row in re.split(r"\\\\(?:\s?\[[^\]]{0,9}\])?", body) if row.strip()]
    cells = tuple(tuple(_inner(cell, percent, depth) for cell in row.split("&")) for row in rows)
    if any(form.kind == "open" for row in cells for form in row):
        return Form("open", body)
    return Form("matrix", cells)


def _unlabelled(parts: list[str]) -> list[str]:
    """x=3, x=-3 names one unknown, so 3, -3; x=1, y=2 keeps its names."""
    labels = [_LABEL.match(part.strip()) for part in parts]
    names = {label.group(1) for label in labels if label is not None}
    if len(names) == 1 and (all(labels) or labels[0] is not None):
        return [
            part.strip()[label.end() :] if label else part for part, label in zip(parts, labels, strict=True)
        ]
    return [f"⟨{part.strip()}" if label else part for part, label in zip(parts, labels, strict=True)]


def _relation(text: str, parts: list[str], percent: Percent, depth: int) -> Form | None:
    signs = brackets.signs(text)
    sides = [_inner(part, percent, depth) for part in parts]
    if any(side.kind in ("open", "text") for side in sides):
        return None
    if any(sign in _MIRROR for sign in signs):
        if any(sign not in _MIRROR for sign in signs):
            return None
        signs, sides = [_MIRROR[sign] for sign in reversed(signs)], sides[::-1]
    interval = _interval(signs, sides)
    return interval or Form("relation", (tuple(signs), tuple(sides)))


def _interval(signs: list[str], sides: list[Form]) -> Form | None:
    """x > 5 is (5, ∞): an unknown alone between constants."""
    unknown = [side.kind in ("letter", "formula") for side in sides]
    if "≠" in signs or unknown.count(True) != 1:
        return None
    low, high = Form("∞", -1), Form("∞", 1)
    opening, closing = "(", ")"
    at = unknown.index(True)
    if sides[at].kind != "letter" or len(sides) > 3 or (len(sides) == 3 and at != 1):
        return None
    if at > 0:
        low, opening = sides[at - 1], "[" if signs[at - 1] == "≤" else "("
    if at < len(sides) - 1:
        high, closing = sides[at + 1], "]" if signs[at] == "≤" else ")"
    return Form("tuple", (opening, (low, high), closing))


def _equation(text: str, percent: Percent, depth: int) -> Form | None:
    if text.startswith("⟨"):  # one of several named unknowns: the name is part of the answer
        label = _LABEL.match(text[1:])
        name = label.group(1) if label else ""
        return Form("named", (name, _form(text[1:][label.end() if label else 0 :], percent, depth + 1)))
    member = text.partition("∈")
    if member[1] and _NAMED.fullmatch(member[0].strip()):
        return _form(member[2], percent, depth + 1)
    sides = [side.strip() for side in brackets.split(text, "=")]
    if len(sides) < 2 or not all(sides):
        return None
    if _NAMED.fullmatch(sides[0]):
        return _form(sides[-1], percent, depth + 1)
    if len(sides) == 2 and _NAMED.fullmatch(sides[1]):
        return _form(sides[0], percent, depth + 1)
    forms = [_form(side, percent, depth + 1) for side in sides]
    if forms[-1].kind in ("number", "complex") and forms[-2].kind in ("number", "complex"):
        return forms[-1]  # 8 + 3 + 6 = 17 is 17
    return _zero_set(sides)


def _zero_set(sides: list[str]) -> Form:
    """An equation in several unknowns, up to swapping its sides."""
    try:
        keys = [tuple(value_keys(parse(f"({left})-({right})"))) for left, right in (sides[:2], sides[1::-1])]
    except (FormulaError, NoValueError):
        return Form("open", "=".join(sides))
    return Form("equation", frozenset(keys)) if len(sides) == 2 else Form("open", "=".join(sides))


def _scalar(text: str, percent: Percent) -> Form:
    based = _BASE.fullmatch(text)
    if based is not None:
        digits, base = based.groups()
        key = Fraction(digits) if digits.isdigit() else digits
        return Form("number", key, f"base {_BASES.get(base, base)}")
    measured = split_unit(text)
    if measured is not None:
        number, unit, power = measured
        form = _formula(number)
        if form is not None and form.kind in ("number", "complex"):
            return _measured(form, unit, power, percent)
    form = _formula(text)
    if form is not None:
        return form
    mathematical = "\\" in text or any(sign in text for sign in "^_=|{}∞∪∩≤≥<>±")
    return Form("open", text) if mathematical and not _prose(text) else Form("text", folded(text))


def _places(text: str) -> int:
    """Decimals of a number with ten digits or more: a value as computed, not one rounded by hand."""
    if "." not in text or len(text) <= _DIGITS or not _DECIMAL.fullmatch(text):
        return 0
    whole, _, decimals = text.lstrip("-").partition(".")
    return len(decimals) if len((whole + decimals).lstrip("0")) >= _DIGITS else 0


def _measured(form: Form, unit: str, power: int, percent: Percent) -> Form:
    key = form.key
    if isinstance(key, Fraction):
        key = key * 10**power
        if unit == "%" and percent == "fraction":
            return Form("number", key / 100)
    return Form(form.kind, key, unit, form.places)


def _formula(text: str) -> Form | None:
    try:
        keys = value_keys(parse(text))
    except FormulaError:
        return None
    except NoValueError:
        return Form("text", text)  # too large to compute: equal only as written, for every judge
    forms = [_of_key(key) for key in keys]
    if len(forms) > 1:
        return Form("set", frozenset(forms))
    return forms[0]._replace(places=_places(text)) if "." in text else forms[0]


def _of_key(key: Key) -> Form:
    kind, *rest = key
    return Form(str(kind), rest[0] if len(rest) == 1 else tuple(rest))


def _prose(text: str) -> bool:
    """Two words of a language, or more: no formula."""
    return (
        len([word for word in _WORD.findall(re.sub(r"\\[A-Za-z]+", "", text)) if word not in FUNCTIONS]) > 1
    )
