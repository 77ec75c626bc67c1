"""Rows of known datasets that would be misread as they are. Knows nothing of files."""

import re
from collections.abc import Container
from typing import NoReturn

from adacompute.pool.content import Json
from adacompute.pool.flaw import Flaw, shown
from adacompute.problems.choices import LETTERS
from adacompute.problems.fields import Fields, is_blank
from adacompute.problems.presets import PRESETS, Preset

__all__ = ["refuse_known"]

_HASHED = re.compile(r"\n####[ \t]*\S[^\n]*\s*\Z")  # how GSM8K ends a solution
_LISTS = PRESETS["mmlu"].columns["choices"]
_RIGHT, _WRONG, *_ = PRESETS["gpqa"].columns["choices"]


def refuse_known(fields: Fields, *, preset: Preset | None, named: Container[str]) -> None:
    """A Flaw where a row has a known dataset's shape, which the preset that is given, or none, would misread.

    A field whose column the user `named` is taken as it is.
    """
    if preset is None and "gold" not in named:
        _solution_as_gold(fields)
    if "question" in named or "gold" in named:
        return
    if preset is None:
        _choices_unread(fields)
    if preset is None or (preset.gold is None and preset.choices is None):
        _solution_unread(fields)


def _solution_as_gold(fields: Fields) -> None:
    gold, column = fields.peek("gold"), fields.column("gold")
    if type(gold) is str and _HASHED.search(gold):
        raise Flaw(
            f"'{column}' ends with {shown(gold.rstrip().rpartition(chr(10))[2])} as in GSM8K; read it with "
            f"--preset gsm8k, or with --columns gold={column} to take it as it is"
        )


def _choices_unread(fields: Fields) -> None:
    if fields.named(_RIGHT) is not None and fields.named(_WRONG) is not None:
        _has_choices(fields, f"'{_RIGHT}'", "gpqa")
    for column in map(fields.named, _LISTS):
        if column is not None and _is_list(fields.row[column]):
            _has_choices(fields, f"'{column}'", "mmlu or multiple-choice")
    letters = [letter for letter in LETTERS if not is_blank(fields.row.get(letter))]
    gold = str(fields.peek("gold")).strip("(). ").upper()
    numbers = map(str, range(len(letters) if len(letters) > 3 else 0))  # A and B alone may be anything
    if letters[:2] == ["A", "B"] and (gold in letters or gold in numbers):
        _has_choices(fields, f"A to {letters[-1]}", "mmlu")


def _has_choices(fields: Fields, where: str, presets: str) -> NoReturn:
    raise Flaw(
        f"has choices in {where}, which would not be asked; read it with --preset {presets}, "
        f"or with --columns question={fields.column('question')} to take it as it is"
    )


def _is_list(value: Json) -> bool:
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, str):  # of CSV
        return value.strip()[:1] == "[" and value.strip()[-1:] == "]"
    return isinstance(value, list) and len(value) > 1


def _solution_unread(fields: Fields) -> None:
    column = fields.named("solution")
    solution = fields.row[column] if column else None
    if type(solution) is str and "\\boxed" in solution and is_blank(fields.peek("gold")):
        raise Flaw(
            f"has no answer but in '{column}', as in MATH; read it with --preset math, "
            f"or with --columns question={fields.column('question')} to take it as it is"
        )
