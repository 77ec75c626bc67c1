"""Files of prompts: reads Parquet in limited batches, and writes it back with budgets and modes.

Files may be larger than memory. JSONL and CSV are converted to Parquet and back; apart from the added
columns, their lines and cells stay unchanged. The output is created in a hidden, locked folder next to its
destination, and published by a rename, so it is complete or missing. The next run removes what a killed run
left behind.
"""

import contextlib
import csv
import gzip
import io
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import orjson

from adacompute.atomic import lock_file, sync_path
from adacompute.errors import ScaleError, format_value, needs_extra, to_one_line
from adacompute.pool.sqlite import DAMAGE_ERRORS

Arrow: TypeAlias = Any  # pyarrow has no type hints
Ints = npt.NDArray[np.int64]
Budgets = Callable[[Arrow], Ints]  # function that returns the budgets of a batch's rows, in order
Draws = Sequence[tuple[str, int]]  # a router's choices: (mode, number of samples)
BUDGET = "budget"  # name of the added column
MODE = "mode"  # name of another added column, if the policy is a router (one that also chooses modes)
COLUMN_NAMES = ("prompt", "question", "text")  # names that the prompt column may have, in order of preference
_MAX_ROWS = 8192  # maximum number of rows per batch
_MAX_BYTES = 16 << 20  # approximate maximum size of a batch, in bytes
_BUFFER_BYTES = 1 << 20  # number of bytes read ahead per column
_READ_ERRORS = (*DAMAGE_ERRORS, OSError, RuntimeError, MemoryError)
_FINISHED = "parts"  # subfolder for complete files
_UNFINISHED = "begun"  # subfolder for incomplete files
_PREVIOUS = "before"  # name under which a replaced output folder is kept until the end
_LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """A Parquet file with prompts."""

    path: str
    groups: tuple[int, ...]  # number of rows in each row group
    width: int  # approximate bytes per row, in the row group whose rows are longest
    size: int  # size of the file in bytes
    changed: int  # time of the last change, in nanoseconds

    @property
    def rows(self) -> int:
        return sum(self.groups)

    def check(self) -> None:
        """Raises ScaleError if the file has changed since it was inspected."""
        with _map_read_errors(self.path):
            now = Path(self.path).stat()
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise ScaleError(f"{self.path}: was changed while it was read; start again when it is whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """All prompts that get budgets, in order."""

    path: Path
    files: tuple[PromptFile, ...]
    column: str

    def __len__(self) -> int:
        return sum(file.rows for file in self.files)


def list_added(draws: Draws | None) -> tuple[str, ...]:
    """Lists the names of the columns to add: `budget`, or for a router first `mode` and then `budget`."""
    return (BUDGET,) if draws is None else (MODE, BUDGET)


def open_prompts(source: Path, *, column: str | None = None, added: Sequence[str] = (BUDGET,)) -> PromptSet:
    """Inspects a Parquet file, or all those in a folder in order of name; doesn't read the rows yet.

    Raises ScaleError if there are no prompts, or if a column in `added` exists already.
    """
    paths = [source]
    if source.is_dir():
        paths = sorted(path for path in source.iterdir() if _is_part(path))
        if not paths:
            raise ScaleError(f"{source}: is a folder without .parquet files; give one with some, or a file")
        if (deeper := _find_nested(source)) is not None:
            raise ScaleError(
                f"{source}: {deeper.relative_to(source)} is in a subfolder, which would be left out; put all "
                "files into one folder, or give the folders one by one"
            )
    prompt_column, files = column, []
    for path in paths:
        file, schema = _inspect_file(path)
        prompt_column = _find_column(schema, prompt_column, path, added)
        files.append(file)
    prompts = PromptSet(path=source, files=tuple(files), column=prompt_column or "")
    if not len(prompts):
        raise ScaleError(f"{source}: holds no prompts; give at least one row")
    return prompts


def _is_part(path: Path) -> bool:
    is_visible = path.suffix.lower() == ".parquet" and not path.name.startswith((".", "_"))
    # counts broken links too, so that reading them later raises an error
    return is_visible and (path.is_file() or path.is_symlink())


def _find_nested(source: Path) -> Path | None:
    """Finds a Parquet file in a subfolder, if there is one."""
    folders = sorted(path for path in source.iterdir() if path.is_dir() and path.name[0] not in "._")
    return next((file for folder in folders for file in folder.rglob("*.parquet")), None)


def _inspect_file(path: Path) -> tuple[PromptFile, Arrow]:
    with _map_read_errors(path), open_parquet(path) as source:
        metadata = source.metadata
        groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
        status = path.stat()
        file = PromptFile(
            path=str(path),
            groups=tuple(group.num_rows for group in groups),
            width=max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0) + 1,
            size=status.st_size,
            changed=status.st_mtime_ns,
        )
        return file, source.schema_arrow


def choose_column(names: Sequence[str], wanted: str | None, place: str, added: Sequence[str]) -> str:
    """Chooses the prompt column: `wanted`, or else the first of COLUMN_NAMES that exists.

    Raises ScaleError if this column is missing or repeated, or if a column in `added` exists already.
    """
    present = ", ".join(names[:20]) or "nothing"
    if taken := [name for name in added if name in names]:
        raise ScaleError(
            f"{place}: has {taken[0]!r} already, which is what would be added; rename or drop it first"
        )
    name = wanted or next((name for name in COLUMN_NAMES if name in names), None)
    if name is None:
        raise ScaleError(
            f"{place}: has no column {', '.join(COLUMN_NAMES)}, but {present}; say which with --column"
        )
    if names.count(name) != 1:
        raise ScaleError(f"{place}: has {names.count(name) or 'no'} columns {name!r}; there are {present}")
    return name


def _find_column(schema: Arrow, wanted: str | None, path: Path, added: Sequence[str]) -> str:
    """Finds the prompt column, which must contain text."""
    import pyarrow as pa

    name = choose_column(schema.names, wanted, str(path), added)
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ScaleError(
            f"{path}: column {name!r} holds {kind}, not text; name a column of text with --column"
        )
    return name


def open_parquet(path: str | Path) -> Arrow:
    """Opens a file so that it is read piece by piece, because whole row groups may not fit in memory."""
    with needs_extra("parquet"):
        import pyarrow.parquet as pq

    return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)


@contextmanager
def _map_read_errors(path: str | Path) -> Iterator[None]:
    """Converts errors of pyarrow and the file system to a ScaleError."""
    try:
        yield
    except _READ_ERRORS as exc:
        raise ScaleError(
            f"{path}: can't be read as Parquet ({to_one_line(exc)}); write or copy it again"
        ) from exc


def iterate_batches(
    file: PromptFile, *, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
) -> Iterator[Arrow]:
    """Yields the rows of a file, or of some row groups, in batches of limited size."""
    rows = max(16, min(_MAX_ROWS, _MAX_BYTES // file.width))
    with _map_read_errors(file.path), open_parquet(file.path) as source:
        read = source.iter_batches(batch_size=rows, columns=columns, row_groups=groups, use_threads=False)
        try:
            yield from read
        except GeneratorExit:
            return


def read_texts(batch: Arrow, column: str, *, path: str, start: int) -> list[str]:
    """Reads the prompts of a batch that begins at row `start`; raises ScaleError if a prompt is missing."""
    values = batch.column(batch.schema.get_field_index(column))
    if values.null_count:
        row = start + values.is_null().to_pylist().index(True)
        raise ScaleError(
            f"{path}: row {row + 1} has no {column!r}; every row needs a prompt, fill or drop it"
        )
    try:
        prompts: list[str] = values.to_pylist()
    except UnicodeDecodeError as exc:
        raise ScaleError(
            f"{path}: {column!r} is not UTF-8 in one of the rows {start + 1} to {start + len(values)}; "
            "write it again as text"
        ) from exc
    return prompts


def check_source(source: Path) -> None:
    """Raises ScaleError if the source doesn't exist."""
    if not source.exists():
        raise ScaleError(
            f"{source}: there is no such file; give JSONL, CSV or Parquet, or a folder of Parquet"
        )


def check_destination(into: Path, source: Path, *, overwrite: bool) -> None:
    """Raises ScaleError, before any work, if the output can't be written to `into`."""
    with map_write_errors(into):
        try:
            target, source_path = into.resolve(), source.resolve()
        except RuntimeError as exc:
            raise ScaleError(f"{into} or {source}: is a link to itself; give another name") from exc
        _check_target(into, target, source, source_path)
        if into.is_dir() and (foreign := _find_foreign_file(into)):
            raise ScaleError(f"{into}: holds {foreign}, which is not Parquet; give another folder")
        if into.exists() and not overwrite and not (into.is_dir() and not any(into.iterdir())):
            raise ScaleError(f"{into}: is there already; give another name, or --overwrite")


def _check_target(into: Path, target: Path, source: Path, source_path: Path) -> None:
    """Raises ScaleError if the target overlaps the source, or if one is a file and the other a folder."""
    folder = source.is_dir()
    if (
        target == source_path
        or (folder and source_path in target.parents)
        or (into.is_dir() and target in source_path.parents)
    ):
        raise ScaleError(f"{into}: overlaps with what is read; give a place beside {source}")
    if not target.parent.is_dir():
        raise ScaleError(f"{into}: its folder is not there; create {target.parent} first")
    if into.exists() and not into.is_file() and not into.is_dir():  # e.g. /dev/null
        raise ScaleError(f"{into}: is neither a file nor a folder; give the name of a file")
    if into.is_dir() and not folder:
        raise ScaleError(f"{into}: is a folder; give the name of a file, e.g. {into / 'budgets.parquet'}")
    if folder and into.exists() and not into.is_dir():
        raise ScaleError(f"{into}: is a file, and a folder of Parquet gives a folder; give another name")


def _find_foreign_file(folder: Path) -> str | None:
    """Finds a file that wasn't written by `allocate`; a folder with such a file isn't replaced."""
    return next((path.name for path in folder.iterdir() if path.suffix.lower() != ".parquet"), None)


@contextlib.contextmanager
def open_working_folder(into: Path) -> Iterator[Path]:
    """Makes a hidden folder next to the output, locked for this run and removed at the end."""
    into = into.resolve()
    place = into.with_name(f".{into.name}.allocating")
    with map_write_errors(into):
        descriptor = _lock_folder(place, into)
    try:
        with map_write_errors(into):
            _restore_previous(place, into)
            for old in place.iterdir():
                if old.is_dir():
                    shutil.rmtree(old, ignore_errors=True)  # workers of a killed run may still write there
            own_folder = place / uuid4().hex  # workers of other runs don't know this name
            for name in (_FINISHED, _UNFINISHED):
                (own_folder / name).mkdir(parents=True)
        yield own_folder
    finally:
        try:
            _restore_previous(place, into)
            shutil.rmtree(place, ignore_errors=True)  # removed while locked, so no other run uses it
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            place.rmdir()  # only possible now, because on NFS the lock file exists until it is closed


def _restore_previous(place: Path, into: Path) -> None:
    """Moves the previous output back if a run was killed between the two renames that replace it."""
    before = place / _PREVIOUS
    if before.exists() and not into.exists():
        before.rename(into)


def _lock_folder(place: Path, into: Path) -> int:
    while True:
        place.mkdir(exist_ok=True)
        try:
            return lock_file(place / _LOCK)  # a file, because NFS can't lock folders
        except FileNotFoundError:  # another run has just removed the folder: try again
            continue
        except BlockingIOError as exc:
            raise ScaleError(f"{into}: another run is writing it; wait for it to end") from exc


def write_file(file: PromptFile, place: Path, budgets: Budgets, *, draws: Draws | None = None) -> None:
    """Writes a file with its budgets to the working folder; the same budgets always give the same bytes.

    With `draws` (of a router), `budgets` returns indexes of `draws`, and the column `mode` is written too.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.check()
    target = find_finished(place, file)
    temporary = place / _UNFINISHED / uuid4().hex
    with open_parquet(file.path) as source:
        schema = source.schema_arrow
    for name in list_added(draws):
        kind = pa.int64() if name == BUDGET else pa.string()
        schema = schema.append(pa.field(name, kind, nullable=False))
    with map_write_errors(target):
        with (
            temporary.open("wb") as out,
            pq.ParquetWriter(out, schema, compression="zstd", store_schema=True) as writer,
        ):
            for batch in iterate_batches(file):
                columns = [*batch.columns, *_build_columns(budgets(batch), draws)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        sync_path(temporary)
    temporary.replace(target)
    file.check()


def _build_columns(values: Ints, draws: Draws | None) -> list[Arrow]:
    """Builds the columns that are added to a batch."""
    import pyarrow as pa

    if draws is None:
        return [pa.array(values, type=pa.int64())]
    modes, counts = zip(*draws, strict=True)
    budgets = np.array(counts, dtype=np.int64)[values]
    return [pa.array([modes[value] for value in values.tolist()], type=pa.string()), pa.array(budgets)]


def find_finished(place: Path, file: PromptFile) -> Path:
    """Returns the path of a finished file before it is published."""
    return place / _FINISHED / Path(file.path).name


def publish(prompts: PromptSet, place: Path, into: Path) -> None:
    """Moves all finished files to their destination at once."""
    finished, into = place / _FINISHED, into.resolve()
    with map_write_errors(into):
        if prompts.path.is_dir():
            sync_path(finished)
            if into.is_dir() and any(into.iterdir()):
                into.rename(place.parent / _PREVIOUS)  # the old output, deleted later with the working folder
            finished.rename(into)  # works because the target is missing or an empty folder
        else:
            (finished / prompts.path.name).replace(into)
        sync_path(into.parent)


@contextlib.contextmanager
def map_write_errors(path: Path) -> Iterator[None]:
    """Converts disk errors to a ScaleError that names the path."""
    try:
        yield
    except OSError as exc:
        raise ScaleError(
            f"{path}: can't be written ({exc.strerror or to_one_line(exc)}); check the disk, or the name"
        ) from exc


_SUFFIXES = {".jsonl": "JSONL", ".ndjson": "JSONL", ".csv": "CSV", ".tsv": "CSV"}
_PROMPT, _ROW = "prompt", "row"  # columns of the intermediate Parquet file
_TABLE = "prompts.parquet"  # name of the intermediate Parquet file in the working folder
_GROUP_ROWS = 8192
_GROUP_CHARACTERS = 8 << 20
_TEXT_ERRORS = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


_Added = Mapping[str, str | int]  # name of an added column -> its value in a row


class _Row(NamedTuple):
    """A row of a JSONL or CSV file: its prompt, and the whole row as text."""

    prompt: str
    text: str


def find_text_kind(path: Path) -> str:
    """Returns "JSONL" or "CSV" according to a file's name (with or without .gz), or "" for other names."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    return "" if path.is_dir() or not suffixes else _SUFFIXES.get(suffixes[-1], "")


def check_text_output(into: Path, source: Path) -> None:
    """Raises ScaleError if the output's name suggests a format other than the one to be written."""
    given, kind = find_text_kind(into), find_text_kind(source) or "Parquet"
    if given == kind or (kind == "Parquet" and not given):
        return
    suffixes = source.suffixes[-2:] if source.suffix.lower() == ".gz" else [source.suffix]
    example = into.name.partition(".")[0] + "".join(suffixes)
    raise ScaleError(f"{into}: would be {kind}, as {source} is; give a name such as {example}")


def read_text_prompts(
    source: Path, place: Path, *, column: str | None, added: Sequence[str] = (BUDGET,)
) -> PromptSet:
    """Converts the prompts of a JSONL or CSV file to Parquet in the working folder."""
    with needs_extra("parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    schema = pa.schema([(_PROMPT, pa.large_string()), (_ROW, pa.large_string())])
    table = place / _TABLE
    with map_write_errors(table), pq.ParquetWriter(table, schema) as writer:
        for group in _group_rows(_read_rows(source, column, added)):
            prompts, texts = zip(*group, strict=True)
            writer.write_table(pa.table([prompts, texts], schema))
    try:
        return open_prompts(table, column=_PROMPT)
    except ScaleError as exc:
        raise ScaleError(str(exc).replace(str(table), str(source))) from exc


def publish_text(
    source: Path, prompts: PromptSet, place: Path, into: Path, *, added: Sequence[str] = (BUDGET,)
) -> None:
    """Writes prompts with budgets in the source's format, and moves them to their destination."""
    finished = find_finished(place, prompts.files[0])
    written = finished.with_name("text")
    (table,) = open_prompts(finished, column=_PROMPT, added=()).files
    rows = (
        (text, dict(zip(added, values, strict=True)))
        for batch in iterate_batches(table, columns=[_ROW, *added])
        for text, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    kind, packed = find_text_kind(source), into.suffix.lower() == ".gz"
    with map_write_errors(into):
        with written.open("wb") as raw:
            if packed:
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out:
                    _write_rows(kind, rows, cast("IO[bytes]", out), source, added)
            else:
                _write_rows(kind, rows, raw, source, added)
        sync_path(written)
        written.replace(into.resolve())
        sync_path(into.resolve().parent)


def _write_rows(
    kind: str, rows: Iterable[tuple[str, _Added]], out: IO[bytes], source: Path, added: Sequence[str]
) -> None:
    if kind == "JSONL":
        out.writelines(_add_keys(text, values) for text, values in rows)
        return
    text_out = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    with _open_text(source) as file:
        head = next(_make_csv_reader(file, source))
    writer = csv.writer(text_out, delimiter=_find_delimiter(source), lineterminator="\n")
    writer.writerow([*head, *added])
    writer.writerows([*orjson.loads(text), *values.values()] for text, values in rows)
    text_out.detach()


def _add_keys(line: str, values: _Added) -> bytes:
    """Adds keys to the JSON object in a line; leaves the rest of the line unchanged."""
    head = line.rstrip().removesuffix("}").rstrip()
    comma = "" if head.endswith("{") else ", "
    keys = ", ".join(f'"{name}": {orjson.dumps(value).decode()}' for name, value in values.items())
    return f"{head}{comma}{keys}}}\n".encode()


@contextmanager
def _open_text(source: Path) -> Iterator[IO[str]]:
    """Opens a file as text, decompressed if needed; converts errors to a ScaleError."""
    try:
        with source.open("rb") as raw:
            unpacked: Any = gzip.GzipFile(fileobj=raw) if source.suffix.lower() == ".gz" else raw
            yield io.TextIOWrapper(unpacked, "utf-8-sig", newline="")
    except _TEXT_ERRORS as exc:
        raise ScaleError(f"{source}: can't be read ({to_one_line(exc)}); write or copy it again") from exc


def _read_rows(source: Path, column: str | None, added: Sequence[str]) -> Iterator[_Row]:
    read = _read_jsonl if find_text_kind(source) == "JSONL" else _read_csv
    with _open_text(source) as file:
        yield from read(file, source, column, added)


def _read_jsonl(file: IO[str], source: Path, column: str | None, added: Sequence[str]) -> Iterator[_Row]:
    for number, line in enumerate(file, start=1):
        text = line.strip()
        if not text:
            continue
        place = f"{source}: line {number}"
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            raise ScaleError(f"{place} is not JSON ({exc}); write one object a line") from exc
        if not isinstance(value, dict):
            raise ScaleError(f"{place} is not a JSON object; write one object a line")
        column = choose_column(list(value), column, place, added)
        yield _Row(_check_prompt(value.get(column), column, place), text)


def _read_csv(file: IO[str], source: Path, column: str | None, added: Sequence[str]) -> Iterator[_Row]:
    reader = _make_csv_reader(file, source)
    head = next(reader, [])
    column = choose_column(head, column, str(source), added)
    index = head.index(column)
    for number, cells in enumerate(reader, start=1):
        if not cells:
            continue
        place = f"{source}: row {number}"
        if len(cells) != len(head):
            raise ScaleError(f"{place} has {len(cells)} cells, not {len(head)} as the first line; mend it")
        yield _Row(_check_prompt(cells[index], column, place), orjson.dumps(cells).decode())


def _make_csv_reader(file: IO[str], source: Path) -> Iterator[list[str]]:
    return csv.reader(file, delimiter=_find_delimiter(source), strict=True)


def _find_delimiter(source: Path) -> str:
    return "\t" if source.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def _check_prompt(value: object, column: str, place: str) -> str:
    if not isinstance(value, str):
        raise ScaleError(f"{place}: {column!r} is {format_value(value)}, not text; fill or drop it")
    return value


def _group_rows(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yields the rows in groups that fit in memory."""
    group: list[_Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row.text)
        if len(group) >= _GROUP_ROWS or size >= _GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group
