"""What every kind of source hands over: rows with their place. Knows nothing of any one kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Row", "Rows"]


class Row(NamedTuple):
    """One problem as its source writes it, not yet checked."""

    place: str  # in words, e.g. "line 7"
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A source being read."""

    place: str  # what messages call the source, e.g. its path
    rows: Iterator[Row]
    typed: bool = True  # False: every value is text, as in CSV
