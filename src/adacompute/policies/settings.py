"""A policy's settings, checked alike when they are given and when they are read back. Knows no policy.

What a caller gives wrong is a PolicyError; what is stored wrong is a PolicyInvalid, with the same words.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from adacompute.answers import Weigh
from adacompute.errors import AdacomputeError, PolicyError, PolicyInvalid

__all__ = [
    "MOST",
    "ascending",
    "checked_dial",
    "finite",
    "flag",
    "number",
    "one_of",
    "plain_weigh",
    "read_weigh",
    "restoring",
    "shown",
    "taken",
    "weigh_given",
    "whole",
]

MOST = 1024  # samples a request: more is a slip
_SHOWN = 60  # characters of a value in a message


def shown(value: object) -> str:
    """A value as it reads in a message: its repr, in one line, shortened where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than a few thousand digits
        text = f"a {type(value).__name__} too long to write"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-8:]} ({len(text)} characters)"


def finite(value: object) -> float | None:
    """A finite number as a float; None for anything else: True, NaN, and whole numbers beyond floats too."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(name: str, value: object, *, low: int = 1, high: int = MOST) -> int:
    """A whole number within bounds."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise PolicyError(f"{name} {shown(value)} can't be used; give a whole number from {low} to {high}")
    return int(value)


def number(name: str, value: object, *, low: float, high: float = math.inf) -> float:
    """A finite number within bounds."""
    found = finite(value)
    if found is None or not low <= found <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(f"{name} {shown(value)} can't be used; give a number from {low:g} {upper}")
    return found


def checked_dial(name: str, dial: object, *, high: float = math.inf) -> float:
    """The value of a policy's dial, e.g. its "price": the same ones are taken live and in replay."""
    found = finite(dial)
    if found is None or not 0 <= found <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(
            f"{name} {shown(dial)} can't be used; give a number from 0 {upper}, e.g. what calibrate finds"
        )
    return found


def flag(name: str, value: object) -> bool:
    """True or False, and nothing that only passes for it."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name} {shown(value)} can't be used; give True or False")
    return value


def one_of(name: str, value: object, choices: Collection[str]) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise PolicyError(f"{name} {shown(value)} is not known; give one of {', '.join(map(repr, choices))}")


def ascending(name: str, values: object, *, high: int = MOST) -> tuple[int, ...]:
    """Budgets: whole numbers from 1, ascending, each once."""
    given: list[Any] = []
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        given = list(values)
    fit = all(isinstance(b, int | np.integer) and not isinstance(b, bool) and 1 <= b <= high for b in given)
    if not given or not fit or any(a >= b for a, b in pairwise(given)):
        raise PolicyError(
            f"{name} {shown(values)} can't be used; give whole numbers from 1 to {high}, ascending, "
            "e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in given)


def weigh_given(value: object) -> Weigh | None:
    """How votes are weighed, as a constructor takes it."""
    if value is not None and not isinstance(value, Weigh):
        raise PolicyError(f"weigh {shown(value)} can't weigh votes; give a Weigh, or None for plain votes")
    return value


def plain_weigh(weigh: Weigh | None) -> dict[str, Any] | None:
    """How votes are weighed, as plain data."""
    if weigh is None:
        return None
    return {"signal": weigh.signal, "scale": weigh.scale, "sharpness": weigh.sharpness}


def read_weigh(value: object) -> Weigh | None:
    """What `plain_weigh` gave."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"signal", "scale", "sharpness"}:
        raise PolicyError(
            f"weigh {shown(value)} doesn't say how votes are weighed; it has signal, scale, sharpness"
        )
    return Weigh(**value)


def taken(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Stored settings, none missing and none unknown, with how votes are weighed made a `Weigh`."""
    if lacking := sorted(set(names) - set(settings)):
        raise PolicyError(f"setting {lacking[0]!r} is missing")
    if unknown := sorted(set(map(str, settings)) - set(names)):
        raise PolicyError(f"setting {unknown[0]!r} is not known; the settings are {', '.join(sorted(names))}")
    found = dict(settings)
    if "weigh" in found:
        found["weigh"] = read_weigh(found["weigh"])
    return found


@contextmanager
def restoring(kind: str) -> Iterator[None]:
    """What is wrong with stored settings, or can't be computed with, as PolicyInvalid with its kind."""
    try:
        yield
    except (AdacomputeError, ArithmeticError, TypeError, ValueError) as exc:
        raise PolicyInvalid(f"no {kind} policy has been stored so: {exc}") from exc
