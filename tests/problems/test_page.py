"""docs/collect.md names the presets, columns and templates there are."""

import re
from pathlib import Path

from adacompute.problems import PRESETS, template_names
from adacompute.problems.presets import COLUMNS

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "collect.md").read_text("utf-8")


def test_the_table_of_presets_is_the_presets_there_are():
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| `([\w-]+)` \| `([\w-]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    shown = {
        name: (template, extract, set(re.findall(r"`([^`]+)`", hub))) for name, template, extract, hub in rows
    }
    shown["gpqa"][2].discard("gpqa_diamond")
    there = {name: (preset.template, preset.extract, set(preset.hub)) for name, preset in PRESETS.items()}
    assert shown == there


def test_the_table_of_columns_is_where_fields_are_looked_for():
    part = PAGE[PAGE.index("## Columns") : PAGE.index("## Presets")]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", part, re.MULTILINE)
    assert {field: tuple(re.findall(r"`(\w+)`", names)) for field, names in rows} == dict(COLUMNS)


def test_every_template_is_named():
    assert [name for name in template_names() if f"'{name}'" not in PAGE] == []
