"""From critical prices to how many samples to draw now. Knows nothing of tallies, prompts or learning.

Without a limit on waves: one more sample while the price is below the critical price; at the start, as many
at once as (nearly) every tally would go on to draw. With `max_waves`, the first wave is as many as seven
tenths of all tallies would go on to draw, later ones are larger the further the price is below the
critical price. The wave is read off the number drawn, so that nobody has to keep count: after the first
wave, waves in between end within as many samples each as the first one had (two at least), the last beyond.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["QUANTILES", "Waves"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

QUANTILES = (0.0, 0.3, 0.5)  # of critical prices after each draw: opening without, with, and with one wave
_STEEP = 2.5  # critical price over price: from here on, the larger of two steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """How samples are drawn together."""

    longest: int  # samples a request, at most
    max_waves: int | None = None
    ladder: tuple[int, ...] | None = None  # the only numbers of samples to stop at

    def asked(self, price: float, drawn: Ints, critical: Floats, openings: Floats) -> Ints:
        """How many more samples each request gets, (requests,).

        `critical` are logarithms of critical prices, (requests,), whatever on empty tallies; `openings` are
        their quantiles after each draw, (QUANTILES, draws).
        """
        log = math.log(price) if price > 0 else -math.inf
        goes = critical > log
        if self.ladder is not None:
            target = self._rung(drawn, goes)
        elif self.max_waves is None or self.max_waves >= self.longest:
            start = self._opening(log, openings[0])
            target = np.where(drawn < start, start, np.where(goes, drawn + 1, drawn))
        else:
            target = self._wave(log, drawn, critical, openings)
        return np.maximum(np.minimum(target, self.longest) - drawn, 0)

    def _opening(self, log: float, critical: Floats) -> int:
        """Samples to draw at once: one, and one more for every draw after which all would go on."""
        stays = np.flatnonzero(~(critical > log))
        return min(1 + int(stays[0] if len(stays) else len(critical)), self.longest)

    def _rung(self, drawn: Ints, goes: npt.NDArray[np.bool_]) -> Ints:
        rungs = np.array(self.ladder, dtype=np.int64)
        above = np.searchsorted(rungs, drawn, side="right")
        following = rungs[np.minimum(above, len(rungs) - 1)]
        moves = (above < len(rungs)) & (goes | (drawn < rungs[0]))
        return np.where(moves, following, drawn)

    def _wave(self, log: float, drawn: Ints, critical: Floats, openings: Floats) -> Ints:
        most = self.max_waves or 1
        start = self._opening(log, openings[2 if most == 1 else 1])
        steepness = np.exp(np.minimum(critical - log, 20.0)) if log > -math.inf else np.full(len(drawn), 1e9)
        width = max(2, start)
        done = 1 + np.maximum(0, -(-(drawn - start) // width))  # waves, read off the number drawn
        base = start + width * (done - 1)
        between = base + np.where(steepness > _STEEP, width, width // 2)
        final = start + width * (most - 2)  # where the last wave but one ends
        more = np.maximum(1, np.round(np.minimum(steepness, 1e6) - 0.5)).astype(np.int64)
        last = np.maximum(drawn + more, final + 1)
        target = np.where(done < most - 1, between, last)
        goes = (steepness > 1) & (done < most)
        return np.where(drawn < start, start, np.where(goes, target, drawn))
