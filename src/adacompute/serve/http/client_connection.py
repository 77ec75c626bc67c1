"""A client's connection: uvicorn's protocol, with limits on slow clients and on everything around a body.

uvicorn limits neither a client's time nor the size of headers, trailers and chunk lines.
"""

import asyncio
import time
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

MAX_HEAD_BYTES = 65_536  # a request's first line and headers; also its trailers
_PARSER_STEP = 1024  # bytes parsed at a time, so that a long line is noticed within one segment
_MAX_LINE_BYTES = 3 * _PARSER_STEP  # parse steps without a line end: any line above 4 KiB has that many
_MIN_BODY_RATE = 16 * 1024  # bytes per second of a body: a slower client uses up its time
_MAX_WAITING = 100  # requests queued behind another one's reply
_MAX_DISCARDED = 16 * 2**20  # bytes of a refused body that are discarded, so that the client reads the reply
_REFUSAL_TEMPLATE = (
    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_ERROR_TEMPLATE = (
    b'{"error":{"message":"%s","type":"invalid_request_error","param":null,"code":"invalid_request"}}'
)


class ClientConnection(HttpToolsProtocol):
    """A client's connection that limits how long the client can keep the gateway waiting.

    `sweep` aborts connections with slow clients; uvicorn closes idle ones.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._gateway = cast("ASGIApp", self.app)
        self.app = cast("ASGI3Application", self._answer)
        self._running: RequestResponseCycle | None = None  # the current request, or the latest
        self._in_head = False  # whether headers are being received
        self._in_chunk = False  # whether a chunk, or the trailers, are being received
        self._is_chunked = False  # whether the body is chunked
        self._unended_bytes = 0  # bytes since the last end of headers or a chunk line, or part of a body
        self._discarded = 0  # bytes after the reply
        self._waiting_since: float | None = time.monotonic()  # when the client was last expected to send
        self._unread_since: float | None = None  # when it stopped reading buffered data

    def connection_lost(self, exc: Exception | None) -> None:
        """Also notifies the current request if others are queued: uvicorn notifies the last one."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves the timer after a reset
        del self.app  # it references this object
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(b"400 Bad Request", b"this is not an HTTP/1.1 request; was https sent to http?")
        if self._running is not None and not self._in_head:
            self._track_body(len(data))

    def _parse(self, data: bytes) -> None:
        """Parses data in steps, because any part may be headers, a chunk line or a trailer."""
        for start in range(0, len(data), _PARSER_STEP):
            piece = data[start : start + _PARSER_STEP]
            self._unended_bytes += len(piece)
            self._parse_piece(piece)
            self._check_lengths()
            if self.transport.is_closing():
                return

    def _parse_piece(self, piece: bytes) -> None:
        """Answers in this protocol if the client offers another one, as Java's does."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as exc:
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # like uvicorn
            self.parser.feed_data(b"".join([*lines, b"\r\n", piece[exc.args[0] :]]))

    def _check_lengths(self) -> None:
        """Refuses headers, trailers or a chunk line above the limits."""
        in_headers, size = self._in_head or self._in_chunk, self._unended_bytes
        if in_headers and size > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"headers are above 64 KiB; send fewer")
        elif self._is_chunked and not in_headers and size >= _MAX_LINE_BYTES:
            message = b"the line before a chunk is above 4 KiB; leave its extensions out"
            self._refuse(b"400 Bad Request", message)

    def _track_body(self, size: int) -> None:
        """A body gets the time left by its headers, plus some for every byte, up to the maximum.

        If the reply is sent before the body has arrived, the rest is discarded within limits of size and
        time.
        """
        if self._waiting_since is None:
            return
        if not self.cycle.response_complete:
            self._waiting_since = min(time.monotonic(), self._waiting_since + size / _MIN_BODY_RATE)
            return
        self._discarded += size
        if self._discarded > _MAX_DISCARDED:
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins. Line breaks before it don't count: an idle connection stays idle."""
        self._unset_keepalive_if_required()
        self._in_head, self._is_chunked, self._discarded = True, False, 0
        self._waiting_since = time.monotonic()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Stores a header. Trailers are dropped: proxies don't check them."""
        if not self._in_head:
            return
        if name.lower() == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ValueError("another coding of a body, which servers read differently")
            self._is_chunked = True
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handles a request's complete headers; if they offer another protocol, they are parsed again."""
        if self.parser.should_upgrade() or self.transport.is_closing():
            return
        is_idle = self._running is None or self.cycle.response_complete
        if not is_idle and self.cycle.scope["method"] == "POST":
            # No client sends the next request before the reply; while one waits nothing is read, so a
            # disconnect would go unnoticed.
            self.transport.abort()
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._refuse(b"400 Bad Request", b"HTTP/1.1 has one Host header; send it, and once")
            return
        self._in_head, self._unended_bytes = False, 0
        super().on_headers_complete()
        if is_idle:
            self._running = self.cycle
        if len(self.pipeline) > _MAX_WAITING:
            self.transport.abort()

    def on_chunk_header(self) -> None:
        """Handles a chunk line; trailers follow the last one."""
        self._in_chunk, self._unended_bytes = True, 0

    def on_chunk_complete(self) -> None:
        """Handles the end of a chunk or of the trailers."""
        self._in_chunk, self._unended_bytes = False, 0

    def on_body(self, body: bytes) -> None:
        """Handles part of a request's body."""
        self._unended_bytes = 0
        if not self._in_head:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Handles the end of a request, unless its headers are parsed again."""
        self._is_chunked, self._unended_bytes = False, 0
        if not self._in_head:
            self._waiting_since = None
            super().on_message_complete()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Closes the connection if a reply breaks off: the gateway has logged the reason.

        Also closes it if a body was refused before it was sent, because the client may still send it.
        """
        cycle = self._running

        async def send_refusal(message: Message) -> None:
            if cycle is not None and cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        try:
            expects = cycle is not None and cycle.waiting_for_100_continue
            await self._gateway(scope, receive, send_refusal if expects else send)
        except Exception:
            if cycle is None or not cycle.response_started:
                raise
            cycle.disconnected = True
            self.transport.close()

    def on_response_complete(self) -> None:
        """Handles the end of a reply. While several requests are queued, no more are read."""
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def sweep(self, now: float, patience: float) -> None:
        """Aborts the connection if the client has kept us waiting longer than `patience`; both in seconds."""
        if self._waiting_since is not None and self.flow.read_paused:
            self._waiting_since = now  # it can't send, because reading is paused during a reply
        if self.transport.is_closing() and self._unread_since is None:
            self._unread_since = now  # the rest doesn't fill a buffer, but isn't read
        since = [start for start in (self._waiting_since, self._unread_since) if start is not None]
        if since and now - min(since) > patience:
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection; a graceful close would wait forever for a client that doesn't read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _refuse(self, status: bytes, message: bytes) -> None:
        """Sends an error unless a reply has begun, and closes the connection."""
        if self.transport.is_closing():
            return
        running, body = self._running, _ERROR_TEMPLATE % message
        if running is None or running.response_complete or not running.response_started:
            self.transport.write(_REFUSAL_TEMPLATE % (status, len(body), body))
        self.transport.close()
