"""Rows of JSON lines, JSON lists and CSV. Knows nothing of what a row means."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from adacompute.errors import ProblemsInvalid
from adacompute.pool.content import Json
from adacompute.pool.flaw import shown
from adacompute.pool.jsonl import parse_exactly
from adacompute.problems.rows import Row
from adacompute.problems.streams import decoded, raw_lines, unpacked, whole

__all__ = ["csv_rows", "json_rows", "jsonl_rows"]


def jsonl_rows(path: str | Path) -> Iterator[Row]:
    """One object a line; blank lines are skipped. Reads a pipe once, as it comes."""
    with unpacked(path) as stream:
        for number, line in raw_lines(stream, path):
            if line.strip():
                yield Row(f"line {number}", _parsed(line.strip(), f"{path}: line {number}"))


def json_rows(path: str | Path) -> Iterator[Row]:
    """The objects of a list; a file that doesn't begin with [ is taken for JSON lines."""
    with unpacked(path) as stream:
        data = whole(stream, path)
    if data.lstrip()[:1] != b"[":
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                yield Row(f"line {number}", _parsed(line.strip(), f"{path}: line {number}"))
        return
    for number, item in enumerate(_parsed(data, f"{path}:"), start=1):
        yield Row(f"item {number}", item)


def csv_rows(path: str | Path, *, dialect: str = "excel") -> Iterator[Row]:
    """Rows below a header, as text; an empty cell is an absent value."""
    with unpacked(path) as stream:
        lines = (decoded(line, f"{path}: line {number}") for number, line in raw_lines(stream, path))
        reader = csv.reader(lines, dialect, strict=True)
        names: list[str] | None = None
        end = 0  # of the row before: a row may take several lines
        while True:
            place = f"line {end + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as exc:
                raise ProblemsInvalid(_csv_fault(f"{path}: {place}", exc)) from exc
            end = reader.line_num
            if not cells:
                continue
            if names is None:
                names = _header(cells, f"{path}: {place}")
                continue
            if len(cells) != len(names):
                raise ProblemsInvalid(
                    f"{path}: {place} has {len(cells)} cells, and the header {len(names)}; "
                    'quote a cell that holds a comma, a tab or a line break: "a, b"'
                )
            yield Row(place, {name: cell or None for name, cell in zip(names, cells, strict=True)})


def _parsed(data: bytes, place: str) -> Json:
    try:
        return parse_exactly(data)
    except ValueError as exc:
        raise ProblemsInvalid(
            f"{place} is no JSON: {exc}; write one object a line, or one list of objects, in UTF-8"
        ) from exc


def _header(cells: list[str], place: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name, number in Counter(names).items():
        if number > 1:
            raise ProblemsInvalid(f"{place}: the header names {shown(name)} twice; give each column its own")
        if not name:
            raise ProblemsInvalid(f"{place}: the header has a column without a name; name it")
    return names


def _csv_fault(place: str, exc: csv.Error) -> str:
    if "field limit" in str(exc):
        return f"{place} has a cell that is too long for CSV ({exc}); give JSON lines or Parquet"
    return f"{place} is no CSV ({exc}); check its quotes, or give JSON lines"
