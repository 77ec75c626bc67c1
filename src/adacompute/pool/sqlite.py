"""Opens, creates and migrates a pool's SQLite file, converts its errors, and hashes its rows.

Each row is stored with its hash, so that later changes to the file can be detected.
"""

import contextlib
import errno
import json
import os
import re
import sqlite3
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.answers import Task
from adacompute.atomic import publish_file
from adacompute.errors import (
    NotAPool,
    PoolDamaged,
    PoolError,
    PoolFull,
    PoolLocked,
    PoolNotFound,
    RecordInvalid,
    TaskError,
    format_value,
    to_one_line,
)

APPLICATION_ID = 0x41444143  # "ADAC" in ASCII, stored in SQLite's header to recognise a pool

_MAGIC = b"SQLite format 3\0"
_MIN_BYTES = 512  # minimum size of an SQLite file (one page), in bytes
_APPLICATION_ID_OFFSET = 68  # offset of the application id in SQLite's header


def _read_migrations() -> dict[str, str]:
    """Reads the SQL statements of each migration, by name."""
    text = files("adacompute.pool").joinpath("migrations.sql").read_text("utf-8")
    _, *parts = re.split(r"^-- ([0-9]{4}\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


# migration's name -> its SQL; a pool gets each migration once, in this order, and stores the name
MIGRATIONS: Mapping[str, str] = _read_migrations()
OPTIONAL_MIGRATIONS = frozenset(["0002_calls"])  # migrations that a pool can be read without


def migrate(connection: sqlite3.Connection, migrations: Mapping[str, str] = MIGRATIONS) -> list[str]:
    """Applies the migrations that a pool lacks, in one transaction, and returns their names."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) WITHOUT ROWID")
        done = read_applied_migrations(connection)
        missing = [name for name in migrations if name not in done]
        for name in missing:
            for statement in migrations[name].split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?)", (name,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return missing


def read_applied_migrations(connection: sqlite3.Connection) -> set[str]:
    """Reads the names of the migrations applied to this pool."""
    return {name for (name,) in connection.execute("SELECT name FROM migrations")}


def is_sqlite(path: Path) -> bool:
    """Whether a file is an SQLite database, perhaps a damaged one."""
    return _read_application_id(path) is not None


def check_is_pool(path: Path) -> None:
    """Raises NotAPool unless the file's header identifies it as a pool; never changes the file."""
    application_id = _read_application_id(path)
    if application_id is None and not path.stat().st_size:
        raise NotAPool(f"{path}: is an empty file; remove it, then create the pool")
    if application_id is None:
        raise NotAPool(
            f"{path}: is not a pool; give a pool, a .jsonl, .jsonl.gz or .parquet file, or a folder"
        )
    if application_id != APPLICATION_ID:
        raise NotAPool(f"{path}: is an SQLite database of something else; give a pool")


def _read_application_id(path: Path) -> int | None:
    """Reads the application id of an SQLite file; returns None if the file is empty or isn't from SQLite.

    SQLite itself must read the id: closing the file ourselves would release this process's locks on the pool.
    A reader in another process could then delete the log that we write to.
    """
    try:
        with map_errors(path):
            file_status = path.stat()
    except PoolNotFound as exc:
        raise PoolNotFound(f"{path}: there is no such pool; check the path, or create it") from exc
    if stat.S_ISDIR(file_status.st_mode):
        raise NotAPool(f"{path}: is a folder; give a file, or a folder of .parquet files")
    if not stat.S_ISREG(file_status.st_mode) or not file_status.st_size:
        return None
    if file_status.st_size < _MIN_BYTES:  # SQLite would take such a short file for a new database
        return _read_damaged_application_id(path)
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"  # immutable: SQLite uses no lock or log
    with map_errors(path):
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                return int(connection.execute("PRAGMA application_id").fetchone()[0])
        except sqlite3.DatabaseError as exc:
            if exc.sqlite_errorname == "SQLITE_CANTOPEN":
                path.open("rb").close()  # raises an OSError that says why the file can't be opened
            if exc.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise
            return _read_damaged_application_id(path)


def _read_damaged_application_id(path: Path) -> int | None:
    """Reads the application id of a file that SQLite can't open; None if it isn't from SQLite.

    SQLite has no locks on such a file, so closing it here can't release any.
    """
    with path.open("rb") as file:
        header = file.read(100)
    return (
        int.from_bytes(header[_APPLICATION_ID_OFFSET : _APPLICATION_ID_OFFSET + 4], "big")
        if header.startswith(_MAGIC)
        else None
    )


_BUSY_SECONDS = 30.0  # maximum wait for another process's transaction
_READER_PRAGMAS = ("PRAGMA query_only = ON",)
_WRITER_PRAGMAS = (
    # FULL: no power cut loses a sample that was paid for; NORMAL would only protect against a killed process
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # on macOS, also flushes the disk's own cache
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -8192",  # 8 MiB are enough, because samples are inserted in order
)
# beginnings of SQLite error names that may mean that a reader can't create the log files it needs
_UNWRITABLE_ERRORS = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


def connect_pool(path: Path, *, write: bool) -> sqlite3.Connection:
    """Checks the header and version of the pool at `path`, and connects to it."""
    check_is_pool(path)
    with map_read_errors(path):
        if write:
            return _open_connection(f"{_to_uri(path)}?mode=rw", path, _WRITER_PRAGMAS)
        try:
            return _open_connection(_choose_reader_address(path), path, _READER_PRAGMAS)
        except sqlite3.OperationalError as exc:
            if not str(exc.sqlite_errorname).startswith(_UNWRITABLE_ERRORS):
                raise
            if _has_log(path):
                raise PoolError(
                    f"{path}: has calls in the log beside it ({path.name}-wal), which can't be read without "
                    f"writing beside it too ({to_one_line(exc)}); copy both files to where there is room and "
                    "permission to write, and read them there"
                ) from exc
            return _open_connection(f"{_to_uri(path)}?mode=ro&immutable=1", path, _READER_PRAGMAS)


def _open_connection(address: str, path: Path, pragmas: Sequence[str]) -> sqlite3.Connection:
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    new = not (log.exists() or shared.exists())
    connection = _connect(address)
    try:
        for statement in pragmas:
            connection.execute(statement)
        _check_version(connection, path, write=pragmas is _WRITER_PRAGMAS)
    except BaseException:
        connection.close()
        if new and not _has_log(path):  # remove the useless log files that SQLite leaves if the disk is full
            log.unlink(missing_ok=True)
            shared.unlink(missing_ok=True)
        raise
    return connection


@contextlib.contextmanager
def build_pool(path: Path, task: Task) -> Iterator[sqlite3.Connection]:
    """Creates a pool under a temporary name, and moves it to `path` when the context ends without an error.

    The caller must hold the writer's lock.
    """
    task_json = json.dumps(task.to_dict())
    with (
        map_errors(path),
        publish_file(path, exclusive=True) as temporary,
        contextlib.closing(_connect(f"{temporary.absolute().as_uri()}?mode=rwc")) as connection,
    ):
        _prepare(connection, task_json)
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def build_private_pool(name: str, fill: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """Builds a temporary pool and lets `fill` insert its content; SQLite moves a large one to disk."""
    with map_errors(name):
        connection = _connect("file:")  # SQLite creates a temporary database, because no file is named
        try:
            _prepare(connection, "{}")
            connection.execute("BEGIN")
            fill(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def check_task(connection: sqlite3.Connection, path: Path, task: Task | None) -> Task:
    """Returns the task that the pool was created with; raises TaskError if `task` is a different one."""
    with map_read_errors(path):
        row = connection.execute("SELECT value FROM settings WHERE name = 'task'").fetchone()
    if row is None:
        raise PoolDamaged(f"{path}: its task is missing; restore it from a copy")
    try:
        pool_task = Task.from_dict(json.loads(row[0]))
    except (*DAMAGE_ERRORS, TaskError) as exc:
        raise PoolDamaged(
            f"{path}: its task {format_value(row[0])} can't be read; restore it from a copy"
        ) from exc
    if task is not None and task != pool_task:
        raise TaskError(f"{path}: {describe_task_conflict(pool_task, task)}")
    return pool_task


def describe_task_conflict(pool_task: Task, task: Task) -> str:
    """Returns a message that says how a pool's task differs from `task`, and what to do about it."""
    settings = [(name, getattr(pool_task, name), getattr(task, name)) for name in ("extract", "percent")]
    differences = " and ".join(
        f"{name} {own!r}, not {other!r}" for name, own, other in settings if own != other
    )
    return (
        f"was made with {differences}; leave that out, or read its texts again into another pool: "
        f"adacompute import OLD --pool NEW --reread --extract … --percent …"
    )


def _prepare(connection: sqlite3.Connection, task: str) -> None:
    connection.execute("PRAGMA journal_mode = OFF")  # if an error occurs, the whole file is removed
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -65536")  # 64 MiB, to limit the memory that an import needs
    migrate(connection)
    task_hash = hash_setting(b"task", task.encode())
    connection.execute("INSERT INTO settings VALUES ('task', ?, ?)", (task, task_hash))


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address,
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )


def _choose_reader_address(path: Path) -> str:
    """Returns a reader's URI; it allows writing if possible, so that SQLite can remove its log on closing."""
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return f"{_to_uri(path)}?mode=rw"
    return f"{_to_uri(path)}?mode=ro" if _has_log(path) else f"{_to_uri(path)}?mode=ro&immutable=1"


def _to_uri(path: Path) -> str:
    return path.absolute().as_uri()


def _has_log(path: Path) -> bool:
    """Whether SQLite's log may have commits that aren't in the pool's main file yet."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _check_version(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    applied_migrations = read_applied_migrations(connection)
    if unknown := sorted(applied_migrations - set(MIGRATIONS)):
        raise NotAPool(f"{path}: is from a newer version of adacompute ({unknown[0]}); upgrade adacompute")
    missing = set(MIGRATIONS) - applied_migrations
    if not missing or (not write and missing <= OPTIONAL_MIGRATIONS):
        return
    if not write:
        raise NotAPool(
            f"{path}: is from an older version; open it once with write=True to bring it up to date"
        )
    migrate(connection)


_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextlib.contextmanager
def map_errors(path: str | Path) -> Iterator[None]:
    """Converts SQLite and file system errors to this package's errors, which name `path`."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise translate_error(exc, path) from exc
    except UnicodeDecodeError as exc:  # stored text or SQLite's message isn't valid UTF-8
        raise build_damage_error(exc, path) from exc


@contextlib.contextmanager
def map_read_errors(path: str | Path) -> Iterator[None]:
    """Converts the same errors as `map_errors`, and also errors that a damaged row causes when it is read."""
    try:
        with map_errors(path):
            yield
    except DAMAGE_ERRORS as exc:
        raise build_damage_error(exc, path) from exc


def build_damage_error(exc: Exception, path: str | Path) -> PoolDamaged:
    """Builds the error for a pool whose content has changed since it was written."""
    return PoolDamaged(
        f"{path}: is damaged ({to_one_line(exc)}); restore it from a copy, or import its source again"
    )


def translate_error(exc: sqlite3.Error | OSError, path: str | Path) -> Exception:
    """Returns this package's error for an SQLite or file system error, or `exc` itself if there is none."""
    if isinstance(exc, sqlite3.Error):
        return _translate_sqlite_error(exc, path)
    if exc.errno in _FULL_ERRNOS:
        return PoolFull(
            f"{path}: {exc.strerror}; what was stored before is intact, free some space and retry"
        )
    if exc.errno in _DENIED_ERRNOS:
        return PoolError(f"{path}: {exc.strerror}; check the permissions of the file and its folder")
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return PoolNotFound(f"{path}: there is no such file or folder; check the path")
    if exc.errno == errno.EISDIR:
        return NotAPool(f"{path}: is a folder; give a file, or a folder of .parquet files")
    if exc.errno == errno.ENAMETOOLONG:
        return PoolError(f"{path}: the name is too long; give a shorter one")
    if exc.errno is None or exc.errno == errno.EPIPE:  # from a library or a closed pipe, not from the file
        return exc
    return PoolError(f"{path}: {exc.strerror or to_one_line(exc)}; check the file and the disk it is on")


def _translate_sqlite_error(exc: sqlite3.Error, path: str | Path) -> Exception:
    name, message = str(getattr(exc, "sqlite_errorname", "")), to_one_line(exc)
    read_errors = ("SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", *read_errors)) or "decode to UTF-8" in message:
        return build_damage_error(exc, path)
    if name == "SQLITE_ERROR" and "transaction" not in message:
        return build_damage_error(exc, path)  # our SQL is valid, so a table or column must be missing
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PoolFull(
            f"{path}: the disk is full or refuses writes ({message}); "
            "what was stored before is intact, free some space and retry"
        )
    if name.startswith("SQLITE_READONLY"):
        return PoolError(
            f"{path}: can't be written ({message}); check the permissions of the file and its folder"
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return PoolError(f"{path}: can't be opened ({message}); check the path and its permissions")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PoolLocked(f"{path}: another process holds it ({message}); wait for it to end, or stop it")
    if isinstance(exc, sqlite3.ProgrammingError) and "closed" in message:
        return PoolError(f"{path}: the pool is closed; open it again")
    return PoolError(f"{path}: SQLite refused ({message}); check the pool with verify() (pool --verify)")


# --- hashes of rows ---

OptionalBytes = bytes | None
Json: TypeAlias = Any  # parsed JSON data

NO_CLASS = -9  # takes the place of class numbers in a pool's digest, because these are computed, not recorded
DEPTH_LIMIT = 100  # maximum levels of nesting in a field: more than tools write, and safe for Python's stack
_HASH_BYTES = 16  # 128 bits make collisions practically impossible
_NOT_RECORDED = float("nan")  # hashed in place of a missing number; no stored number is NaN
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SAMPLE_STRUCT = struct.Struct("<qqqqdddqqq")
_FAILURE_STRUCT = struct.Struct("<qqdqq")
_CALL_STRUCT = struct.Struct("<ddqqqqqqq")


# exceptions that mean that a pool is damaged, if they are raised while its rows are read
DAMAGE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error)


def to_canonical_json(value: Json) -> str:
    """Returns JSON with sorted keys and no spaces, so that the same data always gives the same text.

    Raises ValueError on NaN or infinity.
    """
    return _ENCODER.encode(value)


def fingerprint(parameters: Mapping[str, Any]) -> str:
    """Computes a stable hash of sampling parameters, as 32 hex digits.

    The numbers 1 and 1.0 give the same hash, and the order of keys doesn't matter.

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
    """Converts floats without a fraction, such as 1.0, to integers, at all levels of nesting."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _normalise_numbers(v, depth + 1) for key, v in value.items()}
    return [_normalise_numbers(v, depth + 1) for v in value] if isinstance(value, list | tuple) else value


def hash_setting(name: bytes, value: bytes) -> bytes:
    """Hashes a row of a pool's settings, such as its task."""
    return _hash_parts(b"setting", name, value)


def hash_problem(
    id: bytes,  # noqa: A002 - the column's name
    question: bytes,
    gold: OptionalBytes,
    subject: OptionalBytes,
    level: int | float | bytes | None,
    extra: OptionalBytes,
) -> bytes:
    """Hashes a problem's row."""
    return _hash_parts(b"problem", id, question, gold, subject, _encode_level(level), extra)


def make_record_prefix(id: bytes, model: OptionalBytes, source_fingerprint: bytes) -> bytes:  # noqa: A002
    """Builds a prefix that ties a row's hash to its problem and source, so that moved rows don't match."""
    return _hash_parts(b"source", id, model, source_fingerprint)


def hash_record(prefix: bytes, spelling: OptionalBytes) -> bytes:
    """Hashes the row that links a problem to a source (a model with its parameters)."""
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
    """Hashes a sample's row; `number` is the class number of its answer, or `NO_CLASS` to leave it out."""
    head = _SAMPLE_STRUCT.pack(
        *(idx, number),
        *(-1 if n is None else n for n in (tokens, finished)),
        *(_NOT_RECORDED if x is None else x for x in (correct, logprob, entropy)),
        *(-1 if part is None else len(part) for part in (text, answer, extra)),
    )
    parts = (prefix, head, text or b"", answer or b"", extra or b"")
    return blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()


def hash_failure(
    prefix: bytes, idx: int, kind: bytes, attempt: int, message: OptionalBytes, at: float | None
) -> bytes:
    """Hashes a failure's row."""
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
    """Hashes a call's row together with its source (a model with its parameters)."""
    numbers = (status, prompt_tokens, completion_tokens)
    head = _CALL_STRUCT.pack(
        at, seconds, asked, got, surplus, *(-1 if n is None else n for n in numbers), estimated
    )
    return _hash_parts(b"call", model, source_fingerprint, head, kind, paid)


def _hash_parts(*parts: OptionalBytes) -> bytes:
    lengths = struct.pack(f"<{len(parts)}q", *(-1 if p is None else len(p) for p in parts))
    return blake2b(b"".join((lengths, *(p or b"" for p in parts))), digest_size=_HASH_BYTES).digest()


def _encode_level(level: int | float | bytes | None) -> OptionalBytes:
    if level is None:
        return None
    if isinstance(level, bytes):
        return b"s" + level
    return b"f" + struct.pack("<d", level) if isinstance(level, float) else b"i%d" % level


def has_calls_table(connection: sqlite3.Connection) -> bool:
    """Whether the pool has a table for calls; pools created by the first version have none."""
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'calls'")
    return tables.fetchone() is not None
