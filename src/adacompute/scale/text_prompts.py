"""Prompts in JSONL and CSV files: turned into Parquet for the engines, and back, with their budgets.

Both ways take a bounded number of rows at a time. Lines of JSON are kept as they are written, and so are the
cells of CSV, so that nothing but `budget`, and a router's `mode`, is new in the output.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import orjson

from adacompute.atomic import sync_path
from adacompute.errors import ScaleError, format_value, needs_extra, to_one_line
from adacompute.scale.prompt_files import (
    BUDGET,
    PromptSet,
    choose_column,
    find_finished,
    iterate_batches,
    map_write_errors,
    open_prompts,
)

_SUFFIXES = {".jsonl": "JSONL", ".ndjson": "JSONL", ".csv": "CSV", ".tsv": "CSV"}
_PROMPT, _ROW = "prompt", "row"  # the columns of the Parquet in between
_TABLE = "prompts.parquet"  # its name in the working folder
_GROUP_ROWS = 8192
_GROUP_CHARACTERS = 8 << 20
_READ_ERRORS = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


_Added = Mapping[str, str | int]  # what is added to a row, by name


class _Row(NamedTuple):
    """One row: its prompt, and the whole of it as text."""

    prompt: str
    text: str


def find_text_kind(path: Path) -> str:
    """ "JSONL" or "CSV" by the name of a file, also of a packed one (.gz); "" for anything else."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    return "" if path.is_dir() or not suffixes else _SUFFIXES.get(suffixes[-1], "")


def check_text_output(into: Path, source: Path) -> None:
    """Refuses an output whose name says another format than the one that will be written."""
    given, kind = find_text_kind(into), find_text_kind(source) or "Parquet"
    if given == kind or (kind == "Parquet" and not given):
        return
    suffixes = source.suffixes[-2:] if source.suffix.lower() == ".gz" else [source.suffix]
    example = into.name.partition(".")[0] + "".join(suffixes)
    raise ScaleError(f"{into}: would be {kind}, as {source} is; give a name such as {example}")


def read_text_prompts(
    source: Path, place: Path, *, column: str | None, added: Sequence[str] = (BUDGET,)
) -> PromptSet:
    """The prompts of a JSONL or CSV file, as Parquet in the working folder."""
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
    """Writes the prompts with their budgets, in the source's format, and moves them to their destination."""
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
    """A line of JSON with these keys more; the rest of it stays as it is written."""
    head = line.rstrip().removesuffix("}").rstrip()
    comma = "" if head.endswith("{") else ", "
    keys = ", ".join(f'"{name}": {orjson.dumps(value).decode()}' for name, value in values.items())
    return f"{head}{comma}{keys}}}\n".encode()


@contextmanager
def _open_text(source: Path) -> Iterator[IO[str]]:
    """The file's text; errors of reading become ours."""
    try:
        with source.open("rb") as raw:
            unpacked: Any = gzip.GzipFile(fileobj=raw) if source.suffix.lower() == ".gz" else raw
            yield io.TextIOWrapper(unpacked, "utf-8-sig", newline="")
    except _READ_ERRORS as exc:
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
            raise ScaleError(f"{place} is no JSON object; write one object a line")
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
    return "\t" if ".tsv" in source.name.lower() else ","


def _check_prompt(value: object, column: str, place: str) -> str:
    if not isinstance(value, str):
        raise ScaleError(f"{place}: {column!r} is {format_value(value)}, not text; fill or drop it")
    return value


def _group_rows(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """The rows, in groups that fit in memory."""
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
