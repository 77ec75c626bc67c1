"""The table of settings in docs/reference/cli.md is the settings there are."""

import dataclasses
import re
from pathlib import Path

from adacompute.config import Config

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "cli.md"


def test_every_setting_is_documented_with_its_variable_and_default():
    rows = re.findall(
        r"^\| `\[(\w+)\] (\w+)` \| `(\w+)` \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    shown = {(stage, key): (variable, default) for stage, key, variable, default in rows}
    config = Config()
    there = {
        (stage.name, setting.name): (
            f"ADACOMPUTE_{stage.name.upper()}_{setting.name.upper()}",
            toml(getattr(getattr(config, stage.name), setting.name)),
        )
        for stage in dataclasses.fields(config)
        for setting in dataclasses.fields(getattr(config, stage.name))
    }
    assert shown == there


def toml(value: object) -> str:
    return (
        str(list(value))
        if isinstance(value, tuple)
        else f'"{value}"'
        if isinstance(value, str)
        else str(value)
    )
