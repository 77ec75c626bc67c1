"""Opens a pool, whatever the file. Knows nothing of what the caller does with it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from adacompute.answers import Task
from adacompute.errors import PoolError, PoolNotFound
from adacompute.pool.attach import attach
from adacompute.pool.connect import built, private
from adacompute.pool.faults import mapped
from adacompute.pool.files import fill, is_pool_file, native
from adacompute.pool.lock import WriterLock
from adacompute.pool.publish import sweep
from adacompute.pool.reading import Reading
from adacompute.pool.schema import is_sqlite, recognise
from adacompute.pool.store import Pool

__all__ = ["open_file", "open_pool", "open_reading"]


def open_pool(
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    write: bool = False,
    task: Task | None = None,
    default_task: Task | None = None,
) -> Pool:
    """Opens a pool for reading; `write=True` takes the writer's lock, `create=True` also makes a missing one.

    A .jsonl, .jsonl.gz or .parquet file or a folder of Parquet is read into a private copy, read-only.
    `task` says how answers of a new pool or a file are read and compared; a pool keeps its own, and another
    one is refused. `default_task` serves where `task` is None, and never contradicts a pool.
    """
    where = Path(path)
    fresh = task or default_task or Task()
    with mapped(where):
        if is_pool_file(where) and not (where.is_file() and is_sqlite(where)):
            if create or write:
                raise PoolError(f"{where}: is a file to read; import it into a pool (.sqlite) to write to it")
            return open_file(where, fresh)
        if not (create or write):
            return attach(where, task)
        if where.exists():
            recognise(where)
        elif not create:
            raise PoolNotFound(f"{where}: there is no such pool; check the path, or give create=True")
        lock = WriterLock(where)
    try:
        if where.exists():
            sweep(where, alone=True)
        else:
            with built(where, fresh):
                pass
        return attach(where, task, lock=lock)
    except BaseException:
        lock.release()
        raise


def open_file(path: Path, task: Task, *, classes: Iterable[Sequence[int]] | None = None) -> Pool:
    """A file's private copy; `classes` are its samples' classes by problem, where known already."""
    return open_reading(native(path), task, classes=classes)


def open_reading(reading: Reading, task: Task, *, classes: Iterable[Sequence[int]] | None = None) -> Pool:
    """A private copy of all that is read."""
    path = str(reading.path)
    connection = private(path, lambda new: fill(new, reading, into=path, task=task, classes=classes))
    return Pool(connection, path=path, task=task)
