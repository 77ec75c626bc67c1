"""The limit of tokens of a request: under the name that its model takes, and no higher than it allows.

Reasoning models of OpenAI take `max_completion_tokens` and refuse `max_tokens`, which is all that many other
servers know. What a model takes is learned from its refusals, and believed for some minutes.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from adacompute.errors import EndpointError

__all__ = [
    "ADDED_LIMIT",
    "LIMIT_NAME",
    "LIMIT_NAMES",
    "LimitSearch",
    "TokenLimits",
    "find_refused_limit",
    "read_limit",
]

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
# As optional fields of a call. ADDED_LIMIT: the caller has added `max_tokens` itself, and can do with less
# or without it. LIMIT_NAME: the limit has to stay, but may go under the other name.
ADDED_LIMIT = frozenset({"max_tokens"})
LIMIT_NAME = frozenset({"limit_name"})

_FRESH_SECONDS = 600.0  # that something learned is believed
_MAX_MODELS = 256  # that are remembered: clients choose the names
_MAX_NAME = 200  # characters of a model's name that are kept
_MAX_TRIES = 5  # limits that one call tries before it does without
_LOWEST = 16  # tokens: a smaller number in a refusal is no limit
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
    """The limit of a body that may be changed, as far as the optional fields allow; None: there is none."""
    values = [body[name] for name in LIMIT_NAMES if isinstance(body.get(name), int)]
    allowed = ("max_tokens" in optional or "limit_name" in optional) and len(values) == 1
    return values[0] if allowed else None


def find_refused_limit(
    message: str, param: object, code: str, body: Mapping[str, Any], *, optional: Collection[str]
) -> frozenset[str]:
    """The name of the limit in the body, where the refusal is about it and it may be changed.

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


@dataclass(slots=True)
class _ModelLimit:
    """What one model takes; times are when it was learned."""

    name: str = ""  # the name that it takes; "": not known
    name_at: float = 0.0
    refused_at: float | None = None  # when it refused every limit
    bounded: bool = False  # it refused because its context is shorter than the limit
    largest: int | None = None  # tokens that it allows
    largest_at: float = 0.0


class TokenLimits:
    """The limits that the models of an endpoint take; those unused for longest are forgotten first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._models: OrderedDict[str, _ModelLimit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def pick(self, model: object, wanted: int, name: str = "max_tokens") -> tuple[str, int] | None:
        """The name and the value to send; None: none, because all were refused.

        `name` is where to begin with a model of which nothing is known, unless its name tells.

        >>> TokenLimits().pick("o3-mini", 100), TokenLimits().pick("llama", 100)
        (('max_completion_tokens', 100), ('max_tokens', 100))
        """
        known = self._models.get(_model_key(model), _ModelLimit())
        if known.refused_at is not None and self._is_fresh(known.refused_at):
            return None
        if known.largest is not None and self._is_fresh(known.largest_at):
            wanted = min(wanted, known.largest)
        if known.name and self._is_fresh(known.name_at):
            return known.name, wanted
        return "max_completion_tokens" if _REASONING_MODEL.search(_model_key(model)) else name, wanted

    def is_unbounded(self, model: object) -> bool:
        """Whether the model refuses every limit, though an answer may be longer than it."""
        known = self._models.get(_model_key(model))
        return known is not None and known.refused_at is not None and not known.bounded

    def record_name(self, model: object, name: str) -> None:
        """Records that the model took a limit under that name, after it had refused another."""
        known = self._ensure(model)
        known.name, known.name_at, known.refused_at = name, self._now(), None

    def record_largest(self, model: object, largest: int) -> None:
        """Records that the model allows so many tokens at most."""
        known = self._ensure(model)
        known.largest, known.largest_at = largest, self._now()

    def record_refused(self, model: object, *, bounded: bool) -> None:
        """Records that the model took none."""
        known = self._ensure(model)
        known.refused_at, known.bounded = self._now(), bounded

    def _is_fresh(self, at: float) -> bool:
        return self._now() - at < _FRESH_SECONDS

    def _ensure(self, model: object) -> _ModelLimit:
        key = _model_key(model)
        known = self._models.setdefault(key, _ModelLimit())
        self._models.move_to_end(key)
        if len(self._models) > _MAX_MODELS:
            self._models.popitem(last=False)
        return known


def _model_key(name: object) -> str:
    return name[:_MAX_NAME] if isinstance(name, str) else ""


class LimitSearch:
    """Finds the limit that one request is accepted with; what it finds is learned when the call succeeds."""

    __slots__ = (
        "_about_context",
        "_lowered",
        "_may_drop",
        "_model",
        "_refused",
        "_tries",
        "_wanted",
        "current",
    )

    def __init__(self, limits: TokenLimits, body: Mapping[str, Any], wanted: int, *, may_drop: bool) -> None:
        self._model = body.get("model")
        self._wanted = wanted
        self._may_drop = may_drop  # whether it may also be lowered, or left out
        self._refused: set[str] = set()  # names
        self._lowered = self._about_context = False
        self._tries = 0
        own_name = next(name for name in LIMIT_NAMES if name in body)
        picked = limits.pick(self._model, wanted, own_name)
        if not may_drop:
            picked = (own_name, wanted) if picked is None else (picked[0], wanted)
        self.current: tuple[str, int] | None = picked  # the name and the value to send; None: none

    def handle_refusal(self, error: EndpointError) -> bool:
        """Chooses what to try next; False where the limit has to stay, and nothing is left to try."""
        if self.current is None:
            return False
        name, value = self.current
        message = str(error) if error.reply is None else str(error.reply.fields["message"])
        code = "" if error.reply is None else error.reply.code
        self._tries += 1
        too_high = code != "unsupported_parameter" and _TOO_HIGH.search(message)
        if too_high and not self._may_drop:
            return False  # another name wouldn't help
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

    def learn(self, limits: TokenLimits) -> None:
        """The call succeeded with what is chosen now."""
        if not self._tries:
            return
        if self.current is None:
            if self._about_context or len(self._refused) == len(LIMIT_NAMES):
                limits.record_refused(self._model, bounded=self._about_context)
            return
        name, value = self.current
        if self._refused:
            limits.record_name(self._model, name)
        if self._lowered:
            limits.record_largest(self._model, value)


def _find_lower(message: str, value: int) -> int | None:
    """The largest number in a refusal that is below the value: what the model allows.

    >>> _find_lower("max_tokens is too large: 32768. This model supports at most 16384 tokens", 32768)
    16384
    """
    numbers = [int(number) for number in _NUMBER.findall(message.replace(",", ""))]
    return max((number for number in numbers if _LOWEST <= number < value), default=None)
