"""A file appears whole or not at all. Knows nothing of what is in it."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from adacompute.errors import PoolNotFound

__all__ = ["published", "sweep", "sync"]

_ENDS = ("", "-wal", "-shm", "-journal")


@contextlib.contextmanager
def published(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving it is made durable and moved into place, or removed.

    `alone`: the caller holds a lock, so nobody else writes beside the same path.
    """
    if not path.parent.is_dir():
        raise PoolNotFound(f"{path}: its folder is not there; create {path.parent} first")
    sweep(path, alone=alone)
    mark = "building" if alone else f"{os.uname().nodename}.{os.getpid()}.part"
    beside = path.with_name(f".{path.name}.{mark}")
    _remove(beside)
    try:
        yield beside
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        _remove(beside)


def sweep(path: Path, *, alone: bool = False) -> None:
    """Removes what killed processes of this machine left half-written beside `path`."""
    if alone:
        _remove(path.with_name(f".{path.name}.building"))
    part = re.compile(re.escape(f".{path.name}.{os.uname().nodename}.") + r"(\d+)\.part")
    with contextlib.suppress(OSError):  # a folder that can't be listed or changed: nothing to tidy
        for other in list(path.parent.iterdir()):
            if (found := part.fullmatch(other.name)) and not _alive(int(found[1])):
                _remove(other)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _remove(path: Path) -> None:
    for end in _ENDS:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


def sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
