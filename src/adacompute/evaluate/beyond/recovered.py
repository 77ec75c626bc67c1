"""Which share of the oracle's gain over all alike a policy has, at the same average cost. Knows no drawing.

The oracle knows the answers and decides beforehand; whoever looks at votes as they come in may have more than
all of its gain.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.matched import matched
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.told import boot_of

__all__ = ["Recovered", "Shares", "recovered_of"]

Floats = npt.NDArray[np.float64]

_LITTLE = 0.001  # of accuracy: a gain so small has no shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One policy at one average cost; shares may pass 1, or be negative."""

    policy: str
    budget: float
    of_low: Interval | None  # of the cross-fitted oracle's gain; None: not known, or not clearly above zero
    of_high: Interval | None  # of the in-sample oracle's gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Every policy but all alike, at every budget; and what there was to gain."""

    budgets: tuple[float, ...]
    rows: tuple[Recovered, ...]
    gains: tuple[tuple[Interval | None, Interval], ...]  # (budgets,) of the oracle: cross-fitted, in-sample
    why: str = ""  # there is no cross-fitted end

    def of(self, policy: str, budget: float) -> Recovered | None:
        """None where the policy can't cost so little."""
        return next((one for one in self.rows if (one.policy, one.budget) == (policy, budget)), None)

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.policy for one in self.rows))


def recovered_of(found: Played, *, oracle: Oracle | None = None) -> Shares:
    """Shares with intervals over problems: in each draw both gains are read anew."""
    setup = found.setup
    oracle = Oracle.of(setup) if oracle is None else oracle
    boot, plain = boot_of(setup), found.of(PLAIN).points
    rows, gains = [], []
    for budget in setup.budgets:
        base = matched(plain, budget)
        if base is None:
            raise ValueError(f"all alike can't cost {budget:g}, which was checked before")
        fitted = oracle.crossfitted(budget)
        ends = (None if fitted is None else fitted - base.each, oracle.in_sample(budget)[1] - base.each)
        gains.append((None if ends[0] is None else boot.interval(ends[0]), boot.interval(ends[1])))
        for one in found.everyone:
            own = None if one.name == PLAIN else matched(one.points, budget)
            if own is not None:
                low, high = (_share(own.each - base.each, end, boot) for end in ends)
                rows.append(Recovered(policy=one.name, budget=budget, of_low=low, of_high=high))
    return Shares(budgets=setup.budgets, rows=tuple(rows), gains=tuple(gains), why=oracle.why)


def _share(gain: Floats, whole: Floats | None, boot: Bootstrap) -> Interval | None:
    """The mean of one over the mean of the other, (problems,) both."""
    if whole is None or whole.mean() < _LITTLE or not (boot.interval(whole).low or 0.0) > 0:
        return None
    mean = float(gain.mean() / whole.mean())
    below = boot.means(whole)
    if below.min() < _LITTLE:  # in some draws there is nothing to have a share of
        return Interval(mean=mean, low=None, high=None)
    return interval_of(mean, boot.means(gain) / below)
