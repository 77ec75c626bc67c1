"""Answer -> canonical form, whose key equal answers share, or "open" where it can't tell.

Doesn't know of classes or graders. Rounded values are not the values they round: 0.33 is not 1/3.
"""

import re
from collections import Counter
from functools import lru_cache

from adacompute.answers import brackets
from adacompute.answers.clean import clean
from adacompute.answers.form import Form
from adacompute.answers.operations import NoValueError
from adacompute.answers.parse import parse
from adacompute.answers.scalar import plain, scalar
from adacompute.answers.shape import tight
from adacompute.answers.task import Percent
from adacompute.answers.tokens import FUNCTIONS, FormulaError
from adacompute.answers.value import value_keys
from adacompute.answers.words import folded

__all__ = ["Form", "forget_forms", "normalise"]

LONGEST = 1000  # characters; a longer answer is text, compared as it is written
_DEEPEST = 4  # levels of sets, tuples and lists

_LETTER = re.compile(r"\(?([A-Za-z])[).]?|\(([A-Za-z])\)[.:]?")
_PRODUCTS = frozenset(("ab", "ba", "xy", "yx", "xz", "zx", "yz", "zy"))  # the others are words
_INFINITY = re.compile(r"([-+]?)\s?infinity", re.IGNORECASE)
_CLOCK = re.compile(r"\d{1,9}(?:\s?:\s?\d{1,9})+(?:\.\d{1,9})?(?:\s.*)?")
_HOUR = re.compile(r"(\d{1,2}(?:\s?:\s?\d\d){0,2})\s?([AaPp])\.?\s?[Mm]\.?")
_SPACED = re.compile(r"[A-Za-z](?: [A-Za-z]){1,3}")  # x y is xy
_ZEROS = re.compile(r"^0+(?=\d)")  # 04:12 is 4:12
_NAME = (
    r"(?:\\?[A-Za-z]+(?:_\{?\w{1,9}\}?)?'{0,3}(?:\^\{?-1\}?)?(?:\([^()=]{1,30}\))?"
    r"|\([A-Za-z](?:\s?,\s?[A-Za-z]){1,5}\))"
)
_LABEL = re.compile(rf"({_NAME})\s*(?:=|∈|:=)\s*(?![=])")
_NAMED = re.compile(_NAME)
_MATRIX = re.compile(r"\\begin\s?\{([pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\s?\{\1\}", re.DOTALL)
_JOINT = re.compile(r"\s(?:and|or)\s|,?\s(?:and|or)\s")
_DASH = re.compile(r"(?<=\d)[-–](?=\d)")
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
    number = plain(answer)
    if number is not None:
        return number
    text = clean(answer)
    return _form(text, percent, 0) if text else Form("text", folded(answer))


def _form(text: str, percent: Percent, depth: int) -> Form:
    text = text.strip()
    number = plain(text)
    if number is not None:
        return number
    text = text.replace(" ", "") if _SPACED.fullmatch(text) else text
    letter = _LETTER.fullmatch(text)
    if letter is not None:
        name = letter.group(1) or letter.group(2)
        return scalar(name, percent) if name == "e" or text == "i" else Form("letter", name)
    word = _word(text)
    if word is not None:
        return word
    if depth < _DEEPEST:
        found = _structure(text, percent, depth)
        if found is not None:
            return found
    return scalar(text, percent)


def _word(text: str) -> Form | None:
    """Words, and times of day; None where the text is no such thing."""
    if text[-1:] in ("y", "Y"):
        infinity = _INFINITY.fullmatch(text)
        if infinity is not None:
            return Form("∞", -1 if infinity.group(1) == "-" else 1)
    if text.replace(" ", "").isalpha() and text not in _PRODUCTS:
        # a word is no product of its letters, but for xy and its like
        if text != "pi" and FUNCTIONS.isdisjoint(text.split()):
            return Form("text", folded(text))
    elif text[:1].isdigit():
        hour = _HOUR.fullmatch(text)
        if hour is not None:
            text = f"{hour.group(1)} {hour.group(2)}m"
        if hour is not None or _CLOCK.fullmatch(text):
            return Form("text", folded(_ZEROS.sub("", re.sub(r"\s?:\s?", ":", text))))
    return None


def _structure(text: str, percent: Percent, depth: int) -> Form | None:
    """Sets, tuples, intervals, lists, matrices, relations; None where the text is none of them."""
    if text == "∅" or text == "⦃⦄" or text == "⦃ ⦄":
        return Form("set", frozenset())
    if "\\begin" in text:
        return _environment(text, percent, depth)
    unions = brackets.split(text, "∪")
    if len(unions) > 1:
        forms = [_inner(part, percent, depth) for part in unions]
        return _closed(text, forms) or Form("union", frozenset(forms))
    if brackets.encloses(text):
        return _enclosed(text, percent, depth)
    parts = [part.strip() for part in brackets.split(_JOINT.sub(", ", text), ",;") if part.strip()]
    if len(parts) > 1:
        return _list(text, parts, percent, depth)
    relation = brackets.split(text, "<>≤≥≠")
    if len(relation) > 1:
        return _relation(text, relation, percent, depth)
    return _equation(text, percent, depth)


def _inner(text: str, percent: Percent, depth: int) -> Form:
    return _form(text, percent, depth + 1)._replace(places=0)  # inside others, values are compared exactly


def _closed(text: str, forms: list[Form]) -> Form | None:
    """The whole as an open formula, where one of its parts is open."""
    return Form("open", tight(text)) if any(form.kind == "open" for form in forms) else None


def _list(text: str, parts: list[str], percent: Percent, depth: int) -> Form:
    """A bare list, in any order. Without repeats it is the same as a set; 1,2,2 isn't 1,2."""
    labels = [_LABEL.match(part) for part in parts]
    names = {label.group(1) for label in labels if label is not None}
    named = len(names) > 1 or labels[0] is None  # x=3, x=-3 names one unknown, so 3, -3
    forms: list[Form] = []
    for part, label in zip(parts, labels, strict=True):
        form = _inner(part[label.end() :] if label else part, percent, depth)
        if label is not None and named:
            forms.append(Form("named", (label.group(1), form)))
        elif "±" in part and form.kind == "set" and isinstance(form.key, frozenset):
            forms += form.key
        else:
            forms.append(form)
    counts = Counter(forms)
    repeats = len(counts) < len(forms)
    return _closed(text, [form.key[1] if form.kind == "named" else form for form in forms]) or Form(  # type: ignore[index]
        "list" if repeats else "set", frozenset(counts.items() if repeats else forms)
    )


def _enclosed(text: str, percent: Percent, depth: int) -> Form | None:
    opening, inner, closing = text[0], text[1:-1], text[-1]
    parts = brackets.split(inner, ",")
    if len(parts) == 1 and opening != "⦃":
        # brackets of one number are only brackets
        return _form(inner, percent, depth + 1) if opening in "({" and inner.strip() else None
    forms = [_inner(part, percent, depth) for part in parts]
    if opening in "⦃{":
        return _closed(text, forms) or Form("set", frozenset(forms))
    return _closed(text, forms) or Form("tuple", (opening, tuple(forms), closing))


def _environment(text: str, percent: Percent, depth: int) -> Form:
    """A matrix, bare, in brackets or with a name; anything else with \\begin is open."""
    label = _LABEL.match(text)
    text = text[label.end() :] if label else text
    bracketed = brackets.encloses(text) and text[0] in "([" and text[1:].lstrip().startswith("\\begin")
    matrix = _MATRIX.fullmatch(text[1:-1].strip() if bracketed else text)
    if matrix is None or "\\begin" in matrix.group(2):
        return Form("open", tight(text))
    rows = [row for row in re.split(r"\\\\(?:\s?\[[^\]]{0,9}\])?", matrix.group(2)) if row.strip()]
    cells = tuple(tuple(_inner(cell, percent, depth) for cell in row.split("&")) for row in rows)
    fence = matrix.group(1)[0] if matrix.group(1)[0] in "vVB" else ""  # a determinant is no matrix
    if fence == "" and len(cells) > 1 and all(len(row) == 1 for row in cells):
        form = Form("tuple", ("(", tuple(row[0] for row in cells), ")"))  # a column is a vector
    else:
        form = Form("matrix", (fence, cells))
    return _closed(text, [cell for row in cells for cell in row]) or form


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
    sides = [_DASH.sub(" - ", side) for side in sides]  # beside = a dash can only be a minus
    forms = [_form(side, percent, depth + 1) for side in sides]
    if forms[-1].kind in ("number", "complex") and forms[-2].kind in ("number", "complex"):
        return forms[-1]  # 8 + 3 + 6 = 17 is 17
    return _zero_set(sides)


def _zero_set(sides: list[str]) -> Form:
    """An equation in several unknowns, up to swapping its sides."""
    try:
        keys = [tuple(value_keys(parse(f"({left})-({right})"))) for left, right in (sides[:2], sides[1::-1])]
    except (FormulaError, NoValueError):
        return Form("open", tight("=".join(sides)))
    return Form("equation", frozenset(keys)) if len(sides) == 2 else Form("open", tight("=".join(sides)))
