"""The pool: recorded samples of many problems, in SQLite. Knows nothing of files, endpoints or estimators."""

import contextlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.errors import DuplicateRecord, PoolError, RecordInvalid, RecordNotFound
from adacompute.pool.amend import amend
from adacompute.pool.calls import insert_calls
from adacompute.pool.faults import mapped, sound, translated
from adacompute.pool.flaw import Flaw
from adacompute.pool.grade import Placer, StoredRow, settle_among
from adacompute.pool.lock import WriterLock
from adacompute.pool.once import noted, strike
from adacompute.pool.plain import plain_failure, plain_parameters, plain_problem, plain_sample
from adacompute.pool.readable import Readable
from adacompute.pool.shape import read_failure, read_problem
from adacompute.pool.write import (
    Source,
    insert_failures,
    insert_problem,
    insert_samples,
    known_or_inserted,
    record_of,
    source_of,
)
from adacompute.records import Call, Failure, Problem, Sample

__all__ = ["Drawn", "Pool"]

_REMEMBERED = 1024  # problems whose answer classes are kept at hand while samples come in


class Drawn(NamedTuple):
    """What calls gave for one problem; calls alone may be of none."""

    problem_id: str | None
    samples: Sequence[tuple[int, Sample]] = ()  # with their indexes
    failures: Sequence[Failure] = ()
    calls: Sequence[Call] = ()


class Pool(Readable):
    """Recorded samples of many problems. Open one with `open_pool`; reads stream, writes are durable.

    One pool may be used from several threads: writes take turns, and reads see what was committed.
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
        super().__init__(connection, path=path, task=task, reopen=reopen, writer=writer, lock=lock)
        self._writer = writer
        self._writing = threading.RLock()
        self._classes: OrderedDict[int, Placer] = OrderedDict()

    def close(self) -> None:
        """Frees the file and the writer's lock, when other threads' calls have ended; twice does nothing."""
        with self._writing:
            super().close()

    def add_problem(self, problem: Problem) -> None:
        """Stores a problem, durably. Raises DuplicateRecord where its id is taken."""
        with self._transaction(f"problem {problem.id!r}") as connection:
            insert_problem(connection, read_problem(plain_problem(problem), exact=True))

    def add_problems(self, problems: Iterable[Problem]) -> int:
        """Stores problems, all or none, with one flush; one already there as it is given is left so."""
        added = 0
        with self._transaction("problems") as connection:
            for problem in problems:
                try:
                    row = read_problem(plain_problem(problem), exact=True)
                    added += known_or_inserted(connection, row)
                except Flaw as exc:
                    raise Flaw(f"problem {problem.id!r}: {exc}") from exc
        return added

    def amend_problems(self, problems: Iterable[Problem], *, regrade: bool = False) -> int:
        """Fills in what the pool doesn't know of problems that are there, all or none; how many that changed.

        Their questions stay. A gold answer that is new grades their samples; one that differs from the
        pool's is refused without `regrade`.
        """
        changed = 0
        with self._transaction("problems") as connection:
            for problem in problems:
                self._find(connection, problem.id)
                try:
                    row = read_problem(plain_problem(problem), exact=True)
                    changed += amend(connection, row, self.task, regrade=regrade)
                except Flaw as exc:
                    raise Flaw(f"problem {problem.id!r}: {exc}") from exc
            self._classes.clear()
        return changed

    def add_samples(
        self,
        problem_id: str,
        samples: Sequence[tuple[int, Sample]],
        *,
        model: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores (index, sample) pairs of one problem, all or none, durable on return.

        Where a sample has a text and no answer the answer is extracted by the pool's task (keep it
        abstaining with `extra={"answer": None}`); where gold is known and `correct` is None, it is graded.
        """
        with self._transaction(f"problem {problem_id!r}") as connection:
            rows = [plain_sample(index, sample) for index, sample in samples]
            problem, gold = self._find(connection, problem_id)
            source = source_of(connection, model, plain_parameters(parameters))
            record, prefix, _ = record_of(connection, problem, problem_id, source)
            classes = self._classes_of(connection, record)
            settled = settle_among(
                rows, gold=gold, record=record, prefix=prefix, classes=classes, task=self.task
            )
            insert_samples(connection, settled)

    def add_failure(
        self,
        problem_id: str,
        failure: Failure,
        *,
        model: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores an attempt that gave no sample, durably: data, to be counted, shown and retried."""
        with self._transaction(f"problem {problem_id!r}") as connection:
            row = read_failure(0, plain_failure(failure))
            problem, _ = self._find(connection, problem_id)
            source = source_of(connection, model, plain_parameters(parameters))
            record, prefix, _ = record_of(connection, problem, problem_id, source)
            insert_failures(connection, [row], record=record, prefix=prefix)

    def add_drawn(
        self,
        drawn: Iterable[Drawn],
        *,
        model: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        once: str | None = None,
    ) -> bool:
        """Stores what calls to one source gave, of many problems: all or none, with one flush of the disk.

        `once` names it all: what was stored under that name is not stored again, until it is forgotten.
        """
        with self._transaction("samples") as connection:
            if once is not None and not noted(connection, once):
                return False
            source = source_of(connection, model, plain_parameters(parameters))
            rows: list[StoredRow] = []
            calls: list[Call] = []
            for each in drawn:
                try:
                    rows += self._settled(connection, each, source)
                except Flaw as exc:
                    raise Flaw(f"problem {each.problem_id!r}: {exc}") from exc
                calls += each.calls
            insert_samples(connection, rows)
            insert_calls(connection, calls, source=source.key, model=source.model, mark=source.mark)
        return True

    def forget(self) -> None:
        """Strikes out the names under which something was stored once: what they stood for is gone."""
        with self._transaction("names") as connection:
            strike(connection)

    def _settled(self, connection: sqlite3.Connection, drawn: Drawn, source: Source) -> list[StoredRow]:
        """The rows of its samples; its failures are inserted."""
        if drawn.problem_id is None:
            return []
        problem, gold = self._find(connection, drawn.problem_id)
        record, prefix, _ = record_of(connection, problem, drawn.problem_id, source)
        if drawn.failures:
            failures = [read_failure(0, plain_failure(failure)) for failure in drawn.failures]
            insert_failures(connection, failures, record=record, prefix=prefix)
        if not drawn.samples:
            return []
        return settle_among(
            [plain_sample(index, sample) for index, sample in drawn.samples],
            gold=gold,
            record=record,
            prefix=prefix,
            classes=self._classes_of(connection, record),
            task=self.task,
        )

    @contextlib.contextmanager
    def bulk(self) -> Iterator[sqlite3.Connection]:
        """One transaction over many lines, for imports: all or nothing."""
        with self._transaction("import") as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        connection = self._writer
        if connection is None:
            raise PoolError(
                f"{self.path}: is open for reading; open it with write=True, or import it into a pool"
            )
        with self._writing, mapped(self.path):
            self._check()
            busy = bool(connection.in_transaction)
            if busy:
                raise PoolError(f"{self.path}: this thread is writing to it already; let that call end first")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException as exc:
                if connection.in_transaction:  # on a full disk SQLite has rolled back by itself
                    connection.execute("ROLLBACK")
                self._classes.clear()  # they have placed answers that are not stored
                raise self._named(exc, what) from exc

    def _named(self, exc: BaseException, what: str) -> BaseException:
        if isinstance(exc, Flaw):
            return RecordInvalid(f"{self.path}: {what}: {exc}")
        if isinstance(exc, sqlite3.IntegrityError) and "UNIQUE" in str(exc):
            return DuplicateRecord(f"{self.path}: {what}: is already there ({exc}); give another id or index")
        return translated(exc, self.path) if isinstance(exc, sqlite3.Error) else exc

    def _find(self, connection: sqlite3.Connection, problem_id: str) -> tuple[int, str | None]:
        row = connection.execute("SELECT key, gold FROM problems WHERE id = ?", (problem_id,)).fetchone()
        if row is None:
            raise RecordNotFound(f"{self.path}: has no problem {problem_id!r}; add it with add_problem first")
        return row[0], row[1]

    def _classes_of(self, connection: sqlite3.Connection, record: int) -> Placer:
        """The classes of what is stored, learnt in the order it came."""
        classes = self._classes.pop(record, None)
        if classes is None:
            classes = Placer(self.task)
            with sound(self.path):
                for row in connection.execute(
                    "SELECT answer, correct, class FROM samples WHERE record = ? ORDER BY rowid", (record,)
                ):
                    classes.learn(*row)
        self._classes[record] = classes
        while len(self._classes) > _REMEMBERED:
            self._classes.popitem(last=False)
        return classes
