"""What of a request a pool keeps: its problem, its source, its samples. Knows nothing of threads or files.

One conversation is one problem, however often it is asked, and a model under one set of parameters is one
source. Requests that were drawn to the end, to learn from, are a source of their own, marked `explored`: in
all others easy problems have few samples, since the policy stopped, and what is learned from those is wrong.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson

from adacompute.endpoint.outcome import sound
from adacompute.records import Problem, Sample
from adacompute.serve.asked import Ask
from adacompute.serve.told import GONE, Told

__all__ = ["is_worth", "problem_of", "samples_of", "source_of"]

_MESSAGES = 262_144  # bytes of a conversation that are kept whole: pictures may take megabytes
# what doesn't change how a model answers: who asks, what it is told beside, and which of its answers come
_BESIDE = frozenset(
    (
        *("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "seed", "user"),
        *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    )
)


def is_worth(told: Told) -> bool:
    """Whether there is something to learn from it: it could be voted on, be it with one sample."""
    return (
        bool(told.responses) and told.agreement is not None and told.status != GONE
    )  # else the last may be half of one


def problem_of(ask: Ask) -> Problem:
    """The conversation as a problem, known by a hash of its messages, whichever model is asked."""
    # half of a surrogate pair can come in JSON's escapes, and is no text
    messages = _sound(ask.body.get("messages"))
    text = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    kept = {"messages": messages} if len(text) <= _MESSAGES else {"messages_bytes": len(text)}
    return Problem(id=f"req-{sha256(text).hexdigest()[:16]}", question=sound(ask.prompt), extra=kept)


def source_of(told: Told, ask: Ask) -> tuple[str, dict[str, Any]]:
    """The model and the parameters that samples were drawn with."""
    parameters = {name: _sound(value) for name, value in ask.body.items() if name not in _BESIDE}
    if told.explored and not told.missing:
        parameters["explored"] = True
    return sound(told.model), parameters


def samples_of(told: Told, samples: Sequence[Sample]) -> list[Sample]:
    """The samples of a request, the first with a note of what the gateway did."""
    note = {
        "request": told.id,
        "at": told.at,
        "policy": told.policy,
        "mode": told.mode,
        "budget": told.budget,
        "price": told.price,
        "agreement": told.agreement,
        "would": told.would,
        "explored": told.explored or None,
        "missing": told.missing or None,
    }
    kept = {name: value for name, value in note.items() if value is not None}
    return [replace(samples[0], extra={**samples[0].extra, "gateway": kept}), *samples[1:]]


def _sound(value: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    return {sound(name): _sound(item) for name, item in value.items()} if isinstance(value, dict) else value
