"""The one replica that sets the price: pairs come in, the real pacer is told, a price goes out.

Knows nothing of gateways. `group` requests that end one after another are told as one, of their mean cost, at
the price that was published when they were decided on average: so a pacer that was made for tens of requests
in flight sees tens, however many there are. Its processor time is limited: what it can't take yet waits.
"""

import math
from collections import deque
from typing import NamedTuple

from adacompute.serve.pricing.pacer import Pacer
from studies.fleet.traffic import HIGH, LOW

__all__ = ["Pacemaker", "Pairs"]


class Pairs(NamedTuple):
    """Requests that ended: how many, their samples together, and the numbers of their prices together."""

    requests: int
    cost: float
    numbers: float


class Pacemaker:
    """Publishes prices by number, 0 first; `settle_seconds` is what telling the pacer once takes."""

    def __init__(self, budget: float, *, start: float, group: int, settle_seconds: float) -> None:
        self.prices = [start]
        self.settles = 0
        self._time = 0.0
        self._pacer = Pacer(budget, start=start, low=LOW, high=HIGH, now=lambda: self._time)
        self._group, self._each = group, settle_seconds
        self._waiting: deque[Pairs] = deque()
        self._pool = Pairs(0, 0.0, 0.0)
        self._owed = 0.0  # seconds of work that time has not come for yet

    @property
    def waiting(self) -> int:
        """Requests that it has not looked at."""
        return sum(pairs.requests for pairs in self._waiting)

    def hear(self, pairs: list[Pairs]) -> None:
        """Takes pairs in; they are looked at by `work`."""
        self._waiting.extend(pairs)

    def work(self, now: float, seconds: float) -> None:
        """Tells the pacer of as much as fits into so many seconds of processor time."""
        self._time = now
        self._owed = max(self._owed - seconds, -seconds)  # what was not used before is gone
        while self._waiting and self._owed < 0:
            new = self._waiting.popleft()
            old = self._pool
            pool = Pairs(old.requests + new.requests, old.cost + new.cost, old.numbers + new.numbers)
            times = pool.requests // self._group
            self._pool = pool
            if not times:
                continue
            price = self.prices[round(pool.numbers / pool.requests)]
            for _ in range(times):
                self._pacer.settle(pool.cost / pool.requests, price)
            self.settles += times
            self._owed += times * self._each
            self._pool = Pairs(0, 0.0, 0.0)

    def publish(self) -> None:
        """The price from now on."""
        self.prices.append(self._pacer.price)

    def replaced(self) -> None:
        """Another one takes over from what was stored: the pacer's state, but not what it was about to do."""
        stored = self._pacer.state()
        fresh = Pacer(self._pacer.target, start=self.prices[-1], low=LOW, high=HIGH, now=lambda: self._time)
        fresh.restore(stored)
        self._pacer = fresh
        self._pool, self._owed = Pairs(0, 0.0, 0.0), 0.0


def group_for(rate: float, seconds: float, flying: int) -> int:
    """How many requests to tell as one, so that about `flying` are in flight."""
    return max(1, math.ceil(rate * seconds / flying))
