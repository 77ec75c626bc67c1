"""How fine the set of budgets should be: three sets, their frontiers, labels and oracles. Knows no drawing.

An oracle with more budgets to choose from also has more luck to choose from, so its value in-sample rises
with the number of budgets whatever they are worth: the cross-fitted value stands beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.oracle import Crossfitted, Pair, crossfitted, halved
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.judged import Judged
from adacompute.evaluate.paper.pareto import Curve, folded, log_spaced
from adacompute.evaluate.scoring import Scoring
from adacompute.records import AccuracyTable
from adacompute.score import score
from adacompute.solve import solve

__all__ = ["SETS", "Granularity", "Tier", "granularity"]

Floats = npt.NDArray[np.float64]

SETS = {"coarse": (1, 8, 16), "default": (1, 2, 4, 8, 16), "fine": (1, 2, 3, 4, 6, 8, 12, 16)}  # the paper's
AT = 2.0  # average budget at which the paper compares
_STEPS = 16  # of the oracles' grid
_BUDGETS, _QUICK_BUDGETS = (1.0, 1.5, 2.0, 3.0, 5.0), (1.0, 2.0, 4.0)  # at which classifiers are fitted
_FOLDS, _QUICK_FOLDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tier:
    """One set of budgets."""

    name: str
    budgets: tuple[int, ...]
    labels: Floats  # (budgets,) share of problems that the oracle gives each, at `at`, by windows
    windows: float  # the oracle's accuracy at `at`, in-sample by windows: scored as the paper does
    exact: float  # in-sample, over all subsets
    crossfitted: float | None  # chosen on one half of the samples, judged on the other; None: too few
    step: Interval | None  # cross-fitted gain over the set before this one, over problems
    oracle: Curve = field(repr=False)  # by windows
    halved: Curve | None = field(repr=False)  # cross-fitted
    paper: Curve = field(repr=False)  # the classifier, scored as the paper does
    held_out: Curve = field(repr=False)  # the classifier on problems not learned from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Granularity:
    """All sets, from the coarsest on."""

    name: str
    at: float  # average budget of labels and single values
    tiers: tuple[Tier, ...]
    folds: int
    problems: int


def granularity(case: Case, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Granularity:
    """The three sets on one recording; those that it has samples for, which must differ."""
    sets = _sets(case)
    every = tuple(sorted({budget for budgets in sets.values() for budget in budgets}))
    windows = score(case.ballots, every, estimator="windows")
    exact = score(case.ballots, every)
    pairs = _pairs(case, exact)
    tiers: list[Tier] = []
    before: Crossfitted | None = None
    for name, budgets in sets.items():
        own = tuple((_only(chosen, budgets), _only(judge, budgets)) for chosen, judge in pairs)
        there = crossfitted(own, budget=AT) if own else None
        fine = _Fine(case, _only(windows, budgets), _only(exact, budgets), own, model)
        tiers.append(fine.tier(name, there, before, quick=quick, seed=seed))
        before = there
    folds = min(_QUICK_FOLDS if quick else _FOLDS, len(set(case.ballots.prompts)))
    return Granularity(name=case.name, at=AT, tiers=tuple(tiers), folds=folds, problems=len(case))


def _sets(case: Case) -> dict[str, tuple[int, ...]]:
    """The paper's sets as far as the samples reach; none twice, none of one budget only."""
    least, found = int(case.ballots.drawn.min()), dict[str, tuple[int, ...]]()
    for name, budgets in SETS.items():
        reached = tuple(budget for budget in budgets if budget <= least)
        if len(reached) > 1 and reached not in found.values():
            found[name] = reached
    if len(found) < 2:
        raise TooFewSamples(
            f"{case.name}: with {least} samples of some problem the paper's sets of budgets don't differ; "
            "collect 3 or more of each"
        )
    return found


def _pairs(case: Case, exact: AccuracyTable) -> tuple[Pair, ...]:
    try:
        return halved(case.ballots, exact, how=Scoring(), splits=2)
    except TooFewSamples:
        return ()


def _only(table: AccuracyTable, budgets: Sequence[int]) -> AccuracyTable:
    """Some columns of a table."""
    at = [table.modes.index(budget) for budget in budgets]
    return AccuracyTable.of(table.accuracy[:, at], costs=table.costs[at], modes=budgets, ids=table.ids)


@dataclass(frozen=True, slots=True)
class _Fine:
    """One set's tables."""

    case: Case
    windows: AccuracyTable
    exact: AccuracyTable
    pairs: tuple[Pair, ...]
    model: str

    def tier(
        self, name: str, there: Crossfitted | None, before: Crossfitted | None, *, quick: bool, seed: int
    ) -> Tier:
        plan = solve(self.windows, budget=AT)
        counts = np.bincount(plan.choice, minlength=len(self.windows.modes))
        step = None
        if there is not None and before is not None:
            step = Bootstrap.of(len(self.case)).difference(there.each, before.each)
        paper, held_out = self._learned(quick=quick, seed=seed)
        return Tier(
            name=name,
            budgets=tuple(int(mode) for mode in self.windows.modes),
            labels=counts / len(self.case),
            windows=plan.mixed_accuracy,
            exact=solve(self.exact, budget=AT).mixed_accuracy,
            crossfitted=None if there is None else there.accuracy.mean,
            step=step,
            oracle=self._oracle(),
            halved=self._halved(),
            paper=paper,
            held_out=held_out,
        )

    @property
    def _grid(self) -> Floats:
        return log_spaced(float(self.windows.costs[-1]), _STEPS)

    def _oracle(self) -> Curve:
        plans = [solve(self.windows, budget=float(budget)) for budget in self._grid]
        return Curve(
            budget=self._grid,
            cost=np.array([plan.mixed_cost for plan in plans]),
            accuracy=np.array([plan.mixed_accuracy for plan in plans]),
        )

    def _halved(self) -> Curve | None:
        if not self.pairs:
            return None
        told = [crossfitted(self.pairs, budget=float(budget)) for budget in self._grid]
        return Curve(
            budget=self._grid,
            cost=np.array([one.cost for one in told]),
            accuracy=np.array([one.accuracy.mean for one in told]),
        )

    def _learned(self, *, quick: bool, seed: int) -> tuple[Curve, Curve]:
        """The classifier's curves: scored as the paper does, and held-out."""
        most = float(self.windows.costs[-1])
        budgets = [budget for budget in (_QUICK_BUDGETS if quick else _BUDGETS) if budget <= most]
        folds = _QUICK_FOLDS if quick else _FOLDS
        taught = folded(self.case, self.windows, budgets, folds=folds, model=self.model, seed=seed)
        train, found = taught[0].train, []
        for table, mask in ((self.windows, np.ones_like(train)), (self.exact, ~train)):
            judged = Judged.of(table, mask)
            outcomes = [judged.outcome(own.predicted) for own in taught]
            found.append(
                Curve(
                    budget=np.array(budgets),
                    cost=np.array([outcome.spent for outcome in outcomes]),
                    accuracy=np.array([outcome.interval.mean for outcome in outcomes]),
                )
            )
        return found[0], found[1]
