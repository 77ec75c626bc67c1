"""Priced stopping: draw while the price of a sample is below the state's critical price."""

from adacompute.policies.stopping.policy import StoppingPolicy

__all__ = ["StoppingPolicy"]
