"""What the paper says: the numbers of its tables, and the statements to be checked, read from `paper.json`.

Each statement has its line in the paper's source and words quoted from it; a test compares both with the
source where that is at hand.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["PaperRow", "format_setting", "load_paper"]

PaperRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """A figure of the paper, by name only: its numbers aren't in the source."""

    label: str
    number: int
    place: str
    line: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of the paper, cell by cell."""

    label: str
    number: int
    place: str
    line: int
    title: str
    rows: tuple[PaperRow, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperClaim:
    """A statement that the paper draws from its tables and figures."""

    key: str
    part: str  # of our page
    place: str
    line: int  # of the source
    quote: str  # words of that line
    says: str  # in our words


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSlip:
    """Two things in the paper that contradict each other, or one that its own numbers contradict."""

    key: str
    place: str
    quotes: tuple[tuple[int, str], ...]  # lines of the source, and words of them
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRecord:
    """The paper as data."""

    title: str
    tables: dict[str, PaperTable]  # by label
    figures: dict[str, PaperFigure]
    claims: dict[str, PaperClaim]  # by key, in the order of our page
    slips: dict[str, PaperSlip]

    def rows(self, label: str, **values: object) -> list[PaperRow]:
        """The rows of a table that have these values."""
        return [
            row
            for row in self.tables[label].rows
            if all(row[name] == value for name, value in values.items())
        ]


@cache
def load_paper() -> PaperRecord:
    """Load the paper's tables and statements.

    >>> load_paper().rows("tab:main", model="Qwen2.5-7B", method="ours", budget=3.0)[0]["accuracy"]
    0.554
    """
    text = (files("studies.paper") / "paper.json").read_text("utf-8")
    data = json.loads(text)
    return PaperRecord(
        title=data["title"],
        tables={
            label: PaperTable(label=label, **{**table, "rows": tuple(table["rows"])})
            for label, table in data["tables"].items()
        },
        figures={label: PaperFigure(label=label, **figure) for label, figure in data["figures"].items()},
        claims={claim["key"]: PaperClaim(**claim) for claim in data["claims"]},
        slips={slip["key"]: _build_slip(slip) for slip in data["slips"]},
    )


def format_setting(row: PaperRow) -> str:
    """The model and the data of a row, as we write them: `DeepSeek-V3 × MATH`."""
    return f"{row['model']} × {row['data']}"


def _build_slip(slip: Mapping[str, Any]) -> PaperSlip:
    quotes = tuple((one["line"], one["quote"]) for one in slip["quotes"])
    return PaperSlip(key=slip["key"], place=slip["place"], quotes=quotes, says=slip["says"])
