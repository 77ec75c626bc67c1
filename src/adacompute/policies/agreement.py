"""The published rules that stop when answers agree. They know nothing of prompts, and learn nothing.

Each has one dial, the doubt it tolerates: the higher, the sooner it stops. Samples without an answer are
counted as drawn, and are otherwise ignored, but for a window that must agree.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import Weigh
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import LONGEST, Arrays, Policy, noted
from adacompute.policies.settings import checked_dial, plain_weigh, restoring, taken, weigh_given, whole
from adacompute.pool import Ballots, Pool

__all__ = ["AdaptiveConsistency", "DoublingPolicy", "EarlyStopping"]


class _Agreement(Policy):
    """What the rules share: a tolerated doubt for a dial, and nothing to learn."""

    dial = "threshold"
    names: ClassVar[tuple[str, ...]] = ("longest", "weigh")  # of its settings

    def __init__(self, *, longest: int = LONGEST, weigh: Weigh | None = None) -> None:
        self.longest = whole("longest", longest)
        self.weigh = weigh_given(weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        noted(pool)
        return self

    def settings(self) -> dict[str, Any]:
        return {"longest": self.longest, "weigh": plain_weigh(self.weigh)}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with restoring(cls.kind):
            return cls(**taken(settings, cls.names))

    def _doubt(self, dial: float | None) -> float:
        """From 0 (hardly ever stops early) to 1."""
        return checked_dial("threshold", dial, high=1.0)

    def _asked(self, standing: Standing, size: Ints | int) -> Ints:
        """So many more, as far as there are."""
        return np.asarray(np.clip(self.longest - standing.drawn, 0, size), dtype=np.int64)


class AdaptiveConsistency(_Agreement):
    """Adaptive-Consistency, Beta rule (Aggarwal et al., 2023): draws until the leader is likely to stay it.

    With a and b votes for the first two answers, its doubt is the probability that a share that is
    Beta(a + 1, b + 1) lies below a half; it stops where that is no more than the dial, which is 1 less the
    package's `conf_thresh` (0.95 there by default: a dial of 0.05). Weighed votes enter as weights do.
    `wave` is how many samples are drawn between two looks: 1 as published.

    >>> from adacompute.answers import Tally
    >>> rule = AdaptiveConsistency()
    >>> rule.more("", Tally.of(["4"] * 3), 0.05), rule.more("", Tally.of(["4"] * 4), 0.05)
    (1, 0)
    """

    kind = "asc"
    names = ("longest", "wave", "weigh")

    def __init__(self, *, wave: int = 1, longest: int = LONGEST, weigh: Weigh | None = None) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.wave = whole("wave", wave)
        self.max_waves = -(-self.longest // self.wave)

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:
        limit = self._doubt(dial)
        stops = (standing.drawn > 0) & (self.unsure(reading, standing) <= limit)
        return np.where(stops, 0, self._asked(standing, self.wave))

    def unsure(self, reading: Floats, standing: Standing) -> Floats:  # noqa: ARG002
        """The probability that the leader's share of the votes of the first two is below a half."""
        if self.weigh is not None:
            # not at the top: whoever counts plain votes never needs it
            from scipy.special import betainc  # type: ignore[import-untyped]

            return np.asarray(betainc(standing.lead + 1.0, standing.runner + 1.0, 0.5))
        table = _below_half(self.longest)
        votes = standing.first + standing.second
        fits = votes <= self.longest  # where there are more, nothing is asked anyway
        return np.asarray(table[np.where(fits, votes, 0) + 1, np.where(fits, standing.second, 0)])

    def settings(self) -> dict[str, Any]:
        return {"wave": self.wave, **super().settings()}


class EarlyStopping(_Agreement):
    """Early-stopping self-consistency (ESC; Li et al., 2024): draws in windows until a whole one agrees.

    The published rule has no threshold: its window is what trades cost for accuracy. So the dial sets the
    window, as one over the dial, rounded: 1 is a window of 1, 0.5 of 2, 0.2 of 5 (0: of all). Whatever the
    window, the rule is the published one: the first window whose samples all give one answer is the last;
    a sample without an answer breaks its window. Over all orders of a problem's samples, cost never rises
    with the dial; on a single path it may, where a longer window happens to lie better.

    >>> from adacompute.answers import Tally
    >>> rule = EarlyStopping()
    >>> rule.more("", Tally(), 0.2), rule.more("", Tally.of(["4", "5", "5", "5"]), 0.5)
    (5, 0)
    """

    kind = "esc"

    def window(self, dial: float | None) -> int:
        """Samples of a window at a dial, 1 to `longest`."""
        doubt = self._doubt(dial)
        if doubt * self.longest <= 1.0:
            return self.longest
        return max(1, round(1.0 / doubt))

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:  # noqa: ARG002
        window = self.window(dial)
        over = standing.drawn % window  # in a window begun under another dial, or cut short
        stops = (standing.drawn > 0) & (over == 0) & (standing.run >= window)
        return np.where(stops, 0, self._asked(standing, window - over))


class DoublingPolicy(_Agreement):
    """its_hub's AdaptiveSelfConsistency: 2 samples, then as many again, until enough of them agree.

    It stops where the leader's share of the answers is at least 1 less the dial (`threshold`, 0.75 there by
    default: a dial of 0.25), and never before any answer was given. It can't cost less than 2 samples.

    >>> from adacompute.answers import Tally
    >>> rule = DoublingPolicy()
    >>> [rule.more("", Tally.of(votes), 0.25) for votes in ([], ["4", "5"], ["4", "5", "4", "4"])]
    [2, 2, 0]
    """

    kind = "doubling"

    def __init__(self, *, longest: int = LONGEST, weigh: Weigh | None = None) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.max_waves = max(1, math.ceil(math.log2(self.longest)))

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:  # noqa: ARG002
        least = 1.0 - self._doubt(dial)
        answered = standing.total > 0
        share = np.divide(standing.lead, standing.total, out=np.zeros(len(standing)), where=answered)
        stops = answered & (share >= least)
        return np.where(stops, 0, self._asked(standing, np.maximum(standing.drawn, 2)))


@lru_cache(maxsize=8)
def _below_half(longest: int) -> Floats:
    """P(at most b heads in n fair throws), (longest + 2, longest + 1): row n, column b.

    That is the Beta rule's doubt with n - 1 votes, b of them for the second. Halves of sums, so exact as
    long as a number has room for 2^-n, which is up to 52 votes.
    """
    table = np.zeros((longest + 2, longest + 1))
    table[0] = 1.0
    for n in range(1, longest + 2):
        table[n] = table[n - 1] / 2
        table[n, 1:] += table[n - 1, :-1] / 2
    table.setflags(write=False)
    return table
