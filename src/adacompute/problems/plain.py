"""Values as plain JSON data. Knows nothing of problems or files."""

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping
from enum import Enum
from typing import Any

from adacompute.pool.content import DEPTH_LIMIT, Json
from adacompute.pool.flaw import Flaw, shown

__all__ = ["plain"]

_TEXTS = decimal.Decimal | uuid.UUID | datetime.timedelta


def plain(value: Any, where: str, depth: int = 0) -> Json:  # noqa: ANN401 - whatever a library gives
    """The value as JSON knows it: dates as ISO text, NaN (a missing number) as null; bytes are refused."""
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, float):
        return _number(float(value), where)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _nested(value, where, depth)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Enum):
        return plain(value.value, where, depth)
    if isinstance(value, str | _TEXTS):
        return str(value)
    if callable(whole := getattr(value, "tolist", None)):  # numpy's scalars and arrays
        return plain(whole(), where, depth + 1)
    kind = "bytes (an image, say)" if isinstance(value, bytes | bytearray) else type(value).__name__
    raise Flaw(f"'{where}' holds {kind}, which JSON can't; leave that column out of the file")


def _number(value: float, where: str) -> float | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        raise Flaw(f"'{where}' is {value}; give a finite number")
    return value


def _nested(value: Any, where: str, depth: int) -> Json:  # noqa: ANN401
    if depth >= DEPTH_LIMIT:
        raise Flaw(f"'{where}' is nested deeper than {DEPTH_LIMIT} levels; give flatter data")
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int, float, bool):
                raise Flaw(f"'{where}' has the key {shown(key)}; give strings as keys")
        return {str(key): plain(v, f"{where}.{key}", depth + 1) for key, v in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return [plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
