"""Which requests go on as the dial falls, and how far it has to fall. Knows nothing of samples or pools.

For one tally a policy goes on below some value of its dial and stops from there up. So two numbers a request
say what has been asked of the policy already, and only what they leave open is asked.
"""

import math

import numpy as np
import numpy.typing as npt

from adacompute.batch.votes import Rows, Votes
from adacompute.paths.standing import Floats, Ints
from adacompute.policies.base import Policy

__all__ = ["Dials", "allotted", "most_of"]

Bools = npt.NDArray[np.bool_]

_LOWEST = 1e-18  # dials below are taken for 0
_FINE = 1e-6  # of a dial: requests nearer to each other than that are alike
_STEPS = 60


class Dials:
    """For each request, what is known of the highest dial at which it goes on."""

    def __init__(self, policy: Policy, votes: Votes, reading: Floats) -> None:
        self._policy = policy
        self._votes = votes
        self._reading = reading
        self.active = np.ones(len(votes), dtype=np.bool_)  # False: not asked for again
        self.low = np.full(len(votes), -1.0)  # goes on at this dial, and below; -1: not known
        self._high = np.full(len(votes), np.inf)  # stops at this dial, and above

    def forget(self, rows: Rows) -> None:
        """These requests have other tallies now."""
        self.low[rows], self._high[rows] = -1.0, np.inf

    def going(self, dial: float) -> Bools:
        """Which requests the policy goes on with at a dial, (requests,)."""
        rows = np.flatnonzero(self.active & (self.low < dial) & (dial < self._high))
        if len(rows):
            goes = self.asked(rows, dial) > 0
            self.low[rows[goes]] = dial
            self._high[rows[~goes]] = dial
        return np.asarray(self.active & (dial <= self.low))

    def asked(self, rows: Rows, dial: float | None) -> Ints:
        """How many more samples the policy wants for some requests at a dial."""
        return self._policy.decide(self._reading[rows], self._votes.standing(rows), dial)

    def stops(self, rows: Rows, dial: float) -> None:
        """The policy said so, whatever it said at a higher dial."""
        self.low[rows], self._high[rows] = -1.0, dial

    def highest(self, most: float, least: int) -> float | None:
        """The highest dial, not above `most`, at which at least `least` requests go on; None: nobody does.

        Where fewer than that ever go on, it is the one at which those do.
        """
        ever = int(self.going(0.0).sum())
        least = min(least, ever)
        if not least:
            return None
        if self.going(most).sum() >= least:
            return most
        low, high = 0.0, most  # enough go on at the one, too few at the other
        for _ in range(_STEPS):
            middle = math.sqrt(max(low, _LOWEST) * high)
            if high <= max(low, _LOWEST) * (1 + _FINE):
                break
            count = self.going(middle).sum()
            low, high = (middle, high) if count >= least else (low, middle)
            if count == least:
                break
        return low


def most_of(policy: Policy) -> float:
    """The highest dial: there is none at which the policy asks for less."""
    return 1.0 if policy.dial == "threshold" else 1e12


def allotted(asked: Ints, room: int, *, empty: Bools, rank: Floats) -> Ints:
    """What each request gets of `room` samples, (requests,): all that it asked for, where that is enough.

    Else one for each that has none, in their order; then to the highest in rank first, ties in their order.
    """
    given = np.where(empty & (asked > 0), 1, 0)
    given = np.where(np.cumsum(given) <= room, given, 0)
    order = np.argsort(-rank, kind="stable")
    wanted = (asked - given)[order]
    before = np.cumsum(wanted) - wanted
    more = np.empty_like(wanted)
    more[order] = np.clip(room - int(given.sum()) - before, 0, wanted)
    return np.asarray(given + more)
