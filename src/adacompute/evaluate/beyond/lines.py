"""A policy at every average cost, with its band: the hull of its own settings. Knows nothing of oracles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.matched import Points, matched
from adacompute.evaluate.measure import Basis

__all__ = ["PROTOCOL", "Line", "grid_of", "line_of", "measured_by", "samples_text"]

Floats = npt.NDArray[np.float64]

_STEPS = 8  # of the grid, to each doubling of cost
_CLOSE = 1e-9
PROTOCOL = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """Accuracy by average cost, (points,) each, from its cheapest setting to its best one."""

    policy: str
    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    low: Floats = field(repr=False)  # 95% interval over problems; the accuracy itself where there is none
    high: Floats = field(repr=False)
    gain: Floats = field(repr=False)  # over all alike at the same cost, paired; NaN: not compared
    gain_low: Floats = field(repr=False)
    gain_high: Floats = field(repr=False)

    def at(self, cost: float) -> float | None:
        """The accuracy at one cost; None outside of the line."""
        if not self.cost[0] - _CLOSE <= cost <= self.cost[-1] + _CLOSE:
            return None
        return float(np.interp(cost, self.cost, self.accuracy))


def grid_of(most: float, budgets: Sequence[float] = (), *, least: float = 1.0) -> Floats:
    """Costs from the least to the most, evenly by ratio, those asked for among them."""
    count = max(2, round(_STEPS * np.log2(most / least)) + 1)
    even = np.geomspace(least, most, count)
    wanted = [budget for budget in budgets if least <= budget <= most]
    return np.unique(np.concatenate([even, wanted]).round(9))


def line_of(
    policy: str, points: Points, grid: Floats, boot: Bootstrap, *, base: Points | None = None
) -> Line | None:
    """Where the policy can be on the grid, and its gain over `base`; None: it always costs more."""
    found = []
    for budget in grid.tolist():
        one = matched(points, budget)
        if one is None:
            continue
        beside = None if base is None else matched(base, one.cost)
        own = _ends(boot.interval(one.each), one.accuracy)
        gain = (np.nan,) * 3
        if beside is not None:
            over = boot.difference(one.each, beside.each)
            gain = (over.mean, *_ends(over, over.mean))
        found.append((one.cost, one.accuracy, *np.clip(own, 0.0, 1.0), *gain))
        if one.cost < budget - _CLOSE:  # its best setting: there is no more of it
            break
    if not found:
        return None
    columns = np.array(found).T
    names = ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high")
    return Line(policy=policy, **dict(zip(names, columns, strict=True)))


def _ends(own: Interval, mean: float) -> tuple[float, float]:
    """The interval's ends; the mean itself where there is none."""
    return mean if own.low is None else own.low, mean if own.high is None else own.high


def samples_text(value: float) -> str:
    """So many samples, three digits at most.

    >>> samples_text(1.0), samples_text(1.5)
    ('1 sample', '1.5 samples')
    """
    text = f"{value:.3g}"
    return f"{text} sample" if text == "1" else f"{text} samples"


def measured_by(basis: Basis) -> str:
    """What accuracy stands for, in words."""
    return "accuracy" if basis == "accuracy" else "agreement with the full vote"
