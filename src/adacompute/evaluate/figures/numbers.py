"""What a figure draws as plain data, for results.json. Knows nothing of what the numbers mean."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.exhibits import Spread

__all__ = ["plain"]

_DIGITS = 6  # significant ones: more than a figure shows, and a file can be read


def plain(value: object) -> Any:  # noqa: ANN401
    """Arrays as lists, intervals and spreads by name, six digits, and None for what isn't finite.

    >>> plain({"cost": np.array([1 / 3, np.nan]), "gain": Interval(mean=0.25, low=None, high=math.inf)})
    {'cost': [0.333333, None], 'gain': {'mean': 0.25, 'low': None, 'high': None}}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, str):  # half a character, as JSON can hold it, can't be written
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Interval):
        return plain({"mean": value.mean, "low": value.low, "high": value.high})
    if isinstance(value, Spread):
        return plain({"mean": value.mean, "std": value.std})
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
