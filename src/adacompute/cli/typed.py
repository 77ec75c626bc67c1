"""What was typed: options of the long jobs, checked at the door, and the command as one would type it again.

Knows no stage's work.
"""

import math
import os
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.cli.show import path_text

__all__ = ["Seed", "Workers", "clean", "default_workers", "finite", "typed"]

_MOST = 2  # processes, where nobody says how many: each holds the pool, and a report is to fit in 1 GB
_LARGEST_SEED = 2**32 - 1  # that every learner takes
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # no part of an XML or a JSON text

Seed = Annotated[int, typer.Option(min=0, max=_LARGEST_SEED, help="Of folds, orders, splits and intervals.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help=f"Processes; the result is the same. [default: the cores, at most {_MOST}]"),
]


def default_workers() -> int:
    """Processes, where nobody says how many."""
    return min(_MOST, os.cpu_count() or 1)


def finite(value: float | None) -> float | None:
    """The number, where it is one that can be reckoned with."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no amount; give a number from 0 up")
    return value


def clean(text: str | None) -> str | None:
    """A text that every page can carry, whatever bytes were typed."""
    return None if text is None else _ODD.sub("\N{REPLACEMENT CHARACTER}", text)


def typed(context: typer.Context) -> str:
    """The command with all that was given to it; of paths the last part: the rest is nobody's business."""
    words = ["adacompute"]
    for each in (context.parent, context):
        if each is None:
            continue
        words += [str(each.info_name)] if each is context else []
        for parameter in each.command.params:
            source = each.get_parameter_source(str(parameter.name))
            if source is not None and source.name == "COMMANDLINE":
                words += _words(parameter, each.params.get(str(parameter.name)))
    return shlex.join(words)


def _words(parameter: Any, value: Any) -> list[str]:  # noqa: ANN401 - click's, of any type
    is_argument = parameter.param_type_name == "argument"
    values = [
        _word(Path(one) if is_argument else one)
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    if is_argument:
        return values
    if isinstance(value, bool):
        return [parameter.opts[0]] if value else []
    return [word for one in values for word in (parameter.opts[0], one)]


def _word(value: object) -> str:
    if isinstance(value, Path):
        return path_text(Path(value.name or value))
    return clean(str(value.value if isinstance(value, StrEnum) else value)) or ""
