"""A client's connection, and the gateway's routes as an ASGI app, with the web pages that may use them.

It is pure ASGI throughout: middleware that passes replies through queues would hide a client's disconnect.

`ClientConnection` is uvicorn's protocol, which limits neither the time of a slow client nor the size of a
request's head, trailers and chunk lines.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from adacompute.errors import (
    EndpointError,
    Overloaded,
    RequestInvalid,
    ServeError,
    suggest_name,
)
from adacompute.serve.http.pages import BUDGET_PATH, BudgetEndpoint, PageEndpoint, Pages, Reply
from adacompute.serve.messages.reply import Refusal, build_error, find_error_code
from adacompute.serve.messages.trace_context import read_trace_headers
from adacompute.serve.routes.chat import (
    ChatEndpoint,
    ClientDisconnected,
    Keys,
    RequestSlots,
    get_reply_id,
    has_begun,
    read_headers,
    send_reply,
)
from adacompute.serve.routes.forward import ForwardEndpoint, parse_target
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.routes.responses import ResponsesEndpoint

_log = logging.getLogger("adacompute.serve")
# scope key for the path prefix where the gateway is mounted, which isn't part of its paths
PREFIX_KEY = "adacompute.prefix"
_CHAT_PATH = "/v1/chat/completions"
_RESPONSES_PATH = "/v1/responses"
_FORWARDED_PATHS = ("/v1/embeddings", "/v1/completions")  # the most common forwarded paths
_COUNTED_PATHS = (_CHAT_PATH, _RESPONSES_PATH)  # endpoints that count their own refusals
_PATHS = (
    *(_CHAT_PATH, _RESPONSES_PATH, "/v1/models", "/healthz", "/readyz", "/metrics", "/dashboard"),
    BUDGET_PATH,
)
_SETTLE_SECONDS = 5.0  # time for cancelled requests to settle their spending
# uvicorn's message for requests that it cancels
_UVICORN_STOPS = "Task cancelled, timeout graceful shutdown exceeded"


def build_app(gateway: Gateway) -> ASGIApp:
    """The ASGI app of a gateway."""
    keys, slots = Keys(gateway.keys), RequestSlots(gateway.settings.max_requests)
    pages = Pages(gateway, keys)
    chat = ChatEndpoint(gateway, keys.authenticate, slots)
    forward = ForwardEndpoint(gateway, keys.authenticate, slots)
    responses = ResponsesEndpoint(gateway, keys.authenticate, slots, forward)
    routes = [
        Route(_CHAT_PATH, chat, methods=["POST"]),
        Route(_RESPONSES_PATH, responses, methods=["POST"]),
        Route("/v1/models", PageEndpoint(pages.list_models), methods=["GET"]),
        Route("/v1/models/{name:path}", PageEndpoint(pages.describe_model), methods=["GET"]),
        Route("/healthz", PageEndpoint(pages.health), methods=["GET"]),
        Route("/readyz", PageEndpoint(pages.readiness), methods=["GET"]),
        Route("/metrics", PageEndpoint(pages.metrics), methods=["GET"]),
        Route("/dashboard", PageEndpoint(pages.dashboard), methods=["GET"]),
        Route("/dashboard/data", PageEndpoint(pages.dashboard_data), methods=["GET"]),
        Route(BUDGET_PATH, BudgetEndpoint(gateway, keys.check_operator), methods=["GET", "PATCH"]),
        Route("/v1/{path:path}", forward),  # last: everything not matched above
    ]
    if gateway.settings.playground:
        routes += [
            Route("/", PageEndpoint(pages.playground), methods=["GET"]),
            Route("/playground/data", PageEndpoint(pages.playground_data), methods=["GET"]),
        ]
    shortcuts: dict[str, ASGIApp] = {_CHAT_PATH: chat, **dict.fromkeys(_FORWARDED_PATHS, forward)}
    app = _ErrorMiddleware(_ShortcutRouter(shortcuts, routes), gateway)
    return _open_to_pages(app, gateway.settings.cors) if gateway.settings.cors else app


def _open_to_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Opens paths under /v1 to web pages from these origins, but never the dashboard or metrics.

    The browser's credentials aren't allowed: a page sends its own key.
    """
    cors = _PageMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=("*",),
        allow_private_network=True,
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "http" and _API_PATH.match(scope["path"])
        await (cors if is_open else app)(scope, receive, send)

    return serve


class _PageMiddleware(CORSMiddleware):
    """Starlette's middleware with refusals in OpenAI's format."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        said = bytes(response.body).decode().lower()  # e.g. "disallowed cors origin, method"
        status, headers, body = build_error(RequestInvalid(f"{said}; name the page's origin in serve.cors"))
        return Response(body, status, {**headers, "vary": "Origin"})


class _ShortcutRouter:
    """Starlette's router, which tries every route, with shortcuts for the most frequent POST paths."""

    def __init__(self, shortcuts: Mapping[str, ASGIApp], routes: Sequence[BaseRoute]) -> None:
        self._router = Router(routes, redirect_slashes=False)
        self._shortcuts = shortcuts

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Passes a request on."""
        app = self._shortcuts.get(scope["path"], self._router) if scope["method"] == "POST" else self._router
        return app(scope, receive, send)


class _ErrorMiddleware:
    """Turns every error into a reply in OpenAI's format, unless a reply has begun.

    Every reply gets an id: the completion's, if there is one.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request, and replies with an error if one is raised."""
        if scope["type"] != "http":
            return
        scope["app"] = self
        _normalise_path(scope)
        started, came_at = False, time.time_ns()

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if not started:
                started = True
                _set_reply_id(message, scope)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnected:
            return
        except Exception as exc:
            if started:
                is_known = isinstance(exc, EndpointError)
                _log.error("a reply was cut off: %s", exc, exc_info=None if is_known else exc)
                raise
            await send_reply(send_with_id, *self._build_reply(exc, scope, came_at))

    def _build_reply(self, exc: Exception, scope: Scope, came_at: int) -> Reply:
        allow: Mapping[str, str] = {}
        counted_by_endpoint = scope["path"] in _COUNTED_PATHS and not isinstance(exc, HTTPException)
        if isinstance(exc, HTTPException):  # from the router
            allow = exc.headers or {}
            exc = _make_not_found(scope, exc.status_code, allow.get("Allow", ""))
        elif not isinstance(exc, ServeError | EndpointError):
            _log.error("a request failed unexpectedly", exc_info=exc)
            exc = ServeError("the gateway failed; its log says why")
        if isinstance(exc, ServeError) and not counted_by_endpoint:
            self._gateway.observability.on_refusal(exc.status, exc.code)
        status, headers, body = build_error(exc)
        telemetry = self._gateway.telemetry
        if telemetry is not None and not has_begun(scope):
            refusal = _describe_refusal(scope, status, find_error_code(exc), came_at)
            self._gateway.guard(telemetry.record_refusal, refusal, read_trace_headers(read_headers(scope)))
        if _log.isEnabledFor(logging.DEBUG):
            context = {"id": get_reply_id(scope), "method": scope["method"][:20], "path": scope["path"][:100]}
            code = exc.code if isinstance(exc, ServeError) else exc.kind
            _log.debug("refused", extra={**context, "status": status, "code": code})
        return status, {**headers, **allow}, body


def _normalise_path(scope: Scope) -> None:
    """Removes doubled and trailing slashes, from carelessly joined URLs."""
    raw = scope.get("raw_path") or scope["path"].encode("latin-1", "replace")
    if b"//" in raw or (raw.endswith(b"/") and len(raw) > 1):
        raw = re.sub(rb"/+", b"/", raw)
        raw = raw.rstrip(b"/") or b"/"
        scope["path"] = unquote(raw.decode("latin-1"))
    scope["raw_path"] = raw


def _set_reply_id(message: Message, scope: Scope) -> None:
    """Adds an id to a reply, unless it has one."""
    headers = message.setdefault("headers", [])
    for name, _ in headers:
        if name == b"x-request-id":
            return
    headers.append((b"x-request-id", get_reply_id(scope).encode()))


def _describe_refusal(scope: Scope, status: int, code: str, came_at: int) -> Refusal:
    """Describes a refused request, without anything that clients can choose freely."""
    path, method = scope["path"], scope["method"]
    route, operation = (path, "") if path in _PATHS else ("", "")
    if method == "POST" and path in _COUNTED_PATHS:
        operation = "chat"
    elif not route:
        with contextlib.suppress(HTTPException, ServeError):  # the path may be the reason
            target = parse_target(method, scope["raw_path"])
            route, operation = f"/v1/{target.route}", "" if target.free else target.route
    return Refusal(
        method=method,
        route=route,
        operation=operation,
        status=status,
        code=code,
        started_at=came_at,
        ended_at=time.time_ns(),
    )


def _make_not_found(scope: Scope, status: int, allow: str) -> RequestInvalid:
    """The error for an unknown path or method, with a suggestion."""
    path = scope["path"][:100]
    place = f" under {prefix!r}" if (prefix := scope.get(PREFIX_KEY, "")) else ""
    problem = f"{scope['method'][:20]} {path!r} is not served{place}"
    if status == 405:
        return RequestInvalid(f"{problem}; it takes {allow}", status=405, code="method_not_allowed")
    remedy = suggest_name(path, _PATHS, cutoff=0.65).strip() or f"there are {', '.join(_PATHS)}"
    return RequestInvalid(f"{problem}; {remedy}", status=status, code="not_found")


_API_PATH = re.compile(r"/+v1(?:/|$)")


class RequestTracker:
    """An ASGI app around the gateway's that tracks API requests, so that a shutdown can wait for them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelling = False  # whether the remaining requests are being cancelled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, tracking it."""
        task = asyncio.current_task()
        is_tracked = scope["type"] == "http" and (
            scope["method"] == "POST" or scope["path"].startswith("/v1/")
        )
        if task is None or not is_tracked:
            await self._app(scope, receive, send)
            return
        self._tasks.add(task)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError as exc:
            if not self._cancelling and _UVICORN_STOPS not in exc.args:
                raise  # from elsewhere, e.g. a time limit around the application
            with contextlib.suppress(RuntimeError):  # raised if the reply has begun, which then ends
                error = Overloaded("the gateway closed down before this was done; try again", retry_after=1.0)
                status, headers, body = build_error(error)
                ending = {} if scope["http_version"].startswith("2") else {"connection": "close"}
                await send_reply(
                    send, status, {**headers, "x-request-id": get_reply_id(scope), **ending}, body
                )
        finally:
            self._tasks.discard(task)

    async def drain(self, *, within: float, immediately: asyncio.Event) -> int:
        """Waits for requests in flight, then cancels the rest; returns how many were cancelled.

        They have `within` seconds; `immediately` is set if there is no time left.
        """
        hurry_task = asyncio.create_task(immediately.wait())
        remaining, now = set(self._tasks), asyncio.get_running_loop().time
        until = now() + within
        try:
            while remaining and not hurry_task.done() and (seconds := until - now()) > 0:
                done, _ = await asyncio.wait(
                    {*remaining, hurry_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                remaining -= done
        finally:  # even if the wait is cancelled: no request may outlive its gateway
            hurry_task.cancel()
            self._cancelling = True
            for task in remaining:
                task.cancel()
        if remaining:
            await asyncio.wait(remaining, timeout=_SETTLE_SECONDS)
        return len(remaining)


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
            self._waiting_since = now  # the client couldn't send while reading was paused
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
