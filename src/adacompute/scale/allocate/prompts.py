"""Prompts in Parquet, a file or a folder of them, read in batches. Knows nothing of what they get.

A file may be larger than memory: it is read a page at a time, and a batch is bounded in rows and in bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.errors import ScaleError
from adacompute.pool.faults import UNSOUND, one_line

__all__ = ["BUDGET", "File", "Prompts", "batches", "opened", "texts"]

Arrow: TypeAlias = Any  # pyarrow ships no types

BUDGET = "budget"  # the column that is added
_NAMES = ("prompt", "question", "text")  # of the column of prompts, the first that is there
_ROWS = 8192  # of a batch, at the most
_BYTES = 16 << 20  # of a batch, about, at the most
_PAGES = 1 << 20  # bytes that a column is read ahead
_FOREIGN = (*UNSOUND, OSError, RuntimeError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file: a table of its own."""

    path: str
    groups: tuple[int, ...]  # rows of each row group
    width: int  # bytes of a row, about, in the row group that has the longest
    size: int  # bytes of the file
    changed: int  # nanoseconds

    @property
    def rows(self) -> int:
        return sum(self.groups)

    def check(self) -> None:
        """Refuses it where it isn't what it was when it was first looked at."""
        with _readable(self.path):
            now = Path(self.path).stat()
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise ScaleError(f"{self.path}: was changed while it was read; start again when it is whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """All that is to be given budgets, in order."""

    path: Path
    folder: bool
    files: tuple[File, ...]
    column: str

    def __len__(self) -> int:
        return sum(file.rows for file in self.files)


def opened(source: Path, *, column: str | None = None) -> Prompts:
    """The Parquet file, or those of a folder in the order of their names, looked at but not read."""
    if not source.exists():
        raise ScaleError(f"{source}: there is no such file; give a Parquet file, or a folder of them")
    paths = [source]
    if source.is_dir():
        paths = sorted(path for path in source.iterdir() if _is_part(path))
        if not paths:
            raise ScaleError(f"{source}: is a folder without .parquet files; give one with some, or a file")
        if (deeper := _deeper(source)) is not None:
            raise ScaleError(
                f"{source}: {deeper.relative_to(source)} lies in a folder of the folder, which would be left "
                "out; put all files into one folder, or give these one by one"
            )
    elif source.suffix.lower() in (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz"):
        way = "csv.read_csv" if ".csv" in source.name.lower() else "json.read_json"
        raise ScaleError(
            f"{source}: is not Parquet; make it so with pyarrow, parquet.write_table({way}({source.name!r}), "
            "'prompts.parquet')"
        )
    wanted, files = column, []
    for path in paths:
        file, schema = _looked_at(path)
        wanted = _column(schema, wanted, path)
        files.append(file)
    found = Prompts(path=source, folder=source.is_dir(), files=tuple(files), column=wanted or "")
    if not len(found):
        raise ScaleError(f"{source}: holds no prompts; give at least one row")
    return found


def _is_part(path: Path) -> bool:
    shown = path.suffix.lower() == ".parquet" and not path.name.startswith((".", "_"))
    return shown and (
        path.is_file() or path.is_symlink()
    )  # a link that leads nowhere is refused, not left out


def _deeper(source: Path) -> Path | None:
    """A Parquet file in a folder of the folder, if there is one."""
    folders = sorted(each for each in source.iterdir() if each.is_dir() and each.name[0] not in "._")
    return next((file for folder in folders for file in folder.rglob("*.parquet")), None)


def _looked_at(path: Path) -> tuple[File, Arrow]:
    with _readable(path), parquet(path) as source:
        known = source.metadata
        groups = [known.row_group(k) for k in range(known.num_row_groups)]
        status = path.stat()
        file = File(
            path=str(path),
            groups=tuple(group.num_rows for group in groups),
            width=max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0) + 1,
            size=status.st_size,
            changed=status.st_mtime_ns,
        )
        return file, source.schema_arrow


def _column(schema: Arrow, wanted: str | None, path: Path) -> str:
    """The column of prompts, which is there once and holds texts."""
    import pyarrow as pa

    there = ", ".join(schema.names[:20]) or "none"
    if BUDGET in schema.names:
        raise ScaleError(
            f"{path}: has a column {BUDGET!r} already, which is what would be added; rename or drop it first"
        )
    name = wanted or next((name for name in _NAMES if name in schema.names), None)
    if name is None:
        raise ScaleError(f"{path}: has no column {', '.join(_NAMES)}, but {there}; say which with --column")
    if schema.names.count(name) != 1:
        raise ScaleError(
            f"{path}: has {schema.names.count(name) or 'no'} columns {name!r}; there are {there}"
        )
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ScaleError(
            f"{path}: column {name!r} holds {kind}, not text; name a column of text with --column"
        )
    return name


def parquet(path: str | Path) -> Arrow:
    """The open file, read as it is needed: whole row groups may not fit in memory."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, buffer_size=_PAGES, pre_buffer=False)


@contextmanager
def _readable(path: str | Path) -> Iterator[None]:
    """What pyarrow and the file system raise becomes ours."""
    try:
        yield
    except _FOREIGN as exc:
        raise ScaleError(
            f"{path}: can't be read as Parquet ({one_line(exc)}); write or copy it again"
        ) from exc


def batches(
    file: File, *, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
) -> Iterator[Arrow]:
    """The rows of a file, or of some of its row groups, a bounded number at a time."""
    rows = max(16, min(_ROWS, _BYTES // file.width))
    with _readable(file.path), parquet(file.path) as source:
        read = source.iter_batches(batch_size=rows, columns=columns, row_groups=groups, use_threads=False)
        try:
            yield from read
        except GeneratorExit:
            return


def texts(batch: Arrow, column: str, *, path: str, start: int) -> list[str]:
    """The prompts of a batch, whose first row is `start`; none may be missing."""
    values = batch.column(batch.schema.get_field_index(column))
    if values.null_count:
        row = start + values.is_null().to_pylist().index(True)
        raise ScaleError(
            f"{path}: row {row + 1} has no {column!r}; every row needs a prompt, fill or drop it"
        )
    try:
        found: list[str] = values.to_pylist()
    except UnicodeDecodeError as exc:
        raise ScaleError(
            f"{path}: {column!r} is not UTF-8 in one of the rows {start} to {start + len(values) - 1}; "
            "write it again as text"
        ) from exc
    return found
