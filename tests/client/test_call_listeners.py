"""A call's listener hears of its own attempts; who is asked before each of them may stop what comes next."""

import asyncio

import pytest
from client_runs import BODY, run_client

from adacompute.client import LOGPROBS, RateLimits, Retries
from adacompute.errors import EndpointFailed, SendingStopped
from upstream import Honest, Reply, Stall, Status


def test_hearing_of_one_call_is_hearing_of_all_its_attempts_and_no_others():
    async def run(client, up):
        mine, other = [], []
        await client.call(BODY, on_call=mine.append)
        assert [call.kind for call in mine] == ["server-error", "ok"]
        client.quirks.ensure("scripted").record_choices(4, 1)
        async for _ in client.draw(BODY, 4, on_call=other.append):
            pass
        assert [call.kind for call in other] == ["ok"] * 4
        assert len(mine) == 2
        task = asyncio.create_task(client.call({**BODY, "stall": True}, on_call=mine.append))
        while up.count.requests < 7:  # it has come; the reply to the one before may still be on its way out
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mine[-1].kind == "cancelled"

    def script(number, body):
        return Status(code=500) if number == 1 else Stall() if "stall" in body else Reply()

    assert len(run_client(script, run).heard) == 7


def allow(times):
    """Allows so many calls to be sent."""
    asked = []

    async def may_send(choices):
        asked.append(choices)
        return len(asked) <= times

    return may_send


def test_a_retry_that_may_not_be_sent_raises_what_failed():
    async def run(client, up):
        with pytest.raises(EndpointFailed):
            await client.call(BODY, may_send=allow(1))
        with pytest.raises(EndpointFailed):
            await client.stream(BODY, may_send=allow(1)).__aenter__()

    assert run_client(Status(code=500), run).up.count.requests == 2


def drawn(script, n, *, calls, most=None, **settings):
    """Draws n, of which so many calls may be sent."""

    async def run(client, up):
        if most is not None:
            client.quirks.ensure("scripted").record_choices(n, most)
        return [event async for event in client.draw(BODY, n, may_send=allow(calls))]

    done = run_client(script, run, **settings)
    indices = [event.first + i for event in done.failed for i in range(event.count)]
    assert sorted([*indices, *done.responses]) == list(range(n))
    return done


def test_what_is_missing_of_a_short_reply_is_not_asked_for_where_nothing_more_may_be_sent():
    done = drawn(Honest(n="short", most=3), 8, calls=1)
    assert done.up.count.requests == 1
    assert sorted(done.responses) == [0, 1, 2]
    assert {failed.error.kind for failed in done.failed} == {"stopped"}
    assert all("nothing more is sent" in str(failed.error) for failed in done.failed)
    assert sum(failed.count for failed in done.failed) == 5
    assert not any(failed.calls for failed in done.failed)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_calls_of_a_draw_that_wait_for_their_turn_are_not_sent_where_nothing_more_may_be(concurrency):
    limits = RateLimits(concurrency=concurrency, adaptive=False)
    done = drawn(Reply(delay=0.02), 20, calls=3, most=1, limits=limits)
    assert done.up.count.requests == len(done.responses) == 3
    assert {failed.error.kind for failed in done.failed} == {"stopped"}


def test_other_calls_of_a_draw_are_not_tried_again_nor_waited_for_where_nothing_more_may_be_sent():
    def script(number, body):
        return Status(code=500) if number <= 2 else Reply(delay=0.1)

    patient = Retries(first=100.0, longest=100.0, deadline=1000.0)
    limits = RateLimits(concurrency=4, adaptive=False)
    done = drawn(script, 5, calls=4, most=1, limits=limits, retries=patient)
    assert done.up.count.requests == 4
    assert len(done.responses) == 2
    assert sum(len(failed.calls) for failed in done.failed) == 2


def test_a_call_that_was_refused_too_many_is_not_sent_smaller_where_nothing_more_may_be():
    done = drawn(Honest(n="refuse", most=2), 8, calls=1)
    assert done.up.count.requests == 1
    assert {failed.error.kind for failed in done.failed} == {"stopped"}
    assert [call.kind for call in done.failed[0].calls] == ["n-limit"]


def test_what_was_refused_is_not_asked_without_it_where_nothing_more_may_be_sent():
    async def run(client, up):
        with pytest.raises(SendingStopped):
            await client.call({**BODY, "logprobs": True}, may_send=allow(1), optional=LOGPROBS)
        assert client.quirks.get("scripted").gives_logprobs is None

    assert run_client(Honest(logprobs="refuse"), run).up.count.requests == 1


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        (0, 0),
        (64, 64),
        (100, 100),
        (101, None),
        (-1, None),
        (True, None),
        ("9", None),
        (9.0, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_told_where_they_can_be_true(cached, found, stream):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": cached},
    }

    async def run(client, up):
        if stream:
            async with client.stream(BODY) as events:
                assert [event async for event in events]
                assert events.call.cached_tokens == found
        else:
            assert (await client.call(BODY)).calls[0].cached_tokens == found

    run_client(Reply(usage=usage), run)


@pytest.mark.parametrize("allowed", [True, False])
def test_who_is_asked_may_take_time_to_say_and_nothing_is_sent_meanwhile(allowed):
    async def run(client, up):
        asked, said = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def may_send(choices):
            asked.set()
            return await said

        calling = asyncio.create_task(client.call(BODY, may_send=may_send))
        await asked.wait()
        await asyncio.sleep(0.05)
        assert up.count.requests == 0
        said.set_result(allowed)
        if allowed:
            await calling
        else:
            with pytest.raises(SendingStopped):
                await calling

    assert run_client(Reply(), run).up.count.requests == int(allowed)
