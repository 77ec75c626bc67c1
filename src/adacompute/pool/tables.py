"""Reads and writes a pool's tables: problems, sources, samples, failures and calls.

Functions that write must be called inside a transaction.
"""

import json
import shlex
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.errors import DuplicateRecord, RecordNotFound, SourceAmbiguous, format_value
from adacompute.pool.ballots import PromptCharge
from adacompute.pool.rows import (
    FailureRow,
    Flaw,
    ProblemLine,
    ProblemRow,
    StoredRow,
    encode_text,
    grade_samples,
    read_signals,
)
from adacompute.pool.sqlite import (
    fingerprint,
    has_calls_table,
    hash_call,
    hash_failure,
    hash_problem,
    hash_record,
    make_record_prefix,
    map_read_errors,
    to_canonical_json,
)
from adacompute.records import Account, Call, Failure, Problem, Recorded, Sample

Row = tuple[Any, ...]

# --- reading ---

_SELECT_PROBLEMS = """
    SELECT p.id, p.question, p.gold, p.subject, p.level, p.extra, r.key, r.source, r.spelling
    FROM problems p LEFT JOIN records r ON r.problem = p.key
"""
_SELECT_SAMPLES = """
    SELECT idx, class, text, answer, correct, tokens, logprob, entropy, finished, extra
    FROM samples WHERE record = ? ORDER BY idx
"""
_SELECT_SOURCES = "SELECT key, model, parameters FROM sources ORDER BY key"
_SELECT_USED_SOURCES = """
    SELECT key, model, parameters FROM sources s
    WHERE EXISTS (SELECT 1 FROM records r JOIN samples x ON x.record = r.key WHERE r.source = s.key)
    OR coalesce((SELECT max(c.paid <> 'no') FROM calls c WHERE c.source = s.key), 1) ORDER BY key
"""
_SELECT_FAILURES = "SELECT idx, kind, attempt, message, at FROM failures WHERE record = ? ORDER BY key"
_PROBLEM_FIELDS = ("id", "question", "gold", "subject", "level")
_SAMPLE_FIELDS = ("text", "answer", "correct", "tokens", "logprob", "entropy", "finished")
_FAILURE_FIELDS = ("index", "kind", "attempt", "message", "at")


class StoredProblem(NamedTuple):
    """One problem with its rows from one source (a model with its parameters)."""

    problem: Row  # columns: id, question, gold, subject, level, extra
    model: str | None
    parameters: dict[str, Any]
    spelling: str | None
    # columns: idx, class, text, answer, correct, tokens, logprob, entropy, finished, extra
    samples: Sequence[Row]
    failures: Sequence[Row]  # columns: idx, kind, attempt, message, at


class Census(NamedTuple):
    """The number of problems with a gold answer, with each subject and with each level."""

    gold: int  # number of problems with a gold answer
    subjects: dict[str, int]
    levels: dict[str, int]


class SourceTotals(NamedTuple):
    """Averages over one source's samples, or None if unknown. A source is a model with its parameters."""

    answered: float | None  # share of samples with an answer
    finished: float | None  # share of samples that weren't cut off, among those for which this is known
    tokens: float | None  # mean number of output tokens per sample
    failures: dict[str, int]  # number of failures of each kind


def read_sources(
    connection: sqlite3.Connection, *, idle: bool = True
) -> dict[int, tuple[str | None, dict[str, Any]]]:
    """Returns every source (a model with its parameters) of the pool by its key, in insertion order.

    `idle=False` leaves out a source without samples if it has calls but none was charged.
    """
    rows = connection.execute(_SELECT_SOURCES if idle else _SELECT_USED_SOURCES)
    return {key: (model, json.loads(parameters)) for key, model, parameters in rows}


def find_source(
    connection: sqlite3.Connection, model: str | None, parameters: Mapping[str, Any]
) -> int | None:
    """Finds the key of the source with exactly this model and these parameters, or None."""
    row = connection.execute(
        "SELECT key FROM sources WHERE model IS ? AND fingerprint = ?", (model, fingerprint(parameters))
    ).fetchone()
    return None if row is None else int(row[0])


def read_totals(connection: sqlite3.Connection, source: int | None) -> SourceTotals:
    """Computes averages over all samples of one source (a model with its parameters); counts failures."""
    answered, finished, tokens = connection.execute(
        "SELECT avg(s.answer IS NOT NULL), avg(s.finished), avg(s.tokens) "
        "FROM records r JOIN samples s ON s.record = r.key WHERE r.source = ?",
        (source,),
    ).fetchone()
    kinds = connection.execute(
        "SELECT f.kind, count(*) FROM records r JOIN failures f ON f.record = r.key "
        "WHERE r.source = ? GROUP BY f.kind ORDER BY f.kind",
        (source,),
    )
    return SourceTotals(answered, finished, tokens, dict(kinds))


def read_census(connection: sqlite3.Connection) -> Census:
    """Counts the problems that have a gold answer, and the problems of each subject and each level."""
    (gold,) = connection.execute("SELECT count(gold) FROM problems").fetchone()
    subjects = connection.execute(
        "SELECT subject, count(*) FROM problems WHERE subject IS NOT NULL GROUP BY subject"
    )
    levels: Counter[str] = Counter()
    for level, number in connection.execute(
        "SELECT level, count(*) FROM problems WHERE level IS NOT NULL GROUP BY typeof(level), level"
    ):
        levels[str(level)] += number
    return Census(gold, dict(sorted(subjects)), dict(sorted(levels.items())))


def choose_source(
    connection: sqlite3.Connection,
    path: str,
    *,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> int | None:
    """Finds the key of the only source that fits; returns None if the pool is empty.

    `model=None` fits any model, `parameters=None` any parameters. Raises an error if none or several fit.
    """
    sources = read_sources(connection, idle=parameters is not None)
    return pick_source(sources, path, model=model, parameters=parameters)


def pick_source(
    sources: Mapping[int, tuple[str | None, dict[str, Any]]],
    path: str,
    *,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> int | None:
    """Finds a source like `choose_source`, but in `sources`, a map from keys to (model, parameters)."""
    wanted_fingerprint = None if parameters is None else fingerprint(parameters)
    matches = [
        key
        for key, (name, values) in sources.items()
        if (model is None or name == model)
        and (wanted_fingerprint is None or fingerprint(values) == wanted_fingerprint)
    ]
    if len(matches) == 1 or not sources:
        return matches[0] if matches else None
    # in the message, put sources first whose requests all got the maximum number of samples (`explored`)
    ordered = sorted(sources.values(), key=lambda one: not one[1].get("explored"))
    suggestions = ", or ".join(_format_source(name, values) for name, values in ordered[:8])
    if not matches:
        wanted = f"model {model!r}" + (f" with {dict(parameters)}" if parameters is not None else "")
        raise RecordNotFound(f"{path}: has no samples of {wanted}; give {suggestions}")
    raise SourceAmbiguous(
        f"{path}: holds {len(matches)} sources that fit; name one by model= and parameters=, "
        f"on the command line {suggestions}"
    )


def _format_source(model: str | None, parameters: Mapping[str, Any]) -> str:
    """Formats a model and its parameters as command-line options."""
    name = "" if model is None else f"--model {shlex.quote(model)} "
    return f"{name}--parameters {shlex.quote(json.dumps(parameters))}"


def stream_problems(
    connection: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()
) -> Iterator[StoredProblem]:
    """Yields one `StoredProblem` per problem and source. Needs an open transaction."""
    sources_by_key = {key: row for key, *row in connection.execute(_SELECT_SOURCES)}
    has_failures = connection.execute("SELECT EXISTS (SELECT 1 FROM failures)").fetchone()[0]
    for row in connection.execute(f"{_SELECT_PROBLEMS} {where} ORDER BY p.key, r.source", values):
        problem, (record, source, spelling) = row[:6], row[6:]
        if record is None:
            yield StoredProblem(problem, None, {}, None, (), ())
            continue
        model, parameters = sources_by_key[source]
        samples = connection.execute(_SELECT_SAMPLES, (record,)).fetchall()
        failures = connection.execute(_SELECT_FAILURES, (record,)).fetchall() if has_failures else ()
        # parse the parameters for each result, so that no two results share a mutable dict
        yield StoredProblem(problem, model, json.loads(parameters), spelling, samples, failures)


def build_problem(row: Row) -> Problem:
    """Builds a `Problem` from its row."""
    *values, extra = row
    fields = dict(zip(_PROBLEM_FIELDS, values, strict=True))
    return Problem(**fields, extra=json.loads(extra) if extra else {})


def build_recorded(row: StoredProblem) -> Recorded:
    """Builds a `Recorded` from stored rows; answer classes are renumbered by first appearance."""
    numbers: dict[int, int] = {-1: -1}
    classes = tuple([numbers.setdefault(sample[1], len(numbers) - 1) for sample in row.samples])
    return Recorded(
        problem=build_problem(row.problem),
        samples=tuple([_build_sample(sample) for sample in row.samples]),
        classes=classes,
        model=row.model,
        parameters=row.parameters,
        failures=tuple([Failure(**dict(zip(_FAILURE_FIELDS, f, strict=True))) for f in row.failures]),
    )


def build_line(row: StoredProblem) -> dict[str, Any]:
    """Builds a line of a pool file from a stored problem: known keys in a fixed order, then unknown keys."""
    *values, extra = row.problem
    fields = dict(zip(_PROBLEM_FIELDS, values, strict=True)) | {"model": row.model}
    line: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if row.parameters:
        line["parameters"] = row.parameters
    for keys_json in (row.spelling, extra):
        if keys_json:
            line |= json.loads(keys_json)
    if row.failures:
        named = (zip(_FAILURE_FIELDS, failure, strict=True) for failure in row.failures)
        line["failures"] = [{k: v for k, v in pairs if v is not None} for pairs in named]
    line["samples"] = [_build_sample_line(i, sample) for i, sample in enumerate(row.samples)]
    return line


def _build_sample_line(i: int, row: Row) -> dict[str, Any]:
    idx, extra = row[0], row[-1]
    line = {"index": None if idx == i else idx, **_name_sample_fields(row)}
    if line["correct"] in (0.0, 1.0):
        line["correct"] = int(line["correct"])
    known = {name: value for name, value in line.items() if value is not None or name == "answer"}
    return known | json.loads(extra) if extra else known


def _build_sample(row: Row) -> Sample:
    unknown_keys = json.loads(row[-1]) if row[-1] else {}
    signals = read_signals(unknown_keys) if unknown_keys else None
    return Sample(**_name_sample_fields(row), signals=signals, extra=unknown_keys)


def _name_sample_fields(row: Row) -> dict[str, Any]:
    fields = dict(zip(_SAMPLE_FIELDS, row[2:-1], strict=True))
    return fields | {"finished": None if fields["finished"] is None else bool(fields["finished"])}


# --- writing ---

_BATCH_SAMPLES = 4096  # number of samples inserted at once; more would take more memory, but no less time
_INSERT_SAMPLE = "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Source(NamedTuple):
    """A model with one set of parameters."""

    key: int
    model: str | None
    fingerprint: str  # hash of the parameters


def get_or_insert_source(
    connection: sqlite3.Connection, model: str | None, parameters: dict[str, Any]
) -> Source:
    """Finds the row of a model with its parameters, or inserts it."""
    encode_text(model)
    encode_text(text := to_canonical_json(parameters))
    parameters_hash = fingerprint(parameters)
    key = find_source(connection, model, parameters)
    if key is None:
        cursor = connection.execute(
            "INSERT INTO sources (model, parameters, fingerprint) VALUES (?, ?, ?)",
            (model, text, parameters_hash),
        )
        key = int(cursor.lastrowid or 0)
    return Source(key, model, parameters_hash)


def insert_problem(connection: sqlite3.Connection, row: ProblemRow) -> int:
    """Inserts a problem and returns its key; raises sqlite3.IntegrityError if its id is already stored."""
    row_hash = hash_problem_row(row)
    cursor = connection.execute(
        "INSERT INTO problems (id, question, gold, subject, level, extra, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, row_hash),
    )
    return int(cursor.lastrowid or 0)


def insert_if_new(connection: sqlite3.Connection, row: ProblemRow) -> bool:
    """Inserts a problem unless it is stored already; returns whether it was inserted.

    Raises a Flaw if a different problem is stored under the same id.
    """
    existing = connection.execute("SELECT * FROM problems WHERE id = ?", (_check_id(row[0]),)).fetchone()
    if existing is None:
        insert_problem(connection, row)
        return True
    if (difference := _find_difference(row, existing[1:])) is not None:
        name, ours, theirs = difference
        raise Flaw(
            f"{name} is {format_value(ours)}, and in the pool {format_value(theirs)}; "
            "give each problem its own id, or use another pool"
        )
    return False


def _find_difference(row: ProblemRow, existing: Sequence[Any]) -> tuple[str, Any, Any] | None:
    """Returns the first field in which two problems differ, with both values, or None."""
    for name, ours, theirs in zip((*_PROBLEM_FIELDS, "unknown keys"), row, existing, strict=False):
        if (ours, type(ours)) != (theirs, type(theirs)):
            return name, ours, theirs
    return None


def get_or_insert_record(
    connection: sqlite3.Connection,
    problem: int,
    problem_id: str,
    source: Source,
    spelling: str | None = None,
) -> tuple[int, bytes, bool]:
    """Finds or inserts the row that links a problem to a source; returns (key, hash prefix, is new)."""
    prefix = make_record_prefix(problem_id.encode(), encode_text(source.model), source.fingerprint.encode())
    row = connection.execute(
        "SELECT key FROM records WHERE problem = ? AND source = ?", (problem, source.key)
    ).fetchone()
    if row is not None:
        return row[0], prefix, False
    cursor = connection.execute(
        "INSERT INTO records (problem, source, spelling, hash) VALUES (?, ?, ?, ?)",
        (problem, source.key, spelling, hash_record(prefix, encode_text(spelling))),
    )
    return int(cursor.lastrowid or 0), prefix, True


def insert_samples(connection: sqlite3.Connection, rows: Iterable[StoredRow]) -> None:
    """Inserts many samples at once."""
    connection.executemany(_INSERT_SAMPLE, rows)


def insert_failures(
    connection: sqlite3.Connection, rows: Iterable[FailureRow], *, record: int, prefix: bytes
) -> None:
    """Inserts failed attempts at one problem from one source."""
    connection.executemany(
        "INSERT INTO failures (record, idx, kind, attempt, message, at, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                record,
                *row,
                hash_failure(prefix, row[0], encode_text(row[1]) or b"", row[2], encode_text(row[3]), row[4]),
            )
            for row in rows
        ],
    )


def hash_problem_row(row: ProblemRow) -> bytes:
    """Computes the hash that is stored with a problem's row."""
    parts: list[Any] = [encode_text(part) if isinstance(part, str) else part for part in row]
    return hash_problem(*parts)


class BulkInsert:
    """Inserts many lines of a file; errors name the places of duplicates. Call `flush` at the end."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: str,
        task: Task,
        skip: bool,
        format_place: Callable[[int], str],
    ) -> None:
        self._connection = connection
        self._path = path
        self._task = task
        self._skip = skip
        self._format_place = format_place  # converts a place, as encoded by `encode_place`, to text
        self._rows: list[StoredRow] = []
        self._sources: dict[tuple[str | None, str], Source] = {}
        self._first_problem = self._next_key("problems")
        self._first_record = self._next_key("records")
        # places (see `encode_place`) of the lines with new problems, in the order of the problems' keys
        self._problem_places = array("q")
        self._record_places = array("q")
        self.samples = self.failures = self.skipped = 0

    @property
    def problems(self) -> int:
        """The number of problems inserted so far."""
        return len(self._problem_places)

    def add(self, line: ProblemLine, place: int, classes: Sequence[int] | None = None) -> None:
        """Adds a line; `place` is where it was read, and `classes` its answers' class numbers, if known."""
        with map_read_errors(self._path):
            record_and_prefix = self._insert_record(line, place)
        if record_and_prefix is None:
            return
        record, prefix = record_and_prefix
        _, question, gold, *_ = line.problem
        self._rows += grade_samples(
            line.samples, question, gold, record=record, prefix=prefix, task=self._task, classes=classes
        )
        if line.failures:
            insert_failures(self._connection, line.failures, record=record, prefix=prefix)
        self.samples += len(line.samples)
        self.failures += len(line.failures)
        if len(self._rows) >= _BATCH_SAMPLES:
            self.flush()

    def _insert_record(self, line: ProblemLine, place: int) -> tuple[int, bytes] | None:
        """Inserts the row that links a problem to a source; returns None if the line adds no samples."""
        problem, new = self._insert_problem(line.problem, place)
        if line.bare:  # the line consists of a problem alone, and the problem has just been stored
            self.skipped += not new and problem < self._first_problem
            return None
        source = self._get_source(line)
        record, prefix, new = get_or_insert_record(
            self._connection, problem, line.problem[0], source, line.spelling
        )
        if not new:
            self._handle_duplicate(line, self._find_place(record, self._first_record, self._record_places))
            return None
        self._record_places.append(place)
        return record, prefix

    def flush(self) -> None:
        """Inserts the samples that are waiting in memory."""
        insert_samples(self._connection, self._rows)
        self._rows.clear()

    def _insert_problem(self, row: ProblemRow, place: int) -> tuple[int, bool]:
        existing = self._connection.execute(
            "SELECT * FROM problems WHERE id = ?", (_check_id(row[0]),)
        ).fetchone()
        if existing is None:
            key = insert_problem(self._connection, row)
            self._problem_places.append(place)
            return key, True
        if (difference := _find_difference(row, existing[1:])) is not None:
            first = self._find_place(existing[0], self._first_problem, self._problem_places)
            where = f"in {self._format_place(first)}" if first is not None else "in the pool"
            raise DuplicateRecord(
                f"id {row[0]!r} is already {where} with another {difference[0]}; give each problem its own id"
            )
        return int(existing[0]), False

    def _get_source(self, line: ProblemLine) -> Source:
        key = (line.model, to_canonical_json(line.parameters))
        if key not in self._sources:
            self._sources[key] = get_or_insert_source(self._connection, line.model, line.parameters)
        return self._sources[key]

    def _handle_duplicate(self, line: ProblemLine, first: int | None) -> None:
        id_ = line.problem[0]
        if first is not None:
            raise DuplicateRecord(
                f"id {id_!r} is already in {self._format_place(first)} with the same model and parameters; "
                "keep one, or put their samples together"
            )
        if not self._skip:
            raise DuplicateRecord(
                f"id {id_!r} is already in the pool with the same model and parameters; "
                'import with existing="skip" (--existing skip) to leave it as it is'
            )
        self.skipped += 1

    def _find_place(self, key: int, first: int, places: "array[int]") -> int | None:
        return places[key - first] if key >= first else None

    def _next_key(self, table: str) -> int:
        with map_read_errors(self._path):
            (last,) = self._connection.execute(f"SELECT max(key) FROM {table}").fetchone()  # noqa: S608 - our own names
            return int(last or 0) + 1


def _check_id(text: str) -> str:
    encode_text(text)
    if len(text) > 100_000:
        raise Flaw(f"'id' has {len(text)} characters; give at most 100000")
    return text


# --- calls ---

_INSERT_CALL = "INSERT INTO calls VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT_CALL_SUMS = """
    SELECT count(*), total(paid = 'yes'), total(paid = 'maybe'), total(asked), total(got),
        total(iif(paid = 'yes', prompt_tokens, 0)), total(iif(paid = 'yes', completion_tokens, 0)),
        total(iif(paid = 'maybe', prompt_tokens, 0)), total(iif(paid = 'maybe', completion_tokens, 0)),
        total(estimated)
    FROM calls WHERE source = ?
"""
_SELECT_LARGEST_REPLY = "SELECT max(got + surplus) FROM calls WHERE source = ? AND paid = 'yes'"
_ACCOUNT_FIELDS = [field.name for field in fields(Account)]  # must have the same order as _SELECT_CALL_SUMS
_UNSTORED = ("cached_tokens", "estimated", "unmetered", "usage_details")
_CALL_FIELDS = [field.name for field in fields(Call) if field.name not in _UNSTORED]
_SELECT_CALLS = f"SELECT {', '.join(_CALL_FIELDS)}, estimated FROM calls WHERE source = ? ORDER BY key"  # noqa: S608 - ours


def insert_calls(connection: sqlite3.Connection, calls: Iterable[Call], source: Source) -> None:
    """Inserts calls to one source (a model with its parameters), in the given order."""
    connection.executemany(_INSERT_CALL, [_build_call_row(call, source) for call in calls])


def sum_calls(connection: sqlite3.Connection, source: int | None) -> Account:
    """Sums all calls to one source (a model with its parameters); the sums are 0 if there are none."""
    if source is None or not has_calls_table(connection):
        return Account()
    row = connection.execute(_SELECT_CALL_SUMS, (source,)).fetchone()
    return Account(**dict(zip(_ACCOUNT_FIELDS, map(int, row), strict=True)))


def read_charge(connection: sqlite3.Connection, source: int | None) -> PromptCharge:
    """Derives from the recorded calls to one source how its prompts were charged."""
    account = sum_calls(connection, source)
    if not account.paid or not account.prompt_tokens:
        return PromptCharge()
    (largest,) = connection.execute(_SELECT_LARGEST_REPLY, (source,)).fetchone()
    return PromptCharge(tokens=account.prompt_tokens / account.paid, choices=max(1, largest))


def read_calls(connection: sqlite3.Connection, source: int | None) -> Iterator[Call]:
    """Yields every call to one source (a model with its parameters), in the order of storage."""
    if source is None or not has_calls_table(connection):
        return
    for *row, estimated in connection.execute(_SELECT_CALLS, (source,)):
        yield Call(**dict(zip(_CALL_FIELDS, row, strict=True)), estimated=bool(estimated))


def _build_call_row(call: Call, source: Source) -> tuple[object, ...]:
    at, seconds = float(call.at) + 0.0, float(call.seconds) + 0.0
    if call.paid not in ("yes", "no", "maybe"):
        raise Flaw(f"a call's paid is {call.paid!r}; give 'yes', 'no' or 'maybe'")
    numbers = (at, seconds, call.asked, call.got, call.surplus)
    tokens = (call.prompt_tokens, call.completion_tokens, int(call.estimated))
    kind, paid = encode_text(call.kind) or b"", call.paid.encode()
    mark = source.fingerprint.encode()
    row_hash = hash_call(encode_text(source.model), mark, *numbers, kind, call.status, paid, *tokens)
    return (source.key, *numbers, call.kind, call.status, call.paid, *tokens, row_hash)
