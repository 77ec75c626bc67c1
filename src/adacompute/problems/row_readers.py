"""Reads rows from files, pipes and standard input: JSON lines, JSON lists, CSV and Parquet, also gzipped.

Doesn't validate or interpret rows. Imports pyarrow only for Parquet files.
"""

import csv
import errno
import gzip
import io
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast

from adacompute.errors import ProblemsInvalid, format_value, needs_extra, to_one_line
from adacompute.pool.formats import (
    BUFFER_BYTES,
    LINE_LIMIT,
    PARQUET_ERRORS,
    UTF8_MARK,
    parse_json,
    unpack_stream,
)
from adacompute.pool.sqlite import Json


class ProblemRow(NamedTuple):
    """One problem as its source stores it, before validation."""

    place: str  # where the row is in its source, such as "line 7"
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """A file or dataset whose rows are being read."""

    place: str  # what error messages call the source, such as its path
    rows: Iterator[ProblemRow]
    typed: bool = True  # False if all values are text, as in CSV


STDIN = "-"
WHOLE_LIMIT = 1 << 30  # maximum size of a file that can only be read as a whole, in bytes
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # the byte order marks of UTF-16


@contextmanager
def translate_os_errors(path: str | Path) -> Iterator[None]:
    """Converts errors of the file system to ProblemsInvalid, with `path` in the message."""
    try:
        yield
    except FileNotFoundError as exc:
        raise ProblemsInvalid(f"{path}: there is no such file; check the path") from exc
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ProblemsInvalid(f"{path}: the gzip data is cut off or corrupt ({exc}); copy it again") from exc
    except BrokenPipeError:  # raised when we write our own output, not by the file that we read
        raise
    except OSError as exc:
        if exc.errno == errno.EISDIR:
            raise ProblemsInvalid(f"{path}: is a folder; give a file") from exc
        raise ProblemsInvalid(
            f"{path}: can't be read ({exc.strerror or exc}); check the path and its permissions"
        ) from exc


@contextmanager
def open_stream(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file, a pipe or `-` (standard input), and decompresses gzip."""
    with translate_os_errors(path):
        if str(path) == STDIN:
            if sys.stdin is None:
                raise ProblemsInvalid("-: there is no standard input here; give a file")
            yield unpack_stream(sys.stdin.buffer)  # standard input is left open
            return
        with Path(path).open("rb", buffering=BUFFER_BYTES) as raw:
            yield unpack_stream(raw)


def read_lines(stream: IO[bytes], place: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yields (line number, line) without a byte order mark; raises ProblemsInvalid if a line is too long."""
    number = 0
    while line := stream.readline(LINE_LIMIT + 1):
        number += 1
        if len(line) > LINE_LIMIT:
            raise ProblemsInvalid(f"{place}: line {number} is longer than {LINE_LIMIT} bytes; split it")
        if number == 1:
            line = _check_start(line, place)
        yield number, line


def _check_start(line: bytes, place: str | Path) -> bytes:
    # in UTF-16, every second byte of plain text is zero
    if line.startswith(_UTF16_MARKS) or b"\0\0" in (line[:4:2], line[1:4:2]):
        raise ProblemsInvalid(f"{place}: line 1 is not UTF-8 but UTF-16; save the file as UTF-8")
    return line.removeprefix(UTF8_MARK)


def read_whole(stream: IO[bytes], place: str | Path) -> bytes:
    """Reads the remaining bytes of a stream, without a byte order mark."""
    data = stream.read(WHOLE_LIMIT + 1)
    if len(data) > WHOLE_LIMIT:
        raise ProblemsInvalid(f"{place}: is longer than {WHOLE_LIMIT} bytes; give JSON lines (.jsonl)")
    return _check_start(data, place)


def starts_with_list(stream: IO[bytes]) -> bool:
    """Whether a JSON list comes next; consumes no input. False if the bytes read ahead are all blank."""
    return cast("io.BufferedReader", stream).peek(64).removeprefix(UTF8_MARK).lstrip()[:1] == b"["


def decode_line(line: bytes, place: str) -> str:
    """Decodes a line; raises ProblemsInvalid if it isn't UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ProblemsInvalid(
            f"{place} is not UTF-8 at byte {exc.start + 1} ({line[exc.start : exc.start + 1]!r}); "
            "save the file as UTF-8"
        ) from exc


CsvReader: TypeAlias = Any  # the type of a CSV reader, which the module `csv` doesn't export

_JSON_REMEDY = "write one object a line, or one list of objects, in UTF-8"
_CSV_DELIMITERS = ",;\t"
_QUOTED_CELL = re.compile(r'"[^"]*"')
_SEPARATOR_LINE = re.compile(r"sep=([,;\t|])")
_COLUMN_IN_LINE = re.compile(r"line 1 column (\d+) \(char \d+\)")


def read_json_rows(path: str | Path, *, remedy: str = _JSON_REMEDY) -> Iterator[ProblemRow]:
    """Yields the objects in a file of JSON lines, or in a JSON list if the file begins with [.

    Blank lines are skipped. Error messages end with `remedy`.
    """
    with open_stream(path) as stream:
        if starts_with_list(stream):
            yield from _read_items(read_whole(stream, path), str(path), remedy)
            return
        started = False
        for number, line in read_lines(stream, path):
            if not line.strip():
                continue
            # a JSON list after all: it begins with many blanks, or a pipe delivered its first bytes late
            if not started and line.lstrip()[:1] == b"[":
                yield from _read_items(line + read_whole(stream, path), str(path), remedy)
                return
            started = True
            place = f"line {number}"
            yield ProblemRow(place, _parse_json(line.strip(), f"{path}: {place}", remedy))


def _read_items(data: bytes, path: str, remedy: str) -> Iterator[ProblemRow]:
    for number, item in enumerate(_parse_json(data, f"{path}:", remedy), start=1):
        yield ProblemRow(f"item {number}", item)


def read_csv_rows(path: str | Path, *, delimiter: str = ",") -> Iterator[ProblemRow]:
    """Yields the rows below the header, as text. An empty cell is a missing value; empty rows are skipped."""
    with open_stream(path) as stream:
        lines = (decode_line(line, f"{path}: line {number}") for number, line in read_lines(stream, path))
        reader = _make_csv_reader(lines, delimiter)
        names: list[str] | None = None
        end = 0  # number of the previous row's last line, because a row may span several lines
        while True:
            place = f"line {end + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as exc:
                raise ProblemsInvalid(_describe_csv_error(f"{path}: {place}", exc)) from exc
            end = reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = _read_header(cells, f"{path}: {place}")
                continue
            if len(cells) != len(names):
                raise ProblemsInvalid(
                    f"{path}: {place} has {len(cells)} cells, and the header {len(names)}; "
                    'quote a cell that holds a comma, a semicolon, a tab or a line break: "a, b"'
                )
            row = {name: cell or None for name, cell in zip(names, cells, strict=True) if name}
            if any(row.values()):
                yield ProblemRow(place, row)


def _make_csv_reader(lines: Iterator[str], delimiter: str) -> CsvReader:
    """Makes a CSV reader for this delimiter, or for another one if only that one occurs in the header."""
    head = []  # all lines up to and including the header
    for line in lines:
        head.append(line)
        if line.strip():
            break
    first = head[-1] if head else ""
    bare = _QUOTED_CELL.sub("", first)
    if declared := _SEPARATOR_LINE.fullmatch(first.strip()):
        # a blank line replaces the line "sep=;" of a spreadsheet, so that other lines keep their numbers
        delimiter, head[-1] = declared[1], "\n"
    elif delimiter not in bare:
        delimiter = next((other for other in _CSV_DELIMITERS if other in bare), delimiter)
    return csv.reader(chain(head, lines), delimiter=delimiter, strict=True)


def _parse_json(data: bytes, place: str, remedy: str) -> Json:
    try:
        return parse_json(data)
    except ValueError as exc:
        # in a single line, the parser's own line number is always 1, which would be confusing
        why = str(exc) if b"\n" in data else _COLUMN_IN_LINE.sub(r"character \1", str(exc))
        raise ProblemsInvalid(f"{place} is not JSON: {why}; {remedy}") from exc


def _read_header(cells: list[str], place: str) -> list[str]:
    """Reads the column names. If the first is empty, as in tables from pandas, its column is ignored."""
    names = [cell.strip() for cell in cells]
    if not all(names[1:]):
        raise ProblemsInvalid(f"{place}: the header has a column without a name; name it")
    for name, number in Counter(names).items():
        if number > 1:
            raise ProblemsInvalid(
                f"{place}: the header names {format_value(name)} twice; give each column its own"
            )
    return names


def _describe_csv_error(place: str, exc: csv.Error) -> str:
    if "field limit" in str(exc):
        return f"{place} has a cell that is too long for CSV ({exc}); give JSON lines or Parquet"
    return f"{place} is not CSV ({exc}); check its quotes, or give JSON lines"


_BATCH_ROWS = 1024  # number of rows read at a time
_SPLIT_NAME = re.compile(r"(train|test|validation|valid|val|dev)(?![^\W_])")
# alias of a split -> its name in `datasets`
_SPLIT_ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}
# columns of a pool file that aren't part of a problem
_POOL_COLUMNS = {"samples", "failures", "parameters", "model"}


def read_parquet_rows(path: Path, *, prefix: str = "") -> Iterator[ProblemRow]:
    """Yields the rows of one Parquet file; nulls are missing values."""
    with needs_extra("parquet"):
        import pyarrow.parquet as pq

    with translate_os_errors(path), path.open("rb") as raw:
        number = 0
        try:
            with pq.ParquetFile(raw) as source:
                names = source.schema_arrow.names
                # in an exported pool, the samples are structs; its column `extra` contains JSON text
                is_pool_file = "samples" in names and "struct" in str(source.schema_arrow.field("samples"))
                columns = [name for name in names if not (is_pool_file and name in _POOL_COLUMNS)]
                for batch in source.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                    for value in batch.to_pylist():
                        number += 1
                        yield ProblemRow(
                            f"{prefix}row {number}", _restore_pool_line(value) if is_pool_file else value
                        )
        except PARQUET_ERRORS as exc:
            after = f" after row {number}" if number else ""
            raise ProblemsInvalid(
                f"{path}: can't be read as Parquet{after} ({to_one_line(exc)}); write or copy it again"
            ) from exc


def read_folder_rows(path: Path) -> Iterator[ProblemRow]:
    """Yields the rows of all Parquet files in a folder and its subfolders, sorted by path."""
    parts = sorted(part for part in path.rglob("*.parquet") if part.is_file())
    if not parts:
        raise ProblemsInvalid(
            f"{path}: is a folder without .parquet files; give a file, or hf:{path} if `datasets` saved it"
        )
    _check_one_table(path, [part.relative_to(path) for part in parts])
    for part in parts:
        yield from read_parquet_rows(part, prefix=f"{part.relative_to(path).as_posix()} ")


def _check_one_table(path: Path, parts: list[Path]) -> None:
    """Raises ProblemsInvalid if the files are of several splits or tables, as in a cloned dataset."""
    tables = sorted({part.parent.as_posix() for part in parts if _SPLIT_NAME.match(part.name)})
    if len(tables) > 1:
        raise ProblemsInvalid(
            f"{path}: holds several tables ({', '.join(tables)}); give one, {path / tables[0]}, "
            f"or hf:{path} where it is a clone of a dataset"
        )
    splits = sorted({split for part in parts if (split := _find_split(part))})
    if len(splits) > 1:
        names = ", ".join(splits)
        raise ProblemsInvalid(
            f"{path}: holds the splits {names}; give one file, or one split: hf:{path}@{splits[0]}"
        )


def _find_split(part: Path) -> str | None:
    """Finds the name of a split in the name of a file or of a folder above it."""
    match = next(
        (name_match for name in reversed(part.parts) if (name_match := _SPLIT_NAME.match(name))), None
    )
    return _SPLIT_ALIASES.get(match[1], match[1]) if match else None


def _restore_pool_line(value: dict[str, Any]) -> dict[str, Any]:
    """Converts a row of an exported pool to a line of a pool file, with an empty list of samples."""
    extra = value.pop("extra", None)
    values = {name: part for name, part in value.items() if part is not None}
    return values | (json.loads(extra) if extra else {}) | {"samples": []}
