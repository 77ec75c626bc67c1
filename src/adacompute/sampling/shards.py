"""Shards: pools that workers on other machines write beside the pool, with what some runs gave.

A shard has the samples, failures and calls of its runs. It is merged exactly once: its content and the note
that it was merged are one transaction, and only then is it removed, so a crash between any two steps loses
and duplicates nothing.
"""

import contextlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adacompute.atomic import WriterLock, sync_path
from adacompute.errors import DuplicateRecord, PoolError, PoolLocked
from adacompute.pool import DrawnSamples, Pool, open_pool

Indexes = dict[str, set[int]]  # places of samples, by problem
PAD = "pad"  # the file beside the shards that holds the pad of a key; it is removed with them
_WRITER_SECONDS = 30.0  # time for a worker that was killed, or whose driver was, to be gone
_SUFFIXES = ("", "-wal", "-shm")
_SHARD_NAME = re.compile(r"[0-9a-f]{32}\.sqlite")
_OUR_NAMES = re.compile(
    rf"{PAD}[0-9]*(\.lock)?|\.?[0-9a-f]{{32}}\.sqlite([.-].*)?"
)  # anything else is the user's


def make_shard_path(folder: Path) -> Path:
    """The path of a new shard."""
    return folder / f"{uuid.uuid4().hex}.sqlite"


def merge_leftover_shards(pool: Pool) -> None:
    """Merges everything that the workers of a killed run have left beside a pool."""
    folder = pool.shard_folder
    if folder.is_dir():
        done: set[Path] = set()
        # workers may live a moment longer than their driver
        while new := _list_started_shards(folder) - done:
            for path in sorted(new):
                merge_shard(pool, path)
            done |= new
        remove_shard_folder(pool)


def merge_shard(pool: Pool, path: Path, *, patience: float = _WRITER_SECONDS) -> Indexes:
    """Merges a shard into the pool and returns the samples it had; PoolLocked if its writer lives on."""
    merged: Indexes = {}
    _wait_for_writer(path, patience)
    if not path.exists():  # its worker never started it
        return merged
    with open_pool(path, write=True) as shard:
        for number, (model, parameters) in enumerate(shard.list_sources()):
            records = list(_read_records(shard, pool, model, parameters))
            note = f"{path.name} {number}"
            try:
                pool.add_drawn(records, model=model, parameters=parameters, once=note)
            except DuplicateRecord:  # e.g. the pool is a copy that was made in between
                stored = pool.keys(model, parameters)
                pool.add_drawn(
                    [_drop_stored(record, stored) for record in records],
                    model=model,
                    parameters=parameters,
                    once=note,
                )
            for each in records:
                if each.problem_id is not None and each.samples:
                    merged.setdefault(each.problem_id, set()).update(index for index, _ in each.samples)
    for end in _SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)
    return merged


def remove_shard_folder(pool: Pool) -> None:
    """Removes the folder and the notes of merged shards; those still being written stay.

    Files that aren't ours stay as well: somebody may have a folder of that name.
    """
    folder = pool.shard_folder
    if not folder.is_dir() or _list_shards(folder):
        return
    sync_path(folder)  # the notes are removed only when the shards can't come back
    pool.forget()
    for path in [path for path in folder.iterdir() if _OUR_NAMES.fullmatch(path.name)]:
        name = path.name.removeprefix(".").removesuffix(".lock").removesuffix(".building")
        with contextlib.suppress(PoolLocked, OSError):
            lock = WriterLock(folder / name)
            path.unlink(missing_ok=True)
            lock.release()
    with contextlib.suppress(OSError):  # not empty: a worker is starting, and will find its driver gone
        folder.rmdir()


def _wait_for_writer(path: Path, patience: float) -> None:
    """Waits until nobody writes to a shard any more; it may not exist yet."""
    until = time.monotonic() + patience
    while _is_locked(path) and time.monotonic() < until:
        time.sleep(0.05)


def _list_shards(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _SHARD_NAME.fullmatch(path.name)]


def _list_started_shards(folder: Path) -> set[Path]:
    """Shards that exist, and those that somebody has begun to make."""
    names = (path.name.removesuffix(".lock") for path in folder.iterdir())
    return {folder / name for name in names if _SHARD_NAME.fullmatch(name)}


def _is_locked(path: Path) -> bool:
    try:
        WriterLock(path).release()
    except PoolLocked:
        return True
    return False


def _read_records(
    shard: Pool, pool: Pool, model: str | None, parameters: Mapping[str, Any]
) -> Iterator[DrawnSamples]:
    """All records of one source in a shard; problems that the pool lacks are added to it."""
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
