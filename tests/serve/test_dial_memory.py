"""What a pacer remembers of its dials: enough for any number of requests in flight, in little memory."""

from collections import deque

import pytest

from adacompute.serve.pricing.pacer import _MAX_KEPT, DialAges, DialMeans


@pytest.mark.parametrize("flight", [1, 100, 4_000, 10_000, 60_000])
def test_the_age_of_dials_is_known_however_many_are_in_flight(flight: int):
    given, flying, ages = DialAges(), deque[float](), []
    for at in range(flight + 30 * max(_MAX_KEPT, flight) // 10):
        dial = at / 7
        given.record(dial, at=at)
        flying.append(dial)
        if len(flying) > flight:
            age = given.find_age(flying.popleft(), at=at)
            if age is not None:
                ages.append(age)
                given.ensure_reach(age, at=at)
    assert ages
    assert set(ages) == {flight}
    assert len(given._recorded_at) <= _MAX_KEPT


def test_dials_that_never_were_given_change_nothing_before_memory_is_full():
    given = DialAges()
    given.record(0.5, at=3)
    for at in range(10_000):
        assert given.find_age(-1.0, at=at) is None
    assert given.find_age(0.5, at=10_000) == 9_997


@pytest.mark.parametrize("count", [1, 7, 4_000, 5_000, 40_000])
def test_the_mean_of_the_last_dials_is_theirs(count: int):
    sums = DialMeans()
    dials = [float(at % 11) for at in range(100_000)]
    for dial in dials:
        sums.add(dial)
    sums.average_last(count)  # from now on it knows what is wanted
    for dial in dials:
        sums.add(dial)
    there, mean = sums.average_last(count)
    assert there == count
    assert mean == pytest.approx(sum(dials[-count:]) / count, rel=0.01 if count > 4_095 else 1e-9)
    assert len(sums._kept) <= _MAX_KEPT


def test_of_fewer_dials_than_are_asked_for_the_mean_is_of_those_that_are_there():
    sums = DialMeans()
    assert sums.average_last(5)[0] == 0
    sums.add(2.0)
    sums.add(4.0)
    assert sums.average_last(5) == (2, 3.0)
