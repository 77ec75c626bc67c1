"""Options that say how problems are put to a model, which several commands share. Knows no endpoint."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from adacompute.answers import Task
from adacompute.cli.options import PercentWay, tasks_of
from adacompute.config import AnswersConfig, CollectConfig
from adacompute.problems import ProblemSet, Template

__all__ = [
    "SIGNALS",
    "Another",
    "DryRun",
    "Logprobs",
    "MaxCost",
    "MaxTokens",
    "More",
    "Regrade",
    "Seed",
    "Temperature",
    "TopLogprobs",
    "TopP",
    "named_values",
    "reading_of",
    "sampling_of",
    "template_of",
]

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the first ends a run in good order, the second at once

Temperature = Annotated[float | None, typer.Option(min=0, help="[default: 0.7]")]
TopP = Annotated[float | None, typer.Option(min=0, max=1, help="[default: the endpoint's]")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Of one response. [default: 1024]")]
Seed = Annotated[
    int | None, typer.Option(help="Sent with the first sample of a problem; then one more each.")
]
More = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME=JSON", help="Any other, sent as it is; may be repeated."),
]
TopLogprobs = Annotated[
    int,
    typer.Option(
        min=0, max=20, help="Alternatives a token: from 2 up they tell the entropy, and cost bytes."
    ),
]
Logprobs = Annotated[bool, typer.Option(help="Ask for log-probabilities: votes are weighed by them.")]
MaxCost = Annotated[
    float | None,
    typer.Option(metavar="MONEY", help="Stop before all calls into this pool could cost more."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would take; send nothing.")]
Another = Annotated[
    bool, typer.Option("--another", help="Add this model or these parameters to a pool that has others.")
]

Regrade = Annotated[
    bool,
    typer.Option("--regrade", help="Take gold answers other than the pool's, and grade its samples anew."),
]


def sampling_of(
    settings: CollectConfig,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    seed: int | None,
    more: list[str] | None,
) -> dict[str, Any]:
    """The parameters that are sent: of the options, else of the settings."""
    found: dict[str, Any] = {
        "temperature": settings.temperature if temperature is None else temperature,
        "max_tokens": settings.max_tokens if max_tokens is None else max_tokens,
    }
    for name, value in (("top_p", top_p), ("seed", seed)):
        if value is not None:
            found[name] = value
    found |= named_values(more, "--parameter", example="min_p=0.05, or stop='[\"END\"]'")
    return {name: value for name, value in found.items() if value is not None}


def named_values(given: list[str] | None, option: str, *, example: str) -> dict[str, Any]:
    """The values that an option gives as NAME=JSON, each time that it is given."""
    found: dict[str, Any] = {}
    for each in given or ():
        name, equals, text = each.partition("=")
        try:
            if not equals or not name:
                raise ValueError("no '='")
            found[name] = orjson.loads(text)
        except ValueError as exc:
            why = f"{each!r} is no NAME=JSON ({exc}); e.g. {example}"
            raise typer.BadParameter(why, param_hint=option) from exc
    return found


def template_of(name: str | None, found: ProblemSet) -> Template:
    """The template that is named, else the problems' own; one that shows what they need."""
    if name is None:
        # nobody chose it: so answers are read wherever they stand, not in a box alone
        chosen = found.template or replace(Template.named("boxed"), extract=None)
    else:
        own = Path(name).suffix or Path(name).exists()
        chosen = Template.read(Path(name)) if own else Template.named(name)
    found.check(chosen)
    return chosen


def reading_of(
    answers: AnswersConfig,
    extract: str | None,
    percent: PercentWay | None,
    *,
    template: Template,
    found: ProblemSet,
) -> tuple[Task | None, Task]:
    """As `tasks_of`; where neither options nor settings say how answers are read, the template does."""
    asked, default = tasks_of(answers, extract, percent)
    how = template.extract or found.extract
    if asked is None and how is not None and answers.extract == "auto":
        _, default = tasks_of(answers, how, percent)
    return asked, default
