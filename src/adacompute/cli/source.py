"""Which samples of a pool a command works on: a model's, of some parameters. Knows no stage's work."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from adacompute.cli.options import NO_ANSWER, PercentWay, opened, tasks_of
from adacompute.cli.show import counted, message, path_text
from adacompute.config import AnswersConfig
from adacompute.errors import TooFewSamples
from adacompute.pool import Ballots

__all__ = ["Model", "Parameters", "ballots_from", "parameters_of"]

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Which model, where a pool holds several.")]
Parameters = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Which of its sampling parameters, where there are several."),
]


def ballots_from(
    source: Path,
    *,
    answers: AnswersConfig,
    model: str | None,
    parameters: str | None,
    extract: str | None = None,
    percent: PercentWay | None = None,
) -> Ballots:
    """The votes of one source of a pool, file or bundled recording; says where no answer was found."""
    name, wanted = path_text(source), parameters_of(parameters)
    asked, default = tasks_of(answers, extract, percent)
    with opened(source, task=asked, default_task=default) as pool:
        found = pool.ballots(model, parameters=wanted)
    if not len(found):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    if not (found.classes >= 0).any() and not (found.correct > 0).any():
        samples = counted(int(found.drawn.sum()), "sample")
        message(f"{name}: no answer was found in any of {samples}; {NO_ANSWER}")
    return found


def parameters_of(text: str | None) -> dict[str, Any] | None:
    """The sampling parameters that an option gives."""
    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise typer.BadParameter(f"{text!r} is no JSON ({exc})", param_hint="--parameters") from exc
    if not isinstance(found, dict):
        raise typer.BadParameter(
            f'{text!r} is no object, e.g. {{"temperature": 0.7}}', param_hint="--parameters"
        )
    return found
