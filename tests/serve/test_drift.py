"""The drift alarm: silent on what calibration saw, quick on what it did not, and it doesn't flicker."""

import itertools
import random
import statistics

import pytest

from adacompute.serve.watching.traffic_history import (
    DRIFT_WINDOW,
    MIN_DRIFT_VOTES,
    DriftMonitor,
)


def agreements(rng: random.Random, *, hard: float):
    """Votes of a mix of problems: the easy ones agree, the hard ones are split."""
    while True:
        if rng.random() < hard:
            yield rng.choice([0.25, 0.33, 0.4, 0.5, 0.6, 0.67, 0.75])
        else:
            yield 1.0


def calibrated(seed: int, *, hard: float, n: int = 1000) -> tuple[float, float]:
    seen = list(itertools.islice(agreements(random.Random(seed), hard=hard), n))
    return statistics.fmean(seen), statistics.pstdev(seen)


def changes(drift: DriftMonitor, votes) -> list[int]:
    """At which votes the alarm went on or off."""
    return [i for i, vote in enumerate(votes) if drift.add(vote)]


def test_traffic_like_calibration_raises_no_alarm_in_a_hundred_thousand_requests():
    for seed in range(10):
        drift = DriftMonitor()
        drift.expect(*calibrated(seed, hard=0.3))
        votes = itertools.islice(agreements(random.Random(1000 + seed), hard=0.3), 10_000)
        assert changes(drift, votes) == []


def test_harder_traffic_is_noticed_within_one_window():
    for seed in range(10):
        drift = DriftMonitor()
        drift.expect(*calibrated(seed, hard=0.3))
        assert changes(drift, itertools.islice(agreements(random.Random(seed), hard=0.3), 2000)) == []
        on = changes(drift, itertools.islice(agreements(random.Random(seed), hard=0.6), 2 * DRIFT_WINDOW))
        assert len(on) == 1
        assert on[0] <= DRIFT_WINDOW
        assert drift.state().alarm
        assert drift.state().z < -5


def test_easier_traffic_is_noticed_too():
    drift = DriftMonitor()
    drift.expect(0.7, 0.25)
    assert changes(drift, [1.0] * DRIFT_WINDOW) == [MIN_DRIFT_VOTES - 1]
    assert drift.state().z > 5


def test_the_alarm_goes_off_when_traffic_is_back_and_does_not_flicker():
    drift = DriftMonitor()
    drift.expect(*calibrated(1, hard=0.3))
    rng = random.Random(5)
    parts = [itertools.islice(agreements(rng, hard=hard), 1500) for hard in (0.3, 0.7, 0.3)]
    assert len(changes(drift, itertools.chain(*parts))) == 2
    assert not drift.state().alarm


def test_a_difference_too_small_to_matter_is_no_alarm_however_sure():
    drift = DriftMonitor()
    drift.expect(0.80, 0.02)
    assert changes(drift, [0.84] * 5000) == []  # 0.04 apart
    assert drift.state().z > 20


def test_nothing_is_said_before_enough_votes():
    drift = DriftMonitor()
    drift.expect(0.9, 0.1)
    assert changes(drift, [0.1] * (MIN_DRIFT_VOTES - 1)) == []
    assert drift.state().z is None
    assert drift.add(0.1)


def test_requests_that_come_in_bunches_count_for_fewer():
    alike, mixed = DriftMonitor(), DriftMonitor()
    bunched = ([1.0] * 25 + [0.4] * 25) * 10
    for drift, votes in ((alike, bunched), (mixed, random.Random(2).sample(bunched, len(bunched)))):
        drift.expect(0.8, 0.3)
        for vote in votes:
            drift.add(vote)
    assert alike.state().live == pytest.approx(mixed.state().live)
    assert abs(alike.state().z) < abs(mixed.state().z) / 2


def test_without_calibration_the_first_requests_are_the_measure():
    drift = DriftMonitor()
    assert drift.state().source == "none yet"
    rng = random.Random(3)
    assert changes(drift, itertools.islice(agreements(rng, hard=0.3), DRIFT_WINDOW + 3000)) == []
    state = drift.state()
    assert state.source == "first requests"
    assert state.expected == pytest.approx(0.85, abs=0.05)
    assert len(changes(drift, itertools.islice(agreements(rng, hard=0.7), DRIFT_WINDOW))) == 1


def test_calibrations_word_replaces_the_first_requests():
    drift = DriftMonitor()
    for _ in range(DRIFT_WINDOW):
        drift.add(0.5)
    assert drift.state().source == "first requests"
    drift.expect(0.9, 0.1)
    assert (drift.state().source, drift.state().expected) == ("calibration", 0.9)


def test_the_mean_is_that_of_the_last_500_requests():
    drift = DriftMonitor()
    drift.expect(0.5, 0.3)
    rng = random.Random(4)
    votes = [rng.random() for _ in range(2_000)]
    for vote in votes:
        drift.add(vote)
    assert drift.state().live == pytest.approx(statistics.fmean(votes[-DRIFT_WINDOW:]), abs=1e-9)


def test_what_is_no_agreement_is_left_out():
    drift = DriftMonitor()
    for nonsense in (float("nan"), -0.1, 1.1, float("inf")):
        assert not drift.add(nonsense)
    drift.expect(float("nan"), 0.1)
    assert drift.state().requests == 0
    assert drift.state().expected is None
