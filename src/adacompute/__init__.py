"""Spend a stated average number of LLM samples where they pay, and prove what that buys."""

from adacompute.answers import Tally, Task, Vote, Weigh, extract_answer, same_answer, vote
from adacompute.errors import AdacomputeError
from adacompute.evaluate import Evaluation, evaluate
from adacompute.policies import ClassifierPolicy, CurvePolicy, Policy, StoppingPolicy, load_policy
from adacompute.pool import Ballots, Pool, bundled, bundled_names, export_file, import_file, open_pool
from adacompute.records import AccuracyTable, Allocation, Failure, Frontier, Limit, Problem, Recorded, Sample
from adacompute.replay import Replayed, calibrate, replay
from adacompute.score import Price, Summary, halves, score, summarise
from adacompute.solve import frontier, solve

__version__ = "0.1.0"

__all__ = [
    "AccuracyTable",
    "AdacomputeError",
    "Allocation",
    "Ballots",
    "ClassifierPolicy",
    "CurvePolicy",
    "Evaluation",
    "Failure",
    "Frontier",
    "Limit",
    "Policy",
    "Pool",
    "Price",
    "Problem",
    "Recorded",
    "Replayed",
    "Sample",
    "StoppingPolicy",
    "Summary",
    "Tally",
    "Task",
    "Vote",
    "Weigh",
    "__version__",
    "bundled",
    "bundled_names",
    "calibrate",
    "evaluate",
    "export_file",
    "extract_answer",
    "frontier",
    "halves",
    "import_file",
    "load_policy",
    "open_pool",
    "replay",
    "same_answer",
    "score",
    "solve",
    "summarise",
    "vote",
]
