"""A stored pool, opened: its connections, task and lock put together. Knows nothing of files to import."""

from functools import partial
from pathlib import Path

from adacompute.answers import Task
from adacompute.pool.connect import connected, fitting_task
from adacompute.pool.lock import WriterLock
from adacompute.pool.store import Pool

__all__ = ["attach"]


def attach(path: Path, task: Task | None = None, *, lock: WriterLock | None = None) -> Pool:
    """The pool that is at `path`; for writing where its lock is given, which the pool then frees."""
    reopen = partial(connected, path, write=False)
    writer = connected(path, write=True) if lock is not None else None
    try:
        reader = reopen()
        try:
            own = fitting_task(reader, path, task)
        except BaseException:
            reader.close()
            raise
    except BaseException:
        if writer is not None:
            writer.close()
        raise
    return Pool(reader, path=str(path), task=own, reopen=reopen, writer=writer, lock=lock)
