"""The parts of a report: tables, pictures, sections, parts, and the report itself.

Cells hold values rather than text; the page, the CSV and the Markdown each format them. Every table and
picture states how its numbers were measured. CSV, JSON and number formats are here too.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, Literal

import numpy as np

from adacompute.evaluate.comparison import Evaluation
from adacompute.records import format_money
from adacompute.replay.matching import Interval

Kind = Literal[
    "text",
    "share",
    "percent",
    "fraction",
    "points",
    "number",
    "tenths",
    "amount",
    "count",
    "money",
    "price",
    "flag",
]

_DIGITS = 6  # significant digits: more than a figure shows, while files stay readable
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # characters that make spreadsheets evaluate a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean over seeds or splits, with its standard deviation."""

    mean: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(Interval):
    """A saved share. Uniform sampling is recorded only up to some number of samples, so a value of `most` is
    a lower bound.
    """

    most: float


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A lower bound of a number; null in files."""

    bound: float


Cell = str | float | int | bool | None | Interval | Spread | AtLeast


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and the format of its values.

    Shares are percentages with one decimal (`percent`: none), differences of shares are points, numbers have
    two decimals (`tenths`: one), amounts have no trailing zeros, and `format_money` formats money.
    """

    name: str
    kind: Kind = "text"
    limit: float | None = None  # an infinite value is shown as above this: > 16
    about: str = ""  # explains the heading, if needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of values below headings."""

    key: str  # its file name and its anchor
    title: str
    protocol: str  # how its numbers were measured
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    bold: tuple[int, ...] = ()  # rows to emphasise

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):  # `records` would lose one
            raise ValueError(f"table {self.key}: two columns of one name in {', '.join(names)}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.key}: {len(row)} cells under {len(self.columns)} headings")

    def records(self) -> list[dict[str, Any]]:
        """Each row as a dict by heading."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_cell_data, row), strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure as SVG, with the numbers that it draws."""

    key: str
    title: str
    protocol: str
    svg: str = field(repr=False)
    alt: str  # description for screen readers
    caption: str = ""
    data: dict[str, Any] = field(default_factory=dict, repr=False)  # plain data, for results.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading of the report with its content."""

    key: str
    title: str
    words: tuple[str, ...] = ()  # paragraphs
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    missing: tuple[str, ...] = ()  # what is missing for this pool, and why


def format_cell(cell: Cell, column: Column, *, blank: str = "–") -> str:
    """Formats a value for people.

    >>> format_cell(0.6123, Column(name="accuracy", kind="share"))
    '61.2%'
    >>> format_cell(Interval(mean=0.012, low=-0.003, high=0.03), Column(name="gain", kind="points"))
    '+1.2 (-0.3 to +3.0)'
    >>> needs = Interval(mean=math.inf, low=14.87, high=math.inf)
    >>> format_cell(needs, Column(name="uniform needs", kind="tenths", limit=16))
    '> 16 (14.9 to > 16)'
    """
    if cell is None:
        return blank
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Interval):
        mean, low, high = (_format_end(cell, value, column) for value in (cell.mean, cell.low, cell.high))
        return f"{mean} ({low} to {high})" if low and high else mean
    if isinstance(cell, Spread):
        spread = _format_number(cell.std, column).lstrip("+").rstrip("%")
        return f"{_format_number(cell.mean, column)} ± {spread}"
    if isinstance(cell, AtLeast):
        return f"> {_format_number(cell.bound, column)}"
    return cell if isinstance(cell, str) else _format_number(float(cell), column)


def format_mean(cell: Cell, column: Column) -> str:
    """A value without its interval, for narrow tables."""
    return format_cell(replace(cell, low=None, high=None) if isinstance(cell, Interval) else cell, column)


def compute_saved(cost: float, needed: Interval, *, longest: int) -> Saved:
    """The share of samples saved, compared with uniform sampling at the same accuracy.

    If uniform sampling needs more than `longest`, the most recorded, that number is used.

    >>> saved = compute_saved(6.0, Interval(mean=math.inf, low=14.87, high=math.inf), longest=16)
    >>> format_cell(saved, Column(name="saved", kind="percent"))
    '> 62% (60% to > 62%)'
    """
    ends = [None if end is None else 1 - cost / min(end, longest) for end in (needed.low, needed.high)]
    most = 1 - cost / longest
    return Saved(mean=1 - cost / min(needed.mean, longest), low=ends[0], high=ends[1], most=most)


def _format_end(interval: Interval, value: float | None, column: Column) -> str:
    """The mean or an end of an interval; empty if there is none."""
    if value is None:
        return ""
    is_bound = isinstance(interval, Saved) and value >= interval.most
    return ("> " if is_bound else "") + _format_number(value, column)


def _format_number(value: float, column: Column) -> str:
    kind = column.kind
    if value != value:  # NaN: unknown
        return "–"
    if value == math.inf:
        return "more than there are" if column.limit is None else f"> {column.limit:g}"
    if value == -math.inf:
        return "none"
    forms = {
        "share": f"{100 * value:z.1f}%",
        "points": f"{100 * value:+z.1f}",
        "count": f"{value:z,.0f}",
    }
    forms |= {"fraction": f"{value:z.3f}", "number": f"{value:z.2f}", "tenths": f"{value:z.1f}"}
    forms["price"] = f"{value:z.4g}"
    forms |= {"money": format_money(value), "percent": f"{round(100 * value) + 0.0:.0f}%"}
    return forms.get(kind, f"{value:zg}")


def _cell_data(cell: Cell) -> Any:  # noqa: ANN401
    if isinstance(cell, Interval):
        return {"mean": cell.mean, "low": cell.low, "high": cell.high}
    if isinstance(cell, Spread):
        return {"mean": cell.mean, "std": cell.std}
    return None if isinstance(cell, AtLeast) else cell


def join_words(items: Sequence[str]) -> str:
    """Joins items with commas and a final "and".

    >>> join_words(["1.5", "2", "3"]), join_words(["2"])
    ('1.5, 2 and 3', '2')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def format_gains(values: Iterable[Interval]) -> str:
    """Differences of shares with their intervals, in points."""
    return f"{join_words([_format_gain(value) for value in values])} points"


def find_clear_signs(values: Sequence[Interval]) -> tuple[list[int], list[int]]:
    """Indices of the differences clearly above zero and clearly below it: their intervals exclude zero."""
    sure = [at for at, value in enumerate(values) if not value.holds_zero]
    return [at for at in sure if values[at].mean > 0], [at for at in sure if values[at].mean < 0]


def _format_gain(value: Interval) -> str:
    if value.low is None or value.high is None:
        return f"{100 * value.mean:+.1f}"
    return f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A heading of the page with its sections."""

    key: str
    title: str
    about: str  # its content, in a sentence
    sections: tuple[Section, ...]
    folded: bool = False  # its sections are collapsed at first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """A pool's report; the first part is the verdict."""

    name: str  # display name of the pool
    headline: str
    below: str  # the basis of the headline: protocol and interval
    facts: Mapping[str, Any]  # versions, seeds, numbers of problems and samples
    notices: tuple[str, ...]  # warnings, shown first
    parts: tuple[ReportPart, ...]
    evaluation: Evaluation = field(repr=False)  # every policy, held out
    money: Mapping[str, Any] | None = None  # data from which the page recomputes money

    def sections(self) -> Iterator[Section]:
        for part in self.parts:
            yield from part.sections

    def tables(self) -> Iterator[Table]:
        for section in self.sections():
            yield from section.tables

    def pictures(self) -> Iterator[Picture]:
        for section in self.sections():
            yield from section.pictures


def to_plain(value: object) -> Any:  # noqa: ANN401
    """Like `replace_non_finite`, rounded to six digits.

    >>> to_plain({"cost": np.array([1 / 3, np.nan]), "gain": Interval(mean=0.25, low=None, high=math.inf)})
    {'cost': [0.333333, None], 'gain': {'mean': 0.25, 'low': None, 'high': None}}
    """
    return replace_non_finite(value, digits=_DIGITS)


def to_csv(table: Table) -> str:
    """A header row, then raw values; an interval as x, x_low, x_high, a mean over seeds as x, x_std.

    A text that a spreadsheet would evaluate as a formula gets a leading apostrophe; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    suffixes = [_column_suffixes([row[at] for row in table.rows]) for at in range(len(table.columns))]
    names = [column.name for column in table.columns]
    writer.writerow(
        [_csv_value(name + end) for name, own in zip(names, suffixes, strict=True) for end in own]
    )
    for row in table.rows:
        writer.writerow(
            [value for cell, own in zip(row, suffixes, strict=True) for value in _cell_values(cell, own)]
        )
    return out.getvalue()


def to_data(report: Report) -> dict[str, Any]:
    """The whole report as plain data for results.json; unknown values are null."""
    protocols = [table.protocol for table in report.tables()]
    protocols += [picture.protocol for picture in report.pictures()]
    data: Any = replace_non_finite(
        {
            **report.facts,
            "pool": report.name,
            "headline": report.headline,
            "headline_protocol": report.below,
            "verdict": report.evaluation.verdict.to_dict(),
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
    return dict(data)


def replace_non_finite(value: object, *, digits: int | None = None) -> object:
    """Plain data with None for numbers that JSON can't hold; others are rounded to `digits` if given.

    >>> replace_non_finite({"a": float("inf"), 2: (1.5, float("nan"))})
    {'a': None, '2': [1.5, None]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, str):  # replaces unpaired surrogates, which can't be written
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        shown = value if digits is None else float(f"{value:.{digits}g}")
        return shown if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): replace_non_finite(item, digits=digits) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [replace_non_finite(item, digits=digits) for item in value]
    return value


def _column_suffixes(cells: list[Cell]) -> tuple[str, ...]:
    if any(isinstance(cell, Interval) for cell in cells):
        return ("", "_low", "_high")
    return ("", "_std") if any(isinstance(cell, Spread) for cell in cells) else ("",)


def _cell_values(cell: Cell, suffixes: tuple[str, ...]) -> list[object]:
    if isinstance(cell, Interval):
        values: list[object] = [cell.mean, cell.low, cell.high]
    elif isinstance(cell, Spread):
        values = [cell.mean, cell.std]
    else:
        values = [None if isinstance(cell, AtLeast) else cell]
    values = [replace_non_finite(value) for value in values]
    values += [None] * (len(suffixes) - len(values))
    return [_csv_value(value) for value in values[: len(suffixes)]]


def _csv_value(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"  # names come from pools, and a spreadsheet would evaluate them
    return "" if value is None else value
