"""Pools that workers write beside a pool, taken into it once each. Knows nothing of workers or endpoints.

A shard holds the samples, failures and calls of some runs. What it holds and the note that it was taken in
are one transaction, and only then is it removed: so a crash between any two steps loses and doubles nothing.
"""

import contextlib
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adacompute.errors import DuplicateRecord, PoolError, PoolLocked
from adacompute.pool import Drawn, Pool, open_pool
from adacompute.pool.lock import WriterLock
from adacompute.pool.publish import sync

__all__ = ["PAD", "Indexes", "fresh", "gather", "shards_of", "take_in", "tidy"]

PAD = "pad"  # a file beside the shards that goes with them

_PATIENCE = 30.0  # seconds for a worker that was killed, or whose driver was, to be gone
_ENDS = ("", "-wal", "-shm")
_SHARD = re.compile(r"[0-9a-f]{32}\.sqlite")
_OURS = re.compile(
    rf"{PAD}(\.lock)?|\.?[0-9a-f]{{32}}\.sqlite([.-].*)?"
)  # whatever else is there is the user's

Indexes = dict[str, set[int]]  # of samples, by problem


def shards_of(pool: Pool) -> Path:
    """The folder of a pool's shards, there or not."""
    real = Path(pool.path).resolve()
    return real.with_name(real.name + ".shards")


def fresh(folder: Path) -> Path:
    """A shard that isn't there yet."""
    return folder / f"{uuid.uuid4().hex}.sqlite"


def gather(pool: Pool) -> None:
    """Takes in all that workers of a run that was killed have left beside a pool."""
    folder = shards_of(pool)
    if folder.is_dir():
        seen: set[Path] = set()
        while new := _begun(folder) - seen:  # their workers may live a moment longer than who sent them
            for path in sorted(new):
                take_in(pool, path)
            seen |= new
        tidy(pool)


def take_in(pool: Pool, path: Path, *, patience: float = _PATIENCE) -> Indexes:
    """Moves a shard into the pool; the samples that it had. PoolLocked where its writer lives on for long."""
    found: Indexes = {}
    _wait(path, patience)
    if not path.exists():  # its worker never came to it
        return found
    with open_pool(path, write=True) as shard:
        for number, (model, parameters) in enumerate(shard.models):
            drawn = list(_drawn(shard, pool, model, parameters))
            once = f"{path.name} {number}"
            try:
                pool.add_drawn(drawn, model=model, parameters=parameters, once=once)
            except DuplicateRecord:  # the pool is from a copy that was made in between, say
                there = pool.keys(model, parameters)
                pool.add_drawn(
                    [_without(each, there) for each in drawn], model=model, parameters=parameters, once=once
                )
            for each in drawn:
                if each.problem_id is not None and each.samples:
                    found.setdefault(each.problem_id, set()).update(index for index, _ in each.samples)
    for end in _ENDS:
        path.with_name(path.name + end).unlink(missing_ok=True)
    return found


def tidy(pool: Pool) -> None:
    """Removes the folder and the notes of what was taken in; what is still being written stays.

    So does what isn't ours: the folder's name may be that of somebody's own.
    """
    folder = shards_of(pool)
    if not folder.is_dir() or _shards(folder):
        return
    sync(folder)  # the notes go only when the shards can't come back
    pool.forget()
    for path in [path for path in folder.iterdir() if _OURS.fullmatch(path.name)]:
        name = path.name.removeprefix(".").removesuffix(".lock").removesuffix(".building")
        with contextlib.suppress(PoolLocked, OSError):
            lock = WriterLock(folder / name)
            path.unlink(missing_ok=True)
            lock.release()
    with contextlib.suppress(OSError):  # not empty: a worker begins, and will find its driver gone
        folder.rmdir()


def _wait(path: Path, patience: float) -> None:
    """Until nobody writes to a shard any more; it may not be there yet, and be on its way."""
    until = time.monotonic() + patience
    while _locked(path) and time.monotonic() < until:
        time.sleep(0.05)


def _shards(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _SHARD.fullmatch(path.name)]


def _begun(folder: Path) -> set[Path]:
    """Shards that are there, and those that somebody has begun to make."""
    names = (path.name.removesuffix(".lock") for path in folder.iterdir())
    return {folder / name for name in names if _SHARD.fullmatch(name)}


def _locked(path: Path) -> bool:
    try:
        WriterLock(path).release()
    except PoolLocked:
        return True
    return False


def _drawn(shard: Pool, pool: Pool, model: str | None, parameters: Mapping[str, Any]) -> Iterator[Drawn]:
    """All that a shard has of one source; problems that the pool has not are added to it."""
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
        yield Drawn(problem.id, samples, recorded.failures)
    yield Drawn(None, (), (), list(shard.calls(model, parameters)))


def _without(drawn: Drawn, there: set[tuple[str, int]]) -> Drawn:
    new = [(index, one) for index, one in drawn.samples if (drawn.problem_id, index) not in there]
    return drawn._replace(samples=new)
