"""How known datasets write their problems: columns, gold answers, prompt and extractor."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

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
_BOX_TASK, _HASH_TASK = Task(extract="boxed"), Task(extract="hash")
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")


def _read_hash_gold(text: str) -> str | None:
    answer = extract_answer(text, _HASH_TASK)
    return None if answer is None else _DIGIT_COMMA.sub("", answer)


def _read_boxed_gold(text: str) -> str | None:
    return extract_answer(text, _BOX_TASK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A dataset's columns, how its gold answer is read, and the prompt and extractor that suit it."""

    name: str
    about: str  # a short description
    columns: Columns  # columns that may hold each field; others as in COLUMNS
    template: str
    extract: str
    gold: Callable[[str], str | None] | None = None  # reads gold from its column; None: take it as it is
    gold_is: str = ""  # what that column must hold, for messages
    choices: ChoiceFormat | None = None  # multiple choice, and how the right one is marked
    keeps_rest: bool = True  # other columns become the problem's extra
    hub: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # name -> (config, split)


_CHOICE_COLUMNS = ("choices", "options")
_ALL_PRESETS = [
    Preset(
        name="gsm8k",
        about="grade-school word problems; gold after #### in `answer`",
        columns={"question": ("question",), "gold": ("answer",)},
        template="boxed",
        extract="boxed",
        gold=_read_hash_gold,
        gold_is="a solution that ends with #### and the answer",
        hub={"openai/gsm8k": ("main", "test"), "gsm8k": ("main", "test")},
    ),
    Preset(
        name="math",
        about="competition problems; gold in the last \\boxed{} of `solution`",
        columns={
            "question": ("problem",),
            "gold": ("solution",),
            "subject": ("type", "subject"),
            "level": ("level",),
        },
        template="boxed",
        extract="boxed",
        gold=_read_boxed_gold,
        gold_is="a solution with its answer in \\boxed{}",
        hub={
            "hendrycks/competition_math": (None, "test"),
            "EleutherAI/hendrycks_math": (None, "test"),
            "qwedsacf/competition_math": (None, "train"),
            "DigitalLearningGmbH/MATH-lighteval": ("default", "test"),
        },
    ),
    Preset(
        name="math-500",
        about="500 problems of MATH; gold in `answer`",
        columns={"id": ("unique_id",), "question": ("problem",), "gold": ("answer",)},
        template="boxed",
        extract="boxed",
        hub={"HuggingFaceH4/MATH-500": (None, "test")},
    ),
    Preset(
        name="gpqa",
        about="graduate-level multiple choice; the right choice is shuffled among the wrong ones",
        columns={
            "id": ("Record ID",),
            "question": ("Question",),
            "choices": ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
            "subject": ("Subdomain", "High-level domain"),
            "gold": (),
            "level": (),
        },
        template="choice",
        extract="choice",
        choices="shuffled",
        keeps_rest=False,  # fifty columns about those who wrote and checked the questions
        hub={"Idavidrein/gpqa": ("gpqa_diamond", "train")},
    ),
    Preset(
        name="mmlu",
        about="multiple choice by subject; `answer` is a letter, or a number from 0",
        columns={"question": ("question",), "choices": _CHOICE_COLUMNS, "gold": ("answer",)},
        template="choice",
        extract="choice",
        choices="numbered",
        hub={"cais/mmlu": ("all", "test"), "TIGER-Lab/MMLU-Pro": ("default", "test")},
    ),
    Preset(
        name="multiple-choice",
        about="any multiple choice; the answer is a letter, a number from 0, or the choice itself",
        columns={
            "question": (*COLUMNS["question"], "question_stem"),
            "choices": _CHOICE_COLUMNS,
            "gold": ("gold", "answer", "answerKey", "target"),
        },
        template="choice",
        extract="choice",
        choices="named",
        hub={
            "allenai/ai2_arc": ("ARC-Challenge", "test"),
            "allenai/openbookqa": ("main", "test"),
            "tau/commonsense_qa": (None, "validation"),
        },
    ),
]

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL_PRESETS})
# other column names under which datasets keep the answer, or a text that contains it
_ANSWER_COLUMNS = (
    *("answer index", "cot", "cot content", "correct", "correct answer", "correct option", "explanation"),
    *("expected answer", "final answer", "gold answer", "ground truth", "rationale", "reference answer"),
    *("reference solution", "solution", "worked solution"),
    "metadata",  # reasoning-gym's: what its scorers know
)
HUB_NAMES = tuple(name for preset in _ALL_PRESETS for name in preset.hub)
_BY_HUB = {name.lower(): preset for preset in _ALL_PRESETS for name in preset.hub}


def find_preset(name: str) -> tuple[Preset, str | None, str] | None:
    """The preset of a dataset at the hub, with its usual config and split.

    >>> find_preset("openai/gsm8k")[0].name
    'gsm8k'
    """
    preset = _BY_HUB.get(name.lower())
    if preset is None:
        return None
    config, split = next(default for key, default in preset.hub.items() if key.lower() == name.lower())
    return preset, config, split


def reveals_answer(name: str) -> bool:
    """Whether a column of this name holds the answer, judging by the names of presets and datasets."""
    bare = _simplify_name(name)
    return bare in _REVEALING_NAMES or bare.removesuffix("s") in _REVEALING_NAMES


def _simplify_name(name: str) -> str:
    return name.casefold().replace("_", "").replace(" ", "")


_REVEALING_NAMES = {_simplify_name(name) for name in (*COLUMNS["gold"], *_ANSWER_COLUMNS)} | {
    _simplify_name(name) for preset in _ALL_PRESETS for name in preset.columns["gold"]
}
