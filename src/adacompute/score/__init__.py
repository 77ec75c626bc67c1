"""Estimates accuracy and cost for given numbers of samples, from recorded samples.

Deciding which problem gets how many samples is done elsewhere (`solve`)."""

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
