"""Policies at the same cost in tokens or money: by what each request cost, not by samples times a mean."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import adacompute as ac
from adacompute.errors import BudgetInvalid, BudgetOutOfRange, NotRecorded
from adacompute.evaluate import evaluate, match_cost
from adacompute.evaluate.protocols import run_policies
from shared import read_votes

QUICK = {"policies": ("fixed", "asc"), "folds": 2, "orders": 8, "votes": "plain"}


@pytest.fixture(scope="module")
def ballots():
    return read_votes("facts").only(np.arange(80))


def with_tokens(ballots, each: np.ndarray):
    return replace(ballots, tokens=np.where(np.isnan(ballots.tokens), np.nan, each[:, None]))


def test_with_equal_lengths_it_is_the_comparison_in_samples(ballots):
    even = with_tokens(ballots, np.full(len(ballots), 90.0))
    prices = ac.TokenPrices(prompt_tokens=10)
    told = evaluate(even, budgets=["200 tokens", "400 tokens"], prices=prices, **QUICK)
    runs = run_policies(even, policies=("fixed", "asc"), parts=2, orders=8, votes="plain", calibrates=False)
    assert (told.unit, told.budgets, told.least) == ("tokens", (200.0, 400.0), pytest.approx(100.0))
    for policy in ("fixed", "asc"):
        for samples, tokens in ((2.0, 200.0), (4.0, 400.0)):
            here, there = told.match(policy, tokens), match_cost(runs.get(policy).points, samples)
            assert (here.cost, here.accuracy) == pytest.approx((100 * there.cost, there.accuracy))


def test_where_hard_problems_are_long_a_policy_that_draws_there_gains_less_than_in_samples(ballots):
    answers = np.array([len(set(row[row >= 0].tolist())) for row in ballots.classes])
    uneven = with_tokens(ballots, np.where(answers > np.median(answers), 800.0, 10.0))
    even = with_tokens(ballots, np.full(len(ballots), 405.0))
    prices = ac.TokenPrices(prompt_tokens=0)
    gains = []
    for source in (uneven, even):
        least = evaluate(source, budgets=["9999 tokens"], prices=prices, **QUICK).least
        told = evaluate(source, budgets=[f"{2 * least:.1f} tokens"], prices=prices, **QUICK)
        gains.append(told.match("asc", told.budgets[0]).gain.mean)
    assert gains[0] < gains[1]


def test_what_cannot_be_compared_is_refused(ballots):
    with pytest.raises(NotRecorded, match="without a number of tokens"):
        evaluate(
            replace(ballots, tokens=np.full_like(ballots.tokens, np.nan)), budgets=["90 tokens"], **QUICK
        )
    with pytest.raises(BudgetInvalid, match="needs prices in USD"):
        evaluate(ballots, budgets=["2 USD per 1000"], **QUICK)
    with pytest.raises(BudgetInvalid, match="give one unit"):
        evaluate(ballots, budgets=["90 tokens", "2 samples"], **QUICK)
    with pytest.raises(BudgetOutOfRange, match="below what one sample costs on average"):
        evaluate(ballots, budgets=["1 tokens"], **QUICK)


@pytest.mark.nightly
def test_the_command_takes_a_list_in_one_unit(adacompute: Callable):
    words = (
        "evaluate",
        "facts",
        "--policies",
        "fixed,asc",
        "--folds",
        "2",
        "--orders",
        "5",
        "--votes",
        "plain",
    )
    prices = ("--input-price", "0.5", "--output-price", "1.5")
    done = adacompute(*words, "--budgets", "0.05,0.1 USD per 1000", *prices)
    shown = done.stdout
    assert "each sample is taken to pay for its prompt" in " ".join(done.stderr.split())
    assert "accuracy at exactly so much on average: USD per 1,000 requests" in shown
    assert "gain over fixed at the same cost" in shown
    told = json.loads(adacompute(*words, "--budgets", "80,160", "--unit", "tokens", "--json").stdout)
    assert (told["unit"], told["budgets"]) == ("tokens", [80.0, 160.0])
    wrong = adacompute(*words, "--budgets", "2,3", "--unit", "tokens", code=2)
    assert "write '2 samples' or '2 tokens' to say which" in " ".join(wrong.stderr.split())
    wrong = adacompute(*words, "--unit", "tokens", code=2)
    assert "there is no default in tokens" in " ".join(wrong.stderr.split())
