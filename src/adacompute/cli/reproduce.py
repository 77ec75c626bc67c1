"""`adacompute reproduce`: the paper's experiment on the recordings at hand. Knows no mathematics."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adacompute.cli.evaluate import Workers, progress
from adacompute.cli.options import Json, settings
from adacompute.cli.show import as_json, counted, line, message, path_text
from adacompute.cli.source import ballots_from
from adacompute.config import AnswersConfig
from adacompute.errors import NotRecorded, PoolNotFound, TooFewSamples
from adacompute.evaluate.paper.case import Case, case_of
from adacompute.pool import bundled_names

if TYPE_CHECKING:
    from adacompute.evaluate.reproduction.experiment import Reproduction

__all__ = ["reproduce"]

_BESIDE = Path("..", "shared", "recordings")
_END = ".jsonl.gz"
_PICTURE = Path("figures", "reproduction.svg")  # beside the page
_WORKERS = 4  # processes, at most, where nobody says how many
_LINK = re.compile(r"\[([a-z]+\.md)\]\(\1\)")

Recordings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECORDING]...",
        help="Only these: names of bundled ones or of files in the folder, or pools. [default: all at hand]",
        show_default=False,
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--recordings",
        metavar="DIR",
        help=f"A folder of *{_END} recordings. [default: {_BESIDE}, if it is there]",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="The page to write, its picture beside it. [default: printed]"
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds, splits and grid points: rougher numbers.")]
Seed = Annotated[int, typer.Option(min=0, help="Of splits and intervals.")]


def reproduce(
    context: typer.Context,
    recordings: Recordings = None,
    folder: Folder = None,
    output: Output = None,
    quick: Quick = False,
    seed: Seed = 0,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Do the paper's experiment on each recording at hand: its tables and claims, and what holds here.

    The page is Markdown, for a reader who has the paper open. The two bundled recordings take about a minute
    on two cores.
    """
    from adacompute.evaluate.reproduction.experiment import reproduced
    from adacompute.evaluate.reproduction.plain import as_data
    from adacompute.evaluate.reproduction.words import counted as counts

    sources = _sources(recordings or [], _folder(folder))
    cases = _cases(sources, settings(context).answers, named=bool(recordings))
    with progress(f"reproducing on {counted(len(cases), 'recording')}") as told:
        found = reproduced(
            cases,
            quick=quick,
            seed=seed,
            workers=workers or min(_WORKERS, os.cpu_count() or 1),
            progress=told,
        )
    text = _page(found, output, command=" ".join(["adacompute", "reproduce", *_given(context)]))
    if output is not None:
        _write(output, text)
    if json:
        as_json(as_data(found))
    elif output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        line(f"{counts(found)}.")
        line(f"written to {path_text(output)}")


def _page(found: "Reproduction", output: Path | None, *, command: str) -> str:
    """The page's text; its picture is drawn beside it, where it goes to a file."""
    from adacompute.evaluate.reproduction.page import page

    picture = ""
    if output is not None:
        from adacompute.evaluate.figures.canvas import standalone
        from adacompute.evaluate.figures.glance import draw_glance
        from adacompute.evaluate.reproduction.glance import glance

        drawn = draw_glance(glance(found))
        (output.parent / _PICTURE).parent.mkdir(exist_ok=True)
        _write(output.parent / _PICTURE, standalone(drawn.svg))
        picture = f"![{drawn.title}: {drawn.alt}]({_PICTURE.as_posix()})"
    text = page(found, command=command, picture=picture)
    if output is None or not (output.parent / "theory.md").is_file():
        text = _LINK.sub(r"docs/\1", text)  # links lead somewhere beside our other pages only
    return text


def _folder(given: Path | None) -> Path | None:
    if given is None:
        return _BESIDE if _BESIDE.is_dir() else None
    if not given.is_dir():
        raise PoolNotFound(f"{path_text(given)}: there is no such folder; give one with *{_END} files")
    return given


def _sources(names: list[str], folder: Path | None) -> dict[str, Path]:
    """Where each recording is, by its name: those named, or all at hand; bundled ones never twice."""
    files = sorted(folder.glob(f"*{_END}")) if folder is not None else []
    if names:
        return dict(_named(name, files) for name in names)
    found = {name: Path(name) for name in bundled_names()}
    for file in files:
        stem = file.name.removesuffix(_END)
        if not any(_is(name, stem) for name in found):
            found[stem] = file
    return found


def _named(name: str, files: list[Path]) -> tuple[str, Path]:
    if name in bundled_names():
        return name, Path(name)
    for file in files:
        if _is(name, file.name.removesuffix(_END)):
            return name, file
    path = Path(name)
    return path.name.removesuffix(_END), path


def _is(name: str, stem: str) -> bool:
    """Whether a file is the recording of that name: what follows is its model."""
    return stem == name or stem.startswith(f"{name}-")


def _cases(sources: dict[str, Path], answers: AnswersConfig, *, named: bool) -> list[Case]:
    found = []
    for name, path in sources.items():
        ballots = ballots_from(path, answers=answers, model=None, parameters=None)
        try:
            found.append(case_of(ballots, _short(name, str(ballots.model))))
        except (NotRecorded, TooFewSamples) as exc:
            if named:
                raise
            message(f"left out: {exc}")
    if not found:
        raise NotRecorded("no recording at hand has grades; name one that has")
    return found


def _short(name: str, model: str) -> str:
    """A recording's name without its model's: `math` of `math-qwen2.5-coder-1.5b`."""
    parts = name.split("-")
    for at in range(1, len(parts)):
        if "-".join(parts[at:]).lower() in model.lower():
            return "-".join(parts[:at])
    return name


def _given(context: typer.Context) -> list[str]:
    """The arguments as they were given."""
    words = sys.argv[1:]
    return words[words.index(context.info_name) + 1 :] if context.info_name in words else []


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, "utf-8")
    beside.replace(path)
