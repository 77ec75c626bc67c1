"""A pool written as a folder of Parquet files. Knows nothing of what reads them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from adacompute.errors import DuplicateRecord, PoolError, RecordInvalid
from adacompute.pool.faults import mapped
from adacompute.pool.files import Exported
from adacompute.pool.parquet import write_parquet
from adacompute.pool.publish import sync
from adacompute.pool.store import Pool

__all__ = ["export_shards"]


def export_shards(pool: Pool, folder: str | os.PathLike[str], *, shards: int) -> Exported:
    """Writes a pool as so many .parquet files in a new folder, about as many problems to each, in order.

    The folder appears whole or not at all; opened as a pool, it is the same one.
    """
    target = Path(folder)
    if shards < 1:
        raise PoolError(f"{shards} shards can't be written; give a whole number from 1 up")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DuplicateRecord(f"{target}: is already there; give another name, or remove it first")
    problems = len(pool)
    if not problems:
        raise RecordInvalid(f"{pool.path}: holds no problem, so there is nothing to export; add some first")
    samples = 0
    with mapped(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            for number, lines in groupby(_placed(pool, min(shards, problems)), key=lambda pair: pair[0]):
                some = [line for _, line in lines]
                samples += sum(len(line["samples"]) for line in some)
                part = beside / f"part-{number:05}.parquet"
                write_parquet(some, part, levels=pool.level_types())
                sync(part)
            beside.chmod(0o755)
            sync(beside)
            beside.replace(target)
            sync(target.parent)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    size = sum(part.stat().st_size for part in target.iterdir())
    return Exported(problems=problems, samples=samples, bytes=size)


def _placed(pool: Pool, shards: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line with the number of its file; the lines of one problem stand in one file."""
    problems = len(pool)
    for place, (_, lines) in enumerate(groupby(pool.lines(), key=lambda line: line["id"])):
        for line in lines:
            yield place * shards // problems, line
