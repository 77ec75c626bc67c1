"""Pool files of Parquet: one row a problem. Knows nothing of what a row means; loads pyarrow when called."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from adacompute.errors import NotAPool, PoolDamaged, RecordInvalid
from adacompute.pool.content import Json, canonical
from adacompute.pool.faults import UNSOUND, mapped, one_line
from adacompute.pool.flaw import Flaw, wrong
from adacompute.pool.reading import Entry, place_in

__all__ = ["parquet_entries", "write_parquet"]

Arrow: TypeAlias = Any  # pyarrow ships no types

_ROWS = 128  # problems read at a time
_SAMPLES = 50_000  # a row group when writing; of 200 bytes a text, 10 MB
_BYTES = 32 << 20
# what pyarrow raises on bytes that are no Parquet: its own errors are ValueErrors, LookupErrors and the like
_FOREIGN = (*UNSOUND, OSError, RuntimeError, MemoryError)
_JSON = ("parameters", "failures", "extra")  # columns that hold JSON text
_TEXT = ("id", "question", "gold", "subject", "model")


def parquet_entries(path: Path, *, file: int = 0) -> Iterator[Entry]:
    """The rows as the lines of a pool file; a null is an absent key, but for `answer`."""
    with mapped(path), path.open("rb") as raw:
        batches = _batches(raw, path)
        number = 0
        while True:
            try:
                rows = next(batches, None)
            except _FOREIGN as exc:
                raise PoolDamaged(
                    f"{path}: can't be read after row {number} ({one_line(exc)}); copy it again"
                ) from exc
            if rows is None:
                return
            for row, samples in rows:
                number += 1
                try:
                    yield Entry(place_in(file, number), _line(row, samples))
                except Flaw as exc:
                    raise RecordInvalid(f"{path}: row {number}: {exc}") from exc


def write_parquet(lines: Iterable[dict[str, Any]], path: Path, *, levels: set[str]) -> None:
    """One row a problem, zstd; `levels` are the SQLite types of the levels there are."""
    import pyarrow.parquet as pq

    schema = _schema(levels)
    with pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=12, data_page_size=8 << 20, version="2.6"
    ) as writer:
        group: list[dict[str, Any]] = []
        samples = size = 0
        for line in lines:
            group.append(line)
            samples += len(line["samples"])
            size += _weight(line) + sum(map(_weight, line["samples"]))
            if samples >= _SAMPLES or size >= _BYTES:
                writer.write_table(_table(group, schema))
                group, samples, size = [], 0, 0
        if group:
            writer.write_table(_table(group, schema))


def _batches(raw: IO[bytes], path: Path) -> Iterator[list[tuple[dict[str, Any], list[Any] | None]]]:
    """Rows with their samples, many at a time; all that the library may stumble over happens here."""
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(raw)
        schema = source.schema_arrow
        names = [field.name for field in schema]
    except _FOREIGN as exc:
        raise NotAPool(f"{path}: is no Parquet file ({one_line(exc)}); copy or export it again") from exc
    _check_columns(schema, names, path)
    names.remove("samples")
    for batch in source.iter_batches(batch_size=_ROWS):
        columns = [batch.column(name).to_pylist() for name in names]
        heads = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        yield list(zip(heads, _samples(batch.column("samples")), strict=True))


def _check_columns(schema: Arrow, names: list[str], path: Path) -> None:
    import pyarrow as pa

    for name in ("id", "question", "samples"):
        if name not in names:
            raise RecordInvalid(f"{path}: has no column {name!r}; it has {', '.join(names) or 'none'}")
    _check_once(names, f"{path}: has two columns")
    kind = schema.field("samples").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise RecordInvalid(f"{path}: column 'samples' is {kind}; give a list of structs, one a sample")
    _check_once([field.name for field in kind.value_type], f"{path}: samples have two fields")


def _check_once(names: list[str], what: str) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise RecordInvalid(f"{what} {name!r}; give each its own name")


def _line(row: dict[str, Any], samples: list[Any] | None) -> dict[str, Any]:
    line = {name: _parsed(name, value, name) for name, value in row.items() if value is not None}
    line |= line.pop("extra", {})
    for i, sample in enumerate(samples or ()):
        if sample is not None and "extra" in sample:
            sample |= _parsed("extra", sample.pop("extra"), f"samples[{i}].extra")
    if samples is not None:
        line["samples"] = samples
    return line


def _parsed(name: str, value: Json, where: str) -> Json:
    if name not in _JSON:
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            wrong(where, value, "JSON")
    if name == "extra" and type(value) is not dict:
        wrong(where, value, "a JSON object")
    return value


def _samples(column: Arrow) -> Iterator[list[Any] | None]:
    """The samples of each row: column by column, many times faster than row by row."""
    import pyarrow.compute as pc

    structs = column.flatten()
    names = [field.name for field in structs.type]
    fields = [part.to_pylist() for part in structs.flatten()]
    valid = structs.is_valid().to_pylist() if structs.null_count else None
    rows = zip(*fields, strict=True) if fields else iter([()] * len(structs))
    made: list[Any] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None or name == "answer"}
        for row in rows
    ]
    if valid is not None:
        made = [sample if there else None for sample, there in zip(made, valid, strict=True)]
    at = 0
    for length in pc.list_value_length(column).to_pylist():
        yield None if length is None else made[at : at + length]
        at += length or 0


def _schema(levels: set[str]) -> Arrow:
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
            *((name, pa.string()) for name in _TEXT),
            ("level", level.get(frozenset(levels), pa.string())),
            *((name, pa.string()) for name in _JSON),
            ("samples", pa.list_(sample)),
        ]
    )


def _table(lines: Sequence[dict[str, Any]], schema: Arrow) -> Arrow:
    import pyarrow as pa

    kinds = {pa.int64(): int, pa.float64(): float, pa.string(): str}
    level = {"level": kinds[schema.field("level").type]}
    columns = set(schema.names) - {"samples", "extra"}
    heads = [_packed({k: v for k, v in line.items() if k != "samples"}, columns, level) for line in lines]
    arrays = [pa.array([h.get(f.name) for h in heads], type=f.type) for f in schema if f.name != "samples"]
    inner = schema.field("samples").type.value_type
    columns = {field.name for field in inner} - {"extra"}
    rows = [_packed(sample, columns, {"index": int}) for line in lines for sample in line["samples"]]
    structs = pa.StructArray.from_arrays(
        [pa.array([row.get(field.name) for row in rows], type=field.type) for field in inner],
        fields=list(inner),
    )
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line["samples"]))
    arrays.append(
        pa.ListArray.from_arrays(
            pa.array(offsets, type=pa.int32()), structs, type=schema.field("samples").type
        )
    )
    return pa.Table.from_arrays(arrays, schema=schema)


def _packed(line: dict[str, Any], columns: set[str], kinds: dict[str, type]) -> dict[str, Any]:
    """Columns for what they can hold; the rest, explicit nulls among it, as JSON in `extra`."""
    row: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in line.items():
        if name not in columns or (value is None and name != "answer") or not _holds(kinds.get(name), value):
            rest[name] = value
        else:
            row[name] = canonical(value) if name in _JSON else value
    if rest:
        row["extra"] = canonical(rest)
    return row


def _holds(kind: type | None, value: Json) -> bool:
    fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    return kind is None or (type(value) is kind and fits)


def _weight(line: dict[str, Any]) -> int:
    """About how many characters it holds, its samples aside."""
    return sum(
        len(value) if isinstance(value, str) else len(canonical(value))
        for name, value in line.items()
        if isinstance(value, str | dict | list) and name != "samples"
    )
