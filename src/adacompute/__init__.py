"""Spend a stated average number of LLM samples where they pay, and prove what that buys."""

from adacompute.answers import Tally, Task, Vote, Weigh, extract_answer, same_answer, vote
from adacompute.errors import AdacomputeError
from adacompute.pool import (
    Ballots,
    Pool,
    Summary,
    bundled,
    bundled_names,
    export_file,
    import_file,
    open_pool,
    summarise,
)
from adacompute.records import Failure, Problem, Recorded, Sample

__version__ = "0.1.0"

__all__ = [
    "AdacomputeError",
    "Ballots",
    "Failure",
    "Pool",
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
    "import_file",
    "open_pool",
    "same_answer",
    "summarise",
    "vote",
]
