"""Caps and accounts under crowds, faults, clients that go away, and kill -9."""

import random
import re
import threading
from typing import Any

import pytest
from behaviours import Behaviour, Break, Drop, Garbage, Honest, Reply, Stall, Status
from crowd import Visit, Watched, crowd, ledger_of, settled, until
from running import Process, Running

from upstream import Upstream

CHEAP, DEAR = 1e-6, 0.5  # prices: at the first it goes on while there is any doubt, at the second it stops
MILLION = 1e6
QUICK = {"attempts": 2, "first_byte_timeout": 0.4, "total_timeout": 0.8}


# c14: at the last unit of a cap

CAPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # settings, fields of the requests
    "the last sample": ({"cap": 1}, {}),
    "37 samples": ({"cap": 37}, {}),
    "1,000 tokens": ({"cap": 1000, "unit": "tokens"}, {"max_tokens": 12}),
    "a little money": ({"cap": 0.002, "unit": "money"}, {"max_tokens": 12}),
    "of each key": ({"key_cap": 5}, {}),
}


@pytest.mark.parametrize("name", CAPS)
def test_c14_200_clients_at_the_last_unit_of_a_cap_never_pass_it(name: str):
    settings, fields = CAPS[name]
    prices = {"input_price": 2.0, "output_price": 6.0}
    cap = settings.get("cap", 0) or settings["key_cap"]
    with (
        Upstream(Honest(latency=0.05)) as up,
        Running(up.url, price=CHEAP, endpoint=prices, **settings) as gate,
    ):
        kinds = [fields, {**fields, "stream": True}, {**fields, "stream": True, "temperature": 0}]
        with Watched(gate) as watched:
            answers = crowd(gate, [Visit(body=kinds[i % 3]) for i in range(200)])
        account = settled(gate)
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert 1 <= len(served) < 200
    for answer in refused:
        assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
        assert answer.headers["x-should-retry"] == "false"
        assert "cap " in answer.error["message"]
    unit = settings.get("unit", "samples")
    assert watched.looks > 10
    assert watched.most <= cap
    assert account.maybe.samples == 0
    paid = (up.count.prompt_tokens * 2.0 + up.count.completion_tokens * 6.0) / MILLION
    tokens = up.count.prompt_tokens + up.count.completion_tokens
    true = {"samples": up.count.choices, "tokens": tokens, "money": paid}[unit]
    assert account.spent.amount_in(unit) == pytest.approx(true, abs=1e-6)
    assert true <= cap
    if unit == "samples":
        assert true == cap  # and nothing of it is left over


# c02, c03: attempts that may have been paid for, within what is reserved

FAULTS: dict[str, Behaviour] = {
    "reset": Drop(reset=True),
    "broken off": Drop(after=150),
    "no JSON": Garbage(),
    "500": Status(code=500),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_c02_c03_at_the_last_unit_of_a_cap_what_may_be_paid_is_not_tried_again(name: str, stream: bool):
    body = {"stream": stream, "temperature": 0}
    script = [FAULTS[name], Reply(texts=["The answer is 42."])]
    with Upstream(script) as up, Running(up.url, cap=1) as gate:
        assert gate.ask(**body).status == (500 if name == "500" else 502)
        assert (up.count.requests, settled(gate).maybe.samples) == (1, 1)
        assert gate.ask(**body).status == 429
        assert up.count.requests == 1


def test_c02_c03_elsewhere_it_is_tried_again_and_each_attempt_is_counted():
    script = [Drop(reset=True), Garbage(), Reply(texts=["The answer is 42."])]
    with Upstream(script) as up, Running(up.url, price=DEAR, cap=3, endpoint={"attempts": 3}) as gate:
        answer = gate.ask()
        account = settled(gate)
    assert answer.status == 200
    assert up.count.requests == 3
    assert (account.spent.samples, account.maybe.samples) == (1, 2)


def test_c03_a_timeout_of_what_was_sent_is_counted_and_not_tried_again():
    with Upstream(Stall()) as up, Running(up.url, cap=9, endpoint={"first_byte_timeout": 0.2}) as gate:
        assert gate.ask(temperature=0).status == 504
        account = settled(gate)
    assert up.count.requests == 1
    assert (account.spent.samples, account.maybe.samples) == (0, 1)


# c15: every way out is settled

AMBIGUOUS: tuple[Behaviour, ...] = (
    Status(code=500),
    Status(code=503),
    Drop(reset=True),
    Drop(after=200),
    Garbage(),
    Garbage(whole=b"nonsense\r\n\r\n"),
    Stall(),
    Stall(before="body"),
    Break(after=2, how="reset"),
    Break(after=3, how="garbage"),
    Break(after=2, how="stall"),
)


def stormy(_number: int, body: dict[str, Any]) -> Behaviour:
    """Most are answered, some late; others fail in any way there is."""
    drawn = random.random()
    if drawn < 0.12:
        return random.choice(AMBIGUOUS)
    if drawn < 0.125:  # it slows all clients down
        return Status(code=429, retry_after=0.02)
    return Reply(delay=random.uniform(0.0, 0.05), gap=0.002, choices=min(2, body.get("n") or 1))


def storm(number: int, rng: random.Random) -> list[Visit]:
    """Clients of all kinds: plain, streams of both ways, several choices, hasty ones, and some that leave."""
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"stream": True},
        {"stream": True, "temperature": 0},
        {"n": 3},
        {"n": 2, "stream": True},
    )
    return [
        Visit(
            body=rng.choice(kinds),
            headers={"x-adacompute-deadline": "0.15"} if rng.random() < 0.1 else {},
            leaves=rng.uniform(0.001, 0.2) if rng.random() < 0.3 else None,
        )
        for _ in range(number)
    ]


@pytest.mark.slow
def test_c15_after_a_storm_the_ledger_holds_what_the_upstream_gave():
    rng = random.Random(15)
    with Upstream(stormy) as up, Running(up.url, price=0.02, cap=100_000, endpoint=QUICK) as gate:
        answers = crowd(gate, storm(300, rng), at_once=60)
        account = settled(gate)
        until(lambda: up.count.in_flight == 0)
        given, tokens = up.count.choices, up.count.prompt_tokens + up.count.completion_tokens
        text = gate.get("/metrics").raw
        up.script = Honest()
        until(lambda: gate.ask().status == 200)  # the breaker lets it be asked again
    statuses = {answer.status for answer in answers if answer is not None}
    assert {200} < statuses <= {200, 429, 500, 502, 503, 504}
    assert None in answers
    assert b"adacompute_in_flight 0.0" in text
    assert 0 < account.spent.samples <= given <= account.spent.samples + account.maybe.samples
    assert 0 < account.spent.tokens <= tokens <= account.spent.tokens + account.maybe.tokens


def test_c15_where_nobody_left_and_nothing_was_in_doubt_the_ledger_equals_the_upstreams_count():
    def script(number: int, body: dict[str, Any]) -> Behaviour:
        n = body.get("n") or 1
        if number % 60 == 0:
            return Status(code=429, retry_after=0.01)
        if number % 11 == 0:
            return Status(code=422, message="not this one")
        return Reply(choices={0: n + 1, 1: max(1, n - 1)}.get(number % 5, n), delay=0.002)

    kinds: tuple[dict[str, Any], ...] = ({}, {"stream": True}, {"stream": True, "temperature": 0}, {"n": 3})
    with Upstream(script) as up, Running(up.url, price=0.02, cap=100_000) as gate:
        answers = crowd(gate, [Visit(body=kinds[i % 4]) for i in range(120)], at_once=40)
        account = settled(gate)
    assert {answer.status for answer in answers} <= {200, 422}
    assert account.maybe.samples == 0
    assert account.spent.samples == up.count.choices
    assert account.spent.tokens == up.count.prompt_tokens + up.count.completion_tokens


def test_c15_choices_that_are_no_good_are_paid_for_all_the_same():
    good = {"index": 0, "message": {"role": "assistant", "content": "The answer is 42."}}
    body = {"choices": [good, {"index": 1, "message": None}], "usage": {"completion_tokens": 24}}
    with Upstream(Reply(body=body)) as up, Running(up.url, cap=100) as gate:
        told = gate.ask(n=2).json["adacompute"]
        account = settled(gate)
    assert told["samples"] == 2
    assert account.spent.samples == 2 * up.count.requests


def taken_of(gate: Process) -> dict[str, float]:
    """The ledger as /metrics tells it."""
    text = gate.get("/metrics").raw.decode()
    return {
        state: float(re.search(rf'adacompute_ledger{{state="{state}",unit="samples"}} (\S+)', text)[1])
        for state in ("spent", "maybe", "reserved")
    }


@pytest.mark.slow
def test_c15_after_kill_9_in_a_storm_nothing_that_was_paid_is_forgotten_and_the_cap_holds(tmp_path):
    cap, rng = 300, random.Random(9)
    with Upstream(Honest(latency=0.02, n="ignore")) as up:
        with Process(up.url, folder=tmp_path, price=0.02, cap=cap) as gate:
            storming = threading.Thread(target=crowd, args=(gate, storm(400, rng)), kwargs={"at_once": 50})
            storming.start()
            until(lambda: up.count.choices > 100)
            gate.kill()
            storming.join(60)
        until(lambda: up.count.in_flight == 0)
        with Process(up.url, folder=tmp_path, price=0.02, cap=cap) as gate:
            after = taken_of(gate)
            assert after["spent"] + after["maybe"] >= up.count.choices > 100
            assert after["reserved"] == 0
            assert after["maybe"] > 0
            until(lambda: "a process that died" in gate.log)
            answers = crowd(gate, [Visit() for _ in range(300)], at_once=50)
            assert {answer.status for answer in answers} == {200, 429}
            assert sum(taken_of(gate).values()) <= cap
    assert up.count.choices <= cap


def test_the_watch_sees_what_is_reserved():
    with Upstream(Honest(latency=0.2)) as up, Running(up.url, price=DEAR) as gate:
        with Watched(gate) as watched:
            crowd(gate, [Visit() for _ in range(20)])
        assert watched.most >= 20 == ledger_of(gate).spent.samples
