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
# the right choice is a letter or a number from 0; also its text; or the first one, to be shuffled
ChoiceFormat = Literal["numbered", "named", "shuffled"]

# the columns that may hold each field without a preset, in order of preference
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
    """A dataset's columns, how its gold answer is read, and the prompt and extractor that suit it."""

    name: str
    about: str  # a short description
    columns: Columns  # columns that may hold each field; others as in COLUMNS
    template: str
    extract: str
    gold: str = ""  # the extractor that reads gold from its column; "": take it as it is
    gold_is: str = ""  # what that column must hold, for messages
    choices: ChoiceFormat | None = None  # multiple choice, and how the right one is marked
    keeps_rest: bool = True  # other columns become the problem's extra; of GPQA, fifty about its authors
    hub: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (config or "", split)

    def read_gold(self, text: str) -> str | None:
        """The gold answer in the text of its column; None where it states none."""
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
# other column names under which datasets keep the answer, or a text that contains it
_ANSWER_COLUMNS = (
    *("answer index", "cot", "cot content", "correct", "correct answer", "correct option", "explanation"),
    *("expected answer", "final answer", "gold answer", "ground truth", "rationale", "reference answer"),
    *("reference solution", "solution", "worked solution"),
    "metadata",  # reasoning-gym's: what its scorers know
)
HUB_NAMES = tuple(name for preset in PRESETS.values() for name in preset.hub)
_BY_HUB = {name.lower(): preset for preset in PRESETS.values() for name in preset.hub}


def find_preset(name: str) -> tuple[Preset, str | None, str] | None:
    """The preset of a dataset at the hub, with its usual config and split.

    >>> find_preset("openai/gsm8k")[0].name
    'gsm8k'
    """
    preset = _BY_HUB.get(name.lower())
    if preset is None:
        return None
    config, split = next(default for key, default in preset.hub.items() if key.lower() == name.lower())
    return preset, config or None, split


def reveals_answer(name: str) -> bool:
    """Whether a column of this name holds the answer, judging by the names of presets and datasets."""
    bare = _simplify_name(name)
    return bare in _REVEALING_NAMES or bare.removesuffix("s") in _REVEALING_NAMES


def _simplify_name(name: str) -> str:
    return name.casefold().replace("_", "").replace(" ", "")


_REVEALING_NAMES = {_simplify_name(name) for name in (*COLUMNS["gold"], *_ANSWER_COLUMNS)} | {
    _simplify_name(name) for preset in PRESETS.values() for name in preset.columns["gold"]
}
