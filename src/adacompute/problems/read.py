"""One door for every source of problems. Knows nothing of how each kind is read."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from adacompute.errors import ProblemsInvalid
from adacompute.pool import bundled, bundled_names, open_pool
from adacompute.pool.flaw import shown
from adacompute.pool.schema import is_sqlite
from adacompute.problems.choices import LETTERS
from adacompute.problems.gym import SIZE, gym_rows
from adacompute.problems.hub import HubName, hub_rows, usual_for
from adacompute.problems.parquet import folder_rows, parquet_rows
from adacompute.problems.presets import PRESETS, Preset, preset_for
from adacompute.problems.rows import Row, Rows
from adacompute.problems.shape import Shape, problems_of
from adacompute.problems.streams import STDIN, os_errors
from adacompute.problems.template import Template
from adacompute.problems.text import csv_rows, json_rows
from adacompute.records import Problem

__all__ = ["ProblemSet", "read_problems"]

KINDS = (
    ".jsonl, .json, .csv, .tsv (each also as .gz), .parquet, a folder of Parquet, a pool, hf:NAME or gym:NAME"
)
_HUB, _GYM = "hf:", "gym:"
_PIPED = "a pipe is read as JSON lines, or one JSON list; for CSV give a file whose name ends with .csv"
_TEMPLATES = {"facts": "answer-line", "words": "boxed"}  # what the bundled recordings were asked with


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """Problems, and how they are usually asked."""

    name: str
    problems: tuple[Problem, ...]
    template: Template | None = None  # the preset's
    extract: str | None = None  # the preset's way of reading answers, for answers.Task
    choices: bool = False  # answers are letters of choices, which a prompt has to show

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    def check(self, template: Template) -> None:
        """Refuses a template that can't ask these problems: one that doesn't show their choices."""
        if self.choices and "choices" not in template.holes:
            raise ProblemsInvalid(
                f"{self.name}: these problems have choices, and template {template.name!r} doesn't show "
                "them; use --template choice, or put {choices} into it"
            )


def read_problems(
    source: str | Path,
    *,
    preset: str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> ProblemSet:
    """The problems of a file, a pipe, a pool, a dataset by name (`hf:`) or a generator (`gym:`), checked.

    `preset` says how a known dataset writes them, `columns` where a field is found ({"question": "text"}),
    `limit` takes the first so many; the seed decides the order of shuffled choices and what is generated.
    """
    with os_errors(source):
        return _read(str(source), preset, columns, split=split, limit=limit, seed=seed)


def _read(
    text: str,
    preset: str | None,
    columns: Mapping[str, str] | None,
    *,
    split: str | None,
    limit: int | None,
    seed: int,
) -> ProblemSet:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ProblemsInvalid(f"limit {limit!r} can't be used; give a whole number of at least 1, or none")
    chosen = _preset(preset)
    if split is not None and not text.startswith(_HUB):
        raise ProblemsInvalid(
            f"{text}: split {split!r} is for hf: names; give hf:{text} for a folder, or none"
        )
    if _is_pool(text):
        if columns:
            raise ProblemsInvalid(f"{text}: is a pool, whose fields have their names; leave columns out")
        return _of_pool(text, chosen, limit)
    if chosen is None and text.startswith(_HUB):
        known = usual_for(HubName.of(text.removeprefix(_HUB), split=split).name)
        chosen = known[0] if known else None
    rows = _rows(text, split=split, limit=limit, seed=seed)
    shape = Shape(preset=chosen, columns=columns or {}, seed=seed)
    found = problems_of(rows, shape, limit=limit)
    as_it_is = chosen is None and columns  # what the user says of columns goes before what they look like
    lettered = not as_it_is and any(map(_is_lettered, found))
    template = chosen.template if chosen else "boxed" if text.startswith(_GYM) else None
    return _made(_name(text), tuple(found), template, chosen, choices=lettered)


def _made(
    name: str, problems: tuple[Problem, ...], template: str | None, preset: Preset | None, *, choices: bool
) -> ProblemSet:
    template = template or ("choice" if choices else None)
    asked = Template.named(template) if template else None
    extract = preset.extract if preset else asked.extract if asked else None
    return ProblemSet(name=name, problems=problems, template=asked, extract=extract, choices=choices)


def _is_lettered(problem: Problem) -> bool:
    """Whether it is multiple choice as our presets read it, perhaps long ago and into a pool."""
    choices, gold = problem.extra.get("choices"), problem.gold
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        return False
    return gold is None or gold in tuple(LETTERS[: len(choices)])


def _preset(name: str | None) -> Preset | None:
    if name is None:
        return None
    if name.lower() in PRESETS:
        return PRESETS[name.lower()]
    near = difflib.get_close_matches(name.lower(), PRESETS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ProblemsInvalid(f"there is no preset {shown(name)}; {hint}there are {', '.join(PRESETS)}")


def _is_pool(text: str) -> bool:
    path = Path(text)
    if text.startswith((_HUB, _GYM)) or text == STDIN:
        return False
    if not path.exists():
        return text in bundled_names()
    return path.is_file() and is_sqlite(path)


def _of_pool(text: str, preset: Preset | None, limit: int | None) -> ProblemSet:
    own = not Path(text).exists()
    with bundled(text) if own else open_pool(text) as pool:
        problems = tuple(islice(pool.problems(), limit))
    if not problems:
        raise ProblemsInvalid(f"{text}: is a pool without problems; add some first")
    template = preset.template if preset else _TEMPLATES.get(text) if own else None
    return _made(_name(text), problems, template, preset, choices=any(map(_is_lettered, problems)))


def _rows(text: str, *, split: str | None, limit: int | None, seed: int) -> Rows:
    if text.startswith(_GYM):
        rows = gym_rows(text.removeprefix(_GYM), size=limit or SIZE, seed=seed)
        return Rows(place=text, rows=rows)
    if text.startswith(_HUB):
        wanted = HubName.of(text.removeprefix(_HUB), split=split)
        if not Path(wanted.name).is_file():
            return Rows(place=f"hf:{wanted.name}", rows=hub_rows(wanted))
        text = wanted.name
    rows, typed = _of_file(text)
    return Rows(place=text, rows=rows, typed=typed)


def _of_file(text: str) -> tuple[Iterator[Row], bool]:
    """The rows of a file by its name, and whether their values have types."""
    path = Path(text)
    if text != STDIN and not path.exists():
        raise ProblemsInvalid(f"{text}: there is no such file; {_meant(text)}check the path, or give {KINDS}")
    if text == STDIN or text.startswith("/dev/") or path.is_fifo():  # /dev/stdin may be a plain file
        return json_rows(text, remedy=_PIPED), True
    if path.is_dir():
        return folder_rows(path), True
    match path.name.lower().removesuffix(".gz").rpartition(".")[2]:
        case "jsonl" | "ndjson" | "json":
            return json_rows(path), True
        case "csv":
            return csv_rows(path), False
        case "tsv":
            return csv_rows(path, delimiter="\t"), False
        case "parquet":
            return parquet_rows(path), True
    raise ProblemsInvalid(f"{text}: can't tell what kind of file this is; give {KINDS}")


def _meant(text: str) -> str:
    """A hint for a dataset's or preset's name without hf:, and for a name near a bundled recording's."""
    name = text.partition("@")[0].partition(":")[0]
    if preset_for(name) is not None:
        return f"did you mean hf:{text}? "
    if (preset := PRESETS.get(name.lower())) and preset.hub:
        return f"did you mean hf:{next(iter(preset.hub))}? "
    near = difflib.get_close_matches(text, bundled_names(), n=1)
    return f"did you mean {near[0]}? " if near else ""


def _name(text: str) -> str:
    if text == STDIN:
        return "stdin"
    if text.startswith(_GYM):
        return text.removeprefix(_GYM)
    return text.removeprefix(_HUB) if text.startswith(_HUB) else Path(text).name
