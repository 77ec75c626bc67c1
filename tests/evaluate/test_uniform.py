"""The same for every problem: the best mix of two modes, never above the frontier."""

from itertools import product

import numpy as np
import pytest

from adacompute import AccuracyTable, frontier
from adacompute.errors import BudgetOutOfRange
from adacompute.evaluate import cost_for_accuracy, solve_uniform, uniform_frontier

SEEDS = range(20)


def random_table(seed: int, *, modes: int = 4, problems: int = 7, shared: bool = True) -> AccuracyTable:
    rng = np.random.default_rng(seed)
    costs = np.sort(rng.uniform(1, 9, size=modes if shared else (problems, modes)), axis=-1)
    return AccuracyTable.of(rng.integers(0, 9, size=(problems, modes)) / 8, costs=costs)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_mix_of_two_modes_within_the_budget_is_better(seed: int, shared: bool):
    table = random_table(seed, shared=shared)
    accuracy, costs = table.accuracy.mean(axis=0), table.cost_matrix.mean(axis=0)
    for budget in np.linspace(costs[0], costs[-1] + 1, 7):
        best = 0.0
        for a, b in product(range(len(costs)), repeat=2):
            if costs[a] <= budget:
                share = 1.0 if costs[b] <= budget else (budget - costs[a]) / (costs[b] - costs[a])
                best = max(best, accuracy[a] + share * (accuracy[b] - accuracy[a]))
        found = solve_uniform(table, budget=float(budget))
        assert found.accuracy.mean == pytest.approx(best)
        assert found.cost <= budget * (1 + 1e-12)
        assert found.accuracy.mean == pytest.approx(uniform_frontier(table).at(float(budget)))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_alike_are_never_above_the_frontier(seed: int):
    table = random_table(seed, shared=False)
    curve = frontier(table)
    for budget in np.linspace(table.cost_matrix.mean(axis=0)[0], 10, 9):
        assert solve_uniform(table, budget=float(budget)).accuracy.mean <= curve.at(float(budget)) + 1e-12


def test_a_mode_below_the_hull_is_passed_over():
    table = AccuracyTable.of([[0.6, 0.6, 0.9]], costs=[1, 2, 4])  # a vote of two is worth one sample
    found = solve_uniform(table, budget=2)
    assert (found.modes, found.probability) == ((1, 4), pytest.approx(1 / 3))
    assert found.accuracy.mean == pytest.approx(0.7)


def test_where_one_mode_serves_alone_nothing_is_mixed():
    found = solve_uniform(AccuracyTable.of([[0.5, 0.9], [0.7, 0.7]], costs=[1, 2]), budget=2)
    assert (found.modes, found.probability, found.cost) == ((2, 2), 0.0, 2.0)


def test_a_budget_below_the_cheapest_mode_is_refused():
    with pytest.raises(BudgetOutOfRange, match=r"0\.5"):
        solve_uniform(AccuracyTable.of([[0.5, 0.9]], costs=[1, 2]), budget=0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cost_of_an_accuracy_buys_it(seed: int):
    curve = uniform_frontier(random_table(seed))
    for accuracy in np.linspace(curve.accuracy[0], curve.accuracy[-1], 5):
        cost = cost_for_accuracy(curve, float(accuracy))
        assert cost is not None
        assert curve.at(cost) == pytest.approx(accuracy)
    assert cost_for_accuracy(curve, float(curve.accuracy[-1]) + 1e-6) is None


def test_what_the_oracle_can_pay_all_alike_may_not_and_the_message_says_so():
    table = AccuracyTable.of([[0.5, 0.9], [0.9, 0.5]], costs=[[1, 10], [10, 1]], order="any")
    with pytest.raises(BudgetOutOfRange, match=r"below what one mode for every problem can cost \(5.5"):
        solve_uniform(table, budget=2.0)


def test_the_best_accuracy_there_is_has_a_cost_and_what_is_no_number_has_none():
    rng = np.random.default_rng(0)
    for _ in range(100):
        accuracy = np.round(np.sort(rng.random((5, 4)), axis=1) * 48) / 48
        curve = frontier(AccuracyTable.of(accuracy, costs=[1, 3, 7, 11]))
        assert cost_for_accuracy(curve, float(accuracy.max(axis=1).mean())) is not None
    assert cost_for_accuracy(curve, float("nan")) is None
