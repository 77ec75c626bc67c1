"""The records that pass between rooms: frozen, named fields with units. Knows nothing of files or models."""

from adacompute.records.calls import Account, Call, Paid
from adacompute.records.plan import Allocation, Frontier, Limit, LimitUse, Mix, Move, Trace, at_least
from adacompute.records.samples import Failure, Problem, Recorded, Sample
from adacompute.records.secret import Secret
from adacompute.records.table import AccuracyTable

__all__ = [
    "Account",
    "AccuracyTable",
    "Allocation",
    "Call",
    "Failure",
    "Frontier",
    "Limit",
    "LimitUse",
    "Mix",
    "Move",
    "Paid",
    "Problem",
    "Recorded",
    "Sample",
    "Secret",
    "Trace",
    "at_least",
]
