"""The paper's statements, tried on a recording's own table: a quantity, its bound, whether it holds.

Knows nothing of learning: the classifier's choices come as fits. Each statement is tried in many cases
(prices, average budgets, seeds); kept of it are how many there were, how many held, and the tightest one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.search import TARGETS, reachable
from adacompute.evaluate.paper.staircase import staircase
from adacompute.records import AccuracyTable
from adacompute.solve import averages, best_at, dual, solve, theory

__all__ = ["OWN", "Law", "laws"]

Ints = npt.NDArray[np.int64]

OWN = "the paper's own form"  # which isn't true in general
_SLIP = 1e-9
_PRICES = 40
Trial = tuple[float, float]  # quantity, and what it may not pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One statement, tried."""

    key: str
    statement: str
    form: str  # "as the paper states it", "corrected", "the paper's own form"
    protocol: str  # what was tried: the table alone, or the classifier in one of the two readings
    quantity: float  # in the tightest case
    bound: float  # in the tightest case
    tried: int
    held: int
    raised: int = 0  # of the cases tried: B was raised to what the oracle's own budgets cost there

    @property
    def holds(self) -> bool:
        """Whether it held in all cases."""
        return self.held == self.tried


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Decided:
    """What a classifier decided for some problems, with their table and the oracle's price."""

    table: AccuracyTable
    price: float
    budget: float
    choice: Ints
    raised: bool = False  # whether the budget is more than was asked for


def laws(case: Case, fits: Mapping[float, Fits]) -> tuple[Law, ...]:
    """Every statement on the paper's windows; those on a learned policy also on the problems held out."""
    found = [*_of_table(case.windows, reachable(case, TARGETS))]
    for protocol, decided in (
        ("scored as the paper does", [*_all(case, fits)]),
        ("held-out", [*_held_out(case, fits)]),
    ):
        found += [replace(law, protocol=protocol) for law in _of_choice(decided)]
    return tuple(law for law in found if law.tried)


def _of_table(table: AccuracyTable, budgets: tuple[float, ...]) -> Iterator[Law]:
    stairs = staircase(table)
    prices = np.unique(np.append(stairs.price, np.geomspace(1e-4, 5.0, _PRICES)))
    prices = prices[np.linspace(0, len(prices) - 1, min(len(prices), 4 * _PRICES)).astype(np.int64)]
    costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
    yield _law(
        "monotone",
        "Theorem 1: a higher price never costs more",
        list(zip(costs[1:], costs[:-1], strict=True)),
    )
    plans = {budget: solve(table, budget=budget) for budget in budgets}
    yield _law(
        "weak",
        "Weak duality: no choice within B is more accurate than G(λ), at any price",
        [
            (plan.accuracy, dual(table, float(price), budget))
            for budget, plan in plans.items()
            for price in prices[:: max(1, len(prices) // _PRICES)]
        ],
    )
    strong = [theory.strong_duality(table, budget=budget) for budget in budgets]
    yield _law(
        "strong",
        "Proposition 1: V(B) equals the least G(λ), for mixtures",
        [(abs(one.dual - one.linear), 0.0) for one in strong],
        form="corrected",
    )
    yield _law(
        "edge",
        "… and one budget for each problem lacks at most one edge's gain over N",
        [(one.linear - one.deterministic, one.shortfall) for one in strong],
        form="corrected",
    )
    singles = {budget: solve(table, budget=budget, method="bisection") for budget in budgets}
    yield _law(
        "single",
        "… the single price's own labels are an exact solution",
        [(plans[budget].bound - single.accuracy, 0.0) for budget, single in singles.items()],
        form=OWN,
    )


def _of_choice(decided: list[_Decided]) -> Iterator[Law]:
    yield from _of_regret(decided)
    yield from _of_recovery(decided)


def _of_regret(decided: list[_Decided]) -> Iterator[Law]:
    bounds = [theory.regret_bound(one.table, one.price, one.choice) for one in decided]
    yield _law(
        "regret",
        "Theorem 2: regret is at most the mean of M(x) where it errs",
        [(one.regret, one.by_problem) for one in bounds],
    )
    yield _law(
        "uniform",
        "… and at most M̄ε, the worst gap times the share of errors",
        [(one.by_problem, one.uniform) for one in bounds],
    )
    parts = [theory.decomposition(one.table, one.price, one.choice) for one in decided]
    yield _law(
        "decomposition",
        "Corollary 1: regret is the accuracy gap less λ times the cost gap",
        [(abs(one.accuracy_gap - one.price * one.cost_deviation - one.regret), 0.0) for one in parts],
    )


def _of_recovery(decided: list[_Decided]) -> Iterator[Law]:
    raised = sum(one.raised for one in decided)
    for law in _of_budget(decided):
        yield replace(law, raised=raised)


def _of_budget(decided: list[_Decided]) -> Iterator[Law]:
    """What is stated of B, for which the oracle's own budgets must not cost more."""
    costs = [theory.near_feasible(one.table, one.price, one.choice, budget=one.budget) for one in decided]
    yield _law(
        "feasible",
        "Theorem 3 (1): cost is at most B′ = B + ε times the widest range of costs",
        [(one.cost, one.uniform) for one in costs],
    )
    near = [theory.near_optimal(one.table, one.price, one.choice, budget=one.budget) for one in decided]
    yield _law(
        "optimal",
        "Theorem 3 (2): V(B) less accuracy is at most M̄ε + λ(B − cost)",
        [(one.short, one.at_most) for one in near],
        form="corrected",
    )
    yield _law(
        "wider",
        "… V(B′) less accuracy is at most M̄ε + λ(B′ − cost)",
        [(one.wider_short, one.wider_at_most) for one in near],
        form="corrected",
    )
    yield _law(
        "stated",
        "… V(B′) less accuracy is at most M̄ε",
        [(one.wider_short, one.paper) for one in near],
        form=OWN,
    )


def _all(case: Case, fits: Mapping[float, Fits]) -> Iterator[_Decided]:
    for fit in fits.values():
        for predicted in fit.predicted:
            yield _Decided(table=case.windows, price=fit.price, budget=fit.budget, choice=predicted)


def _held_out(case: Case, fits: Mapping[float, Fits]) -> Iterator[_Decided]:
    """By all subsets. B is what the oracle costs on these problems at that price, where that is more.

    The price is that of all problems by the windows; on a fifth of them, over all subsets, its budgets may
    cost more than B, and of such a B the paper states nothing.
    """
    for fit in fits.values():
        for predicted, train in zip(fit.predicted, fit.train, strict=True):
            rows = np.flatnonzero(~train)
            if not len(rows):
                continue
            table = AccuracyTable.of(case.exact.accuracy[rows], costs=case.exact.costs, modes=case.budgets)
            cost = averages(table, best_at(table, fit.price))[0]
            yield _Decided(
                table=table,
                price=fit.price,
                budget=max(fit.budget, cost),
                choice=predicted[rows],
                raised=cost > fit.budget + _SLIP,
            )


def _law(key: str, statement: str, trials: list[Trial], *, form: str = "as the paper states it") -> Law:
    tightest = max(trials, key=lambda trial: trial[0] - trial[1], default=(np.nan, np.nan))
    return Law(
        key=key,
        statement=statement,
        form=form,
        protocol="the oracle, on all problems",
        quantity=float(tightest[0]),
        bound=float(tightest[1]),
        tried=len(trials),
        held=sum(quantity <= bound + _SLIP for quantity, bound in trials),
    )
