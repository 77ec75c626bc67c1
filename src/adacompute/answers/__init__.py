"""From text to answer to class to vote. Knows nothing of pools, endpoints or policies."""

from typing import TYPE_CHECKING

from adacompute.answers.equal import (
    Classes,
    FormulaJudge,
    classify,
    close_judge,
    get_judge,
    same_answer,
    warm_judge,
)
from adacompute.answers.extract import extract_answer, read_answers
from adacompute.answers.task import Task
from adacompute.answers.vote import Tally, Vote, VoteWeights, pick_representative, vote
from adacompute.errors import deprecated_names

__all__ = [
    "Classes",
    "FormulaJudge",
    "Tally",
    "Task",
    "Vote",
    "VoteWeights",
    "classify",
    "close_judge",
    "extract_answer",
    "get_judge",
    "pick_representative",
    "read_answers",
    "same_answer",
    "vote",
    "warm_judge",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    __getattr__ = deprecated_names(
        __name__,
        {
            "Judge": "FormulaJudge",
            "Weigh": "VoteWeights",
            "default_judge": "get_judge",
            "stands_for": "pick_representative",
        },
    )
