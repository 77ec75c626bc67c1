"""Settings, one frozen dataclass a stage: the only reader of environment and TOML.

Knows nothing of what uses them.

Later wins: the defaults here, the TOML file, the environment (`ADACOMPUTE_ANSWERS_EXTRACT=boxed`), and
then whatever the caller passes on by itself, such as a command's options.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from adacompute.errors import ConfigError

__all__ = ["AnswersConfig", "Config", "ScoreConfig", "load_config"]

FILE = "adacompute.toml"
PREFIX = "ADACOMPUTE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """How answers are read out of responses, and compared."""

    extract: str = "auto"  # auto, boxed, phrase, line, hash, number, choice, json:FIELD, regex:PATTERN
    percent: Literal["unit", "fraction"] = "unit"  # is 50% the same as 50, or as 0.5?


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig:
    """Which budgets recorded samples are scored at."""

    budgets: tuple[int, ...] = (1, 2, 4, 8, 16)  # samples a vote, ascending

    def __post_init__(self) -> None:
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ConfigError(
                f"budgets {list(self.budgets)} can't be used; give whole numbers from 1 up, ascending, "
                "each once, e.g. 1,2,4,8,16"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, by stage."""

    answers: AnswersConfig = field(default_factory=AnswersConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)


def load_config(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Config:
    """Settings from a TOML file and the environment.

    Without `path`: the file that `ADACOMPUTE_CONFIG` names, else `adacompute.toml` here, else none.
    `environ` stands for the process's own environment.
    """
    environ = os.environ if environ is None else environ
    file = path or (Path(named) if (named := environ.get(PREFIX + "CONFIG")) else None)
    if file is None and Path(FILE).is_file():
        file = Path(FILE)
    tables = {} if file is None else _read_toml(file)
    places = {(stage, key): f"{file}, [{stage}]" for stage, table in tables.items() for key in table}
    for variable, text in environ.items():
        if (target := _variable_target(variable)) is not None:
            stage, key = target
            tables.setdefault(stage, {})[key] = text
            places[target] = f"environment variable {variable}"
    stages = {name: hint for name, hint in get_type_hints(Config).items() if name in tables}
    return Config(**{name: _stage(name, hint, tables[name], places) for name, hint in stages.items()})


def _read_toml(file: Path) -> dict[str, dict[str, Any]]:
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except OSError as exc:
        raise ConfigError(
            f"settings file {str(file)!r} can't be read ({exc.strerror}); name one that can"
        ) from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"settings file {str(file)!r} is not valid TOML ({exc}); mend it there") from exc
    known = [f.name for f in fields(Config)]
    for name, table in data.items():
        if name not in known or not isinstance(table, dict):
            raise ConfigError(f"{file}: unknown section {name!r}{_nearest(name, known)}")
    return data


def _variable_target(variable: str) -> tuple[str, str] | None:
    """`ADACOMPUTE_ANSWERS_EXTRACT` -> ("answers", "extract"); None for what names no stage of ours."""
    for stage in fields(Config):
        head = f"{PREFIX}{stage.name.upper()}_"
        if variable.startswith(head):
            return stage.name, variable[len(head) :].lower()
    return None


def _stage(name: str, kind: type, table: dict[str, Any], places: dict[tuple[str, str], str]) -> Any:  # noqa: ANN401 - one of the dataclasses above
    hints = get_type_hints(kind)
    values = {}
    for key, value in table.items():
        place = places[name, key]
        if key not in hints:
            raise ConfigError(f"{place}: unknown setting {key!r}{_nearest(key, list(hints))}")
        values[key] = _value(value, hints[key], f"{place}: {key}")
    try:
        return kind(**values)
    except ConfigError as exc:
        given = dict.fromkeys(places[name, key] for key in table)  # settings that don't go together
        raise ConfigError(f"{' and '.join(given)}: {exc}") from exc


def _value(value: object, hint: Any, place: str) -> Any:  # noqa: ANN401 - a type hint, and a value of that type
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
        return tuple(_value(item, args[0], place) for item in items)
    return _scalar(value, hint, place)


def _scalar(value: object, kind: type, place: str) -> Any:  # noqa: ANN401 - a value of that type
    words = {int: "a whole number", str: "a text"}
    if kind is int and isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            pass
    if type(value) is kind:
        return value
    raise ConfigError(f"{place} is {value!r}; give {words[kind]}")


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
