"""Spend a stated average number of LLM samples where they pay, and prove what that buys."""

from adacompute.answers import Tally, Task, Vote, Weigh, extract_answer, same_answer, vote
from adacompute.errors import AdacomputeError
from adacompute.pool import Ballots, Pool, bundled, bundled_names, export_file, import_file, open_pool
from adacompute.records import AccuracyTable, Allocation, Failure, Frontier, Limit, Problem, Recorded, Sample
from adacompute.score import Price, Summary, halves, score, summarise
from adacompute.solve import frontier, solve

__version__ = "0.1.0"

__all__ = [
    "AccuracyTable",
    "AdacomputeError",
    "Allocation",
    "Ballots",
    "Failure",
    "Frontier",
    "Limit",
    "Pool",
    "Price",
    "Problem",
    "Recorded",
    "Sample",
    "Summary",
    "Tally",
    "Task",
    "Vote",
    "Weigh",
    "__version__",
    "bundled",
    "bundled_names",
    "export_file",
    "extract_answer",
    "frontier",
    "halves",
    "import_file",
    "open_pool",
    "same_answer",
    "score",
    "solve",
    "summarise",
    "vote",
]
