"""Answers into a file: JSONL, CSV or Parquet, whole or not at all. Knows nothing of how they were come by."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from adacompute.batch.outcome import Answer
from adacompute.collect import Asking
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.pool.publish import published
from adacompute.records import Problem

__all__ = ["OURS", "check_output", "write_answers"]

OURS = ("answer", "response", "votes", "agreement", "samples", "tokens", "error")
_GIVEN = ("id", "question", "gold", "subject", "level")
_ROWS = 1000  # of Parquet that are held at a time

Row = dict[str, Any]


def check_output(path: Path, *, overwrite: bool) -> None:
    """CollectError where answers couldn't be written to a path: to be found out before they are paid for."""
    if path.suffix not in _WRITERS:
        raise CollectError(f"{path}: can't tell what kind of file to write; give {', '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise CollectError(f"{path}: its folder is not there; create {path.parent} first")
    if path.is_dir() or (path.exists() and not overwrite):
        raise CollectError(f"{path}: is there already; name another file, or give --overwrite")


def write_answers(
    path: Path, problems: Sequence[Problem], answers: Sequence[Answer], pool: Pool, *, asking: Asking
) -> None:
    """One row a request, with all that came with it; texts are read from the pool one by one."""
    names = _names(problems)
    rows = (
        _row(problem, names) | _told(one, _text(pool, one, asking))
        for problem, one in zip(problems, answers, strict=True)
    )
    with published(path) as beside:
        _WRITERS[path.suffix](beside, [*names.values(), *OURS], rows, problems)


def _names(problems: Iterable[Problem]) -> dict[str, str]:
    """The columns that requests bring along, and what they are called beside ours."""
    found: dict[str, None] = dict.fromkeys(("id", "question"))
    for problem in problems:
        for name in ("gold", "subject", "level"):
            if getattr(problem, name) is not None:
                found[name] = None
        found |= dict.fromkeys(problem.extra)
    return {name: f"input_{name}" if name in OURS else name for name in found}


def _row(problem: Problem, names: Mapping[str, str]) -> Row:
    given = {name: getattr(problem, name) for name in _GIVEN}
    values = {**problem.extra, **given}
    return {column: values.get(name) for name, column in names.items()}


def _told(one: Answer, text: str | None) -> Row:
    return {
        "answer": one.answer,
        "response": text,
        "votes": dict(one.votes),
        "agreement": one.agreement,
        "samples": one.samples,
        "tokens": one.tokens,
        "error": one.error,
    }


def _text(pool: Pool, one: Answer, asking: Asking) -> str | None:
    if one.best is None:
        return None
    return pool.recorded(one.id, asking.model, parameters=asking.parameters).samples[one.best].text


def _jsonl(path: Path, _columns: Sequence[str], rows: Iterator[Row], _problems: Sequence[Problem]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _csv(path: Path, columns: Sequence[str], rows: Iterator[Row], _problems: Sequence[Problem]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for row in rows:
            table.writerow([_flat(row[column]) for column in columns])


def _parquet(path: Path, columns: Sequence[str], rows: Iterator[Row], problems: Sequence[Problem]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    types = {"agreement": float, "samples": int, "tokens": int} | _types(problems)
    schema = pa.schema([(column, kinds[types.get(column, str)]) for column in columns])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rows, _ROWS)):
            values = {
                field.name: [_fitting(row[field.name], types.get(field.name, str)) for row in group]
                for field in schema
            }
            writer.write_table(pa.table(values, schema=schema))


def _types(problems: Sequence[Problem]) -> dict[str, type]:
    """The type of each column that requests bring along; text where they differ, or where it is nested."""
    names = _names(problems)
    found: dict[str, type] = {}
    for problem in problems:
        for column, value in _row(problem, names).items():
            if value is not None:
                kind = type(value) if _plain(value) else str
                found[column] = kind if found.get(column, kind) is kind else str
    return found


def _plain(value: object) -> bool:
    return type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)


def _fitting(value: object, kind: type) -> object:
    return value if value is None or type(value) is kind else _flat(value)


def _flat(value: object) -> object:
    """A value that fits into one cell: text and numbers as they are, the rest as JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_WRITERS: dict[str, Callable[[Path, Sequence[str], Iterator[Row], Sequence[Problem]], None]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
