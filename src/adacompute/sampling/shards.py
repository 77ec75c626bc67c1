"""Shards: small pools next to the main pool, in which workers on other machines store their samples.

A shard has samples, failures and calls. It is merged exactly once: a transaction stores its content and a
record of the merge, and the shard is removed only afterwards. So a crash neither loses nor duplicates
anything.
"""

import contextlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from adacompute.atomic import WriterLock, sync_path
from adacompute.errors import DuplicateRecord, PoolError, PoolLocked
from adacompute.pool import DrawnSamples, Pool, open_pool

Indexes = dict[str, set[int]]  # problem id -> indexes of its samples
PAD = "pad"  # name (or its beginning) of the file with the one-time pad that encrypts the endpoint's key
_WRITER_SECONDS = 30.0  # time limit in seconds for a worker to end after it, or its run, was killed
_SUFFIXES = ("", "-wal", "-shm")
_SHARD_NAME = re.compile(r"[0-9a-f]{32}\.sqlite")
_OUR_NAMES = re.compile(
    rf"{PAD}[0-9]*(\.lock)?|\.?[0-9a-f]{{32}}\.sqlite([.-].*)?"
)  # matches the files that this package writes; any others belong to the user


def make_shard_path(folder: Path) -> Path:
    """Makes the path of a new shard."""
    return folder / f"{uuid.uuid4().hex}.sqlite"


def merge_leftover_shards(pool: Pool) -> None:
    """Merges all shards that the workers of a killed run left behind into the pool."""
    done: set[Path] = set()
    # workers may still create shards for a moment after the process that started the run was killed
    while new := _list_started_shards(pool.shard_folder) - done:
        for path in sorted(new):
            merge_shard(pool, path)
        done |= new
    remove_shard_folder(pool)


def merge_shard(pool: Pool, path: Path) -> Indexes:
    """Merges a shard into the pool and deletes it; returns the indexes of its samples.

    Waits until the shard's writer has ended; raises PoolLocked if this takes too long.
    """
    merged: Indexes = {}
    until = time.monotonic() + _WRITER_SECONDS
    while _is_locked(path) and time.monotonic() < until:  # the shard is being written or created
        time.sleep(0.05)
    if not path.exists():  # the shard's worker ended before creating it
        return merged
    with open_pool(path, write=True) as shard:
        for number, (model, parameters) in enumerate(shard.list_sources()):
            records = list(_read_records(shard, pool, model, parameters))
            add = partial(pool.add_drawn, model=model, parameters=parameters, once=f"{path.name} {number}")
            try:
                add(records)
            except DuplicateRecord:  # for example, if the pool is a copy that was made after a merge
                stored = pool.keys(model, parameters)
                add([_drop_stored(record, stored) for record in records])
            for each in records:
                if each.problem_id is not None and each.samples:
                    merged.setdefault(each.problem_id, set()).update(index for index, _ in each.samples)
    for end in _SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)
    return merged


def remove_shard_folder(pool: Pool) -> None:
    """Removes the folder of shards and the records of their merges; does nothing if a shard isn't merged yet.

    Files that this package didn't write stay, because a user's folder may have the same name.
    """
    folder = pool.shard_folder
    if not folder.is_dir() or any(_SHARD_NAME.fullmatch(path.name) for path in folder.iterdir()):
        return
    sync_path(folder)  # the removal of shards must be on disk before the records of their merges are deleted
    pool.forget()
    for path in [path for path in folder.iterdir() if _OUR_NAMES.fullmatch(path.name)]:
        name = path.name.removeprefix(".").removesuffix(".lock").removesuffix(".building")
        with contextlib.suppress(PoolLocked, OSError), contextlib.closing(WriterLock(folder / name)):
            path.unlink(missing_ok=True)
    # fails if the folder isn't empty, e.g. because it has a user's file, or a worker is just starting
    with contextlib.suppress(OSError):
        folder.rmdir()


def _list_started_shards(folder: Path) -> set[Path]:
    """Lists the shards that exist or are being created."""
    names = (path.name.removesuffix(".lock") for path in folder.iterdir())
    return {folder / name for name in names if _SHARD_NAME.fullmatch(name)}


def _is_locked(path: Path) -> bool:
    try:
        WriterLock(path).close()
    except PoolLocked:
        return True
    return False


def _read_records(
    shard: Pool, pool: Pool, model: str | None, parameters: Mapping[str, Any]
) -> Iterator[DrawnSamples]:
    """Yields all records of one source in a shard; adds problems that the pool lacks."""
    indexes = dict(shard.indexes(model, parameters))
    for recorded in shard:
        if recorded.model != model or recorded.parameters != parameters:
            continue
        problem = recorded.problem
        known = pool.problem(problem.id)
        if known is None:
            pool.add_problems([problem])
        elif known.question != problem.question:
            raise PoolError(
                f"{shard.path}: has samples of problem {problem.id!r} under another question than "
                f"{pool.path}; it is of another pool: move it away"
            )
        numbers = sorted(indexes.get(problem.id, ()))
        samples = list(zip(numbers, recorded.samples, strict=True))
        yield DrawnSamples(problem.id, samples, recorded.failures)
    yield DrawnSamples(None, (), (), list(shard.calls(model, parameters)))


def _drop_stored(record: DrawnSamples, stored: set[tuple[str, int]]) -> DrawnSamples:
    new = [(index, sample) for index, sample in record.samples if (record.problem_id, index) not in stored]
    return record._replace(samples=new)
