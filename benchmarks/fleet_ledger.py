"""Reservations a second of the ledger that a fleet shares, beside what else could be done. Knows no pages.

Each client is a process of its own with a gateway's ledger, and many requests under way: each reserves, and
settles at once. Redis is a real one on loopback, started here. Rounds go through all ways in turn, so that
what else the machine does falls on each.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from adacompute.serve.pricing.fleet import join_fleet
from adacompute.serve.spending.ledger import Caps, LedgerProtocol, Spend
from adacompute.serve.spending.local_ledger import Ledger
from adacompute.serve.spending.redis_client import _SCRIPT, FleetTiming

__all__ = ["run"]

SECONDS = 1.5  # of one measurement
ROUNDS = 3
CLIENTS, AT_ONCE = 2, 100  # processes, and requests under way in each
CAPS = Caps(total=1e9, per_key=1e9, window="hour")
MOST, SPENT = Spend(samples=4, tokens=2000, nanos=5_000_000), Spend(samples=2, tokens=700, nanos=1_800_000)

WAYS = {  # name: (fsync of Redis; None: no Redis, processes, requests at once, one call each)
    "batched, no fsync": ("no", CLIENTS, AT_ONCE, False),
    "batched, fsync each second": ("everysec", CLIENTS, AT_ONCE, False),
    "batched, fsync each write": ("always", CLIENTS, AT_ONCE, False),
    "a round trip each": ("everysec", CLIENTS, AT_ONCE, True),
    "SQLite, one gateway": (None, 1, AT_ONCE, False),
}


def run() -> list[dict[str, Any]]:
    """A row for each way: reservations a second of all clients together, and of Redis's processor."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for name in WAYS:
                found[name].append(_measured(name, Path(folder) / f"{turn}{list(WAYS).index(name)}"))
    plain = statistics.median(each["rate"] for each in found["a round trip each"])
    return [
        {
            "way": name,
            "clients": WAYS[name][1],
            "rate": (rate := statistics.median(each["rate"] for each in rows)),
            "redis": statistics.median(each["redis"] for each in rows),  # of a processor
            "ratio": rate / plain,
        }
        for name, rows in found.items()
    ]


def _measured(name: str, folder: Path) -> dict[str, float]:
    folder.mkdir()
    fsync, clients, at_once, single = WAYS[name]
    with contextlib.ExitStack() as stack:
        url, pid = ("", 0) if fsync is None else stack.enter_context(_redis(folder, fsync))
        words = [
            sys.executable,
            "-m",
            "benchmarks.fleet_ledger",
            url or str(folder / "state"),
            str(at_once),
            str(int(single)),
        ]
        before = _processor(pid)
        running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(clients)]
        told = [json.loads(each.communicate(timeout=60)[0]) for each in running]
        used = _processor(pid) - before
    return {"rate": sum(told), "redis": used / SECONDS}


@contextlib.contextmanager
def _redis(folder: Path, fsync: str) -> Iterator[tuple[str, int]]:
    import redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = shutil.which("redis-server")
    assert binary is not None, "needs redis-server from the system's packages"
    words = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    words += ["--appendonly", "yes", "--appendfsync", fsync, "--logfile", str(folder / "log")]
    with subprocess.Popen(words) as server, redis.Redis(port=port) as client:
        try:
            for _ in range(500):
                with contextlib.suppress(redis.RedisError):
                    client.ping()
                    break
                time.sleep(0.01)
            yield f"redis://127.0.0.1:{port}/0", server.pid
        finally:
            server.kill()


def _processor(pid: int) -> float:
    """Seconds of processor that a process has taken."""
    if not pid:
        return 0.0
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


async def _client(where: str, at_once: int, *, single: bool) -> float:
    """Reservations a second of one client."""
    if single:
        return await _singly(where, at_once)
    books: LedgerProtocol
    if where.startswith("redis"):
        books = (await join_fleet(where, "bench", CAPS, timing=FleetTiming(timeout=30.0))).ledger
    else:
        books = await Ledger.open(Path(where), CAPS)

    async def one(key: str) -> None:
        books.settle(await books.reserve(key, MOST), SPENT)

    rate = await _rate(one, at_once)
    await books.close()
    return rate


async def _singly(url: str, at_once: int) -> float:
    """The same script, called for each reservation and settlement by itself, on a connection of its own."""
    from redis.asyncio import Redis

    redis, numbers, me = Redis.from_url(url), itertools.count(1), os.urandom(6).hex()
    fixed = {
        "id": "",
        "new": "x",
        "me": me,
        "seq": 0,
        "lease": 10_000,
        "beat": 2_000,
        "ahead": 0,
        "window": 13,
    }
    fixed |= {"place": 1, "limit": 10**9, "most": 10}
    sha = await redis.script_load(_SCRIPT)
    most, spent = ([each.samples, each.tokens, each.nanos] for each in (MOST, SPENT))

    async def call(*deed: object) -> None:
        await redis.evalsha(sha, 1, "adacompute:{bench}", orjson.dumps(fixed | {"deeds": [deed]}))

    async def one(key: str) -> None:
        number = str(next(numbers))
        await call("r", number, key, 10**9, most, [])
        await call("e", number, key, "", spent, [0, 0, 0])

    rate = await _rate(one, at_once)
    await redis.aclose()
    return rate


async def _rate(one: Callable[[str], Awaitable[None]], at_once: int) -> float:
    done, began = 0, time.perf_counter()

    async def many(number: int) -> None:
        nonlocal done
        while time.perf_counter() < began + SECONDS:
            await one(f"key{number % 10}")
            done += 1

    await asyncio.gather(*(many(number) for number in range(at_once)))
    return done / (time.perf_counter() - began)


if __name__ == "__main__":
    from adacompute.serve.http.server import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(_client(sys.argv[1], int(sys.argv[2]), single=sys.argv[3] == "1"))))
