"""Opens a pool, whatever the file. Knows nothing of what the caller does with it."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from adacompute.answers import Task
from adacompute.errors import PoolError, PoolNotFound
from adacompute.pool.connect import built, connected, fitting_task, temporary
from adacompute.pool.faults import mapped
from adacompute.pool.files import fill, is_pool_file, native
from adacompute.pool.lock import WriterLock
from adacompute.pool.schema import is_sqlite, recognise
from adacompute.pool.store import Pool

__all__ = ["open_file", "open_pool"]


def open_pool(
    path: str | os.PathLike[str], *, create: bool = False, write: bool = False, task: Task | None = None
) -> Pool:
    """Opens a pool for reading; `write=True` takes the writer's lock, `create=True` also makes a missing one.

    A .jsonl, .jsonl.gz or .parquet file or a folder of Parquet is read into a private copy, read-only.
    `task` says how answers of a new pool or a file are read and compared; a pool keeps its own.
    """
    where = Path(path)
    with mapped(where):
        if is_pool_file(where) and not (where.is_file() and is_sqlite(where)):
            if create or write:
                raise PoolError(f"{where}: is a file to read; import it into a pool (.sqlite) to write to it")
            return open_file(where, task or Task())
        if not (create or write):
            return _of_pool(where, task)
        if where.exists():
            recognise(where)
        elif not create:
            raise PoolNotFound(f"{where}: there is no such pool; check the path, or give create=True")
        lock = WriterLock(where)
    try:
        if not where.exists():
            with built(where, task or Task()):
                pass
        return _of_pool(where, task, lock=lock)
    except BaseException:
        lock.release()
        raise


def _of_pool(path: Path, task: Task | None, *, lock: WriterLock | None = None) -> Pool:
    connection = connected(path, write=lock is not None)
    try:
        own = fitting_task(connection, path, task)
    except BaseException:
        connection.close()
        raise
    return Pool(connection, path=str(path), task=own, lock=lock, writable=lock is not None)


def open_file(path: Path, task: Task, *, classes: Iterable[Sequence[int]] | None = None) -> Pool:
    """A file's private copy; `classes` are its samples' classes by problem, where known already."""
    with contextlib.ExitStack() as stack:
        reading = native(path)
        connection = stack.enter_context(temporary(str(path)))
        connection.execute("BEGIN")
        fill(connection, reading, task=task, classes=classes)
        connection.execute("COMMIT")
    return Pool(connection, path=str(path), task=task, writable=False)
