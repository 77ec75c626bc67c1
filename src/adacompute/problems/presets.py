"""How known datasets write their problems: columns, gold answers, prompt and extractor."""

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
# how the right choice is marked: by letter or index; also by its text; by coming first, before shuffling
ChoiceFormat = Literal["numbered", "named", "shuffled"]

# column names to try for each field, in order of preference
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
    """A dataset's columns, how to read its gold answer, and the prompt and extractor to use."""

    name: str
    about: str  # the dataset in a few words
    columns: Columns  # column names to try for each field; COLUMNS has the others
    template: str
    extract: str
    gold: str = ""  # extractor for the gold answer in its column; "": none
    gold_is: str = ""  # what the gold answer's column contains, for messages
    choices: ChoiceFormat | None = None  # how the right choice is marked; None: no choices
    # whether other columns are kept with a problem; GPQA has fifty about its authors
    keeps_rest: bool = True
    hub: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # hub name -> (config or "", split)

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
# further names of columns that contain the answer
_ANSWER_COLUMNS = (
    *("answer index", "cot", "cot content", "correct", "correct answer", "correct option", "explanation"),
    *("expected answer", "final answer", "gold answer", "ground truth", "rationale", "reference answer"),
    *("reference solution", "solution", "worked solution"),
    "metadata",  # holds answers: reasoning-gym's data for its scorers
)
HUB_NAMES = tuple(name for preset in PRESETS.values() for name in preset.hub)
_BY_HUB = {name.lower(): preset for preset in PRESETS.values() for name in preset.hub}


def find_preset(name: str) -> tuple[Preset, str | None, str] | None:
    """Finds the preset of a dataset on the hub, with the usual config and split.

    >>> find_preset("openai/gsm8k")[0].name
    'gsm8k'
    """
    preset = _BY_HUB.get(name.lower())
    if preset is None:
        return None
    config, split = next(default for key, default in preset.hub.items() if key.lower() == name.lower())
    return preset, config or None, split


def reveals_answer(name: str) -> bool:
    """Whether a column contains the answer, judging by its name."""
    bare = _simplify_name(name)
    return bare in _REVEALING_NAMES or bare.removesuffix("s") in _REVEALING_NAMES


def _simplify_name(name: str) -> str:
    return name.casefold().replace("_", "").replace(" ", "")


_REVEALING_NAMES = {_simplify_name(name) for name in (*COLUMNS["gold"], *_ANSWER_COLUMNS)} | {
    _simplify_name(name) for preset in PRESETS.values() for name in preset.columns["gold"]
}
