"""Time: what hangs is ended, deadlines hold, cancelling is prompt, no blind retries (c03, c04)."""

import asyncio
import math
import socket
import threading
import time

import pytest
from client_runs import BODY, endpoint, run_client, run_draw

from adacompute.client import Client, DrawSuccess, RateLimits, Retries, Timeouts
from adacompute.client.rate_limit import AttemptTimer
from adacompute.errors import EndpointTimeout, EndpointUnreachable
from upstream import Honest, Reply, Stall, Status

SLACK = 4.0  # seconds of a busy machine; what would come without the law takes longer
SHORT = Timeouts(connect=0.4, first_byte=0.4, total=0.6)


def kinds(done) -> list[tuple[str, str]]:
    return [(call.kind, call.paid) for call in done.heard]


@pytest.mark.parametrize("before", ["headers", "dribble", "body"])
def test_c03_no_blind_retry_after_a_timeout_of_what_was_sent(before):
    done = run_draw(Stall(before=before), 1, timeouts=SHORT)
    assert isinstance(done.error, EndpointTimeout)
    assert done.error.paid
    assert done.up.count.requests == 1
    assert kinds(done) == [("timeout", "maybe")]


def test_c03_after_a_timeout_it_is_asked_again_where_that_is_wanted():
    retries = Retries(first=0.01, after_timeout=True)
    done = run_draw([Stall(), Stall(before="body"), Reply()], 1, timeouts=SHORT, retries=retries)
    assert kinds(done) == [("timeout", "maybe"), ("timeout", "maybe"), ("ok", "yes")]


@pytest.mark.parametrize("before", ["headers", "dribble", "body"])
@pytest.mark.parametrize("bound", ["timeouts", "retries", "caller"])
def test_c04_hanging_servers_are_ended_within_the_time_they_have(before, bound):
    settings = {
        "timeouts": {"timeouts": Timeouts(connect=0.4, first_byte=0.4, total=1.2)},
        "retries": {"retries": Retries(deadline=0.5)},
        "caller": {"deadline": 0.5},
    }[bound]
    done = run_draw(Stall(before=before), 1, **settings)
    allowed = 1.2 if bound == "timeouts" and before == "body" else 0.4 if bound == "timeouts" else 0.5
    assert allowed * 0.99 <= done.seconds <= allowed * 1.1 + SLACK
    assert isinstance(done.error, EndpointTimeout)
    assert done.error.paid
    assert done.up.count.requests == 1


def test_c04_a_connection_that_does_not_come_about_is_ended_in_time_retried_and_unpaid():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as second:  # the backlog is full
            second.setblocking(False)
            second.connect_ex(address)
            heard = []

            async def run() -> float:
                retries = Retries(attempts=2, first=0.01, deadline=5.0)
                upstream = endpoint(
                    f"http://127.0.0.1:{address[1]}/v1", timeouts=Timeouts(connect=0.3), retries=retries
                )
                async with Client(upstream, on_call=heard.append) as client:
                    began = asyncio.get_running_loop().time()
                    with pytest.raises(EndpointTimeout, match="to connect") as caught:
                        await client.call(BODY)
                    assert not caught.value.paid
                    return asyncio.get_running_loop().time() - began

            seconds = asyncio.run(run())
    assert 0.6 <= seconds <= 0.6 * 1.1 + SLACK
    assert [(call.kind, call.paid) for call in heard] == [("timeout", "no")] * 2


def test_c04_the_time_to_the_first_byte_runs_also_where_connecting_took_longer_than_that():
    async def run() -> float:
        loop = asyncio.get_running_loop()
        timeouts = Timeouts(connect=5.0, first_byte=0.2, total=30.0)
        target = endpoint("http://127.0.0.1:9/v1", timeouts=timeouts)
        attempt = AttemptTimer(target, math.inf)
        began = loop.time()

        async def slow() -> None:
            with attempt:
                await asyncio.sleep(0.3)
                attempt.mark_sent()
                await asyncio.sleep(10)

        with pytest.raises(TimeoutError):
            await slow()
        return loop.time() - began

    assert 0.5 <= asyncio.run(run()) <= 0.5 * 1.1 + SLACK


def test_c04_a_resolver_that_does_not_answer_holds_up_neither_the_call_nor_the_exit(monkeypatch):
    over = threading.Event()

    def never(*_, **__):
        over.wait(30)
        raise OSError("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)

    async def run() -> None:
        upstream = endpoint("http://nowhere.invalid/v1", timeouts=Timeouts(connect=0.3))
        async with Client(upstream) as client:
            with pytest.raises(EndpointTimeout, match="to connect") as caught:
                await client.call(BODY, deadline=5.0)
        assert not caught.value.paid

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < 10.0
    over.set()


def test_a_name_is_resolved_and_one_that_nobody_has_is_unreachable():
    async def run(client, up):
        named = endpoint(up.url.replace("127.0.0.1", "localhost"))
        async with Client(named) as other:
            assert (await other.call(BODY)).responses
        nowhere = endpoint("http://nowhere.invalid/v1", retries=Retries(attempts=1))
        async with Client(nowhere) as other:
            with pytest.raises(EndpointUnreachable) as caught:
                await other.call(BODY)
        assert not caught.value.paid

    run_client(Reply(), run)


def test_a_queue_of_our_own_is_no_reason_to_fail():
    retries = Retries(deadline=1.5)  # a busy machine needs a second for what takes a tenth
    done = run_draw(Honest(n="ignore", latency=0.2), 18, retries=retries, limits=RateLimits(concurrency=2))
    assert len(done.responses) == 18
    assert done.seconds > 1.5


def test_a_deadline_of_the_caller_counts_the_queue_too():
    done = run_draw(Honest(n="ignore", latency=0.5), 40, deadline=2.0, limits=RateLimits(concurrency=2))
    assert 2 <= len(done.responses) <= 8
    assert done.seconds <= 2.0 * 1.1 + SLACK
    late = [failed for failed in done.failed if not failed.calls]
    assert late
    assert all(isinstance(failed.error, EndpointTimeout) and not failed.error.paid for failed in late)


def test_a_deadline_in_the_past_sends_nothing():
    done = run_draw(None, 3, deadline=0.0)
    assert isinstance(done.error, EndpointTimeout)
    assert not done.error.paid
    assert done.up.count.requests == 0


def test_cancelling_a_draw_cancels_its_calls_at_once_and_counts_them():
    async def run(client, up):
        async def consume():
            async for _ in client.draw(BODY, 8):
                pass

        client.quirks.ensure("scripted").record_choices(8, 1)
        task = asyncio.create_task(consume())
        while up.count.in_flight < 8:
            await asyncio.sleep(0.005)
        began = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while up.count.in_flight:
            await asyncio.sleep(0.005)
        assert asyncio.get_running_loop().time() - began < SLACK

    done = run_client(Stall(), run)
    assert kinds(done) == [("cancelled", "maybe")] * 8
    assert done.up.count.aborted == 8
    assert done.client.totals.maybe == 8


def test_closing_a_draw_cancels_what_is_still_under_way():
    def script(number, body):
        return Reply() if number == 1 else Stall()

    async def run(client, up):
        client.quirks.ensure("scripted").record_choices(8, 1)
        outcomes = client.draw(BODY, 8)
        async for outcome in outcomes:
            assert isinstance(outcome, DrawSuccess)
            break
        await outcomes.aclose()
        assert client.in_flight == 0

    done = run_client(script, run)
    assert done.client.totals.kinds == {"ok": 1, "cancelled": 7}


def test_a_stopped_gate_sends_nothing_more_and_wakes_those_who_wait():
    async def run(client, up):
        client.quirks.ensure("scripted").record_choices(8, 1)
        threading.Timer(0.2, loop().call_soon_threadsafe, [client.gate.end]).start()
        return [event async for event in client.draw(BODY, 8)]

    def loop():
        return asyncio.get_running_loop()

    script = Status(code=429, retry_after=15)
    done = run_client(script, run, limits=RateLimits(concurrency=2))
    assert done.seconds < 14.0  # it was asked to wait for 15
    assert {failed.error.kind for failed in done.failed} == {"stopped"}
    assert done.up.count.requests <= 2
