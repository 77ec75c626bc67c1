"""The time that the windows of caps follow: the clock on the wall, unless it jumps.

A clock that is set wrong and right again must neither begin windows that aren't due nor keep a cap closed
until a time that is years away. So the wall clock is compared with the time that has passed since it was
read last. Where they disagree, the time that has passed decides for an hour; a clock that still says so then
is believed, because it may have been wrong before.
"""

import time
from collections.abc import Callable

__all__ = ["WindowClock", "count_elapsed", "make_reader"]

_TOLERANCE = 60.0  # seconds between two readings that a clock may be adjusted by
_PROBATION = 3600.0  # seconds after which a clock that has jumped is believed


def count_elapsed() -> float:
    """Seconds that have passed since some moment, also while the machine slept, on Linux."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


class WindowClock:
    """Compares a clock with the time that passes. Every reading should be given to it."""

    __slots__ = ("_doubted", "_doubted_since", "_offset")

    def __init__(self) -> None:
        self._offset: float | None = None  # of the time that is believed from the elapsed time
        self._doubted = 0.0  # another offset, that the clock says and that isn't believed yet
        self._doubted_since: float | None = None  # elapsed time

    def read(self, now: float, elapsed: float) -> float:
        """The time that is believed, in seconds since 1970, where the clock says `now`."""
        offset = now - elapsed
        if self._offset is None or abs(offset - self._offset) <= _TOLERANCE:
            return self._believe(offset, now)
        if self._doubted_since is None or abs(offset - self._doubted) > _TOLERANCE:
            self._doubted_since = elapsed
        self._doubted = offset
        if elapsed - self._doubted_since >= _PROBATION:
            return self._believe(offset, now)
        return elapsed + self._offset

    def estimate(self, elapsed: float) -> float | None:
        """The time that is believed, without a new reading; None before the first."""
        return None if self._offset is None else elapsed + self._offset

    def _believe(self, offset: float, now: float) -> float:
        self._offset, self._doubted_since = offset, None
        return now


def make_reader(now: Callable[[], float], elapsed: Callable[[], float] | None = None) -> Callable[[], float]:
    """Reads the clock `now` at each call; where `elapsed` is None, it is believed whatever it says."""
    if elapsed is None:
        return now
    clock = WindowClock()
    return lambda: clock.read(now(), elapsed())
