"""Real engines for tests, on loopback: one Ray for the whole run, and Redis servers of one's own."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 120.0  # seconds that an engine may take to start on a busy machine


def start_detached(words: Sequence[str], output: Path, environ: Mapping[str, str]) -> int:
    """Starts a process that outlives this one, in a session of its own, and gives its number.

    A Popen would warn when this process ends first; `guard.py` ends whatever is left of a run.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(words[0], words, environ, file_actions=streams, setsid=True)


def start_ray(folder: Path) -> dict[str, str]:
    """Starts a cluster of this machine, and notes its process in the folder; gives what finds it."""
    home = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: Ray puts sockets in it
    (folder / "home").write_text(home)
    said = folder / "said.txt"
    known = {"RAY_AUTH_MODE": "disabled"}  # a token has to be there before Ray is first imported
    spare = {  # processes that nobody has asked for yet cost two seconds of a core each
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
    }
    words = "--head --block --port=0 --include-dashboard=false --disable-usage-stats"
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        *words.split(),
        "--num-cpus=4",  # logical: tests of several workers wait for each other less
        "--object-store-memory=400000000",
        f"--temp-dir={home}",
    ]
    number = start_detached(command, said, {**os.environ, **known, **spare})
    (folder / "pid").write_text(str(number))
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and os.waitpid(number, os.WNOHANG) == (0, 0):
        if found := re.search(r"--address='([^']+)'", said.read_text("utf-8", "replace")):
            return {"RAY_ADDRESS": found[1], **known}
        time.sleep(0.1)
    stop_ray(folder)
    raise AssertionError(f"Ray didn't start: {said.read_text('utf-8', 'replace')[-2000:]}")


def stop_ray(folder: Path) -> None:
    """Ends the cluster that was started from a folder, if there is one, and removes what it wrote."""
    pid = folder / "pid"
    if not pid.exists():
        return
    number = int(pid.read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGTERM)
        until = time.monotonic() + 15
        while time.monotonic() < until and Path(f"/proc/{number}").exists() and not _zombie(number):
            time.sleep(0.05)
        os.killpg(number, signal.SIGKILL)  # its own group: all that it started
    pid.unlink()
    shutil.rmtree((folder / "home").read_text(), ignore_errors=True)


def _zombie(number: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


@dataclass
class RedisServer:
    """A real redis-server on a port of its own, that can be killed and started again with what it wrote."""

    binary: str
    folder: Path
    durable: bool = True  # every write is on the disk before it is answered
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> "RedisServer":
        import redis

        for _ in range(20):
            port = self.port or _free_port()
            log = (self.folder / "redis.log").open("ab")
            words = [self.binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
            words += [
                "--save",
                "",
                "--appendonly",
                "yes" if self.durable else "no",
                "--appendfsync",
                "always",
            ]
            with log:
                self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and self.process.poll() is None:
                with contextlib.suppress(redis.RedisError), redis.Redis(port=port) as client:
                    if client.ping() and client.info("server")["process_id"] == self.process.pid:
                        self.port = port
                        return self
                time.sleep(0.02)
            if self.port:  # it has to be this port again
                time.sleep(0.2)
        raise AssertionError(f"redis-server didn't start: {(self.folder / 'redis.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """As a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def forget(self) -> None:
        """Loses all that was written, as a disk would."""
        assert self.process is None
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
