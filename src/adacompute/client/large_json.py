"""Reads JSON of many megabytes in a thread, so that it doesn't block the event loop.

The thread alone isn't enough: a parser holds Python's lock (GIL) until it returns, which blocks all threads.
Only replies with log-probabilities are large enough for this to matter. Their tokens become structs, which
need a fraction of the time and memory of dictionaries, and which the garbage collector ignores.
"""

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

P = ParamSpec("P")
T = TypeVar("T")
Bytes = bytes | bytearray

MAX_INLINE = 2**18  # size in bytes above which a reply is parsed in a thread, not in the event loop
# maximum number of opening brackets and commas in a reply without log-probabilities
MAX_PLAIN_MARKS = 300_000
# maximum number of opening brackets and commas in a reply with log-probabilities that isn't strict JSON
_MAX_ODD_MARKS = 1_000_000
# maximum number of opening brackets and commas in a reply with log-probabilities; real replies have fewer
MAX_MARKS = 12_000_000
# size in bytes above which the tokens of a reply are read without their alternatives (top_logprobs)
_MAX_WHOLE = 16 * 2**20
_PART = 2**18  # number of bytes that `_count_marks` scans at a time
_MAX_DEPTH = 800  # maximum depth of nesting in a reply; orjson can parse 1,024 levels

_executor: tuple[int, ThreadPoolExecutor] | None = None  # (id of the process that created the pool, pool)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function in the thread that reads all large replies.

    More threads wouldn't be faster, because Python's lock (GIL) lets only one of them run at a time.
    """
    global _executor
    if _executor is None or _executor[0] != os.getpid():
        _executor = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="adacompute-large-replies"))
    return await asyncio.get_running_loop().run_in_executor(_executor[1], lambda: function(*args, **kwargs))


class Alternative(msgspec.Struct, omit_defaults=True, gc=False):
    """One of the most likely tokens at a position of a response, with its log-probability.

    In a reply above 16 MiB, the response's own tokens have this type, too. Fields that aren't listed here
    are dropped. An alternative can be read like a dictionary:

    >>> token = Alternative(token="4", logprob=-0.5)
    >>> token["logprob"], token.get("top_logprobs")
    (-0.5, None)
    """

    token: str
    logprob: float | None
    bytes: Raw | UnsetType = UNSET

    def get(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - of JSON
        value = getattr(self, name, UNSET)
        if value is UNSET:
            return default
        return orjson.loads(memoryview(value)) if isinstance(value, Raw) else value

    __getitem__ = get

    def to_dict(self) -> dict[str, Any]:
        return dict(orjson.loads(msgspec.json.encode(self)))


class ReplyToken(Alternative, gc=False):
    """A token of a response, with the most likely tokens at its position."""

    top_logprobs: list[Alternative] | UnsetType | None = UNSET


class _Logprobs(msgspec.Struct, Generic[T]):
    content: list[T] | UnsetType | None = UNSET
    refusal: list[T] | UnsetType | None = UNSET


class _Choice(msgspec.Struct, Generic[T]):
    index: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    delta: Raw | UnsetType = UNSET
    finish_reason: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    logprobs: _Logprobs[T] | UnsetType | None = UNSET


class _Completion(msgspec.Struct, Generic[T]):
    choices: list[_Choice[T]]
    id: Raw | UnsetType = UNSET
    object: Raw | UnsetType = UNSET
    created: Raw | UnsetType = UNSET
    model: Raw | UnsetType = UNSET
    usage: Raw | UnsetType = UNSET
    system_fingerprint: Raw | UnsetType = UNSET
    service_tier: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(_Completion[ReplyToken])
_BARE_DECODER = msgspec.json.Decoder(_Completion[Alternative])
_TOKENS_DECODER = msgspec.json.Decoder(list[ReplyToken])


def load_large_json(raw: Bytes, *, max_marks: int = MAX_MARKS) -> tuple[object, bool]:
    """Parses a large body; also returns whether it was strict JSON. ValueError if it has too many values.

    Of a completion or a stream event, keeps only the fields of OpenAI's API. Log-probabilities become
    structs; above 16 MiB, the alternatives to each token are dropped.

    >>> value, strict = load_large_json(b'{"choices": [{"logprobs": {"content": []}}], "id": "x"}')
    >>> value == {"id": "x", "choices": [{"logprobs": {"content": []}}]}
    True
    """
    _check_marks(raw, max_marks)
    limit = min(max_marks, MAX_PLAIN_MARKS)
    completion: _Completion[Any]
    try:
        completion = (_DECODER if len(raw) <= _MAX_WHOLE else _BARE_DECODER).decode(raw)
    except msgspec.ValidationError:  # the JSON isn't structured like a completion
        return _load_untyped(raw, limit)
    except (ValueError, RecursionError):  # the JSON isn't strict, e.g. contains NaN
        return _load_untyped(raw, min(max_marks, _MAX_ODD_MARKS) if b'"logprobs"' in raw else limit)
    structs = (completion, *completion.choices)
    values = [getattr(struct, name) for struct in structs for name in struct.__struct_fields__]
    _check_marks(b" ".join(bytes(value) for value in values if isinstance(value, Raw)), limit)
    try:
        choices = [_read_fields(choice) for choice in completion.choices]
        return {**_read_fields(completion), "choices": choices}, True
    except ValueError:  # a part of the body has unpaired surrogates
        return _load_untyped(raw, min(max_marks, _MAX_ODD_MARKS))


def _read_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Returns those fields of a struct that were in the JSON; parses values that are still raw JSON."""
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {name: _read_field(value) for name, value in fields.items() if value is not UNSET}


def _read_field(value: object) -> object:
    if isinstance(value, Raw):
        return orjson.loads(memoryview(value))
    return _read_fields(value) if isinstance(value, _Logprobs) else value


def _load_untyped(raw: Bytes, max_marks: int) -> tuple[object, bool]:
    _check_marks(raw, max_marks)
    try:
        return orjson.loads(raw), True
    except ValueError:
        return load_odd_json(raw), False


def compact_tokens(tokens: list[Any]) -> list[Any]:
    """Converts tokens to structs, if they have the structure that OpenAI's API defines."""
    try:
        return _TOKENS_DECODER.decode(orjson.dumps(tokens, default=encode_token))
    except (TypeError, ValueError):
        return tokens


def encode_token(value: object) -> orjson.Fragment:
    """Encodes a token struct as JSON; to be used as orjson's argument `default`."""
    if isinstance(value, Alternative):
        return orjson.Fragment(msgspec.json.encode(value))
    raise TypeError(f"{type(value).__name__} is no JSON")


def load_odd_json(raw: Bytes) -> object:
    """Parses JSON that orjson refuses but some servers send: NaN, huge numbers, unpaired surrogates, UTF-16.

    Raises ValueError if it is nested too deeply, even if this version of Python can parse it.
    """
    try:
        value = json.loads(raw)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    level = [value]
    for _ in range(_MAX_DEPTH):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return value
        level = [
            child for item in containers for child in (item.values() if isinstance(item, dict) else item)
        ]
    raise ValueError("nested too deeply")


_MARKS = (b",", b"[", b"{")


def _check_marks(raw: Bytes, max_marks: int) -> None:
    if sum(map(raw.count, _MARKS)) > max_marks and _count_marks(raw) > max_marks:
        raise ValueError(f"more than {max_marks} values")


def _count_marks(raw: Bytes) -> int:
    """Counts opening brackets and commas outside strings: about one per value."""
    import numpy as np  # imported here because only large bodies need it

    is_mark = np.isin(np.arange(256), [mark[0] for mark in _MARKS])
    start = count = quotes = 0
    while start < len(raw):
        part = raw[start : start + _PART]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and len(part) > 1:
            part = part[:-1]  # don't split an escape: its backslash goes to the next part
        letters = np.frombuffer(part.replace(b"\\\\", b"  ").replace(b'\\"', b"  "), np.uint8)
        before = np.cumsum(letters == ord('"'), dtype=np.int32) + quotes
        count += int(np.count_nonzero(is_mark[letters] & (before % 2 == 0)))
        quotes = int(before[-1]) % 2
        start += len(part)
    return count
