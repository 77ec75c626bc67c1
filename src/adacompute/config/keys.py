"""Keys, out of files and the environment: an upstream's, and those that clients are known by.

No message shows one. Knows nothing of who uses them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adacompute.config.values import nearest, scalar, toml
from adacompute.errors import ConfigError
from adacompute.records import Secret

__all__ = ["KeyConfig", "read_key", "read_keys"]

SHORTEST = 16  # characters of a key that clients are known by

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # of a key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """A key that a client of the gateway is known by: one section of the keys file."""

    name: str
    key: Secret
    cap: float | None = None  # on its spending, in the gateway's unit; None: the gateway's key_cap
    operator: bool = False  # may see the dashboard and metrics


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


def read_keys(file: Path, *, environ: Mapping[str, str] | None = None) -> tuple[KeyConfig, ...]:
    """The keys that clients of the gateway are known by: a section each, named after whose it is.

    Each has `key`, or in `key_env` the environment variable that holds it, and may have `cap` and `operator`.
    """
    environ = os.environ if environ is None else environ
    found: dict[Secret, KeyConfig] = {}
    for name, table in toml(file, "keys file").items():
        if not isinstance(table, dict):  # not named: it may be the key itself
            raise ConfigError(
                f"{file}: a line stands before the first section; begin with [NAME], then key ="
            )
        key = _key_of(f"{file}, [{name}]", name, table, environ)
        if key.key in found:
            raise ConfigError(f"{file}, [{name}]: has the key of [{found[key.key].name}]; give it its own")
        found[key.key] = key
    if not found:
        raise ConfigError(f'{file}: holds no key; add a section such as [alice] with key = "..."')
    return tuple(found.values())


def _key_of(place: str, name: str, table: dict[str, Any], environ: Mapping[str, str]) -> KeyConfig:
    known = ["key", "key_env", "cap", "operator"]
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: the name of a key is 1 to 64 of A-Z a-z 0-9 _ . -; rename the section")
    for setting in table:
        if setting not in known:
            raise ConfigError(f"{place}: unknown setting {setting!r}{nearest(setting, known)}")
    if ("key" in table) == ("key_env" in table):
        raise ConfigError(f"{place}: give either key or key_env, the variable that holds the key")
    variable = scalar(table.get("key_env", ""), str, f"{place}: key_env")
    text = environ.get(variable, "").strip() if "key_env" in table else table["key"]
    source = f"environment variable {variable}" if "key_env" in table else "key"
    if "key_env" in table and not text:
        raise ConfigError(f"{place}: {source} (key_env) is not set; set it to the key, or give key instead")
    if not isinstance(text, str) or len(text) < SHORTEST:  # no message shows it
        raise ConfigError(
            f"{place}: {source} has fewer than {SHORTEST} characters; make one with `openssl rand -hex 24`"
        )
    if not text.isprintable() or not text.isascii() or " " in text:
        raise ConfigError(
            f"{place}: {source} has blanks or special characters; make one with `openssl rand -hex 24`"
        )
    cap = None if "cap" not in table else scalar(table["cap"], float, f"{place}: cap")
    if cap is not None and cap <= 0.0:
        raise ConfigError(f"{place}: cap is {cap:g}; give a number above 0, or leave it out")
    operator = scalar(table.get("operator", False), bool, f"{place}: operator")
    return KeyConfig(name=name, key=Secret(text), cap=cap, operator=operator)
