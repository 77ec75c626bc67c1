"""What budgets decided beforehand bring on the problems that are judged. Knows not how they were decided.

A problem may be judged under several seeds, or under none: it counts as often as it is judged, and is drawn
anew as a whole where an interval over problems is told.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.exhibits import Spread
from adacompute.evaluate.paper.mixing import mixed
from adacompute.records import AccuracyTable

__all__ = ["Judged", "Outcome", "spread"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """One way to decide: what it brings and spends, by seed, and all seeds together."""

    accuracy: Floats  # (seeds,)
    cost: Floats  # (seeds,) samples on average
    interval: Interval  # accuracy of all seeds together, over problems
    spent: float  # samples on average, all seeds together
    alike: float  # accuracy of all problems alike at `spent`, at the best mix of two budgets
    gain: Interval  # over that, problems and samples spent drawn anew together
    dealt: float  # accuracy of the same budgets dealt by lot: as many of each, to whomever
    knowing: Interval  # over that: what is due to who gets them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A table, which problems are judged on it under each seed, and the draws that all intervals share."""

    table: AccuracyTable = field(repr=False)  # (problems, budgets), costs the same for every problem
    mask: Bools = field(repr=False)  # (seeds, problems)
    draws: Bootstrap = field(repr=False)  # of the problems that are judged at all

    @classmethod
    def of(cls, table: AccuracyTable, mask: Bools) -> "Judged":
        """With draws of its own; the same each time."""
        return cls(table=table, mask=mask, draws=Bootstrap.of(int(mask.any(axis=0).sum())))

    def each(self, values: Floats) -> Floats:
        """The mean of each seed, (seeds,) of (seeds, problems)."""
        return np.asarray((values * self.mask).sum(axis=1) / self.mask.sum(axis=1))

    def interval(self, values: Floats) -> Interval:
        """The mean of (seeds, problems) over all that is judged, with its interval over problems."""
        mean, draws = self._means((values * self.mask).sum(axis=0)[:, None])
        return interval_of(float(mean[0]), draws[:, 0] if draws is not None else None)

    def outcome(self, columns: Ints) -> Outcome:
        """What budgets bring, (seeds, problems) columns of the table."""
        rows, modes = np.arange(columns.shape[1]), len(self.table.modes)
        accuracy, cost = self.table.accuracy[rows, columns], self.table.costs[columns]
        given = (columns[:, :, None] == np.arange(modes)) & self.mask[:, :, None]
        parts = [(values * self.mask).sum(axis=0)[:, None] for values in (accuracy, cost)]
        parts += [given.sum(axis=0), self.table.accuracy * self.mask.sum(axis=0)[:, None]]
        mean, draws = self._means(np.hstack(parts))
        alike, dealt = (float(value[0]) for value in self._by_lot(mean[None]))
        each = (None, None) if draws is None else tuple(draws[:, 0] - lot for lot in self._by_lot(draws))
        return Outcome(
            accuracy=self.each(accuracy),
            cost=self.each(cost),
            interval=interval_of(float(mean[0]), None if draws is None else draws[:, 0]),
            spent=float(mean[1]),
            alike=alike,
            gain=interval_of(float(mean[0]) - alike, each[0]),
            dealt=dealt,
            knowing=interval_of(float(mean[0]) - dealt, each[1]),
        )

    def _by_lot(self, means: Floats) -> tuple[Floats, Floats]:
        """All alike at the same cost, and the same budgets dealt by lot, (n,) each of (n, kinds)."""
        modes = len(self.table.modes)
        shares, accuracy = means[:, 2 : 2 + modes], means[:, 2 + modes :]
        return mixed(self.table.costs, accuracy, means[:, 1]), np.asarray((shares * accuracy).sum(axis=1))

    def _means(self, sums: Floats) -> tuple[Floats, Floats | None]:
        """Means over all that is judged of sums over seeds, (problems, kinds): (kinds,), (draws, kinds)."""
        times = self.mask.sum(axis=0)
        here = times > 0
        mean = sums[here].sum(axis=0) / times[here].sum()
        if here.sum() < 2:
            return mean, None
        shares = self.draws.shares
        return mean, np.asarray((shares @ sums[here]) / (shares @ times[here])[:, None])


def spread(values: Floats) -> Spread:
    """Mean and standard deviation over seeds, (seeds,); of one seed there is none, said as 0.

    >>> spread(np.array([1.0, 2.0, 3.0]))
    Spread(mean=2.0, std=1.0)
    """
    return Spread(mean=float(values.mean()), std=float(values.std(ddof=1)) if len(values) > 1 else 0.0)
