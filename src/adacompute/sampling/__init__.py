"""Drawing samples from endpoints on purpose: into a pool, or to answer a batch within a budget.

Everything can be resumed at any moment. Knows nothing of terminals.
"""

from adacompute.sampling.answer import (
    Answers,
    RequestAnswer,
    answer,
    check_output,
    choose_modes,
    compute_limit,
    count_prices,
    estimate_plan_menu,
    parse_batch_budget,
    write_answers,
)
from adacompute.sampling.collect import Collected, SourcePlan, build_plan, collect
from adacompute.sampling.mode_check import ModeCheck, check_modes
from adacompute.sampling.plan import (
    Asking,
    CostEstimate,
    RemainingSamples,
    add_problems,
    check_problems,
    check_source,
    choose_unit_prices,
    compute_batch_spent,
    compute_sample_limit,
    estimate_cost,
    find_remaining,
    find_remaining_within,
)
from adacompute.sampling.workers import CollectProgress

__all__ = [
    "Answers",
    "Asking",
    "CollectProgress",
    "Collected",
    "CostEstimate",
    "ModeCheck",
    "RemainingSamples",
    "RequestAnswer",
    "SourcePlan",
    "add_problems",
    "answer",
    "build_plan",
    "check_modes",
    "check_output",
    "check_problems",
    "check_source",
    "choose_modes",
    "choose_unit_prices",
    "collect",
    "compute_batch_spent",
    "compute_limit",
    "compute_sample_limit",
    "count_prices",
    "estimate_cost",
    "estimate_plan_menu",
    "find_remaining",
    "find_remaining_within",
    "parse_batch_budget",
    "write_answers",
]
