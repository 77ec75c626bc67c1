"""Reads the fields of a row: id, question, gold answer, subject, level and choices.

Choices may be a list, columns A to J, or one column for the right choice and several for wrong ones.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from string import ascii_uppercase
from typing import Any, NamedTuple

from adacompute.errors import ProblemsInvalid, format_value
from adacompute.pool.rows import LINE_KEYS, Flaw, raise_flaw
from adacompute.pool.sqlite import Json
from adacompute.problems.presets import ChoiceFormat, Columns, Preset

_LEVEL_TEXT = re.compile(r"(?i:level)\s*(\d{1,15})")
_WHOLE_NUMBER, _DECIMAL_NUMBER = re.compile(r"-?\d{1,15}"), re.compile(r"-?\d{1,15}\.\d{1,15}")
_NAMES_SHOWN = 12  # maximum number of column names listed in a message


class RowFields:
    """Finds the values of a row by field, and remembers which columns were read."""

    def __init__(self, row: Mapping[str, Any], columns: Columns) -> None:
        self.row, self.columns = row, columns
        self.used: set[str] = set()  # names of the columns that were read
        # if names differ only in case, the first one counts
        self._folded = {name.casefold(): name for name in reversed(list(row))}

    def find_column(self, name: str) -> str | None:
        """Finds the row's column with this name, even if letters differ in case; None if there is none."""
        return name if name in self.row else self._folded.get(name.casefold())

    def choose_column(self, field: str) -> str:
        """Returns the row's column for a field, or the field's preferred column if the row has none.

        A column may be chosen although its value is empty, so that all rows are read from the same column.
        """
        names = self.columns[field]
        present = (column for name in names if (column := self.find_column(name)) is not None)
        return next(present, names[0] if names else field)

    def peek(self, field: str) -> Json:
        """Returns a field's value; None if there is none."""
        return self.row.get(self.choose_column(field)) if self.columns[field] else None

    def take(self, field: str) -> Json:
        """Returns a field's value, and records that its column was read."""
        if self.columns[field]:
            self.used.add(self.choose_column(field))
        return self.peek(field)

    def collect_rest(self) -> dict[str, Any]:
        """Returns the columns that weren't read, except those whose names have a meaning in pool files."""
        remaining = ((k, v) for k, v in self.row.items() if k not in self.used and k not in LINE_KEYS)
        return {k: v for k, v in remaining if v is not None}


def read_question(fields: RowFields) -> str:
    """Reads the question; raises Flaw unless it is a non-empty text."""
    question, column = fields.take("question"), fields.choose_column("question")
    if question is None and column in fields.row:
        raise Flaw(f"'{column}' is empty; give a question, or leave the row out")
    if question is None:
        columns = " or ".join(map(repr, fields.columns["question"]))
        raise Flaw(
            f"{columns} is missing; give the question there, or say which column holds it "
            f"(columns: question=NAME); there is {list_names(fields.row)}"
        )
    if type(question) is not str:
        raise_flaw(column, question, "the question as a string")
    if not question.strip():
        raise Flaw(
            f"'{column}' is {format_value(question)}, which is empty; give a question, or leave the row out"
        )
    return question


def read_id(fields: RowFields) -> str | None:
    """Reads the id as text; None if there is none."""
    value, column = fields.take("id"), fields.choose_column("id")
    # pandas stores integers as floats if a column has missing values
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) in (int, float):
        return str(value)
    if value is not None and (type(value) is not str or not value):
        raise_flaw(column, value, "a string that is not empty, or a number")
    return value


def read_gold(fields: RowFields, preset: Preset | None) -> str | None:
    """Reads the gold answer, or extracts it from a solution if the preset says so."""
    value, column = fields.take("gold"), fields.choose_column("gold")
    if preset is not None and preset.gold:
        if value is None:
            how = "empty" if column in fields.row else "missing"
            raise Flaw(f"'{column}' is {how}; give {preset.gold_is}, or leave the preset {preset.name} out")
        gold = preset.read_gold(value) if type(value) is str else None
        if gold is None:
            raise_flaw(column, value, f"{preset.gold_is}, or leave the preset {preset.name} out")
        return gold
    if is_blank(value):
        _check_other_gold(fields, column)
        return None
    if type(value) not in (str, int, float):
        raise_flaw(
            column,
            value,
            "the answer as a string or a number, or name its column (columns: gold=NAME)",
        )
    return str(value)


def _check_other_gold(fields: RowFields, column: str) -> None:
    for name in fields.columns["gold"]:
        other = fields.find_column(name)
        if other not in (None, column) and not is_blank(fields.row[str(other)]):
            raise Flaw(
                f"'{column}' is empty, and '{other}' isn't; say which column holds the answer (gold={other})"
            )


def _take_plain(fields: RowFields, field: str, want: str, *, by_user: bool) -> Json:
    """Returns a field's text or number; None if there is none.

    For any other value, raises a Flaw if the user named the column (`by_user`) or it has the field's name;
    `want` describes a valid value. Otherwise, the column was only guessed, and None is returned.
    """
    value, column = fields.peek(field), fields.choose_column(field)
    if value is not None and type(value) not in (str, int, float):
        if by_user or column == field:
            raise_flaw(column, value, want)
        return None  # the column was guessed, and may contain something else
    return fields.take(field)


def read_subject(fields: RowFields, *, by_user: bool) -> str | None:
    """Reads the subject as text; `by_user` says whether the user named its column."""
    value = _take_plain(fields, "subject", "a string", by_user=by_user)
    return None if value is None or value == "" else str(value)


def read_level(fields: RowFields, *, by_user: bool, typed: bool) -> int | float | str | None:
    """Reads the level of difficulty as a number or text; "Level 3" is 3."""
    value = _take_plain(fields, "level", "a number or a string", by_user=by_user)
    if type(value) is str and (level_match := _LEVEL_TEXT.fullmatch(value.strip())):
        return int(level_match[1])
    if type(value) is str and not typed:  # CSV has no numbers: 3 is read as the text "3"
        if _WHOLE_NUMBER.fullmatch(value):
            return int(value)
        return float(value) if _DECIMAL_NUMBER.fullmatch(value) else value
    return None if value == "" else value


def is_blank(value: Json) -> bool:
    """Whether a value is null or a text without a visible character."""
    return value is None or (type(value) is str and not value.strip())


def list_names(names: Iterable[str]) -> str:
    """Lists at most twelve names for a message, quoted and sorted."""
    shown_names = sorted(map(str, names))
    more = f" and {len(shown_names) - _NAMES_SHOWN} more" if len(shown_names) > _NAMES_SHOWN else ""
    return ", ".join(map(format_value, shown_names[:_NAMES_SHOWN])) + more if shown_names else "nothing"


LETTERS = "ABCDEFGHIJ"  # the letters that the extractor "choice" recognises


def format_choices(choices: Sequence[str]) -> str:
    r"""Formats choices for a prompt, one per line, with letters.

    >>> format_choices(["red", "blue"])
    'A) red\nB) blue'
    """
    if len(choices) > len(ascii_uppercase):
        raise ProblemsInvalid(f"{len(choices)} choices are more than there are letters; give at most 10")
    return "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))


def shuffle_order(number: int, *, seed: int, key: str) -> list[int]:
    """Returns the integers below `number` in a random order that depends only on `seed` and `key`.

    >>> sorted(shuffle_order(4, seed=0, key="q1"))
    [0, 1, 2, 3]
    """
    return sorted(range(number), key=lambda i: blake2b(f"{seed}\0{key}\0{i}".encode()).digest())


_CHOICE_MARK = re.compile(r"\(?([A-J])[).:]\s+(?=\S)")  # matches "B) blue", "(B) blue", "B. blue"


class Choices(NamedTuple):
    """The choices of a multiple-choice problem, in the order of its row."""

    texts: list[str]
    # the labels that the row gives its choices, such as 1, 2 and 3; None if it gives none
    labels: list[str] | None = None


def read_choices(fields: RowFields, *, choice_format: ChoiceFormat) -> Choices:
    """Reads a row's choices from a list, from columns named A to J, or from the preset's columns."""
    choices = _read_choice_columns(fields) if choice_format == "shuffled" else _read_list_or_letters(fields)
    if not 2 <= len(choices.texts) <= len(LETTERS):
        raise Flaw(f"has {len(choices.texts)} choices; give 2 to {len(LETTERS)}")
    return choices._replace(texts=_strip_letters(choices.texts))


def _read_choice_columns(fields: RowFields) -> Choices:
    """Reads choices from separate columns, of which the first is right; raises Flaw if one is missing."""
    names = [fields.find_column(name) for name in fields.columns["choices"]]
    for name, expected in zip(names, fields.columns["choices"], strict=True):
        if name is None or is_blank(fields.row[name]):
            how = "missing" if name is None else "empty"
            hint = f"; there is {list_names(fields.row)}" if name is None else ""
            raise Flaw(f"'{expected}' is {how}; give every choice, or leave the row out{hint}")
    columns = [name for name in names if name is not None]
    fields.used.update(columns)
    return Choices([_read_choice_text(fields.row[name], name) for name in columns])


def has_choices(fields: RowFields) -> bool:
    """Whether a row has choices, in a list, in columns named A to J, or in the preset's columns."""
    columns = (*map(fields.find_column, fields.columns["choices"]), *LETTERS)
    return any(not is_blank(fields.row.get(str(column))) for column in columns)


def _read_list_or_letters(fields: RowFields) -> Choices:
    row, names = fields.row, fields.columns["choices"]
    for column in map(fields.find_column, names):
        if column is not None and not is_blank(row[column]):
            fields.used.add(column)
            return _read_choice_list(row[column], column)
    filled = [letter for letter in LETTERS if not is_blank(row.get(letter))]
    if not filled:
        raise Flaw(
            f"has no choices; give a list in {names[0]!r}, or columns A, B, C, D; if only some rows have "
            "them, --preset multiple-choice"
        )
    gap = next((letter for letter in LETTERS[: len(filled)] if letter not in filled), None)
    if gap:
        raise Flaw(f"'{gap}' is empty, and '{filled[-1]}' isn't; give the choices without a gap")
    fields.used.update(filled)
    return Choices([_read_choice_text(row[letter], letter) for letter in filled])


def _strip_letters(texts: list[str]) -> list[str]:
    """Removes letters such as "A)" from the choices if all have one, because the prompt adds its own."""
    marks = [_CHOICE_MARK.match(text) for text in texts]
    if all(mark and mark[1] == letter for mark, letter in zip(marks, LETTERS, strict=False)):
        return [text[mark.end() :] for text, mark in zip(texts, marks, strict=True) if mark]
    return texts


def read_right_choice(choices: Choices, fields: RowFields, *, choice_format: ChoiceFormat) -> str | None:
    """Returns the letter of the choice that the row marks as right; None if it marks none."""
    answer = fields.take("gold")
    if is_blank(answer):
        return None
    texts, labels = choices
    index = (
        _find_choice(texts, answer, by_name=choice_format == "named")
        if labels is None
        else _find_index(labels, str(answer).strip())
    )
    if index is None:
        remedy = f"a letter from A to {LETTERS[len(texts) - 1]} or a number from 0 to {len(texts) - 1}"
        raise_flaw(
            fields.choose_column("gold"), answer, remedy if labels is None else f"one of {', '.join(labels)}"
        )
    return LETTERS[index]


def _read_choice_list(value: Json, column: str) -> Choices:
    if isinstance(value, str):  # a cell of CSV, which has no lists
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise_flaw(column, value, 'a JSON list, e.g. ["red", "blue"], or columns A, B, C, D')
    labels = None
    # the choices have the form {"text": [...], "label": [...]}
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        labels, value = value.get("label"), value["text"]
    if not isinstance(value, list):
        raise_flaw(column, value, "a list of texts")
    texts = [_read_choice_text(choice, f"{column}[{i}]") for i, choice in enumerate(value)]
    if labels is None:
        return Choices(texts)
    if not isinstance(labels, list) or len(labels) != len(texts):
        raise_flaw(f"{column}.label", labels, "as many labels as texts")
    return Choices(texts, [_read_choice_text(label, f"{column}.label") for label in labels])


def _read_choice_text(value: Json, where: str) -> str:
    if type(value) in (int, float):
        return str(value)
    if type(value) is not str or not value.strip():
        raise_flaw(where, value, "the choice as a string")
    return str(value).strip()


def _find_choice(texts: Sequence[str], answer: Json, *, by_name: bool) -> int | None:
    """Returns the index of the choice that an answer names by letter, number or (if `by_name`) text."""
    if type(answer) is float and answer.is_integer():
        answer = int(answer)
    if type(answer) is int:
        return answer if 0 <= answer < len(texts) else None
    if type(answer) is not str:
        return None
    text = answer.strip()
    mark = _CHOICE_MARK.match(text)
    if (
        by_name
        and mark
        and text not in texts
        and _find_index(texts, text[mark.end() :]) == LETTERS.index(mark[1])
    ):
        return LETTERS.index(mark[1])  # the letter B in "B) blue"
    letter = _find_index(LETTERS[: len(texts)], text.strip("().").upper())
    if letter is not None:
        return letter
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else len(texts)
    by_text = _find_index(texts, text) if by_name else None
    indices = {at for at in (number, by_text) if at is not None and at < len(texts)}
    if len(indices) > 1:
        raise Flaw(
            f"the answer {format_value(answer)} is a choice and the number of another; give its letter"
        )
    return indices.pop() if indices else None


def _find_index(among: Sequence[str], text: str) -> int | None:
    return among.index(text) if len(text) and text in list(among) else None
