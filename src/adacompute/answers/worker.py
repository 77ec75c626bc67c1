"""The program that works on hostile input in a process that can be killed. Imports nothing of this package.

Run as a file by `process.py`, never imported. It loads what it needs once, then forks a child that does
the work. A child that spends more processor time than it may is killed and forked anew, which costs
milliseconds, not another import. Messages are JSON, each after its length in four bytes.
"""

import contextlib
import gc
import json
import os
import re
import resource
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Work = Callable[[Message], Message]

_MEMORY = 2 << 30  # bytes of address space: a hostile formula must not take the machine's memory
_PATIENCE = 10  # wall time allowed, in multiples of the processor time, before a stalled child is given up
_CACHED = 512  # parsed formulas kept by one child


def read_message(fd: int) -> Message | None:
    """The next message; None at the end of the stream."""
    head = _read(fd, 4)
    body = _read(fd, struct.unpack("!I", head)[0]) if head else b""
    return json.loads(body) if body else None


def write_message(fd: int, message: Message) -> None:
    """Sends one message."""
    body = json.dumps(message).encode("ascii")
    data = struct.pack("!I", len(body)) + body
    while data:
        data = data[os.write(fd, data) :]


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            return b""
        data += piece
    return data


class Child:
    """A forked process that answers one message at a time."""

    def __init__(self, work: Work) -> None:
        ask, self.requests = os.pipe()
        self.replies, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.requests)
            os.close(self.replies)
            _serve(work, ask, tell)
        os.close(ask)
        os.close(tell)

    def answer(self, message: Message, limit: float) -> Message | None:
        """The child's reply; None where it took too long or died."""
        begun, spent = time.monotonic(), _processor_seconds(self.pid)
        with contextlib.suppress(OSError):
            write_message(self.requests, message)
            left = limit
            while left > 0:
                if select.select([self.replies], [], [], left)[0]:
                    return read_message(self.replies)
                wall = time.monotonic() - begun
                # processor time, so that a busy machine doesn't turn answers into timeouts
                used = _processor_seconds(self.pid) - spent if wall < _PATIENCE * limit else limit
                left = limit - used
        return None

    def kill(self) -> None:
        """Ends the child and leaves neither zombie nor open pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.replies)


def _processor_seconds(pid: int) -> float:
    """Processor time of another process; wall time where the system doesn't tell."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return time.clock_gettime((~pid << 3) | 2)  # the kernel's clock id of a process
    return time.monotonic()


def _serve(work: Work, requests: int, replies: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        while (message := read_message(requests)) is not None:
            # should our parent be killed while we work, the kernel ends us soon
            used = int(time.process_time())
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_CPU, (used + 5, resource.RLIM_INFINITY))
            write_message(replies, work(message))
    finally:
        os._exit(0)


def search(message: Message) -> Message:
    """Group 1, or the whole, of a pattern's last match."""
    last = None
    for match in re.finditer(message["pattern"], message["text"]):
        last = match
    if last is None:
        return {"found": None}
    return {"found": last.group(1) if last.re.groups else last.group()}


def mathematician() -> Work:
    """Compares two formulas with math-verify."""
    from math_verify import parse, verify

    parsed: dict[str, Any] = {}

    def read(formula: str) -> Any:  # noqa: ANN401  (math-verify's own types)
        if formula not in parsed:
            if len(parsed) >= _CACHED:
                parsed.clear()
            # its own timeouts use signals and fail in threads: None turns them off, ours kills
            parsed[formula] = parse(f"${formula}$", parsing_timeout=None)
        return parsed[formula]

    def compare(message: Message) -> Message:
        try:
            a, b = read(message["a"]), read(message["b"])
            same = verify(a, b, timeout_seconds=None) or verify(b, a, timeout_seconds=None)
        except Exception:  # noqa: BLE001  (sympy raises anything on hostile formulas; none is "the same")
            same = False
        return {"same": bool(same)}

    for pair in _WARM:  # fills the grammar's caches before the fork, so that every child has them
        compare({"a": pair[0], "b": pair[1]})
    parsed.clear()
    return compare


_WARM = [
    (r"\frac{1}{2}+\sqrt{3}x^2", r"x^{2}\sqrt{3}+0.5"),
    (r"\lfloor 2.5 \rfloor", r"2"),
    (r"\sum_{k=1}^{3} k", r"7"),
    (r"\int_0^1 x dx", r"\frac13"),
    (r"\lim_{x \to 0} \frac{\sin x}{x}", r"0"),
    (r"x \ge 5", r"[5,\infty)"),
    (r"\{1,2\}\cup(3,4]", r"(3,4]\cup\{2,1\}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&5\end{bmatrix}"),
    (r"\log_2 x + \sin^2 y + 3!", r"|x|"),
    (r"x^2+y^2=1", r"y=2x+1, x=3"),
    (r"\mathbb{R}\setminus\{0\}", r"x \neq 0"),
]


def main() -> None:
    """Reads what to be, gets ready, then answers until the input ends."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # whatever a library prints must not reach the pipes
        os.dup2(null, fd)
    start = read_message(requests)
    if start is None:
        return
    sys.path[:] = start["path"]
    work = mathematician() if start["kind"] == "math" else search
    gc.collect()
    gc.freeze()  # the collector would otherwise touch, and so copy, every page in every child
    child = Child(work)
    write_message(replies, {"ready": True})
    while (message := read_message(requests)) is not None:
        reply = child.answer(message, message["limit"])
        write_message(replies, {"late": True} if reply is None else reply)
        if reply is None:
            child.kill()
            child = Child(work)
    child.kill()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
