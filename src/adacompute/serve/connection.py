"""One client's connection: uvicorn's, with limits on what a client may keep us waiting for.

Knows nothing of requests. uvicorn bounds what it buffers for a slow reader (64 KiB and one message), and not
for how long; nor how long or how large the head of a request may be.
"""

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES", "Connection"]

HEAD_BYTES = 65_536  # of a request's first line and headers
_RATE = 16 * 1024  # bytes a second of a body, at least: whoever is slower uses up the time that it has
_UNREAD = 16 * 2**20  # bytes of a refused body that are let pass, so that its client comes to read the reply
_REFUSAL = (
    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_ERROR = b'{"error":{"message":"%s","type":"invalid_request_error","param":null,"code":"invalid_request"}}'


class Connection(HttpToolsProtocol):
    """Ends, when swept, where the client has owed something for too long: the rest, or its reading."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **kwargs)
        self._head = False  # whether one is coming
        self._head_bytes = 0
        self._begun = 0  # requests, so far
        self._unread = 0  # bytes that came after the reply that refused them
        self._owes: float | None = None  # since when the client is to send something
        self._stuck: float | None = None  # since when it hasn't read what is waiting for it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._owes = time.monotonic()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle  # None before the first request
        idle, begun = not self._head and (cycle is None or not cycle.more_body), self._begun
        super().data_received(data)
        if not self._head:
            self._await_body(data)
            return
        if self._begun - begun == idle:  # else it begins somewhere in the data, after the rest of another
            self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"headers are above 64 KiB; send fewer")

    def _await_body(self, data: bytes) -> None:
        """A body has the time that its head has left, and gets some back by every byte, but never more.

        Where the reply is out before the body is here, the rest is dropped: some of it, for some time.
        """
        cycle: Any = self.cycle
        now = time.monotonic()
        since = now if self._owes is None else self._owes
        if cycle is None or not cycle.more_body:
            self._unread, self._owes = 0, None
        elif not cycle.response_complete:
            self._owes = min(now, since + len(data) / _RATE)
        else:
            self._owes = since
            self._unread += len(data)
            if self._unread > _UNREAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        self._head, self._head_bytes = True, 0
        self._begun += 1
        self._owes = time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = False
        cycle: Any = self.cycle
        if cycle is not None and cycle.scope["method"] == "POST" and not cycle.response_complete:
            # no client sends the next request before the reply; while it waits nothing is read, and that the
            # client goes away wouldn't be noticed
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.cycle.more_body = False  # uvicorn leaves it where the reply came first

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it never says more
        self._head = False
        self._refuse(b"400 Bad Request", b"this is no request of HTTP/1.1; is it https, sent to http?")

    def pause_writing(self) -> None:
        self._stuck = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        # closing would wait for ever for a client that doesn't read the rest
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def sweep(self, now: float, patience: float) -> None:
        """Ends it where the client has let us wait for longer than that; both in seconds."""
        if self._owes is not None and self.flow.read_paused:
            self._owes = now  # it can't send: we don't read, as a reply is under way
        since = [each for each in (self._owes, self._stuck) if each is not None]
        if since and now - min(since) > patience:
            self.transport.abort()

    def abort(self) -> None:
        """Ends it at once, whatever is still to be sent."""
        self.transport.abort()

    def _refuse(self, status: bytes, why: bytes) -> None:
        if self.transport.is_closing():
            return
        body = _ERROR % why
        self.transport.write(_REFUSAL % (status, len(body), body))
        self.transport.close()
