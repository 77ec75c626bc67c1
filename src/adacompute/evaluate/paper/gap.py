"""How far the paper's classifier falls short of the oracle it imitates, in both readings. Knows no drawing.

Most problems have one and the same oracle budget, so a share of budgets foretold rightly means little by
itself: beside it stands what always answering the commonest budget foretells.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits, Reading
from adacompute.evaluate.paper.judged import Judged
from adacompute.evaluate.paper.main import fitted_for

__all__ = ["Gap", "GapReading", "gaps"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GapReading:
    """One reading of the classifiers of one average budget, a value a seed, (seeds,) each."""

    accuracy: Floats
    oracle: Floats  # accuracy of the oracle's budgets on the same problems
    imitation: Floats  # share of problems given the oracle's budget
    majority: Floats  # share that has the commonest budget of the problems learned from
    cost: Floats  # samples on average
    ahead: Interval  # imitation less majority, over problems
    spent: Interval  # samples on average, over problems

    @property
    def gap(self) -> Floats:
        """What is lacking to the oracle's accuracy, (seeds,)."""
        return np.asarray(self.oracle - self.accuracy)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gap:
    """One average budget."""

    budget: float
    price: float  # the oracle's
    commonest: tuple[int, ...]  # samples: the commonest budgets of the problems learned from, each once
    paper: GapReading  # scored as the paper does
    held_out: GapReading


def gaps(case: Case, fits: Mapping[float, Fits]) -> tuple[Gap, ...]:
    """Oracle gap and imitation for each average budget that the pool can reach."""
    return tuple(_gap(case, fits[budget]) for budget in fitted_for(case, fits))


def _gap(case: Case, own: Fits) -> Gap:
    common = np.array([np.bincount(own.labels[train]).argmax() for train in own.train])  # (seeds,)
    everyone = Judged.of(case.windows, np.ones_like(own.train))
    return Gap(
        budget=own.budget,
        price=own.price,
        commonest=tuple(sorted({case.budgets[at] for at in common.tolist()})),
        paper=_reading(own.paper(case), own, common, everyone),
        held_out=_reading(own.held_out(case), own, common, Judged.of(case.exact, ~own.train)),
    )


def _reading(reading: Reading, own: Fits, common: npt.NDArray[np.int64], judged: Judged) -> GapReading:
    right: Bools = own.predicted == own.labels
    alike: Bools = own.labels == common[:, None]
    return GapReading(
        accuracy=reading.accuracy,
        oracle=reading.oracle,
        imitation=reading.imitation,
        majority=reading.majority,
        cost=reading.cost,
        ahead=judged.interval(right.astype(np.float64) - alike),
        spent=judged.interval(judged.table.costs[own.predicted]),
    )
