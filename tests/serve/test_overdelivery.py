"""An upstream that gives more than was asked for passes a cap by the calls under way, and by no more."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from behaviours import Reply, Status
from crowd import Visit, crowd, settled
from hypothesis import given
from hypothesis import strategies as st
from running import Answer, Running

from adacompute.client import Client, Endpoint, RateLimits
from adacompute.client.retry import SendPermission
from adacompute.errors import CapReached, EndpointFailed, SendingStopped
from adacompute.serve.spending.ledger import Caps, Reservation, Spend
from adacompute.serve.spending.local_ledger import Ledger
from upstream import Upstream

ONE = {"x-adacompute-policy": "single"}
AT_ONCE = 20  # calls that the limiter lets out
SURPLUS = 5


def refusals(answers: list[Answer | None]) -> list[Answer]:
    refused = [answer for answer in answers if answer is not None and answer.status != 200]
    for answer in refused:
        assert (answer.status, answer.error["code"]) == (429, "insufficient_quota"), answer.raw
        assert answer.headers["x-should-retry"] == "false"
        assert "cap is reached" in answer.error["message"]
    return refused


def test_surplus_choices_pass_a_cap_by_the_calls_under_way_only():
    cap, each = 100, 1 + SURPLUS

    def script(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(choices=(body.get("n") or 1) + SURPLUS, delay=0.5)

    with Upstream(script) as up, Running(up.url, cap=cap, concurrency=AT_ONCE) as gate:
        answers = crowd(gate, [Visit(headers=ONE)] * 200)
        account = settled(gate)
        calls = up.count.requests
    print(f"{calls} calls, {account.spent.samples} samples at a cap of {cap}")
    assert account.spent.samples == up.count.choices == each * calls
    assert account.total.samples <= cap + SURPLUS * AT_ONCE  # 600 before calls were checked when sent
    assert [a.status for a in answers if a is not None].count(200) == calls
    assert len(refusals(answers)) == 200 - calls


@pytest.mark.parametrize("stream", [False, True])
def test_replies_of_too_many_tokens_pass_a_cap_by_the_calls_under_way_only(stream: bool):
    cap, tokens = 5_000, 100_010

    def script(_number: int, _body: dict[str, Any]) -> Reply:
        usage = {"prompt_tokens": 10, "completion_tokens": tokens - 10, "total_tokens": tokens}
        return Reply(usage=usage, delay=0.3)

    with Upstream(script) as up, Running(up.url, cap=cap, unit="tokens", concurrency=8) as gate:
        body = {"max_tokens": 10, "stream": stream}
        answers = crowd(gate, [Visit(headers=ONE, body=body)] * 60)
        account = settled(gate)
        calls = up.count.requests
    assert account.spent.tokens == calls * tokens
    assert 1 <= calls <= 8  # those that were under way when the first reply came; 38 before
    assert len(refusals(answers)) == 60 - calls


def test_a_wave_that_is_drawn_in_parts_stops_when_its_own_first_parts_have_used_the_cap():
    def script(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(choices=1 + SURPLUS if body.get("n") in (None, 1) else 1, delay=0.05)

    with Upstream(script) as up, Running(up.url, cap=20, concurrency=2, vote="always") as gate:
        answer = gate.ask(n=16)
        account = settled(gate)
    assert answer.status == 200
    assert account.spent.samples == up.count.choices
    assert up.count.requests < 16
    assert account.spent.samples <= 20 + 3 * SURPLUS


def test_a_call_is_asked_for_once_and_what_is_refused_is_not_sent_and_makes_no_call():
    asked: list[int] = []

    async def may_send(choices: int) -> bool:
        asked.append(choices)
        return False

    async def scenario(url: str) -> None:
        async with Client(Endpoint(url=url), rng=random.Random(0)) as client:
            for ask in (client.call, _stream(client)):
                with pytest.raises(SendingStopped) as caught:
                    await ask({"model": "scripted", "messages": []}, may_send=may_send)
                assert (caught.value.paid, caught.value.calls) == (False, ())
            assert client.in_flight == 0
            assert (await client.call({"model": "scripted", "messages": []})).responses

    with Upstream() as up:
        asyncio.run(scenario(up.url))
    assert up.count.requests == 1
    assert asked == [1, 1]


def _stream(client: Client) -> Callable[..., Any]:
    async def ask(body: dict[str, Any], *, may_send: SendPermission) -> None:
        async with client.stream(body, may_send=may_send):
            pass

    return ask


def test_a_retry_is_asked_for_too_and_if_it_is_refused_what_failed_is_said():
    answers = [True, False]

    async def may_send(_choices: int) -> bool:
        return answers.pop(0)

    async def scenario(url: str) -> None:
        async with Client(Endpoint(url=url)) as client:
            with pytest.raises(EndpointFailed) as caught:
                await client.call({"messages": []}, may_send=may_send)
            assert [call.status for call in caught.value.calls] == [500]

    with Upstream(Status(code=500)) as up:
        asyncio.run(scenario(up.url))
    assert up.count.requests == 1
    assert not answers


def test_a_call_that_is_cancelled_while_it_is_asked_for_gives_its_turn_back():
    async def never(_choices: int) -> bool:
        await asyncio.Event().wait()
        return True

    async def scenario(url: str) -> None:
        limits = RateLimits(concurrency=1, adaptive=False)
        async with Client(Endpoint(url=url, limits=limits)) as client:
            waiting = asyncio.create_task(client.call({"messages": []}, may_send=never))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert (await client.call({"messages": []})).responses

    with Upstream() as up:
        asyncio.run(scenario(up.url))
    assert up.count.requests == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "send", "end", "hour"]), st.integers(0, 7), st.integers(0, 12)),
    max_size=60,
)


@given(steps=STEPS)
def test_at_each_send_what_is_spent_and_under_way_is_within_the_caps(steps: list[tuple[str, int, int]]):
    """Any order of reserving, sending, and replies of any size, with a list of calls as the model."""
    cap, own_cap, clock = 20, 14, [500_000 * 3600.0]

    async def scenario() -> None:
        ledger = await Ledger.open(
            None, Caps(total=cap, per_key=own_cap, window="hour"), now=lambda: clock[0]
        )
        held: list[tuple[Reservation, float]] = []  # and the hour that it counts in
        under_way: list[tuple[Reservation, float]] = []
        spent: list[tuple[str, float, int]] = []  # key, hour, samples
        for kind, number, amount in steps:
            key = "alice" if number % 2 else "bob"
            if kind == "hour":
                clock[0] += 3600
            elif kind == "reserve":
                try:
                    reservation = await ledger.reserve(key, Spend(samples=number))
                except CapReached:
                    continue
                held.append((reservation, clock[0]))
            elif kind == "send" and held:
                reservation, hour = held.pop(number % len(held))
                sums = [s for _, at, s in spent if at == hour]
                own = [s for k, at, s in spent if at == hour and k == reservation.key]
                running = [r.amount.samples for r, at in under_way if at == hour]
                mine = [r.amount.samples for r, at in under_way if at == hour and r.key == reservation.key]
                waiting = [r.amount.samples for r, at in held if at == hour]
                my_waiting = [r.amount.samples for r, at in held if at == hour and r.key == reservation.key]
                asked = reservation.amount.samples
                fits = sum(sums + running + waiting) + asked <= cap
                fits = fits and sum(own + mine + my_waiting) + asked <= own_cap
                refused = ledger.check_send(reservation)
                if refused is not None:
                    assert not fits
                    ledger.settle(reservation, Spend())
                    continue
                assert sum(sums + running) + asked <= cap  # the law
                assert sum(own + mine) + asked <= own_cap
                under_way.append((reservation, hour))
            elif kind == "end" and under_way:
                reservation, hour = under_way.pop(number % len(under_way))
                if (
                    amount > reservation.amount.samples and number % 3
                ):  # known before the rest of its wave ends
                    ledger.grow(reservation, Spend(samples=amount - reservation.amount.samples))
                ledger.settle(reservation, Spend(samples=amount))
                spent.append((reservation.key, hour, amount))
        now = [s for _, at, s in spent if at == clock[0]]
        assert ledger.account().spent.samples == sum(now)

    asyncio.run(scenario())
