"""How the answers of one task are read and compared."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from adacompute.errors import TaskError

Extractor = str | Callable[[str], str | None]
Percent = Literal["unit", "fraction"]

EXTRACTORS = ("auto", "boxed", "phrase", "line", "hash", "number", "choice")
_EXTRACTOR_CHOICES = ", ".join(EXTRACTORS) + ", json:FIELD, regex:PATTERN or a function of the text"


@dataclass(frozen=True, slots=True)
class Task:
    """How answers are read (`extract`), and whether a percent is a unit or a hundredth (`percent`).

    `percent="unit"`: 50% is 50, as graders of "what percent" expect; `"fraction"`: 50% is 1/2.

    >>> Task(extract="boxed").percent
    'unit'
    """

    extract: Extractor = "auto"
    percent: Percent = field(default="unit", kw_only=True)

    def __post_init__(self) -> None:
        _check_extractor(self.extract)
        if self.percent not in get_args(Percent):
            raise TaskError(
                f"percent {self.percent!r} is not known; give 'unit' (50% is 50) or 'fraction' (1/2)"
            )

    def to_dict(self) -> dict[str, str]:
        """The task as plain JSON data; a function can't be stored."""
        if not isinstance(self.extract, str):
            raise TaskError(
                f"the extractor {_name_extractor(self.extract)} is a function and can't be stored; "
                f"store one of {', '.join(EXTRACTORS)}, json:FIELD or regex:PATTERN"
            )
        return {"extract": self.extract, "percent": self.percent}

    @classmethod
    def from_dict(cls, stored: object) -> "Task":
        """The task that `to_dict` wrote; missing keys take their defaults."""
        if not isinstance(stored, Mapping) or not set(stored) <= {"extract", "percent"}:
            raise TaskError(f"a stored task is an object with 'extract' and 'percent', not {stored!r}")
        return cls(**stored)


def _check_extractor(extract: object) -> None:
    kind, _, argument = extract.partition(":") if isinstance(extract, str) else ("", "", "")
    if callable(extract) or extract in EXTRACTORS or (kind == "json" and argument):
        return
    if kind != "regex" or not argument:
        raise TaskError(f"extractor {extract!r} is not known; give {_EXTRACTOR_CHOICES}")
    try:
        re.compile(argument)
    except (re.error, RecursionError, OverflowError) as exc:
        raise TaskError(
            f"extractor {extract!r} is not a regular expression ({exc}); give {_EXTRACTOR_CHOICES}"
        ) from exc


def _name_extractor(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


DEFAULT_TASK = Task()  # the task of every function that is given none
