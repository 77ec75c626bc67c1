"""Errors of the pool: words for a wrong value, and our errors for those of SQLite and the file system.

A `Flaw` says what is wrong with a record; whoever knows the file and the line adds them.
"""

import errno
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from adacompute.errors import (
    AdacomputeError,
    NotAPool,
    PoolDamaged,
    PoolError,
    PoolFull,
    PoolLocked,
    PoolNotFound,
    format_value,
)
from adacompute.pool.content_hash import DEPTH_LIMIT, Json, has_inexact_number, to_canonical_json

__all__ = [
    "DAMAGE_ERRORS",
    "Flaw",
    "InexactNumber",
    "build_json_flaw",
    "check_type",
    "describe_type",
    "map_errors",
    "map_read_errors",
    "raise_flaw",
    "to_one_line",
    "translate_error",
]

T = TypeVar("T")

_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


class Flaw(AdacomputeError):
    """What is wrong with a record. Code that knows the file and line turns it into a RecordInvalid."""


class InexactNumber(AdacomputeError):
    """A fast parser may have rounded a number: parse the line again, exactly."""


def describe_type(value: Json) -> str:
    """A JSON value's type in words."""
    return _TYPE_NAMES.get(
        type(value), "a number" if isinstance(value, int | float) else type(value).__name__
    )


def raise_flaw(where: str, value: Json, want: str) -> NoReturn:
    """Raises the Flaw of a value that is not what it should be; `want` says what is expected."""
    raise Flaw(f"'{where}' is {format_value(value)}; give {want}")


def check_type(kind: type[T], value: Json, where: str) -> T | None:
    """The value, if it has this type or is null; raises a Flaw otherwise."""
    if value is not None and type(value) is not kind:
        raise_flaw(where, value, f"{_TYPE_NAMES[kind]}, or null")
    return value


def build_json_flaw(value: Json, where: str, exc: Exception) -> Flaw:
    """The Flaw of data that can't be written as JSON, naming the key at fault."""
    place = format_value(_find_culprit(value, where))
    return Flaw(f"{place} can't be kept as JSON ({exc}); give plain data with finite numbers")


def _find_culprit(value: Json, where: str, depth: int = 0) -> str:
    """The path of the innermost part that can't be written as JSON, or that is nested too deeply."""
    if depth < DEPTH_LIMIT and isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            inner = f"{where}[{key}]" if isinstance(value, list) else f"{where}.{key}".removeprefix(".")
            try:
                has_inexact_number(part, depth + 1)
            except ValueError:
                return inner
            try:
                to_canonical_json(part)
            except (TypeError, ValueError):
                return _find_culprit(part, inner, depth + 1)
    return where


# what code that trusts a pool's rows raises where the rows are not what we wrote
DAMAGE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error)

_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def map_errors(path: str | Path) -> Iterator[None]:
    """Turns errors of SQLite and the file system into ours, naming `path`; other errors pass through."""
    try:
        yield
    except (sqlite3.Error, OSError) as exc:
        raise translate_error(exc, path) from exc
    except UnicodeDecodeError as exc:  # of SQLite's text, or of its own message about a damaged schema
        raise build_damage_error(exc, path) from exc


@contextmanager
def map_read_errors(path: str | Path) -> Iterator[None]:
    """Like `map_errors`, for code that only reads a pool's rows: any error there means a damaged pool."""
    try:
        with map_errors(path):
            yield
    except DAMAGE_ERRORS as exc:
        raise build_damage_error(exc, path) from exc


def build_damage_error(exc: Exception, path: str | Path) -> PoolDamaged:
    """The error of a pool whose content is not what was written."""
    return PoolDamaged(
        f"{path}: is damaged ({to_one_line(exc)}); restore it from a copy, or import its source again"
    )


def to_one_line(exc: Exception) -> str:
    """The message of a foreign error, in one line."""
    return " ".join(str(exc).split()) or type(exc).__name__


def translate_error(exc: sqlite3.Error | OSError, path: str | Path) -> Exception:
    """Our error for one of SQLite or the file system; the error itself where we have none for it."""
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
    if exc.errno is None or exc.errno == errno.EPIPE:  # a library's own, or a closed pipe
        return exc
    return PoolError(f"{path}: {exc.strerror or to_one_line(exc)}; check the file and the disk it is on")


def _translate_sqlite_error(exc: sqlite3.Error, path: str | Path) -> Exception:
    name, message = str(getattr(exc, "sqlite_errorname", "")), to_one_line(exc)
    read_errors = ("SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", *read_errors)) or "decode to UTF-8" in message:
        return build_damage_error(exc, path)
    if name == "SQLITE_ERROR" and "transaction" not in message:
        return build_damage_error(exc, path)  # our statements are valid, so a table or a column is missing
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
