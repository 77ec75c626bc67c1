"""Reads and writes pool files (JSON lines, optionally in gzip, or Parquet), one problem per line or row.

pyarrow is imported only for Parquet files.
"""

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias, cast

import msgspec
import orjson

from adacompute.errors import NotAPool, PoolDamaged, PoolError, RecordInvalid, needs_extra, to_one_line
from adacompute.pool.rows import Flaw, describe_questions, has_no_samples, raise_flaw
from adacompute.pool.sqlite import DAMAGE_ERRORS, Json, map_errors, to_canonical_json

Arrow: TypeAlias = Any  # pyarrow has no type annotations

_LINE_BITS = 40  # number of low bits for the line number in an encoded place; the others are the file number

# limits for JSON lines
LINE_LIMIT = 64 << 20  # maximum length of a line (one problem with all its samples), in bytes
BUFFER_BYTES = 1 << 20  # number of bytes read from a file at once
UTF8_MARK = b"\xef\xbb\xbf"  # byte order mark, ignored at the start of a file
_GZIP_MAGIC = b"\x1f\x8b"

# limits for Parquet files
_BATCH_ROWS = 128  # number of problems read at once
_GROUP_SAMPLES = 50_000  # maximum number of samples per row group; they take about 10 MB
_GROUP_BYTES = 32 << 20
# exceptions that pyarrow raises for invalid Parquet; its own classes derive from ValueError, LookupError etc.
PARQUET_ERRORS = (*DAMAGE_ERRORS, OSError, RuntimeError, MemoryError)
_JSON_COLUMNS = ("parameters", "failures", "extra")  # columns that hold JSON text
_TEXT_COLUMNS = ("id", "question", "gold", "subject", "model")


class Entry(NamedTuple):
    """One problem read from a file, not yet validated."""

    place: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntries:
    """The problems of one or several files, read one after another."""

    path: Path
    unit: str  # word for an entry in error messages: "line", "row" or "problem"
    files: tuple[str, ...]  # names of the files in the folder `path`, or the name of the file `path`
    entries: Generator[Entry, None, None]

    def format_place(self, place: int) -> str:
        """Converts a place, encoded by `encode_place`, to text for messages, such as "line 3"."""
        number, line = place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)
        return f"{self.files[number]} {self.unit} {line}" if len(self.files) > 1 else f"{self.unit} {line}"


def encode_place(file: int, line: int) -> int:
    """Encodes a file number (from 0) and a line number (from 1) as one integer."""
    return file << _LINE_BITS | line


def read_jsonl(path: Path, *, file: int = 0, limit: int = LINE_LIMIT) -> Generator[Entry, None, None]:
    """Yields the parsed lines of a file, skipping blank lines; errors name the file and the line."""
    number = 0
    try:
        with map_errors(path), path.open("rb", buffering=BUFFER_BYTES) as raw:
            stream = unpack_stream(raw, packed=path.suffix == ".gz")
            while line := stream.readline(limit + 1):
                number += 1
                if len(line) > limit:
                    raise RecordInvalid(
                        f"{path}: line {number} is longer than {limit} bytes; split its samples over files"
                    )
                line = (line.removeprefix(UTF8_MARK) if number == 1 else line).strip()
                if line:
                    yield Entry(encode_place(file, number), _parse_line(line, path, number))
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        truncated = isinstance(exc, EOFError)
        # data is decompressed in blocks, so the damage may be some lines after the last one that was read
        where = f"after line {number}" if number else f"within its first {BUFFER_BYTES >> 20} MiB"
        raise PoolError(
            f"{path}: the gzip data {'ends too early' if truncated else 'is corrupt'} {where} ({exc}); "
            "copy the file again"
        ) from exc


def parse_json(data: bytes) -> Json:
    """Parses JSON with integers of any size. Raises ValueError if it isn't JSON."""
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(data)
    # msgspec failed; Python's parser accepts unpaired surrogates (valid JSON) and has clearer error messages
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 at byte {exc.start + 1}") from exc
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc


def write_jsonl(lines: Iterable[dict[str, Any]], path: Path, *, compress: bool) -> None:
    """Writes one line per problem; the same data always gives the same bytes."""
    with path.open("wb", buffering=BUFFER_BYTES) as raw:
        if not compress:
            raw.writelines(map(_dump_line, lines))
            return
        # keep file name and time out of gzip's header, so that the same data always gives the same bytes
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
            for line in lines:
                packed.write(_dump_line(line))


def unpack_stream(raw: IO[bytes], *, packed: bool = False) -> IO[bytes]:
    """Returns the stream, decompressed if `packed` is set or if it starts like a gzip file."""
    # a pipe can't be rewound, so only peek at the first bytes
    if not packed and not cast("io.BufferedReader", raw).peek(2).startswith(_GZIP_MAGIC):
        return raw
    # a buffered reader splits lines faster than GzipFile
    return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)), BUFFER_BYTES)


def _parse_line(line: bytes, path: Path, number: int) -> Json:
    try:
        return parse_json(line)
    except ValueError as exc:
        raise RecordInvalid(f"{path}: line {number} is not JSON: {exc}; write one object a line") from exc


def _dump_line(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # orjson can't write integers of more than 64 bits
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def read_parquet(path: Path, *, file: int = 0) -> Generator[Entry, None, None]:
    """Yields each row in the form of a parsed JSON line; leaves out null values, except that of `answer`."""
    with map_errors(path), path.open("rb") as raw:
        batches = _read_batches(raw, path)
        number = 0
        while True:
            try:
                rows = next(batches, None)
            except PARQUET_ERRORS as exc:
                raise PoolDamaged(
                    f"{path}: can't be read after row {number} ({to_one_line(exc)}); copy it again"
                ) from exc
            if rows is None:
                return
            for row, samples in rows:
                number += 1
                try:
                    yield Entry(encode_place(file, number), _build_parquet_line(row, samples))
                except Flaw as exc:
                    raise RecordInvalid(f"{path}: row {number}: {exc}") from exc


def write_parquet(lines: Iterable[dict[str, Any]], path: Path, *, levels: set[str]) -> None:
    """Writes one row per problem, compressed by zstd.

    `levels` has the SQLite types of the problems' levels of difficulty, such as "integer".
    """
    with needs_extra("parquet"):
        import pyarrow.parquet as pq

    schema = _build_schema(levels)
    with pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=12, data_page_size=8 << 20, version="2.6"
    ) as writer:
        group: list[dict[str, Any]] = []
        samples = size = 0
        for line in lines:
            group.append(line)
            samples += len(line["samples"])
            size += _count_characters(line) + sum(map(_count_characters, line["samples"]))
            if samples >= _GROUP_SAMPLES or size >= _GROUP_BYTES:
                writer.write_table(_build_table(group, schema))
                group, samples, size = [], 0, 0
        if group:
            writer.write_table(_build_table(group, schema))


def _read_batches(raw: IO[bytes], path: Path) -> Iterator[list[tuple[dict[str, Any], list[Any] | None]]]:
    """Yields lists of (row without its samples, samples); raises NotAPool if the file isn't Parquet."""
    with needs_extra("parquet"):
        import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(raw)
        schema = source.schema_arrow
        names = [field.name for field in schema]
    except PARQUET_ERRORS as exc:
        raise NotAPool(
            f"{path}: is not a Parquet file ({to_one_line(exc)}); copy or export it again"
        ) from exc
    _check_columns(schema, names, path)
    names.remove("samples")
    for batch in source.iter_batches(batch_size=_BATCH_ROWS):
        columns = [batch.column(name).to_pylist() for name in names]
        heads = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        yield list(zip(heads, _read_samples(batch.column("samples")), strict=True))


def _check_columns(schema: Arrow, names: list[str], path: Path) -> None:
    import pyarrow as pa

    if has_no_samples(names):
        raise RecordInvalid(describe_questions(path, names))
    for name in ("id", "question", "samples"):
        if name not in names:
            raise RecordInvalid(f"{path}: has no column {name!r}; it has {', '.join(names) or 'none'}")
    _check_unique(names, f"{path}: has two columns")
    kind = schema.field("samples").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise RecordInvalid(f"{path}: column 'samples' is {kind}; give a list of structs, one a sample")
    _check_unique([field.name for field in kind.value_type], f"{path}: samples have two fields")


def _check_unique(names: list[str], complaint: str) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise RecordInvalid(f"{complaint} {name!r}; give each its own name")


def _build_parquet_line(row: dict[str, Any], samples: list[Any] | None) -> dict[str, Any]:
    line = {name: _parse_json_field(name, value, name) for name, value in row.items() if value is not None}
    line |= line.pop("extra", {})
    for i, sample in enumerate(samples or ()):
        if sample is not None and "extra" in sample:
            sample |= _parse_json_field("extra", sample.pop("extra"), f"samples[{i}].extra")
    if samples is not None:
        line["samples"] = samples
    return line


def _parse_json_field(name: str, value: Json, where: str) -> Json:
    if name not in _JSON_COLUMNS:
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise_flaw(where, value, "JSON")
    if name == "extra" and type(value) is not dict:
        raise_flaw(where, value, "a JSON object")
    return value


def _read_samples(column: Arrow) -> Iterator[list[Any] | None]:
    """Yields the samples of each row; converts whole columns at once, which is faster than row by row."""
    import pyarrow.compute as pc

    structs = column.flatten()
    names = [field.name for field in structs.type]
    fields = [part.to_pylist() for part in structs.flatten()]
    valid = structs.is_valid().to_pylist() if structs.null_count else None
    rows = zip(*fields, strict=True) if fields else iter([()] * len(structs))
    samples: list[Any] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None or name == "answer"}
        for row in rows
    ]
    if valid is not None:
        samples = [sample if there else None for sample, there in zip(samples, valid, strict=True)]
    start = 0
    for length in pc.list_value_length(column).to_pylist():
        yield None if length is None else samples[start : start + length]
        start += length or 0


def _build_schema(levels: set[str]) -> Arrow:
    import pyarrow as pa

    level = {frozenset(["integer"]): pa.int64(), frozenset(["real"]): pa.float64()}
    sample = pa.struct(
        [
            ("index", pa.int64()),
            ("text", pa.string()),
            ("answer", pa.string()),
            ("correct", pa.float64()),
            ("tokens", pa.int64()),
            ("logprob", pa.float64()),
            ("entropy", pa.float64()),
            ("finished", pa.bool_()),
            ("extra", pa.string()),
        ]
    )
    return pa.schema(
        [
            *((name, pa.string()) for name in _TEXT_COLUMNS),
            ("level", level.get(frozenset(levels), pa.string())),
            *((name, pa.string()) for name in _JSON_COLUMNS),
            ("samples", pa.list_(sample)),
        ]
    )


def _build_table(lines: Sequence[dict[str, Any]], schema: Arrow) -> Arrow:
    import pyarrow as pa

    kinds = {pa.int64(): int, pa.float64(): float, pa.string(): str}
    level = {"level": kinds[schema.field("level").type]}
    columns = set(schema.names) - {"samples", "extra"}
    fields = {field.name for field in schema.field("samples").type.value_type} - {"extra"}
    rows = []
    for line in lines:
        row = _pack_row({k: v for k, v in line.items() if k != "samples"}, columns, level)
        rows.append(row | {"samples": [_pack_row(s, fields, {"index": int}) for s in line["samples"]]})
    return pa.Table.from_pylist(rows, schema=schema)


def _pack_row(line: dict[str, Any], columns: set[str], kinds: dict[str, type]) -> dict[str, Any]:
    """Puts values into columns if their types fit; all others, including nulls, go into `extra` as JSON."""
    row: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in line.items():
        if (
            name not in columns
            or (value is None and name != "answer")
            or not _fits_column(kinds.get(name), value)
        ):
            rest[name] = value
        else:
            row[name] = to_canonical_json(value) if name in _JSON_COLUMNS else value
    if rest:
        row["extra"] = to_canonical_json(rest)
    return row


def _fits_column(kind: type | None, value: Json) -> bool:
    fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    return kind is None or (type(value) is kind and fits)


def _count_characters(line: dict[str, Any]) -> int:
    """Estimates the number of characters in a sample, or in a line of a pool file without its samples."""
    return sum(
        len(value) if isinstance(value, str) else len(to_canonical_json(value))
        for name, value in line.items()
        if isinstance(value, str | dict | list) and name != "samples"
    )
