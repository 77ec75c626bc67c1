"""A call's listener hears of its own attempts, and may stop what comes next."""

import asyncio

import pytest
from client_runs import BODY, run_client

from adacompute.client import LOGPROBS, RateLimits, Retries
from adacompute.errors import EndpointFailed, EndpointRefused
from upstream import Honest, Reply, Stall, Status


def test_hearing_of_one_call_is_hearing_of_all_its_attempts_and_no_others():
    async def run(client, up):
        mine, other = [], []
        await client.call(BODY, on_call=mine.append)
        assert [call.kind for call in mine] == ["server-error", "ok"]
        client.quirks.record_choices(4, 1, "scripted")
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


def test_who_hears_of_an_attempt_may_say_that_there_is_to_be_no_other():
    async def run(client, up):
        with pytest.raises(EndpointFailed):
            await client.call(BODY, on_call=lambda _: False)
        with pytest.raises(EndpointFailed):
            await client.stream(BODY, on_call=lambda _: False).__aenter__()

    assert run_client(Status(code=500), run).up.count.requests == 2


def drawn_until(script, stop, n, *, most=None, **settings):
    """Draws n, and says when it hears a call for which `stop` is true that there are to be no others."""

    async def run(client, up):
        if most is not None:
            client.quirks.record_choices(n, most, "scripted")
        return [event async for event in client.draw(BODY, n, on_call=lambda call: not stop(call))]

    done = run_client(script, run, **settings)
    indices = [event.first + i for event in done.failed for i in range(event.count)]
    assert sorted([*indices, *done.responses]) == list(range(n))
    return done


def test_what_is_missing_of_a_short_reply_is_not_asked_for_where_nothing_more_may_be_sent():
    done = drawn_until(Honest(n="short", most=3), lambda call: True, 8)
    assert done.up.count.requests == 1
    assert sorted(done.responses) == [0, 1, 2]
    assert done.error.kind == "stopped"
    assert "nothing more is sent" in str(done.error)
    assert (done.failed[0].first, done.failed[0].count, done.failed[0].calls) == (3, 5, ())


@pytest.mark.parametrize("concurrency", [1, 2])
def test_calls_of_a_draw_that_wait_for_their_turn_are_not_sent_where_nothing_more_may_be(concurrency):
    limits = RateLimits(concurrency=concurrency, adaptive=False)
    heard = []

    def third(call):
        heard.append(call)
        return len(heard) == 3

    done = drawn_until(Reply(delay=0.02), third, 20, most=1, limits=limits)
    sent = done.up.count.requests  # those under way go on
    assert 3 <= sent <= 3 + concurrency - 1
    assert len(done.responses) == sent
    assert {failed.error.kind for failed in done.failed} == {"stopped"}


def test_other_calls_of_a_draw_are_not_tried_again_nor_waited_for_where_nothing_more_may_be_sent():
    def script(number, body):
        return Status(code=500) if number <= 2 else Reply(delay=0.1)

    patient = Retries(first=100.0, longest=100.0, deadline=1000.0)
    limits = RateLimits(concurrency=4, adaptive=False)
    done = drawn_until(script, lambda call: call.got > 0, 4, most=1, limits=limits, retries=patient)
    assert done.up.count.requests == 4
    assert len(done.responses) == 2
    assert sum(len(failed.calls) for failed in done.failed) == 2


def test_a_call_that_was_refused_too_many_is_not_sent_smaller_where_nothing_more_may_be():
    done = drawn_until(Honest(n="refuse", most=2), lambda call: True, 8)
    assert done.up.count.requests == 1
    assert done.error.kind == "stopped"
    assert [call.kind for call in done.failed[0].calls] == ["n-limit"]


def test_what_was_refused_is_not_asked_without_it_where_nothing_more_may_be_sent():
    async def run(client, up):
        with pytest.raises(EndpointRefused, match="logprobs are not supported"):
            await client.call({**BODY, "logprobs": True}, on_call=lambda _: False, optional=LOGPROBS)
        assert client.quirks.gives_logprobs("scripted") is None

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
def test_who_hears_may_take_time_to_say_and_nothing_is_sent_meanwhile(allowed):
    async def run(client, up):
        said = asyncio.get_running_loop().create_future()
        calling = asyncio.create_task(client.call(BODY, on_call=lambda call: call.kind == "ok" or said))
        while up.count.in_flight or up.count.requests < 1:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)  # longer than it waits before it tries again
        assert up.count.requests == 1
        assert not calling.done()
        said.set_result(allowed)
        if allowed:
            await calling
        else:
            with pytest.raises(EndpointFailed):
                await calling

    def script(number, body):
        return Status(code=500) if number == 1 else Reply()

    assert run_client(script, run).up.count.requests == 1 + allowed


@pytest.mark.parametrize("allowed", [True, False])
def test_all_calls_of_a_draw_wait_until_it_is_said(allowed):
    async def run(client, up):
        said = asyncio.get_running_loop().create_future()
        client.quirks.record_choices(6, 1, "scripted")
        events = []

        async def drawing():
            events.extend([event async for event in client.draw(BODY, 6, on_call=lambda _: said)])

        task = asyncio.create_task(drawing())
        while up.count.requests < 2 or up.count.in_flight:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert up.count.requests == 2  # both that were under way
        said.set_result(allowed)
        await task
        return events

    done = run_client(Reply(texts=["1"]), run, limits=RateLimits(concurrency=2))
    assert done.up.count.requests == (6 if allowed else 2)
