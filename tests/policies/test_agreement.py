"""The published stopping rules, against themselves written out, and their laws."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import TooFewSamples
from adacompute.evaluate.rivals import DoublingPolicy, PetsPolicy
from adacompute.policies.agreement import (
    AdaptiveConsistency,
    BayesPolicy,
    EarlyStopping,
)
from adacompute.policies.base import OwnPrice
from adacompute.policies.votes import VoteState
from adacompute.records import Sample
from shared import read_votes
from tiers import leave_to_nightly

untimed = settings(deadline=None)  # the first example may pay for an import
ANSWERS = st.lists(st.sampled_from(["1", "2", "3", None]), max_size=20)
DIALS = st.sampled_from([0.0, 1e-9, 0.05, 0.2, 0.25, 1 / 3, 0.5, 0.7, 1.0])
WEIGH = VoteWeights(signal="logprob", scale=-1.0)


@pytest.fixture(scope="module", params=["words", "facts"])
def ballots(request):
    return read_votes(request.param).only(range(0, 350, 5))


def asked(policy, answers, dial):
    """The waves a policy draws of a list of answers, one by one."""
    waves = []
    while more := policy.more("?", Tally.of(answers[: sum(waves)]), dial):
        waves.append(more)
    return waves


@untimed
@given(st.integers(0, 24), st.integers(0, 24))
def test_asc_doubts_as_the_beta_distribution_does(first, second):
    first, second = max(first, second), min(first, second)
    throws = first + second + 1
    doubt = sum(Fraction(math.comb(throws, k), 2**throws) for k in range(second + 1))
    policy, tally = AdaptiveConsistency(longest=50), Tally.of(["1"] * first + ["2"] * second)
    assert float(doubt) == doubt  # so the dial can be set to it, and to the next number below
    if first:
        assert policy.more("?", tally, OwnPrice(doubt)) == 0
        assert policy.more("?", tally, OwnPrice(math.nextafter(float(doubt), 0))) == 1


@untimed
@given(st.integers(1, 12), st.integers(0, 12), st.floats(0.001, 0.499))
def test_asc_on_weighed_votes_is_the_plain_rule_where_all_weigh_the_same(first, second, dial):
    first, second = max(first, second), min(first, second)
    plain = Tally.of(["1"] * first + ["2"] * second)
    sure = [Sample(answer="1", tokens=4, logprob=-4.0)] * first
    weighed = Tally.of([*sure, *[Sample(answer="2", tokens=4, logprob=-4.0)] * second], weigh=WEIGH)
    rule, weighing = AdaptiveConsistency(longest=30), AdaptiveConsistency(longest=30, weigh=WEIGH)
    assert rule.more("?", plain, dial) == weighing.more("?", weighed, dial)


def test_asc_on_weighed_votes_doubts_as_scipys_beta_distribution_does():
    from scipy.special import betainc

    rng = np.random.default_rng(0)
    runner = np.concatenate([[0.0, 0.0, 1e-9], rng.uniform(0, 300, 2000), rng.uniform(0, 5, 2000)])
    lead = runner + np.concatenate([[0.0, 1e-9, 40.0], rng.uniform(0, 60, 2000), rng.uniform(0, 5, 2000)])
    state = dataclasses.replace(VoteState.empty(len(lead)), lead=lead, runner=runner)
    doubts = AdaptiveConsistency(weigh=WEIGH).compute_doubt(np.zeros((len(lead), 0)), state)
    assert doubts == pytest.approx(betainc(lead + 1, runner + 1, 0.5), rel=1e-10, abs=0)


def test_asc_on_weighed_votes_stops_sooner_where_the_model_is_sure():
    policy = AdaptiveConsistency(weigh=WEIGH)
    sure, unsure = (Tally.of([Sample(answer="1", tokens=1, logprob=m)], weigh=WEIGH) for m in (-0.1, -3.0))
    assert (policy.more("?", sure, 0.2), policy.more("?", unsure, 0.2)) == (0, 1)


@untimed
@given(st.lists(st.sampled_from(["1", "2", None]), min_size=16, max_size=16), st.integers(1, 20))
def test_esc_stops_at_the_first_window_that_agrees(answers, size):
    spent = 0
    for start in range(0, 16, size):
        window = answers[start : start + size]
        spent = start + len(window)
        if len(window) == size and window[0] is not None and len(set(window)) == 1:
            break
    waves = asked(EarlyStopping(), answers, 1 / size)
    assert sum(waves) == spent
    assert all(wave == size for wave in waves[:-1])


def test_esc_windows_are_one_over_the_dial():
    rule = EarlyStopping()
    assert [rule.window(1 / size) for size in range(1, 17)] == list(range(1, 17))
    assert [rule.window(dial) for dial in (0, 1e-300, 1e-9, 0.01, 1)] == [16, 16, 16, 16, 1]
    assert [rule.window(dial) for dial in (0.21, 0.24, 0.3, 0.7)] == [5, 4, 3, 1]  # the nearest


def test_esc_fills_a_window_that_another_dial_began_before_it_looks():
    rule = EarlyStopping()
    assert rule.more("?", Tally.of(["1"] * 3), 0.5) == 1
    assert rule.more("?", Tally.of(["1"] * 7), 0.2) == 3
    assert rule.more("?", Tally.of(["1"] * 4), 0.5) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "drawn", leave_to_nightly(["aaaab--", "aaaaabb", "aaaabbc", "aaabbcc", "abcdef", "aaab---"])
)
def test_the_cost_of_esc_over_all_orders_never_rises_with_the_dial(drawn):
    orders = sorted(set(itertools.permutations(drawn)))  # equally many of each: letters that agree are alike
    paths_ = [[None if c == "-" else c for c in order] for order in orders]
    policy = EarlyStopping(longest=len(drawn))
    costs = [sum(sum(asked(policy, path, 1 / size)) for path in paths_) for size in range(len(drawn), 0, -1)]
    assert costs == sorted(costs, reverse=True)


@untimed
@given(ANSWERS, DIALS)
def test_doubling_stops_when_enough_agree(answers, dial):
    tally = Tally.of(answers[: len(answers) - len(answers) % 2])
    share = tally.first / tally.answered if tally.answered else 0.0
    stops = tally.drawn >= 16 or (tally.answered > 0 and share >= 1 - dial)
    wanted = 0 if stops else min(max(2, tally.drawn), 16 - tally.drawn)
    assert DoublingPolicy().more("?", tally, OwnPrice(dial)) == wanted


def test_doubling_doubles():
    assert asked(DoublingPolicy(), ["1", "2"] * 8, 0.25) == [2, 2, 4, 8]
    assert asked(DoublingPolicy(longest=11), ["1", "2"] * 8, 0.25) == [2, 2, 4, 3]
    assert asked(DoublingPolicy(longest=1), ["1"], 0.25) == [1]
    assert [DoublingPolicy(longest=n).max_waves for n in (1, 2, 3, 4, 5, 16, 17)] == [1, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", [AdaptiveConsistency, DoublingPolicy])
@untimed
@given(answers=ANSWERS, dials=st.tuples(DIALS, DIALS))
def test_where_less_doubt_stops_more_doubt_stops(kind, answers, dials):
    policy, tally = kind(), Tally.of(answers)
    assert policy.more("?", tally, max(dials)) <= policy.more("?", tally, min(dials))


@untimed
@given(ANSWERS)
def test_a_run_is_how_many_of_the_last_samples_gave_one_answer(answers):
    tally = Tally.of(answers)
    last = list(itertools.takewhile(lambda answer: answer == answers[-1], reversed(answers)))
    assert tally.run == (0 if not answers or answers[-1] is None else len(last))


def test_waves_of_several_look_only_between_them():
    policy = AdaptiveConsistency(wave=5)
    assert asked(policy, ["1"] * 16, 0.05) == [5]
    assert asked(policy, ["1", "2"] * 8, 0.05) == [5, 5, 5, 1]
    assert policy.max_waves == 4


# Bayesian stopping and PETS, against their papers' definitions written out in exact fractions


def spread(ballots, rows):
    """Each problem's answer shares, most frequent first, without what gave no answer."""
    found = []
    for row in rows:
        classes = ballots.classes[row][ballots.classes[row] >= 0]
        counts = sorted(np.bincount(classes).tolist(), reverse=True)
        found.append([Fraction(count, len(classes)) for count in counts if count])
    return found


def ways_to_split(votes, answers):
    """All vectors of votes of so many answers."""
    if answers == 1:
        yield (votes,)
        return
    for first in range(votes + 1):
        for others in ways_to_split(votes - first, answers - 1):
            yield (first, *others)


def posterior(distributions, first, second, rest):
    """The probability that the leader is the mode: every vector of votes, and everyone who may lead it.

    Among answers with equally many votes, the leader and the second are picked at random.
    """
    drawn = first + second + rest
    mode = anyone = Fraction(0)
    for shares in distributions:
        for votes in ways_to_split(drawn, len(shares)):
            ranked = [*sorted(votes, reverse=True), 0]
            if (ranked[0], ranked[1]) != (first, second):
                continue
            likelihood = Fraction(math.factorial(drawn))
            for count, share in zip(votes, shares, strict=True):
                likelihood *= share**count / math.factorial(count)
            leaders = [answer for answer, count in enumerate(votes) if count == first]
            anyone += likelihood
            mode += likelihood / len(leaders) if 0 in leaders else 0
    return mode / anyone if anyone else Fraction(0)


def test_bayes_doubts_as_bayes_rule_does_over_every_possible_vote():
    words = read_votes("words")
    few = [row for row in range(len(words)) if 1 <= len(spread(words, [row])[0]) <= 4][::9][:5]
    policy, distributions = BayesPolicy(longest=9).fit(words.only(few)), spread(words, few)
    compared = stopped = 0
    for first, second, rest in itertools.product(range(1, 10), range(5), range(8)):
        if second > first or first + second + rest > 9 or (rest and not second):
            continue
        sure = posterior(distributions, first, second, rest)
        answers = ["1"] * first + ["2"] * second
        while rest:  # each of the rest with no more votes than the second
            answers += [f"more {rest}"] * min(rest, second)
            rest -= min(rest, second)
        for threshold in (0.5, 0.7, 0.9, 0.99):
            if len(answers) < 9 and abs(float(sure) - threshold) > 1e-9:
                stops = policy.more("?", Tally.of(answers), OwnPrice(1 - threshold)) == 0
                assert stops == (sure >= threshold), (answers, threshold, float(sure))
                compared, stopped = compared + 1, stopped + stops
    assert compared > 200
    assert compared / 5 < stopped < compared * 4 / 5


def test_bayes_looks_at_the_leader_the_second_and_the_rest_alone():
    policy = BayesPolicy(longest=10).fit(read_votes("words"))
    for one, other in ((["1", "1", "2", "3"], ["1", "1", "2", "3"][::-1]), ([*"1112233"], [*"1112234"])):
        assert [policy.more("?", Tally.of(one), dial) for dial in (0.05, 0.2, 0.5)] == [
            policy.more("?", Tally.of(other), dial) for dial in (0.05, 0.2, 0.5)
        ]


def wins(shares, votes):
    """How often a vote of so many samples gives the first answer, ties by lot."""
    chance = Fraction(0)
    for counts in ways_to_split(votes, len(shares)):
        best = [answer for answer, count in enumerate(counts) if count == max(counts)]
        if 0 in best:
            ways = Fraction(math.factorial(votes))
            for count, share in zip(counts, shares, strict=True):
                ways *= share**count / math.factorial(count)
            chance += ways / len(best)
    return float(chance)


def plan(distributions, pools, budget, longest):
    """PETS's own way: steps of the greatest gain first, until the average budget is spent."""
    from scipy.stats import norm

    patterns = [(4,), (1, 3), (2, 2), (1, 1, 2), (1, 1, 1, 1)]
    slopes, offsets, shown = [], [], []
    for shares, pool in zip(distributions, pools, strict=True):
        root = np.sqrt(np.arange(3, 41))
        curve = np.clip([wins(shares, k) for k in range(3, 41)], 1e-12, 1 - 1e-12)
        slope, offset = np.polyfit(root, norm.ppf(curve), 1)
        fours = list(itertools.combinations(pool, 4))
        count = [tuple(sorted(np.unique(four, return_counts=True)[1].tolist())) for four in fours]
        slopes.append(slope)
        offsets.append(offset)
        shown.append([count.count(pattern) / len(fours) for pattern in patterns])
    weights = np.array(shown)
    slope = weights.T @ slopes / (weights.sum(axis=0) + 1e-12)
    offset = weights.T @ offsets / (weights.sum(axis=0) + 1e-12)

    def gain(t, k):
        return norm.sf(slope[t] * math.sqrt(k) + offset[t]) - norm.sf(slope[t] * math.sqrt(k + 1) + offset[t])

    budgets, steps = [4] * 5, []
    while True:
        best = max(
            (t for t in range(5) if budgets[t] < longest), key=lambda t: gain(t, budgets[t]), default=None
        )
        if best is None or gain(best, budgets[best]) <= 0:
            return steps
        budgets[best] += 1
        steps.append((gain(best, budgets[best] - 1), tuple(budgets)))
        if weights.mean(axis=0) @ budgets > budget:
            return steps


def test_pets_plans_as_its_greedy_allocation_does():
    words = read_votes("words")
    few = [row for row in range(len(words)) if 2 <= len(spread(words, [row])[0]) <= 3][::6][:3]
    small = dataclasses.replace(
        words.only(few),
        **{
            name: getattr(words.only(few), name)[:, :20]
            for name in ("classes", "correct", "tokens", "logprob", "entropy")
        },
    )
    pools = [row[row >= 0].tolist() for row in small.classes]
    policy = PetsPolicy(longest=12).fit(small)
    shown = [["1"] * 4, [*"1112"], [*"1122"], [*"1123"], [*"1234"]]
    steps = plan(spread(small, range(len(small))), pools, budget=9.0, longest=12)
    assert len(steps) > 10
    for index in range(len(steps) - 1):
        price = (steps[index][0] + steps[index + 1][0]) / 2
        if steps[index + 1][0] < min(step[0] for step in steps[: index + 1]) * (1 - 1e-6):
            asked_for = [4 + policy.more("?", Tally.of(votes), price) for votes in shown]
            assert asked_for == list(steps[index][1])


def test_pets_warms_up_until_four_have_answered_and_then_asks_once():
    policy = PetsPolicy().fit(read_votes("words"))
    assert policy.more("?", Tally(), 0.001) == 4
    assert policy.more("?", Tally.of(["1", None, "1", None]), 0.001) == 2
    more = policy.more("?", Tally.of([*"1122"]), 0.001)
    assert more > 4
    assert policy.more("?", Tally.of([*"1122"] + ["3"] * more), 0.001) == 0
    assert policy.more("?", Tally.of([*"1111"]), 0.5) == 0


def test_what_learns_how_answers_are_spread_needs_answers(ballots):
    silent = dataclasses.replace(ballots, classes=np.full_like(ballots.classes, -1))
    for kind in (BayesPolicy, PetsPolicy):
        with pytest.raises(TooFewSamples, match="samples with an answer"):
            kind().fit(silent)
