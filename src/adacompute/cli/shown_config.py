"""Settings as they are in effect: TOML that can be read back, each with what it means, or JSON.

Knows nothing of keys: settings name the files and variables that hold them.
"""

import inspect
import json
import re
from dataclasses import asdict, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from adacompute.cli.show import as_json, line
from adacompute.config import Config

__all__ = ["as_toml", "show_config"]

_SECTIONS = ("serve", "endpoint", "answers")  # that the gateway uses
_SETTING = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)


def show_config(config: Config, *, json: bool) -> None:
    """Prints the settings that the gateway uses."""
    config = replace(config, endpoint=replace(config.endpoint, url=_masked(config.endpoint.url)))
    if json:
        as_json({name: asdict(getattr(config, name)) for name in _SECTIONS})
        return
    for text in as_toml(config).splitlines():
        line(text)


def as_toml(config: Config, sections: tuple[str, ...] = _SECTIONS) -> str:
    """Those sections as TOML; reading it gives the same settings."""
    lines: list[str] = []
    for name in sections:
        stage = getattr(config, name)
        meanings = dict(_SETTING.findall(inspect.getsource(type(stage))))
        hints = get_type_hints(type(stage))
        lines += ["", f"[{name}]"] if lines else [f"[{name}]"]
        for setting in fields(stage):
            value = getattr(stage, setting.name)
            told = _told(hints[setting.name], meanings.get(setting.name, ""))
            lines.append(f"{setting.name} = {_value(value)}{told and f'  # {told}'}")
    return "\n".join(lines) + "\n"


def _masked(url: str) -> str:
    """An address without what may be a secret in it; with one it can't be used anyway.

    >>> _masked("http://me:sk-1@host/v1?key=sk-2")
    'http://***@host/v1?***'
    """
    return re.sub(r"\?.*", "?***", re.sub(r"//.*@", "//***@", url))


def _told(hint: Any, meaning: str) -> str:  # noqa: ANN401 - a type hint
    if get_origin(hint) is not Literal:
        return meaning
    choices = ", ".join(map(str, get_args(hint)))
    return f"{choices}; {meaning}" if meaning else choices


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
