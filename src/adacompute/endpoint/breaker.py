"""Leaves an endpoint alone that keeps failing. Knows nothing of why it fails."""

import asyncio

from adacompute.endpoint.settings import Rest
from adacompute.errors import EndpointResting

__all__ = ["Breaker"]


class Breaker:
    """Closed: all calls pass. Open: none. When its rest is over, one call is let through as the probe:
    if that comes back the breaker closes, if it fails the next rest is twice as long.
    """

    def __init__(self, rest: Rest, *, loop: asyncio.AbstractEventLoop) -> None:
        self._rest = rest
        self._loop = loop
        self._failures = 0  # in a row
        self._seconds = rest.seconds
        self._due: float | None = None  # when the next probe may go; None: closed
        self._probing = False
        self._changed: asyncio.Future[None] | None = None
        self.turn = 0  # counts openings: what began before one says nothing of what came after

    @property
    def closed(self) -> bool:
        """Do all calls pass?"""
        return self._due is None

    @property
    def patience(self) -> float:
        """Seconds that a call waits for the end of rests, at most."""
        return self._rest.patience

    async def ready(self, until: float, *, probes: int, patience: float | None = None) -> None:
        """Waits while it is open. Raises EndpointResting where that is beyond `until` or the patience (what
        is left of the settings'), or so many probes have failed meanwhile: as many as a call has attempts.
        """
        last = self.turn + probes
        until = min(until, self._loop.time() + (self._rest.patience if patience is None else patience))
        while self._due is not None:
            now = self._loop.time()
            if not self._probing and now >= self._due:
                return
            if self._due > until or now >= until or self.turn >= last:
                left = max(0.0, self._due - now)
                error = EndpointResting(
                    f"the endpoint failed {self._failures} times in a row and is left alone for {left:.3g} s "
                    "more; try again then, or see what is wrong with it"
                )
                error.retry_after = left
                raise error
            if self._changed is None:
                self._changed = self._loop.create_future()
            wake = until if self._probing else min(self._due, until)
            await asyncio.wait((self._changed,), timeout=None if wake == float("inf") else wake - now)

    def passes(self) -> bool:
        """May a call go now? A True while it is open makes that call the probe, which has to be reported."""
        if self._due is None:
            return True
        if self._probing or self._loop.time() < self._due:
            return False
        self._probing = True
        return True

    def failed(self, turn: int) -> bool:
        """Reports a failure of a call that passed in that turn; True where this opened it."""
        if turn != self.turn:
            return False
        self._failures += 1
        if self._due is not None:  # the probe failed
            self._seconds = min(self._rest.longest, self._seconds * 2)
        elif self._failures < self._rest.failures:
            return False
        self._open()
        return True

    def worked(self, turn: int) -> bool:
        """Reports that the endpoint answered, whatever it said; True where this closed it."""
        if turn != self.turn:
            return False
        self._failures = 0
        if self._due is None:
            return False
        self._due, self._probing, self._seconds = None, False, self._rest.seconds
        self._tell()
        return True

    def unknown(self, turn: int) -> None:
        """Reports that a call ended without telling, e.g. was cancelled: another may be the probe."""
        if turn == self.turn and self._probing:
            self._probing = False
            self._tell()

    def _open(self) -> None:
        self._due = self._loop.time() + self._seconds
        self._probing = False
        self.turn += 1
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None
