"""What recorded samples are worth: accuracy by budget, and its cost. Knows nothing of allocations."""

from typing import TYPE_CHECKING

from adacompute.errors import deprecated_names
from adacompute.records import OldPrice
from adacompute.score.grades import halves
from adacompute.score.pool_summary import MeanEstimate, SourceSummary, Summary, summarise
from adacompute.score.score import score

__all__ = ["MeanEstimate", "SourceSummary", "Summary", "halves", "score", "summarise"]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    __getattr__ = deprecated_names(
        __name__,
        {
            "Estimate": "MeanEstimate",
            "Price": "adacompute.TokenPrices",
        },
        Price=OldPrice,
    )
