"""Metrics: complete, bounded in their labels, and without a word of what clients say."""

import math
import random
import string
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from traffic import Clock, Policy, chart, told

from adacompute.config import ServeConfig
from adacompute.errors import EndpointError
from adacompute.records import Call
from adacompute.serve.watching.observability import CALL_KINDS, UNVOTED_REASONS, Observability, SpendStatus


def families(seen: Observability):
    found = {one.name: one for one in text_string_to_metric_families(seen.render_metrics().decode())}
    return {
        name.removeprefix("adacompute_"): one for name, one in found.items() if not name.endswith("_created")
    }


def value(seen: Observability, name: str, **labels: str) -> float:
    wanted = f"adacompute_{name}"
    for family in families(seen).values():
        for sample in family.samples:
            if sample.name == wanted and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"{name} {labels} isn't there")


def seen_of(**settings: object) -> Observability:
    return Observability(ServeConfig(**settings), now=Clock())


def ended(seen: Observability, **fields: object) -> None:
    seen.on_request_start()
    seen.on_request_end(told(1.0, **fields))


def test_c27_labels_are_bounded_and_hold_nothing_that_a_client_sent():
    rng = random.Random(1)
    canary = "sk-canary-prompt-7f3a"
    seen = seen_of()
    for i in range(800):
        word = "".join(rng.choices(string.printable, k=8)) + canary
        ended(
            seen,
            model=word,
            key=word,
            prompt=word,
            answer=word,
            votes={word: 1},
            notes=(word,),
            error=word,
            status=rng.choice([200, 400, 777, 599, -3]),
            budget=1 + i / 100,
        )
        seen.on_refusal(400, word)
        seen.on_call(Call(at=1.0, seconds=0.1, asked=1, got=1, kind=word))
        seen.on_price("stopping", 1 + i / 100, 0.1, 2.0)
    text = seen.render_metrics()
    assert canary.encode() not in text
    assert canary not in str(
        [seen.dashboard_data()[part] for part in ("refused", "upstream", "dials", "unvoted")]
    )
    assert max(len(family.samples) for family in families(seen).values()) <= 64 * 14
    assert len(text.splitlines()) < 2000
    size = len(seen.render_metrics())
    for i in range(800):
        ended(seen, policy=f"p{i}", budget=1 + i / 7)
        seen.on_price(f"p{i}", 1 + i / 7, 0.1, 2.0)
    grown = len(seen.render_metrics())
    for i in range(800, 1600):
        ended(seen, policy=f"p{i}", budget=1 + i / 7)
    assert size < grown
    assert len(seen.render_metrics()) < grown * 1.1


def test_c27_every_kind_of_upstream_error_is_counted_by_its_name_and_others_as_other():
    seen = seen_of()
    kinds = {"ok", "cancelled", *(kind.kind for kind in EndpointError.__subclasses__())}
    assert kinds == CALL_KINDS
    for kind in (*sorted(kinds), "strange", "stranger"):
        seen.on_call(Call(at=1.0, seconds=0.1, asked=1, got=0, kind=kind, paid="maybe"))
    for kind in kinds:
        assert value(seen, "upstream_calls_total", kind=kind) == 1
    assert value(seen, "upstream_calls_total", kind="other") == 2
    assert value(seen, "upstream_maybe_paid_total") == len(kinds) + 2
    assert value(seen, "upstream_cancelled_total") == 1


def test_requests_are_counted_by_policy_mode_and_status():
    seen = seen_of()
    ended(seen)
    ended(seen)
    ended(seen, mode="shadow", would=2, samples=1)
    ended(seen, status=502, error="timeout", samples=0, agreement=None, votes={})
    ended(seen, status=777)
    seen.on_refusal(401, "invalid_api_key")
    labels = {"policy": "stopping", "mode": "adaptive"}
    assert value(seen, "requests_total", status="200", **labels) == 2
    assert value(seen, "requests_total", policy="stopping", mode="shadow", status="200") == 1
    assert value(seen, "requests_total", status="502", **labels) == 1
    assert value(seen, "requests_total", status="other", **labels) == 1
    assert value(seen, "requests_total", status="401", policy="none") == 1
    assert value(seen, "refused_total", code="invalid_api_key") == 1
    assert value(seen, "samples_count", policy="stopping") == 4
    assert value(seen, "samples_bucket", policy="stopping", le="1.0") == 1


def test_spend_tokens_and_balances_are_what_they_are():
    seen = seen_of(unit="money")
    ended(seen)
    assert value(seen, "spent_total", unit="samples") == 2
    assert value(seen, "spent_total", unit="tokens") == 400
    assert value(seen, "spent_total", unit="money") == pytest.approx(0.00012)
    assert value(seen, "tokens_total", kind="cached") == 40
    assert "ledger_cap" not in families(seen) or not families(seen)["ledger_cap"].samples
    seen.read_spending = lambda: [SpendStatus(name="", spent=3.0, maybe=1.0, reserved=0.5, cap=10.0)]
    assert value(seen, "ledger", state="reserved", unit="money") == 0.5
    assert value(seen, "ledger_cap", unit="money") == 10.0
    seen.read_recorder = lambda: (7, 2)
    assert value(seen, "recorder_requests", result="dropped") == 2


def test_average_and_target_are_over_what_the_pacer_counts():
    seen = seen_of()
    ended(seen, samples=1)
    ended(seen, samples=4, budget=4.0)
    ended(seen, samples=10, budget=3.0, explored=True)  # drawn to learn from, and paid for all the same
    ended(seen, samples=1, mode="pass", agreement=None, votes={})
    ended(seen, samples=0, status=502, agreement=None, votes={})
    ended(seen, samples=5, n=5, agreement=None, votes={})
    assert value(seen, "overall_average_samples") == 5.0
    assert value(seen, "overall_target_samples") == 3.0


def test_averages_of_a_budget_in_money_are_of_money():
    seen = seen_of(budget="2 USD per 1000")
    for cost, votes in ((0.001, {"42": 2}), (0.009, {})):
        decided = {} if votes else {"agreement": None, "decided": False}
        ended(seen, unit="money", budget=0.002, cost=cost, votes=votes, **decided)
    assert value(seen, "overall_average_cost", unit="money") == pytest.approx(0.005)
    assert value(seen, "voted_average_cost", unit="money") == pytest.approx(0.001)
    for name in ("overall_average_samples", "overall_target_samples", "voted_average_samples"):
        assert math.isnan(value(seen, name))


def test_the_dial_of_each_budget_is_shown():
    seen = seen_of()
    seen.on_price("stopping", 2.0, 0.04, 2.01)
    seen.on_price("stopping", 3.141592, 0.02, 3.2)
    assert value(seen, "price", policy="stopping", budget="2") == 0.04
    assert value(seen, "average_samples", policy="stopping", budget="3.14") == 3.2
    assert value(seen, "target_samples", policy="stopping", budget="3.14") == 3.14


def test_only_the_version_in_service_is_shown():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "aaaa", None), budget=2.0)
    seen.on_policy(Policy("stopping", "bbbb", chart()), budget=2.0)
    assert [s.labels["version"] for s in families(seen)["policy_info"].samples] == ["bbbb"]


def test_why_there_was_no_vote_is_counted_in_classes_that_fit_what_the_gateway_says():
    seen = seen_of()
    reasons = {
        "temperature is 0: every sample would be the same": "temperature",
        "n is 3: the client samples by itself": "n",
        "tools: calls of tools aren't voted on": "tools",
        "the operator votes on nothing": "rule",
        "the first sample has no answer that the operator's extractor finds": "no-answer",
        "the prompt asks for a text, not for an answer": "text",
        "the first sample was cut off before it stated an answer": "cut-off",
        "something new": "other",
    }
    for words in reasons:
        ended(seen, samples=1, agreement=None, votes={}, notes=("clamped", f"no vote: {words}"))
    assert seen.dashboard_data()["unvoted"] == dict.fromkeys(reasons.values(), 1)
    assert {name for _, name in UNVOTED_REASONS} >= set(reasons.values()) - {"other"}


def test_several_live_side_by_side():
    one, other = seen_of(), seen_of()
    ended(one)
    assert value(one, "requests_total", status="200") == 1
    with pytest.raises(AssertionError):
        value(other, "requests_total", status="200")


def test_requests_under_way_are_those_that_began_and_did_not_end():
    seen = seen_of()
    seen.on_request_start()
    seen.on_request_start()
    seen.on_refusal(429, "insufficient_quota")
    assert value(seen, "in_flight") == 2
    seen.on_request_end(replace(told(1.0), status=499))
    assert value(seen, "in_flight") == 1
    assert value(seen, "clients_gone_total") == 1
