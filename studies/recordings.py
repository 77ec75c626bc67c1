"""Means over several recordings."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.replay.matching import Interval, make_interval
from adacompute.replay.replay import resample_groups

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def mean_over_recordings(
    values_by_recording: Sequence[Floats], groups: Sequence[Ints] | None = None, *, seed: int = 0
) -> Interval:
    """The mean over recordings of each recording's mean over problems, every recording counting the same.

    Problems, or whole groups of them, are drawn within each recording and the recordings stay fixed, so the
    interval is about other problems of these kinds, not about other kinds.

    >>> mean_over_recordings([np.array([0.0, 0.0]), np.array([1.0, 1.0, 1.0])])
    Interval(mean=0.5, low=0.5, high=0.5)
    """
    draws = [
        resample_groups(
            np.arange(len(values)) if groups is None else np.asarray(groups[number]),
            np.random.default_rng([seed, number]),
        )
        @ values
        for number, values in enumerate(values_by_recording)
    ]
    return make_interval(
        float(np.mean([values.mean() for values in values_by_recording])), np.mean(draws, axis=0)
    )
