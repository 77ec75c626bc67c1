"""What is asked of each problem: model, template and sampling parameters.

Also checks that a pool was collected with the same ones, so that it may be continued.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adacompute.errors import CollectError, ProblemsInvalid, SourceChanged
from adacompute.pool import Pool, fingerprint
from adacompute.problems import Template
from adacompute.records import Problem

__all__ = ["Asking", "add_problems", "check_problems", "check_source"]

_RESERVED = ("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "template")
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How every problem is put to the model. `parameters` is what a pool stores, and identifies its
    source.

    Log-probabilities are requested besides the samples: they don't change them, so they are no parameter.
    """

    model: str
    template: Template
    sampling: Mapping[str, Any] = field(default_factory=dict)  # temperature and the like, sent as they are
    logprobs: bool = True  # votes are weighted by them
    top_logprobs: int = 0  # alternatives a token, 0 to 20; from 2 up they give the entropy

    def __post_init__(self) -> None:
        if not self.model or type(self.model) is not str:
            raise CollectError(f"model {self.model!r} is no name; give the endpoint's own")
        if not isinstance(self.template, Template):
            raise CollectError(
                f"template {self.template!r} is none; give Template.named('boxed') or the like"
            )
        if not isinstance(self.sampling, Mapping):
            raise CollectError(f"sampling {self.sampling!r} can't be sent; give e.g. {{'temperature': 0.7}}")
        if reserved := sorted(set(self.sampling) & set(_RESERVED)):
            raise CollectError(f"parameter {reserved[0]!r} is set by adacompute itself; leave it out")
        for name, low, high in (("temperature", 0.0, math.inf), ("top_p", 0.0, 1.0)):
            value = self.sampling.get(name)
            if value is not None and not (_is_number(value) and low <= value <= high):
                raise CollectError(f"{name} {value!r} can't be used; give a number from {low:g} up")
        for name in _TOKEN_LIMITS:
            limit = self.sampling.get(name)
            if limit is not None and (type(limit) is not int or limit < 1):
                raise CollectError(f"{name} {limit!r} can't be used; give a whole number from 1 up")
        if type(self.top_logprobs) is not int or not 0 <= self.top_logprobs <= 20:
            raise CollectError(f"top_logprobs {self.top_logprobs!r} can't be used; give 0 to 20")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the pool stores beside the model's name: the sampling parameters and the whole template."""
        return {**self.sampling, "template": self.template.to_dict()}

    @property
    def most_tokens(self) -> int | None:
        """The limit of one response; None where there is none."""
        limits = [self.sampling[name] for name in _TOKEN_LIMITS if self.sampling.get(name) is not None]
        return max(limits, default=None)  # endpoints differ in which of the two they obey

    def body(self, problem: Problem) -> dict[str, Any]:
        """The request for one problem, without `n`."""
        body = {"model": self.model, "messages": self.template.messages(problem), **self.sampling}
        if self.logprobs:
            body["logprobs"] = True
            if self.top_logprobs:
                body["top_logprobs"] = self.top_logprobs
        return body


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


_MAX_CHANGES = 4  # differences that a message names
_MAX_VALUE = 60  # characters of a value that a message shows


def check_source(pool: Pool, model: str, parameters: Mapping[str, Any], *, another: bool = False) -> None:
    """Raises SourceChanged where the pool's samples have other settings than these, saying what differs.

    Samples under different settings have different distributions, so they are never mixed; `another`
    keeps them side by side, each under its own source.
    """
    known = pool.models
    mark = fingerprint(parameters)
    if another or not known or any(name == model and fingerprint(p) == mark for name, p in known):
        return
    ours = {"model": model, **parameters}
    changes = min((_summarise_changes({"model": name, **p}, ours) for name, p in known), key=len)
    more = f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
    raise SourceChanged(
        f"{pool.path}: was collected with other settings: {'; '.join(changes[:_MAX_CHANGES])}{more}. Ask as "
        "before, name another pool, or keep both in this one with --another"
    )


def _summarise_changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """As `differences`, but with those of the template shortened to the first."""
    changes = differences(was, now)
    template = [change for change in changes if change.startswith("template.")]
    rest = [change for change in changes if not change.startswith("template.")]
    return [*rest, f"another template ({template[0].removeprefix('template.')})"] if template else rest


def add_problems(
    pool: Pool, problems: Sequence[Problem], template: Template, *, regrade: bool = False
) -> None:
    """Adds new problems to the pool, and updates those that are there, if the model is asked the same."""
    new, changed = check_problems(pool, problems, template)
    pool.add_problems(new)
    pool.amend_problems(changed, regrade=regrade)


def check_problems(
    pool: Pool | None, problems: Sequence[Problem], template: Template
) -> tuple[list[Problem], list[Problem]]:
    """Which problems are new to the pool, and which are there but differ in something beside their
    question.

    Raises CollectError where an id is taken by a problem that asks the model something else. A template
    that can't be filled in is reported here too, before anything is paid for.
    """
    new: list[Problem] = []
    changed: list[Problem] = []
    ids: set[str] = set()
    for problem in problems:
        if not isinstance(problem, Problem):
            raise CollectError(f"{_show(problem)} is no problem; give ac.Problem(id=..., question=...)")
        if problem.id in ids:
            raise CollectError(f"the id {problem.id!r} is there twice; give each problem its own")
        ids.add(problem.id)
        messages = template.messages(problem)
        known = None if pool is None else pool.problem(problem.id)
        if known is None:
            new.append(problem)
        elif known != problem:
            if known.question != problem.question or _try_messages(template, known) != messages:
                raise CollectError(
                    f"problem {problem.id!r} is asked differently in the pool: "
                    f"{_describe_change(known, problem)}; give it an id of its own, or use another pool"
                )
            changed.append(problem)
    return new, changed


def _try_messages(template: Template, problem: Problem) -> list[dict[str, str]] | None:
    try:
        return template.messages(problem)
    except ProblemsInvalid:  # the pool's problem lacks a field of the template
        return None


def _describe_change(known: Problem, problem: Problem) -> str:
    if known.question != problem.question:
        return f"{_show(problem.question)}, there {_show(known.question)}"
    changes = differences(dict(known.extra), dict(problem.extra))
    return changes[0] if changes else "by another subject or level"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed, a line each: `temperature was 0.7, is 0.8`."""
    before, after = dict(_flatten(was)), dict(_flatten(now))
    return [
        f"{name} was {_show(before.get(name))}, is {_show(after.get(name))}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON data
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flatten(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _flatten(part, f"{name}[{number}]")
    else:
        yield name, value


def _show(value: object) -> str:
    if value is None:
        return "not set"
    text = repr(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
