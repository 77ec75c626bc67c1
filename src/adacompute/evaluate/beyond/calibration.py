"""What was foretold against what came: of accuracy, and of cost. Knows no drawing.

Everything is out of fold: what a policy says of a problem's answers, and the dial that was to meet a budget,
come from other problems.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Interval, interval_of
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.foretold import Foretold
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.rows import Evaluation
from adacompute.evaluate.told import boot_of

__all__ = ["Bin", "Calibrated", "Calibration", "Spent", "calibration_of"]

Floats = npt.NDArray[np.float64]

_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Requests of which about the same was said."""

    said: float  # mean
    right: Interval  # share, with its interval over problems
    share: float  # of all requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """One policy: what it says of its answers, against how often they are right."""

    policy: str
    what: str  # was said
    budget: float
    bins: tuple[Bin, ...]  # by rising `said`, as equal in size as ties allow
    error: float  # expected calibration error: mean distance of said and right, by requests
    bias: Interval  # said less right, on average: above 0 it says too much

    @property
    def wrong(self) -> tuple[Bin, ...]:
        """Bins whose interval doesn't hold what was said, the most wrong first."""
        off = [one for one in self.bins if not _holds(one.right, one.said)]
        return tuple(sorted(off, key=lambda one: -abs(one.said - one.right.mean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One policy at one budget: samples asked for, and spent out of fold."""

    policy: str
    budget: float
    cost: Interval
    reached: bool  # False: no setting of its dial meets the budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Of accuracy and of cost."""

    policies: tuple[Calibrated, ...]
    spent: tuple[Spent, ...]
    basis: Basis

    def budgets_of(self, policy: str) -> tuple[Spent, ...]:
        return tuple(one for one in self.spent if one.policy == policy)


def calibration_of(found: Played, evaluation: Evaluation) -> Calibration:
    """Of the policies that say how sure they are, and of every policy's cost but uniform's."""
    boot = boot_of(found.setup)
    told = [
        _calibrated(one.name, one.foretold, boot.shares)
        for one in found.everyone
        if one.foretold is not None and np.isfinite(one.foretold.right).all()
    ]
    spent = []
    for one in found.everyone:
        if one.name == PLAIN:  # has no dial to be set: it is the whole number next below
            continue
        for at, budget in enumerate(found.setup.budgets):
            cost = boot.interval(one.cost[at])
            spent.append(Spent(policy=one.name, budget=budget, cost=cost, reached=one.reached[at]))
    return Calibration(policies=tuple(told), spent=tuple(spent), basis=evaluation.basis)


def _calibrated(policy: str, told: Foretold, shares: Floats) -> Calibrated:
    place = _bins(told.said)  # (requests,)
    count = int(place.max()) + 1
    problems = shares.shape[1]
    # requests, what was said of them and how many were right, by problem and bin
    at = told.problem * count + place
    size, said, right = (
        np.bincount(at, weights=values, minlength=problems * count).reshape(problems, count)
        for values in (np.ones(len(at)), told.said, told.right)
    )
    many = size.sum(axis=0)
    bins = []
    for k in range(count):
        drawn = shares @ size[:, k]
        some = drawn > 0
        draws = (shares @ right[:, k])[some] / drawn[some] if problems > 1 else None
        mean = float(right[:, k].sum() / many[k])
        bins.append(
            Bin(
                said=float(said[:, k].sum() / many[k]),
                right=interval_of(mean, draws),
                share=float(many[k] / many.sum()),
            )
        )
    over = (said - right).sum(axis=1), size.sum(axis=1)  # (problems,) both
    bias = float(over[0].sum() / over[1].sum())
    return Calibrated(
        policy=policy,
        what=told.what,
        budget=told.budget,
        bins=tuple(bins),
        error=float(sum(one.share * abs(one.said - one.right.mean) for one in bins)),
        bias=interval_of(bias, (shares @ over[0]) / (shares @ over[1]) if problems > 1 else None),
    )


def _holds(right: Interval, said: float) -> bool:
    return right.low is None or right.high is None or right.low <= said <= right.high


def _bins(said: Floats) -> npt.NDArray[np.int64]:
    """The bin of each request, (requests,): equal in size, but for values that are the same."""
    last = np.arange(1, _BINS) * len(said) // _BINS  # requests up to the end of each bin but the last
    edges = np.unique(np.sort(said)[np.maximum(last, 1) - 1])
    return np.unique(np.searchsorted(edges, said, side="left"), return_inverse=True)[1].astype(np.int64)
