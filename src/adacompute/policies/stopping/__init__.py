"""Priced stopping: one critical price a state; draw while the price is below it. Knows no network."""

from adacompute.policies.stopping.policy import StoppingPolicy

__all__ = ["StoppingPolicy"]
