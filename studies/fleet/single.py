"""The same fleet, an event for each thing that happens to each request: what the batches must equal.

Knows nothing of saturation or of losses: arrivals, waves, flushes, pairs and prices alone.
"""

import heapq
import itertools
import math
from typing import Any

import numpy as np

from studies.fleet.fleet import EASY, HARD, Fleet, Outcome
from studies.fleet.pacemaker import Pacemaker, Pairs
from studies.fleet.traffic import recorded, row_of

__all__ = ["simulate_singly"]


def simulate_singly(fleet: Fleet) -> Outcome:
    """Runs it to its end; what it leaves out of an outcome is 0."""
    run = _Events(fleet)
    while run.heap and run.heap[0][0] < fleet.seconds:
        now, _, what, about = heapq.heappop(run.heap)
        getattr(run, what)(now, *about)
    return run.outcome()


class _Events:
    """One simulation under way; a method for each kind of event."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.service = fleet, fleet.service
        self.rng = np.random.default_rng(fleet.seed)
        self.heap: list[tuple[float, int, str, tuple[Any, ...]]] = []
        self.order = itertools.count()
        self.kinds = (recorded(EASY), recorded(HARD))
        self.pacemaker = Pacemaker(
            fleet.budget, start=fleet.start, group=fleet.group, settle_seconds=self.service.settle
        )
        self.published = [-math.inf]
        self.phases = (self.rng.random(fleet.gateways) * fleet.flush).tolist()
        self.sums = np.zeros((10, math.ceil(fleet.seconds)))
        self.flying = 0
        self.at(0.0, "publish")
        self.at(self.rng.exponential(1 / fleet.rate), "arrive")

    def at(self, when: float, what: str, *about: Any) -> None:  # noqa: ANN401 # whatever the event is about
        heapq.heappush(self.heap, (when, next(self.order), what, about))

    def arrive(self, now: float) -> None:
        self.at(now + self.rng.exponential(1 / self.fleet.rate), "arrive")
        number = len(self.published) - 1
        while self.published[number] > now - self.fleet.stale:
            number -= 1
        kind = self.kinds[int(self.rng.random() < self.fleet.hard(now))]
        row, path = row_of(self.pacemaker.prices[number]), int(self.rng.integers(kind.paths))
        gateway = int(self.rng.integers(self.fleet.gateways))
        self.flying += 1
        column = self.sums[:, int(now)]
        column[7] += kind.cost[row]
        column[8] += kind.accuracy[row]
        column[9] += 1
        self.wave(now, gateway, int(kind.waves[row, path]), int(kind.drawn[row, path]), number)

    def wave(self, now: float, gateway: int, left: int, cost: int, number: int) -> None:
        if left:
            took = self.service.upstream * math.exp(self.service.spread * self.rng.standard_normal())
            self.at(now + took + self.service.ledger, "wave", gateway, left - 1, cost, number)
            return
        self.flying -= 1
        self.sums[0, int(now)] += 1
        self.sums[1, int(now)] += cost
        flush, phase = self.fleet.flush, self.phases[gateway]
        told = phase + math.ceil((now - phase) / flush) * flush
        self.at(told + self.service.ledger, "hear", Pairs(1, float(cost), float(number)))

    def hear(self, _: float, pairs: Pairs) -> None:
        self.pacemaker.hear([pairs])

    def publish(self, now: float) -> None:
        self.pacemaker.work(now, self.fleet.publish)
        self.pacemaker.publish()
        self.published.append(now)
        self.sums[2, int(now)], self.sums[3, int(now)] = self.pacemaker.prices[-1], self.flying
        self.at(now + self.fleet.publish, "publish")

    def outcome(self) -> Outcome:
        names = ("ended", "cost", "price", "flying", "wait", "refused", "failed", "decided", "right", "began")
        sums: dict[str, Any] = dict(zip(names, self.sums, strict=True))
        return Outcome(**sums, settles=self.pacemaker.settles)
