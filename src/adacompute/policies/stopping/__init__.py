"""Priced stopping: draws another sample as long as its expected gain in accuracy is worth its price."""

from adacompute.policies.stopping.policy import StoppingPolicy

__all__ = ["StoppingPolicy"]
