"""Runs the gateway: opens sockets, serves, and shuts down gracefully.

The entry points are `serve` and `run`; applications that mount the gateway use `asgi`. A request passes
through `ClientConnection`, uvicorn's protocol with limits, and `RequestTracker`, an ASGI app around the
gateway's own, which lets a shutdown wait for requests in flight.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import uvicorn

from adacompute.config import Config, ServeConfig, parse_serve_budgets, read_keys
from adacompute.errors import AdacomputeError, ConfigError
from adacompute.serve.http.app import ClientConnection, RequestTracker, build_app
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.routes.lifespan import open_gateway
from adacompute.serve.spending.redis_client import DEFAULT_TIMING, FleetTiming

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BACKLOG = 2048
# maximum number of bytes buffered for a client that doesn't read; the system's default is megabytes
_SEND_BYTES = 262_144
_WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is refused without keys
_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


# "own": the socket has the port to itself. "reserve": the main process only reserves the port for its
# workers. "share": a worker shares the port with the other workers.
PortUse = Literal["own", "reserve", "share"]


def open_sockets(
    settings: ServeConfig, *, use: PortUse = "own", has_keys: bool | None = None
) -> list[socket.socket]:
    """Opens sockets on every address of the host, with the same port; the caller closes them.

    The sockets listen, unless `use` is "reserve". `has_keys` says whether clients need a key; None: they do
    if the keys file has any.
    """
    if has_keys is None:
        has_keys = bool(settings.keys_file) and bool(read_keys(Path(settings.keys_file)))
    addresses = resolve_allowed(settings, keys=has_keys)
    sockets: list[socket.socket] = []
    port = settings.port
    try:
        for family, address in addresses:
            sockets += _bind(settings, family, (address[0], port, *address[2:]), first=not sockets, use=use)
            port = sockets[0].getsockname()[1]
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def resolve_allowed(settings: ServeConfig, *, keys: bool) -> list[_Address]:
    """Resolves the host's addresses; raises ConfigError if that fails or one of them isn't allowed.

    `keys` says whether clients need a key; if they don't, all addresses must be loopback.
    """
    addresses = _resolve(settings.host, settings.port)
    remote = [address[0] for _, address in addresses if not ip_address(address[0].split("%")[0]).is_loopback]
    if remote and not keys:
        resolved = "" if remote[0] == settings.host else f" ({remote[0]})"
        raise ConfigError(
            f"host {settings.host!r}{resolved} can be reached from other machines, and there are no keys; "
            "give a keys file (--keys FILE, or keys_file in [serve]) with a key in it, or --host 127.0.0.1"
        )
    return addresses


def build_local_url(settings: ServeConfig, port: int) -> str:
    """Builds the URL for a client on this machine, without a path."""
    host = _WILDCARD_HOSTS.get(settings.host, settings.host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def check_tls(settings: ServeConfig) -> None:
    """Raises ConfigError for an invalid TLS certificate or key, before anything is opened."""
    if not settings.tls_cert and not settings.tls_key:
        return
    if not settings.tls_cert or not settings.tls_key:
        present, missing = ("tls_cert", "tls_key") if settings.tls_cert else ("tls_key", "tls_cert")
        raise ConfigError(f"{present} is given without {missing}; https takes both: --tls-cert and --tls-key")
    for name in (settings.tls_cert, settings.tls_key):
        try:
            Path(name).read_bytes()
        except OSError as exc:
            raise ConfigError(
                f"TLS file {name!r} can't be read ({exc.strerror}); name a PEM file that can"
            ) from exc
    try:
        # an empty password keeps OpenSSL from prompting
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_cert, settings.tls_key, password=""
        )
    except (ssl.SSLError, OSError) as exc:
        reason = (
            exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        ) or "it is not PEM, or encrypted"
        raise ConfigError(
            f"TLS certificate {settings.tls_cert!r} with key {settings.tls_key!r} can't be used ({reason}); "
            "give a PEM certificate chain and its own key, without a password"
        ) from exc


def _resolve(host: str, port: int) -> list[_Address]:
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not a valid name"
        raise ConfigError(
            f"host {host!r} is not an address of this machine ({reason}); give e.g. 127.0.0.1"
        ) from exc
    addresses = {(family, address): None for family, _, _, _, address in infos}  # without duplicates
    return sorted(addresses, key=lambda address: address[0] != socket.AF_INET)  # type: ignore[arg-type]


def _bind(
    settings: ServeConfig,
    family: socket.AddressFamily,
    address: tuple[object, ...],
    *,
    first: bool,
    use: PortUse,
) -> list[socket.socket]:
    """Opens a socket; returns [] if a further address (not `first`) can't be used, e.g. ::1 without IPv6."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if first:
            raise
        return []
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # accepted connections inherit this
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if use == "share":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        if use == "reserve":
            # set after `bind`, which would otherwise succeed even if the port is in use
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        else:
            sock.listen(_BACKLOG)  # listens at once: before that, another process could bind the same port
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        if not first and (exc.errno == errno.EADDRNOTAVAIL or settings.port == 0):
            return []
        raise ConfigError(_explain_error(settings, address, exc)) from exc
    return [sock]


def _explain_error(settings: ServeConfig, address: tuple[object, ...], exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return f"port {address[1]} of {settings.host} is in use; give another --port, or 0 for any free one"
    if exc.errno == errno.EACCES:
        return f"port {address[1]} may not be used ({exc.strerror}); give one from 1024 up"
    return f"{settings.host} port {address[1]} can't be used ({exc.strerror}); give another --host"


_log = logging.getLogger("adacompute.serve")
_KEEP_ALIVE = 75  # seconds before an idle connection is closed; most clients close it sooner
# arguments of gc.set_threshold; high, because one reply with log-probabilities has about 10,000 objects
_GC_THRESHOLDS = (10_000, 5, 5)
_METRICS_BYTES = 2**20  # initial size of a Prometheus metrics file, in bytes
_MAX_FILES = 65_536  # maximum number of open files; each connection is one


def serve(
    config: Config,
    *,
    on_listening: Callable[[str], None],
    on_open: Callable[[Gateway], None] | None = None,
    timing: FleetTiming = DEFAULT_TIMING,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Serves on the fastest available event loop until a signal stops it. Arguments are as in `run`."""

    def start_listening(url: str) -> None:
        freeze_garbage()
        on_listening(url)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        serving = run(config, on_listening=start_listening, on_open=on_open, timing=timing, reread=reread)
        runner.run(serving)


async def run(
    config: Config,
    *,
    on_listening: Callable[[str], None],
    stop: asyncio.Event | None = None,
    on_open: Callable[[Gateway], None] | None = None,
    timing: FleetTiming = DEFAULT_TIMING,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Serves until `stop` is set, or SIGTERM or SIGINT arrives.

    `on_open` is called with the opened gateway. `on_listening` is called with its URL, without a path, as
    soon as it serves. If gateways share a budget through Redis, `timing` says how often they call it, and how
    long they wait. `reread` is called at SIGHUP to read the settings again.
    """
    settings = config.serve
    check_tls(settings)
    raise_file_limit()
    async with contextlib.AsyncExitStack() as stack:
        sockets = open_sockets(settings)
        for sock in sockets:
            stack.callback(sock.close)
        with cancel_at_signals():
            gateway = await stack.enter_async_context(open_gateway(config, timing=timing))
            if reread is not None:
                gateway.reload_settings = partial(reload_settings, gateway, config, reread)
            if on_open is not None:
                on_open(gateway)
            url = build_local_url(settings, sockets[0].getsockname()[1])
            stop = asyncio.Event() if stop is None else stop
            await serve_gateway(gateway, sockets, stop, on_start=lambda: on_listening(url))
    _log.info("stopped")


_LIVE_SETTINGS = ("budget", "max_budget")  # [serve] settings that can change without a restart


def reload_settings(gateway: Gateway, started: Config, reread: Callable[[], Config]) -> list[str]:
    """Applies budget settings that changed, and returns log lines about all changed settings."""
    before = gateway.config.serve
    try:
        config = reread()
        gateway.set_budget(
            gateway.patched_budget, **{name: getattr(config.serve, name) for name in _LIVE_SETTINGS}
        )
    except AdacomputeError as exc:
        return [f"settings not reloaded: {exc}"]
    settings = gateway.config.serve
    budgets = zip(_LIVE_SETTINGS, parse_serve_budgets(before), parse_serve_budgets(settings), strict=True)
    lines = [f"{name} {new} now, in place of {old}" for name, old, new in budgets if new != old]
    if lines and gateway.patched_budget:
        lines.append(f"PATCH /admin/budget keeps the budget at {gateway.budget} until the next start")
    now, then = asdict(config), asdict(started)
    later = [
        f"{name} in [{section}]"
        for section, values in now.items()
        for name, value in values.items()
        if name not in _LIVE_SETTINGS and value != then[section][name]
    ]
    if later:
        lines.append(f"not reloaded, because it takes a restart: {', '.join(later)}")
    return lines


def check_address(config: Config) -> str:
    """Checks that the gateway can listen as configured; returns the URL for clients."""
    check_tls(config.serve)
    for sock in open_sockets(config.serve):
        sock.close()
    return build_local_url(config.serve, config.serve.port)


async def serve_gateway(
    gateway: Gateway,
    sockets: list[socket.socket],
    stop: asyncio.Event,
    *,
    on_start: Callable[[], None],
    immediately: asyncio.Event | None = None,
) -> None:
    """Serves on these sockets until `stop` is set, or SIGTERM or SIGINT arrives.

    With `immediately` (in workers), only `stop` ends it; setting `immediately` then cancels requests at once.
    """
    tracker, settings = RequestTracker(build_app(gateway)), gateway.settings
    is_worker = immediately is not None
    immediately = asyncio.Event() if immediately is None else immediately
    server = _Server(_build_uvicorn_config(settings, tracker), settings.client_timeout, on_start=on_start)
    serving = asyncio.create_task(server.serve(sockets))
    stopping = asyncio.create_task(stop.wait())
    with handle_signals(gateway.reload, stop, immediately, is_worker=is_worker):
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        gateway.ready = False  # first of all, so that /readyz tells load balancers to send no more requests
        until = time.monotonic() + gateway.settings.grace
        if not serving.done():
            _log.info("stopping: requests have %g s to finish", gateway.settings.grace)
            cancelled = await tracker.drain(within=gateway.settings.grace, immediately=immediately)
            if cancelled:
                _log.warning("requests cancelled because their grace period was over: %d", cancelled)
            server.stop_listening(within=0.0 if immediately.is_set() else until - time.monotonic())
        await serving


class _Server(uvicorn.Server):
    """uvicorn's server with our signal handling, limits on slow clients, and an immediate stop."""

    def __init__(self, config: uvicorn.Config, patience: float, *, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._patience = patience
        self._on_start = on_start
        self._leaving = asyncio.Event()

    def stop_listening(self, *, within: float) -> None:
        """Makes the server stop listening, and wait up to `within` seconds for replies still being sent."""
        self.config.timeout_graceful_shutdown = max(1, math.floor(within))
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Installs no handlers: the gateway has its own."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts as uvicorn does, then calls `on_start`."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def main_loop(self) -> None:
        """Like uvicorn's loop, but ticks once instead of ten times per second, and stops without delay."""
        while not await self.on_tick(0):
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, ClientConnection):
                    connection.sweep(now, self._patience)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._patience)):
                    await self._leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops at once if no connection is open; otherwise as uvicorn does, then aborts what remains."""
        if not self.server_state.connections and not self.server_state.tasks:
            for server in self.servers:
                server.close()
            return
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if isinstance(connection, ClientConnection):
                connection.transport.abort()
        if tasks := list(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=5.0)
        await asyncio.sleep(0)  # lets connection_lost callbacks run


def _build_uvicorn_config(settings: ServeConfig, app: RequestTracker) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ClientConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",  # the gateway logs starts and stops itself
        access_log=False,
        server_header=False,
        proxy_headers=False,  # ignores X-Forwarded-For and similar headers
        timeout_keep_alive=_KEEP_ALIVE,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        workers=1,
    )


@contextlib.contextmanager
def _catch_signals(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Installs signal handlers for the `with` block; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler_before)


@contextlib.contextmanager
def cancel_at_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGINT cancel the current task, until `handle_signals` takes over.

    Cancelling is needed, because uvloop ignores exceptions that signal handlers raise.
    """
    task, received = asyncio.current_task(), list[signal.Signals]()
    assert task is not None

    def cancel(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    try:
        with _catch_signals({number: partial(cancel, number) for number in _STOP_SIGNALS}):
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


@contextlib.contextmanager
def handle_signals(
    reload: Callable[[], Awaitable[list[str]]],
    stop: asyncio.Event,
    immediately: asyncio.Event,
    *,
    is_worker: bool = False,
) -> Iterator[None]:
    """Sets `stop` at the first stop signal and `immediately` at the second; reloads at SIGHUP.

    Workers only reload: they ignore stop signals, and don't report a reload that changed nothing.
    """
    stop_signals = () if is_worker else _STOP_SIGNALS
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()
    reload_requested = asyncio.Event()  # set by SIGHUP; if set during a reload, files are read again

    def request_stop() -> None:
        if stop.is_set():
            immediately.set()
        stop.set()

    def request_reload() -> None:
        reload_requested.set()
        if all(task.done() for task in reloading):
            unchanged = [] if is_worker else ["reloaded: nothing has changed"]
            task = loop.create_task(_reload_policies(reload, reload_requested, unchanged))
            reloading.add(task)
            task.add_done_callback(reloading.discard)

    try:
        with _catch_signals({**dict.fromkeys(stop_signals, request_stop), signal.SIGHUP: request_reload}):
            yield
    finally:
        for task in list(reloading):
            task.cancel()


async def _reload_policies(
    reload: Callable[[], Awaitable[list[str]]], requested: asyncio.Event, unchanged: list[str]
) -> None:
    while requested.is_set():
        requested.clear()
        try:
            lines = await reload()
        except Exception as exc:  # noqa: BLE001 - whatever is in a folder, what serves keeps serving
            lines = [f"not reloaded: {type(exc).__name__}: {exc}"]
        for line in lines or unchanged:
            level = logging.WARNING if "keeps serving" in line or "not reloaded" in line else logging.INFO
            # The log drops repeated messages. With "%s" as the message, it would drop different lines, too.
            _log.log(level, line)


def freeze_garbage() -> None:
    """Exempts all loaded objects from garbage collection: scanning them would take 0.1 s each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns a factory for the fastest event loop available here."""
    try:
        import uvloop  # not available on some systems
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def raise_file_limit() -> None:
    """Raises this process's limit on open files as far as allowed, because each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def prepare_worker(folder: str) -> None:
    """Raises the limit on open files; reserves disk space for this process's metrics in `folder`.

    Otherwise, a full disk would end the process when Prometheus writes its memory-mapped files.
    """
    raise_file_limit()
    for kind in ("counter", "histogram", "gauge_all"):
        Path(folder, f"{kind}_{os.getpid()}.db").write_bytes(bytes(_METRICS_BYTES))
