"""Prompt -> numbers, the same when training and serving. Knows nothing of policies, pools or the network."""

from adacompute.features.text import ENTROPY, KINDS, LIMIT, NAMES, features, normalised

__all__ = ["ENTROPY", "KINDS", "LIMIT", "NAMES", "features", "normalised"]
