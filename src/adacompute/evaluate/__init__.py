"""Policies compared at the same average cost, on recorded samples and held-out problems.

Knows nothing of pages, figures or printing.
"""

from adacompute.evaluate.comparison import (
    Evaluation,
    EvaluationRow,
    Imitation,
    Match,
    MatchedCost,
    OracleBracket,
    PolicyPoints,
    Verdict,
    join_points,
    match_cost,
)
from adacompute.evaluate.oracle_bounds import (
    CrossFit,
    OracleComparison,
    UniformAllocation,
    compare_with_uniform,
    cost_for_accuracy,
    cross_fit,
    score_halves,
    solve_uniform,
    uniform_frontier,
)
from adacompute.evaluate.protocols import evaluate
from adacompute.evaluate.resampling import Bootstrap, Interval, OracleGain, paired_interval
from adacompute.evaluate.scored_pool import Scoring

__all__ = [
    "Bootstrap",
    "CrossFit",
    "Evaluation",
    "EvaluationRow",
    "Imitation",
    "Interval",
    "Match",
    "MatchedCost",
    "OracleBracket",
    "OracleComparison",
    "OracleGain",
    "PolicyPoints",
    "Scoring",
    "UniformAllocation",
    "Verdict",
    "compare_with_uniform",
    "cost_for_accuracy",
    "cross_fit",
    "evaluate",
    "join_points",
    "match_cost",
    "paired_interval",
    "score_halves",
    "solve_uniform",
    "uniform_frontier",
]
