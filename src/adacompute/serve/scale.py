"""How sure live samples are on average: the scale that votes are weighed on. Knows nothing of decisions.

A policy learned its scale on other traffic, perhaps of another model. A running mean, in constant memory,
follows what comes; votes get a new scale only where it has moved, so that the same votes weigh the same.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from adacompute.answers import Weigh
from adacompute.records import Sample

__all__ = ["Scale"]

FEW = 20  # samples: with fewer the policy's own scale stands
MEMORY = 2000  # samples that the mean looks back on, about
_MOVED = 0.01  # of the scale
_MOST = 1e9  # of a mean log-probability or entropy: more is a slip


class Scale:
    """The running mean of one signal, and the weights that come of it."""

    def __init__(self, own: Weigh) -> None:
        self.own = own
        self.count = 0  # samples that showed their signal
        self.mean = 0.0
        self._weigh = own

    def saw(self, samples: Iterable[Sample]) -> None:
        """Takes note of samples; those without the signal say nothing."""
        for sample in samples:
            value = sample.mean_logprob if self.own.signal == "logprob" else sample.entropy
            if value is not None and abs(value) <= _MOST:  # NaN isn't
                self.count += 1
                self.mean += (value - self.mean) / min(self.count, MEMORY)

    def weigh(self) -> Weigh:
        """How votes are weighed now: the same object until the scale has moved by more than 1%."""
        scale = self._weigh.scale
        moved = abs(self.mean - scale) > _MOVED * abs(scale)
        if moved and self.count >= FEW and self._usable(self.mean):
            self._weigh = replace(self.own, scale=self.mean)
        return self._weigh

    def under(self, own: Weigh) -> "Scale":
        """What was seen so far, for another policy's weights: kept where they go by the same signal."""
        found = Scale(own)
        if own.signal == self.own.signal:
            found.count, found.mean = self.count, self.mean
        return found

    def state(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"signal": self.own.signal, "count": self.count, "mean": self.mean}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Goes on from a state; False, and as before, where it is none of this signal."""
        count: Any = state.get("count")
        mean: Any = state.get("mean")
        fine = (
            set(state) == {"signal", "count", "mean"}
            and state["signal"] == self.own.signal
            and type(count) is int
            and 0 <= count < 2**53
            and type(mean) in (int, float)
            and (self._usable(mean) if count else mean == 0)
        )
        if fine:
            self.count, self.mean = count, float(mean)
        return bool(fine)

    def _usable(self, mean: Any) -> bool:  # noqa: ANN401 - a number
        """Whether it can be an average of the signal."""
        if not math.isfinite(mean) or abs(mean) > _MOST:
            return False
        return bool(mean < 0 if self.own.signal == "logprob" else mean > 0)
