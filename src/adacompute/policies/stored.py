"""Stored arrays, checked as they are read. Knows no policy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays

__all__ = ["stored"]


def stored(arrays: Arrays, name: str, kind: npt.DTypeLike, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """An array of this type and shape (None: any size), all finite; PolicyInvalid for another."""
    if name not in arrays:
        raise PolicyInvalid(f"array {name!r} is not there; save the policy again")
    found = np.asarray(arrays[name])
    fits = found.ndim == len(shape) and all(
        size is None or size == have for size, have in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype != np.dtype(kind):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise PolicyInvalid(
            f"array {name!r} is {found.dtype} of shape {found.shape}, not {np.dtype(kind)} of ({wanted})"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise PolicyInvalid(f"array {name!r} holds a number that is not finite")
    return found
