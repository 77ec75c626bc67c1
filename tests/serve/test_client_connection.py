"""A client's connection, by raw bytes: what HTTP allows is answered, and what is odd harms nobody else."""

import asyncio
import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import uvicorn
from behaviours import Drop, Stall
from running import Running
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from wires import until

from adacompute.serve.http.app import ClientConnection
from upstream import Upstream

CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

Open = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Upstream() as up, Running(up.url) as gate:
        yield gate


@pytest.fixture
def connect(running: Running) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        port = int(running.base.rpartition(":")[2])
        yield lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))


def read_reply(line: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next reply, which says how long it is."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += line.recv(1)
    first, *lines = data.decode("latin-1").split("\r\n")[:-2]
    headers = dict(header.lower().split(": ", 1) for header in lines)
    body = b""
    while len(body) < int(headers.get("content-length", 0)):
        body += line.recv(int(headers["content-length"]) - len(body))
    return int(first.split()[1]), headers, body


def read_end(line: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_head_and_body_of_a_reply_arrive_together(connect: Open):
    line = connect()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert line.recv(65_536).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_request_may_come_in_pieces_of_any_size(connect: Open, size: int):
    line, request = connect(), HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(request), size):
        line.sendall(request[start : start + size])
    assert read_reply(line)[0] == 200


def test_a_body_may_come_in_chunks(connect: Open):
    line, middle = connect(), len(CHAT) // 2
    line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for part in (CHAT[:middle], CHAT[middle:]):
        line.sendall(b"%x\r\n%b\r\n" % (len(part), part))
    line.sendall(b"0\r\n\r\n")
    assert read_reply(line)[0] == 200


def test_who_waits_for_leave_to_send_the_body_gets_it(connect: Open):
    line = connect()
    line.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(CHAT))
    assert read_reply(line)[0] == 100
    line.sendall(CHAT)
    assert read_reply(line)[0] == 200


def test_who_waits_for_leave_and_is_refused_is_told_so_at_once(connect: Open):
    line = connect()
    head = HEAD.replace(b"application/json", b"text/plain")
    line.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(CHAT))
    status, headers, _ = read_reply(line)
    assert (status, headers["connection"]) == (415, "close")
    assert read_end(line) == b""  # whether the body comes all the same can't be told


def test_a_client_that_offers_another_protocol_is_answered_in_this_one(connect: Open):
    line = connect()  # as Java's client and curl --http2 do
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    for _ in range(2):
        line.sendall(HEAD + offer + b"Content-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT))
        status, _, body = read_reply(line)
        assert status == 200
        assert json.loads(body)["choices"]


@pytest.mark.parametrize(
    ("version", "connection"),
    [(b"1.1", b"Upgrade, close"), (b"1.0", b"Upgrade"), (b"1.1", b"close, upgrade")],
)
def test_who_offers_another_protocol_and_wants_no_more_is_disconnected(
    connect: Open, version: bytes, connection: bytes
):
    line = connect()
    head = b"GET /healthz HTTP/%b\r\nHost: localhost\r\nConnection: %b\r\nUpgrade: h2c\r\n\r\n"
    line.sendall(head % (version, connection))
    reply = read_end(line)
    assert b"connection: close\r\n" in reply
    assert reply.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("head", [b"HTTP/1.1\r\n", b"HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n"])
def test_a_request_without_one_host_is_refused_and_none_behind_it_is_served(connect: Open, head: bytes):
    line = connect()
    line.sendall(b"GET /healthz %b\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" % head)
    reply = read_end(line)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"Host" in reply
    assert b"HTTP/1.1 200" not in reply


def test_a_request_of_http_1_0_needs_no_host(connect: Open):
    line = connect()
    line.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert read_end(line).endswith(b'{"status":"ok"}')


def test_a_tunnel_is_refused(connect: Open):
    line = connect()
    line.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_end(line).startswith(b"HTTP/1.1 400 ")


def test_requests_without_a_body_may_be_sent_before_the_reply_to_others(connect: Open):
    line = connect()
    paths = (b"/healthz", b"/readyz", b"/nowhere", b"/healthz")
    line.sendall(b"".join(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths))
    replies = [read_reply(line) for _ in paths]
    assert [status for status, _, _ in replies] == [200, 200, 404, 200]
    assert [json.loads(body).get("status") for _, _, body in replies] == ["ok", "ready", None, "ok"]


def test_a_reply_to_head_has_no_body(connect: Open):
    line = connect()
    line.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
    replies = line.recv(65_536)
    while replies.count(b"\r\n\r\n") < 2:
        replies += line.recv(65_536)
    assert replies.count(b"HTTP/1.1 ") == 2
    assert replies.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("head", [b"HTTP/1.0\r\n", b"HTTP/1.1\r\nConnection: close\r\n"])
def test_a_connection_is_closed_where_the_client_wants_no_more(connect: Open, head: bytes):
    line = connect()
    line.sendall(b"GET /healthz %bHost: localhost\r\n\r\n" % head)
    reply = read_end(line)
    assert b"connection: close\r\n" in reply
    assert reply.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "target", [b"http://localhost/healthz", b"/healthz?a=1", b"/healthz?a=%20b", b"//healthz"]
)
def test_a_target_may_be_written_in_several_ways(connect: Open, target: bytes):
    line = connect()
    line.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
    assert read_reply(line)[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 5 5\r\n",
        b"X Y: 1\r\n",
        b"X: a\0b\r\n",
    ],
)
def test_what_servers_could_read_differently_is_refused(connect: Open, head: bytes):
    line = connect()
    line.sendall(HEAD + head + b"\r\nhello")
    reply = read_end(line)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert reply.count(b"content-length: ") == 1


def test_every_reply_has_a_date(connect: Open):
    line = connect()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_reply(line)[1]["date"].endswith("gmt")


@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
def test_c08_who_goes_away_is_noticed_however_long_the_body_was(size: int):
    with Upstream(Stall()) as up, Running(up.url) as gate:
        chat = {"model": "m", "messages": [{"role": "user", "content": "x" * size}]}
        body, port = json.dumps(chat).encode(), int(gate.base.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            until(lambda: up.count.in_flight == 1)
        until(lambda: gate.gateway.under_way == 0)


def test_c13_who_sends_thousands_of_requests_before_a_reply_is_cut_off(connect: Open, running: Running):
    line, replies = connect(), b""
    with contextlib.suppress(ConnectionError):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000)
        while replies.count(b"HTTP/1.1 200 ") < 5_000 and (part := line.recv(65_536)):
            replies += part
    assert replies.count(b"HTTP/1.1 200 ") < 5_000
    assert running.ask().status == 200


def test_requests_that_come_before_the_reply_to_others_are_all_answered(connect: Open):
    line = connect()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
    assert [read_reply(line)[0] for _ in range(50)] == [200] * 50


def test_headers_after_a_body_are_dropped(connect: Open):
    line = connect()
    body = b"%x\r\n%b\r\n0\r\nx-adacompute-budget: nonsense\r\n\r\n" % (len(CHAT), CHAT)
    line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)  # all in one piece
    assert read_reply(line)[0] == 200


KIB = 1024
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"%x\r\n%b\r\n0\r\n" % (len(CHAT), CHAT)  # a body but for its end
ENDLESS = {  # what begins, and what is repeated without an end
    "one header": (HEAD + b"X: ", b"a" * KIB),
    "headers": (HEAD, b"X: " + b"a" * 99 + b"\r\n"),
    "one trailer": (CHUNKED + LAST + b"X: ", b"a" * KIB),
    "trailers": (CHUNKED + LAST, b"X: " + b"a" * 99 + b"\r\n"),
    "trailers of a request that is refused at once": (
        CHUNKED.replace(b"application/json", b"text/plain") + LAST,
        b"X: " + b"a" * 99 + b"\r\n",
    ),
    "a chunk's line": (CHUNKED + b"5;a=", b"b" * KIB),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_f2_what_never_ends_is_cut_off_and_others_are_served(connect: Open, running: Running, what: str):
    begin, again = ENDLESS[what]
    line = connect()
    line.sendall(begin)
    with pytest.raises(ConnectionError):
        line.sendall(again * (2**26 // len(again)))  # more than the system buffers for both sides
    assert running.get("/healthz").status == 200


def pad(size: int) -> bytes:
    return b"X: " + b"a" * size + b"\r\n"


@pytest.mark.parametrize("size", [66, 240])
def test_f2_limits_hold_for_what_comes_in_one_piece(connect: Open, size: int):
    refused = {
        HEAD + pad(size * KIB) + b"\r\n": b"431",
        CHUNKED + LAST + pad(size * KIB) + b"\r\n": b"431",
        CHUNKED + LAST + pad(KIB) * size + b"\r\n": b"431",
        CHUNKED + LAST.replace(b"\r\n", b";" + b"a" * size * KIB + b"\r\n", 1) + b"\r\n": b"400",
        CHUNKED + LAST.replace(b"\r\n", b";" + b"a" * 4 * KIB + b"\r\n", 1) + b"\r\n": b"400",
    }
    for request, status in refused.items():
        line = connect()
        line.sendall(request)
        with contextlib.suppress(ConnectionResetError):  # it is closed while some hasn't been read
            assert line.recv(65_536).startswith(b"HTTP/1.1 " + status)


def test_f2_a_head_after_the_end_of_a_body_has_the_same_limit(connect: Open):
    line = connect()
    line.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT[:-2]))
    time.sleep(0.2)  # the rest comes in a segment of its own
    line.sendall(CHAT[-2:] + b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + pad(200 * KIB) + b"\r\n")
    assert b"HTTP/1.1 431" in read_end(line)


def test_f2_who_sends_nothing_or_line_breaks_alone_is_disconnected():
    with Upstream() as up, Running(up.url, client_timeout=1.0) as gate, contextlib.ExitStack() as stack:
        for sent in (b"", b"G", b"\r\n", b"\n" * 9):
            address = ("127.0.0.1", int(gate.base.rpartition(":")[2]))
            line = stack.enter_context(socket.create_connection(address, timeout=30))
            line.sendall(sent)
            assert read_end(line) == b""


def test_f2_who_doesnt_read_the_end_of_a_last_reply_is_disconnected():
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 60_000})  # less than pauses writing

    async def leave_unread() -> int:
        config = uvicorn.Config(app, lifespan="off")
        config.load()
        loop, state, made = asyncio.get_running_loop(), ServerState(), list[ClientConnection]()

        def make() -> ClientConnection:
            made.append(ClientConnection(config, state, {}))
            return made[0]

        listening = await loop.create_server(make, "127.0.0.1", 0)
        async with listening, asyncio.timeout(30):
            with socket.socket() as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.setblocking(False)
                await loop.sock_connect(line, listening.sockets[0].getsockname())
                while not state.connections:
                    await asyncio.sleep(0.01)
                transport = made[0].transport
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                await loop.sock_sendall(line, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                while not transport.is_closing():
                    await asyncio.sleep(0.01)
                left, now = transport.get_write_buffer_size(), time.monotonic()
                made[0].sweep(now, 1.0)
                made[0].sweep(now + 2.0, 1.0)
                while state.connections:
                    await asyncio.sleep(0.01)
        return left

    assert asyncio.run(leave_unread()) > 0


def test_f2_line_breaks_after_a_reply_hold_no_idle_connection():
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def ask() -> bytes:
        config = uvicorn.Config(app, lifespan="off", timeout_keep_alive=1)
        config.load()
        listening = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(config, ServerState(), {}), "127.0.0.1", 0
        )
        async with listening, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\r\n")
            after = await reader.read()
            writer.close()
        return after

    assert asyncio.run(ask()) == b""


def test_a_reply_that_breaks_off_ends_the_connection_and_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
):
    drops = Upstream(Drop(after=300), path="/v1/embeddings")
    with drops as up, Running(up.url) as gate, pytest.raises(http.client.IncompleteRead):
        gate.ask({"model": "m", "input": "x"}, path="/v1/embeddings")
    assert [record.message[:20] for record in caplog.records if record.levelname == "ERROR"] == [
        "a reply was cut off:"
    ]


def test_f2_what_is_below_the_limits_is_served_and_chunk_lines_add_up_to_anything(connect: Open):
    line = connect()
    chunks = [b"1;%b\r\n%c\r\n" % (b"a" * KIB, byte) for byte in CHAT + b" " * 100]
    for request in (
        HEAD + pad(60 * KIB) + b"Content-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT),
        CHUNKED + LAST + pad(60 * KIB) + b"\r\n",
        CHUNKED + b"".join(chunks) + b"0\r\n\r\n",
    ):
        line.sendall(request)
        assert read_reply(line)[0] == 200
