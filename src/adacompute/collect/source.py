"""Whether a pool may be gone on with: the same model, template and parameters. Knows nothing of endpoints."""

from collections.abc import Iterator, Mapping
from typing import Any

from adacompute.errors import SourceChanged
from adacompute.pool import Pool, fingerprint

__all__ = ["check_source", "differences"]

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
    changes = min((differences({"model": name, **p}, ours) for name, p in known), key=len)
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    raise SourceChanged(
        f"{pool.path}: was collected with other settings: {'; '.join(changes[:_SHOWN])}{more}. Ask as "
        "before, name another pool, or keep both in this one with --another"
    )


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
