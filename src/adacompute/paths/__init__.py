"""Recorded samples in random orders, tallied after each draw, as if live. Knows nothing of policies."""

from adacompute.paths.paths import Paths, full_vote, paths, paths_of_orders
from adacompute.paths.standing import Standing

__all__ = ["Paths", "Standing", "full_vote", "paths", "paths_of_orders"]
