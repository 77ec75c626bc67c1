"""Connections to a pool's SQLite: reading, writing, building, temporary. Knows nothing of what is in it."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from adacompute.answers import Task
from adacompute.errors import NotAPool, PoolError, TaskError
from adacompute.pool.faults import mapped, one_line, sound
from adacompute.pool.publish import published
from adacompute.pool.schema import ADDED, MIGRATIONS, applied, migrate, recognise, store_task, stored_task

__all__ = ["built", "connected", "fitting_task", "made_otherwise", "private"]

_WAIT = 30.0  # seconds for another process to finish a transaction
_CACHE = "PRAGMA cache_size = -65536"  # 64 MiB: bounds an import's memory
_READER = ("PRAGMA query_only = ON",)
_WRITER = (
    # FULL: a commit is on the disk when it returns, so a power cut loses no sample that was paid for;
    # NORMAL would survive kill -9 alone
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: down to the disk itself
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -8192",  # 8 MiB: samples come in order, and a long collection stays small
)
# what SQLite says where a reader can't make the files that it shares with writers
_UNWRITABLE = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


def connected(path: Path, *, write: bool) -> sqlite3.Connection:
    """An open pool, recognised and of a version that we know; SQLite doesn't touch a file that is none."""
    recognise(path)
    with sound(path):
        if write:
            return _opened(f"{_uri(path)}?mode=rw", path, _WRITER)
        try:
            return _opened(_address(path), path, _READER)
        except sqlite3.OperationalError as exc:
            if not str(exc.sqlite_errorname).startswith(_UNWRITABLE):
                raise
            if _has_log(path):
                raise PoolError(
                    f"{path}: has calls in the log beside it ({path.name}-wal), which can't be read without "
                    f"writing beside it too ({one_line(exc)}); copy both files to where there is room and "
                    "permission to write, and read them there"
                ) from exc
            return _opened(f"{_uri(path)}?mode=ro&immutable=1", path, _READER)


def _opened(address: str, path: Path, settings: Sequence[str]) -> sqlite3.Connection:
    log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    new = not (log.exists() or shared.exists())
    connection = _connect(address)
    try:
        for statement in settings:
            connection.execute(statement)
        _check_version(connection, path, write=settings is _WRITER)
    except BaseException:
        connection.close()
        if new and not _has_log(path):  # on a full disk SQLite leaves these behind
            log.unlink(missing_ok=True)
            shared.unlink(missing_ok=True)
        raise
    return connection


@contextlib.contextmanager
def built(path: Path, task: Task) -> Iterator[sqlite3.Connection]:
    """A new pool, filled beside `path` and moved there when whole. The caller holds the lock."""
    stored = json.dumps(task.to_dict())
    with (
        mapped(path),
        published(path, alone=True) as beside,
        contextlib.closing(_connect(f"{beside.absolute().as_uri()}?mode=rwc")) as connection,
    ):
        _prepare(connection, stored)
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


def private(name: str, fill: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """A pool for one file's contents, filled: in memory, beyond the cache in a file already unlinked."""
    with mapped(name):
        connection = _connect("file:")  # the empty name is SQLite's for a temporary database
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


def fitting_task(connection: sqlite3.Connection, path: Path, task: Task | None) -> Task:
    """The pool's own task; another one asked for is refused."""
    with sound(path):
        own = stored_task(connection, path)
    if task is not None and task != own:
        raise TaskError(f"{path}: {made_otherwise(own, task)}")
    return own


def made_otherwise(own: Task, task: Task) -> str:
    """That a pool reads answers in a way of its own, and what to do about it."""
    ways = [(name, getattr(own, name), getattr(task, name)) for name in ("extract", "percent")]
    said = " and ".join(f"{name} {one!r}, not {other!r}" for name, one, other in ways if one != other)
    return (
        f"was made with {said}; leave that out, or read its texts anew into another pool: "
        f"adacompute import OLD --pool NEW --reread --extract … --percent …"
    )


def _prepare(connection: sqlite3.Connection, task: str) -> None:
    connection.execute("PRAGMA journal_mode = OFF")  # on an error the whole file goes
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_CACHE)
    migrate(connection)
    store_task(connection, task)


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False, cached_statements=64
    )


def _address(path: Path) -> str:
    """Readers too open for writing where they may: then the last one out tidies the log away."""
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return f"{_uri(path)}?mode=rw"
    return f"{_uri(path)}?mode=ro" if _has_log(path) else f"{_uri(path)}?mode=ro&immutable=1"


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _has_log(path: Path) -> bool:
    """Whether calls that returned may be in the log alone, not yet in the pool's file."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _check_version(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    done = applied(connection)
    if unknown := sorted(done - set(MIGRATIONS)):
        raise NotAPool(f"{path}: is from a newer version of adacompute ({unknown[0]}); upgrade adacompute")
    missing = set(MIGRATIONS) - done
    if not missing or (not write and missing <= ADDED):
        return
    if not write:
        raise NotAPool(
            f"{path}: is from an older version; open it once with write=True to bring it up to date"
        )
    migrate(connection)
