"""Draws samples from endpoints into a pool, or to answer a batch within a budget.

Each mode is a separate source of samples in the pool. One limit on the cost covers all modes. An interrupted
run can be resumed. Nothing here prints to a terminal.
"""

from adacompute.sampling.answer import Answers, answer
from adacompute.sampling.answer_file import RequestAnswer, check_output, write_answers
from adacompute.sampling.collect import Collected, SourcePlan, build_plan, collect
from adacompute.sampling.plan import Asking
from adacompute.sampling.workers import CollectProgress

__all__ = [
    "Answers",
    "Asking",
    "CollectProgress",
    "Collected",
    "RequestAnswer",
    "SourcePlan",
    "answer",
    "build_plan",
    "check_output",
    "collect",
    "write_answers",
]
