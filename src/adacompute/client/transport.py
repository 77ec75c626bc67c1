"""Sends HTTP/1.1 requests over persistent connections, and reads the replies within size limits.

aiohttp's connector is used without aiohttp's session, which has no hook between connecting and sending,
repeats requests that may have been charged, and reads keys from ~/.netrc. `EndpointProtocol` corrects three
faults of aiohttp: it gives an unrequested reply to the next request, reads endless lines before a chunk, and
waits forever after a body with invalid framing.
"""

import asyncio
import functools
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from yarl import URL

from adacompute.client.error_object import (
    ConnectFailed,
    ConnectTimeout,
    NotHttp,
    explain_error,
    map_error,
    parse_retry_after,
    pick_error_headers,
    translate_error,
    unwrap_error,
)
from adacompute.client.large_json import MAX_MARKS
from adacompute.client.rate_limit import AttemptTimer, LoopShare
from adacompute.client.response_parser import HttpReply, one_line, read_json, redact, run_by_size
from adacompute.client.settings import Endpoint
from adacompute.errors import ConfigError, EndpointError, ReplyInvalid

MAX_ERROR_BODY = 64 * 2**10  # maximum number of bytes that are read from an error's body
_GZIP = b"\x1f\x8b"  # first bytes of gzip data
_ENCODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")  # encodings that error messages may name
# request headers that allow a reply with status 304
_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
_EVENT_HEADERS = {"Accept": "text/event-stream, application/json"}
MAX_REPLY = 64 * 2**20  # maximum size of any reply, in bytes
# how long an idle connection is kept: many servers close it after 5 s, and a request sent just then may be
# charged although it fails
_KEEPALIVE_SECONDS = 4.0
_DISTRUST_SECONDS = 60.0  # if unrequested bytes arrive, no connection is used again for this many seconds
_MAX_FRAMING_BYTES = 131_072  # maximum number of bytes in headers, trailers or lines before a chunk
_MAX_BUFFERED = 65_536  # size of aiohttp's buffer for unread bytes; receiving pauses at twice this size
_WRITE_BYTES = 2**20  # number of bytes of a request written at once; copying more would block the event loop
_REPEATABLE = ("GET", "HEAD", "DELETE")  # methods safe to repeat if a persistent connection was closed


class ReplyCompressed(ReplyInvalid):
    """The server compresses its replies without being asked to."""

    kind = "compressed"


class ReplyLimits(NamedTuple):
    """Size limits for the reply to a request."""

    size: int  # maximum size of the whole reply, in bytes
    # maximum size in bytes of a stream's texts and log-probabilities, which are kept in memory; the first 512
    # bytes of each event don't count
    content: int
    marks: int  # maximum number of opening brackets and commas in the JSON of the reply, or of one event


ANY_REPLY = ReplyLimits(MAX_REPLY, MAX_REPLY, MAX_MARKS)


class HttpResponse:
    """The reply to a request, read as it arrives. It must be read to the end or closed."""

    def __init__(self, url: URL, response: aiohttp.ClientResponse) -> None:
        self.url, self.status, self._response = url, response.status, response
        self.headers: dict[str, str] = {}  # lower-case names; repeated headers are joined by a comma
        for raw_name, raw_value in response.raw_headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "surrogateescape")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    async def read_some(self) -> bytes:
        """Waits for bytes, and returns all that have arrived since the last read; b"" at the end.

        A cancelled read can be repeated without loss.
        """
        content = self._response.content
        if content.exception() is not None and content._buffer:
            return content._read_nowait(-1)  # data that arrived before the error; aiohttp would drop it
        try:
            return await content.readany()
        except (OSError, aiohttp.ClientError, HttpProcessingError) as exc:
            self.close()
            raise translate_error(exc) from exc

    def close(self) -> None:
        """Closes the connection unless everything has arrived."""
        if not self._response.closed:
            self._response.close()


class EndpointProtocol(ResponseHandler):
    """An aiohttp connection that refuses unrequested data and endless headers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_unasked: Callable[[], None]) -> None:
        super().__init__(loop)
        self.is_idle = True  # whether no request is waiting for a reply
        self.was_used = False  # whether the connection has had an earlier request
        self._on_unasked = on_unasked
        self._has_reply = False  # whether the reply's headers have arrived
        self._body_bytes = 0  # bytes received of the reply's body
        self._framing_bytes = 0  # bytes received since the last byte of a body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepares to check the socket for received data that hasn't been read yet."""
        super().connection_made(transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - aiohttp's own
        """Prepares for the next reply; called before a request is sent."""
        self.is_idle = self._has_reply = False
        self._payload, self._body_bytes, self._framing_bytes = None, 0, 0  # forget the previous reply's body
        super().set_response_params(**params)

    def is_connected(self) -> bool:
        """Whether the connection is usable. An idle one isn't if data has arrived that nobody requested."""
        return super().is_connected() and not (self.is_idle and (self._poll.poll(0) or self._has_begun()))

    def data_received(self, data: bytes) -> None:
        """Handles received bytes; closes the connection if no request is waiting for them."""
        if self.is_idle and data:
            self._refuse()
            return
        super().data_received(data)
        body_bytes = 0 if self._payload is None else self._payload.total_bytes
        self._framing_bytes = 0 if body_bytes != self._body_bytes else self._framing_bytes + len(data)
        self._body_bytes = body_bytes
        if self._framing_bytes > _MAX_FRAMING_BYTES and self.transport is not None:
            self.set_exception(HttpProcessingError(message="more than 128 KiB of headers, or before a chunk"))
            self.transport.abort()
        if self._exception is not None and self.is_idle:
            self._refuse()
        elif self._exception is not None:
            self._fail_body(self._exception)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        """Handles response headers; closes the connection if a second set arrives."""
        status = data[0].code
        is_final = status == 101 or not 100 <= status < 200
        if self._has_reply and is_final:
            self._refuse()
            return
        self._has_reply = self._has_reply or is_final
        if self._skip_payload or status in (205, 304) or not 100 <= status < 600:
            # this reply's body isn't read; if one is sent anyway, the next request must not get it
            self.force_close()
        super().feed_data(data, size)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Passes a connection error to the body's reader, so that no cut-off body seems complete."""
        if exc is not None:
            self._fail_body(exc)
        super().connection_lost(exc)

    def close(self) -> None:
        """Closes the connection at once, without sending the rest of an abandoned request."""
        self.abort()

    def abort(self) -> None:
        self._fail_body(ConnectionAbortedError("the connection was closed"))
        super().abort()

    def _fail_body(self, error: BaseException) -> None:
        if self._payload is not None and not self._payload.is_eof() and self._payload.exception() is None:
            self._payload.set_exception(error)

    def _refuse(self) -> None:
        self.abort()
        self._on_unasked()

    def _has_begun(self) -> bool:
        """Whether the beginning of another reply has been read together with the last one."""
        try:
            return self._parser is not None and self._parser.feed_eof() is not None
        except HttpProcessingError:
            return True


class Connector(aiohttp.TCPConnector):
    """Opens connections to one endpoint, and keeps them for later requests."""

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            ssl=_make_tls_context(endpoint),
            limit=0,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            resolver=_Resolver(),
        )
        self._socket_path = endpoint.unix_socket
        self._factory = functools.partial(EndpointProtocol, self._loop, self._distrust)  # type: ignore[assignment]
        self._proxy = None if endpoint.unix_socket else _find_proxy(URL(endpoint.url))
        self._timeout = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect)
        self._clock = clock
        self._distrusted_until = -math.inf  # until this time, connections are closed after each reply

    async def send(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
        on_send: Callable[[], None] | None,
    ) -> HttpResponse:
        """Sends a request unchanged, and waits for the reply's headers; calls `on_send` before sending."""
        request = self._build_request(method, url, headers, body)
        connection = await self._connect(request)
        protocol = connection.protocol
        assert isinstance(protocol, EndpointProtocol)
        is_whole = body is None or isinstance(body, bytes)
        is_repeatable = protocol.was_used and is_whole and method in _REPEATABLE
        try:
            if on_send is not None:
                on_send()
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=_MAX_BUFFERED,
            )
            response = await request.send(connection)
            try:
                await response.start(connection)
            except BaseException:
                response.close()
                raise
        except (OSError, aiohttp.ClientError) as exc:
            connection.close()
            if is_repeatable and not isinstance(exc, aiohttp.ClientResponseError):
                return await self.send(method, url, headers=headers, body=body, on_send=on_send)
            raise translate_error(exc) from exc
        except BaseException:
            connection.close()
            raise
        if response.status < 200:
            response.close()
            raise NotHttp("it changes to another protocol")
        return HttpResponse(url, response)

    def _build_request(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientRequest:
        if isinstance(body, bytes) and len(body) > _WRITE_BYTES:
            headers, body = {**headers, "Content-Length": str(len(body))}, _iterate(body)
        return aiohttp.ClientRequest(
            method,
            url,
            headers=headers,
            # aiohttp would add a type of its own to a body without one
            skip_auto_headers=None if "Content-Type" in headers else ("Content-Type",),
            data=body if body is None or isinstance(body, bytes) else _split(body),
            loop=self._loop,
            proxy=self._proxy,
        )

    async def _connect(self, request: aiohttp.ClientRequest) -> aiohttp.connector.Connection:
        """Returns a kept or new connection; raises ConnectFailed or ConnectTimeout."""
        if self.closed:
            raise ConnectFailed("the client is closed")
        try:
            connection = await self.connect(request, [], self._timeout)
        except ssl.SSLCertVerificationError as exc:
            raise exc.__cause__ or exc from None
        except (OSError, aiohttp.ClientError) as exc:
            if type(exc) is TimeoutError:
                raise ConnectTimeout("no connection was made in time") from exc
            place = self._socket_path or f"{request.host}:{request.port}"
            if self._proxy is not None:
                place += f" by the proxy {self._proxy.with_user(None)}"
            raise ConnectFailed(f"{place}: {explain_error(exc.__cause__ or exc)}") from exc
        if connection.transport is None:
            connection.close()
            raise ConnectFailed(f"{request.host}:{request.port}: the connection was closed at once")
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        if not self._socket_path:
            return await super()._create_connection(req, traces, timeout)
        tls = self._get_ssl_context(req)
        _, protocol = await self._loop.create_unix_connection(
            self._factory, self._socket_path, ssl=tls, server_hostname=req.host if tls else None
        )
        return protocol

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        assert isinstance(protocol, EndpointProtocol)
        protocol.is_idle = protocol.was_used = True
        is_distrusted = self._clock() < self._distrusted_until
        super()._release(key, protocol, should_close=should_close or is_distrusted)

    def _distrust(self) -> None:
        """Closes idle connections and keeps none for a while: each may have received an unrequested reply."""
        self._distrusted_until = self._clock() + _DISTRUST_SECONDS
        for kept in list(self._conns.values()):
            for protocol, _ in kept:
                protocol.abort()


class _Resolver(AbstractResolver):
    """Resolves host names in daemon threads, because other threads would keep the event loop from closing."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Finds the addresses of a host; raises OSError if there are none."""
        future: Future[list[Any]] = Future()
        future.set_running_or_notify_cancel()

        def look_up() -> None:
            flags = socket.AI_ADDRCONFIG
            try:
                future.set_result(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags))
            except Exception as exc:  # noqa: BLE001 - raised where it is waited for
                future.set_exception(exc)

        threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
        return [
            ResolveResult(hostname=host, host=address[0], port=address[1], family=kind, proto=proto, flags=0)
            for kind, _, proto, _, address in await asyncio.wrap_future(future)
        ]

    async def close(self) -> None:
        """Does nothing, because nothing is open."""


def _make_tls_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """Builds the TLS settings with the endpoint's certificates; True means aiohttp's default."""
    if not (endpoint.ca_file or endpoint.client_cert or endpoint.client_key):
        return True
    if not endpoint.client_cert and endpoint.client_key:
        raise ConfigError(f"client_key {endpoint.client_key!r} is given without client_cert; give both")
    what, problem = f"ca_file {endpoint.ca_file!r}", "it holds no certificate in PEM"
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file or None)
        if endpoint.client_cert or endpoint.client_key:
            key = f" with client_key {endpoint.client_key!r}" if endpoint.client_key else ""
            what = f"client_cert {endpoint.client_cert!r}{key}"
            problem = "that is not a certificate in PEM with its own key, without a password"
            context.load_cert_chain(endpoint.client_cert, endpoint.client_key or None, password="")
    except OSError as exc:
        reason = problem if isinstance(exc, ssl.SSLError) else explain_error(exc)
        raise ConfigError(f"{what} of {endpoint.url} can't be used ({reason}); give PEM files") from exc
    context.set_alpn_protocols(["http/1.1"])
    return context


def _find_proxy(url: URL) -> URL | None:
    """Finds the proxy for an address in the environment variables."""
    text = getproxies().get(url.scheme)
    if not text or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(text if "://" in text else f"http://{text}")
    except ValueError:
        proxy = URL()
    # the error doesn't show the proxy's address, which may contain a password
    if proxy.scheme != "http" or not proxy.host:
        raise ConfigError(
            f"the proxy in {url.scheme.upper()}_PROXY can't be used for {url.origin()}; give an address "
            "such as http://proxy:3128, or name the host in NO_PROXY"
        )
    return proxy


async def _iterate(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _split(parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            yield part[start : start + _WRITE_BYTES]


class Transport:
    """Sends requests to one endpoint over persistent connections. Doesn't follow redirects."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        share: LoopShare | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share = share or LoopShare()
        url = URL(endpoint.chat)
        self.endpoint = endpoint
        self._connector = Connector(endpoint, clock)
        self._origin = url.origin()
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # no compression, as a few bytes could expand to gigabytes
            "User-Agent": "adacompute",
            **endpoint.headers,
        }
        if endpoint.key is not None and endpoint.key_header:
            self._headers[endpoint.key_header] = endpoint.key.reveal()
        elif endpoint.key is not None:
            self._headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        self._json_headers = self._headers | {"Content-Type": "application/json"}
        self._query_names = endpoint.query.keys()
        self._query = urlencode(endpoint.query)  # may be secret, so errors don't show it

    async def close(self) -> None:
        """Closes the connections."""
        await self._connector.close()

    async def exchange(
        self,
        url: URL,
        timer: AttemptTimer,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limits: ReplyLimits = ANY_REPLY,
    ) -> HttpReply:
        """Posts JSON, or sends a GET request if `data` is None; returns the reply, whatever its status.

        `headers` are sent in addition to the client's. Raises EndpointError if there was no valid reply. The
        error has no cause or traceback, which would contain the key; its message includes the cause's.
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
    ) -> HttpResponse | HttpReply:
        """Posts JSON; returns a successful reply before its body is read, any other reply with its body.

        Raises the same errors as `exchange`.
        """
        try:
            with timer:
                response = await self._send(
                    "POST", url, timer, data, {**headers, **_EVENT_HEADERS} if headers else _EVENT_HEADERS
                )
                if response.status == 200:
                    _check_encoding(response)
                    return response
                return self.parse_reply(response, await _read_body(response, limits.size), limits)
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
    ) -> HttpResponse:
        """Sends any request; returns the reply, whatever its status, before its body is read.

        Raises the same errors as `exchange`, also if the reply is compressed, which wasn't requested. A body
        in pieces counts as sent after its last piece.
        """
        try:
            with timer:
                response = await self._send(method, url, timer, body, headers)
            timer.mark_answering()
            _check_encoding(response)
            return response
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
        """Does the work of `exchange`, which drops the traceback of errors, as it might show the key."""
        with timer:
            response = await self._send("GET" if data is None else "POST", url, timer, data, headers)
            timer.mark_answering()
            raw = await _read_body(response, limits.size)
        await self.share.take_turn()
        return await run_by_size(len(raw), self.parse_reply, response, raw, limits)

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
        own = self._headers
        on_send: Callable[[], None] | None = timer.mark_sent
        if isinstance(body, bytes):
            own = self._json_headers
        elif body is not None:
            body, on_send = _report_end(body, timer), None
        merged = _merge_headers(own, headers) if headers else own
        response = await self._connector.send(
            method, self._build_target(url), headers=merged, body=body, on_send=on_send
        )
        response.url = url
        _check_status(response, headers)
        return response

    def _build_target(self, url: URL) -> URL:
        """Adds the operator's query parameters to an address; errors show the address without them."""
        if url.origin() != self._origin:
            raise ValueError(f"{url} is not at {self._origin}")
        if not self._query:
            return url
        target = url.raw_path_qs
        # callers can't override the operator's query parameters
        if not self._query_names.isdisjoint(url.query):
            target = url.without_query_params(*self._query_names).raw_path_qs
        target += ("&" if "?" in target else "?") + self._query
        return URL(f"{self._origin}{target}", encoded=True)

    def parse_reply(
        self, response: HttpResponse, raw: bytes | bytearray, limits: ReplyLimits = ANY_REPLY
    ) -> HttpReply:
        status, key = response.status, self.endpoint.secret
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
            # without NUL characters, `redact` also finds a key that was sent in UTF-16
            decoded = raw.decode("utf-8", "replace").replace("\0", "")
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
        """Converts an error to an EndpointError without causes and traceback, which contain the key."""
        error = exc
        if not isinstance(error, EndpointError):
            why = one_line(str(exc) or type(exc).__name__, self.endpoint.secret)
            error = map_error(exc, url, self.endpoint, timer, why=why)
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def _merge_headers(own: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    return dict({name.lower(): (name, value) for name, value in {**own, **headers}.items()}.values())


async def _report_end(parts: AsyncIterable[bytes], timer: AttemptTimer) -> AsyncIterator[bytes]:
    """Yields the parts of a body, and tells the timer once all have been sent."""
    async for part in parts:
        yield part
    timer.mark_sent()


def _check_status(response: HttpResponse, headers: Mapping[str, str] | None) -> None:
    """Raises ReplyInvalid for a status above 599, a 205, or a 304 to an unconditional request.

    A 205 is refused because clients disagree on whether it has a body.
    """
    is_asked = response.status != 304 or not _CONDITIONS.isdisjoint(headers or ())
    if response.status >= 600 or response.status == 205 or not is_asked:
        response.close()
        raise ReplyInvalid(
            f"{response.url}: answered {response.status}, which is not a reply to this request; is this an "
            "OpenAI-compatible endpoint?",
            status=response.status,
            paid=True,
        )


def _check_encoding(response: HttpResponse) -> None:
    """Raises ReplyInvalid, before reading, if the body is compressed although this wasn't requested."""
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
    """Returns the body's encoding, a well-known name or "an unknown encoding"; "" if not encoded."""
    for name in map(str.strip, response.headers.get("content-encoding", "").lower().split(",")):
        if name not in ("", "identity"):
            return name if name in _ENCODINGS else "an unknown encoding"
    return ""


async def _read_body(response: HttpResponse, limit: int) -> bytes | bytearray:
    """Reads the body: of a successful reply at most `limit` bytes, of an error at most 64 KiB."""
    success = response.status == 200
    if success:
        _check_encoding(response)
    elif encoding := _find_encoding(response):  # an encoded error isn't read: its status says enough
        response.close()
        return f"(a message in {encoding}, which wasn't asked for)".encode()
    raw = bytearray()  # grows as parts arrive: joining them at the end would block the event loop
    try:
        while part := await response.read_some():
            raw += part
            if success and len(raw) > limit:
                raise build_too_large_error(response, limit)
            if not success and len(raw) > MAX_ERROR_BODY:
                response.close()
                break
    except BaseException:
        response.close()
        raise
    return raw


def build_too_large_error(response: HttpResponse, limit: int) -> ReplyInvalid:
    return ReplyInvalid(
        f"{response.url}: answered with more than {limit // 2**20} MiB; ask for less at once",
        status=response.status,
        paid=True,
    )
