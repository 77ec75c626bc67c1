"""Several recordings together: means over them, each counting alike. Knows nothing of policies.

Problems are drawn anew inside each recording; the recordings themselves stay as they are, so an interval is
about other problems of these kinds, not about other kinds.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of

__all__ = ["across"]

Floats = npt.NDArray[np.float64]


def across(each: Sequence[Floats], *, seed: int = 0) -> Interval:
    """The mean over recordings of the mean of one value a problem, (problems,) of each recording.

    >>> across([np.array([0.0, 0.0]), np.array([1.0, 1.0, 1.0])])
    Interval(mean=0.5, low=0.5, high=0.5)
    """
    draws = [
        Bootstrap.of(len(values), rng=np.random.default_rng([seed, number])).means(values)
        for number, values in enumerate(each)
    ]
    return interval_of(float(np.mean([values.mean() for values in each])), np.mean(draws, axis=0))
