"""The `reproduce` command: the paper's experiment on the recordings at hand, written as a page."""

import posixpath
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adacompute.cli.options import (
    JsonFlag,
    ProcessesOption,
    SeedOption,
    choose_process_count,
    format_command,
    load_settings,
)
from adacompute.cli.pool_options import read_ballots
from adacompute.cli.terminal import (
    format_count,
    format_path,
    print_json,
    print_line,
    print_message,
    show_progress,
)
from adacompute.config import AnswersConfig
from adacompute.errors import NotRecorded, PoolNotFound, ReportError, SourceAmbiguous, TooFewSamples
from adacompute.pool import bundled_names
from adacompute.report.folder import check_writable, lock_report_folder, publish_files
from studies.paper import PROGRAM
from studies.paper.paper_pool import PaperPool, score_paper_pool

if TYPE_CHECKING:
    from studies.paper.experiment import Reproduction

_DEFAULT_FOLDER = Path("..", "shared", "recordings")
_SUFFIX = ".jsonl.gz"
_FIGURE_PATH = Path("figures", "reproduction.svg")  # beside the page
_BUNDLED = ("facts", "words")  # the recordings in the package that are judged where none is named
_BUNDLED_FILES = (
    "facts-smollm2-135m",
    "words-qwen2.5-coder-1.5b",
)  # files that the bundled recordings were made of
_PAGE_LINK = re.compile(r"\[[a-z]+\.md\]\(([a-z./]+)\)")

RecordingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECORDING]...",
        help="Only these: names of bundled ones or of files in the folder, or pools. [default: all at hand]",
        show_default=False,
    ),
]
RecordingsOption = Annotated[
    Path | None,
    typer.Option(
        "--recordings",
        metavar="DIR",
        help=f"A folder of *{_SUFFIX} recordings. [default: {_DEFAULT_FOLDER}, if it is there]",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="The page to write, its picture beside it. [default: printed]"
    ),
]
QuickFlag = Annotated[
    bool, typer.Option("--quick", help="Fewer seeds, splits and grid points: rougher numbers.")
]


def reproduce(
    context: typer.Context,
    recordings: RecordingsArgument = None,
    folder: RecordingsOption = None,
    output: OutputOption = None,
    quick: QuickFlag = False,
    seed: SeedOption = 0,
    workers: ProcessesOption = None,
    json: JsonFlag = False,
) -> None:
    """Do the paper's experiment on each recording at hand: its tables and claims, and what holds here.

    The page is Markdown, for a reader who has the paper open. The two bundled recordings take about a minute
    on two cores.
    """
    from studies.paper.experiment import run_experiment
    from studies.paper.reproduction_page import build_data
    from studies.paper.reproduction_page import count_verdicts as counts

    if output is not None:
        _check_output(output)  # before minutes of work
    sources = _list_sources(recordings or [], _find_folder(folder))
    cases = _read_cases(sources, load_settings(context).answers, named=bool(recordings))
    with show_progress(f"reproducing on {format_count(len(cases), 'recording')}") as report_progress:
        reproduction = run_experiment(
            cases,
            quick=quick,
            seed=seed,
            workers=workers or choose_process_count(),
            progress=report_progress,
        )
    text = _write_page(reproduction, output, command=format_command(PROGRAM))
    if json:
        print_json(build_data(reproduction))
    elif output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        print_line(f"{counts(reproduction)}.")
        print_line(f"written to {format_path(output)}")


def _write_page(reproduction: "Reproduction", output: Path | None, *, command: str) -> str:
    """The page's text; where it goes to a file, it is written, with its picture beside it."""
    from studies.paper.reproduction_page import build_page

    if output is None:
        return _name_pages(build_page(reproduction, command=command))
    from adacompute.report.canvas import to_standalone_svg
    from studies.paper.overview import build_overview, draw_overview

    figure = draw_overview(build_overview(reproduction))
    text = build_page(
        reproduction, command=command, picture=f"![{figure.title}: {figure.alt}]({_FIGURE_PATH.as_posix()})"
    )
    if not (output.parent / "theory.md").is_file():
        text = _name_pages(text)  # links lead somewhere beside our other pages only
    with lock_report_folder(output.parent):
        publish_files(
            {output.parent / _FIGURE_PATH: to_standalone_svg(figure.svg).encode(), output: text.encode()}
        )
    return text


def _name_pages(text: str) -> str:
    """Replace links to our other pages by the pages' paths in the repository."""
    return _PAGE_LINK.sub(lambda link: posixpath.normpath(f"studies/paper/{link[1]}"), text)


def _check_output(output: Path) -> None:
    for path in (output, output.parent / _FIGURE_PATH):
        check_writable(path.parent)
        if path.is_dir():
            raise ReportError(
                f"{format_path(path)}: that is a folder, and the page is a file; name another one"
            )


def _find_folder(folder: Path | None) -> Path | None:
    if folder is None:
        return _DEFAULT_FOLDER if _DEFAULT_FOLDER.is_dir() else None
    if not folder.is_dir():
        raise PoolNotFound(f"{format_path(folder)}: there is no such folder; give one with *{_SUFFIX} files")
    return folder


@dataclass(frozen=True, slots=True)
class _RecordingSource:
    """A recording: what it was asked for by, and where it is."""

    name: str
    path: Path

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(_SUFFIX)


def _list_sources(names: Sequence[str], folder: Path | None) -> list[_RecordingSource]:
    """List the recordings named, or all at hand; none twice, and no file that a bundled one was made of."""
    files = sorted(folder.glob(f"*{_SUFFIX}")) if folder is not None else []
    if names:
        sources = [_find_source(name, files) for name in names]
    else:
        sources = [_RecordingSource(name, Path(name)) for name in _BUNDLED]
        folder_sources = [_RecordingSource(file.name.removesuffix(_SUFFIX), file) for file in files]
        sources += [one for one in folder_sources if one.name not in _BUNDLED_FILES]
    return list({one.path.absolute(): one for one in reversed(sources)}.values())[::-1]


def _find_source(name: str, files: Sequence[Path]) -> _RecordingSource:
    """The bundled one of that name, else the file that is called so, else the one that begins so."""
    if name in bundled_names():
        return _RecordingSource(name, Path(name))
    prefixed = [file for file in files if file.name.startswith(f"{name}-")]
    matches = [file for file in files if file.name == name + _SUFFIX] or prefixed
    if len(matches) > 1:
        listed = ", ".join(format_path(Path(file.name.removesuffix(_SUFFIX))) for file in matches)
        raise SourceAmbiguous(f"{name}: several recordings begin so; name one of {listed}")
    if matches:
        return _RecordingSource(name, matches[0])
    return _RecordingSource(Path(name).name.removesuffix(_SUFFIX), Path(name))


def _read_cases(
    sources: Sequence[_RecordingSource], answers: AnswersConfig, *, named: bool
) -> list[PaperPool]:
    ballots = [read_ballots(one.path, answers) for one in sources]
    names = _choose_names(sources, [str(one.model) for one in ballots])
    cases = []
    for name, own in zip(names, ballots, strict=True):
        try:
            cases.append(score_paper_pool(own, name))
        except (NotRecorded, TooFewSamples) as exc:
            if named:
                raise
            print_message(f"left out: {exc}")
    if not cases:
        raise NotRecorded("no recording at hand has grades; name one that has")
    return cases


def _choose_names(sources: Sequence[_RecordingSource], models: Sequence[str]) -> list[str]:
    """Choose a name for each: without its model where the names stay different, else as its file."""
    short_names = [_remove_model(one.name, model) for one, model in zip(sources, models, strict=True)]
    counts = Counter(short_names)
    names = [name if counts[name] == 1 else one.stem for name, one in zip(short_names, sources, strict=True)]
    for name, many in Counter(names).items():
        if many > 1:
            paths = [format_path(one.path) for one, own in zip(sources, names, strict=True) if own == name]
            raise SourceAmbiguous(
                f"{' and '.join(paths)}: two recordings of one name, {name}; rename a file, or name only one"
            )
    return [format_path(Path(name)) for name in names]


def _remove_model(name: str, model: str) -> str:
    """A recording's name without its model's: `math` of `math-qwen2.5-coder-1.5b`."""
    parts = name.split("-")
    for at in range(1, len(parts)):
        if "-".join(parts[at:]).lower() in model.lower():
            return "-".join(parts[:at])
    return name
