"""Estimates accuracy by budget, and its cost, from recorded samples. Knows nothing about allocations."""

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
