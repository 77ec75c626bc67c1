"""Options that say which problems are meant, and reading them. Knows nothing of any stage's work."""

from typing import Annotated

import typer

from adacompute.problems import PRESETS, ProblemSet, read_problems, template_names

__all__ = ["Columns", "Limit", "Preset", "ProblemSeed", "Problems", "Split", "TemplateName", "read"]

Problems = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEMS",
        help="A .jsonl, .csv or .parquet file, a pool, - for stdin, hf:NAME or gym:TASK.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"How a dataset is read and asked: {', '.join(sorted(PRESETS))}."),
]
TemplateName = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="NAME|FILE",
        help=f"The prompt: {', '.join(template_names())}, or a file. [default: the preset's, else boxed]",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="What the columns are, e.g. question=prompt,gold=target."),
]
Split = Annotated[str | None, typer.Option(metavar="NAME", help="Of an hf: dataset. [default: test]")]
Limit = Annotated[int | None, typer.Option(min=1, help="The first so many problems only.")]
ProblemSeed = Annotated[int, typer.Option(min=0, help="Of generated problems and shuffled choices.")]


def read(
    source: str, *, preset: str | None, columns: str | None, split: str | None, limit: int | None, seed: int
) -> ProblemSet:
    """The problems that the options name."""
    return read_problems(source, preset=preset, columns=_pairs(columns), split=split, limit=limit, seed=seed)


def _pairs(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals and column.strip() for name, equals, column in pairs):
        why = f"{text!r} is no list of FIELD=COLUMN; give e.g. question=prompt,gold=target"
        raise typer.BadParameter(why, param_hint="--columns")
    return {name.strip(): column.strip() for name, _, column in pairs}
