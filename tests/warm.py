"""Our command without the second that Python takes to start: one process has imported it, and forks for each.

    done = Warm().run("pool", "p.sqlite", folder=tmp_path, environ={...})    # a subprocess.CompletedProcess

What runs is a process as every other: its own folder, environment, streams, signals, exit code and end. What
is settled when an interpreter starts is the warm one's: the encoding of streams, PYTHON... in the
environment, and the seed of hashes. Tests of these start the command again (`installed` in harness.py).

Run as a script, this file is the warm process: it takes requests from the socket whose number it is given.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["COMMAND", "LONGEST", "Warm"]

COMMAND = str(Path(sys.executable).parent / "adacompute")
LONGEST = 280.0  # seconds that a command may take on a loaded machine
_STARTING = 120.0  # seconds: a loaded machine imports slowly
_MOST_BYTES = 1 << 17  # bytes of a request: its words and its environment
_SETTLED = ("PYTHON", "LC_", "LANG")  # what only a start of Python heeds
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # no threads that a fork would lose


class Warm:
    """The warm process, in this environment and what is given beside it; `close` ends it."""

    def __init__(self, **environ: str) -> None:
        self._environ = os.environ | environ
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=self._environ | _ALONE,
                stdin=subprocess.DEVNULL,
            )

    def run(
        self, *words: str, folder: Path, environ: Mapping[str, str], timeout: float = LONGEST
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the command to its end, with nothing to read."""
        assert self.can(environ), "this environment is for a start of Python"
        request = json.dumps({"words": words, "folder": str(folder), "environ": dict(environ)}).encode()
        with (
            Path(os.devnull).open() as none,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            socket.send_fds(self._line, [request], [none.fileno(), out.fileno(), err.fileno()])
            pid = int(self._told(_STARTING))
            try:
                code = int(self._told(timeout))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._told(_STARTING)
                raise subprocess.TimeoutExpired([COMMAND, *words], timeout) from None
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode())
        return subprocess.CompletedProcess([COMMAND, *words], code, *said)

    def can(self, environ: Mapping[str, str]) -> bool:
        """Whether the warm process would have started the same in this environment."""
        return all(
            environ.get(name) == self._environ.get(name)
            for name in {*environ, *self._environ}
            if name.startswith(_SETTLED)
        )

    def close(self) -> None:
        self._line.close()
        self._process.wait(60)

    def _told(self, timeout: float) -> bytes:
        self._line.settimeout(timeout)
        told = self._line.recv(64)
        assert told, "the warm process has ended"
        return told


def _serve(line: socket.socket) -> None:
    """Forks for each request, and tells the pid and then the exit code; returns in the fork only."""
    while True:
        request, fds, _flags, _address = socket.recv_fds(line, _MOST_BYTES, 3)
        if not request:
            sys.exit()
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            pid = os.fork()  # later Pythons warn of threads: pyarrow's allocator has one, and knows of forks
        if pid == 0:
            line.close()
            _become(json.loads(request), fds)
            return
        for fd in fds:
            os.close(fd)
        line.send(b"%d" % pid)
        _pid, status = os.waitpid(pid, 0)
        line.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Makes this process one that was started so."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = [COMMAND, *request["words"]]


def _leave(code: int) -> NoReturn:
    """Ends as Python does, but lets the system take back what is loaded: that saves a tenth of a second."""
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _import_all() -> None:
    """The command, and what its parts import when they need it."""
    from adacompute.cli.app import load_command
    from adacompute.cli.commands import COMMANDS

    for name in COMMANDS:
        load_command(name)
    for name in ("pyarrow.parquet", "typer._adapters", "xgboost"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is here before the fork isn't gone through by the forks


if __name__ == "__main__":
    sys.path[0] = str(Path(COMMAND).parent)
    _import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with who started it
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from adacompute.cli import main

    try:
        main()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            _leave(exc.code or 0)
        raise
    _leave(0)
