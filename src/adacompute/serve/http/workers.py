"""Runs several gateways of one fleet as processes on one port: `adacompute serve --workers N`.

The main process reserves the port and starts N workers that share it (`SO_REUSEPORT`: the kernel distributes
connections). It restarts workers that die, forwards signals and records traffic, but serves no requests.
Workers are ordinary gateways that share their ledger, prices and budget.

A worker reads its settings from standard input: a line at its start, and one for each SIGHUP. The line `null`
stops it; the end of the input stops it at once, so no worker outlives the main process. Workers ignore stop
signals such as Ctrl-C, which the main process handles.

The first line that a worker writes to standard output says that it serves, or why it can't. Each further line
is a request to be recorded, because only the main process may write to the pool. The main process
records every line, even if the worker is killed afterwards.

Counters and histograms are shared through a temporary folder, in the format of Prometheus's client library.
Each process also has a socket there, where other processes request its dashboard data.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from adacompute.answers import Task
from adacompute.client import Endpoint
from adacompute.config import Config, KeyConfig, read_keys
from adacompute.errors import AdacomputeError, ConfigError
from adacompute.records import Secret
from adacompute.serve.http import server
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.routes.lifespan import open_gateway
from adacompute.serve.watching.board import merge_boards
from adacompute.serve.watching.logs import collect_secrets, log_to
from adacompute.serve.watching.recorder import RecordedRequest, RowWriter

_log = logging.getLogger("adacompute.serve")
_RESTART_SECONDS = 1.0  # seconds before a worker that died is restarted
_EXIT_SECONDS = 10.0  # seconds that a worker has to exit, once its requests' time to finish is over
_ANSWER_SECONDS = 1.0  # seconds that another process has to send its dashboard data
# maximum length of the temporary folder's path, in bytes; the path of a socket in it can have at most 108
_MAX_FOLDER_BYTES = 90
_MAX_LINE = 2**30  # maximum bytes of a JSON line in a worker's pipes: settings or a recorded request
_WORKER_CODE = """
import os, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)  # the last until it serves
rows = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what a library prints isn't recorded
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
sys.path[:] = sys.argv[2:]
from adacompute.serve.http.workers import run_worker
run_worker(sys.stdin.buffer, rows, folder=sys.argv[1], log=sys.stderr)
"""
# Python option -W: hides the warning that Prometheus's client prints if an old policy's metrics are removed
_QUIET = "ignore::UserWarning:prometheus_client.metrics"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings sent to a worker, and the clients' keys as they were when the gateway started."""

    config: Config
    keys: tuple[KeyConfig, ...]


def check_redis(config: Config) -> None:
    """Raises ConfigError if there are several workers, but no Redis for them to share."""
    if config.serve.workers > 1 and not config.serve.redis:
        raise ConfigError(
            f"workers {config.serve.workers} need a ledger that they share, and redis is not set; give "
            "--redis URL, or leave --workers out"
        )


def _divide_settings(config: Config) -> Config:
    """Returns one worker's settings: limits are divided by the number of workers, but stay at least 1."""
    serve, verifier, workers = config.serve, config.verifier, config.serve.workers
    serve = replace(serve, workers=1, max_requests=max(1, serve.max_requests // workers))
    verifier = replace(verifier, concurrency=max(1, verifier.concurrency // workers))
    return replace(config, serve=serve, verifier=verifier)


def _divide_limits(endpoint: Endpoint, workers: int) -> Endpoint:
    """Divides the endpoint's limits by the number of workers; a worker has at least one concurrent call."""
    limits = endpoint.limits
    part = replace(
        limits,
        concurrency=max(1, limits.concurrency // workers),
        requests_per_minute=limits.requests_per_minute and limits.requests_per_minute / workers,
        tokens_per_minute=limits.tokens_per_minute and limits.tokens_per_minute / workers,
    )
    return replace(endpoint, limits=part)


def serve(
    config: Config,
    *,
    on_listening: Callable[[str], None],
    on_open: Callable[[Gateway], None],
    reread: Callable[[], Config],
) -> None:
    """Like `server.serve`, but starts as many worker processes as the settings say."""
    check_redis(config)
    server.check_tls(config.serve)
    keys = read_keys(Path(config.serve.keys_file)) if config.serve.keys_file else ()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            sockets = server.open_sockets(config.serve, use="reserve", has_keys=bool(keys))
            for sock in sockets:
                stack.callback(sock.close)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="adacompute-"))
            if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
                raise ConfigError(
                    f"the name of the temporary folder {folder} is too long for sockets in it; set TMPDIR to "
                    "a shorter one, e.g. /tmp"
                )
            with server.cancel_at_signals():
                gateway = await stack.enter_async_context(open_gateway(config, keys=keys))
                gateway.reload_settings = partial(server.reload_settings, gateway, config, reread)
                on_open(gateway)
                await _offer(folder, gateway, stack)
                port = sockets[0].getsockname()[1]
                url = server.build_local_url(config.serve, port)
                await WorkerPool(gateway, keys, port, folder, on_start=lambda: on_listening(url)).run()

    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        runner.run(run())
    _log.info("stopped")


class WorkerPool:
    """Starts workers, restarts those that die, and stops them together."""

    def __init__(
        self,
        gateway: Gateway,
        keys: tuple[KeyConfig, ...],
        port: int,
        folder: str,
        *,
        on_start: Callable[[], None],
    ) -> None:
        """`on_start` is called when all workers have begun to serve."""
        self._gateway, self._keys, self._on_start = gateway, keys, on_start
        self._port, self._folder = port, folder
        self._inputs: set[asyncio.StreamWriter] = set()  # standard input of each running worker
        self._starting = gateway.settings.workers  # number of workers that haven't begun to serve
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT; raises ConfigError if a worker can't start serving."""
        stop, immediately = asyncio.Event(), asyncio.Event()
        keepers = [asyncio.create_task(self._keep(number + 1)) for number in range(self._starting)]
        others = [asyncio.create_task(stop.wait()), asyncio.create_task(self._hurry(immediately))]
        try:
            with server.handle_signals(self._reload, stop, immediately):
                await asyncio.wait([others[0], *keepers], return_when=asyncio.FIRST_COMPLETED)
                self._stopping.set()
                for worker in self._inputs:
                    _send(worker, None)
                await asyncio.wait(keepers, timeout=self._gateway.settings.grace + _EXIT_SECONDS)
        finally:
            for task in (*others, *keepers):
                task.cancel()
            results = await asyncio.gather(*keepers, return_exceptions=True)
        if errors := [result for result in results if isinstance(result, Exception)]:
            raise errors[0]

    async def _hurry(self, immediately: asyncio.Event) -> None:
        await immediately.wait()
        for worker in self._inputs:
            worker.close()

    async def _reload(self) -> list[str]:
        """Reloads policies and settings in the main process and in all workers."""
        lines = await self._gateway.reload()
        for worker in self._inputs:
            self._send_settings(worker)
        return lines

    async def _keep(self, number: int) -> None:
        """Starts a worker, and restarts it whenever it ends."""
        while not self._stopping.is_set():
            try:
                reason = await self._run_once(number)
            except OSError as exc:  # the process couldn't be started
                reason = str(exc)
            if self._starting and not self._stopping.is_set():
                raise ConfigError(f"worker {number} can't serve: {reason}")
            if not self._stopping.is_set():
                _log.error("worker %d has ended (%s); it is started again", number, reason)
                await asyncio.sleep(_RESTART_SECONDS)

    async def _run_once(self, number: int) -> str:
        """Runs a worker until it ends; returns the reason."""
        words = (sys.executable, "-P", "-W", _QUIET, "-c", _WORKER_CODE, self._folder, *sys.path)
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, limit=_MAX_LINE)
        assert process.stdin is not None
        assert process.stdout is not None
        self._inputs.add(process.stdin)
        try:
            self._send_settings(process.stdin)
            # empty if the worker serves, otherwise the reason why it can't
            first_line = await process.stdout.readline()
            if first_line == b'""\n':
                self._count_serving(number)
            async for line in process.stdout:
                self._record(line)
            code = await process.wait()
            return (first_line and msgspec.json.decode(first_line)) or f"exit code {code}"
        finally:
            self._inputs.discard(process.stdin)
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _count_serving(self, number: int) -> None:
        if not self._starting:
            _log.info("worker %d serves again", number)
            return
        self._starting -= 1
        if not self._starting:
            self._on_start()

    def _send_settings(self, worker: asyncio.StreamWriter) -> None:
        config = self._gateway.config
        config = replace(config, serve=replace(config.serve, port=self._port))
        _send(worker, WorkerSettings(config, self._keys))
        if self._stopping.is_set():
            _send(worker, None)

    def _record(self, line: bytes) -> None:
        if (recorder := self._gateway.reporter.recorder) is None:
            return
        try:
            recorder.enqueue(msgspec.json.decode(line, type=RecordedRequest))
        except msgspec.DecodeError:  # the line was cut off because the worker was killed
            recorder.drop(1, "a worker was killed while it handed them over")


def _send(worker: asyncio.StreamWriter, settings: WorkerSettings | None) -> None:
    if not worker.is_closing():  # otherwise the worker has ended
        worker.write(msgspec.json.encode(settings, enc_hook=Secret.reveal) + b"\n")


def _read_settings(line: bytes) -> WorkerSettings | None:
    return msgspec.json.decode(line, type=WorkerSettings | None, dec_hook=lambda kind, text: kind(text))


def run_worker(settings: BinaryIO, rows: BinaryIO, *, folder: str, log: TextIO) -> None:
    """Runs a worker in its own process, connected to the main process by these pipes."""
    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        try:
            runner.run(_run_worker(settings, partial(_write_line, rows), folder, log))
        except (AdacomputeError, OSError) as exc:
            _write_line(rows, str(exc))


def _write_line(rows: BinaryIO, value: object) -> None:
    rows.write(msgspec.json.encode(value) + b"\n")
    rows.flush()


async def _run_worker(settings: BinaryIO, write: Callable[[object], None], folder: str, log: TextIO) -> None:
    reader = asyncio.StreamReader(limit=_MAX_LINE)
    stop, hurry = asyncio.Event(), asyncio.Event()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), settings)
    if (first := _read_settings(await reader.readline())) is None:
        return
    keys, workers = first.keys, first.config.serve.workers
    config = latest = _divide_settings(first.config)

    async def follow_main() -> None:
        nonlocal latest
        while line := await reader.readline():
            if (settings_now := _read_settings(line)) is None:
                stop.set()
            else:
                latest = _divide_settings(settings_now.config)
                signal.raise_signal(signal.SIGHUP)
        hurry.set()
        stop.set()

    async with contextlib.AsyncExitStack() as stack:
        secrets = collect_secrets(config, keys)
        stack.enter_context(log_to(log, level=config.serve.log, secrets=secrets, shared=True))
        server.prepare_worker(folder)
        recorder = None
        if config.serve.record:
            task = Task(extract=config.answers.extract, percent=config.answers.percent)
            recorder = RowWriter(task, write)
            stack.push_async_callback(recorder.close)
        limit = partial(_divide_limits, workers=workers)
        opening = open_gateway(config, keys=keys, limit=limit, recorder=recorder)
        gateway = await stack.enter_async_context(opening)
        gateway.reload_settings = partial(server.reload_settings, gateway, config, lambda: latest)
        await _offer(folder, gateway, stack)
        following = asyncio.create_task(follow_main())
        stack.callback(following.cancel)
        sockets = server.open_sockets(config.serve, use="share", has_keys=bool(keys))
        server.freeze_garbage()
        await server.serve_gateway(gateway, sockets, stop, immediately=hurry, on_start=lambda: write(""))


async def _offer(folder: str, gateway: Gateway, stack: contextlib.AsyncExitStack) -> None:
    """Lets other processes request this process's dashboard data, and adds theirs to this process's pages."""
    own = Path(folder, f"{os.getpid()}.sock")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            span = (await reader.readline()).decode().strip()
            writer.write(msgspec.json.encode(gateway.describe_own_traffic(span)))
            await writer.drain()

    async def add_workers(span: str, board: dict[str, Any]) -> dict[str, Any]:
        paths = [path for path in own.parent.glob("*.sock") if path != own]
        others = await asyncio.gather(*(_ask(path, span) for path in paths))
        return merge_boards([board, *(other for other in others if other)])

    await stack.enter_async_context(await asyncio.start_unix_server(answer, own))
    gateway.add_workers = add_workers


async def _ask(path: Path, span: str) -> dict[str, Any] | None:
    """Requests another process's dashboard data; returns None if that process has ended."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            with contextlib.closing(writer):
                writer.write(f"{span}\n".encode())
                return msgspec.json.decode(await reader.read(), type=dict[str, Any])
    except (OSError, TimeoutError, msgspec.DecodeError):
        return None
