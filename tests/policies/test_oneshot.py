"""Budgets decided on the prompt alone: by rule, at random, by length; the oracle's, dealt out at random."""

import math

import numpy as np
import pytest
from every_policy import decide_all
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import BudgetOutOfRange, PolicyError
from adacompute.evaluate.rivals import HeuristicPolicy, RandomPolicy, ShuffledPolicy
from adacompute.policies.base import hash_to_unit
from adacompute.policies.baselines import FixedPolicy, mix_adjacent
from adacompute.policies.paths import draw_paths
from adacompute.replay.per_problem import run_policy
from adacompute.score import score
from adacompute.solve import solve
from shared import read_votes

untimed = settings(deadline=None)  # the first example may pay for an import
PROMPTS = [f"A farmer has {i} hens and {'very ' * (i % 23)}many eggs: {i * i}?" for i in range(4000)]
BUDGETS = st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True).map(sorted).map(tuple)


@pytest.fixture(scope="module")
def words():
    return read_votes("words")


@pytest.fixture(scope="module")
def fitted(words):
    return (
        FixedPolicy(3),
        FixedPolicy(3, mix=True, seed=4),
        RandomPolicy(2.5),
        RandomPolicy(2.5, seed=7, longest=8),
        HeuristicPolicy(2.0).fit(words),
        ShuffledPolicy(2.0).fit(words),
        ShuffledPolicy(3.0, weigh=VoteWeights(signal="logprob", scale=-0.5)).fit(words),
    )


def budgets(policy, prompts):
    return np.array(decide_all(policy, prompts, [Tally()] * len(prompts)))


@pytest.mark.parametrize(
    ("asked", "given_"), [(1, 1), (1.5, 1), (2, 2), (3.99, 2), (4, 4), (16, 16), (99, 16)]
)
def test_fixed_is_the_largest_budget_not_above_the_one_asked_for(asked, given_):
    assert set(budgets(FixedPolicy(asked), PROMPTS[:50])) == {given_}


@untimed
@given(BUDGETS, st.floats(0, 1))
def test_shares_average_the_budget_exactly(modes, place):
    average = modes[0] + place * (modes[-1] - modes[0])
    part = mix_adjacent(modes, average)
    assert part.sum() == pytest.approx(1, abs=1e-12)
    assert (part >= 0).all()
    assert part @ modes == pytest.approx(average, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(
    "policy",
    [FixedPolicy(2.7, mix=True), RandomPolicy(2.7)],
    ids=["fixed", "random"],
)
def test_requests_average_the_budget_by_lot(policy):
    drawn = budgets(policy, PROMPTS)
    assert drawn.mean() == pytest.approx(2.7, abs=4 * drawn.std() / math.sqrt(len(drawn)))
    assert set(drawn) <= {1, 2, 4, 8, 16}


def test_random_as_in_the_paper_is_as_fixed_where_the_budget_is_one_of_its_modes():
    assert set(budgets(RandomPolicy(2), PROMPTS)) == {2}


def test_a_lot_is_the_prompts_own_whoever_asks_with_it():
    alone = [hash_to_unit([prompt], seed=3)[0] for prompt in PROMPTS[:100]]
    assert alone == hash_to_unit(PROMPTS, seed=3)[:100].tolist()
    assert len(set(alone)) == 100
    assert not set(alone) & set(hash_to_unit(PROMPTS[:100], seed=4).tolist())
    assert 0 <= hash_to_unit(["\ud800", ""], seed=0).min() < 1  # half a surrogate pair has a lot too


def test_longer_prompts_never_get_less():
    prompts = read_votes("facts").prompts
    policy = HeuristicPolicy(3).fit(read_votes("facts"))
    drawn = budgets(policy, prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    rank = {len(prompts[i]): [] for i in order}
    for i in order:
        rank[len(prompts[i])].append(drawn[i])
    for shorter, longer in zip(list(rank.values()), list(rank.values())[1:], strict=False):
        assert max(shorter) <= min(longer)


@pytest.mark.parametrize("asked", [1, 1.5, 2, 3, 7.3, 16])
def test_the_heuristic_meets_its_budget_to_the_nearest_problem(words, asked):
    policy = HeuristicPolicy(asked).fit(words)
    alike = len(words) - len(set(words.prompts))  # prompts that nothing parts
    assert budgets(policy, words.prompts).mean() == pytest.approx(asked, abs=(7.5 + 15 * alike) / len(words))


def test_shuffled_has_the_histogram_of_the_oracle_and_not_its_choice(words):
    chosen = np.array([1, 2, 4, 8, 16])[solve(score(words), budget=2.0).choice]
    ours = budgets(ShuffledPolicy(2.0, seed=1).fit(words), PROMPTS)
    for budget in (1, 2, 4, 8, 16):
        share = (chosen == budget).mean()
        assert (ours == budget).mean() == pytest.approx(share, abs=4 * math.sqrt(share / len(PROMPTS)))
    lengths = [len(prompt) for prompt in PROMPTS]
    assert abs(np.corrcoef(lengths, ours)[0, 1]) < 4 / math.sqrt(len(PROMPTS))


def test_replay_spends_what_they_decide(fitted, words):
    some = words.only(range(0, len(words), 8))
    for policy in fitted:
        walked = draw_paths(some, rng=np.random.default_rng(0), orders=4, weigh=policy.weigh)
        found = run_policy(policy, walked, dial=None)
        assert (found.waves == 1).all()
        assert found.drawn.tolist() == np.repeat(budgets(policy, some.prompts), walked.orders).tolist()


def test_a_fit_that_teaches_nothing_is_refused(words):
    with pytest.raises(PolicyError, match="no problem to learn lengths from"):
        HeuristicPolicy(2).fit(words.only([]))
    with pytest.raises(BudgetOutOfRange):
        RandomPolicy(1, budgets=(2, 4))
