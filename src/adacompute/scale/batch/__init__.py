"""Samples of a model on the cluster's own workers, through Ray Data and its integration of LLM engines."""

from adacompute.scale.batch.engine import VllmEngine
from adacompute.scale.batch.processor import check_vllm

__all__ = ["VllmEngine", "check_vllm"]
