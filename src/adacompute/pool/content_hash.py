"""Canonical JSON, fingerprints of parameters, and the content hashes that rows are stored with."""

import json
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from adacompute.errors import RecordInvalid

__all__ = [
    "DEPTH_LIMIT",
    "NO_CLASS",
    "Json",
    "fingerprint",
    "has_inexact_number",
    "hash_call",
    "hash_failure",
    "hash_problem",
    "hash_record",
    "hash_sample",
    "hash_setting",
    "make_record_prefix",
    "to_canonical_json",
]

OptionalBytes = bytes | None
Json: TypeAlias = Any  # data as a JSON parser gives it

NO_CLASS = -9  # stands for the class where only what was recorded counts: the whole pool's digest
DEPTH_LIMIT = 100  # levels of nesting inside one field: more than any tool writes, less than any stack holds
_HASH_BYTES = 16  # bytes; 128 bits: chance collisions are out of the question
_NOT_RECORDED = float("nan")  # stands for "not recorded": NaN itself is never stored
_INEXACT_FROM = 2.0**63  # from here on a fast parser may have rounded a whole number to a float
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SAMPLE_STRUCT = struct.Struct("<qqqqdddqqq")
_FAILURE_STRUCT = struct.Struct("<qqdqq")
_CALL_STRUCT = struct.Struct("<ddqqqqqqq")


def to_canonical_json(value: Json) -> str:
    """JSON with sorted keys and no spaces: equal data gives equal text.

    Raises ValueError on NaN or infinity.
    """
    return _ENCODER.encode(value)


def fingerprint(parameters: Mapping[str, Any]) -> str:
    """A stable hash of sampling parameters, 32 hex digits.

    1 and 1.0 are equal, and key order doesn't matter.

    >>> fingerprint({"temperature": 1, "top_p": 0.5}) == fingerprint({"top_p": 0.5, "temperature": 1.0})
    True
    """
    try:
        return blake2b(
            to_canonical_json(_normalise_numbers(parameters)).encode(), digest_size=_HASH_BYTES
        ).hexdigest()
    except (TypeError, ValueError) as exc:
        raise RecordInvalid(f"parameters can't be kept as JSON ({exc}); give plain data") from exc


def has_inexact_number(value: Json, depth: int = 0) -> bool:
    """Whether the data holds a float so large that a fast parser may have rounded a whole number to it.

    Raises ValueError beyond DEPTH_LIMIT levels of nesting.
    """
    if isinstance(value, float):
        return abs(value) >= _INEXACT_FROM
    if not isinstance(value, dict | list):
        return False
    if depth >= DEPTH_LIMIT:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    inexact = False
    for part in value.values() if isinstance(value, dict) else value:
        inexact |= has_inexact_number(part, depth + 1)  # all of it: the depth is checked, too
    return inexact


def hash_setting(name: bytes, value: bytes) -> bytes:
    """Hash of a setting of the pool, e.g. its task."""
    return _hash_parts(b"setting", name, value)


def hash_problem(
    id: bytes,  # noqa: A002 - the column's name
    question: bytes,
    gold: OptionalBytes,
    subject: OptionalBytes,
    level: int | float | str | bytes | None,
    extra: OptionalBytes,
) -> bytes:
    """Hash of a problem's whole row."""
    return _hash_parts(b"problem", id, question, gold, subject, _encode_level(level), extra)


def make_record_prefix(id: bytes, model: OptionalBytes, source_fingerprint: bytes) -> bytes:  # noqa: A002
    """The start of every row hash of one problem and source, so that a row moved elsewhere doesn't match."""
    return _hash_parts(b"source", id, model, source_fingerprint)


def hash_record(prefix: bytes, spelling: OptionalBytes) -> bytes:
    """Hash of the row that links a problem to a source."""
    return _hash_parts(b"record", prefix, spelling)


def hash_sample(
    prefix: bytes,
    idx: int,
    text: OptionalBytes,
    answer: OptionalBytes,
    number: int,
    correct: float | None,
    tokens: int | None,
    logprob: float | None,
    entropy: float | None,
    finished: int | None,
    extra: OptionalBytes,
) -> bytes:
    """Hash of a sample's row with its class `number`; `NO_CLASS` leaves the class out."""
    head = _SAMPLE_STRUCT.pack(
        idx,
        number,
        -1 if tokens is None else tokens,
        -1 if finished is None else finished,
        _NOT_RECORDED if correct is None else correct,
        _NOT_RECORDED if logprob is None else logprob,
        _NOT_RECORDED if entropy is None else entropy,
        -1 if text is None else len(text),
        -1 if answer is None else len(answer),
        -1 if extra is None else len(extra),
    )
    return blake2b(
        b"".join((prefix, head, text or b"", answer or b"", extra or b"")), digest_size=_HASH_BYTES
    ).digest()


def hash_failure(
    prefix: bytes, idx: int, kind: bytes, attempt: int, message: OptionalBytes, at: float | None
) -> bytes:
    """Hash of a failure's row."""
    head = _FAILURE_STRUCT.pack(
        idx, attempt, _NOT_RECORDED if at is None else at, len(kind), -1 if message is None else len(message)
    )
    return blake2b(b"".join((prefix, head, kind, message or b"")), digest_size=_HASH_BYTES).digest()


def hash_call(
    model: OptionalBytes,
    source_fingerprint: bytes,
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
    """Hash of a call's row, together with its source."""
    numbers = (status, prompt_tokens, completion_tokens)
    head = _CALL_STRUCT.pack(
        at, seconds, asked, got, surplus, *(-1 if n is None else n for n in numbers), estimated
    )
    return _hash_parts(b"call", model, source_fingerprint, head, kind, paid)


def _hash_parts(*parts: OptionalBytes) -> bytes:
    lengths = struct.pack(f"<{len(parts)}q", *(-1 if p is None else len(p) for p in parts))
    return blake2b(b"".join((lengths, *(p or b"" for p in parts))), digest_size=_HASH_BYTES).digest()


def _encode_level(level: int | float | str | bytes | None) -> OptionalBytes:
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


def _normalise_numbers(value: Json, depth: int = 0) -> Json:
    """The same data with whole floats as integers."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _normalise_numbers(v, depth + 1) for key, v in value.items()}
    return [_normalise_numbers(v, depth + 1) for v in value] if isinstance(value, list | tuple) else value
