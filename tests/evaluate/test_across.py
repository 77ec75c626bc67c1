"""Means over recordings: each counts alike, and problems are drawn inside each."""

import numpy as np
import pytest

from adacompute.evaluate.resampling import mean_over_recordings


def test_recordings_count_alike_whatever_their_size():
    small, large = np.full(10, 1.0), np.zeros(1000)
    assert mean_over_recordings([small, large]).mean == 0.5


def test_the_interval_is_that_of_independent_means():
    rng = np.random.default_rng(0)
    each = [rng.normal(0.1, 0.5, size) for size in (100, 300, 900)]
    found = mean_over_recordings(each)
    error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in each)) / 3
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(found.mean + 1.96 * error, abs=0.15 * error)
