"""The records that the package's parts exchange: problems, samples, calls, budgets, accuracy tables."""

import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args
from urllib.parse import quote, quote_plus

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from adacompute.errors import (
    BudgetInvalid,
    PriceInvalid,
    TableInvalid,
    format_value,
)

__all__ = ["quick_dataclass"]  # type checkers don't export an imported name unless it is listed

if TYPE_CHECKING:
    from dataclasses import dataclass as quick_dataclass
else:

    def quick_dataclass(*, frozen: bool, **options: bool) -> object:
        """Replaces `dataclass` for records that are created for every request.

        Only type checkers treat the records as frozen, because creating frozen ones takes 4 times as long.
        """
        return dataclass(unsafe_hash=frozen, **options)


Paid = Literal["yes", "no", "maybe"]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP attempt at a model's endpoint: its result, its token counts, and whether it was charged."""

    at: float  # time of sending, in seconds since 1970, UTC
    seconds: float
    asked: int  # number of responses (choices) requested
    got: int  # number of usable responses
    surplus: int = 0  # number of responses that were paid for but not used: not requested, or unusable
    kind: str = "ok"  # "ok" if the attempt succeeded, otherwise the kind of error
    status: int | None = None
    paid: Paid = "yes"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # prompt tokens read from the server's cache; None if unknown
    completion_tokens: int | None = None  # total tokens of all responses
    estimated: bool = False  # True if token counts are estimates or corrections, False if the server's own
    # True if the call may cost more than its token counts say, because the server sent none or impossible
    # ones; not stored in pools
    unmetered: bool = field(default=False, compare=False)
    # other numbers in the server's usage report, by their path in its JSON, such as
    # ("completion_tokens_details", "reasoning_tokens"); not stored in pools
    usage_details: Mapping[tuple[str, ...], float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Sums over several calls.

    Tokens of calls that may have been charged are summed separately, at the highest possible number.
    """

    calls: int = 0
    paid: int = 0  # number of calls that were charged
    maybe: int = 0  # number of calls without a result that may have been charged
    asked: int = 0  # number of responses requested
    got: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    maybe_prompt_tokens: int = 0
    maybe_completion_tokens: int = 0  # sum of the token limits of calls that may have been charged
    estimated: int = 0  # number of calls whose token counts are estimated or corrected

    def cost(self, prices: "TokenPrices", *, at_most: bool = False) -> float:
        """Computes the cost at these prices; with `at_most`, includes calls that may have been charged."""
        prompts = self.prompt_tokens + (self.maybe_prompt_tokens if at_most else 0)
        completions = self.completion_tokens + (self.maybe_completion_tokens if at_most else 0)
        return prices.cost(prompts, completions)


BudgetUnit = Literal["samples", "tokens", "money"]

_MILLION = 1e6
# numbers of tokens that a prompt and a response are assumed to have until real counts are known
GUESSED_PROMPT, GUESSED_RESPONSE = 100, 300


DEFAULT_CURRENCY = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """Money per million tokens, for prompts (`input`) and responses (`output`).

    `prompt_tokens` and `prompts` are only for the cost of recorded samples. `prompt_tokens` is the length of
    prompts: one number for all problems, or one per problem. If `prompt_tokens` or `prompts` is None, it is
    taken from the pool's recorded calls; `PromptCharge` says what is assumed if there are none.

    >>> TokenPrices(input=0.5, output=1.5).cost(1_000_000, 2_000_000)
    3.5
    """

    input: float = 0.0
    output: float = 0.0
    prompt_tokens: float | Sequence[float] | None = None
    # how often a prompt is charged: "each" for each sample, "once" for once per problem
    prompts: Literal["each", "once"] | None = None
    currency: str = DEFAULT_CURRENCY

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _check_amount(getattr(self, name), f"{name} price")
        if self.prompts not in ("each", "once", None):
            raise PriceInvalid(f"prompts {self.prompts!r} is not known; give 'each' or 'once'")
        if not self.currency:
            raise PriceInvalid(f"currency {self.currency!r} is not a name; give one, e.g. 'EUR'")
        # copy the list, so that later changes by the caller have no effect
        plain = np.asarray(self.prompt_tokens, dtype=object).tolist()
        tokens = tuple(plain) if isinstance(plain, list) else plain
        for place, value in enumerate(tokens if isinstance(tokens, tuple) else ()):
            _check_amount(value, f"prompt_tokens[{place}]")
        if tokens is not None and not isinstance(tokens, tuple):
            _check_amount(tokens, "prompt_tokens")
        object.__setattr__(self, "prompt_tokens", tokens)

    def __bool__(self) -> bool:
        """Whether any price is above 0."""
        return self.input > 0 or self.output > 0

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Computes the cost of these tokens."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / _MILLION

    def guess_cost(
        self,
        *,
        max_tokens: int | None = None,
        prompt_tokens: float = GUESSED_PROMPT,
        unit: BudgetUnit = "money",
    ) -> float:
        """Guesses a sample's cost in `unit`, with 300 tokens per response, or `max_tokens` if that is lower.

        >>> TokenPrices(output=1.5).guess_cost(max_tokens=100_000) == TokenPrices(output=1.5).cost(100, 300)
        True
        """
        response = min(max_tokens or GUESSED_RESPONSE, GUESSED_RESPONSE)
        return self.cost(prompt_tokens, response) if unit == "money" else prompt_tokens + response


def _check_amount(value: object, name: str) -> None:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= sys.float_info.max):  # type: ignore[operator] # it is a number here
        raise PriceInvalid(f"{name} {format_value(value)} is not a price; give a number from 0 up")


_CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_WHOLE = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)"  # a whole number, such as 1,000
_QUALITY = re.compile(r"\s*(as\s+good|within)\b", re.I)
_BUDGET = re.compile(
    rf"(?P<sign>[$€£¥])?\s*(?P<amount>{_WHOLE}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)\s*"
    r"(?P<unit>(?!(?:per|for|a)\b)[A-Za-z]+|[$€£¥])??"
    rf"(?:\s*(?P<per>\bper\b|\ba\b|\bfor\b|/)\s*(?=\S)(?P<requests>{_WHOLE})?\s*(?P<thousands>[kK])?\s*"
    r"(?:requests?|prompts?|questions?)?)?"
)
_DECIMAL_COMMA = re.compile(r"([0-9]+),([0-9]+)")
_AFTER_PER = re.compile(rf"\b(?:per|for)\s+(?:{_WHOLE}[kK]?\s+)?([A-Za-z]+)\s*$")
_REQUESTS = re.compile(r"[kK]|requests?|prompts?|questions?")
# abbreviations of units that aren't accepted as names of currencies
_NOT_CURRENCIES = {"s", "sample", "smp", "smps", "t", "tk", "tok", "toks", "req", "reqs"}
_CURRENCY_LETTERS = 3  # number of letters in a currency code, such as EUR
_LARGEST_BUDGET = 1e12  # average amount per request; sums of larger ones might not be finite
_BUDGET_EXAMPLES = "give e.g. 3, '500 tokens' or '2 USD per 1000'"
_MOST_SAMPLES = 64  # a number without a unit, up to this one, probably means samples


@dataclass(frozen=True, slots=True)
class Budget:
    """An average cost per request, in samples, tokens (of prompts and responses) or money.

    >>> Budget.parse("2 USD per 1000")
    Budget(amount=0.002, unit='money', currency='USD')
    >>> Budget.parse(3) == Budget.parse("3 samples"), str(Budget.parse("500 tokens"))
    (True, '500 tokens per request')
    """

    amount: float  # average amount per request
    unit: BudgetUnit = "samples"
    currency: str = ""  # empty unless the unit is money

    def __post_init__(self) -> None:
        if not 0 < self.amount <= _LARGEST_BUDGET:
            raise BudgetInvalid(
                f"budget {self.amount:g} can't be spent; give a number above 0, at most {_LARGEST_BUDGET:g}"
            )
        if self.unit not in get_args(BudgetUnit):
            raise BudgetInvalid(f"unit {self.unit!r} is not known; give {', '.join(get_args(BudgetUnit))}")
        if self.unit == "money" and not self.currency:
            raise BudgetInvalid(f"budget {self.amount:g} is money without a currency; give one, e.g. 'USD'")

    @classmethod
    def parse(
        cls,
        value: "float | str | Budget",
        *,
        unit: BudgetUnit = "samples",
        currency: str | None = DEFAULT_CURRENCY,
        total: bool = False,
    ) -> "Budget":
        """Parses a budget such as 3, "3 samples", "500 tokens", "2 USD per 1000" or "$2 per 1000 requests".

        A number without a unit is in `unit`; raises BudgetInvalid if another unit was probably meant. Money
        must be in `currency`, the currency of the prices, because nothing is converted; None accepts any
        currency. With `total`, the budget is a sum for all requests, such as a cap of "5 USD".
        """
        if isinstance(value, Budget):
            return cls._in_currency(value, currency)
        if names_quality(value):
            raise BudgetInvalid(
                f"budget {value!r} is a quality, and what it costs is measured per policy; give an amount "
                "here, or the quality to fit, serve, answer, ask or calibrate"
            )
        match = _BUDGET.fullmatch(str(value).strip())
        if match is None or (match["sign"] and match["unit"]):
            raise BudgetInvalid(f"budget {value!r} can't be read; {_suggest_budget(str(value))}")
        if total and match["per"]:
            raise BudgetInvalid(f"{value!r} is per request; give the sum for all together, e.g. '5 USD'")
        amount = float(re.sub("[_,]", "", match["amount"]))
        requests = float(re.sub("[_,]", "", match["requests"] or "1")) * (1000 if match["thousands"] else 1)
        if not requests:
            raise BudgetInvalid(f"budget {value!r} is for 0 requests; {_BUDGET_EXAMPLES}")
        name = match["sign"] or match["unit"]
        if name is None:
            default = DEFAULT_CURRENCY if currency is None else currency
            _check_bare_budget(amount / requests, value, unit if not total else "samples", default)
            return cls(amount / requests, unit, default if unit == "money" else "")
        if name.lower() in ("sample", "samples", "token", "tokens"):
            named: BudgetUnit = "samples" if name.lower().startswith("sample") else "tokens"
            return cls(amount / requests, named)
        own_currency = _read_currency(name, value, currency)
        return cls._in_currency(cls(amount / requests, "money", own_currency), currency)

    def _in_currency(self, currency: str | None) -> "Budget":
        if currency is None:
            return self
        if self.unit == "money" and self.currency.casefold() != currency.casefold():
            raise BudgetInvalid(
                f"budget {self} is not in {currency}, the currency of the prices; give it in {currency}, "
                f"or prices in {self.currency} with that currency"
            )
        return Budget(self.amount, self.unit, currency) if self.unit == "money" else self

    def __str__(self) -> str:
        if self.unit != "money":
            name = self.unit.removesuffix("s") if self.amount == 1 else self.unit
            return f"{self.amount:,.6g} {name} per request"
        return f"{self.amount * 1000:,.6g} {self.currency} per 1,000 requests"


def names_quality(budget: object) -> bool:
    """Whether a budget names a quality, such as "as good as 8 samples", and not an amount.

    >>> names_quality("as good as 8"), names_quality("within 1 point of 16"), names_quality("8 samples")
    (True, True, False)
    """
    return isinstance(budget, str) and _QUALITY.match(budget) is not None


def _suggest_budget(text: str) -> str:
    """Suggests how to write a budget that can't be parsed."""
    unread = _AFTER_PER.search(text)
    if unread is not None and not _REQUESTS.fullmatch(unread[1]):
        return f"{unread[1]!r} is not known: write requests, or {_BUDGET_EXAMPLES}"
    commas = [match for match in _DECIMAL_COMMA.finditer(text) if not re.fullmatch(_WHOLE, match[0])]
    if not commas:
        return _BUDGET_EXAMPLES
    match = commas[0]
    return f"a comma only groups thousands, as in 1,000: write {match[1]}.{match[2]}, or {_BUDGET_EXAMPLES}"


def _read_currency(name: str, value: float | str, currency: str | None) -> str:
    """Reads a currency: a sign, three letters or `currency` itself; any name if `currency` is None."""
    if name.lower() == "money":
        return currency or DEFAULT_CURRENCY
    if name in _CURRENCY_SIGNS:
        return _CURRENCY_SIGNS[name]
    if currency is not None and name.casefold() == currency.casefold():
        return currency
    if name.lower() in _NOT_CURRENCIES or (currency is not None and len(name) != _CURRENCY_LETTERS):
        raise BudgetInvalid(
            f"budget {value!r} is in {name!r}, which is neither a unit nor a currency; {_BUDGET_EXAMPLES}"
        )
    return name.upper() if len(name) == _CURRENCY_LETTERS else name


def _check_bare_budget(amount: float, value: float | str, unit: BudgetUnit, currency: str) -> None:
    """Raises BudgetInvalid if a number without a unit probably means samples, not `unit`."""
    value = value.strip() if isinstance(value, str) else f"{value:g}"
    if unit == "tokens" and amount <= _MOST_SAMPLES:
        raise BudgetInvalid(
            f"budget {value} is counted in tokens here, and one sample takes more; "
            f"write '{value} samples' or '{value} tokens' to say which"
        )
    if unit == "money" and amount >= 1:
        raise BudgetInvalid(
            f"budget {value} is counted in {currency} per request here; "
            f"write '{value} samples', '{value} {currency} per 1000' or '{value} {currency} per request' "
            "to say which"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question, optionally with a gold answer.

    >>> Problem(id="p1", question="What is 6 times 7?", gold="42").gold
    '42'
    """

    id: str
    question: str
    gold: str | None = None
    subject: str | None = None
    level: int | float | str | None = None
    # what the input file says about the problem beyond the fields above, by key
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """A response's confidence signals, mostly from log-probabilities of tokens, in nats; None if unknown."""

    tail: Finite | None = None  # mean log-probability of the last 64 tokens
    window: Finite | None = None  # lowest mean log-probability of any 32 consecutive tokens
    answer_sum: Finite | None = None  # sum of the log-probabilities of the answer's tokens
    answer_least: Finite | None = None  # lowest log-probability of any token of the answer
    answer_entropy: Finite | None = None  # highest entropy at any token of the answer
    # negated mean log-probability of a token's likeliest alternatives, averaged over all tokens
    confidence: Finite | None = None
    confidence_tail: Finite | None = None  # `confidence`, computed from the last 64 tokens only
    confidence_window: Finite | None = None  # the lowest `confidence` that any 32 consecutive tokens have
    score: Finite | None = None  # the response's score from a verifier or reward model


SIGNAL_NAMES: Final = tuple(signal.name for signal in fields(Signals))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response of a model to a problem. With `answer=None` it abstains from the vote, but still costs.

    >>> Sample(answer="42", tokens=10, logprob=-2.5).mean_logprob
    -0.25
    """

    text: str | None = None
    answer: str | None = None
    correct: float | None = None  # 1 if right, 0 if wrong, between them for partial credit; None if unknown
    tokens: int | None = None  # number of output tokens
    logprob: float | None = None  # sum of the tokens' log-probabilities, in nats
    entropy: float | None = None  # mean entropy of the tokens, in nats
    finished: bool | None = None  # False if a token limit cut the response off; None if unknown
    signals: Signals | None = None
    mode: str | None = None  # name of the mode (a model with its options); not stored in pools
    # what the input file says about the sample beyond the fields above, by key
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def mean_logprob(self) -> float | None:
        """Log-probability per token, in nats; None if not recorded."""
        if self.logprob is None or not self.tokens:
            return None
        return self.logprob / self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt to draw a sample, stored so that it can be counted, shown and retried."""

    index: int  # index that the sample would have had
    kind: str  # kind of error in one word, e.g. "timeout"
    attempt: int = 1
    message: str | None = None
    at: float | None = None  # time of the failure, in seconds since 1970, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One problem, with samples from one model with fixed parameters, in the order they were drawn.

    `classes[i]` is the class number of the answer of `samples[i]`: equal answers share one; -1 is no answer.
    """

    problem: Problem
    samples: tuple[Sample, ...]
    classes: tuple[int, ...]
    model: str | None = None
    # parameters with which the model was called, e.g. temperature
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    failures: tuple[Failure, ...] = ()


def _list_forms(key: str) -> set[str]:
    """Returns all forms in which a text may contain a key, e.g. encoded for a URL or JSON."""
    raw, in_json = key.encode("utf-8", "surrogatepass"), json.dumps(key)[1:-1]
    forms = {key, in_json, in_json.replace("/", "\\/"), json.dumps(key, ensure_ascii=False)[1:-1]}
    forms |= {repr(key)[1:-1], repr(raw)[2:-1]}
    forms |= {quote_plus(raw), *(quote(raw, safe) for safe in ("", "/", "=", "/="))}
    return forms | {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}


_MASK = "***"
_SHORTEST_KEY = 8  # minimum length of a key to be masked in any text; a shorter one may be an ordinary word
_SHORTEST_DUMMY = 4  # a key with at least this number of characters is masked in messages


class Secret:
    """A secret key. Printing, logging or storing it shows `***`; only `reveal()` returns the key.

    A key with fewer than 8 characters may be a placeholder such as `none`, for a server that needs no key.
    `mask` leaves it, because answers may contain that word. `mask_message` masks it as a whole word if it has
    at least 4 characters.

    >>> key = Secret("sk-123456")
    >>> key, f"{key}", key.mask("the server said: bad key sk-123456")
    (Secret('***'), '***', 'the server said: bad key ***')
    >>> dummy = Secret("none")
    >>> dummy.mask("none of these"), dummy.mask_message("wrong key: none")
    ('none of these', 'wrong key: ***')
    """

    __slots__ = ("_text", "masked", "source")

    def __init__(self, text: str, *, source: str = "", others: Sequence[str] = ()) -> None:
        """Creates a secret. `others` are further texts to mask, which `reveal` doesn't return."""
        self._text = text
        # all forms of keys that are long enough to be masked in any text
        forms = {form for key in (text, *others) if len(key) >= _SHORTEST_KEY for form in _list_forms(key)}
        # the longest form first, because it may contain a shorter one, and must be masked as a whole
        self.masked = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self.source = source  # a description of where the key was found; "" if a caller passed it

    def reveal(self) -> str:
        """Returns the key itself; only called where the key is sent."""
        return self._text

    def mask(self, text: str) -> str:
        """Masks the key in a text, because endpoints may quote keys."""
        for each in self.masked:
            text = text.replace(each, _MASK)
        return text

    def mask_message(self, message: str) -> str:
        """Masks the key in a log or error message, even if the key is short."""
        message = self.mask(message)
        if len(self._text) < _SHORTEST_DUMMY or self._text not in message:
            return message
        return re.sub(rf"(?<!\w){re.escape(self._text)}(?!\w)", _MASK, message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __str__(self) -> str:
        return _MASK

    def __reduce__(self) -> str:
        raise TypeError("a secret is never written; read it again where it is needed")


ModeName = int | float | str  # name of a mode in an accuracy table: a number of samples, or any text
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LARGEST_COST = 1e200  # maximum cost; a cost other than 0 must be at least 1 / this, to avoid overflows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyTable:
    """The accuracy and cost of each problem in each mode. Create a table with `of`; its arrays are read-only.

    Here, a mode is any way to answer, e.g. a number of samples, a model, a reasoning effort or a token limit.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.8, 0.8]], costs=[1, 4], modes=["small", "large"])
    >>> len(table), table.modes
    (2, ('small', 'large'))
    """

    accuracy: Floats  # accuracy of each problem in each mode, 0 to 1; shape (problems, modes)
    costs: Floats  # cost of each mode; shape (modes,), or (problems, modes) if costs differ by problem
    modes: tuple[ModeName, ...]
    # standard error of each accuracy, NaN if it can't be estimated; None if all are unknown
    standard_error: Floats | None = None
    ids: tuple[str, ...] | None = None
    unit: str = "samples"  # unit of `costs`
    ascending: bool = True  # whether costs never fall from one mode to the next, for any problem
    dropped: tuple[str, ...] = ()  # ids of problems that the caller chose to leave out
    protocol: str = ""  # a description of how the accuracies were estimated

    @classmethod
    def of(
        cls,
        accuracy: npt.ArrayLike,
        *,
        costs: npt.ArrayLike,
        modes: Sequence[ModeName] | None = None,
        standard_error: npt.ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        unit: str = "samples",
        order: Literal["ascending", "any"] = "ascending",
        dropped: Sequence[str] = (),
        protocol: str = "",
    ) -> "AccuracyTable":
        """Makes a table from accuracies of shape (problems, modes), and costs of the same shape or (modes,).

        Costs must not fall from mode to mode, unless `order="any"` (e.g. if the cheaper of two models depends
        on the problem). Without `modes`, modes are named by their costs, or by their indexes if two costs
        are equal or costs differ by problem.
        """
        if order not in ("ascending", "any"):
            raise TableInvalid(f"order {order!r} is not known; give 'ascending' or 'any'")
        values, cost_array = _copy_array(accuracy, "accuracy"), _copy_array(costs, "costs")
        _check_shape(values, cost_array)
        names = (
            _make_mode_names(cost_array)
            if modes is None
            else tuple(_check_names(modes, values.shape[1], "modes"))
        )
        labels = None if ids is None else tuple(str(i) for i in _check_names(ids, len(values), "ids"))
        _check_cells("accuracy", values, (values >= 0) & (values <= 1), names, labels, "a number from 0 to 1")
        payable = (cost_array == 0) | ((cost_array >= 1 / _LARGEST_COST) & (cost_array <= _LARGEST_COST))
        remedy = f"a number from 0 up (0, or {1 / _LARGEST_COST:g} to {_LARGEST_COST:g})"
        _check_cells("cost", cost_array, payable, names, labels, remedy)
        if order == "ascending":
            _check_order(cost_array, names, labels)
        error = None
        if standard_error is not None:
            error = _copy_array(standard_error, "standard_error")
            if error.shape != values.shape:
                raise TableInvalid(f"standard_error of shape {error.shape} doesn't fit; give {values.shape}")
            remedy = "a number from 0 up, or NaN where it can't be known"
            _check_cells("standard_error", error, ~((error < 0) | np.isinf(error)), names, labels, remedy)
            error.setflags(write=False)
        for array in (values, cost_array):
            array.setflags(write=False)
        return cls(
            accuracy=values,
            costs=cost_array,
            modes=names,
            standard_error=error,
            ids=labels,
            unit=unit,
            ascending=order == "ascending" or not _find_falls(cost_array).any(),
            dropped=tuple(dropped),
            protocol=protocol,
        )

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def cost_matrix(self) -> Floats:
        """The cost of each problem in each mode, as a view of shape (problems, modes)."""
        return np.broadcast_to(self.costs, self.accuracy.shape)

    @property
    def shared_costs(self) -> bool:
        """Whether the modes have the same costs for every problem."""
        return self.costs.ndim == 1

    def problem(self, row: int) -> str:
        """Returns a problem's name for messages: its id, or its row number if it has none."""
        return _describe_problem(row, self.ids)


def _copy_array(values: npt.ArrayLike, what: str) -> Floats:
    """Copies values to a new array, so that later changes to the original have no effect."""
    if isinstance(values, np.ma.MaskedArray):
        # masked values become NaN, for which an error is raised later
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        if np.iscomplexobj(values):
            raise TypeError("they are complex")
        # column-major, because tables are processed mode by mode
        return np.array(values, dtype=np.float64, order="F")
    except (TypeError, ValueError) as exc:
        raise TableInvalid(
            f"{what} can't be read as an array of numbers ({exc}); give one row a problem"
        ) from exc


def _check_names(values: object, count: int, what: str) -> list[ModeName]:
    """Checks that there are `count` different names."""
    is_list = isinstance(values, Iterable) and not isinstance(values, bytes)
    items: list[ModeName] = list(values) if is_list else []  # type: ignore[call-overload] # it is iterable
    names = [name.item() if isinstance(name, np.generic) else name for name in items]
    if len(names) != count or not all(isinstance(name, int | float | str) for name in names):
        raise TableInvalid(f"{what} {format_value(values)} don't fit; give {count} names, one each")
    if len(set(names)) < count:
        repeated = Counter(names).most_common(1)[0][0]
        raise TableInvalid(f"{what} hold {repeated!r} twice; give each its own")
    return names


def _check_shape(values: Floats, costs: Floats) -> None:
    if values.ndim != 2 or 0 in values.shape:
        raise TableInvalid(
            f"accuracy of shape {values.shape} is not a table; give (problems, modes), at least one of each"
        )
    if costs.shape not in (values.shape, values.shape[1:]):
        raise TableInvalid(
            f"costs of shape {costs.shape} don't fit accuracy of shape {values.shape}; "
            f"give {values.shape[1:]} for every problem, or {values.shape}"
        )


def _check_cells(
    what: str, values: Floats, valid: Bools, names: Sequence[ModeName], ids: Sequence[str] | None, remedy: str
) -> None:
    """Raises TableInvalid for the first invalid value in a table."""
    if not valid.all():
        *row, column = (int(i) for i in np.argwhere(~valid)[0])
        place = f"{names[column]!r}{_describe_cell(row, column, ids)}"
        raise TableInvalid(f"{what} of mode {place} is {values[*row, column]}; give {remedy}")


def _check_order(costs: Floats, names: Sequence[ModeName], ids: Sequence[str] | None) -> None:
    if (fall := _find_falls(costs)).any():
        *row, column = (int(i) for i in np.argwhere(fall)[0])
        raise TableInvalid(
            f"cost of mode {names[column + 1]!r}{_describe_cell(row, column + 1, ids)} "
            f"is {costs[*row, column + 1]}, below {costs[*row, column]} of the mode before it; "
            "put modes in ascending cost, or say order='any'"
        )


def _find_falls(costs: Floats) -> Bools:
    return np.asarray(costs[..., 1:] < costs[..., :-1])


def _describe_cell(row: list[int], column: int, ids: Sequence[str] | None) -> str:
    if not row:
        return f" (column {column})"
    return f" for {_describe_problem(row[0], ids)} (row {row[0]}, column {column})"


def _describe_problem(row: int, ids: Sequence[str] | None) -> str:
    return f"problem {row if ids is None else ids[row]!r}"


def _make_mode_names(costs: Floats) -> tuple[ModeName, ...]:
    if costs.ndim == 2 or len(np.unique(costs)) < len(costs):
        return tuple(range(costs.shape[-1]))
    return tuple(int(cost) if cost.is_integer() else cost for cost in costs.tolist())


def format_lower_bound(value: float) -> str:
    """Formats a minimum for messages: rounds it to a few digits, but never down."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 18))
    return next((text for text in texts if float(text) >= value), repr(value))


def format_points(share: float) -> str:
    """Formats a share as percentage points with a sign, such as `+6.7`, but never `-0.0`."""
    return f"{100 * share:+z.1f}"


def format_money(value: float) -> str:
    """Formats money like the report's page.js: two decimals from 1 up, else three significant digits.

    >>> [format_money(value) for value in (1188.168, 1.149, 0.9996, 0.26604, -0.0000266, 0.0)]
    ['1,188.17', '1.15', '1.00', '0.266', '-0.0000266', '0.00']
    """
    exponent = int(f"{value:.2e}".split("e")[1]) if value else 0
    return f"{value + 0.0:,.{max(2, 2 - exponent)}f}"  # adding 0.0 turns -0.0 into 0.0
