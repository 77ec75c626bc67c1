"""Extracts answers from texts, groups equal answers, and counts votes."""

from adacompute.answers.equal import Classes, Task, classify, same_answer
from adacompute.answers.extract import extract_answer, grade_answer, read_answers
from adacompute.answers.judge import FormulaJudge, shared_judge
from adacompute.answers.vote import Tally, Vote, VoteWeights, pick_representative, vote

__all__ = [
    "Classes",
    "FormulaJudge",
    "Tally",
    "Task",
    "Vote",
    "VoteWeights",
    "classify",
    "extract_answer",
    "grade_answer",
    "pick_representative",
    "read_answers",
    "same_answer",
    "shared_judge",
    "vote",
]
