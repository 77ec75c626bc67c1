"""Reads JSON of many megabytes in a thread beside an event loop.

A parser holds Python's lock (GIL) until it returns, in any thread, which blocks everything else. So one typed
call, up to 150 ms, only locates a completion's messages and tokens.

Only log-probabilities have that many values. They are never all objects at once: a few hundred tokens at a
time are parsed, masked, encoded again, and kept as a block of a `PackedList`.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

P = ParamSpec("P")
T = TypeVar("T")
Bytes = bytes | bytearray
# masks secrets in a value; also gets its JSON, or None if that isn't strict and so can't be searched
Mask = Callable[[Any, Bytes | None], Any]

MAX_INLINE = 2**18  # bytes of a reply parsed in the event loop
MAX_PLAIN_MARKS = 300_000  # opening brackets and commas in a reply without log-probabilities
_MAX_ODD_MARKS = 1_000_000  # with log-probabilities, and numbers or characters that aren't strict JSON
MAX_MARKS = 12_000_000  # with log-probabilities: more than real replies have in 64 MiB
_MAX_WHOLE = 16 * 2**20  # bytes of a reply whose tokens keep their alternatives
_MAX_PART = 2**25  # bytes of a message or another part
_TOKENS = 512  # tokens per block
_PART = 2**18  # bytes encoded or scanned per call
_PAUSE = 0.0005  # seconds after each part, for threads waiting for the GIL; 0 would take it back at once
_MAX_DEPTH = 800  # levels of a reply; orjson parses 1,024
_ENCODE_DEPTH = 8  # containers encoded item by item; log-probabilities are less deeply nested

_executor: tuple[int, ThreadPoolExecutor] | None = None  # with the id of the process that created it


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function that reads a large reply in the one thread for this purpose.

    More threads wouldn't be faster, because they share the GIL, and each keeps some memory.
    """
    global _executor
    if _executor is None or _executor[0] != os.getpid():
        _executor = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="adacompute-large-replies"))
    return await asyncio.get_running_loop().run_in_executor(_executor[1], lambda: function(*args, **kwargs))


class PackedList(Sequence[Any]):
    """A long list of JSON values, stored as encoded blocks that are decoded when read.

    As objects, a long reply's log-probabilities are millions. Creating, garbage collecting, encoding and
    freeing them would each block the event loop.

    It is a sequence and equals a list with the same items, but isn't a `list`: `json.dumps` needs
    `list(packed)`.

    >>> packed = PackedList()
    >>> packed.add([1, 2])
    >>> packed == [1, 2], isinstance(packed, list), packed[-1]
    (True, False, 2)
    """

    def __init__(self) -> None:
        self.kinds: set[type] = set()  # the items' types
        # JSON of a list, its length, whether it is strict JSON
        self._blocks: list[tuple[bytes, int, bool]] = []
        self._count = 0

    def add(self, items: list[Any], *, strict: bool = True) -> None:
        """Adds items as one block; unless `strict`, it may contain numbers such as NaN."""
        if not items:
            return  # so blocks are never empty
        try:
            block = orjson.dumps(items) if strict else json.dumps(items).encode("ascii")
        except TypeError:  # unpaired surrogates, or numbers beyond 64 bits
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
        """Applies a function to the items of each block."""
        mapped = PackedList()
        for block in self._blocks:
            mapped.add(function(_decode_block(block)), strict=block[2])
        return mapped

    def split(self) -> "list[PackedList]":
        """The blocks as separate lists; an empty list gives one part."""
        if not self._blocks:
            return [self]
        parts = [PackedList() for _ in self._blocks]
        for part, block in zip(parts, self._blocks, strict=True):
            part._blocks, part._count, part.kinds = [block], block[1], self.kinds
        return parts

    def encode(self, encode_items: Callable[[list[Any]], bytes]) -> Iterator[bytes]:
        """The list as JSON, in parts; `encode_items` encodes blocks that aren't strict JSON."""
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

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a number or a slice; of JSON
        places = range(self._count)[index]  # raises the same errors as a list
        if isinstance(places, range):
            return self._read_places(places)
        return self._read_places(range(places, places + 1))[0]

    def _read_places(self, places: range) -> list[Any]:
        """The items at these places; decodes only the blocks that contain them."""
        if not places:
            return []
        lowest, highest = min(places[0], places[-1]), max(places[0], places[-1])
        items: list[Any] = []
        start = skipped = 0  # where a block starts; number of items in earlier blocks
        for block in self._blocks:
            end = start + block[1]
            if end <= lowest:
                skipped = end
            elif start <= highest:
                items += _decode_block(block)
            start = end
        return [items[place - skipped] for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | PackedList) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as of a list


def _decode_block(block: tuple[bytes, int, bool]) -> list[Any]:
    raw, _, strict = block
    items: list[Any] = orjson.loads(raw) if strict else json.loads(raw)
    return items


class _BareToken(msgspec.Struct, gc=False):
    """A token without its alternatives."""

    token: str
    logprob: float | None
    raw_bytes: Raw | UnsetType = msgspec.field(name="bytes", default=UNSET)


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


_DECODER = msgspec.json.Decoder(_Completion[Raw])
_BARE_DECODER = msgspec.json.Decoder(_Completion[_BareToken])


def load_large_json(raw: Bytes, *, max_marks: int = MAX_MARKS, mask: Mask | None = None) -> object:
    """Parses a body; ValueError if it isn't JSON, or has too many values or too large a part.

    For a completion or a stream event, reads the fields of the API. Its tokens are packed; above 16 MiB they
    lose their alternatives.

    >>> value = load_large_json(b'{"choices": [{"logprobs": {"content": [{"token": "4"}]}}], "id": "x"}')
    >>> value == {"id": "x", "choices": [{"logprobs": {"content": [{"token": "4"}]}}]}
    True
    """
    if sum(map(raw.count, _MARKS)) > max_marks and _count_marks(raw) > max_marks:
        raise ValueError(f"more than {max_marks} values")
    reader = _PartReader(min(max_marks, MAX_PLAIN_MARKS), mask)
    completion: _Completion[Any]
    try:
        completion = (_DECODER if len(raw) <= _MAX_WHOLE else _BARE_DECODER).decode(raw)
    except (ValueError, RecursionError) as exc:  # another structure, or numbers such as NaN
        if b'"logprobs"' in raw and not isinstance(exc, msgspec.ValidationError):
            reader = _PartReader(min(max_marks, _MAX_ODD_MARKS), mask)
        return reader.read(raw)
    choices = []
    for choice in completion.choices:
        fields = reader.read_fields(choice)
        if isinstance(choice.logprobs, _Logprobs):
            lists = reader.read_fields(choice.logprobs)
            fields["logprobs"] = {name: tokens and reader.pack(tokens) for name, tokens in lists.items()}
        choices.append(fields)
    return {**reader.read_fields(completion), "choices": choices}


class _PartReader:
    """Parses the parts of a large body."""

    def __init__(self, max_marks: int, mask: Mask | None) -> None:
        self._max_marks = self._marks_left = max_marks  # without tokens
        self._mask = mask

    def read_fields(self, struct: msgspec.Struct) -> dict[str, Any]:
        """The fields that are present; parses those that have no type."""
        fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
        return {
            name: self.read(value) if isinstance(value, Raw) else value
            for name, value in fields.items()
            if value is not UNSET
        }

    def read(self, raw: Raw | Bytes) -> object:
        """The value of a part, masked."""
        part = bytes(raw)
        if len(part) > _MAX_PART:
            raise ValueError(f"a part of more than {_MAX_PART // 2**20} MiB")
        self._marks_left -= 0 if part.startswith(b'"') else _count_marks(part)
        if self._marks_left < 0:
            raise ValueError(f"more than {self._max_marks} values")
        return self._parse(part)[0]

    def pack(self, tokens: Sequence[Raw | _BareToken]) -> PackedList:
        """Tokens as a packed list."""
        packed = PackedList()
        for start in range(0, len(tokens), _TOKENS):
            block = msgspec.json.encode(tokens[start : start + _TOKENS])
            if sum(map(block.count, _MARKS)) > self._max_marks:
                raise ValueError(f"more than {self._max_marks} values")
            items, strict = self._parse(block)
            packed.add(items, strict=strict)
            time.sleep(_PAUSE)
        return packed

    def _parse(self, part: bytes) -> tuple[Any, bool]:
        """The value, and whether it was strict JSON."""
        try:
            value, strict = orjson.loads(part), True
        except ValueError:
            value, strict = load_odd_json(part), False
        return (value if self._mask is None else self._mask(value, part if strict else None)), strict


def load_odd_json(raw: Bytes) -> object:
    """Parses JSON with NaN, huge numbers or unpaired surrogates, as certain servers send it, or in UTF-16.

    ValueError if it is nested too deeply: how deep `json` goes by itself depends on Python's version.
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


def _count_marks(raw: Bytes) -> int:
    """Counts opening brackets and commas outside strings."""
    import numpy as np  # lazy: only large bodies need it

    is_mark = np.isin(np.arange(256), [mark[0] for mark in _MARKS])
    start = count = quotes = 0
    while start < len(raw):
        part = raw[start : start + _PART]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and len(part) > 1:
            part = part[:-1]  # an escaped character is in the next part
        letters = np.frombuffer(part.replace(b"\\\\", b"  ").replace(b'\\"', b"  "), np.uint8)
        before = np.cumsum(letters == ord('"'), dtype=np.int32) + quotes
        count += int(np.count_nonzero(is_mark[letters] & (before % 2 == 0)))
        quotes = int(before[-1]) % 2
        start += len(part)
    return count


def encode_in_parts(value: object, encode: Callable[[Any], bytes], *, size: int = _PART) -> Iterator[bytes]:
    """A large value as JSON in parts of about `size` bytes; `encode` encodes its small parts.

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
