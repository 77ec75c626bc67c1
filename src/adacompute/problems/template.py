r"""Prompt templates: a problem -> the messages a model gets. Knows nothing of datasets or endpoints.

A template is a text file:

    # Notes.
    extract: boxed

    [system]
    Put your final answer within \boxed{}.

    [user]
    {question}
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.errors import ProblemsInvalid, TaskError
from adacompute.pool.flaw import kind_of, shown
from adacompute.problems.choices import lettered
from adacompute.problems.presets import gives_away
from adacompute.problems.streams import os_errors
from adacompute.records import Problem

__all__ = ["Template", "Turn", "template_names", "template_path"]

ROLES = ("system", "developer", "user", "assistant")
# in capitals only the roles themselves: [Note] is text
_NAME = rf"\[([a-z]+|(?i:{'|'.join(ROLES)}))\][ \t]*"
_ROLE = re.compile(_NAME)
_ESCAPED = re.compile(rf"^\\(?=\\*{_NAME}$)", re.MULTILINE)
_BLANK = re.compile(r"\A(?:[ \t]*\n)+")
_SETTING = re.compile(r"([a-z_]+)[ \t]*:[ \t]*(.*)")
# what a LaTeX command holds stays, as in \boxed{answer}; {{name}} is {name} itself; {name} is filled in;
# every other brace stays, as in {1, 2}
_HOLE = re.compile(r"\\[A-Za-z]+\*?(?:\{[^{}\n]*\})+|\{\{([^\W\d]\w*)\}\}|\{([^\W\d]\w*)\}")
_LONGEST = 1 << 20  # bytes of a template file


class Turn(NamedTuple):
    """One message of a template, with its holes."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    r"""The turns around a question, and how the answer is then read out of a response.

    >>> Template.named("boxed").messages(Problem(id="p1", question="What is 6 times 7?"))[-1]
    {'role': 'user', 'content': 'What is 6 times 7?'}
    """

    name: str
    turns: tuple[Turn, ...]
    extract: str | None = None  # for answers.Task; None: the template doesn't say

    def __post_init__(self) -> None:
        _check_turns(self.turns, f"template {self.name!r}")
        _check_extract(self.extract, f"template {self.name!r}")

    @classmethod
    def named(cls, name: str) -> "Template":
        """A template inside the package; `template_names()` lists them."""
        return cls.parse(template_path(name).read_text("utf-8"), name=name)

    @classmethod
    def read(cls, path: str | Path) -> "Template":
        """A template of one's own, from a text file."""
        where = Path(path)
        with os_errors(where), where.open("rb") as stream:
            data = stream.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise ProblemsInvalid(f"{where}: is longer than {_LONGEST} bytes; a template is a short text")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise ProblemsInvalid(
                f"{where}: is not UTF-8 at byte {exc.start + 1}; save the template as UTF-8"
            ) from exc
        return cls.parse(text, name=where.stem, place=str(where))

    @classmethod
    def parse(cls, text: str, *, name: str, place: str | None = None) -> "Template":
        """A template from its text; errors name `place`."""
        place = place or f"template {name!r}"
        head, turns = _parts(text.replace("\r\n", "\n").split("\n"), place)
        _check_turns(turns, place)
        _check_extract(head.get("extract"), place)
        return cls(name=name, turns=turns, extract=head.get("extract"))

    @property
    def holes(self) -> frozenset[str]:
        """The names that it fills in, e.g. {"question", "choices"}."""
        return frozenset(name for turn in self.turns for name in _holes(turn.text))

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The messages that ask this problem; what is filled in is never looked into again."""
        known = _known(problem)
        return [{"role": role, "content": self._filled(text, known, problem)} for role, text in self.turns]

    def to_dict(self) -> dict[str, Any]:
        """What the model is shown, as plain JSON data: equal prompts are equal, whatever their names."""
        return {"messages": [{"role": role, "content": text} for role, text in self.turns]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], *, name: str = "stored") -> "Template":
        """The template that `to_dict` wrote; its extractor is not part of it."""
        try:
            turns = tuple(Turn(turn["role"], turn["content"]) for turn in stored["messages"])
            sound = all(isinstance(part, str) for turn in turns for part in turn)
        except (TypeError, LookupError):
            turns, sound = (), False
        if not sound:
            raise ProblemsInvalid(
                f"{shown(stored)} is no stored template; give {{'messages': [{{'role', 'content'}}, ...]}}"
            )
        return cls(name=name, turns=turns)

    def _filled(self, text: str, known: Mapping[str, str], problem: Problem) -> str:
        def fill(hole: re.Match[str]) -> str:
            literal, name = hole.groups()
            if literal is not None:
                return f"{{{literal}}}"
            if name is None:
                return hole[0]
            if name not in known:
                raise ProblemsInvalid(
                    f"template {self.name!r} asks for {{{name}}}, which problem {problem.id!r} doesn't have; "
                    f"it has {', '.join(sorted(known))} (write {{{{{name}}}}} for the braces themselves)"
                )
            return known[name]

        return _HOLE.sub(fill, text)


def template_names() -> tuple[str, ...]:
    """The templates inside the package."""
    found = (file.name for file in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".txt") for name in found if name.endswith(".txt")))


def template_path(name: str) -> Path:
    """The file of a template inside the package: to look at, or to copy and edit."""
    names = template_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ProblemsInvalid(
            f"there is no template {shown(name)}; {hint}give a file, or one of {', '.join(names)}"
        )
    with as_file(_folder() / f"{name}.txt") as path:
        return path


def _folder() -> Traversable:
    return files("adacompute.problems") / "templates"


def _parts(lines: list[str], place: str) -> tuple[dict[str, str], tuple[Turn, ...]]:
    """The settings before the first role, and the turns."""
    head: dict[str, str] = {}
    turns: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines, start=1):
        if role := _ROLE.fullmatch(line):
            _check_role(role[1].lower(), f"{place}: line {number}")
            turns.append((role[1].lower(), []))
        elif turns:
            turns[-1][1].append(line)
        elif line.strip() and not line.startswith("#"):
            setting = _SETTING.fullmatch(line.strip())
            if setting is None or setting[1] != "extract" or "extract" in head:
                raise ProblemsInvalid(
                    f"{place}: line {number} is {shown(line)} before the first role; "
                    "give one 'extract: WAY', notes with #, or a role such as [user]"
                )
            head["extract"] = setting[2]
    return head, tuple(Turn(role, _body(text)) for role, text in turns)


def _body(lines: list[str]) -> str:
    return _ESCAPED.sub("", _BLANK.sub("", "\n".join(lines)).rstrip())


def _check_role(role: str, place: str) -> None:
    if role not in ROLES:
        near = difflib.get_close_matches(role, ROLES, n=1)
        hint = f"did you mean [{near[0]}]? " if near else ""
        raise ProblemsInvalid(
            f"{place}: there is no role [{role}]; {hint}"
            f"the roles are {', '.join(ROLES)} (write \\[{role}] for the text itself)"
        )


def _check_turns(turns: tuple[Turn, ...], place: str) -> None:
    for role, text in turns:
        _check_role(role, place)
        if not text:
            raise ProblemsInvalid(f"{place}: a turn [{role}] is empty; write its text below it, or remove it")
        for name in filter(gives_away, _holes(text)):
            raise ProblemsInvalid(
                f"{place}: {{{name}}} would give the answer away; remove it "
                f"(write {{{{{name}}}}} for the braces themselves)"
            )
    if not any("question" in _holes(text) for role, text in turns if role == "user"):
        raise ProblemsInvalid(f"{place}: no [user] turn holds {{question}}; put it where the question goes")
    if turns[-1].role != "user":
        raise ProblemsInvalid(f"{place}: ends with [{turns[-1].role}]; end with the [user] turn that asks")


def _check_extract(extract: str | None, place: str) -> None:
    try:
        Task() if extract is None else Task(extract=extract)
    except TaskError as exc:
        raise ProblemsInvalid(f"{place}: {exc}") from exc


def _holes(text: str) -> Iterator[str]:
    return (name for _, name in _HOLE.findall(text) if name)


def _known(problem: Problem) -> dict[str, str]:
    """What may be filled in, by name; the answer is not among it."""
    extra = problem.extra.items()
    given: dict[str, Any] = {k: v for k, v in extra if k.isidentifier() and not gives_away(k)}
    given |= {"question": problem.question, "subject": problem.subject, "level": problem.level}
    return {name: _text(name, value) for name, value in given.items() if value is not None}


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name == "choices" and isinstance(value, list | tuple):
        return lettered([str(choice) for choice in value])
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return kind_of(value)
