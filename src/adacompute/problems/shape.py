"""Rows -> problems, each checked and with an id of its own. Knows nothing of where rows come from."""

import difflib
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
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
from adacompute.problems.known import refuse_known
from adacompute.problems.multiple import Choices, chosen, read_choices
from adacompute.problems.plain import plain
from adacompute.problems.presets import COLUMNS, Preset
from adacompute.problems.rows import Rows
from adacompute.records import Problem

__all__ = ["Ids", "Shape", "problems_of"]

_LOOKED_AT = 10_000  # rows beyond a limit that are looked at for a named column


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
            self._check_field(field, known)
            if not column:
                raise ProblemsInvalid(f"columns give {column!r} for {field}; give the name of a column")
            known[field] = (column,)
        return known

    def _check_field(self, field: str, known: Collection[str]) -> None:
        if field == "choices" and field not in known:
            raise ProblemsInvalid("columns name the field 'choices'; give preset multiple-choice with it")
        if field not in known:
            near = difflib.get_close_matches(field, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ProblemsInvalid(
                f"columns name the field {field!r}; {hint}the fields are {', '.join(known)}"
            )
        preset = self.preset
        if preset and preset.choices == "shuffled" and field in ("gold", "choices"):
            raise ProblemsInvalid(
                f"columns name {field}, and preset {preset.name} takes the right choice from "
                f"{preset.columns['choices'][0]!r}; leave it out, or give preset multiple-choice"
            )


class Ids:
    """Ids from what is asked, so that they stay when rows are moved; what is asked again gets -2, -3, ..."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._times: dict[str, int] = {}  # how often each was made: counting anew would be quadratic

    def made(self, question: str, choices: Choices | None) -> str:
        """The next id of what is asked."""
        asked = question if choices is None else canonical([question, choices.texts])
        made = "q-" + blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        number = self._times.get(made, 0) + 1
        while (key := made if number == 1 else f"{made}-{number}") in self._taken:
            number += 1
        self._times[made] = number
        return key


def problems_of(source: Rows, shape: Shape, *, limit: int | None = None) -> list[Problem]:
    """The first `limit` problems of a source; errors name the source, the place and the field."""
    where = shape.where()
    names: set[str] = set()
    found: list[Problem] = []
    places: dict[str, tuple[str, Problem]] = {}  # by id
    ids = Ids(places)
    for place, value in source.rows:
        try:
            names |= _object(value).keys()
            problem = (
                problem_of(read_problem(value, exact=True))
                if shape.preset is None and not shape.columns and _is_recorded(value)
                else _problem(Fields(_plain(value), where), shape, typed=source.typed, ids=ids)
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
    _check_columns(source, shape, names, cut=len(found) == limit)
    if not found:
        raise ProblemsInvalid(f"{source.place}: holds no problem; give at least one, with its 'question'")
    return found


def _check_columns(source: Rows, shape: Shape, names: set[str], *, cut: bool) -> None:
    """Refuses a named column that no row has; where a limit `cut` the rows, some more are looked at."""
    there = {name.casefold() for name in names}
    absent = {field: name for field, name in shape.columns.items() if name.casefold() not in there}
    if not names or not absent:
        return
    if cut:
        for value in _more(source):
            there |= {name.casefold() for name in value}
            if all(name.casefold() in there for name in absent.values()):
                return
    for field, column in absent.items():
        if column.casefold() not in there:
            raise ProblemsInvalid(
                f"{source.place}: has no column {column!r} for {field}; there is {listed(names)}"
            )


def _more(source: Rows) -> Iterator[Mapping[str, Any]]:
    """Rows beyond the limit, to the first that can't be read: what is wrong there is nobody's business."""
    with suppress(ProblemsInvalid):
        yield from (row.value for row in islice(source.rows, _LOOKED_AT) if type(row.value) is dict)


def _object(value: Json) -> dict[str, Any]:
    if type(value) is not dict:
        raise Flaw(f"is {kind_of(value)}; give one object a problem")
    return value


def _is_recorded(row: Mapping[str, Any]) -> bool:
    """Whether it is a pool file's line, which a pool reads by rules of its own (nulls are kept)."""
    return isinstance(row.get("samples"), list) and type(row.get("id")) is type(row.get("question")) is str


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON data."""
    recorded = ("samples", "failures")  # many, and none of our business
    return {name: plain(value, name) for name, value in row.items() if name not in recorded}


def _problem(fields: Fields, shape: Shape, *, typed: bool, ids: Ids) -> Problem:
    preset = shape.preset
    refuse_known(fields, preset=preset, named=shape.columns)
    question = read_question(fields)
    choices = read_choices(fields, way=preset.choices) if preset and preset.choices else None
    key = read_id(fields) or ids.made(question, choices)
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
        question = question.rstrip()  # a prompt puts the choices below it
    return Problem(id=key, question=question, gold=gold, subject=subject, level=level, extra=extra)


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
