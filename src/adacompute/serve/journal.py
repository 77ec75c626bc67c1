"""The ledger's file: what each key spent in each hour, what is reserved, and notes. Knows nothing of caps.

SQLite with a write-ahead log, synchronous=NORMAL: what was committed survives a killed process; a loss of
power may take the last moment, and leaves the file sound. Rows are written whole, never added to, so that
writing one again does no harm.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from adacompute.errors import ConfigError, PoolError, PoolLocked
from adacompute.pool.lock import WriterLock
from adacompute.serve.spend import Spend

__all__ = ["Changes", "Gone", "Journal", "Row", "Slot", "Stored"]

APPLICATION_ID = 0x4144414C  # "ADAL", in the file's header
_MAGIC = b"SQLite format 3\0"
_LARGEST = 2**63 - 1  # SQLite's
_WAIT = 5.0  # seconds for somebody who reads the file

_SUMS = """SELECT key, sum(samples), sum(tokens), sum(nanos),
    sum(maybe_samples), sum(maybe_tokens), sum(maybe_nanos)
    FROM hours WHERE hour >= ? AND hour < ? GROUP BY key"""
_PUT_HOUR = "INSERT OR REPLACE INTO hours VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_RESERVED = "INSERT OR REPLACE INTO reserved VALUES (?, ?, ?, ?, ?, ?)"
_END_RESERVED = "DELETE FROM reserved WHERE id = ?"
_PUT_NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"

Slot = tuple[str, str]  # hour, key
Row = tuple[Spend, Spend]  # spent, maybe


class Gone(Exception):
    """The file is no longer the one that was opened: removed, replaced or damaged."""


@dataclass(slots=True)
class Changes:
    """Rows to be written together; the newest of each wins."""

    rows: dict[Slot, Row] = field(default_factory=dict)
    open: dict[int, tuple[Slot, Spend] | None] = field(default_factory=dict)  # None: no longer
    notes: dict[str, str] = field(default_factory=dict)
    afresh: str | None = None  # a window: this is all that there is of it, and all that is reserved

    def __bool__(self) -> bool:
        return bool(self.rows or self.open or self.notes or self.afresh is not None)

    def add(self, newer: "Changes") -> None:
        """Takes in what came later."""
        if newer.afresh is not None:
            self.rows, self.open, self.notes = {}, {}, {}
            self.afresh = newer.afresh
        self.rows.update(newer.rows)
        self.open.update(newer.open)
        self.notes.update(newer.notes)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file holds of one window."""

    sums: dict[str, Row]  # by key, of all the window's hours
    rows: dict[Slot, Row]  # of one hour, and of those with something reserved
    open: dict[int, tuple[Slot, Spend]]
    notes: dict[str, str]


def _first_tables(connection: sqlite3.Connection) -> None:
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
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first_tables,)


class Journal:
    """One open file, locked against a second gateway. For one thread at a time."""

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
        self._connection: sqlite3.Connection | None = None
        self._waits = True  # for others who write
        try:
            self._open()
        except (sqlite3.Error, OSError) as exc:
            self.close()
            raise ConfigError(f"{path}: the ledger can't be opened ({exc}); check the file and disk") from exc
        except BaseException:
            self.close()
            raise

    def latest(self) -> str:
        """The name of the last hour that anything was spent in; "": none."""
        with self._damage():
            return str(self._sound().execute("SELECT coalesce(max(hour), '') FROM hours").fetchone()[0])

    def read(self, window: str, hour: str) -> Stored:
        """What was spent in hours whose names begin with `window`; rows as they are of one of them."""
        with self._damage():
            return self._read(self._sound(), window, hour)

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as exc:
            raise ConfigError(
                f"{self.path}: the ledger is damaged ({exc}); restore it from a copy, "
                "or remove it to begin anew"
            ) from exc

    def _read(self, connection: sqlite3.Connection, window: str, hour: str) -> Stored:
        sums = {
            key: (_spend(found[:3]), _spend(found[3:]))
            for key, *found in connection.execute(_SUMS, _within(window))
        }
        kept = {
            int(number): ((name, key), _spend(found))
            for number, name, key, *found in connection.execute("SELECT * FROM reserved")
        }
        rows = {
            (name, key): (_spend(found[:3]), _spend(found[3:]))
            for one in {hour, *(slot[0] for slot, _ in kept.values())}
            for name, key, *found in connection.execute("SELECT * FROM hours WHERE hour = ?", (one,))
        }
        return Stored(sums, rows, kept, dict(connection.execute("SELECT name, value FROM notes")))

    def write(self, changes: Changes, *, wait: bool = True) -> None:
        """Writes all of it or nothing; raises what SQLite and the file system do, or Gone.

        `wait`: for somebody else who writes to the file, some seconds; False: that is an error at once.
        """
        connection = self._sound()
        if wait != self._waits:
            connection.execute(f"PRAGMA busy_timeout = {round(1000 * _WAIT) if wait else 0}")
            self._waits = wait
        execute = connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            if changes.afresh is not None:
                execute("DELETE FROM hours WHERE hour >= ? AND hour < ?", _within(changes.afresh))
                execute("DELETE FROM reserved")
            for slot, (spent, maybe) in changes.rows.items():
                execute(_PUT_HOUR, (*slot, *_three(spent), *_three(maybe)))
            for number, kept in changes.open.items():
                if kept is None:
                    execute(_END_RESERVED, (number,))
                else:
                    execute(_PUT_RESERVED, (number, *kept[0], *_three(kept[1])))
            for note in changes.notes.items():
                execute(_PUT_NOTE, note)
            execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            raise

    def tidy(self) -> None:
        """Moves what the log holds into the file. May take long: it waits for the disk."""
        self._sound().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def reopen(self) -> bool:
        """Opens the file anew; whether it is another than before. Raises as `write`, or ConfigError."""
        before = self._file
        same = self._same()  # while the old one is open, no new one can have its number
        self._shut()
        self._open()
        return not same or self._file != before

    def close(self) -> None:
        """Ends it, and lets others have the file."""
        self._shut()
        self._lock.release()

    def _open(self) -> None:
        _recognise(self.path)
        address = f"{self.path.absolute().as_uri()}?mode=rwc"
        connection = sqlite3.connect(
            address, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, self.path)
            found = self.path.stat()
        except BaseException:
            connection.close()
            raise
        self._connection, self._waits = connection, True
        self._file = (found.st_dev, found.st_ino)

    def _shut(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _same(self) -> bool:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _sound(self) -> sqlite3.Connection:
        """The connection, to a file that is still there: SQLite goes on writing to one that was removed."""
        if self._connection is None or not self._same():
            raise Gone(f"{self.path}: the file was removed or replaced; it is written anew")
        return self._connection


def _recognise(path: Path) -> None:
    """Raises ConfigError where the file is something else; before SQLite writes anything beside it."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        if not file.read(len(_MAGIC)).startswith(_MAGIC):
            raise ConfigError(_foreign(path))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as exc:
        if exc.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
            raise
        raise ConfigError(_foreign(path)) from exc
    if mark != APPLICATION_ID and (mark or tables):
        raise ConfigError(_foreign(path))
    if version > len(MIGRATIONS):
        raise ConfigError(f"{path}: the ledger is from a newer version of adacompute; upgrade adacompute")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `tidy`
    if mark == APPLICATION_ID and version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for migration in MIGRATIONS[version:]:
        migration(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _foreign(path: Path) -> str:
    return f"{path}: is no ledger of a gateway; name another file (state), or remove this one"


def _within(window: str) -> tuple[str, str]:
    """The bounds of the names of a window's hours."""
    return window, window + "~"


def _three(spend: Spend) -> tuple[int, int, int]:
    return min(spend.samples, _LARGEST), min(spend.tokens, _LARGEST), min(spend.nanos, _LARGEST)


def _spend(found: list[object]) -> Spend:
    samples, tokens, nanos = (value if isinstance(value, int) else -1 for value in found)
    if min(samples, tokens, nanos) < 0:
        raise ValueError(f"an amount of {found!r}")
    return Spend(samples=samples, tokens=tokens, nanos=nanos)
