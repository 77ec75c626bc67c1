"""Several real gateway processes on one real Redis, and what that holds. For tests."""

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from crowd import Visit, visits
from running import Answer, Process

from adacompute.serve.spending.fleet_ledger import _parse_balance
from adacompute.serve.spending.ledger import Balance
from clusters import RedisServer

__all__ = ["BASE", "FLEET", "Held", "Replica", "crowds", "samples"]

FLEET = "tested"
BASE = f"adacompute:{{{FLEET}}}"
LEASE = 1.5  # seconds


class Replica(Process):
    """A gateway of the fleet, as a process of its own, whose lease is short."""

    def __init__(self, upstream: str, server: RedisServer, *, lease: float = LEASE, **settings: Any) -> None:
        super().__init__(upstream, redis=server.url, fleet=FLEET, **settings)
        self._words[:1] = [sys.executable, str(Path(__file__).with_name("replica.py")), str(lease)]

    def metric(self, name: str) -> float:
        """One of /metrics, of the only labels that it has."""
        lines = self.get("/metrics").raw.decode().splitlines()
        found = [line for line in lines if line.startswith((f"adacompute_{name} ", f"adacompute_{name}{{"))]
        (line,) = found
        return float(line.rpartition(" ")[2])


class Held:
    """What Redis holds of the fleet. While its context is open it is looked at all the time: `most` is the
    most that was ever taken, seen by one atomic read each."""

    def __init__(self, server: RedisServer) -> None:
        self.redis = redis.Redis(port=server.port, decode_responses=True)
        self.most = 0
        self._ended = threading.Event()

    def __enter__(self) -> "Held":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.redis.close()

    def account(self, window: str = "") -> Balance:
        return _parse_balance(self.redis.hgetall(f"{BASE}:w:{window}"))

    def lost(self) -> int:
        """Samples of reservations that were written off, and that nobody has settled since."""
        found = [self.redis.hvals(name) for name in self.redis.scan_iter(f"{BASE}:lost:*")]
        return sum(int(value.split()[1]) for values in found for value in values)

    def _look(self) -> None:
        with redis.Redis(connection_pool=self.redis.connection_pool) as client:
            while not self._ended.wait(0.003):
                try:
                    taken = client.hmget(f"{BASE}:w:", "s1:", "m1:", "r1:")
                except redis.RedisError:
                    time.sleep(0.05)  # it is gone, for this test
                    continue
                self.most = max(self.most, sum(int(each or 0) for each in taken))


def crowds(
    gates: Sequence[Process], come: Sequence[Visit], *, at_once: int = 40
) -> list[list[Answer | None]]:
    """Each gateway's visitors, in turn, all at the same time; what each got, by gateway."""

    async def all_of_them() -> list[list[Answer | None]]:
        parts = [come[i :: len(gates)] for i in range(len(gates))]
        work = [visits(gate, part, at_once=at_once) for gate, part in zip(gates, parts, strict=True)]
        return list(await asyncio.gather(*work))

    return asyncio.run(all_of_them())


def samples(balance: Balance) -> tuple[int, int, int]:
    """Spent, maybe and reserved."""
    return balance.spent.samples, balance.maybe.samples, balance.reserved.samples
