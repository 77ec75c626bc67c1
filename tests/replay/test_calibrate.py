"""The dial for a budget: found without labels, never dearer than asked, and said when there is none."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_ballots import drawn

from adacompute.answers import VoteWeights
from adacompute.errors import AdacomputeError, BudgetOutOfRange, PolicyError, TooFewSamples
from adacompute.evaluate.rivals import DoublingPolicy, RandomPolicy
from adacompute.policies.agreement import AdaptiveConsistency, EarlyStopping
from adacompute.policies.baselines import FixedPolicy, OraclePolicy
from adacompute.policies.votes import VoteState
from adacompute.replay import calibrate, draw_paths, replay, run_policy
from adacompute.replay.per_problem import count_places, place_requests
from shared import read_votes
from tiers import leave_to_nightly


@pytest.fixture(scope="module")
def words():
    return read_votes("words").only(range(80))


def cost_at(policy, ballots, dial: float) -> float:
    ways = draw_paths(
        ballots, rng=np.random.default_rng(0), orders=100, longest=policy.longest, weigh=policy.weigh
    )
    reading = policy.read(ballots.prompts)
    reading, own = place_requests(policy, dial, ballots.prompts, reading, ways.orders)
    return float(run_policy(policy, ways, dial=own, reading=reading).drawn.mean())


WEIGHED = AdaptiveConsistency(weigh=VoteWeights(signal="logprob", scale=-0.2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [AdaptiveConsistency(), WEIGHED, EarlyStopping(), DoublingPolicy()],
    ids=["asc", "weighed", "esc", "x2"],
)
@pytest.mark.parametrize("budget", leave_to_nightly([2.5, 4.0, 8.0]))
def test_the_dial_found_costs_no_more_than_the_budget_and_a_lower_one_does(words, policy, budget):
    dial = calibrate(policy, words, budget)
    assert 0 <= dial <= 1
    cost = cost_at(policy, words, dial)
    assert cost <= budget
    # as near as the steps allow: a dial just below is above the budget, unless this one is near enough
    assert cost >= budget * 0.995 or cost_at(policy, words, dial * (1 - 1e-6)) > budget


def test_weighed_votes_leave_no_step_so_wide_that_the_budget_is_missed(words):
    dial = calibrate(WEIGHED, words, 3.0, rng=np.random.default_rng(4))
    assert replay(WEIGHED, words, price=dial, orders=400).cost == pytest.approx(3.0, rel=0.03)


def cost_of(policy, ballots, dial: float) -> float:
    """Of a policy that decides from the prompt alone, over the places that a prompt may have."""
    reading = policy.read(ballots.prompts)
    reading, own = place_requests(policy, dial, ballots.prompts, reading, count_places(policy, len(ballots)))
    return float(policy.count_draws(reading, VoteState.empty(len(reading)), own).mean())


def test_a_price_is_found_wherever_it_lies(words):
    class Scaled(OraclePolicy):
        """An oracle whose price is in another unit."""

        unit = 1.0

        def count_draws(self, reading, state, dial):
            return super().count_draws(reading, state, dial * self.unit)

    policy = Scaled().fit(words)
    plain = calibrate(policy, words, 2.0)
    assert 0 < plain < 1
    assert cost_of(policy, words, plain) <= 2.0
    for unit in (1e-7, 1e-3, 1e3, 1e7):
        policy.unit = unit
        dial = calibrate(policy, words, 2.0)
        assert 1.99 <= cost_of(policy, words, dial) <= 2.0


def test_no_label_is_looked_at(words):
    bare = replace(
        words, correct=np.full(words.classes.shape, np.nan, np.float32), gold_known=np.zeros(80, bool)
    )
    assert calibrate(AdaptiveConsistency(), bare, 3.0) == calibrate(AdaptiveConsistency(), words, 3.0)


def test_a_policy_without_a_dial_is_made_for_the_budget(words):
    policy = FixedPolicy(1)
    assert calibrate(policy, words, 4.0) is None
    assert policy.budget == 4.0
    assert replay(policy, words).cost == pytest.approx(4.0, abs=0.2)
    with pytest.raises(PolicyError, match="random is only for comparison"):
        calibrate(RandomPolicy(1.5), words, 4.0)


@pytest.mark.parametrize(
    ("policy", "budget", "said"),
    [
        (DoublingPolicy(), 1.5, r"budget 1.5 can't be reached by doubling .* from 2.* to 8.*give a budget"),
        (AdaptiveConsistency(), 0.5, "budget 0.5 can't be reached by asc .* from 1 to 1"),
        (AdaptiveConsistency(), 17.0, "from 1 to 1"),
        (AdaptiveConsistency(), float("nan"), "nan can't be an average cost"),
        (AdaptiveConsistency(), -1, "-1 can't be an average cost"),
        (AdaptiveConsistency(), None, "None can't be an average cost"),
        (AdaptiveConsistency(), 10**400, r"budget 1000.*000 can't be an average cost"),
        (FixedPolicy(2), 10**400, "can't be an average cost"),
        (FixedPolicy(2), True, "True can't be an average cost"),
        (FixedPolicy(2), 0.25, "0.25"),
    ],
)
def test_a_budget_that_can_not_be_reached_is_refused_with_both_ends(words, policy, budget, said):
    with pytest.raises(BudgetOutOfRange, match=said) as error:
        calibrate(policy, words, budget)
    assert "\n" not in str(error.value)


def test_the_largest_cost_there_is_can_be_asked_for(words):
    policy = AdaptiveConsistency()
    most = cost_at(policy, words, 0.0)
    assert calibrate(policy, words, most) == 0.0


def test_what_can_not_be_used_is_refused_in_one_line(words):
    for given in (
        {"tolerance": -1},
        {"tolerance": "a"},
        {"orders": 0},
        {"rng": 3},
        {"orders": 10**9},
        {"orders": 900_000},
        {"tolerance": 10**400},
    ):
        with pytest.raises(PolicyError) as error:
            calibrate(AdaptiveConsistency(), words, 3.0, **given)
        assert "\n" not in str(error.value)
    with pytest.raises(TooFewSamples):
        calibrate(AdaptiveConsistency(longest=100), words, 3.0)
    with pytest.raises(AdacomputeError):
        calibrate(FixedPolicy(2), words, float("inf"))
    with pytest.raises(PolicyError, match="None is not a policy"):
        calibrate(None, words, 2.0)
    with pytest.raises(PolicyError, match="'words' is not a pool"):
        calibrate(FixedPolicy(2), "words", 2.0)


def test_problems_with_too_few_samples_are_an_error_or_left_out():
    ballots = drawn(2, least=8, samples=24)
    enough = ballots.only(np.flatnonzero(ballots.drawn >= 16))
    assert 0 < len(enough) < len(ballots)
    policy = AdaptiveConsistency()
    with pytest.raises(TooFewSamples, match="too_few='drop'"):
        calibrate(policy, ballots, 6.0)
    assert calibrate(policy, ballots, 6.0, too_few="drop") == calibrate(policy, enough, 6.0)
    for policy in (AdaptiveConsistency(), FixedPolicy(2)):
        with pytest.raises(PolicyError, match="too_few 'ignore' is not known"):
            calibrate(policy, ballots, 4.0, too_few="ignore")


@pytest.mark.slow
def test_what_is_calibrated_is_settled_and_what_is_replayed_is_not(words):
    class Settling(AdaptiveConsistency):
        """Its votes are weighed on the samples' own scale, once it has seen them."""

        def settle(self, ballots):
            self.weigh = VoteWeights(signal="logprob", scale=-0.2)
            return self

        def copy_for(self, ballots):
            return Settling().settle(ballots)

    policy = Settling()
    replay(policy, words, price=0.1, orders=4)
    assert policy.weigh is None
    dial = calibrate(policy, words, 4.0)
    assert policy.weigh == VoteWeights(signal="logprob", scale=-0.2)
    assert dial == calibrate(AdaptiveConsistency(weigh=policy.weigh), words, 4.0)
    assert cost_at(policy, words, dial) <= 4.0
