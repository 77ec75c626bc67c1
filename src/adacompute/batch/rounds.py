"""Who gets samples next, round by round, within a limit in all. Knows nothing of endpoints or how to draw."""

import numpy as np

from adacompute.batch.dials import Dials, allotted, most_of
from adacompute.batch.votes import Rows, Votes
from adacompute.paths.standing import Floats, Ints
from adacompute.policies.base import Policy

__all__ = ["Chosen", "Rounds"]

_PART = 4  # of what is left, the part that may be asked for at once before its answers are known

Chosen = tuple[Rows, Ints]  # requests, and how many samples each gets


class Rounds:
    """The rounds of one batch: in each, those go on that do so at the highest dial; so it falls."""

    def __init__(self, policy: Policy, votes: Votes, reading: Floats, *, limit: int) -> None:
        self._policy = policy
        self._votes = votes
        self._limit = limit
        self._reading = reading
        self._dials = Dials(policy, votes, reading)
        self._expected = votes.drawn.copy()  # samples of each request, had nothing failed
        self.dial = None if policy.dial is None else most_of(policy)
        self.number = 0  # of rounds so far

    @property
    def room(self) -> int:
        """Samples that are left to draw."""
        return max(0, self._limit - self._votes.spent)

    @property
    def price(self) -> float | None:
        """The lowest dial that anybody went on at; before that, the highest at which anybody would."""
        if self.dial is None or self.dial < most_of(self._policy):
            return self.dial
        return self._dials.highest(self.dial, 1)

    @property
    def unsettled(self) -> int:
        """Requests that the policy would go on with as things are."""
        rows = np.flatnonzero(self._dials.active)
        if self.dial is None:
            return int((self._dials.asked(rows, None) > 0).sum())
        return int(self._dials.going(self.dial).sum())

    def first(self, opening: Ints) -> Chosen:
        """The opening wave, (requests,), for requests that have nothing yet."""
        empty = self._votes.drawn == 0
        asked = np.where(empty, opening, 0)
        return self._given(np.arange(len(asked)), asked, np.zeros(len(asked)))

    def settled(self, policy: Policy) -> None:
        """The policy knows the model's scale now, and every vote was counted anew."""
        self._policy = policy
        self._dials = Dials(policy, self._votes, self._reading)

    def next(self, width: int) -> Chosen | None:
        """Who goes on now, those first that go on at the highest dial; None: the budget is spent, or nobody.

        `width` is how many can be asked at the same time.
        """
        if not self.room:
            return None
        rows, asked = self._going(width)
        rows, counts = self._given(rows, asked, self._dials.low[rows])
        return (rows, counts) if len(rows) else None

    def drawn(self, rows: Rows) -> list[int]:
        """Takes note that votes were counted; those that got less than they were given, and get no more."""
        self._dials.forget(rows)
        short = self._dials.active & (self._votes.drawn < self._expected)
        self._dials.active[short] = False
        found: list[int] = np.flatnonzero(short).tolist()
        return found

    def _given(self, rows: Rows, asked: Ints, rank: Floats) -> Chosen:
        counts = allotted(asked, self.room, empty=self._votes.drawn[rows] == 0, rank=rank)
        order = np.argsort(-rank, kind="stable")
        order = order[counts[order] > 0]
        self._expected[rows] = self._votes.drawn[rows] + counts
        self.number += len(order) > 0
        return rows[order], counts[order]

    def _going(self, width: int) -> Chosen:
        if self.dial is None:
            rows = np.flatnonzero(self._dials.active)
            return rows, self._dials.asked(rows, None)
        # As many as can go on to their end with what is left: then all of them stop at this dial. Near the
        # end that is less than can be asked at the same time, and a part of what is left has to do.
        least = max(1, self.room // max(1, self._policy.longest - 1), min(width, self.room // _PART))
        while (dial := self._dials.highest(most_of(self._policy), least)) is not None:
            rows = np.flatnonzero(self._dials.going(dial))
            asked = self._dials.asked(rows, dial)
            if (asked > 0).any():
                self.dial = min(self.dial, dial)
                return rows, asked
            self._dials.stops(rows, dial)  # esc may stop below a dial at which it goes on
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)
