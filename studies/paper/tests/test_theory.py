"""The paper's theorems as laws on random and degenerate tables; where they fail, a counter-example each."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tables import KINDS, budgeted, chosen, prices, spread, tables

from adacompute.errors import BudgetOutOfRange
from adacompute.records import AccuracyTable
from adacompute.solve import averages, best_at, dual, frontier, solve
from studies.paper.theory import (
    decomposition,
    near_feasible,
    near_optimal,
    net_values,
    penalised_value,
    regret,
    regret_bound,
    strong_duality,
    weak_duality,
    worst_gaps,
)

TAME = tuple(kind for kind in KINDS if kind != "wild")
law = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rounding(table: AccuracyTable, price: float = 0.0) -> float:
    """What doubles, and slopes rounded to 2^-36 of their size, may add."""
    return 3e-11 * (1 + price * float(table.costs.max()))


def highs(table: AccuracyTable, budget: float) -> float:
    """The optimum over mixed allocations, by a solver that isn't ours."""
    rows, modes = table.accuracy.shape
    found = scipy.optimize.linprog(
        -table.accuracy.ravel() / rows,
        A_ub=table.cost_matrix.reshape(1, -1) / rows,
        b_ub=[budget],
        A_eq=np.kron(np.eye(rows), np.ones(modes)),
        b_eq=np.ones(rows),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return -float(found.fun)


@law
@given(tables(), prices(), prices())
def test_cost_never_rises_with_price_neither_on_average_nor_for_any_problem(table, one, other):
    low, high = sorted((one, other))
    costs = table.cost_matrix[
        np.arange(len(table))[:, None], np.array([best_at(table, low), best_at(table, high)]).T
    ]
    assert (costs[:, 1] <= costs[:, 0]).all()


@law
@given(tables(order="any"), prices())
def test_the_oracle_has_the_most_net_value_and_for_free_the_cheapest_of_equals(table, price):
    net, rows = net_values(table, price), np.arange(len(table))
    best = best_at(table, price)
    assert (net[rows, best] >= net.max(axis=1) - rounding(table, price)).all()
    clear = net[rows, best][:, None] <= net  # as good or better in doubles
    cheaper = table.cost_matrix < table.cost_matrix[rows, best][:, None]
    gain = table.accuracy[rows, best][:, None] - table.accuracy
    if price == 0:  # exact: no rounding can part equal accuracies
        assert not (clear & cheaper & (gain == 0)).any()


@law
@given(
    st.lists(st.lists(st.integers(0, 16), min_size=4, max_size=4), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.125, 0.25, 0.5]),
)
def test_of_equal_net_values_the_oracle_takes_the_cheapest(sixteenths, price):
    table = AccuracyTable.of(np.array(sixteenths) / 16, costs=[1, 2, 3, 4])  # all sums are exact
    net = net_values(table, price)
    assert best_at(table, price).tolist() == net.argmax(axis=1).tolist()


@law
@given(chosen(), prices(), st.floats(0, 2))
def test_weak_duality_holds_for_every_choice_within_the_budget(given_choice, price, spare):
    table, choice = given_choice
    cost, accuracy = averages(table, np.array(choice))
    budget = cost * (1 + spare)
    gap = weak_duality(table, price, choice, budget=budget)
    assert gap >= -rounding(table, price)
    assert gap == pytest.approx(
        regret(table, price, choice) + price * (budget - cost),
        abs=4 * rounding(table, price) + 1e-12 * price * budget,
    )
    assert frontier(table).at(max(budget, spread(table)[0])) >= accuracy - 1e-12


@law
@given(budgeted(kinds=TAME))
def test_strong_duality_holds_for_mixtures_and_a_choice_lacks_one_edge_at_most(given_budget):
    table, budget = given_budget
    found = strong_duality(table, budget=budget)
    assert found.dual == pytest.approx(found.linear, abs=1e-11)
    assert found.linear == pytest.approx(highs(table, budget), abs=1e-9)
    assert found.linear - found.shortfall - 1e-11 <= found.deterministic <= found.linear + 1e-11
    assert found.shortfall <= np.ptp(table.accuracy, axis=1).max() / len(table) + 1e-12


@law
@given(budgeted(kinds=TAME), prices())
def test_the_price_of_a_budget_is_where_the_dual_is_lowest(given_budget, other):
    table, budget = given_budget
    plan = solve(table, budget=budget)
    assert dual(table, plan.price, budget) <= dual(table, other, budget) + rounding(table, plan.price + other)


@law
@given(budgeted(most_problems=4, most_modes=3))
def test_the_best_deterministic_choice_lies_between_accuracy_and_bound(given_budget):
    table, budget = given_budget
    plan = solve(table, budget=budget)
    every = itertools.product(range(len(table.modes)), repeat=len(table))
    within = [
        (c, a) for c, a in (averages(table, np.array(way)) for way in every) if c <= budget * (1 + 1e-12)
    ]
    best = max(accuracy for _, accuracy in within)
    assert plan.accuracy - 1e-12 <= best <= plan.bound + 1e-12
    assert best >= plan.bound - strong_duality(table, budget=budget).shortfall - 1e-11


@law
@given(chosen(), prices())
def test_regret_is_bounded_by_the_gaps_of_the_wrong_problems(given_choice, price):
    table, choice = given_choice
    found, slip = regret_bound(table, price, choice), 4 * rounding(table, price)
    assert -slip <= found.regret <= found.by_problem + slip
    assert found.by_problem <= found.uniform + slip
    gaps = worst_gaps(table, price)
    assert (gaps >= -slip).all()
    assert found.worst == gaps.max()
    assert found.error == np.mean(best_at(table, price) != choice)


@law
@given(chosen(order="any"), prices())
def test_regret_is_the_accuracy_gap_less_the_priced_cost_deviation(given_choice, price):
    table, choice = given_choice
    found, slip = decomposition(table, price, choice), 8 * rounding(table, price)
    assert found.regret == pytest.approx(found.accuracy_gap - price * found.cost_deviation, abs=slip)
    assert found.regret == pytest.approx(regret(table, price, choice), abs=slip)
    oracle = penalised_value(table, price, best_at(table, price))
    assert oracle == pytest.approx(net_values(table, price).max(axis=1).mean(), abs=slip)


@law
@given(chosen(), prices(), st.floats(0, 1))
def test_cost_is_within_the_budget_and_the_ranges_of_the_wrong_problems(given_choice, price, spare):
    table, choice = given_choice
    budget = averages(table, best_at(table, price))[0] * (1 + spare)
    found = near_feasible(table, price, choice, budget=budget)
    slip = 1e-12 * (1 + float(table.costs.max()))
    assert found.cost <= found.by_problem + slip
    assert found.by_problem <= found.uniform + slip
    if table.shared_costs:  # the paper's own form
        error = regret_bound(table, price, choice).error
        assert found.uniform == pytest.approx(budget + error * (table.costs[-1] - table.costs[0]), abs=slip)


@law
@given(chosen(), prices(), st.floats(0, 1))
def test_accuracy_is_near_the_best_but_for_imitation_and_what_is_unspent(given_choice, price, spare):
    table, choice = given_choice
    budget = averages(table, best_at(table, price))[0] * (1 + spare)
    found, slip = near_optimal(table, price, choice, budget=budget), 8 * rounding(table, price)
    slip += 1e-12 * price * budget
    assert found.short <= found.at_most + slip
    assert found.wider_short <= found.wider_at_most + slip
    assert found.short <= found.wider_short + 1e-12


@law
@given(chosen(kinds=TAME))
def test_the_oracle_itself_has_no_regret_and_reaches_the_frontier(given_choice):
    table, _ = given_choice
    curve = frontier(table)
    for price in [0.0, *curve.price[1:].tolist()]:
        best = best_at(table, price)
        cost, accuracy = averages(table, best)
        assert regret_bound(table, price, best).uniform == 0
        assert accuracy == pytest.approx(curve.at(max(cost, curve.cost[0])), abs=rounding(table, price))


def test_a_budget_below_the_oracles_cost_is_refused_with_the_cost():
    table = AccuracyTable.of([[0.5, 0.9]], costs=[1, 4])
    with pytest.raises(BudgetOutOfRange, match=r"price 0\.1 costs 4 samples.*above the budget 2;.*4 or more"):
        near_feasible(table, 0.1, [1], budget=2.0)


# Where the paper's statements fail. Two problems alike, of which a budget of 1.5 serves one:
TWINS = AccuracyTable.of([[0.5, 0.9], [0.5, 0.9]], costs=[1, 2])


def test_counter_example_a_vertex_of_the_programme_may_mix_a_problem():
    """Proposition 1 says V(B) = min G for deterministic policies; appendix C.4 that no vertex mixes."""
    table, budget = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]), 1.25
    every = [averages(table, np.array(way)) for way in itertools.product(range(2), repeat=2)]
    best = max(accuracy for cost, accuracy in every if cost <= budget)
    least = min(dual(table, float(price), budget) for price in np.linspace(0, 1, 101))
    assert best == pytest.approx(0.55)
    assert least == pytest.approx(0.65) == dual(table, 0.4, budget)
    assert highs(table, budget) == pytest.approx(0.65)


def test_counter_example_the_oracle_at_the_budgets_price_is_not_an_exact_solution():
    """Section 3.3: "an exact solution to the original constrained problem". One exists; no price has it."""
    reached = {averages(TWINS, best_at(TWINS, float(price))) for price in np.linspace(0, 1, 1001)}
    assert reached == {(1.0, 0.5), (2.0, 0.9)}
    assert averages(TWINS, np.array([1, 0])) == (1.5, 0.7)


def test_counter_example_near_optimality_fails_even_where_every_label_is_right():
    """Theorem 3 (2) with ε = 0: V(B) - accuracy <= 0. The oracle keeps B = 1.5 and lacks 0.2."""
    price = solve(TWINS, budget=1.5).price
    assert price == pytest.approx(0.4)
    found = near_optimal(TWINS, price, best_at(TWINS, price), budget=1.5)
    assert found.paper == 0
    assert found.short == found.wider_short == pytest.approx(0.2)
    assert found.at_most == pytest.approx(0.2)  # λ(B - cost) = 0.4 · 0.5: ours is met with equality


def test_counter_example_near_optimality_fails_where_a_policy_underspends():
    """Theorem 3 (2) with an oracle that costs exactly B = 6, and a policy that is wrong on one of two."""
    table = AccuracyTable.of([[0.0, 1.0], [0.0, 0.9]], costs=[1, 11])
    assert averages(table, best_at(table, 0.095)) == (6.0, 0.5)
    found = near_optimal(table, 0.095, [0, 0], budget=6.0)
    assert found.paper == pytest.approx(0.025)
    assert found.wider_short == pytest.approx(0.95)  # V(B') = V(11)
    assert found.wider_at_most == pytest.approx(0.975)
    assert found.short == pytest.approx(0.5)
    assert found.at_most == pytest.approx(0.5)


@pytest.mark.parametrize("row", [[0.9, 0.9, 0.9], [0.9, 0.5, 0.2], [0.5, 0.9, 0.9], [0.0, 0.0, 0.0]])
def test_counter_example_free_compute_does_not_give_everyone_the_largest_budget(row):
    """Section 3.1: "When λ = 0 … the oracle assigns the maximum budget to every input"."""
    table = AccuracyTable.of([row], costs=[1, 4, 16])
    assert best_at(table, 0.0).tolist() == [int(np.argmax(row))]
    assert int(np.argmax(row)) < 2


def test_counter_example_a_single_price_misses_the_budget_by_as_much_as_there_are_ties():
    """Section 3.2: C̄(λ_B) ≈ B. A hundred problems alike: the cost is 1 or 16, whatever the price."""
    table = AccuracyTable.of(np.tile([[0.5, 0.5, 0.5, 0.5, 0.95]], (100, 1)), costs=[1, 2, 4, 8, 16])
    costs = {averages(table, best_at(table, float(price)))[0] for price in np.linspace(0, 0.1, 1001)}
    assert costs == {1.0, 16.0}
    plan = solve(table, budget=8.5)
    assert (plan.cost, plan.mixed_cost) == (8.5, 8.5)
    assert plan.accuracy == pytest.approx(0.725)


def test_counter_example_the_duals_minimum_need_not_have_the_budget_as_its_slope():
    """Appendix C.3: at the minimum, C̄(λ) = B. With B = 3 nothing more can be bought, and C̄(0) = 2."""
    assert solve(TWINS, budget=3.0).price == 0
    assert averages(TWINS, best_at(TWINS, 0.0))[0] == 2.0
    assert min(dual(TWINS, float(price), 3.0) for price in np.linspace(0, 1, 101)) == dual(TWINS, 0.0, 3.0)


@law
@given(budgeted(kinds=TAME))
def test_the_papers_near_optimality_holds_where_the_oracle_spends_the_budget_and_none_is_wrong(given_budget):
    """The one case in which the paper's form and ours are the same."""
    table, budget = given_budget
    plan = solve(table, budget=budget)
    oracle = best_at(table, plan.price)
    assume(averages(table, oracle)[0] <= budget)
    found = near_optimal(table, plan.price, oracle, budget=averages(table, oracle)[0])
    assert found.short <= found.paper + 1e-11
