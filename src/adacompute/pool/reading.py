"""What every kind of file hands over: entries with their place. Knows nothing of any one format."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Entry", "Reading", "place_in"]

_BITS = 40  # of a place for the line; the rest is the file's number


class Entry(NamedTuple):
    """One problem of a file, not yet checked."""

    place: int
    value: Any
    again: Callable[[], Any] | None = None  # the same, parsed slowly and exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file, or several, being read."""

    path: Path
    unit: str  # what places count: "line", "row", ...
    files: tuple[str, ...]  # names within `path`; one: it is `path` itself
    entries: Iterator[Entry]

    def name(self, place: int) -> str:
        """A place in words, for messages."""
        number, line = place >> _BITS, place & ((1 << _BITS) - 1)
        return f"{self.files[number]} {self.unit} {line}" if len(self.files) > 1 else f"{self.unit} {line}"


def place_in(file: int, line: int) -> int:
    """The place of a line (from 1) in one of several files (from 0), as one number."""
    return file << _BITS | line
