"""Bytes of a request -> `Ask`, checked. Knows nothing of HTTP, keys or policies.

What isn't taken out for a reason that stands here goes upstream as it came: fields that nobody here has heard
of, too. null is as good as absent.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import orjson

from adacompute.config import ServeConfig
from adacompute.errors import RequestInvalid
from adacompute.serve.asked import Ask
from adacompute.serve.messages import check_messages, last_prompt, most_tokens

__all__ = ["asked"]

Body = dict[str, Any]

_TAKEN = ("n", "stream", "stream_options")  # what the gateway sees to itself
_OURS = ("", "default", "adacompute")  # names that stand for the operator's model
_BUDGETED = re.compile(r"(.*)@([0-9]{1,4}(?:\.[0-9]+)?)", re.DOTALL)
_LARGEST_BUDGET = 1000.0  # beyond, it is no budget but part of a model's name, such as a year
_LONGEST_NAME = 1000  # characters of a model's
_LEGACY = ("prompt", "suffix", "echo", "best_of")
_LENGTHS = (
    "max_tokens",
    "max_completion_tokens",
)  # of a response; which of them a server keeps to is its own
# what some servers call it; to others it is nothing, and there would be no limit where one is counted on
_OTHER_LENGTHS = ("max_new_tokens", "max_output_tokens", "max_gen_len", "n_predict", "num_predict")
_NUMBERS = ("n_cmpl", "num_return_sequences")  # what some servers take in place of n
_TOOLS = ("tools", "functions", "tool_choice", "function_call")
_DEEPEST = 200  # levels, whatever the settings say: what is deeper can't be written again
_MOST = 50_000  # values of a body: millions of tiny ones would hold up all others while they are read
_STEPS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 255, 0x7D: 255}.get(byte, 0) for byte in range(256))
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG = re.compile(rb"(?<![0-9.eE+])-?[0-9]{19,}+(?![.eE])")  # whole numbers that may be beyond 64 bits
_WORDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}


def asked(raw: bytes, *, settings: ServeConfig, model: str = "", listed: Collection[str] = ()) -> Ask:
    """The request that a body is; RequestInvalid where it is none.

    `model` is the operator's own, for clients that name none, or "default" or "adacompute".
    `listed` are names that the upstream has, as far as is known: such a one is never read as a budget.
    """
    body = _object(raw, min(settings.max_depth, _DEEPEST))
    check_messages(body.get("messages"), most=settings.max_messages)
    _check_supported(body)
    _check_sampling(body)
    name, budget = _model(body, model, listed)
    n = _whole(body, "n", 1, settings.max_n) or 1
    stream, include_usage = _streaming(body)
    limits = [
        limit for field in _LENGTHS if (limit := _whole(body, field, 1, settings.max_tokens)) is not None
    ]
    sent = {field: value for field, value in body.items() if field not in _TAKEN} | {"model": name}
    return Ask(
        body=sent,
        prompt=last_prompt(body["messages"]),
        n=n,
        stream=stream,
        include_usage=include_usage,
        logprobs=_logprobs(body),
        budget=budget,
        max_tokens=max(limits, default=settings.max_tokens),
        limited=bool(limits),
        prompt_tokens=most_tokens(sent),
        json=_json(body),
        alone=_alone(body, n),
    )


def _object(raw: bytes, deepest: int) -> Body:
    bare = _bare(raw)
    if bare.count(b'"') > 4 * _MOST:  # counted first: taking apart what has millions of them takes long
        raise RequestInvalid(f"the body has more than {_MOST:,} values; send fewer")
    outside = _outside(bare)
    openings = outside.count(b"[") + outside.count(b"{")
    if outside.count(b",") + openings > _MOST:
        raise RequestInvalid(f"the body has more than {_MOST:,} values; send fewer")
    if openings > deepest and _depth(outside) > deepest:
        raise RequestInvalid(f"the body is nested more than {deepest} levels deep; send it flatter")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"the body is no JSON ({exc.msg} at {exc.pos}); send a JSON object") from None
    if not isinstance(body, dict):
        raise RequestInvalid(f"the body is {_kind(body)}; send a JSON object with model and messages")
    if any(not -(2**63) <= int(found[0]) < 2**64 for found in _LONG.finditer(outside)):
        # it was read as the nearest float, and would go upstream changed
        raise RequestInvalid("the body has a number that 64 bits can't hold; send a smaller one, or a text")
    return body


def _bare(raw: bytes) -> bytes:
    """Some JSON with no quotes in it but those that begin or end a text."""
    if b'\\"' not in raw:  # looked for first: a body of escapes takes long to be cleaned of them
        return raw
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _outside(bare: bytes) -> bytes:
    """What is outside of all texts of some JSON, without blanks.

    >>> _outside(_bare(b'{"a[[": [[1], "]"]}'))
    b'{:[[1],]}'
    """
    return b"".join(bare.split(b'"')[::2]).translate(None, b" \t\r\n")


def _depth(outside: bytes) -> int:
    """Levels of nesting, without a parser: one that recurses could be brought down by what it is to refuse.

    >>> _depth(b"{:[[1],]}")
    3
    """
    steps = np.frombuffer(outside.translate(_STEPS, _OTHERS), np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def _model(body: Body, own: str, listed: Collection[str] = ()) -> tuple[str, float | None]:
    """The model's name without the budget in it, and the budget.

    >>> _model({"model": "qwen@2.5"}, ""), _model({"model": "gpt@20240229"}, "")
    (('qwen', 2.5), ('gpt@20240229', None))
    """
    name: str = _typed(body, "model", str) or ""
    if len(name) > _LONGEST_NAME:
        raise RequestInvalid(
            f"model is a name of {len(name)} characters; name one that GET /v1/models lists", param="model"
        )
    budget = None
    found = None if name in listed else _BUDGETED.fullmatch(name)
    if found is not None and float(found[2]) < 1.0:
        raise RequestInvalid(f"model {name[:100]!r} asks for a budget below 1; give 1 or more", param="model")
    if found is not None and float(found[2]) <= _LARGEST_BUDGET:
        name, budget = found[1], float(found[2])
    if name in _OURS:
        name = own or name
    if not name:
        raise RequestInvalid("model is missing; name one that GET /v1/models lists", param="model")
    return name, budget


def _check_supported(body: Body) -> None:
    """What can't be done is said, not left out."""
    for field in _LEGACY:
        if body.get(field) is not None:
            raise RequestInvalid(
                f"{field} is of the older API for completions, and not supported; give messages", param=field
            )
    for field in _NUMBERS:
        if body.get(field) is not None:
            raise RequestInvalid(f"{field} is not supported; give n", param=field)
    for field in _OTHER_LENGTHS:
        if body.get(field) is not None:
            raise RequestInvalid(f"{field} is not supported; give max_tokens", param=field)
    if body.get("modalities") not in (None, ["text"]):
        raise RequestInvalid(
            'modalities other than ["text"] are not supported; leave it out', param="modalities"
        )
    if body.get("audio") is not None:
        raise RequestInvalid("audio is not supported as a response; leave it out", param="audio")
    for field in ("tools", "functions"):
        _typed(body, field, list)


def _check_sampling(body: Body) -> None:
    _number(body, "temperature", 2)
    _number(body, "top_p", 1)
    if (seed := body.get("seed")) is not None and type(seed) is not int:
        raise RequestInvalid(f"seed is {_kind(seed)}; give a whole number", param="seed")


def _streaming(body: Body) -> tuple[bool, bool]:
    """Is a stream asked for, and usage in it?"""
    stream: bool = _typed(body, "stream", bool) or False
    options: Body = _typed(body, "stream_options", dict) or {}
    if options and not stream:
        raise RequestInvalid(
            "stream_options are given without stream; leave them out, or give stream: true",
            param="stream_options",
        )
    for name, value in options.items():
        # no chunk is padded against eavesdroppers: whoever doesn't want that has it already
        idle = value is None or (name == "include_obfuscation" and value is False)
        if name != "include_usage" and not idle:
            raise RequestInvalid(
                f"stream_options.{name[:60]} is not supported; leave it out", param="stream_options"
            )
    return stream, bool(_typed(options, "include_usage", bool, "stream_options."))


def _logprobs(body: Body) -> bool:
    logprobs = bool(_typed(body, "logprobs", bool))
    if _whole(body, "top_logprobs", 0, 20) is not None and not logprobs:
        raise RequestInvalid("top_logprobs needs logprobs: true; give both or none", param="top_logprobs")
    return logprobs


def _json(body: Body) -> bool:
    form: Body = _typed(body, "response_format", dict) or {}
    kind = _typed(form, "type", str, "response_format.")
    if form and kind is None:
        raise RequestInvalid(
            "response_format has no type; give text, json_object or json_schema", param="response_format"
        )
    return kind not in (None, "text")


def _alone(body: Body, n: int) -> str:
    """Why there can be no vote; "" where there can."""
    if n > 1:
        return f"n is {n}: the client samples by itself"
    if any(body.get(field) not in (None, []) for field in _TOOLS):
        return "tools: calls of tools aren't voted on"
    if body.get("temperature") == 0:
        return "temperature is 0: every sample would be the same"
    return ""


def _typed(body: Mapping[str, Any], field: str, kind: type, place: str = "") -> Any:  # noqa: ANN401 - of that type
    value = body.get(field)
    if value is None or type(value) is kind:
        return value
    raise RequestInvalid(f"{place}{field} is {_kind(value)}; give {_WORDS[kind]}", param=place + field)


def _whole(body: Body, field: str, low: int, high: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if type(value) is not int:
        raise RequestInvalid(
            f"{field} is {_kind(value)}; give a whole number from {low} to {high}", param=field
        )
    if not low <= value <= high:
        raise RequestInvalid(f"{field} is {value}; give {low} to {high}", param=field)
    return value


def _number(body: Body, field: str, high: int) -> None:
    value = body.get(field)
    if value is None:
        return
    if type(value) not in (int, float):
        raise RequestInvalid(f"{field} is {_kind(value)}; give a number from 0 to {high}", param=field)
    if not 0 <= value <= high:
        raise RequestInvalid(f"{field} is {value}; give 0 to {high}", param=field)


def _kind(value: object) -> str:
    """What a value is, in words: texts aren't quoted, for they may be long, or private."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int | float) else _WORDS[type(value)]
