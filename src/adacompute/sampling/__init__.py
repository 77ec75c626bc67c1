"""Draws samples from endpoints into a pool, or to answer a batch within a budget.

With one mode, samples come from one endpoint, and a batch's price falls until its budget is spent. With
several, each mode is a source of the pool, and a batch's policy also chooses the mode, within one cap. Runs
can be resumed at any time. Knows nothing about terminals.
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
