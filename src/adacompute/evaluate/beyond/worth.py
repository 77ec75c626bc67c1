"""When routing isn't worth it: who is above uniform at each budget, and what is there to gain. No drawing."""

from dataclasses import dataclass

import numpy as np

from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.rows import Evaluation, Match
from adacompute.score.grades import grades

__all__ = ["BEFOREHAND", "Makeup", "Standing", "Worth", "worth_of"]

BEFOREHAND = ("heuristic", "classifier", "curve")  # decide on the prompt, or on it and the first sample
BY_LOT = ("random", "shuffled")  # look at nothing: to compare with
_MOVES = 0.02  # of accuracy: less is no change by voting


@dataclass(frozen=True, slots=True, kw_only=True)
class Makeup:
    """Shares of the problems, by what more samples do for them."""

    always: float  # every recorded sample is right
    never: float  # none is
    rises: float  # the vote of the most samples is right more often than one sample
    falls: float  # less often
    samples: int  # the most

    @property
    def still(self) -> float:
        """The share that voting neither helps nor harms."""
        return max(0.0, 1.0 - self.rises - self.falls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One budget: who is above uniform at the same cost beyond doubt, who below, and who neither."""

    budget: float
    above: tuple[Match, ...]  # the best first
    level: tuple[Match, ...]
    below: tuple[Match, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """At every budget, and of the problems themselves."""

    rows: tuple[Standing, ...]
    makeup: Makeup | None  # None: without grades it can't be told

    @property
    def pays(self) -> tuple[float, ...]:
        """Budgets at which some policy is above uniform."""
        return tuple(one.budget for one in self.rows if one.above)


def worth_of(found: Played, evaluation: Evaluation) -> Worth:
    """Of every policy but those that draw lots."""
    rows = []
    for budget in found.setup.budgets:
        here = [one for one in evaluation.matched if one.budget == budget and one.gain is not None]
        here = [one for one in here if one.policy in {each.name for each in found.everyone} - set(BY_LOT)]
        here.sort(key=lambda one: -one.accuracy)
        above = tuple(one for one in here if one.gain and one.gain.low is not None and one.gain.low > 0)
        below = tuple(one for one in here if one.gain and one.gain.high is not None and one.gain.high < 0)
        level = tuple(one for one in here if one not in above and one not in below)
        rows.append(Standing(budget=budget, above=above, level=level, below=below))
    graded = found.setup.basis == "accuracy"
    return Worth(rows=tuple(rows), makeup=_makeup(found) if graded else None)


def _makeup(found: Played) -> Makeup:
    plain = found.of(PLAIN).points  # exact where they were steadied: a few orders can't tell small changes
    by_cost = np.argsort(plain.cost.mean(axis=1), kind="stable")
    one, most = plain.accuracy[by_cost[0]], plain.accuracy[by_cost[-1]]  # (problems,) both
    right = grades(found.setup.ballots)  # (problems, samples)
    known = np.isfinite(right)
    return Makeup(
        always=float((np.where(known, right, 1.0).min(axis=1) >= 1.0).mean()),
        never=float((np.where(known, right, 0.0).max(axis=1) <= 0.0).mean()),
        rises=float((most - one > _MOVES).mean()),
        falls=float((one - most > _MOVES).mean()),
        samples=found.setup.longest,
    )
