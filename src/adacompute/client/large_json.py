"""JSON of many megabytes, read in small steps, for a thread beside an event loop.

One call of a parser holds Python's lock until it ends, for all of a large body, in whatever thread it runs:
nothing else is served meanwhile. So the places of brackets and commas are found first, a megabyte at a time;
then containers that are too large for one call are split at their own commas, and the parts are parsed.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import orjson

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ANY_REPLY", "MAX_INLINE", "ReplyLimits", "find_reply_limits", "load_large_json", "run_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE = 2**18  # bytes of a reply that an event loop parses itself
_MAX_SIZE = 64 * 2**20  # bytes of any reply
_BASE_SIZE = 8 * 2**20  # bytes that every reply may have, e.g. for a picture or a sound
_TOKEN_SIZE = 1024  # bytes for each token, which may be an event of its own
_TOKEN_SIZE_LOGPROBS = 8192  # with its alternatives
_TOKEN_CONTENT = 64  # bytes of a token's text, escaped
_MAX_PLAIN_MARKS = 300_000  # brackets and commas of a reply without log-probabilities
_STEP = 2**18  # bytes that are parsed by one call, a millisecond or two
_SLICE = 2**20  # bytes whose brackets and commas are found at once
_MAX_MARKS = 12_000_000  # brackets and commas: more than honest replies have in 64 MiB
_MAX_DEPTH = 16  # of containers that are too large for one call
_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*+")\s*+:', re.DOTALL)
_SPACE = b" \t\r\n"
_OPENING, _CLOSING, _COMMA = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """How large a reply to a request may be."""

    size: int  # bytes, of a stream with all that its events repeat
    content: int  # bytes of a stream's events beyond what each has anyway: texts, which are kept
    marks: int  # brackets and commas of its JSON, or of an event's


ANY_REPLY = ReplyLimits(_MAX_SIZE, _MAX_SIZE, _MAX_MARKS)


def find_reply_limits(body: Mapping[str, Any], n: int, max_tokens: int | None) -> ReplyLimits:
    """The limits of a reply with `n` choices of so many tokens each; None: as many as the model gives."""
    has_logprobs = bool(body.get("logprobs"))
    marks = _MAX_MARKS if has_logprobs else _MAX_PLAIN_MARKS
    if max_tokens is None:
        return ReplyLimits(_MAX_SIZE, _MAX_SIZE if has_logprobs else _MAX_SIZE // 4, marks)
    tokens = n * max_tokens
    size = min(_MAX_SIZE, _BASE_SIZE + tokens * (_TOKEN_SIZE_LOGPROBS if has_logprobs else _TOKEN_SIZE))
    content = size if has_logprobs else min(size, _BASE_SIZE + tokens * _TOKEN_CONTENT)
    return ReplyLimits(size, content, marks)


_executor: tuple[int, ThreadPoolExecutor] | None = None  # with the id of the process that made it


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function that reads a large reply in the one thread for these.

    More threads would read no faster, because they share Python's lock, and each keeps some memory.
    """
    global _executor
    if _executor is None or _executor[0] != os.getpid():
        _executor = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="adacompute-large-replies"))
    return await asyncio.get_running_loop().run_in_executor(_executor[1], lambda: function(*args, **kwargs))


def load_large_json(raw: bytes, *, step: int = _STEP, max_marks: int = _MAX_MARKS) -> object:
    """The value of a body; ValueError where it is no JSON, or has too many parts.

    >>> load_large_json(b'{"a": [1, 2, {"b": "x, y"}], "c": null}', step=8)
    {'a': [1, 2, {'b': 'x, y'}], 'c': None}
    """
    start, end = len(raw) - len(raw.lstrip(_SPACE)), len(raw.rstrip(_SPACE))
    if end - start <= step:
        return _parse(raw[start:end])
    return _Splitter(raw, step, max_marks).read(start, end, 1)


class _Splitter:
    """The brackets and commas of one body, outside of texts."""

    def __init__(self, raw: bytes, step: int, max_marks: int) -> None:
        self._raw = raw
        self._step = step
        self._places, self._kinds, self._depths = _find_marks(raw, max_marks)

    def read(self, start: int, end: int, depth: int) -> object:
        """The value in these bytes, which is a container at that depth if it is too large for one call."""
        raw = self._raw
        ends = {b"[": b"]", b"{": b"}"}.get(raw[start : start + 1])
        if end - start <= self._step or ends is None:
            return _parse(raw[start:end])
        if raw[end - 1 : end] != ends or depth > _MAX_DEPTH:
            raise ValueError("nested too deeply, or brackets that don't match")
        spans = self._split(start, end, depth)
        if len(spans) == 1 and not raw[start + 1 : end - 1].strip(_SPACE):
            return [] if ends == b"]" else {}
        if ends == b"]":
            items: list[Any] = []
            for first, last in spans:
                if last - first <= self._step:
                    items += self._parse_part(first, last, b"[", b"]")
                else:
                    items.append(self.read(*self._strip(first, last), depth + 1))
            return items
        fields: dict[str, Any] = {}
        for first, last in spans:
            if last - first <= self._step:
                fields.update(self._parse_part(first, last, b"{", b"}"))
            else:
                key = _KEY.match(raw, first, last)
                if key is None:
                    raise ValueError("a field without a name")
                fields[str(_parse(key[1]))] = self.read(*self._strip(key.end(), last), depth + 1)
        return fields

    def _split(self, start: int, end: int, depth: int) -> list[tuple[int, int]]:
        """The spans of a container's items; small ones together, up to what one call parses."""
        low, high = self._places.searchsorted([start + 1, end - 1])
        inner = slice(int(low), int(high))
        if high > low and int(self._depths[inner].min()) < depth:
            raise ValueError("brackets that don't match")
        commas = self._places[inner][(self._kinds[inner] == _COMMA) & (self._depths[inner] == depth)]
        spans: list[tuple[int, int]] = []
        first = begin = start + 1
        for comma in [*commas.tolist(), end - 1]:
            if comma - first > self._step and begin > first:
                spans.append((first, begin - 1))
                first = begin
            begin = comma + 1
        return [*spans, (first, end - 1)] if begin > first else spans

    def _parse_part(self, first: int, last: int, opening: bytes, closing: bytes) -> Any:  # noqa: ANN401 - of JSON
        part = self._raw[first:last]
        if not part.strip(_SPACE):
            raise ValueError("a comma without a value after it")
        return _parse(opening + part + closing)

    def _strip(self, start: int, end: int) -> tuple[int, int]:
        part = self._raw[start:end]
        return start + len(part) - len(part.lstrip(_SPACE)), start + len(part.rstrip(_SPACE))


def _find_marks(raw: bytes, max_marks: int) -> "tuple[NDArray[Any], NDArray[Any], NDArray[Any]]":
    """Places, kinds and depths of all brackets and commas that aren't in texts; a comma's depth is inside."""
    import numpy as np  # here, because only large bodies need it

    kinds_of = np.zeros(256, np.int8)
    kinds_of[list(b"[{")], kinds_of[list(b"]}")], kinds_of[ord(",")] = _OPENING, _CLOSING, _COMMA
    places: list[np.ndarray[Any, Any]] = []
    kinds: list[np.ndarray[Any, Any]] = []
    depths: list[np.ndarray[Any, Any]] = []
    start = count = depth = quotes = 0
    while start < len(raw):
        part = raw[start : start + _SLICE]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and len(part) > 1:
            part = part[:-1]  # what is escaped comes with the next one
        plain = part.replace(b"\\\\", b"  ").replace(b'\\"', b"  ") if b"\\" in part else part
        letters = np.frombuffer(plain, np.uint8)
        before = np.cumsum(letters == ord('"'), dtype=np.int32) + quotes
        kind = kinds_of[letters]
        marks = np.flatnonzero((kind != 0) & (before % 2 == 0))
        kind = kind[marks]
        level = np.cumsum((kind == _OPENING).astype(np.int32) - (kind == _CLOSING)) + depth
        places.append(marks + start)
        kinds.append(kind)
        depths.append(level.astype(np.int32))
        count, quotes = count + len(marks), int(before[-1]) % 2
        depth = int(level[-1]) if len(level) else depth
        if count > max_marks:
            raise ValueError(f"more than {max_marks} values")
        start += len(part)
    return np.concatenate(places), np.concatenate(kinds), np.concatenate(depths)


def _parse(raw: bytes) -> Any:  # noqa: ANN401 - of JSON
    try:
        return orjson.loads(raw)
    except ValueError:
        return json.loads(raw)  # NaN, huge numbers and half surrogates
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
