"""HTTP/1.1 to one endpoint, by aiohttp, on connections that are kept. Nothing else here knows of aiohttp.

Requests use aiohttp's connector and not its session, which has no moment between connecting and sending,
sends again what may be paid for, and takes keys from ~/.netrc. `EndpointProtocol` closes three gaps: aiohttp
gives a reply that nobody asked for to the next request, reads lines before chunks without end, and leaves
the reader of a body waiting when its framing breaks.
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

_KEEPALIVE_SECONDS = 4.0  # many servers close after 5; a request that meets the close may have been paid for
_DISTRUST_SECONDS = 60.0  # without kept connections, after a byte that nobody asked for
_MAX_FRAMING_BYTES = 131_072  # received without a byte of a body: heads, trailers and lines before chunks
_MAX_BUFFERED = 65_536  # bytes of a reply that nobody has read; at twice as many no more are received
_WRITE_BYTES = 2**20  # bytes of a request that are written at once: copying more would hold up others
_REPEATABLE = ("GET", "HEAD", "DELETE")  # requests that may be sent again if a kept connection was closed
# what OpenSSL calls a reply that isn't TLS, by its version
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_TLS_ALERT = r"b'\x15\x03"  # how aiohttp quotes what a server of TLS answers to plain HTTP
_QUOTE = re.compile(r":?\s+b['\"]")  # where aiohttp's messages begin to quote the reply


class ConnectFailed(OSError):
    """No connection could be made."""


class ConnectTimeout(Exception):
    """No connection was made in time."""


class NotHttp(Exception):
    """What came is no reply of HTTP/1.1."""


class HttpResponse:
    """The reply to one request, which is read as it arrives. Read it to its end, or close it."""

    def __init__(self, url: URL, response: aiohttp.ClientResponse) -> None:
        self.url, self.status, self._response = url, response.status, response
        self.headers: dict[str, str] = {}  # names in lower case; repeated ones are joined by a comma
        for raw_name, raw_value in response.raw_headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "surrogateescape")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    async def read_some(self) -> bytes:
        """What has arrived since, at least one byte; b"" at the end.

        A read that is cancelled loses nothing.
        """
        content = self._response.content
        if content.exception() is not None and content._buffer:
            return content._read_nowait(-1)  # what came before the error, which aiohttp would drop
        try:
            return await content.readany()
        except (OSError, aiohttp.ClientError, HttpProcessingError) as exc:
            self.close()
            raise _translate(exc) from exc

    def close(self) -> None:
        """Closes the connection, unless all has arrived."""
        if not self._response.closed:
            self._response.close()


class EndpointProtocol(ResponseHandler):
    """A connection of aiohttp's that takes nothing it didn't ask for, and nothing without end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_unasked: Callable[[], None]) -> None:
        super().__init__(loop)
        self.is_idle = True  # no request waits for its reply
        self.was_used = False  # whether it had a request before
        self._on_unasked = on_unasked
        self._has_reply = False  # whether the reply has begun
        self._framing_bytes = 0  # received since the last byte of a body

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - aiohttp's own
        """A request is sent next."""
        self.is_idle = self._has_reply = False
        self._payload, self._framing_bytes = None, 0  # the body before may be as long as the next
        super().set_response_params(**params)

    def is_connected(self) -> bool:
        """Whether it can be used. To an idle one nothing may have come, even if the loop hasn't read it."""
        return super().is_connected() and not (self.is_idle and (self._has_unread() or self._has_begun()))

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived; those of an idle connection are nobody's."""
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
        """A head has arrived; one after the reply's own is nobody's."""
        status = data[0].code
        is_final = status >= 200 or status == 101
        if self._has_reply and is_final:
            self._refuse()
            return
        self._has_reply = self._has_reply or is_final
        if self._skip_payload or status in (205, 304) or status >= 600:
            self.force_close()  # a body may follow, though there is none
        super().feed_data(data, size)

    def connection_lost(self, exc: BaseException | None) -> None:
        """An error is no end of a body, also if it has no other end than the connection's."""
        if exc is not None:
            self._fail_body(exc)
        super().connection_lost(exc)

    def close(self) -> None:
        """Closes it at once: the rest of a request that nobody waits for isn't sent."""
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
        """Whether another reply had begun where the last piece that was read ended."""
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
        self._distrusted_until = -math.inf  # no connection is kept before that time

    async def send(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | AsyncIterable[bytes] | None,
        before_send: Callable[[], None],
    ) -> HttpResponse:
        """Sends a request as it is, and waits for the head of its reply; `before_send` may raise instead."""
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
        """A kept connection, or a new one; ConnectFailed or ConnectTimeout if there is none."""
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
        """Closes what is kept, and keeps nothing for a while: a reply may be waiting in each for nobody."""
        self._distrusted_until = self._clock() + _DISTRUST_SECONDS
        for kept in list(self._conns.values()):
            for protocol, _ in kept:
                protocol.abort()


class _Resolver(AbstractResolver):
    """Looks names up in threads that nobody waits for: the event loop joins its own when it ends."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host; OSError if there are none."""
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
        """Nothing is kept."""


def _make_tls_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """What certificates are checked with, and the own one; True: aiohttp's own, of the system's CAs."""
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
    """The proxy that the environment names for an address."""
    text = getproxies().get(url.scheme)
    if not text or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(text if "://" in text else f"http://{text}")
    except ValueError:
        proxy = URL()
    if proxy.scheme != "http" or not proxy.host:  # the message doesn't show it: it may hold a password
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
    """An error of aiohttp's as NotHttp or an OSError."""
    cause = exc.__cause__ or exc
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return ConnectionResetError("it closed the connection before its reply")
    if isinstance(exc, aiohttp.ClientPayloadError):
        return ConnectionResetError("it closed the connection in the middle of its reply")
    if isinstance(cause, HttpProcessingError):
        return NotHttp(_explain(cause))
    return ConnectionResetError(_explain(cause))


def _explain(exc: BaseException) -> str:
    """Why it failed, in few words; the event loops word the same error differently."""
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        return f"it answered {exc.status}"  # what it says may hold its password
    if isinstance(exc, HttpProcessingError) and _TLS_ALERT in exc.message:
        return "it is TLS; is it https://?"
    if isinstance(exc, HttpProcessingError):
        return _QUOTE.split(exc.message, maxsplit=1)[0] or type(exc).__name__
    if isinstance(exc, ssl.SSLError):  # its errno is none of the system's
        remedy = "; is it http://?" if exc.reason in _PLAIN_REASONS else ""
        return f"the TLS handshake failed: {(exc.reason or str(exc)).lower().replace('_', ' ')}{remedy}"
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0:
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
