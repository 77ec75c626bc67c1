"""Budgets decided on the prompt alone, by rule or by lot. Knows nothing of answers: no tally is looked at.

`fixed` and `random` are the paper's baselines. Its Table 1 tells how they were made: at B = 2 "random" costs
2.00 and is as accurate as "fixed", so it draws between the two budgets next to B, not among all.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np

from adacompute.answers import Tally, Weigh
from adacompute.errors import BudgetOutOfRange
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import LONGEST, Arrays, Policy, noted
from adacompute.policies.lots import Spread, lots, shares
from adacompute.policies.settings import (
    ascending,
    flag,
    number,
    one_of,
    plain_weigh,
    restoring,
    taken,
    weigh_given,
    whole,
)
from adacompute.pool import Ballots, Pool

__all__ = ["BUDGETS", "SEEDS", "FixedPolicy", "OneShot", "RandomPolicy"]

BUDGETS = (1, 2, 4, 8, 16)  # the paper's
SEEDS = 2**63 - 1


class OneShot(Policy):
    """A policy whose reading of a prompt is its budget, (prompts, 1). Not one by itself."""

    beforehand = True
    max_waves = 1
    names: ClassVar[tuple[str, ...]]  # of its settings

    def __init__(self, *, budgets: Sequence[int], longest: int, weigh: Weigh | None) -> None:
        self.longest = whole("longest", longest)
        self.weigh = weigh_given(weigh)
        self.budgets = ascending("budgets", budgets)
        if self.budgets[0] > self.longest:
            raise BudgetOutOfRange(
                f"budgets {self.budgets} all lie beyond longest {self.longest}; give smaller ones"
            )

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets that are within `longest`."""
        return tuple(budget for budget in self.budgets if budget <= self.longest)

    @abstractmethod
    def read(self, prompts: Sequence[str]) -> Floats:
        """The budget of each prompt, (prompts, 1)."""

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """As `decide`, without arrays: for one request they would take ten times as long."""
        if type(self).decide is not OneShot.decide:
            return super().more(prompt, tally, dial, reading=reading)
        budget = (self.read([prompt]) if reading is None else reading)[0, 0]
        return max(int(budget) - tally.drawn, 0)

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:  # noqa: ARG002
        return np.asarray(np.maximum(reading[:, 0].astype(np.int64) - standing.drawn, 0))

    def fit(self, pool: Pool | Ballots) -> Self:
        noted(pool)
        return self

    def settings(self) -> dict[str, Any]:
        return {
            "budgets": list(self.budgets),
            "longest": self.longest,
            "weigh": plain_weigh(self.weigh),
        }

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with restoring(cls.kind):
            return cls(**taken(settings, cls.names))


def drawn_by_lot(prompts: Sequence[str], modes: Sequence[int], part: Floats, *, seed: int) -> Floats:
    """The budget each prompt draws, (prompts, 1), mode k with the share `part[k]`."""
    place = np.searchsorted(np.cumsum(part)[:-1], lots(prompts, seed=seed), side="right")
    return np.asarray(modes, dtype=np.float64)[place][:, None]


class FixedPolicy(OneShot):
    """Every request alike: the largest of `budgets` that is not above `budget`.

    That spends less than `budget` where it lies between two (the paper's staircase). With `mix`, the lot
    decides between those two, so that requests average `budget`.

    >>> prompts = [f"What is {i} + {i}?" for i in range(1000)]
    >>> FixedPolicy(3).read(prompts).mean(), FixedPolicy(3, mix=True).read(prompts).mean().round(1)
    (np.float64(2.0), np.float64(3.0))
    """

    kind = "fixed"
    names = ("budget", "mix", "seed", "budgets", "longest", "weigh")

    def __init__(
        self,
        budget: float,
        *,
        mix: bool = False,
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = number("budget", budget, low=0)
        self.mix = flag("mix", mix)
        self.seed = whole("seed", seed, low=0, high=SEEDS)
        part = shares(self.modes, self.budget, "adjacent")  # (modes,)
        if not self.mix:
            part = np.eye(len(part))[np.flatnonzero(part)[0]]
        self._shares = part

    def read(self, prompts: Sequence[str]) -> Floats:
        if not self.mix:  # no lot to draw
            return np.full((len(prompts), 1), float(self.modes[int(self._shares.argmax())]))
        return drawn_by_lot(prompts, self.modes, self._shares, seed=self.seed)

    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "mix": self.mix, "seed": self.seed, **super().settings()}


class RandomPolicy(OneShot):
    """Budgets by lot, averaging `budget`, whatever the prompt says.

    By default between the two of `budgets` next to `budget`, as in the paper; with `spread="all"` among all
    of them, as evenly as the average allows; with "ends" between the cheapest and the dearest.

    >>> prompts = [f"What is {i} + {i}?" for i in range(1000)]
    >>> [np.unique(RandomPolicy(3, spread=spread).read(prompts)).tolist() for spread in ("adjacent", "all")]
    [[2.0, 4.0], [1.0, 2.0, 4.0, 8.0, 16.0]]
    """

    kind = "random"
    names = ("budget", "spread", "seed", "budgets", "longest", "weigh")

    def __init__(
        self,
        budget: float,
        *,
        spread: Spread = "adjacent",
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = number("budget", budget, low=0)
        one_of("spread", spread, get_args(Spread))
        self.spread = spread
        self.seed = whole("seed", seed, low=0, high=SEEDS)
        self._shares = shares(self.modes, self.budget, spread)  # (modes,)

    def read(self, prompts: Sequence[str]) -> Floats:
        return drawn_by_lot(prompts, self.modes, self._shares, seed=self.seed)

    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "spread": self.spread, "seed": self.seed, **super().settings()}
