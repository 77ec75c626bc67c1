"""Stores a gateway's ledger in an SQLite file: spending by hour and client key, and reservations.

Committed changes survive if the process is killed. After a power loss, the latest commits may be missing, but
the file is intact: SQLite uses a write-ahead log with synchronous=NORMAL.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from adacompute.atomic import WriterLock
from adacompute.errors import ConfigError, PoolError, PoolLocked
from adacompute.serve.spending.ledger import LedgerChanges, Spend, StoredLedger

APPLICATION_ID = 0x4144414C  # the letters "ADAL", stored in the header of the file
_MAGIC = b"SQLite format 3\0"
_SQLITE_MAX = 2**63 - 1  # the largest integer in SQLite
_BUSY_SECONDS = 5.0  # how long to wait for a file locked by another process

_SELECT_SUMS = """SELECT key, sum(samples), sum(tokens), sum(nanos),
    sum(maybe_samples), sum(maybe_tokens), sum(maybe_nanos)
    FROM hours WHERE hour >= ? AND hour < ? GROUP BY key"""
_ADD_TO_HOUR = """INSERT INTO hours VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour, key) DO UPDATE SET
    samples = min(samples + excluded.samples, 0x7fffffffffffffff),
    tokens = min(tokens + excluded.tokens, 0x7fffffffffffffff),
    nanos = min(nanos + excluded.nanos, 0x7fffffffffffffff),
    maybe_samples = min(maybe_samples + excluded.maybe_samples, 0x7fffffffffffffff),
    maybe_tokens = min(maybe_tokens + excluded.maybe_tokens, 0x7fffffffffffffff),
    maybe_nanos = min(maybe_nanos + excluded.maybe_nanos, 0x7fffffffffffffff)"""
_DELETE_HOURS = "DELETE FROM hours WHERE hour >= ? AND hour < ?"
_PUT_RESERVED = "INSERT OR REPLACE INTO reserved VALUES (?, ?, ?, ?, ?, ?)"
_DELETE_RESERVED = "DELETE FROM reserved WHERE id = ?"
_PUT_NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"


class LedgerFileReplaced(Exception):
    """Raised if the file isn't the one that was opened: it was removed, replaced or damaged."""


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE hours (
            hour TEXT NOT NULL,  -- UTC, as 2026-11-15T14
            key TEXT NOT NULL,
            samples INTEGER NOT NULL, tokens INTEGER NOT NULL, nanos INTEGER NOT NULL,
            maybe_samples INTEGER NOT NULL, maybe_tokens INTEGER NOT NULL, maybe_nanos INTEGER NOT NULL,
            PRIMARY KEY (hour, key)
        ) WITHOUT ROWID"""
    )
    connection.execute(
        """CREATE TABLE reserved (
            id INTEGER PRIMARY KEY,
            hour TEXT NOT NULL,
            key TEXT NOT NULL,
            samples INTEGER NOT NULL, tokens INTEGER NOT NULL, nanos INTEGER NOT NULL
        )"""
    )
    connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")


# Migrations are applied in this order; the file's `user_version` is the number of those applied. Never edit a
# released migration: append another one.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_tables,)


class LedgerFile:
    """The ledger's file, locked against other gateways. Only one thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._path_text = str(path)  # `os.stat` is faster with a text than with a Path
        self._lock = _lock_file(path)
        self._connection: sqlite3.Connection | None = None
        self._waits_for_lock = True
        try:
            self._open()
        except (sqlite3.Error, OSError) as exc:
            self.close()
            raise ConfigError(f"{path}: the ledger can't be opened ({exc}); check the file and disk") from exc
        except BaseException:
            self.close()
            raise

    def read_latest_hour(self) -> str:
        """Returns the latest hour with spending, or "" if there is none."""
        with self._report_damage():
            return str(
                self._get_connection().execute("SELECT coalesce(max(hour), '') FROM hours").fetchone()[0]
            )

    def read(self, window: str) -> StoredLedger:
        """Returns the spending in a window, all reservations, and all data stored under names."""
        with self._report_damage():
            connection = self._get_connection()
            sums = {
                key: (_read_spend(amounts[:3]), _read_spend(amounts[3:]))
                for key, *amounts in connection.execute(_SELECT_SUMS, _hour_range(window))
            }
            reserved = {
                int(number): ((name, key), _read_spend(amounts))
                for number, name, key, *amounts in connection.execute("SELECT * FROM reserved")
            }
            return StoredLedger(
                sums, reserved, dict(connection.execute("SELECT name, value FROM notes").fetchall())
            )

    @contextlib.contextmanager
    def _report_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as exc:
            raise ConfigError(
                f"{self.path}: the ledger is damaged ({exc}); restore it from a copy, "
                "or remove it to start again"
            ) from exc

    def write(self, changes: LedgerChanges, *, wait: bool = True) -> None:
        """Writes all changes or none; raises sqlite3.Error, OSError or LedgerFileReplaced.

        If another process is writing, waits up to 5 seconds; without `wait`, raises sqlite3.Error at once.
        """
        connection = self._get_connection()
        if wait != self._waits_for_lock:
            connection.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_SECONDS) if wait else 0}")
            self._waits_for_lock = wait
        statements = _list_statements(changes)
        if len(statements) == 1:  # a single statement is already a transaction
            connection.execute(*statements[0])
            return
        connection.execute("BEGIN IMMEDIATE")
        with connection:  # commits at the end, or rolls back after an error
            for statement in statements:
                connection.execute(*statement)

    def checkpoint(self) -> None:
        """Copies the write-ahead log into the file. This may be slow, because it waits for the disk."""
        self._get_connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def reopen(self) -> bool:
        """Opens the file again, or creates it if missing; returns whether it is another file than before.

        Raises ConfigError if it isn't a ledger, sqlite3.Error or OSError if it can't be opened.
        """
        previous = self._file_id
        # asked while the old file is open, because a new file may get a closed file's inode number
        current = self._identify()
        self._close_connection()
        self._open()
        return not previous == current == self._file_id

    def close(self) -> None:
        """Closes the file and releases the lock."""
        self._close_connection()
        self._lock.close()

    def _open(self) -> None:
        _check_magic(self.path)
        address = f"{self.path.absolute().as_uri()}?mode=rwc"
        connection = sqlite3.connect(
            address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare_database(connection, self.path)
            self._file_id = self._identify()
        except BaseException:
            connection.close()
            raise
        self._connection, self._waits_for_lock = connection, True

    def _close_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _identify(self) -> tuple[int, int] | None:
        """Returns the ids that distinguish a file from one that replaces it; None if it doesn't exist."""
        try:
            status = os.stat(self._path_text)  # noqa: PTH116 - a third of the time of Path.stat
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _get_connection(self) -> sqlite3.Connection:
        """Returns the connection; raises LedgerFileReplaced if the file was removed or replaced.

        SQLite itself wouldn't notice that, and would go on writing to the old file.
        """
        if self._connection is None or self._identify() != self._file_id:
            raise LedgerFileReplaced(f"{self.path}: the file was removed or replaced; it is written again")
        return self._connection


def _list_statements(changes: LedgerChanges) -> list[tuple[str, tuple[object, ...]]]:
    """Returns the SQL statements that write the changes, with their values."""
    statements: list[tuple[str, tuple[object, ...]]] = []
    if changes.replaces_window is not None:
        statements = [(_DELETE_HOURS, _hour_range(changes.replaces_window)), ("DELETE FROM reserved", ())]
    for slot, (spent, maybe) in changes.spent.items():
        statements.append((_ADD_TO_HOUR, (*slot, *_to_columns(spent), *_to_columns(maybe))))
    for number, reserved in changes.open.items():
        if reserved is None:
            statements.append((_DELETE_RESERVED, (number,)))
        else:
            statements.append((_PUT_RESERVED, (number, *reserved[0], *_to_columns(reserved[1]))))
    for note in changes.notes.items():
        statements.append((_PUT_NOTE, note))
    return statements


def _lock_file(path: Path) -> WriterLock:
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file in it (--state)")
    try:
        return WriterLock(path)
    except PoolLocked as exc:
        raise ConfigError(
            f"{path}: another gateway keeps its ledger in it; stop that one, or give another file (--state)"
        ) from exc
    except PoolError as exc:
        raise ConfigError(str(exc)) from exc
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}; name a file that can be written (--state)") from exc


def _check_magic(path: Path) -> None:
    """Raises ConfigError if the file isn't from SQLite, before SQLite creates files next to it."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        if not file.read(len(_MAGIC)).startswith(_MAGIC):
            raise ConfigError(_explain_foreign_file(path))


def _prepare_database(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as exc:
        if exc.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
            raise
        raise ConfigError(_explain_foreign_file(path)) from exc
    if application_id != APPLICATION_ID and (application_id or tables):
        raise ConfigError(_explain_foreign_file(path))
    if version > len(MIGRATIONS):
        raise ConfigError(f"{path}: the ledger is from a newer version of adacompute; upgrade adacompute")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    # SQLite makes no checkpoints by itself, because `checkpoint` makes them
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    if application_id == APPLICATION_ID and version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        for migration in MIGRATIONS[version:]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _explain_foreign_file(path: Path) -> str:
    return f"{path}: is not a gateway's ledger; name another file (--state), or remove this one"


def _hour_range(window: str) -> tuple[str, str]:
    """Returns the lower and upper bound of the names of the hours in a window."""
    return window, window + "~"


def _to_columns(spend: Spend) -> tuple[int, int, int]:
    return min(spend.samples, _SQLITE_MAX), min(spend.tokens, _SQLITE_MAX), min(spend.nanos, _SQLITE_MAX)


def _read_spend(columns: list[object]) -> Spend:
    samples, tokens, nanos = (value if isinstance(value, int) else -1 for value in columns)
    if min(samples, tokens, nanos) < 0:
        raise ValueError(f"an amount of {columns!r}")
    return Spend(samples=samples, tokens=tokens, nanos=nanos)
