"""The certificate: its error, exactly, on distributions made to break it, and its laws."""

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally
from adacompute.errors import PolicyError
from adacompute.policies import AdaptiveConsistency, GuaranteePolicy
from adacompute.policies.guarantee import compute_risk, find_boundary
from adacompute.policies.votes import VoteState
from adacompute.replay import replay
from shared import read_votes

untimed = settings(deadline=None)
DELTAS = st.sampled_from([1e-6, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9])
TIE = 1e-9  # by which the commonest answer leads, so that to certify another is an error

# shares of the answers; what is missing to 1 are answers that are given once each
HARD = [
    (0.5 + TIE, 0.5 - TIE),
    (0.55, 0.45),
    (0.7, 0.3),
    (0.3 + TIE, 0.3),
    (0.06 + TIE, 0.06),
    (0.34, 0.33, 0.33),
    (1 / 3 + TIE, 1 / 3, 1 / 3 - TIE),
    (0.4 + TIE, 0.4, 0.2 - TIE),
    (0.45 + TIE, 0.45, 0.1 - TIE),
    (0.2 + TIE, 0.2, 0.2),
    (0.25 + TIE, 0.25, 0.25, 0.25 - TIE),
    (0.3 + TIE, 0.3, 0.3, 0.1 - TIE),
]


def compute_error(shares, boundary):
    """The probability that another answer than the first is ever certified, over all paths of votes."""
    states = {((0,) * len(shares), False): 1.0}  # votes of each, and whether an answer was given once
    once, error = max(0.0, 1 - sum(shares)), 0.0
    for _ in range(len(boundary) - 1):
        following = Counter()
        for (votes, seen), chance in states.items():
            following[votes, True] += chance * once
            for i, share in enumerate(shares):
                after = (*votes[:i], votes[i] + 1, *votes[i + 1 :])
                runner = max(max(after[:i] + after[i + 1 :]), int(seen))
                if after[i] < boundary[runner]:
                    following[after, seen] += chance * share
                elif i:
                    error += chance * share
        states = following
    return error


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("shares", HARD, ids=str)
def test_the_chance_of_a_wrong_certificate_is_at_most_delta(shares, delta):
    boundary = find_boundary({2: 26, 3: 16, 4: 12}[len(shares)], delta)
    assert compute_error(shares, boundary) <= compute_risk(boundary) <= delta


@pytest.mark.parametrize("delta", [0.001, 0.01, 0.05, 0.1])
def test_the_bound_is_not_far_from_the_worst_there_is(delta):
    boundary = find_boundary(16, delta)
    worst = compute_error((0.5, 0.5), boundary)
    assert worst <= compute_risk(boundary) <= 1.5 * worst


def test_the_bound_on_unanimous_votes_is_the_zeta_function():
    # with n alike and no other point: the sum over l of 1 / (l + 1)^n
    for votes, zeta in ((2, math.pi**2 / 6), (4, math.pi**4 / 90), (6, math.pi**6 / 945)):
        boundary = np.full(7, 99)
        boundary[0] = votes
        assert compute_risk(boundary) == pytest.approx(zeta - 1, rel=1e-8)


def test_a_boundary_that_certifies_nothing_has_no_risk_and_one_that_certifies_at_once_bounds_nothing():
    assert compute_risk(np.full(9, 99)) == 0.0
    assert compute_risk(np.arange(1, 10)) == 1.0


def test_the_evidence_is_the_mean_likelihood_ratio_over_shares_above_a_half():
    def evidence(a, b):  # 2^(a + b + 1) times the integral of p^a (1 - p)^b over p from a half to 1
        terms = (
            Fraction((-1) ** k * math.comb(b, k), a + k + 1) * (1 - Fraction(1, 2 ** (a + k + 1)))
            for k in range(b + 1)
        )
        return 2 ** (a + b + 1) * sum(terms)

    # at the largest delta that certifies one point, all with as much evidence or more are certified
    for delta in (0.3, 0.1, 0.03):
        boundary = find_boundary(20, delta)
        states = [(a, b) for b in range(10) for a in range(b + 1, 21 - b)]
        certified = [evidence(a, b) for a, b in states if a >= boundary[b]]
        others = [evidence(a, b) for a, b in states if a < boundary[b]]
        assert min(certified) > max(others)


@untimed
@given(st.integers(1, 64), DELTAS)
def test_a_boundary_rises_with_the_runner_up_and_stays_above_it(longest, delta):
    boundary = find_boundary(longest, delta).tolist()
    assert all(low < high or low > longest for low, high in pairwise(boundary))
    assert all(votes > runner for runner, votes in enumerate(boundary))


@untimed
@given(st.integers(0, 64), st.integers(0, 64), DELTAS, DELTAS)
def test_more_for_the_leader_less_for_the_runner_up_and_a_larger_delta_certify_no_less(
    first, second, delta, other
):
    first, second = max(first, second), min(first, second)
    if first + second >= 64:
        return

    def certifies(a, b, at):
        return GuaranteePolicy(delta=at).certifies(Tally.of(["1"] * a + ["2"] * b))

    if certifies(first, second, delta):
        assert certifies(first + 1, second, delta)
        assert certifies(first, max(0, second - 1), delta)
        assert certifies(first, second, max(delta, other))
        assert first > second


@untimed
@given(st.lists(st.sampled_from(["1", "1", "1", "2", "3", None]), min_size=24, max_size=24), DELTAS)
def test_it_draws_no_sample_more_than_looking_after_each_would(answers, delta):
    policy, drawn = GuaranteePolicy(delta=delta, longest=24), 0
    while more := policy.more("?", Tally.of(answers[:drawn])):
        drawn += more
    certified = [n for n in range(1, 25) if policy.certifies(Tally.of(answers[:n]))]
    assert drawn == min([*certified, 24])


def test_many_at_once_are_certified_as_one_by_one_and_no_more_votes_than_the_longest():
    policy = GuaranteePolicy(delta=None, longest=12)
    tallies = [
        Tally.of(["1"] * a + ["2"] * b + [None] * c) for a in range(16) for b in range(4) for c in (0, 3)
    ]
    state = VoteState.from_tallies(tallies)
    for delta in (0.0, 0.05, 0.5, 1.0):
        one_by_one = [policy.certifies(tally, delta) for tally in tallies]
        assert policy.mask_certified(state, delta).tolist() == one_by_one
        assert any(one_by_one) is (delta > 0)
    assert not policy.certifies(Tally.of(["1"] * 13), 0.5)
    assert policy.certifies(Tally.of(["1"] * 12 + [None] * 5), 0.5)


def test_a_delta_of_its_own_leaves_no_dial_and_none_makes_it_the_dial():
    fixed, turned = GuaranteePolicy(delta=0.1), GuaranteePolicy(delta=None)
    assert (fixed.dial, turned.dial, GuaranteePolicy.dial) == (None, "threshold", "threshold")
    tally = Tally.of(["1"] * 5)
    assert fixed.more("?", tally) == turned.more("?", tally, 0.1) == 0
    with pytest.raises(PolicyError, match=r"was made for delta 0\.1"):
        fixed.more("?", tally, 0.1)
    with pytest.raises(PolicyError, match="threshold None"):
        turned.more("?", tally)


def test_replay_says_how_many_answers_were_certified():
    ballots = read_votes("words").only(range(0, 440, 11))
    shares = [
        replay(GuaranteePolicy(delta, longest=32), ballots, orders=4).certified for delta in (0.01, 0.3)
    ]
    assert 0 < shares[0] < shares[1] < 1
    assert replay(AdaptiveConsistency(), ballots, price=0.05, orders=4).certified is None
    fewest = replay(GuaranteePolicy(0.05, longest=3), ballots, orders=4)
    assert (fewest.certified, fewest.cost) == (0.0, 3.0)
