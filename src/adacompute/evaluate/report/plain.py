"""Tables and reports as plain data: CSV, and JSON of finite numbers. Knows no HTML."""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.exhibits import Cell, Spread, Table
from adacompute.evaluate.report.record import Report

__all__ = ["as_csv", "as_data", "finite"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a text begins that spreadsheets reckon with


def as_csv(table: Table) -> str:
    """A header row, then raw values; an interval as x, x_low, x_high, a mean over seeds as x, x_std.

    A text that a spreadsheet would take for a formula has an apostrophe before it; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    ends = [_ends([row[at] for row in table.rows]) for at in range(len(table.columns))]
    names = [column.name for column in table.columns]
    writer.writerow([_told(name + end) for name, own in zip(names, ends, strict=True) for end in own])
    for row in table.rows:
        writer.writerow([value for cell, own in zip(row, ends, strict=True) for value in _values(cell, own)])
    return out.getvalue()


def as_data(report: Report) -> dict[str, Any]:
    """The whole report as plain data, for results.json; null for what can't be told."""
    protocols = [one.protocol for one in report.tables()] + [one.protocol for one in report.pictures()]
    found: Any = finite(
        {
            **report.facts,
            "pool": report.name,
            "headline": report.headline,
            "headline_protocol": report.below,
            "notices": report.notices,
            "protocols": list(dict.fromkeys(protocols)),
            "money": report.money,
            "sections": {
                section.key: {
                    "title": section.title,
                    "part": part.key,
                    "words": section.words,
                    "missing": section.missing,
                    "tables": {table.key: table.records() for table in section.tables},
                    "figures": {picture.key: picture.data for picture in section.pictures},
                }
                for part in report.parts
                for section in part.sections
            },
            "evaluation": report.evaluation.to_dict(),
        }
    )
    return dict(found)


def finite(value: object) -> object:
    """Plain data with None for every number that JSON has no word for.

    >>> finite({"a": float("inf"), 2: (1.5, float("nan"))})
    {'a': None, '2': [1.5, None]}
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [finite(one) for one in value]
    return value


def _ends(cells: list[Cell]) -> tuple[str, ...]:
    if any(isinstance(cell, Interval) for cell in cells):
        return ("", "_low", "_high")
    return ("", "_std") if any(isinstance(cell, Spread) for cell in cells) else ("",)


def _values(cell: Cell, ends: tuple[str, ...]) -> list[object]:
    if isinstance(cell, Interval):
        found: list[object] = [cell.mean, cell.low, cell.high]
    elif isinstance(cell, Spread):
        found = [cell.mean, cell.std]
    else:
        found = [cell]
    found = [finite(value) for value in found]
    found += [None] * (len(ends) - len(found))
    return [_told(value) for value in found[: len(ends)]]


def _told(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"  # names come from pools, and a spreadsheet would run them
    return "" if value is None else value
