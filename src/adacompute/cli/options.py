"""Options that several commands share, with the settings behind them. Knows nothing of any stage's work."""

import difflib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adacompute.answers import Task
from adacompute.cli.show import path_text
from adacompute.config import AnswersConfig, Config, ScoreConfig, load_config
from adacompute.errors import ConfigError, PoolNotFound, TaskError
from adacompute.pool import Pool, bundled, bundled_names, open_pool

__all__ = [
    "NO_ANSWER",
    "Budgets",
    "Extract",
    "Json",
    "Percent",
    "PercentWay",
    "PoolPath",
    "opened",
    "settings",
    "tasks_of",
    "wanted_budgets",
]

NO_ANSWER = (
    "answers are read from the key `text`, where --extract says; or give `answer`"  # where none is found
)


class PercentWay(StrEnum):
    unit = "unit"
    fraction = "fraction"


PoolPath = Annotated[
    Path,
    typer.Argument(
        metavar="POOL",
        help="A pool, or a .jsonl, .jsonl.gz or .parquet file or folder; facts and words are bundled.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of text.")]
Extract = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Where answers stand in responses: auto, boxed, phrase, line, hash, number, choice, "
        "json:FIELD or regex:PATTERN.",
    ),
]
Percent = Annotated[
    PercentWay | None, typer.Option(help="Whether 50% is the same answer as 50 (unit) or as 0.5 (fraction).")
]
Budgets = Annotated[
    str | None, typer.Option(metavar="LIST", help="Samples a vote, ascending, e.g. 1,2,4,8,16.")
]


def settings(context: typer.Context) -> Config:
    """The settings: of the file that the root command was given, and of the environment."""
    return load_config(context.obj)


def opened(source: Path, *, task: Task | None = None, default_task: Task | None = None) -> Pool:
    """The pool or file of that name; where there is none, the recording of that name in the package."""
    name = path_text(source)
    if name not in bundled_names() or source.exists():
        close = difflib.get_close_matches(name, bundled_names(), n=1)
        if close and not source.exists():
            raise PoolNotFound(f"{name}: there is no such pool; did you mean the recording {close[0]!r}?")
        return open_pool(source, task=task, default_task=default_task)
    pool = bundled(name)
    if task is not None and task != pool.task:
        pool.close()
        raise TaskError(
            f"the recording {name!r} in the package keeps its answers as they are; "
            "leave --extract and --percent out"
        )
    return pool


def tasks_of(
    answers: AnswersConfig, extract: str | None, percent: PercentWay | None
) -> tuple[Task | None, Task]:
    """The task that options ask for, if any, and the one for what has none of its own: a new pool, a file.

    A pool keeps its way of reading answers, so settings don't contradict it; options do, and are refused.
    """
    way = answers.percent if percent is None else percent.value
    task = Task(extract=extract or answers.extract, percent=way)
    return (task if extract or percent else None), task


def wanted_budgets(score: ScoreConfig, budgets: str | None) -> tuple[int, ...]:
    """The budgets that the option names, else the settings."""
    if budgets is None:
        return score.budgets
    try:
        return ScoreConfig(budgets=tuple(int(part) for part in budgets.split(","))).budgets
    except ValueError as exc:
        why = f"{budgets!r} is no list of whole numbers; give e.g. 1,2,4,8,16"
        raise typer.BadParameter(why, param_hint="--budgets") from exc
    except ConfigError as exc:
        raise typer.BadParameter(str(exc), param_hint="--budgets") from exc
