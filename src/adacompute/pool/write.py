"""Rows into a pool's tables, inside a transaction that the caller holds. Knows nothing of files or locks."""

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.errors import DuplicateRecord
from adacompute.pool.content import (
    canonical,
    failure_hash,
    fingerprint,
    problem_hash,
    record_hash,
    record_prefix,
)
from adacompute.pool.faults import sound
from adacompute.pool.flaw import Flaw, shown
from adacompute.pool.grade import StoredRow, encoded, settle
from adacompute.pool.shape import FailureRow, Line, ProblemRow

__all__ = [
    "Bulk",
    "Source",
    "insert_failures",
    "insert_problem",
    "insert_samples",
    "known_or_inserted",
    "problem_mark",
    "record_of",
    "source_of",
]

_BATCH = 4096  # samples a statement: beyond this, executemany gains nothing and rows only fill memory
_FIELDS = ("id", "question", "gold", "subject", "level", "unknown keys")
_SAMPLE = "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Source(NamedTuple):
    """A model under one set of parameters."""

    key: int
    model: str | None
    mark: str  # fingerprint of the parameters


def source_of(connection: sqlite3.Connection, model: str | None, parameters: dict[str, Any]) -> Source:
    """The source's row, added where it is new."""
    encoded(model)
    encoded(text := canonical(parameters))
    mark = fingerprint(parameters)
    row = connection.execute(
        "SELECT key FROM sources WHERE model IS ? AND fingerprint = ?", (model, mark)
    ).fetchone()
    if row is None:
        cursor = connection.execute(
            "INSERT INTO sources (model, parameters, fingerprint) VALUES (?, ?, ?)", (model, text, mark)
        )
        return Source(int(cursor.lastrowid or 0), model, mark)
    return Source(row[0], model, mark)


def insert_problem(connection: sqlite3.Connection, row: ProblemRow) -> int:
    """The new problem's key. Raises sqlite3.IntegrityError where its id is taken."""
    mark = problem_mark(row)
    cursor = connection.execute(
        "INSERT INTO problems (id, question, gold, subject, level, extra, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, mark),
    )
    return int(cursor.lastrowid or 0)


def known_or_inserted(connection: sqlite3.Connection, row: ProblemRow) -> bool:
    """Whether the problem is new, and then it is added; a Flaw where its id is another problem's."""
    found = connection.execute("SELECT * FROM problems WHERE id = ?", (_bindable(row[0]),)).fetchone()
    if found is None:
        insert_problem(connection, row)
        return True
    if (other := _other(row, found[1:])) is not None:
        name, ours, theirs = other
        raise Flaw(
            f"{name} is {shown(ours)}, and in the pool {shown(theirs)}; "
            "give each problem its own id, or use another pool"
        )
    return False


def _other(row: ProblemRow, found: Sequence[Any]) -> tuple[str, Any, Any] | None:
    """The first field in which two problems differ, and both values."""
    for name, ours, theirs in zip(_FIELDS, row, found, strict=False):
        if (ours, type(ours)) != (theirs, type(theirs)):
            return name, ours, theirs
    return None


def record_of(
    connection: sqlite3.Connection,
    problem: int,
    problem_id: str,
    source: Source,
    spelling: str | None = None,
) -> tuple[int, bytes, bool]:
    """Key and hash prefix of the row that ties a problem to a source, and whether it is new."""
    prefix = record_prefix(problem_id.encode(), encoded(source.model), source.mark.encode())
    row = connection.execute(
        "SELECT key FROM records WHERE problem = ? AND source = ?", (problem, source.key)
    ).fetchone()
    if row is not None:
        return row[0], prefix, False
    cursor = connection.execute(
        "INSERT INTO records (problem, source, spelling, hash) VALUES (?, ?, ?, ?)",
        (problem, source.key, spelling, record_hash(prefix, encoded(spelling))),
    )
    return int(cursor.lastrowid or 0), prefix, True


def insert_samples(connection: sqlite3.Connection, rows: Iterable[StoredRow]) -> None:
    """Many samples at once."""
    connection.executemany(_SAMPLE, rows)


def insert_failures(
    connection: sqlite3.Connection, rows: Iterable[FailureRow], *, record: int, prefix: bytes
) -> None:
    """Failed attempts of one record."""
    connection.executemany(
        "INSERT INTO failures (record, idx, kind, attempt, message, at, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                record,
                *row,
                failure_hash(prefix, row[0], encoded(row[1]) or b"", row[2], encoded(row[3]), row[4]),
            )
            for row in rows
        ],
    )


def problem_mark(row: ProblemRow) -> bytes:
    """The hash that a problem is stored with."""
    id_, question, gold, subject, level, extra = row
    if isinstance(level, str):
        encoded(level)
    return problem_hash(
        encoded(id_) or b"", encoded(question) or b"", encoded(gold), encoded(subject), level, encoded(extra)
    )


class Bulk:
    """Adds whole lines of a file quickly, and tells where one was given twice. Flush at the end."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: str,
        task: Task,
        skip: bool,
        name: Callable[[int], str],
    ) -> None:
        self._connection = connection
        self._path = path
        self._task = task
        self._skip = skip
        self._name = name  # a place in words, for messages
        self._rows: list[StoredRow] = []
        self._sources: dict[tuple[str | None, str], Source] = {}
        self._first_problem = self._next("problems")
        self._first_record = self._next("records")
        self._problem_places = array("q")  # by key: eight bytes a problem, however many there are
        self._record_places = array("q")
        self.samples = self.failures = self.skipped = 0

    @property
    def problems(self) -> int:
        """Problems that were new."""
        return len(self._problem_places)

    def add(self, line: Line, place: int, classes: Sequence[int] | None = None) -> None:
        """One line; `place` is its number in the file, `classes` its samples' classes where known."""
        with sound(self._path):
            tied = self._tied(line, place)
        if tied is None:
            return
        record, prefix = tied
        self._rows += settle(line, record=record, prefix=prefix, task=self._task, classes=classes)
        if line.failures:
            insert_failures(self._connection, line.failures, record=record, prefix=prefix)
        self.samples += len(line.samples)
        self.failures += len(line.failures)
        if len(self._rows) >= _BATCH:
            self.flush()

    def _tied(self, line: Line, place: int) -> tuple[int, bytes] | None:
        """A new row that ties the line's problem to its source; None where there is nothing to add."""
        problem, new = self._problem(line.problem, place)
        if line.bare:  # it says nothing but the problem, and that is known to be the same
            self.skipped += not new and problem < self._first_problem
            return None
        source = self._source(line)
        record, prefix, new = record_of(self._connection, problem, line.problem[0], source, line.spelling)
        if not new:
            self._again(line, self._place(record, self._first_record, self._record_places))
            return None
        self._record_places.append(place)
        return record, prefix

    def flush(self) -> None:
        """Writes what is held back."""
        insert_samples(self._connection, self._rows)
        self._rows.clear()

    def _problem(self, row: ProblemRow, place: int) -> tuple[int, bool]:
        found = self._connection.execute(
            "SELECT * FROM problems WHERE id = ?", (_bindable(row[0]),)
        ).fetchone()
        if found is None:
            key = insert_problem(self._connection, row)
            self._problem_places.append(place)
            return key, True
        if (other := _other(row, found[1:])) is not None:
            first = self._place(found[0], self._first_problem, self._problem_places)
            where = f"in {self._name(first)}" if first is not None else "in the pool"
            raise DuplicateRecord(
                f"id {row[0]!r} is already {where} with another {other[0]}; give each problem its own id"
            )
        return int(found[0]), False

    def _source(self, line: Line) -> Source:
        known = (line.model, canonical(line.parameters))
        if known not in self._sources:
            self._sources[known] = source_of(self._connection, line.model, line.parameters)
        return self._sources[known]

    def _again(self, line: Line, first: int | None) -> None:
        id_ = line.problem[0]
        if first is not None:
            raise DuplicateRecord(
                f"id {id_!r} is already in {self._name(first)} with the same model and parameters; "
                "keep one, or put their samples together"
            )
        if not self._skip:
            raise DuplicateRecord(
                f"id {id_!r} is already in the pool with the same model and parameters; "
                'import with existing="skip" (--existing skip) to leave it as it is'
            )
        self.skipped += 1

    def _place(self, key: int, first: int, places: "array[int]") -> int | None:
        return places[key - first] if key >= first else None

    def _next(self, table: str) -> int:
        with sound(self._path):
            (last,) = self._connection.execute(f"SELECT max(key) FROM {table}").fetchone()  # noqa: S608 - our own names
            return int(last or 0) + 1


def _bindable(text: str) -> str:
    encoded(text)
    if len(text) > 100_000:
        raise Flaw(f"'id' has {len(text)} characters; give at most 100000")
    return text
