"""A cleaned answer without parts -> its form: number, measure, formula, code or text. Knows no lists or sets.

Dates, ranges, scores and codes are text: 2020-05-01 is no subtraction, though 3 - 2 is.
"""

import re
import string
from fractions import Fraction

from adacompute.answers.form import Form
from adacompute.answers.operations import NoValueError
from adacompute.answers.parse import parse
from adacompute.answers.shape import tight
from adacompute.answers.task import Percent
from adacompute.answers.tokens import FUNCTIONS, FormulaError
from adacompute.answers.units import split_unit
from adacompute.answers.value import Key, value_keys
from adacompute.answers.words import folded

__all__ = ["plain", "scalar"]

_PLAIN = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_DECIMAL = re.compile(r"-?\d*\.\d+")
_DIGITS = 10
_CODE = re.compile(
    r"0[xXoObB]\w+"
    r"|(?P<span>[-+]?[$€£¥]?\d[\d.]*(?:[-–/][$€£¥]?\d[\d.]*)+)"
    r"(?:\s?[%°$€£¥]|\s(?P<word>[A-Za-z]{2,})[\w /.^-]*)?"
)
_LABELLED = re.compile(r"\d[\d.,]* [A-Z]{2,}")  # 44 BC: no product, whatever the letters say
_BASE = re.compile(r"([0-9]{1,60}|[0-9A-Z]{1,60})\s?_\s?\{?\s?([0-9]{1,2}|[a-z]{2,9})\s?\}?")
_BASE_NAMES = "two three four five six seven eight nine ten"
_BASES = {name: str(base) for base, name in enumerate(_BASE_NAMES.split(), 2)} | {
    "twelve": "12",
    "sixteen": "16",
}
_WORD = re.compile(r"[^\W\d_]{2,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
# a formula that comes to one letter is that letter: 1x, x^1
_LETTERS = {
    value_keys(("var", letter))[0]: letter for letter in string.ascii_letters if letter not in ("e", "i")
}


def scalar(text: str, percent: Percent) -> Form:
    r"""The form of an answer that has no parts.

    >>> scalar("12 cm", "unit").key, scalar("3 - 1", "unit").key, scalar("3-1", "unit").key
    (Fraction(12, 1), Fraction(2, 1), '3-1')
    """
    if _is_code(text):
        return Form("text", folded(text.replace("–", "-")))
    based = _BASE.fullmatch(text)
    if based is not None:
        digits, base = based.groups()
        key = Fraction(digits) if digits.isdigit() else digits
        return Form("number", key, f"base {_BASES.get(base, base)}")
    form = _measure(text, percent) or (None if _LABELLED.fullmatch(text) else _formula(text))
    if form is not None:
        return form
    mathematical = "\\" in text or any(sign in text for sign in "^_=|{}∞∪∩≤≥<>±")
    return Form("open", tight(text)) if mathematical and not _prose(text) else Form("text", folded(text))


def plain(text: str) -> Form | None:
    """The form of a number in plain digits, found without more ado; None where it is none."""
    if not _PLAIN.fullmatch(text):
        return None
    if "." not in text:
        return Form("number", Fraction(int(text)))
    return Form("number", Fraction(text), "", _places(text))


def _places(text: str) -> int:
    """Decimals of a number with ten digits or more: a value as computed, not one rounded by hand."""
    if "." not in text or len(text) <= _DIGITS or not _DECIMAL.fullmatch(text):
        return 0
    whole, _, decimals = text.lstrip("-").partition(".")
    return len(decimals) if len((whole + decimals).lstrip("0")) >= _DIGITS else 0


def _is_code(text: str) -> bool:
    found = _CODE.fullmatch(text)
    if found is None:
        return False
    span, word = found["span"], found["word"]
    if span is None:
        return True
    dashed = "-" in span[1:] or "–" in span or span.count("/") > 1
    return dashed and word not in FUNCTIONS and word != "pi"


def _measure(text: str, percent: Percent) -> Form | None:
    measured = split_unit(text)
    if measured is None:
        return None
    number, unit, factor = measured
    if _is_code(number):
        return Form("text", folded(text.replace("–", "-")))
    form = (plain(number) if factor == 1 else None) or _formula(
        f"({number})*{factor}" if factor != 1 else number
    )
    if form is None or form.kind not in ("number", "complex"):
        return None
    if unit == "%" and percent == "fraction" and isinstance(form.key, Fraction):
        return Form("number", form.key / 100)
    return Form(form.kind, form.key, unit, form.places)


def _formula(text: str) -> Form | None:
    try:
        keys = value_keys(parse(text))
    except FormulaError:
        return None
    except NoValueError:
        return Form(
            "text", text.replace(" ", "")
        )  # too large to compute: equal only as written, for every judge
    forms = [_of_key(key) for key in keys]
    if len(forms) > 1:
        return Form("set", frozenset(forms))
    return forms[0]._replace(places=_places(text)) if "." in text else forms[0]


def _of_key(key: Key) -> Form:
    kind, *rest = key
    if kind == "formula" and key in _LETTERS:
        return Form("letter", _LETTERS[key])
    return Form(str(kind), rest[0] if len(rest) == 1 else tuple(rest))


def _prose(text: str) -> bool:
    """Two words of a language, or more: no formula."""
    return len([word for word in _WORD.findall(_COMMAND.sub("", text)) if word not in FUNCTIONS]) > 1
