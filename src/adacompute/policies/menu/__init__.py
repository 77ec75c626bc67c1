"""A policy over a menu of models and efforts: at one price it stops, asks again, or asks another mode."""

from adacompute.policies.menu.policy import MenuPolicy

__all__ = ["MenuPolicy"]
