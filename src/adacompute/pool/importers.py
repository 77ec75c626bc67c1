"""Logs of other tools by name. Knows nothing of how each is laid out."""

from collections.abc import Callable, Mapping
from pathlib import Path

from adacompute.pool.inspect_log import inspect_reading
from adacompute.pool.lm_eval import lm_eval_reading
from adacompute.pool.reading import Reading

__all__ = ["FORMATS"]

FORMATS: Mapping[str, Callable[[Path], Reading]] = {"lm-eval": lm_eval_reading, "inspect": inspect_reading}
