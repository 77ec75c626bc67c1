"""One row's values by field: id, question, gold, subject, level. Knows nothing of files or of other rows."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from adacompute.pool.content import Json
from adacompute.pool.flaw import Flaw, shown, wrong
from adacompute.pool.shape import LINE_KEYS
from adacompute.problems.presets import Columns, Preset

__all__ = [
    "Fields",
    "is_blank",
    "listed",
    "read_gold",
    "read_id",
    "read_level",
    "read_question",
    "read_subject",
]

_LEVEL = re.compile(r"(?i:level)\s*(\d{1,15})")
_WHOLE, _REAL = re.compile(r"-?\d{1,15}"), re.compile(r"-?\d{1,15}\.\d{1,15}")
_LISTED = 12  # names that a message shows


class Fields:
    """A row's values by field, and what is left of it when the fields are taken."""

    def __init__(self, row: Mapping[str, Any], where: Columns) -> None:
        self.row, self.where = row, where
        self.taken: set[str] = set()  # columns that a field was read from
        self._folded = {name.casefold(): name for name in reversed(list(row))}  # of equal ones the first

    def named(self, name: str) -> str | None:
        """The row's column of this name, capitals or not (`Question`); None: there is none."""
        return name if name in self.row else self._folded.get(name.casefold())

    def column(self, field: str) -> str:
        """The column that holds a field, the first that could where none does.

        A column counts by its name, empty or not: else a gap in one row would be filled from another column.
        """
        names = self.where[field]
        found = (there for name in names if (there := self.named(name)) is not None)
        return next(found, names[0] if names else field)

    def peek(self, field: str) -> Json:
        """A field's value; None where there is none."""
        return self.row.get(self.column(field)) if self.where[field] else None

    def take(self, field: str) -> Json:
        """As `peek`; the column then isn't part of the rest."""
        if self.where[field]:
            self.taken.add(self.column(field))
        return self.peek(field)

    def rest(self) -> dict[str, Any]:
        """What no field was read from; the words of a pool's line can't be anything else there."""
        left = ((k, v) for k, v in self.row.items() if k not in self.taken and k not in LINE_KEYS)
        return {k: v for k, v in left if v is not None}


def read_question(fields: Fields) -> str:
    """The question: a text that is not empty."""
    question, column = fields.take("question"), fields.column("question")
    if question is None and column in fields.row:
        raise Flaw(f"'{column}' is empty; give a question, or leave the row out")
    if question is None:
        looked = " or ".join(map(repr, fields.where["question"]))
        raise Flaw(
            f"{looked} is missing; give the question there, or say which column holds it "
            f"(question=NAME); there is {listed(fields.row)}"
        )
    if type(question) is not str:
        wrong(column, question, "the question as a string")
    if not question.strip():
        raise Flaw(f"'{column}' is {shown(question)}, which is empty; give a question, or leave the row out")
    return question


def read_id(fields: Fields) -> str | None:
    """The id as text; None where there is none."""
    value, column = fields.take("id"), fields.column("id")
    if type(value) is float and value.is_integer():  # a column of whole numbers with gaps, as pandas has it
        value = int(value)
    if type(value) in (int, float):
        return str(value)
    if value is not None and (type(value) is not str or not value):
        wrong(column, value, "a string that is not empty, or a number")
    return value


def read_gold(fields: Fields, preset: Preset | None) -> str | None:
    """The gold answer, read out of a solution where the preset says how."""
    value, column = fields.take("gold"), fields.column("gold")
    if preset is not None and preset.gold is not None:
        if value is None:
            how = "empty" if column in fields.row else "missing"
            raise Flaw(f"'{column}' is {how}; give {preset.gold_is}, or leave the preset {preset.name} out")
        found = preset.gold(value) if type(value) is str else None
        if found is None:
            wrong(column, value, f"{preset.gold_is}, or leave the preset {preset.name} out")
        return found
    if is_blank(value):
        _check_other_gold(fields, column)
        return None
    if type(value) not in (str, int, float):
        wrong(column, value, "the answer as a string or a number, or say which column holds it (gold=NAME)")
    return str(value)


def _check_other_gold(fields: Fields, column: str) -> None:
    for name in fields.where["gold"]:
        other = fields.named(name)
        if other not in (None, column) and not is_blank(fields.row[str(other)]):
            raise Flaw(
                f"'{column}' is empty, and '{other}' isn't; say which column holds the answer (gold={other})"
            )


def read_subject(fields: Fields, *, named: bool) -> str | None:
    """The subject as text. `named`: its column was named by the user, so it has to be one."""
    value, column = fields.peek("subject"), fields.column("subject")
    if value is not None and type(value) not in (str, int, float):
        if named or column == "subject":
            wrong(column, value, "a string")
        return None  # only perhaps meant as a subject: it stays in the rest
    fields.take("subject")
    return None if value is None or value == "" else str(value)


def read_level(fields: Fields, *, named: bool, typed: bool) -> int | float | str | None:
    """The level as a number or text; "Level 3" is 3."""
    value, column = fields.peek("level"), fields.column("level")
    if value is not None and type(value) not in (str, int, float):
        if named or column == "level":
            wrong(column, value, "a number or a string")
        return None
    fields.take("level")
    if type(value) is str and (found := _LEVEL.fullmatch(value.strip())):
        return int(found[1])
    if type(value) is str and not typed:  # CSV has no numbers: 3 there is what 3 is in JSON
        return int(value) if _WHOLE.fullmatch(value) else float(value) if _REAL.fullmatch(value) else value
    return None if value == "" else value


def is_blank(value: Json) -> bool:
    """Whether a value says nothing: null, or a text without a character in it."""
    return value is None or (type(value) is str and not value.strip())


def listed(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    there = sorted(map(str, names))
    more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    return ", ".join(map(shown, there[:_LISTED])) + more if there else "nothing"
