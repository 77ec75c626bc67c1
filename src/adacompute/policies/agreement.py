"""Published rules that stop when answers agree: Adaptive-Consistency, ESC and doubling. They learn nothing.

Each has one dial, the doubt it tolerates: the higher, the sooner it stops. A sample without an answer
counts as drawn and is otherwise ignored, except that it breaks a window whose answers must all agree.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Floats,
    Ints,
    Policy,
    VoteState,
    check_dial,
    check_integer,
    check_source,
    check_weights,
    dump_weights,
    load_settings,
    wrap_restore_errors,
)
from adacompute.pool import Ballots, Pool

__all__ = ["AdaptiveConsistency", "DoublingPolicy", "EarlyStopping"]


class _AgreementPolicy(Policy):
    """What the rules share: a tolerated doubt as the dial, and nothing to learn."""

    dial = "threshold"
    setting_names: ClassVar[tuple[str, ...]] = ("longest", "weigh")  # of its settings

    def __init__(self, *, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None) -> None:
        self.longest = check_integer("longest", longest)
        self.weigh = check_weights(weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        check_source(pool)
        return self

    def settings(self) -> dict[str, Any]:
        return {"longest": self.longest, "weigh": dump_weights(self.weigh)}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with wrap_restore_errors(cls.kind):
            return cls(**load_settings(settings, cls.setting_names))

    def _check_doubt(self, dial: float | None) -> float:
        """The tolerated doubt, from 0 (hardly ever stops early) to 1."""
        return check_dial("threshold", dial, high=1.0)

    def _limit_draw(self, state: VoteState, size: Ints | int) -> Ints:
        """At most `size` more samples, within `longest`."""
        return np.asarray(np.clip(self.longest - state.drawn, 0, size), dtype=np.int64)


class AdaptiveConsistency(_AgreementPolicy):
    """Adaptive-Consistency, Beta rule (Aggarwal et al., 2023): draws until the leader is likely to stay.

    With a and b votes for the first two answers, its doubt is the probability that a share distributed
    as Beta(a + 1, b + 1) lies below a half; it stops where that is no more than the dial, which is 1
    less the package's `conf_thresh` (0.95 there by default: a dial of 0.05). Weighted votes count by
    their weight. `wave` is how many samples are drawn between two decisions: 1 as published.

    >>> from adacompute.answers import Tally
    >>> rule = AdaptiveConsistency()
    >>> rule.more("", Tally.of(["4"] * 3), 0.05), rule.more("", Tally.of(["4"] * 4), 0.05)
    (1, 0)
    """

    kind = "asc"
    setting_names = ("longest", "wave", "weigh")

    def __init__(
        self, *, wave: int = 1, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None
    ) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.wave = check_integer("wave", wave)
        self.max_waves = -(-self.longest // self.wave)

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:
        limit = self._check_doubt(dial)
        stops = (state.drawn > 0) & (self.compute_doubt(reading, state) <= limit)
        return np.where(stops, 0, self._limit_draw(state, self.wave))

    def compute_doubt(self, reading: Floats, state: VoteState) -> Floats:  # noqa: ARG002
        """The probability that the leader's share of the votes of the first two is below a half."""
        if self.weigh is not None:
            # imported here because plain votes don't need it
            from scipy.special import betainc  # type: ignore[import-untyped]

            return np.asarray(betainc(state.lead + 1.0, state.runner + 1.0, 0.5))
        table = _build_doubt_table(self.longest)
        votes = state.first + state.second
        in_table = votes <= self.longest  # with more votes than that, nothing is drawn anyway
        return np.asarray(table[np.where(in_table, votes, 0) + 1, np.where(in_table, state.second, 0)])

    def settings(self) -> dict[str, Any]:
        return {"wave": self.wave, **super().settings()}


class EarlyStopping(_AgreementPolicy):
    """Early-stopping self-consistency (ESC; Li et al., 2024): draws in windows until a whole one agrees.

    The published rule has no threshold: its window trades cost for accuracy. So the dial sets the
    window, as one over the dial, rounded: 1 is a window of 1, 0.5 of 2, 0.2 of 5 (0: of all). The first
    window whose samples all give one answer is the last; a sample without an answer breaks its window.
    Over all orders of a problem's samples, cost never rises with the dial; on a single path it may.

    >>> from adacompute.answers import Tally
    >>> rule = EarlyStopping()
    >>> rule.more("", Tally(), 0.2), rule.more("", Tally.of(["4", "5", "5", "5"]), 0.5)
    (5, 0)
    """

    kind = "esc"

    def window(self, dial: float | None) -> int:
        """Samples of a window at a dial, 1 to `longest`."""
        doubt = self._check_doubt(dial)
        if doubt * self.longest <= 1.0:
            return self.longest
        return max(1, round(1.0 / doubt))

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:  # noqa: ARG002
        window = self.window(dial)
        position = state.drawn % window  # in a window begun under another dial, or cut short
        stops = (state.drawn > 0) & (position == 0) & (state.run >= window)
        return np.where(stops, 0, self._limit_draw(state, window - position))


class DoublingPolicy(_AgreementPolicy):
    """its_hub's AdaptiveSelfConsistency: 2 samples, then as many again, until enough of them agree.

    It stops where the leader's share of the answers is at least 1 less the dial (`threshold`, 0.75 there by
    default: a dial of 0.25), and never before any answer was given. It can't cost less than 2 samples.

    >>> from adacompute.answers import Tally
    >>> rule = DoublingPolicy()
    >>> [rule.more("", Tally.of(votes), 0.25) for votes in ([], ["4", "5"], ["4", "5", "4", "4"])]
    [2, 2, 0]
    """

    kind = "doubling"

    def __init__(self, *, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.max_waves = max(1, math.ceil(math.log2(self.longest)))

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:  # noqa: ARG002
        min_share = 1.0 - self._check_doubt(dial)
        answered = state.total > 0
        share = np.divide(state.lead, state.total, out=np.zeros(len(state)), where=answered)
        stops = answered & (share >= min_share)
        return np.where(stops, 0, self._limit_draw(state, np.maximum(state.drawn, 2)))


@lru_cache(maxsize=8)
def _build_doubt_table(longest: int) -> Floats:
    """P(at most b heads in n fair throws), (longest + 2, longest + 1): row n, column b.

    That is the Beta rule's doubt with n - 1 votes, b of them for the second answer. The entries are
    sums of halves, so they are exact up to 52 votes.
    """
    table = np.zeros((longest + 2, longest + 1))
    table[0] = 1.0
    for n in range(1, longest + 2):
        table[n] = table[n - 1] / 2
        table[n, 1:] += table[n - 1, :-1] / 2
    table.setflags(write=False)
    return table
