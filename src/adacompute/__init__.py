"""Spend a stated average number of LLM samples where they pay, and prove what that buys."""

from adacompute.answers import Tally, Task, Vote, VoteWeights, extract_answer, same_answer, vote
from adacompute.client import Endpoint, RateLimits
from adacompute.client.local import local_model
from adacompute.errors import AdacomputeError
from adacompute.evaluate import Evaluation, evaluate
from adacompute.policies import ClassifierPolicy, CurvePolicy, Policy, StoppingPolicy, load_policy
from adacompute.pool import Ballots, Pool, bundled_names, export_file, import_file, open_pool, bundled
from adacompute.problems import Template, read_problems
from adacompute.records import AccuracyTable, Allocation, Cap, Failure, Frontier, Problem, Recorded, Sample
from adacompute.replay import Replayed, calibrate, replay
from adacompute.sampling import Answers, Asking, Collected, Prices, answer, collect, write_answers
from adacompute.score import Price, Summary, halves, score, summarise
from adacompute.solve import frontier, solve

__version__ = "0.1.0"

__all__ = [
    "AccuracyTable",
    "AdacomputeError",
    "Allocation",
    "Answers",
    "Asking",
    "Ballots",
    "Cap",
    "ClassifierPolicy",
    "Collected",
    "CurvePolicy",
    "Endpoint",
    "Evaluation",
    "Failure",
    "Frontier",
    "Policy",
    "Pool",
    "Price",
    "Prices",
    "Problem",
    "RateLimits",
    "Recorded",
    "Replayed",
    "Sample",
    "StoppingPolicy",
    "Summary",
    "Tally",
    "Task",
    "Template",
    "Vote",
    "VoteWeights",
    "__version__",
    "answer",
    "bundled",
    "bundled_names",
    "calibrate",
    "collect",
    "evaluate",
    "export_file",
    "extract_answer",
    "frontier",
    "halves",
    "import_file",
    "load_policy",
    "local_model",
    "open_pool",
    "read_problems",
    "replay",
    "same_answer",
    "score",
    "solve",
    "summarise",
    "vote",
    "write_answers",
]
