"""`adacompute reproduce`: the paper's experiment on the recordings at hand. Knows no mathematics."""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adacompute.cli.evaluate import progress
from adacompute.cli.options import Json, settings
from adacompute.cli.show import as_json, counted, line, message, path_text
from adacompute.cli.source import ballots_from
from adacompute.cli.typed import Seed, Workers, default_workers, typed
from adacompute.config import AnswersConfig
from adacompute.errors import NotRecorded, PoolNotFound, ReportError, SourceAmbiguous, TooFewSamples
from adacompute.evaluate.paper.case import Case, case_of
from adacompute.evaluate.report.places import alone, may_hold, put
from adacompute.pool import bundled_names

if TYPE_CHECKING:
    from adacompute.evaluate.reproduction.experiment import Reproduction

__all__ = ["reproduce"]

_BESIDE = Path("..", "shared", "recordings")
_END = ".jsonl.gz"
_PICTURE = Path("figures", "reproduction.svg")  # beside the page
_SAME = ("facts-smollm2-135m", "words-qwen2.5-coder-1.5b")  # files that the bundled recordings were made of
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

    if output is not None:
        _may_write(output)  # before minutes of work
    sources = _sources(recordings or [], _folder(folder))
    cases = _cases(sources, settings(context).answers, named=bool(recordings))
    with progress(f"reproducing on {counted(len(cases), 'recording')}") as told:
        found = reproduced(
            cases,
            quick=quick,
            seed=seed,
            workers=workers or default_workers(),
            progress=told,
        )
    text = _page(found, output, command=typed(context))
    if json:
        as_json(as_data(found))
    elif output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        line(f"{counts(found)}.")
        line(f"written to {path_text(output)}")


def _page(found: "Reproduction", output: Path | None, *, command: str) -> str:
    """The page's text; where it goes to a file, it is written, with its picture beside it."""
    from adacompute.evaluate.reproduction.page import page

    if output is None:
        return _LINK.sub(r"docs/\1", page(found, command=command))
    from adacompute.evaluate.figures.canvas import standalone
    from adacompute.evaluate.figures.glance import draw_glance
    from adacompute.evaluate.reproduction.glance import glance

    drawn = draw_glance(glance(found))
    text = page(found, command=command, picture=f"![{drawn.title}: {drawn.alt}]({_PICTURE.as_posix()})")
    if not (output.parent / "theory.md").is_file():
        text = _LINK.sub(r"docs/\1", text)  # links lead somewhere beside our other pages only
    with alone(output.parent):
        put({output.parent / _PICTURE: standalone(drawn.svg).encode(), output: text.encode()})
    return text


def _may_write(output: Path) -> None:
    for path in (output, output.parent / _PICTURE):
        may_hold(path.parent)
        if path.is_dir():
            raise ReportError(
                f"{path_text(path)}: that is a folder, and the page is a file; name another one"
            )


def _folder(given: Path | None) -> Path | None:
    if given is None:
        return _BESIDE if _BESIDE.is_dir() else None
    if not given.is_dir():
        raise PoolNotFound(f"{path_text(given)}: there is no such folder; give one with *{_END} files")
    return given


@dataclass(frozen=True, slots=True)
class _Source:
    """A recording: what it was asked for by, and where it is."""

    name: str
    path: Path

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(_END)


def _sources(names: Sequence[str], folder: Path | None) -> list[_Source]:
    """Those named, or all at hand; none twice, and no file that a bundled one was made of."""
    files = sorted(folder.glob(f"*{_END}")) if folder is not None else []
    if names:
        found = [_named(name, files) for name in names]
    else:
        found = [_Source(name, Path(name)) for name in bundled_names()]
        own = [_Source(file.name.removesuffix(_END), file) for file in files]
        found += [one for one in own if one.name not in _SAME]
    return list({one.path.absolute(): one for one in reversed(found)}.values())[::-1]


def _named(name: str, files: Sequence[Path]) -> _Source:
    """The bundled one of that name, else the file that is called so, else the one that begins so."""
    if name in bundled_names():
        return _Source(name, Path(name))
    begins = [file for file in files if file.name.startswith(f"{name}-")]
    found = [file for file in files if file.name == name + _END] or begins
    if len(found) > 1:
        listed = ", ".join(path_text(Path(file.name.removesuffix(_END))) for file in found)
        raise SourceAmbiguous(f"{name}: several recordings begin so; name one of {listed}")
    if found:
        return _Source(name, found[0])
    return _Source(Path(name).name.removesuffix(_END), Path(name))


def _cases(sources: Sequence[_Source], answers: AnswersConfig, *, named: bool) -> list[Case]:
    ballots = [ballots_from(one.path, answers=answers, model=None, parameters=None) for one in sources]
    names = _names(sources, [str(one.model) for one in ballots])
    found = []
    for name, own in zip(names, ballots, strict=True):
        try:
            found.append(case_of(own, name))
        except (NotRecorded, TooFewSamples) as exc:
            if named:
                raise
            message(f"left out: {exc}")
    if not found:
        raise NotRecorded("no recording at hand has grades; name one that has")
    return found


def _names(sources: Sequence[_Source], models: Sequence[str]) -> list[str]:
    """What each is called: without its model where that is enough to tell them apart, else as its file."""
    short = [_short(one.name, model) for one, model in zip(sources, models, strict=True)]
    times = Counter(short)
    found = [name if times[name] == 1 else one.stem for name, one in zip(short, sources, strict=True)]
    for name, many in Counter(found).items():
        if many > 1:
            paths = [path_text(one.path) for one, own in zip(sources, found, strict=True) if own == name]
            raise SourceAmbiguous(
                f"{' and '.join(paths)}: two recordings of one name, {name}; rename a file, or name only one"
            )
    return [path_text(Path(name)) for name in found]


def _short(name: str, model: str) -> str:
    """A recording's name without its model's: `math` of `math-qwen2.5-coder-1.5b`."""
    parts = name.split("-")
    for at in range(1, len(parts)):
        if "-".join(parts[at:]).lower() in model.lower():
            return "-".join(parts[:at])
    return name
