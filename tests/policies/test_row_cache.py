"""The cache of values by rows gives what the function gives, and asks it once for each different row."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from adacompute.policies.features import RowCache

Floats = npt.NDArray[np.float64]
KINDS = (0.0, -0.0, 1.0, 2.0, 0.1, 1e300, 5e-324, np.inf, np.nan)


def weigh(rows: Floats) -> Floats:
    """A value of each row that tells equal numbers with other bits apart."""
    return np.array([hash(row.tobytes()) % 1_000_003 for row in rows], dtype=np.float64)


@given(st.lists(st.lists(st.sampled_from(KINDS), min_size=3, max_size=3), min_size=1, max_size=30), st.data())
def test_values_are_those_of_the_function_and_equal_rows_are_asked_about_once(kinds, data):
    asked: list[Floats] = []
    cache = RowCache(lambda rows: (asked.append(rows), weigh(rows))[1])
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    for _ in range(3):
        rows = np.array(kinds)[rng.integers(0, len(kinds), 300)]
        assert cache(rows).tolist() == weigh(rows).tolist()
    assert all(len({row.tobytes() for row in rows}) == len(rows) for rows in asked)


def find_twin() -> Floats:
    """A row with the hash of a row of zeros: the second number takes off what the first adds."""
    factor, limit = 0x9E3779B97F4A7C15, 2**64
    mixed = (factor * 12345 % limit, -12345 % limit)
    return np.array([[m ^ m >> 29 ^ m >> 58 for m in mixed]], dtype=np.uint64).view(np.float64)


def test_different_rows_with_the_same_hash_are_told_apart():
    rows = np.concatenate([np.zeros((1, 2)), find_twin()])
    cache = RowCache(weigh)
    for order in ([0, 1], [0, 0], [1, 1], [1, 0]):
        many = rows[np.tile(order, 200)]
        assert cache(many).tolist() == weigh(many).tolist()


def test_the_twin_has_the_same_hash():
    asked: list[int] = []
    cache = RowCache(lambda rows: (asked.append(len(rows)), weigh(rows))[1])
    cache(np.tile(np.concatenate([np.zeros((1, 2)), find_twin()]), (200, 1)))
    assert asked == [1, 400]  # one for both, which is noticed


def test_another_use_of_the_cache_meanwhile_mixes_nothing_up():
    few, many = (np.tile(np.arange(2.0 * rows).reshape(rows, 2), (300, 1)) for rows in (2, 30))
    inner: list[list[float]] = []

    def compute(rows: Floats) -> Floats:
        if len(rows) == 2:  # as a thread would, while this one computes
            inner.append(cache(many).tolist())
        return weigh(rows)

    cache = RowCache(compute)
    assert cache(few).tolist() == weigh(few).tolist()
    assert cache(many).tolist() == weigh(many).tolist() == inner[0]
