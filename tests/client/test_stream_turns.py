"""Streams beside other calls: leaving one ends it at once (c04), each takes a turn."""

import asyncio
import time

import pytest
from client_runs import BODY, run_client

from adacompute.client import BreakerSettings, RateLimits, Retries
from adacompute.errors import ConnectionLost, EndpointError
from streams import read, texts
from upstream import Break, Reply, Stall, text_of


def test_c04_leaving_a_stream_closes_the_connection_at_once_and_counts_it():
    async def run(client, up):
        async with client.stream(BODY, on_call=told.append) as stream:
            assert client.in_flight == 1
            async for _ in stream:
                if stream.responses[0].text:
                    break
            assert stream.call is None
        left = time.monotonic()
        assert client.in_flight == 0
        assert told == [stream.call]
        while up.count.aborted == 0:
            assert time.monotonic() - left < 8.0  # the stream goes on for ten seconds
            await asyncio.sleep(0.005)
        assert stream.responses[0].text

    told = []
    done = run_client(Reply(gap=0.05, pieces=200), run)
    (call,) = done.heard
    assert (call.kind, call.paid, call.estimated) == ("cancelled", "maybe", True)
    assert call.completion_tokens < 12
    assert done.up.count.aborted == 1
    assert done.up.count.completions == 0


@pytest.mark.parametrize("script", [Stall(), Break(after=0, how="stall"), Break(how="stall")])
def test_c04_cancelling_a_task_that_reads_a_stream_ends_it_at_once(script):
    async def run(client, up):
        task = asyncio.create_task(read(client))
        while up.count.in_flight == 0:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = time.monotonic()
        while up.count.aborted == 0:
            assert time.monotonic() - left < 30.0
            await asyncio.sleep(0.005)

    done = run_client(script, run)
    assert [(call.kind, call.paid) for call in done.heard] == [("cancelled", "maybe")]


def test_a_read_that_is_cancelled_loses_nothing():
    async def run(client, up):
        async with client.stream(BODY) as stream:
            seen = []
            while True:
                try:
                    seen.append(await asyncio.wait_for(anext(stream), 0.02))
                except TimeoutError:
                    waits.append(1)
                except StopAsyncIteration:
                    break
            assert texts(seen) == {0: text_of(0, 1, 0, 12)}
            assert stream.call.kind == "ok"

    waits = []
    run_client(Reply(gap=0.05), run)
    assert waits


def test_streams_take_turns_and_a_stream_that_ended_leaves_its_connection_to_the_next():
    async def run(client, up):
        await asyncio.gather(*(read(client) for _ in range(12)))

    done = run_client(Reply(gap=0.002), run, limits=RateLimits(concurrency=3))
    assert done.up.count.completions == 12
    assert done.up.count.peak <= 3
    assert done.up.count.connections <= 4


def test_streams_that_break_open_the_breaker_and_one_that_begins_closes_it():
    async def run(client, up):
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await read(client)
        probe = asyncio.create_task(read(client))
        while up.count.requests < 3:
            await asyncio.sleep(0.005)
        await asyncio.wait_for(client.call(BODY), 10.0)  # goes when the probe has begun; that never ends
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe

    scripts = [Break(how="drop"), Break(how="drop"), Break(how="stall", delay=0.1), Reply()]
    breaker = BreakerSettings(failures=2, seconds=0.3)
    run_client(scripts, run, breaker=breaker, retries=Retries(attempts=3, first=0.01))


def test_streams_that_have_begun_let_others_in_though_they_run_on():
    async def run(client, up):
        streams = [asyncio.create_task(read(client)) for _ in range(client.concurrency)]
        while up.count.in_flight < len(streams):
            await asyncio.sleep(0.005)
        await asyncio.wait_for(client.call(BODY), 10.0)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def script(number, body):
        return Break(how="stall", delay=0.2) if "stream" in body else Reply()

    run_client(script, run, limits=RateLimits(concurrency=32))


def test_a_stopped_gate_lets_a_stream_under_way_go_on_and_no_other_begin():
    async def run(client, up):
        async with client.stream(BODY) as stream:
            client.gate.end()
            with pytest.raises(EndpointError, match="stopped"):
                async with client.stream(BODY):
                    pass
            assert [event async for event in stream][-1].data == b"[DONE]"

    assert run_client(Reply(gap=0.01), run).client.totals.kinds == {"ok": 1}
