"""The paper's 16 features of a prompt. Knows nothing of policies, and of a sample only its entropy.

Each text is read once, up to LIMIT characters, in linear time: every pattern takes or leaves a character
without going back for it. docs/features.md says what each number is.
"""

import re
from collections.abc import Sequence
from math import isnan, log1p, nan
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.features.words import MONEY, MULTI_STEP, PERCENT, RATE, TIME

__all__ = ["ENTROPY", "KINDS", "LARGEST", "LIMIT", "NAMES", "Kind", "features", "normalised"]

Floats = npt.NDArray[np.float64]
Kind = Literal["count", "log", "flag", "mean", "share"]

LIMIT = 20_000  # characters that are looked at
LARGEST = 1e15  # of a number's value: larger ones, infinite ones too, count as this
_DIGITS = 40  # of a number that are converted: more tell nothing that LARGEST doesn't

_FEATURES: tuple[tuple[str, Kind], ...] = (
    ("prompt_length_chars", "count"),
    ("prompt_length_words", "count"),
    ("sentence_count", "count"),
    ("question_marks", "count"),
    ("numbers_count", "count"),
    ("number_magnitude_avg", "log"),
    ("number_magnitude_max", "log"),
    ("has_percentage", "flag"),
    ("has_fraction", "flag"),
    ("has_time_word", "flag"),
    ("has_money_word", "flag"),
    ("has_rate_word", "flag"),
    ("has_multi_step_word", "flag"),
    ("avg_word_length", "mean"),
    ("unique_word_ratio", "share"),
    ("entropy_estimate", "share"),
)
NAMES = tuple(name for name, _ in _FEATURES)
KINDS = tuple(kind for _, kind in _FEATURES)
ENTROPY = NAMES.index("entropy_estimate")

# a script without spaces gives a word a character: ideographs and kana
_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]++(?:['’][^\W_{_ALONE}]++)*+")
_PLAIN_WORD = re.compile(r"[a-z0-9]++(?:'[a-z0-9]++)*+")  # the same, of plain text in small letters
_PLAIN = str.maketrans(  # of plain text: words in small letters, a blank for all that is between them
    {chr(code): chr(code).lower() if chr(code).isalnum() or code == ord("'") else " " for code in range(128)}
)
# a class of characters first, not a repetition: `re` then skips to where a match can begin
_NUMBER = re.compile(r"\d\d*+(?:,\d{3}(?!\d))*+(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_END = re.compile(r"""[.!?](?=[\s"'”’)\]*]|\Z)|[。！？]""")  # one character ahead: a run of dots ends once
_PLAIN_END = re.compile(r"""[.!?](?=[\s"')\]*]|\Z)""")
_PLAIN_ANY = re.compile("[A-Za-z0-9]")  # of a word
_FRACTION = re.compile(r"\d ?[/⁄] ?\d|\\[dtc]?frac|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]")
_MONEY = re.compile(r"[€£¥₹₩₽]|\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")  # not $5$, which is a formula
_PLAIN_SLASH = re.compile(r"\d ?/ ?\d")
_PLAIN_FRAC = re.compile(r"\\[dtc]?frac")
_PLAIN_MONEY = re.compile(r"\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")
_QUESTIONS = "?？؟"
_MARKED = PERCENT | TIME | MONEY | RATE | MULTI_STEP
_SHORT = 15  # digits of a number that is surely below LARGEST


def features(prompts: Sequence[str]) -> Floats:
    """The 16 features of each prompt, (prompts, 16), in the order of NAMES; `entropy_estimate` is NaN.

    >>> dict(zip(NAMES, features(["What is 15% of $80?"])[0].round(2).tolist()))["has_money_word"]
    1.0
    """
    rows = [_row(prompt[:LIMIT]) for prompt in prompts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(NAMES))


def normalised(entropy: npt.ArrayLike) -> Floats:
    """Entropies in nats, from 0 up, as e / (1 + e), 0 to 1; NaN where it isn't known.

    >>> normalised([0.0, 1.0, float("nan")]).tolist()
    [0.0, 0.5, nan]
    """
    given = np.asarray(entropy, dtype=np.float64)
    return np.asarray(1.0 - 1.0 / (1.0 + np.where(given >= 0, given, nan)))  # which is 1 where it is infinite


def _row(text: str) -> tuple[float, ...]:
    plain = text.isascii()
    words, letters = _plain_words(text) if plain else _words(text)
    kinds = set(words)
    marked = kinds & _MARKED  # few are: the five lists are then looked up for these alone
    count = len(words)
    values = [
        float(number) if len(number) <= _SHORT and number.isdecimal() else _value(number)
        for number in _NUMBER.findall(text)
    ]
    return (
        len(text),
        count,
        _plain_sentences(text) if plain else _sentences(text),
        text.count("?") if plain else sum(map(text.count, _QUESTIONS)),
        len(values),
        log1p(sum(values) / len(values)) if values else 0.0,
        log1p(max(values)) if values else 0.0,
        not marked.isdisjoint(PERCENT) or "%" in text or (not plain and "％" in text),
        _has_fraction(text, plain),
        not marked.isdisjoint(TIME),
        not marked.isdisjoint(MONEY) or _has_amount(text, plain),
        not marked.isdisjoint(RATE),
        not marked.isdisjoint(MULTI_STEP),
        letters / count if count else 0.0,
        len(kinds) / count if count else 0.0,
        nan,
    )


def _words(text: str) -> tuple[list[str], int]:
    """The words, and how many characters they have together."""
    words = _WORD.findall(text.lower())
    return words, sum(map(len, words))


def _plain_words(text: str) -> tuple[list[str], int]:
    """The same, of plain text, where words can be split: three times as fast as to match them."""
    spaced = text.translate(_PLAIN)
    if "'" not in spaced:
        return spaced.split(), len(spaced) - spaced.count(" ")
    words = []
    for word in spaced.split():
        if "'" in word:
            words += _PLAIN_WORD.findall(word)
        else:
            words.append(word)
    return words, sum(map(len, words))


def _has_fraction(text: str, plain: bool) -> bool:
    if not plain:
        return _FRACTION.search(text) is not None
    slash = "/" in text and _PLAIN_SLASH.search(text) is not None
    return slash or ("\\" in text and _PLAIN_FRAC.search(text) is not None)


def _has_amount(text: str, plain: bool) -> bool:
    if not plain:
        return _MONEY.search(text) is not None
    return "$" in text and _PLAIN_MONEY.search(text) is not None


def _sentences(text: str) -> int:
    """Ends of sentences, and one for words after the last."""
    ends, last = 0, 0
    for end in _END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_WORD.search(text, last) is not None)


def _plain_sentences(text: str) -> int:
    ends, last = 0, 0
    for end in _PLAIN_END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_PLAIN_ANY.search(text, last) is not None)


def _value(number: str) -> float:
    """A number's size: 0 to LARGEST."""
    digits = number.replace(",", "")
    if len(digits) > _DIGITS:
        whole = re.match(r"\d++", digits)
        if whole is None or len(whole[0].lstrip("0")) > _DIGITS:
            return LARGEST
        head, mark, power = digits.replace("E", "e").partition("e")
        digits = head.lstrip("0")[:_DIGITS] + mark + power[:_DIGITS]
    value = float(digits or "0")
    return LARGEST if isnan(value) or value > LARGEST else value
