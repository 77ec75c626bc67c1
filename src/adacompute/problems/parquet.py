"""Rows of Parquet files. Knows nothing of what a row means; loads pyarrow when called."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.errors import ProblemsInvalid
from adacompute.pool.faults import UNSOUND, one_line
from adacompute.problems.rows import Row
from adacompute.problems.streams import os_errors

__all__ = ["arrow_rows", "folder_rows", "parquet_rows"]

Arrow: TypeAlias = Any  # pyarrow ships no types

_ROWS = 1024  # read at a time
# what pyarrow raises on bytes that are no Parquet: its own errors are ValueErrors, LookupErrors and the like
_FOREIGN = (*UNSOUND, OSError, RuntimeError, MemoryError)
_RECORDED = {"samples", "failures", "parameters", "model"}  # columns of a pool file that are no problem's


def parquet_rows(path: Path, *, prefix: str = "") -> Iterator[Row]:
    """The rows of one file; a null is an absent value."""
    import pyarrow.parquet as pq

    with os_errors(path), path.open("rb") as raw:
        number = 0
        try:
            with pq.ParquetFile(raw) as source:
                names = source.schema_arrow.names
                pooled = "samples" in names  # our own export: its `extra` is JSON text
                wanted = [name for name in names if not (pooled and name in _RECORDED)]
                for batch in source.iter_batches(batch_size=_ROWS, columns=wanted):
                    for value in arrow_rows(batch):
                        number += 1
                        yield Row(f"{prefix}row {number}", _pooled(value) if pooled else value)
        except _FOREIGN as exc:
            after = f" after row {number}" if number else ""
            raise ProblemsInvalid(
                f"{path}: can't be read as Parquet{after} ({one_line(exc)}); write or copy it again"
            ) from exc


def folder_rows(path: Path) -> Iterator[Row]:
    """The rows of all Parquet files in a folder and below, in the order of their names."""
    parts = sorted(part for part in path.rglob("*.parquet") if part.is_file())
    if not parts:
        raise ProblemsInvalid(
            f"{path}: is a folder without .parquet files; give a file, or hf:{path} if `datasets` saved it"
        )
    for part in parts:
        yield from parquet_rows(part, prefix=f"{part.relative_to(path).as_posix()} ")


def arrow_rows(batch: Arrow) -> list[dict[str, Any]]:
    """The rows of a batch or table as plain objects."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def _pooled(value: dict[str, Any]) -> dict[str, Any]:
    """A row of a pool file as its line; `samples` marks it as one."""
    extra = value.pop("extra", None)
    given = {name: part for name, part in value.items() if part is not None}
    return given | (json.loads(extra) if extra else {}) | {"samples": []}
