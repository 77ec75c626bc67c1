"""Computes the paper's 16 features of a prompt, for training and for serving.

Only the first PROMPT_LIMIT characters are read. The time is linear in their number, because no pattern
backtracks. studies/features.md defines the features and lists the words; a test compares it with this file.

`FeatureSet` says which features a policy uses. `RowCache` computes values of equal rows only once: a
replay has many, because it follows every random order of a problem's samples at every price.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, log1p, nan
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import NotFitted, PolicyError
from adacompute.policies.base import check_flag, check_integer
from adacompute.policies.baselines import MAX_SEED, BudgetPolicy
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.pool import Ballots

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


FeatureKind = Literal["count", "log", "flag", "mean", "share"]

PROMPT_LIMIT = 20_000  # number of characters of a prompt that are read; the rest is ignored
LARGEST_NUMBER = 1e15  # larger numbers in a prompt are replaced by this one
_DIGIT_LIMIT = 40  # a number with more digits is treated as LARGEST_NUMBER

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

# Chinese and Japanese are written without spaces, so each of these characters counts as a word
_UNSPACED_SCRIPTS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED_SCRIPTS}]|[^\W_{_UNSPACED_SCRIPTS}]++(?:['’][^\W_{_UNSPACED_SCRIPTS}]++)*+")
_ASCII_WORD = re.compile(r"[a-z0-9]++(?:'[a-z0-9]++)*+")  # a word in lower-case ASCII text
_ASCII_TABLE = str.maketrans(  # lower-cases letters; all but letters, digits and ' become spaces
    {chr(code): chr(code).lower() if chr(code).isalnum() or code == ord("'") else " " for code in range(128)}
)
# \d\d*+ rather than \d++, because `re` finds the first digit faster that way
_NUMBER = re.compile(r"\d\d*+(?:,\d{3}(?!\d))*+(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
# "..." ends only one sentence; the set of characters comes first because this makes `re` faster
_SENTENCE_END = re.compile(r"""[.!?。！？](?:(?<=[。！？])|(?=[\s"'”’)\]*]|\Z))""")
_FRACTION = re.compile(r"\d ?[/⁄] ?\d|\\[dtc]?frac|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒]")
_AMOUNT = re.compile(r"[€£¥₹₩₽]|\$\d[\d,.]*+(?=[\s;:!?)/-]|\Z)")  # $5$ doesn't match, because it is a formula
_ASCII_FRACTION = re.compile(r"\d ?/ ?\d")
_FRACTION_COMMAND = re.compile(r"\\[dtc]?frac")
_QUESTIONS = "?？؟"
_LISTED_WORDS = PERCENT | TIME | MONEY | RATE | MULTI_STEP


def compute_prompt_features(prompts: Sequence[str]) -> Floats:
    """Computes the 16 features of each prompt, in the order of FEATURE_NAMES; the last one (entropy) is NaN.

    >>> row = compute_prompt_features(["What is 15% of $80?"])[0]
    >>> dict(zip(FEATURE_NAMES, row.round(2).tolist()))["has_money_word"]
    1.0
    """
    rows = [_compute_row(prompt[:PROMPT_LIMIT]) for prompt in prompts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURE_NAMES))


def normalise_entropy(entropy: npt.ArrayLike) -> Floats:
    """Maps entropies e in nats to e / (1 + e), from 0 to 1; NaN if unknown.

    >>> normalise_entropy([0.0, 1.0, float("nan")]).tolist()
    [0.0, 0.5, nan]
    """
    values = np.asarray(entropy, dtype=np.float64)
    return np.asarray(1.0 - 1.0 / (1.0 + np.where(values >= 0, values, nan)))  # infinity becomes 1


def _compute_row(text: str) -> tuple[float, ...]:
    is_ascii = text.isascii()
    words, letters = _split_ascii_words(text) if is_ascii else _split_words(text)
    kinds = set(words)
    listed = kinds & _LISTED_WORDS  # usually few words, so the set operations below are fast
    count = len(words)
    values = [_read_number(number) for number in _NUMBER.findall(text)]
    return (
        len(text),
        count,
        _count_sentences(text),
        sum(map(text.count, _QUESTIONS)),
        len(values),
        log1p(sum(values) / len(values)) if values else 0.0,
        log1p(max(values)) if values else 0.0,
        not listed.isdisjoint(PERCENT) or "%" in text or "％" in text,
        _has_fraction(text, is_ascii),
        not listed.isdisjoint(TIME),
        not listed.isdisjoint(MONEY) or _AMOUNT.search(text) is not None,
        not listed.isdisjoint(RATE),
        not listed.isdisjoint(MULTI_STEP),
        letters / count if count else 0.0,
        len(kinds) / count if count else 0.0,
        nan,
    )


def _split_words(text: str) -> tuple[list[str], int]:
    """Splits a text into words; also returns their total number of characters."""
    words = _WORD.findall(text.lower())
    return words, sum(map(len, words))


def _split_ascii_words(text: str) -> tuple[list[str], int]:
    """Splits ASCII text into words, like `_split_words` but three times as fast."""
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


def _count_sentences(text: str) -> int:
    """Counts sentences by their final punctuation; words after the last one are another sentence."""
    ends, last = 0, 0
    for end in _SENTENCE_END.finditer(text):
        ends, last = ends + 1, end.end()
    return ends + (_WORD.search(text, last) is not None)


def _read_number(number: str) -> float:
    """Converts the digits of a number to its value, at most LARGEST_NUMBER."""
    digits = number.replace(",", "")
    if len(digits) > _DIGIT_LIMIT:
        whole = re.match(r"\d++", digits)
        if whole is None or len(whole[0].lstrip("0")) > _DIGIT_LIMIT:
            return LARGEST_NUMBER
        head, mark, power = digits.replace("E", "e").partition("e")
        digits = head.lstrip("0")[:_DIGIT_LIMIT] + mark + power[:_DIGIT_LIMIT]
    value = float(digits or "0")
    return LARGEST_NUMBER if isnan(value) or value > LARGEST_NUMBER else value


RowValues = npt.NDArray[Any]

_PARTS = ("text", "entropy")

_MIN_ROWS = 256  # with fewer rows, a cache doesn't save time
# for hashes of rows: a large odd number, and a shift, because many numbers differ only in their high bits
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Which features a policy uses: 15 features of the prompt's text, the first sample's entropy, or both."""

    text: bool
    entropy: bool

    @classmethod
    def parse(cls, spec: object) -> "FeatureSet":
        """Parses a setting such as "text+entropy".

        >>> FeatureSet.parse("text+entropy").width
        16
        """
        parts = spec.split("+") if isinstance(spec, str) else []
        if "embedding" in parts:
            raise PolicyError(
                f"features {spec!r}: embeddings are no longer supported; fit again with 'text+entropy'"
            )
        if not parts or len(set(parts)) < len(parts) or not set(parts) <= set(_PARTS):
            raise PolicyError(f"features {spec!r} are not known; give 'text+entropy', 'text' or 'entropy'")
        return cls(*(part in parts for part in _PARTS))

    @property
    def width(self) -> int:
        """The number of features in a row."""
        return ENTROPY_COLUMN * self.text + self.entropy

    def read(self, prompts: Sequence[str]) -> Floats:
        """Computes the features that depend on the prompts alone; shape (prompts, features)."""
        return (
            compute_prompt_features(prompts)[:, :ENTROPY_COLUMN] if self.text else np.zeros((len(prompts), 0))
        )

    def build_rows(self, reading: Floats, entropy: Floats) -> Floats:
        """Joins the prompts' features (`reading`) and the entropy in nats, which is NaN if unknown."""
        return np.hstack([reading, normalise_entropy(entropy)[:, None]]) if self.entropy else reading

    def drop_missing_entropy(self, ballots: Ballots) -> "FeatureSet":
        """Returns this feature set, without the entropy if most first samples were recorded without it."""
        if not self.entropy or np.isfinite(ballots.entropy[:, :1]).mean() > 0.5:
            return self
        if not self.text:
            raise PolicyError("no sample's entropy is recorded; give features='text', or record it")
        return FeatureSet(self.text, entropy=False)

    def with_entropy(self, stored: object) -> "FeatureSet":
        """Returns this feature set, with the entropy only if a stored policy was trained with it (`stored`).

        Raises PolicyError if `stored` isn't a bool, or if it is True and this feature set lacks the entropy.
        """
        learned = check_flag("learned entropy", stored)
        if learned and not self.entropy:
            raise PolicyError("there is no entropy among the features to have learned from")
        return FeatureSet(self.text, learned)


class RowCache:
    """Wraps a function of rows, and caches its values for the last large batch of rows."""

    def __init__(self, compute: Callable[[Floats], RowValues]) -> None:
        self._compute = compute
        # ascending hashes, bits and values of different rows; one tuple, so that threads can share the cache
        self._cached = np.zeros(1, np.uint64), np.zeros((1, 0), np.uint64), np.zeros(1)

    def __call__(self, rows: Floats) -> RowValues:
        """Returns the function's value for each row, from the cache if possible."""
        if len(rows) < _MIN_ROWS or not rows.shape[1]:
            return self._compute(rows)
        bits = np.ascontiguousarray(rows).view(np.uint64)  # compares bits, so that NaN equals NaN
        hashes = (bits ^ bits >> _SHIFT) @ _FACTOR ** np.arange(1, bits.shape[1] + 1, dtype=np.uint64)
        known, kept, values = self._cached
        places = np.searchsorted(known[1:], hashes, side="right")
        if kept.shape[1] != bits.shape[1] or (kept[places] != bits).any():
            known, first, places = np.unique(hashes, return_index=True, return_inverse=True)
            kept, values = bits[first], self._compute(rows[first])
            if (kept[places] != bits).any():  # two rows have the same hash
                return self._compute(rows)
            self._cached = known, kept, values
        return np.asarray(values[places])


class FeaturePolicy(BudgetPolicy):
    """Base class of policies that choose the number of samples from features of the prompt.

    If the features include the first sample's entropy, this sample is drawn before the others.
    """

    learned_names: ClassVar[tuple[str, ...]] = ("learned",)
    feature_set_: FeatureSet  # features that the policy was fitted on

    def __init__(
        self, *, budgets: Sequence[int], features: str, seed: int, longest: int, weigh: VoteWeights | None
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        FeatureSet.parse(features)
        self.features = features
        self.seed = check_integer("seed", seed, low=0, high=MAX_SEED)

    @abstractmethod
    def choose_budgets(self, rows: Floats, dial: float | Floats | None) -> Ints:
        """Chooses the number of samples for each row of features, at one price, or at one price per row."""

    def read(self, prompts: Sequence[str]) -> Floats:
        return self.get_feature_set().read(prompts)

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        feature_set = self.get_feature_set()
        more, started = np.ones(len(state), dtype=np.int64), np.arange(len(state))
        if feature_set.entropy:  # the entropy is known only after a first sample
            started = np.flatnonzero(state.drawn)
        if len(started):
            own_dial = dial[started] if isinstance(dial, np.ndarray) and dial.ndim == 1 else dial
            rows = feature_set.build_rows(reading[started], state.entropy[started])
            more[started] = np.maximum(self.choose_budgets(rows, own_dial) - state.drawn[started], 0)
        return more

    def get_feature_set(self) -> FeatureSet:
        """Returns the features that the policy was fitted on."""
        if not hasattr(self, "feature_set_"):
            raise NotFitted(f"{self.kind} has learned nothing yet; fit it first")
        return self.feature_set_

    def set_feature_set(self, feature_set: FeatureSet) -> None:
        """Sets the features that the policy uses."""
        self.feature_set_ = feature_set
        self.one_shot, self.reads_entropy = not feature_set.entropy, feature_set.entropy
        self.max_waves = 1 if self.one_shot else 2
