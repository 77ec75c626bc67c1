"""What came of a request -> a completion, a stream of chunks, or an error, as OpenAI shapes them.

Knows nothing of HTTP beyond statuses and headers, nor of how samples were drawn.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from adacompute.endpoint import Response
from adacompute.endpoint.outcome import sound
from adacompute.serve.asked import Ask
from adacompute.serve.refusal import failure
from adacompute.serve.spend import Unit
from adacompute.serve.told import Told

__all__ = ["chunks", "completion", "extra", "failure", "headers_of", "shown_logprobs", "usage_of"]

_PIECE = 256  # characters of one chunk
_DONE = b"data: [DONE]\n\n"
_DEEPEST = 100  # levels of a message that are passed on
_SPOKEN = ("role", "content", "tool_calls")  # what a stream has chunks of their own for


def completion(told: Told, ask: Ask, *, unit: Unit) -> bytes:
    """A whole chat completion, as JSON, with the usage of all samples."""
    choices = [
        {
            "index": index,
            "message": _message(response),
            "logprobs": shown_logprobs(response.logprobs, ask),
            "finish_reason": response.finish_reason or "stop",
        }
        for index, response in enumerate(_given(told, ask))
    ]
    head = _head(told, "chat.completion")
    return _json(head | {"choices": choices, "usage": usage_of(told), "adacompute": extra(told, unit=unit)})


def chunks(told: Told, ask: Ask, *, unit: Unit) -> Iterator[bytes]:
    """The same as events of a stream: what was said, how it ended, usage if it was asked for, the end."""
    head = _head(told, "chat.completion.chunk")
    if ask.include_usage:
        head["usage"] = None  # in all chunks but the last, as OpenAI does
    given = _given(told, ask)
    for index, response in enumerate(given):
        *deltas, last = _deltas(response, ask)
        for choice in deltas:
            yield _event(head | {"choices": [{"index": index} | choice]})
        end = {"adacompute": extra(told, unit=unit)} if index == len(given) - 1 else {}
        yield _event(head | {"choices": [{"index": index} | last]} | end)
    if ask.include_usage:
        yield _event(head | {"choices": [], "usage": usage_of(told)})
    yield _DONE


def extra(told: Told, *, unit: Unit) -> dict[str, Any]:
    """The object that a reply has beyond OpenAI's: what the answer rests on, and what it cost."""
    found: dict[str, Any] = {
        "samples": told.samples,
        "answer": told.answer,
        "votes": dict(told.votes),
        "agreement": told.agreement,
        "price": told.price,
        "policy": told.policy,
        "cost": told.spent.of(unit),
        "unit": unit,
    }
    if told.mode != "adaptive":
        found["mode"] = told.mode
    if told.notes:
        found["notes"] = list(told.notes)
    if told.abstained:
        found["abstained"] = told.abstained
    if told.missing:
        found["missing"] = told.missing
    if told.would is not None:
        found["would"] = told.would
    if told.weak:
        found["weak"] = True
    return found


def headers_of(told: Told) -> dict[str, str]:
    """The headers of a reply that say what came of it."""
    found = {
        "x-request-id": told.id,
        "x-adacompute-samples": str(told.samples),
        "x-adacompute-policy": quote(told.policy, safe=" !#$&'()*+,/:;=?@[]"),  # a header is ASCII
    }
    if told.agreement is not None:
        found["x-adacompute-agreement"] = f"{told.agreement:.4g}"
    if told.price is not None:
        found["x-adacompute-price"] = f"{told.price:.6g}"
    return found


def shown_logprobs(logprobs: Mapping[str, Any] | None, ask: Ask) -> Mapping[str, Any] | None:
    """What a client is to see of a choice's log-probabilities: only what it asked for itself."""
    if logprobs is None or not ask.logprobs:
        return None
    if ask.body.get("top_logprobs"):
        return logprobs
    return {
        name: [_alone(token) for token in tokens] if isinstance(tokens, list) else tokens
        for name, tokens in logprobs.items()
    }


def _alone(token: object) -> object:
    """A token without its alternatives."""
    return {**token, "top_logprobs": []} if isinstance(token, dict) and token.get("top_logprobs") else token


def _given(told: Told, ask: Ask) -> tuple[Response, ...]:
    """The responses that the client gets: all that it asked for itself, else the one that stands for all."""
    if ask.n > 1:
        return told.responses
    best = told.best or 0
    return told.responses[best : best + 1]


def _head(told: Told, kind: str) -> dict[str, Any]:
    return {"id": told.id, "object": kind, "created": int(told.at), "model": told.model, **told.beside}


def usage_of(told: Told) -> dict[str, Any]:
    """The usage of all samples, as OpenAI shapes it."""
    usage = told.usage
    found: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens > 0:
        found["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return found


def _message(response: Response) -> dict[str, Any]:
    """The message as it came, made whole where a server left out what SDKs rely on."""
    message = dict(response.message)
    if not isinstance(message.get("content"), str):  # none, or parts, as some servers give them
        refused = response.text == message.get("refusal")
        message["content"] = None if refused else response.text or None
    return message | {"role": "assistant"}


def _deltas(response: Response, ask: Ask) -> Iterator[dict[str, Any]]:
    """One choice in pieces; the last one says how it ended. Log-probabilities come with the text, whole."""
    message = _message(response)
    text, calls = message["content"], message.get("tool_calls")
    first = {name: value for name, value in message.items() if name not in _SPOKEN and value is not None}
    yield {
        "delta": {"role": "assistant", "content": None if text is None else ""} | first,
        "finish_reason": None,
    }
    logprobs = shown_logprobs(response.logprobs, ask)
    size = _PIECE if logprobs is None else max(1, len(text or ""))
    for start in range(0, len(text or ""), size):
        piece = {"delta": {"content": text[start : start + size]}, "finish_reason": None}
        yield piece if logprobs is None else piece | {"logprobs": logprobs}
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, Mapping):
            yield {"delta": {"tool_calls": [{**call, "index": place}]}, "finish_reason": None}
    end: dict[str, Any] = {"delta": {}, "finish_reason": response.finish_reason or "stop"}
    yield end if logprobs is None or text else end | {"logprobs": logprobs}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _json(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # what servers send that is no JSON: half surrogates, numbers beyond 64 bits
        return orjson.dumps(_plain(value))


def _plain(value: object, depth: int = 0) -> object:
    """A value that can be written: as it is but for texts that are none, huge numbers and deep nesting."""
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 10**300 else None
    if isinstance(value, Mapping | list | tuple) and depth >= _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {sound(str(name)): _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value
