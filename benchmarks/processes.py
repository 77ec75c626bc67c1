"""Servers in processes of their own, each bound to a core, and the processor time that they took.

Knows nothing of what they serve. The server that is measured has core 0 to itself; what asks it and what it
asks share core 1.
"""

import contextlib
import http.client
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

__all__ = [
    "MEASURED",
    "OTHERS",
    "count_family",
    "free_port",
    "here",
    "memory",
    "peak_kb",
    "pinned",
    "processor",
    "running",
    "shared_memory",
    "upstream",
]

ROOT = Path(__file__).resolve().parent.parent
_CORES = sorted(os.sched_getaffinity(0))
MEASURED, OTHERS = _CORES[0], _CORES[-1]  # the same where there is only one


def pinned(core: int, words: Sequence[str]) -> list[str]:
    """The command that runs on one core."""
    return ["taskset", "-c", str(core), *words]


def here(*words: str) -> list[str]:
    """A command of this Python."""
    return [sys.executable, *words]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def upstream(
    *,
    latency: float = 0.0,
    most: int = 16,
    size: int = 600,
    faults: float = 0.0,
    core: int = OTHERS,
) -> Iterator[str]:
    """The address of `benchmarks.upstream` in another process."""
    words = here("-m", "benchmarks.upstream", "--latency", str(latency), "--most", str(most))
    words += ["--size", str(size), "--faults", str(faults)]
    with first_line(pinned(core, words)) as address:
        yield address


@contextlib.contextmanager
def first_line(words: Sequence[str]) -> Iterator[str]:
    """The line that a process prints first; it is ended afterwards."""
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(20)


@contextlib.contextmanager
def running(
    words: Sequence[str],
    ready: str,
    *,
    folder: Path,
    environ: Mapping[str, str] | None = None,
    wait: float = 90.0,
    core: int = MEASURED,
) -> Iterator[int]:
    """The process of a server, once GET `ready` answers 200; what it says is in the folder's server.log."""
    log = folder / "server.log"
    with (
        log.open("ab") as out,
        subprocess.Popen(
            pinned(core, words), cwd=folder, stdout=out, stderr=out, env=os.environ | dict(environ or {})
        ) as process,
    ):
        try:
            _wait_for(ready, process, log, time.monotonic() + wait)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(ready: str, process: subprocess.Popen[bytes], log: Path, until: float) -> None:
    where = urlsplit(ready)
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            line = http.client.HTTPConnection(where.netloc, timeout=5)
            line.request("GET", where.path)
            if line.getresponse().status == 200:
                line.close()
                return
        time.sleep(0.1)
    said = log.read_text("utf-8", "replace")[-2000:]
    raise RuntimeError(f"no server came up at {ready}; the last it said:\n{said}")


def processor(pid: int) -> float:
    """Seconds of processor time that a process, its threads and its children have taken so far.

    By the kernel's own clock of a process, in nanoseconds, with the threads that have ended: /proc/PID/stat
    only counts ticks of 10 ms.
    """
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(OSError):
            total += time.clock_gettime((~process << 3) | 2)
    return total


def memory(pid: int) -> int:
    """Bytes that a process and all below it hold in memory; what they share is counted in each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for process in _family(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
    return total


def shared_memory(pid: int) -> int:
    """The same, but of the processes below it each page that several processes share counted in parts.

    A helper forks the child that it works in: most pages of the two are the same ones.
    """
    own, *below = _family(pid)
    total = int(Path(f"/proc/{own}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    for process in below:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def count_family(pid: int) -> int:
    """How many processes there are: this one and all below it."""
    return len(_family(pid))


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                with contextlib.suppress(OSError):
                    queue += [int(child) for child in (task / "children").read_text().split()]
    return found


def peak_kb() -> int:
    """This process's own peak: what getrusage tells on Linux counts the parent's size before exec too."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(row for row in status.read_text().splitlines() if row.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
