"""A fleet of gateways in front of one upstream: every request drawn, events in batches of one tick.

Knows nothing of tables or pages. What happens within a tick happens at its end, to all gateways together;
each request has its own gateway, path, price, waves and latencies. A request under way is one whole number:
the number of its price, the waves that are left, and the samples that it takes in all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from studies.fleet.pacemaker import Pacemaker, Pairs
from studies.fleet.traffic import Recorded, recorded, row_of

__all__ = ["Fleet", "Outcome", "Service", "simulate"]

EASY, HARD = "words", "facts"
_MOST = 17  # more than the samples of a request
_STATES = _MOST * (_MOST + 2)
_AHEAD = 4096  # ticks that a wave may take at most
_LATENCIES = 1 << 14  # drawn once, and picked from
_PATIENCE = 2.0  # seconds that a gateway's own queue may grow to; then it refuses

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Seconds that things take: measured, but for the upstream's."""

    upstream: float = 1.0  # the median of a wave
    spread: float = 0.5  # of its logarithm
    request: float = 0.5e-3  # of a gateway's core, a request
    wave: float = 0.4e-3  # of a gateway's core, a wave
    settle: float = 10e-6  # of the pacemaker's core, a pair
    ledger: float = 0.0  # that Redis adds to a wave, with its batch's wait


def _none(_: float) -> float:
    return 0.0


def _endless(_: float) -> float:
    return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is simulated. Times in seconds."""

    gateways: int
    rate: float  # requests a second, of all
    seconds: float
    budget: float = 3.0
    start: float  # price
    group: int = 1  # requests that the pacer is told of as one
    hard: Callable[[float], float] = _none  # share of traffic that is of the hard recording, by time
    capacity: Callable[[float], float] = _endless  # samples a second of the upstream, by time
    queue: float = 2.0  # that the upstream lets a call wait; beyond, it answers 429
    give_up: float = 0.25  # share of 429s after which a wave isn't tried again
    spares: bool = True  # what failures cut short doesn't lower the price, as built; False: it does
    back_off: float = 1.0
    cores: float = math.inf  # of all gateways
    flush: float = 0.05  # between a gateway's messages to Redis
    publish: float = 0.1  # between prices
    stale: float = 0.05  # from a price's publication to its use
    poll: float = 0.0  # gateways look for a price so often, each in its own phase; 0: it is pushed
    lose: tuple[float, float] = (math.inf, 0.0)  # when, and what share of the gateways dies
    silence: tuple[float, float] = (math.inf, 0.0)  # when the pacemaker dies, and for how long there is none
    seed: int = 0
    tick: float = 0.02
    service: Service = field(default_factory=Service)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What came of it, (seconds,) each but where said."""

    ended: Floats  # requests that ended in each second, with an answer
    cost: Floats  # their samples
    price: Floats  # at the second's end
    flying: Floats
    wait: Floats  # of a call at the upstream, seconds
    refused: Floats  # calls answered 429
    failed: Floats  # requests that ended without an answer
    decided: Floats  # expected samples of the requests that began, at their prices
    right: Floats  # expected right answers of them
    began: Floats
    lost: int = 0  # requests in flight that died with their gateways
    lost_samples: int = 0  # that they had drawn, or were drawing
    settles: int = 0  # times that the pacer was told
    waiting: int = 0  # requests that the pacemaker has not looked at, in the end

    def average(self, until: float, since: float = 0.0) -> float:
        """Samples a request of those that ended in these seconds."""
        part = slice(int(since), int(until))
        return float(self.cost[part].sum() / max(1.0, self.ended[part].sum()))

    def moving(self, width: int = 10) -> Floats:
        """The average over the last `width` seconds, at each second from then on."""
        window = np.ones(width)
        return np.convolve(self.cost, window, "valid") / np.maximum(
            np.convolve(self.ended, window, "valid"), 1.0
        )


def simulate(fleet: Fleet) -> Outcome:
    """Runs it to its end."""
    run = _Run(fleet)
    for step in range(round(fleet.seconds / fleet.tick)):
        run.tick(step)
    return run.outcome()


class _Run:
    """One simulation under way."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.service = fleet, fleet.service
        self.rng = np.random.default_rng(fleet.seed)
        self.kinds: tuple[Recorded, Recorded] = (recorded(EASY), recorded(HARD))
        self.due: list[list[Ints]] = [[] for _ in range(_AHEAD)]  # requests whose waves end at a tick
        self.flying = 0
        latency = self.service.upstream * np.exp(self.service.spread * self.rng.standard_normal(_LATENCIES))
        self.latency = latency / fleet.tick
        self.pacemaker = Pacemaker(
            fleet.budget, start=fleet.start, group=fleet.group, settle_seconds=self.service.settle
        )
        most = 2 + math.ceil(fleet.seconds / fleet.publish)
        self.published = np.full(most, math.inf)  # when each price was
        self.rows = np.zeros(most, dtype=np.int64)  # of the table, for each price
        self.published[0], self.rows[0] = -math.inf, row_of(fleet.start)
        self.phases = self.rng.random(fleet.gateways) * fleet.poll
        self.heard: dict[int, list[Pairs]] = {}  # what reaches the pacemaker, by tick
        self.backlog = 0.0  # samples that wait at the upstream
        self.work = 0.0  # seconds of work that gateways have not done yet
        self.cores = fleet.cores
        self.lost = self.lost_samples = 0
        self.sums = np.zeros((10, math.ceil(fleet.seconds)))

    def tick(self, step: int) -> None:
        fleet, now = self.fleet, step * self.fleet.tick
        self.column = self.sums[:, min(int(now), self.sums.shape[1] - 1)]
        if now <= fleet.lose[0] < now + fleet.tick:
            self._lose()
        there = self.due[step % _AHEAD]
        requests = np.concatenate(there) if there else np.empty(0, dtype=np.int64)
        there.clear()
        requests = requests - _MOST  # a wave less is left
        ends = requests % _STATES < _MOST
        self._end(step, requests[ends])
        self._begin(step, requests[~ends])
        self._pace(step, now)
        self.column[2], self.column[3], self.column[4] = (
            self.pacemaker.prices[-1], self.flying, self._wait(now)
        )  # fmt: skip

    def _begin(self, step: int, going: Ints) -> None:
        """Waves that start now: those of requests under way, and first ones."""
        fleet, now = self.fleet, step * self.fleet.tick
        count = int(self.rng.poisson(fleet.rate * fleet.tick))
        if self._queued() > _PATIENCE:
            self.column[6] += count
            count = 0
        number = self._numbers(now, count)
        hard = self.rng.random(count) < fleet.hard(now)
        new, first = np.empty(count, dtype=np.int64), 0
        table = self.rows[number]
        for kind, which in zip(self.kinds, (~hard, hard), strict=True):
            rows = table[which]
            path = self.rng.integers(0, kind.paths, len(rows))
            drawn = kind.drawn[rows, path].astype(np.int64)
            left = kind.waves[rows, path].astype(np.int64)
            new[which] = number[which] * _STATES + left * _MOST + drawn
            first += int((drawn - left + 1).sum())
            self.column[7] += kind.cost[rows].sum()
            self.column[8] += kind.accuracy[rows].sum()
        self.column[9] += count
        self.flying += count
        self.work += count * self.service.request + (count + len(going)) * self.service.wave
        self._send(step, np.concatenate([going, new]), first + len(going))
        self.work = max(0.0, self.work - self.cores * fleet.tick) if self.cores < math.inf else 0.0

    def _send(self, step: int, requests: Ints, samples: int) -> None:
        """Calls to the upstream, which takes them, lets them wait, or answers 429."""
        fleet, now = self.fleet, step * self.fleet.tick
        capacity, wait = fleet.capacity(now), self._wait(now)
        if capacity < math.inf and len(requests):
            self.backlog = max(0.0, self.backlog - capacity * fleet.tick)
            room = max(0.0, capacity * fleet.queue - self.backlog)
            refused = self.rng.random(len(requests)) < 1.0 - room / max(1, samples)
            self.backlog += samples * (1 - refused.mean())
            self._refused(step, requests[refused])
            requests = requests[~refused]
        extra = (wait + self._queued() + self.service.ledger) / fleet.tick
        after = self.latency[self.rng.integers(0, _LATENCIES, len(requests))] + extra
        self._put(step, np.clip(np.rint(after), 1, _AHEAD - 1).astype(np.int16), requests)

    def _put(self, step: int, after: npt.NDArray[np.int16], requests: Ints) -> None:
        """Their waves end so many ticks later."""
        order = np.argsort(after, kind="stable")
        ticks, requests = after[order], requests[order]
        edges = np.flatnonzero(np.diff(ticks)) + 1
        starts = [0, *edges.tolist()] if len(ticks) else []
        for start, end in zip(starts, [*edges.tolist(), len(ticks)], strict=False):
            self.due[(step + int(ticks[start])) % _AHEAD].append(requests[start:end])

    def _refused(self, step: int, requests: Ints) -> None:
        self.column[5] += len(requests)
        over = self.rng.random(len(requests)) < self.fleet.give_up
        ended, state = requests[over], requests[over] % _STATES
        drawn = state % _MOST - state // _MOST  # of waves, but for the one refused and those after it
        self.column[6] += int((drawn <= 0).sum())
        self.flying -= int((drawn <= 0).sum())
        some = drawn > 0
        self._end(step, ended[some] // _STATES * _STATES + drawn[some], cut=True)
        stay = requests[~over] + _MOST  # one wave more is left: it is taken off when the pause is over
        pause = round(self.fleet.back_off / self.fleet.tick)
        self._put(step, np.full(len(stay), pause, dtype=np.int16), stay)

    def _end(self, step: int, requests: Ints, *, cut: bool = False) -> None:
        """Requests that are done: their gateways tell of them at their next flush.

        As in the gateway, nobody is told of those that failures cut short, below the budget.
        """
        if not len(requests):
            return
        fleet = self.fleet
        cost, numbers = requests % _STATES % _MOST, requests // _STATES
        self.flying -= len(requests)
        self.column[0] += len(requests)
        self.column[1] += cost.sum()
        if cut and fleet.spares:
            steers = cost >= fleet.budget
            cost, numbers = cost[steers], numbers[steers]
        lag = round((fleet.flush / 2 + self.service.ledger) / fleet.tick)
        found = self.heard.setdefault(step + lag, [])
        if fleet.group > 1 and len(cost):
            found.append(Pairs(len(cost), float(cost.sum()), float(numbers.sum())))
            return
        order = self.rng.permutation(len(cost))
        found.extend(Pairs(1, float(c), float(n)) for c, n in zip(cost[order], numbers[order], strict=True))

    def _pace(self, step: int, now: float) -> None:
        fleet, died = self.fleet, self.fleet.silence
        self.pacemaker.hear(self.heard.pop(step, []))
        if died[0] <= now < died[0] + died[1]:
            return
        if died[0] + died[1] <= now < died[0] + died[1] + fleet.tick:
            self.pacemaker.replaced()
        self.pacemaker.work(now, fleet.tick)
        if step % max(1, round(fleet.publish / fleet.tick)) == 0:
            self.pacemaker.publish()
            last = len(self.pacemaker.prices) - 1
            self.published[last], self.rows[last] = now, row_of(self.pacemaker.prices[last])

    def _numbers(self, now: float, count: int) -> Ints:
        """Which price each new request is given: the newest that its gateway has seen."""
        seen = np.full(count, now - self.fleet.stale)
        if self.fleet.poll:
            phase = self.phases[self.rng.integers(0, self.fleet.gateways, count)]
            seen -= (now - phase) % self.fleet.poll
        return np.maximum(np.searchsorted(self.published, seen, side="right") - 1, 0)

    def _lose(self) -> None:
        """A share of the gateways dies: what they had under way is gone, and so are their cores."""
        share = self.fleet.lose[1]
        for slot in range(_AHEAD):
            for at, requests in enumerate(self.due[slot]):
                dies = self.rng.random(len(requests)) < share
                state = requests[dies] % _STATES
                self.lost += int(dies.sum())
                self.lost_samples += int((state % _MOST - state // _MOST + 1).sum())  # with the one in flight
                self.due[slot][at] = requests[~dies]
        self.flying -= self.lost
        self.cores *= 1 - share

    def _wait(self, now: float) -> float:
        capacity = self.fleet.capacity(now)
        return 0.0 if capacity == math.inf else self.backlog / capacity

    def _queued(self) -> float:
        """How long a gateway's own work waits."""
        return 0.0 if self.cores == math.inf else self.work / self.cores

    def outcome(self) -> Outcome:
        names = ("ended", "cost", "price", "flying", "wait", "refused", "failed", "decided", "right", "began")
        return Outcome(
            **dict(zip(names, self.sums, strict=True)),
            lost=self.lost,
            lost_samples=self.lost_samples,
            settles=self.pacemaker.settles,
            waiting=self.pacemaker.waiting,
        )
