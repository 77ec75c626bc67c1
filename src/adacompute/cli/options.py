"""Options that several commands share, with the settings behind them. Knows nothing of any stage's work."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adacompute.answers import Task
from adacompute.config import AnswersConfig, Config, SummaryConfig, load_config
from adacompute.errors import ConfigError

__all__ = ["Budgets", "Extract", "Json", "Percent", "PoolPath", "settings", "summary_budgets", "tasks_of"]


class PercentWay(StrEnum):
    unit = "unit"
    fraction = "fraction"


PoolPath = Annotated[
    Path, typer.Argument(metavar="POOL", help="A pool, or a .jsonl, .jsonl.gz or .parquet file or folder.")
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


def tasks_of(
    answers: AnswersConfig, extract: str | None, percent: PercentWay | None
) -> tuple[Task | None, Task]:
    """The task that options ask for, if any, and the one for what has none of its own: a new pool, a file.

    A pool keeps its way of reading answers, so settings don't contradict it; options do, and are refused.
    """
    way = answers.percent if percent is None else percent.value
    task = Task(extract=extract or answers.extract, percent=way)
    return (task if extract or percent else None), task


def summary_budgets(summary: SummaryConfig, budgets: str | None) -> tuple[int, ...]:
    """The budgets that the option names, else the settings."""
    if budgets is None:
        return summary.budgets
    try:
        return SummaryConfig(budgets=tuple(int(part) for part in budgets.split(","))).budgets
    except ValueError as exc:
        raise ConfigError(f"--budgets {budgets!r} is no list of whole numbers; give e.g. 1,2,4,8,16") from exc
    except ConfigError as exc:
        raise ConfigError(f"--budgets: {exc}") from exc
