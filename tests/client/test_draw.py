"""Many calls of one draw: no more tasks than are needed, and none sent that can only be refused."""

import asyncio

import pytest
from client_runs import BODY, run_client, run_draw

from adacompute.client import DrawFailure, DrawSuccess, RateLimits
from adacompute.errors import EndpointRefused
from upstream import Honest, Reply, Status

FEW = RateLimits(concurrency=4, adaptive=False)


def singly(client) -> None:
    """Teaches that one call gives one choice."""
    client.quirks.ensure("scripted").record_choices(8, 1)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_request_that_is_refused_for_one_choice_is_not_sent_for_all_the_others(code):
    async def run(client, up):
        singly(client)
        return [event async for event in client.draw(BODY, 48)]

    done = run_client(Status(code=code, message="the prompt is too long", delay=0.02), run, limits=FEW)
    assert 4 <= done.up.count.requests <= 8  # those that were under way, and one in the place of each
    assert sum(failed.count for failed in done.failed) == 48
    assert sum(not failed.calls for failed in done.failed) == 1  # for all that were not sent
    assert {failed.error.status for failed in done.failed} == {code}
    assert all(isinstance(failed.error, EndpointRefused) for failed in done.failed)
    indices = [failed.first + i for failed in done.failed for i in range(failed.count)]
    assert sorted(indices) == list(range(48))


def test_what_is_under_way_when_the_request_is_refused_is_kept():
    def script(number, body):
        return Status(code=400, message="no", delay=0.1) if number == 2 else Reply(delay=0.3)

    async def run(client, up):
        singly(client)
        return [event async for event in client.draw(BODY, 20)]

    done = run_client(script, run, limits=FEW)
    sent = done.up.count.requests
    assert 4 <= sent <= 5  # those that were under way, and perhaps one in the place of the refused
    assert len(done.responses) == sent - 1
    assert sum(failed.count for failed in done.failed) == 21 - sent


@pytest.mark.parametrize("code", [401, 404, 500])
def test_other_failures_leave_the_others_to_be_asked(code):
    def script(number, body):
        return Status(code=code, message="no") if number == 1 else Reply()

    async def run(client, up):
        singly(client)
        return [event async for event in client.draw(BODY, 20)]

    done = run_client(script, run, limits=RateLimits(concurrency=2))
    assert len(done.responses) == (20 if code == 500 else 19)


def test_a_large_draw_has_no_more_tasks_than_twice_what_may_run_at_once():
    async def run(client, up):
        singly(client)
        events, most = [], 0
        async for event in client.draw(BODY, 300):
            events.append(event)
            calls = [task for task in asyncio.all_tasks() if "CallWithRetries" in repr(task.get_coro())]
            most = max(most, len(calls))
        assert 4 <= most <= 2 * 4
        return events

    done = run_client(Honest(n="ignore"), run, limits=FEW)
    assert sorted(done.responses) == list(range(300))
    assert done.up.count.peak <= 4


def test_a_large_draw_that_is_stopped_ends_at_once():
    async def run(client, up):
        singly(client)
        events = []
        async for event in client.draw(BODY, 20_000):
            events.append(event)
            client.gate.end()
        return events

    done = run_client(Honest(n="ignore", latency=0.05), run, limits=FEW)
    assert done.up.count.requests <= 8
    assert len(done.responses) + sum(failed.count for failed in done.failed) == 20_000
    assert {failed.error.kind for failed in done.failed} == {"stopped"}
    assert len(done.events) < 20


@pytest.mark.parametrize("way", ["ignore", "refuse", "short"])
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_every_index_comes_once_whatever_the_window(way, n):
    done = run_draw(Honest(n=way, most=3), n, first=5, limits=RateLimits(concurrency=1))
    assert sorted(done.responses) == list(range(5, 5 + n))
    assert not done.failed


def test_calls_made_in_vain_are_told_also_where_the_rest_is_not_sent():
    """`run_client` checks that every call is reported once."""

    def script(number, body):
        n = body.get("n", 1)
        return Status(code=400, message="n is too large" if n > 1 else "the prompt is too long")

    done = run_draw(script, 16, limits=FEW)
    assert sum(event.count for event in done.failed) == 16
    assert all(isinstance(event, DrawFailure) and not isinstance(event, DrawSuccess) for event in done.events)
    assert [r.body.get("n", 1) for r in done.up.requests] == [16, 8, 4, 2, 1]
