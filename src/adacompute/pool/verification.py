"""Hashes of a pool's rows, and the pool checked against them.

Each row is stored with the hash of its content; equal data gives equal hashes, by canonical JSON.
"""

import json
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

from adacompute.errors import AdacomputeError, RecordInvalid, to_one_line

__all__ = [
    "DAMAGE_ERRORS",
    "DEPTH_LIMIT",
    "Json",
    "Verification",
    "compute_pool_digest",
    "fingerprint",
    "has_calls_table",
    "hash_call",
    "hash_failure",
    "hash_problem",
    "hash_record",
    "hash_sample",
    "hash_setting",
    "make_record_prefix",
    "to_canonical_json",
    "verify",
]

OptionalBytes = bytes | None
Json: TypeAlias = Any  # data as a JSON parser gives it

_NO_CLASS = -9  # stands for the class where only what was recorded counts: the whole pool's digest
DEPTH_LIMIT = 100  # levels of nesting inside one field: more than any tool writes, less than any stack holds
_HASH_BYTES = 16  # bytes; 128 bits: chance collisions are out of the question
_NOT_RECORDED = float("nan")  # stands for "not recorded": NaN itself is never stored
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SAMPLE_STRUCT = struct.Struct("<qqqqdddqqq")
_FAILURE_STRUCT = struct.Struct("<qqdqq")
_CALL_STRUCT = struct.Struct("<ddqqqqqqq")


# what code that trusts a pool's rows raises where the rows are not what we wrote
DAMAGE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error)


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


def _normalise_numbers(value: Json, depth: int = 0) -> Json:
    """The same data with whole floats as integers."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _normalise_numbers(v, depth + 1) for key, v in value.items()}
    return [_normalise_numbers(v, depth + 1) for v in value] if isinstance(value, list | tuple) else value


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
    """Hash of a sample's row with its class `number`; `_NO_CLASS` leaves the class out."""
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


Row = Sequence[Any]

_MAX_MISMATCHES = 1000  # mismatches named; a wholly damaged pool needs no longer list
# text is read as bytes: that is what was hashed, and damaged text can't be decoded
_SELECT_RECORDS = """
    SELECT r.key, CAST(p.id AS BLOB), CAST(s.model AS BLOB), CAST(s.fingerprint AS BLOB),
        CAST(r.spelling AS BLOB), r.hash
    FROM problems p JOIN records r ON r.problem = p.key JOIN sources s ON s.key = r.source
"""
_SELECT_SAMPLES = """
    SELECT idx, CAST(text AS BLOB), CAST(answer AS BLOB), class, correct, tokens, logprob, entropy,
        finished, CAST(extra AS BLOB), hash
    FROM samples WHERE record = ? ORDER BY idx
"""
_SELECT_FAILURES = """
    SELECT idx, CAST(kind AS BLOB), attempt, CAST(message AS BLOB), at, hash
    FROM failures WHERE record = ? ORDER BY key
"""
_SELECT_PROBLEMS = """
    SELECT CAST(id AS BLOB), CAST(question AS BLOB), CAST(gold AS BLOB), CAST(subject AS BLOB),
        CASE typeof(level) WHEN 'text' THEN CAST(level AS BLOB) ELSE level END, CAST(extra AS BLOB), hash
    FROM problems ORDER BY id
"""

_SELECT_CALLS = """
    SELECT c.key, CAST(s.model AS BLOB), CAST(s.fingerprint AS BLOB), at, seconds, asked, got, surplus,
        CAST(kind AS BLOB), status, CAST(paid AS BLOB), prompt_tokens, completion_tokens, estimated, hash
    FROM calls c JOIN sources s ON s.key = c.source ORDER BY c.key
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of the whole pool found."""

    problems: int  # rows checked
    samples: int
    failures: int
    mismatches: tuple[str, ...]  # rows that are not what was written, by problem id and sample index
    integrity: tuple[str, ...]  # what SQLite says of the file; empty: nothing
    foreign_keys: tuple[str, ...]  # rows that point nowhere

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.mismatches or self.integrity or self.foreign_keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "ok": self.ok,
            "problems": self.problems,
            "samples": self.samples,
            "failures": self.failures,
            "mismatches": list(self.mismatches),
            "integrity": list(self.integrity),
            "foreign_keys": list(self.foreign_keys),
        }


class _Check:
    """Counts of rows, and names of mismatches, while a check runs."""

    def __init__(self) -> None:
        self.problems = self.samples = self.failures = 0
        self.mismatches: list[str] = []
        self.unreadable: list[str] = []

    def note(self, what: str) -> None:
        if len(self.mismatches) < _MAX_MISMATCHES:
            self.mismatches.append(what)


def verify(connection: sqlite3.Connection) -> Verification:
    """Hashes every row again and runs SQLite's own checks. It finds changed rows, not missing ones."""
    check = _Check()
    integrity: list[str] = []
    foreign: list[str] = []
    try:
        messages = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        integrity = [line for text in messages for line in text.splitlines()]
        foreign = [
            f"{table} row {row} points at a missing row of {parent}"
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
        _check_problems(connection, check)
        _check_records(connection, check)
        _check_sources(connection, check)
        _check_settings(connection, check)
        _check_calls(connection, check)
    except (sqlite3.DatabaseError, *DAMAGE_ERRORS) as exc:  # damaged so that it can't even be read through
        check.unreadable.append(to_one_line(exc))
    return Verification(
        problems=check.problems,
        samples=check.samples,
        failures=check.failures,
        mismatches=tuple(check.mismatches),
        integrity=tuple(integrity + check.unreadable),
        foreign_keys=tuple(foreign),
    )


def compute_pool_digest(connection: sqlite3.Connection) -> str:
    """Hash of all that was recorded, 64 hex digits: independent of the order of rows and of the file."""
    hasher = blake2b(digest_size=32)
    for *problem, _ in connection.execute(_SELECT_PROBLEMS):
        hasher.update(hash_problem(*problem))
    order = "ORDER BY p.id, s.model IS NULL, s.model, s.fingerprint"
    for key, id_, model, mark, spelling, _ in connection.execute(f"{_SELECT_RECORDS} {order}"):
        prefix = make_record_prefix(id_, model, mark)
        hasher.update(hash_record(prefix, spelling))
        for idx, text, answer, _, *rest, _ in connection.execute(_SELECT_SAMPLES, (key,)):
            hasher.update(hash_sample(prefix, idx, text, answer, _NO_CLASS, *rest))
        # failures have no index of their own: by content, whatever the order they came in
        for mark in sorted(
            hash_failure(prefix, *row[:-1]) for row in connection.execute(_SELECT_FAILURES, (key,))
        ):
            hasher.update(mark)
    return hasher.hexdigest()


def _check_problems(connection: sqlite3.Connection, check: _Check) -> None:
    for *row, mark in connection.execute(_SELECT_PROBLEMS):
        check.problems += 1
        if not _matches_hash(hash_problem, row, mark):
            check.note(f"problem {_format_id(row[0])}")


def _check_records(connection: sqlite3.Connection, check: _Check) -> None:
    for key, id_, model, mark, spelling, stored_hash in connection.execute(
        f"{_SELECT_RECORDS} ORDER BY r.key"
    ):
        try:
            prefix = make_record_prefix(id_, model, mark)
        except TypeError:  # a column that is not text any more
            check.note(f"problem {_format_id(id_)}: its source")
            continue
        if not _matches_hash(hash_record, [prefix, spelling], stored_hash):
            check.note(f"problem {_format_id(id_)}: its source")
        for *row, mark_ in connection.execute(_SELECT_SAMPLES, (key,)):
            check.samples += 1
            if not _matches_hash(hash_sample, [prefix, *row], mark_):
                check.note(f"problem {_format_id(id_)}, sample {row[0]}")
        for *row, mark_ in connection.execute(_SELECT_FAILURES, (key,)):
            check.failures += 1
            if not _matches_hash(hash_failure, [prefix, *row], mark_):
                check.note(f"problem {_format_id(id_)}, failure of sample {row[0]}")


def _check_sources(connection: sqlite3.Connection, check: _Check) -> None:
    for model, parameters, mark in connection.execute("SELECT model, parameters, fingerprint FROM sources"):
        if not _matches_hash(lambda text: fingerprint(json.loads(text)), [parameters], mark):
            check.note(f"parameters of model {model!r}")


def _check_calls(connection: sqlite3.Connection, check: _Check) -> None:
    for key, *row, mark in connection.execute(_SELECT_CALLS) if has_calls_table(connection) else ():
        if not _matches_hash(hash_call, row, mark):
            check.note(f"call {key}")


def has_calls_table(connection: sqlite3.Connection) -> bool:
    """Whether calls can be stored: pools of the first version have no such table."""
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'calls'")
    return tables.fetchone() is not None


def _check_settings(connection: sqlite3.Connection, check: _Check) -> None:
    rows = connection.execute("SELECT CAST(name AS BLOB), CAST(value AS BLOB), hash FROM settings")
    for name, value, mark in rows:
        if not _matches_hash(hash_setting, [name, value], mark):
            check.note(f"setting {_format_id(name)}")


def _matches_hash(hash_row: Callable[..., bytes | str], row: Row, stored_hash: object) -> bool:
    try:
        return bool(hash_row(*row) == stored_hash)
    except (*DAMAGE_ERRORS, AdacomputeError):  # a column is not even of its type
        return False


def _format_id(id_: object) -> str:
    return repr(id_.decode("utf-8", "backslashreplace")) if isinstance(id_, bytes) else repr(id_)
