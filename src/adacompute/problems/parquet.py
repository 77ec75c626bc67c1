"""Rows of Parquet files. Knows nothing of what a row means; loads pyarrow when called."""

import json
import re
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
_SPLIT = re.compile(r"(train|test|validation|valid|val|dev)(?![^\W_])")
_SAME_SPLIT = {"valid": "validation", "val": "validation", "dev": "validation"}  # as `datasets` calls them
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
    _check_one_table(path, [part.relative_to(path) for part in parts])
    for part in parts:
        yield from parquet_rows(part, prefix=f"{part.relative_to(path).as_posix()} ")


def _check_one_table(path: Path, parts: list[Path]) -> None:
    """Refuses a folder whose files' names show several splits, or several folders of them, as a clone has."""
    tables = sorted({part.parent.as_posix() for part in parts if _SPLIT.match(part.name)})
    if len(tables) > 1:
        raise ProblemsInvalid(
            f"{path}: holds several tables ({', '.join(tables)}); give one, {path / tables[0]}, "
            f"or hf:{path} where it is a clone of a dataset"
        )
    splits = sorted({split for part in parts if (split := _split(part))})
    if len(splits) > 1:
        there = ", ".join(splits)
        raise ProblemsInvalid(
            f"{path}: holds the splits {there}; give one file, or one split: hf:{path}@{splits[0]}"
        )


def _split(part: Path) -> str | None:
    """The split that a file's name or that of its folder shows."""
    named = next((found for name in reversed(part.parts) if (found := _SPLIT.match(name))), None)
    return _SAME_SPLIT.get(named[1], named[1]) if named else None


def arrow_rows(batch: Arrow) -> list[dict[str, Any]]:
    """The rows of a batch or table as plain objects."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def _pooled(value: dict[str, Any]) -> dict[str, Any]:
    """A row of a pool file as its line; `samples` marks it as one."""
    extra = value.pop("extra", None)
    given = {name: part for name, part in value.items() if part is not None}
    return given | (json.loads(extra) if extra else {}) | {"samples": []}
