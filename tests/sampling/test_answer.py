"""The laws of a batch, against a real HTTP server: the budget holds, and the pool is all its state."""

from pathlib import Path

import numpy as np
import pytest
from batches import ASKING, Recording, ask, facts, made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adacompute.errors import BudgetOutOfRange, CollectError, NotFitted, PolicyError, SourceChanged
from adacompute.policies.agreement import AdaptiveConsistency, EarlyStopping
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.problems import Template
from adacompute.sampling import Asking
from adacompute.sampling.waves import split_room
from upstream import Status, Upstream

POLICIES: tuple[Policy, ...] = (
    StoppingPolicy(),
    StoppingPolicy(max_waves=2),
    StoppingPolicy(ladder=(1, 2, 4, 8)),
    AdaptiveConsistency(),
    EarlyStopping(),
    FixedPolicy(4),
    FixedPolicy(3, mix=True),
)
answers = st.lists(st.sampled_from(["4", "5", "6", None]), min_size=1, max_size=5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.lists(answers, min_size=1, max_size=8),
    policy=st.sampled_from(POLICIES),
    budget=st.floats(1.0, 9.0),
    refused=st.sets(st.integers(0, 7), max_size=2),
)
def test_the_total_is_never_above_the_budget_and_everybody_has_a_sample(
    batch, policy, budget, refused, tmp_path_factory
):
    recorded = made(batch)
    failing = frozenset(one.problem.question for i, one in enumerate(recorded) if i in refused)
    path = tmp_path_factory.mktemp("batch") / "p.sqlite"
    with Upstream(Recording(recorded, failing=failing)) as up:
        done = ask(recorded, path, policy=policy, budget=budget, up=up)
    assert done.spent == sum(one.samples for one in done.each) <= budget * len(recorded) + 1e-9
    for i, one in enumerate(done.each):
        assert (one.samples == 0) == (i in refused) == (one.error is not None)
        assert one.samples <= policy.longest
    assert set(done.failures) == {f"p{i}" for i in refused if i < len(recorded)}
    if policy.dial is not None and not failing and budget <= policy.longest and not done.unsettled:
        assert done.spent == done.limit or max(one.samples for one in done.each) <= policy.longest


@pytest.mark.parametrize("policy", [StoppingPolicy(), StoppingPolicy(ladder=(1, 4, 8)), FixedPolicy(6)])
def test_no_request_takes_more_samples_than_it_may_also_when_it_is_resumed(policy: Policy, tmp_path: Path):
    recorded = made([["4", "5", "6"], ["4"], ["5", "6"], ["6", "4", None]])
    with Upstream(Recording(recorded)) as up:
        for budget in (6, 8):
            done = ask(recorded, tmp_path / "p.sqlite", policy=policy, budget=budget, up=up, max_samples=3)
            assert max(one.samples for one in done.each) == 3


def test_every_answer_comes_with_its_votes_its_agreement_and_its_cost(tmp_path: Path):
    recorded = made([["4", "5", "4"], [None], ["7"]])
    with Upstream(Recording(recorded)) as up:
        done = ask(recorded, tmp_path / "p.sqlite", policy=FixedPolicy(4), budget=4, up=up)
    first, second, third = done.each
    assert (first.answer, first.votes, first.samples, first.tokens) == ("4", {"4": 3, "5": 1}, 4, 40)
    assert first.agreement == 0.75
    assert (second.answer, second.votes, second.agreement, second.samples) == (None, {}, 0.0, 4)
    assert third.votes == {"7": 4}
    assert done.answered == 2
    assert done.counts == {4: 3}
    assert done.account.completion_tokens == 120
    assert first.best == max((0, 2, 3), key=lambda j: recorded[0].samples[j].logprob)


def test_a_policy_without_a_dial_runs_as_it_is_and_the_limit_holds_all_the_same(tmp_path: Path):
    recorded = made([["4"]] * 6)
    for budget, spent in ((8, 24), (4, 24), (2, 12), (1, 6)):
        with Upstream(Recording(recorded)) as up:
            path = tmp_path / f"{budget}.sqlite"
            done = ask(recorded, path, policy=FixedPolicy(4), budget=budget, up=up)
        assert done.spent == spent
        assert done.price is None
        assert min(one.samples for one in done.each) >= 1
        assert done.unsettled == sum(one.samples < 4 for one in done.each)


def test_without_log_probabilities_votes_are_plain_and_that_is_said(tmp_path: Path):
    recorded = facts(40)
    with Upstream(Recording(recorded, logprobs=False)) as up:
        done = ask(recorded, tmp_path / "p.sqlite", policy=StoppingPolicy(), budget=2, up=up)
    assert done.weigh is None
    assert done.plain
    assert done.spent == 80
    assert all(one.best is not None for one in done.each if one.answer is not None)


@pytest.mark.slow
def test_weights_are_on_the_scale_of_the_models_first_samples(tmp_path: Path):
    recorded = facts(40)
    path = tmp_path / "p.sqlite"
    policy = StoppingPolicy()
    before = policy.weigh
    with Upstream(Recording(recorded)) as up:
        done = ask(recorded, path, policy=policy, budget=2, up=up)
        again = ask(recorded, path, policy=policy, budget=2.5, up=up)
    first = [one.samples[0].mean_logprob for one in recorded]
    assert done.weigh is not None
    assert done.weigh.scale == pytest.approx(np.mean(first))
    assert again.weigh == done.weigh  # later samples don't move it
    assert policy.weigh == before  # the caller's policy is left as it is


def test_what_is_stored_counts_as_spent_and_is_not_bought_again(tmp_path: Path):
    recorded = facts(30)
    path = tmp_path / "p.sqlite"
    with Upstream(Recording(recorded)) as up:
        ask(recorded, path, policy=StoppingPolicy(), budget=1.5, up=up)
        assert up.count.requests == 45
        once = ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up)
        assert (once.added, once.spent, up.count.requests) == (15, 60, 60)
        twice = ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up)
        assert (twice.added, twice.spent, up.count.requests) == (0, 60, 60)
        less = ask(recorded, path, policy=StoppingPolicy(), budget=1, up=up)
        assert (less.added, up.count.requests) == (0, 60)
    assert twice.each == once.each == less.each
    with open_pool(path) as pool:
        assert pool.verify().ok


def test_requests_whose_calls_fail_keep_what_they_have_and_the_rest_of_the_batch_goes_on(tmp_path: Path):
    recorded = facts(20)
    path = tmp_path / "p.sqlite"
    script = Recording(recorded)
    script.failing = frozenset(recorded[i].problem.question for i in (3, 8))
    with Upstream(script) as up:
        done = ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up)
        asked = [r.body["messages"][-1]["content"] for r in up.requests]
        assert all(asked.count(question) == 1 for question in script.failing)  # not asked for again
        assert done.spent == 40  # the others have what they left
        assert set(done.failures) == {recorded[3].problem.id, recorded[8].problem.id}
        assert [one.id for one in done.each if one.error] == list(done.failures)
        script.failing = frozenset()
        mended = ask(recorded, path, policy=StoppingPolicy(), budget=2.2, up=up)
    assert mended.failures == {}
    assert min(one.samples for one in mended.each) == 1


def test_a_request_that_nothing_is_left_for_says_so(tmp_path: Path):
    recorded = made([["4"]] * 5)
    with Upstream(Recording(recorded)) as up:
        ask(recorded[:2], tmp_path / "p.sqlite", policy=FixedPolicy(4), budget=4, up=up)
        done = ask(recorded, tmp_path / "p.sqlite", policy=FixedPolicy(4), budget=2, up=up)
    assert (done.spent, done.limit, done.added) == (10, 10, 2)
    assert [one.error is None for one in done.each] == [True, True, True, True, False]
    assert "raise the budget" in done.each[-1].error


@pytest.mark.slow
def test_gold_answers_have_no_say_in_a_vote(tmp_path: Path):
    recorded = facts(25)
    with Upstream(Recording(recorded)) as up:
        known = ask(recorded, tmp_path / "a.sqlite", policy=StoppingPolicy(), budget=3, up=up)
    with Upstream(Recording(recorded)) as up:
        blind = ask(recorded, tmp_path / "b.sqlite", policy=StoppingPolicy(), budget=3, up=up, gold=False)
    assert [one.votes for one in known.each] == [one.votes for one in blind.each]
    assert known.accuracy is not None
    assert known.accuracy.problems == 25
    assert blind.accuracy is None


def test_what_cannot_be_is_said_before_anything_is_sent(tmp_path: Path):
    recorded, path = made([["4"]] * 3), tmp_path / "p.sqlite"
    hole = Asking(model="m", template=Template.parse("[user]\n{question} {missing}", name="t"))
    with Upstream(Recording(recorded)) as up:
        for budget in (0.5, float("nan"), -1, True):
            with pytest.raises(BudgetOutOfRange, match="give 1 or more"):
                ask(recorded, path, policy=StoppingPolicy(), budget=budget, up=up)
        with pytest.raises(CollectError, match="at least one"):
            ask([], path, policy=StoppingPolicy(), budget=2, up=up)
        with pytest.raises(CollectError, match="twice"):
            ask(recorded + recorded[:1], path, policy=StoppingPolicy(), budget=2, up=up)
        with pytest.raises(NotFitted):
            ask(recorded, path, policy=CurvePolicy(), budget=2, up=up)
        with pytest.raises(PolicyError):
            ask(recorded, path, policy="stopping", budget=2, up=up)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="missing"):
            ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up, asking=hole)
        assert up.count.requests == 0
        ask(recorded, path, policy=StoppingPolicy(), budget=1, up=up)
        other = Asking(model="another", template=ASKING.template, sampling=ASKING.sampling)
        with pytest.raises(SourceChanged, match="another"):
            ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up, asking=other)
        assert up.count.requests == 3


def test_an_endpoint_that_cannot_be_used_ends_it_and_the_same_call_goes_on(tmp_path: Path):
    recorded, path = facts(20), tmp_path / "p.sqlite"
    with Upstream(Status(code=401, message="wrong key")) as up:
        done = ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up, concurrency=2)
    assert done.stopped == "endpoint"
    assert done.broken_off
    assert done.each == ()
    with Upstream(Recording(recorded)) as up:
        done = ask(recorded, path, policy=StoppingPolicy(), budget=2, up=up)
    assert done.stopped is None
    assert done.spent == 40


@given(
    asked=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    room=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_what_is_allotted_is_within_what_is_left_and_goes_by_rank(asked, room, seed):
    rng = np.random.default_rng(seed)
    wanted, empty = np.array(asked), rng.random(len(asked)) < 0.3
    rank = rng.integers(0, 3, len(asked)).astype(float)
    given_ = split_room(wanted, room, empty=empty, rank=rank)
    assert given_.sum() == min(room, wanted.sum())
    assert (given_ <= wanted).all()
    assert (given_ >= 0).all()
    first = empty & (wanted > 0)
    assert given_[first].all() or given_[~first].sum() == 0
    for i, j in ((i, j) for i in range(len(asked)) for j in range(len(asked)) if rank[i] > rank[j]):
        assert given_[j] <= empty[j] or given_[i] == wanted[i]
