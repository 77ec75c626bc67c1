"""Whether a pool may be gone on with: the same model, template and parameters. Knows nothing of endpoints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adacompute.errors import CollectError, ProblemsInvalid, SourceChanged
from adacompute.pool import Pool, fingerprint
from adacompute.problems import Template
from adacompute.records import Problem

__all__ = ["admit", "check_problems", "check_source", "differences"]

_SHOWN = 4  # differences that a message names
_LONGEST = 60  # characters of a value that a message shows


def check_source(pool: Pool, model: str, parameters: Mapping[str, Any], *, another: bool = False) -> None:
    """Raises SourceChanged where the pool's samples are of others than these, saying what differs.

    Samples under different settings are no one distribution, so they are never mixed; `another` keeps them
    side by side, each under its own name.
    """
    known = pool.models
    mark = fingerprint(parameters)
    if another or not known or any(name == model and fingerprint(p) == mark for name, p in known):
        return
    ours = {"model": model, **parameters}
    changes = min((_changes({"model": name, **p}, ours) for name, p in known), key=len)
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    raise SourceChanged(
        f"{pool.path}: was collected with other settings: {'; '.join(changes[:_SHOWN])}{more}. Ask as "
        "before, name another pool, or keep both in this one with --another"
    )


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """As `differences`, with those of the template in one: its first."""
    found = differences(was, now)
    template = [change for change in found if change.startswith("template.")]
    rest = [change for change in found if not change.startswith("template.")]
    return [*rest, f"another template ({template[0].removeprefix('template.')})"] if template else rest


def admit(pool: Pool, problems: Sequence[Problem], template: Template, *, regrade: bool = False) -> None:
    """Puts problems into the pool; those that are there are brought up to date, if they are asked alike."""
    new, changed = check_problems(pool, problems, template)
    pool.add_problems(new)
    pool.amend_problems(changed, regrade=regrade)


def check_problems(
    pool: Pool | None, problems: Sequence[Problem], template: Template
) -> tuple[list[Problem], list[Problem]]:
    """Which problems are new to the pool, and which are there in other words beside their question.

    Raises CollectError where the model would be asked something else under an id that is taken; and what the
    template can't fill in is said before anything is paid for.
    """
    new: list[Problem] = []
    changed: list[Problem] = []
    ids: set[str] = set()
    for problem in problems:
        if not isinstance(problem, Problem):
            raise CollectError(f"{_shown(problem)} is no problem; give ac.Problem(id=..., question=...)")
        if problem.id in ids:
            raise CollectError(f"the id {problem.id!r} is there twice; give each problem its own")
        ids.add(problem.id)
        asked = template.messages(problem)
        known = None if pool is None else pool.problem(problem.id)
        if known is None:
            new.append(problem)
        elif known != problem:
            if known.question != problem.question or _asked(template, known) != asked:
                raise CollectError(
                    f"problem {problem.id!r} is asked otherwise than in the pool: "
                    f"{_otherwise(known, problem)}; give it an id of its own, or use another pool"
                )
            changed.append(problem)
    return new, changed


def _asked(template: Template, problem: Problem) -> list[dict[str, str]] | None:
    try:
        return template.messages(problem)
    except ProblemsInvalid:  # the pool's lacks what the template fills in
        return None


def _otherwise(known: Problem, problem: Problem) -> str:
    if known.question != problem.question:
        return f"{_shown(problem.question)}, there {_shown(known.question)}"
    changes = differences(dict(known.extra), dict(problem.extra))
    return changes[0] if changes else "by another subject or level"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed, a line each: `temperature was 0.7, is 0.8`."""
    before, after = dict(_flat(was)), dict(_flat(now))
    return [
        f"{name} was {_shown(before.get(name))}, is {_shown(after.get(name))}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON data
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _flat(part, f"{name}[{number}]")
    else:
        yield name, value


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
