"""The price for an average budget: the paper's bisection, step by step, beside the exact solve.

Knows nothing of policies. Both work on the same table, the paper's windows, so that what differs is the
search alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.staircase import Staircase, staircase
from adacompute.records import AccuracyTable, Trace
from adacompute.solve import averages, best_at, solve

__all__ = ["TARGETS", "TOLERANCE", "Search", "reachable", "search", "searches", "unreachable"]

TARGETS = (1.5, 2.0, 3.0)  # the paper's average budgets
TOLERANCE = 0.05  # samples: how near the paper says that a single price comes
_SLIP = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """One average budget: what a single price reaches by bisection, and what the exact solve says."""

    budget: float  # samples on average, asked for
    price: float  # found by bisection on [0, 5] in 50 steps; 0: the budget isn't binding
    cost: float  # samples on average of that single price, not above the budget
    error: float  # |cost - budget|
    above: float | None  # the cost one stair up, above the budget; None: the budget isn't binding
    monotone: bool  # whether the cost never rose with the price, over all prices tried
    within: int | None  # steps until a price tried came within 0.05 of the budget; None: none did
    mixed: int  # problems that bisection has to mix, to meet the budget
    exact_price: float  # of the exact solve
    exact_cost: float  # samples on average of its deterministic choice
    mixed_cost: float  # with its one mixed problem
    accuracy: float  # of the deterministic choice
    bound: float  # which nothing within the budget passes
    trace: Trace = field(repr=False)  # of the bisection; no steps where the budget isn't binding

    @property
    def binding(self) -> bool:
        """Whether a larger budget would buy accuracy."""
        return self.above is not None

    @property
    def gap(self) -> float:
        """How far the deterministic choice may be from the best there is."""
        return max(0.0, self.bound - self.accuracy)


def reachable(case: Case, budgets: Sequence[float] = TARGETS) -> tuple[float, ...]:
    """Those average budgets that the pool has samples for."""
    return tuple(float(budget) for budget in budgets if budget <= case.budgets[-1])


def unreachable(case: Case, budgets: Sequence[float] = TARGETS) -> tuple[str, ...]:
    """What is left out for want of samples, a line each."""
    return tuple(
        f"B = {budget:g}: some problem has too few samples for a budget above {case.budgets[-1]}; "
        "collect more samples of every problem"
        for budget in budgets
        if budget > case.budgets[-1]
    )


def search(table: AccuracyTable, budget: float) -> Search:
    """The price for one average budget, both ways."""
    found = solve(table, budget=budget, method="bisection")
    exact = solve(table, budget=budget)
    trace = found.trace
    assert trace is not None  # a bisection has one
    near = np.flatnonzero(np.abs(trace.cost - budget) <= TOLERANCE + _SLIP)
    return Search(
        budget=float(budget),
        price=found.price,
        cost=found.cost,
        error=abs(found.cost - budget),
        above=_above(staircase(table), budget),
        monotone=_monotone(table, trace),
        within=int(near[0]) + 1 if len(near) else None,
        mixed=len(found.mix.problems),
        exact_price=exact.price,
        exact_cost=exact.cost,
        mixed_cost=exact.mixed_cost,
        accuracy=exact.accuracy,
        bound=exact.bound,
        trace=trace,
    )


def searches(case: Case, budgets: Sequence[float] = TARGETS) -> tuple[Search, ...]:
    """A search for each average budget that the pool can reach, on the paper's windows."""
    return tuple(search(case.windows, budget) for budget in reachable(case, budgets))


def _above(stairs: Staircase, budget: float) -> float | None:
    dearer = stairs.cost[stairs.cost > budget * (1 + 1e-12)]
    return float(dearer.min()) if len(dearer) else None


def _monotone(table: AccuracyTable, trace: Trace) -> bool:
    """From the choices themselves: at the prices tried, and at a grid of others."""
    prices = np.unique(np.concatenate([trace.price, [0.0], np.geomspace(1e-4, 5.0, 60)]))
    costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
    return bool((np.diff(costs) <= _SLIP).all())
