"""What is sent, and what is reported of it: requests unchanged, every call reported, errors short."""

import asyncio
import random
import socket

import pytest
from client_runs import BODY, endpoint, run_client, run_draw

from adacompute.client import Client, DrawSuccess, Retries
from adacompute.errors import (
    EndpointError,
    EndpointUnreachable,
    ReplyInvalid,
)
from upstream import Drop, Garbage, Reply, Status, Upstream


def test_an_endpoint_that_is_not_there_is_unreachable_and_unpaid():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        heard = []

        async def run() -> None:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
            async with Client(
                endpoint(url, retries=Retries(attempts=3, first=0.01)), on_call=heard.append
            ) as client:
                with pytest.raises(EndpointUnreachable) as caught:
                    await client.call(BODY)
                assert not caught.value.paid
                with pytest.raises(EndpointUnreachable):
                    await client.models()

        asyncio.run(run())
    assert [(call.kind, call.paid) for call in heard] == [("unreachable", "no")] * 3


def test_every_call_is_heard_once_and_equals_the_upstreams_own_count():
    rng = random.Random(4)
    faults = [
        Status(code=500),
        Status(code=429),
        Drop(),
        Drop(after=150),
        Garbage(),
        Reply(),
        Reply(),
        Reply(),
    ]
    plan = [rng.choice(faults) for _ in range(400)]

    async def run(client, up):
        async def one(i):
            return [e async for e in client.draw(BODY, 1 + i % 3)]

        rounds = await asyncio.gather(*(one(i) for i in range(60)))
        return [event for events in rounds for event in events]

    async def flat(client, up):
        events = await run(client, up)
        assert client.totals.calls == up.count.requests
        assert client.totals.responses == sum(len(e.responses) for e in events if isinstance(e, DrawSuccess))
        assert client.totals.paid == up.count.completions
        assert client.totals.completion_tokens == up.count.completion_tokens

    run_client(
        lambda number, body: plan[number % 400],
        flat,
        retries=Retries(attempts=20, first=0.001, longest=0.002),
    )


def test_a_large_reply_is_refused_while_it_is_read():
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * (65 * 2**20)
    done = run_draw(Garbage(whole=whole), 1, retries=Retries(attempts=1))
    assert isinstance(done.error, ReplyInvalid)
    assert "8 MiB" in str(done.error)


def test_long_words_of_a_server_are_told_short_and_on_one_line():
    done = run_draw(Status(code=400, message="first\nsecond " + "x" * 5000), 1)
    assert "first second xxx" in str(done.error)
    assert len(str(done.error)) < 350
    assert "\n" not in str(done.error)


def test_a_request_reaches_the_server_unchanged():
    body = {
        **BODY,
        "messages": [{"role": "system", "content": "½ 🎲 \ud800"}, {"role": "user", "content": ""}],
        "top_p": 0.123456789,
        "stop": ["\n\n"],
        "seed": 2**70,
        "logit_bias": {"50256": -100},
        "extra": {"nested": [1, None, True, {"a": []}]},
    }
    done = run_draw(None, 1, body)
    (request,) = done.up.requests
    assert request.body == body
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert run_draw(None, 3, body).up.requests[0].body == body | {"n": 3}
    assert run_draw(None, 1, {**BODY, "n": 5}).up.requests[0].body == BODY | {"n": 1}


def test_a_client_that_is_not_open_says_so():
    with pytest.raises(EndpointError, match="async with"):
        Client(endpoint("http://127.0.0.1:9/v1")).draw(BODY, 1)


def test_short_and_long_requests_are_sent_alike_over_one_connection():
    """They are written in two ways: those above 64 KiB in parts, beside waiting for the reply."""

    async def run(client: Client, _: Upstream) -> None:
        for content in ("short", "long " * 20_000, "short"):
            body = {**BODY, "messages": [{"role": "user", "content": content}]}
            await client.call(body, headers={"traceparent": "00-1-2-01"})

    done = run_client(Reply(), run)
    first, second, third = (request.headers | {"content-length": ""} for request in done.up.requests)
    assert first == second == third
    assert first["content-type"] == "application/json"
    assert done.up.count.connections == 1


@pytest.mark.parametrize("value", ["a\r\nx-other: 1", "a\nb", "a\0b"])
def test_a_header_can_not_begin_another(value: str):
    async def run(client: Client, up: Upstream) -> None:
        with pytest.raises(EndpointError):
            await client.call(BODY, headers={"traceparent": value})
        assert not up.requests

    run_client(Reply(), run, retries=Retries(attempts=1))
