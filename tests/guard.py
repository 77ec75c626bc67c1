"""Ends every process that a test run started, however the run itself ends.

The run starts this file as a process of its own session and holds the other end of its standard input. When
the run ends (normally, by Ctrl-C, SIGTERM or SIGKILL), that pipe closes. Then every process whose environment
names the run is killed, and the run's folder is removed. A process inherits that name from the one that
started it, also in a session of its own, so Ray's daemons and gateways are found like anything else.
Only Linux shows the environment of processes; elsewhere nothing is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["RUN", "Guard"]

RUN = "TEST_RUN_OF_ADACOMPUTE"  # the variable that names the run; tests may remove those named ADACOMPUTE_...
_ENOUGH = 20.0  # seconds in which killed processes are gone


class Guard:
    """The process that cleans up behind the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        os.environ[RUN] = str(folder)
        environ = {name: value for name, value in os.environ.items() if name != RUN}
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(folder)],
            stdin=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )

    def close(self) -> None:
        """Cleans up now, and waits for it."""
        os.environ.pop(RUN, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def find_processes(folder: str) -> list[int]:
    """The processes of the run in a folder."""
    mark, found = f"{RUN}={folder}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def clean_up(folder: str) -> None:
    """Kills what is left of a run, and removes its folder and Ray's."""
    until, empty = time.monotonic() + _ENOUGH, 0
    while empty < 3 and time.monotonic() < until:  # one that is just being started shows no environment yet
        left = find_processes(folder)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        empty = 0 if left else empty + 1
        time.sleep(0.05)
    with contextlib.suppress(OSError):
        shutil.rmtree((Path(folder) / "ray" / "home").read_text(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clean_up(sys.argv[1])
