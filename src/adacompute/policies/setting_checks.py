"""Checks of a policy's settings, the same when a caller gives them and when they are read from an artefact.

What a caller gives wrong is a PolicyError; what is stored wrong is a PolicyInvalid with the same
message.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import AdacomputeError, PolicyError, PolicyInvalid, format_value

__all__ = [
    "check_ascending",
    "check_choice",
    "check_dial",
    "check_flag",
    "check_integer",
    "check_number",
    "check_weights",
    "dump_weights",
    "load_settings",
    "parse_finite",
    "wrap_restore_errors",
]

MAX_SAMPLES = 1024  # samples a request: more is taken for a mistake


def parse_finite(value: object) -> float | None:
    """A finite number as a float; None for anything else, such as True, NaN, or an integer beyond floats."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) else None


def check_integer(name: str, value: object, *, low: int = 1, high: int = MAX_SAMPLES) -> int:
    """Returns an integer within bounds; PolicyError for anything else."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a whole number from {low} to {high}"
        )
    return int(value)


def check_number(name: str, value: object, *, low: float, high: float = math.inf) -> float:
    """Returns a finite number within bounds; PolicyError for anything else."""
    parsed = parse_finite(value)
    if parsed is None or not low <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(f"{name} {format_value(value)} can't be used; give a number from {low:g} {upper}")
    return parsed


def check_dial(name: str, dial: object, *, high: float = math.inf) -> float:
    """The value of a policy's dial, e.g. its "price"; the same values are accepted live and in replay."""
    parsed = parse_finite(dial)
    if parsed is None or not 0 <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(
            f"{name} {format_value(dial)} can't be used; give a number from 0 {upper}, "
            "e.g. what calibrate finds"
        )
    return parsed


def check_flag(name: str, value: object) -> bool:
    """Returns True or False; PolicyError for anything else, such as 0 or 1."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name} {format_value(value)} can't be used; give True or False")
    return value


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """PolicyError unless the value is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise PolicyError(
            f"{name} {format_value(value)} is not known; give one of {', '.join(map(repr, choices))}"
        )


def check_ascending(name: str, values: object, *, high: int = MAX_SAMPLES) -> tuple[int, ...]:
    """Budgets as a tuple: integers from 1, ascending, each once."""
    items: list[Any] = []
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        items = list(values)
    valid = all(isinstance(b, int | np.integer) and not isinstance(b, bool) and 1 <= b <= high for b in items)
    if not items or not valid or any(a >= b for a, b in pairwise(items)):
        raise PolicyError(
            f"{name} {format_value(values)} can't be used; give whole numbers from 1 to {high}, ascending, "
            "e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in items)


def check_weights(value: object) -> VoteWeights | None:
    """Vote weights as a constructor takes them."""
    if value is not None and not isinstance(value, VoteWeights):
        raise PolicyError(
            f"weigh {format_value(value)} can't weigh votes; give VoteWeights, or None for plain votes"
        )
    return value


def dump_weights(weigh: VoteWeights | None) -> dict[str, Any] | None:
    """Vote weights as plain data, for JSON."""
    if weigh is None:
        return None
    return {"signal": weigh.signal, "scale": weigh.scale, "sharpness": weigh.sharpness}


def load_weights(value: object) -> VoteWeights | None:
    """The vote weights that `dump_weights` wrote."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"signal", "scale", "sharpness"}:
        raise PolicyError(
            f"weigh {format_value(value)} doesn't say how votes are weighed; it has signal, scale, sharpness"
        )
    return VoteWeights(**value)


def load_settings(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Stored settings, none missing and none unknown, with the vote weights parsed."""
    if missing := sorted(set(names) - set(settings)):
        raise PolicyError(f"setting {missing[0]!r} is missing")
    if unknown := sorted(set(map(str, settings)) - set(names)):
        raise PolicyError(f"setting {unknown[0]!r} is not known; the settings are {', '.join(sorted(names))}")
    loaded = dict(settings)
    if "weigh" in loaded:
        loaded["weigh"] = load_weights(loaded["weigh"])
    return loaded


@contextmanager
def wrap_restore_errors(kind: str) -> Iterator[None]:
    """Turns any fault of stored settings into a PolicyInvalid that names the policy's kind."""
    try:
        yield
    except (AdacomputeError, ArithmeticError, TypeError, ValueError) as exc:
        raise PolicyInvalid(f"these are not the settings of a stored {kind} policy: {exc}") from exc
