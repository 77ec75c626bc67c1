"""Our command without the second that Python takes to start: one process has imported it, and forks for each.

    warm = keep_warm()
    done = warm.run("pool", "p.sqlite", folder=tmp_path, environ={...})    # a subprocess.CompletedProcess
    gateway = warm.start([COMMAND, "serve"], folder=tmp_path, environ={...})    # as a subprocess.Popen

What runs is a process as every other: its own folder, environment, streams, signals, exit code and end. What
is settled when an interpreter starts is the warm one's: the encoding of streams, PYTHON... in the
environment, and the seed of hashes. Tests of these start the command again (`installed` in harness.py).

Run as a script, this file is the warm process: it takes requests from the socket whose number it is given.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = ["COMMAND", "LONGEST", "Started", "Warm", "keep_warm"]

COMMAND = str(Path(sys.executable).parent / "adacompute")
LONGEST = 280.0  # seconds that a command may take on a loaded machine
_STARTING = 280.0  # seconds: a loaded machine imports slowly
_MOST_BYTES = 1 << 17  # bytes of a request: its words and its environment
_SETTLED = ("PYTHON", "LC_", "LANG")  # what only a start of Python heeds
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # no threads that a fork would lose


class Started:
    """A process that was forked and runs on: what tests use of a subprocess.Popen."""

    def __init__(self, line: socket.socket, stdout: IO[bytes] | None) -> None:
        self._line = line
        self.stdout = stdout
        self.returncode: int | None = None
        try:
            self.pid = int(self._told(_STARTING))
        except BaseException:
            line.close()
            raise

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            try:
                self.returncode = int(self._told(timeout))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _told(self, timeout: float | None) -> bytes:
        self._line.settimeout(timeout)
        told = self._line.recv(64)
        assert told, "the warm process has ended"
        return told


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
                stdout=subprocess.PIPE,  # nothing that a fork would try to seek in
            )

    def run(
        self, *words: str, folder: Path, environ: Mapping[str, str], timeout: float = LONGEST
    ) -> "subprocess.CompletedProcess[str]":
        """Runs the command to its end, with nothing to read."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self._fork([COMMAND, *words], folder, environ, out.fileno(), err.fileno())
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STARTING)
                raise
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode())
        return subprocess.CompletedProcess([COMMAND, *words], code, *said)

    def start(
        self, words: Sequence[str], *, folder: Path, environ: Mapping[str, str], stderr: int
    ) -> Started:
        """Starts the command, or a script of Python, with its output in a pipe."""
        read, write = os.pipe()
        try:
            process = self._fork(words, folder, environ, write, stderr)
        finally:
            os.close(write)
        process.stdout = os.fdopen(read, "rb")
        return process

    def can(self, environ: Mapping[str, str]) -> bool:
        """Whether the warm process would have started the same in this environment."""
        return all(
            environ.get(name) == self._environ.get(name)
            for name in {*environ, *self._environ}
            if name.startswith(_SETTLED)
        )

    def close(self) -> None:
        self._line.close()
        with self._process:
            self._process.wait(60)

    def _fork(
        self, words: Sequence[str], folder: Path, environ: Mapping[str, str], out: int, err: int
    ) -> Started:
        assert self.can(environ), "this environment is for a start of Python"
        request = json.dumps({"words": words, "folder": str(folder), "environ": dict(environ)}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Path(os.devnull).open() as none:
            socket.send_fds(self._line, [request], [none.fileno(), out, err, theirs.fileno()])
        return Started(ours, None)


@functools.cache
def keep_warm() -> Warm:
    """The warm process of this one, which ends with it."""
    warm = Warm()
    atexit.register(warm.close)
    return warm


def _serve(line: socket.socket) -> list[str]:
    """Forks for each request and tells pid and exit code on its own line; a fork returns its words."""
    running: dict[int, socket.socket] = {}
    ended, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno())
    events = selectors.DefaultSelector()
    events.register(line, selectors.EVENT_READ)
    events.register(ended, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in events.select()}
        if ended in ready:
            ended.recv(4096)
            _tell_ends(running)
        if line not in ready:
            continue
        request, fds, _flags, _address = socket.recv_fds(line, _MOST_BYTES, 4)
        if not request:
            sys.exit()
        theirs = socket.socket(fileno=fds.pop())
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            pid = os.fork()  # later Pythons warn of threads: pyarrow's allocator has one, and knows of forks
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            events.close()
            for each in (line, ended, woken, theirs, *running.values()):
                each.close()
            return _become(json.loads(request), fds)
        for fd in fds:
            os.close(fd)
        running[pid] = theirs
        with contextlib.suppress(BrokenPipeError):
            theirs.send(b"%d" % pid)


def _tell_ends(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with running.pop(ended[0]) as line, contextlib.suppress(BrokenPipeError):
                line.send(b"%d" % os.waitstatus_to_exitcode(ended[1]))


def _become(request: dict[str, Any], fds: list[int]) -> list[str]:
    """Makes this process one that was started so; its words."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    words: list[str] = request["words"]
    return words


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
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    from adacompute.cli import main

    try:
        if sys.argv[0] == COMMAND:
            main()
        else:  # Python and a script
            del sys.argv[0]
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            _leave(exc.code or 0)
        raise
    _leave(0)
