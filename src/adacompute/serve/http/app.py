"""The gateway's routes as an ASGI app, and access for web pages.

Pure ASGI: middleware that passes replies through queues would hide a client's disconnect.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adacompute.client.settings import is_loopback
from adacompute.config import KeyConfig, average_budget
from adacompute.errors import (
    ConfigError,
    EndpointError,
    LedgerUnavailable,
    Overloaded,
    RequestInvalid,
    ServeError,
    Unauthorized,
    suggest_name,
)
from adacompute.records import Budget
from adacompute.serve.messages.reply import Refusal, build_error, dump_json, find_error_code
from adacompute.serve.messages.trace_context import read_trace_headers
from adacompute.serve.routes.chat import (
    ChatEndpoint,
    ClientDisconnected,
    RequestSlots,
    check_content_type,
    get_reply_id,
    has_begun,
    read_body,
    read_headers,
    send_reply,
)
from adacompute.serve.routes.forward import ForwardEndpoint, parse_target
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.routes.responses import ResponsesEndpoint
from adacompute.serve.watching.web_pages import DASHBOARD, PLAYGROUND

_log = logging.getLogger("adacompute.serve")
# scope key for the path prefix where the gateway is mounted, which isn't part of its paths
PREFIX_KEY = "adacompute.prefix"
_JSON_HEADERS = {"content-type": "application/json", "cache-control": "no-store"}
_METRICS_HEADERS = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store"}
_ANONYMOUS = "anonymous"  # the key's name if the gateway has no keys
_CHAT_PATH = "/v1/chat/completions"
_RESPONSES_PATH = "/v1/responses"
_FORWARDED_PATHS = ("/v1/embeddings", "/v1/completions")  # the most common forwarded paths
_COUNTED_PATHS = (_CHAT_PATH, _RESPONSES_PATH)  # endpoints that count their own refusals
_BUDGET_PATH = "/admin/budget"
_PATHS = (
    *(_CHAT_PATH, _RESPONSES_PATH, "/v1/models", "/healthz", "/readyz", "/metrics", "/dashboard"),
    _BUDGET_PATH,
)
_MAX_PATCH = 4096  # bytes of a request to change the budget
_SETTLE_SECONDS = 5.0  # time for cancelled requests to settle their spending
# uvicorn's message for requests that it cancels
_UVICORN_STOPS = "Task cancelled, timeout graceful shutdown exceeded"


def build_app(gateway: Gateway) -> ASGIApp:
    """The ASGI app of a gateway."""
    pages, slots = _Pages(gateway), RequestSlots(gateway.settings.max_requests)
    chat = ChatEndpoint(gateway, pages.authenticate, slots)
    forward = ForwardEndpoint(gateway, pages.authenticate, slots)
    responses = ResponsesEndpoint(gateway, pages.authenticate, slots, forward)
    routes = [
        Route(_CHAT_PATH, chat, methods=["POST"]),
        Route(_RESPONSES_PATH, responses, methods=["POST"]),
        Route("/v1/models", _PageEndpoint(pages.list_models), methods=["GET"]),
        Route("/v1/models/{name:path}", _PageEndpoint(pages.describe_model), methods=["GET"]),
        Route("/healthz", _PageEndpoint(pages.health), methods=["GET"]),
        Route("/readyz", _PageEndpoint(pages.readiness), methods=["GET"]),
        Route("/metrics", _PageEndpoint(pages.metrics), methods=["GET"]),
        Route("/dashboard", _PageEndpoint(pages.dashboard), methods=["GET"]),
        Route("/dashboard/data", _PageEndpoint(pages.dashboard_data), methods=["GET"]),
        Route(_BUDGET_PATH, _BudgetEndpoint(gateway, pages.check_operator), methods=["GET", "PATCH"]),
        Route("/v1/{path:path}", forward),  # last: everything not matched above
    ]
    if gateway.settings.playground:
        routes += [
            Route("/", _PageEndpoint(pages.playground), methods=["GET"]),
            Route("/playground/data", _PageEndpoint(pages.playground_data), methods=["GET"]),
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


Reply = tuple[int, Mapping[str, str], bytes]  # status, headers, body


class _ShortcutRouter:
    """Starlette's router, which tries every route, with shortcuts for the most frequent POST paths."""

    def __init__(self, shortcuts: Mapping[str, ASGIApp], routes: Sequence[BaseRoute]) -> None:
        self._router = Router(routes, redirect_slashes=False)
        self._shortcuts = shortcuts

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Passes a request on."""
        app = self._shortcuts.get(scope["path"], self._router) if scope["method"] == "POST" else self._router
        return app(scope, receive, send)


class _Pages:
    """All pages other than chat completions, and authentication."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._keys = Keys(gateway.keys)

    def authenticate(self, headers: Mapping[str, str]) -> str:
        """The name of the client's key; Unauthorized if there is none, or the Host isn't allowed."""
        return _ANONYMOUS if (key := self._find_key(headers)) is None else key.name

    async def list_models(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The models listed by the upstream."""
        self.authenticate(headers)
        models = await self._gateway.list_models()
        described = await asyncio.to_thread(self._describe_models, models.values())
        return 200, _JSON_HEADERS, dump_json({"object": "list", "data": described})

    async def describe_model(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Describes one model."""
        self.authenticate(headers)
        name = scope["path_params"]["name"]
        model = (await self._gateway.list_models()).get(name)
        if model is None:
            raise RequestInvalid(
                f"model {name[:100]!r} is not known; /v1/models lists those that are",
                status=404,
                code="model_not_found",
            )
        (described,) = self._describe_models([model])
        return 200, _JSON_HEADERS, dump_json(described)

    def _describe_models(self, models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The upstream's descriptions of models, masked."""
        return [_describe_model(model) for model in self._gateway.resources.client.mask_models(models)]

    async def health(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """Says that the process is running."""
        return 200, _JSON_HEADERS, b'{"status":"ok"}'

    async def readiness(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """Says whether it accepts requests."""
        if not self._gateway.ready:
            return 503, _JSON_HEADERS, b'{"status":"closing"}'
        if not self._gateway.resources.ledger.available:
            return 503, _JSON_HEADERS, b'{"status":"ledger unavailable"}'
        if self._gateway.is_upstream_resting:  # it still accepts requests, but each may have to wait
            return 200, _JSON_HEADERS, b'{"status":"ready","upstream":"unreachable"}'
        return 200, _JSON_HEADERS, b'{"status":"ready"}'

    async def metrics(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Metrics for Prometheus."""
        self.check_operator(headers)
        summary = await self._gateway.describe_traffic()
        of_workers = self._gateway.add_workers is not None
        return (
            200,
            _METRICS_HEADERS,
            self._gateway.observability.render_metrics(summary, of_workers=of_workers),
        )

    async def dashboard(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The dashboard page."""
        self.check_operator(headers)
        return 200, *DASHBOARD

    async def dashboard_data(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The dashboard's data for the last hour, or with `?span=day` for the last day."""
        self.check_operator(headers)
        span = "day" if scope.get("query_string") == b"span=day" else "hour"
        return 200, _JSON_HEADERS, orjson.dumps(await self._gateway.describe_traffic(span))

    async def playground(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The playground page, which has no data: it asks the user for the key."""
        if not self._gateway.keys:
            _check_host(headers.get("host", ""))
        return 200, *PLAYGROUND

    async def playground_data(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The playground's data about the gateway."""
        self.authenticate(headers)
        return 200, _JSON_HEADERS, dump_json(await self._gateway.describe_playground())

    def check_operator(self, headers: Mapping[str, str]) -> str:
        """The name of the operator's key; Unauthorized for others. Without keys, everyone is an operator."""
        key = self._find_key(headers)
        if key is not None and not key.operator:
            raise Unauthorized(
                f"key {key.name!r} may not see this; the operator's may: operator = true in the keys file",
                status=403,
                code="not_the_operator",
            )
        return _ANONYMOUS if key is None else key.name

    def _find_key(self, headers: Mapping[str, str]) -> KeyConfig | None:
        if self._gateway.keys:
            return self._keys.identify(headers.get("authorization"))
        _check_host(headers.get("host", ""))
        return None


class _PageEndpoint:
    """One page, as an ASGI app."""

    def __init__(self, handler: Callable[[Scope, Mapping[str, str]], Awaitable[Reply]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Sends the page."""
        await send_reply(send, *await self._handler(scope, read_headers(scope)))


class _BudgetEndpoint:
    """The current budget as an ASGI app; an operator's key can change it until the next restart."""

    def __init__(self, gateway: Gateway, check_operator: Callable[[Mapping[str, str]], str]) -> None:
        self._gateway, self._check_operator = gateway, check_operator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the budget, after applying a PATCH."""
        gateway, headers = self._gateway, read_headers(scope)
        key = self._check_operator(headers)
        if scope["method"] == "PATCH":
            if not gateway.keys:
                raise Unauthorized(
                    "only an operator's key may change the budget, and there are no keys; give a keys file "
                    "(--keys FILE) with operator = true, or change adacompute.toml and send SIGHUP",
                    status=403,
                    code="not_the_operator",
                )
            check_content_type(headers)
            await self._change(await read_body(receive, headers, limit=_MAX_PATCH), key)
        budget = gateway.budget
        reply = {
            "budget": str(budget),
            "amount": budget.amount,
            "unit": budget.currency or budget.unit,
            "source": f"PATCH {_BUDGET_PATH}" if gateway.patched_budget else "settings",
            "settings": str(average_budget(gateway.config)),
        }
        await send_reply(send, 200, _JSON_HEADERS, dump_json(reply))

    async def _change(self, raw: bytes, key: str) -> None:
        gateway = self._gateway
        if not gateway.resources.ledger.available:
            raise LedgerUnavailable("the budget can't be shared while the ledger is closed; try again later")
        before, text = gateway.budget, ""
        try:
            value = _parse_patch(raw)
            if value is not None:
                currency = gateway.config.endpoint.currency
                text = str(Budget.parse(value, unit=gateway.settings.unit, currency=currency))
            gateway.set_budget(text)
        except ConfigError as exc:
            raise RequestInvalid(str(exc), param="budget") from exc
        if gateway.share_budget is not None:
            await gateway.share_budget(text)
        _log.warning("budget %s now, in place of %s: changed by key %s", gateway.budget, before, key)


def _parse_patch(raw: bytes) -> float | str | None:
    """The budget in a body; None restores that of the settings."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    is_patch = isinstance(body, dict) and list(body) == ["budget"]
    if not is_patch or isinstance(body["budget"], bool | list | dict):
        raise RequestInvalid(
            'the body is no budget; send {"budget": 3}, {"budget": "2 USD per 1000"}, or {"budget": null}, '
            "which is that of the settings",
            param="budget",
        )
    budget: float | str | None = body["budget"]
    return budget


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


_KEY_REMEDY = "give it as Authorization: Bearer KEY"


class Keys:
    """All known keys. Lookup time doesn't reveal how much of a key was right."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        self._keys = [(_hash_secret(key.key.reveal()), key) for key in keys]

    def identify(self, authorization: str | None) -> KeyConfig:
        """The key in an Authorization header; Unauthorized if it is missing or unknown.

        The header is `Bearer KEY`, or `Basic` with any user and the key as the password.
        """
        if not authorization:
            raise Unauthorized(f"the request has no key; {_KEY_REMEDY}")
        presented = _hash_secret(_read_secret(authorization))
        match = None
        for digest, key in self._keys:  # check all of them: stopping early would reveal which key it was
            if hmac.compare_digest(digest, presented):
                match = key
        if match is None:
            raise Unauthorized(f"the key in the request is not known; {_KEY_REMEDY}")
        return match


def _hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read_secret(authorization: str) -> str:
    """The key in a header's value."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            raise Unauthorized(f"the request's Basic authorization can't be read; {_KEY_REMEDY}") from None
    raise Unauthorized(f"the request's authorization is neither Bearer nor Basic; {_KEY_REMEDY}")


def _check_host(host: str) -> None:
    """Without keys, only names of this machine are accepted: a web page may point its own domain here."""
    if host and not _is_loopback(f"//{host}"):  # HTTP/1.0 may have none; browsers always send one
        raise Unauthorized(
            f"Host {host[:100]!r} is not this machine; other names are served only with keys (keys_file)",
            status=403,
            code="host_not_allowed",
        )


# clients repeat the same host, and parsing takes 20 µs
_is_loopback = lru_cache(maxsize=256)(is_loopback)


def _describe_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The upstream's description of a model, with missing fields that clients rely on."""
    created, owner = model.get("created"), model.get("owned_by")
    return {
        **model,
        "object": "model",
        "created": created if isinstance(created, int) and not isinstance(created, bool) else 0,
        "owned_by": owner if isinstance(owner, str) and owner else "upstream",
    }


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
