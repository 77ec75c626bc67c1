"""Budgets decided on the prompt alone: by rule, by lot, by length, and another policy's dealt out by lot."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import AdacomputeError, BudgetOutOfRange, NotFitted, PolicyError, PolicyInvalid
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import VoteState
from adacompute.policies.baselines import (
    FixedPolicy,
    HeuristicPolicy,
    OraclePolicy,
    RandomPolicy,
    ShuffledPolicy,
    compute_shares,
    hash_to_unit,
)
from adacompute.policies.paths import draw_paths
from adacompute.pool import bundled
from adacompute.replay.per_problem import run_policy
from adacompute.score import score
from adacompute.solve import solve
from shared import read_votes

untimed = settings(deadline=None)  # the first example may pay for an import
PROMPTS = [f"A farmer has {i} hens and {'very ' * (i % 23)}many eggs: {i * i}?" for i in range(4000)]
SPREADS = ("adjacent", "ends", "all")
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
        RandomPolicy(2.5, spread="all", seed=7, longest=8),
        HeuristicPolicy(2.0).fit(words),
        HeuristicPolicy(3.0, spread="all").fit(words),
        ShuffledPolicy(2.0).fit(words),
        ShuffledPolicy(of={3: 1, 7: 2}, weigh=VoteWeights(signal="logprob", scale=-0.5)),
    )


def budgets(policy, prompts):
    return np.array(policy.more_batch(prompts, [Tally()] * len(prompts)))


@pytest.mark.parametrize(
    ("asked", "given_"), [(1, 1), (1.5, 1), (2, 2), (3.99, 2), (4, 4), (16, 16), (99, 16)]
)
def test_fixed_is_the_largest_budget_not_above_the_one_asked_for(asked, given_):
    assert set(budgets(FixedPolicy(asked), PROMPTS[:50])) == {given_}


@untimed
@given(BUDGETS, st.floats(0, 1), st.sampled_from(SPREADS))
def test_shares_average_the_budget_exactly(modes, place, spread):
    average = modes[0] + place * (modes[-1] - modes[0])
    part = compute_shares(modes, average, spread)
    assert part.sum() == pytest.approx(1, abs=1e-12)
    assert (part >= 0).all()
    assert part @ modes == pytest.approx(average, rel=1e-12, abs=1e-9)


@untimed
@given(BUDGETS, st.floats(0.001, 0.999))
def test_spread_over_all_is_the_distribution_of_maximum_entropy(modes, place):
    part = compute_shares(modes, modes[0] + place * (modes[-1] - modes[0]), "all")
    if len(modes) > 2 and part.min() > 1e-200:
        logs, costs = np.log(part), np.array(modes)
        slopes = np.diff(logs) / np.diff(costs)  # log-linear in the budget, and only that is the maximum
        assert slopes == pytest.approx(np.full(len(slopes), slopes[0]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "policy",
    [FixedPolicy(2.7, mix=True), *(RandomPolicy(2.7, spread=spread) for spread in SPREADS)],
    ids=["fixed", *SPREADS],
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
    policy = HeuristicPolicy(3, spread="all")
    with bundled("facts") as pool:
        policy.fit(pool)
        prompts = pool.ballots().prompts
    drawn = budgets(policy, prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    rank = {len(prompts[i]): [] for i in order}
    for i in order:
        rank[len(prompts[i])].append(drawn[i])
    for shorter, longer in zip(list(rank.values()), list(rank.values())[1:], strict=False):
        assert max(shorter) <= min(longer)


@pytest.mark.parametrize("asked", [1, 1.5, 2, 3, 7.3, 16])
@pytest.mark.parametrize("spread", SPREADS)
def test_the_heuristic_meets_its_budget_to_the_nearest_problem(words, asked, spread):
    policy = HeuristicPolicy(asked, spread=spread).fit(words)
    alike = len(words) - len(set(words.prompts))  # prompts that nothing parts
    assert budgets(policy, words.prompts).mean() == pytest.approx(asked, abs=(7.5 + 15 * alike) / len(words))


def test_shuffled_has_the_histogram_of_the_policy_and_not_its_choice(words):
    like = HeuristicPolicy(4, spread="all").fit(words)
    policy = ShuffledPolicy(seed=1).fit(words, like=like)
    theirs, ours = budgets(like, words.prompts), budgets(policy, PROMPTS)
    for budget in set(theirs.tolist()):
        share = (theirs == budget).mean()
        assert (ours == budget).mean() == pytest.approx(share, abs=4 * math.sqrt(share / len(PROMPTS)))
    lengths = [len(prompt) for prompt in PROMPTS]
    assert abs(np.corrcoef(lengths, ours)[0, 1]) < 4 / math.sqrt(len(PROMPTS))


def test_shuffled_takes_a_priced_policy_at_its_price_and_what_any_policy_spent(words):
    oracle = OraclePolicy().fit(words)
    spent = oracle.decide(oracle.read(words.prompts), VoteState.empty(len(words)), 0.01)
    by_policy = ShuffledPolicy().fit(words, like=oracle, dial=0.01)
    by_array = ShuffledPolicy().fit(words, like=spent)
    assert by_policy.histogram_ == by_array.histogram_
    assert by_array.histogram_ == {int(b): int((spent == b).sum()) for b in np.unique(spent)}


def test_shuffled_alone_deals_out_the_oracles_budgets(words):
    plan = solve(score(words), budget=2.0)
    chosen = np.array([1, 2, 4, 8, 16])[plan.choice]
    assert ShuffledPolicy(2.0).fit(words).histogram_ == {
        int(b): int((chosen == b).sum()) for b in set(chosen)
    }


def test_shuffled_refuses_a_policy_that_decides_as_votes_come_in(words):
    with pytest.raises(PolicyError, match=r"asc decides as the votes come in.*like=run\.drawn"):
        ShuffledPolicy().fit(words, like=AdaptiveConsistency(), dial=0.1)


def test_they_ask_once_and_never_beyond_the_longest(fitted, words):
    for policy in fitted:
        asked = budgets(policy, words.prompts)
        assert asked.min() >= 1
        assert asked.max() <= policy.longest
        for prompt, budget in zip(words.prompts[:20], asked.tolist(), strict=False):
            assert policy.more(prompt, Tally()) == budget
            for drawn in (1, budget, budget + 3):
                tally = Tally.of(["4", None, "5"] * 8)
                short = Tally.of((["4", None, "5"] * 8)[:drawn])
                assert policy.more(prompt, short) == max(0, budget - drawn)
                assert policy.more(prompt, tally) == 0


def test_replay_spends_what_they_decide(fitted, words):
    some = words.only(range(0, len(words), 8))
    for policy in fitted:
        walked = draw_paths(some, rng=np.random.default_rng(0), orders=4, weigh=policy.weigh)
        found = run_policy(policy, walked, dial=None)
        assert (found.waves == 1).all()
        assert found.drawn.tolist() == np.repeat(budgets(policy, some.prompts), walked.orders).tolist()


def test_what_is_stored_comes_back_and_decides_the_same(fitted, words):
    for policy in fitted:
        stored = json.loads(json.dumps(policy.settings()))
        again = type(policy).restore(stored, policy.arrays())
        assert again.settings() == policy.settings()
        assert again.weigh == policy.weigh
        assert budgets(again, words.prompts).tolist() == budgets(policy, words.prompts).tolist()


def test_before_they_have_learned_they_say_so():
    for policy in (HeuristicPolicy(2), ShuffledPolicy(2)):
        with pytest.raises(NotFitted, match=r"fit\(pool"):
            policy.more("?", Tally())
        again = type(policy).restore(json.loads(json.dumps(policy.settings())), {})
        with pytest.raises(NotFitted):
            again.more("?", Tally())


@pytest.mark.parametrize(
    ("make", "words_"),
    [
        (lambda: FixedPolicy(0.5), "budget 0.5 is below the cheapest mode"),
        (lambda: FixedPolicy(math.nan), "budget nan"),
        (lambda: FixedPolicy("2"), "budget '2'"),
        (lambda: FixedPolicy(True), "budget True"),
        (lambda: FixedPolicy(2, mix=1), "mix 1"),
        (lambda: FixedPolicy(2, seed=-1), "seed -1"),
        (lambda: FixedPolicy(2, longest=0), "longest 0"),
        (lambda: FixedPolicy(2, longest=2.0), "longest 2.0"),
        (lambda: FixedPolicy(2, weigh="logprob"), "weigh 'logprob'"),
        (lambda: FixedPolicy(4, budgets=(4, 8), longest=2), "beyond longest 2"),
        (lambda: RandomPolicy(2, budgets=(2, 1)), r"budgets \(2, 1\)"),
        (lambda: RandomPolicy(2, budgets=(1, True)), "budgets"),
        (lambda: RandomPolicy(2, budgets=()), "budgets"),
        (lambda: RandomPolicy(2, budgets="124"), "budgets"),
        (lambda: RandomPolicy(2, spread="wide"), "spread 'wide' is not known"),
        (lambda: HeuristicPolicy(2, spread=None), "spread None"),
        (lambda: HeuristicPolicy(-1), "budget -1"),
        (lambda: ShuffledPolicy(of={}), "histogram {}"),
        (lambda: ShuffledPolicy(of={1: -1.0}), "share -1.0"),
        (lambda: ShuffledPolicy(of={1: 0.0}), "no shares that can be drawn"),
        (lambda: ShuffledPolicy(of={17: 1.0}), "budget in the histogram 17"),
        (lambda: ShuffledPolicy(of=[1, 2]), "histogram"),
        (lambda: ShuffledPolicy(0), "budget 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(make, words_):
    with pytest.raises(AdacomputeError, match=words_) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_fit_that_teaches_nothing_is_refused(words):
    with pytest.raises(PolicyError, match="no problem to learn lengths from"):
        HeuristicPolicy(2).fit(words.only([]))
    with pytest.raises(PolicyError, match="nothing to shuffle"):
        ShuffledPolicy().fit(words)
    for like in ([], [[1, 2]], [1.5], ["a"]):
        with pytest.raises(PolicyError, match="list of whole numbers"):
            ShuffledPolicy().fit(words, like=like)
    with pytest.raises(PolicyError, match="budget in the histogram 17"):
        ShuffledPolicy().fit(words, like=[1, 17])
    with pytest.raises(BudgetOutOfRange):
        RandomPolicy(1, budgets=(2, 4))


@pytest.mark.parametrize(
    ("policy", "change", "named"),
    [
        (FixedPolicy(2), {"budget": None}, "budget None"),
        (FixedPolicy(2), {"budget": math.nan}, "budget nan"),
        (FixedPolicy(2), {"longest": "16"}, "longest '16'"),
        (FixedPolicy(2), {"colour": 1}, "'colour' is not known"),
        (FixedPolicy(2), {"weigh": {"signal": "logprob"}}, "weigh"),
        (FixedPolicy(2), {"weigh": {"signal": "x", "scale": 1.0, "sharpness": 2.0}}, "signal 'x'"),
        (FixedPolicy(2), {"budgets": [1, 2.5]}, "budgets"),
        (FixedPolicy(2), {"budgets": {"1": 2}}, "budgets"),
        (RandomPolicy(2), {"spread": ["all"]}, "spread"),
        (RandomPolicy(2), {"seed": 1e9}, "seed"),
        (HeuristicPolicy(2), {"learned": [1]}, "learned"),
        (HeuristicPolicy(2), {"learned": {"budgets": [1, 32], "cuts": [3.0]}}, "learned budgets"),
        (HeuristicPolicy(2), {"learned": {"budgets": [1, 2], "cuts": []}}, "learned cuts"),
        (HeuristicPolicy(2), {"learned": {"budgets": [1, 2], "cuts": [math.nan]}}, "learned cut nan"),
        (HeuristicPolicy(2), {"learned": {"budgets": [1, 2, 4], "cuts": [9.0, 3.0]}}, "don't rise"),
        (ShuffledPolicy(2), {"learned": [[1, 1.0], [1, 2.0]]}, "twice"),
        (ShuffledPolicy(2), {"learned": [[1]]}, "learned"),
        (ShuffledPolicy(2), {"learned": {"1": 2}}, "learned"),
        (ShuffledPolicy(2), {"learned": [["1", 1.0]]}, "not a whole number"),
        (ShuffledPolicy(2), {"learned": [[1, math.inf]]}, "share inf"),
    ],
)
def test_stored_settings_that_cannot_be_are_refused_by_name(policy, change, named):
    with pytest.raises(PolicyInvalid, match=named) as caught:
        type(policy).restore(policy.settings() | change, {})
    assert "\n" not in str(caught.value)
    assert policy.kind in str(caught.value)


def test_a_stored_setting_that_is_missing_is_named():
    settings = FixedPolicy(2).settings()
    for name in settings:
        with pytest.raises(PolicyInvalid, match=f"'{name}' is missing"):
            FixedPolicy.restore({k: v for k, v in settings.items() if k != name}, {})
