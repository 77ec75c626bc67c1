"""Sends one HTTP request, reads the reply within limits, and converts foreign errors. Never retries."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from yarl import URL

from adacompute.client.connector import ConnectFailed, Connector, ConnectTimeout, HttpResponse, NotHttp
from adacompute.client.error_object import pick_error_headers, unwrap_error
from adacompute.client.large_json import MAX_INLINE, MAX_MARKS, MAX_PLAIN_MARKS, run_in_thread
from adacompute.client.response_parser import (
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
)

_MAX_ERROR_BODY = 64 * 2**10  # bytes read of a reply that isn't a success
_STREAM_END_SECONDS = 0.1  # time for a stream to end after its last event; then the connection is closed
_GZIP = b"\x1f\x8b"  # first bytes of gzip
_ENCODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")  # named in messages
_CA_REMEDY = "name a file with its CA's certificate (--ca-file, or ca_file of the endpoint)"
_CERTIFICATE_REMEDIES = {  # by OpenSSL's codes: expired, other name, other IP address
    10: "have it renewed",
    62: "check the address",
    64: "check the address",
}
_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})  # headers that a 304 answers
_EVENT_HEADERS = {"Accept": "text/event-stream, application/json"}


_MAX_SIZE = 64 * 2**20  # bytes of any reply
_BASE_SIZE = 8 * 2**20  # bytes allowed for every reply, e.g. for an image or sound
_TOKEN_SIZE = 1024  # bytes per token, which may be an event of its own
_TOKEN_SIZE_LOGPROBS = 8192  # with alternatives
_TOKEN_CONTENT = 64  # bytes of a token's text, escaped


class CertificateUntrusted(EndpointUnreachable):
    """The server's certificate is invalid, so retrying doesn't help."""


class ReplyCompressed(ReplyInvalid):
    """The server compresses its replies without being asked to."""

    kind = "compressed"


class ReplyLimits(NamedTuple):
    """Size limits for the reply to a request."""

    size: int  # bytes; for a stream including everything that events repeat
    content: int  # bytes of a stream's events without the usual overhead: texts, which are kept
    marks: int  # opening brackets and commas in its JSON, or in an event's


ANY_REPLY = ReplyLimits(_MAX_SIZE, _MAX_SIZE, MAX_MARKS)


def find_reply_limits(body: Mapping[str, Any], n: int, max_tokens: int | None) -> ReplyLimits:
    """The limits for a reply with `n` choices of `max_tokens` each; None: the model's maximum."""
    has_logprobs = bool(body.get("logprobs"))
    marks = MAX_MARKS if has_logprobs else MAX_PLAIN_MARKS
    if max_tokens is None:
        return ReplyLimits(_MAX_SIZE, _MAX_SIZE if has_logprobs else _MAX_SIZE // 4, marks)
    tokens = n * max_tokens
    size = min(_MAX_SIZE, _BASE_SIZE + tokens * (_TOKEN_SIZE_LOGPROBS if has_logprobs else _TOKEN_SIZE))
    content = size if has_logprobs else min(size, _BASE_SIZE + tokens * _TOKEN_CONTENT)
    return ReplyLimits(size, content, marks)


class AttemptTimer:
    """The deadlines of one request and its progress; readable even after cancellation.

    A context manager that raises TimeoutError like `asyncio.timeout`; when a deadline is reached, it checks
    whether it was extended. A reply read in pieces enters it again for each piece, because the task does
    other work in between.
    """

    def __init__(self, endpoint: Endpoint, until: float, on_sent: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        own_deadline = self._loop.time() + endpoint.timeouts.total
        self._ends = min(own_deadline, until)
        self._first_byte = endpoint.timeouts.first_byte
        self._on_sent = on_sent
        # whether the caller's deadline comes before our own timeout
        self.caller_deadline_first = until < own_deadline
        self.sent: float | None = None  # time of sending, from which the endpoint may be working
        self.headers = False
        self.expired = False

    def mark_sent(self) -> None:
        """Records that the request is being sent: the time to the first byte begins."""
        self.sent = self._loop.time()
        if self._on_sent is not None:
            self._on_sent()

    def mark_answering(self) -> None:
        """Records that headers (for a stream, the first event) have arrived."""
        self.headers = True

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task, self._cancelling, self.expired = task, task.cancelling(), False
        self._handle = self._loop.call_at(self._find_due(self._loop.time()), self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        """Cancels the task if its time is over; else checks again later."""
        now = self._loop.time()
        due = self._find_due(now)
        if now < due:
            self._handle = self._loop.call_at(due, self._look)
            return
        self.expired = True
        self.caller_deadline_first = self.caller_deadline_first and due == self._ends
        self._task.cancel()

    def _find_due(self, now: float) -> float:
        """The earliest time at which it may be over; until sending, it can only move later."""
        since = now if self.sent is None else self.sent
        return self._ends if self.headers else min(self._ends, since + self._first_byte)


# time per loop round in which turns are given at once; later work waits for the next round
_ROUND_SECONDS = 0.004
_TURNS_PER_ROUND = 4  # turns given to waiting tasks per round


class LoopShare:
    """Shares an event loop's time between pieces of work of about a millisecond.

    All ready tasks run in one round of the loop. If 200 replies arrive at once, that would be a round of 200
    times some milliseconds in which nothing else is served. So each takes a turn before a piece of work: at
    once during the first milliseconds of a round, otherwise in the next round.
    """

    def __init__(self) -> None:
        self._until = 0.0  # turns are given at once until this time
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take_turn(self) -> None:
        """Returns when there is time for one more piece of work, usually at once."""
        if not self._waiting and time.perf_counter() < self._until:
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin_round)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn  # if cancelled, its turn is skipped

    def _begin_round(self) -> None:
        self._until = time.perf_counter() + _ROUND_SECONDS
        given = 0
        while self._waiting and given < _TURNS_PER_ROUND:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_round)


class Transport:
    """Sends requests to one endpoint over persistent connections. Doesn't follow redirects."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        agent: str,
        share: LoopShare | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share = share or LoopShare()
        url = URL(endpoint.chat)
        self._endpoint = endpoint
        self._connector = Connector(endpoint, clock)
        self._origin = url.origin()
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # no compression: a few bytes could expand to gigabytes
            "User-Agent": agent,
            **endpoint.headers,
        }
        if endpoint.key is not None and endpoint.key_header:
            self._headers[endpoint.key_header] = endpoint.key.reveal()
        elif endpoint.key is not None:
            self._headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        self._json_headers = {**self._headers, "Content-Type": "application/json"}
        self._query_names = endpoint.query.keys()
        self._query = urlencode(endpoint.query)  # kept out of addresses in messages: may be secret

    async def close(self) -> None:
        """Closes the connections."""
        await self._connector.close()

    def make_timer(self, until: float, on_sent: Callable[[], None] | None = None) -> AttemptTimer:
        """The deadlines of one request: the settings' timeouts, and `until`."""
        return AttemptTimer(self._endpoint, until, on_sent)

    async def exchange(
        self,
        url: URL,
        timer: AttemptTimer,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limits: ReplyLimits = ANY_REPLY,
    ) -> HttpReply:
        """Posts JSON, or makes a free GET request; returns any status, otherwise raises our errors.

        `headers` are sent in addition to the session's.

        The error has no cause or traceback from below, because these contain the request headers with the
        key. Its message includes the original error's.
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
        """Posts JSON, and returns a success as a stream; errors as in `exchange`."""
        try:
            with timer:
                response = await self._send(
                    "POST", url, timer, data, {**headers, **_EVENT_HEADERS} if headers else _EVENT_HEADERS
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
        """Sends any request, and returns the reply with any status, unread; errors as in `exchange`.

        A body in pieces counts as sent after its last piece. Compressed replies, which weren't requested, are
        refused.
        """
        try:
            with timer:
                response = await self._send(method, url, timer, body, headers)
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
        with timer:
            response = await self._send("GET" if data is None else "POST", url, timer, data, headers)
            timer.mark_answering()
            raw = await _read_body(response, limits.size)
        if len(raw) > MAX_INLINE:
            return await run_in_thread(self._parse_reply, response, raw, limits)
        await self.share.take_turn()
        return self._parse_reply(response, raw, limits)

    async def _send(
        self,
        method: str,
        url: URL,
        timer: AttemptTimer,
        body: bytes | AsyncIterable[bytes] | None,
        headers: Mapping[str, str] | None,
    ) -> HttpResponse:
        """Sends a request, and waits for the reply's headers.

        A body of bytes is JSON unless the headers say otherwise.
        """
        is_json = isinstance(body, bytes)

        def before_send() -> None:
            if body is None or is_json:
                timer.mark_sent()

        response = await self._connector.send(
            method,
            self._build_target(url),
            headers=self._merge_headers(headers, json=is_json),
            body=body if body is None or isinstance(body, bytes) else _report_end(body, timer),
            before_send=before_send,
        )
        response.url = url
        _check_status(response, headers)
        return response

    def _build_target(self, url: URL) -> URL:
        """The address with the operator's query, which messages never show."""
        if url.origin() != self._origin:
            raise ValueError(f"{url} is not at {self._origin}")
        if not self._query:
            return url
        target = url.raw_path_qs
        if not self._query_names.isdisjoint(url.query):  # only the operator sets these
            target = url.without_query_params(*self._query_names).raw_path_qs
        target += ("&" if "?" in target else "?") + self._query
        return URL(f"{self._origin}{target}", encoded=True)

    def _merge_headers(self, headers: Mapping[str, str] | None, *, json: bool) -> dict[str, str]:
        own = self._json_headers if json else self._headers
        if not headers:
            return own
        merged = {name.lower(): (name, value) for name, value in (*own.items(), *headers.items())}
        return dict(merged.values())

    def _parse_reply(
        self, response: HttpResponse, raw: bytes | bytearray, limits: ReplyLimits = ANY_REPLY
    ) -> HttpReply:
        status, key = response.status, self._endpoint.secret
        try:
            value, _ = read_json(raw, key, max_marks=limits.marks)
        except ValueError as exc:
            if status == 200 and raw.startswith(_GZIP):
                raise _build_compressed_error(response, "gzip", "though its headers don't say so")  # noqa: B904
            if status == 200:
                kind = one_line(response.headers.get("content-type", "no content type"), key)
                raise ReplyInvalid(  # noqa: B904 - the cause holds the body, and is dropped in `exchange`
                    f"{response.url}: answered 200 with {len(raw)} bytes of {kind} that are no JSON "
                    f"({one_line(str(exc), key)}); is this an OpenAI-compatible endpoint?",
                    status=200,
                    paid=True,
                )
            decoded = raw.decode("utf-8", "replace").replace("\0", "")  # UTF-16 would hide a key
            value = redact(decoded, key)
        if isinstance(value, list):
            value = unwrap_error(value)
        if status == 200:
            return HttpReply(status, value, size=len(raw))
        if 300 <= status < 400:
            value = "it is a redirect to " + redact(response.headers.get("location", "nowhere"), key)
        retry_after = parse_retry_after(response.headers, now=time.time())
        return HttpReply(status, value, retry_after, pick_error_headers(response.headers, key))

    def strip_error(self, exc: Exception, url: URL, timer: AttemptTimer) -> EndpointError:
        """Our error for a failed request, without causes and traceback, which contain the key."""
        error = exc if isinstance(exc, EndpointError) else self._map_error(exc, url, timer)
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)

    def _map_error(self, exc: Exception, url: URL, timer: AttemptTimer) -> EndpointError:
        """Converts foreign errors to ours, in one place."""
        why = one_line(str(exc) or type(exc).__name__, self._endpoint.secret)
        if isinstance(exc, NotHttp):
            return ReplyInvalid(f"{url}: answered what is no HTTP ({why}); check the address", paid=True)
        if timer.expired or isinstance(exc, ConnectTimeout):
            return self._build_timeout(url, timer)
        if isinstance(exc, ssl.SSLCertVerificationError):
            remedy = _CERTIFICATE_REMEDIES.get(exc.verify_code, _CA_REMEDY)
            return CertificateUntrusted(
                f"{url}: its certificate can't be trusted ({exc.verify_message}); {remedy}"
            )
        if timer.sent is None or isinstance(exc, ConnectFailed):
            return EndpointUnreachable(
                f"{url}: can't be reached ({why}); is it running, and the address right?"
            )
        if isinstance(exc, OSError):
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


class ReplyStream:
    """A reply read as it arrives. Only `close` and `release` end it."""

    has_limit = True

    def __init__(
        self,
        transport: Transport,
        url: URL,
        timer: AttemptTimer,
        response: HttpResponse,
        limits: ReplyLimits = ANY_REPLY,
    ) -> None:
        self._transport, self._url, self._timer, self._response = transport, url, timer, response
        self.limits = limits
        self.size = 0  # bytes read

    @property
    def declares_events(self) -> bool:
        """Whether the content type is a stream of events."""
        return "event-stream" in self._response.headers.get("content-type", "").lower()

    async def read(self) -> bytes:
        """What has arrived since the last read, at least one byte; b"" at the end.

        Cancelling a read loses nothing.
        """
        try:
            with self._timer:
                chunk = await self._response.read_some()
            self.size += len(chunk)
            if self.size > self.limits.size and self.has_limit:
                raise _build_too_large_error(self._response, self.limits.size)
            return chunk
        except Exception as exc:  # noqa: BLE001 - as in `exchange`
            error = self._transport.strip_error(exc, self._url, self._timer)
        raise error

    def parse_reply(self, raw: bytes | bytearray) -> HttpReply:
        """Everything read as one reply; ReplyInvalid if it isn't JSON."""
        return self._transport._parse_reply(self._response, raw, self.limits)

    def close(self) -> None:
        """Closes the connection at once unless the reply has ended."""
        self._response.close()

    async def release(self) -> None:
        """Keeps the connection if the reply ends now; otherwise closes it."""
        try:
            async with asyncio.timeout(_STREAM_END_SECONDS):
                while await self._response.read_some():
                    pass
        except (OSError, NotHttp):  # everything needed has arrived; TimeoutError is an OSError
            pass
        finally:
            self._response.close()


class RawReply(ReplyStream):
    """A reply with any status and size, passed on as it arrives."""

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
        """The whole reply, or the beginning of a long one, whose connection is then closed."""
        parts, size = [], 0
        while size <= _MAX_ERROR_BODY and (chunk := await self.read()):
            parts.append(chunk)
            size += len(chunk)
        if size > _MAX_ERROR_BODY:
            self.close()
        return b"".join(parts)[:_MAX_ERROR_BODY]


async def _report_end(parts: AsyncIterable[bytes], timer: AttemptTimer) -> AsyncIterator[bytes]:
    """Yields the parts of a body, and reports when all have been sent."""
    async for part in parts:
        yield part
    timer.mark_sent()


def _check_status(response: HttpResponse, headers: Mapping[str, str] | None) -> None:
    """Raises ReplyInvalid for a status that doesn't exist or can't answer this: 205, or an unrequested 304.

    Clients disagree on whether a 205 has a body.
    """
    is_asked = response.status != 304 or not _CONDITIONS.isdisjoint(headers or ())
    if response.status >= 600 or response.status == 205 or not is_asked:
        response.close()
        raise ReplyInvalid(
            f"{response.url}: answered {response.status}, which is no reply to this request; is this an "
            "OpenAI-compatible endpoint?",
            status=response.status,
            paid=True,
        )


def _check_encoding(response: HttpResponse) -> None:
    """Raises ReplyInvalid, without reading, if the body is compressed although "identity" was requested."""
    encoding = _find_encoding(response)
    if encoding:
        response.close()
        raise _build_compressed_error(response, encoding, "though none was asked for")


def _build_compressed_error(response: HttpResponse, encoding: str, though: str) -> ReplyCompressed:
    return ReplyCompressed(
        f"{response.url}: answered with a body in {encoding}, {though}; turn its compression off",
        status=response.status,
        paid=True,
    )


def _find_encoding(response: HttpResponse) -> str:
    """The body's encoding, one of a few names or "an unknown encoding"; "" if not encoded."""
    names = map(str.strip, response.headers.get("content-encoding", "").lower().split(","))
    encoding = next((name for name in names if name not in ("", "identity")), "")
    return encoding if not encoding or encoding in _ENCODINGS else "an unknown encoding"


async def _read_body(response: HttpResponse, limit: int) -> bytes | bytearray:
    """The body within limits: all of a success or error, the beginning of anything else."""
    success = response.status == 200
    if success:
        _check_encoding(response)
    elif encoding := _find_encoding(response):  # the status says enough
        response.close()
        return f"(a message in {encoding}, which wasn't asked for)".encode()
    raw = bytearray()  # joining many megabytes at the end would block the event loop
    try:
        while part := await response.read_some():
            raw += part
            if success and len(raw) > limit:
                raise _build_too_large_error(response, limit)
            if not success and len(raw) > _MAX_ERROR_BODY:
                response.close()
                break
    except BaseException:
        response.close()
        raise
    return raw


def _build_too_large_error(response: HttpResponse, limit: int) -> ReplyInvalid:
    return ReplyInvalid(
        f"{response.url}: answered with more than {limit // 2**20} MiB; ask for less at once",
        status=response.status,
        paid=True,
    )


def parse_retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds to wait according to a reply's (lower-case) headers; None if not given.

    >>> parse_retry_after({"retry-after": "2.5"}, now=0.0)
    2.5
    >>> parse_retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=50.0)
    10.0
    """
    exact = _parse_seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    text = headers.get("retry-after", "").strip()
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
