"""The hull of a policy's points is what mixing two of them can reach, and no more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.replay.sweep import Mixture, compute_hull_height, find_hull, find_mixture

points = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=8)


def brute(cost, accuracy, budget: float) -> float | None:
    """The best mixture of any two points that costs no more than the budget."""
    best = None
    for i in range(len(cost)):
        for j in range(len(cost)):
            if cost[i] > budget:
                continue
            share = 1.0 if cost[j] <= budget else (budget - cost[i]) / (cost[j] - cost[i])
            value = (1 - share) * accuracy[i] + share * accuracy[j]
            best = value if best is None else max(best, value)
    return best


@given(points=points, budget=st.integers(0, 26))
def test_the_hull_is_the_best_mixture_of_two_points(points, budget):
    cost, accuracy = np.array(points, dtype=float).T
    found, best = find_mixture(cost, accuracy, budget / 2), brute(cost, accuracy, budget / 2)
    height = compute_hull_height(cost[None], accuracy[None], budget / 2)[0]
    if best is None:
        assert found is None
        assert np.isnan(height)
        return
    assert found is not None
    assert found.mix(accuracy) == pytest.approx(best)
    assert found.mix(cost) <= budget / 2 + 1e-12
    assert height == pytest.approx(best)
    assert 0 <= found.share <= 1


@given(points=points)
def test_corners_rise_in_cost_and_accuracy_at_falling_slopes(points):
    cost, accuracy = np.array(points, dtype=float).T
    corners = find_hull(cost, accuracy)
    assert (np.diff(cost[corners]) > 0).all()
    assert (np.diff(accuracy[corners]) > 0).all()
    assert (np.diff(np.diff(accuracy[corners]) / np.diff(cost[corners])) < 0).all()
    assert cost[corners[0]] == cost.min()
    assert accuracy[corners[-1]] == accuracy.max()


def test_a_budget_below_the_cheapest_point_has_no_mixture_and_one_above_the_best_has_the_best():
    assert find_mixture([1.5, 3], [0.5, 0.6], 1.4) is None
    assert find_mixture([1.5, 3], [0.5, 0.6], 1.5 * (1 - 1e-12)) == Mixture(0, 0, 0.0)
    assert find_mixture([1.5, 3, 9], [0.5, 0.6, 0.55], 20) == Mixture(1, 1, 0.0)
    assert find_mixture([1.5, 3], [0.5, 0.6], 1.5) == Mixture(0, 0, 0.0)


def test_a_mixture_applies_to_each_problem():
    each = np.array([[0.0, 1.0], [1.0, 1.0]])
    assert Mixture(0, 1, 0.25).mix(each).tolist() == [0.25, 1.0]
