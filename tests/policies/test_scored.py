"""A pool is scored once for many fits, and again where votes are weighed in another way."""

import gc
import weakref

import numpy as np
import pytest

from adacompute import Ballots, score
from adacompute.policies.base import score_votes
from adacompute.policies.weights import fit_confidence_weights
from shared import read_votes


@pytest.fixture
def words() -> Ballots:
    return read_votes("words").only(range(0, 441, 20))


def test_the_table_is_what_score_gives_and_is_kept(words: Ballots):
    weigh = fit_confidence_weights(words)
    plain, weighed = score(words, (1, 2, 4)), score(words, (1, 2, 4), aggregate="weighted", by=weigh)
    first = score_votes(words, (1, 2, 4), None)
    assert np.array_equal(first.accuracy, plain.accuracy)
    assert score_votes(words, [1, 2, 4], None) is first
    assert np.array_equal(score_votes(words, (1, 2, 4), weigh).accuracy, weighed.accuracy)
    assert score_votes(words, (1, 2), None).accuracy.shape[1] == 2
    assert np.array_equal(score_votes(words, (1, 2, 4), None).accuracy, plain.accuracy)


def test_a_pool_that_is_gone_is_not_kept(words: Ballots):
    other = words.only(range(5))
    score_votes(other, (1, 2), None)
    seen = weakref.ref(other)
    del other
    gc.collect()
    assert seen() is None
