"""How many calls run at the same time, and how fast they follow. Knows nothing of what they ask."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

from adacompute.endpoint.gate import Gate
from adacompute.endpoint.settings import Limits

__all__ = ["Bucket", "Pace"]

_FIRST = 8  # calls at the same time, until the endpoint has shown that it bears more
_BURST = 1.0  # seconds' worth that a bucket holds: in any minute it gives 1/60 more than a minute's worth


class Bucket:
    """A rate, as a bucket that fills steadily. Takes are let into debt, so that a large one passes at all."""

    def __init__(self, per_minute: float, *, now: float) -> None:
        self._rate = per_minute / 60.0  # per second
        self._size = max(1.0, self._rate * _BURST)
        self._level = self._size
        self._at = now

    def wait(self, amount: float, *, now: float) -> float:
        """Seconds until that much may be taken; 0: now."""
        self._level = min(self._size, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        missing = min(amount, self._size) - self._level
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        """Takes it, or gives it back where it is below 0."""
        self._level -= amount


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: "asyncio.Future[None]"
    weight: float


class Pace:
    """Lets calls in, first come first served: so many at once, so many and so many tokens a minute.

    Where it adapts, it starts with a few at once and doubles that with each round that succeeds; where the
    endpoint pushes back it halves it, once a round trip, and goes up by one a round from there.
    """

    def __init__(self, limits: Limits, *, loop: asyncio.AbstractEventLoop, gate: Gate | None = None) -> None:
        self._loop = loop
        self._gate = gate or Gate()
        self._gate.tell(self._pump)
        now = loop.time()
        self._most = limits.concurrency
        self._adaptive = limits.adaptive
        self._limit = float(min(self._most, _FIRST) if limits.adaptive else self._most)
        self._rising = float(self._most)  # up to here it doubles
        self._reduced = float("-inf")  # when it was last halved
        per_minute = limits.requests_per_minute, limits.tokens_per_minute
        self._requests, self._tokens = (
            None if rate is None else Bucket(rate, now=now) for rate in per_minute
        )
        self._paused = now  # nobody enters before
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    @property
    def concurrency(self) -> int:
        """How many it lets run at the same time now."""
        return int(self._limit)

    @property
    def weighs(self) -> bool:
        """Does it want to know how many tokens a call takes?"""
        return self._tokens is not None

    @property
    def paused(self) -> float:
        """The time of the loop until which nobody is let in."""
        return self._paused

    def entered(self, weight: float = 0.0) -> bool:
        """Takes a turn where one is free now, and nobody waits for it."""
        if self._waiting or self._delay(weight) > 0.0:
            return False
        self._take(weight)
        return True

    async def enter(self, weight: float = 0.0, *, until: float = float("inf")) -> None:
        """Waits for a turn; TimeoutError where none came until then. Each turn is ended by `leave`."""
        if self.entered(weight):
            return
        waiter = _Waiter(self._loop.create_future(), weight)
        self._waiting.append(waiter)
        self._pump()
        try:
            async with asyncio.timeout_at(until if until < float("inf") else None):
                await waiter.turn
        except BaseException:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self.unused(weight)  # its turn came while it was being called off
            else:
                with contextlib.suppress(ValueError):  # taken out by the pump already
                    self._waiting.remove(waiter)
                self._pump()  # it may have been the one in the way
            raise

    def leave(self, weight: float = 0.0, *, used: float | None = None) -> None:
        """Ends a turn; `used` is what it took in truth, where that is known."""
        self.in_flight -= 1
        if self._tokens is not None and used is not None:
            self._tokens.take(used - weight)
        if self._waiting:
            self._pump()

    def unused(self, weight: float = 0.0) -> None:
        """Gives a turn back that nothing was sent in."""
        if self._requests is not None:
            self._requests.take(-1.0)
        self.leave(weight, used=0.0)

    def pause(self, until: float) -> None:
        """Lets nobody in before: one caller was told to wait, and that holds for all."""
        self._paused = max(self._paused, until)

    def succeeded(self) -> None:
        """A call came back well (said before it leaves); more are let in where all turns were taken."""
        if self._limit < self._most and self.in_flight >= self.concurrency:
            step = 1.0 if self._limit < self._rising else 1.0 / self._limit
            self._limit = min(float(self._most), self._limit + step)

    def answering(self) -> None:
        """A call has begun to come back well, and runs on: as `succeeded`, but nobody leaves soon."""
        self.succeeded()
        self._pump()

    def pushed_back(self, began: float) -> bool:
        """A call that began then was too much. False: that is nothing new, for it began before the last
        halving; where it doesn't adapt, all is new.
        """
        if began < self._reduced:
            return False
        if self._adaptive:
            self._reduced = self._loop.time()
            self._rising = self._limit = max(1.0, self._limit / 2)
        return True

    def restart(self) -> None:
        """One at a time, then doubling: after a rest, so that those who waited don't come all at once."""
        self._limit = 1.0
        self._rising = float(self._most)
        self._reduced = self._loop.time()

    def _delay(self, weight: float) -> float:
        """Seconds until one of that weight may enter; infinite where another has to leave first."""
        if self.in_flight >= self.concurrency or not self._gate.passable:
            return float("inf")
        now = self._loop.time()
        wait = max(0.0, self._paused - now)
        if self._requests is not None:
            wait = max(wait, self._requests.wait(1.0, now=now))
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(weight, now=now))
        return wait

    def _take(self, weight: float) -> None:
        self.in_flight += 1
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(weight)

    def _pump(self) -> None:
        """Lets in whoever may, in order, and comes back when the next one may by the clock."""
        while self._waiting:
            head = self._waiting[0]
            delay = 0.0 if head.turn.done() else self._delay(head.weight)
            if delay > 0.0:
                if delay < float("inf"):
                    self._wake(delay)
                return
            self._waiting.popleft()
            if not head.turn.done():  # else it was called off
                self._take(head.weight)
                head.turn.set_result(None)

    def _wake(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._pump)
