"""How sure a mean over problems is: problems drawn again, with replacement. Knows nothing of policies."""

import numpy as np
import numpy.typing as npt

from adacompute.score import Estimate
from adacompute.score.summary import estimated

__all__ = ["RESAMPLES", "estimate", "interval", "resampled"]

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
_TAIL = 0.025  # on each side of a 95% interval


def resampled(problems: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """What each problem counts in each resample, (resamples, problems); rows sum to 1.

    `weights @ values` are the resampled means; for two policies on the same problems, use the same weights.
    """
    drawn = rng.integers(0, problems, (resamples, problems))
    drawn += np.arange(resamples)[:, None] * problems
    counts = np.bincount(drawn.reshape(-1), minlength=resamples * problems)
    return counts.reshape(resamples, problems) / problems


def interval(values: Floats, weights: Floats) -> tuple[float, float]:
    """The 95% interval of the mean of one value a problem, (problems,)."""
    low, high = np.quantile(weights @ values, (_TAIL, 1 - _TAIL))
    return float(low), float(high)


def estimate(values: Floats, rng: np.random.Generator, resamples: int = RESAMPLES) -> Estimate:
    """The mean of one value a problem with its interval; where all are equal, Wilson's, as in summaries.

    >>> estimate(np.array([0.0, 1.0, 1.0, 1.0]), np.random.default_rng(0))
    Estimate(mean=0.75, low=0.25, high=1.0, problems=4)
    """
    if len(values) < 2 or np.ptp(values) == 0:
        return estimated(values)
    low, high = interval(values, resampled(len(values), rng, resamples))
    return Estimate(mean=float(values.mean()), low=low, high=high, problems=len(values))
