"""Estimates, from recorded samples, the accuracy and cost of each number of samples per problem."""

from adacompute.score.grades import halves
from adacompute.score.pool_summary import MeanEstimate, SourceSummary, Summary, summarise
from adacompute.score.score import ModeColumn, list_columns, score

__all__ = [
    "MeanEstimate",
    "ModeColumn",
    "SourceSummary",
    "Summary",
    "halves",
    "list_columns",
    "score",
    "summarise",
]
