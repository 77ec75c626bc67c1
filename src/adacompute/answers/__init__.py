"""From text to answer to class to vote. Knows nothing of pools, endpoints or policies."""

from adacompute.answers.equal import (
    Classes,
    FormulaJudge,
    classify,
    close_judge,
    get_judge,
    same_answer,
    warm_judge,
)
from adacompute.answers.extract import extract_answer
from adacompute.answers.task import Task
from adacompute.answers.vote import Tally, Vote, VoteWeights, pick_representative, vote

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
    "same_answer",
    "vote",
    "warm_judge",
]
