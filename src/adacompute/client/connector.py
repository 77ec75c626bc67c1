"""HTTP/1.1 to one endpoint over persistent connections. The only module that knows about aiohttp.

It uses aiohttp's connector without its session: the session has no hook between connecting and sending,
repeats requests that may have been charged, and reads keys from ~/.netrc. `EndpointProtocol` fixes three gaps
in aiohttp: it gives an unrequested reply to the next request, reads endless lines before chunks, and leaves
the reader of a body waiting if its framing breaks.
"""

import asyncio
import functools
import math
import os
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from yarl import URL

from adacompute.client.settings import Endpoint
from adacompute.errors import ConfigError

# many servers close idle connections after 5; a request at that moment may have been charged
_KEEPALIVE_SECONDS = 4.0
_DISTRUST_SECONDS = 60.0  # how long no connections are kept after an unrequested byte
_MAX_FRAMING_BYTES = 131_072  # received without a body byte: headers, trailers and lines before chunks
_MAX_BUFFERED = 65_536  # bytes of a reply not read yet; at twice as many, receiving pauses
_WRITE_BYTES = 2**20  # bytes of a request written at once: copying more would block the event loop
_REPEATABLE = ("GET", "HEAD", "DELETE")  # safe to repeat if a persistent connection was closed
# OpenSSL's names, by version, for a reply that isn't TLS
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_TLS_ALERT = r"b'\x15\x03"  # how aiohttp quotes a TLS server's answer to plain HTTP
_QUOTE = re.compile(r":?\s+b['\"]")  # where aiohttp's messages begin to quote the reply


class ConnectFailed(OSError):
    """The connection couldn't be made."""


class ConnectTimeout(Exception):
    """The connection wasn't made in time."""


class NotHttp(Exception):
    """The reply isn't HTTP/1.1."""


class HttpResponse:
    """The reply to a request, read as it arrives. Read it to the end or close it."""

    def __init__(self, url: URL, response: aiohttp.ClientResponse) -> None:
        self.url, self.status, self._response = url, response.status, response
        self.headers: dict[str, str] = {}  # lower-case names; repeated headers are joined by a comma
        for raw_name, raw_value in response.raw_headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "surrogateescape")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    async def read_some(self) -> bytes:
        """What has arrived since the last read, at least one byte; b"" at the end.

        Cancelling a read loses nothing.
        """
        content = self._response.content
        if content.exception() is not None and content._buffer:
            return content._read_nowait(-1)  # data before the error, which aiohttp would drop
        try:
            return await content.readany()
        except (OSError, aiohttp.ClientError, HttpProcessingError) as exc:
            self.close()
            raise _translate(exc) from exc

    def close(self) -> None:
        """Closes the connection unless everything has arrived."""
        if not self._response.closed:
            self._response.close()


class EndpointProtocol(ResponseHandler):
    """An aiohttp connection that rejects unrequested and endless data."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_unasked: Callable[[], None]) -> None:
        super().__init__(loop)
        self.is_idle = True  # no request is waiting for its reply
        self.was_used = False  # had an earlier request
        self._on_unasked = on_unasked
        self._has_reply = False  # whether the reply has begun
        self._framing_bytes = 0  # received since the last body byte

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - aiohttp's own
        """Called before a request is sent."""
        self.is_idle = self._has_reply = False
        self._payload, self._framing_bytes = None, 0  # the previous body may be as long as the next
        super().set_response_params(**params)

    def is_connected(self) -> bool:
        """Whether the connection is usable: if idle, no data may have come, even data not read yet."""
        return super().is_connected() and not (self.is_idle and (self._has_unread() or self._has_begun()))

    def data_received(self, data: bytes) -> None:
        """Handles received bytes; rejects them on an idle connection."""
        if self.is_idle and data:
            self._refuse()
            return
        body_bytes = self._count_body()
        super().data_received(data)
        self._framing_bytes = 0 if self._count_body() != body_bytes else self._framing_bytes + len(data)
        if self._framing_bytes > _MAX_FRAMING_BYTES and self.transport is not None:
            self.set_exception(HttpProcessingError(message="more than 128 KiB of headers, or before a chunk"))
            self.transport.abort()
        if self._exception is not None and self.is_idle:
            self._refuse()
        elif self._exception is not None:
            self._fail_body(self._exception)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        """Handles response headers; rejects a second set."""
        status = data[0].code
        is_final = status >= 200 or status == 101
        if self._has_reply and is_final:
            self._refuse()
            return
        self._has_reply = self._has_reply or is_final
        if self._skip_payload or status in (205, 304) or status >= 600:
            self.force_close()  # a forbidden body might follow
        super().feed_data(data, size)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Treats a connection error as an error, even in a body that ends with the connection."""
        if exc is not None:
            self._fail_body(exc)
        super().connection_lost(exc)

    def close(self) -> None:
        """Closes at once, without sending the rest of an abandoned request."""
        self.abort()

    def abort(self) -> None:
        self._fail_body(ConnectionAbortedError("the connection was closed"))
        super().abort()

    def _fail_body(self, error: BaseException) -> None:
        if self._payload is not None and not self._payload.is_eof() and self._payload.exception() is None:
            self._payload.set_exception(error)

    def _count_body(self) -> int:
        return 0 if self._payload is None else self._payload.total_bytes

    def _refuse(self) -> None:
        self.abort()
        self._on_unasked()

    def _has_unread(self) -> bool:
        assert self.transport is not None
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _has_begun(self) -> bool:
        """Whether another reply began right after the last piece that was read."""
        try:
            return self._parser is not None and self._parser.feed_eof() is not None
        except HttpProcessingError:
            return True


class Connector(aiohttp.TCPConnector):
    """The connections to one endpoint."""

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
        self._distrusted_until = -math.inf  # connections aren't kept before this time

    async def send(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
        before_send: Callable[[], None],
    ) -> HttpResponse:
        """Sends a request unchanged, and waits for the reply's headers; `before_send` may raise to cancel."""
        request = self._build_request(method, url, headers, body)
        connection = await self._connect(request)
        protocol = connection.protocol
        assert isinstance(protocol, EndpointProtocol)
        is_whole = body is None or isinstance(body, bytes)
        is_repeatable = protocol.was_used and is_whole and method in _REPEATABLE
        try:
            before_send()
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
                return await self.send(method, url, headers=headers, body=body, before_send=before_send)
            raise _translate(exc) from exc
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
            skip_auto_headers=("Content-Type",),
            data=body if body is None or isinstance(body, bytes) else _split(body),
            loop=self._loop,
            proxy=self._proxy,
        )

    async def _connect(self, request: aiohttp.ClientRequest) -> aiohttp.connector.Connection:
        """A kept or new connection; raises ConnectFailed or ConnectTimeout."""
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
            raise ConnectFailed(f"{place}: {_explain(exc.__cause__ or exc)}") from exc
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
        """Closes kept connections and keeps none for a while: each may hold an unrequested reply."""
        self._distrusted_until = self._clock() + _DISTRUST_SECONDS
        for kept in list(self._conns.values()):
            for protocol, _ in kept:
                protocol.abort()


class _Resolver(AbstractResolver):
    """Resolves names in threads that nobody joins: the event loop would join its own when it closes."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host; raises OSError if there are none."""
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
        """Does nothing: there is no state."""


def _make_tls_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """The TLS settings for certificates; True means aiohttp's default with the system's CAs."""
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
            problem = "that is no certificate in PEM with its own key, without a password"
            context.load_cert_chain(endpoint.client_cert, endpoint.client_key or None, password="")
    except OSError as exc:
        reason = problem if isinstance(exc, ssl.SSLError) else _explain(exc)
        raise ConfigError(f"{what} of {endpoint.url} can't be used ({reason}); give PEM files") from exc
    context.set_alpn_protocols(["http/1.1"])
    return context


def _find_proxy(url: URL) -> URL | None:
    """The proxy for an address from the environment."""
    text = getproxies().get(url.scheme)
    if not text or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(text if "://" in text else f"http://{text}")
    except ValueError:
        proxy = URL()
    if proxy.scheme != "http" or not proxy.host:  # don't show it: it may contain a password
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


def _translate(exc: Exception) -> Exception:
    """Converts an aiohttp error to NotHttp or an OSError."""
    cause = exc.__cause__ or exc
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return ConnectionResetError("it closed the connection before its reply")
    if isinstance(exc, aiohttp.ClientPayloadError):
        return ConnectionResetError("it closed the connection in the middle of its reply")
    if isinstance(cause, HttpProcessingError):
        return NotHttp(_explain(cause))
    return ConnectionResetError(_explain(cause))


def _explain(exc: BaseException) -> str:
    """The reason for a failure in a few words; different event loops word the same error differently."""
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        return f"it answered {exc.status}"  # the reply may repeat the proxy's password
    if isinstance(exc, HttpProcessingError) and _TLS_ALERT in exc.message:
        return "it is TLS; is it https://?"
    if isinstance(exc, HttpProcessingError):
        return _QUOTE.split(exc.message, maxsplit=1)[0] or type(exc).__name__
    if isinstance(exc, ssl.SSLError):  # its errno isn't the system's
        remedy = "; is it http://?" if exc.reason in _PLAIN_REASONS else ""
        return f"the TLS handshake failed: {(exc.reason or str(exc)).lower().replace('_', ' ')}{remedy}"
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0:
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
