"""What the paper says: the numbers of its tables, and the statements to be checked. Knows no number of ours.

Copied into `paper.json`, each statement with the line of the paper's source and words that stand in it; a
test compares both with the source where that is at hand.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["Claim", "Figure", "PaperTable", "Row", "Said", "Slip", "said", "setting"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
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
    rows: tuple[Row, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement that the paper reads off its tables and figures."""

    key: str
    part: str  # of our page
    place: str
    line: int  # of the source
    quote: str  # words of that line
    says: str  # in our words


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """Two things that the paper says and that don't go together, or one that its own numbers contradict."""

    key: str
    place: str
    quotes: tuple[tuple[int, str], ...]  # lines of the source, and words of them
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The paper as data."""

    title: str
    tables: dict[str, PaperTable]  # by label
    figures: dict[str, Figure]
    claims: dict[str, Claim]  # by key, in the order of our page
    slips: dict[str, Slip]

    def rows(self, label: str, **wanted: object) -> list[Row]:
        """The rows of a table that have these values."""
        return [
            row
            for row in self.tables[label].rows
            if all(row[name] == value for name, value in wanted.items())
        ]


@cache
def said() -> Said:
    """The paper.

    >>> said().rows("tab:main", model="Qwen2.5-7B", method="ours", budget=3.0)[0]["accuracy"]
    0.554
    """
    text = (files("adacompute.evaluate.reproduction") / "paper.json").read_text("utf-8")
    found = json.loads(text)
    return Said(
        title=found["title"],
        tables={
            label: PaperTable(label=label, **{**table, "rows": tuple(table["rows"])})
            for label, table in found["tables"].items()
        },
        figures={label: Figure(label=label, **figure) for label, figure in found["figures"].items()},
        claims={claim["key"]: Claim(**claim) for claim in found["claims"]},
        slips={slip["key"]: _slip(slip) for slip in found["slips"]},
    )


def setting(row: Row) -> str:
    """The model and the data of a row, as we write them: `DeepSeek-V3 × MATH`."""
    return f"{row['model']} × {row['data']}"


def _slip(slip: Mapping[str, Any]) -> Slip:
    quotes = tuple((one["line"], one["quote"]) for one in slip["quotes"])
    return Slip(key=slip["key"], place=slip["place"], quotes=quotes, says=slip["says"])
