"""Compares policies at equal average cost, on recorded samples and held-out problems.

With one mode, policies are compared with uniform sampling. With several modes, a policy over all of them is
compared with each mode alone, mixes of modes, routers and cascades.
"""

from adacompute.evaluate.comparison import (
    Evaluation,
    Match,
    Verdict,
    VerdictRow,
    join_points,
    match_cost,
)
from adacompute.evaluate.oracle_bounds import (
    CrossFit,
    OracleComparison,
    Scoring,
    UniformAllocation,
    bracket_modes,
    compare_with_uniform,
    cost_for_accuracy,
    cross_fit,
    score_halves,
    solve_uniform,
    uniform_frontier,
)
from adacompute.evaluate.protocols import evaluate
from adacompute.evaluate.resampling import OracleGain, paired_interval
from adacompute.evaluate.verdict import judge_pool
from adacompute.replay.matching import Bootstrap, Interval, MatchedCost, PolicyPoints

__all__ = [
    "Bootstrap",
    "CrossFit",
    "Evaluation",
    "Interval",
    "Match",
    "MatchedCost",
    "OracleComparison",
    "OracleGain",
    "PolicyPoints",
    "Scoring",
    "UniformAllocation",
    "Verdict",
    "VerdictRow",
    "bracket_modes",
    "compare_with_uniform",
    "cost_for_accuracy",
    "cross_fit",
    "evaluate",
    "join_points",
    "judge_pool",
    "match_cost",
    "paired_interval",
    "score_halves",
    "solve_uniform",
    "uniform_frontier",
]
