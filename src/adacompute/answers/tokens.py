"""Cuts a cleaned formula into tokens. Doesn't know how they bind.

A word of a language ends the attempt: "blue" is no product of four variables.
"""

import re

__all__ = ["FUNCTIONS", "FormulaError", "Token", "tokens"]

Token = tuple[str, str]  # kind: "n" number, "c" command, "v" variable, "p" the character itself; "" ends

LONGEST = 400  # characters of a formula
_DIGITS = 400  # of one number
_VOWELS = frozenset("aeiouAEIOU")
_ARC = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_FUNCTION_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh exp ln log lg sqrt abs"
_SHORT_WORDS = (
    "no on of in is it to so or if up us we he me my am pm an as at be by do go hi ok ox yo ah id ex oh ad "
    "mr dr"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split()) | frozenset(_ARC)
_WORDS = frozenset(_SHORT_WORDS.split())

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?|\.\d+|\d+\.(?!\d))|\\([A-Za-z]+)|([A-Za-z]+)|(\S))")
_EXPONENT = re.compile(r"(?<=[\d.])[eE]([-+]?\d{1,4})(?![\w.])")
_MIXED = re.compile(r"(?<![\w.^/}])(\d{1,30}) (\d{1,30})/(\d{1,30})(?![\d.])")
_REPEATING = re.compile(r"(\d{0,40})\.(\d{0,40})\\(?:overline|bar|dot)\s?\{(\d{1,40})\}")
_AXES = frozenset("xyzt")  # the small letters that a capital multiplies: Ax + By, but not Mr or Xe
_TIMES = re.compile(r"(?<=[\d)}])\s[xX]\s(?=[\d(])|(?<=\d)[xX](?=10\^)")


class FormulaError(Exception):
    """The text is not a formula of the kind read here."""


def tokens(text: str) -> list[Token]:
    """The tokens of a cleaned formula, with an end mark; raises FormulaError."""
    if len(text) > LONGEST:
        raise FormulaError("too long")
    text = _MIXED.sub(_mixed, text)
    text = _TIMES.sub("*", text)
    text = _EXPONENT.sub(r"*10^{\1}", text)
    if "." in text and "\\" in text:
        text = _REPEATING.sub(_repeating, text)
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        number, command, letters, other = match.groups()
        if number is not None:
            if len(number) > _DIGITS:
                raise FormulaError("too many digits")
            found.append(("n", number))
        elif command is not None:
            found.append(("c", _ARC.get(command, command)))
        elif letters is not None:
            found += _letters(letters)
        else:
            found.append(("p", other))
    found.append(("", ""))
    return found


def _mixed(match: re.Match[str]) -> str:
    whole, top, bottom = match.groups()
    return f"({whole}+{top}/{bottom})" if 0 < int(top) < int(bottom) else match.group()


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
    nines = "9" * len(period) + "0" * len(fixed)
    return f"(({int(whole + fixed + period or 0)}-{int(whole + fixed or 0)})/{nines})"


def _letters(letters: str) -> list[Token]:
    if len(letters) == 1:
        return [("v", letters)]
    if letters in FUNCTIONS or letters == "pi":
        return [("c", _ARC.get(letters, letters))]
    if _is_product(letters):
        return [("v", letter) for letter in letters]
    raise FormulaError(f"{letters!r} is a word")


def _is_product(letters: str) -> bool:
    if letters[:1].isupper() and letters[1:].islower() and not _AXES.issuperset(letters[1:]):
        return False
    if len(letters) == 2:
        return letters.lower() not in _WORDS
    return len(letters) <= 4 and not _VOWELS & set(letters)
