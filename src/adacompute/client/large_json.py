"""JSON of many megabytes, read in small steps, for a thread beside an event loop.

One call of a parser holds Python's lock until it ends, for all of a large body, in whatever thread it runs:
nothing else is served meanwhile. So the places of brackets and commas are found first, a slice at a time;
then containers that are too large for one call are split at their own commas, and the parts are parsed.

Only log-probabilities have very many values. They don't become objects that stay: each part of them is
encoded again at once, and kept as a block of a `PackedList`.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import orjson

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ANY_REPLY",
    "MAX_INLINE",
    "PackedList",
    "ReplyLimits",
    "encode_in_parts",
    "find_reply_limits",
    "load_large_json",
    "run_in_thread",
]

P = ParamSpec("P")
T = TypeVar("T")
Bytes = bytes | bytearray
# masks secrets in a value; gets its JSON too, or None if that can't be searched: it isn't strict JSON
Mask = Callable[[Any, Bytes | None], Any]

MAX_INLINE = 2**18  # bytes of a reply that an event loop parses itself
_MAX_SIZE = 64 * 2**20  # bytes of any reply
_BASE_SIZE = 8 * 2**20  # bytes that every reply may have, e.g. for a picture or a sound
_TOKEN_SIZE = 1024  # bytes for each token, which may be an event of its own
_TOKEN_SIZE_LOGPROBS = 8192  # with its alternatives
_TOKEN_CONTENT = 64  # bytes of a token's text, escaped
_MAX_PLAIN_MARKS = 300_000  # brackets and commas of a reply without log-probabilities
_STEP = 2**18  # bytes that are parsed by one call, a millisecond or two
_PAUSE = 0.0005  # seconds after each step, for who waits for Python's lock; after 0 it would be taken back
_PACK_ABOVE = 2**14  # bytes of log-probabilities that are packed
_SLICE = 2**18  # bytes whose brackets and commas are found at once
_MAX_MARKS = 12_000_000  # brackets and commas: more than honest replies have in 64 MiB
_MAX_TEXT = 2**25  # bytes of one text
_MAX_NAME = 2**16  # bytes of the name of a field that is large
_MAX_DEPTH = 7  # of containers that can be split, such as the function in a call of a tool
# what is in the parts of a completion, by the name of a field; "" is any field or item
_PARTS: Mapping[str, Mapping[str, str]] = {
    "reply": {"choices": "choices"},
    "choices": {"": "choice"},
    "choice": {"logprobs": "logprobs"},
    "logprobs": {"": "tokens"},
    "tokens": {},
}
_ENCODE_DEPTH = 8  # of containers that are encoded item by item; log-probabilities are less deep in a reply
_CLOSINGS = {ord("["): ord("]"), ord("{"): ord("}")}
_CHARACTERS = re.compile(rb'(?:[^"\\]++|\\u....|\\[^u])*+', re.DOTALL)  # of a text, as far as they are whole
_MAX_ESCAPE = 6  # bytes of an escaped character
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F]..")
_KEY = re.compile(rb'[ \t\r\n]*+("(?:[^"\\]|\\.)*+")[ \t\r\n]*+:', re.DOTALL)
_SPACE = b" \t\r\n"
_OPENING, _CLOSING, _COMMA = 1, 2, 3


class ReplyLimits(NamedTuple):
    """How large a reply to a request may be."""

    size: int  # bytes, of a stream with all that its events repeat
    content: int  # bytes of a stream's events beyond what each has anyway: texts, which are kept
    marks: int  # brackets and commas of its JSON, or of an event's
    signals_only: bool = False  # whether log-probabilities are only computed with, and not passed on


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


class PackedList(Sequence[Any]):
    """A long list of JSON values, kept as encoded blocks, and decoded block by block when it is read.

    As objects, the log-probabilities of a long reply are millions. To make so many, to have the garbage
    collector look through them, to encode them again and to drop them would each hold up everybody.

    It is a sequence and equal to a list of the same items, but no `list`: `json.dumps` needs `list(packed)`.

    >>> packed = PackedList()
    >>> packed.add([1, 2])
    >>> packed == [1, 2], isinstance(packed, list), packed[-1]
    (True, False, 2)
    """

    __slots__ = ("_blocks", "_count", "kinds")

    def __init__(self) -> None:
        self.kinds: set[type] = set()  # of the items
        self._blocks: list[tuple[bytes, int, bool]] = []  # JSON of a list, its length, whether it is strict
        self._count = 0

    def add(self, items: list[Any], *, strict: bool = True) -> None:
        """Adds items as one block; not `strict`: there may be numbers such as NaN in them."""
        if not items:
            return  # so no block is empty
        try:
            block = orjson.dumps(items) if strict else json.dumps(items).encode("ascii")
        except TypeError:  # half surrogates, or numbers beyond 64 bits
            block, strict = json.dumps(items).encode("ascii"), False
        except RecursionError as exc:
            raise ValueError("nested too deeply") from exc
        self._blocks.append((block, len(items), strict))
        self._count += len(items)
        self.kinds.update(map(type, items))

    def extend(self, other: "PackedList") -> None:
        """Adds the blocks of another list."""
        self._blocks += other._blocks
        self._count += other._count
        self.kinds |= other.kinds

    def map(self, function: Callable[[list[Any]], list[Any]]) -> "PackedList":
        """A list of what a function returns for the items of each block."""
        mapped = PackedList()
        for block in self._blocks:
            mapped.add(function(_decode_block(block)), strict=block[2])
        return mapped

    def split(self) -> "list[PackedList]":
        """Its blocks, each as a list of its own; an empty list is one part."""
        if not self._blocks:
            return [self]
        parts = [PackedList() for _ in self._blocks]
        for part, block in zip(parts, self._blocks, strict=True):
            part._blocks, part._count, part.kinds = [block], block[1], self.kinds
        return parts

    def encode(self, encode_items: Callable[[list[Any]], bytes]) -> Iterator[bytes]:
        """The list as JSON, in parts; `encode_items` encodes a block that isn't strict JSON."""
        yield b"["
        for place, block in enumerate(self._blocks):
            raw = block[0] if block[2] else encode_items(_decode_block(block))
            yield raw[1:-1] if place == 0 else b"," + raw[1:-1]
        yield b"]"

    def to_fragment(self, encode_items: Callable[[list[Any]], bytes]) -> orjson.Fragment:
        """The list as JSON, for orjson."""
        return orjson.Fragment(b"".join(self.encode(encode_items)))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for block in self._blocks:
            yield from _decode_block(block)

    def __reversed__(self) -> Iterator[Any]:
        for block in reversed(self._blocks):
            yield from reversed(_decode_block(block))

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a number or a slice; of JSON
        places = range(self._count)[index]  # counted from the start; IndexError, TypeError as of a list
        if isinstance(places, range):
            return self._read_places(places)
        return self._read_places(range(places, places + 1))[0]

    def _read_places(self, places: range) -> list[Any]:
        """The items at these places, of which only the blocks between are decoded."""
        if not places:
            return []
        lowest, highest = min(places[0], places[-1]), max(places[0], places[-1])
        items: list[Any] = []
        start = skipped = 0  # where a block starts; items in the blocks before the first that is decoded
        for block in self._blocks:
            end = start + block[1]
            if end <= lowest:
                skipped = end
            elif start <= highest:
                items += _decode_block(block)
            start = end
        return [items[place - skipped] for place in places]

    def index(self, value: object, start: int = 0, stop: int = sys.maxsize) -> int:
        """The first place of a value, as of a list; all blocks are decoded, once."""
        return list(self).index(value, start, stop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | PackedList) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as of a list


def _decode_block(block: tuple[bytes, int, bool]) -> list[Any]:
    raw, _, strict = block
    items: list[Any] = orjson.loads(raw) if strict else json.loads(raw)
    return items


def load_large_json(
    raw: Bytes,
    *,
    step: int = _STEP,
    pack_above: int = _PACK_ABOVE,
    max_marks: int = _MAX_MARKS,
    mask: Mask | None = None,
) -> object:
    """The value of a body; ValueError where it is no JSON, or has too many or too large parts.

    In the log-probabilities of a completion's choices, lists of more than `pack_above` bytes are packed.

    >>> load_large_json(b'{"a": [1, 2, {"b": "x, y"}], "c": null}', step=8)
    {'a': [1, 2, {'b': 'x, y'}], 'c': None}
    """
    splitter = _Splitter(raw, step, min(step, pack_above), max_marks, mask)
    return splitter.read(*_strip(raw, 0, len(raw)), 1, "reply")


def encode_in_parts(value: object, encode: Callable[[Any], bytes], *, size: int = _STEP) -> Iterator[bytes]:
    """A large value as JSON in parts of about `size` bytes; `encode` encodes what is small in it.

    >>> b"".join(encode_in_parts({"a": ["long", 1]}, orjson.dumps, size=2))
    b'{"a":["long",1]}'
    """
    recent, length = [], 0
    for part in _encode_pieces(value, encode, size, _ENCODE_DEPTH):
        recent.append(part)
        length += len(part)
        if length >= size:
            yield b"".join(recent)
            recent, length = [], 0
            time.sleep(_PAUSE)
    yield b"".join(recent)


def _encode_pieces(value: object, encode: Callable[[Any], bytes], size: int, levels: int) -> Iterator[bytes]:
    if isinstance(value, PackedList):
        yield from value.encode(encode)
    elif isinstance(value, str) and len(value) > size:
        yield b'"'
        for start in range(0, len(value), size):
            yield encode(value[start : start + size])[1:-1]
        yield b'"'
    elif isinstance(value, dict) and value and levels:
        opening = b"{"
        for name, item in value.items():
            yield opening + encode(name) + b":"
            yield from _encode_pieces(item, encode, size, levels - 1)
            opening = b","
        yield b"}"
    elif isinstance(value, list) and value and levels:
        opening = b"["
        for item in value:
            yield opening
            yield from _encode_pieces(item, encode, size, levels - 1)
            opening = b","
        yield b"]"
    else:
        yield encode(value)


class _Splitter:
    """The brackets and commas of one body, outside of texts."""

    def __init__(self, raw: Bytes, step: int, pack_above: int, max_marks: int, mask: Mask | None) -> None:
        self._raw = raw
        self._step = step
        self._pack_above = pack_above
        self._mask = mask
        self._marks_left = self._max_plain = min(max_marks, _MAX_PLAIN_MARKS)  # outside of what is packed
        self._places, self._kinds, self._depths, self._counts = _find_marks(raw, max_marks)

    def read(self, start: int, end: int, depth: int, name: str) -> object:
        """The value in these bytes, at that depth; `name` says which part of a completion it is, or is ""."""
        closing = _CLOSINGS.get(self._raw[start]) if start < end else None
        step = self._pack_above if name in _PARTS else self._step
        if end - start <= step or closing is None or depth > _MAX_DEPTH:
            return self._parse(start, end)[0]
        if self._raw[end - 1] != closing:
            raise ValueError("brackets that don't match")
        if closing == ord("]"):
            return self._read_list(start, end, depth, name)
        parts = _PARTS.get(name, {})
        fields: dict[str, Any] = {}
        for first, last in self._split(start, end, depth, step):
            if last - first <= step:
                fields.update(self._parse(first, last, b"{", b"}")[0])
                continue
            key = _KEY.match(self._raw, first, min(last, first + _MAX_NAME))
            if key is None:
                raise ValueError("a field without a name")
            field_name = str(self._parse(*key.span(1))[0])
            place = _strip(self._raw, key.end(), last)
            fields[field_name] = self.read(*place, depth + 1, parts.get(field_name, parts.get("", "")))
        return fields

    def _read_list(self, start: int, end: int, depth: int, name: str) -> "list[Any] | PackedList":
        if name == "tokens":
            packed = PackedList()
            for first, last in self._split(start, end, depth, self._step):
                items, strict = self._parse(first, last, b"[", b"]", stays=False)
                packed.add(items, strict=strict)
            return packed
        step = self._pack_above if name in _PARTS else self._step
        values: list[Any] = []
        for first, last in self._split(start, end, depth, step):
            if last - first <= step:
                values += self._parse(first, last, b"[", b"]")[0]
            else:
                place = _strip(self._raw, first, last)
                values.append(self.read(*place, depth + 1, _PARTS.get(name, {}).get("", "")))
        return values

    def _split(self, start: int, end: int, depth: int, step: int) -> Iterator[tuple[int, int]]:
        """The spans of a container's items; small ones together, up to `step` bytes. None if it is empty."""
        low, high = self._places.searchsorted([start + 1, end - 1])
        inner = slice(int(low), int(high))
        if high > low and int(self._depths[inner].min()) < depth:
            raise ValueError("brackets that don't match")
        commas = self._places[inner][(self._kinds[inner] == _COMMA) & (self._depths[inner] == depth)]
        first, last = _strip(self._raw, start + 1, end - 1)
        if first == last and not len(commas):
            return
        first, place = start + 1, 0  # of the next item
        while place <= len(commas):
            if end - 1 - first <= step:
                place = len(commas)
            else:  # the last item that still fits, or else one that doesn't
                place = max(place, int(commas.searchsorted(first + step, "right")) - 1)
            last = end - 1 if place == len(commas) else int(commas[place])
            yield first, last
            first, place = last + 1, place + 1

    def _parse(
        self, first: int, last: int, opening: bytes = b"", closing: bytes = b"", *, stays: bool = True
    ) -> tuple[Any, bool]:
        """The value of a part, put between brackets, and whether it is strict JSON.

        `stays`: it is kept as objects, of which there may be only so many in all.
        """
        marks = self._count_marks(first, last)
        if stays:
            self._marks_left -= marks
        if self._marks_left < 0 or marks > self._max_plain:
            raise ValueError(f"more than {self._max_plain} values")
        if last - first > _MAX_TEXT:
            raise ValueError(f"a text of more than {_MAX_TEXT // 2**20} MiB")
        part = self._raw[first:last]
        if opening:
            if not part.strip(_SPACE):
                raise ValueError("a comma without a value after it")
            part = opening + part + closing
        time.sleep(_PAUSE)
        is_long_text = len(part) > self._step and part[:1] == b'"'
        value, strict = _parse_text(part, self._step) if is_long_text else _parse(part)
        return (value if self._mask is None else self._mask(value, part if strict else None)), strict

    def _count_marks(self, first: int, last: int) -> int:
        """Brackets and commas in a span, about."""
        low, high = self._places.searchsorted([first, last]).tolist()
        return int(self._counts[high - 1] - self._counts[low]) + 1 if high > low else 0


def _strip(raw: Bytes, start: int, end: int) -> tuple[int, int]:
    """A span without the spaces at its ends, which may be megabytes."""
    while start < end:
        part = raw[start : min(end, start + _STEP)]
        rest = part.lstrip(_SPACE)
        start += len(part) - len(rest)
        if rest:
            break
    while start < end:
        part = raw[max(start, end - _STEP) : end]
        rest = part.rstrip(_SPACE)
        end -= len(part) - len(rest)
        if rest:
            break
    return start, end


def _find_marks(
    raw: Bytes, max_marks: int
) -> "tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]":
    """Of brackets and commas that aren't in texts: places, kinds, depths, and how many came before each.

    A comma's depth is inside, an opening bracket's too. Those that are too deep to split at are only counted.
    """
    import numpy as np  # here, because only large bodies need it

    kinds_of = np.zeros(256, np.int8)
    kinds_of[list(b"[{")], kinds_of[list(b"]}")], kinds_of[ord(",")] = _OPENING, _CLOSING, _COMMA
    slices: list[tuple[np.ndarray[Any, Any], ...]] = []
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
        level = np.cumsum((kind == _OPENING).astype(np.int32) - (kind == _CLOSING), dtype=np.int32) + depth
        near = np.flatnonzero(level <= _MAX_DEPTH)
        places = (marks[near] + start).astype(np.int32)
        slices.append((places, kind[near], level[near].astype(np.int32), (near + count).astype(np.int32)))
        count, quotes = count + len(marks), int(before[-1]) % 2
        depth = int(level[-1]) if len(level) else depth
        if count > max_marks:
            raise ValueError(f"more than {max_marks} values")
        start += len(part)
    places, kinds, depths, counts = (np.concatenate(arrays) for arrays in zip(*slices, strict=True))
    return places, kinds, depths, counts


def _parse_text(raw: Bytes, step: int) -> tuple[str, bool]:
    """A long text in quotes, parsed in pieces."""
    step = max(step, _MAX_ESCAPE)
    pieces: list[str] = []
    strict, start, end = True, 1, len(raw) - 1
    if raw[end] != ord('"'):
        raise ValueError("a text without an end")
    while start < end:
        stop = min(end, start + step)
        while stop < end and raw[stop] & 0xC0 == 0x80:  # inside of a character
            stop += 1
        characters = _CHARACTERS.match(raw, start, stop)
        if characters is None or characters.end() == start:
            raise ValueError("a text that ends too early, or a wrong escape")
        stop = characters.end()
        if pair := _LOW_SURROGATE.match(raw, stop, end):  # of which the first half may have come
            stop = pair.end()
        piece, is_strict = _parse(b'"' + raw[start:stop] + b'"')
        pieces.append(piece)
        strict, start = strict and is_strict, stop
        time.sleep(_PAUSE)
    return "".join(pieces), strict


def _parse(raw: Bytes) -> tuple[Any, bool]:
    """The value, and whether it is strict JSON."""
    try:
        return orjson.loads(raw), True
    except ValueError:
        pass
    try:
        return json.loads(raw), False  # NaN, huge numbers and half surrogates
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
