"""Remembers for each model how the server treats `n`, log-probabilities, usage and the token limit.

Observations expire after some minutes, because a model may be replaced at any time. The end of this module
sorts requests into kinds that fail together.

The token limit has two names: OpenAI's reasoning models require `max_completion_tokens`, but many servers
know only `max_tokens`. It is sent under the name that the model accepts, and no higher than the model allows.
"""

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from adacompute.errors import EndpointError

K = TypeVar("K")
V = TypeVar("V")
FRESH_SECONDS = 600.0  # seconds until an observation expires
# number of replies in a row with too few choices that show a limit on `n`, even if an earlier reply had more
_SHORT_REPLIES = 2
_MIN_TOKENS = 64  # minimum number of tokens for estimating a model's characters per token
_TOKEN_WINDOW = 2**20  # approximate number of tokens over which characters per token are averaged
_MAX_KEPT = 256  # maximum number of models, or of kinds of requests, that are remembered
_MAX_NAME = 200  # maximum number of characters in a model's name; longer names are cut off
# after this many replies in a row without log-probabilities, the model is assumed not to support them
_BARE_REPLIES = 2
# seconds until the conclusion that log-probabilities aren't supported expires, as it may be wrong
_BARE_SECONDS = 60.0
OMITTABLE = frozenset({"logprobs", "top_logprobs", "stream_options"})  # fields that can be omitted
LOGPROBS = frozenset({"logprobs", "top_logprobs"})  # the optional fields for log-probabilities
_TOP_LOGPROBS = frozenset({"top_logprobs"})
_STREAM_OPTIONS = frozenset({"stream_options"})


@dataclass(slots=True)
class _Observation:
    value: int
    at: float


class ModelQuirks:
    """How one model treats requests; every observation expires after some minutes.

    A limit on `n`, the number of choices, is stated in a refusal, or observed in replies with fewer choices
    than requested. A single such reply shows no limit if another recent reply had more choices.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refusal_limit: _Observation | None = None
        self._observed_limit: _Observation | None = None
        self._largest_reply: _Observation | None = None  # largest number of choices in one recent reply
        self._short_replies = 0  # consecutive replies with too few choices
        self._per_choice: _Observation | None = None
        self._characters = 0  # characters in responses with known token counts
        self._tokens = _Observation(0, now())
        self._accepted_at: dict[str, float] = {}  # field -> when a request with it last succeeded
        # field -> when a request was last refused because of it, and succeeded without it
        self._refused_at: dict[str, float] = {}
        self._logprobs: _Observation | None = None  # whether log-probabilities are given on request
        self._bare_replies = 0  # consecutive replies without log-probabilities
        self._limit_name: _Observation | None = None  # accepted name of the token limit: index in LIMIT_NAMES
        self._largest_limit: _Observation | None = None  # largest token limit that the model allows
        # set if every token limit was refused: 1 if the model's context limits responses instead, else 0
        self._limit_refusal: _Observation | None = None

    @property
    def max_choices(self) -> int | None:
        """Maximum number of choices per call, however long ago it was observed; None: no known limit."""
        known = [limit.value for limit in (self._refusal_limit, self._observed_limit) if limit is not None]
        return min(known) if known else None

    def pick_n(self, wanted: int) -> int:
        """Returns how many of the wanted choices to request in one call.

        Some minutes after a limit was found, one call exceeds it as a test; other calls still respect it.
        """
        limits = [limit for limit in (self._refusal_limit, self._observed_limit) if limit is not None]
        size = min([wanted, *(limit.value for limit in limits if self._is_fresh(limit))])
        for limit in limits:
            if limit.value < size:
                limit.at = self._now()
        return size

    def record_choices(self, requested: int, received: int) -> None:
        """Records the number of choices in a reply, including those that can't be used."""
        if requested < 2:
            return
        if self._refusal_limit is not None and received > self._refusal_limit.value:
            self._refusal_limit = None
        if received >= requested:
            self._short_replies = 0
            if self._observed_limit is not None and received > self._observed_limit.value:
                self._observed_limit = None  # the earlier reply with too few choices was an exception
        else:
            self._short_replies += 1
            if received > self._recent_max() or self._short_replies >= _SHORT_REPLIES:
                self._observed_limit = self._observe(received)
        if received >= self._recent_max():
            self._largest_reply = self._observe(received)

    def record_refusal(self, requested: int, message: str) -> int | None:
        """Records that this number of choices was refused; returns the smaller number to request next.

        Returns None if even 1 choice was refused: then `n` isn't the reason. No limit is recorded if only
        this request is at fault, e.g. because other requests recently got more choices.
        """
        if requested < 2:
            self._refusal_limit = None
            return None
        limit = parse_choice_limit(message)
        named = limit is not None and 1 <= limit < requested
        fewer = limit if limit is not None and named else max(1, requested // 2)
        recent_max = self._recent_max()
        request_specific = _REQUEST_SPECIFIC_PATTERN.search(message.lower()) is not None
        if not request_specific and recent_max < requested and not (named and recent_max > fewer):
            before = self._refusal_limit
            known = [before.value] if before is not None and self._is_fresh(before) else []
            self._refusal_limit = self._observe(min([max(fewer, recent_max), *known]))
        return fewer

    @property
    def per_choice(self) -> bool | None:
        """Whether replies with several choices report the usage of only one; None if unknown."""
        observation = self._per_choice
        return bool(observation.value) if observation is not None and self._is_fresh(observation) else None

    @per_choice.setter
    def per_choice(self, value: bool) -> None:
        self._per_choice = self._observe(value)

    @property
    def characters_a_token(self) -> float | None:
        """Characters per token in recent replies with one choice; None if there were too few tokens."""
        known = self._tokens.value >= _MIN_TOKENS and self._is_fresh(self._tokens)
        return self._characters / self._tokens.value if known else None

    def record_text(self, characters: int, tokens: int) -> None:
        """Records a response's characters and tokens."""
        known, now = self._tokens, self._now()
        before = known.value if now - known.at < FRESH_SECONDS else 0
        if before == 0:
            self._characters = 0
        elif before > _TOKEN_WINDOW:
            before, self._characters = before // 2, self._characters // 2
        self._characters += characters
        known.value, known.at = before + tokens, now

    @property
    def ever_gave_logprobs(self) -> bool | None:
        """Whether the model gave log-probabilities when last observed; None if they were never requested."""
        if self._logprobs is None:
            return False if self._bare_replies else None
        return bool(self._logprobs.value)

    @property
    def gives_logprobs(self) -> bool | None:
        """Whether the model gives log-probabilities; None if unknown or observed too long ago."""
        if self._is_refused("logprobs"):
            return False
        known = self._logprobs
        if known is None or not self._is_fresh(known, FRESH_SECONDS if known.value else _BARE_SECONDS):
            return None
        return bool(known.value)

    def record_logprobs(self, *, logprobs: bool) -> None:
        """Records whether a reply had the requested log-probabilities.

        A few replies in a row without them mean that the model gives none, unless a recent reply had them.
        """
        known = self._logprobs
        if logprobs:
            self._logprobs, self._bare_replies = self._observe(True), 0
        elif known is None or not (known.value and self._is_fresh(known)):
            self._bare_replies += 1
            if self._bare_replies >= _BARE_REPLIES:
                self._logprobs = self._observe(False)

    def find_fields_to_skip(self, fields: Collection[str]) -> frozenset[str]:
        """Returns those of `fields` that a request should omit now, because they were refused.

        Some minutes after a refusal, one request includes them as a test; other requests still omit them.
        """
        refused = [name for name in fields if name in self._refused_at]
        skipped = frozenset(name for name in refused if self._is_refused(name))
        for name in refused:
            if name not in skipped:
                self._refused_at[name] = self._now()
        return skipped

    def record_accepted(self, body: Mapping[str, Any]) -> None:
        """Records a successful request, whose fields are therefore accepted."""
        for name in OMITTABLE:
            if body.get(name):
                self._accepted_at[name] = self._now()
                self._refused_at.pop(name, None)

    def record_refused_fields(self, fields: Collection[str]) -> None:
        """Records that a request was refused for these fields and succeeded without them.

        Ignores a field with which other requests recently succeeded: only this request was at fault.
        """
        for name in fields:
            if self._now() - self._accepted_at.get(name, -math.inf) >= FRESH_SECONDS:
                self._refused_at[name] = self._now()
                if name == "logprobs":
                    self._logprobs = self._observe(False)

    def pick_limit(self, wanted: int, name: str, *, model: object = None) -> tuple[str, int] | None:
        """Returns the name and value of the token limit to send; None: send none, because all were refused.

        Until a refusal has shown which name is accepted, the name is `name`, or "max_completion_tokens" if
        `model` is one of OpenAI's reasoning models.

        >>> quirks = ModelQuirks()
        >>> quirks.pick_limit(100, "max_tokens", model="o3-mini"), quirks.pick_limit(100, "max_tokens")
        (('max_completion_tokens', 100), ('max_tokens', 100))
        """
        if self._limit_refusal is not None and self._is_fresh(self._limit_refusal):
            return None
        if self._largest_limit is not None and self._is_fresh(self._largest_limit):
            wanted = min(wanted, self._largest_limit.value)
        if self._limit_name is not None and self._is_fresh(self._limit_name):
            return LIMIT_NAMES[self._limit_name.value], wanted
        return "max_completion_tokens" if _REASONING_MODEL.search(model_key(model)) else name, wanted

    @property
    def is_unbounded(self) -> bool:
        """Whether responses have no token limit, because the model refused the limit under both its names."""
        return self._limit_refusal is not None and not self._limit_refusal.value

    def record_limit_name(self, name: str) -> None:
        """Records that the model accepted this name for the token limit after refusing the other."""
        self._limit_name, self._limit_refusal = self._observe(LIMIT_NAMES.index(name)), None

    def record_largest_limit(self, largest: int) -> None:
        """Records the largest token limit that the model allows."""
        self._largest_limit = self._observe(largest)

    def record_refused_limit(self, *, bounded: bool) -> None:
        """Records that a request succeeded only without a token limit.

        `bounded` says whether the model's context is no longer than the refused limit, and so replaces it.
        """
        self._limit_refusal = self._observe(bounded)

    def _recent_max(self) -> int:
        """Returns the largest number of choices in one recent reply."""
        known = self._largest_reply
        return known.value if known is not None and self._is_fresh(known) else 0

    def _observe(self, value: int) -> _Observation:
        return _Observation(value, self._now())

    def _is_refused(self, field: str) -> bool:
        return self._now() - self._refused_at.get(field, -math.inf) < FRESH_SECONDS

    def _is_fresh(self, observation: _Observation, seconds: float = FRESH_SECONDS) -> bool:
        return self._now() - observation.at < seconds


def model_key(name: object) -> str:
    """Returns the name under which a model is remembered."""
    return name[:_MAX_NAME] if isinstance(name, str) else ""


class RecentlyUsed(OrderedDict[K, V]):
    """A dictionary that keeps only the most recently used keys.

    Without a limit it might grow forever, because the keys come from users, e.g. as names of models.
    """

    def __init__(self, make: Callable[[], V]) -> None:
        super().__init__()
        self._make = make

    def pick(self, key: K) -> V:
        """Returns the value for this key; if there is none, creates it."""
        if key not in self:
            self[key] = self._make()
            if len(self) > _MAX_KEPT:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


class ServerQuirks:
    """Remembers how one endpoint treats requests to each model; forgets the least recently used models."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._models: RecentlyUsed[str, ModelQuirks] = RecentlyUsed(self._make_quirks)

    @property
    def logprobs(self) -> bool | None:
        """Whether any model has given log-probabilities; None if they were never requested."""
        known = [model.ever_gave_logprobs for model in self._models.values()]
        return True if True in known else False if False in known else None

    @property
    def max_choices(self) -> int | None:
        """Maximum number of choices per call of the most recently used model; None: no known limit."""
        return next(reversed(self._models.values())).max_choices if self._models else None

    def get(self, model: object) -> ModelQuirks:
        """Returns a model's quirks; for an unknown model, empty ones that aren't stored."""
        return self._models.get(model_key(model)) or self._make_quirks()

    def ensure(self, model: object) -> ModelQuirks:
        """Returns a model's quirks; for an unknown model, stores and returns empty ones."""
        return self._models.pick(model_key(model))

    def _make_quirks(self) -> ModelQuirks:
        return ModelQuirks(self._now)


# matches only whole names, not a client's `my_logprob` or `x_include_usage`
_FIELD_PATTERN = re.compile(
    r"(?<![\w.\-])(top_logprobs?|logprobs?|stream_options|include_usage)(?!\w|[.-]\w)"
)
_FIELD_OF_WORD = {
    "logprob": "logprobs",
    "logprobs": "logprobs",
    "top_logprob": "top_logprobs",
    "top_logprobs": "top_logprobs",
    "stream_options": "stream_options",
    "include_usage": "stream_options",
    "stream_options.include_usage": "stream_options",
}


def find_refused_fields(
    message: str, param: object, body: Mapping[str, Any], *, optional: Collection[str]
) -> frozenset[str]:
    """Returns the fields to omit on the next try; empty if the refusal has another reason.

    If "top_logprobs" alone may be the reason, only this field is returned, and the next try keeps "logprobs".

    >>> body = {"logprobs": True, "top_logprobs": 2}
    >>> sorted(find_refused_fields("no logprobs here", None, body, optional=LOGPROBS))
    ['logprobs', 'top_logprobs']
    >>> body = {"logprobs": True, "top_logprobs": 20}
    >>> find_refused_fields("at most 5", "top_logprobs", body, optional=LOGPROBS)
    frozenset({'top_logprobs'})
    >>> body = {"logprobs": True, "my_logprobs": 1}
    >>> find_refused_fields("unknown field", "my_logprobs", body, optional=LOGPROBS)
    frozenset()
    """
    named_fields = _find_named_fields(message.lower(), param)
    if "stream_options" in named_fields and "stream_options" in body and "stream_options" in optional:
        return _STREAM_OPTIONS
    if not named_fields & LOGPROBS:
        return frozenset()
    all_logprobs = "logprobs" in optional and "logprobs" in named_fields and "logprobs" in body
    if "top_logprobs" in body and "top_logprobs" in optional:
        number = rf"(?<!\d){body['top_logprobs']}(?!\d)"  # e.g. "logprobs of 20, at most 5 are allowed"
        if not all_logprobs or "top_logprobs" in named_fields or re.search(number, message):
            return _TOP_LOGPROBS
    return LOGPROBS & body.keys() if all_logprobs else frozenset()


def _find_named_fields(message: str, param: object) -> set[str]:
    """Finds the fields that a refusal names, in its `param` or else in its text."""
    if isinstance(param, str) and param:
        return {_FIELD_OF_WORD[param]} if param in _FIELD_OF_WORD else set()
    return {_FIELD_OF_WORD[word] for word in _FIELD_PATTERN.findall(message)}


_N_PATTERN = re.compile(
    r"(?<![\w.\\-])['\"`]?n(?:_cmpl)?['\"`]?(?!\w|[.-]\w)(?!')|\bn_parallel\b|"
    r"number of (?:choices|completions)|completion choice|multiple (?:choices|completions|candidates)|"
    r"num_return_sequences|\bbest_of\b"
)
_LIMIT_PATTERNS = (
    re.compile(r"<=\s*(?:value|n)\s*<=\s*(\d{1,9})"),  # llama.cpp's "between 1 <= value <= 8"
    re.compile(r"between\s+\d+\s+(?:and|to)\s+(\d{1,9})"),
    re.compile(
        r"(?:at most|up to|maximum(?: \w+){0,3}|max(?: \w+)?|no more than|exceeds?(?: the)? \w+(?: of)?)"
        r"(?: is| of|:|=)?\s*(\d{1,9})"
    ),
    re.compile(r"(?:less than or equal to|smaller than or equal to|<=|≤)\s*(\d{1,9})"),
    re.compile(r"must be\s*=?=?\s*(1)\b|only\s*['\"`]?n['\"`]?\s*={1,2}\s*(1)\b|only (?:one|1|a single)"),
)
_BELOW_PATTERN = re.compile(r"(?:less than|smaller than|below|<)\s*(\d{1,9})")
# matches refusals that concern one unusual request, not the model
_REQUEST_SPECIFIC_PATTERN = re.compile(r"greedy|temperature|\bbeam")


def is_about_n(message: str, param: object = None) -> bool:
    """Whether a refusal is about the number of choices."""
    return param == "n" or (param is None and _N_PATTERN.search(message) is not None)


def parse_choice_limit(message: str) -> int | None:
    """Finds the largest number of choices that a refusal's message allows; None if it doesn't say.

    >>> parse_choice_limit("Field 'n': Value must be between 1 <= value <= 8, but got 9")
    8
    >>> parse_choice_limit("n must be less than 5"), parse_choice_limit("n is too large")
    (4, None)
    """
    lower = message.lower()
    for pattern in _LIMIT_PATTERNS:
        if match := pattern.search(lower):
            return int(next((group for group in match.groups() if group), "1"))
    if match := _BELOW_PATTERN.search(lower):
        return int(match[1]) - 1
    return 1 if re.search(r"not supported|unsupported|not permitted|unknown|unrecognized", lower) else None


# --- the token limit ---

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
# Values of the argument `optional`. ADDED_LIMIT: a token limit that the user didn't ask for may be renamed,
# lowered or omitted. LIMIT_NAME: the token limit may only be renamed.
ADDED_LIMIT = frozenset({"max_tokens"})
LIMIT_NAME = frozenset({"limit_name"})

_MAX_TRIES = 5  # maximum number of token limits that one call tries before it omits the limit
_LOWEST = 16  # a smaller number in an error message isn't taken for a token limit
_REASONING_MODEL = re.compile(r"(?:^|[/:])(?:o[1345]|gpt-5)(?![a-z0-9])", re.IGNORECASE)
_LIMIT_WORDS = re.compile(
    r"(?<![\w.-])(?:max_(?:completion_|output_|new_)?tokens(?:_to_sample)?|maxOutputTokens)(?![\w-])"
)
_CONTEXT = re.compile(r"context[ _-](?:length|window|size)", re.IGNORECASE)
_CONTEXT_SIZE = re.compile(r"context[ _-](?:length|window|size)\D{0,40}?(\d{2,9})", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"unsupported|not supported|unrecognized|unknown|not permitted|unexpected|extra|instead", re.IGNORECASE
)
_TOO_HIGH = re.compile(r"too (?:large|high|big)|at most|maximum|less than|exceed|range|[<>≤]", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w])")


def read_limit(body: Mapping[str, Any], optional: Collection[str]) -> int | None:
    """Returns a body's token limit if `optional` allows changing it, otherwise None."""
    if "max_tokens" not in optional and "limit_name" not in optional:
        return None
    values = [body[name] for name in LIMIT_NAMES if isinstance(body.get(name), int)]
    return values[0] if len(values) == 1 else None


def find_refused_limit(
    message: str, param: object, code: str, body: Mapping[str, Any], *, optional: Collection[str]
) -> frozenset[str]:
    """Returns the name of the body's token limit if the refusal is about it and `optional` lets it change.

    >>> body = {"max_tokens": 32768}
    >>> find_refused_limit("max_tokens is too large", None, "", body, optional=ADDED_LIMIT)
    frozenset({'max_tokens'})
    >>> find_refused_limit("max_tokens is too large", None, "", body, optional=())
    frozenset()
    """
    if read_limit(body, optional) is None:
        return frozenset()
    text = param if isinstance(param, str) and param else message
    about_context = code == "context_length_exceeded" or _CONTEXT.search(message)
    if _LIMIT_WORDS.search(text) or ("max_tokens" in optional and about_context):
        return frozenset(name for name in LIMIT_NAMES if name in body)
    return frozenset()


class LimitSearch:
    """Searches for a name and value of the token limit that the server accepts for one request."""

    def __init__(self, quirks: ModelQuirks, body: Mapping[str, Any], wanted: int, *, may_drop: bool) -> None:
        self._wanted = wanted
        self._may_drop = may_drop  # whether the limit may be lowered or omitted
        self._refused: set[str] = set()  # names of the token limit that were refused
        self._lowered = self._about_context = False
        self._tries = 0
        own_name = next(name for name in LIMIT_NAMES if name in body)
        picked = quirks.pick_limit(wanted, own_name, model=body.get("model"))
        if not may_drop:
            picked = (own_name, wanted) if picked is None else (picked[0], wanted)
        self.current: tuple[str, int] | None = picked  # the name and value to send; None: send no limit

    def handle_refusal(self, error: EndpointError) -> bool:
        """Chooses what to try next; False if nothing is left to try, or the limit may not be changed."""
        if self.current is None:
            return False
        name, value = self.current
        message = str(error) if error.reply is None else str(error.reply.fields["message"])
        code = "" if error.reply is None else error.reply.code
        self._tries += 1
        too_high = code != "unsupported_parameter" and _TOO_HIGH.search(message)
        if too_high and not self._may_drop:
            return False  # under its other name the limit would be too high as well
        unknown = not too_high and (code == "unsupported_parameter" or _UNKNOWN.search(message))
        if self._may_drop and not unknown and self._tries < _MAX_TRIES:
            if context := _CONTEXT_SIZE.search(message):
                self._about_context = int(context[1]) <= self._wanted
                self.current = None
                return True
            if lower := _find_lower(message, value):
                self._lowered, self.current = True, (name, lower)
                return True
        self._refused.add(name)
        other = next((other for other in LIMIT_NAMES if other not in self._refused), None)
        if other is None or self._tries >= _MAX_TRIES:
            self.current = None
            return self._may_drop
        self.current = other, value
        return True

    def learn(self, quirks: ModelQuirks) -> None:
        """Records that the call succeeded with the current name and value."""
        if not self._tries:
            return
        if self.current is None:
            if self._about_context or len(self._refused) == len(LIMIT_NAMES):
                quirks.record_refused_limit(bounded=self._about_context)
            return
        name, value = self.current
        if self._refused:
            quirks.record_limit_name(name)
        if self._lowered:
            quirks.record_largest_limit(value)


def _find_lower(message: str, value: int) -> int | None:
    """Finds the model's maximum in a refusal: the largest number that is below the refused value.

    >>> _find_lower("max_tokens is too large: 32768. This model supports at most 16384 tokens", 32768)
    16384
    """
    numbers = [int(number) for number in _NUMBER.findall(message.replace(",", ""))]
    return max((number for number in numbers if _LOWEST <= number < value), default=None)


# --- kinds of requests ---

# number of characters above which requests are a separate kind, because some servers fail on them
_LONG_PROMPT = 32 * 2**10
_TEXT_PARTS = (None, "text", "input_text", "refusal")  # types of message parts that any model accepts
# fields that don't change a request's kind: any model accepts them, or they vary between a request's calls
_EVERYDAY_FIELDS = frozenset(
    {
        *("messages", "model", "n", "seed", "stop", "stream", "stream_options", "metadata", "user"),
        *("max_tokens", "max_completion_tokens", "logprobs", "top_logprobs"),
        *("temperature", "top_p", "frequency_penalty", "presence_penalty"),
    }
)


def describe_kind(body: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """Returns the kind of a request: its model, and the names of unusual features that it uses.

    Requests of the same kind are expected to fail together.
    >>> describe_kind({"model": "m", "temperature": 1, "tools": []})
    ('m', frozenset({'tools'}))
    """
    special: set[str] = set()
    if not _EVERYDAY_FIELDS.issuperset(body):
        special = {name for name in body.keys() - _EVERYDAY_FIELDS if body[name] is not None}
    length = 0
    for content in _read_contents(body):
        if isinstance(content, str):
            length += len(content)
        elif isinstance(content, list) and any(map(_is_media, content)):
            special.add("media")
    if length > _LONG_PROMPT:
        special.add("long")
    return str(body.get("model") or "")[:_MAX_NAME], frozenset(special)


def count_text(body: Mapping[str, Any]) -> int:
    """Counts the characters of plain text in the messages, without images."""
    return sum([len(content) for content in _read_contents(body) if isinstance(content, str)])


def _read_contents(body: Mapping[str, Any]) -> list[object]:
    messages = body.get("messages")
    if not isinstance(messages, (list, tuple)):
        return []
    return [message.get("content") for message in messages if isinstance(message, (dict, Mapping))]


def _is_media(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") not in _TEXT_PARTS
