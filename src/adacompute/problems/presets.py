"""How known datasets write their problems. Knows nothing of where the rows come from."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from adacompute.answers import Task, extract_answer

__all__ = ["COLUMNS", "HUB_NAMES", "PRESETS", "Columns", "Preset", "Way", "gives_away", "preset_for"]

Columns = Mapping[str, tuple[str, ...]]
# how the right choice is said: by letter or number from 0; also by its text; or it is first, to be shuffled
Way = Literal["numbered", "named", "shuffled"]

# where each field is looked for without a preset, first found first
COLUMNS: Columns = MappingProxyType(
    {
        "id": ("id",),
        "question": ("question", "prompt", "problem", "input"),
        "gold": ("gold", "answer", "target"),
        "subject": ("subject", "category", "type"),
        "level": ("level", "difficulty"),
    }
)
_BOXED, _HASHED = Task(extract="boxed"), Task(extract="hash")
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")


def _after_hashes(text: str) -> str | None:
    found = extract_answer(text, _HASHED)
    return None if found is None else _DIGIT_COMMA.sub("", found)


def _last_box(text: str) -> str | None:
    return extract_answer(text, _BOXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A dataset's columns, how its gold answer is read, and the prompt and extractor that suit it."""

    name: str
    about: str  # in few words
    columns: Columns  # where each field is looked for; fields not named here as in COLUMNS
    template: str
    extract: str
    gold: Callable[[str], str | None] | None = (
        None  # reads the gold out of its column; None: it is the column
    )
    gold_is: str = ""  # what that column has to hold, for messages
    choices: Way | None = None  # multiple choice, and how the right one is said
    keeps_rest: bool = True  # other columns become the problem's extra
    hub: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)  # name -> (config, split)


_CHOICES = ("choices", "options")
_LIST = [
    Preset(
        name="gsm8k",
        about="grade-school word problems; gold after #### in `answer`",
        columns={"question": ("question",), "gold": ("answer",)},
        template="boxed",
        extract="boxed",
        gold=_after_hashes,
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
        gold=_last_box,
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
        columns={"question": ("question",), "choices": _CHOICES, "gold": ("answer",)},
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
            "choices": _CHOICES,
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

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _LIST})
# other names under which datasets keep the answer, or a text that holds it
_ANSWERS = (
    *("answer index", "cot", "cot content", "correct", "correct answer", "correct option", "explanation"),
    *("expected answer", "final answer", "gold answer", "ground truth", "rationale", "reference answer"),
    *("reference solution", "solution", "worked solution"),
    "metadata",  # of reasoning-gym: what its scorers know
)
HUB_NAMES = tuple(name for preset in _LIST for name in preset.hub)
_BY_HUB = {name.lower(): preset for preset in _LIST for name in preset.hub}


def preset_for(name: str) -> tuple[Preset, str | None, str] | None:
    """The preset of a dataset at the hub, with its usual config and split.

    >>> preset_for("openai/gsm8k")[0].name
    'gsm8k'
    """
    preset = _BY_HUB.get(name.lower())
    if preset is None:
        return None
    config, split = next(found for key, found in preset.hub.items() if key.lower() == name.lower())
    return preset, config, split


def gives_away(name: str) -> bool:
    """Whether a column of this name holds the answer, by what presets and datasets call it.

    >>> gives_away("answerKey"), gives_away("correct_answer"), gives_away("question")
    (True, True, False)
    """
    bare = _bare(name)
    return bare in _GIVEAWAYS or bare.removesuffix("s") in _GIVEAWAYS


def _bare(name: str) -> str:
    return name.casefold().replace("_", "").replace(" ", "")


_GIVEAWAYS = {_bare(name) for name in (*COLUMNS["gold"], *_ANSWERS)} | {
    _bare(name) for preset in _LIST for name in preset.columns["gold"]
}
