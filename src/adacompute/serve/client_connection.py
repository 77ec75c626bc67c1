"""A client's connection: uvicorn's, which sends a reply as one, and limits slow clients."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from adacompute.serve.chat import DISCONNECT_KEY

__all__ = ["MAX_HEAD_BYTES", "ClientConnection"]

MAX_HEAD_BYTES = 65_536  # of a request's first line and headers
_JOIN_BYTES = 65_536  # of a reply's part that is copied to be sent with the one before it
_MIN_BODY_RATE = 16 * 1024  # bytes a second of a body: a slower client uses up its time
_MAX_DISCARDED = 16 * 2**20  # bytes of a refused body that are dropped, so that its client reads the reply
_REFUSAL_TEMPLATE = (
    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_ERROR_TEMPLATE = (
    b'{"error":{"message":"%s","type":"invalid_request_error","param":null,"code":"invalid_request"}}'
)


class ReplyWriter:
    """Sends what a reply writes in one round of the event loop as one: its head and its body.

    uvicorn writes them one after the other: a system call each, and the client wakes up twice.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Sends data with what is written next, or at the end of this round."""
        if not self._held:
            self._held = data
            self._loop.call_soon(self.flush)
        elif len(data) > _JOIN_BYTES:
            self.flush()
            self._transport.write(data)
        else:
            data, self._held = self._held + data, b""
            self._transport.write(data)

    def flush(self) -> None:
        """Sends what is held back."""
        if self._held:
            data, self._held = self._held, b""
            self._transport.write(data)

    def close(self) -> None:
        """Closes the connection once all is sent."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._transport.is_closing()


class ClientConnection(HttpToolsProtocol):
    """One client's connection: uvicorn's, with limits on how long a client may keep the gateway waiting.

    uvicorn limits what it buffers for a slow reader (64 KiB and one message), but not for how long;
    nor how long or how large the head of a request may be. `sweep` aborts connections whose client is
    too slow.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], None] | None = None  # called when it is closed
        self._in_head = False  # whether the head of a request is being received
        self._head_bytes = 0
        self._requests_begun = 0  # requests so far
        self._discarded = 0  # bytes that came after the reply
        self._waiting_since: float | None = None  # since when the client should send something
        self._unread_since: float | None = None  # since when it hasn't read what is buffered
        self._on_disconnect: Callable[[], None] | None = None  # of the request in progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_since = time.monotonic()
        self._writer = ReplyWriter(transport, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._on_disconnect is not None:
            self._on_disconnect()
        if self.on_lost is not None:
            self.on_lost()

    def notify_disconnect(self, call: Callable[[], None] | None) -> None:
        """Has a function called when the client disconnects, or soon if it has; None: none any more."""
        self._on_disconnect = call
        if call is not None and self.cycle.disconnected:
            self.loop.call_soon(call)

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle  # None before the first request
        idle, begun_before = (
            not self._in_head and (cycle is None or not cycle.more_body),
            self._requests_begun,
        )
        super().data_received(data)
        if not self._in_head:
            self._track_body(data)
            return
        if self._requests_begun - begun_before == idle:  # else it begins after the rest of another request
            self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"headers are above 64 KiB; send fewer")

    def _track_body(self, data: bytes) -> None:
        """A body has the time that its head has left, and gets some back for every byte, but never more.

        If the reply is sent before the body is here, the rest is discarded: up to a size, for some time.
        """
        cycle: Any = self.cycle
        now = time.monotonic()
        since = now if self._waiting_since is None else self._waiting_since
        if cycle is None or not cycle.more_body:
            self._discarded, self._waiting_since = 0, None
        elif not cycle.response_complete:
            self._waiting_since = min(now, since + len(data) / _MIN_BODY_RATE)
        else:
            self._waiting_since = since
            self._discarded += len(data)
            if self._discarded > _MAX_DISCARDED:
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._requests_begun += 1
        self._waiting_since = time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        cycle: Any = self.cycle
        if cycle is not None and cycle.scope["method"] == "POST" and not cycle.response_complete:
            # no client sends the next request before the reply; while it waits nothing is read, so a
            # disconnect wouldn't be noticed
            self.transport.abort()
            return
        super().on_headers_complete()
        if self.cycle is not cycle:
            self.cycle.transport = self._writer  # type: ignore[assignment]
            self.cycle.scope[DISCONNECT_KEY] = self.notify_disconnect  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.cycle.more_body = False  # uvicorn leaves it True if the reply came first

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - always the same
        self._in_head = False
        self._refuse(b"400 Bad Request", b"this is not an HTTP/1.1 request; was https sent to http?")

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        # closing would wait forever for a client that doesn't read the rest
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def sweep(self, now: float, patience: float) -> None:
        """Aborts it if the client has kept us waiting for longer than `patience`; both in seconds."""
        if self._waiting_since is not None and self.flow.read_paused:
            self._waiting_since = now  # it can't send: reading is paused while a reply is in progress
        since = [start for start in (self._waiting_since, self._unread_since) if start is not None]
        if since and now - min(since) > patience:
            self.transport.abort()

    def abort(self) -> None:
        """Closes it at once, whatever is still to be sent."""
        self.transport.abort()

    def _refuse(self, status: bytes, message: bytes) -> None:
        if self.transport.is_closing():
            return
        body = _ERROR_TEMPLATE % message
        self.transport.write(_REFUSAL_TEMPLATE % (status, len(body), body))
        self.transport.close()
