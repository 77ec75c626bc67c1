"""Files into pools and pools into files. Knows nothing of JSON lines or Parquet beyond their names."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from adacompute.answers import Task
from adacompute.errors import (
    DuplicateRecord,
    NotAPool,
    PoolError,
    PoolNotFound,
    RecordInvalid,
    TaskError,
)
from adacompute.pool.attach import attach
from adacompute.pool.connect import built, connected, made_otherwise
from adacompute.pool.faults import mapped, sound
from adacompute.pool.flaw import Flaw, Inexact
from adacompute.pool.importers import FORMATS
from adacompute.pool.jsonl import jsonl_entries, write_jsonl
from adacompute.pool.lock import WriterLock
from adacompute.pool.parquet import parquet_entries, write_parquet
from adacompute.pool.publish import published, sweep
from adacompute.pool.read import line_of, stored
from adacompute.pool.reading import Entry, Reading, place_in
from adacompute.pool.schema import is_sqlite, recognise
from adacompute.pool.shape import ABSENT, Line, read_line
from adacompute.pool.store import Pool
from adacompute.pool.write import Bulk

__all__ = [
    "Exported",
    "Imported",
    "export_file",
    "fill",
    "folder_files",
    "folder_reading",
    "import_file",
    "is_pool_file",
    "native",
]

Format = Literal["native", "lm-eval", "inspect"]
Progress = Callable[[int, int], None]  # problems, samples so far

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_EVERY = 256  # problems between two calls of `progress`


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added."""

    problems: int  # that were new
    samples: int
    failures: int
    skipped: int  # (problem, model, parameters) that were already there


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    problems: int
    samples: int
    bytes: int  # of the file


def import_file(
    path: str | os.PathLike[str],
    pool: Pool | str | os.PathLike[str],
    *,
    format: Format = "native",  # noqa: A002 - the command line's word
    task: Task | None = None,
    default_task: Task | None = None,
    existing: Literal["error", "skip"] = "error",
    reread: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Adds a file's problems and samples to a pool, all or nothing; a pool that isn't there is made.

    `format="native"` reads pool files (.jsonl, .jsonl.gz, .parquet, a folder of Parquet, another pool);
    `"lm-eval"` and `"inspect"` read those tools' logs. `task` must be that of a pool that is there;
    `default_task` is for a new one alone. `reread` takes the answers that the task finds in the texts, in
    place of those that the file gives.
    """
    if existing not in ("error", "skip"):
        raise PoolError(f'existing={existing!r} is not known; give "error" or "skip"')
    reading = _reading(Path(path), format)
    how: dict[str, Any] = {"skip": existing == "skip", "progress": progress, "reread": reread}
    if isinstance(pool, Pool):
        if task is not None and task != pool.task:
            raise TaskError(f"{pool.path}: {made_otherwise(pool.task, task)}")
        with pool.bulk() as connection:
            return fill(connection, reading, into=pool.path, task=pool.task, **how)
    target = Path(pool)
    with _locked(target) as lock:
        if target.exists():
            recognise(target)
            sweep(target, alone=True)
            with attach(target, task, lock=lock) as own, own.bulk() as connection:
                return fill(connection, reading, into=own.path, task=own.task, **how)
        task = task or default_task or Task()
        if target.name.endswith(SUFFIXES):
            raise NotAPool(f"{target}: would be a file, not a pool; name it e.g. {target.stem}.sqlite")
        with built(target, task) as connection:
            return fill(connection, reading, into=str(target), task=task, **how)


def export_file(pool: Pool, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Writes a pool as .jsonl, .jsonl.gz or .parquet, whole or not at all; equal pools, equal bytes.

    A file that is already there is left alone unless `overwrite=True`.
    """
    target = Path(path)
    if not target.name.endswith(SUFFIXES):
        raise NotAPool(f"{target}: has an unknown suffix; give {', '.join(SUFFIXES)}")
    if target.exists() and not overwrite:
        raise DuplicateRecord(
            f"{target}: is already there; give another name, or overwrite=True (--overwrite)"
        )
    if not len(pool):
        raise RecordInvalid(f"{pool.path}: holds no problem, so there is nothing to export; add some first")
    count = {"problems": 0, "samples": 0}

    def lines() -> Iterator[dict[str, Any]]:
        for line in pool.lines():
            count["problems"] += 1
            count["samples"] += len(line["samples"])
            yield line

    with mapped(target), published(target) as beside:
        if target.suffix == ".parquet":
            write_parquet(lines(), beside, levels=pool.level_types())
        else:
            write_jsonl(lines(), beside, compress=target.suffix == ".gz")
    return Exported(problems=count["problems"], samples=count["samples"], bytes=target.stat().st_size)


def fill(
    connection: sqlite3.Connection,
    reading: Reading,
    *,
    into: str,
    task: Task,
    skip: bool = False,
    reread: bool = False,
    progress: Progress | None = None,
    classes: Iterable[Sequence[int]] | None = None,
) -> Imported:
    """Adds all that is read; the caller holds the transaction. Errors name the file and the place.

    `into` names the pool. `classes`: each entry's, where they are known already.
    """
    bulk = Bulk(connection, path=into, task=task, skip=skip, name=reading.name)
    known = repeat(None) if classes is None else classes
    number = 0
    for number, (entry, numbers) in enumerate(
        zip(reading.entries, known, strict=classes is not None), start=1
    ):
        try:
            line = _checked(entry)
            bulk.add(_unread(line) if reread else line, entry.place, numbers)
        except Flaw as exc:
            raise RecordInvalid(f"{reading.path}: {reading.name(entry.place)}: {exc}") from exc
        except DuplicateRecord as exc:
            raise DuplicateRecord(f"{reading.path}: {reading.name(entry.place)}: {exc}") from exc
        if progress is not None and number % _EVERY == 0:
            progress(bulk.problems, bulk.samples)
    if not number:
        raise RecordInvalid(f"{reading.path}: holds no problem; give at least one {reading.unit}")
    bulk.flush()
    if progress is not None:
        progress(bulk.problems, bulk.samples)
    return Imported(
        problems=bulk.problems, samples=bulk.samples, failures=bulk.failures, skipped=bulk.skipped
    )


def is_pool_file(path: Path) -> bool:
    """Whether this is a file to import, by its name (or a folder), not an SQLite pool."""
    return path.is_dir() or path.name.endswith(SUFFIXES)


def native(path: Path) -> Reading:
    """The problems of a pool file, a folder of Parquet or another pool."""
    if not path.exists():
        raise PoolNotFound(f"{path}: there is no such file; check the path")
    if path.is_dir():
        names = folder_files(path)
        return folder_reading(path, names, range(len(names)))
    if path.suffix == ".parquet":
        return Reading(path=path, unit="row", files=(path.name,), entries=parquet_entries(path))
    if path.name.endswith(SUFFIXES):
        return Reading(path=path, unit="line", files=(path.name,), entries=jsonl_entries(path))
    if not is_sqlite(path):
        raise NotAPool(
            f"{path}: has an unknown suffix and is no pool; give a pool, {', '.join(SUFFIXES)} or a folder"
        )
    return Reading(path=path, unit="problem", files=(path.name,), entries=_pool_entries(path))


def folder_files(path: Path) -> tuple[str, ...]:
    """The Parquet files of a folder, by their names within it, in the order in which they are read."""
    parts = sorted(part for part in path.rglob("*.parquet") if part.is_file())
    if not parts:
        raise NotAPool(f"{path}: is a folder without .parquet files; give a folder of Parquet, or a file")
    return tuple(part.relative_to(path).as_posix() for part in parts)


def folder_reading(path: Path, names: tuple[str, ...], some: Sequence[int]) -> Reading:
    """Some of a folder's files, by number; `names` are all of them."""
    entries = (entry for i in some for entry in parquet_entries(path / names[i], file=i))
    return Reading(path=path, unit="row", files=names, entries=entries)


def _reading(path: Path, kind: str) -> Reading:
    if kind != "native" and kind not in FORMATS:
        raise PoolError(f"format {kind!r} is not known; give native, {', '.join(FORMATS)}")
    with mapped(path):
        return native(path) if kind == "native" else FORMATS[kind](path)


def _pool_entries(path: Path) -> Iterator[Entry]:
    with contextlib.closing(connected(path, write=False)) as connection, sound(path):
        connection.execute("BEGIN")  # one state of it, whoever writes meanwhile
        for number, row in enumerate(stored(connection), start=1):
            yield Entry(place_in(0, number), line_of(row))


def _checked(entry: Entry) -> Line:
    try:
        return read_line(entry.value, exact=entry.again is None)
    except Inexact:
        assert entry.again is not None
        return read_line(entry.again(), exact=True)


def _unread(line: Line) -> Line:
    """The line without the answers, and their grades, of samples that have a text to read them from."""
    rows = [row if row[1] is None else (*row[:2], ABSENT, ABSENT, *row[4:]) for row in line.samples]
    return line._replace(samples=rows)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[WriterLock]:
    with mapped(path):
        lock = WriterLock(path)
    try:
        yield lock
    finally:
        lock.release()
