"""The paper's 16 features of a prompt, the same when training and serving.

Each text is read once, up to PROMPT_LIMIT characters, in linear time: no pattern goes back over what it
has passed. docs/reference/features.md says what each number is and lists the words; a test compares.
"""

import re
from collections.abc import Sequence
from math import isnan, log1p, nan
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "ENTROPY_COLUMN",
    "FEATURE_KINDS",
    "FEATURE_NAMES",
    "LARGEST_NUMBER",
    "PROMPT_LIMIT",
    "compute_prompt_features",
    "normalise_entropy",
]

PERCENT = frozenset({"percent", "percents", "percentage", "percentages", "pct"})

TIME = frozenset(
    {
        *("second", "seconds", "minute", "minutes", "hour", "hours", "hourly", "day", "days", "daily"),
        *("week", "weeks", "weekly", "weekend", "weekends", "month", "months", "monthly"),
        *("year", "years", "yearly", "decade", "decades", "century", "centuries", "annual", "annually"),
        *("morning", "mornings", "noon", "afternoon", "afternoons", "evening", "evenings"),
        *("night", "nights", "midnight", "today", "tomorrow", "yesterday", "am", "pm", "clock", "oclock"),
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "june", "july", "august", "september", "october"),
        *("november", "december", "age", "ago", "old", "older", "younger", "time", "times"),
    }
)

MONEY = frozenset(
    {
        *("dollar", "dollars", "cent", "cents", "euro", "euros", "pound", "pounds", "rupee", "rupees"),
        *("yen", "yuan", "usd", "eur", "gbp", "money", "cash", "coin", "coins", "dime", "dimes"),
        *("nickel", "nickels", "penny", "pennies", "price", "prices", "priced", "cost", "costs"),
        *("costing", "pay", "pays", "paid", "paying", "payment", "payments", "buy", "buys", "buying"),
        *("bought", "sell", "sells", "selling", "sold", "sale", "sales", "spend", "spends", "spending"),
        *("spent", "earn", "earns", "earned", "earning", "earnings", "salary", "salaries", "wage", "wages"),
        *("profit", "profits", "revenue", "income", "budget", "discount", "discounts", "fee", "fees"),
        *("tax", "taxes", "tip", "tips", "loan", "loans", "debt", "debts", "owe", "owes", "owed"),
        *("interest", "invest", "invests", "invested", "investment", "save", "saves", "saved", "savings"),
        *("worth", "cheap", "cheaper", "expensive"),
    }
)

RATE = frozenset(
    {
        *("per", "each", "every", "rate", "rates", "ratio", "ratios", "proportion", "proportional"),
        *("speed", "speeds", "velocity", "pace", "fast", "faster", "slow", "slower", "average", "averages"),
        *("mph", "kph", "kmh", "rpm", "frequency", "density", "flow", "flows"),
    }
)

MULTI_STEP = frozenset(
    {
        *("then", "after", "afterwards", "before", "next", "finally", "first", "later", "initially"),
        *("remaining", "remainder", "rest", "left", "leftover", "total", "altogether", "combined"),
        *("together", "both", "twice", "thrice", "half", "double", "doubled", "triple", "tripled"),
        *("more", "less", "fewer", "than", "if", "since", "until", "while", "also", "however"),
        *("therefore", "hence", "suppose", "given", "step", "steps", "followed", "additional"),
    }
)


Floats = npt.NDArray[np.float64]
FeatureKind = Literal["count", "log", "flag", "mean", "share"]

PROMPT_LIMIT = 20_000  # characters that are looked at
LARGEST_NUMBER = 1e15  # of a number's value: larger and infinite ones count as this
_DIGIT_LIMIT = 40  # of a number that are converted: with more it is at least LARGEST_NUMBER

_FEATURES: tuple[tuple[str, FeatureKind], ...] = (
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
FEATURE_NAMES = tuple(name for name, _ in _FEATURES)
FEATURE_KINDS = tuple(kind for _, kind in _FEATURES)
ENTROPY_COLUMN = FEATURE_NAMES.index("entropy_estimate")

# scripts without spaces, ideographs and kana, count one word a character
_UNSPACED_SCRIPTS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED_SCRIPTS}]|[^\W_{_UNSPACED_SCRIPTS}]++(?:['’][^\W_{_UNSPACED_SCRIPTS}]++)*+")
_ASCII_WORD = re.compile(r"[a-z0-9]++(?:'[a-z0-9]++)*+")  # the same for lower-case ASCII text
_ASCII_TABLE = str.maketrans(  # for ASCII text: words in small letters, a blank for everything between them
    {chr(code): chr(code).lower() if chr(code).isalnum() or code == ord("'") else " " for code in range(128)}
)
# begins with a character class, not a repetition, so that `re` skips to where a match can begin
_NUMBER = re.compile(r"\d\d*+(?:,\d{3}(?!\d))*+(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_SENTENCE_END = re.compile(r"""[.!?](?=[\s"'”’)\]*]|\Z)|[。！？]""")  # a run of dots ends once
_ASCII_SENTENCE_END = re.compile(r"""[.!?](?=[\s"')\]*]|\Z)""")
_ASCII_WORD_START = re.compile("[A-Za-z0-9]")  # in a word
_FRACTION = re.compile(r"\d ?[/⁄] ?\d|\\[dtc]?frac|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]")
_AMOUNT = re.compile(r"[€£¥₹₩₽]|\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")  # not $5$, which is a formula
_ASCII_FRACTION = re.compile(r"\d ?/ ?\d")
_FRACTION_COMMAND = re.compile(r"\\[dtc]?frac")
_ASCII_AMOUNT = re.compile(r"\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")
_QUESTIONS = "?？؟"
_LISTED_WORDS = PERCENT | TIME | MONEY | RATE | MULTI_STEP
_SHORT_NUMBER = 15  # digits of a number that is surely below LARGEST_NUMBER


def compute_prompt_features(prompts: Sequence[str]) -> Floats:
    """The 16 features of each prompt, (prompts, 16), in the order of FEATURE_NAMES; the entropy is NaN.

    >>> row = compute_prompt_features(["What is 15% of $80?"])[0]
    >>> dict(zip(FEATURE_NAMES, row.round(2).tolist()))["has_money_word"]
    1.0
    """
    rows = [_compute_row(prompt[:PROMPT_LIMIT]) for prompt in prompts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURE_NAMES))


def normalise_entropy(entropy: npt.ArrayLike) -> Floats:
    """Entropies in nats, from 0 up, as e / (1 + e), 0 to 1; NaN where it isn't known.

    >>> normalise_entropy([0.0, 1.0, float("nan")]).tolist()
    [0.0, 0.5, nan]
    """
    values = np.asarray(entropy, dtype=np.float64)
    return np.asarray(1.0 - 1.0 / (1.0 + np.where(values >= 0, values, nan)))  # 1 where it is infinite


def _compute_row(text: str) -> tuple[float, ...]:
    is_ascii = text.isascii()
    words, letters = _split_ascii_words(text) if is_ascii else _split_words(text)
    kinds = set(words)
    listed = kinds & _LISTED_WORDS  # few are, so only these are looked up in the five lists
    count = len(words)
    values = [
        float(number) if len(number) <= _SHORT_NUMBER and number.isdecimal() else _read_number(number)
        for number in _NUMBER.findall(text)
    ]
    return (
        len(text),
        count,
        _count_ascii_sentences(text) if is_ascii else _count_sentences(text),
        text.count("?") if is_ascii else sum(map(text.count, _QUESTIONS)),
        len(values),
        log1p(sum(values) / len(values)) if values else 0.0,
        log1p(max(values)) if values else 0.0,
        not listed.isdisjoint(PERCENT) or "%" in text or (not is_ascii and "％" in text),
        _has_fraction(text, is_ascii),
        not listed.isdisjoint(TIME),
        not listed.isdisjoint(MONEY) or _has_amount(text, is_ascii),
        not listed.isdisjoint(RATE),
        not listed.isdisjoint(MULTI_STEP),
        letters / count if count else 0.0,
        len(kinds) / count if count else 0.0,
        nan,
    )


def _split_words(text: str) -> tuple[list[str], int]:
    """The words, and how many characters they have together."""
    words = _WORD.findall(text.lower())
    return words, sum(map(len, words))


def _split_ascii_words(text: str) -> tuple[list[str], int]:
    """As `_split_words`, for ASCII text, where splitting is three times as fast as matching."""
    spaced = text.translate(_ASCII_TABLE)
    if "'" not in spaced:
        return spaced.split(), len(spaced) - spaced.count(" ")
    words = []
    for word in spaced.split():
        if "'" in word:
            words += _ASCII_WORD.findall(word)
        else:
            words.append(word)
    return words, sum(map(len, words))


def _has_fraction(text: str, is_ascii: bool) -> bool:
    if not is_ascii:
        return _FRACTION.search(text) is not None
    slash = "/" in text and _ASCII_FRACTION.search(text) is not None
    return slash or ("\\" in text and _FRACTION_COMMAND.search(text) is not None)


def _has_amount(text: str, is_ascii: bool) -> bool:
    if not is_ascii:
        return _AMOUNT.search(text) is not None
    return "$" in text and _ASCII_AMOUNT.search(text) is not None


def _count_sentences(text: str) -> int:
    """Ends of sentences, and one for words after the last."""
    ends, last = 0, 0
    for end in _SENTENCE_END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_WORD.search(text, last) is not None)


def _count_ascii_sentences(text: str) -> int:
    ends, last = 0, 0
    for end in _ASCII_SENTENCE_END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_ASCII_WORD_START.search(text, last) is not None)


def _read_number(number: str) -> float:
    """A number's size: 0 to LARGEST_NUMBER."""
    digits = number.replace(",", "")
    if len(digits) > _DIGIT_LIMIT:
        whole = re.match(r"\d++", digits)
        if whole is None or len(whole[0].lstrip("0")) > _DIGIT_LIMIT:
            return LARGEST_NUMBER
        head, mark, power = digits.replace("E", "e").partition("e")
        digits = head.lstrip("0")[:_DIGIT_LIMIT] + mark + power[:_DIGIT_LIMIT]
    value = float(digits or "0")
    return LARGEST_NUMBER if isnan(value) or value > LARGEST_NUMBER else value
