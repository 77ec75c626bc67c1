"""The reading half of a pool. Knows nothing of how rows come in, nor of files and their formats."""

import contextlib
import ctypes
import itertools
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from adacompute.answers import Task
from adacompute.errors import PoolError, RecordNotFound
from adacompute.pool.ballots import Ballots, ballots
from adacompute.pool.calls import account, stored_calls
from adacompute.pool.content import fingerprint
from adacompute.pool.faults import mapped, sound
from adacompute.pool.lock import WriterLock
from adacompute.pool.read import (
    Census,
    Totals,
    census,
    choose_source,
    find_source,
    line_of,
    problem_of,
    recorded_of,
    sources,
    stored,
    totals,
)
from adacompute.pool.verify import Verification, digest, verify
from adacompute.records import Account, Call, Problem, Recorded

__all__ = ["Counts", "Readable"]

T = TypeVar("T")
_LAST = """
    SELECT max(s.idx) FROM problems p JOIN records r ON r.problem = p.key JOIN samples s ON s.record = r.key
    WHERE r.source = ? AND p.id = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much a pool holds."""

    problems: int
    samples: int
    failures: int
    sources: int  # (model, parameters) pairs


class Readable:
    """An open pool, as far as it can be read: every read is of one committed state, and long ones stream.

    Reads have a connection that nothing is written through, so none sees half of a call; what streams has
    one of its own, so that others don't see the past while it is held.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: str,
        task: Task,
        reopen: Callable[[], sqlite3.Connection] | None = None,
        writer: sqlite3.Connection | None = None,
        lock: WriterLock | None = None,
    ) -> None:
        self.path = path
        self.task = task
        self.writable = writer is not None
        self._connection = connection
        self._reopen = reopen  # None: a private copy, which nobody changes
        self._turn = threading.RLock()
        self._process = os.getpid()
        self._open = [connection] if writer is None else [connection, writer]
        self._finalizer = weakref.finalize(self, _close, self._open, lock, self._process)

    def close(self) -> None:
        """Frees the file and the writer's lock; twice does nothing."""
        with self._turn:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Pool({self.path!r}, {'writable' if self.writable else 'read-only'})"

    def __len__(self) -> int:
        return self._one("SELECT count(*) FROM problems")

    def __bool__(self) -> bool:
        return True  # an empty pool is a pool

    def __iter__(self) -> Iterator[Recorded]:
        """Every problem with each source's samples, streaming, in the order in which they came."""
        return self._stream(lambda connection: map(recorded_of, stored(connection)))

    def lines(self) -> Iterator[dict[str, Any]]:
        """As `iter`, as the lines of a pool file: plain data."""
        return self._stream(lambda connection: map(line_of, stored(connection)))

    def problems(self) -> Iterator[Problem]:
        """Every problem, streaming, in the order in which they came."""
        rows = "SELECT id, question, gold, subject, level, extra FROM problems ORDER BY key"
        return self._stream(lambda connection: map(problem_of, connection.execute(rows)))

    def problem(self, problem_id: str) -> Problem | None:
        """The problem of that id; None where there is none."""
        row = "SELECT id, question, gold, subject, level, extra FROM problems WHERE id = ?"
        with self._state():
            found = self._connection.execute(row, (problem_id,)).fetchone()
        return None if found is None else problem_of(found)

    def recorded(
        self, problem_id: str, model: str | None = None, *, parameters: Mapping[str, Any] | None = None
    ) -> Recorded:
        """One problem with the samples of one source; without samples where the source has none of it."""
        with self._state():
            source = choose_source(self._connection, self.path, model=model, parameters=parameters)
            found = list(stored(self._connection, "AND r.source IS ? WHERE p.id = ?", (source, problem_id)))
        if not found:
            raise RecordNotFound(f"{self.path}: has no problem {problem_id!r}; pool.problems() lists them")
        return recorded_of(found[0])

    @property
    def models(self) -> list[tuple[str | None, dict[str, Any]]]:
        """Every (model, parameters) in the pool, in the order in which they came."""
        with self._state():
            return list(sources(self._connection).values())

    def counts(self) -> Counts:
        """How many problems, samples, failures and sources there are."""
        with self._state():
            tables = ("problems", "samples", "failures", "sources")
            return Counts(**{name: self._one(f"SELECT count(*) FROM {name}") for name in tables})  # noqa: S608

    def keys(self, model: str | None, parameters: Mapping[str, Any] | None = None) -> set[tuple[str, int]]:
        """(problem id, sample index) of all that this source has: what is left is a set difference."""
        with self._state():
            return set(
                self._connection.execute(
                    "SELECT p.id, x.idx FROM sources s JOIN records r ON r.source = s.key "
                    "JOIN problems p ON p.key = r.problem JOIN samples x ON x.record = r.key "
                    "WHERE s.model IS ? AND s.fingerprint = ?",
                    (model, fingerprint(parameters or {})),
                )
            )

    def indexes(
        self, model: str | None, parameters: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[str, set[int]]]:
        """As `keys`, problem by problem, streaming: (id, indexes) of those with a sample of this source."""
        rows = (
            "SELECT p.id, x.idx FROM sources s JOIN records r ON r.source = s.key "
            "JOIN problems p ON p.key = r.problem JOIN samples x ON x.record = r.key "
            "WHERE s.model IS ? AND s.fingerprint = ? ORDER BY r.key"
        )
        asked = (model, fingerprint(parameters or {}))

        def grouped(connection: sqlite3.Connection) -> Iterator[tuple[str, set[int]]]:
            for id_, group in itertools.groupby(connection.execute(rows, asked), key=lambda row: row[0]):
                yield id_, {index for _, index in group}

        return self._stream(grouped)

    def next_index(
        self, problem_id: str, model: str | None, parameters: Mapping[str, Any] | None = None
    ) -> int:
        """The index after the last sample of a problem from this source; 0 where there is none."""
        with self._state():
            source = find_source(self._connection, model, parameters or {})
            row = self._connection.execute(_LAST, (source, problem_id)).fetchone()
        return 0 if row[0] is None else int(row[0]) + 1

    def account(self, model: str | None, parameters: Mapping[str, Any] | None = None) -> Account:
        """What asking this source has cost so far: calls and tokens, of every collection into this pool."""
        with self._state():
            return account(self._connection, find_source(self._connection, model, parameters or {}))

    def calls(self, model: str | None, parameters: Mapping[str, Any] | None = None) -> Iterator[Call]:
        """Every call to this source, streaming, in the order stored."""
        asked = parameters or {}
        return self._stream(lambda rows: stored_calls(rows, find_source(rows, model, asked)))

    def ballots(self, model: str | None = None, *, parameters: Mapping[str, Any] | None = None) -> Ballots:
        """The votes of one source as arrays; problems that it has no sample of are left out."""
        with self._state():
            return self.ballots_of(
                choose_source(self._connection, self.path, model=model, parameters=parameters)
            )

    def ballots_of(self, source: int | None) -> Ballots:
        """As `ballots`, by the source's key."""
        with self._state():
            name, values = sources(self._connection)[source] if source is not None else (None, {})
            return ballots(self._connection, source, model=name, parameters=values)

    def source_key(self, model: str | None, parameters: Mapping[str, Any]) -> int | None:
        """The key of exactly this source; None where the pool has nothing of it."""
        with self._state():
            return find_source(self._connection, model, parameters)

    def totals(self, source: int | None) -> Totals:
        """Shares and means over all samples of one source, and its failures by kind."""
        with self._state():
            return totals(self._connection, source)

    def census(self) -> Census:
        """Problems with gold, by subject and by level."""
        with self._state():
            return census(self._connection)

    def level_types(self) -> set[str]:
        """SQLite's names of the types that the problems' levels have."""
        with self._state():
            rows = self._connection.execute(
                "SELECT DISTINCT typeof(level) FROM problems WHERE level IS NOT NULL"
            )
            return {name for (name,) in rows}

    def verify(self) -> Verification:
        """Every row against the hash it was stored with, and SQLite's own checks of the file."""
        with self._state():
            return verify(self._connection)

    def digest(self) -> str:
        """Hash of all that was recorded: equal for equal content, whatever the order or the file."""
        with self._state():
            return digest(self._connection)

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """Several reads of one and the same state of the pool; other threads' reads wait."""
        with self._turn, mapped(self.path):
            self._check()
            mine = not self._connection.in_transaction
            if mine:
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if mine:
                    self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _state(self) -> Iterator[None]:
        with self.steady(), sound(self.path):
            yield

    def _stream(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        self._check()
        with sound(self.path):
            if self._reopen is None:
                yield from read(self._connection)
                return
            connection = self._reopen()
            self._open.append(connection)
            try:
                connection.execute("BEGIN")
                yield from read(connection)
            finally:
                self._open.remove(connection)
                _close([connection], None, self._process)

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise PoolError(
                f"{self.path}: was opened by process {self._process}, of which this is a fork; "
                "open it again in this one"
            )
        if not self._finalizer.alive:
            raise PoolError(f"{self.path}: the pool is closed; open it again")

    def _one(self, statement: str) -> int:
        with self._state():
            return int(self._connection.execute(statement).fetchone()[0])


def _close(connections: list[sqlite3.Connection], lock: WriterLock | None, process: int) -> None:
    if os.getpid() != process:  # a fork: all of this is the parent's
        for connection in connections:
            # never collected either: SQLite forbids a child even to close what its parent opened
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        return
    for connection in connections:
        with contextlib.suppress(sqlite3.Error):  # nothing is lost: what was committed is in the log
            connection.close()
    if lock is not None:
        lock.release()
