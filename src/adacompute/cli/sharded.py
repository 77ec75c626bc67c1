"""A folder of Parquet shards on Ray, as a command opens it. Knows no stage's work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adacompute.cli.options import NO_ANSWER, PercentWay, tasks_of
from adacompute.cli.show import counted, message, path_text
from adacompute.cli.source import parameters_of
from adacompute.config import AnswersConfig
from adacompute.errors import ScaleError
from adacompute.pool import bundled_names
from adacompute.scale.stages import Opened, opened

__all__ = ["shards_from"]


@contextmanager
def shards_from(
    source: Path,
    *,
    answers: AnswersConfig,
    model: str | None,
    parameters: str | None,
    extract: str | None = None,
    percent: PercentWay | None = None,
    workers: int | None = None,
) -> Iterator[Opened]:
    """The votes of one source of a folder of shards; says where no answer was found."""
    name, wanted = path_text(source), parameters_of(parameters)
    if name in bundled_names() and not source.exists():
        raise ScaleError(
            f"{name}: is a recording in the package, and engine ray works on a folder of Parquet; write one "
            f"with adacompute export {name} FOLDER --shards 8, or use --engine local"
        )
    _, task = tasks_of(answers, extract, percent)
    with opened(source, task=task, model=model, parameters=wanted, workers=workers) as shards:
        heads = shards.heads
        if not heads.answered.any() and not heads.right.any():
            samples = counted(int(heads.drawn.sum()), "sample")
            message(f"{name}: no answer was found in any of {samples}; {NO_ANSWER}")
        yield shards
