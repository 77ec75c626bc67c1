"""A client's connection: reads its requests, has the application answer them, and limits slow clients.

uvicorn's server runs it in place of uvicorn's own protocol, which makes two system calls for a reply, and
limits neither the time of a slow client nor the size of a request's head and trailers.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from adacompute.errors import EndpointError
from adacompute.serve.chat import DISCONNECT_KEY, HEADERS_KEY, read_headers

__all__ = ["MAX_HEAD_BYTES", "ClientConnection", "KnownHead"]

_log = logging.getLogger("adacompute.serve")

MAX_HEAD_BYTES = 65_536  # a request's first line and headers; also the headers after its body
_PARSER_STEP = 1024  # bytes parsed at once, so that a long line is noticed within one segment
_MAX_LINE_BYTES = 3 * _PARSER_STEP  # whole steps without an end of the line: every line above 4 KiB has them
_MAX_BUFFERED = 65_536  # bytes of a body that nobody has read, after which no more are received
_JOIN_BYTES = 65_536  # of a reply's part that is copied to be sent with the one before it
_MIN_BODY_RATE = 16 * 1024  # bytes a second of a body: a slower client uses up its time
_MAX_WAITING = 100  # requests that came before the reply to another
_MAX_DISCARDED = 16 * 2**20  # bytes of a refused body that are dropped, so that its client reads the reply
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # not allowed in a header: it could begin another one
_CONTROL_TEXT = re.compile(_CONTROL.pattern.decode("ascii"))
_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n"
    % (status, HTTPStatus(status).phrase.encode() if status in HTTPStatus._value2member_map_ else b"")
    for status in range(100, 600)
}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REFUSAL_TEMPLATE = (
    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_ERROR_TEMPLATE = (
    b'{"error":{"message":"%s","type":"invalid_request_error","param":null,"code":"invalid_request"}}'
)
_FAILURE = b'{"error":{"message":"the gateway failed; its log says why","type":"server_error"}}'
_ASGI_VERSION = {"version": "3.0", "spec_version": "2.3"}
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,10})\r\n", re.IGNORECASE)
_MAX_DIGITS = 10  # of a length
_MAX_HEADS = 4  # of one connection that are learned: a client whose heads always differ has no use for it
_UNUSUAL = {b"transfer-encoding", b"expect", b"upgrade"}  # headers that ask for more than a reply


class KnownHead:
    """The head of a connection's last request. Clients send the same again, but for the body's length.

    A request that begins with the same bytes needs no parser.
    """

    __slots__ = ("_after", "_before", "_length_index", "_scope")

    def __init__(self, scope: Scope, before: bytes, after: bytes, length_index: int) -> None:
        self._scope = scope
        self._before, self._after = before, after  # what stands before the length, and after it
        self._length_index = length_index  # of the length among the headers

    @classmethod
    def learn(cls, data: bytes, scope: Scope, body: bytes) -> "KnownHead | None":
        """The head of one whole request, which was parsed to these; None where it is no usual one."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        names = [name for name, _ in headers]
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end)
        if (
            length is None
            or names.count(b"content-length") != 1
            or not _UNUSUAL.isdisjoint(names)
            or scope["method"] != "POST"
            or data[end:] != body
        ):
            return None
        index = names.index(b"content-length")
        if headers[index][1] != length[1] or int(length[1]) != len(body):
            return None
        kept = {**scope, "headers": headers.copy(), HEADERS_KEY: read_headers(scope)}
        return cls(kept, data[: length.start(1)], data[length.end(1) : end], index)

    def match(self, data: bytes) -> tuple[Scope, bytes] | None:
        """The scope and the body of one whole request with this head; None: it is something else."""
        start = len(self._before)
        end = data.find(b"\r", start, start + _MAX_DIGITS + 1)
        digits, body_start = data[start:end], end + len(self._after)
        if (
            end < 0
            or not digits.isdigit()
            or len(data) - body_start != int(digits)
            or not data.startswith(self._before)
            or not data.startswith(self._after, end)
        ):
            return None
        scope = dict(self._scope)
        headers = scope["headers"] = scope["headers"].copy()
        headers[self._length_index] = (b"content-length", digits)
        scope[HEADERS_KEY] = {**scope[HEADERS_KEY], "content-length": digits.decode("ascii")}
        return scope, data[body_start:]


class Exchange:
    """One request of a connection, and its reply: ASGI's `send`, and its `receive`."""

    __slots__ = (
        *(
            "_buffered",
            "_chunked",
            "_connection",
            "_expects_continue",
            "_held",
            "_is_head",
            "_is_read",
            "_left",
        ),
        *("_parts", "_waiter", "is_disconnected", "is_done", "is_started", "keep_alive"),
        *("more_body", "scope"),
    )

    def __init__(
        self, connection: "ClientConnection", scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_body = True  # whether some of the request's body is still to come
        self.is_disconnected = False
        self.is_started = False  # whether the reply has begun
        self.is_done = False  # whether all of the reply was sent
        self._is_head = scope["method"] == "HEAD"
        self._chunked = False
        self._connection = connection
        self._expects_continue = expects_continue
        self._parts: list[bytes] = []  # of the body, which nobody has read
        self._buffered = 0
        self._is_read = False  # whether the end of the body was received
        self._waiter: asyncio.Future[None] | None = None
        self._held = b""  # the reply's head, to be sent with the first part of its body
        self._left = 0  # bytes of the reply's body that are still to be sent

    async def run(self, app: ASGIApp) -> None:
        """Has the application answer it."""
        try:
            await app(self.scope, self.receive, self)
            problem = "" if self.is_done or self.is_disconnected else "the application gave no whole reply"
        except EndpointError as exc:
            problem = str(exc)
        except BaseException as exc:  # noqa: BLE001 - a task that nobody waits for
            _log.error("a request failed unexpectedly", exc_info=exc)
            problem = "it failed"
        if not problem:
            return
        _log.error("a request was cut off: %s", problem)
        if self.is_started:
            self._connection.transport.close()
        else:
            self._connection.refuse(b"500 Internal Server Error", _FAILURE)

    async def receive(self) -> Message:
        """The next part of the body; the disconnect after its last."""
        connection = self._connection
        if self._expects_continue and not connection.transport.is_closing():
            self._expects_continue = False
            connection.transport.write(_CONTINUE)
        while not (self._is_over() or self._parts or not (self.more_body or self._is_read)):
            connection.resume_reading()
            self._waiter = connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._is_over():
            return {"type": "http.disconnect"}
        parts, self._parts, self._buffered = self._parts, [], 0
        self._is_read = not self.more_body
        connection.resume_reading()  # also after the last part: else nobody would hear of a disconnect
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _is_over(self) -> bool:
        return self.is_disconnected or self.is_done

    async def __call__(self, message: Message) -> None:
        """Sends the head of the reply, or the next part of its body."""
        if self._connection.is_write_paused and not self.is_disconnected:
            await self._connection.wait_writable()
        if self.is_disconnected:
            return
        if self.is_started:
            self._send_body(message)
        else:
            self._send_start(message)

    def send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Sends a whole reply, as two messages would; False: it has to be sent as messages."""
        connection = self._connection
        if connection.is_write_paused or self.is_disconnected or self.is_started or self._is_head:
            return False
        if _CONTROL_TEXT.search("".join([*headers, *headers.values()])):
            raise RuntimeError("a header of a reply has a control character")
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        lines.append(f"content-length: {len(body)}\r\n")
        lines.append("\r\n" if self.keep_alive else "connection: close\r\n\r\n")
        head = b"".join(
            (_STATUS_LINES[status], connection.get_default_lines(), "".join(lines).encode("latin-1"))
        )
        self._expects_continue, self.is_started, self.is_done = False, True, True
        if len(body) > _JOIN_BYTES:
            connection.transport.write(head)
            connection.transport.write(body)
        else:
            connection.transport.write(head + body)
        self.wake()
        connection.end_exchange(self)
        return True

    def add(self, part: bytes) -> bool:
        """A part of the body has arrived; whether there is room for more."""
        self._parts.append(part)
        self._buffered += len(part)
        self.wake()
        return self._buffered <= _MAX_BUFFERED

    def peek(self) -> bytes:
        """What has arrived of the body, and nobody has read."""
        return b"".join(self._parts)

    def wake(self) -> None:
        """Lets whoever waits for the next message look again."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _send_start(self, message: Message) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"a reply begins with its head, not with {message['type']!r}")
        status, headers = message["status"], message.get("headers", ())
        lines = [_STATUS_LINES[status], self._connection.get_default_lines()]
        self._expects_continue = False
        self._chunked = not self._is_head and status not in (204, 304)
        is_marked = False  # whether it says that the connection is closed
        for name, value in headers:
            if name == b"content-length":
                self._left, self._chunked = int(value), False
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive, is_marked = False, True
            lines += (name, b": ", value, b"\r\n")
        if _CONTROL.search(b"".join([part for pair in headers for part in pair])):
            raise RuntimeError("a header of a reply has a control character")
        self.is_started = True
        if not self.keep_alive and not is_marked:
            lines.append(b"connection: close\r\n")
        lines.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        self._held = b"".join(lines)
        self._connection.loop.call_soon(self._flush)

    def _send_body(self, message: Message) -> None:
        if self.is_done:
            raise RuntimeError(f"{message['type']!r} is sent after the end of the reply")
        if message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']!r} is sent in the middle of a reply")
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if self._is_head:
            body, self._left = b"", 0
        elif self._chunked:
            end = b"0\r\n\r\n" if is_last else b""
            body = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        else:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                problem = "longer" if self._left < 0 else "shorter"
                raise RuntimeError(f"a reply's body is {problem} than its head says: {abs(self._left)} bytes")
        if len(body) > _JOIN_BYTES or not self._held:
            self._flush()
            self._connection.transport.write(body)
        else:
            body, self._held = self._held + body, b""
            self._connection.transport.write(body)
        if is_last:
            self.is_done = True
            self.wake()
            self._connection.end_exchange(self)

    def _flush(self) -> None:
        """Sends a head that no body was sent with in the same round of the event loop."""
        if self._held:
            held, self._held = self._held, b""
            self._connection.transport.write(held)


class ClientConnection(asyncio.Protocol):
    """One client's connection, with limits on how long the client may keep the gateway waiting.

    `sweep` aborts connections whose client is too slow, and closes those that are idle for too long.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn's
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.on_lost: Callable[[], None] | None = None  # called when it is closed
        self.is_write_paused = False  # whether the client has to read first
        self._app = cast("ASGIApp", config.loaded_app)
        self._keep_alive_seconds = config.timeout_keep_alive
        self._server_state = server_state
        self._parser = self._make_parser()
        self._known_head: KnownHead | None = None
        self._heads_learned = 0
        self._exchange: Exchange | None = None  # the one whose request came last
        self._running: Exchange | None = None  # the one that is answered, or was last
        self._waiting: deque[Exchange] = deque()  # requests that came before the reply to another
        self._server: tuple[str, int] | None = None
        self._client: tuple[str, int] | None = None
        self._scheme = "http"
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._is_reading_paused = False
        self._writable = asyncio.Event()
        self._default_lines: tuple[object, bytes] = (None, b"")
        self._in_head = False  # whether the head of a request is being received
        self._in_chunk = False  # whether a chunk is, or the trailers that follow the line of the last one
        self._is_chunked = False  # whether the request's body comes in chunks
        self._unended_bytes = 0  # received since the last end of a head or chunk line, or part of a body
        self._requests_begun = 0  # requests so far
        self._discarded = 0  # bytes that came after the reply
        self._idle_since: float | None = None  # since when the last reply is sent
        self._waiting_since: float | None = None  # since when the client should send something
        self._unread_since: float | None = None  # since when it hasn't read what is buffered
        self._on_disconnect: Callable[[], None] | None = None  # of the request in progress

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server_state.connections.add(cast("Any", self))
        self._server = _get_address(transport, "sockname")
        self._client = _get_address(transport, "peername")
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._waiting_since = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(cast("Any", self))
        self._known_head = None  # it holds this connection
        if self._running is not None and not self._running.is_done:
            self._running.is_disconnected = True
            self._running.wake()
        self.resume_writing()
        if exc is None:
            self.transport.close()
        if self._on_disconnect is not None:
            self._on_disconnect()
        if self.on_lost is not None:
            self.on_lost()

    def eof_received(self) -> None:
        """The client sends no more: the connection is closed."""

    def notify_disconnect(self, call: Callable[[], None] | None) -> None:
        """Has a function called when the client disconnects, or soon if it has; None: none any more."""
        self._on_disconnect = call
        if call is not None and self._running is not None and self._running.is_disconnected:
            self.loop.call_soon(call)

    def get_default_lines(self) -> bytes:
        """The headers that every reply has, such as its date, as lines."""
        headers = self._server_state.default_headers
        if self._default_lines[0] is not headers:  # uvicorn makes others every second
            self._default_lines = headers, b"".join(b"%b: %b\r\n" % pair for pair in headers)
        return self._default_lines[1]

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        idle, begun_before = (
            not self._in_head and (exchange is None or not exchange.more_body),
            self._requests_begun,
        )
        known = self._known_head
        if known is not None and idle and (exchange is None or exchange.is_done):
            match = known.match(data)
            if match is not None and not self.transport.is_closing():
                self._begin_known(*match)
                return
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._in_head = False
            message = b"this is not an HTTP/1.1 request; was https sent to http?"
            self.refuse(b"400 Bad Request", _ERROR_TEMPLATE % message)
        if not self._in_head:
            self._track_body(len(data))
            if idle and self._requests_begun == begun_before + 1:
                self._learn_head(data)

    def _learn_head(self, data: bytes) -> None:
        """Remembers the head of the request that came with `data`, unless the connection is new."""
        exchange = self._exchange
        if self._requests_begun < 2 or self._heads_learned == _MAX_HEADS or exchange is None:
            return
        if exchange is not self._running or not exchange.keep_alive or exchange.more_body:
            return
        known = KnownHead.learn(data, exchange.scope, exchange.peek())
        if known is not None:
            self._heads_learned += 1
            self._known_head = known

    def _begin_known(self, scope: Scope, body: bytes) -> None:
        """A whole request has arrived, whose head is known."""
        self._requests_begun += 1
        self._idle_since, self._waiting_since, self._discarded = None, None, 0
        exchange = self._exchange = Exchange(self, scope, keep_alive=True, expects_continue=False)
        exchange.more_body = False
        if body and not exchange.add(body):
            self._pause_reading()
        self._start(exchange)

    def _parse(self, data: bytes) -> None:
        """Parses what came in steps, because any of it may be a head, a chunk's line or a trailer."""
        for start in range(0, len(data), _PARSER_STEP):
            piece = data[start : start + _PARSER_STEP]
            self._unended_bytes += len(piece)
            self._parse_piece(piece)
            if self._is_too_long():
                return

    def _parse_piece(self, piece: bytes) -> None:
        """Who offers another protocol, as Java's client does, is answered in this one."""
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as exc:
            lines = [b"%b %b HTTP/1.1\r\n" % (self._parser.get_method(), self._url)]
            kept = [pair for pair in self._headers if pair[0] not in (b"upgrade", b"connection")]
            lines += [b"%b: %b\r\n" % pair for pair in kept]
            self._parser = self._make_parser()
            self._parser.feed_data(b"".join([*lines, b"\r\n", piece[exc.args[0] :]]))

    def _is_too_long(self) -> bool:
        """Refuses a head, trailers or a chunk's line above the limits."""
        in_headers, size = self._in_head or self._in_chunk, self._unended_bytes
        if in_headers and size > MAX_HEAD_BYTES:
            message = b"headers are above 64 KiB; send fewer"
            self.refuse(b"431 Request Header Fields Too Large", _ERROR_TEMPLATE % message)
        elif self._is_chunked and not in_headers and size >= _MAX_LINE_BYTES:
            message = b"the line before a chunk is above 4 KiB; leave its extensions out"
            self.refuse(b"400 Bad Request", _ERROR_TEMPLATE % message)
        return self.transport.is_closing()

    def _make_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows is dropped
        return parser

    def _track_body(self, size: int) -> None:
        """A body has the time that its head has left, and gets some back for every byte, but never more.

        If the reply is sent before the body is here, the rest is discarded: up to a size, for some time.
        """
        exchange = self._exchange
        if exchange is None:
            return  # line breaks before a first request begin nothing
        if not exchange.more_body:
            self._discarded, self._waiting_since = 0, None
            return
        now = time.monotonic()
        since = now if self._waiting_since is None else self._waiting_since
        if not exchange.is_done:
            self._waiting_since = min(now, since + size / _MIN_BODY_RATE)
        else:
            self._waiting_since = since
            self._discarded += size
            if self._discarded > _MAX_DISCARDED:
                self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._is_chunked = True, False
        self._requests_begun += 1
        self._idle_since, self._waiting_since = None, time.monotonic()
        self._url, self._headers, self._expects_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """A part of a request's address has arrived."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has arrived. Headers after a body are dropped: a proxy hasn't looked at them."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ValueError("another coding of a body, which servers read differently")
            self._is_chunked = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of a request has arrived."""
        if self._parser.should_upgrade():
            return  # it is parsed again
        if self.transport.is_closing():
            return
        self._in_head, self._unended_bytes = False, 0
        before = self._exchange
        if before is not None and not before.is_done and before.scope["method"] == "POST":
            # no client sends the next request before the reply; while it waits nothing is read, so a
            # disconnect wouldn't be noticed
            self.transport.abort()
            return
        parser = self._parser
        raw_path, _, query = self._url.partition(b"?")
        if not raw_path.startswith(b"/") or b"#" in self._url:  # as for a proxy, or with what no server sees
            address = httptools.parse_url(self._url)
            raw_path, query = address.path or b"/", address.query or b""
        path, version = raw_path.decode("ascii"), parser.get_http_version()
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI_VERSION,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "root_path": "",
            "headers": self._headers,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            DISCONNECT_KEY: self.notify_disconnect,
        }
        exchange = self._exchange = Exchange(
            self,
            scope,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )
        if before is None or before.is_done:
            self._start(exchange)
        else:
            self._pause_reading()
            self._waiting.append(exchange)
            if len(self._waiting) > _MAX_WAITING:
                self.transport.abort()

    def _start(self, exchange: Exchange) -> None:
        self._running, tasks = exchange, self._server_state.tasks
        task = self.loop.create_task(exchange.run(self._app))
        task.add_done_callback(tasks.discard)
        tasks.add(task)

    def on_chunk_header(self) -> None:
        """The line before a chunk has arrived; trailers follow the last one."""
        self._in_chunk, self._unended_bytes = True, 0

    def on_chunk_complete(self) -> None:
        """A chunk has arrived, or the trailers."""
        self._in_chunk, self._unended_bytes = False, 0

    def on_body(self, part: bytes) -> None:
        """A part of a request's body has arrived."""
        self._unended_bytes = 0
        exchange = self._exchange
        if exchange is not None and not exchange.is_done and not exchange.add(part):
            self._pause_reading()

    def on_message_complete(self) -> None:
        """All of a request has arrived."""
        self._is_chunked, self._unended_bytes = False, 0
        exchange = self._exchange
        if exchange is not None and not self._in_head:
            exchange.more_body = False
            exchange.wake()

    def end_exchange(self, exchange: Exchange) -> None:
        """All of a reply was sent: the next request may come."""
        self._server_state.total_requests += 1
        if not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._idle_since = time.monotonic()
        self.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Receives again, where it was paused, unless requests wait that came before others were answered."""
        if self._is_reading_paused and not self._waiting:
            self._is_reading_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        self.is_write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._unread_since = None
        self.is_write_paused = False
        self._writable.set()

    async def wait_writable(self) -> None:
        """Waits until the client has read enough."""
        await self._writable.wait()

    def sweep(self, now: float, patience: float) -> None:
        """Aborts it if the client has kept us waiting for longer than `patience`; both in seconds."""
        if self._waiting_since is not None and self._is_reading_paused:
            self._waiting_since = now  # it can't send: reading is paused while a reply is in progress
        since = [start for start in (self._waiting_since, self._unread_since) if start is not None]
        if since and now - min(since) > patience:
            self.transport.abort()
        elif self._idle_since is not None and now - self._idle_since > self._keep_alive_seconds:
            self._close_idle()

    def _close_idle(self) -> None:
        # closing would wait forever for a client that doesn't read the rest
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Closes it once the reply in progress is sent."""
        if self._running is None or self._running.is_done:
            self.transport.close()
        else:
            self._running.keep_alive = False

    def abort(self) -> None:
        """Closes it at once, whatever is still to be sent."""
        self.transport.abort()

    def refuse(self, status: bytes, body: bytes) -> None:
        """Sends an error, unless a reply has begun, and closes the connection."""
        if self.transport.is_closing():
            return
        running = self._running
        if running is None or running.is_done or not running.is_started:
            self.transport.write(_REFUSAL_TEMPLATE % (status, len(body), body))
        self.transport.close()


def _get_address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    """Host and port of one end of a connection; None where it has none, as a socket of Unix."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, list | tuple) else None
