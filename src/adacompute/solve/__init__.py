"""Accuracy table and budget -> frontier and allocation. Knows nothing of models, prompts or files."""

from adacompute.solve.allocation import solve
from adacompute.solve.frontier import frontier
from adacompute.solve.pricing import averages, best_at, dual

__all__ = ["averages", "best_at", "dual", "frontier", "solve"]
