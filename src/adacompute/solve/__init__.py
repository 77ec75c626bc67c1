"""From an accuracy table and a budget to a frontier and an allocation. Knows no models or files."""

from adacompute.solve.allocation import solve
from adacompute.solve.constraints import Cap
from adacompute.solve.frontier import Frontier, frontier
from adacompute.solve.pricing import Allocation, averages, best_at, dual

__all__ = ["Allocation", "Cap", "Frontier", "averages", "best_at", "dual", "frontier", "solve"]
