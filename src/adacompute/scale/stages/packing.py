"""Arrays, texts and ballots as bytes, to lie in an object store. Knows nothing of what they mean."""

import io
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT

__all__ = ["Record", "packed", "packed_ballots", "padded", "unpacked", "unpacked_ballots"]

Record: TypeAlias = Mapping[str, Any]  # arrays, and what JSON can say

_TEXTS = ("ids", "prompts", "subjects", "levels")


def packed(record: Record) -> bytes:
    """Arrays as npz, all else as JSON in it."""
    arrays = {name: value for name, value in record.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in record.items() if name not in arrays}
    out = io.BytesIO()
    np.savez(out, **arrays, json=np.frombuffer(orjson.dumps(rest), dtype=np.uint8))  # type: ignore[arg-type]
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """What was packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    rest: dict[str, Any] = orjson.loads(arrays.pop("json").tobytes())
    return {**arrays, **rest}


def packed_ballots(ballots: Ballots) -> dict[str, Any]:
    """Ballots as a record."""
    return {
        field.name: list(value) if field.name in _TEXTS else value
        for field in fields(ballots)
        for value in [getattr(ballots, field.name)]
    }


def unpacked_ballots(record: Record) -> Ballots:
    """The ballots of a record."""
    parts: dict[str, Any] = {
        name: tuple(value) if name in _TEXTS else value for name, value in record.items()
    }
    for value in parts.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return Ballots(**parts)


def padded(array: npt.NDArray[Any], width: int, *, classes: bool = False) -> npt.NDArray[Any]:
    """An array (problems, samples) with so many columns; what is added is absent."""
    missing = width - array.shape[1]
    if missing <= 0:
        return array
    return np.pad(array, ((0, 0), (0, missing)), constant_values=ABSENT if classes else np.nan)
