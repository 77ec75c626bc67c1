"""Describes the format of known datasets: columns, gold answers, prompt and extractor."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import Literal

import msgspec

from adacompute.answers import Task, extract_answer

Columns = Mapping[str, tuple[str, ...]]
# How a row marks the right choice. "numbered": by the choice's letter or index. "named": also by its text.
# "shuffled": the right choice comes first in the row, and we shuffle the choices.
ChoiceFormat = Literal["numbered", "named", "shuffled"]

# field -> names of columns that may contain it, in order of preference
COLUMNS: Columns = MappingProxyType(
    {
        "id": ("id",),
        "question": ("question", "prompt", "problem", "input"),
        "gold": ("gold", "answer", "target"),
        "subject": ("subject", "category", "type"),
        "level": ("level", "difficulty"),
    }
)
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Says which columns a dataset has, how to read its gold answer, and which prompt and extractor fit."""

    name: str
    about: str  # a description of the dataset in a few words
    columns: Columns  # field -> names of columns that may contain it; for fields not given here, see COLUMNS
    template: str
    extract: str
    # extractor that finds the gold answer in its column; "" if the column contains nothing else
    gold: str = ""
    gold_is: str = ""  # what the gold answer's column should contain, for error messages
    choices: ChoiceFormat | None = None  # how a row marks the right choice; None if there are no choices
    # whether a problem keeps the row's other columns; GPQA has fifty about its authors, which aren't kept
    keeps_rest: bool = True
    # name on the hub -> (config or "", split)
    hub: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def read_gold(self, text: str) -> str | None:
        """Extracts the gold answer from the text of its column; None if there is none."""
        answer = extract_answer(text, Task(extract=self.gold))
        return answer if answer is None or self.gold != "hash" else _DIGIT_COMMA.sub("", answer)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        name: msgspec.convert({"name": name, **table}, Preset)
        for name, table in json.loads(
            files("adacompute.problems").joinpath("presets.json").read_text("utf-8")
        ).items()
    }
)
# names of columns that would give the answer away, besides those of the gold answer
_ANSWER_COLUMNS = (
    *("answer index", "cot", "cot content", "correct", "correct answer", "correct option", "explanation"),
    *("expected answer", "final answer", "gold answer", "ground truth", "rationale", "reference answer"),
    *("reference solution", "solution", "worked solution"),
    "metadata",  # reasoning-gym's data for scoring, which contains the answer
)
HUB_NAMES = tuple(name for preset in PRESETS.values() for name in preset.hub)
_BY_HUB = {name.lower(): preset for preset in PRESETS.values() for name in preset.hub}


def find_preset(name: str) -> tuple[Preset, str | None, str] | None:
    """Finds the preset of a dataset on the hub; also returns the usual config and split.

    >>> find_preset("openai/gsm8k")[0].name
    'gsm8k'
    """
    preset = _BY_HUB.get(name.lower())
    if preset is None:
        return None
    config, split = next(default for key, default in preset.hub.items() if key.lower() == name.lower())
    return preset, config or None, split


def reveals_answer(name: str) -> bool:
    """Whether a column probably contains the answer, judging by its name."""
    bare = _simplify_name(name)
    return bare in _REVEALING_NAMES or bare.removesuffix("s") in _REVEALING_NAMES


def _simplify_name(name: str) -> str:
    return name.casefold().replace("_", "").replace(" ", "")


_REVEALING_NAMES = {_simplify_name(name) for name in (*COLUMNS["gold"], *_ANSWER_COLUMNS)} | {
    _simplify_name(name) for preset in PRESETS.values() for name in preset.columns["gold"]
}
