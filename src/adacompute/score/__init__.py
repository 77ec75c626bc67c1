"""What recorded samples are worth: accuracy by budget, and its cost. Knows nothing of allocations."""

from adacompute.score.costs import Price
from adacompute.score.score import score
from adacompute.score.split import halves
from adacompute.score.summary import Estimate, SourceSummary, Summary, summarise

__all__ = ["Estimate", "Price", "SourceSummary", "Summary", "halves", "score", "summarise"]
