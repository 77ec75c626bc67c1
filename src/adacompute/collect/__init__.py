"""Samples from an endpoint into a pool, resumable at any moment. Knows nothing of policies."""

from adacompute.collect.asking import Asking
from adacompute.collect.collect import collect
from adacompute.collect.estimate import Estimate, estimate
from adacompute.collect.left import Left, left_of
from adacompute.collect.outcome import Collected, Progress
from adacompute.collect.purse import Prices
from adacompute.collect.source import admit, check_problems, check_source

__all__ = [
    "Asking",
    "Collected",
    "Estimate",
    "Left",
    "Prices",
    "Progress",
    "admit",
    "check_problems",
    "check_source",
    "collect",
    "estimate",
    "left_of",
]
