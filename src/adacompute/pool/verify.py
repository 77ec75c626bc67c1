"""What is stored against the hashes it was stored with. Knows nothing of how rows came in."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from adacompute.errors import AdacomputeError
from adacompute.pool.calls import wrong_calls
from adacompute.pool.content import (
    CLASSLESS,
    failure_hash,
    fingerprint,
    problem_hash,
    record_hash,
    record_prefix,
    sample_hash,
    setting_hash,
)
from adacompute.pool.faults import UNSOUND, one_line
from adacompute.pool.read import sources

__all__ = ["Verification", "digest", "verify"]

Row = Sequence[Any]

_SHOWN = 1000  # mismatches named; a wholly damaged pool needs no longer list
# text is read as bytes: that is what was hashed, and damaged text can't be decoded
_RECORDS = """
    SELECT r.key, CAST(p.id AS BLOB), CAST(s.model AS BLOB), CAST(s.fingerprint AS BLOB),
        CAST(r.spelling AS BLOB), r.hash
    FROM problems p JOIN records r ON r.problem = p.key JOIN sources s ON s.key = r.source
"""
_SAMPLES = """
    SELECT idx, CAST(text AS BLOB), CAST(answer AS BLOB), class, correct, tokens, logprob, entropy,
        finished, CAST(extra AS BLOB), hash
    FROM samples WHERE record = ? ORDER BY idx
"""
_FAILURES = """
    SELECT idx, CAST(kind AS BLOB), attempt, CAST(message AS BLOB), at, hash
    FROM failures WHERE record = ? ORDER BY key
"""
_PROBLEMS = """
    SELECT CAST(id AS BLOB), CAST(question AS BLOB), CAST(gold AS BLOB), CAST(subject AS BLOB),
        CASE typeof(level) WHEN 'text' THEN CAST(level AS BLOB) ELSE level END, CAST(extra AS BLOB), hash
    FROM problems ORDER BY id
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
    """Rows counted and mismatches named, as the check goes on."""

    def __init__(self) -> None:
        self.problems = self.samples = self.failures = 0
        self.found: list[str] = []
        self.unreadable: list[str] = []

    def note(self, what: str) -> None:
        if len(self.found) < _SHOWN:
            self.found.append(what)


def verify(connection: sqlite3.Connection) -> Verification:
    """Every row hashed again, and SQLite's own checks. Finds what changed, not a row that is gone."""
    check = _Check()
    integrity: list[str] = []
    foreign: list[str] = []
    try:
        said = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        integrity = [line for text in said for line in text.splitlines()]
        foreign = [
            f"{table} row {row} points at a missing row of {parent}"
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
        _check_problems(connection, check)
        _check_records(connection, check)
        _check_sources(connection, check)
        _check_settings(connection, check)
        for key in wrong_calls(connection):
            check.note(f"call {key}")
    except (sqlite3.DatabaseError, *UNSOUND) as exc:  # damaged so that it can't even be read through
        check.unreadable.append(one_line(exc))
    return Verification(
        problems=check.problems,
        samples=check.samples,
        failures=check.failures,
        mismatches=tuple(check.found),
        integrity=tuple(integrity + check.unreadable),
        foreign_keys=tuple(foreign),
    )


def digest(connection: sqlite3.Connection) -> str:
    """Hash of all that was recorded, 64 hex digits; the same whatever the order it came in, or the file."""
    total = blake2b(digest_size=32)
    for *problem, _ in connection.execute(_PROBLEMS):
        total.update(problem_hash(*problem))
    order = "ORDER BY p.id, s.model IS NULL, s.model, s.fingerprint"
    for key, id_, model, mark, spelling, _ in connection.execute(f"{_RECORDS} {order}"):
        prefix = record_prefix(id_, model, mark)
        total.update(record_hash(prefix, spelling))
        for idx, text, answer, _, *rest, _ in connection.execute(_SAMPLES, (key,)):
            total.update(sample_hash(prefix, idx, text, answer, CLASSLESS, *rest))
        # failures have no index of their own: by content, whatever the order they came in
        for mark in sorted(failure_hash(prefix, *row[:-1]) for row in connection.execute(_FAILURES, (key,))):
            total.update(mark)
    return total.hexdigest()


def _check_problems(connection: sqlite3.Connection, check: _Check) -> None:
    for *row, mark in connection.execute(_PROBLEMS):
        check.problems += 1
        if not _fits(problem_hash, row, mark):
            check.note(f"problem {_name(row[0])}")


def _check_records(connection: sqlite3.Connection, check: _Check) -> None:
    for key, id_, model, mark, spelling, stored in connection.execute(f"{_RECORDS} ORDER BY r.key"):
        try:
            prefix = record_prefix(id_, model, mark)
        except TypeError:  # a column that is no text any more
            check.note(f"problem {_name(id_)}: its source")
            continue
        if not _fits(record_hash, [prefix, spelling], stored):
            check.note(f"problem {_name(id_)}: its source")
        for *row, mark_ in connection.execute(_SAMPLES, (key,)):
            check.samples += 1
            if not _fits(sample_hash, [prefix, *row], mark_):
                check.note(f"problem {_name(id_)}, sample {row[0]}")
        for *row, mark_ in connection.execute(_FAILURES, (key,)):
            check.failures += 1
            if not _fits(failure_hash, [prefix, *row], mark_):
                check.note(f"problem {_name(id_)}, failure of sample {row[0]}")


def _check_sources(connection: sqlite3.Connection, check: _Check) -> None:
    marks = dict(connection.execute("SELECT key, fingerprint FROM sources"))
    for key, (model, parameters) in sources(connection).items():
        if not _fits(fingerprint, [parameters], marks[key]):
            check.note(f"parameters of model {model!r}")


def _check_settings(connection: sqlite3.Connection, check: _Check) -> None:
    rows = connection.execute("SELECT CAST(name AS BLOB), CAST(value AS BLOB), hash FROM settings")
    for name, value, mark in rows:
        if not _fits(setting_hash, [name, value], mark):
            check.note(f"setting {_name(name)}")


def _fits(hashed: Callable[..., bytes | str], row: Row, mark: object) -> bool:
    try:
        return bool(hashed(*row) == mark)
    except (*UNSOUND, AdacomputeError):  # a column is not even of its type
        return False


def _name(id_: object) -> str:
    return repr(id_.decode("utf-8", "backslashreplace")) if isinstance(id_, bytes) else repr(id_)
