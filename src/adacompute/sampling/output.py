"""Answers written to a file, as JSONL, CSV or Parquet; the file is complete or not there at all."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from adacompute.atomic import publish_file
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Problem
from adacompute.sampling.answer import RequestAnswer
from adacompute.sampling.sampling_spec import Asking

__all__ = ["ANSWER_COLUMNS", "check_output", "write_answers"]

ANSWER_COLUMNS = ("answer", "response", "votes", "agreement", "samples", "tokens", "error")
_PROBLEM_FIELDS = ("id", "question", "gold", "subject", "level")
_ROW_GROUP = 1000  # rows of Parquet held in memory at a time

OutputRow = dict[str, Any]


def check_output(path: Path, *, overwrite: bool) -> None:
    """CollectError where answers couldn't be written to a path; checked before they are paid for."""
    if path.suffix not in _WRITERS:
        raise CollectError(f"{path}: can't tell what kind of file to write; give {', '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise CollectError(f"{path}: its folder is not there; create {path.parent} first")
    if path.is_dir() or (path.exists() and not overwrite):
        raise CollectError(f"{path}: is there already; name another file, or give --overwrite")


def write_answers(
    path: Path, problems: Sequence[Problem], answers: Sequence[RequestAnswer], pool: Pool, *, asking: Asking
) -> None:
    """Writes one row a request, with all its own fields; texts are read from the pool one by one."""
    names = _name_columns(problems)
    rows = (
        _build_problem_cells(problem, names) | _build_answer_cells(answer, _read_text(pool, answer, asking))
        for problem, answer in zip(problems, answers, strict=True)
    )
    with publish_file(path) as temporary:
        _WRITERS[path.suffix](temporary, [*names.values(), *ANSWER_COLUMNS], rows, problems)


def _name_columns(problems: Iterable[Problem]) -> dict[str, str]:
    """The columns of the requests themselves, and their names beside those of the answers."""
    columns: dict[str, None] = dict.fromkeys(("id", "question"))
    for problem in problems:
        for name in ("gold", "subject", "level"):
            if getattr(problem, name) is not None:
                columns[name] = None
        columns |= dict.fromkeys(problem.extra)
    return {name: f"input_{name}" if name in ANSWER_COLUMNS else name for name in columns}


def _build_problem_cells(problem: Problem, names: Mapping[str, str]) -> OutputRow:
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    values = {**problem.extra, **fields}
    return {column: values.get(name) for name, column in names.items()}


def _build_answer_cells(answer: RequestAnswer, text: str | None) -> OutputRow:
    return {
        "answer": answer.answer,
        "response": text,
        "votes": dict(answer.votes),
        "agreement": answer.agreement,
        "samples": answer.samples,
        "tokens": answer.tokens,
        "error": answer.error,
    }


def _read_text(pool: Pool, answer: RequestAnswer, asking: Asking) -> str | None:
    if answer.best is None:
        return None
    return pool.recorded(answer.id, asking.model, parameters=asking.parameters).samples[answer.best].text


def _write_jsonl(
    path: Path, _columns: Sequence[str], rows: Iterator[OutputRow], _problems: Sequence[Problem]
) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_csv(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], _problems: Sequence[Problem]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for row in rows:
            table.writerow([_flatten_cell(row[column]) for column in columns])


def _write_parquet(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], problems: Sequence[Problem]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    types = {"agreement": float, "samples": int, "tokens": int} | _infer_types(problems)
    schema = pa.schema([(column, kinds[types.get(column, str)]) for column in columns])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rows, _ROW_GROUP)):
            values = {
                field.name: [_fit_cell(row[field.name], types.get(field.name, str)) for row in group]
                for field in schema
            }
            writer.write_table(pa.table(values, schema=schema))


def _infer_types(problems: Sequence[Problem]) -> dict[str, type]:
    """The type of each column of the requests; text where values differ in type or are nested."""
    names = _name_columns(problems)
    types: dict[str, type] = {}
    for problem in problems:
        for column, value in _build_problem_cells(problem, names).items():
            if value is not None:
                kind = type(value) if _is_plain(value) else str
                types[column] = kind if types.get(column, kind) is kind else str
    return types


def _is_plain(value: object) -> bool:
    return type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)


def _fit_cell(value: object, kind: type) -> object:
    return value if value is None or type(value) is kind else _flatten_cell(value)


def _flatten_cell(value: object) -> object:
    """A value that fits into one cell: text and numbers as they are, the rest as JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_WRITERS: dict[str, Callable[[Path, Sequence[str], Iterator[OutputRow], Sequence[Problem]], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
