"""Runs work on hostile input in helper processes, which have a time limit and can be killed.

Python can't interrupt sympy, nor a regular expression such as (a+)+$, which may run forever. So users'
patterns, long texts and formulas go to a helper process (`HelperProcess`). It searches for a pattern
(`find_last_match`) or runs a function of the caller's module.

This file is also the helper's program. The helper imports modules once, then forks a child that does the
work. If the child exceeds its processor time, it is killed, and a new one is forked within milliseconds.
Messages are JSON lines over a socket.
"""

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import re
import resource
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Work = Callable[[Message], Message]

_START_SECONDS = 60.0  # maximum time to wait for a helper process to start, even on a slow, busy machine
_REPLY_MARGIN = 2.0  # a helper that replies this many seconds after its own time limit counts as hung
_EXIT_SECONDS = 1.0  # a helper process that takes longer than this to exit is killed
_FIRST_PAUSE = 1.0  # seconds to wait before the first retry of a failed start; doubles with each failure
_LONGEST_PAUSE = 60.0
# a child counts as stalled if its wall time exceeds this many times its limit of processor time
_WALL_TIME_FACTOR = 10
# bytes of address space per child, so that a hostile formula can't use up the machine's memory
_MEMORY_LIMIT = 2 << 30
_SEARCH = "__main__:make_search"  # the default `work`; in the helper process, this file is `__main__`

_helpers: "weakref.WeakSet[HelperProcess]" = weakref.WeakSet()


class _Channel:
    """One end of a pair of sockets, over which messages are sent and received."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        # bytes are buffered here, not by a file object, whose lock could stay locked forever after a fork
        self._received = b""

    def send(self, message: Message) -> None:
        self.socket.sendall(json.dumps(message).encode("ascii") + b"\n")

    def receive(self) -> Message | None:
        """Returns the next message; None at the end of the stream."""
        while b"\n" not in self._received:
            part = self.socket.recv(65_536)
            if not part:
                return None
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        message: Message = json.loads(line)
        return message


class HelperProcess:
    """A long-lived helper process that replies to messages, called questions; the first question starts it.

    Safe to use in threads and after a fork. If the helper fails, `ask` returns None, and counts the question
    as unanswered. A failed start is retried after a pause.
    """

    def __init__(self, work: str = _SEARCH, *, limit: float) -> None:
        # "module:function" that the helper calls; it returns the function that answers questions
        self.work = work
        self.limit = limit  # processor time that the helper may use per question, in seconds
        self.timeouts = 0  # number of questions for which the helper exceeded the limit
        # number of questions without a reply, because the process couldn't start, died or hung
        self.unanswered = 0
        self.failures = 0  # number of failed starts, and of helpers that died or hung
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], _Channel] | None = None
        self._pause = 0.0  # seconds to wait before the next attempt to start; 0 after a success
        self._retry_at = 0.0
        _helpers.add(self)

    @property
    def pid(self) -> int | None:
        """The id of the helper process; None if it isn't running."""
        return self._running[0].pid if self._running else None

    def start(self) -> bool:
        """Starts the process if it isn't running, so that the first question doesn't wait."""
        with self._lock:
            return self._ensure_running()

    def ask(self, question: Message) -> Message | None:
        """Returns the helper's reply, `{"late": True}` if it took too long, or None if no reply came."""
        reply = None
        with self._lock:
            if self._ensure_running():
                # the helper itself enforces `limit` in processor time, and ten times as much in wall time
                wait = _WALL_TIME_FACTOR * self.limit + _REPLY_MARGIN
                reply = self._exchange(question | {"limit": self.limit}, wait=wait)
            if reply is not None and reply.get("lost"):  # the helper's child failed and was replaced
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
        """Ends the process when Python exits; unlike `close`, doesn't wait for replies to other threads."""
        if self._lock.acquire(blocking=False):
            try:
                self._stop(grace=_EXIT_SECONDS)
            finally:
                self._lock.release()
        elif (pid := self.pid) is not None:
            with contextlib.suppress(OSError):
                os.killpg(pid, 9)

    def _ensure_running(self) -> bool:
        if self._running is not None and self._running[0].poll() is None:
            return True
        self._stop()
        if time.monotonic() < self._retry_at:
            return False
        started = self._start_process()
        self._pause = 0.0 if started else min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._retry_at = time.monotonic() + self._pause
        return started

    def _start_process(self) -> bool:
        channel: _Channel | None = None
        try:
            ours, theirs = socket.socketpair()
            channel = _Channel(ours)
            with theirs:
                process = subprocess.Popen(  # noqa: S603  (our own program, no shell)
                    # -P keeps this folder off sys.path, so that our modules can't shadow others
                    [sys.executable, "-P", "-W", "ignore", __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C must not reach the helper
                )
        except (OSError, ValueError):  # not enough memory or file handles, or the interpreter is missing
            self.failures += 1
            if channel is not None:
                channel.socket.close()
            return False
        self._running = (process, channel)
        return self._exchange({"work": self.work, "path": sys.path}, wait=_START_SECONDS) is not None

    def _exchange(self, message: Message, *, wait: float) -> Message | None:
        assert self._running is not None
        channel = self._running[1]
        try:
            channel.socket.settimeout(wait)  # after a timeout, the channel must not be used again
            channel.send(message)
            reply = channel.receive()
        except (OSError, ValueError):  # the helper hung (TimeoutError is an OSError) or disconnected
            reply = None
        if reply is None:
            self.failures += 1
            self._stop()
        return reply

    def _stop(self, *, grace: float = 0.0) -> None:
        if self._running is None:
            return
        (process, channel), self._running = self._running, None
        channel.socket.close()  # makes the helper end its own child, so that no zombie is left
        if grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, 9)  # kills the helper together with its child
            process.wait()

    def _reset_after_fork(self) -> None:
        """Forgets the parent's helper process after a fork, and closes this process's copy of its socket."""
        running, self._running = self._running, None
        self._lock = threading.Lock()  # the old lock stays locked if another thread held it during the fork
        self._pause = self._retry_at = 0.0
        if running is not None:
            running[1].socket.close()
            # mark the parent's helper as ended, so that Popen in this process neither waits for it nor warns
            running[0].returncode = 0


def _reset_helpers() -> None:
    for helper in list(_helpers):
        helper._reset_after_fork()


def _stop_helpers() -> None:
    for helper in list(_helpers):
        helper.abandon()


os.register_at_fork(after_in_child=_reset_helpers)
atexit.register(_stop_helpers)

_SEARCH_SECONDS = 0.06  # processor time allowed per search, in seconds

search_helper = HelperProcess(limit=_SEARCH_SECONDS)  # shared by all searches that use a user's pattern


def find_last_match(pattern: str, text: str) -> str | None:
    """Returns a pattern's last match, or group 1 of it; None if nothing matches or it takes too long."""
    reply = search_helper.ask({"pattern": pattern, "text": text})
    return None if reply is None else reply.get("match")


class _Child:
    """A process forked by the helper, which answers one message at a time."""

    def __init__(self, work: Work) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _run_child(work, _Channel(theirs))
        theirs.close()
        self._channel = _Channel(ours)

    def answer(self, message: Message) -> Message:
        """Returns the child's reply; `late` if it ran out of processor time, `lost` if it died or stalled."""
        remaining = limit = float(message["limit"])
        started, used_before = time.monotonic(), _processor_seconds(self._pid)
        with contextlib.suppress(OSError):
            self._channel.send(message)
            while remaining > 0:
                if select.select([self._channel.socket], [], [], remaining)[0]:  # a reply has begun to arrive
                    return self._channel.receive() or {"lost": True}
                if time.monotonic() - started > _WALL_TIME_FACTOR * limit:
                    return {"lost": True}
                # only processor time counts, so that a busy machine doesn't cause timeouts
                remaining = limit - (_processor_seconds(self._pid) - used_before)
            return {"late": True}
        return {"lost": True}

    def kill(self) -> None:
        """Kills the child, leaving no zombie and no open socket."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        self._channel.socket.close()


def _processor_seconds(pid: int) -> float:
    """Returns the processor time used by another process; wall time if the system doesn't report it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return time.clock_gettime((~pid << 3) | 2)  # Linux's formula for the clock id of a process
    return time.monotonic()


def _run_child(work: Work, channel: _Channel) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        while (message := channel.receive()) is not None:
            # the kernel ends this process at `limit` seconds of processor time, even if the parent was killed
            limit = int(time.process_time()) + int(message["limit"]) + 5
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            channel.send(work(message))
    finally:
        os._exit(0)


def make_search() -> Work:
    """Returns the function that `find_last_match` runs in the helper."""
    return _search


def _search(message: Message) -> Message:
    """Replies with the last match of a pattern, or with `invalid`: the reason why it can't be compiled."""
    try:
        pattern = re.compile(message["pattern"])
    except (re.error, RecursionError, OverflowError) as exc:
        return {"invalid": str(exc)[:80]}
    last = None
    for match in pattern.finditer(message["text"]):
        last = match
    if last is None:
        return {"match": None}
    return {"match": last.group(1) if last.re.groups else last.group()}


def main(channel: _Channel) -> None:
    """Runs in the helper: imports the function that the first message names; replies to later messages."""
    start = channel.receive()
    if start is None:
        return
    sys.path[:] = start["path"]
    work: Work = pkgutil.resolve_name(start["work"])()
    gc.collect()
    # otherwise the garbage collector would touch, and so copy, every page of memory in each child
    gc.freeze()
    child = _Child(work)
    channel.send({"ready": True})
    while (message := channel.receive()) is not None:
        reply = child.answer(message)
        channel.send(reply)
        if "late" in reply or "lost" in reply:
            child.kill()
            child = _Child(work)
    child.kill()


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # OSError means that the parent has ended
        main(_Channel(socket.socket(fileno=int(sys.argv[1]))))
