"""Which engine a command runs on. Knows nothing of what it runs."""

from enum import StrEnum
from typing import Annotated

import typer

from adacompute.cli.show import message
from adacompute.config import ray_address

__all__ = ["Engine", "EngineName", "Workers", "check_workers", "say_engine"]


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Engine = Annotated[
    EngineName,
    typer.Option("--engine", help="This process, or Ray: the cluster at RAY_ADDRESS, else one started here."),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: tasks at the same time. [default: all processors]"),
]


def check_workers(engine: EngineName, workers: int | None) -> None:
    """Refuses a number of workers where there are none."""
    if workers is not None and engine is not EngineName.ray:
        raise typer.BadParameter("only --engine ray has workers", param_hint="--workers")


def say_engine(engine: EngineName) -> None:
    """Says what will take its time."""
    if engine is EngineName.ray and ray_address() is None:
        message("RAY_ADDRESS names no cluster: Ray is started on this machine, in 10 to 30 seconds")
