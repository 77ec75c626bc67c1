"""The body of a reply, checked and turned into responses. Knows nothing of sockets."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adacompute.endpoint.habits import Habits
from adacompute.endpoint.outcome import Response, sound
from adacompute.endpoint.signals import entropy_of, logprob_of, tokens_of
from adacompute.endpoint.usage import CHARACTERS_A_TOKEN, Choice, Counted, count, whole
from adacompute.errors import ReplyInvalid
from adacompute.records import Secret

__all__ = ["cap_of", "characters_of", "choices_of", "complaint"]
__all__ += ["encoded", "masked", "one_line", "parsed", "prompt_tokens", "read", "responses_of"]

_LONGEST = 200  # characters of a server's message that are passed on
_NAME = re.compile(r"[a-z_]+")  # of a field in OpenAI's replies


def one_line(text: str) -> str:
    """A server's words, short and on one line."""
    text = " ".join(sound(text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def encoded(value: object) -> bytes:
    """A value as JSON."""
    return encoded_with(value, None)


def encoded_with(value: object, fixed: Mapping[str, orjson.Fragment] | None) -> bytes:
    """The same, where some fields of an object are written already: the same for many requests."""
    try:
        return orjson.dumps({**value, **fixed} if fixed and isinstance(value, Mapping) else value)
    except TypeError:  # half surrogates and numbers beyond 64 bits are JSON all the same
        return json.dumps(value).encode("ascii")


def fixed_of(body: Mapping[str, Any]) -> dict[str, orjson.Fragment]:
    """The messages of a body, written once for all requests that have them."""
    try:
        return {"messages": orjson.Fragment(orjson.dumps(body["messages"]))}
    except (KeyError, TypeError):
        return {}


def parsed(raw: bytes, key: Secret | None) -> object:
    """The JSON of a body, the key masked in its texts; ValueError where it is no JSON."""
    return read(raw, key)[0]


def read(raw: bytes, key: Secret | None) -> tuple[object, bool]:
    """The same, and whether the bytes can be passed on as they are: strict JSON, the key not in it."""
    try:
        try:
            value, sure = orjson.loads(raw), key is None or not _may_quote(raw, key)
        except ValueError:
            # NaN, huge numbers and half surrogates, which Python's servers do send; also UTF-16, in which
            # the key doesn't look like itself
            value, sure = json.loads(raw), False
        return (value if sure else masked(value, key)), sure
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def masked(value: object, key: Secret | None) -> object:
    """A value without the key in its texts."""
    return _masked(value, key) if key is not None and key.guarded else value


def _may_quote(raw: bytes, key: Secret) -> bool:
    """May the key be in a body, plainly or behind JSON's escapes? Looking for it in all texts takes time."""
    text = key.reveal()
    if not key.guarded:
        return False  # a dummy; it is no secret
    if not text.isascii() or '"' in text or "\\" in text:
        return True
    return text.encode() in raw or b"\\u00" in raw or b"\\/" in raw


def _masked(value: object, key: Secret) -> object:
    """All texts of a value without the key, and all names but those that a reply has by itself."""
    if isinstance(value, str):
        return key.hidden(value)
    if isinstance(value, list):
        return [_masked(item, key) for item in value]
    if isinstance(value, dict):
        return {
            name if _NAME.fullmatch(name) else key.hidden(name): _masked(item, key)
            for name, item in value.items()
        }
    return value


def complaint(value: object) -> tuple[str, object]:
    """What an error's body says, and the parameter that it names, in the shapes that servers use."""
    param: object = None
    while isinstance(value, dict):
        param = value.get("param", param)
        value = next((value[k] for k in ("error", "message", "detail", "msg") if value.get(k)), "")
    if isinstance(value, list) and value and isinstance(value[0], dict):  # FastAPI lists what is wrong
        place = value[0].get("loc")
        param = place[-1] if isinstance(place, list) and place else param
        value = value[0].get("msg", "")
    try:
        return value if isinstance(value, str) else str(value), param
    except RecursionError:
        return "something nested too deeply", param


def choices_of(value: object, *, unsaid: Callable[[str], str] = str) -> tuple[list[Choice], int]:
    """The usable choices of a reply, and how many it has; ReplyInvalid where there is none.

    `unsaid` takes a key out of what the error quotes.
    """
    if not isinstance(value, dict):
        raise _invalid("its reply is JSON, but no object")
    choices = value.get("choices")
    if not isinstance(choices, list):
        said = f": {one_line(unsaid(complaint(value)[0]))}" if value.get("error") else ""
        raise _invalid(f"its reply has no list of choices{said}")
    usable = [choice for one in choices if (choice := _choice(one)) is not None]
    if not usable:
        raise _invalid(
            "its reply has no choice with a message" if choices else "its reply has an empty list of choices"
        )
    return usable, len(choices)


def _choice(value: object) -> Choice | None:
    if not isinstance(value, dict):
        return None
    message = value.get("message")
    if not isinstance(message, dict):
        return None
    text = _text(message)
    if text is None or (not text and value.get("error")):
        return None
    reason = value.get("finish_reason")
    logprobs = value.get("logprobs")
    return Choice(
        text=text,
        finish_reason=reason if isinstance(reason, str) else None,
        message=message,
        logprobs=logprobs if isinstance(logprobs, dict) else None,
        tokens=None if logprobs is None else tokens_of(logprobs),
    )


def _text(message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):  # parts, as some servers give them
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return None


def responses_of(
    choices: list[Choice], body: Mapping[str, Any], *, asked: int, cap: int | None, habits: Habits
) -> tuple[tuple[Response, ...], Counted]:
    """The first `asked` of the choices as responses, and the tokens of all of them."""
    usage = body.get("usage")
    said = whole(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    counted = count(choices, said, cap=cap, habits=habits)
    responses = tuple(
        Response(
            text=choice.text,
            finish_reason=choice.finish_reason,
            tokens=tokens,
            estimated=estimated,
            logprob=None if choice.tokens is None else logprob_of(choice.tokens),
            entropy=None if choice.tokens is None else entropy_of(choice.tokens),
            message=choice.message,
            logprobs=choice.logprobs,
        )
        for choice, (tokens, estimated) in zip(choices[:asked], counted.each, strict=False)
    )
    return responses, counted


def cap_of(body: Mapping[str, Any]) -> int | None:
    """The request's limit on the tokens of one response."""
    cap = whole(body.get("max_completion_tokens"))
    return whole(body.get("max_tokens")) if cap is None else cap


def characters_of(value: object) -> int:
    """Characters in all texts of a request's messages, or of any value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(characters_of, value))
    return sum(map(characters_of, value.values())) if isinstance(value, Mapping) else 0


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """A guess of the tokens of a request's prompt, by length."""
    return max(1, round(characters_of(body.get("messages")) / CHARACTERS_A_TOKEN))


def _invalid(message: str) -> ReplyInvalid:
    return ReplyInvalid(message, status=200, paid=True)
