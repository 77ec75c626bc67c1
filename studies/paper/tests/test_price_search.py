"""The price search: bisection beside the exact solve, the staircase, the mechanism."""

import numpy as np
import pytest

from adacompute.solve import averages, best_at, solve
from studies.paper.mechanism import compute_mechanism
from studies.paper.price_search import (
    compute_staircase,
    compute_staircases,
    describe_unreachable,
    search_prices,
    select_reachable,
)


def test_the_staircase_is_the_oracles_cost_at_every_price(case):
    for table in (case.windows, case.exact):
        stairs = compute_staircase(table)
        rng = np.random.default_rng(1)
        prices = np.concatenate([rng.random(40) * 0.2, stairs.price, [0.0, 5.0]])
        costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
        assert [stairs.at(float(price)) for price in prices] == pytest.approx(costs)


def test_stairs_fall_and_their_prices_rise_from_nought(case):
    for stairs in (compute_staircases(case).windows, compute_staircases(case).exact):
        assert stairs.price[0] == 0.0
        assert (np.diff(stairs.price) > 0).all()
        assert (np.diff(stairs.cost) < 0).all()
        assert stairs.tallest == pytest.approx(-np.diff(stairs.cost).min())
        low, high = stairs.between(0.8)
        fall = stairs.free - stairs.cost[-1]
        assert 0 <= low <= high
        assert stairs.free - stairs.at(high) >= 0.9 * fall - 1e-9


def test_bisection_stops_on_the_stair_below_the_budget_and_the_exact_solve_meets_it(case):
    stairs = compute_staircase(case.windows)
    found = search_prices(case)
    assert [one.budget for one in found] == [1.5, 2.0, 3.0]
    for one in found:
        assert one.binding
        assert one.cost == pytest.approx(stairs.cost[stairs.cost <= one.budget].max())
        assert one.above == pytest.approx(stairs.cost[stairs.cost > one.budget].min())
        assert one.error == pytest.approx(one.budget - one.cost)
        assert one.monotone
        assert one.mixed_cost == pytest.approx(one.budget)
        assert one.cost - 1e-12 <= one.exact_cost <= one.budget + 1e-12
        assert one.price == pytest.approx(one.exact_price, abs=1e-6)
        assert len(one.trace.price) == 50


def test_the_gap_bounds_what_any_other_choice_could_add(case):
    rng = np.random.default_rng(2)
    for one in search_prices(case):
        for _ in range(30):
            choice = best_at(case.windows, float(rng.random() * 0.2))
            cost, accuracy = averages(case.windows, choice)
            assert cost > one.budget or accuracy <= one.accuracy + one.gap + 1e-12


def test_a_budget_above_what_the_oracle_wants_has_price_nought_and_no_steps(poor_cases):
    for one in search_prices(poor_cases["all right"]):
        assert not one.binding
        assert (one.price, one.exact_price, one.cost, one.mixed, one.within) == (0.0, 0.0, 1.0, 0, None)
        assert len(one.trace.price) == 0


def test_budgets_beyond_the_samples_are_left_out_and_said(poor_cases):
    short = poor_cases["two samples"]
    assert select_reachable(short) == (1.5, 2.0)
    assert [one.budget for one in search_prices(short)] == [1.5, 2.0]
    (line,) = describe_unreachable(short)
    assert "B = 3" in line
    assert "collect more samples" in line


def test_every_problems_budget_by_price_is_the_oracles(case):
    found = compute_mechanism(case)
    for at in range(0, len(found.prices), 17):
        best = best_at(case.windows, float(found.prices[at]))
        assert found.chosen[:, at].tolist() == best.tolist()
        counts = np.bincount(best, minlength=len(case.budgets))
        assert found.shares[at] == pytest.approx(counts / len(case))


def test_the_problem_shown_has_a_different_best_budget_at_each_price(case):
    shown = compute_mechanism(case).shown
    assert shown is not None
    assert len(shown.regimes) == 3
    assert len({regime.best for regime in shown.regimes}) == 3
    for regime in shown.regimes:
        assert regime.net[regime.best] == pytest.approx(regime.net.max())
    prices = [price for price, _ in shown.turns]
    assert prices == sorted(prices)
    assert shown.turns[-1][1] == 1


def test_where_no_vote_gains_no_problem_is_shown(poor_cases):
    for name in ("all right", "all wrong"):
        assert compute_mechanism(poor_cases[name]).shown is None
        assert compute_staircase(poor_cases[name].windows).cost.tolist() == [1.0]
        assert compute_staircase(poor_cases[name].windows).between(0.8) == (0.0, 0.0)


def test_a_search_agrees_with_solve(case):
    for one in search_prices(case, (2.5,)):
        plan = solve(case.windows, budget=2.5)
        assert (one.exact_price, one.exact_cost, one.bound) == (plan.price, plan.cost, plan.bound)
