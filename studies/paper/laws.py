"""The paper's theorems tried on a recording's own table: a quantity, its bound, whether it holds.

Each statement is tried in many cases (prices, average budgets, seeds); kept of it are how many there were,
how many held, and the tightest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable
from adacompute.report.document import Column, Section, Table
from adacompute.solve import averages, best_at, dual, solve
from studies.paper import theory
from studies.paper.budget_choices import ClassifierFits
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import TARGET_BUDGETS, compute_staircase, select_reachable

__all__ = ["OWN_FORM", "Law", "build_section", "try_laws"]

Ints = npt.NDArray[np.int64]

OWN_FORM = "the paper's own form"  # which isn't true in general
_ROUNDING = 1e-9
_PRICES = 40
Trial = tuple[float, float]  # quantity, and what it may not pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One statement and the result of trying it."""

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
class _Decision:
    """What a classifier decided for some problems, with their table and the oracle's price."""

    table: AccuracyTable
    price: float
    budget: float
    choice: Ints
    raised: bool = False  # whether the budget is more than was asked for


def try_laws(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> tuple[Law, ...]:
    """Try every statement on the paper's windows; those about a learned policy also held-out."""
    result = [*_try_table_laws(case.windows, select_reachable(case, TARGET_BUDGETS))]
    for protocol, decided in (
        ("scored as the paper does", [*_decide_all(case, fits)]),
        ("held-out", [*_decide_held_out(case, fits)]),
    ):
        result += [replace(law, protocol=protocol) for law in _try_choice_laws(decided)]
    return tuple(law for law in result if law.tried)


def _try_table_laws(table: AccuracyTable, budgets: tuple[float, ...]) -> Iterator[Law]:
    stairs = compute_staircase(table)
    prices = np.unique(np.append(stairs.price, np.geomspace(1e-4, 5.0, _PRICES)))
    prices = prices[np.linspace(0, len(prices) - 1, min(len(prices), 4 * _PRICES)).astype(np.int64)]
    costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
    yield _build_law(
        "monotone",
        "Theorem 1: a higher price never costs more",
        list(zip(costs[1:], costs[:-1], strict=True)),
    )
    plans = {budget: solve(table, budget=budget) for budget in budgets}
    yield _build_law(
        "weak",
        "Weak duality: no choice within B is more accurate than G(λ), at any price",
        [
            (plan.accuracy, dual(table, float(price), budget))
            for budget, plan in plans.items()
            for price in prices[:: max(1, len(prices) // _PRICES)]
        ],
    )
    strong = [theory.strong_duality(table, budget=budget) for budget in budgets]
    yield _build_law(
        "strong",
        "Proposition 1: V(B) equals the least G(λ), for mixtures",
        [(abs(one.dual - one.linear), 0.0) for one in strong],
        form="corrected",
    )
    yield _build_law(
        "edge",
        "… and one budget for each problem lacks at most one edge's gain over N",
        [(one.linear - one.deterministic, one.shortfall) for one in strong],
        form="corrected",
    )
    singles = {budget: solve(table, budget=budget, method="bisection") for budget in budgets}
    yield _build_law(
        "single",
        "… the single price's own labels are an exact solution",
        [(plans[budget].bound - single.accuracy, 0.0) for budget, single in singles.items()],
        form=OWN_FORM,
    )


def _try_choice_laws(decided: list[_Decision]) -> Iterator[Law]:
    yield from _try_regret_laws(decided)
    yield from _try_recovery_laws(decided)


def _try_regret_laws(decided: list[_Decision]) -> Iterator[Law]:
    bounds = [theory.regret_bound(one.table, one.price, one.choice) for one in decided]
    yield _build_law(
        "regret",
        "Theorem 2: regret is at most the mean of M(x) where it errs",
        [(one.regret, one.by_problem) for one in bounds],
    )
    yield _build_law(
        "uniform",
        "… and at most M̄ε, the worst gap times the share of errors",
        [(one.by_problem, one.uniform) for one in bounds],
    )
    parts = [theory.decomposition(one.table, one.price, one.choice) for one in decided]
    yield _build_law(
        "decomposition",
        "Corollary 1: regret is the accuracy gap less λ times the cost gap",
        [(abs(one.accuracy_gap - one.price * one.cost_deviation - one.regret), 0.0) for one in parts],
    )


def _try_recovery_laws(decided: list[_Decision]) -> Iterator[Law]:
    raised = sum(one.raised for one in decided)
    for law in _try_budget_laws(decided):
        yield replace(law, raised=raised)


def _try_budget_laws(decided: list[_Decision]) -> Iterator[Law]:
    """Try the statements about B, which hold only where the oracle's own budgets don't cost more."""
    costs = [theory.near_feasible(one.table, one.price, one.choice, budget=one.budget) for one in decided]
    yield _build_law(
        "feasible",
        "Theorem 3 (1): cost is at most B′ = B + ε times the widest range of costs",
        [(one.cost, one.uniform) for one in costs],
    )
    near = [theory.near_optimal(one.table, one.price, one.choice, budget=one.budget) for one in decided]
    yield _build_law(
        "optimal",
        "Theorem 3 (2): V(B) less accuracy is at most M̄ε + λ(B − cost)",
        [(one.short, one.at_most) for one in near],
        form="corrected",
    )
    yield _build_law(
        "wider",
        "… V(B′) less accuracy is at most M̄ε + λ(B′ − cost)",
        [(one.wider_short, one.wider_at_most) for one in near],
        form="corrected",
    )
    yield _build_law(
        "stated",
        "… V(B′) less accuracy is at most M̄ε",
        [(one.wider_short, one.paper) for one in near],
        form=OWN_FORM,
    )


def _decide_all(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Iterator[_Decision]:
    for fit in fits.values():
        for predicted in fit.predicted:
            yield _Decision(table=case.windows, price=fit.price, budget=fit.budget, choice=predicted)


def _decide_held_out(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Iterator[_Decision]:
    """Decide on held-out problems, by all subsets; B is raised to the oracle's own cost if that is more.

    The price is that of all problems by the windows. On a fifth of them, over all subsets, its
    budgets may cost more than B, and the paper states nothing about such a B.
    """
    for fit in fits.values():
        for predicted, train in zip(fit.predicted, fit.train, strict=True):
            rows = np.flatnonzero(~train)
            if not len(rows):
                continue
            table = AccuracyTable.of(case.exact.accuracy[rows], costs=case.exact.costs, modes=case.budgets)
            cost = averages(table, best_at(table, fit.price))[0]
            yield _Decision(
                table=table,
                price=fit.price,
                budget=max(fit.budget, cost),
                choice=predicted[rows],
                raised=cost > fit.budget + _ROUNDING,
            )


def _build_law(key: str, statement: str, trials: list[Trial], *, form: str = "as the paper states it") -> Law:
    tightest = max(trials, key=lambda trial: trial[0] - trial[1], default=(np.nan, np.nan))
    return Law(
        key=key,
        statement=statement,
        form=form,
        protocol="the oracle, on all problems",
        quantity=float(tightest[0]),
        bound=float(tightest[1]),
        tried=len(trials),
        held=sum(quantity <= bound + _ROUNDING for quantity, bound in trials),
    )


_NONE = (
    "statements on the learned policy: no classifier was fitted, since B can't be reached; "
    "collect more samples of every problem"
)


def build_section(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Section:
    """Every statement with a quantity, its bound, and whether it holds."""
    result = try_laws(case, fits)
    return Section(
        key="laws",
        title="The paper's statements, checked",
        words=_compose_words(result),
        tables=(build_table(result),),
        missing=() if fits else (_NONE,),
    )


def build_table(results: Sequence[Law]) -> Table:
    """Build a row per statement and reading."""
    return Table(
        key="laws",
        title="Statements and bounds",
        protocol=(
            "By the paper's windows on all problems, and by all subsets on the problems not learned from "
            "(held-out); every B and every seed."
        ),
        columns=(
            Column(name="statement"),
            Column(
                name="form", about="as the paper states it, corrected, or the paper's own where that fails"
            ),
            Column(name="tried on"),
            Column(name="quantity", kind="price", about="in the tightest case"),
            Column(name="bound", kind="price", about="in the tightest case"),
            Column(name="cases", kind="count"),
            Column(name="held", kind="count"),
            Column(name="holds", kind="flag"),
        ),
        rows=tuple(
            (
                law.statement,
                law.form,
                law.protocol,
                _round_off(law.quantity),
                _round_off(law.bound),
                law.tried,
                law.held,
                law.holds,
            )
            for law in results
        ),
        note="Quantity and bound: of the case whose quantity comes nearest to its bound, or passes it."
        + _count_raised(results),
    )


def _count_raised(results: Sequence[Law]) -> str:
    """Say in how many cases B isn't the one that was asked for."""
    own = [law for law in results if law.raised]
    if not own:
        return ""
    return (
        " Held-out, Theorem 3 is tried with B raised to what the oracle's own budgets cost on the problems "
        f"judged, where that is more than B: in {own[0].raised} of {own[0].tried} cases."
    )


def _round_off(value: float) -> float:
    """Round tiny values to 0: rounding errors of sums are no quantity."""
    return 0.0 if abs(value) < 1e-12 else value


def _compose_words(results: Sequence[Law]) -> tuple[str, ...]:
    right = [law for law in results if law.form != OWN_FORM]
    own = [law for law in results if law.form == OWN_FORM]
    broken = [law for law in right if not law.holds]
    if broken:
        first = (
            f"{len(broken)} of {len(right)} statements fail here, which they can't: please report this pool."
        )
    else:
        first = f"All {len(right)} statements hold on this pool, in the form in which they can be proved."
    second = (
        "Two are listed once more in the paper's own form, which isn't true in general "
        f"(studies/paper/theory.md has counter-examples). {' '.join(_describe_law(law) for law in own)}"
    )
    return (first, second) if own else (first,)


def _describe_law(law: Law) -> str:
    name = {"single": "The single price's labels being exact", "stated": "Near-optimality"}[law.key]
    where = "" if law.key == "single" else f", {law.protocol},"
    if law.holds:
        return f"{name}{where} happens to hold here ({law.held} of {law.tried} cases)."
    return f"{name}{where} fails here in {law.tried - law.held} of {law.tried} cases."
