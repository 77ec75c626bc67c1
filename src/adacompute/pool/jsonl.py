"""Pool files of JSON lines, plain or gzip. Knows nothing of what a line means."""

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import orjson

from adacompute.errors import PoolError, RecordInvalid
from adacompute.pool.content import Json
from adacompute.pool.faults import mapped
from adacompute.pool.reading import Entry, place_in

__all__ = ["LINE_LIMIT", "jsonl_entries", "parse_exactly", "write_jsonl"]

LINE_LIMIT = 64 << 20  # bytes; one problem with all its samples
_BUFFER = 1 << 20
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def jsonl_entries(path: Path, *, file: int = 0, limit: int = LINE_LIMIT) -> Iterator[Entry]:
    """The lines of a file that are not blank, parsed; errors name the file and the line."""
    number = 0
    try:
        with mapped(path), _opened(path) as stream:
            while line := stream.readline(limit + 1):
                number += 1
                if len(line) > limit:
                    raise RecordInvalid(
                        f"{path}: line {number} is longer than {limit} bytes; split its samples over files"
                    )
                line = (line.removeprefix(_BOM) if number == 1 else line).strip()
                if line:
                    yield _entry(line, path, number, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        cut = isinstance(exc, EOFError)
        # it is unpacked a buffer ahead of the lines
        where = f"after line {number}" if number else f"within its first {_BUFFER >> 20} MiB"
        raise PoolError(
            f"{path}: the gzip data {'ends too early' if cut else 'is corrupt'} {where} ({exc}); "
            "copy the file again"
        ) from exc


def parse_exactly(line: bytes) -> Json:
    """JSON as written: whole numbers of any size; ValueError where it is none."""
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 at byte {exc.start + 1}") from exc
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc


def write_jsonl(lines: Iterable[dict[str, Any]], path: Path, *, compress: bool) -> None:
    """One line a problem; equal lines, equal bytes."""
    with path.open("wb", buffering=_BUFFER) as raw:
        if not compress:
            raw.writelines(map(_dumped, lines))
            return
        # no name and no time in the header: the bytes depend on the content alone
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
            for line in lines:
                packed.write(_dumped(line))


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb", buffering=_BUFFER) as raw:
        start = cast("io.BufferedReader", raw).peek(2)[:2]  # not read: a pipe can't go back
        if not (path.suffix == ".gz" or start == _GZIP):
            yield raw
            return
        # GzipFile's own lines are slow: let a buffer cut them
        with io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)), _BUFFER) as stream:
            yield stream


def _entry(line: bytes, path: Path, number: int, file: int) -> Entry:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        # it may still be JSON: the fast parser refuses half surrogates and deep nesting
        return Entry(place_in(file, number), _exactly(line, path, number))
    return Entry(place_in(file, number), value, lambda: _exactly(line, path, number))


def _exactly(line: bytes, path: Path, number: int) -> Json:
    try:
        return parse_exactly(line)
    except ValueError as exc:
        raise RecordInvalid(f"{path}: line {number} is no JSON: {exc}; write one object a line") from exc


def _dumped(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a whole number of more than 64 bits among the unknown keys
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number that JSON knows")
