"""The gateway's ASGI app, with access for other sites' web pages (CORS), and its client connections.

All middleware is pure ASGI: Starlette's `BaseHTTPMiddleware` would hide a client's disconnect.

`ClientConnection` adds limits to uvicorn's protocol: on the time that a slow client may take, and on the
length of a request's headers, trailers and chunk lines.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route, Router
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
    ChatShape,
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
# ASGI scope key of the path under which another application has mounted the gateway
PREFIX_KEY = "adacompute.prefix"
_CHAT_PATH = "/v1/chat/completions"
_RESPONSES_PATH = "/v1/responses"
_COUNTED_PATHS = (_CHAT_PATH, _RESPONSES_PATH)  # paths whose endpoints count refused requests in metrics
_PATHS = (
    *(_CHAT_PATH, _RESPONSES_PATH, "/v1/models", "/healthz", "/readyz", "/metrics", "/dashboard"),
    BUDGET_PATH,
)
_SETTLE_SECONDS = 5.0  # seconds that cancelled requests have to record their spending
# argument of the CancelledError if uvicorn cancels a request
_UVICORN_STOPS = "Task cancelled, timeout graceful shutdown exceeded"


def build_app(gateway: Gateway) -> ASGIApp:
    """Builds the ASGI app of a gateway."""
    keys, slots = Keys(gateway.keys), RequestSlots(gateway.settings.max_requests)
    pages = Pages(gateway, keys)
    make_chat = partial(ChatEndpoint, gateway, keys.authenticate, slots)
    chat, forward = make_chat(ChatShape()), ForwardEndpoint(gateway, keys.authenticate, slots)
    responses = ResponsesEndpoint(gateway, make_chat, forward)
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
        Route("/v1/{path:path}", forward),  # must be last: takes all paths that no route above matches
    ]
    if gateway.settings.playground:
        routes += [
            Route("/", PageEndpoint(pages.playground), methods=["GET"]),
            Route("/playground/data", PageEndpoint(pages.playground_data), methods=["GET"]),
        ]
    shortcuts: dict[str, ASGIApp] = {_CHAT_PATH: chat, "/v1/embeddings": forward, "/v1/completions": forward}
    app = _ErrorMiddleware(_ShortcutRouter(shortcuts, routes), gateway)
    return _open_to_pages(app, gateway.settings.cors) if gateway.settings.cors else app


def _open_to_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Lets web pages from these origins use paths under /v1, but never the dashboard or metrics.

    A page must send a key itself: the browser adds no cookies or other credentials.
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
    """Starlette's CORS middleware, but refused preflight requests get an error in OpenAI's format."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        said = bytes(response.body).decode().lower()  # e.g. "disallowed cors origin, method"
        status, headers, body = build_error(RequestInvalid(f"{said}; name the page's origin in serve.cors"))
        return Response(body, status, {**headers, "vary": "Origin"})


class _ShortcutRouter:
    """Looks up the most frequent POST paths in a map; passes other requests to Starlette's slower router."""

    def __init__(self, shortcuts: Mapping[str, ASGIApp], routes: Sequence[Route]) -> None:
        self._router = Router(routes, redirect_slashes=False)
        self._shortcuts = shortcuts

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Passes a request to its endpoint."""
        app = self._shortcuts.get(scope["path"], self._router) if scope["method"] == "POST" else self._router
        return app(scope, receive, send)


class _ErrorMiddleware:
    """Turns every error into a reply in OpenAI's format, unless a reply has begun.

    Every reply gets an `x-request-id` header: the completion's id if there is one, otherwise a new id.
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
                headers = message.setdefault("headers", [])
                if b"x-request-id" not in dict(headers):
                    headers.append((b"x-request-id", get_reply_id(scope).encode()))
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
        if isinstance(exc, HTTPException):  # raised by the router
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
    """Removes doubled and trailing slashes from the path; they come from carelessly joined URLs."""
    raw = scope.get("raw_path") or scope["path"].encode("latin-1", "replace")
    if b"//" in raw or (raw.endswith(b"/") and len(raw) > 1):
        raw = re.sub(rb"/+", b"/", raw)
        raw = raw.rstrip(b"/") or b"/"
        scope["path"] = unquote(raw.decode("latin-1"))
    scope["raw_path"] = raw


def _describe_refusal(scope: Scope, status: int, code: str, came_at: int) -> Refusal:
    """Describes a refused request for telemetry, without texts that clients can choose freely."""
    path, method = scope["path"], scope["method"]
    route, operation = (path, "") if path in _PATHS else ("", "")
    if method == "POST" and path in _COUNTED_PATHS:
        operation = "chat"
    elif not route:
        with contextlib.suppress(HTTPException, ServeError):  # raised for an invalid path
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
    """Makes the error for an unknown path or method, with a suggestion."""
    path = scope["path"][:100]
    place = f" under {prefix!r}" if (prefix := scope.get(PREFIX_KEY, "")) else ""
    problem = f"{scope['method'][:20]} {path!r} is not served{place}"
    if status == 405:
        return RequestInvalid(f"{problem}; it takes {allow}", status=405, code="method_not_allowed")
    remedy = suggest_name(path, _PATHS, cutoff=0.65).strip() or f"there are {', '.join(_PATHS)}"
    return RequestInvalid(f"{problem}; {remedy}", status=status, code="not_found")


_API_PATH = re.compile(r"/+v1(?:/|$)")


class RequestTracker:
    """Wraps the gateway's ASGI app and tracks API requests, so that a shutdown can wait for them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelling = False  # whether the remaining requests are being cancelled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to the app, and tracks it until it ends."""
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
                raise  # not cancelled by `drain` or uvicorn, but e.g. by a time limit around the application
            with contextlib.suppress(RuntimeError):  # raised if the reply has already begun
                error = Overloaded("the gateway closed down before this was done; try again", retry_after=1.0)
                status, headers, body = build_error(error)
                ending = {} if scope["http_version"].startswith("2") else {"connection": "close"}
                await send_reply(
                    send, status, {**headers, "x-request-id": get_reply_id(scope), **ending}, body
                )
        finally:
            self._tasks.discard(task)

    async def drain(self, *, within: float, immediately: asyncio.Event) -> int:
        """Waits for requests in flight, then cancels those still unfinished; returns how many it cancelled.

        The wait ends after `within` seconds, or when `immediately` is set.
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


MAX_HEAD_BYTES = 65_536  # maximum size of a request's first line and headers, and of its trailers
_PARSER_STEP = 1024  # number of bytes parsed at a time; limits are checked after each step
# maximum length of the line before each chunk of a body, which has the chunk's size; up to 1 KiB of a line
# may go uncounted, so lines above 4 KiB are always refused
_MAX_LINE_BYTES = 3 * _PARSER_STEP
# bytes/s of a body that a client must send; if it falls `client_timeout` seconds behind, it is disconnected
_MIN_BODY_RATE = 16 * 1024
_MAX_WAITING = 100  # maximum number of requests on a connection that wait for earlier ones to be answered
# maximum number of bytes of a refused body to receive and discard, so that the client reads the reply
_MAX_DISCARDED = 16 * 2**20
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
        self._running: RequestResponseCycle | None = None  # the request being answered, else the previous one
        self._in_head = False  # whether headers are being received
        self._in_chunk = False  # whether a chunk of the body, or the trailers after it, is being received
        self._is_chunked = False  # whether the body is chunked
        self._unended_bytes = 0  # bytes received so far of unfinished headers, trailers or chunk line
        self._discarded = 0  # bytes received after the reply was sent
        # when we began to wait for the client's data; None: not waiting
        self._waiting_since: float | None = time.monotonic()
        self._unread_since: float | None = None  # when the client stopped reading its reply; None: it reads

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the request being answered of the disconnect; uvicorn only tells the last queued request."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn may leave its keep-alive timer running
        del self.app  # breaks a reference cycle: `app` refers to this object
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        try:
            # in small steps, to check the length of headers, chunk lines and trailers after each
            for start in range(0, len(data), _PARSER_STEP):
                piece = data[start : start + _PARSER_STEP]
                self._unended_bytes += len(piece)
                self._parse_piece(piece)
                self._check_lengths()
                if self.transport.is_closing():
                    break
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(b"400 Bad Request", b"this is not an HTTP/1.1 request; was https sent to http?")
        if self._running is not None and not self._in_head:
            self._track_body(len(data))

    def _parse_piece(self, piece: bytes) -> None:
        """Parses a piece of the data; ignores offers to switch to another protocol.

        Some clients, such as Java's, make this offer by a header `Upgrade`. The headers are then parsed again
        without it.
        """
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as exc:
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            # the same setting as uvicorn's
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(b"".join([*lines, b"\r\n", piece[exc.args[0] :]]))

    def _check_lengths(self) -> None:
        """Refuses a request whose headers, trailers or chunk line exceed the limits."""
        in_headers, size = self._in_head or self._in_chunk, self._unended_bytes
        if in_headers and size > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"headers are above 64 KiB; send fewer")
        elif self._is_chunked and not in_headers and size >= _MAX_LINE_BYTES:
            message = b"the line before a chunk is above 4 KiB; leave its extensions out"
            self._refuse(b"400 Bad Request", message)

    def _track_body(self, size: int) -> None:
        """Gives the client more time for every byte of a body that arrives.

        If the reply is already sent, discards the rest of the body; closes the connection if the rest is too
        large.
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
        """Stops the timer that closes idle connections. Empty lines before a request don't stop it."""
        self._unset_keepalive_if_required()
        self._in_head, self._is_chunked, self._discarded = True, False, 0
        self._waiting_since = time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Checks a request once its headers are complete. Offers of another protocol: see `_parse_piece`."""
        if self.parser.should_upgrade() or self.transport.is_closing():
            return
        is_idle = self._running is None or self.cycle.response_complete
        if not is_idle and self.cycle.scope["method"] == "POST":
            # Clients normally wait for the reply to a POST before they send another request. Queueing this
            # one would pause reading, so a disconnect during the POST would go unnoticed.
            self.transport.abort()
            return
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise ValueError("another coding of a body, which servers read differently")
                self._is_chunked = True
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._refuse(b"400 Bad Request", b"HTTP/1.1 has one Host header; send it, and once")
            return
        self._in_head, self._unended_bytes = False, 0
        super().on_headers_complete()
        # receives the trailers, which nothing reads: they can't be trusted, because proxies don't check them
        self.headers = []
        if is_idle:
            self._running = self.cycle
        if len(self.pipeline) > _MAX_WAITING:
            self.transport.abort()

    def on_chunk_header(self) -> None:
        """Marks the beginning of a chunk. The last chunk has no content, but headers (trailers) follow."""
        self._in_chunk, self._unended_bytes = True, 0

    def on_chunk_complete(self) -> None:
        """Marks the end of a chunk, or of the trailers after the last chunk."""
        self._in_chunk, self._unended_bytes = False, 0

    def on_body(self, body: bytes) -> None:
        """Passes on a part of a request's body, unless the request's headers were ignored."""
        self._unended_bytes = 0
        if not self._in_head:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request. Does nothing for it if its headers were ignored: see `_parse_piece`."""
        self._is_chunked, self._unended_bytes = False, 0
        if not self._in_head:
            self._waiting_since = None
            super().on_message_complete()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the gateway's app; closes the connection if a reply breaks off (the reason is already logged).

        Also closes it after a reply to a client that was still waiting for `100 Continue`: the client may
        send its body nevertheless.
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
        """Handles the end of a reply. If further requests are queued, pauses reading from the client."""
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
        """Aborts the connection if the client has kept us waiting for more than `patience` seconds."""
        if self._waiting_since is not None and self.flow.read_paused:
            # restarts the wait, because the client couldn't send while reading was paused
            self._waiting_since = now
        if self.transport.is_closing() and self._unread_since is None:
            # limits the time in which the client must read the rest of its reply; then the connection closes
            self._unread_since = now
        since = [start for start in (self._waiting_since, self._unread_since) if start is not None]
        if since and now - min(since) > patience:
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection; aborts it if the client has left part of a reply unread."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _refuse(self, status: bytes, message: bytes) -> None:
        """Closes the connection; before that, sends an error unless a reply has begun."""
        if self.transport.is_closing():
            return
        running, body = self._running, _ERROR_TEMPLATE % message
        if running is None or running.response_complete or not running.response_started:
            self.transport.write(_REFUSAL_TEMPLATE % (status, len(body), body))
        self.transport.close()
