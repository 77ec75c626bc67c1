"""Decides how many samples each problem gets, from a table of accuracies and costs, and a budget.

Here, a mode is a column of that table: a number of samples, or a model with a number of samples.
Nothing here calls models or reads files.
"""

from adacompute.solve.allocation import solve
from adacompute.solve.constraints import Cap
from adacompute.solve.frontier import Frontier, frontier
from adacompute.solve.pricing import Allocation, averages, best_at, dual

__all__ = ["Allocation", "Cap", "Frontier", "averages", "best_at", "dual", "frontier", "solve"]
