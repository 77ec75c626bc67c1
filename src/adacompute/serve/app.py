"""The gateway's routes as an ASGI app. Knows HTTP; decides nothing.

Pure ASGI to the bottom: middleware that hands replies on through queues would hide that a client has gone.
"""

import difflib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router
from starlette.routing import Route as At
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adacompute.errors import EndpointError, RequestInvalid, ServeError, Unauthorized
from adacompute.serve.chat import Chat, headers_in, id_of, replied
from adacompute.serve.dashboard import HEADERS, PAGE
from adacompute.serve.gateway import Gateway
from adacompute.serve.keys import Key
from adacompute.serve.limits import ClientGone
from adacompute.serve.reply import failure
from adacompute.serve.seen import Seen

__all__ = ["build_app"]

_LOG = logging.getLogger("adacompute.serve")
_JSON = {"content-type": "application/json", "cache-control": "no-store"}
_METRICS = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store"}
_ANYBODY = "anonymous"  # the key's name where there are none
_CHAT = "/v1/chat/completions"
_PLACES = (_CHAT, "/v1/models", "/healthz", "/readyz", "/metrics", "/dashboard")  # for whoever is lost


def build_app(gateway: Gateway) -> ASGIApp:
    """The app of a gateway."""
    desk = _Desk(gateway)
    chat = Chat(gateway, desk.who)
    routes = [
        At(_CHAT, chat, methods=["POST"]),
        At("/v1/models", _Page(desk.models), methods=["GET"]),
        At("/v1/models/{name:path}", _Page(desk.model), methods=["GET"]),
        At("/healthz", _Page(desk.health), methods=["GET"]),
        At("/readyz", _Page(desk.readiness), methods=["GET"]),
        At("/metrics", _Page(desk.metrics), methods=["GET"]),
        At("/dashboard", _Page(desk.dashboard), methods=["GET"]),
        At("/dashboard/data", _Page(desk.board), methods=["GET"]),
    ]
    return _Shaped(_Routes(chat, routes), gateway.seen)


Reply = tuple[int, Mapping[str, str], bytes]  # status, headers, body


class _Routes(Router):
    """Starlette's, but for the one that nearly all requests are for: that isn't looked for."""

    def __init__(self, chat: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        super().__init__(routes, redirect_slashes=False)
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on."""
        if scope["path"] == _CHAT and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Desk:
    """All routes but the one that works: who may ask, and what can be looked at."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def who(self, headers: Mapping[str, str]) -> str:
        """The name of the client's key; Unauthorized where it has none, or comes by a false name."""
        return _ANYBODY if (key := self._key(headers)) is None else key.name

    async def models(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The models that can be asked, as the upstream lists them."""
        self.who(headers)
        names = await self._gateway.models()
        return 200, _JSON, orjson.dumps({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """One of them."""
        self.who(headers)
        name = scope["path_params"]["name"]
        if name not in await self._gateway.models():
            raise RequestInvalid(
                f"model {name[:100]!r} is not known; /v1/models lists those that are",
                status=404,
                code="model_not_found",
            )
        return 200, _JSON, orjson.dumps(_model(name))

    async def health(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """It runs."""
        return 200, _JSON, b'{"status":"ok"}'

    async def readiness(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """It takes requests."""
        if not self._gateway.ready:
            return 503, _JSON, b'{"status":"closing"}'
        if not self._gateway.means.ledger.available:
            return 503, _JSON, b'{"status":"ledger unavailable"}'
        return 200, _JSON, b'{"status":"ready"}'

    async def metrics(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """For Prometheus."""
        self._operator(headers)
        self._gateway.tell()
        return 200, _METRICS, self._gateway.seen.metrics()

    async def dashboard(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """For people."""
        self._operator(headers)
        return 200, HEADERS, PAGE

    async def board(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """What the dashboard shows, of the last hour, or `?span=day`."""
        self._operator(headers)
        self._gateway.tell()
        span = "day" if scope.get("query_string") == b"span=day" else "hour"
        return 200, _JSON, orjson.dumps(self._gateway.seen.board(span))

    def _operator(self, headers: Mapping[str, str]) -> None:
        key = self._key(headers)
        if key is not None and not key.operator:
            raise Unauthorized(
                f"key {key.name!r} may not see this; the operator's may: operator = true in the keys file",
                status=403,
                code="not_the_operator",
            )

    def _key(self, headers: Mapping[str, str]) -> Key | None:
        keys = self._gateway.keys
        if not len(keys):
            _check_host(headers.get("host", ""))
        return keys.who(headers.get("authorization"))


class _Page:
    """One thing to look at, as an ASGI app."""

    def __init__(self, give: Callable[[Scope, Mapping[str, str]], Awaitable[Reply]]) -> None:
        self._give = give

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Replies with it."""
        await replied(send, *await self._give(scope, headers_in(scope)))


class _Shaped:
    """Whatever goes wrong below is an error in OpenAI's shape, unless the reply has begun.

    Every reply has an id: that of the completion, where there is one.
    """

    def __init__(self, app: ASGIApp, seen: Seen) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves, and replies with the error where there is one."""
        if scope["type"] != "http":
            return
        scope["app"] = self
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            if not begun:
                begun = True
                _name(message, scope)
            await send(message)

        try:
            await self._app(scope, receive, told)
        except ClientGone:
            return  # nobody is there to be told
        except Exception as exc:
            if begun:
                _LOG.exception("a reply broke off")
                raise
            await replied(told, *self._failure(exc, scope))

    def _failure(self, exc: Exception, scope: Scope) -> Reply:
        allow: Mapping[str, str] = {}
        counted = scope["path"] == _CHAT and not isinstance(exc, HTTPException)  # there, and only there
        if isinstance(exc, HTTPException):  # the router's
            allow = exc.headers or {}  # the methods that there are
            exc = _lost(scope, exc.status_code, allow.get("Allow", ""))
        elif not isinstance(exc, ServeError | EndpointError):
            _LOG.error("a request failed in a way that nobody thought of", exc_info=exc)
            exc = ServeError("the gateway failed; its log says why")
        if isinstance(exc, ServeError) and not counted:
            self._seen.refused(exc.status, exc.code)
        status, headers, body = failure(exc)
        if _LOG.isEnabledFor(logging.DEBUG):
            where = {"id": id_of(scope), "method": scope["method"][:20], "path": scope["path"][:100]}
            code = exc.code if isinstance(exc, ServeError) else exc.kind
            _LOG.debug("refused", extra={**where, "status": status, "code": code})
        return status, {**headers, **allow}, body


def _name(message: Message, scope: Scope) -> None:
    """Gives a reply its id, unless it has one."""
    headers = message.setdefault("headers", [])
    if not any(name == b"x-request-id" for name, _ in headers):
        headers.append((b"x-request-id", id_of(scope).encode()))


def _lost(scope: Scope, status: int, allow: str) -> RequestInvalid:
    """The error for a path or a method that there isn't, with those that may have been meant."""
    path = scope["path"][:100]
    asked = f"{scope['method'][:20]} {path!r} is not served"
    if status == 405:
        return RequestInvalid(f"{asked}; it takes {allow}", status=405, code="method_not_allowed")
    near = difflib.get_close_matches(path, _PLACES, n=1, cutoff=0.65)
    remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(_PLACES)}"
    return RequestInvalid(f"{asked}; {remedy}", status=status, code="not_found")


def _check_host(host: str) -> None:
    """Without keys only this machine's own names are served: a web page may have its own name point here."""
    if not _is_near(host):
        raise Unauthorized(
            f"Host {host[:100]!r} is not this machine; other names are served only with keys (keys_file)",
            status=403,
            code="host_not_allowed",
        )


@lru_cache(maxsize=256)  # clients name the same one each time, and it takes 20 µs to read
def _is_near(host: str) -> bool:
    if not host:  # as in HTTP/1.0; browsers always name one
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "") if host.isprintable() else ""
    except ValueError:  # half an address of IPv6
        return False
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "upstream"}
