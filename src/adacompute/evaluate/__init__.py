"""What an average budget buys, measured so that it can be believed. Knows nothing of serving or printing."""

from adacompute.evaluate.alike import Uniform, cost_for, uniform, uniform_frontier
from adacompute.evaluate.difference import Difference, paired
from adacompute.evaluate.oracle import Compared, Crossfitted, compared, crossfitted, halved
from adacompute.evaluate.scoring import Scoring

__all__ = [
    "Compared",
    "Crossfitted",
    "Difference",
    "Scoring",
    "Uniform",
    "compared",
    "cost_for",
    "crossfitted",
    "halved",
    "paired",
    "uniform",
    "uniform_frontier",
]
