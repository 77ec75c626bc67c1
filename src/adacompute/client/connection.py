"""HTTP/1.1 connections to one endpoint, which are kept open between requests.

A `ConnectionPool` opens connections, and keeps those that are free. A `Connection` has at most one request at
a time, whose `HttpResponse` is read as it arrives. Nothing here retries, follows redirects or knows of JSON.
"""

import asyncio
import contextlib
import functools
import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterable, Callable
from ipaddress import ip_address
from typing import Any

import httptools
from yarl import URL

__all__ = ["ConnectFailed", "ConnectTimeout", "ConnectionPool", "HttpResponse", "NotHttp"]

_KEEPALIVE_SECONDS = 4.0  # many servers close after 5; a request that meets the close may have been paid for
_ADDRESS_SECONDS = 10.0  # that the addresses of a name are kept
_NEXT_ADDRESS_SECONDS = 0.25  # after which the next address of a name is tried, too
_MAX_HEAD_BYTES = 65_536  # of a reply's first line and headers, and of the trailers after its body
_MAX_LINE_BYTES = 4096  # of the line before a chunk; also what is parsed at once, so that a limit is noticed
_DISTRUST_SECONDS = 60.0  # without kept connections, after a byte that nobody asked for
# what OpenSSL calls a reply that isn't TLS, by its version
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_TLS_ALERT = b"\x15\x03"  # that a server of TLS begins its answer to plain HTTP with
_MAX_BUFFERED = 131_072  # bytes of a reply that nobody has read, after which no more are received
_WRITE_BYTES = 1_048_576  # of a request that are written at once: copying more would hold up others

_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


class ConnectFailed(OSError):
    """No connection could be made."""


class ConnectTimeout(Exception):
    """No connection was made in time."""


class NotHttp(Exception):
    """What came is no reply of HTTP/1.1."""


class HttpResponse:
    """The reply to one request, which is read as it arrives. Read it to its end, or close it."""

    __slots__ = (
        "_connection",
        "_error",
        "_parts",
        "_size",
        "_waiter",
        "headers",
        "is_ended",
        "status",
        "url",
    )

    headers: dict[str, str]  # names in lower case; repeated ones are joined by a comma

    def __init__(self, url: URL, connection: "Connection") -> None:
        self.url = url
        self.status = 0  # 0: its head hasn't arrived
        self.is_ended = False  # whether all of it has arrived
        self._connection = connection
        self._parts: list[bytes] = []  # of its body, which nobody has read
        self._size = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_length(self) -> int | None:
        """Bytes of its body, where it says so."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def ends_with_connection(self) -> bool:
        """Whether its body has no other end."""
        if not self.status or "content-length" in self.headers:
            return False
        return "chunked" not in self.headers.get("transfer-encoding", "").lower()

    async def wait_head(self) -> None:
        """Waits for status and headers."""
        while not self.status:
            await self._begin_wait()

    async def read(self) -> bytes:
        """All of its body that wasn't read."""
        if self.is_ended:
            return self._take()
        parts = []
        while part := await self.read_some():
            parts.append(part)
        return b"".join(parts)

    async def read_some(self) -> bytes:
        """What has arrived since, at least one byte; b"" at the end.

        A read that is cancelled loses nothing.
        """
        while not self._parts:
            if self.is_ended:
                return b""
            await self._begin_wait()
        return self._take()

    def close(self) -> None:
        """Closes the connection, unless all has arrived."""
        if not self.is_ended:
            self._connection.abort(ConnectionAbortedError("the reply was closed"))

    def start(self, status: int, headers: dict[str, str]) -> None:
        """Its head has arrived."""
        self.status, self.headers = status, headers
        self._wake()

    def add(self, part: bytes) -> bool:
        """A part of its body has arrived; whether there is room for more."""
        self._parts.append(part)
        self._size += len(part)
        self._wake()
        return self._size <= _MAX_BUFFERED

    def end(self) -> None:
        """All of it has arrived."""
        self.is_ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """No more of it arrives."""
        self._error = error
        self._wake()

    def _take(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if parts:
            parts.clear()
            self._size = 0
            if not self.is_ended:
                self._connection.resume_reading()
        return data

    def _begin_wait(self) -> "asyncio.Future[None]":
        """Is done when more has arrived, or nothing more will."""
        if self._error is not None:
            raise self._error
        self._waiter = self._connection.loop.create_future()
        return self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Connection(asyncio.Protocol):
    """One connection, which the pool hands out to a request at a time."""

    __slots__ = (
        "_body_task",
        "_framing_bytes",
        "_framing_limit",
        "_headers",
        "_in_head",
        "_is_complete",
        "_is_interim",
        "_is_paused",
        "_is_reusable",
        "_parser",
        "_pool",
        "_response",
        "_transport",
        "_without_body",
        "_writable",
        "idle_since",
        "loop",
        "was_used",
    )

    _transport: asyncio.Transport

    def __init__(self, pool: "ConnectionPool", loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.was_used = False  # whether it had a request before
        self.idle_since = 0.0
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # with what some servers write; no request can be hidden in it
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._response: HttpResponse | None = None  # to the request that it has
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = True  # whether headers are those of a reply's head
        self._framing_bytes = 0  # of a head, a chunk's line or trailers, of which the end hasn't arrived
        self._framing_limit = _MAX_HEAD_BYTES
        self._without_body = False  # whether the reply has none whatever it says, as to HEAD
        self._is_interim = False  # whether a reply is parsed that comes before the reply itself
        self._is_complete = False  # whether all of the reply was parsed
        self._is_reusable = False  # whether another request may be sent after it
        self._is_paused = False  # whether nothing is received
        self._writable = asyncio.Event()
        self._writable.set()
        self._body_task: asyncio.Task[None] | None = None  # sends a long body

    @property
    def is_open(self) -> bool:
        """Whether it can take a request."""
        return not self._transport.is_closing()

    @property
    def has_unread(self) -> bool:
        """Whether something has arrived that the loop hasn't read yet: of an idle connection, nobody's."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def begin(self, method: str, url: URL) -> HttpResponse:
        """The response to a request that is sent next."""
        self._response = response = HttpResponse(url, self)
        self._without_body = method == "HEAD"
        self._framing_bytes, self._framing_limit = 0, _MAX_HEAD_BYTES
        return response

    def send(self, data: bytes) -> None:
        """Sends a request that is short."""
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)

    def send_parts(self, head: bytes, parts: AsyncIterable[bytes], *, chunked: bool) -> None:
        """Sends a request whose body comes in parts; its reply may come before the last of them."""
        self.send(head)
        self._body_task = self.loop.create_task(self._send_body(parts, chunked=chunked))

    async def _send_body(self, parts: AsyncIterable[bytes], *, chunked: bool) -> None:
        try:
            async for part in parts:
                for start in range(0, len(part), _WRITE_BYTES):
                    piece = part[start : start + _WRITE_BYTES]
                    self.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    await self._writable.wait()
            if chunked:
                self.send(b"0\r\n\r\n")
        except Exception as exc:  # noqa: BLE001 - whatever it is, the request isn't complete
            why = str(exc) or type(exc).__name__
            self.abort(ConnectionAbortedError(f"its body could not be sent: {why}"))

    def resume_reading(self) -> None:
        """Receives again, where it was paused."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self, error: Exception) -> None:
        """Closes it at once; `error` is what the request in progress fails with."""
        response, self._response = self._response, None
        self._stop_sending()
        self._transport.abort()
        if response is not None:
            response.fail(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._pool.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        response, self._response = self._response, None
        self._stop_sending()
        if response is None:
            return
        if exc is None and response.ends_with_connection:
            response.end()
        else:
            where = "in the middle of its reply" if response.status else "before its reply"
            response.fail(exc or ConnectionResetError(f"it closed the connection {where}"))

    def data_received(self, data: bytes) -> None:
        if self._response is None:  # nobody asked for this
            self._transport.abort()
            self._pool.distrust()
            return
        try:
            for start in range(0, len(data), _MAX_LINE_BYTES):
                self._feed(data[start : start + _MAX_LINE_BYTES])
        except httptools.HttpParserUpgrade:
            self.abort(NotHttp("it changes to another protocol"))
        except (httptools.HttpParserError, NotHttp) as exc:
            if not self._is_complete:
                is_tls = not self._response.status and data.startswith(_TLS_ALERT)
                self.abort(
                    NotHttp("it is TLS; is it https://?" if is_tls else str(exc) or type(exc).__name__)
                )
                return
            self._pool.distrust()  # what comes after the reply is nobody's
        if self._is_complete:
            self._release()

    def _feed(self, piece: bytes) -> None:
        self._framing_bytes += len(piece)
        self._parser.feed_data(piece)  # sets it back where a head or a chunk's line ends, or a body goes on
        if self._framing_bytes > self._framing_limit:
            raise NotHttp(f"more than {self._framing_limit // 1024} KiB of headers, or before a chunk")

    def on_message_begin(self) -> None:
        """A reply begins; one after the one that was asked for makes the connection useless."""
        self._headers, self._in_head = [], True
        if self._is_complete:
            self._pool.distrust()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has arrived. Those after a body are dropped."""
        if self._in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of a reply has arrived."""
        raw, self._headers, self._in_head = self._headers, [], False
        status, response = self._parser.get_status_code(), self._response
        if status < 100:
            raise NotHttp(f"its status is {status}")
        self._is_interim = status < 200
        if self._is_interim or response is None or self._is_complete:
            return
        self._framing_bytes, self._framing_limit = 0, _MAX_LINE_BYTES
        headers: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "surrogateescape")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        response.start(status, headers)
        if self._without_body:
            self._is_complete, self._is_reusable = True, False

    def on_chunk_header(self) -> None:
        """The line before a chunk has arrived; after that of the last one, which is empty, trailers may."""
        self._framing_bytes, self._framing_limit = 0, _MAX_HEAD_BYTES

    def on_body(self, part: bytes) -> None:
        """A part of a reply's body has arrived."""
        self._framing_bytes, self._framing_limit = 0, _MAX_LINE_BYTES
        response = self._response
        if response is None or self._is_interim or self._is_complete:
            return
        if not response.add(part) and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """All of a reply has arrived."""
        if not self._is_interim and not self._is_complete:
            self._is_complete, status = True, self._parser.get_status_code()
            is_usual = status < 600 and status != 304  # a body may follow, though there is none
            self._is_reusable = self._parser.should_keep_alive() and is_usual

    def _release(self) -> None:
        """The request is done: the next one may come, if the reply and the request are complete."""
        response, self._response = self._response, None
        self._is_complete = False
        is_sent = self._body_task is None or self._body_task.done()
        if self._is_reusable and is_sent and not self._transport.is_closing():
            self._body_task, self.was_used = None, True
            self.resume_reading()
            self._pool.keep(self)
        else:
            self._stop_sending()
            if is_sent:
                self._transport.close()
            else:
                self._transport.abort()  # closing would wait until the rest of the request is sent
        if response is not None:
            response.end()

    def _stop_sending(self) -> None:
        if self._body_task is not None and self._body_task is not asyncio.current_task(self.loop):
            self._body_task.cancel()
        self._body_task = None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class ConnectionPool:
    """The connections to one host."""

    def __init__(
        self, url: URL, *, connect_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if url.host is None or url.raw_host is None or url.port is None:
            raise ValueError(f"{url} names no host")
        self._host = url.host if ":" in url.host else url.raw_host  # of IPv6, with its zone
        self._port = url.port
        self._tls = _make_tls_context() if url.scheme == "https" else None
        self._connect_seconds = connect_seconds
        self._idle: list[Connection] = []  # the one that was used last is the last
        self._open: set[Connection] = set()
        self._is_closed = False
        self._clock = clock
        self._distrusted_until = -math.inf  # no connection is kept before that time
        self._sweep: asyncio.TimerHandle | None = None  # closes those that are idle for too long
        self._addresses: list[_Address] = []
        self._resolved_at = 0.0
        self._lookup: asyncio.Task[list[_Address]] | None = None  # that is under way

    def take_idle(self) -> Connection | None:
        """A connection that is free, if there is one."""
        self._check_open()
        idle = self._idle
        while idle:
            connection = idle.pop()
            is_fresh = connection.loop.time() - connection.idle_since < _KEEPALIVE_SECONDS
            if connection.is_open and is_fresh and not connection.has_unread:
                return connection
            connection.abort(
                ConnectionAbortedError("idle for too long, or it has sent what nobody asked for")
            )
        return None

    async def connect(self) -> Connection:
        """A new connection; ConnectFailed or ConnectTimeout where it can't be made."""
        self._check_open()
        loop = asyncio.get_running_loop()
        connection = Connection(self, loop)
        try:
            async with asyncio.timeout(self._connect_seconds):
                sock = await _connect_first(loop, await self._resolve(loop))
                await loop.create_connection(  # which closes the socket where it fails
                    lambda: connection,
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=None if self._tls is None else self._host.rstrip("."),
                )
        except asyncio.CancelledError as exc:
            self._drop(connection, exc)
            raise
        except TimeoutError as exc:
            self._drop(connection, exc)
            raise ConnectTimeout("no connection was made in time") from exc
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, UnicodeError) as exc:
            self._addresses = []
            raise ConnectFailed(f"{self._host}:{self._port}: {_explain(exc)}") from exc
        try:
            self._check_open()  # it may have been closed meanwhile
        except ConnectFailed as exc:
            self._drop(connection, exc)
            raise
        if not connection.is_open:
            raise ConnectFailed(f"{self._host}:{self._port}: the connection was closed at once")
        return connection

    def add(self, connection: Connection) -> None:
        """A connection is open."""
        self._open.add(connection)

    def _drop(self, connection: Connection, error: BaseException) -> None:
        """Closes a connection that nobody waits for any more, if it was made."""
        if connection in self._open:
            connection.abort(ConnectionAbortedError(str(error)))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectFailed("the client is closed")

    def keep(self, connection: Connection) -> None:
        """Keeps a connection for the next request."""
        if self._is_closed or self._clock() < self._distrusted_until:
            connection.abort(ConnectionAbortedError("connections aren't kept"))
            return
        connection.idle_since = connection.loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = connection.loop.call_later(_KEEPALIVE_SECONDS, self._close_idle)

    def distrust(self) -> None:
        """Closes what is kept, and keeps nothing for a while: a reply may be waiting in each for nobody."""
        self._distrusted_until = self._clock() + _DISTRUST_SECONDS
        for connection in self._idle:
            connection.abort(ConnectionAbortedError("the server sends what nobody asked for"))
        self._idle.clear()

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    async def close(self) -> None:
        """Closes all connections."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._lookup is not None:
            self._lookup.cancel()
        for connection in list(self._open):
            connection.abort(ConnectionAbortedError("the client is closed"))
        await asyncio.sleep(0)  # lets them end

    def _close_idle(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        since = loop.time() - _KEEPALIVE_SECONDS
        for connection in [connection for connection in self._idle if connection.idle_since <= since]:
            self._idle.remove(connection)
            connection.abort(ConnectionAbortedError("idle for too long"))
        if self._idle:
            due = self._idle[0].idle_since + _KEEPALIVE_SECONDS
            self._sweep = loop.call_at(max(due, loop.time() + 0.1), self._close_idle)

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> list[_Address]:
        """The addresses of the host, another one first each time; one lookup serves all who wait for it."""
        if not self._addresses or loop.time() - self._resolved_at > _ADDRESS_SECONDS:
            if self._lookup is None:
                self._lookup = loop.create_task(resolve(self._host, self._port))
                self._lookup.add_done_callback(self._on_resolved)
            await asyncio.shield(self._lookup)
        addresses = self._addresses
        self._addresses = _rotate(addresses)
        return addresses

    def _on_resolved(self, lookup: "asyncio.Task[list[_Address]]") -> None:
        self._lookup = None
        if not lookup.cancelled() and lookup.exception() is None:
            self._addresses, self._resolved_at = lookup.result(), lookup.get_loop().time()


def _rotate(addresses: list[_Address]) -> list[_Address]:
    """The same with another address of each family first."""
    families = dict.fromkeys(family for family, _ in addresses)
    members = [[address for address in addresses if address[0] == family] for family in families]
    return [address for same in members for address in (*same[1:], same[0])]


@functools.cache
def _make_tls_context() -> ssl.SSLContext:
    """What certificates are checked with; reading the system's takes a while, so it is made once."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _explain(exc: Exception) -> str:
    """Why no connection could be made; the event loops word the same error differently."""
    if isinstance(exc, ssl.SSLError):  # its errno is none of the system's
        remedy = "; is it http://?" if exc.reason in _PLAIN_REASONS else ""
        return f"the TLS handshake failed: {(exc.reason or str(exc)).lower().replace('_', ' ')}{remedy}"
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0:
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__


async def _connect_first(loop: asyncio.AbstractEventLoop, addresses: list[_Address]) -> socket.socket:
    """A socket that is connected to the first address that answers; they are tried a little apart."""
    if len(addresses) == 1:
        return await _connect_socket(loop, addresses[0])
    attempts: list[asyncio.Task[socket.socket]] = []
    try:
        waiting = set[asyncio.Task[socket.socket]]()
        for address in addresses:
            attempts.append(loop.create_task(_connect_socket(loop, address)))
            is_last = len(attempts) == len(addresses)
            waiting = {task for task in attempts if not task.done()}
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=None if is_last else _NEXT_ADDRESS_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    if task.exception() is None:
                        attempts.remove(task)
                        return task.result()
                if not is_last:
                    break
        error = attempts[0].exception()
        assert error is not None
        raise error
    finally:
        for task in attempts:
            task.add_done_callback(_close_unused)
            task.cancel()


def _close_unused(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect_socket(loop: asyncio.AbstractEventLoop, address: _Address) -> socket.socket:
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address[1])
    except BaseException:
        sock.close()
        raise
    return sock


async def resolve(host: str, port: int) -> list[_Address]:
    """The addresses of a host; OSError or UnicodeError where there are none.

    The system's resolver runs in a thread that nobody waits for: the event loop's own threads are joined when
    it ends, so one lookup without an answer would hold the process for as long as the system tries.
    """
    with contextlib.suppress(ValueError):
        family = socket.AF_INET6 if ip_address(host.partition("%")[0]).version == 6 else socket.AF_INET
        if family == socket.AF_INET or "%" not in host:  # a zone has to be looked up
            return [(family, (host, port))]
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[_Address]] = loop.create_future()

    def look_up() -> None:
        addresses: list[_Address] = []
        error: Exception | None = None
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            addresses = [(family, _keep_zone(address)) for family, _, _, _, address in infos]
        except Exception as exc:  # noqa: BLE001 - raised where it is waited for
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_set_result, future, addresses, error)

    threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
    return await future


def _keep_zone(address: Any) -> Any:  # noqa: ANN401 - of the family
    """An address with its zone in its name, where one of IPv6 has one: uvloop looks at the name only."""
    if len(address) < 4 or not address[3]:
        return address
    host = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    return (host, *address[1:])


def _set_result(
    future: "asyncio.Future[list[_Address]]", addresses: list[_Address], error: Exception | None
) -> None:
    if future.done():  # the wait was cancelled
        return
    if error is None:
        future.set_result(addresses)
    else:
        future.set_exception(error)
