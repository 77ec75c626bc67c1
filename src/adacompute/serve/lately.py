"""The dials that a pacer gave of late, in bounded memory. Knows nothing of costs or budgets.

All of the last 4,096 are kept; where more requests than that are in flight, every second, fourth, … of more.
"""

from collections import deque

__all__ = ["Given", "Sums"]

_HELD = 4096
_COARSEST = 1024  # of dials, one is kept: so some four million requests can be in flight
_MISSED = (
    64  # requests in a row whose dials are forgotten, times the stride: more are in flight than are kept
)


class Given:
    """Which dials were given, and how many requests had ended then: it tells how many are in flight.

    >>> given = Given()
    >>> given.note(0.05, at=10)
    >>> given.age(0.05, at=14), given.age(0.06, at=14)
    (4, None)
    """

    def __init__(self) -> None:
        self._when: dict[float, int] = {}  # the oldest first
        self._last = 0
        self._stride = 1
        self._missed = 0

    def note(self, dial: float, *, at: int) -> None:
        """A dial is given out when so many requests have ended."""
        if self._when and at - self._last < self._stride:
            return
        self._when[dial] = self._last = at
        if len(self._when) > _HELD:
            del self._when[next(iter(self._when))]

    def age(self, dial: float, *, at: int) -> int | None:
        """How many requests have ended since a dial was given; None: that isn't known, or not any more."""
        when = self._when.get(dial)
        if when is not None:
            self._missed = 0
            return at - when
        self._missed += 1
        if self._missed > _MISSED * self._stride:
            self._thin()
        return None

    def reaches(self, flight: float, *, at: int) -> None:
        """Sees to it that twice as many requests are remembered as are in flight."""
        if self._when and flight > (at - next(iter(self._when.values()))) / 2:
            self._thin()

    def _thin(self) -> None:
        self._missed = 0
        if len(self._when) >= _HELD and self._stride < _COARSEST:
            self._stride *= 2
            self._when = dict(list(self._when.items())[::2])


class Sums:
    """Means of the last dials, one a request.

    >>> sums = Sums()
    >>> for dial in (1.0, 2.0, 4.0):
    ...     sums.add(dial)
    >>> sums.last(2)
    (2, 3.0)
    """

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._kept: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=_HELD)  # both, every stride
        self._stride = 1

    def add(self, dial: float) -> None:
        """One more."""
        self._count += 1
        self._sum += dial
        if self._count % self._stride == 0:
            self._kept.append((self._count, self._sum))

    def last(self, count: int) -> tuple[int, float]:
        """Of the last `count` dials, as far as they are kept: how many, and their mean."""
        while count > self._stride * (_HELD - 1) and self._stride < _COARSEST:
            self._stride *= 2
            self._kept = deque(((n, sum_) for n, sum_ in self._kept if n % self._stride == 0), maxlen=_HELD)
        back = min(count // self._stride, len(self._kept) - 1)
        before, sum_ = self._kept[-1 - back]
        there = self._count - before
        return min(count, there), (self._sum - sum_) / there if there else 0.0
