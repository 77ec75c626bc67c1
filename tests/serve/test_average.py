"""The average cost of requests through the whole gateway, for traffic whose difficulty shifts."""

import math
import random
from typing import Any

import pytest
from behaviours import Reply
from crowd import Visit, crowd
from running import Running

from upstream import Upstream

SHARES = (0.2, 0.8, 0.5, 0.3)  # of hard questions, one after the other
EACH = 250  # requests of each share


def script(number: int, body: dict[str, Any]) -> Reply:
    """Easy questions always have the same answer, hard ones any of five."""
    rng = random.Random(number)
    hard = "hard" in body["messages"][0]["content"]
    answers = [rng.randrange(5) if hard else 7 for _ in range(body.get("n") or 1)]
    return Reply(texts=[f"The answer is {answer}." for answer in answers], logprobs=False)


def asked(share: float, rng: random.Random) -> Visit:
    kind = "hard" if rng.random() < share else "easy"
    content = f"What is {rng.randrange(1000)} times {rng.randrange(1000)}? It is {kind}."
    return Visit(body={"messages": [{"role": "user", "content": content}]})


@pytest.mark.slow
def test_c18_the_average_meets_the_budget_while_traffic_shifts():
    budget, rng = 3.0, random.Random(18)
    with Upstream(script) as up, Running(up.url, budget=budget) as gate:
        prices, samples = [], []
        for share in SHARES:
            for answer in crowd(gate, [asked(share, rng) for _ in range(EACH)], at_once=12):
                assert answer.status == 200, answer.raw
                prices.append(answer.json["adacompute"]["price"])
                samples.append(answer.json["adacompute"]["samples"])
        text = gate.get("/metrics").raw.decode()
        low, high = gate.gateway.policy_registry.get("stopping").find_start(budget)[1:]
    average = sum(samples) / len(samples)
    print(f"average {average:.3f} of {budget}, price {min(prices):.4g} to {max(prices):.4g}")
    assert sum(samples) == up.count.choices
    assert abs(average - budget) / budget < 0.04
    assert all(math.isfinite(price) and low <= price <= high for price in prices)
    assert len(set(prices)) > 10  # it moved
    assert f"adacompute_overall_average_samples {average}" in text
    assert 'adacompute_target_samples{budget="3",policy="stopping"} 3.0' in text


def test_c18_clients_that_name_many_budgets_do_not_make_the_operators_forgotten():
    with Upstream(script) as up, Running(up.url, budget=2.0, max_budget=100.0) as gate:
        assert gate.ask().status == 200
        others = [Visit(headers={"x-adacompute-budget": f"{3 + i / 4}"}) for i in range(100)]
        assert {answer.status for answer in crowd(gate, others, at_once=8)} == {200}
        lanes = gate.gateway.pacers.state()
        assert gate.ask().status == 200
        assert len(lanes) == 65
        assert lanes['["stopping", 2.0]']["requests"] == 1
        assert gate.gateway.pacers.state()['["stopping", 2.0]']["requests"] == 2
