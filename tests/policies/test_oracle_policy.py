"""The one-shot oracle as a policy: what a price buys, both ends of its bracket, and prompts never seen."""

from dataclasses import replace

import numpy as np
import pytest
from every_policy import decide_all

from adacompute.answers import Tally
from adacompute.errors import NotRecorded, PolicyInvalid
from adacompute.policies.baselines import OraclePolicy
from adacompute.policies.paths import draw_paths
from adacompute.replay.per_problem import run_policy
from adacompute.score import halves, score
from adacompute.score.aggregates import fit_vote_weights
from adacompute.solve import averages, best_at
from shared import read_votes

PRICES = (0.0, 1e-4, 0.003, 0.01, 0.02, 0.05, 0.2, 1.0, 5.0)


@pytest.fixture(scope="module")
def words():
    ballots = read_votes("words")
    first = {prompt: row for row, prompt in reversed(list(enumerate(ballots.prompts)))}
    return ballots.only(sorted(first.values()))  # each prompt once


@pytest.fixture(scope="module")
def oracle(words):
    return OraclePolicy().fit(words)


def budgets(policy, prompts, price):
    return decide_all(policy, prompts, [Tally()] * len(prompts), price)


@pytest.mark.parametrize("price", PRICES)
def test_each_problem_gets_its_best_budget_at_the_price(oracle, words, price):
    choice = best_at(score(words), price)
    assert budgets(oracle, words.prompts, price) == np.array([1, 2, 4, 8, 16])[choice].tolist()


def test_a_prompt_never_seen_gets_the_mean_curves_choice(oracle, words):
    table = score(words)
    mean = table.accuracy.mean(axis=0)
    for price in PRICES:
        best = max(range(5), key=lambda k: (mean[k] - price * table.modes[k], -k))
        assert oracle.more("never asked before", Tally(), price) == table.modes[best]


def test_problems_of_one_prompt_share_their_mean_curve():
    ballots = read_votes("facts")
    two = ballots.only([3, 8, 9])
    alike = replace(two, prompts=("the same?", "the same?", "another?"))
    policy = OraclePolicy().fit(alike)
    mean = score(two).accuracy[:2].mean(axis=0)
    for price in PRICES:
        best = max(range(5), key=lambda k: (mean[k] - price * (1, 2, 4, 8, 16)[k], -k))
        assert policy.more("the same?", Tally(), price) == (1, 2, 4, 8, 16)[best]


def test_replayed_on_its_own_samples_it_is_the_in_sample_end(oracle, words):
    walked = draw_paths(words, rng=np.random.default_rng(2), orders=200)
    table = score(words)
    for price in (0.005, 0.02):
        found = run_policy(oracle, walked, dial=price)
        cost, accuracy = averages(table, best_at(table, price))
        assert found.drawn.mean() == pytest.approx(cost)
        assert found.grade.mean() == pytest.approx(
            accuracy, abs=0.005
        )  # of 200 orders, ties to the first seen


def test_fitted_on_one_half_and_judged_on_the_other_it_is_the_lower_end(oracle, words):
    one, other = halves(words, np.random.default_rng(5))
    half = OraclePolicy().fit(one)
    chosen = [
        run_policy(half, draw_paths(part, rng=np.random.default_rng(6), orders=60), dial=0.01)
        for part in (one, other)
    ]
    same, judged = (found.grade.mean() - 0.01 * found.drawn.mean() for found in chosen)
    assert judged < same


def test_budgets_beyond_the_longest_are_left_out(words):
    policy = OraclePolicy(longest=5).fit(words.only(range(30)))
    assert max(budgets(policy, words.prompts[:30], 0.0)) <= 4
    assert policy.slopes_.shape == (30, 2)


def test_weighed_votes_are_scored_as_weighed(words):
    some = words.only(range(25))
    weigh = fit_vote_weights(some, "logprob")
    policy = OraclePolicy(budgets=(1, 4), weigh=weigh).fit(some)
    table = score(some, (1, 4), aggregate="weighted", by=weigh)
    assert budgets(policy, some.prompts, 0.03) == np.array([1, 4])[best_at(table, 0.03)].tolist()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda a: {"keys": a["keys"]}, "arrays"),
        (lambda a: a | {"extra": a["mean"]}, "arrays"),
        (lambda a: a | {"keys": a["keys"][::-1]}, "'keys'"),
        (lambda a: a | {"keys": a["keys"].astype(np.int64)}, "'keys'"),
        (lambda a: a | {"keys": a["keys"][:0], "slopes": a["slopes"][:0]}, "'keys'"),
        (lambda a: a | {"slopes": a["slopes"][:, :3]}, "'slopes' is float64 of shape"),
        (lambda a: a | {"slopes": a["slopes"] * np.nan}, "'slopes'"),
        (lambda a: a | {"slopes": -a["slopes"]}, "'slopes'"),
        (lambda a: a | {"slopes": a["slopes"].astype(np.float32)}, "'slopes' is float32"),
        (lambda a: a | {"mean": a["mean"][::-1]}, "'mean'"),
    ],
)
def test_stored_arrays_that_cannot_be_are_refused_by_name(oracle, change, named):
    with pytest.raises(PolicyInvalid, match=named):
        OraclePolicy.restore(oracle.settings(), change(dict(oracle.arrays())))


def test_without_grades_there_is_no_oracle(words):
    blind = replace(words, correct=np.full_like(words.correct, np.nan), gold_known=~words.gold_known)
    with pytest.raises(NotRecorded):
        OraclePolicy().fit(blind)
