"""One request over HTTP: sent, read within limits, and foreign errors mapped to ours. Never retries.

The only file that imports aiohttp. It is loaded when a client is opened, because loading aiohttp takes
a tenth of a second.
"""

import asyncio
import contextlib
import functools
import math
import re
import socket
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from adacompute.client.error_object import pick_error_headers
from adacompute.client.large_json import ANY_REPLY, MAX_INLINE, ReplyLimits, run_in_thread
from adacompute.client.rate_limit import LoopShare
from adacompute.client.response_parser import (
    SPENDING_STOPPED,
    CertificateUntrusted,
    HttpReply,
    one_line,
    read_json,
    redact,
)
from adacompute.client.settings import Endpoint
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointTimeout,
    EndpointUnreachable,
    ReplyInvalid,
    SendingStopped,
)

__all__ = ["AttemptTimer", "RawReply", "ReplyStream", "Transport", "parse_retry_after"]

_Addresses = list[ResolveResult]
_WRITE_BYTES = 1_048_576  # of a request that are written at once
_SHORT_BYTES = 65_536  # of a request that is written without waiting for room, by aiohttp too
_MAX_CONNECTIONS_TRIED = 16  # for one request
_MAX_ERROR_BODY = 64 * 2**10  # bytes read of a reply that is not a success
_KEEPALIVE_SECONDS = 4.0  # many servers close after 5; a request that meets the close may have been paid for
_STREAM_END_SECONDS = 0.1  # time for a stream to end after its last event; else its connection is closed
_ENCODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")  # that are named in messages
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # not allowed in a header: it could begin another one
_EVENT_HEADERS = {"Accept": "text/event-stream, application/json"}


class AttemptTimer:
    """The deadlines of one request, and how far it has come; readable also after it was cancelled.

    An async context manager that raises TimeoutError, like `asyncio.timeout`, but with a single timer:
    when it fires it checks whether time is left by now, because setting a new timer for each step costs
    more. A reply that is read in pieces enters it again for each piece, since the task does other work
    in between.
    """

    __slots__ = (
        "_cancel_count",
        "_ends",
        "_first_byte",
        "_loop",
        "_may_send",
        "_task",
        "_timer",
        "caller_deadline_first",
        "expired",
        "headers",
        "refused",
        "sent",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        until: float,
        loop: asyncio.AbstractEventLoop,
        may_send: Callable[[], bool] | None = None,
    ) -> None:
        own_deadline = loop.time() + endpoint.timeouts.total
        self._loop = loop
        self._timer: asyncio.TimerHandle
        self._ends = min(own_deadline, until)
        self._first_byte = endpoint.timeouts.first_byte
        # the caller's deadline comes before our own timeout
        self.caller_deadline_first = until < own_deadline
        self.sent: float | None = None  # when it was sent: the endpoint may work on it since then
        self.headers = False
        self.expired = False
        self.refused = False  # it was connected, but might not be sent any more
        self._may_send = may_send

    def check_permission(self) -> None:
        """SendingStopped where the request may not be sent: connecting may have taken a while."""
        if self._may_send is not None and not self._may_send():
            self.refused = True
            raise SendingStopped(SPENDING_STOPPED)

    def mark_sent(self) -> None:
        """The connection is made and the request goes out: the time to the first byte begins."""
        self.sent = self._loop.time()
        due = min(self._ends, self.sent + self._first_byte)
        if self._timer.when() > due:  # it fired while connecting, and was set to the end
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._check_deadline)

    def mark_answering(self) -> None:
        """The headers have arrived; for a stream, its first event."""
        self.headers = True

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancel_count = 0 if self._task is None else self._task.cancelling()
        since = self._loop.time() if self.sent is None else self.sent
        due = self._ends if self.headers else min(self._ends, since + self._first_byte)
        self._timer = self._loop.call_at(due, self._check_deadline)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self.expired and self._task is not None:
            only_ours = self._task.uncancel() <= self._cancel_count  # else others cancelled it too
            if only_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _check_deadline(self) -> None:
        waiting = self.sent is not None and not self.headers
        first = (self.sent or 0.0) + self._first_byte
        due = min(self._ends, first) if waiting else self._ends
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_deadline)
        elif self._task is not None:
            self.expired = True
            self.caller_deadline_first = self.caller_deadline_first and due == self._ends
            self._task.cancel()


class _Body(aiohttp.payload.Payload):
    """The bytes of a request, which report when they are sent, and don't warn of their size."""

    _value: bytes

    def __init__(self, value: bytes, attempt_timer: AttemptTimer) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._attempt_timer = attempt_timer

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:  # noqa: ARG002 - aiohttp's
        return self._value

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._attempt_timer.check_permission()  # aiohttp sends the headers with the body, so nothing is out
        self._attempt_timer.mark_sent()
        if len(self._value) <= _WRITE_BYTES:
            await writer.write(self._value)
            return
        parts = memoryview(self._value)
        for start in range(0, len(parts), _WRITE_BYTES):  # copying megabytes at once would hold up others
            await writer.write(parts[start : start + _WRITE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002 - aiohttp's
        await self.write(writer)


class _Target(aiohttp.ClientRequest):
    """A request that is never sent: it says what to connect to, for all that are posted."""

    @functools.cached_property
    def connection_key(self) -> ConnectionKey:  # aiohttp computes it each time
        return super().connection_key


class Transport:
    """The connections to one endpoint: one long-lived session, redirects and cookies off."""

    def __init__(self, endpoint: Endpoint, *, agent: str, share: LoopShare | None = None) -> None:
        self.share = share or LoopShare()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": agent}
        if endpoint.key is not None:
            headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        self._endpoint = endpoint
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=endpoint.timeouts.connect, ceil_threshold=math.inf
        )
        self._connector = aiohttp.TCPConnector(  # the rate limiter limits connections; here none waits
            limit=0,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            timeout_ceil_threshold=math.inf,
            resolver=Resolver(),
        )
        self._target = _Target("POST", URL(endpoint.chat))
        self._post_headers = CIMultiDict(
            {"Host": self._target.headers["Host"], **headers, "Content-Type": "application/json"}
        )
        self._last_head: tuple[URL, bytes] | None = None  # of a request without headers of its own
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=self._timeout,
            headers=headers,
            auto_decompress=False,  # none is asked for; a few bytes could become gigabytes
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()

    def make_timer(self, until: float, may_send: Callable[[], bool] | None = None) -> AttemptTimer:
        """The deadlines of one request: the timeouts of the settings, and `until`.

        `may_send` is asked when it is connected, right before it is sent.
        """
        return AttemptTimer(self._endpoint, until, asyncio.get_running_loop(), may_send)

    async def exchange(
        self,
        url: URL,
        timer: AttemptTimer,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limits: ReplyLimits = ANY_REPLY,
    ) -> HttpReply:
        """Posts JSON, or makes a free GET request; any status is a reply, everything else one of our errors.

        `headers` are sent besides the session's own.

        The error has no cause and no frames below this one, because they hold the headers that were
        sent, with the key in them. What the foreign error said is in its message.
        """
        try:
            return await self._send_and_parse(url, timer, data, headers, limits)
        except Exception as exc:  # noqa: BLE001 - whatever a server sends may break one call only
            error = self.strip_error(exc, url, timer)
        raise error

    async def open_stream(
        self,
        url: URL,
        timer: AttemptTimer,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        limits: ReplyLimits = ANY_REPLY,
    ) -> "ReplyStream | HttpReply":
        """Posts JSON, and returns a success as a stream to read; errors as above."""
        try:
            async with timer:
                response = await self._post(
                    url, timer, data, {**headers, **_EVENT_HEADERS} if headers else _EVENT_HEADERS
                )
                if response.status == 200:
                    _check_encoding(response)
                    return ReplyStream(self, url, timer, response, limits)
                return self._parse_reply(response, await _read_body(response, limits.size), limits)
        except Exception as exc:  # noqa: BLE001 - as above
            error = self.strip_error(exc, url, timer)
        raise error

    async def open_reply(
        self,
        method: str,
        url: URL,
        timer: AttemptTimer,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> "RawReply":
        """Sends any request, and returns the reply to read, whatever its status; errors as above.

        A body that comes in pieces counts as sent after its last one. A reply that is compressed, which
        wasn't asked for, is refused unread.
        """
        try:
            async with timer:
                if method == "POST" and isinstance(body, bytes) and "content-type" in headers:
                    response = await self._post(url, timer, body, headers)
                else:
                    response = await self._request(method, url, timer, headers, body)
            timer.mark_answering()
            _check_encoding(response)
            return RawReply(self, url, timer, response)
        except Exception as exc:  # noqa: BLE001 - as above
            error = self.strip_error(exc, url, timer)
        raise error

    async def _send_and_parse(
        self,
        url: URL,
        timer: AttemptTimer,
        data: bytes | None,
        headers: Mapping[str, str] | None,
        limits: ReplyLimits,
    ) -> HttpReply:
        async with timer:
            response: Response
            if data is None:
                timer.mark_sent()
                response = await self._session.get(url, allow_redirects=False, headers=headers)
            else:
                response = await self._post(url, timer, data, headers)
            timer.mark_answering()
            raw = await _read_body(response, limits.size)
        if len(raw) > MAX_INLINE:
            return await run_in_thread(self._parse_reply, response, raw, limits)
        await self.share.take_turn()
        return self._parse_reply(response, raw, limits)

    async def _request(
        self,
        method: str,
        url: URL,
        timer: AttemptTimer,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientResponse:
        data: _Body | AsyncIterator[bytes] | None = None
        if body is None:
            timer.mark_sent()
        else:
            data = _Body(body, timer) if isinstance(body, bytes) else _report_end(body, timer)
        return await self._session.request(
            method,
            url,
            data=data,
            headers=headers,
            skip_auto_headers=() if "content-type" in headers else ("Content-Type",),
            allow_redirects=False,
            auto_decompress=False,
        )

    async def _post(
        self, url: URL, timer: AttemptTimer, data: bytes, headers: Mapping[str, str] | None
    ) -> "Response":
        """Posts a body, JSON unless the headers say otherwise, and waits for the head of the reply.

        A short one, as nearly all are, takes a connection of aiohttp's and writes to it here: aiohttp's own
        session makes some 120 calls, four objects and a task for each request, 100 of 145 microseconds.
        """
        if len(data) > _SHORT_BYTES:
            return await self._session.post(
                url, data=_Body(data, timer), allow_redirects=False, headers=headers
            )
        head = self._build_head(url, headers)
        try:
            connection = await self._connect()
        except TimeoutError as exc:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {url}") from exc
        return await PostResponse(url, connection).start(head, data, timer)

    async def _connect(self) -> aiohttp.connector.Connection:
        """A connection with nothing on it: what came unasked would be taken for the next request's reply."""
        if self._session.closed:
            raise RuntimeError("Session is closed")
        for _ in range(_MAX_CONNECTIONS_TRIED):
            connection = await self._connector.connect(self._target, traces=[], timeout=self._timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ClientConnectionError("it sends replies that nobody asked for")

    def _build_head(self, url: URL, headers: Mapping[str, str] | None) -> bytes:
        """The first lines of a request that is posted, but for its length."""
        if not headers and self._last_head is not None and self._last_head[0] is url:
            return self._last_head[1]
        merged = self._post_headers.copy()
        merged.update(headers or {})
        lines = [f"POST {url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in merged.items())]
        if any(map(_CONTROL.search, lines)):
            raise ValueError("a header has a control character")
        head = "\r\n".join([*lines, "Content-Length: "]).encode()
        if not headers:
            self._last_head = url, head
        return head

    def _parse_reply(
        self, response: "Response", raw: bytes | bytearray, limits: ReplyLimits = ANY_REPLY
    ) -> HttpReply:
        status, key = response.status, self._endpoint.key
        try:
            only = limits.signals_only and status == 200
            value, _ = read_json(raw, key, max_marks=limits.marks, signals_only=only)
        except ValueError as exc:
            if status == 200:
                kind = one_line(response.headers.get("Content-Type", "no content type"), key)
                raise ReplyInvalid(  # noqa: B904 - the cause holds the body, and is dropped in `exchange`
                    f"{response.url}: answered 200 with {len(raw)} bytes of {kind} that are no JSON "
                    f"({one_line(str(exc), key)}); is this an OpenAI-compatible endpoint?",
                    status=200,
                    paid=True,
                )
            decoded = raw.decode("utf-8", "replace").replace("\0", "")  # UTF-16 would hide a key
            value = redact(decoded, key)
        if status == 200:
            return HttpReply(status, value, size=len(raw))
        if 300 <= status < 400:
            value = "it is a redirect to " + redact(response.headers.get("Location", "nowhere"), key)
        retry_after = parse_retry_after(response.headers, now=time.time())
        return HttpReply(status, value, retry_after, pick_error_headers(response.headers, key))

    def strip_error(self, exc: Exception, url: URL, timer: AttemptTimer) -> EndpointError:
        """One of our errors for what a request failed by, without causes and frames, which hold the key."""
        error = (
            exc if isinstance(exc, EndpointError) and not timer.refused else self._map_error(exc, url, timer)
        )
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)

    def _map_error(self, exc: Exception, url: URL, timer: AttemptTimer) -> EndpointError:
        """The one place where foreign errors become ours."""
        why = one_line(str(exc) or type(exc).__name__, self._endpoint.key).replace(" ssl:default", "")
        if timer.refused:
            return SendingStopped(f"{url}: {SPENDING_STOPPED}")
        if isinstance(exc, aiohttp.ClientResponseError):
            return ReplyInvalid(f"{url}: answered what is no HTTP ({why}); check the address", paid=True)
        if timer.expired or isinstance(exc, aiohttp.ServerTimeoutError):
            return self._build_timeout(url, timer)
        if isinstance(exc, aiohttp.ClientConnectorCertificateError):
            return CertificateUntrusted(f"{url}: its certificate can't be trusted ({why}); check the address")
        if timer.sent is None or isinstance(exc, aiohttp.ClientConnectorError):
            return EndpointUnreachable(
                f"{url}: can't be reached ({why}); is it running, and the address right?"
            )
        if isinstance(exc, aiohttp.ClientError | OSError):
            return ConnectionLost(
                f"{url}: broke off after the request was sent ({why}); try again", paid=True
            )
        return ReplyInvalid(
            f"{url}: answered what can't be read ({type(exc).__name__}: {why}); try again", paid=True
        )

    def _build_timeout(self, url: URL, timer: AttemptTimer) -> EndpointTimeout:
        timeouts = self._endpoint.timeouts
        if timer.expired and timer.caller_deadline_first:
            reason = "gave no answer until the deadline of the call; give more time"
        elif timer.sent is None or not timer.expired:
            reason = f"took more than {timeouts.connect:.3g} s to connect; is it reachable from here?"
        elif not timer.headers:
            reason = (
                f"gave no first byte within {timeouts.first_byte:.3g} s; raise the timeout if it is only slow"
            )
        else:
            reason = f"took more than {timeouts.total:.3g} s in all; raise the timeout if it is only slow"
        return EndpointTimeout(f"{url}: {reason}", paid=timer.expired and timer.sent is not None)


class PostResponse:
    """The reply to a request that `Transport._post` sends: what is used here of aiohttp's own class."""

    __slots__ = ("_connection", "content", "headers", "status", "url")

    status: int
    headers: CIMultiDictProxy[str]
    content: aiohttp.StreamReader

    def __init__(self, url: URL, connection: aiohttp.connector.Connection) -> None:
        self.url = url
        self._connection = connection

    async def start(self, head: bytes, data: bytes, timer: AttemptTimer) -> "PostResponse":
        """Sends the request, if it still may be sent, and reads the head of the reply."""
        connection, protocol = self._connection, self._connection.protocol
        try:
            timer.check_permission()
            timer.mark_sent()
            if protocol is None or protocol.transport is None:
                raise aiohttp.ClientConnectionResetError("the connection is closed")
            protocol.set_response_params(read_until_eof=True, auto_decompress=False)
            protocol.transport.write(b"%b%d\r\n\r\n%b" % (head, len(data), data))
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:  # the reply itself is yet to come
                message, content = await protocol.read()
        except HttpProcessingError as exc:
            connection.close()
            info = aiohttp.RequestInfo(self.url, "POST", CIMultiDictProxy(CIMultiDict()), self.url)
            raise aiohttp.ClientResponseError(info, (), status=exc.code, message=exc.message) from exc
        except BaseException:
            connection.close()
            raise
        self.status, self.headers, self.content = message.code, message.headers, content
        content.on_eof(connection.release)
        return self

    @property
    def content_length(self) -> int | None:
        """Bytes of its body, where it says so."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

    async def read(self) -> bytes:
        """All of its body."""
        content = self.content
        return content.read_nowait() if content.is_eof() else await content.read()

    def close(self) -> None:
        """Closes the connection, unless all was read."""
        self._stop_reading()
        self._connection.close()

    def release(self) -> None:
        """Keeps the connection for the next request, if all was read; else closes it."""
        self._stop_reading()
        self._connection.release()

    def _stop_reading(self) -> None:
        if not self.content.is_eof() and self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))


Response = aiohttp.ClientResponse | PostResponse


class ReplyStream:
    """A reply that is read as it arrives. Only `close` and `release` end it."""

    __slots__ = ("_response", "_timer", "_transport", "_url", "limits", "size")

    has_limit = True

    def __init__(
        self,
        transport: Transport,
        url: URL,
        timer: AttemptTimer,
        response: Response,
        limits: ReplyLimits = ANY_REPLY,
    ) -> None:
        self._transport, self._url, self._timer, self._response = transport, url, timer, response
        self.limits = limits
        self.size = 0  # bytes read

    @property
    def declares_events(self) -> bool:
        """Whether its content type says that it is a stream of events."""
        return "event-stream" in self._response.headers.get("Content-Type", "").lower()

    async def read(self) -> bytes:
        """What has arrived since, at least one byte; b"" at the end.

        A read that is cancelled loses nothing.
        """
        try:
            async with self._timer:
                chunk = await self._response.content.readany()
            self.size += len(chunk)
            if self.size > self.limits.size and self.has_limit:
                raise _build_too_large_error(self._response, self.limits.size)
            return chunk
        except Exception as exc:  # noqa: BLE001 - as in `exchange`
            error = self._transport.strip_error(exc, self._url, self._timer)
        raise error

    def parse_reply(self, raw: bytes | bytearray) -> HttpReply:
        """Everything that was read, as one reply; ReplyInvalid where it is no JSON."""
        return self._transport._parse_reply(self._response, raw, self.limits)

    def close(self) -> None:
        """Closes the connection at once where the reply hasn't ended."""
        self._response.close()

    async def release(self) -> None:
        """Keeps the connection for the next request if the reply ends now; else closes it."""
        try:
            async with asyncio.timeout(_STREAM_END_SECONDS):
                while not self._response.content.at_eof():
                    await self._response.content.readany()
        except (aiohttp.ClientError, OSError):  # everything that matters has arrived
            pass
        finally:
            self._response.release()


class RawReply(ReplyStream):
    """A reply of any status and any size, which is passed on as it arrives."""

    __slots__ = ()

    has_limit = False

    @property
    def status(self) -> int:
        """Its status."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._response.headers

    async def read_start(self) -> bytes:
        """All of it, or the beginning of a long one; the connection of a long one is closed."""
        parts, size = [], 0
        while size <= _MAX_ERROR_BODY and (chunk := await self.read()):
            parts.append(chunk)
            size += len(chunk)
        if size > _MAX_ERROR_BODY:
            self.close()
        return b"".join(parts)[:_MAX_ERROR_BODY]


async def _report_end(parts: AsyncIterable[bytes], timer: AttemptTimer) -> AsyncIterator[bytes]:
    """The parts of a body, which report when all of them are sent."""
    async for part in parts:
        yield part
    timer.mark_sent()


def _check_encoding(response: Response) -> None:
    """ReplyInvalid, and nothing is read, where the body is compressed though "identity" was asked for."""
    encoding = _find_encoding(response)
    if encoding:
        response.close()
        raise ReplyInvalid(
            f"{response.url}: answered with a body in {encoding}, though none was asked for; turn its "
            "compression off",
            status=response.status,
            paid=True,
        )


def _find_encoding(response: Response) -> str:
    """The body's encoding, as a few known names or "an unknown encoding"; "": it is as it is."""
    if "Content-Encoding" not in response.headers:
        return ""
    names = ",".join(response.headers.getall("Content-Encoding")).lower().split(",")
    encodings = [name.strip() for name in names if name.strip() not in ("", "identity")]
    if not encodings:
        return ""
    return encodings[0] if encodings[0] in _ENCODINGS else "an unknown encoding"


async def _read_body(response: Response, limit: int) -> bytes | bytearray:
    """The body, within limits: all of a success or an error, and the beginning of anything else."""
    success = response.status == 200
    if success:
        _check_encoding(response)
    elif encoding := _find_encoding(response):  # the status says enough, and is kept
        response.close()
        return f"(a message in {encoding}, which wasn't asked for)".encode()
    max_size = limit if success else _MAX_ERROR_BODY
    try:
        length = response.content_length
        if length is not None and length <= min(max_size, MAX_INLINE):
            return await response.read()
        return await _read_parts(response, max_size)
    except BaseException:
        response.close()
        raise


async def _read_parts(response: Response, max_size: int) -> bytearray:
    """The body of a reply that doesn't say its length, or is too long: only an error may be cut off."""
    raw = bytearray()  # to join the parts of many megabytes at the end would hold up others
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > max_size:
            response.close()
            if response.status != 200:
                break
            raise _build_too_large_error(response, max_size)
    return raw


def _build_too_large_error(response: Response, limit: int) -> ReplyInvalid:
    return ReplyInvalid(
        f"{response.url}: answered with more than {limit // 2**20} MiB; ask for less at once",
        status=response.status,
        paid=True,
    )


def parse_retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds that the reply asks to wait, by number or by date; None where it names none that is readable.

    >>> parse_retry_after({"Retry-After": "2.5"}, now=0.0)
    2.5
    >>> parse_retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=50.0)
    10.0
    """
    exact = _parse_seconds(headers.get("Retry-After-Ms", ""))
    if exact is not None:
        return exact / 1000
    text = headers.get("Retry-After", "").strip()
    seconds = _parse_seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parse_seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None


class Resolver(AbstractResolver):
    """The system's resolver, run so that a slow lookup holds up neither a timeout nor the end of the process.

    The event loop's own threads are joined when it ends, so one lookup without an answer would hold the
    process for as long as the system tries; the threads used here are daemons.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> _Addresses:
        """The addresses of a host; OSError or UnicodeError where there are none."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Addresses] = loop.create_future()

        def look_up() -> None:
            addresses: _Addresses = []
            error: Exception | None = None
            try:
                addresses = _look_up_addresses(host, port, family)
            except Exception as exc:  # noqa: BLE001 - raised where it is waited for
                error = exc
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_set_result, future, addresses, error)

        threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
        return await future

    async def close(self) -> None:
        """Nothing is held open."""


def _set_result(future: "asyncio.Future[_Addresses]", addresses: _Addresses, error: Exception | None) -> None:
    if future.done():  # the wait was cancelled
        return
    if error is None:
        future.set_result(addresses)
    else:
        future.set_exception(error)


def _look_up_addresses(host: str, port: int, family: socket.AddressFamily) -> _Addresses:
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            # with its zone, where an address of IPv6 has one
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=kind,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, proto, _, address in infos
    ]
