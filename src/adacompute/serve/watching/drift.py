"""Drift: the agreement of a policy's votes has left what calibration measured."""

import math
import statistics
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

ExpectationSource = Literal["calibration", "first requests", "none yet"]

DRIFT_WINDOW = 500  # requests that are compared
MIN_DRIFT_VOTES = 200  # before an alarm
ALARM_ON = (5.0, 0.05)  # standard errors, and difference of agreement: both must be exceeded
ALARM_OFF = (3.0, 0.03)  # below either it goes off
_MAX_POLICIES = 64
_MIN_DEVIATION = 0.02  # with a deviation of 0 any difference would be an alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """The state of a policy's agreement."""

    live: float | None  # mean over the window; None: no vote yet
    expected: float | None
    source: ExpectationSource  # what the expectation is from
    requests: int  # in the window
    z: float | None  # standard errors between the two; None: too few votes
    alarm: bool


class DriftMonitor:
    """An alarm for when the agreement of one policy's votes has left what is expected of it.

    It goes on and off at different levels, so that it doesn't flicker.

    Without numbers from calibration the first 500 requests are the reference. Requests that come in
    bunches of a kind count for fewer than they are: by the correlation of neighbours.
    """

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=DRIFT_WINDOW)
        self._expected: float | None = None
        self._deviation = 0.0
        self._reference_size = math.inf  # requests behind the expectation
        self._source: ExpectationSource = "none yet"
        self._alarm = False

    def expect(self, agreement: float, deviation: float) -> None:
        """What calibration measured: mean and standard deviation over requests."""
        if math.isfinite(agreement) and math.isfinite(deviation):
            self._set_reference(agreement, deviation, math.inf, "calibration")

    def add(self, agreement: float) -> bool:
        """Adds one vote; True if the alarm went on or off."""
        if not 0.0 <= agreement <= 1.0:
            return False
        self._window.append(agreement)
        if self._source == "none yet":
            if len(self._window) == DRIFT_WINDOW:
                self._set_reference(*_measure(self._window), "first requests")
                self._window.clear()  # these are the reference now
            return False
        previous, self._alarm = self._alarm, self._is_alarming()
        return self._alarm != previous

    def state(self) -> DriftState:
        """The present state."""
        return DriftState(
            live=statistics.fmean(self._window) if self._window else None,
            expected=self._expected,
            source=self._source,
            requests=len(self._window),
            z=None if (offset := self._compare()) is None else offset[0],
            alarm=self._alarm,
        )

    def _set_reference(self, mean: float, deviation: float, size: float, source: ExpectationSource) -> None:
        self._expected, self._deviation = mean, max(deviation, _MIN_DEVIATION)
        self._reference_size, self._source = size, source

    def _compare(self) -> tuple[float, float] | None:
        """How far votes are from the expectation, in standard errors and in agreement; None: too few."""
        if self._expected is None or len(self._window) < MIN_DRIFT_VOTES:
            return None
        mean, _, size = _measure(self._window)
        error = self._deviation * math.sqrt(1 / size + 1 / self._reference_size)
        return (mean - self._expected) / error, mean - self._expected

    def _is_alarming(self) -> bool:
        offset = self._compare()
        if offset is None:
            return self._alarm
        errors, difference = ALARM_OFF if self._alarm else ALARM_ON
        return abs(offset[0]) > errors and abs(offset[1]) > difference


def _measure(votes: Collection[float]) -> tuple[float, float, float]:
    """The mean and the deviation of votes, and how many independent requests they are worth."""
    values = np.fromiter(votes, float, len(votes))
    mean, deviation = float(values.mean()), float(values.std())
    if len(values) < 3 or deviation < 1e-6:
        return mean, deviation, float(len(values))
    neighbours = float(np.dot(values[1:], values[:-1])) / (len(values) - 1)
    correlation = min(max((neighbours - mean * mean) / (deviation * deviation), 0.0), 0.95)
    return mean, deviation, len(values) * (1 - correlation) / (1 + correlation)


class DriftMonitors:
    """One monitor for each policy, by its name; at most 64."""

    def __init__(self) -> None:
        self._by_policy: dict[str, DriftMonitor] = {}

    def get(self, policy: str) -> DriftMonitor:
        """A policy's monitor; a temporary one if there are too many."""
        drift = self._by_policy.get(policy)
        if drift is None:
            drift = DriftMonitor()
            if len(self._by_policy) < _MAX_POLICIES:
                self._by_policy[policy] = drift
        return drift

    def forget(self, policy: str) -> None:
        """Another policy has the same name now: the votes of the old one don't apply to it."""
        self._by_policy.pop(policy, None)

    def states(self) -> dict[str, DriftState]:
        """The state of each."""
        return {name: drift.state() for name, drift in self._by_policy.items()}
