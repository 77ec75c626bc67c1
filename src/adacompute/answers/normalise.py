"""Converts an answer to a canonical form, whose key is the same for equal answers.

First, `clean` gives each sign in LaTeX or Unicode one spelling. Digits and operators become ASCII; `\\frac`,
`\\sqrt`, functions and Greek letters become commands; set braces become ⦃ ⦄. The characters ≤ ≥ ≠ ± ∓ ∪ ∩ ∈
∅ ∞ ° are kept. `fold_text` does the same for words, and `tighten` for formulas that can't be evaluated.

A form is "open" if only math-verify (`FormulaJudge`) can compare it. A rounded value doesn't equal the exact
one: 0.33 is not 1/3. Dates, ranges, scores and codes are text: 2020-05-01 is not a subtraction, 3 - 2 is.
"""

import json
import re
import string
import unicodedata
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from adacompute.answers.formula import FUNCTIONS, FormulaError, Key, NoValueError, compute_keys, parse_formula
from adacompute.answers.quantity import count_seconds, split_unit
from adacompute.answers.structured import canonicalise_literal, canonicalise_text

Percent = Literal["unit", "fraction"]  # "unit": 50% is 50; "fraction": 50% is 1/2

_WRAPPING_MARKS = ("$$", "$", "**", "__", "*", "_", "`", '"', "'")
_WRAPPING_PAIRS = (
    *((mark, mark) for mark in _WRAPPING_MARKS),
    *(("\\(", "\\)"), ("\\[", "\\]"), ("“", "”"), ("‘", "’"), ("«", "»")),
)
_WRAPPING_LIMIT = 12  # maximum number of enclosing pairs of marks, such as $…$, that are removed from a text


def trim(text: str) -> str | None:
    """Removes enclosing marks and a trailing period from an answer; None if nothing is left.

    >>> trim(" **$5$**. "), trim("$5 and $6"), trim("''")
    ('5', '$5 and $6', None)
    """
    text = text.strip()
    may_drop_period = True
    for _ in range(_WRAPPING_LIMIT):
        if may_drop_period and text.endswith(".") and not text.endswith(".."):
            text, may_drop_period = text[:-1].rstrip(), False
        inner = _unwrap(text)
        if inner is None:
            break
        text = inner.strip()
    if may_drop_period and text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text or None


def _unwrap(text: str) -> str | None:
    """Returns the text inside an enclosing pair of marks; None if there is no pair."""
    for opening, closing in _WRAPPING_PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            inner = text[len(opening) : -len(closing)]
            return inner if opening not in inner and closing not in inner else None
    return None


_FORMULA_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[^\W\d_]+|\S", re.DOTALL)
_SINGLE_IN_BRACES = re.compile(r"\{ (\S+) \}")
_COMPUTING_COMMANDS = frozenset(
    f"\\{name}" for name in ("sum", "prod", "int", "iint", "iiint", "oint", "lim", "det", "gcd", "max", "min")
)
_COMMUTING_SIGNS = frozenset("+*,;=&")


def tighten(formula: str) -> str:
    r"""Rewrites a formula with single spaces between tokens and without braces around single tokens.

    >>> tighten(r"x\equiv 2 \pmod{5}") == tighten(r"x \equiv 2\pmod 5")
    True
    """
    return _SINGLE_IN_BRACES.sub(r"\1", " ".join(_FORMULA_TOKEN.findall(formula)))


def must_differ(a: str, b: str) -> bool:
    r"""Whether two formulas (from `tighten`) must be unequal because only their numerals or letters differ.

    False if a formula contains a sum, an integral, a limit or the like, whose value may still be the same.

    >>> must_differ(tighten(r"2 \to 7"), tighten(r"3 \to 7"))
    True
    >>> must_differ(tighten(r"\sum 2"), tighten(r"\sum 3"))
    False
    """
    left, right = a.split(" "), b.split(" ")
    if (
        len(left) != len(right)
        or not _COMPUTING_COMMANDS.isdisjoint(left)
        or not _COMPUTING_COMMANDS.isdisjoint(right)
    ):
        return False
    pairs = [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]]
    if not all(_is_leaf(x) and _is_leaf(y) for x, y in pairs):
        return False
    if sorted(x for x, _ in pairs) != sorted(y for _, y in pairs):
        return True
    return bool(pairs) and _COMMUTING_SIGNS.isdisjoint(left)


def _is_leaf(token: str) -> bool:
    return token[0].isdigit() or token.isalpha()


OPENING_BRACKETS = "([{⦃"
CLOSING_BRACKETS = ")]}⦄"


def _measure_depths(text: str) -> list[int]:
    """Returns, for each character, how many brackets are open after it."""
    return list(accumulate((sign in OPENING_BRACKETS) - (sign in CLOSING_BRACKETS) for sign in text))


def split_outside_brackets(text: str, separators: str) -> list[str]:
    """Splits a text at separators outside brackets; returns it unsplit if brackets don't match."""
    depths = _measure_depths(text)
    places = [at for at, sign in enumerate(text) if depths[at] == 0 and sign in separators]
    if not places or depths[-1] != 0:
        return [text]
    return [text[begin + 1 : end] for begin, end in pairwise([-1, *places, len(text)])]


def find_relation_signs(text: str) -> list[str]:
    """Returns the relation signs outside brackets, such as < and ≥, in order."""
    depths = _measure_depths(text)
    return [sign for sign, depth in zip(text, depths, strict=True) if depth == 0 and sign in "<>≤≥≠"]


def has_outer_brackets(text: str) -> bool:
    """Whether one pair of brackets encloses the whole text; the two may differ in kind, as in [0, 1)."""
    if len(text) < 2 or text[0] not in OPENING_BRACKETS or text[-1] not in CLOSING_BRACKETS:
        return False
    depths = _measure_depths(text)
    return depths[-1] == 0 and depths.count(0) == 1


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]{1,40}")
_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
# maps each canonical sign to the other signs, or names of LaTeX commands, that are replaced by it
_SPELLINGS = json.loads(files("adacompute.answers").joinpath("spellings.json").read_text("utf-8"))
_SYMBOLS = str.maketrans({sign: one for one, signs in _SPELLINGS["symbols"].items() for sign in signs})
# matches the dash in 1939–1945, which is a span of years, not a subtraction
_NUMBER_SPAN = re.compile(r"(?<=\d)(\s?)–(\s?)(?=\d)")
# matches the minus sign − between numbers; a hyphen may instead be part of a code such as 12-34
_TRUE_MINUS = re.compile(r"(?<=[\d)])−(?=[\d(])")
_THIN_SPACE = re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")

_COMMAND_SIGNS: dict[str, str] = {
    name: sign for sign, names in _SPELLINGS["commands"].items() for name in names.split()
}
_COMMAND_SIGNS |= {" ": " ", "\n": " "} | {sign: sign for sign in "%$#&_-"}
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
# matches a command with a letter attached: \cdott means \cdot t; \pmb and \cdots are commands of their own
_GLUED_COMMAND = re.compile(
    r"\\(?!pmb|cdots)(cdot|times|sin(?!h)|cos(?!h)|tan(?!h)|log|ln|sqrt|pi|pm|theta|infty|frac)"
    r"(?=[A-Za-z](?![A-Za-z]))"
)
_SPACE_COMMAND = re.compile(r"\\[hv]space\s{0,9}\*?\s{0,9}\{[^{}]{0,30}\}")
_TILDE_SPACE = re.compile(r"(?<=\S)~")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathbb|operatorname|mbox|emph|hbox)"
    r"\s{0,9}\{([^{}\\]*)\}"
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,9}\{(.*)\}", re.DOTALL)
_DEGREES = re.compile(r"\^\s{0,9}(?:°|\{\s{0,9}°\s{0,9}\})")
_ORDINAL = re.compile(r"\^\s{0,9}\{\s{0,9}(st|nd|rd|th)\s{0,9}\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,|\{,\}|\\,|,\\!|\\!,?)\d{3}){1,99}(?![\d])(?!,\d)")
_NUMBER_PAIR = re.compile(r"\d{1,3}(?:,[1-9]\d\d)+")
_SEPARATOR = re.compile(r",\\!|\{,\}|\\,|\\!,?|,")


def clean(answer: str) -> str:
    r"""Gives each sign in an answer one spelling, and removes enclosing marks and layout commands.

    >>> clean(r"$\left(\dfrac{1}{2}, 10{,}000\right)$.")
    '(\\frac{1}{2}, 10000)'
    """
    text = answer if answer.isascii() else _unify_alphabet(answer)
    text = trim(text) or ""
    box = _BOX.fullmatch(text)
    if box is not None:
        text = trim(box.group(1)) or ""
    text = _THOUSANDS.sub(_join_thousands, text)
    if "~" in text:
        text = _TILDE_SPACE.sub(" ", text)
    if "\\" in text:
        text = _SPACE_COMMAND.sub(" ", text)
        text = _TEXT_COMMAND.sub(r" \1 ", _TEXT_COMMAND.sub(r" \1 ", text))
        text = _COMMAND.sub(_replace_command, _GLUED_COMMAND.sub(r"\\\1 ", text))
        text = _DEGREES.sub("°", text)
        text = _ORDINAL.sub(r"\1", text)
    if "<=" in text or ">=" in text or "!=" in text:
        text = text.replace("<=", "≤").replace(">=", "≥").replace("!=", "≠")
    text = " ".join(text.split())
    if text.endswith((",", ";")):
        text = text.rstrip(",; ")
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def _join_thousands(match: re.Match[str]) -> str:
    """Removes thousands separators from a number, but not from (1,200), which may be a pair of numbers."""
    text, number = match.string, match.group()
    in_brackets = text[: match.start()].endswith(("(", "[", "\\{")) or text.startswith(
        (")", "]", "\\}"), match.end()
    )
    return number if in_brackets and _NUMBER_PAIR.fullmatch(number) else _SEPARATOR.sub("", number)


def _unify_alphabet(text: str) -> str:
    text = _VULGAR_FRACTION.sub(lambda match: " " + unicodedata.normalize("NFKC", match.group()), text)
    text = _SUPERSCRIPT_RUN.sub(lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _TRUE_MINUS.sub(" - ", _THIN_SPACE.sub(r"\\,", text))
    spans = _NUMBER_SPAN.split(text)[::3] if "=" not in text else [text]
    return "–".join(
        unicodedata.normalize("NFKC", part.translate(_SYMBOLS)).translate(_SYMBOLS) for part in spans
    )


def _replace_command(match: re.Match[str]) -> str:
    return _COMMAND_SIGNS.get(match.group(1), match.group())


_CLEAN_LIMIT = 1000  # maximum length of a text that `fold_text` cleans, in characters
_LEADING_ARTICLE = re.compile(
    r"(?:[Tt]he|THE|[Aa]n|AN|a|A(?!\s+(?:minor|major|flat|sharp|natural|positive|negative|plus|minus|level|side)\b))"
    r"\s+(?=\S)"  # the "A" in "A minor" or "A positive" isn't an article
)
# matches initials such as U.S. or p.m.
_DOTTED_INITIALS = re.compile(r"(?<![\w.])[A-Za-z](?:\.[A-Za-z])+(?!\w)\.?")


def fold_text(text: str) -> str:
    """Converts text to lower case, and removes extra spaces, a leading article and the periods of initials.

    >>> fold_text("The  Netherlands."), fold_text("Theodore"), fold_text("U.S.")
    ('netherlands', 'theodore', 'us')
    """
    text = " ".join((text if len(text) > _CLEAN_LIMIT else clean(text)).split())
    if "." in text:
        text = _DOTTED_INITIALS.sub(lambda match: match.group().replace(".", ""), text)
    article = _LEADING_ARTICLE.match(text)
    bare = text[article.end() :].strip("\"' ") if article else text
    return (bare.rstrip(".") or text).casefold()


class Form(NamedTuple):
    """An answer's canonical form: its kind, a key that equal answers of this kind share, and a unit or ""."""

    kind: str  # "number", "set", ..., "text", or "open" for a formula that only math-verify can compare
    key: object
    unit: str = ""
    places: int = 0  # number of decimals of a number with ten or more digits; else 0


ANSWER_LIMIT = 1000  # maximum length of an answer, in characters; a longer one is compared as plain text
_NESTING_LIMIT = 4  # maximum number of nested sets, tuples and lists

_SINGLE_LETTER = re.compile(r"\(?([A-Za-z])[).]?|\(([A-Za-z])\)[.:]?")
# these pairs of letters are read as products, all others as words
_LETTER_PRODUCTS = frozenset(("ab", "ba", "xy", "yx", "xz", "zx", "yz", "zy"))
_INFINITY = re.compile(r"([-+]?)\s?infinity", re.IGNORECASE)
_CLOCK = re.compile(r"\d{1,9}(?:\s?:\s?\d{1,9})+(?:\.\d{1,9})?(?:\s.*)?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}(?:\s?:\s?\d\d){0,2})\s?([AaPp])\.?\s?[Mm]\.?")
_SPACED_LETTERS = re.compile(r"[A-Za-z](?: [A-Za-z]){1,3}")  # matches the product x y, which equals xy
_LEADING_ZEROS = re.compile(r"^0+(?=\d)")  # matches zeros that are removed: 04:12 becomes 4:12
_NAME = (
    r"(?:\\?[A-Za-z]+(?:_\{?\w{1,9}\}?)?'{0,3}(?:\^\{?-1\}?)?(?:\([^()=]{1,30}\))?"
    r"|\([A-Za-z](?:\s?,\s?[A-Za-z]){1,5}\))"
)
_LABEL = re.compile(rf"({_NAME})\s*(?:=|∈|:=)\s*(?![=])")
_NAME_ONLY = re.compile(_NAME)
_MATRIX = re.compile(r"\\begin\s?\{([pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\s?\{\1\}", re.DOTALL)
_CONJUNCTION = re.compile(r"\s(?:and|or)\s|,?\s(?:and|or)\s")
_DASH = re.compile(r"(?<=\d)[-–](?=\d)")
_MIRRORED_SIGNS = {">": "<", "≥": "≤"}
_JSON_STARTS = ('{"', '[{"')  # JSON objects begin like this, and no formula does


def normalise(answer: str, percent: Percent = "unit") -> Form:
    r"""Returns the canonical form of an answer.

    >>> normalise(r"\frac12") == normalise("0.50"), normalise("12 cm")
    (True, Form(kind='number', key=Fraction(12, 1), unit='cm', places=0))
    """
    if len(answer) > ANSWER_LIMIT:
        return Form("text", fold_text(answer))  # not cached, because long answers would fill memory
    if answer.startswith(_JSON_STARTS):
        return Form("json", canonicalise_text(answer) or answer)
    return _normalise_short(answer, percent)


def clear_form_cache() -> None:
    """Empties the cache of forms."""
    _normalise_short.cache_clear()
    find_other_keys.cache_clear()


_LITERAL_STARTS = ("[", "(", "{", "'", '"')
_DURATION_SIGN = re.compile(r"\d\s?(?::|\\text|d|h|m|s)|sec:\d", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def find_other_keys(answer: str) -> tuple[tuple[str, object], ...]:
    """Returns an answer's keys besides the key of its form; two answers that share a key are equal.

    A key is the value of a Python literal, or a duration in seconds.

    >>> find_other_keys("5:18"), find_other_keys("42")
    ((('seconds', Fraction(19080, 1)),), ())
    """
    if len(answer) > ANSWER_LIMIT:
        return ()
    if answer.lstrip().startswith(_LITERAL_STARTS):
        literal = canonicalise_literal(answer)
        return () if literal is None else (("literal", literal),)
    seconds = count_seconds(clean(answer)) if _DURATION_SIGN.search(answer) else None
    return () if seconds is None else (("seconds", seconds),)


@lru_cache(maxsize=65_536)
def _normalise_short(answer: str, percent: Percent) -> Form:
    if _PLAIN_NUMBER.fullmatch(answer):  # a shortcut for the most common case
        return Form("number", Fraction(answer), "", _count_places(answer))
    text = clean(answer)
    return _build_form(text, percent, 0) if text else Form("text", fold_text(answer))


def _build_form(text: str, percent: Percent, depth: int) -> Form:
    text = text.strip()
    text = text.replace(" ", "") if _SPACED_LETTERS.fullmatch(text) else text
    letter = _SINGLE_LETTER.fullmatch(text)
    if letter is not None:
        name = letter.group(1) or letter.group(2)
        return build_scalar_form(name, percent) if name == "e" or text == "i" else Form("letter", name)
    word = _parse_word(text)
    if word is not None:
        return word
    if depth < _NESTING_LIMIT:
        structure = _parse_structure(text, percent, depth)
        if structure is not None:
            return structure
    return build_scalar_form(text, percent)


def _parse_word(text: str) -> Form | None:
    """Parses a text that consists of words, or is infinity or a time of day; None for other texts."""
    if text[-1:] in ("y", "Y"):
        infinity = _INFINITY.fullmatch(text)
        if infinity is not None:
            return Form("∞", -1 if infinity.group(1) == "-" else 1)
    if text.replace(" ", "").isalpha() and text not in _LETTER_PRODUCTS:
        # letters are text, unless they name a function
        if text != "pi" and FUNCTIONS.isdisjoint(text.split()):
            return Form("text", fold_text(text))
    elif text[:1].isdigit():
        hour = _TIME_OF_DAY.fullmatch(text)
        if hour is not None:
            text = f"{hour.group(1)} {hour.group(2)}m"
        if hour is not None or _CLOCK.fullmatch(text):
            return Form("text", fold_text(_LEADING_ZEROS.sub("", re.sub(r"\s?:\s?", ":", text))))
    return None


def _parse_structure(text: str, percent: Percent, depth: int) -> Form | None:
    """Parses a set, tuple, interval, list, matrix or relation; None for other texts."""
    if text == "∅" or text == "⦃⦄" or text == "⦃ ⦄":
        return Form("set", frozenset())
    if "\\begin" in text:
        return _parse_environment(text, percent, depth)
    unions = split_outside_brackets(text, "∪")
    if len(unions) > 1:
        forms = [_build_inner_form(part, percent, depth) for part in unions]
        return _join_if_open(text, forms) or Form("union", frozenset(forms))
    if has_outer_brackets(text):
        return _parse_brackets(text, percent, depth)
    parts = [
        part.strip() for part in split_outside_brackets(_CONJUNCTION.sub(", ", text), ",;") if part.strip()
    ]
    if len(parts) > 1:
        return _parse_list(text, parts, percent, depth)
    relation = split_outside_brackets(text, "<>≤≥≠")
    if len(relation) > 1:
        return _parse_relation(text, relation, percent, depth)
    return _parse_equation(text, percent, depth)


def _build_inner_form(text: str, percent: Percent, depth: int) -> Form:
    # places=0, because numbers inside a set or list must match exactly, not only after rounding
    return _build_form(text, percent, depth + 1)._replace(places=0)


def _join_if_open(text: str, forms: list[Form]) -> Form | None:
    """Returns an "open" form of the whole text if any of its parts is "open", else None."""
    return Form("open", tighten(text)) if any(form.kind == "open" for form in forms) else None


def _parse_list(text: str, parts: list[str], percent: Percent, depth: int) -> Form:
    """Parses a list without brackets; order doesn't matter. 1,2 equals the set {1,2}, but 1,2,2 doesn't."""
    labels = [_LABEL.match(part) for part in parts]
    names = {label.group(1) for label in labels if label is not None}
    # "x=3, x=-3" has only one name, and so is read as "3, -3"
    keep_names = len(names) > 1 or labels[0] is None
    forms: list[Form] = []
    for part, label in zip(parts, labels, strict=True):
        form = _build_inner_form(part[label.end() :] if label else part, percent, depth)
        if label is not None and keep_names:
            forms.append(Form("named", (label.group(1), form)))
        elif "±" in part and form.kind == "set" and isinstance(form.key, frozenset):
            forms += form.key
        else:
            forms.append(form)
    counts = Counter(forms)
    repeats = len(counts) < len(forms)
    return _join_if_open(text, [form.key[1] if form.kind == "named" else form for form in forms]) or Form(  # type: ignore[index]
        "list" if repeats else "set", frozenset(counts.items() if repeats else forms)
    )


def _parse_brackets(text: str, percent: Percent, depth: int) -> Form | None:
    opening, inner, closing = text[0], text[1:-1], text[-1]
    parts = split_outside_brackets(inner, ",")
    if len(parts) == 1 and opening != "⦃":
        # brackets around a single value are ignored: (5) is 5
        return _build_form(inner, percent, depth + 1) if opening in "({" and inner.strip() else None
    forms = [_build_inner_form(part, percent, depth) for part in parts]
    if opening in "⦃{":
        return _join_if_open(text, forms) or Form("set", frozenset(forms))
    return _join_if_open(text, forms) or Form("tuple", (opening, tuple(forms), closing))


def _parse_environment(text: str, percent: Percent, depth: int) -> Form:
    """Parses a matrix, with or without brackets or a name; other LaTeX environments become "open" forms."""
    label = _LABEL.match(text)
    text = text[label.end() :] if label else text
    in_brackets = has_outer_brackets(text) and text[0] in "([" and text[1:].lstrip().startswith("\\begin")
    matrix = _MATRIX.fullmatch(text[1:-1].strip() if in_brackets else text)
    if matrix is None or "\\begin" in matrix.group(2):
        return Form("open", tighten(text))
    rows = [row for row in re.split(r"\\\\(?:\s?\[[^\]]{0,9}\])?", matrix.group(2)) if row.strip()]
    cells = tuple(tuple(_build_inner_form(cell, percent, depth) for cell in row.split("&")) for row in rows)
    # keeps the bars of |…|, because a determinant isn't a matrix
    fence = matrix.group(1)[0] if matrix.group(1)[0] in "vVB" else ""
    if fence == "" and len(cells) > 1 and all(len(row) == 1 for row in cells):
        # a matrix with one column is a vector
        form = Form("tuple", ("(", tuple(row[0] for row in cells), ")"))
    else:
        form = Form("matrix", (fence, cells))
    return _join_if_open(text, [cell for row in cells for cell in row]) or form


def _parse_relation(text: str, parts: list[str], percent: Percent, depth: int) -> Form | None:
    signs = find_relation_signs(text)
    sides = [_build_inner_form(part, percent, depth) for part in parts]
    if any(side.kind in ("open", "text") for side in sides):
        return None
    if any(sign in _MIRRORED_SIGNS for sign in signs):
        if any(sign not in _MIRRORED_SIGNS for sign in signs):
            return None
        signs, sides = [_MIRRORED_SIGNS[sign] for sign in reversed(signs)], sides[::-1]
    interval = _make_interval(signs, sides)
    return interval or Form("relation", (tuple(signs), tuple(sides)))


def _make_interval(signs: list[str], sides: list[Form]) -> Form | None:
    """Converts an inequality in one unknown to an interval: x > 5 is (5, ∞). None for other inequalities."""
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


def _parse_equation(text: str, percent: Percent, depth: int) -> Form | None:
    member = text.partition("∈")
    if member[1] and _NAME_ONLY.fullmatch(member[0].strip()):
        return _build_form(member[2], percent, depth + 1)
    sides = [side.strip() for side in split_outside_brackets(text, "=")]
    if len(sides) < 2 or not all(sides):
        return None
    if _NAME_ONLY.fullmatch(sides[0]):
        return _build_form(sides[-1], percent, depth + 1)
    if len(sides) == 2 and _NAME_ONLY.fullmatch(sides[1]):
        return _build_form(sides[0], percent, depth + 1)
    # in an equation, a dash between digits is a minus sign, though 3-1 alone is text
    sides = [_DASH.sub(" - ", side) for side in sides]
    forms = [_build_form(side, percent, depth + 1) for side in sides]
    if forms[-1].kind in ("number", "complex") and forms[-2].kind in ("number", "complex"):
        return forms[-1]  # "8 + 3 + 6 = 17" gives the answer 17
    return _make_equation(sides)


def _make_equation(sides: list[str]) -> Form:
    """Builds the form of an equation in several unknowns; the order of its sides doesn't matter."""
    if len(sides) == 2:
        left, right = sides
        with suppress(FormulaError, NoValueError):
            differences = (f"({left})-({right})", f"({right})-({left})")
            return Form("equation", frozenset(tuple(compute_keys(parse_formula(d))) for d in differences))
    return Form("open", tighten("=".join(sides)))


_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_DECIMAL = re.compile(r"-?\d*\.\d+")
_LONG_DECIMAL = 10
_CODE_OR_SPAN = re.compile(
    r"0[xXoObB]\w+"
    r"|(?P<span>[-+]?[$€£¥]?\d[\d.]*(?:[-–/][$€£¥]?\d[\d.]*)+)"
    r"(?:\s?[%°$€£¥]|\s(?P<word>[A-Za-z]{2,})[\w /.^-]*)?"
)
# matches a number with a label, such as 44 BC, which isn't a product
_LABELLED_NUMBER = re.compile(r"\d[\d.,]* [A-Z]{2,}")
_NUMBER_IN_BASE = re.compile(r"([0-9]{1,60}|[0-9A-Z]{1,60})\s?_\s?\{?\s?([0-9]{1,2}|[a-z]{2,9})\s?\}?")
_BASE_NAMES = "two three four five six seven eight nine ten"
_BASES = {name: str(base) for base, name in enumerate(_BASE_NAMES.split(), 2)} | {
    "twelve": "12",
    "sixteen": "16",
}
_WORD = re.compile(r"[^\W\d_]{2,}")
_WORD_COMMAND = re.compile(r"\\[A-Za-z]+")
# maps the key of a formula such as 1x or x^1 to the letter that it equals
_LETTER_KEYS = {
    compute_keys(("var", letter))[0]: letter for letter in string.ascii_letters if letter not in ("e", "i")
}


def build_scalar_form(text: str, percent: Percent) -> Form:
    r"""Builds the form of an answer that isn't a set, list or the like: a number, formula, letter or text.

    >>> [build_scalar_form(text, "unit").key for text in ("12 cm", "3 - 1", "3-1")]
    [Fraction(12, 1), Fraction(2, 1), '3-1']
    """
    if _is_code(text):
        return Form("text", fold_text(text.replace("–", "-")))
    base_match = _NUMBER_IN_BASE.fullmatch(text)
    if base_match is not None:
        digits, base = base_match.groups()
        key = Fraction(digits) if digits.isdigit() else digits
        return Form("number", key, f"base {_BASES.get(base, base)}")
    form = _parse_measure(text, percent) or (
        None if _LABELLED_NUMBER.fullmatch(text) else _build_formula_form(text)
    )
    if form is not None:
        return form
    mathematical = "\\" in text or any(sign in text for sign in "^_=|{}∞∪∩≤≥<>±∓⌊⌈")
    return (
        Form("open", tighten(text)) if mathematical and not _is_prose(text) else Form("text", fold_text(text))
    )


def _count_places(text: str) -> int:
    """Counts the decimals of a number with at least ten digits, which a machine probably rounded; else 0."""
    if "." not in text or len(text) <= _LONG_DECIMAL or not _DECIMAL.fullmatch(text):
        return 0
    whole, _, decimals = text.lstrip("-").partition(".")
    return len(decimals) if len((whole + decimals).lstrip("0")) >= _LONG_DECIMAL else 0


def _is_code(text: str) -> bool:
    match = _CODE_OR_SPAN.fullmatch(text)
    if match is None:
        return False
    span, word = match["span"], match["word"]
    if span is None:
        return True
    dashed = "-" in span[1:] or "–" in span or span.count("/") > 1
    return dashed and word not in FUNCTIONS and word != "pi"


def _parse_measure(text: str, percent: Percent) -> Form | None:
    measurement = split_unit(text)
    if measurement is None:
        return None
    number, unit, factor = measurement
    if _is_code(number):
        return Form("text", fold_text(text.replace("–", "-")))
    form = _build_formula_form(f"({number})*{factor}" if factor != 1 else number)
    if form is None or form.kind not in ("number", "complex"):
        return None
    if unit == "%" and percent == "fraction" and isinstance(form.key, Fraction):
        return Form("number", form.key / 100)
    return Form(form.kind, form.key, unit, form.places)


def _build_formula_form(text: str) -> Form | None:
    try:
        keys = compute_keys(parse_formula(text))
    except FormulaError:
        return None
    except NoValueError:
        return Form("text", text.replace(" ", ""))  # a formula that can't be evaluated is compared as text
    forms = [_build_key_form(key) for key in keys]
    if len(forms) > 1:
        return Form("set", frozenset(forms))
    return forms[0]._replace(places=_count_places(text)) if "." in text else forms[0]


def _build_key_form(key: Key) -> Form:
    kind, *rest = key
    if kind == "formula" and key in _LETTER_KEYS:
        return Form("letter", _LETTER_KEYS[key])
    return Form(str(kind), rest[0] if len(rest) == 1 else tuple(rest))


def _is_prose(text: str) -> bool:
    """Whether the text has two or more words of a natural language, and so isn't a formula."""
    return len([word for word in _WORD.findall(_WORD_COMMAND.sub("", text)) if word not in FUNCTIONS]) > 1
