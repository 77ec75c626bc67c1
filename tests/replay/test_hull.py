"""The hull of a policy's points is what mixing two of them can reach, and no more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.solve.hull import find_hull

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
    corners, best = find_hull(cost, accuracy), brute(cost, accuracy, budget / 2)
    if best is None:
        assert budget / 2 < cost[corners[0]]
    else:
        assert np.interp(budget / 2, cost[corners], accuracy[corners]) == pytest.approx(best)


@given(points=points)
def test_corners_rise_in_cost_and_accuracy_at_falling_slopes(points):
    cost, accuracy = np.array(points, dtype=float).T
    corners = find_hull(cost, accuracy)
    assert (np.diff(cost[corners]) > 0).all()
    assert (np.diff(accuracy[corners]) > 0).all()
    assert (np.diff(np.diff(accuracy[corners]) / np.diff(cost[corners])) < 0).all()
    assert cost[corners[0]] == cost.min()
    assert accuracy[corners[-1]] == accuracy.max()
