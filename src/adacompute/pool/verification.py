"""A pool's rows checked against the hashes that they were stored with, and the digest of all content."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from adacompute.errors import AdacomputeError, to_one_line
from adacompute.pool.sqlite import (
    DAMAGE_ERRORS,
    NO_CLASS,
    fingerprint,
    has_calls_table,
    hash_call,
    hash_failure,
    hash_problem,
    hash_record,
    hash_sample,
    hash_setting,
    make_record_prefix,
)

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
        return {"ok": self.ok, **asdict(self)}


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
            hasher.update(hash_sample(prefix, idx, text, answer, NO_CLASS, *rest))
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
