"""Settings, one frozen dataclass a stage: the only reader of environment and TOML.

Knows nothing of what uses them.

Later wins: the defaults here, the TOML file, the environment (`ADACOMPUTE_ANSWERS_EXTRACT=boxed`), and
then whatever the caller passes on by itself, such as a command's options.
"""

import contextlib
import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from adacompute.errors import ConfigError
from adacompute.records import Secret

__all__ = [
    "AnswersConfig",
    "CollectConfig",
    "Config",
    "EndpointConfig",
    "ScoreConfig",
    "load_config",
    "read_key",
]

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
class EndpointConfig:
    """Which OpenAI-compatible endpoint is asked, how fast, and for how long."""

    url: str = ""  # with its path, e.g. http://127.0.0.1:8081/v1
    model: str = ""  # "": the only one that the endpoint lists
    key_env: str = "ADACOMPUTE_KEY"  # the environment variable that holds the key, if there is one
    key_file: str = ""  # or a file that holds it
    concurrency: int = 32  # calls at the same time, at most
    requests_per_minute: float = 0.0  # 0: no limit
    tokens_per_minute: float = 0.0  # of prompts and responses; 0: no limit
    connect_timeout: float = 10.0  # seconds
    first_byte_timeout: float = 300.0  # seconds
    total_timeout: float = 900.0  # seconds, of one attempt
    attempts: int = 6  # of one call
    deadline: float = 1800.0  # seconds, of one call with all its attempts
    retry_timeouts: bool = False  # ask again after a timeout of what was sent; may be paid for twice
    input_price: float = 0.0  # money for a million prompt tokens
    output_price: float = 0.0  # money for a million response tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """How problems are sampled."""

    samples: int = 48  # of each problem
    temperature: float = 0.7
    max_tokens: int = 1024  # of one response


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, by stage."""

    answers: AnswersConfig = field(default_factory=AnswersConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)


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


def read_key(
    *, env: str = "", file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Secret | None:
    """The key in a file, else in the environment variable `env`; None where there is none."""
    environ = os.environ if environ is None else environ
    if file is None:
        text, place = environ.get(env, ""), f"environment variable {env}"
    else:
        place = f"key file {str(file)!r}"
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is no text"
            raise ConfigError(f"{place} can't be read ({why}); name one that holds the key alone") from exc
        if not text.strip():
            raise ConfigError(f"{place} is empty; put the key in it, or leave it out")
    text = text.strip()
    if not text:
        return None
    if not text.isprintable() or not text.isascii() or " " in text:  # the message doesn't show it
        raise ConfigError(f"{place} holds no key: blanks, line breaks or special characters; give it alone")
    return Secret(text)


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


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
