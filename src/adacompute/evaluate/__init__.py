"""What an average budget buys, measured so that it can be believed. Knows nothing of serving or printing."""

from adacompute.evaluate.alike import Uniform, cost_for, uniform, uniform_frontier
from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.difference import Difference, paired
from adacompute.evaluate.matched import Matched, Points, joined, matched
from adacompute.evaluate.oracle import Compared, Crossfitted, compared, crossfitted, halved
from adacompute.evaluate.protocols import evaluate
from adacompute.evaluate.rows import Bracket, Evaluation, Imitation, Match, Row, Verdict
from adacompute.evaluate.scoring import Scoring

__all__ = [
    "Bootstrap",
    "Bracket",
    "Compared",
    "Crossfitted",
    "Difference",
    "Evaluation",
    "Imitation",
    "Interval",
    "Match",
    "Matched",
    "Points",
    "Row",
    "Scoring",
    "Uniform",
    "Verdict",
    "compared",
    "cost_for",
    "crossfitted",
    "evaluate",
    "halved",
    "joined",
    "matched",
    "paired",
    "uniform",
    "uniform_frontier",
]
