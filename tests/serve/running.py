"""The gateway, running: in a thread of the test, or as a process of its own. For tests of the full stack.

    with Upstream() as up, Running(up.url, budget=2.0, cap=10) as gate:
        answer = gate.ask(temperature=1.0)     # QUESTION, or another body, with further fields
        assert answer.json["adacompute"]["samples"] == up.count.choices   # gate.gateway is the live object

    with Upstream() as up, Process(up.url, "--budget", "3", folder=tmp_path, grace=2.0) as gate:
        gate.terminate()
        assert gate.wait() == 0, gate.log

Both take any setting of [serve] by its name, and of [endpoint] in `endpoint=`; the port is any that is free,
the state lies in `folder` (a temporary one where none is given; the same one again is a restart). Both are
ready when entered, and are stopped and joined when left. What they log is shown where a test fails.
"""

import asyncio
import contextlib
import http.client
import json
import os
import selectors
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from behaviours import Reply

from adacompute.config import AnswersConfig, Config, EndpointConfig, ServeConfig, VerifierConfig
from adacompute.serve.http import server
from adacompute.serve.routes.gateway import Gateway
from upstream import Upstream
from warm import COMMAND, Started, keep_warm

__all__ = ["QUESTION", "Answer", "Process", "Running", "serve_one_answer"]

PATIENCE = 60.0  # seconds: a loaded machine stalls, a broken gateway is noticed all the same
QUESTION = {
    "model": "scripted",
    "messages": [{"role": "user", "content": "What is 6 times 7?"}],
    "temperature": 0.7,
}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]  # lower-case names
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class _GatewayClient:
    """Asks a gateway over HTTP, however it runs."""

    base = ""  # without a path
    context: ssl.SSLContext | None = None  # of https

    @property
    def url(self) -> str:
        """The base_url of an OpenAI client."""
        return f"{self.base}/v1"

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """GET, on a connection of its own."""
        return self._send("GET", path, None, headers or {})

    def ask(
        self,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        path: str = "/v1/chat/completions",
        timeout: float = PATIENCE,
        **more: Any,
    ) -> Answer:
        """POST of a question, on a connection of its own; `more` are further fields of it."""
        raw = body if isinstance(body, bytes) else json.dumps({**(body or QUESTION), **more}).encode()
        return self._send("POST", path, raw, headers or {}, timeout)

    def patch(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """PATCH of JSON, on a connection of its own."""
        return self._send("PATCH", path, json.dumps(body).encode(), headers or {})

    def ready(self) -> bool:
        try:
            return self.get("/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _send(
        self, method: str, path: str, raw: bytes | None, headers: Mapping[str, str], timeout: float = PATIENCE
    ) -> Answer:
        where = urlsplit(self.base)
        assert where.hostname is not None
        if where.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                where.hostname, where.port, timeout=timeout, context=self.context
            )
        else:
            connection = http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
        kind = {} if raw is None else {"content-type": "application/json"}
        try:
            connection.request(method, path, raw, {"connection": "close", **kind, **headers})
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, names, reply.read())
        finally:
            connection.close()

    def _until_ready(self, alive: Any) -> None:
        until = time.monotonic() + PATIENCE
        while not self.ready():
            if not alive() or time.monotonic() > until:
                raise AssertionError(f"the gateway at {self.base} doesn't get ready")
            time.sleep(0.02)


class Running(_GatewayClient):
    """The gateway in a thread, on a loop of its own. `gateway` is the live object: look, don't touch."""

    _gateway: Gateway
    loop: asyncio.AbstractEventLoop

    @property
    def gateway(self) -> Gateway:
        """The live object, once it has learned from what has ended: replies don't wait for that."""
        deadline = time.monotonic() + PATIENCE
        is_own = threading.current_thread() is self._thread  # it would wait for itself
        while not is_own and self._gateway.unlearned and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._gateway

    def __init__(
        self,
        upstream: str,
        *,
        folder: Path | None = None,
        endpoint: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        verifier: Mapping[str, Any] | None = None,
        wait: bool = True,
        **settings: Any,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder)  # type: ignore[arg-type]
        given = {"port": 0, "state": str(self.folder / "state.sqlite"), "grace": 5.0, **settings}
        self.config = Config(
            serve=ServeConfig(**given),
            endpoint=replace(EndpointConfig(url=upstream), **(endpoint or {})),
            answers=AnswersConfig(**(answers or {})),
            verifier=VerifierConfig(**(verifier or {})),
        )
        self._wait = wait
        self._listening = threading.Event()
        self._failed: BaseException | None = None

    def __enter__(self) -> "Running":
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        self._listening.wait(PATIENCE)
        if self._failed is not None or not self.base:
            self.stop()
            raise self._failed or AssertionError("the gateway doesn't start")
        if self._wait:
            try:
                self._until_ready(self._thread.is_alive)
            except BaseException:
                self.stop()
                raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except BaseException:
            if kind is None:  # else it would hide the test's own failure
                raise

    def stop(self) -> None:
        """Stops it in good order, as SIGTERM would; what it raises is raised here."""
        if self._thread.is_alive() and hasattr(self, "loop"):
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        alive = self._thread.is_alive()
        if self._temporary is not None and not alive:
            self._temporary.cleanup()
        assert not alive, "the gateway doesn't stop"
        if self._failed is not None and self.base:
            raise self._failed

    def begin_to_stop(self) -> None:
        """Tells it to stop, and doesn't wait."""
        self.loop.call_soon_threadsafe(self._stop.set)

    def call(self, coroutine: Any) -> Any:
        """Runs a coroutine on the gateway's loop, and gives what it gives."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as exc:  # noqa: BLE001 - raised where the test waits
            self._failed = exc
        finally:
            self._listening.set()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        await server.run(self.config, on_listening=self._listens, stop=self._stop, on_open=self._hold)

    def _hold(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def _listens(self, url: str) -> None:
        self.base = url
        self._listening.set()


class Process(_GatewayClient):
    """`adacompute serve --json WORDS` as a process (of warm.py); its settings come by the environment."""

    def __init__(
        self,
        upstream: str,
        *words: str,
        folder: Path | None = None,
        endpoint: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
        **settings: Any,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder)  # type: ignore[arg-type]
        given = {"port": 0, **settings}
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")}
        self._environ |= {f"ADACOMPUTE_SERVE_{name.upper()}": _text(value) for name, value in given.items()}
        self._environ |= {
            f"ADACOMPUTE_ENDPOINT_{name.upper()}": _text(value) for name, value in (endpoint or {}).items()
        }
        self._environ |= environ or {}
        self._words = [
            COMMAND,
            "serve",
            "--json",
            *(["--upstream", upstream] if upstream else []),
            *words,
        ]
        self._wait = wait
        self.said: dict[str, Any] = {}  # the JSON that it printed

    def __enter__(self) -> "Process":
        self._log_file = self.folder / f"log-{time.monotonic_ns()}"
        with self._log_file.open("wb") as log:
            self._process = self._start(log.fileno())
        try:
            self.said = json.loads(self._first_line())
            self.base = self.said["url"].removesuffix("/v1")
            if self._wait:
                self._until_ready(lambda: self._process.poll() is None)
        except BaseException:
            self.kill()
            self._end(failed=True)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                self._end(failed=True)
                assert kind is not None, "the gateway doesn't stop by SIGTERM"
                return
        self._end(failed=kind is not None)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it wrote to stderr so far."""
        return (
            self._final_log if hasattr(self, "_final_log") else self._log_file.read_text("utf-8", "replace")
        )

    def terminate(self) -> None:
        """SIGTERM; doesn't wait."""
        self._process.terminate()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(timeout)

    def running(self) -> bool:
        return self._process.poll() is None

    def _start(self, log: int) -> "Started | subprocess.Popen[bytes]":
        warm = keep_warm()
        if warm.can(self._environ):
            return warm.start(self._words, folder=self.folder, environ=self._environ, stderr=log)
        return subprocess.Popen(
            self._words,
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def _first_line(self) -> bytes:
        out = self._process.stdout
        assert out is not None
        until, got = time.monotonic() + PATIENCE, b""
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while b"\n" not in got:
                if not ready.select(max(0.0, until - time.monotonic())):
                    raise AssertionError("the gateway doesn't say that it listens")
                if not (more := os.read(out.fileno(), 65_536)):
                    raise AssertionError(f"the gateway has ended: exit {self._process.wait(PATIENCE)}")
                got += more
        return got

    def _end(self, *, failed: bool) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._final_log = self.log
        if failed:
            print(f"--- log of the gateway, process {self.pid} ---\n{self._final_log}")
        if self._temporary is not None:
            self._temporary.cleanup()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@contextlib.contextmanager
def serve_one_answer() -> Iterator[Running]:
    """A gateway whose upstream always says 42; nothing may be under way at its end."""
    with (
        Upstream(Reply(texts=["The answer is 42."], logprobs=False)) as up,
        Running(up.url, price=0.5) as running,
    ):
        yield running
        assert running.gateway.under_way == 0
