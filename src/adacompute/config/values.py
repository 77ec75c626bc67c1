"""What a TOML file or a variable holds, as the type that is wanted. Knows no setting."""

import contextlib
import difflib
import math
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from adacompute.errors import ConfigError

__all__ = ["nearest", "scalar", "toml", "valued"]


def toml(file: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as exc:
        raise ConfigError(f"{what} {str(file)!r} can't be read ({exc.strerror}); name one that can") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{what} {str(file)!r} is not valid TOML ({exc}); mend it there") from exc


def valued(value: object, hint: Any, place: str) -> Any:  # noqa: ANN401 - a type hint, and a value of that type
    """A TOML value or an environment text as the hinted type; an error naming the place where it isn't."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value in args:
            return value
        raise ConfigError(f"{place} is {value!r}; give one of {', '.join(map(str, args))}")
    if origin is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ConfigError(f"{place} is {value!r}; give a list")
        return tuple(valued(item, args[0], place) for item in items)
    return scalar(value, hint, place)


def scalar(value: object, kind: type, place: str) -> Any:  # noqa: ANN401 - a value of that type
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if kind is bool and isinstance(value, str):
        value = {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower(), value)
    elif kind in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = kind(value.strip())
    elif kind is float and type(value) is int:
        value = float(value)
    if type(value) is kind and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    raise ConfigError(f"{place} is {value!r}; give {words[kind]}")


def nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
