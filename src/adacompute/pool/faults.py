"""Foreign errors (SQLite's, the file system's) as ours, at one place. Knows nothing of pools' contents."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adacompute.errors import NotAPool, PoolDamaged, PoolError, PoolFull, PoolLocked, PoolNotFound

__all__ = ["mapped", "translated"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def mapped(path: str | Path) -> Iterator[None]:
    """Errors of SQLite and the file system inside become ours, naming `path`; others pass."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise translated(exc, path) from exc


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
    return exc


def _of_sqlite(exc: sqlite3.Error, path: str | Path) -> Exception:
    name = str(getattr(exc, "sqlite_errorname", ""))
    unread = ("SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", *unread)) or "decode to UTF-8" in str(exc):
        return PoolDamaged(f"{path}: is damaged ({exc}); restore it from a copy")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PoolFull(
            f"{path}: the disk is full or refuses writes ({exc}); "
            "what was stored before is intact, free some space and retry"
        )
    if name.startswith("SQLITE_READONLY"):
        return PoolError(
            f"{path}: can't be written ({exc}); check the permissions of the file and its folder"
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return PoolError(f"{path}: can't be opened ({exc}); check the path and its permissions")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PoolLocked(f"{path}: another process holds it ({exc}); wait for it to end, or stop it")
    if isinstance(exc, sqlite3.ProgrammingError) and "closed" in str(exc):
        return PoolError(f"{path}: the pool is closed; open it again")
    return PoolError(f"{path}: SQLite refused ({exc})")
