"""A connection that knows the head of its last request reads the next one as a new connection does."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httptools
import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from adacompute.serve.chat import HEADERS_KEY, read_headers
from adacompute.serve.client_connection import ClientConnection, KnownHead

LINE, HOST = b"POST /v1/chat/completions?a=1 HTTP/1.1\r\n", b"Host: localhost\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Replies with what it was asked; and whether the head was known."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    is_known = HEADERS_KEY in scope
    seen = {name: scope[name] for name in ("method", "path", "http_version", "scheme", "root_path")}
    seen |= {name: scope[name].decode("latin-1") for name in ("raw_path", "query_string")}
    seen["headers"] = [[part.decode("latin-1") for part in pair] for pair in scope["headers"]]
    seen |= {"texts": read_headers(scope), "body": body.decode("latin-1")}
    scope["path"], scope["headers"][:] = "/changed", []  # what an application changes is its own
    reply = json.dumps([is_known, seen]).encode()
    length = (b"content-length", str(len(reply)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": reply})


class Server:
    """The connections of a server, which runs while `ask` does."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def ask(self, *requests: bytes, parts: int = 1) -> list[Any]:
        """The replies to requests on one connection; "closed" or "unfinished" where none came."""
        return self._runner.run(self._ask(requests, parts))

    async def _ask(self, requests: tuple[bytes, ...], parts: int) -> list[Any]:
        loop, config = asyncio.get_running_loop(), uvicorn.Config(echo, lifespan="off", log_level="critical")
        config.load()
        server = await loop.create_server(
            lambda: ClientConnection(config, ServerState(), {}, loop), "127.0.0.1", 0
        )
        try:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            replies = [await self._exchange(reader, writer, request, parts) for request in requests]
            writer.close()
        finally:
            server.close()
        return replies

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, parts: int
    ) -> Any:
        for part in range(parts):
            writer.write(request[part * len(request) // parts : (part + 1) * len(request) // parts])
            if parts > 1:
                await asyncio.sleep(0.01)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.3 if request in WAITING else 30.0)
            if head.startswith(b"HTTP/1.1 100 "):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:  # it waits for the rest of the request
            return "unfinished"
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"
        status = int(head.split(b" ", 2)[1])
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        return json.loads(body) if status == 200 else status


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def build(body: bytes = b"{}", *, length: bytes | None = None, extra: bytes = b"") -> bytes:
    digits = b"%d" % len(body) if length is None else length
    return b"%b%bContent-Length: %b\r\n%b\r\n%b" % (LINE, HOST, digits, extra, body)


def drop_known(reply: Any) -> Any:
    return reply[1] if isinstance(reply, list) else reply


def test_from_the_third_request_on_the_same_head_is_known(server: Server):
    bodies = [b"{}", b"{...}", b"[]", b"x" * 12_345, b"", b"\r\n\r\nPOST / HTTP/1.1\r\n\r\n", b"{}"]
    replies = server.ask(*map(build, bodies))
    assert [is_known for is_known, _ in replies] == [False, False, True, True, True, True, True]
    for body, (_, seen) in zip(bodies, replies, strict=True):
        assert seen["body"].encode("latin-1") == body
        assert (seen["path"], seen["query_string"]) == ("/v1/chat/completions", "a=1")
        assert seen["headers"] == [["host", "localhost"], ["content-length", str(len(body))]]
        assert seen["texts"] == {"host": "localhost", "content-length": str(len(body))}


def test_another_head_is_learned_a_few_times(server: Server):
    heads = [b"X-Case: %d\r\n" % number for number in range(8)]
    replies = server.ask(*(build(extra=head) for head in heads for _ in range(3)))
    known = [is_known for is_known, _ in replies]
    assert known[:3] == [False, False, True]
    assert known[3:12] == [False, True, True] * 3
    assert not any(known[12:])
    assert [seen["texts"]["x-case"] for _, seen in replies] == [str(n) for n in range(8) for _ in range(3)]


LENGTHS = [b"0002", b"+2", b"2 ", b" 2", b"", b"x", "２".encode(), b"1", b"3", b"99999999999999999999"]
EXTRAS = [
    b"Content-Length: 2\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b" folded: 1\r\n",
]
ODD = [
    *(build(length=length) for length in LENGTHS),
    *(build(extra=extra) for extra in EXTRAS),
    build() + build(),
    build() + b"\r\n",
    b"\r\n" + build(),
    build().replace(b"POST", b"PUT"),
    build().replace(b"HTTP/1.1", b"HTTP/1.0"),
    build().replace(b"\r\n", b"\n"),
    build()[:-1],
    build()[:40],
    b"GET / HTTP/1.1\r\n\r\n",
]
WAITING = [build(length=b"3"), build()[:-1], build()[:40]]  # of them: the rest is waited for


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_is_answered_as_on_a_new_connection(server: Server, odd: bytes):
    (alone,), before = server.ask(odd), [build(), build(b"[]"), build(b"{...}")]
    *_, last, after = server.ask(*before, odd)
    assert last[0] is True  # the head was known by then
    assert drop_known(after) == drop_known(alone)
    assert (alone == "unfinished") == (odd in WAITING)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_a_request_that_comes_in_parts_is_read_by_the_parser(server: Server, parts: int):
    replies = server.ask(*[build(b"{...}")] * 4, parts=parts)
    assert [is_known for is_known, _ in replies] == [False] * 4
    assert {seen["body"] for _, seen in replies} == {"{...}"}


class Recorder:
    """What the parser makes of bytes."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body, self.ends = b"", 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.ends += 1


@given(
    st.binary(max_size=40),
    st.integers(0, 200),
    st.integers(0, 200),
    st.binary(max_size=3),
    st.sampled_from([b"", b"X: 1\r\n", b"X-Content-Length: 7\r\nx: 2\r\n"]),
)
@example(b"12", 74, 74, b"\r\n", b"")
@example(b"[1, 2]", 0, 0, b"", b"")  # unchanged, so it matches
def test_what_is_known_is_read_as_the_parser_reads_it(
    body: bytes, start: int, end: int, other: bytes, extra: bytes
):
    """A request with some bytes replaced: where it still matches, the parser reads the same."""
    request, first = build(extra=extra), Recorder()
    httptools.HttpRequestParser(first).feed_data(request)
    known = KnownHead.learn(request, {"method": "POST", "headers": first.headers}, first.body)
    assert known is not None
    changed = build(body, extra=extra)
    changed = changed[:start] + other + changed[max(start, end) :]
    match = known.match(changed)
    if match is None:
        return
    recorder = Recorder()
    httptools.HttpRequestParser(recorder).feed_data(changed)
    assert recorder.ends == 1
    assert recorder.body == match[1]
    assert match[0]["headers"] == recorder.headers
