"""Estimates from recorded samples: how accurate is a vote of 1, 2, 4, ... samples, and what does it cost?"""

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
