"""Helper processes that work on hostile input, with a time limit, and can be killed.

Python can't interrupt a match, and a pattern like (a+)+$ may take for ever, so every pattern of a user
that isn't plainly cheap runs in such a process (`find_last_match`). The program it runs is worker.py.
"""

import atexit
import contextlib
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Literal

__all__ = ["HelperProcess", "find_last_match", "search_helper"]

_START_SECONDS = 60.0  # seconds for the first import on a slow, busy machine
_REPLY_MARGIN = 2.0  # seconds beyond the helper's own limit before it counts as hung
_EXIT_SECONDS = 1.0  # seconds to exit by itself
_FIRST_PAUSE = 1.0  # seconds between a failed start and the next; doubles with each failure
_LONGEST_PAUSE = 60.0
_WORKER_PROGRAM = Path(__file__).with_name("worker.py")

_helpers: "weakref.WeakSet[HelperProcess]" = weakref.WeakSet()


class HelperProcess:
    """A long-lived process, started at the first question; safe in threads and after a fork.

    Nothing that happens in the process raises here: a question without a reply gives None, and is counted.
    A start that fails (no memory, no file handle left) is tried again after a pause, never given up.
    """

    def __init__(self, kind: Literal["extract", "math", "search"], *, limit: float) -> None:
        self.kind = kind
        self.limit = limit  # seconds of processor time for one question
        self.timeouts = 0  # questions that took longer
        self.unanswered = 0  # questions that got no reply: the process couldn't start, died or hung
        self.failures = 0  # starts that failed, and processes that died or hung
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = 0.0  # seconds after the last start; 0 if it succeeded
        self._retry_at = 0.0
        _helpers.add(self)

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return self._process.pid if self._process else None

    def start(self) -> bool:
        """Starts the process if it isn't running, so that the first question doesn't wait for it."""
        with self._lock:
            return self._ensure_running()

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The reply, `{"late": True}` if it took too long, or None if none came (the next may)."""
        reply = None
        with self._lock:
            if self._ensure_running():
                # the helper's own limit is processor time, and ten times that of wall time
                reply = self._exchange(question | {"limit": self.limit}, wait=10 * self.limit + _REPLY_MARGIN)
            if reply is not None and reply.get("lost"):  # its child died or stalled, and was replaced
                self.failures += 1
                reply = None
            self.unanswered += reply is None
            self.timeouts += reply is not None and "late" in reply
        return reply

    def close(self) -> None:
        """Ends the process; the next question starts a new one."""
        with self._lock:
            self._stop(grace=_EXIT_SECONDS)

    def abandon(self) -> None:
        """As `close`, when the program ends: doesn't wait for a thread that is still asking."""
        if self._lock.acquire(blocking=False):
            try:
                self._stop(grace=_EXIT_SECONDS)
            finally:
                self._lock.release()
        elif (process := self._process) is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)

    def _ensure_running(self) -> bool:
        if self._process is not None and self._process.poll() is None:
            return True
        self._stop()
        if time.monotonic() < self._retry_at:
            return False
        started = self._start_process()
        self._pause = 0.0 if started else min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._retry_at = time.monotonic() + self._pause
        return started

    def _start_process(self) -> bool:
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own program, no shell)
                # -P keeps the program's folder off sys.path: our module names must not shadow others
                [sys.executable, "-P", "-W", "ignore", str(_WORKER_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches only this process
            )
        except (OSError, ValueError):  # no memory, no handles, or no such interpreter
            self.failures += 1
            return False
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        return self._exchange({"kind": self.kind, "path": sys.path}, wait=_START_SECONDS) is not None

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
            self._stop()
            return None
        return reply if isinstance(reply, dict) else None

    def _stop(self, *, grace: float = 0.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if grace:  # at the end of its input it ends its own child, so no zombie is left
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)  # the process and the child it works in
            process.wait()
        _close_pipes(process)

    def _reset_after_fork(self) -> None:
        """After a fork, drops the parent's process and closes only our copies of its pipes."""
        process, self._process = self._process, None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._pause = self._retry_at = 0.0
        if process is not None:
            _close_pipes(process)
            process.returncode = 0  # not our child: nothing to wait for or warn about


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _wait_ready(fd: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, event)
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poller.poll(max(1, int(remaining * 1000))):
        raise TimeoutError


def _write(fd: int, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        _wait_ready(fd, select.POLLOUT, deadline)
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(fd, view[:65_536]) :]


def _read(fd: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait_ready(fd, select.POLLIN, deadline)
        piece = os.read(fd, size - len(data))
        if not piece:
            raise ConnectionResetError("the helper ended")
        data += piece
    return bytes(data)


def _reset_helpers() -> None:
    for helper in list(_helpers):
        helper._reset_after_fork()


def _stop_helpers() -> None:
    for helper in list(_helpers):
        helper.abandon()


os.register_at_fork(after_in_child=_reset_helpers)
atexit.register(_stop_helpers)


_STEP_LIMIT = 400_000  # steps of a pattern that may run in this process: a few milliseconds
_SEARCH_SECONDS = 0.06  # seconds of processor time for a pattern that runs in the helper
_CHARACTER_CLASS = re.compile(r"\\[^\d]|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_BRANCHES = re.compile(r"[|?{\\]|\)[*+]")  # alternatives, optional, lazy, counted, reference, repeated group
_REPEAT_LAST = re.compile(r"[*+]\)*")

search_helper = HelperProcess("search", limit=_SEARCH_SECONDS)  # for every user's pattern in this process


def find_last_match(pattern: str, text: str) -> str | None:
    """Group 1, or the whole, of a pattern's last match; None if nothing matches or it takes too long."""
    if not _is_cheap(pattern, len(text)):
        reply = search_helper.ask({"pattern": pattern, "text": text})
        matched_text = reply.get("found") if reply is not None else None
        return matched_text if isinstance(matched_text, str) else None
    last = None
    for match in re.finditer(pattern, text):
        last = match
    if last is None:
        return None
    return last.group(1) if last.re.groups else last.group()


def _is_cheap(pattern: str, size: int) -> bool:
    """Whether a pattern can't take long: no branches and at most one repeat, so its steps can be bounded.

    Without a repeat, or with one that ends the pattern and so can't fail, every character is passed once
    for each part of the pattern; with a repeat elsewhere, once more for each character.
    """
    bare = _CHARACTER_CLASS.sub("x", pattern)
    if _BRANCHES.search(bare) or bare.count("*") + bare.count("+") > 1:
        return False
    repeat = re.search(r"[*+]", bare)
    linear = repeat is None or _REPEAT_LAST.fullmatch(bare, repeat.start())
    return len(bare) * size * (1 if linear else size) <= _STEP_LIMIT
