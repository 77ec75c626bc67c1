"""Foreign errors (SQLite's, the file system's) as ours, at one place. Knows nothing of pools' contents."""

import errno
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adacompute.errors import NotAPool, PoolDamaged, PoolError, PoolFull, PoolLocked, PoolNotFound

__all__ = ["UNSOUND", "mapped", "one_line", "sound", "translated"]

# what code that trusts a pool's rows runs into where they are not what we wrote
UNSOUND = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def mapped(path: str | Path) -> Iterator[None]:
    """Errors of SQLite and the file system inside become ours, naming `path`; others pass."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise translated(exc, path) from exc
    except UnicodeDecodeError as exc:  # of SQLite's text, or of its own message about a damaged schema
        raise damaged(exc, path) from exc


@contextmanager
def sound(path: str | Path) -> Iterator[None]:
    """As `mapped`, for code that only reads a pool's rows: whatever it stumbles over is damage."""
    try:
        with mapped(path):
            yield
    except UNSOUND as exc:
        raise damaged(exc, path) from exc


def damaged(exc: Exception, path: str | Path) -> PoolDamaged:
    """The error of a pool that holds what nobody wrote there."""
    return PoolDamaged(
        f"{path}: is damaged ({one_line(exc)}); restore it from a copy, or import its source anew"
    )


def one_line(exc: Exception) -> str:
    """What a foreign error says, in one line."""
    return " ".join(str(exc).split()) or type(exc).__name__


def translated(exc: sqlite3.Error | OSError, path: str | Path) -> Exception:
    """The error of ours that a foreign one is, or itself where it is none of ours."""
    if isinstance(exc, sqlite3.Error):
        return _of_sqlite(exc, path)
    if exc.errno in _FULL:
        return PoolFull(
            f"{path}: {exc.strerror}; what was stored before is intact, free some space and retry"
        )
    if exc.errno in _DENIED:
        return PoolError(f"{path}: {exc.strerror}; check the permissions of the file and its folder")
    if exc.errno in (errno.ENOENT, errno.ENOTDIR):
        return PoolNotFound(f"{path}: there is no such file or folder; check the path")
    if exc.errno == errno.EISDIR:
        return NotAPool(f"{path}: is a folder; give a file, or a folder of .parquet files")
    if exc.errno == errno.ENAMETOOLONG:
        return PoolError(f"{path}: the name is too long; give a shorter one")
    if exc.errno is None or exc.errno == errno.EPIPE:  # a library's own, or of whom we print to
        return exc
    return PoolError(f"{path}: {exc.strerror or one_line(exc)}; check the file and the disk it is on")


def _of_sqlite(exc: sqlite3.Error, path: str | Path) -> Exception:
    name, said = str(getattr(exc, "sqlite_errorname", "")), one_line(exc)
    unread = ("SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", *unread)) or "decode to UTF-8" in said:
        return damaged(exc, path)
    if name == "SQLITE_ERROR" and "transaction" not in said:
        return damaged(exc, path)  # our statements are sound, so it is a table or a column that isn't
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PoolFull(
            f"{path}: the disk is full or refuses writes ({said}); "
            "what was stored before is intact, free some space and retry"
        )
    if name.startswith("SQLITE_READONLY"):
        return PoolError(
            f"{path}: can't be written ({said}); check the permissions of the file and its folder"
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return PoolError(f"{path}: can't be opened ({said}); check the path and its permissions")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PoolLocked(f"{path}: another process holds it ({said}); wait for it to end, or stop it")
    if isinstance(exc, sqlite3.ProgrammingError) and "closed" in said:
        return PoolError(f"{path}: the pool is closed; open it again")
    return PoolError(f"{path}: SQLite refused ({said}); check the pool with verify() (pool --verify)")
