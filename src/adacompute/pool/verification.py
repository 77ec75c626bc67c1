"""Checks a pool's rows against their stored hashes, and computes one hash of a pool's whole content."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
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

_MAX_MISMATCHES = 1000  # a verification lists at most this number of changed rows
# texts are read as bytes, because hashes are computed from bytes and damaged text can't be decoded
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
_SELECT_SOURCES = "SELECT model, parameters, fingerprint FROM sources"
_SELECT_SETTINGS = "SELECT CAST(name AS BLOB), CAST(value AS BLOB), hash FROM settings"
_SELECT_CALLS = """
    SELECT c.key, CAST(s.model AS BLOB), CAST(s.fingerprint AS BLOB), at, seconds, asked, got, surplus,
        CAST(kind AS BLOB), status, CAST(paid AS BLOB), prompt_tokens, completion_tokens, estimated, hash
    FROM calls c JOIN sources s ON s.key = c.source ORDER BY c.key
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of checking a whole pool."""

    problems: int  # number of problems checked
    samples: int
    failures: int
    mismatches: tuple[str, ...]  # names of rows that have changed since they were written
    integrity: tuple[str, ...]  # errors that SQLite found in the file
    foreign_keys: tuple[str, ...]  # rows that refer to missing rows

    @property
    def ok(self) -> bool:
        """Whether no errors were found."""
        return not (self.mismatches or self.integrity or self.foreign_keys)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON data."""
        return {"ok": self.ok, **asdict(self)}


class _Check:
    """Counts rows, and collects the names of rows that don't match their hash."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.mismatches: list[str] = []

    def compare(self, kind: str, name: str, hash_row: Callable[..., bytes | str], row: Row) -> None:
        """Counts a row, and adds its name to the mismatches if the hash in its last column is wrong."""
        self.rows[kind] += 1
        try:
            if hash_row(*row[:-1]) == row[-1]:
                return
        except (*DAMAGE_ERRORS, AdacomputeError):  # a damaged row may be impossible to hash
            pass
        if len(self.mismatches) < _MAX_MISMATCHES:
            self.mismatches.append(name)


def verify(connection: sqlite3.Connection) -> Verification:
    """Recomputes all hashes and runs SQLite's own checks; it finds changed rows, but not deleted ones."""
    check = _Check()
    integrity: list[str] = []
    foreign: list[str] = []
    try:
        messages = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        integrity += [line for text in messages for line in text.splitlines()]
        foreign = [
            f"{table} row {row} points at a missing row of {parent}"
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
        for row in connection.execute(_SELECT_PROBLEMS):
            check.compare("problems", f"problem {_format_id(row[0])}", hash_problem, row)
        for row in connection.execute(f"{_SELECT_RECORDS} ORDER BY r.key"):
            _check_record(connection, check, row)
        for model, *row in connection.execute(_SELECT_SOURCES):
            check.compare("sources", f"parameters of model {model!r}", _hash_parameters, row)
        for row in connection.execute(_SELECT_SETTINGS):
            check.compare("settings", f"setting {_format_id(row[0])}", hash_setting, row)
        for key, *row in connection.execute(_SELECT_CALLS) if has_calls_table(connection) else ():
            check.compare("calls", f"call {key}", hash_call, row)
    except (sqlite3.DatabaseError, *DAMAGE_ERRORS) as exc:  # the pool is too damaged to be read
        integrity.append(to_one_line(exc))
    return Verification(
        problems=check.rows["problems"],
        samples=check.rows["samples"],
        failures=check.rows["failures"],
        mismatches=tuple(check.mismatches),
        integrity=tuple(integrity),
        foreign_keys=tuple(foreign),
    )


def _check_record(connection: sqlite3.Connection, check: _Check, row: Row) -> None:
    """Checks the row that links a problem to a source, with its samples and failures."""
    key, id_, model, mark, spelling, stored_hash = row
    name = f"problem {_format_id(id_)}"
    try:
        prefix = make_record_prefix(id_, model, mark)
    except TypeError:  # a damaged column isn't text
        prefix = None
    check.compare("records", f"{name}: its source", hash_record, (prefix, spelling, stored_hash))
    if prefix is None:
        return
    for kind, label, select, hash_row in (
        ("samples", "sample", _SELECT_SAMPLES, hash_sample),
        ("failures", "failure of sample", _SELECT_FAILURES, hash_failure),
    ):
        for drawn in connection.execute(select, (key,)):
            check.compare(kind, f"{name}, {label} {drawn[0]}", partial(hash_row, prefix), drawn)


def _hash_parameters(text: str) -> str:
    return fingerprint(json.loads(text))


def compute_pool_digest(connection: sqlite3.Connection) -> str:
    """Computes a hash of all problems, samples and failures as 64 hex digits; ignores the order of rows."""
    hasher = blake2b(digest_size=32)
    for *problem, _ in connection.execute(_SELECT_PROBLEMS):
        hasher.update(hash_problem(*problem))
    order = "ORDER BY p.id, s.model IS NULL, s.model, s.fingerprint"
    for key, id_, model, mark, spelling, _ in connection.execute(f"{_SELECT_RECORDS} {order}"):
        prefix = make_record_prefix(id_, model, mark)
        hasher.update(hash_record(prefix, spelling))
        for idx, text, answer, _, *rest, _ in connection.execute(_SELECT_SAMPLES, (key,)):
            hasher.update(hash_sample(prefix, idx, text, answer, NO_CLASS, *rest))
        # failures have no unique index to sort by, so their hashes are sorted
        for mark in sorted(
            hash_failure(prefix, *row[:-1]) for row in connection.execute(_SELECT_FAILURES, (key,))
        ):
            hasher.update(mark)
    return hasher.hexdigest()


def _format_id(id_: object) -> str:
    return repr(id_.decode("utf-8", "backslashreplace")) if isinstance(id_, bytes) else repr(id_)
