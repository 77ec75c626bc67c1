"""Connections to a pool's SQLite: reading, writing, building, temporary. Knows nothing of what is in it."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from adacompute.answers import Task
from adacompute.errors import NotAPool, TaskError
from adacompute.pool.faults import mapped
from adacompute.pool.publish import published
from adacompute.pool.schema import MIGRATIONS, applied, migrate, recognise, stored_task

__all__ = ["built", "connected", "fitting_task", "temporary"]

_WAIT = 30.0  # seconds for another process to finish a transaction
_CACHE = "PRAGMA cache_size = -65536"  # 64 MiB: bounds an import's memory


def connected(path: Path, *, write: bool) -> sqlite3.Connection:
    """An open pool, recognised and of a version that we know; SQLite doesn't touch a file that is none."""
    recognise(path)
    with mapped(path):
        connection = _connect(_address(path, write=write))
        try:
            if write:
                # FULL: a commit is on the disk when it returns, so a power cut loses no sample that
                # was paid for; NORMAL would survive kill -9 alone
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA fullfsync = ON")  # macOS: down to the disk itself
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(_CACHE)
            else:
                connection.execute("PRAGMA query_only = ON")
            _check_version(connection, path, write=write)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def built(path: Path, task: Task) -> Iterator[sqlite3.Connection]:
    """A new pool, filled beside `path` and moved there when whole. The caller holds the lock."""
    stored = json.dumps(task.to_dict())
    with (
        mapped(path),
        published(path, mark="building") as beside,
        contextlib.closing(_connect(f"{beside.absolute().as_uri()}?mode=rwc")) as connection,
    ):
        _prepare(connection, stored)
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")


@contextlib.contextmanager
def temporary(name: str) -> Iterator[sqlite3.Connection]:
    """A private pool of a file's contents: in memory, beyond the cache in a file already unlinked."""
    with mapped(name):
        connection = _connect("file:")  # the empty name is SQLite's for a temporary database
        try:
            _prepare(connection, "{}")
            yield connection
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise


def fitting_task(connection: sqlite3.Connection, path: Path, task: Task | None) -> Task:
    """The pool's own task; another one asked for is refused."""
    with mapped(path):
        own = stored_task(connection, path)
    if task is not None and task != own:
        raise TaskError(f"{path}: was made with {own}, not {task}; leave the task out, or make another pool")
    return own


def _prepare(connection: sqlite3.Connection, task: str) -> None:
    connection.execute("PRAGMA journal_mode = OFF")  # on an error the whole file goes
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_CACHE)
    migrate(connection)
    connection.execute("INSERT INTO settings VALUES ('task', ?)", (task,))


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False, cached_statements=64
    )


def _address(path: Path, *, write: bool) -> str:
    """Readers too open for writing where they may: then the last one out tidies the log away."""
    uri = path.absolute().as_uri()
    if write or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return f"{uri}?mode=rw"
    log = path.with_name(path.name + "-wal")
    return f"{uri}?mode=ro" if log.exists() else f"{uri}?mode=ro&immutable=1"


def _check_version(connection: sqlite3.Connection, path: Path, *, write: bool) -> None:
    done = applied(connection)
    if unknown := sorted(done - set(MIGRATIONS)):
        raise NotAPool(f"{path}: is from a newer version of adacompute ({unknown[0]}); upgrade adacompute")
    if done == set(MIGRATIONS):
        return
    if not write:
        raise NotAPool(
            f"{path}: is from an older version; open it once with write=True to bring it up to date"
        )
    migrate(connection)
