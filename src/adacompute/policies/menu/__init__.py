"""Stop, ask again, or ask another mode: one policy over a menu of models and efforts, at one price."""

from adacompute.policies.menu.policy import MenuPolicy

__all__ = ["MenuPolicy"]
