"""The file of a gateway's ledger: SQLite, and beside it a log of the changes of the last moment.

A change counts once it is in the log: one short write, some 5 µs. The log's lines are committed to SQLite in
batches, and a process that starts first commits those that its predecessor didn't come to. Each commit stores
the number of the last line that it holds, so no line counts twice. Rows are written whole, never added to, so
that writing one again does no harm. Every line ends in a checksum: a damaged one is skipped and counted.

Both survive a killed process. SQLite keeps a write-ahead log of its own with synchronous=NORMAL: a power loss
may take the last moment, and leaves the file intact.
"""

import contextlib
import os
import re
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from adacompute.atomic import WriterLock
from adacompute.errors import ConfigError, PoolError, PoolLocked
from adacompute.serve.spending.ledger import Spend

__all__ = [
    "ChangeLog",
    "HourKey",
    "LedgerChanges",
    "LedgerFile",
    "LedgerFileReplaced",
    "SpendPair",
    "StoredLedger",
]

APPLICATION_ID = 0x4144414C  # "ADAL", in the file's header
_MAGIC = b"SQLite format 3\0"
_SQLITE_MAX = 2**63 - 1  # the largest integer of SQLite
_MAX_NUMBER = 2**62  # of a reservation: what follows it can be stored as well
_BUSY_SECONDS = 5.0  # that a locked file is waited for
_PAGE_SIZE = 1024  # bytes: a commit writes two pages whole, which takes 6 µs less than with SQLite's 4096

_SELECT_SUMS = """SELECT key, sum(samples), sum(tokens), sum(nanos),
    sum(maybe_samples), sum(maybe_tokens), sum(maybe_nanos)
    FROM hours WHERE hour >= ? AND hour < ? GROUP BY key"""
_PUT_HOUR = "INSERT OR REPLACE INTO hours VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_RESERVED = "INSERT OR REPLACE INTO reserved VALUES (?, ?, ?, ?, ?, ?)"
_DELETE_RESERVED = "DELETE FROM reserved WHERE id = ?"
_PUT_NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"
_LOG_NOTE = "log"  # the id of the log, and its last line that is committed
_LOG_TITLE = b"adacompute ledger log "  # its first line: this and its id
_TITLE = re.compile(_LOG_TITLE + rb"([0-9a-f]{16})")
_SEALED = re.compile(rb"(.*) ([0-9a-f]{8})", re.DOTALL)  # a line and its checksum; older logs have none
_SEAL_LENGTH = 9  # a space and eight digits
_MAX_LOG_BYTES = 262_144  # from which on it is emptied after a commit

HourKey = tuple[str, str]  # hour, key
SpendPair = tuple[Spend, Spend]  # spent, maybe


class LedgerFileReplaced(Exception):
    """The file is no longer the one that was opened: removed, replaced or damaged."""


@dataclass(slots=True)
class LedgerChanges:
    """Rows to be written together; the newest of each wins."""

    rows: dict[HourKey, SpendPair] = field(default_factory=dict)
    open: dict[int, tuple[HourKey, Spend] | None] = field(default_factory=dict)  # None: settled
    notes: dict[str, str] = field(default_factory=dict)
    replaces_window: str | None = None  # a window: it and all reservations are written again
    line: int = 0  # the last line of the log that is in it; 0: none

    def __bool__(self) -> bool:
        return bool(self.rows or self.open or self.notes or self.replaces_window is not None)

    def add(self, newer: "LedgerChanges") -> None:
        """Merges later changes into these."""
        if newer.replaces_window is not None:
            self.rows, self.open, self.notes = {}, {}, {}
            self.replaces_window = newer.replaces_window
        self.rows.update(newer.rows)
        self.open.update(newer.open)
        self.notes.update(newer.notes)
        self.line = max(self.line, newer.line)


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """What a file holds of one window."""

    sums: dict[str, SpendPair]  # by key, of all the window's hours
    rows: dict[HourKey, SpendPair]  # of one hour, and of those with reservations
    open: dict[int, tuple[HourKey, Spend]]
    notes: dict[str, str]


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


# Applied once each, in this order; user_version counts them. Never edit one that was released: add another.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_tables,)


class LedgerFile:
    """The ledger's file, locked against a second gateway. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; name a file in it (state)")
        try:
            self._lock = WriterLock(path)
        except PoolLocked as exc:
            raise ConfigError(
                f"{path}: another gateway keeps its ledger in it; stop that one, or name another file (state)"
            ) from exc
        except PoolError as exc:
            raise ConfigError(str(exc)) from exc
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}; name a file that can be written (state)") from exc
        self.log = ChangeLog(path.with_name(path.name + "-log"))
        self._connection: sqlite3.Connection | None = None
        self._waits_for_lock = True
        self.damaged_lines = 0  # of its log, which don't count
        self._stored: set[int] = set()  # numbers of the reservations in it
        try:
            self._open()
        except (sqlite3.Error, OSError) as exc:
            self.close()
            raise ConfigError(f"{path}: the ledger can't be opened ({exc}); check the file and disk") from exc
        except BaseException:
            self.close()
            raise

    def read_latest_hour(self) -> str:
        """The name of the last hour in which anything was spent; "": none."""
        with self._report_damage():
            return str(
                self._get_connection().execute("SELECT coalesce(max(hour), '') FROM hours").fetchone()[0]
            )

    def read(self, window: str, hour: str) -> StoredLedger:
        """What was spent in the hours of a window; the rows of one of them."""
        with self._report_damage():
            return self._read_window(self._get_connection(), window, hour)

    @contextlib.contextmanager
    def _report_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as exc:
            raise ConfigError(
                f"{self.path}: the ledger is damaged ({exc}); restore it from a copy, "
                "or remove it to start again"
            ) from exc

    def _read_window(self, connection: sqlite3.Connection, window: str, hour: str) -> StoredLedger:
        sums = {
            key: (_read_spend(amounts[:3]), _read_spend(amounts[3:]))
            for key, *amounts in connection.execute(_SELECT_SUMS, _hour_range(window))
        }
        reserved = {
            int(number): ((name, key), _read_spend(amounts))
            for number, name, key, *amounts in connection.execute("SELECT * FROM reserved")
        }
        rows = {
            (name, key): (_read_spend(amounts[:3]), _read_spend(amounts[3:]))
            for changing in {hour, *(slot[0] for slot, _ in reserved.values())}
            for name, key, *amounts in connection.execute("SELECT * FROM hours WHERE hour = ?", (changing,))
        }
        notes = connection.execute("SELECT name, value FROM notes WHERE name != ?", (_LOG_NOTE,))
        return StoredLedger(sums, rows, reserved, dict(notes))

    def write(self, changes: LedgerChanges, *, wait: bool = True) -> None:
        """Writes all of it or nothing; raises what SQLite and the file system do, or LedgerFileReplaced.

        `wait`: whether to wait some seconds for another process that writes to the file; False: an
        error at once.
        """
        connection = self._get_connection()
        if wait != self._waits_for_lock:
            connection.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_SECONDS) if wait else 0}")
            self._waits_for_lock = wait
        execute, stored = connection.execute, self._stored
        log_id, line = self.log.id, changes.line
        if not log_id:
            log_id, line = secrets.token_hex(8), self.log.last_line
        execute("BEGIN IMMEDIATE")
        try:
            if changes.replaces_window is not None:
                execute(
                    "DELETE FROM hours WHERE hour >= ? AND hour < ?", _hour_range(changes.replaces_window)
                )
                execute("DELETE FROM reserved")
                stored = set()
            for slot, (spent, maybe) in changes.rows.items():
                execute(_PUT_HOUR, (*slot, *_to_columns(spent), *_to_columns(maybe)))
            for number, reserved in changes.open.items():
                if reserved is None and number in stored:
                    execute(_DELETE_RESERVED, (number,))
                elif reserved is not None:
                    execute(_PUT_RESERVED, (number, *reserved[0], *_to_columns(reserved[1])))
            for note in changes.notes.items():
                execute(_PUT_NOTE, note)
            if line or log_id != self.log.id:
                execute(_PUT_NOTE, (_LOG_NOTE, _format_log_note(log_id, line)))
            execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise
        if log_id != self.log.id:
            self.log.begin(log_id)
        self._stored = stored
        for number, reserved in changes.open.items():
            if reserved is None:
                stored.discard(number)
            else:
                stored.add(number)

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the file. May take long: it waits for the disk."""
        self._get_connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def reopen(self) -> bool:
        """Opens the file again; True if it is another one than before. Raises as `write`, or ConfigError."""
        previous = self._file_id
        same = self.is_intact  # while the old file is open, no new one can have its inode
        self._close_connection()
        self._open()
        return not same or self._file_id != previous

    def close(self) -> None:
        """Closes it, and releases the lock."""
        self._close_connection()
        self.log.close()
        self._lock.release()

    def _open(self) -> None:
        _check_magic(self.path)
        address = f"{self.path.absolute().as_uri()}?mode=rwc"
        connection = sqlite3.connect(
            address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare_database(connection, self.path)
            status = self.path.stat()
        except BaseException:
            connection.close()
            raise
        self._connection, self._waits_for_lock = connection, True
        self._file_id = (status.st_dev, status.st_ino)
        self._commit_log(connection)

    def _commit_log(self, connection: sqlite3.Connection) -> None:
        """Commits the lines of the log that aren't yet. The next write begins a new one."""
        with self._report_damage():
            self._stored = {number for (number,) in connection.execute("SELECT id FROM reserved")}
            row = connection.execute("SELECT value FROM notes WHERE name = ?", (_LOG_NOTE,)).fetchone()
            identity, line = _parse_log_note(row)
        changes = self.log.read(identity, after=line)
        self.damaged_lines += self.log.damaged_lines
        self.log.close()
        if changes:
            self.write(changes)

    def _close_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @property
    def is_intact(self) -> bool:
        """Whether its path still names the file that was opened."""
        return _identify(self.path) == self._file_id

    def _get_connection(self) -> sqlite3.Connection:
        """The connection; LedgerFileReplaced if the file is gone, because SQLite would go on writing."""
        if self._connection is None or not self.is_intact:
            raise LedgerFileReplaced(f"{self.path}: the file was removed or replaced; it is written again")
        return self._connection


class ChangeLog:
    """The changes of the last moment, a line each, in a file beside the ledger's.

    For one thread at a time. Only `append` may be called while another thread commits.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""  # which the ledger's file holds, too: lines of another log don't count; "": it is closed
        self.last_line = 0  # of this process; lines are numbered from 1
        self.damaged_lines = 0  # found by the last `read`
        self._file = -1
        self._file_id: tuple[int, int] | None = None
        self._size = 0

    def read(self, identity: str, *, after: int) -> LedgerChanges:
        """The changes of all lines after one of them; none where the log is another one, or there is none.

        What is damaged is skipped. A last line that was cut off is not: whoever wrote it was killed.
        """
        changes, self.damaged_lines = LedgerChanges(), 0
        try:
            title, *lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return changes
        stated = _TITLE.fullmatch(_unseal(title) or b"")
        if stated is None:
            self.damaged_lines = len(lines)
        if stated is None or stated[1] != identity.encode():
            return changes
        for line in lines:
            try:
                number, rows, entries, notes = orjson.loads(_unseal(line) or b"")
                if number > after:
                    changes.add(_parse_changes(rows, entries, notes))
            except (ValueError, TypeError, LookupError, AttributeError):
                self.damaged_lines += line is not lines[-1] or not _is_torn(line)
        return changes

    def begin(self, identity: str) -> None:
        """Begins it anew; what it held is committed."""
        self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.write(self._file, _seal(_LOG_TITLE + identity.encode()))
        self.id, self._file_id, self._size = identity, _identify(self.path), 0

    def append(self, changes: LedgerChanges) -> None:
        """Writes changes as one line; OSError where that fails, which harms no other line."""
        self.last_line += 1
        changes.line = self.last_line
        line = b"\n" + _seal(_format_changes(changes))
        if os.write(self._file, line) != len(line):
            raise OSError(f"{self.path}: can't be written; is the disk full?")
        self._size += len(line)

    def tidy(self) -> None:
        """Begins it anew if it is large, or somebody removed it; right after a commit of all its lines."""
        if self._size > _MAX_LOG_BYTES or self._file_id != _identify(self.path):
            self.begin(self.id)

    def remove(self) -> None:
        """Removes the file; what it held is committed."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
        self.id, self._file = "", -1


def _seal(line: bytes) -> bytes:
    return b"%b %08x" % (line, zlib.crc32(line))


def _unseal(line: bytes) -> bytes | None:
    """A line without its checksum; None if that is wrong. Lines of older versions have none."""
    match = _SEALED.fullmatch(line)
    if match is None:
        return line
    return match[1] if int(match[2], 16) == zlib.crc32(match[1]) else None


def _is_torn(line: bytes) -> bool:
    """Whether the end of a line is missing, as if whoever wrote it was killed."""
    if _SEALED.fullmatch(line) is not None:
        return False
    try:
        orjson.loads(line[:-_SEAL_LENGTH])
    except ValueError:
        return True
    return False


def _identify(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one that has its name later; None: there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a third of the time of Path.stat
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _format_log_note(identity: str, line: int) -> str:
    return f'{{"id":"{identity}","line":{line}}}'


def _parse_log_note(row: "tuple[object, ...] | None") -> tuple[str, int]:
    if row is None:
        return "", 0
    note = orjson.loads(str(row[0]))
    return str(note["id"]), int(note["line"])


def _format_changes(changes: LedgerChanges) -> bytes:
    """A line of the log: its number, rows of hours, reservations and notes."""
    rows = [
        (*slot, *_to_columns(spent), *_to_columns(maybe)) for slot, (spent, maybe) in changes.rows.items()
    ]
    entries = [
        (number,) if entry is None else (number, *entry[0], *_to_columns(entry[1]))
        for number, entry in changes.open.items()
    ]
    return orjson.dumps((changes.line, rows, entries, changes.notes))


def _parse_changes(rows: list[Any], entries: list[Any], notes: dict[str, str]) -> LedgerChanges:
    changes = LedgerChanges(notes={str(name): str(text) for name, text in notes.items()})
    for hour, key, *amounts in rows:
        changes.rows[str(hour), str(key)] = _read_spend(amounts[:3]), _read_spend(amounts[3:])
    for number, *entry in entries:
        if not 0 <= number <= _MAX_NUMBER:
            raise ValueError(f"a reservation of number {number}")
        slot = (str(entry[0]), str(entry[1])) if entry else None
        changes.open[int(number)] = None if slot is None else (slot, _read_spend(entry[2:]))
    return changes


def _check_magic(path: Path) -> None:
    """ConfigError if the file is something else; before SQLite writes anything beside it."""
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
    if not tables:
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")  # only a new file takes it
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `checkpoint`
    if application_id == APPLICATION_ID and version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for migration in MIGRATIONS[version:]:
        migration(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _explain_foreign_file(path: Path) -> str:
    return f"{path}: is not a gateway's ledger; name another file (state), or remove this one"


def _hour_range(window: str) -> tuple[str, str]:
    """The bounds of the names of a window's hours."""
    return window, window + "~"


def _to_columns(spend: Spend) -> tuple[int, int, int]:
    columns = spend.samples, spend.tokens, spend.nanos
    if max(columns) <= _SQLITE_MAX:
        return columns
    return min(spend.samples, _SQLITE_MAX), min(spend.tokens, _SQLITE_MAX), min(spend.nanos, _SQLITE_MAX)


def _read_spend(columns: list[object]) -> Spend:
    samples, tokens, nanos = (value if isinstance(value, int) else -1 for value in columns)
    if min(samples, tokens, nanos) < 0:
        raise ValueError(f"an amount of {columns!r}")
    return Spend(samples=samples, tokens=tokens, nanos=nanos)
