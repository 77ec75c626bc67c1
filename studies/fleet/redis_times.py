"""Microseconds that one Redis takes for a replica's call, by how many reservations are in it.

Knows nothing of fleets. The fleet's own script runs in a real redis-server; what counts is the server's
processor time, for one thread runs all scripts, so a busy machine beside it changes little.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np

__all__ = ["redis_times"]

_SIZES = (1, 4, 16, 64, 256)  # reservations a call, each settled in the next one
_SECONDS = 0.4  # of a round; the best one counts
_KEYS = 100  # clients' keys
_REPLICA, _PACEMAKER = "replica-1", "replica-0"


def redis_times(rounds: int = 4) -> dict[str, Any]:
    """Of a call, of a reservation with its settlement and its pair, and of one alone; microseconds."""
    found = {fsync: _measured(fsync, rounds) for fsync in ("everysec", "always")}
    sizes = np.array(_SIZES, dtype=np.float64)
    plain = np.array([row["processor"] for row in found["everysec"]])
    # least squares of relative errors: the small calls count as much as the large ones
    design = np.stack([1 / plain, sizes / plain], axis=1)
    call, each = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return {
        "call_us": round(float(call), 1),
        "reservation_us": round(float(each), 2),
        "alone_us": round(float(plain[0]), 1),
        "sizes": list(_SIZES),
        "processor_us": [round(row["processor"], 1) for row in found["everysec"]],
        "round_trip_us": [round(row["wall"], 1) for row in found["everysec"]],
        "synced_round_trip_us": [round(row["wall"], 1) for row in found["always"]],
    }


def _measured(fsync: str, rounds: int) -> list[dict[str, float]]:
    with _server(fsync) as client:
        script = client.register_script(
            files("adacompute.serve.spending").joinpath("batch.lua").read_text("utf-8")
        )
        caller = _Caller(script)
        return [_timed(client, partial(caller.call, size), rounds) for size in _SIZES]


class _Caller:
    """A replica that reserves for some requests in each call, and settles those of the call before."""

    def __init__(self, script: Any) -> None:  # noqa: ANN401 # redis's own
        self._script = script
        self._number, self._id = 0, ""
        self._seq = {_REPLICA: 0, _PACEMAKER: 0}
        self._open: list[int] = []
        self._say(_PACEMAKER)  # the first to come paces

    def call(self, size: int) -> None:
        """Settles what is open, with their pairs, and reserves for so many."""
        key = f"key-{self._number % _KEYS}"
        ends = [["e", one, key, "", [1, 300, 60_000], [0, 0, 0]] for one in self._open]
        self._open = list(range(self._number + 1, self._number + size + 1))
        begins = [["r", one, key, 10**12, [1, 800, 160_000]] for one in self._open]
        self._number += size
        told = {"lane": {"costs": ["3 0.0271828"] * len(ends), "start": "0.02"}}
        answer = self._say(_REPLICA, deeds=ends + begins, costs=told if ends else {}, lanes=["lane"])
        assert all(one == 1 for one in answer["said"]), answer["said"][:3]

    def _say(self, who: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 # parts of a call
        self._seq[who] += 1
        batch = {
            "me": who, "id": self._id, "new": "ledger-1", "seq": self._seq[who], "ahead": 0, "window": 10,
            "lease": 600_000, "beat": 600_000, "place": 1, "limit": 10**15, "most": 10_000, "leaves": False,
        } | {name: value for name, value in more.items() if value}  # fmt: skip
        answer: dict[str, Any] = json.loads(self._script(keys=["{fleet}"], args=[json.dumps(batch)]))
        self._id = answer["id"]
        return answer


def _timed(client: Any, work: Callable[[], None], rounds: int) -> dict[str, float]:  # noqa: ANN401 # redis's own
    work()
    work()
    found = []
    for _ in range(rounds):
        before, calls, began = _processor(client), 0, time.perf_counter()
        while time.perf_counter() - began < _SECONDS:
            work()
            calls += 1
        found.append(((_processor(client) - before) / calls, (time.perf_counter() - began) / calls))
    processor, wall = (1e6 * min(column) for column in zip(*found, strict=True))
    return {"processor": processor, "wall": wall}


def _processor(client: Any) -> float:  # noqa: ANN401 # redis's own
    told = client.info("cpu")
    return float(told["used_cpu_user_main_thread"] + told["used_cpu_sys_main_thread"])


@contextlib.contextmanager
def _server(fsync: str) -> Iterator[Any]:
    import redis

    binary = shutil.which("redis-server")
    if binary is None:
        raise SystemExit("redis-server is not on the PATH; install it to measure, e.g. apt-get install redis")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", fsync]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                for _ in range(200):
                    with contextlib.suppress(redis.RedisError):
                        client.ping()
                        break
                    time.sleep(0.02)
                yield client
        finally:
            server.kill()
            server.wait()
