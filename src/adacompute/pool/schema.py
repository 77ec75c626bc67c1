"""The tables of a pool and how they came to be. Knows nothing of what is in them."""

import contextlib
import json
import sqlite3
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from adacompute.answers import Task
from adacompute.errors import NotAPool, PoolDamaged, PoolNotFound, TaskError
from adacompute.pool.content import setting_hash
from adacompute.pool.faults import UNSOUND, mapped
from adacompute.pool.flaw import shown

__all__ = [
    "ADDED",
    "APPLICATION_ID",
    "MIGRATIONS",
    "applied",
    "is_sqlite",
    "migrate",
    "recognise",
    "store_task",
    "stored_task",
]

APPLICATION_ID = 0x41444143  # "ADAC", in the file's header

_MAGIC = b"SQLite format 3\0"
_SMALLEST = 512  # bytes of a page
_OFFSET = 68  # of the application id in the header, big-endian

Migration = Callable[[sqlite3.Connection], None]

_FIRST = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE problems (
        key INTEGER PRIMARY KEY,  -- the order in which they came
        id TEXT NOT NULL UNIQUE,
        question TEXT NOT NULL,
        gold TEXT,
        subject TEXT,
        level,  -- a number or text, as given
        extra TEXT,  -- unknown keys, canonical JSON
        hash BLOB NOT NULL
    )""",
    """CREATE TABLE sources (
        key INTEGER PRIMARY KEY,
        model TEXT,
        parameters TEXT NOT NULL,  -- JSON
        fingerprint TEXT NOT NULL
    )""",
    # a plain UNIQUE would let two nameless models in: NULL equals nothing
    "CREATE UNIQUE INDEX one_source ON sources (model IS NULL, coalesce(model, ''), fingerprint)",
    """CREATE TABLE records (
        key INTEGER PRIMARY KEY,
        problem INTEGER NOT NULL REFERENCES problems (key),
        source INTEGER NOT NULL REFERENCES sources (key),
        spelling TEXT,  -- keys given empty or null, canonical JSON
        hash BLOB NOT NULL,
        UNIQUE (problem, source)
    )""",
    """CREATE TABLE samples (
        record INTEGER NOT NULL REFERENCES records (key),
        idx INTEGER NOT NULL CHECK (idx >= 0),
        text TEXT,
        answer TEXT,  -- NULL abstains
        class INTEGER NOT NULL CHECK (class >= 0 OR (class = -1 AND answer IS NULL)),
        correct REAL CHECK (correct BETWEEN 0 AND 1),
        tokens INTEGER CHECK (tokens >= 0),
        logprob REAL,
        entropy REAL,
        finished INTEGER CHECK (finished IN (0, 1)),
        extra TEXT,
        hash BLOB NOT NULL,
        PRIMARY KEY (record, idx)
    )""",
    """CREATE TABLE failures (
        key INTEGER PRIMARY KEY,
        record INTEGER NOT NULL REFERENCES records (key),
        idx INTEGER NOT NULL CHECK (idx >= 0),
        kind TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        message TEXT,
        at REAL,
        hash BLOB NOT NULL
    )""",
    "CREATE INDEX failures_of ON failures (record)",
)


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in _FIRST:
        connection.execute(statement)


def _calls(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE calls (
            key INTEGER PRIMARY KEY,
            source INTEGER NOT NULL REFERENCES sources (key),
            at REAL NOT NULL,  -- seconds since 1970, UTC
            seconds REAL NOT NULL,
            asked INTEGER NOT NULL,
            got INTEGER NOT NULL,
            surplus INTEGER NOT NULL,
            kind TEXT NOT NULL,  -- ok, or of the error
            status INTEGER,  -- of HTTP
            paid TEXT NOT NULL CHECK (paid IN ('yes', 'no', 'maybe')),
            prompt_tokens INTEGER,
            completion_tokens INTEGER,
            estimated INTEGER NOT NULL CHECK (estimated IN (0, 1)),
            hash BLOB NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX calls_of ON calls (source)")


# Applied once each, in this order, and recorded by name. Never edit one that was released: add another.
MIGRATIONS: Mapping[str, Migration] = {"0001_first_tables": _first_tables, "0002_calls": _calls}
ADDED = frozenset(["0002_calls"])  # a pool can be read without them


def migrate(connection: sqlite3.Connection, migrations: Mapping[str, Migration] = MIGRATIONS) -> list[str]:
    """Applies what is not yet applied, all in one transaction; answers the names."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) WITHOUT ROWID")
        done = applied(connection)
        missing = [name for name in migrations if name not in done]
        for name in missing:
            migrations[name](connection)
            connection.execute("INSERT INTO migrations VALUES (?)", (name,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return missing


def applied(connection: sqlite3.Connection) -> set[str]:
    """Names of the migrations that this pool has had."""
    return {name for (name,) in connection.execute("SELECT name FROM migrations")}


def is_sqlite(path: Path) -> bool:
    """Whether a file is some SQLite database, by its first page; it is only read."""
    return _application(path) is not None


def recognise(path: Path) -> None:
    """Raises NotAPool unless the file's header is a pool's; nothing beside it is looked at or written."""
    mark = _application(path)
    if mark is None and not path.stat().st_size:
        raise NotAPool(f"{path}: is an empty file; remove it, then create the pool")
    if mark is None:
        raise NotAPool(f"{path}: is no pool; give a pool, a .jsonl, .jsonl.gz or .parquet file, or a folder")
    if mark != APPLICATION_ID:
        raise NotAPool(f"{path}: is an SQLite database of something else; give a pool")


def store_task(connection: sqlite3.Connection, task: str) -> None:
    """Keeps a new pool's task, as JSON, with its hash."""
    mark = setting_hash(b"task", task.encode())
    connection.execute("INSERT INTO settings VALUES ('task', ?, ?)", (task, mark))


def stored_task(connection: sqlite3.Connection, path: str | Path) -> Task:
    """The task that the pool was made with."""
    row = connection.execute("SELECT value FROM settings WHERE name = 'task'").fetchone()
    if row is None:
        raise PoolDamaged(f"{path}: its task is missing; restore it from a copy")
    try:
        return Task.from_dict(json.loads(row[0]))
    except (*UNSOUND, TaskError) as exc:
        raise PoolDamaged(f"{path}: its task {shown(row[0])} can't be read; restore it from a copy") from exc


def _application(path: Path) -> int | None:
    """The application id of an SQLite file; None where it is something else, or empty.

    By SQLite, never by a file of our own: closing one drops all locks that this process holds on the pool,
    and then a reader elsewhere takes itself for the last, and deletes the log that we write to.
    """
    try:
        with mapped(path):
            kind = path.stat()
    except PoolNotFound as exc:
        raise PoolNotFound(f"{path}: there is no such pool; check the path, or create it") from exc
    if stat.S_ISDIR(kind.st_mode):
        raise NotAPool(f"{path}: is a folder; give a file, or a folder of .parquet files")
    if not stat.S_ISREG(kind.st_mode) or not kind.st_size:
        return None
    if kind.st_size < _SMALLEST:  # SQLite takes it for a new database
        return _damaged(path)
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"  # no locks, no log, no journal
    with mapped(path):
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                return int(connection.execute("PRAGMA application_id").fetchone()[0])
        except sqlite3.DatabaseError as exc:
            if exc.sqlite_errorname == "SQLITE_CANTOPEN":
                path.open("rb").close()  # says why
            if exc.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise
            return _damaged(path)


def _damaged(path: Path) -> int | None:
    """As `_application`, of what SQLite can't read: so nobody has it open, and no lock is freed."""
    with path.open("rb") as file:
        header = file.read(100)
    return int.from_bytes(header[_OFFSET : _OFFSET + 4], "big") if header.startswith(_MAGIC) else None
