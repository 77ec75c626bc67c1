"""Calibration for a budget in tokens or money: by the recorded tokens of each request, not by a mean."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adacompute as ac
from adacompute.errors import BudgetInvalid, BudgetOutOfRange, NotRecorded
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.paths import draw_paths
from adacompute.replay.per_problem import run_policy

PRICES = ac.TokenPrices(input=0.5, output=1.5, currency="EUR")


@pytest.fixture(scope="module")
def facts():
    return ac.bundled("facts").ballots()


def measure(policy: ac.StoppingPolicy, ballots, price: float) -> tuple[float, float, float]:
    """Mean samples, output tokens and estimated prompt tokens of requests at a price, on other orders."""
    policy = policy.settle(ballots)
    paths = draw_paths(
        ballots, rng=np.random.default_rng(9), orders=50, longest=policy.longest, weigh=policy.weigh
    )
    run = run_policy(policy, paths, dial=price)
    prompts = np.array([len(prompt) / 4 for prompt in ballots.prompts])[paths.problems]
    return float(run.drawn.mean()), float(run.tokens.mean()), float((prompts * run.drawn).mean())


@pytest.mark.parametrize("budget", ["60 tokens", "120 tokens", ac.Budget(90, "tokens")])
def test_a_budget_in_tokens_counts_prompts_and_responses(facts, budget):
    policy = ac.StoppingPolicy()
    price = ac.calibrate(policy, facts, budget)
    _, output, prompts = measure(policy, facts, price)
    assert output + prompts == pytest.approx(ac.Budget.parse(budget).amount, rel=0.02)


def test_a_budget_in_money_counts_both_at_their_prices(facts):
    policy = ac.StoppingPolicy()
    price = ac.calibrate(policy, facts, "0.08 EUR per 1000", prices=PRICES)
    _, output, prompts = measure(policy, facts, price)
    assert 1000 * PRICES.cost(prompts, output) == pytest.approx(0.08, rel=0.02)
    once = ac.TokenPrices(input=0.5, output=1.5, currency="EUR", prompts="once", prompt_tokens=10)
    assert ac.calibrate(policy, facts, "0.08 EUR per 1000", prices=once) < price, "more is left for samples"


def test_hard_problems_with_longer_responses_make_a_budget_in_tokens_buy_fewer_samples(facts):
    hard = np.array([len(set(row[row >= 0].tolist())) for row in facts.classes]) > 4
    tokens = np.where(hard[:, None], 400.0, 20.0) * np.ones_like(facts.tokens)
    tokens[np.isnan(facts.tokens)] = np.nan
    uneven = replace(facts, tokens=tokens)
    policy = ac.StoppingPolicy(weigh=None)  # with weights, such lengths would tell it which problems are hard
    prompts = np.array([len(prompt) / 4 for prompt in facts.prompts])
    each = float((np.where(hard, 400.0, 20.0) + prompts).mean())
    price = ac.calibrate(policy, uneven, f"{2 * each:.1f} tokens")
    samples, _, _ = measure(policy, uneven, price)
    assert samples < 1.98, "two samples on average would cost more than twice what one does"
    assert price >= ac.calibrate(policy, uneven, 2.0)


def test_a_number_stays_samples_and_a_text_may_say_so(facts):
    policy = ac.StoppingPolicy()
    assert ac.calibrate(policy, facts, 2.0) == ac.calibrate(policy, facts, "2 samples")


def test_what_cannot_be_counted_is_refused(facts):
    policy = ac.StoppingPolicy()
    with pytest.raises(BudgetInvalid, match="needs prices in USD; give input_price and output_price"):
        ac.calibrate(policy, facts, "2 USD per 1000")
    with pytest.raises(BudgetInvalid, match="is not in EUR"):
        ac.calibrate(policy, facts, "2 USD per 1000", prices=PRICES)
    with pytest.raises(BudgetInvalid, match="fixed is fitted for a number of samples"):
        ac.calibrate(FixedPolicy(2), facts, "90 tokens")
    with pytest.raises(NotRecorded, match="without a number of tokens"):
        ac.calibrate(policy, replace(facts, tokens=np.full_like(facts.tokens, np.nan)), "90 tokens")
    with pytest.raises(BudgetOutOfRange, match="tokens a request; give a budget within that"):
        ac.calibrate(policy, facts, "5 tokens")


def test_fit_lists_the_dial_for_a_budget_in_money(adacompute: Callable, tmp_path: Path):
    prices = ("--input-price", "0.5", "--output-price", "1.5", "--currency", "EUR")
    words = ("fit", "facts", "-o", "policy", "--budget", "0.08 EUR per 1000", *prices, "--no-verdict")
    done = json.loads(adacompute(*words, "--json").stdout)
    known = done["calibrated"]
    assert (known["budget"], known["unit"]) == (pytest.approx(0.00008), "money")
    assert known["samples"] in [row["budget"] for row in done["settings"]]
    shown = adacompute(*words, "--overwrite").stdout
    assert f"0.08 EUR per 1,000 requests is a price of {known['dial']:.5g}" in " ".join(shown.split())
    refused = adacompute("fit", "facts", "-o", "other", "--budget", "0.08 USD per 1000", code=1)
    assert "give input_price and output_price" in refused.stderr
    refused = adacompute("fit", "facts", "-o", "c", "--policy", "classifier", "--budget", "90 tokens", code=1)
    assert "the classifier is fitted for a number of samples" in refused.stderr
