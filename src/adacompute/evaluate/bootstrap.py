"""Intervals by drawing problems anew, with replacement. Knows nothing of policies or what a value means.

Every statistic of one evaluation shares the same draws, so that differences are paired: in each draw both
sides see the same problems.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.replay.bootstrap import RESAMPLES, resampled

__all__ = ["Bootstrap", "Interval", "interval_of"]

Floats = npt.NDArray[np.float64]

_SEED = 0
_ENDS = (2.5, 97.5)  # percentiles of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over problems with its 95% interval; both ends None where one problem is all there is."""

    mean: float
    low: float | None
    high: float | None

    @property
    def holds_zero(self) -> bool:
        """Whether nothing at all may be the truth; so too where there is no interval."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bootstrap:
    """Draws of problems: how often each comes in each draw, as shares that add up to one."""

    shares: Floats = field(repr=False)  # (draws, problems)

    @classmethod
    def of(
        cls, problems: int, *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """So many draws of as many problems as there are."""
        rng = np.random.default_rng(_SEED) if rng is None else rng
        return cls(shares=resampled(problems, rng, draws))

    def means(self, values: Floats) -> Floats:
        """The mean of each draw, (draws,) of (problems,)."""
        return np.asarray(self.shares @ values)

    def interval(self, values: Floats) -> Interval:
        """The mean of (problems,) with its percentile interval.

        >>> found = Bootstrap.of(4).interval(np.array([0.0, 1.0, 1.0, 1.0]))
        >>> found.mean, found.low, found.high
        (0.75, 0.25, 1.0)
        """
        return interval_of(float(values.mean()), self.means(values) if len(values) > 1 else None)

    def difference(self, one: Floats, other: Floats) -> Interval:
        """The mean of `one - other`, problem by problem, both (problems,)."""
        return self.interval(one - other)


def interval_of(mean: float, draws: Floats | None) -> Interval:
    """A statistic with the interval of its values in the draws, (draws,); None: there are none."""
    if draws is None:
        return Interval(mean=mean, low=None, high=None)
    low, high = np.percentile(draws, _ENDS)
    return Interval(mean=mean, low=float(low), high=float(high))
