"""What recorded samples are worth: accuracy by budget, and its cost. Knows nothing of allocations."""

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
