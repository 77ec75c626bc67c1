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
from dataclasses import dataclass, field
from pathlib import Path

_STARTED: list["subprocess.Popen[bytes]"] = []  # held: one that is let go of while it runs is a warning
PATIENCE = 120.0  # seconds that an engine may take to start on a busy machine


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
    with said.open("wb") as out:
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("ray"),
                "start",
                *words.split(),
                "--disable-usage-stats",
                "--num-cpus=4",  # logical: tests of several workers wait for each other less
                "--object-store-memory=400000000",
                f"--temp-dir={home}",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **known, **spare},
            start_new_session=True,
        )
    _STARTED.append(process)
    (folder / "pid").write_text(str(process.pid))
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
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
