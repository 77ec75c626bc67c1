"""Runs the gateway: listens, tells when it does, and stops in good order. Knows nothing of what it serves."""

import asyncio
import contextlib
import gc
import logging
import math
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socket

import uvicorn

from adacompute.config import Config, ServeConfig, read_keys
from adacompute.serve.app import build_app
from adacompute.serve.connection import Connection
from adacompute.serve.door import Door
from adacompute.serve.fleet import USUAL, Pulse
from adacompute.serve.gateway import Gateway
from adacompute.serve.listen import check_tls, listening, url_of
from adacompute.serve.opening import opened

__all__ = ["check", "loop_factory", "run", "serve"]

_LOG = logging.getLogger("adacompute.serve")
_KEEP_ALIVE = 75  # seconds that an idle connection is kept: longer than clients keep theirs
_RUBBISH = (10_000, 5, 5)  # as gc.set_threshold: a reply with log-probabilities is some 10,000 objects
_FILES = 65_536  # open at the same time: every connection is one


def serve(
    config: Config,
    *,
    told: Callable[[str], None],
    holds: Callable[[Gateway], None] | None = None,
    pulse: Pulse = USUAL,
) -> None:
    """`run` on a loop of its own, the fastest that there is, until a signal ends it."""

    def listens(url: str) -> None:
        _sort_out()
        told(url)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(config, told=listens, holds=holds, pulse=pulse))


async def run(
    config: Config,
    *,
    told: Callable[[str], None],
    stop: asyncio.Event | None = None,
    holds: Callable[[Gateway], None] | None = None,
    pulse: Pulse = USUAL,
) -> None:
    """Serves until `stop` is set, or SIGTERM or SIGINT comes.

    `told` gets the address, without a path, once it listens; `holds` gets the gateway before that;
    `pulse` is that of a fleet, where it is in one.
    """
    settings = config.serve
    check_tls(settings)
    _allow_files()
    sockets = listening(settings, keys=_has_keys(settings))
    try:
        async with opened(config, pulse=pulse) as gateway:
            if holds is not None:
                holds(gateway)
            door = Door(build_app(gateway))
            url = url_of(settings, sockets[0].getsockname()[1])
            server = _Server(_uvicorn(settings, door), settings.client_timeout, started=lambda: told(url))
            await _until_stopped(gateway, door, server, sockets, asyncio.Event() if stop is None else stop)
    finally:
        for each in sockets:
            each.close()
    _LOG.info("stopped")


def check(config: Config) -> str:
    """Whether it may and can listen where it is told to; the address, as a client would use it."""
    check_tls(config.serve)
    for each in listening(config.serve, keys=_has_keys(config.serve)):
        each.close()
    return url_of(config.serve, config.serve.port)


def _has_keys(settings: ServeConfig) -> bool:
    return bool(settings.keys_file) and bool(read_keys(Path(settings.keys_file)))


async def _until_stopped(
    gateway: Gateway, door: Door, server: "_Server", sockets: list[socket], stop: asyncio.Event
) -> None:
    at_once = asyncio.Event()
    serving = asyncio.create_task(server.serve(sockets))
    stopping = asyncio.create_task(stop.wait())
    with _signals(gateway, stop, at_once):
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        gateway.ready = False  # first of all: whoever asks for readiness learns it from now on
        until = time.monotonic() + gateway.settings.grace
        if not serving.done():
            _LOG.info("stopping: requests have %g s to finish", gateway.settings.grace)
            cut = await door.clear(within=gateway.settings.grace, at_once=at_once)
            if cut:
                _LOG.warning("requests that were cut off, for their time was over: %d", cut)
            server.leave(within=0.0 if at_once.is_set() else until - time.monotonic())
        await serving


class _Server(uvicorn.Server):
    """uvicorn's, with signals left to us, limits on slow clients and an end that is noticed at once."""

    def __init__(self, config: uvicorn.Config, patience: float, *, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._patience = patience
        self._on_start = started
        self._left = asyncio.Event()

    def leave(self, *, within: float) -> None:
        """Stop listening, and wait so many seconds for what is still being sent."""
        self.config.timeout_graceful_shutdown = max(1, math.floor(within))
        self.should_exit = True
        self._left.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: they are ours."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """As uvicorn does, and says so."""
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def main_loop(self) -> None:
        """Once a second, not ten times; and the end doesn't wait for it."""
        while not await self.on_tick(0):
            now = time.monotonic()
            for each in list(self.server_state.connections):
                if isinstance(each, Connection):
                    each.sweep(now, self._patience)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), min(1.0, self._patience))

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """As uvicorn does, and nothing is left open."""
        await super().shutdown(sockets)
        for each in list(self.server_state.connections):
            if isinstance(each, Connection):
                each.abort()
        if tasks := list(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=5.0)
        await asyncio.sleep(0)  # lost connections are told so


def _uvicorn(settings: ServeConfig, app: Door) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",  # that it starts and stops is told by us
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody's word for who they are is taken
        timeout_keep_alive=_KEEP_ALIVE,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        workers=1,
    )


@contextlib.contextmanager
def _signals(gateway: Gateway, stop: asyncio.Event, at_once: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT stop it, twice at once; SIGHUP: policies are read anew. In the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()
    asked = asyncio.Event()  # to read them once more: what is being read may be older than the signal

    def end() -> None:
        if stop.is_set():
            at_once.set()
        stop.set()

    def reload() -> None:
        asked.set()
        if all(task.done() for task in reloading):
            task = loop.create_task(_reload(gateway, asked))
            reloading.add(task)
            task.add_done_callback(reloading.discard)

    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler_before)
        for task in list(reloading):
            task.cancel()


async def _reload(gateway: Gateway, asked: asyncio.Event) -> None:
    while asked.is_set():
        asked.clear()
        try:
            lines = await gateway.reload()
        except Exception as exc:  # noqa: BLE001 - whatever is in a folder, what serves keeps serving
            lines = [f"not reloaded: {type(exc).__name__}: {exc}"]
        for each in lines or ["reloaded: nothing has changed"]:
            level = logging.WARNING if "keeps serving" in each or "not reloaded" in each else logging.INFO
            _LOG.log(level, each)  # each a message of its own: of the same one only a few are logged


def _sort_out() -> None:
    """What is loaded by now stays: looking for rubbish in it would take a tenth of a second each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_RUBBISH)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the fastest event loop that there is here."""
    try:
        import uvloop  # here, for there is none on some systems
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _allow_files() -> None:
    """As many open files as the system lets us have: a thousand idle clients are as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
