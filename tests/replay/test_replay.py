"""Replaying a policy: what is measured is what would have happened live, and is said as it is."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from drawn_ballots import drawn, samples

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import NotRecorded, PolicyError, TooFewSamples
from adacompute.evaluate.rivals import DoublingPolicy, RandomPolicy
from adacompute.policies.agreement import AdaptiveConsistency, EarlyStopping
from adacompute.policies.baselines import FixedPolicy
from adacompute.replay import Paths, build_paths, draw_paths, replay, run_policy, sweep
from shared import read_votes

LOGPROB = VoteWeights(signal="logprob", scale=-1.0)


@pytest.fixture(scope="module")
def words():
    return read_votes("words").only(range(80))


def one_by_one(policy, ballots, order, dial):
    """A person's loop: real tallies, one request at a time."""
    found = []
    for problem in range(len(ballots)):
        for drawn_order in order[problem]:
            items = samples(ballots, problem, drawn_order)
            tally, waves = Tally(weigh=policy.weigh), 0
            while more := policy.more(ballots.prompts[problem], tally, dial):
                for item in items[tally.drawn : tally.drawn + more]:
                    tally.add(item)
                waves += 1
            found.append((tally.drawn, waves, sum(item.tokens for item in items[: tally.drawn])))
    return np.array(found).T


@pytest.mark.parametrize("weigh", [None, LOGPROB], ids=["plain", "weighed"])
@pytest.mark.parametrize(
    ("kind", "dial"), [(AdaptiveConsistency, 0.2), (EarlyStopping, 0.5), (DoublingPolicy, 0.3)]
)
def test_a_run_is_what_asking_one_by_one_gives(kind, dial, weigh):
    ballots = drawn(4, least=8)
    rng = np.random.default_rng(0)
    order = np.array([[rng.permutation(n)[:8] for _ in range(6)] for n in ballots.drawn])
    policy = kind(longest=8, weigh=weigh)
    found = run_policy(policy, build_paths(ballots, order, weigh=weigh), dial=dial)
    counts, waves, tokens = one_by_one(policy, ballots, order, dial)
    assert found.drawn.tolist() == counts.tolist()
    assert found.waves.tolist() == waves.tolist()
    assert found.tokens.tolist() == tokens.tolist()


def test_cost_and_accuracy_are_the_means_over_problems(words):
    found = replay(AdaptiveConsistency(), words, price=0.1, orders=20)
    assert found.cost == pytest.approx(found.each_cost.mean())
    assert found.accuracy.mean == pytest.approx(found.each_accuracy.mean())
    assert found.accuracy.low < found.accuracy.mean < found.accuracy.high
    assert found.counts.sum() == found.problems * found.orders == 80 * 20
    assert found.counts @ np.arange(17) / found.counts.sum() == pytest.approx(found.cost)
    assert found.waves == found.cost  # it draws one at a time
    assert found.most_waves == np.flatnonzero(found.counts).max()
    assert found.tokens > 0
    assert not found.exact
    assert "20 random orders" in found.protocol


@pytest.mark.slow
def test_deciding_beforehand_is_scored_exactly_and_orders_agree(words):
    policy = RandomPolicy(3.0)
    exact = replay(policy, words)
    ways = draw_paths(words, rng=np.random.default_rng(0), orders=2000)
    found = run_policy(policy, ways, dial=None)
    assert exact.exact
    assert exact.orders == 0
    assert "all subsets" in exact.protocol
    assert exact.each_cost.tolist() == ways.mean_per_problem(found.drawn).tolist()
    assert ways.mean_per_problem(found.grade) == pytest.approx(
        exact.each_accuracy, abs=0.06
    )  # 4 standard errors
    assert ways.mean_per_problem(found.grade).mean() == pytest.approx(exact.accuracy.mean, abs=0.004)
    assert ways.mean_per_problem(found.agrees).mean() == pytest.approx(exact.agreement, abs=0.004)
    assert ways.mean_per_problem(found.tokens).mean() == pytest.approx(exact.tokens, rel=0.02)


def test_ties_and_abstentions_score_the_same_exactly_and_by_orders():
    ballots = drawn(9, least=8, problems=20)
    policy = FixedPolicy(4, longest=8)
    exact = replay(policy, ballots, rng=np.random.default_rng(0))
    ways = draw_paths(ballots, rng=np.random.default_rng(0), orders=6000, longest=8)
    found = run_policy(policy, ways, dial=None)
    assert ways.mean_per_problem(found.grade) == pytest.approx(exact.each_accuracy, abs=0.03, nan_ok=True)
    assert exact.each_accuracy[0] == 0.0  # it always abstains
    assert np.isnan(exact.each_accuracy[1])
    assert exact.accuracy.problems == 19


def test_weighed_votes_are_replayed_by_orders(words):
    found = replay(FixedPolicy(4, weigh=VoteWeights(signal="logprob", scale=-0.2)), words, orders=40)
    assert not found.exact
    assert found.protocol.startswith("votes weighted by logprob")
    assert found.accuracy.mean > replay(FixedPolicy(4), words).accuracy.mean


def test_without_labels_there_is_cost_and_agreement_but_no_accuracy(words):
    bare = replace(
        words,
        correct=np.full(words.classes.shape, np.nan, np.float32),
        gold_known=np.zeros(len(words), dtype=bool),
        tokens=np.full(words.classes.shape, np.nan),
    )
    for policy, dial in ((AdaptiveConsistency(), 0.1), (FixedPolicy(4), None)):
        known, found = (replay(policy, b, price=dial, orders=8) for b in (words, bare))
        assert math.isnan(found.accuracy.mean)
        assert found.tokens is None
        assert found.cost == known.cost
        assert found.agreement == known.agreement
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["accuracy"] is None


def test_the_same_question_has_one_answer(words):
    one, other = (replay(EarlyStopping(), words, price=0.25, orders=8) for _ in range(2))
    assert one.to_dict() == other.to_dict()
    third = replay(EarlyStopping(), words, price=0.25, orders=8, rng=np.random.default_rng(1))
    assert third.to_dict() != one.to_dict()


@pytest.mark.parametrize(
    ("policy", "given", "words_said"),
    [
        (AdaptiveConsistency(), {}, "asc needs its threshold; give price="),
        (FixedPolicy(2), {"price": 0.1}, "fixed takes no price or threshold; leave 0.1 out"),
        (AdaptiveConsistency(), {"price": float("nan")}, "threshold nan can't be used"),
        (AdaptiveConsistency(), {"price": -0.1}, "threshold -0.1 can't be used"),
        (AdaptiveConsistency(), {"price": 1.5}, "from 0 to 1"),
        (AdaptiveConsistency(), {"price": "0.1"}, "'0.1' can't be used"),
        (AdaptiveConsistency(), {"price": True}, "True can't be used"),
        (AdaptiveConsistency(), {"price": 10**400}, r"threshold 1000.*000 can't be used"),
        (FixedPolicy(2), {"price": 10**400}, "fixed takes no price or threshold"),
        (FixedPolicy(2), {"orders": 0}, "orders 0 can't be used"),
        (FixedPolicy(2), {"orders": 10**9}, "orders 1000000000 can't be used; give a whole number from 1 to"),
        (
            AdaptiveConsistency(),
            {"price": 0.1, "orders": 900_000},
            "orders 900000 of 80 problems need more memory than is allowed; give at most",
        ),
        (None, {}, "None is not a policy; give one"),
        (FixedPolicy(2), {"rng": 7}, "rng 7 can't be used"),
        (FixedPolicy(2), {"too_few": "ignore"}, "too_few 'ignore' is not known"),
    ],
)
def test_what_can_not_be_asked_is_refused_in_one_line(words, policy, given, words_said):
    with pytest.raises(PolicyError, match=words_said) as error:
        replay(policy, words, **given)
    assert "\n" not in str(error.value)


def test_problems_with_too_few_samples_are_an_error_or_left_out():
    ballots = drawn(2, least=8, samples=24)
    with pytest.raises(
        TooFewSamples, match=r"of 12 problems have fewer than the 16 samples .*too_few='drop'"
    ):
        replay(FixedPolicy(2), ballots)
    found = replay(FixedPolicy(2), ballots, too_few="drop")
    assert found.problems + len(found.dropped) == 12
    assert set(found.dropped) == {ballots.ids[i] for i in np.flatnonzero(ballots.drawn < 16)}
    with pytest.raises(TooFewSamples, match="12 of 12 problems"):
        replay(FixedPolicy(2, longest=100), ballots, too_few="drop")
    with pytest.raises(TooFewSamples, match="no problem has a sample"):
        replay(FixedPolicy(2), ballots.only([]))


def test_grades_without_answers_can_not_be_replayed(words):
    bare = replace(words, classes=np.full_like(words.classes, -1))
    with pytest.raises(NotRecorded, match="no recorded answers"):
        replay(AdaptiveConsistency(), bare, price=0.1)


def test_a_policy_that_draws_nothing_or_too_much_is_refused(words):
    class Nothing(FixedPolicy):
        def count_draws(self, reading, state, dial):
            return np.zeros(len(state), dtype=np.int64)

    class Much(FixedPolicy):
        one_shot = False

        def count_draws(self, reading, state, dial):
            return np.full(len(state), 9)

    with pytest.raises(PolicyError, match="no sample on an empty tally"):
        replay(Nothing(2), words)
    with pytest.raises(PolicyError, match="asks for 18 samples of a request, above its own 16"):
        replay(Much(2), words, orders=4)
    with pytest.raises(PolicyError, match="may draw 16 samples of a request, and the paths have 4"):
        run_policy(
            FixedPolicy(2), draw_paths(words, rng=np.random.default_rng(0), orders=4, longest=4), dial=None
        )


def test_paths_that_weigh_votes_otherwise_than_the_policy_are_refused(words):
    ways = draw_paths(words, rng=np.random.default_rng(0), orders=4)
    with pytest.raises(
        PolicyError, match=r"fixed weighs votes by VoteWeights\(.*\), and the paths by None; make"
    ):
        run_policy(FixedPolicy(2, weigh=LOGPROB), ways, dial=None)


def test_a_policy_with_a_scale_of_confidence_is_adapted_to_the_pool_first(words):
    class Scaled(FixedPolicy):
        def copy_for(self, ballots):
            assert len(ballots) == 80
            return Scaled(self.budget, weigh=VoteWeights(signal="logprob", scale=-0.2))

    plain = replay(Scaled(4), words, orders=40)
    assert plain.protocol.startswith("votes weighted")
    assert (
        plain.accuracy
        == replay(FixedPolicy(4, weigh=VoteWeights(signal="logprob", scale=-0.2)), words, orders=40).accuracy
    )


def test_what_was_fitted_on_these_problems_is_said_to_be(words):
    class Recalls(FixedPolicy):
        seen = 3

        def count_in_sample(self, ballots):
            return min(self.seen, len(ballots))

    said = "; in-sample: it was fitted on 3 of these 80 problems"
    found = replay(Recalls(4), words)
    assert (found.in_sample, found.to_dict()["in_sample"]) == (3, 3)
    assert found.protocol.endswith(said)
    Recalls.seen = 0
    for policy in (Recalls(4), FixedPolicy(4)):
        plain = replay(policy, words)
        assert (plain.in_sample, plain.to_dict()["in_sample"]) == (0, 0)
        assert plain.protocol + said == found.protocol


def test_a_sweep_holds_what_each_dial_gives(words):
    ways: Paths = draw_paths(words, rng=np.random.default_rng(0), orders=8)
    dials = [0.0, 0.05, 0.2, 0.5]
    found = sweep(AdaptiveConsistency(), ways, dials)
    assert len(found) == 4
    assert found.cost.shape == found.accuracy.shape == found.tokens.shape == (4, 80)
    alone = run_policy(AdaptiveConsistency(), ways, dial=0.2)
    assert found.cost[2].tolist() == ways.mean_per_problem(alone.drawn).tolist()
    assert np.array_equal(found.accuracy[2], ways.mean_per_problem(alone.grade), equal_nan=True)
    assert (np.diff(found.cost, axis=0) <= 0).all()
    some = found.select([3, 5])
    assert some.accuracy.tolist() == found.accuracy[:, [3, 5]].tolist()
    assert sweep(FixedPolicy(4), ways, []).cost.shape == (0, 80)
