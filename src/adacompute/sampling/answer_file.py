"""The answer to one request, and the file with the answers to all: JSONL, CSV or Parquet."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from adacompute.atomic import publish_file
from adacompute.errors import CollectError, needs_extra
from adacompute.pool import Pool
from adacompute.records import Problem
from adacompute.sampling.collect import SourcePlan
from adacompute.sampling.plan import Asking

ANSWER_COLUMNS = ("answer", "response", "votes", "agreement", "samples", "tokens", "error")
MODE_COLUMNS = ("modes", "costs")  # columns that are added if there are several modes
_PROBLEM_FIELDS = ("id", "question", "gold", "subject", "level")
_ROW_GROUP = 1000  # number of rows of a Parquet file held in memory at a time
OutputRow = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """The answer to one request. Texts stay in the pool; `best` is the index of the sample to show."""

    id: str
    answer: str | None  # the answer that won the vote; None if no sample has an answer
    votes: Mapping[str, int]  # answer -> number of votes for it, in order of first appearance
    agreement: float  # share of votes (by weight) for `answer`; 0.0 without votes
    samples: int
    tokens: int | None  # total tokens of all responses to the request; None if unknown
    # index of the most confident sample with `answer`, among the samples of `mode`; None if there is none
    best: int | None = None
    correct: float | None = None  # 1 if right, 0 if wrong; None without a gold answer
    error: str | None = None  # why the request has fewer samples than intended
    mode: str = ""  # name of the mode of the sample `best`; "" if it has none
    modes: Mapping[str, int] = field(default_factory=dict)  # name of a mode -> number of its samples
    costs: Mapping[str, float] = field(default_factory=dict)  # name of a mode -> money spent on it


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raises CollectError if answers can't be written to `path`. Called before any sample is paid for."""
    if path.suffix not in _WRITERS:
        raise CollectError(f"{path}: can't tell what kind of file to write; give {', '.join(_WRITERS)}")
    if path.suffix == ".parquet":
        with needs_extra("parquet"):
            import pyarrow  # noqa: F401
    if not path.parent.is_dir():
        raise CollectError(f"{path}: its folder is not there; create {path.parent} first")
    if path.is_dir() or (path.exists() and not overwrite):
        raise CollectError(f"{path}: is there already; name another file, or give --overwrite")


def write_answers(
    path: Path,
    problems: Sequence[Problem],
    answers: Sequence[RequestAnswer],
    pool: Pool,
    plans: SourcePlan | Sequence[SourcePlan],
) -> None:
    """Writes one row per request, with the request's fields and its answer. Texts are loaded one at a time.

    If the modes are named, rows also have each mode's number of samples and cost.
    """
    plans = (plans,) if isinstance(plans, SourcePlan) else plans
    askings = {plan.name: plan.asking for plan in plans}
    columns = ANSWER_COLUMNS if "" in askings else (*ANSWER_COLUMNS, *MODE_COLUMNS)
    names = _name_columns(problems, columns)
    rows = (
        _build_problem_cells(problem, names)
        | _build_answer_cells(answer, _read_text(pool, answer, askings), columns)
        for problem, answer in zip(problems, answers, strict=True)
    )
    inputs = (_build_problem_cells(problem, names) for problem in problems)
    with publish_file(path) as temporary:
        _WRITERS[path.suffix](temporary, [*names.values(), *columns], rows, inputs)


def _name_columns(problems: Iterable[Problem], answer_columns: Sequence[str]) -> dict[str, str]:
    """Maps the requests' own column names to names that differ from those of the answer columns."""
    columns: dict[str, None] = dict.fromkeys(("id", "question"))
    for problem in problems:
        for name in ("gold", "subject", "level"):
            if getattr(problem, name) is not None:
                columns[name] = None
        columns |= dict.fromkeys(problem.extra)
    return {name: f"input_{name}" if name in answer_columns else name for name in columns}


def _build_problem_cells(problem: Problem, names: Mapping[str, str]) -> OutputRow:
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    values = {**problem.extra, **fields}
    return {column: values.get(name) for name, column in names.items()}


def _build_answer_cells(answer: RequestAnswer, text: str | None, columns: Sequence[str]) -> OutputRow:
    cells: OutputRow = {**asdict(answer), "response": text}
    return {column: cells[column] for column in columns}


def _read_text(pool: Pool, answer: RequestAnswer, askings: Mapping[str, Asking]) -> str | None:
    if answer.best is None:
        return None
    asking = askings[answer.mode]
    return pool.recorded(answer.id, asking.model, parameters=asking.parameters).samples[answer.best].text


def _write_jsonl(
    path: Path, _columns: Sequence[str], rows: Iterator[OutputRow], _inputs: Iterator[OutputRow]
) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_csv(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], _inputs: Iterator[OutputRow]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for row in rows:
            table.writerow([_flatten_cell(row[column]) for column in columns])


def _write_parquet(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], inputs: Iterator[OutputRow]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    types = {"agreement": float, "samples": int, "tokens": int} | _infer_types(inputs)
    schema = pa.schema([(column, kinds[types.get(column, str)]) for column in columns])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rows, _ROW_GROUP)):
            values = {
                field.name: [_fit_cell(row[field.name], types.get(field.name, str)) for row in group]
                for field in schema
            }
            writer.write_table(pa.table(values, schema=schema))


def _infer_types(inputs: Iterator[OutputRow]) -> dict[str, type]:
    """Finds the type of each request column; text if its values are nested or of different types."""
    types: dict[str, type] = {}
    for cells in inputs:
        for column, value in cells.items():
            if value is not None:
                kind = type(value) if _is_plain(value) else str
                types[column] = kind if types.get(column, kind) is kind else str
    return types


def _is_plain(value: object) -> bool:
    return type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)


def _fit_cell(value: object, kind: type) -> object:
    return value if value is None or type(value) is kind else _flatten_cell(value)


def _flatten_cell(value: object) -> object:
    """Converts a value so that it fits in a cell: text and None stay as they are, others become JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# File extension -> function that writes such a file, given the path, the column names and the rows. Its last
# argument has the rows again without answer columns, so that it can find the types of the other columns.
_WRITERS: dict[str, Callable[[Path, Sequence[str], Iterator[OutputRow], Iterator[OutputRow]], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
