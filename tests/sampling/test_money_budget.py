"""Batches with a budget in tokens or money: never exceeded, used up as far as calls can be sure to fit."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import ASKING, Recording, ask, facts, made

from adacompute.errors import BudgetInvalid, BudgetOutOfRange, CollectError
from adacompute.policies import StoppingPolicy
from adacompute.records import Budget, TokenPrices
from tiers import leave_to_nightly
from upstream import Reply, Status, Upstream

PRICES = TokenPrices(input=100.0, output=400.0, currency="EUR")
PROMPT = 20  # tokens that the upstream counts for each prompt
MOST = 64  # max_tokens of ASKING


class LongTailed(Recording):
    """As recorded, with responses whose lengths have a long tail, up to what was asked for."""

    def __call__(self, number: int, body: dict[str, Any]) -> Reply | Status:
        reply = super().__call__(number, body)
        rng = random.Random(number)
        if isinstance(reply, Reply):
            lengths = [min(MOST, 1 + int(8 * math.exp(rng.gauss(0, 1)))) for _ in range(body.get("n", 1))]
            reply.body["usage"] = {"prompt_tokens": PROMPT, "completion_tokens": sum(lengths)}
        return reply


def spent(done: Any) -> tuple[int, int]:
    return done.account.prompt_tokens, done.account.completion_tokens


@pytest.mark.slow
@pytest.mark.parametrize("budget", leave_to_nightly(["45 tokens", "90 tokens", Budget(200, "tokens")]))
@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_budget_in_tokens_is_never_exceeded_and_used_but_for_one_sample(
    tmp_path: Path, budget: str | Budget, concurrency: int
):
    recorded = facts(60)
    with Upstream(LongTailed(recorded, logprobs=False)) as up:
        done = ask(
            recorded,
            tmp_path / "p.sqlite",
            policy=StoppingPolicy(),
            budget=budget,
            up=up,
            concurrency=concurrency,
        )
    limit = Budget.parse(budget).amount * 60
    assert (done.unit, done.limit, done.stopped) == ("tokens", limit, None)
    assert done.used == sum(spent(done)) <= limit
    assert limit - done.used <= MOST + 3 * PROMPT, "what is left is less than the most that a sample can take"
    assert all(one.samples for one in done.each)
    assert len({one.samples for one in done.each}) > 1, "hard requests get more"
    assert not done.failures


def test_a_budget_in_money_counts_prompts_and_responses_at_their_prices(tmp_path: Path):
    recorded, path = facts(40), tmp_path / "p.sqlite"
    with Upstream(LongTailed(recorded, logprobs=False)) as up:
        done = ask(recorded, path, policy=StoppingPolicy(), budget="20 EUR per 1000", up=up, prices=PRICES)
        again = ask(recorded, path, policy=StoppingPolicy(), budget="20 EUR per 1000", up=up, prices=PRICES)
        more = ask(recorded, path, policy=StoppingPolicy(), budget="30 EUR per 1000", up=up, prices=PRICES)
    assert done.used == pytest.approx(PRICES.cost(*spent(done)))
    assert 0.9 * 0.8 < done.used <= 0.8
    assert done.used == pytest.approx(done.cost)
    assert again.added == 0, "the budget stays what it is"
    assert again.used == pytest.approx(done.used)
    assert more.added > 0
    assert done.used < more.used <= 1.2


def test_a_budget_for_less_than_one_sample_each_leaves_requests_out_and_says_so(tmp_path: Path):
    recorded = made([["4"]] * 20)
    with Upstream(Recording(recorded)) as up:  # 30 tokens for each sample
        done = ask(recorded, tmp_path / "p.sqlite", policy=StoppingPolicy(), budget="20 tokens", up=up)
    assert done.used <= 400
    assert done.stopped is None
    with_samples = [one.samples for one in done.each]
    assert max(with_samples) == 1
    assert 5 <= sum(with_samples) <= 13
    left_out = [one.error or "" for one in done.each if not one.samples]
    assert len(left_out) >= 7
    assert all("raise the budget" in error for error in left_out)


def test_what_cannot_be_counted_is_said_before_anything_is_sent(tmp_path: Path):
    recorded, path = made([["4"]] * 3), tmp_path / "p.sqlite"
    with Upstream(Recording(recorded)) as up:
        for budget, error, words, how in (
            ("2 USD per 1000", BudgetInvalid, "needs prices, and input_price and output_price are 0", {}),
            ("2 USD per 1000", BudgetInvalid, "is not in EUR", {"prices": PRICES}),
            ("20 tokens", BudgetOutOfRange, "one sample can cost .* with max_tokens 64; raise it", {}),
            ("90 tokens", CollectError, "max cost 1 is money", {"prices": PRICES, "max_cost": 1.0}),
        ):
            with pytest.raises(error, match=words):
                ask(recorded, path, policy=StoppingPolicy(), budget=budget, up=up, **how)
        assert up.count.requests == 0
    assert ASKING.most_tokens == MOST


def test_max_cost_below_the_budget_still_stops_it(tmp_path: Path):
    recorded = facts(20)
    with Upstream(LongTailed(recorded, logprobs=False)) as up:
        how = {"budget": "40 EUR per 1000", "up": up, "prices": PRICES, "max_cost": 0.3}
        done = ask(recorded, tmp_path / "p.sqlite", policy=StoppingPolicy(), **how)
    assert done.stopped == "max-cost"
    assert done.used <= 0.3


@pytest.mark.slow
def test_the_command_takes_and_shows_a_budget_with_its_unit(adacompute: Callable, tmp_path: Path):
    recorded = facts(30)
    rows = [{"id": one.problem.id, "question": one.problem.question} for one in recorded]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Upstream(LongTailed(recorded, logprobs=False)) as up:
        words = ("answer", "in.jsonl", "--endpoint", up.url, "--template", "plain", "--max-tokens", "64")
        done = adacompute(*words, "-o", "a.jsonl", "--budget", "100 tokens")
        told = json.loads(
            adacompute(*words, "-o", "b.jsonl", "--budget", "100", "--unit", "tokens", "--json").stdout
        )
        prices = ("--input-price", "100", "--output-price", "400", "--currency", "EUR")
        money = adacompute(*words, "-o", "c.jsonl", "--budget", "30 EUR per 1000", *prices)
        half = ("--budget", "30 USD per 1000", "--input-price", "100")
        free = adacompute(*words, "-o", "e.jsonl", *half)
        wrong = adacompute(*words, "-o", "d.jsonl", "--budget", "3", "--unit", "money", *prices, code=1)
        dry = adacompute(*words, "-o", "d.jsonl", "--budget", "100 tokens", "--dry-run")
        part = adacompute(
            *words, "-o", "a.jsonl", "--overwrite", "--budget", "100 tokens", "--dry-run", "--json"
        )
    assert "tokens per request on average, of a budget of 100 tokens per request" in done.stdout
    assert (told["unit"], told["budget"]) == ("tokens", 100.0)
    assert told["used"] <= 3000
    assert "EUR per 1,000 requests on average, of a budget of 30 EUR per 1,000 requests" in money.stdout
    assert "output_price is 0: responses count as free" in " ".join(free.stderr.split())
    assert "count as free" not in money.stderr
    assert "write '3 samples', '3 EUR per 1000' or '3 EUR per request' to say which" in wrong.stderr
    assert "at most 3,000 tokens for 30 requests, at a budget of 100 tokens per request" in dry.stdout
    assert "0 tokens of it already" in dry.stdout
    assert json.loads(part.stdout)["limit"] == 3000
    assert 2500 < json.loads(part.stdout)["used"] <= 3000


class TooLong(Recording):
    """Every response has 500 tokens, whatever max_tokens is."""

    def __call__(self, number: int, body: dict[str, Any]) -> Reply | Status:
        reply = super().__call__(number, body)
        if isinstance(reply, Reply):
            reply.body["usage"] = {"prompt_tokens": PROMPT, "completion_tokens": 500 * body.get("n", 1)}
        return reply


def write_requests(path: Path, recorded: Any) -> None:
    rows = [{"id": one.problem.id, "question": one.problem.question} for one in recorded]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_upstream_that_ignores_max_tokens_exceeds_the_budget_by_few_calls_and_is_named(
    adacompute: Callable, tmp_path: Path
):
    recorded = facts(40)
    write_requests(tmp_path / "in.jsonl", recorded)
    with Upstream(TooLong(recorded, logprobs=False)) as up:
        words = ("answer", "in.jsonl", "--endpoint", up.url, "--template", "plain", "--max-tokens", "64")
        many = adacompute(*words, "-o", "a.jsonl", "--budget", "200 tokens", "--json")
        few = adacompute(*words, "-o", "b.jsonl", "--budget", "10 tokens")
    totals = json.loads(many.stdout)
    assert (totals["limit"], totals["exceeded"]) == (8000, False)
    assert totals["used"] <= 8000
    assert totals["left_out"] > 0
    text = " ".join(few.stdout.split())
    assert "ignored max_tokens 64, and gave 500 tokens for a response" in text
    assert "earlier runs" not in text
    assert "requests got no sample: the budget was spent on others; raise --budget" in text


@pytest.mark.slow
@pytest.mark.parametrize("unit", leave_to_nightly(["tokens", "money"]))
def test_a_second_batch_in_the_same_pool_has_its_own_budget(tmp_path: Path, unit: str):
    recorded, path = facts(60), tmp_path / "p.sqlite"
    how: dict[str, Any] = {"policy": StoppingPolicy(), "prices": PRICES}
    how["budget"] = "90 tokens" if unit == "tokens" else "20 EUR per 1000"
    limit = 30 * Budget.parse(how["budget"], currency="EUR").amount
    with Upstream(LongTailed(recorded, logprobs=False)) as up:
        first = ask(recorded[:30], path, up=up, **how)
        second = ask(recorded[30:], path, up=up, **how)
        again = ask(recorded[30:], path, up=up, **how)
    assert 0.8 * limit < first.used <= limit
    assert 0.8 * limit < second.used <= limit, "not what the first batch has left"
    assert all(one.samples for one in second.each)
    assert again.added <= second.added / 4, "what it used is known but for the share of prompts"
    assert again.used == pytest.approx(second.used, rel=0.25)
