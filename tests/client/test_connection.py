"""Connections to an endpoint: what replies of HTTP/1.1 look like, and when a connection is used again."""

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from client_runs import endpoint
from yarl import URL

from adacompute.client.error_object import CertificateUntrusted
from adacompute.client.forward import RawReply
from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.transport import Transport
from adacompute.client.verifier import Verifier
from adacompute.errors import ConnectionLost, EndpointError, EndpointUnreachable, ReplyInvalid

BODY = json.dumps({"choices": []}).encode()
FOREVER = 1e9

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head of a request, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return head, body
    size = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in lower else 0
    return head, await reader.readexactly(size)


class Server:
    """Answers each request of each connection with the next of these bytes, and counts connections."""

    def __init__(self, *replies: bytes, closes: bool = False) -> None:
        self.replies = list(replies)
        self.closes = closes
        self.connections = 0
        self.requests: list[tuple[bytes, bytes]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.requests.append(await read_request(reader))
                writer.write(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])
                await writer.drain()
                if self.closes:
                    break
        writer.close()


def run(
    handler: Handler,
    ask: Callable[[Transport, URL], Awaitable[Any]],
    clock: Callable[[], float] = time.monotonic,
    host: str = "127.0.0.1",
    **settings: Any,
) -> Any:
    """What `ask` returns, with a transport to a server of that handler."""

    async def serve() -> Any:
        tasks: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())
            try:
                await handler(reader, writer)
            finally:
                writer.transport.abort()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
        transport = Transport(endpoint(url, **settings), clock=clock)
        try:
            async with asyncio.timeout(60):
                return await ask(transport, URL(url))
        finally:
            await transport.close()
            server.close()
            await asyncio.wait(tasks, timeout=5) if tasks else None
            await asyncio.sleep(0.01)  # the server's own transports end

    return asyncio.run(serve())


def make_timer(transport: Transport) -> AttemptTimer:
    return AttemptTimer(transport.endpoint, FOREVER)


async def open_reply(transport: Transport, method: str, url: URL, **request: Any) -> RawReply:
    timer = make_timer(transport)
    return RawReply(transport, url, timer, await transport.open_reply(method, url, timer, **request))


async def post(transport: Transport, url: URL, data: bytes = b"{}") -> Any:
    return (await transport.exchange(url, make_timer(transport), data)).value


def reply(body: bytes = BODY, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


@pytest.mark.parametrize(
    "raw",
    [
        reply(),
        reply(head=b"X-A: 1\r\nX-A: 2\r\n"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(),
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + reply(),
        b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x;x=y\r\n%b\r\n0\r\nX: 1\r\n\r\n"
        % (BODY[:5], len(BODY) - 5, BODY[5:]),
    ],
)
def test_a_connection_is_used_again_after_a_whole_reply(raw: bytes):
    server = Server(raw)

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [await post(transport, url) for _ in range(3)]

    assert run(server, ask) == [{"choices": []}] * 3
    assert server.connections == 1


def test_replies_of_one_length_that_come_in_one_piece_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "adacompute.client.transport._MAX_FRAMING_BYTES", 4096
    )  # less than a reply, which is one piece
    server = Server(reply(b" " * 20_000 + BODY))

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [await post(transport, url) for _ in range(3)]

    assert run(server, ask) == [{"choices": []}] * 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
        reply(head=b"Connection: close\r\n"),
    ],
)
def test_it_is_not_where_the_reply_ends_with_the_connection(raw: bytes):
    server = Server(raw, closes=True)

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [await post(transport, url) for _ in range(2)]

    assert run(server, ask) == [{"choices": []}] * 2
    assert server.connections == 2


@pytest.mark.parametrize("cut", [10, 40, -1])
def test_a_reply_that_breaks_off_is_lost(cut: int):
    with pytest.raises(ConnectionLost, match="closed the connection") as caught:
        run(Server(reply()[:cut], closes=True), post)
    assert caught.value.paid


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_told_so(raw: bytes):
    with pytest.raises(ReplyInvalid, match="not HTTP") as caught:
        run(Server(raw), post)
    assert caught.value.paid


def test_a_second_reply_in_one_piece_is_nobody_s():
    server = Server(reply() + reply(b'{"choices": ["stolen"]}'), reply())

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [await post(transport, url) for _ in range(2)]

    assert run(server, ask) == [{"choices": []}] * 2
    assert server.connections == 2


@pytest.mark.parametrize("after", [reply(b'["stolen"]'), reply(b'["stolen"]')[:9], b"garbage"])
def test_what_comes_with_the_end_of_a_reply_is_nobody_s(after: bytes):
    head, body = reply()[: -len(BODY)], reply()[-len(BODY) :]
    connections, came = 0, asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await read_request(reader)
            if connections == 2:
                writer.write(reply())
                return
            writer.write(head)
            await came.wait()  # the head is read by itself, so the reply ends while more is being parsed
            writer.write(body + after)
            await read_request(reader)
            writer.write(reply(b'["stolen"]')[len(after) :])

    async def ask(transport: Transport, url: URL) -> list[Any]:
        opened = await open_reply(transport, "POST", url, headers={}, body=b"{}")
        came.set()
        return [await opened.read(), await post(transport, url)]

    assert run(handle, ask) == [BODY, {"choices": []}]
    assert connections == 2


def test_after_a_byte_that_nobody_asked_for_no_connection_is_kept_for_a_minute():
    now, writers = [1000.0], list[asyncio.StreamWriter]()
    both_asked, gone = asyncio.Event(), asyncio.Semaphore(0)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await read_request(reader)
                if len(writers) == 2:
                    both_asked.set()
                await both_asked.wait()
                writer.write(reply())
        gone.release()

    async def ask(transport: Transport, url: URL) -> list[int]:
        await asyncio.gather(post(transport, url), post(transport, url))
        writers[0].write(b"x")
        for _ in range(2):
            await gone.acquire()  # the other one is closed as well
        counts = []
        for later in (0.0, 59.0, 2.0):
            now[0] += later
            for _ in range(2):
                await post(transport, url)
            counts.append(len(writers))
        return counts

    assert run(handle, ask, clock=lambda: now[0]) == [4, 6, 7]


ENDLESS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "interim replies": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "chunk line": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a"),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nX: ", b"a"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n", b"X: y\r\n"),
}


async def score(transport: Transport, url: URL) -> None:
    async with Verifier(endpoint(str(url))) as verifier:
        outcome = await verifier.score([], "42", "42", prompt="6 times 7?")
    assert outcome.error is not None
    raise outcome.error


@pytest.mark.parametrize("ask", [post, score])
@pytest.mark.parametrize("name", ENDLESS)
def test_what_comes_without_end_beside_a_body_is_refused(name: str, ask: Callable[..., Awaitable[Any]]):
    start, more = ENDLESS[name]
    most, counts = 32 * 2**20, list[int]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await read_request(reader)
            writer.write(start)
            while sent < most:
                writer.write(more * (65_536 // len(more)))
                await writer.drain()
                sent += 65_536
        counts.append(sent)

    with pytest.raises(ReplyInvalid, match="not HTTP"):
        run(handle, ask)
    assert max(counts) < most


def test_lines_before_chunks_are_bounded_each_and_not_together():
    chunks = b"".join(b"1;%b\r\n%c\r\n" % (b"x" * 1000, byte) for byte in BODY * 20)
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    async def ask(transport: Transport, url: URL) -> bytes:
        opened = await open_reply(transport, "GET", url, headers={}, body=None)
        return b"".join([part async for part in aiter_parts(opened.read)])

    assert run(Server(raw), ask) == BODY * 20


async def aiter_parts(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    while part := await read():
        yield part


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    words += " -keyout key.pem -out cert.pem -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(words.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize(
    ("server_tls", "scheme", "said", "kind", "words"),
    [
        (True, "https", reply(), CertificateUntrusted, "self.signed.*--ca-file"),
        (False, "https", reply(), EndpointUnreachable, "TLS handshake failed.*is it http://"),
        (False, "http", b"\x15\x03\x01\x00\x02\x02\x46", ReplyInvalid, "is it https://"),  # an alert of TLS
    ],
)
def test_a_handshake_that_fails_says_why_and_what_to_do(
    certificate: ssl.SSLContext,
    server_tls: bool,
    scheme: str,
    said: bytes,
    kind: type[EndpointError],
    words: str,
):
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1000)
            writer.write(said)
            await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=certificate if server_tls else None)
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        transport = Transport(endpoint(url))
        try:
            await post(transport, URL(url))
        finally:
            await transport.close()
            server.close()

    with pytest.raises(kind, match=words) as caught:
        asyncio.run(ask())
    assert "permitted" not in str(caught.value)


def test_a_connection_that_the_server_closed_meanwhile_is_not_used():
    server = Server(reply(), closes=True)

    async def ask(transport: Transport, url: URL) -> None:
        await post(transport, url)
        await asyncio.sleep(0.05)  # the loop hears of the close
        await post(transport, url)

    run(server, ask)
    assert server.connections == 2


def test_a_connection_is_kept_for_some_seconds_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("adacompute.client.transport._KEEPALIVE_SECONDS", 0.1)
    server, gone = Server(reply()), asyncio.Semaphore(0)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server(reader, writer)
        gone.release()

    async def ask(transport: Transport, url: URL) -> None:
        for wait in (0.0, 0.3, 0.0):
            await asyncio.sleep(wait)
            await post(transport, url)
        await gone.acquire()
        await gone.acquire()

    run(handle, ask)
    assert server.connections == 2


def test_a_get_is_sent_again_where_the_kept_connection_was_being_closed():
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            await read_request(reader)
            writer.write(reply())
            if connections == 1:
                await reader.readuntil(b"\r\n\r\n")  # closed when the next request is here
            else:
                await reader.read()
        writer.close()

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [(await transport.exchange(url, make_timer(transport))).value for _ in range(2)]

    assert run(handle, ask) == [{"choices": []}] * 2
    assert connections == 2


def test_a_get_on_a_new_connection_is_not_sent_again():
    server = Server(b"", closes=True)

    async def ask(transport: Transport, url: URL) -> None:
        await transport.exchange(url, make_timer(transport))

    with pytest.raises(ConnectionLost):
        run(server, ask)
    assert len(server.requests) == 1


def test_a_post_is_not_since_it_may_have_been_paid_for():
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await read_request(reader)
            writer.write(reply())
            await read_request(reader)
        writer.close()

    async def ask(transport: Transport, url: URL) -> None:
        await post(transport, url)
        await post(transport, url)

    with pytest.raises(ConnectionLost) as caught:
        run(handle, ask)
    assert caught.value.paid


@pytest.mark.parametrize("sized", [True, False])
def test_a_body_that_comes_in_parts_is_sent_whole(sized: bool):
    server, parts = Server(reply()), [b"a" * 70_000, b"", b"b" * 3_000_000, b"c"]
    whole = b"".join(parts)

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
            await asyncio.sleep(0)

    async def ask(transport: Transport, url: URL) -> bytes:
        headers = {"content-type": "text/plain"} | ({"content-length": str(len(whole))} if sized else {})
        opened = await open_reply(transport, "POST", url, headers=headers, body=body())
        return await opened.read()

    assert run(server, ask) == BODY
    head, received = server.requests[0]
    assert received == whole
    assert (b"Transfer-Encoding: chunked" in head) is not sized


def test_a_reply_that_comes_before_the_body_is_sent_is_read_and_ends_the_connection():
    stopped, gone = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(b'{"error": "too large"}').replace(b"200 OK", b"413 Too Large"))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            while await reader.read(65_536):
                pass
        gone.set()

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            stopped.set()

    async def ask(transport: Transport, url: URL) -> tuple[int, bytes]:
        opened = await open_reply(transport, "POST", url, headers={"content-type": "text/plain"}, body=body())
        start = await opened.read_start()
        await stopped.wait()
        await gone.wait()
        return opened.status, start

    assert run(handle, ask) == (413, b'{"error": "too large"}')


def test_a_body_that_fails_fails_the_request():
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("the client is gone")

    async def ask(transport: Transport, url: URL) -> None:
        await open_reply(transport, "POST", url, headers={"content-type": "text/plain"}, body=body())

    with pytest.raises(EndpointError, match="the client is gone"):
        run(Server(reply()), ask)


def test_what_came_before_a_reply_broke_off_is_read_first():
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[DONE]\r\n")

    async def ask(transport: Transport, url: URL) -> None:
        opened = await open_reply(transport, "POST", url, headers={}, body=b"{}")
        await asyncio.sleep(0.2)  # meanwhile the connection is closed
        assert await opened.read() == b"[DONE]"
        with pytest.raises(ConnectionLost, match="closed the connection in the middle"):
            await opened.read()

    run(handle, ask)


def test_a_reply_that_nobody_reads_is_not_received_without_end():
    sent = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 50000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while sent < 50_000_000:
                writer.write(b"x" * 100_000)
                await writer.drain()
                sent += 100_000
        writer.close()

    async def ask(transport: Transport, url: URL) -> None:
        opened = await open_reply(transport, "POST", url, headers={}, body=b"{}")
        last = -1
        while last != sent:  # until nothing more can be sent
            last = sent
            await asyncio.sleep(0.2)
        assert sent < 50_000_000
        received = 0
        while part := await opened.read():
            received += len(part)
        assert received == 50_000_000

    run(handle, ask)


def test_a_reply_to_head_has_no_body_whatever_it_says():
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")

    async def ask(transport: Transport, url: URL) -> tuple[int, bytes]:
        opened = await open_reply(transport, "HEAD", url, headers={}, body=None)
        return opened.status, await opened.read()

    assert run(server, ask) == (200, b"")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> list[str]:
    """Has every name resolved to these ports of this machine; the names that are looked up."""
    names: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        names.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


def test_the_next_address_of_a_name_is_tried_where_one_refuses_or_is_silent(monkeypatch: pytest.MonkeyPatch):
    async def ask(transport: Transport, url: URL) -> Any:
        with socket.socket() as refuses, socket.socket() as silent:
            refuses.bind(("127.0.0.1", 0))
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            with socket.socket() as first, socket.socket() as second:
                for each in (first, second):
                    each.setblocking(False)
                    each.connect_ex(silent.getsockname())  # the backlog is full: no answer to the next
                ports = refuses.getsockname()[1], silent.getsockname()[1], url.port
                resolve_to(monkeypatch, *ports)
                return await post(transport, url)

    assert run(Server(reply()), ask, host="several.test") == {"choices": []}


def test_where_no_address_answers_the_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as refuses:
        refuses.bind(("127.0.0.1", 0))
        resolve_to(monkeypatch, *[refuses.getsockname()[1]] * 2)
        with pytest.raises(EndpointUnreachable, match="refused") as caught:
            run(Server(reply()), post, host="several.test")
    assert not caught.value.paid


def test_many_requests_at_once_share_one_lookup(monkeypatch: pytest.MonkeyPatch):
    async def ask(transport: Transport, url: URL) -> int:
        names = resolve_to(monkeypatch, url.port)
        await asyncio.gather(*(post(transport, url) for _ in range(20)))
        return len(names)

    assert run(Server(reply()), ask, host="one.test") == 1


def test_a_request_for_another_host_is_not_sent_to_this_one():
    server = Server(reply())

    async def ask(transport: Transport, _url: URL) -> None:
        await post(transport, URL("http://127.0.0.1:9/v1"))

    with pytest.raises(EndpointError, match="is not at"):
        run(server, ask)
    assert not server.requests


def test_a_reply_that_is_cancelled_ends_its_connection():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()
        gone.set()

    async def ask(transport: Transport, url: URL) -> None:
        task = asyncio.create_task(post(transport, url))
        await asked.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await gone.wait()

    run(handle, ask)


def test_closing_waits_for_nobody_and_ends_what_is_under_way():
    over, sent = asyncio.Event(), 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        await over.wait()  # the rest of its request is never read

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield b" " * 65_536
            sent += 1

    async def ask(transport: Transport, url: URL) -> None:
        opened = await open_reply(transport, "POST", url, headers={}, body=body())
        reading, last = asyncio.create_task(opened.read()), -1
        while last != sent:  # until nothing more can be sent
            last = sent
            await asyncio.sleep(0.2)
        await transport.close()
        with pytest.raises(EndpointError, match="closed"):
            await reading
        over.set()

    run(handle, ask)


def test_a_reply_whose_framing_breaks_after_it_has_begun_is_refused():
    begun = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n")
        await begun.wait()
        writer.write(b"zz\r\n")
        await reader.read()

    async def ask(transport: Transport, url: URL) -> None:
        opened = await open_reply(transport, "POST", url, headers={}, body=b"{}")
        assert await opened.read() == b"1"
        begun.set()
        with pytest.raises(ReplyInvalid, match="not HTTP"):
            await opened.read()

    run(handle, ask)


def test_a_reset_is_no_end_of_a_reply_that_ends_with_its_connection():
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1" + b"\0" * 7)

    with pytest.raises(ConnectionLost):
        run(handle, post)


def test_headers_after_a_body_belong_to_no_reply():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n%b\r\n" % (
        len(BODY),
        BODY,
        b"Content-Encoding: gzip\r\nRetry-After: 3600\r\n",
    )
    server = Server(chunked, reply())

    async def ask(transport: Transport, url: URL) -> list[Any]:
        return [await post(transport, url) for _ in range(2)]

    assert run(server, ask) == [{"choices": []}] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        reply().replace(b"\r\n", b"\n"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x \r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        reply(head=b"X: a\x01b\r\n"),
    ],
)
def test_what_some_servers_write_is_read(raw: bytes):
    assert run(Server(raw), post) == {"choices": []}


def test_what_ends_a_stream_may_be_anything_once_its_last_event_is_here():
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        event = b"data: [DONE]\n\n"
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0.05)
        writer.write(b"no chunk at all\r\n")
        await reader.read()

    async def ask(transport: Transport, url: URL) -> bytes:
        opened = await open_reply(transport, "POST", url, headers={}, body=b"{}")
        event = await opened.read()
        await opened.release()
        return event

    assert run(handle, ask) == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("host", "named"),
    [("example.test", "example.test"), ("stra\u00dfe.test", "xn--strae-oqa.test")],
)
def test_a_host_is_named_as_it_is_looked_up(host: str, named: str, monkeypatch: pytest.MonkeyPatch):
    server = Server(reply())

    async def ask(transport: Transport, url: URL) -> list[str]:
        names = resolve_to(monkeypatch, url.port)
        await post(transport, url)
        assert f"host: {named}:{url.port}\r\n".encode() in server.requests[0][0].lower()
        return names

    assert run(server, ask, host=host) == [named]


@pytest.mark.parametrize("head", [b"099 Odd", b"205 Reset Content", b"600 Odd"])
def test_a_reply_of_no_use_leaves_no_connection_open(head: bytes):
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 1000\r\n\r\nhalf" % head)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        closed.set()

    async def ask(transport: Transport, url: URL) -> None:
        with pytest.raises(ReplyInvalid, match=r"which is not a reply to this request|is not HTTP"):
            await post(transport, url)
        await closed.wait()

    run(answer, ask)
