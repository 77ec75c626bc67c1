"""Draws samples from endpoints into a pool, or to answer a batch within a budget.

With one mode, samples come from one endpoint. With several, each mode is a separate source in the pool, the
policy also chooses the mode, and one limit on the cost covers all modes. Runs can be resumed at any time.
Nothing here prints to a terminal.
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
