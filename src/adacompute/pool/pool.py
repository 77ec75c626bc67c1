"""Reads and writes a pool: the recorded samples of many problems, stored in SQLite.

`PoolReader` reads, `Pool` also writes.
"""

import contextlib
import ctypes
import itertools
import json
import os
import sqlite3
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from adacompute.answers import Classes, Task, grade_answer, same_answer
from adacompute.atomic import WriterLock
from adacompute.errors import DuplicateRecord, PoolError, RecordInvalid, RecordNotFound, format_value
from adacompute.pool.ballots import Ballots, read_ballots
from adacompute.pool.rows import (
    ClassNumbering,
    Flaw,
    ProblemRow,
    build_row,
    check_parameters,
    encode_text,
    failure_to_row,
    grade_samples,
    problem_to_line,
    read_problem,
    sample_to_row,
)
from adacompute.pool.sqlite import (
    check_task,
    connect_pool,
    fingerprint,
    hash_setting,
    make_record_prefix,
    map_errors,
    map_read_errors,
    to_canonical_json,
)
from adacompute.pool.tables import (
    Census,
    Source,
    SourceTotals,
    build_line,
    build_problem,
    build_recorded,
    choose_source,
    find_source,
    get_or_insert_record,
    get_or_insert_source,
    hash_problem_row,
    insert_calls,
    insert_failures,
    insert_if_new,
    insert_problem,
    insert_samples,
    read_calls,
    read_census,
    read_charge,
    read_sources,
    read_totals,
    stream_problems,
    sum_calls,
)
from adacompute.pool.verification import Verification, compute_pool_digest, verify
from adacompute.records import Account, Call, Failure, Problem, Recorded, Sample

T = TypeVar("T")
_SELECT_INDEXES = """
    SELECT p.id, x.idx FROM sources s JOIN records r ON r.source = s.key
    JOIN problems p ON p.key = r.problem JOIN samples x ON x.record = r.key
    WHERE s.model IS :model AND s.fingerprint = :fingerprint AND (:id IS NULL OR p.id = :id) ORDER BY r.key
"""
_SELECT_SPELLINGS = """
    SELECT p.id, s.class, s.answer, s.correct
    FROM records r JOIN problems p ON p.key = r.problem JOIN samples s ON s.record = r.key
    WHERE r.source = ? AND s.class >= 0
    GROUP BY r.problem, s.class, s.answer, s.correct ORDER BY r.problem, min(s.idx)
"""
_SELECT_LAST_INDEX = """
    SELECT max(s.idx) FROM problems p JOIN records r ON r.problem = p.key JOIN samples s ON s.record = r.key
    WHERE r.source = ? AND p.id = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """The number of problems, samples, failures and sources in a pool."""

    problems: int
    samples: int
    failures: int
    sources: int  # number of different (model, parameters) pairs


class PoolReader:
    """Reads a pool: every read sees one committed state, and long reads are streamed.

    Reading and writing use separate connections, so no read sees an incomplete write. Each streamed read has
    its own connection, so other reads can see newer data meanwhile.
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
        # opens another connection to the pool; None for a temporary pool, which has a single connection
        self._reopen = reopen
        self._read_lock = threading.RLock()
        self._opener_pid = os.getpid()
        self._writer = writer
        self._write_lock = threading.RLock()
        self._classes: OrderedDict[int, ClassNumbering] = OrderedDict()
        self._connections = [connection] if writer is None else [connection, writer]
        self._finalizer = weakref.finalize(
            self, _close_connections, self._connections, lock, self._opener_pid
        )

    def close(self) -> None:
        """Closes the file and releases the writer's lock. Closing a closed pool does nothing."""
        with self._read_lock:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Pool({self.path!r}, {'writable' if self.writable else 'read-only'})"

    def __len__(self) -> int:
        return self._query_number("SELECT count(*) FROM problems")

    def __bool__(self) -> bool:
        return True  # a pool without problems has length 0, but isn't false

    def __iter__(self) -> Iterator[Recorded]:
        """Yields a `Recorded` per problem and source (a model with its parameters), in insertion order."""
        return self._stream(lambda connection: map(build_recorded, stream_problems(connection)))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yields a line of a pool file (a dict) for each problem and source (a model with its parameters)."""
        return self._stream(lambda connection: map(build_line, stream_problems(connection)))

    def problems(self) -> Iterator[Problem]:
        """Yields every problem, in insertion order."""
        query = "SELECT id, question, gold, subject, level, extra FROM problems ORDER BY key"
        return self._stream(lambda connection: map(build_problem, connection.execute(query)))

    def problem(self, problem_id: str) -> Problem | None:
        """Returns the problem with this id, or None."""
        query = "SELECT id, question, gold, subject, level, extra FROM problems WHERE id = ?"
        with self._read_state():
            stored_row = self._connection.execute(query, (problem_id,)).fetchone()
        return None if stored_row is None else build_problem(stored_row)

    def recorded(
        self, problem_id: str, model: str | None = None, *, parameters: Mapping[str, Any] | None = None
    ) -> Recorded:
        """Returns one problem with the samples of one source (a model with its parameters), if any."""
        with self._read_state():
            source = choose_source(self._connection, self.path, model=model, parameters=parameters)
            stored_problems = list(
                stream_problems(self._connection, "AND r.source IS ? WHERE p.id = ?", (source, problem_id))
            )
        if not stored_problems:
            raise RecordNotFound(f"{self.path}: has no problem {problem_id!r}; pool.problems() lists them")
        return build_recorded(stored_problems[0])

    @property
    def models(self) -> list[tuple[str | None, dict[str, Any]]]:
        """Lists each (model, parameters) pair, except those with only free calls, in insertion order."""
        return self.list_sources(idle=False)

    @property
    def shard_folder(self) -> Path:
        """The folder next to the pool where workers on other machines write samples; it may not exist."""
        real = Path(self.path).resolve()
        return real.with_name(real.name + ".shards")

    def list_sources(self, *, idle: bool = True) -> list[tuple[str | None, dict[str, Any]]]:
        """Lists each (model, parameters) pair; `idle=False` omits those with only free calls."""
        with self._read_state():
            return list(read_sources(self._connection, idle=idle).values())

    def counts(self) -> PoolCounts:
        """Counts all problems, samples, failures and sources (models with their parameters)."""
        with self._read_state():
            tables = ("problems", "samples", "failures", "sources")
            return PoolCounts(**{name: self._query_number(f"SELECT count(*) FROM {name}") for name in tables})  # noqa: S608

    def keys(
        self,
        model: str | None,
        parameters: Mapping[str, Any] | None = None,
        *,
        problem_id: str | None = None,
    ) -> set[tuple[str, int]]:
        """Returns (problem id, sample index) for each sample from this model with exactly these parameters.

        If `problem_id` is given, returns only the samples of this problem.
        """
        stored = self.indexes(model, parameters, problem_id=problem_id)
        return {(id_, index) for id_, indexes in stored for index in indexes}

    def indexes(
        self,
        model: str | None,
        parameters: Mapping[str, Any] | None = None,
        *,
        problem_id: str | None = None,
    ) -> Iterator[tuple[str, set[int]]]:
        """Yields (problem id, sample indexes) for each problem that has samples from this model."""
        values = {"model": model, "fingerprint": fingerprint(parameters or {}), "id": problem_id}

        def group_indexes(connection: sqlite3.Connection) -> Iterator[tuple[str, set[int]]]:
            rows = connection.execute(_SELECT_INDEXES, values)
            for id_, group in itertools.groupby(rows, key=lambda row: row[0]):
                yield id_, {index for _, index in group}

        return self._stream(group_indexes)

    def next_index(
        self, problem_id: str, model: str | None, parameters: Mapping[str, Any] | None = None
    ) -> int:
        """Returns the index for the next sample of a problem from this model: its last index + 1, or 0."""
        with self._read_state():
            source = find_source(self._connection, model, parameters or {})
            row = self._connection.execute(_SELECT_LAST_INDEX, (source, problem_id)).fetchone()
        return 0 if row[0] is None else int(row[0]) + 1

    def account(self, model: str | None, parameters: Mapping[str, Any] | None = None) -> Account:
        """Sums all recorded calls to this model with these parameters, and their tokens."""
        with self._read_state():
            return sum_calls(self._connection, find_source(self._connection, model, parameters or {}))

    def calls(self, model: str | None, parameters: Mapping[str, Any] | None = None) -> Iterator[Call]:
        """Yields every recorded call to this model with these parameters, in the order of storage."""
        source_parameters = parameters or {}
        return self._stream(lambda rows: read_calls(rows, find_source(rows, model, source_parameters)))

    def ballots(self, model: str | None = None, *, parameters: Mapping[str, Any] | None = None) -> Ballots:
        """Reads one model's votes as arrays, leaving out problems that have no samples from it."""
        with self._read_state():
            return self.ballots_of(
                choose_source(self._connection, self.path, model=model, parameters=parameters)
            )

    def ballots_of(self, source: int | None) -> Ballots:
        """Reads votes like `ballots`; `source` is the key of a source (a model with its parameters)."""
        with self._read_state():
            name, values = read_sources(self._connection)[source] if source is not None else (None, {})
            charge = read_charge(self._connection, source)
            return read_ballots(self._connection, source, model=name, parameters=values, charge=charge)

    def spellings_of(self, source: int | None) -> list[tuple[str, int, str, float | None]]:
        """Reads each distinct answer text, as (problem id, class number, answer, grade), in drawing order."""
        with self._read_state():
            return self._connection.execute(_SELECT_SPELLINGS, (source,)).fetchall()

    def source_key(self, model: str | None, parameters: Mapping[str, Any]) -> int | None:
        """Finds the key of the source with exactly this model and these parameters, or None."""
        with self._read_state():
            return find_source(self._connection, model, parameters)

    def totals(self, source: int | None) -> SourceTotals:
        """Computes averages over all samples of one source (a model with its parameters); counts failures."""
        with self._read_state():
            return read_totals(self._connection, source)

    def census(self) -> Census:
        """Counts the problems that have a gold answer, and the problems of each subject and each level."""
        with self._read_state():
            return read_census(self._connection)

    def level_types(self) -> set[str]:
        """Returns the names of the SQLite types that the problems' levels have, such as "integer"."""
        with self._read_state():
            rows = self._connection.execute(
                "SELECT DISTINCT typeof(level) FROM problems WHERE level IS NOT NULL"
            )
            return {name for (name,) in rows}

    def verify(self) -> Verification:
        """Checks every row against its stored hash, and runs SQLite's own checks."""
        with self._read_state():
            return verify(self._connection)

    def digest(self) -> str:
        """Computes a hash of all problems, samples and failures; ignores the order of rows and the file."""
        with self._read_state():
            return compute_pool_digest(self._connection)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Lets several reads see the same state of the pool; reads by other threads wait until it ends."""
        with self._read_lock, map_errors(self.path):
            self._check_open()
            opens_transaction = not self._connection.in_transaction
            if opens_transaction:
                self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if opens_transaction:
                    self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _read_state(self) -> Iterator[None]:
        with self.snapshot(), map_read_errors(self.path):
            yield

    def _stream(self, read: Callable[[sqlite3.Connection], Iterator[T]]) -> Iterator[T]:
        self._check_open()
        with map_read_errors(self.path):
            if self._reopen is None:
                yield from read(self._connection)
                return
            connection = self._reopen()
            self._connections.append(connection)
            try:
                connection.execute("BEGIN")
                yield from read(connection)
            finally:
                self._connections.remove(connection)
                _close_connections([connection], None, self._opener_pid)

    def _check_open(self) -> None:
        if os.getpid() != self._opener_pid:
            raise PoolError(
                f"{self.path}: was opened by process {self._opener_pid}, of which this is a fork; "
                "open it again in this one"
            )
        if not self._finalizer.alive:
            raise PoolError(f"{self.path}: the pool is closed; open it again")

    def _query_number(self, statement: str) -> int:
        with self._read_state():
            return int(self._connection.execute(statement).fetchone()[0])


def _close_connections(
    connections: list[sqlite3.Connection], lock: WriterLock | None, opener_pid: int
) -> None:
    if os.getpid() != opener_pid:  # a forked process doesn't own the connections and the lock
        for connection in connections:
            # prevents garbage collection, which would close the parent process's connection
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        return
    for connection in connections:
        with contextlib.suppress(sqlite3.Error):  # an error loses no data: commits are in SQLite's log
            connection.close()
    if lock is not None:
        lock.close()


_SELECT_STORED_PROBLEM = "SELECT key, question, gold, subject, level, extra FROM problems WHERE id = ?"
_UPDATE_PROBLEM = "UPDATE problems SET gold = ?, subject = ?, level = ?, extra = ?, hash = ? WHERE key = ?"
_SELECT_RECORDS = """
    SELECT r.key, s.model, s.fingerprint FROM records r JOIN sources s ON s.key = r.source WHERE r.problem = ?
"""
_SELECT_RECORD_SAMPLES = """
    SELECT idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra
    FROM samples WHERE record = ? ORDER BY rowid
"""
_UPDATE_GRADE = "UPDATE samples SET class = ?, correct = ?, hash = ? WHERE record = ? AND idx = ?"


def amend_problem(connection: sqlite3.Connection, row: ProblemRow, task: Task, *, regrade: bool) -> bool:
    """Updates a stored problem with the fields of `row`; returns whether anything changed.

    Fills in missing fields, but never changes the question. A different gold answer replaces the stored one
    if `regrade` is set, and raises a Flaw otherwise. A new gold answer grades the samples, except those that
    were stored with a grade.
    """
    id_, _, gold, subject, level, extra = row
    key, question, old_gold, old_subject, old_level, old_extra = connection.execute(
        _SELECT_STORED_PROBLEM, (id_,)
    ).fetchone()
    differs = old_gold is not None and gold is not None and not same_answer(gold, old_gold, task)
    if differs and not regrade:
        raise Flaw(
            f"gold is {format_value(gold)}, and in the pool {format_value(old_gold)}; use --regrade to take "
            "the new one and grade the samples again, or put the old one back"
        )
    new_gold = gold if differs or old_gold is None else old_gold
    new_row = (
        id_,
        question,
        new_gold,
        subject if old_subject is None else old_subject,
        level if old_level is None else old_level,
        _merge_extra(extra, old_extra),
    )
    if new_row == (id_, question, old_gold, old_subject, old_level, old_extra):
        return False
    connection.execute(_UPDATE_PROBLEM, (*new_row[2:], hash_problem_row(new_row), key))
    if new_gold != old_gold and new_gold is not None:
        for record, model, fingerprint in connection.execute(_SELECT_RECORDS, (key,)).fetchall():
            prefix = make_record_prefix(id_.encode(), encode_text(model), fingerprint.encode())
            golds = (old_gold, new_gold)
            _regrade(connection, record, prefix, question=question, golds=golds, task=task)
    return True


def _merge_extra(extra: str | None, old: str | None) -> str | None:
    """Merges a problem's new and stored unknown keys, as JSON.

    If both have a key, keeps the stored value, because the samples were drawn with it.
    """
    if extra is None or old is None:
        return extra if old is None else old
    return to_canonical_json({**json.loads(extra), **json.loads(old)})


def _regrade(
    connection: sqlite3.Connection,
    record: int,
    prefix: bytes,
    *,
    question: str,
    golds: tuple[str | None, str],
    task: Task,
) -> None:
    """Grades a record's samples by the new gold answer; `golds` is (old, new).

    Keeps a grade that the old gold answer doesn't give, because it was stored with the sample.
    """
    old_gold, gold = golds
    classes = Classes(task=task)
    # maps each class number from `classes` to the stored one; stored ones are numbered by first appearance
    numbers: dict[int, int] = {}
    for row in connection.execute(_SELECT_RECORD_SAMPLES, (record,)).fetchall():
        idx, text, answer, _, correct, *rest = row
        was_computed = old_gold is not None and correct == grade_answer(answer, old_gold, question, task)
        if correct is None or was_computed:
            correct = grade_answer(answer, gold, question, task)
        # equal answers with different grades get different class numbers
        class_number = classes.place(answer, correct)
        number = -1 if class_number < 0 else numbers.setdefault(class_number, len(numbers))
        new_row = build_row((idx, text, None, None, *rest), (answer, correct), number, record, prefix)
        connection.execute(_UPDATE_GRADE, (number, correct, new_row[-1], record, idx))


# the name of each stored batch is itself stored in the table `settings`, with this prefix
_MARK_PREFIX = "taken in: "


def _add_mark(connection: sqlite3.Connection, name: str) -> bool:
    """Stores the name of a batch; returns False if the name was stored already."""
    key = _MARK_PREFIX + name
    mark_hash = hash_setting(key.encode(), b"1")
    cursor = connection.execute("INSERT OR IGNORE INTO settings VALUES (?, '1', ?)", (key, mark_hash))
    return cursor.rowcount == 1


_CACHED_RECORDS = 1024  # maximum number of (problem, source) pairs whose answers' class numbers are cached


class DrawnSamples(NamedTuple):
    """Samples, failures and calls of one problem; `problem_id` is None if the calls belong to no problem."""

    problem_id: str | None
    samples: Sequence[tuple[int, Sample]] = ()  # (index, sample) pairs
    failures: Sequence[Failure] = ()
    calls: Sequence[Call] = ()


class Pool(PoolReader):
    """Recorded samples of many problems. Open it with `open_pool`. Every write is on disk when it returns.

    Threads may share a pool: only one writes at a time, and reads see only committed data.
    """

    def close(self) -> None:
        """Waits until other threads' calls end, then closes the file and releases the writer's lock.

        Closing a closed pool does nothing.
        """
        with self._write_lock:
            super().close()

    def add_problem(self, problem: Problem) -> None:
        """Stores a problem on disk; raises DuplicateRecord if its id is already in the pool."""
        with self._transaction() as connection, self._locate_errors(f"problem {problem.id!r}"):
            insert_problem(connection, read_problem(problem_to_line(problem)))

    def add_problems(self, problems: Iterable[Problem]) -> int:
        """Stores all problems, or none if an error occurs; returns how many were new.

        Skips a problem that is stored with the same fields; one stored with other fields is an error.
        """
        added = 0
        with self._transaction() as connection:
            for problem in problems:
                with self._locate_errors(f"problem {problem.id!r}"):
                    added += insert_if_new(connection, read_problem(problem_to_line(problem)))
        return added

    def amend_problems(self, problems: Iterable[Problem], *, regrade: bool = False) -> int:
        """Fills in missing fields of stored problems; returns how many problems changed.

        If an error occurs, no problem changes. Questions never change. A different gold answer replaces the
        stored one if `regrade` is set, and raises an error otherwise. A new gold answer grades the samples.
        """
        changed = 0
        with self._transaction() as connection:
            for problem in problems:
                self._find_problem(connection, problem.id)
                with self._locate_errors(f"problem {problem.id!r}"):
                    row = read_problem(problem_to_line(problem))
                    changed += amend_problem(connection, row, self.task, regrade=regrade)
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
        """Stores (index, sample) pairs of one problem on disk, or none of them if an error occurs.

        If a sample has a text but no answer, the answer is extracted from the text; to store an abstention,
        give `extra={"answer": None}`. A sample with `correct=None` is graded if the gold answer is known.
        """
        self.add_drawn([DrawnSamples(problem_id, samples)], model=model, parameters=parameters)

    def add_failure(
        self,
        problem_id: str,
        failure: Failure,
        *,
        model: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores a failed attempt on disk, so that it can be counted, shown and retried."""
        drawn = DrawnSamples(problem_id, failures=[failure])
        self.add_drawn([drawn], model=model, parameters=parameters)

    def add_drawn(
        self,
        drawn: Iterable[DrawnSamples],
        *,
        model: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        once: str | None = None,
    ) -> bool:
        """Stores the results of calls to one model for many problems, or none of them if an error occurs.

        `once` names this batch. Stores nothing and returns False if a batch with this name was stored before.
        `forget` removes all stored names.
        """
        with self._transaction() as connection, self._locate_errors("samples"):
            if once is not None and not _add_mark(connection, once):
                return False
            source = get_or_insert_source(connection, model, check_parameters(parameters))
            for draw in drawn:
                with self._locate_errors(f"problem {draw.problem_id!r}"):
                    self._insert_drawn(connection, draw, source)
        return True

    def forget(self) -> None:
        """Removes all batch names that `add_drawn` stored, so that batches with these names can be stored."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM settings WHERE name GLOB ?", (_MARK_PREFIX + "*",))

    def _insert_drawn(self, connection: sqlite3.Connection, drawn: DrawnSamples, source: Source) -> None:
        insert_calls(connection, drawn.calls, source)
        if drawn.problem_id is None:
            return
        samples = [sample_to_row(index, sample) for index, sample in drawn.samples]
        failures = [failure_to_row(failure) for failure in drawn.failures]
        problem, question, gold = self._find_problem(connection, drawn.problem_id)
        record, prefix, _ = get_or_insert_record(connection, problem, drawn.problem_id, source)
        insert_failures(connection, failures, record=record, prefix=prefix)
        graded = grade_samples(
            samples,
            question,
            gold,
            record=record,
            prefix=prefix,
            numbering=self._load_classes(connection, record),
            task=self.task,
        )
        insert_samples(connection, graded)

    @contextlib.contextmanager
    def bulk(self) -> Iterator[sqlite3.Connection]:
        """Opens one transaction for an import, so that either all lines are stored or none."""
        with self._transaction() as connection, self._locate_errors("import"):
            yield connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._writer
        if connection is None:
            raise PoolError(
                f"{self.path}: is open for reading; open it with write=True, or import it into a pool"
            )
        with self._write_lock, map_errors(self.path):
            self._check_open()
            busy = bool(connection.in_transaction)
            if busy:
                raise PoolError(f"{self.path}: this thread is writing to it already; let that call end first")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite itself rolls back if the disk is full
                    connection.execute("ROLLBACK")
                self._classes.clear()  # cached answers may have been rolled back
                raise

    @contextlib.contextmanager
    def _locate_errors(self, what: str) -> Iterator[None]:
        """Converts a Flaw, or SQLite's error for a duplicate key, to an error that names `what`."""
        try:
            yield
        except Flaw as exc:
            raise RecordInvalid(f"{self.path}: {what}: {exc}") from exc
        except sqlite3.IntegrityError as exc:
            if "UNIQUE" not in str(exc):
                raise
            raise DuplicateRecord(
                f"{self.path}: {what}: already exists ({exc}); give another id or index"
            ) from exc

    def _find_problem(self, connection: sqlite3.Connection, problem_id: str) -> tuple[int, str, str | None]:
        """Finds a problem's key, question and gold answer; raises RecordNotFound if it isn't stored."""
        selected = "SELECT key, question, gold FROM problems WHERE id = ?"
        row = connection.execute(selected, (problem_id,)).fetchone()
        if row is None:
            raise RecordNotFound(f"{self.path}: has no problem {problem_id!r}; add it with add_problem first")
        return row[0], row[1], row[2]

    def _load_classes(self, connection: sqlite3.Connection, record: int) -> ClassNumbering:
        """Loads the class numbers of a record's stored answers, from the cache or the pool.

        A record links a problem to a source (a model with its parameters).
        """
        numbering = self._classes.pop(record, None)
        if numbering is None:
            numbering = ClassNumbering(self.task)
            with map_read_errors(self.path):
                for row in connection.execute(
                    "SELECT answer, correct, class FROM samples WHERE record = ? ORDER BY rowid", (record,)
                ):
                    numbering.add_known(*row)
        self._classes[record] = numbering
        while len(self._classes) > _CACHED_RECORDS:
            self._classes.popitem(last=False)
        return numbering


def attach_pool(path: Path, task: Task | None = None, *, lock: WriterLock | None = None) -> Pool:
    """Opens the pool at `path`, for reading only unless `lock` is given.

    Closing the pool releases the lock.
    """
    reopen = partial(connect_pool, path, write=False)
    with contextlib.ExitStack() as stack:
        writer = None if lock is None else connect_pool(path, write=True)
        if writer is not None:
            stack.callback(writer.close)
        reader = reopen()
        stack.callback(reader.close)
        pool_task = check_task(reader, path, task)
        stack.pop_all()
    return Pool(reader, path=str(path), task=pool_task, reopen=reopen, writer=writer, lock=lock)
