"""The gateway as an ASGI application, to mount in another application or run with any ASGI server.

`adacompute serve` uses `server` instead, which has its own sockets and signals.
"""

import asyncio
import logging
import re
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Receive, Scope, Send

from adacompute.client.modes import build_mode_endpoints, read_mode_list
from adacompute.client.settings import build_endpoint
from adacompute.config import MODES_KEY, Config, ServeConfig
from adacompute.errors import AdacomputeError, ConfigError, NotOpen
from adacompute.serve.http.app import PREFIX_KEY, RequestTracker, build_app
from adacompute.serve.messages.reply import build_error
from adacompute.serve.routes.chat import get_reply_id, send_reply
from adacompute.serve.routes.lifespan import open_gateway

_log = logging.getLogger("adacompute.serve")
# settings that only `adacompute serve` supports
_SERVER_SETTINGS = ("host", "port", "workers", "tls_cert", "tls_key", "client_timeout", "log")
_NEVER_OPENED = (
    "the gateway is not open: the application that mounts it has to run its lifespan, e.g. "
    "Starlette(routes=…, lifespan=gateway.lifespan)"
)
_CLOSED = "the gateway is closed: the lifespan of the application has ended; start the application again"
_ENCODED_CHARACTER = re.compile(rb"%[0-9A-Fa-f]{2}|.", re.DOTALL)


def gateway(config: Config | ServeConfig, *, upstream: str = "", model: str = "") -> "GatewayApp":
    """Makes the gateway's ASGI application; it opens nothing before its lifespan begins.

    `upstream` and `model` override the url and model of [endpoint] in `config`. Raises ConfigError if there
    is no upstream, or its address is invalid.
    """
    config = Config(serve=config) if isinstance(config, ServeConfig) else config
    if not isinstance(config, Config):
        raise ConfigError(  # the message doesn't quote the value, which may contain a key
            f"config, a {type(config).__name__}, is not a Config; give ac.ServeConfig(…) or ac.Config(…)"
        )
    for name, value, remedy in (("upstream", upstream, "URL"), ("model", model, "NAME")):
        if not isinstance(value, str):
            raise ConfigError(f"{name} {value!r} is not a text; give {name}={remedy}")
    endpoint = replace(
        config.endpoint, url=upstream or config.endpoint.url, model=model or config.endpoint.model
    )
    _, modes = read_mode_list(config)
    if modes is not None:
        for name, value in (("upstream", upstream), ("model", model)):
            if value:
                raise ConfigError(
                    f"{name} is given beside {MODES_KEY}, which has it for each mode; leave one out"
                )
        build_mode_endpoints(modes)
    else:
        build_endpoint(endpoint, remedy=f"give upstream=URL, or {MODES_KEY}=FILE in the settings")
    _warn_of_server_settings(config.serve)
    return GatewayApp(replace(config, endpoint=endpoint, serve=replace(config.serve, workers=1)))


class GatewayApp:
    """The gateway as an ASGI application. It is open during its lifespan, which may be run several times.

    A server that runs this application directly starts the lifespan. An application that mounts it must do so
    itself, because servers don't tell mounted applications: `Starlette(lifespan=app.lifespan)`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._tracker: RequestTracker | None = None  # None while the gateway is closed
        self._is_open = False  # True from the beginning of opening to the end of closing
        self._was_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request, or handles lifespan events."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        elif self._tracker is None:
            status, headers, body = build_error(NotOpen(_CLOSED if self._was_open else _NEVER_OPENED))
            await send_reply(send, status, {**headers, "x-request-id": get_reply_id(scope)}, body)
        else:
            await self._tracker(_cut_prefix(scope), receive, send)

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - given by Starlette
        """Opens the gateway for an `async with` block; at its end, waits for requests and closes the gateway.

        Suitable for `lifespan=` of Starlette and FastAPI, which pass `app`, the mounting application. Raises
        AdacomputeError with the remedy if the gateway can't be opened.
        """
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        if self._is_open:
            raise ConfigError(
                "the gateway is open already; run its lifespan once, or make another one with ac.gateway(…)"
            )
        self._is_open = True
        try:
            async with open_gateway(self.config) as opened:
                tracker = self._tracker = RequestTracker(build_app(opened))
                self._was_open = True
                try:
                    yield
                finally:
                    opened.ready = False
                    cancelled = await tracker.drain(
                        within=self.config.serve.grace, immediately=asyncio.Event()
                    )
                    if cancelled:
                        _log.warning("requests cancelled because their grace period was over: %d", cancelled)
        finally:
            self._tracker = None
            self._is_open = False

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Handles the lifespan events from a server."""
        await receive()  # the message lifespan.startup
        opened = self._open()
        try:
            await opened.__aenter__()
        except AdacomputeError as exc:
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()  # the message lifespan.shutdown
        finally:
            await opened.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})


def _warn_of_server_settings(settings: ServeConfig) -> None:
    """Warns about settings that have no effect here, because only the surrounding server can control them."""
    defaults = ServeConfig()
    names = [name for name in _SERVER_SETTINGS if getattr(settings, name) != getattr(defaults, name)]
    if names:
        warnings.warn(
            f"{', '.join(names)} of the gateway: not used in your own application; set up your ASGI server "
            "instead, and leave them out here",
            stacklevel=3,
        )


def _cut_prefix(scope: Scope) -> Scope:
    """Copies the scope, and removes from its paths the prefix under which the gateway is mounted.

    The prefix is `root_path`. In ASGI, `path` begins with it, but some servers omit it. A proxy may have
    removed the prefix's first part, `app_root_path`; then `path` begins with the rest.
    """
    path, prefix = scope["path"], scope.get("root_path", "").rstrip("/")
    for start in (prefix, prefix.removeprefix(scope.get("app_root_path", ""))):
        if start and (path == start or path.startswith(f"{start}/")):
            path = path[len(start) :]
            break
    path = path or "/"
    raw_path = _cut_raw_path(scope.get("raw_path") or b"", path)
    return {**scope, "path": path, "raw_path": raw_path, "root_path": "", PREFIX_KEY: prefix}


def _cut_raw_path(raw: bytes, path: str) -> bytes:
    """Returns the end of `raw` that decodes to `path`; if there is none, returns `path` encoded again."""
    encoded = path.encode("utf-8", "surrogatepass")
    surplus = len(unquote_to_bytes(raw)) - len(encoded)
    if surplus > 0:
        head = 0
        for _, match in zip(range(surplus), _ENCODED_CHARACTER.finditer(raw), strict=False):
            head = match.end()
        raw = raw[head:]
    return raw if unquote_to_bytes(raw) == encoded else quote(encoded).encode()
