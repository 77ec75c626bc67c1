"""The paper's theorems as functions, in the form in which they hold.

Each record holds a quantity and its bound; theory.md sets them beside the paper's statements.
A choice is (problems,) columns of the table; the oracle at a price is `best_at`; V(B) is
`frontier(table).at(B)`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange
from adacompute.records import AccuracyTable
from adacompute.solve.allocation import solve
from adacompute.solve.frontier import frontier
from adacompute.solve.pricing import averages, best_at, dual

__all__ = [
    "decomposition",
    "near_feasible",
    "near_optimal",
    "net_values",
    "penalised_value",
    "regret",
    "regret_bound",
    "strong_duality",
    "weak_duality",
    "worst_gaps",
]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def net_values(table: AccuracyTable, price: float) -> Floats:
    """Net values f_λ(x, b) = accuracy less price times cost, (problems, modes). Paper, Definition 1."""
    return np.asarray(table.accuracy - price * table.cost_matrix)


def penalised_value(table: AccuracyTable, price: float, choice: npt.ArrayLike) -> float:
    """The penalised value J_λ(π): average accuracy less price times average cost. Paper, section 4.4.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.8, 0.8]], costs=[1, 4])
    >>> round(penalised_value(table, 0.1, [1, 0]), 3)
    0.6
    """
    cost, accuracy = averages(table, choice)
    return accuracy - price * cost


def worst_gaps(table: AccuracyTable, price: float) -> Floats:
    """M_λ(x) of each problem, (problems,): how much its worst mode falls below the oracle's, in net value."""
    net = net_values(table, price)
    oracle = np.take_along_axis(net, best_at(table, price)[:, None], axis=1)
    return np.asarray((oracle - net).max(axis=1))


def regret(table: AccuracyTable, price: float, choice: npt.ArrayLike) -> float:
    """The relaxed regret Reg_λ(π): the oracle's penalised value less that of the choice, never negative."""
    oracle = penalised_value(table, price, best_at(table, price))
    return oracle - penalised_value(table, price, choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretBounds:
    """Regret of a choice, and the two bounds on it: regret <= by_problem <= uniform."""

    regret: float
    by_problem: float  # average of M_λ(x) over all problems, 0 where the choice is the oracle's
    uniform: float  # M̄ε
    error: float  # ε: share of problems whose mode isn't the oracle's
    worst: float  # M̄: the largest M_λ(x)


def regret_bound(table: AccuracyTable, price: float, choice: npt.ArrayLike) -> RegretBounds:
    """Imitation regret bound: Reg_λ <= E[M_λ(x)·1{wrong}] <= M̄ε. Paper, Theorem 2 (thm:regret)."""
    gaps, wrong = worst_gaps(table, price), _mask_wrong(table, price, choice)
    error, worst = float(wrong.mean()), float(gaps.max())
    return RegretBounds(
        regret=regret(table, price, choice),
        by_problem=float((gaps * wrong).mean()),
        uniform=worst * error,
        error=error,
        worst=worst,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """regret = accuracy_gap - price * cost_deviation."""

    price: float
    accuracy_gap: float  # Δ_acc: the oracle's average accuracy less the choice's
    cost_deviation: float  # Δ_cost: the oracle's average cost less the choice's
    regret: float  # from the net values, not from the two above


def decomposition(table: AccuracyTable, price: float, choice: npt.ArrayLike) -> Decomposition:
    """Utility-cost decomposition of the regret. Paper, Corollary 1 (cor:decomp)."""
    net, best = net_values(table, price), best_at(table, price)
    rows = np.arange(len(table))
    cost, accuracy = averages(table, choice)
    oracle_cost, oracle_accuracy = averages(table, best)
    return Decomposition(
        price=price,
        accuracy_gap=oracle_accuracy - accuracy,
        cost_deviation=oracle_cost - cost,
        regret=float((net[rows, best] - net[rows, np.asarray(choice)]).mean()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBound:
    """Cost of a choice, and the two bounds on it: cost <= by_problem <= uniform."""

    cost: float
    by_problem: float  # budget, and what each wrong problem may add: its own range of costs
    uniform: float  # B': budget + ε times the widest range; the paper's B + ε(C_K - C_1)


def near_feasible(table: AccuracyTable, price: float, choice: npt.ArrayLike, *, budget: float) -> CostBound:
    """Near-feasibility, if the oracle at the price keeps the budget. Paper, Theorem 3 (thm:recovery) (1)."""
    _check_oracle_cost(table, price, budget)
    wrong = _mask_wrong(table, price, choice)
    ranges = np.ptp(table.cost_matrix, axis=1)
    return CostBound(
        cost=averages(table, choice)[0],
        by_problem=budget + float((ranges * wrong).mean()),
        uniform=budget + float(wrong.mean()) * float(ranges.max()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NearOptimality:
    """How far a choice is from the best there is: short <= at_most, and wider_short <= wider_at_most."""

    short: float  # V(B) less the choice's accuracy
    at_most: float  # M̄ε + λ(B - cost)
    wider_short: float  # V(B') less the choice's accuracy, B' being `near_feasible(...).uniform`
    wider_at_most: float  # M̄ε + λ(B' - cost)
    paper: float  # M̄ε, which the paper puts above `wider_short`, and which isn't always


def near_optimal(
    table: AccuracyTable, price: float, choice: npt.ArrayLike, *, budget: float
) -> NearOptimality:
    """Near-optimality, corrected. Paper, Theorem 3 (thm:recovery) (2), which lacks what is unspent."""
    cost, accuracy = averages(table, choice)
    wider = near_feasible(table, price, choice, budget=budget).uniform
    imitation = regret_bound(table, price, choice).uniform
    best = frontier(table)
    return NearOptimality(
        short=best.at(budget) - accuracy,
        at_most=imitation + price * (budget - cost),
        wider_short=best.at(wider) - accuracy,
        wider_at_most=imitation + price * (wider - cost),
        paper=imitation,
    )


def weak_duality(table: AccuracyTable, price: float, choice: npt.ArrayLike, *, budget: float) -> float:
    """G(λ) less the choice's accuracy: not negative for any choice within the budget. Paper, appendix C.2.

    It is the regret plus price times what is unspent.
    """
    return dual(table, price, budget) - averages(table, choice)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrongDuality:
    """Strong duality: dual = linear >= the best choice >= deterministic >= linear - shortfall."""

    dual: float  # G at the price of the budget, its least value
    linear: float  # V_LP(B), the best mixture
    deterministic: float  # accuracy of the choice found
    shortfall: float  # the one mixed problem's gain, divided by the number of problems


def strong_duality(table: AccuracyTable, *, budget: float) -> StrongDuality:
    """Strong duality of the linear programme, and what a choice without mixing may lack.

    Paper, Proposition 1 (prop:strong), which leaves the shortfall out.

    >>> strong = strong_duality(AccuracyTable.of([[0.5, 0.9]], costs=[1, 2]), budget=1.5)
    >>> round(strong.dual, 3), round(strong.linear, 3), strong.deterministic, round(strong.shortfall, 3)
    (0.7, 0.7, 0.5, 0.4)
    """
    plan = solve(table, budget=budget)
    gains = [table.accuracy[move.problem, [plan.choice[move.problem], move.mode]] for move in plan.mix]
    return StrongDuality(
        dual=dual(table, plan.price, budget),
        linear=frontier(table).at(max(budget, plan.cost)),
        deterministic=plan.accuracy,
        shortfall=sum(float(after - before) for before, after in gains) / len(table),
    )


def _mask_wrong(table: AccuracyTable, price: float, choice: npt.ArrayLike) -> Bools:
    return np.asarray(best_at(table, price) != np.asarray(choice))


def _check_oracle_cost(table: AccuracyTable, price: float, budget: float) -> None:
    cost = averages(table, best_at(table, price))[0]
    if cost > budget * (1 + 1e-12):
        raise BudgetOutOfRange(
            f"the oracle at price {price:g} costs {cost:g} {table.unit} on average, above the budget "
            f"{budget:g}; give a higher price, or a budget of {cost:g} or more"
        )
