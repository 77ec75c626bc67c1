"""Text -> answer -> class -> vote. Knows nothing of pools, endpoints or policies."""

from adacompute.answers.equal import Classes, classify, same_answer
from adacompute.answers.extract import extract_answer
from adacompute.answers.judge import Judge, close_judge, default_judge, warm_judge
from adacompute.answers.stands import stands_for
from adacompute.answers.task import Task
from adacompute.answers.vote import Tally, Vote, vote
from adacompute.answers.weigh import Weigh

__all__ = [
    "Classes",
    "Judge",
    "Tally",
    "Task",
    "Vote",
    "Weigh",
    "classify",
    "close_judge",
    "default_judge",
    "extract_answer",
    "same_answer",
    "stands_for",
    "vote",
    "warm_judge",
]
