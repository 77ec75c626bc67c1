"""A reply in an encoding that wasn't asked for is refused unread; nothing is ever unpacked."""

import asyncio
import gzip
import json
import resource
import zlib
from typing import Any

import pytest
from client_runs import BODY, endpoint, run_draw

from adacompute.client import Client, Retries
from adacompute.errors import EndpointError, EndpointRefused, RateLimited, ReplyInvalid
from timing import find_least, measure_longest_turn
from upstream import Garbage, Upstream

WHOLE = json.dumps({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}).encode()
ONCE = Retries(attempts=1)
BOMB = gzip.compress(bytes(2**20)) * 1000  # 1 MB that becomes 1,000 MiB
PACKED = {
    "gzip": gzip.compress(WHOLE),
    "x-gzip": gzip.compress(WHOLE),
    "GZIP": gzip.compress(WHOLE),
    "deflate": zlib.compress(WHOLE),
    "br": b"\x0b\x02\x80{}\x03",
    "zstd": b"\x28\xb5\x2f\xfd\x00\x58\x11\x00\x00{}",
    "identity, gzip": gzip.compress(WHOLE),
    "gzip, gzip": gzip.compress(gzip.compress(WHOLE)),
    "sk-canary": WHOLE,  # an unknown one, whose name is not passed on
}


@pytest.mark.parametrize("kind", PACKED)
def test_an_encoding_that_was_not_asked_for_is_refused_unread_and_may_be_paid(kind: str):
    done = run_draw(Garbage(raw=PACKED[kind], headers={"Content-Encoding": kind}), 1, retries=ONCE)
    assert isinstance(done.error, ReplyInvalid)
    assert "though none was asked for; turn its compression off" in str(done.error)
    assert "sk-canary" not in str(done.error)
    assert [(call.kind, call.paid) for call in done.heard] == [("compressed", "maybe")]


def test_gzip_that_no_header_names_is_called_so():
    done = run_draw(Garbage(raw=gzip.compress(WHOLE)), 1, retries=ONCE)
    assert done.error.kind == "compressed"
    assert "a body in gzip, though its headers don't say so" in str(done.error)


@pytest.mark.parametrize("kind", ["identity", "Identity", "", "identity, identity"])
def test_identity_is_what_was_asked_for(kind: str):
    done = run_draw(Garbage(raw=WHOLE, headers={"Content-Encoding": kind}), 1)
    assert done.responses[0].text == "42"


@pytest.mark.parametrize(
    ("code", "expected"), [(429, RateLimited), (400, EndpointRefused), (503, EndpointError)]
)
def test_a_refusal_keeps_its_status_and_its_message_is_not_read(code: int, expected: type[EndpointError]):
    how = Garbage(raw=BOMB, code=code, headers={"Content-Encoding": "gzip"})
    done = run_draw(how, 1, retries=ONCE)
    assert isinstance(done.error, expected)
    assert done.error.status == code
    assert "a message in gzip, which wasn't asked for" in str(done.error)


def test_a_stream_and_the_list_of_models_are_refused_too():
    how = Garbage(raw=BOMB, headers={"Content-Encoding": "gzip"}, content_type="text/event-stream")

    async def answer_packed(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(BOMB)}\r\n\r\n"
        writer.write(head.encode() + BOMB)
        await writer.drain()
        writer.close()

    async def work(url: str) -> None:
        async with Client(endpoint(url, retries=ONCE)) as client:
            with pytest.raises(ReplyInvalid) as caught:
                async with client.stream(BODY):
                    pass
            assert caught.value.paid
        server = await asyncio.start_server(answer_packed, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(endpoint(f"http://127.0.0.1:{port}/v1")) as client:
            with pytest.raises(ReplyInvalid) as listing:
                await client.models()
            assert not listing.value.paid

    with Upstream(how) as up:
        asyncio.run(work(up.url))
        assert up.count.requests == 1


def test_a_bomb_takes_neither_time_of_the_loop_nor_memory():
    async def one(client: Client) -> Any:
        with pytest.raises(ReplyInvalid):
            await client.call(BODY)

    async def work(url: str) -> float:
        async with Client(endpoint(url, retries=ONCE)) as client:
            await one(client)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            longest = await measure_longest_turn(asyncio.gather(*(one(client) for _ in range(8))))
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB
            return longest

    with Upstream(Garbage(raw=BOMB, headers={"Content-Encoding": "gzip"})) as up:
        # 3.2 s when they were unpacked; the upstream shares the processor
        assert find_least(lambda: asyncio.run(work(up.url)), 0.5) < 0.5
