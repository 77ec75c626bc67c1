"""Canonical JSON, fingerprints and content hashes of rows. Knows nothing of SQLite, files or tasks."""

import json
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from adacompute.errors import RecordInvalid

__all__ = [
    "CLASSLESS",
    "DEPTH_LIMIT",
    "Json",
    "call_hash",
    "canonical",
    "failure_hash",
    "fingerprint",
    "has_inexact_number",
    "problem_hash",
    "record_hash",
    "record_prefix",
    "sample_hash",
    "setting_hash",
]

Bytes = bytes | None
Json: TypeAlias = Any  # data as a JSON parser gives it

CLASSLESS = -9  # stands for the class where only what was recorded counts: the whole pool's digest
DEPTH_LIMIT = 100  # levels of nesting inside one field: more than any tool writes, less than any stack holds
_SIZE = 16  # bytes; 128 bits: chance collisions are out of the question
_NAN = float("nan")  # stands for "not recorded": NaN itself is never stored
_EXACT = 2.0**63  # from here on a fast parser may have rounded a whole number to a float
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SAMPLE = struct.Struct("<qqqqdddqqq")
_FAILURE = struct.Struct("<qqdqq")
_CALL = struct.Struct("<ddqqqqqqq")


def canonical(value: Json) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text. Raises ValueError on NaN and the like."""
    return _ENCODER.encode(value)


def fingerprint(parameters: Mapping[str, Any]) -> str:
    """A stable hash of sampling parameters, 32 hex digits. 1 and 1.0 are one value; key order is none.

    >>> fingerprint({"temperature": 1, "top_p": 0.5}) == fingerprint({"top_p": 0.5, "temperature": 1.0})
    True
    """
    try:
        return blake2b(canonical(_plain(parameters)).encode(), digest_size=_SIZE).hexdigest()
    except (TypeError, ValueError) as exc:
        raise RecordInvalid(f"parameters can't be kept as JSON ({exc}); give plain data") from exc


def has_inexact_number(value: Json, depth: int = 0) -> bool:
    """Whether a float so large is inside that it may have been a whole number before parsing.

    Raises ValueError beyond DEPTH_LIMIT.
    """
    if isinstance(value, float):
        return abs(value) >= _EXACT
    if not isinstance(value, dict | list):
        return False
    if depth >= DEPTH_LIMIT:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    found = False
    for part in value.values() if isinstance(value, dict) else value:
        found |= has_inexact_number(part, depth + 1)  # all of it: the depth is checked, too
    return found


def setting_hash(name: bytes, value: bytes) -> bytes:
    """Hash of a setting of the pool, e.g. its task."""
    return _digest(b"setting", name, value)


def problem_hash(
    id: bytes,  # noqa: A002 - the column's name
    question: bytes,
    gold: Bytes,
    subject: Bytes,
    level: int | float | str | bytes | None,
    extra: Bytes,
) -> bytes:
    """Hash of a problem's row: all that it holds."""
    return _digest(b"problem", id, question, gold, subject, _level(level), extra)


def record_prefix(id: bytes, model: Bytes, mark: bytes) -> bytes:  # noqa: A002
    """What every row of one problem and source starts with, so that a row moved elsewhere doesn't fit."""
    return _digest(b"source", id, model, mark)


def record_hash(prefix: bytes, spelling: Bytes) -> bytes:
    """Hash of the row that ties a problem to a source."""
    return _digest(b"record", prefix, spelling)


def sample_hash(
    prefix: bytes,
    idx: int,
    text: Bytes,
    answer: Bytes,
    number: int,
    correct: float | None,
    tokens: int | None,
    logprob: float | None,
    entropy: float | None,
    finished: int | None,
    extra: Bytes,
) -> bytes:
    """Hash of a sample's row with its class `number`; `CLASSLESS` leaves the class out."""
    head = _SAMPLE.pack(
        idx,
        number,
        -1 if tokens is None else tokens,
        -1 if finished is None else finished,
        _NAN if correct is None else correct,
        _NAN if logprob is None else logprob,
        _NAN if entropy is None else entropy,
        -1 if text is None else len(text),
        -1 if answer is None else len(answer),
        -1 if extra is None else len(extra),
    )
    return blake2b(
        b"".join((prefix, head, text or b"", answer or b"", extra or b"")), digest_size=_SIZE
    ).digest()


def failure_hash(
    prefix: bytes, idx: int, kind: bytes, attempt: int, message: Bytes, at: float | None
) -> bytes:
    """Hash of a failure's row."""
    head = _FAILURE.pack(
        idx, attempt, _NAN if at is None else at, len(kind), -1 if message is None else len(message)
    )
    return blake2b(b"".join((prefix, head, kind, message or b"")), digest_size=_SIZE).digest()


def call_hash(
    model: Bytes,
    mark: bytes,
    at: float,
    seconds: float,
    asked: int,
    got: int,
    surplus: int,
    kind: bytes,
    status: int | None,
    paid: bytes,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    estimated: int,
) -> bytes:
    """Hash of a call's row, with the source that it asked."""
    numbers = (status, prompt_tokens, completion_tokens)
    head = _CALL.pack(at, seconds, asked, got, surplus, *(-1 if n is None else n for n in numbers), estimated)
    return _digest(b"call", model, mark, head, kind, paid)


def _digest(*parts: Bytes) -> bytes:
    lengths = struct.pack(f"<{len(parts)}q", *(-1 if p is None else len(p) for p in parts))
    return blake2b(b"".join((lengths, *(p or b"" for p in parts))), digest_size=_SIZE).digest()


def _level(level: int | float | str | bytes | None) -> Bytes:
    match level:
        case None:
            return None
        case bytes():
            return b"s" + level
        case str():
            return b"s" + level.encode()
        case float():
            return b"f" + struct.pack("<d", level)
        case _:
            return b"i%d" % level


def _plain(value: Json, depth: int = 0) -> Json:
    """The same data with whole floats as integers."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(v, depth + 1) for key, v in value.items()}
    return [_plain(v, depth + 1) for v in value] if isinstance(value, list | tuple) else value
