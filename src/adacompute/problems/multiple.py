"""Multiple choice as rows write it: lists, columns A to J, a right answer among wrong ones.

Knows nothing of prompts.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from adacompute.pool.content import Json
from adacompute.pool.flaw import Flaw, shown, wrong
from adacompute.problems.choices import LETTERS
from adacompute.problems.fields import Fields, is_blank, listed
from adacompute.problems.presets import Way

__all__ = ["Choices", "chosen", "read_choices"]

_MARK = re.compile(r"\(?([A-J])[).:]\s+(?=\S)")  # "B) blue", "(B) blue", "B. blue"


class Choices(NamedTuple):
    """What may be answered, in the row's own order."""

    texts: list[str]
    labels: list[str] | None = None  # the row's own names for them, where it has some


def read_choices(fields: Fields, *, way: Way) -> Choices:
    """A row's choices: a list, columns named A, B, C, D, or where they are to be shuffled a column each."""
    found = _one_each(fields) if way == "shuffled" else _list_or_letters(fields)
    if not 2 <= len(found.texts) <= len(LETTERS):
        raise Flaw(f"has {len(found.texts)} choices; give 2 to {len(LETTERS)}")
    return found._replace(texts=_unlettered(found.texts))


def _one_each(fields: Fields) -> Choices:
    """Every named column, since the first one is right: without it a wrong one would count as right."""
    names = [fields.named(name) for name in fields.where["choices"]]
    for name, wanted in zip(names, fields.where["choices"], strict=True):
        if name is None or is_blank(fields.row[name]):
            how = "missing" if name is None else "empty"
            rest = f"; there is {listed(fields.row)}" if name is None else ""
            raise Flaw(f"'{wanted}' is {how}; give every choice, or leave the row out{rest}")
    there = [name for name in names if name is not None]
    fields.taken.update(there)
    return Choices([_text(fields.row[name], name) for name in there])


def _list_or_letters(fields: Fields) -> Choices:
    row, names = fields.row, fields.where["choices"]
    for column in map(fields.named, names):
        if column is not None and not is_blank(row[column]):
            fields.taken.add(column)
            return _listed(row[column], column)
    filled = [letter for letter in LETTERS if not is_blank(row.get(letter))]
    if not filled:
        raise Flaw(f"has no choices; give a list in {names[0]!r}, or columns A, B, C, D")
    gap = next((letter for letter in LETTERS[: len(filled)] if letter not in filled), None)
    if gap:
        raise Flaw(f"'{gap}' is empty, and '{filled[-1]}' isn't; give the choices without a gap")
    fields.taken.update(filled)
    return Choices([_text(row[letter], letter) for letter in filled])


def _unlettered(texts: list[str]) -> list[str]:
    """Without letters of their own, as in "A) red", where all have theirs: a prompt puts them there."""
    marks = [_MARK.match(text) for text in texts]
    if all(mark and mark[1] == letter for mark, letter in zip(marks, LETTERS, strict=False)):
        return [text[mark.end() :] for text, mark in zip(texts, marks, strict=True) if mark]
    return texts


def chosen(choices: Choices, fields: Fields, *, way: Way) -> str | None:
    """The letter of the right choice, as the row says it."""
    answer = fields.take("gold")
    if is_blank(answer):
        return None
    texts, labels = choices
    at = _place(texts, answer, named=way == "named") if labels is None else _find(labels, str(answer).strip())
    if at is None:
        one_of = f"a letter from A to {LETTERS[len(texts) - 1]} or a number from 0 to {len(texts) - 1}"
        wrong(fields.column("gold"), answer, one_of if labels is None else f"one of {', '.join(labels)}")
    return LETTERS[at]


def _listed(value: Json, column: str) -> Choices:
    if isinstance(value, str):  # CSV has no lists
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            wrong(column, value, 'a JSON list, e.g. ["red", "blue"], or columns A, B, C, D')
    labels = None
    if isinstance(value, dict) and isinstance(value.get("text"), list):  # {"text": [...], "label": [...]}
        labels, value = value.get("label"), value["text"]
    if not isinstance(value, list):
        wrong(column, value, "a list of texts")
    texts = [_text(choice, f"{column}[{i}]") for i, choice in enumerate(value)]
    if labels is None:
        return Choices(texts)
    if not isinstance(labels, list) or len(labels) != len(texts):
        wrong(f"{column}.label", labels, "as many labels as texts")
    return Choices(texts, [_text(label, f"{column}.label") for label in labels])


def _text(value: Json, where: str) -> str:
    if type(value) in (int, float):
        return str(value)
    if type(value) is not str or not value.strip():
        wrong(where, value, "the choice as a string")
    return str(value).strip()


def _place(texts: Sequence[str], answer: Json, *, named: bool) -> int | None:
    """Which one is meant: a letter counts first, then a number and, where choices are `named`, a text."""
    if type(answer) is float and answer.is_integer():
        answer = int(answer)
    if type(answer) is int:
        return answer if 0 <= answer < len(texts) else None
    if type(answer) is not str:
        return None
    text = answer.strip()
    mark = _MARK.match(text)
    if named and mark and text not in texts and _find(texts, text[mark.end() :]) == LETTERS.index(mark[1]):
        return LETTERS.index(mark[1])  # "B) blue"
    letter = _find(LETTERS[: len(texts)], text.strip("().").upper())
    if letter is not None:
        return letter
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else len(texts)
    same = _find(texts, text) if named else None
    found = {at for at in (number, same) if at is not None and at < len(texts)}
    if len(found) > 1:
        raise Flaw(f"the answer {shown(answer)} is a choice and the number of another; give its letter")
    return found.pop() if found else None


def _find(among: Sequence[str], text: str) -> int | None:
    return among.index(text) if len(text) and text in list(among) else None
