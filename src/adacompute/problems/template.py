"""Defines prompt templates, which turn a problem into messages for a model.

A template is a text file:

    # Notes.
    extract: boxed

    [system]
    Put your final answer within \\boxed{}.

    [user]
    {question}
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.errors import ProblemsInvalid, TaskError, format_value, suggest_name
from adacompute.pool.rows import describe_type
from adacompute.problems.presets import reveals_answer
from adacompute.problems.row_fields import format_choices
from adacompute.problems.row_readers import translate_os_errors
from adacompute.records import Problem

ROLES = ("system", "developer", "user", "assistant")
# matches a line such as [user]; a capitalised word must be a known role, because [Note] may be text
_ROLE_LINE = rf"\[([a-z]+|(?i:{'|'.join(ROLES)}))\][ \t]*"
_ROLE_PATTERN = re.compile(_ROLE_LINE)
_ESCAPED_ROLE = re.compile(rf"^\\(?=\\*{_ROLE_LINE}$)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\A(?:[ \t]*\n)+")
_SETTING_LINE = re.compile(r"([a-z_]+)[ \t]*:[ \t]*(.*)")
# {name} is replaced by a value, and {{name}} by a literal {name}. Other braces stay, as in {1, 2} and in
# LaTeX such as \boxed{answer}.
_PLACEHOLDER = re.compile(r"\\[A-Za-z]+\*?(?:\{[^{}\n]*\})+|\{\{([^\W\d]\w*)\}\}|\{([^\W\d]\w*)\}")
_SIZE_LIMIT = 1 << 20  # maximum size of a template file, in bytes


class Turn(NamedTuple):
    """One message of a template, whose text may contain placeholders."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    r"""The messages that ask a question, and the way to extract answers from responses.

    >>> Template.named("boxed").messages(Problem(id="p1", question="What is 6 times 7?"))[-1]
    {'role': 'user', 'content': 'What is 6 times 7?'}
    """

    name: str
    turns: tuple[Turn, ...]
    extract: str | None = None  # extractor for the answers; None if the template names none

    def __post_init__(self) -> None:
        _check_turns(self.turns, f"template {self.name!r}")
        _check_extract(self.extract, f"template {self.name!r}")

    @classmethod
    def named(cls, name: str) -> "Template":
        """Returns a template of this package by its name, which must be in `template_names()`."""
        return cls.parse(template_path(name).read_text("utf-8"), name=name)

    @classmethod
    def read(cls, path: str | Path) -> "Template":
        """Reads a user's own template from a text file."""
        file = Path(path)
        with translate_os_errors(file), file.open("rb") as stream:
            data = stream.read(_SIZE_LIMIT + 1)
        if len(data) > _SIZE_LIMIT:
            raise ProblemsInvalid(f"{file}: is longer than {_SIZE_LIMIT} bytes; a template is a short text")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise ProblemsInvalid(
                f"{file}: is not UTF-8 at byte {exc.start + 1}; save the template as UTF-8"
            ) from exc
        return cls.parse(text, name=file.stem, place=str(file))

    @classmethod
    def parse(cls, text: str, *, name: str, place: str | None = None) -> "Template":
        """Parses the text of a template; error messages begin with `place`."""
        place = place or f"template {name!r}"
        head, turns = _split_parts(text.replace("\r\n", "\n").split("\n"), place)
        _check_turns(turns, place)
        _check_extract(head.get("extract"), place)
        return cls(name=name, turns=turns, extract=head.get("extract"))

    @property
    def placeholders(self) -> frozenset[str]:
        """The names of the template's placeholders, such as {"question", "choices"}."""
        return frozenset(name for turn in self.turns for name in _find_placeholders(turn.text))

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """Builds the messages for a problem. A placeholder inside an inserted value isn't replaced."""
        values = _collect_values(problem)
        filled = [(role, self._fill(text, values, problem)) for role, text in self.turns]
        has_none = values.get("choices") == ""  # this problem has no choices, but others in its set do
        return [{"role": role, "content": text.rstrip() if has_none else text} for role, text in filled]

    def to_dict(self) -> dict[str, Any]:
        """Returns the messages as plain JSON data, but not the name, so equal prompts give equal data."""
        return {"messages": [{"role": role, "content": text} for role, text in self.turns]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], *, name: str = "stored") -> "Template":
        """Restores a template, without its extractor, from what `to_dict` wrote."""
        try:
            turns = tuple(Turn(turn["role"], turn["content"]) for turn in stored["messages"])
            is_valid = all(isinstance(part, str) for turn in turns for part in turn)
        except (TypeError, LookupError):
            turns, is_valid = (), False
        if not is_valid:
            raise ProblemsInvalid(
                f"{format_value(stored)} is not a stored template; "
                "give {'messages': [{'role', 'content'}, ...]}"
            )
        return cls(name=name, turns=turns)

    def _fill(self, text: str, values: Mapping[str, str], problem: Problem) -> str:
        def fill(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal is not None:
                return f"{{{literal}}}"
            if name is None:
                return match[0]
            if name not in values:
                raise ProblemsInvalid(
                    f"template {self.name!r} asks for {{{name}}}, which problem {problem.id!r} doesn't have; "
                    f"it has {', '.join(sorted(values))} (write {{{{{name}}}}} for the braces themselves)"
                )
            return values[name]

        return _PLACEHOLDER.sub(fill, text)


def template_names() -> tuple[str, ...]:
    """Returns the names of the templates in this package, sorted."""
    names = (file.name for file in _get_folder().iterdir())
    return tuple(sorted(name.removesuffix(".txt") for name in names if name.endswith(".txt")))


def template_path(name: str) -> Path:
    """Returns the path of a template in this package, so that it can be read, or copied and edited."""
    names = template_names()
    if name not in names:
        hint = suggest_name(name, names)
        raise ProblemsInvalid(
            f"there is no template {format_value(name)}; {hint}give a file, or one of {', '.join(names)}"
        )
    with as_file(_get_folder() / f"{name}.txt") as path:
        return path


def _get_folder() -> Traversable:
    return files("adacompute.problems") / "templates"


def _split_parts(lines: list[str], place: str) -> tuple[dict[str, str], tuple[Turn, ...]]:
    """Splits a template into its settings (all lines before the first role) and its messages."""
    head: dict[str, str] = {}
    turns: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines, start=1):
        if role := _ROLE_PATTERN.fullmatch(line):
            _check_role(role[1].lower(), f"{place}: line {number}")
            turns.append((role[1].lower(), []))
        elif turns:
            turns[-1][1].append(line)
        elif line.strip() and not line.startswith("#"):
            setting = _SETTING_LINE.fullmatch(line.strip())
            if setting is None or setting[1] != "extract" or "extract" in head:
                raise ProblemsInvalid(
                    f"{place}: line {number} is {format_value(line)} before the first role; "
                    "give one 'extract: WAY', notes with #, or a role such as [user]"
                )
            head["extract"] = setting[2]
    return head, tuple(Turn(role, _join_body(text)) for role, text in turns)


def _join_body(lines: list[str]) -> str:
    return _ESCAPED_ROLE.sub("", _BLANK_LINES.sub("", "\n".join(lines)).rstrip())


def _check_role(role: str, place: str) -> None:
    if role not in ROLES:
        hint = suggest_name(f"[{role}]", [f"[{known}]" for known in ROLES])
        raise ProblemsInvalid(
            f"{place}: there is no role [{role}]; {hint}"
            f"the roles are {', '.join(ROLES)} (write \\[{role}] for the text itself)"
        )


def _check_turns(turns: tuple[Turn, ...], place: str) -> None:
    for role, text in turns:
        _check_role(role, place)
        if not text:
            raise ProblemsInvalid(f"{place}: a turn [{role}] is empty; write its text below it, or remove it")
        for name in filter(reveals_answer, _find_placeholders(text)):
            raise ProblemsInvalid(
                f"{place}: {{{name}}} would give the answer away; remove it "
                f"(write {{{{{name}}}}} for the braces themselves)"
            )
    if not any("question" in _find_placeholders(text) for role, text in turns if role == "user"):
        raise ProblemsInvalid(f"{place}: no [user] turn holds {{question}}; put it where the question goes")
    if turns[-1].role != "user":
        raise ProblemsInvalid(f"{place}: ends with [{turns[-1].role}]; end with the [user] turn that asks")


def _check_extract(extract: str | None, place: str) -> None:
    try:
        Task() if extract is None else Task(extract=extract)
    except TaskError as exc:
        raise ProblemsInvalid(f"{place}: {exc}") from exc


def _find_placeholders(text: str) -> Iterator[str]:
    return (name for _, name in _PLACEHOLDER.findall(text) if name)


def _collect_values(problem: Problem) -> dict[str, str]:
    """Returns the values that can be inserted into a template, by name; never includes the answer."""
    extra = problem.extra.items()
    values: dict[str, Any] = {k: v for k, v in extra if k.isidentifier() and not reveals_answer(k)}
    values |= {"question": problem.question, "subject": problem.subject, "level": problem.level}
    return {name: _format_value(name, value) for name, value in values.items() if value is not None}


def _format_value(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if name == "choices" and isinstance(value, list | tuple):
        return format_choices([str(choice) for choice in value])
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return describe_type(value)
