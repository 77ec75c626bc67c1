"""The same cost for all: hulls against every mix of two settings, and intervals against theory."""

from itertools import product

import numpy as np
import pytest

from adacompute.evaluate import Bootstrap, Interval, PolicyPoints, join_points, match_cost, paired_interval
from adacompute.evaluate.comparison import UniformCurves, uniform_equivalent

SEEDS = range(20)


def random_points(seed: int, *, settings: int = 6, problems: int = 9) -> PolicyPoints:
    rng = np.random.default_rng(seed)
    return PolicyPoints(
        cost=rng.uniform(1, 9, size=(settings, problems)), accuracy=rng.random((settings, problems))
    )


def alike(costs: list[float], accuracy: np.ndarray) -> PolicyPoints:
    return PolicyPoints(
        cost=np.repeat(np.array(costs)[:, None], accuracy.shape[1], axis=1), accuracy=accuracy
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_mix_of_two_settings_at_the_same_cost_is_better(seed: int):
    points = random_points(seed)
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)
    for budget in np.linspace(cost.min(), cost.max() + 1, 9):
        best = -1.0
        for a, b in product(range(len(cost)), repeat=2):
            if cost[a] <= budget:
                share = 0.0 if cost[b] <= budget else (budget - cost[a]) / (cost[b] - cost[a])
                best = max(best, accuracy[a] + share * (accuracy[b] - accuracy[a]))
        found = match_cost(points, float(budget))
        assert found is not None
        assert found.accuracy == pytest.approx(best)
        assert found.cost <= budget + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_each_problems_part_adds_up_to_the_accuracy(seed: int):
    points = random_points(seed)
    low, high = points.cost.mean(axis=1).min(), points.cost.mean(axis=1).max()
    for budget in np.linspace(low, high, 5):
        found = match_cost(points, float(budget))
        assert found is not None
        assert found.each.mean() == pytest.approx(found.accuracy)
        one, other = found.settings
        mixed = (1 - found.probability) * points.cost[one] + found.probability * points.cost[other]
        assert mixed.mean() == pytest.approx(found.cost)


def test_below_the_cheapest_setting_there_is_nothing_and_beyond_the_best_it_stays():
    points = alike([2.0, 4.0], np.array([[0.5, 0.5], [0.9, 0.7]]))
    assert match_cost(points, 1.9) is None
    beyond = match_cost(points, 9.0)
    assert beyond is not None
    assert (beyond.accuracy, beyond.cost, beyond.settings) == (pytest.approx(0.8), 4.0, (1, 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_joint_hull_is_never_below_any_of_its_own(seed: int):
    parts = [random_points(3 * seed + k) for k in range(3)]
    together = join_points(parts)
    for budget in (3.0, 5.0, 7.0):
        top = match_cost(together, budget)
        for part in parts:
            own = match_cost(part, budget)
            if own is not None:
                assert top is not None
                assert top.accuracy >= own.accuracy - 1e-12


def test_a_problem_drawn_more_often_moves_the_hull_as_its_part_says():
    rng = np.random.default_rng(1)
    points = PolicyPoints(
        cost=rng.uniform(1, 3, (2, 400)) + np.array([[0], [4]]),
        accuracy=rng.random((2, 400)) / 2 + np.array([[0], [0.4]]),
    )
    here = match_cost(points, 4.0)
    assert here is not None
    for seed in range(5):
        rows = np.random.default_rng(seed).integers(0, 400, 400)
        again = match_cost(PolicyPoints(cost=points.cost[:, rows], accuracy=points.accuracy[:, rows]), 4.0)
        assert again is not None
        # to first order: what is left is far below the change itself
        assert again.accuracy == pytest.approx(here.each[rows].mean(), abs=2e-3)


def test_the_paired_interval_agrees_with_the_normal_one():
    rng = np.random.default_rng(0)
    one, other = rng.random(500), rng.random(500)
    found, expected = Bootstrap.of(500).difference(one, other), paired_interval(one, other)
    assert expected is not None
    assert found.mean == pytest.approx(float((one - other).mean()))
    assert found.low == pytest.approx(expected[0], abs=0.003)
    assert found.high == pytest.approx(expected[1], abs=0.003)


def test_a_paired_interval_is_narrower_than_its_parts_where_problems_matter_most():
    rng = np.random.default_rng(0)
    hard = rng.random(300)
    one, other = hard + rng.normal(0, 0.02, 300), hard + rng.normal(0, 0.02, 300)
    boot = Bootstrap.of(300)
    apart, alone = boot.difference(one, other), boot.interval(one)
    assert apart.high is not None
    assert apart.low is not None
    assert alone.high is not None
    assert alone.low is not None
    assert apart.high - apart.low < 0.2 * (alone.high - alone.low)


def test_one_problem_has_no_interval_and_proves_nothing():
    found = Bootstrap.of(1).interval(np.array([0.7]))
    assert (found.mean, found.low, found.high) == (0.7, None, None)
    assert found.holds_zero
    assert not Interval(mean=0.2, low=0.1, high=0.3).holds_zero
    assert Interval(mean=0.2, low=-0.1, high=0.3).holds_zero


def test_what_a_setting_is_worth_in_uniform_samples_is_read_off_their_curve():
    plain = alike([1.0, 2.0, 4.0], np.tile([[0.4], [0.6], [0.8]], (1, 50)))
    for accuracy, cost in ((0.5, 1.5), (0.7, 3.0), (0.9, np.inf)):
        own = match_cost(alike([2.0], np.full((1, 50), accuracy)), 2.0)
        assert own is not None
        boot = Bootstrap.of(50, draws=100)
        found = uniform_equivalent(own, UniformCurves.of(plain, boot), boot=boot)
        assert found.mean == pytest.approx(cost)
        assert found.high == pytest.approx(cost)
