"""What can't be solved is refused, in one line that names the value and the remedy."""

import re

import numpy as np
import pytest

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable
from adacompute.solve import Cap, averages, best_at, dual, frontier, solve

SAMPLES = (1.0, 2.0, 4.0, 8.0, 16.0)


def test_the_least_budget_that_is_told_is_accepted():
    rng = np.random.default_rng(14)
    for _ in range(30):
        costs = np.array(SAMPLES) * rng.lognormal(5, 0.5, (7, 1))
        table = AccuracyTable.of(rng.random((7, 5)), costs=costs, unit="tokens")
        with pytest.raises(BudgetOutOfRange) as raised:
            solve(table, budget=1.0)
        told = float(re.search(r"give (\S+) to", str(raised.value))[1])
        assert solve(table, budget=told).cost <= told


@pytest.mark.parametrize("choice", [[2, 0], [-1, 0], [0.0, 1.0], [0], [[0, 1]]])
@pytest.mark.parametrize("costs", [[1, 2], [[1, 2], [3, 9]]])
def test_a_choice_that_isnt_one_is_refused(choice: list, costs: list):
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=costs)
    with pytest.raises(TableInvalid, match=r"choice .*; give "):
        averages(table, choice)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf"), "x", None])
def test_a_price_that_isnt_one_is_refused(price: object):
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    with pytest.raises(BudgetOutOfRange, match=r"price .* give a number from 0 up"):
        best_at(table, price)
    with pytest.raises(BudgetOutOfRange, match=r"price .* give a number from 0 up"):
        dual(table, price, 1.5)


@pytest.mark.parametrize("table", [None, [[0.5, 0.9]], np.zeros((2, 2))])
def test_only_tables_are_solved(table: object):
    for work in (frontier, lambda t: solve(t, budget=2.0), lambda t: best_at(t, 0.1)):
        with pytest.raises(TableInvalid, match="is not an accuracy table"):
            work(table)


@pytest.mark.parametrize("budget", [0.5, -1.0, float("nan"), -float("inf")])
def test_a_budget_below_the_cheapest_is_refused_by_value(budget: float):
    table = AccuracyTable.of([[0.5, 0.9]], costs=[1, 16])
    with pytest.raises(BudgetOutOfRange, match=rf"budget {budget} .*\(1 sample on average\); give 1 to 16"):
        solve(table, budget=budget)
    if budget == budget:
        with pytest.raises(BudgetOutOfRange, match=r"give 1 or more"):
            frontier(table).at(budget)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "newton"}, "method 'newton' is not known; give 'exact' or 'bisection'"),
        ({"budget": "2"}, "budget '2' is not a number"),
        ({"budget": None}, "budget None is not a number"),
        ({"budget": 2 + 1j}, "is not a number"),
        ({"limits": Cap(name="s", costs=[1, 2], at_most=2)}, "give a list of Cap"),
        ({"limits": [{"name": "s"}]}, "give a list of Cap"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict, message: str):
    table = AccuracyTable.of([[0.5, 0.9]], costs=[1, 16])
    with pytest.raises((TableInvalid, BudgetOutOfRange), match=message):
        solve(table, **({"budget": 2.0} | arguments))


def test_prices_above_the_papers_range_are_said_to_be():
    table = AccuracyTable.of([[0.1, 0.9], [0.2, 0.7]], costs=[0.001, 0.002], unit="dollars")
    with pytest.raises(BudgetOutOfRange, match="highest price, 5"):
        solve(table, budget=0.0011, method="bisection")
    assert solve(table, budget=0.0011).cost <= 0.0011
