"""What is wrong with a value, in words. Knows nothing of records, files or SQLite."""

import reprlib
from typing import NoReturn, TypeVar

from adacompute.errors import AdacomputeError
from adacompute.pool.content import DEPTH_LIMIT, Json, canonical, has_inexact_number

__all__ = ["Flaw", "Inexact", "expected", "kind_of", "shown", "unkept", "wrong"]

T = TypeVar("T")

_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
_LONGEST = 60  # characters of a value that a message shows
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _LONGEST


class Flaw(AdacomputeError):
    """What is wrong with a record; whoever knows the file and line turns it into a RecordInvalid."""


class Inexact(AdacomputeError):
    """A number may have been rounded by a fast parser: parse again, exactly."""


def kind_of(value: Json) -> str:
    """A JSON value's type in words."""
    return _WORDS.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def shown(value: Json) -> str:
    """A value as a message shows it, however large or deep it is."""
    try:
        text = _REPR.repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return kind_of(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def wrong(where: str, value: Json, want: str) -> NoReturn:
    """Raises the Flaw of a value that is not what it should be."""
    raise Flaw(f"'{where}' is {shown(value)}; give {want}")


def expected(kind: type[T], value: Json, where: str) -> T | None:
    """The value, where it is of this kind or null; the Flaw of any other."""
    if value is not None and type(value) is not kind:
        wrong(where, value, f"{_WORDS[kind]}, or null")
    return value


def unkept(value: Json, where: str, exc: Exception) -> Flaw:
    """The Flaw of data that JSON can't hold, naming the key at fault."""
    place = shown(_culprit(value, where))
    return Flaw(f"{place} can't be kept as JSON ({exc}); give plain data with finite numbers")


def _culprit(value: Json, where: str, depth: int = 0) -> str:
    """The place of the innermost part that can't be written; of one too deep, where that part begins."""
    if depth < DEPTH_LIMIT and isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            inner = f"{where}[{key}]" if isinstance(value, list) else f"{where}.{key}".removeprefix(".")
            try:
                has_inexact_number(part, depth + 1)
            except ValueError:
                return inner
            try:
                canonical(part)
            except (TypeError, ValueError):
                return _culprit(part, inner, depth + 1)
    return where
