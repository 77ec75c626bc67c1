"""Pool files of Parquet: one row a problem. Knows nothing of what a row means; loads pyarrow when called."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.errors import NotAPool, PoolDamaged, RecordInvalid
from adacompute.pool.content import Json, canonical
from adacompute.pool.faults import mapped
from adacompute.pool.reading import Entry, place_in

__all__ = ["parquet_entries", "write_parquet"]

Arrow: TypeAlias = Any  # pyarrow ships no types

_ROWS = 128  # problems read at a time
_SAMPLES = 50_000  # a row group when writing; of 200 bytes a text, 10 MB
_BYTES = 32 << 20
_JSON = ("parameters", "failures", "extra")  # columns that hold JSON text
_TEXT = ("id", "question", "gold", "subject", "model")


def parquet_entries(path: Path, *, file: int = 0) -> Iterator[Entry]:
    """The rows as the lines of a pool file; a null is an absent key, but for `answer`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with mapped(path), path.open("rb") as raw:
        try:
            source = pq.ParquetFile(raw)
        except (pa.ArrowException, OSError) as exc:
            raise NotAPool(f"{path}: is no Parquet file ({_first(exc)}); copy or export it again") from exc
        _check_columns(source.schema_arrow, path)
        number = 0
        try:
            for batch in source.iter_batches(batch_size=_ROWS):
                for line in _lines(batch, path, number):
                    number += 1
                    yield Entry(place_in(file, number), line)
        except (pa.ArrowException, OSError) as exc:
            raise PoolDamaged(
                f"{path}: can't be read after row {number} ({_first(exc)}); copy it again"
            ) from exc


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


def _check_columns(schema: Arrow, path: Path) -> None:
    import pyarrow as pa

    for name in ("id", "question", "samples"):
        if name not in schema.names:
            raise RecordInvalid(f"{path}: has no column {name!r}; it has {', '.join(schema.names) or 'none'}")
    kind = schema.field("samples").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise RecordInvalid(f"{path}: column 'samples' is {kind}; give a list of structs, one a sample")


def _lines(batch: Arrow, path: Path, before: int) -> Iterator[dict[str, Any]]:
    names = [name for name in batch.schema.names if name != "samples"]
    columns = [_values(batch.column(name), name, path, before) for name in names]
    lists = _samples(batch.column("samples"), path)
    rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    for row, samples in zip(rows, lists, strict=True):
        line = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        line |= line.pop("extra", {})
        if samples is not None:
            line["samples"] = samples
        yield line


def _samples(column: Arrow, path: Path) -> Iterator[list[Any] | None]:
    """The samples of each row: column by column, many times faster than row by row."""
    import pyarrow.compute as pc

    structs = column.flatten()
    names = [field.name for field in structs.type]
    fields = [_values(a, n, path, 0) for n, a in zip(names, structs.flatten(), strict=True)]
    valid = structs.is_valid().to_pylist() if structs.null_count else None
    rows = zip(*fields, strict=True) if fields else iter([()] * len(structs))
    made: list[Any] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None or name == "answer"}
        for row in rows
    ]
    if "extra" in names:
        for sample in made:
            sample |= sample.pop("extra", {})
    if valid is not None:
        made = [sample if there else None for sample, there in zip(made, valid, strict=True)]
    at = 0
    for length in pc.list_value_length(column).to_pylist():
        yield None if length is None else made[at : at + length]
        at += length or 0


def _values(column: Arrow, name: str, path: Path, before: int) -> list[Any]:
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if name not in _JSON or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return values
    for i, text in enumerate(values):
        if text is not None:
            try:
                values[i] = json.loads(text)
            except (ValueError, RecursionError) as exc:
                raise RecordInvalid(
                    f"{path}: row {before + i + 1}: column {name!r} holds {text[:40]!r}; give JSON"
                ) from exc
            if name == "extra" and not isinstance(values[i], dict):
                raise RecordInvalid(
                    f"{path}: row {before + i + 1}: column 'extra' holds {text[:40]!r}; give a JSON object"
                )
    return values


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


def _first(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0]
