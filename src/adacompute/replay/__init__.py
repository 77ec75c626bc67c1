"""A policy over recorded samples, as if live. Knows nothing of protocols, folds or what a result means."""

from adacompute.replay.paths import Paths, paths

__all__ = ["Paths", "paths"]
