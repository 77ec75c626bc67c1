"""Usage that is missing, impossible or less than what came is settled at the reservation, never below."""

import json
import math
from typing import Any

import pytest
from behaviours import Garbage, Reply
from crowd import settled
from running import Running

from adacompute.records import Call
from adacompute.serve.spending.ledger import Rates
from upstream import Upstream

ONE = {"x-adacompute-policy": "single"}
MAX_TOKENS = 500
TEXT = "The answer is 42, because six times seven is forty-two. " * 20  # 1,120 characters
UNUSABLE: dict[str, Any] = {
    "negative": {"prompt_tokens": -3, "completion_tokens": -480, "total_tokens": -483},
    "strings": {"prompt_tokens": "30", "completion_tokens": "480", "total_tokens": "510"},
    "not a number": {"prompt_tokens": math.nan, "completion_tokens": math.nan},
    "infinite": {"prompt_tokens": 30, "completion_tokens": math.inf},
    "true": {"prompt_tokens": True, "completion_tokens": True},
    "null": {"prompt_tokens": None, "completion_tokens": None},
    "missing": None,
    "empty": {},
    "no completion": {"prompt_tokens": 30},
    "no prompt": {"completion_tokens": 480},
    "a list": [],
    "nothing for a text": {"prompt_tokens": 30, "completion_tokens": 0},
    "too few for the text": {"prompt_tokens": 30, "completion_tokens": 7},
    "no tokens of a prompt": {"prompt_tokens": 0, "completion_tokens": 480},
    "absurdly many": {"prompt_tokens": 30, "completion_tokens": 10**12},
    "beyond 64 bits": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
}


def reply(usage: Any) -> Garbage:
    """A reply with that usage, word for word: NaN and huge numbers are JSON for many servers."""
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    return Garbage(raw=json.dumps({"choices": [choice], "usage": usage}).encode())


@pytest.mark.parametrize(
    ("name", "stream"),
    [*((name, False) for name in UNUSABLE), *((name, True) for name in UNUSABLE if name != "beyond 64 bits")],
)
def test_unusable_usage_counts_as_much_as_was_reserved(name: str, stream: bool):
    usage = UNUSABLE[name]
    how = Reply(texts=[TEXT], usage=usage, logprobs=False) if stream else reply(usage)
    with Upstream(how) as up, Running(up.url, cap=100_000, unit="tokens") as gate:
        answer = gate.ask(headers=ONE, max_tokens=MAX_TOKENS, stream=stream)
        account = settled(gate)
    assert answer.status == 200
    assert account.spent.samples == 1
    assert account.maybe.samples == 0
    assert MAX_TOKENS < account.total.tokens < MAX_TOKENS + 100  # what was reserved: the prompt is short
    if not stream:
        shown = answer.json["usage"]  # what clients see is an estimate
        assert 1 <= shown["prompt_tokens"] <= 30
        assert 100 <= shown["completion_tokens"] <= MAX_TOKENS
        assert shown["total_tokens"] == shown["prompt_tokens"] + shown["completion_tokens"]


@pytest.mark.parametrize(("prompt", "completion"), [(12, 250), (12, 35), (1, 500), (900, 90_000)])
def test_usage_that_may_be_right_is_counted_as_it_is_even_beyond_the_reservation(
    prompt: int, completion: int
):
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    with Upstream(reply(usage)) as up, Running(up.url, cap=100_000, unit="tokens") as gate:
        assert gate.ask(headers=ONE, max_tokens=MAX_TOKENS).status == 200
        account = settled(gate)
    assert (account.spent.tokens, account.maybe.tokens) == (prompt + completion, 0)


def test_a_cap_in_money_is_reached_by_what_may_have_been_charged():
    prices = {"input_price": 1.0, "output_price": 2.0}  # a reservation of about 0.001
    with (
        Upstream(reply(UNUSABLE["negative"])) as up,
        Running(up.url, cap=0.0025, unit="money", endpoint=prices) as gate,
    ):
        statuses = [gate.ask(headers=ONE, max_tokens=MAX_TOKENS).status for _ in range(4)]
        account = settled(gate)
    assert statuses == [200, 200, 429, 429]
    assert 0.002 <= account.total.amount_in("money") <= 0.0025


def test_surplus_choices_without_usage_count_at_the_most_each():
    call = Call(
        at=0.0, seconds=1.0, asked=2, got=2, surplus=3, prompt_tokens=9, completion_tokens=40, unmetered=True
    )
    rates = Rates(input=1.0, output=2.0)
    maybe = rates.compute_maybe([call], prompt_tokens=30, max_tokens=100)
    total = rates.compute_spent([call]) + maybe
    assert (maybe.samples, total.samples, total.tokens) == (0, 5, 30 + 5 * 100)
    assert total.nanos == 30 * 1000 + 500 * 2000
