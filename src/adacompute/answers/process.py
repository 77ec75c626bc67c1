"""A helper process that can be asked, timed out and killed. Knows nothing of what it is asked."""

import atexit
import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Literal

__all__ = ["Helper"]

_STARTING = 60.0  # seconds for the first import on a slow, busy machine
_OUTER = 2.0  # seconds beyond the helper's own limit before it is given up as hung
_GRACE = 1.0  # seconds to end by itself
_PAUSE = 1.0  # seconds after a start that failed before the next; doubled each time it fails again
_LONGEST_PAUSE = 60.0
_PROGRAM = Path(__file__).with_name("worker.py")

_helpers: "weakref.WeakSet[Helper]" = weakref.WeakSet()


class Helper:
    """One long-lived process, started when first asked; safe in threads, and after a fork.

    Doesn't raise for what happens in the process: a question it leaves open is None, and counted. A start
    that fails (no memory, no file handle left) is tried again after a pause, never given up.
    """

    def __init__(self, kind: Literal["extract", "math", "search"], *, limit: float) -> None:
        self.kind = kind
        self.limit = limit  # seconds of processor time for one question
        self.timeouts = 0  # questions that took longer
        self.unanswered = 0  # questions that got no reply: the process couldn't start, died or hung
        self.failures = 0  # starts that failed, and processes that died or hung
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = 0.0  # seconds, after the last start; 0 where it went well
        self._rests_until = 0.0
        _helpers.add(self)

    @property
    def pid(self) -> int | None:
        """The process, where it runs."""
        return self._process.pid if self._process else None

    def start(self) -> bool:
        """Starts the process if it isn't running, so that no question waits for it."""
        with self._lock:
            return self._ready()

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The reply, `{"late": True}` where it took too long; None: none came, but may next time."""
        reply = None
        with self._lock:
            if self._ready():
                # the helper's own limit is processor time, and ten times that of wall time
                reply = self._exchange(question | {"limit": self.limit}, wait=10 * self.limit + _OUTER)
            if reply is not None and reply.get("lost"):  # its child died or stalled, and was replaced
                self.failures += 1
                reply = None
            self.unanswered += reply is None
            self.timeouts += reply is not None and "late" in reply
        return reply

    def close(self) -> None:
        """Ends the process; the next question starts another."""
        with self._lock:
            self._end(grace=_GRACE)

    def abandon(self) -> None:
        """As `close`, at the end of everything: whoever is still waiting for it isn't waited for."""
        if self._lock.acquire(blocking=False):
            try:
                self._end(grace=_GRACE)
            finally:
                self._lock.release()
        elif (process := self._process) is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)

    def _ready(self) -> bool:
        if self._process is not None and self._process.poll() is None:
            return True
        self._end()
        if time.monotonic() < self._rests_until:
            return False
        started = self._launch()
        self._pause = 0.0 if started else min(_LONGEST_PAUSE, 2 * self._pause or _PAUSE)
        self._rests_until = time.monotonic() + self._pause
        return started

    def _launch(self) -> bool:
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own program, no shell)
                # -P: the program's folder holds modules of ours whose names are not to be found by others
                [sys.executable, "-P", "-W", "ignore", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is the user's talk with us, not with it
            )
        except (OSError, ValueError):  # out of memory or handles, or an interpreter that isn't there
            self.failures += 1
            return False
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        return self._exchange({"kind": self.kind, "path": sys.path}, wait=_STARTING) is not None

    def _exchange(self, message: dict[str, Any], *, wait: float) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        body = json.dumps(message).encode("ascii")
        deadline = time.monotonic() + wait
        try:
            _write(self._process.stdin.fileno(), struct.pack("!I", len(body)) + body, deadline)
            head = _read(self._process.stdout.fileno(), 4, deadline)
            size = int(struct.unpack("!I", head)[0])
            reply = json.loads(_read(self._process.stdout.fileno(), size, deadline))
        except (OSError, ValueError):  # dead, hung or cut off: TimeoutError is an OSError
            self.failures += 1
            self._end()
            return None
        return reply if isinstance(reply, dict) else None

    def _end(self, *, grace: float = 0.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if grace:  # at the end of its input it ends its own child, and leaves no zombie to anyone
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)  # the process and the child it works in
            process.wait()
        _close(process)

    def _forget(self) -> None:
        """After a fork: the process is the other one's; only our copies of its pipes are closed."""
        process, self._process = self._process, None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._pause = self._rests_until = 0.0
        if process is not None:
            _close(process)
            process.returncode = 0  # not our child: nothing to wait for, or to warn of


def _close(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _poll(fd: int, event: int, deadline: float) -> None:
    waiting = select.poll()
    waiting.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not waiting.poll(max(1, int(left * 1000))):
        raise TimeoutError


def _write(fd: int, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        _poll(fd, select.POLLOUT, deadline)
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(fd, view[:65_536]) :]


def _read(fd: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _poll(fd, select.POLLIN, deadline)
        piece = os.read(fd, size - len(data))
        if not piece:
            raise ConnectionResetError("the helper ended")
        data += piece
    return bytes(data)


def _after_fork() -> None:
    for helper in list(_helpers):
        helper._forget()


def _at_exit() -> None:
    for helper in list(_helpers):
        helper.abandon()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
