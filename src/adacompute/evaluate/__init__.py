"""What an average budget buys, measured so that it can be believed. Knows nothing of serving or printing."""

from adacompute.evaluate.alike import Uniform, cost_for, uniform, uniform_frontier
from adacompute.evaluate.oracle import Compared, Crossfitted, compared, crossfitted, halved

__all__ = [
    "Compared",
    "Crossfitted",
    "Uniform",
    "compared",
    "cost_for",
    "crossfitted",
    "halved",
    "uniform",
    "uniform_frontier",
]
