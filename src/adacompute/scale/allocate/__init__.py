"""Budgets for a batch of prompts, beforehand, at one price: over Parquet, here or on Ray."""

from adacompute.scale.allocate.allocate import allocate
from adacompute.scale.allocate.record import Allotted

__all__ = ["Allotted", "allocate"]
