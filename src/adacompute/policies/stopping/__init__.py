"""Priced stopping: draws another sample as long as it is worth its price."""

from adacompute.policies.stopping.policy import StoppingPolicy

__all__ = ["StoppingPolicy"]
