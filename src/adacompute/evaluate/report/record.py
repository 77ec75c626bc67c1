"""A report before it is written: parts, in which sections stand. Knows no HTML and no files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.evaluate.exhibits import Picture, Section, Table
from adacompute.evaluate.rows import Evaluation

__all__ = ["Part", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading of the page, with the sections below it."""

    key: str
    title: str
    about: str  # what is found there, in a sentence
    sections: tuple[Section, ...]
    folded: bool = False  # its sections open when they are clicked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """What is told of one pool; the first part is the verdict."""

    name: str  # of the pool, as people call it
    headline: str
    below: str  # what the headline stands on: the protocol, and its interval
    facts: Mapping[str, Any]  # how it was made: versions, seeds, numbers of problems and samples
    notices: tuple[str, ...]  # to be read before anything else
    parts: tuple[Part, ...]
    evaluation: Evaluation = field(repr=False)  # every policy, held-out: what the verdict stands on
    money: Mapping[str, Any] | None = None  # what a page needs to reckon in money anew; plain data

    def sections(self) -> Iterator[Section]:
        for part in self.parts:
            yield from part.sections

    def tables(self) -> Iterator[Table]:
        for section in self.sections():
            yield from section.tables

    def pictures(self) -> Iterator[Picture]:
        for section in self.sections():
            yield from section.pictures
