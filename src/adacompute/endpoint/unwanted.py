"""Which fields a refusal is about, of those that may be left out. Knows nothing of what was learned."""

import re
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["LOGPROBS", "unwanted"]

LOGPROBS = frozenset({"logprobs", "top_logprobs"})  # for who asks for log-probabilities, and can do without
_TOP = frozenset({"top_logprobs"})
_OPTIONS = frozenset({"stream_options"})
# whole names: a client's own `my_logprob` or `x_include_usage` is none of them
_WORD = re.compile(r"(?<![\w.\-])(top_logprobs?|logprobs?|stream_options|include_usage)(?!\w|[.-]\w)")
_NAMES = {
    "logprob": "logprobs",
    "logprobs": "logprobs",
    "top_logprob": "top_logprobs",
    "top_logprobs": "top_logprobs",
    "stream_options": "stream_options",
    "include_usage": "stream_options",
    "stream_options.include_usage": "stream_options",
}


def unwanted(
    message: str, param: object, body: Mapping[str, Any], *, optional: Collection[str]
) -> frozenset[str]:
    """What to leave out when it is asked again; nothing where the refusal is about something else.

    The alternatives to each token go first where they may be the reason.

    >>> sorted(unwanted("no logprobs here", None, {"logprobs": True, "top_logprobs": 2}, optional=LOGPROBS))
    ['logprobs', 'top_logprobs']
    >>> unwanted("at most 5", "top_logprobs", {"logprobs": True, "top_logprobs": 20}, optional=LOGPROBS)
    frozenset({'top_logprobs'})
    >>> unwanted("unknown field", "my_logprobs", {"logprobs": True, "my_logprobs": 1}, optional=LOGPROBS)
    frozenset()
    """
    named = _named(message.lower(), param)
    if "stream_options" in named and "stream_options" in body and "stream_options" in optional:
        return _OPTIONS
    if not named & LOGPROBS:
        return frozenset()
    both = "logprobs" in optional and "logprobs" in named and "logprobs" in body
    if "top_logprobs" in body and "top_logprobs" in optional:
        number = rf"(?<!\d){body['top_logprobs']}(?!\d)"  # "logprobs of 20, at most 5 are allowed"
        if not both or "top_logprobs" in named or re.search(number, message):
            return _TOP
    return LOGPROBS & body.keys() if both else frozenset()


def _named(message: str, param: object) -> set[str]:
    """The fields that it names: by its `param` where it has one, else in its words."""
    if isinstance(param, str) and param:
        return {_NAMES[param]} if param in _NAMES else set()
    return {_NAMES[word] for word in _WORD.findall(message)}
