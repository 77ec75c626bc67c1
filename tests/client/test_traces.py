"""Headers go with every attempt; a tracer gives each attempt its own, and learns what came of it."""

import asyncio
import contextlib

import pytest
from client_runs import BODY, run_client

from adacompute.client import LOGPROBS
from adacompute.errors import ConnectionLost
from upstream import Break, Honest, Reply, Stall, Status


class Trace:
    def __init__(self, before: int, number: int) -> None:
        self.before = before
        self.headers = {"x-attempt": str(number)}
        self.told: list[str] = []
        self.body = None

    def mark_answering(self) -> None:
        self.told.append("answering")

    def end(self, call, body) -> None:
        self.told.append(call.kind)
        self.body = body


class Tracer(list[Trace]):
    def __call__(self, before: int) -> Trace:
        self.append(Trace(before, len(self) + 1))
        return self[-1]


def sent(up, name="x-attempt"):
    return [request.headers.get(name) for request in up.requests]


def test_headers_go_with_every_attempt_and_the_client_s_own_stay():
    async def run(client, up):
        headers = {"x-attempt": "a"}
        await client.call(BODY, headers=headers)
        async for _ in client.draw(BODY, 3, headers=headers):
            pass
        async with client.stream(BODY, headers=headers) as stream:
            async for _ in stream:
                pass
        await client.call(BODY)

    script = [Status(code=500), Honest(n="ignore")(1, {}), *[Honest(n="ignore")(2, {})] * 9]
    up = run_client(script, run, key="sk-canary-7f3a9c").up
    assert sent(up) == ["a"] * 6 + [None]
    assert set(sent(up, "authorization")) == {"Bearer sk-canary-7f3a9c"}
    assert set(sent(up, "accept-encoding")) == {"identity"}


def test_a_tracer_follows_each_attempt_to_its_end():
    async def run(client, up):
        tracer = Tracer()
        await client.call(BODY, tracer=tracer, headers={"x-attempt": "not this"})
        assert [(trace.before, trace.told) for trace in tracer] == [(0, ["server-error"]), (1, ["ok"])]
        assert tracer[0].body is None
        assert tracer[1].body["choices"]

    done = run_client([Status(code=500), Reply()], run)
    assert sent(done.up) == ["1", "2"]


def test_a_tracer_follows_every_call_of_a_draw():
    async def run(client, up):
        tracer = Tracer()
        client.quirks.ensure("scripted").record_choices(3, 1)
        async for _ in client.draw(BODY, 3, tracer=tracer):
            pass
        assert [(trace.before, trace.told) for trace in tracer] == [(0, ["ok"])] * 3

    assert sorted(sent(run_client(Honest(n="ignore"), run).up)) == ["1", "2", "3"]


def test_an_attempt_without_refused_fields_is_one_after_others():
    async def run(client, up):
        tracer = Tracer()
        await client.call({**BODY, "logprobs": True}, tracer=tracer, optional=frozenset(LOGPROBS))
        assert [(trace.before, trace.told[-1]) for trace in tracer] == [(0, "no-logprobs"), (1, "ok")]

    run_client(Honest(logprobs="refuse"), run)


@pytest.mark.parametrize(("script", "end"), [(Reply(), "ok"), (Break(how="drop"), "reset")])
def test_a_stream_is_answering_before_it_ends(script, end):
    async def run(client, up):
        tracer = Tracer()
        with contextlib.suppress(ConnectionLost):
            async with client.stream(BODY, tracer=tracer) as stream:
                async for _ in stream:
                    assert tracer[0].told == ["answering"] or stream.call is not None
        assert tracer[0].told == ["answering", end]

    run_client(script, run)


def test_a_cancelled_attempt_ends_too_and_one_may_go_unfollowed():
    async def run(client, up):
        tracer = Tracer()
        task = asyncio.create_task(client.call(BODY, tracer=tracer))
        while up.count.requests < 1:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tracer[0].told == ["cancelled"]
        task = asyncio.create_task(client.call(BODY, tracer=lambda _: None, headers={"x-attempt": "own"}))
        while up.count.requests < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert sent(run_client(Stall(), run).up) == ["1", "own"]
