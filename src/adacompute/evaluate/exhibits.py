"""What a report shows: tables, pictures and the sections they stand in. Knows no HTML and no drawing.

A cell holds a value, not a text: the page, the CSV and the Markdown each write it in their own way. Every
table and picture names the protocol its numbers were made under.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from adacompute.evaluate.bootstrap import Interval

__all__ = [
    "Cell",
    "Column",
    "Kind",
    "Picture",
    "Section",
    "Spread",
    "Table",
    "markdown",
    "money",
    "written",
]

Kind = Literal[
    "text", "share", "percent", "fraction", "points", "number", "amount", "count", "money", "price", "flag"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A mean over seeds or splits, and its standard deviation over them."""

    mean: float
    std: float


Cell = str | float | int | bool | None | Interval | Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading, and how its values are written: shares as percent to a tenth (`percent`: whole), differences
    of shares as points, amounts without needless zeros, money as `money` says, …"""

    name: str
    kind: Kind = "text"
    about: str = ""  # what the heading means, where it needs saying


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of values under headings."""

    key: str  # its file's name, and its anchor
    title: str
    protocol: str  # under which its numbers were made
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    bold: tuple[int, ...] = ()  # rows to set off

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):  # a record would lose one
            raise ValueError(f"table {self.key}: two columns of one name in {', '.join(names)}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.key}: {len(row)} cells under {len(self.columns)} headings")

    def records(self) -> list[dict[str, Any]]:
        """Each row by heading, plain data."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure as SVG, with the numbers it draws."""

    key: str
    title: str
    protocol: str
    svg: str = field(repr=False)
    alt: str  # what it shows, for who can't see it
    caption: str = ""
    data: dict[str, Any] = field(default_factory=dict, repr=False)  # plain data, for results.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading of the report, with what stands below it."""

    key: str
    title: str
    words: tuple[str, ...] = ()  # paragraphs
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    missing: tuple[str, ...] = ()  # what this pool doesn't allow, and why


def written(cell: Cell, column: Column, *, blank: str = "–") -> str:
    """A value as a person reads it.

    >>> written(0.6123, Column(name="accuracy", kind="share"))
    '61.2%'
    >>> written(Interval(mean=0.012, low=-0.003, high=0.03), Column(name="gain", kind="points"))
    '+1.2 (-0.3 to +3.0)'
    """
    if cell is None:
        return blank
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Interval):
        mean = _number(cell.mean, column.kind)
        if cell.low is None or cell.high is None:
            return mean
        return f"{mean} ({_number(cell.low, column.kind)} to {_number(cell.high, column.kind)})"
    if isinstance(cell, Spread):
        spread = _number(cell.std, column.kind).lstrip("+").rstrip("%")
        return f"{_number(cell.mean, column.kind)} ± {spread}"
    return cell if isinstance(cell, str) else _number(float(cell), column.kind)


def markdown(table: Table) -> list[str]:
    """The lines of a Markdown table."""
    heads = [column.name for column in table.columns]
    rules = ["---" if column.kind in ("text", "flag") else "---:" for column in table.columns]
    lines = [heads, rules]
    for at, row in enumerate(table.rows):
        cells = [written(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        lines.append([f"**{cell}**" for cell in cells] if at in table.bold else cells)
    return [f"| {' | '.join(map(_inline, line))} |" for line in lines]


def _inline(text: str) -> str:
    """A cell's text, which ends neither the cell nor the row."""
    return " ".join(text.split()).replace("|", r"\|")


def _number(value: float, kind: Kind) -> str:
    if value != value:  # NaN: not known
        return "–"
    if value in (float("inf"), float("-inf")):
        return "more than there are" if value > 0 else "none"
    forms = {
        "share": f"{100 * value:z.1f}%",
        "points": f"{100 * value:+z.1f}",
        "count": f"{value:z,.0f}",
    }
    forms |= {"fraction": f"{value:z.3f}", "number": f"{value:z.2f}", "price": f"{value:z.4g}"}
    forms |= {"money": money(value), "percent": f"{round(100 * value) + 0.0:.0f}%"}
    return forms.get(kind, f"{value:zg}")


def money(value: float) -> str:
    """Two places from 1 up, three digits below, never an exponent; the page's script writes it alike.

    >>> [money(value) for value in (1188.168, 1.149, 0.9996, 0.26604, -0.0000266, 0.0)]
    ['1,188.17', '1.15', '1.00', '0.266', '-0.0000266', '0.00']
    """
    exponent = int(f"{value:.2e}".split("e")[1]) if value else 0
    return f"{value + 0.0:,.{max(2, 2 - exponent)}f}"  # no -0.00


def _plain(cell: Cell) -> Any:  # noqa: ANN401
    if isinstance(cell, Interval):
        return {"mean": cell.mean, "low": cell.low, "high": cell.high}
    if isinstance(cell, Spread):
        return {"mean": cell.mean, "std": cell.std}
    return cell
