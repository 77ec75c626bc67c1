"""Intervals over problems: as wide as they should be, and the same for the same seed."""

import numpy as np
import pytest

from adacompute.replay.matching import Bootstrap, estimate_gain
from adacompute.replay.replay import bootstrap_mean, compute_interval, draw_resamples


def test_each_resample_draws_as_many_problems_as_there_are():
    weights = draw_resamples(7, np.random.default_rng(0), resamples=500)
    assert weights.shape == (500, 7)
    assert (abs(weights.sum(axis=1) - 1) < 1e-12).all()
    assert weights.mean(axis=0) == pytest.approx(np.full(7, 1 / 7), rel=0.2)


def test_the_interval_is_that_of_the_normal_law_where_problems_are_many():
    values = np.random.default_rng(1).random(400)
    low, high = compute_interval(values, draw_resamples(400, np.random.default_rng(2)))
    half = 1.96 * values.std(ddof=1) / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).random(50)
    assert bootstrap_mean(values, np.random.default_rng(3)) == bootstrap_mean(
        values, np.random.default_rng(3)
    )


def test_one_problem_has_no_interval_and_equal_ones_prove_little():
    assert bootstrap_mean(np.array([0.5]), np.random.default_rng(0)).low is None
    alike = bootstrap_mean(np.ones(4), np.random.default_rng(0))
    assert alike.mean == 1.0
    assert alike.low < 0.6


def test_with_few_groups_the_interval_of_a_gain_still_holds_its_mean():
    rng, groups = np.random.default_rng(5), np.repeat(np.arange(11), 4)
    held = {"t": 0, "percentile": 0}
    for _ in range(400):
        each = (rng.normal(size=11)[groups] + rng.normal(size=44)) / 10
        percentile = Bootstrap.of_groups(groups.tolist()).interval(each)
        for name, interval in (("t", estimate_gain(each, groups)), ("percentile", percentile)):
            held[name] += interval.holds_zero
    assert held["t"] >= 0.93 * 400
    assert held["percentile"] < held["t"] - 8
    few = estimate_gain(np.arange(8.0), np.repeat(np.arange(2), 4))
    assert (few.mean, few.low, few.high) == (3.5, None, None)
