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
_PLAIN_WORD = re.compile(r"[a-z0-9]++(?:'[a-z0-9]++)*+")  # the same, of plain text, twice as fast
_NUMBER = re.compile(r"\d++(?:,\d{3}(?!\d))*+(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_END = re.compile(r"""[.!?](?=[\s"'”’)\]*]|\Z)|[。！？]""")  # one character ahead: a run of dots ends once
_FRACTION = re.compile(r"\d ?[/⁄] ?\d|\\[dtc]?frac|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]")
_MONEY = re.compile(r"[€£¥₹₩₽]|\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")  # not $5$, which is a formula
_QUESTIONS = "?？؟"
_PERCENTS = "%％"


def features(prompts: Sequence[str]) -> Floats:
    """The 16 features of each prompt, (prompts, 16), in the order of NAMES; `entropy_estimate` is NaN.

    >>> dict(zip(NAMES, features(["What is 15% of $80?"])[0].round(2).tolist()))["has_money_word"]
    1.0
    """
    found = np.empty((len(prompts), len(NAMES)))
    for row, prompt in enumerate(prompts):
        found[row] = _row(prompt[:LIMIT])
    return found


def normalised(entropy: npt.ArrayLike) -> Floats:
    """Entropies in nats, from 0 up, as e / (1 + e), 0 to 1; NaN where it isn't known.

    >>> normalised([0.0, 1.0, float("nan")]).tolist()
    [0.0, 0.5, nan]
    """
    given = np.asarray(entropy, dtype=np.float64)
    return np.asarray(1.0 - 1.0 / (1.0 + np.where(given >= 0, given, nan)))  # which is 1 where it is infinite


def _row(text: str) -> tuple[float, ...]:
    plain = text.isascii()
    words = (_PLAIN_WORD if plain else _WORD).findall(text.lower())
    kinds = set(words)
    count = len(words)
    values = [_value(number) for number in _NUMBER.findall(text)]
    return (
        len(text),
        count,
        _sentences(text),
        sum(map(text.count, _QUESTIONS)),
        len(values),
        log1p(sum(values) / len(values)) if values else 0.0,
        log1p(max(values)) if values else 0.0,
        not kinds.isdisjoint(PERCENT) or any(sign in text for sign in _PERCENTS),
        not (plain and "/" not in text and "\\" not in text) and _FRACTION.search(text) is not None,
        not kinds.isdisjoint(TIME),
        not kinds.isdisjoint(MONEY) or _has_amount(text, plain),
        not kinds.isdisjoint(RATE),
        not kinds.isdisjoint(MULTI_STEP),
        sum(map(len, words)) / count if count else 0.0,
        len(kinds) / count if count else 0.0,
        nan,
    )


def _has_amount(text: str, plain: bool) -> bool:
    return not (plain and "$" not in text) and _MONEY.search(text) is not None


def _sentences(text: str) -> int:
    """Ends of sentences, and one for words after the last."""
    ends, last = 0, 0
    for end in _END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_WORD.search(text, last) is not None)


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
