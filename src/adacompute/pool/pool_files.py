"""Imports files into pools, exports pools, and opens pools (`open_pool`) and bundled recordings."""

import contextlib
import gzip
import json
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from itertools import groupby, repeat
from pathlib import Path
from typing import Any, Literal

from adacompute.answers import Task
from adacompute.atomic import WriterLock, publish_file, publish_folder, remove_leftovers, sync_path
from adacompute.errors import DuplicateRecord, NotAPool, PoolError, PoolNotFound, RecordInvalid, TaskError
from adacompute.pool.formats import (
    Entry,
    FileEntries,
    encode_place,
    read_jsonl,
    read_parquet,
    write_jsonl,
    write_parquet,
)
from adacompute.pool.importers import FORMATS
from adacompute.pool.pool import Pool, attach_pool
from adacompute.pool.rows import (
    EXAMPLE_LINE,
    MISSING,
    Flaw,
    ProblemLine,
    describe_questions,
    drop_answer_signals,
    has_no_samples,
    read_line,
)
from adacompute.pool.sqlite import (
    build_pool,
    build_private_pool,
    check_is_pool,
    connect_pool,
    describe_task_conflict,
    is_sqlite,
    map_errors,
    map_read_errors,
)
from adacompute.pool.tables import BulkInsert, build_line, stream_problems

Format = Literal["native", "lm-eval", "inspect"]
ImportProgress = Callable[[int, int], None]  # called with the numbers of problems and samples imported so far

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_QUESTION_SUFFIXES = (".csv", ".tsv")  # suffixes of tables, which may contain questions only
_MAX_HEAD = 65_536  # maximum number of bytes read from a table's first line
_IMPORT_REMEDY = (
    f"a log is imported by its format, --format {' or '.join(FORMATS)}, a table by its columns, e.g. "
    "--columns question=NAME,text=NAME"
)
_PROGRESS_EVERY = 256  # an import calls `progress` each time it has read this number of lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The result of an import."""

    problems: int  # number of new problems
    samples: int
    failures: int
    skipped: int  # number of lines skipped because they were in the pool already


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The result of an export."""

    problems: int
    samples: int
    bytes: int  # total size of the written files


def import_file(
    path: str | os.PathLike[str] | FileEntries,
    pool: Pool | str | os.PathLike[str],
    *,
    format: Format = "native",  # noqa: A002 - the command line's word
    task: Task | None = None,
    default_task: Task | None = None,
    existing: Literal["error", "skip"] = "error",
    reread: bool = False,
    progress: ImportProgress | None = None,
) -> ImportResult:
    """Imports all of a file's problems and samples, or none if an error occurs; creates a missing pool.

    `format="native"` reads a pool file (.jsonl, .jsonl.gz, .parquet), a folder of Parquet files or another
    pool; `"lm-eval"` and `"inspect"` read the logs of those tools. For a table with other column names, pass
    `ac.read_samples(path, columns={...})` as `path`. If given, `task` must equal the task of an existing
    pool; `default_task` is only for a new one. `reread` extracts all answers from the texts again.
    """
    if existing not in ("error", "skip"):
        raise PoolError(f'existing={existing!r} is not known; give "error" or "skip"')
    entries = path if isinstance(path, FileEntries) else _read_format(Path(path), format)
    options: dict[str, Any] = {"skip": existing == "skip", "progress": progress, "reread": reread}
    if isinstance(pool, Pool):
        if task is not None and task != pool.task:
            raise TaskError(f"{pool.path}: {describe_task_conflict(pool.task, task)}")
        with pool.bulk() as connection:
            return fill_pool(connection, entries, into=pool.path, task=pool.task, **options)
    target = Path(pool)
    with map_errors(target):
        lock = WriterLock(target)
    with contextlib.closing(lock):
        if target.exists():
            check_is_pool(target)
            remove_leftovers(target, exclusive=True)
            with attach_pool(target, task, lock=lock) as target_pool, target_pool.bulk() as connection:
                return fill_pool(connection, entries, into=target_pool.path, task=target_pool.task, **options)
        task = task or default_task or Task()
        if target.name.endswith(SUFFIXES):
            raise NotAPool(f"{target}: would be a file, not a pool; name it e.g. {target.stem}.sqlite")
        with build_pool(target, task) as connection:
            return fill_pool(connection, entries, into=str(target), task=task, **options)


def check_export(target: Path, *, overwrite: bool = False, shards: int | None = None) -> None:
    """Raises an error if the pool can't be exported to `target`: a file or, with `shards`, a folder."""
    if shards is not None:
        if shards < 1:
            raise PoolError(f"{shards} shards can't be written; give a whole number from 1 up")
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DuplicateRecord(f"{target}: already exists; give another name, or remove it first")
        return
    if not target.name.endswith(SUFFIXES):
        raise NotAPool(f"{target}: has an unknown suffix; give {', '.join(SUFFIXES)}")
    if target.exists() and not overwrite:
        raise DuplicateRecord(f"{target}: already exists; give another name, or overwrite=True (--overwrite)")
    if not target.parent.is_dir():
        raise PoolNotFound(f"{target}: its folder is not there; create {target.parent} first")


def export_file(pool: Pool, path: str | os.PathLike[str], *, overwrite: bool = False) -> ExportResult:
    """Writes a pool as a .jsonl, .jsonl.gz or .parquet file; the same content always gives the same bytes.

    Replaces an existing file if `overwrite=True`, and raises an error otherwise.
    """
    target = Path(path)
    check_export(target, overwrite=overwrite)
    if not len(pool):
        raise RecordInvalid(f"{pool.path}: holds no problem, so there is nothing to export; add some first")
    counts = {"problems": 0, "samples": 0}

    def stream_lines() -> Iterator[dict[str, Any]]:
        for line in pool.lines():
            counts["problems"] += 1
            counts["samples"] += len(line["samples"])
            yield line

    with map_errors(target), publish_file(target) as temporary:
        if target.suffix == ".parquet":
            write_parquet(stream_lines(), temporary, levels=pool.level_types())
        else:
            write_jsonl(stream_lines(), temporary, compress=target.suffix == ".gz")
    return ExportResult(problems=counts["problems"], samples=counts["samples"], bytes=target.stat().st_size)


def fill_pool(
    connection: sqlite3.Connection,
    reading: FileEntries,
    *,
    into: str,
    task: Task,
    skip: bool = False,
    reread: bool = False,
    progress: ImportProgress | None = None,
    classes: Iterable[Sequence[int]] | None = None,
) -> ImportResult:
    """Inserts all entries of a file; needs an open transaction. Errors name the file and the line or row.

    `into` is the pool's name in messages. `classes` has the answers' class numbers, if known.
    """
    bulk = BulkInsert(connection, path=into, task=task, skip=skip, format_place=reading.format_place)
    known_classes = repeat(None) if classes is None else classes
    number = 0
    with contextlib.closing(reading.entries) as entries:  # the file is closed even after an error
        for number, (entry, numbers) in enumerate(
            zip(entries, known_classes, strict=classes is not None), start=1
        ):
            if number == 1 and reading.unit == "line":
                _check_first(entry.value, reading.path)
            try:
                line = read_line(entry.value)
                bulk.add(_drop_answers(line) if reread else line, entry.place, numbers)
            except Flaw as exc:
                raise RecordInvalid(f"{reading.path}: {reading.format_place(entry.place)}: {exc}") from exc
            except DuplicateRecord as exc:
                raise DuplicateRecord(f"{reading.path}: {reading.format_place(entry.place)}: {exc}") from exc
            if progress is not None and number % _PROGRESS_EVERY == 0:
                progress(bulk.problems, bulk.samples)
    if not number:
        raise RecordInvalid(f"{reading.path}: holds no problem; give at least one {reading.unit}")
    bulk.flush()
    if progress is not None:
        progress(bulk.problems, bulk.samples)
    return ImportResult(
        problems=bulk.problems, samples=bulk.samples, failures=bulk.failures, skipped=bulk.skipped
    )


def is_pool_file(path: Path) -> bool:
    """Whether a path is a folder, or a file with a suffix such as .jsonl. False for an SQLite pool."""
    return path.is_dir() or path.name.endswith(SUFFIXES)


def read_native(path: Path) -> FileEntries:
    """Reads a pool file, a folder of Parquet files or an SQLite pool."""
    if not path.exists():
        raise PoolNotFound(f"{path}: there is no such file; check the path")
    if path.is_dir():
        names = list_parquet_files(path)
        return read_parquet_folder(path, names, range(len(names)))
    if path.suffix == ".parquet":
        return FileEntries(path=path, unit="row", files=(path.name,), entries=read_parquet(path))
    if path.name.endswith(SUFFIXES):
        return FileEntries(path=path, unit="line", files=(path.name,), entries=read_jsonl(path))
    _check_suffix(path)
    if not is_sqlite(path):
        raise NotAPool(
            f"{path}: has an unknown suffix and is not a pool; give a pool, {', '.join(SUFFIXES)} or a "
            f"folder; {_IMPORT_REMEDY}"
        )
    return FileEntries(path=path, unit="problem", files=(path.name,), entries=_read_pool(path))


def list_parquet_files(path: Path) -> tuple[str, ...]:
    """Lists the names of a folder's Parquet files, in reading order."""
    parts = sorted(part for part in path.rglob("*.parquet") if part.is_file())
    if not parts:
        raise NotAPool(
            f"{path}: is a folder without .parquet files; give a folder of Parquet, or a file; "
            f"{_IMPORT_REMEDY}"
        )
    return tuple(part.relative_to(path).as_posix() for part in parts)


def read_parquet_folder(path: Path, names: tuple[str, ...], numbers: Sequence[int]) -> FileEntries:
    """Reads some of a folder's Parquet files: `names[i]` for each i in `numbers`."""
    entries = (entry for i in numbers for entry in read_parquet(path / names[i], file=i))
    return FileEntries(path=path, unit="row", files=names, entries=entries)


def _read_format(path: Path, kind: str) -> FileEntries:
    if kind != "native" and kind not in FORMATS:
        raise PoolError(f"format {kind!r} is not known; give native, {', '.join(FORMATS)}")
    with map_errors(path):
        return read_native(path) if kind == "native" else FORMATS[kind](path)


def _read_pool(path: Path) -> Generator[Entry, None, None]:
    with contextlib.closing(connect_pool(path, write=False)) as connection, map_read_errors(path):
        connection.execute("BEGIN")  # all reads see the same state, even if another process writes
        for number, row in enumerate(stream_problems(connection), start=1):
            yield Entry(encode_place(0, number), build_line(row))


def _check_suffix(path: Path) -> None:
    """Raises NotAPool if a file's name and first line show that it is a table of questions."""
    if path.suffix.lower() not in _QUESTION_SUFFIXES or not path.is_file():
        return
    with path.open("rb") as file:
        heads = re.split(r"[,;\t]", file.readline(_MAX_HEAD).decode("utf-8", "replace"))
    names = [head.strip().strip('"').lower() for head in heads]
    if has_no_samples(names):
        raise NotAPool(describe_questions(path, names))


def _check_first(value: object, path: Path) -> None:
    """Raises RecordInvalid if a file's first line shows that it is a file of questions or another tool's."""
    if not isinstance(value, dict) or "samples" in value:
        return
    if "doc_id" in value and "doc" in value:
        raise RecordInvalid(f"{path}: is a log of lm-eval; import it with --format lm-eval")
    if has_no_samples(value):
        raise RecordInvalid(describe_questions(path, value))
    if "id" not in value:
        raise RecordInvalid(
            f"{path}: its first line has neither id, question nor samples; give e.g. {EXAMPLE_LINE}; "
            f"{_IMPORT_REMEDY}"
        )


def _drop_answers(line: ProblemLine) -> ProblemLine:
    """Removes answers and grades of samples that have a text, so that both are computed again."""
    rows = [
        row if row[1] is None else (*row[:2], MISSING, MISSING, *row[4:8], drop_answer_signals(row[8]))
        for row in line.samples
    ]
    return line._replace(samples=rows)


def export_shards(pool: Pool, folder: str | os.PathLike[str], *, shards: int) -> ExportResult:
    """Writes a pool to a new folder of .parquet files, each with about the same number of problems.

    The folder appears only when it is complete. `open_pool` can open it.
    """
    target = Path(folder)
    check_export(target, shards=shards)
    problems = len(pool)
    if not problems:
        raise RecordInvalid(f"{pool.path}: holds no problem, so there is nothing to export; add some first")
    samples = 0
    with map_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with map_errors(target), publish_folder(target) as temporary:
        for number, lines in groupby(_assign_shards(pool, min(shards, problems)), key=lambda pair: pair[0]):
            shard_lines = [line for _, line in lines]
            samples += sum(len(line["samples"]) for line in shard_lines)
            part = temporary / f"part-{number:05}.parquet"
            write_parquet(shard_lines, part, levels=pool.level_types())
            sync_path(part)
        temporary.chmod(0o755)  # lets other users read the folder, even with a strict umask
    size = sum(part.stat().st_size for part in target.iterdir())
    return ExportResult(problems=problems, samples=samples, bytes=size)


def _assign_shards(pool: Pool, shards: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (file number, line) pairs; all lines of one problem go to the same file."""
    problems = len(pool)
    for place, (_, lines) in enumerate(groupby(pool.lines(), key=lambda line: line["id"])):
        for line in lines:
            yield place * shards // problems, line


def open_pool(
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    write: bool = False,
    task: Task | None = None,
    default_task: Task | None = None,
) -> Pool:
    """Opens a pool; it is read-only by default.

    `write=True` locks the pool for writing; `create=True` also creates it if it is missing. A .jsonl,
    .jsonl.gz or .parquet file, or a folder of Parquet files, is read into a temporary, read-only pool.

    `task` says how answers are extracted and compared. An existing pool has its own task, which must equal
    `task` if given. A new or temporary pool uses `default_task` if `task` is None.
    """
    location = Path(path)
    new_task = task or default_task or Task()
    with map_errors(location):
        if is_pool_file(location) and not (location.is_file() and is_sqlite(location)):
            if create or write:
                raise PoolError(
                    f"{location}: is a file to read; import it into a pool (.sqlite) to write to it"
                )
            return open_entries(read_native(location), new_task)
        if not (create or write):
            _check_suffix(location)
            return attach_pool(location, task)
        if location.exists():
            check_is_pool(location)
        elif not create:
            raise PoolNotFound(f"{location}: there is no such pool; check the path, or give create=True")
        lock = WriterLock(location)
    try:
        if location.exists():
            remove_leftovers(location, exclusive=True)
        else:
            with build_pool(location, new_task):
                pass
        return attach_pool(location, task, lock=lock)
    except BaseException:
        lock.close()
        raise


def open_entries(reading: FileEntries, task: Task, *, classes: Iterable[Sequence[int]] | None = None) -> Pool:
    """Reads all entries into a temporary pool; `classes` gives the class numbers of answers, if known."""
    path = str(reading.path)
    connection = build_private_pool(
        path, lambda new: fill_pool(new, reading, into=path, task=task, classes=classes)
    )
    return Pool(connection, path=path, task=task)


_RECORDINGS = ("facts", "words", "facts-qwen", "words-direct")
_RECORDINGS_FOLDER = "recordings"


def bundled_names() -> tuple[str, ...]:
    """Lists the names of the recordings in the package that `bundled` can open."""
    return _RECORDINGS


def bundled(name: str) -> Pool:
    """Opens a recording that is part of the package, for reading only.

    >>> len(bundled("facts"))
    353
    """
    folder = _find_folder(name)
    # read stored class numbers, because comparing all answers again would take seconds
    classes = json.loads(gzip.decompress((folder / f"{name}.classes.gz").read_bytes()))
    with as_file(folder / f"{name}.jsonl.gz") as path:
        return open_entries(read_native(path), Task(), classes=classes)


def _find_folder(name: str) -> Traversable:
    if name not in _RECORDINGS:
        raise PoolNotFound(
            f"there is no recording {name!r} in the package; there are {', '.join(_RECORDINGS)}"
        )
    return files("adacompute.pool") / _RECORDINGS_FOLDER
