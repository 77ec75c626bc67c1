"""Small real policies for the tests: one that remembers what it was fitted on, one that knows the answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adacompute.policies.base import Arrays, Policy
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.pool import Ballots


class Margin(Policy):
    """Goes on while the margin is small; the dial is a price. Remembers the prompts it was fitted on."""

    kind = "margin"
    dial = "price"

    def __init__(self, *, longest: int = 16, weigh: Any = None) -> None:
        self.longest, self.weigh = longest, weigh

    def fit(self, pool: Any) -> "Margin":
        self.seen_ = frozenset(pool.prompts)
        return self

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        assert dial is not None
        open_ = np.exp(-(state.lead - state.runner)) * 0.3 > dial
        return ((state.drawn == 0) | (open_ & (state.drawn < self.longest))).astype(np.int64)

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> "Margin":
        return cls()


class Spy(Margin):
    """Refuses to be shown a prompt that it was fitted on, and keeps what it was shown."""

    kind = "spy"
    shown: list[frozenset[str]] = []  # noqa: RUF012 - of all spies: each is made inside the evaluation

    def read(self, prompts: Sequence[str]) -> Floats:
        if not self.seen_ >= set(prompts):  # calibrating reads training prompts, judging the others
            assert not self.seen_ & set(prompts), "a judged problem was learned from"
            Spy.shown.append(frozenset(prompts))
        return super().read(prompts)


class Lengths(Margin):
    """No dial: made for one budget, which it gives to all; half of it to short prompts."""

    kind = "lengths"
    dial = None

    def __init__(self, budget: float, *, longest: int = 16, weigh: Any = None) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.budget = budget

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        return np.maximum(int(min(self.longest, self.budget)) - state.drawn, 0)


class Remember(Lengths):
    """Gives more to prompts that begin as those did whose samples disagreed, and the budget to others."""

    kind = "remember"

    def fit(self, pool: Any) -> "Remember":
        self.disputed_ = {
            prompt.split()[0]: bool(row.max() > 0)
            for prompt, row in zip(pool.prompts, pool.classes, strict=True)
        }
        super().fit(pool)
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        wanted = {None: self.budget, False: 1.0, True: 2 * self.budget - 1}
        return np.array([[wanted[self.disputed_.get(prompt.split()[0])]] for prompt in prompts])

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        return np.maximum(np.minimum(reading[:, 0], self.longest).astype(np.int64) - state.drawn, 0)


def margin(train: Ballots, *, budget: float, weigh: Any, longest: int) -> Margin:
    return Margin(longest=longest, weigh=weigh).fit(train)


def spy(train: Ballots, *, budget: float, weigh: Any, longest: int) -> Spy:
    return Spy(longest=longest, weigh=weigh).fit(train)


def lengths(train: Ballots, *, budget: float, weigh: Any, longest: int) -> Lengths:
    return Lengths(budget, longest=longest, weigh=weigh).fit(train)


def remember(train: Ballots, *, budget: float, weigh: Any, longest: int) -> Remember:
    return Remember(budget, longest=longest, weigh=weigh).fit(train)
