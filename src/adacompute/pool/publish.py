"""A file appears whole or not at all. Knows nothing of what is in it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from adacompute.errors import PoolNotFound

__all__ = ["published"]


@contextlib.contextmanager
def published(path: Path, *, mark: str) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving it is made durable and moved into place, or removed."""
    if not path.parent.is_dir():
        raise PoolNotFound(f"{path}: its folder is not there; create {path.parent} first")
    beside = path.with_name(f".{path.name}.{mark}")
    _remove(beside)
    try:
        yield beside
        _sync(beside)
        beside.replace(path)
        _sync(path.parent)
    finally:
        _remove(beside)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
