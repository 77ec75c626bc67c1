"""Drawing samples from an endpoint on purpose: into a pool, or to answer a batch within a budget.

Everything can be resumed at any moment. Knows nothing of terminals.
"""

from adacompute.sampling.answer import (
    Answers,
    RequestAnswer,
    answer,
    check_output,
    check_single_mode,
    compute_limit,
    estimate_plan_menu,
    parse_batch_budget,
    parse_money_budget,
    write_answers,
)
from adacompute.sampling.collect import Collected, collect
from adacompute.sampling.menu_collection import (
    CollectedMenu,
    ModeCheck,
    ModePlan,
    build_mode_plan,
    check_modes,
    collect_menu,
)
from adacompute.sampling.plan import (
    Asking,
    CostEstimate,
    RemainingSamples,
    add_problems,
    check_problems,
    check_source,
    choose_unit_prices,
    compute_sample_limit,
    estimate_cost,
    find_remaining,
    find_remaining_within,
)
from adacompute.sampling.workers import CollectProgress, compute_batch_spent

__all__ = [
    "Answers",
    "Asking",
    "CollectProgress",
    "Collected",
    "CollectedMenu",
    "CostEstimate",
    "ModeCheck",
    "ModePlan",
    "RemainingSamples",
    "RequestAnswer",
    "add_problems",
    "answer",
    "build_mode_plan",
    "check_modes",
    "check_output",
    "check_problems",
    "check_single_mode",
    "check_source",
    "choose_unit_prices",
    "collect",
    "collect_menu",
    "compute_batch_spent",
    "compute_limit",
    "compute_sample_limit",
    "estimate_cost",
    "estimate_plan_menu",
    "find_remaining",
    "find_remaining_within",
    "parse_batch_budget",
    "parse_money_budget",
    "write_answers",
]
