"""Samples drawn by collectors on a cluster, each into a shard of its own, and merged into one pool."""

from adacompute.scale.collect.engine import RayEngine

__all__ = ["RayEngine"]
