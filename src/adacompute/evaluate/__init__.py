"""Policies compared at the same average cost, on recorded samples and held-out problems.

Knows nothing of pages, figures or printing.
"""

from typing import TYPE_CHECKING, Any

from adacompute.errors import deprecated_names
from adacompute.evaluate.comparison import (
    Evaluation,
    EvaluationRow,
    Imitation,
    Match,
    MatchedCost,
    OracleBracket,
    PolicyPoints,
    Verdict,
    VerdictRow,
    join_points,
    match_cost,
)
from adacompute.evaluate.menu_evaluation import MenuEvaluation, MenuRow, evaluate_menu
from adacompute.evaluate.oracle_bounds import (
    CrossFit,
    OracleComparison,
    Pair,
    Scoring,
    UniformAllocation,
    bracket_menu_oracle,
    compare_with_uniform,
    cost_for_accuracy,
    cross_fit,
    score_halves,
    score_menu_halves,
    solve_uniform,
    uniform_frontier,
)
from adacompute.evaluate.protocols import evaluate
from adacompute.evaluate.resampling import Bootstrap, Interval, OracleGain, paired_interval
from adacompute.evaluate.verdict import judge_pool
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable

__all__ = [
    "Bootstrap",
    "CrossFit",
    "Evaluation",
    "EvaluationRow",
    "Imitation",
    "Interval",
    "Match",
    "MatchedCost",
    "MenuEvaluation",
    "MenuRow",
    "OracleBracket",
    "OracleComparison",
    "OracleGain",
    "PolicyPoints",
    "Scoring",
    "UniformAllocation",
    "Verdict",
    "VerdictRow",
    "bracket_menu_oracle",
    "compare_with_uniform",
    "cost_for_accuracy",
    "cross_fit",
    "evaluate",
    "evaluate_menu",
    "join_points",
    "judge_pool",
    "match_cost",
    "paired_interval",
    "score_halves",
    "score_menu_halves",
    "solve_uniform",
    "uniform_frontier",
]


def _score_halves_by_how(
    ballots: Ballots,
    table: AccuracyTable,
    *,
    how: Scoring,
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[Pair, ...]:
    """`score_halves` with the old name of its argument `scoring`."""
    return score_halves(ballots, table, scoring=how, **options)


if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    __getattr__ = deprecated_names(
        __name__,
        {
            "Bracket": "OracleBracket",
            "Compared": "OracleComparison",
            "Crossfitted": "CrossFit",
            "Difference": "OracleGain",
            "Matched": "MatchedCost",
            "Points": "PolicyPoints",
            "Row": "EvaluationRow",
            "Uniform": "UniformAllocation",
            "compared": "compare_with_uniform",
            "cost_for": "cost_for_accuracy",
            "crossfitted": "cross_fit",
            "halved": "score_halves",
            "joined": "join_points",
            "matched": "match_cost",
            "paired": "paired_interval",
            "uniform": "solve_uniform",
        },
        halved=_score_halves_by_how,
    )
