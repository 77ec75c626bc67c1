"""Rows of JSON lines, JSON lists and CSV. Knows nothing of what a row means."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.errors import ProblemsInvalid
from adacompute.pool.content import Json
from adacompute.pool.flaw import shown
from adacompute.pool.jsonl import parse_exactly
from adacompute.problems.rows import Row
from adacompute.problems.streams import begins_list, decoded, raw_lines, unpacked, whole

__all__ = ["csv_rows", "json_rows"]

CsvReader: TypeAlias = Any  # the type has no name outside of csv

_JSON = "write one object a line, or one list of objects, in UTF-8"
_DELIMITERS = ",;\t"
_QUOTED = re.compile(r'"[^"]*"')
_SAID = re.compile(r"sep=([,;\t|])")
_WITHIN = re.compile(r"line 1 column (\d+) \(char \d+\)")


def json_rows(path: str | Path, *, remedy: str = _JSON) -> Iterator[Row]:
    """One object a line, blank lines skipped; or the objects of a list, where it begins with [.

    Reads a pipe once, lines as they come. `remedy` is said of what is neither.
    """
    with unpacked(path) as stream:
        if begins_list(stream):
            yield from _items(whole(stream, path), str(path), remedy)
            return
        begun = False
        for number, line in raw_lines(stream, path):
            if not line.strip():
                continue
            if not begun and line.lstrip()[:1] == b"[":  # after blanks, or as a pipe came in parts
                yield from _items(line + whole(stream, path), str(path), remedy)
                return
            begun = True
            place = f"line {number}"
            yield Row(place, _parsed(line.strip(), f"{path}: {place}", remedy))


def _items(data: bytes, path: str, remedy: str) -> Iterator[Row]:
    for number, item in enumerate(_parsed(data, f"{path}:", remedy), start=1):
        yield Row(f"item {number}", item)


def csv_rows(path: str | Path, *, delimiter: str = ",") -> Iterator[Row]:
    """Rows below a header, as text; an empty cell is an absent value, and a row of such is skipped."""
    with unpacked(path) as stream:
        lines = (decoded(line, f"{path}: line {number}") for number, line in raw_lines(stream, path))
        reader = _reader(lines, delimiter)
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
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = _header(cells, f"{path}: {place}")
                continue
            if len(cells) != len(names):
                raise ProblemsInvalid(
                    f"{path}: {place} has {len(cells)} cells, and the header {len(names)}; "
                    'quote a cell that holds a comma, a semicolon, a tab or a line break: "a, b"'
                )
            row = {name: cell or None for name, cell in zip(names, cells, strict=True) if name}
            if any(row.values()):
                yield Row(place, row)


def _reader(lines: Iterator[str], delimiter: str) -> CsvReader:
    """Cells cut at the delimiter, or at another one where the header shows only that."""
    head = []  # up to the header
    for line in lines:
        head.append(line)
        if line.strip():
            break
    first = head[-1] if head else ""
    bare = _QUOTED.sub("", first)
    if said := _SAID.fullmatch(first.strip()):
        delimiter, head[-1] = said[1], "\n"  # spreadsheets say it in a line of its own; its number is kept
    elif delimiter not in bare:
        delimiter = next((other for other in _DELIMITERS if other in bare), delimiter)
    return csv.reader(chain(head, lines), delimiter=delimiter, strict=True)


def _parsed(data: bytes, place: str, remedy: str) -> Json:
    try:
        return parse_exactly(data)
    except ValueError as exc:
        # of one line, the number within it would only confuse
        why = str(exc) if b"\n" in data else _WITHIN.sub(r"character \1", str(exc))
        raise ProblemsInvalid(f"{place} is no JSON: {why}; {remedy}") from exc


def _header(cells: list[str], place: str) -> list[str]:
    """Names of columns; the first may have none, as pandas writes its row numbers, which are left out."""
    names = [cell.strip() for cell in cells]
    if not all(names[1:]):
        raise ProblemsInvalid(f"{place}: the header has a column without a name; name it")
    for name, number in Counter(names).items():
        if number > 1:
            raise ProblemsInvalid(f"{place}: the header names {shown(name)} twice; give each column its own")
    return names


def _csv_fault(place: str, exc: csv.Error) -> str:
    if "field limit" in str(exc):
        return f"{place} has a cell that is too long for CSV ({exc}); give JSON lines or Parquet"
    return f"{place} is no CSV ({exc}); check its quotes, or give JSON lines"
