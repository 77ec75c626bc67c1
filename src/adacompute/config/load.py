"""Settings out of a TOML file and the environment. Knows nothing of what any of them means.

Later wins: the defaults of each stage, the TOML file, the environment (`ADACOMPUTE_ANSWERS_EXTRACT=boxed`),
and then whatever the caller passes on by itself, such as a command's options.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from adacompute.config.stages import Config
from adacompute.config.values import nearest, toml, valued
from adacompute.errors import ConfigError

__all__ = ["load_config"]

FILE = "adacompute.toml"
PREFIX = "ADACOMPUTE_"


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
    data = toml(file, "settings file")
    known = [f.name for f in fields(Config)]
    for name, table in data.items():
        if name not in known or not isinstance(table, dict):
            raise ConfigError(f"{file}: unknown section {name!r}{nearest(name, known)}")
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
            raise ConfigError(f"{place}: unknown setting {key!r}{nearest(key, list(hints))}")
        values[key] = valued(value, hints[key], f"{place}: {key}")
    try:
        return kind(**values)
    except ConfigError as exc:
        given = dict.fromkeys(places[name, key] for key in table)  # settings that don't go together
        raise ConfigError(f"{' and '.join(given)}: {exc}") from exc
