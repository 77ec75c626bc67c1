"""Curves foretold, budgets bought by price: on the hull, never dearer at a higher price, honest on noise."""

from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from every_policy import decide_all
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adacompute import AccuracyTable, Ballots, Tally, VoteWeights, score
from adacompute.errors import NotFitted, NotRecorded, PolicyError, TooFewSamples
from adacompute.policies.curve import (
    CurvePolicy,
    compute_critical_prices,
    draw_first_samples,
    fit_curves,
)
from adacompute.policies.votes import VoteState
from adacompute.records import Sample
from adacompute.solve import best_at
from shared import read_votes
from synthetic import make_ballots

BUDGETS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
SIGNALS = ("classes", "correct", "tokens", "logprob", "entropy")


@cache
def words() -> Ballots:
    return read_votes("words").only(range(0, 440, 4))


@cache
def fitted(features: str = "text+entropy") -> CurvePolicy:
    return CurvePolicy(features=features).fit(words())


def shuffled(ballots: Ballots, seed: int) -> Ballots:
    """Prompts that say nothing of their problems, and no entropies."""
    order = np.random.default_rng(seed).permutation(len(ballots))
    prompts = tuple(ballots.prompts[row] for row in order)
    return replace(ballots, prompts=prompts, entropy=np.full(ballots.entropy.shape, np.nan))


tables = arrays(np.float64, (3, 5), elements=st.integers(0, 8).map(lambda eighths: eighths / 8))


@given(tables, st.floats(0, 1, allow_nan=False))
def test_at_a_price_the_cheapest_best_budget_is_bought(table: np.ndarray, price: float):
    worth = table - price * BUDGETS
    bought = (compute_critical_prices(table, BUDGETS) > price).sum(axis=1)
    best = worth.max(axis=1)
    assert np.allclose(worth[np.arange(3), bought], best, atol=1e-12)
    cheaper = np.arange(5) < bought[:, None]
    assert (worth[cheaper] <= np.repeat(best, bought) + 1e-12).all()


@given(tables, st.sampled_from([0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8]))
def test_ties_go_to_the_cheaper_as_in_solving(table: np.ndarray, price: float):
    theirs = best_at(AccuracyTable.of(table, costs=BUDGETS), price)
    assert (compute_critical_prices(table, BUDGETS) > price).sum(axis=1).tolist() == theirs.tolist()


@given(arrays(np.float64, (4, 5), elements=st.floats(0, 1)))
def test_critical_prices_fall_along_the_budgets(table: np.ndarray):
    assert (np.diff(compute_critical_prices(table, BUDGETS), axis=1) <= 0).all()


def replace_entropy(state: VoteState, entropy: np.ndarray) -> VoteState:
    """One sample drawn, of this entropy."""
    return replace(state, drawn=np.ones(len(state), dtype=np.int64), entropy=entropy)


@pytest.mark.slow
def test_with_the_entropy_one_sample_is_drawn_first():
    policy, prompt = fitted(), words().prompts[0]
    assert (policy.more(prompt, Tally(), 0.001), policy.one_shot, policy.max_waves) == (1, False, 2)
    sure, unsure = (
        policy.more(prompt, Tally.of([Sample(answer="4", entropy=entropy)]), 0.004) for entropy in (0.0, 1.5)
    )
    assert sure <= unsure


def test_without_it_all_is_decided_beforehand():
    policy = fitted("text")
    assert (policy.one_shot, policy.max_waves) == (True, 1)
    assert set(decide_all(policy, words().prompts, [Tally()] * len(words()), 0.005)) <= {1, 2, 4, 8, 16}


@pytest.mark.parametrize("seed", range(3))
def test_where_prompts_say_nothing_all_get_the_mean_curve(seed: int):
    ballots = shuffled(words(), seed)
    policy = CurvePolicy().fit(ballots)
    assert not policy.uses_features
    mean = score(ballots, budgets=(1, 2, 4, 8, 16)).accuracy.mean(axis=0)
    found = policy.predict_curve(ballots.prompts)
    gains = found - found[:, :1]
    assert np.abs(gains - (mean - mean[0])).max() < 1e-6


@pytest.mark.slow
def test_a_prompt_that_comes_twice_is_not_taken_for_one_foretold():
    """Trees can tell a curve of a prompt they have seen: that is recalled, and says nothing of others."""
    rng = np.random.default_rng(0)
    rows, targets = np.tile(rng.random((100, 8)), (3, 1)), np.tile(rng.random((100, 5)), (3, 1))
    owner, groups = np.arange(300), [np.arange(8)]
    recalled = fit_curves(rows, targets, owner, groups=groups, seed=0)
    assert (recalled.output > 0).any()
    found = fit_curves(rows, targets, owner, prompt_ids=owner % 100, groups=groups, seed=0)
    assert not (found.output > 0).any()
    often = shuffled(words(), 0).only([*range(len(words()))] * 3)
    assert not CurvePolicy().fit(replace(often, ids=tuple(map(str, range(len(often)))))).uses_features


def test_where_they_tell_curves_differ_and_are_calibrated():
    """Problems of two kinds: votes help one, and never the other."""
    policy = CurvePolicy(features="text").fit(two_kinds())
    assert policy.uses_features
    helped, hopeless = policy.predict_curve(["Count the 7 parlet.", "Who was first to parlet?"])
    truth = score(two_kinds(), budgets=(1, 2, 4, 8, 16)).accuracy
    assert np.abs(helped - truth[::2].mean(axis=0)).max() < 0.06
    assert np.abs(hopeless - truth[1::2].mean(axis=0)).max() < 0.06
    assert policy.more("Count the 7 parlet.", Tally(), 0.01) > policy.more(
        "Who was first to parlet?", Tally(), 0.01
    )


@cache
def two_kinds() -> Ballots:
    rng = np.random.default_rng(0)
    named = enumerate("".join(letters) for letters in list(permutations("aelprt"))[:80])
    right = np.where(np.arange(80)[:, None] % 2 == 0, 0.6, 0.1)
    correct = rng.random((80, 32)) < right
    classes = np.where(correct, 0, rng.integers(1, 4, size=(80, 32)))
    classes[1::2] = np.where(correct[1::2], 0, 1)
    prompts = tuple(f"Count the 7 {w}." if i % 2 == 0 else f"Who was first to {w}?" for i, w in named)
    return make_ballots(classes, correct, prompts=prompts)


@pytest.mark.parametrize("features", ["text", "text+entropy"])
def test_where_votes_hardly_ever_hurt_no_curve_foretold_falls(features: str):
    policy = fitted(features)
    found = policy.predict_curve(words().prompts, np.linspace(0, 2, len(words())))
    assert (np.diff(found, axis=1)[:, policy.rises_ > 0] >= 0).all()


def test_a_few_problems_get_the_mean_curve():
    policy = CurvePolicy().fit(words().only(range(10)))
    assert not policy.uses_features
    assert policy.more("What is 2 + 2?", Tally(), 0.01) == 1


@pytest.mark.slow
def test_what_cant_be_asked_or_fitted_is_refused_saying_why():
    with pytest.raises(NotFitted, match="fit"):
        CurvePolicy().more("?", Tally(), 0.01)
    for price in (None, float("nan"), -0.1):
        with pytest.raises(PolicyError, match="price"):
            fitted().more("?", Tally(), price)
    eight = replace(words(), **{name: getattr(words(), name)[:, :8] for name in SIGNALS})
    with pytest.raises(TooFewSamples, match="smaller budgets"):
        CurvePolicy().fit(eight)
    assert CurvePolicy(longest=8).fit(eight).choices == (1, 2, 4, 8)
    unknown = replace(words(), gold_known=np.zeros(len(words()), bool), correct=words().correct * np.nan)
    with pytest.raises(NotRecorded):
        CurvePolicy().fit(unknown)
    with pytest.raises(PolicyError, match="entropy"):
        CurvePolicy(features="entropy").fit(shuffled(words(), 0))


def test_votes_that_begin_with_a_sample_average_to_the_votes_of_all():
    few = words().only(range(25))
    paths = draw_first_samples(few, 8, orders=640, rng=np.random.default_rng(0))
    found = np.moveaxis(paths.grade[[0, 1, 3, 7]].reshape(4, 25, 640), 0, 2)
    exact = score(few, budgets=(1, 2, 4, 8)).accuracy
    assert np.abs(found[:, :, 0].mean(axis=1) - exact[:, 0]).max() < 1e-9  # each sample begins ten orders
    assert np.abs(found.mean(axis=1) - exact).max() < 0.08
    assert np.abs(found.mean(axis=(0, 1)) - exact.mean(axis=0)).max() < 0.01


@pytest.mark.parametrize("weighed", [False, True])
def test_votes_along_an_order_are_those_of_tallies(weighed: bool):
    classes = [0, 1, 1, -1, 2, 0]
    entropy = [0.2, 0.9, 0.4, 0.1, 0.3, 0.8]
    weigh = VoteWeights(signal="entropy", scale=0.5) if weighed else None
    one = replace(
        two_kinds().only([0]),
        classes=np.array([classes], dtype=np.int32),
        correct=np.array([[c == 1 for c in classes]], dtype=np.float32),
        **{name: np.array([entropy]) for name in ("tokens", "logprob", "entropy")},
    )
    paths = draw_first_samples(one, 6, orders=400, rng=np.random.default_rng(0), weigh=weigh)
    possible = set()
    for order in permutations(range(6)):
        worth = []
        for budget in (1, 2, 4, 6):
            drawn = [Sample(answer=name(classes[i]), entropy=entropy[i]) for i in order[:budget]]
            worth.append(float(Tally.of(drawn, weigh=weigh).leader == name(1)))
        possible.add((entropy[order[0]], *worth))
    rows = paths.grade[[0, 1, 3, 5]].T.tolist()
    seen = {(float(e), *row) for e, row in zip(paths.entropy, rows, strict=True)}
    assert seen <= possible
    assert len(seen) > len(possible) / 2


def name(number: int) -> str | None:
    return None if number < 0 else "abc"[number]


def test_trees_are_believed_only_as_far_as_other_problems_bear_them_out():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4))
    owner, columns = np.arange(200), [np.arange(4)]
    noise = rng.random((200, 3))
    assert len(fit_curves(rows, noise, owner, groups=columns, seed=0).roots) == 0
    signal = np.stack(
        [0.3 + 0 * rows[:, 0], 0.5 + 0.2 * (rows[:, 0] > 0), 0.5 + 0.4 * (rows[:, 0] > 0)], axis=1
    )
    found = fit_curves(rows, signal + 0.05 * rng.normal(size=(200, 3)), owner, groups=columns, seed=0).scores(
        rows
    )
    assert np.abs(found[:, 2] - (signal[:, 2] - 0.3)).mean() < 0.05


def test_many_requests_at_once_get_what_each_gets_alone():
    policy, rng = fitted(), np.random.default_rng(1)
    rows = rng.integers(len(words()), size=6000)
    state = replace_entropy(VoteState.empty(6000), rng.choice([0.1, 0.3, 0.7, np.nan], size=6000))
    reading = policy.read(words().prompts)[rows]
    for price in (0.002, 0.01):  # the second from memory
        large = policy.count_draws(reading, state, price)
        parts = [
            policy.count_draws(reading[i : i + 500], state.select(np.arange(i, i + 500)), price)
            for i in range(0, 6000, 500)
        ]
        assert (np.concatenate(parts) == large).all()
