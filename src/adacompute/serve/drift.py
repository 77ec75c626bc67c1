"""Does live agreement leave what calibration saw? One policy's window, and an alarm that doesn't flicker.

Knows nothing of policies or prompts: only of the agreement of votes, one number a request.
"""

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

__all__ = ["Drift", "Drifted", "Drifts", "Source"]

Source = Literal["calibration", "first requests", "none yet"]

WINDOW = 500  # requests that are compared
FEWEST = 200  # before anything is said
ON = (5.0, 0.05)  # standard errors, and agreement, that both must be passed
OFF = (3.0, 0.03)  # either is enough
_POLICIES = 64
_NARROWEST = 0.02  # a deviation of 0 would turn any difference into an alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted:
    """How agreement stands."""

    live: float | None  # mean over the window; None: no vote yet
    expected: float | None
    source: Source  # of what is expected
    requests: int  # in the window
    z: float | None  # standard errors between the two; None: not enough of either
    alarm: bool


class Drift:
    """The agreement of one policy's votes against what is expected of it.

    Without a word from calibration the first 500 requests are what the rest is compared with. Requests that
    come in bunches of a kind count for fewer than they are: by the correlation of neighbours.
    """

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._sum = self._squares = self._products = 0.0  # of the window; products are of neighbours
        self._since = 0
        self._expected: float | None = None
        self._deviation = 0.0
        self._behind = math.inf  # requests behind what is expected
        self._source: Source = "none yet"
        self._alarm = False

    def expects(self, agreement: float, deviation: float) -> None:
        """What calibration saw: mean and standard deviation over requests."""
        if math.isfinite(agreement) and math.isfinite(deviation):
            self._refer(agreement, deviation, math.inf, "calibration")

    def saw(self, agreement: float) -> bool:
        """One vote more; True where the alarm went on or off by it."""
        if not 0.0 <= agreement <= 1.0:
            return False
        self._push(agreement)
        if self._source == "none yet":
            if len(self._window) == WINDOW:
                self._refer(*self._mean_deviation(), self._effective(), "first requests")
                self._clear()  # these are the measure now, not what is measured
            return False
        was, self._alarm = self._alarm, self._alarming()
        return self._alarm != was

    def state(self) -> Drifted:
        """How it stands now."""
        n = len(self._window)
        return Drifted(
            live=self._sum / n if n else None,
            expected=self._expected,
            source=self._source,
            requests=n,
            z=self._z(),
            alarm=self._alarm,
        )

    def _refer(self, mean: float, deviation: float, behind: float, source: Source) -> None:
        self._expected, self._deviation = mean, max(deviation, _NARROWEST)
        self._behind, self._source = behind, source

    def _push(self, value: float) -> None:
        window = self._window
        if len(window) == WINDOW:
            oldest = window.popleft()
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._products -= oldest * window[0]
        if window:
            self._products += window[-1] * value
        window.append(value)
        self._sum += value
        self._squares += value * value
        self._since += 1
        if self._since >= 100 * WINDOW:  # sums that are moved along gather rounding
            self._since = 0
            items = list(window)
            self._sum, self._squares = sum(items), sum(x * x for x in items)
            self._products = sum(x * y for x, y in itertools.pairwise(items))

    def _clear(self) -> None:
        self._window.clear()
        self._sum = self._squares = self._products = 0.0

    def _mean_deviation(self) -> tuple[float, float]:
        n = len(self._window)
        mean = self._sum / n
        return mean, math.sqrt(max(self._squares / n - mean * mean, 0.0))

    def _effective(self) -> float:
        """How many independent requests the window is worth."""
        n = len(self._window)
        mean, deviation = self._mean_deviation()
        if n < 3 or deviation < 1e-6:
            return float(n)
        correlation = (self._products / (n - 1) - mean * mean) / (deviation * deviation)
        correlation = min(max(correlation, 0.0), 0.95)
        return n * (1 - correlation) / (1 + correlation)

    def _z(self) -> float | None:
        if self._expected is None or len(self._window) < FEWEST:
            return None
        error = self._deviation * math.sqrt(1 / self._effective() + 1 / self._behind)
        return (self._sum / len(self._window) - self._expected) / error

    def _alarming(self) -> bool:
        z = self._z()
        if z is None or self._expected is None:
            return self._alarm
        apart = abs(self._sum / len(self._window) - self._expected)
        if self._alarm:
            return not (abs(z) < OFF[0] or apart < OFF[1])
        return abs(z) > ON[0] and apart > ON[1]


class Drifts:
    """One for each policy, by its name; at most 64."""

    def __init__(self) -> None:
        self._by_policy: dict[str, Drift] = {}

    def of(self, policy: str) -> Drift:
        """A policy's own; one that is not kept where there are too many."""
        drift = self._by_policy.get(policy)
        if drift is None:
            drift = Drift()
            if len(self._by_policy) < _POLICIES:
                self._by_policy[policy] = drift
        return drift

    def forget(self, policy: str) -> None:
        """Another policy under the same name: what was seen of the old one says nothing of it."""
        self._by_policy.pop(policy, None)

    def states(self) -> dict[str, Drifted]:
        """How each stands."""
        return {name: drift.state() for name, drift in self._by_policy.items()}
