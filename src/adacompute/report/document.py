"""The contents of a report (tables, pictures, sections, parts), and functions that format them.

A table cell holds a value, not text, because the page and the CSV file format it differently.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
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

_DIGITS = 6  # number of significant digits in results.json: more than the page shows, but still readable
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet evaluates text that begins with one of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean over seeds or splits, with its standard deviation."""

    mean: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(Interval):
    """The share of samples that a policy saves, compared with uniform sampling of the same accuracy.

    `most` is the largest share that the recorded samples can show. A value equal to it is a lower bound.
    """

    most: float


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number of which only a lower bound is known; files have null in its place."""

    bound: float


Cell = str | float | int | bool | None | Interval | Spread | AtLeast


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its heading and the format of its values.

    `kind` is the format. "share" is a percentage with one decimal, "percent" one without decimals. "points"
    is a difference in percentage points. "fraction" has three decimals, "number" two, and "tenths" one.
    "amount" has no trailing zeros.
    """

    name: str
    kind: Kind = "text"
    limit: float | None = None  # an infinite value is shown as more than this number, such as `> 16`
    about: str = ""  # explanation of the heading; may be empty


GAIN = Column(name="gain", kind="points")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the report: its columns, its rows of values, and how the values were measured."""

    key: str  # name of the table's file, and of its anchor on the page
    title: str
    protocol: str  # how the numbers in the table were measured
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    bold: tuple[int, ...] = ()  # indices of rows shown in bold

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):  # `records` would lose one of two columns with the same name
            raise ValueError(f"table {self.key}: two columns of one name in {', '.join(names)}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.key}: {len(row)} cells under {len(self.columns)} headings")

    def records(self) -> list[dict[str, Any]]:
        """Returns each row as a dict whose keys are the headings."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_cell_data, row), strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure of the report: the SVG, and the numbers that it shows."""

    key: str
    title: str
    protocol: str
    svg: str = field(repr=False)
    alt: str  # description of the figure for screen readers
    caption: str = ""
    # the numbers that the figure shows, for results.json
    data: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the report: a heading with paragraphs, tables and pictures."""

    key: str
    title: str
    words: tuple[str, ...] = ()  # paragraphs of text
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    missing: tuple[str, ...] = ()  # sentences that say what the section can't show for this pool, and why


def format_cell(cell: Cell, column: Column, *, blank: str = "–") -> str:
    """Formats a cell as text for people to read.

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


def compute_saved(cost: float, needed: Interval, *, longest: int) -> Saved:
    """Computes the share of samples saved, compared with uniform sampling at the same accuracy.

    If uniform sampling needs more than the `longest` recorded samples, the share is computed for `longest`,
    and is a lower bound.

    >>> saved = compute_saved(6.0, Interval(mean=math.inf, low=14.87, high=math.inf), longest=16)
    >>> format_cell(saved, Column(name="saved", kind="percent"))
    '> 62% (60% to > 62%)'
    """
    ends = [None if end is None else 1 - cost / min(end, longest) for end in (needed.low, needed.high)]
    most = 1 - cost / longest
    return Saved(mean=1 - cost / min(needed.mean, longest), low=ends[0], high=ends[1], most=most)


def _format_end(interval: Interval, value: float | None, column: Column) -> str:
    """Formats the mean of an interval, or one of its ends; "" if it is None."""
    if value is None:
        return ""
    is_bound = isinstance(interval, Saved) and value >= interval.most
    return ("> " if is_bound else "") + _format_number(value, column)


def _format_number(value: float, column: Column) -> str:
    kind = column.kind
    if value != value:  # NaN means unknown
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
    """Formats differences of shares, with their intervals, in percentage points."""
    return f"{join_words([format_cell(value, GAIN) for value in values])} points"


def find_clear_signs(values: Sequence[Interval]) -> tuple[list[int], list[int]]:
    """Returns the indices of the intervals that are wholly above zero, and of those wholly below zero."""
    sure = [at for at, value in enumerate(values) if not value.holds_zero]
    return [at for at in sure if values[at].mean > 0], [at for at in sure if values[at].mean < 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part of the page: a title above one or more sections."""

    key: str
    title: str
    about: str  # a sentence about the part, shown below its title
    sections: tuple[Section, ...]
    folded: bool = False  # whether the part is collapsed at first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """The report of a pool; its first part is about the verdict."""

    name: str  # name of the pool, as shown on the page
    headline: str
    below: str  # text below the headline: the verdict's interval, and how it was measured
    facts: Mapping[str, Any]  # versions, seeds, numbers of problems and samples
    notices: tuple[str, ...]  # warnings at the top of the page
    parts: tuple[ReportPart, ...]
    evaluation: Evaluation = field(repr=False)  # results of every policy on held-out problems
    money: Mapping[str, Any] | None = None  # data from which the page computes costs at other prices

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
    """Converts a value to plain data for JSON, with numbers rounded to six significant digits.

    >>> to_plain({"cost": np.array([1 / 3, np.nan]), "gain": Interval(mean=0.25, low=None, high=math.inf)})
    {'cost': [0.333333, None], 'gain': {'mean': 0.25, 'low': None, 'high': None}}
    """
    return replace_non_finite(value, digits=_DIGITS)


def to_csv(table: Table) -> str:
    """Formats a table as CSV: headings, then unrounded values.

    A column x of intervals becomes the columns x, x_low and x_high. A column x of means with standard
    deviations becomes x and x_std. Text that a spreadsheet would evaluate as a formula gets a leading
    apostrophe.
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
    """Converts the whole report to plain data for results.json; unknown values are null."""
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
    """Converts a value to plain data. NaN and infinity become None; `digits` are significant digits.

    >>> replace_non_finite({"a": float("inf"), 2: (1.5, float("nan"))})
    {'a': None, '2': [1.5, None]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, str):  # replace unpaired surrogates, because UTF-8 can't encode them
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
    data = replace_non_finite(_cell_data(cell))
    values = list(data.values()) if isinstance(data, dict) else [data]
    values += [None] * (len(suffixes) - len(values))
    return [_csv_value(value) for value in values[: len(suffixes)]]


def _csv_value(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"  # the apostrophe stops a spreadsheet from evaluating the text as a formula
    return "" if value is None else value
