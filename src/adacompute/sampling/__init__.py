"""Drawing samples from an endpoint on purpose: into a pool, or to answer a batch within a budget.

Everything can be resumed at any moment. Knows nothing of terminals.
"""

from adacompute.sampling.answer import Answers, RequestAnswer, answer
from adacompute.sampling.collect import collect
from adacompute.sampling.cost_budget import Prices
from adacompute.sampling.output import check_output, write_answers
from adacompute.sampling.plan import (
    CostEstimate,
    RemainingSamples,
    compute_sample_limit,
    estimate_cost,
    find_remaining,
    find_remaining_within,
)
from adacompute.sampling.sampling_spec import Asking, add_problems, check_problems, check_source
from adacompute.sampling.workers import Collected, CollectProgress

__all__ = [
    "Answers",
    "Asking",
    "CollectProgress",
    "Collected",
    "CostEstimate",
    "Prices",
    "RemainingSamples",
    "RequestAnswer",
    "add_problems",
    "answer",
    "check_output",
    "check_problems",
    "check_source",
    "collect",
    "compute_sample_limit",
    "estimate_cost",
    "find_remaining",
    "find_remaining_within",
    "write_answers",
]
