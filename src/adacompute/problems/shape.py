"""Rows -> problems, each checked and with an id of its own. Knows nothing of where rows come from."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from adacompute.errors import ProblemsInvalid
from adacompute.pool.content import Json, canonical
from adacompute.pool.flaw import Flaw, kind_of, shown
from adacompute.pool.plain import plain_problem
from adacompute.pool.read import problem_of
from adacompute.pool.shape import read_problem
from adacompute.problems.choices import LETTERS, shuffled
from adacompute.problems.fields import (
    Fields,
    listed,
    read_gold,
    read_id,
    read_level,
    read_question,
    read_subject,
)
from adacompute.problems.multiple import Choices, chosen, read_choices
from adacompute.problems.plain import plain
from adacompute.problems.presets import COLUMNS, Preset
from adacompute.problems.rows import Rows
from adacompute.records import Problem

__all__ = ["Shape", "problems_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How rows are to be read."""

    preset: Preset | None = None
    columns: Mapping[str, str]  # where a field is found, as the user says
    seed: int = 0  # of the order of shuffled choices

    def where(self) -> dict[str, tuple[str, ...]]:
        """Where each field is looked for, first found first."""
        known: dict[str, tuple[str, ...]] = {**COLUMNS, **(self.preset.columns if self.preset else {})}
        for field, column in self.columns.items():
            if field not in known:
                raise ProblemsInvalid(f"columns name the field {field!r}; the fields are {', '.join(known)}")
            if not column:
                raise ProblemsInvalid(f"columns give {column!r} for {field}; give the name of a column")
            known[field] = (column,)
        return known


def problems_of(source: Rows, shape: Shape, *, limit: int | None = None) -> list[Problem]:
    """The first `limit` problems of a source; errors name the source, the place and the field."""
    where = shape.where()
    names: set[str] = set()
    found: list[Problem] = []
    places: dict[str, tuple[str, Problem]] = {}  # by id
    for place, value in source.rows:
        try:
            names |= _object(value).keys()
            problem = (
                problem_of(read_problem(value, exact=True))
                if shape.preset is None and not shape.columns and _is_recorded(value)
                else _problem(Fields(_plain(value), where), shape, typed=source.typed, taken=places)
            )
            _check_storable(problem)
        except Flaw as exc:
            raise ProblemsInvalid(f"{source.place}: {place}: {exc}") from exc
        before = places.get(problem.id)
        if before is None:
            places[problem.id] = (place, problem)
            found.append(problem)
        elif not _is_recorded(value) or before[1] != problem:  # a pool file has a line for each model asked
            raise ProblemsInvalid(
                f"{source.place}: {place}: the id {shown(problem.id)} is that of {before[0]} already; "
                "give each problem its own, or none at all"
            )
        if len(found) == limit:
            break
    _check_columns(source, shape, names)
    if not found:
        raise ProblemsInvalid(f"{source.place}: holds no problem; give at least one, with its 'question'")
    return found


def _check_columns(source: Rows, shape: Shape, names: set[str]) -> None:
    for field, column in shape.columns.items():
        if names and column not in names:
            raise ProblemsInvalid(
                f"{source.place}: has no column {column!r} for {field}; there is {listed(names)}"
            )


def _object(value: Json) -> dict[str, Any]:
    if type(value) is not dict:
        raise Flaw(f"is {kind_of(value)}; give one object a problem")
    return value


def _is_recorded(row: Mapping[str, Any]) -> bool:
    """Whether it is a pool file's line, which a pool reads by rules of its own (nulls are kept)."""
    return isinstance(row.get("samples"), list) and type(row.get("id")) is type(row.get("question")) is str


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON data; a null is an absent value."""
    recorded = ("samples", "failures")  # many, and none of our business
    given = ((name, plain(value, name)) for name, value in row.items() if name not in recorded)
    return {name: value for name, value in given if value is not None}


def _problem(fields: Fields, shape: Shape, *, typed: bool, taken: Container[str]) -> Problem:
    preset = shape.preset
    question = read_question(fields)
    choices = read_choices(fields) if preset and preset.choices else None
    key = read_id(fields) or _made_id(question, choices, taken)
    if preset is None or preset.choices is None or choices is None:
        gold = read_gold(fields, preset)
    elif preset.choices == "shuffled":
        choices, gold = _shuffled(choices, seed=shape.seed, key=key)
    else:
        gold = chosen(choices, fields, way=preset.choices)
    subject = read_subject(fields, named="subject" in shape.columns)
    level = read_level(fields, named="level" in shape.columns, typed=typed)
    extra = fields.rest() if preset is None or preset.keeps_rest else {}
    if choices is not None:
        extra["choices"] = choices.texts
    return Problem(id=key, question=question, gold=gold, subject=subject, level=level, extra=extra)


def _made_id(question: str, choices: Choices | None, taken: Container[str]) -> str:
    """From what is asked, so that it stays when rows are moved; what is asked again gets -2, -3, ..."""
    asked = question if choices is None else canonical([question, choices.texts])
    made = "q-" + blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return next(key for key in _numbered(made) if key not in taken)


def _numbered(made: str) -> Iterator[str]:
    yield made
    number = 2
    while True:
        yield f"{made}-{number}"
        number += 1


def _shuffled(choices: Choices, *, seed: int, key: str) -> tuple[Choices, str]:
    """Choices of which the first is right, in an order of their own, and the letter of the right one."""
    order = shuffled(len(choices.texts), seed=seed, key=key)
    return Choices([choices.texts[i] for i in order]), LETTERS[order.index(0)]


def _check_storable(problem: Problem) -> None:
    """A Flaw where no pool could hold the problem."""
    row = read_problem(plain_problem(problem), exact=True)
    for text in row:
        if type(text) is str:
            try:
                text.encode()
            except UnicodeEncodeError as exc:
                raise Flaw(
                    f"{shown(text)} holds half a character at {exc.start + 1} ({text[exc.start]!r}); "
                    "write the text anew as UTF-8"
                ) from exc
