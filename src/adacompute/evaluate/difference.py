"""What choosing adds to treating all alike, from end to end. Knows nothing of how either was measured."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Difference", "paired"]

Floats = npt.NDArray[np.float64]

_Z = 1.959964  # of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The oracle's accuracy less the uniform one, 0 to 1 being all of it."""

    low_end: float | None  # cross-fitted; None: too few samples to tell
    high_end: float  # in-sample
    interval: tuple[float, float] | None  # 95% over problems of the low end, paired


def paired(one: Floats, other: Floats) -> tuple[float, float] | None:
    """The 95% interval over problems of the mean of `one - other`, both (problems,).

    None where problems differ all alike, or there is one: their spread says nothing then.

    >>> low, high = paired(np.array([0.5, 0.9, 0.7]), np.array([0.4, 0.6, 0.5]))
    >>> round(low, 3), round(high, 3)
    (0.087, 0.313)
    """
    difference = one - other
    if np.ptp(difference) == 0:
        return None
    mean = float(difference.mean())
    half = _Z * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return mean - half, mean + half
