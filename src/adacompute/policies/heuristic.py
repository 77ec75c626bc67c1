"""The paper's heuristic: the longest prompts get most. Knows nothing of what they ask.

Its costs of 1.52, 2.05 and 3.02 at B = 1.5, 2 and 3 with 200 problems are those of 16 samples for the longest
7, 14 and 27 prompts and one for the others: that is the default here (`spread="ends"`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self, get_args

import numpy as np

from adacompute.answers import Weigh
from adacompute.errors import NotFitted, PolicyError
from adacompute.paths.standing import Floats
from adacompute.policies.base import LONGEST, Arrays, ballots_of
from adacompute.policies.lots import Spread, lots, shares
from adacompute.policies.oneshot import BUDGETS, OneShot
from adacompute.policies.settings import ascending, number, one_of, restoring, taken
from adacompute.pool import Ballots, Pool

__all__ = ["HeuristicPolicy"]

_SEED = 0  # of the lots that part prompts of one length


class HeuristicPolicy(OneShot):
    """Budgets by the prompt's length in characters, averaging `budget` over the problems it is fitted on.

    The cuts lie between problems, so the average is met to the nearest whole problem; prompts of the same
    length are parted by lot. `spread` says which budgets are used: the cheapest and the dearest ("ends"),
    the two next to `budget` ("adjacent"), or "all".

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = HeuristicPolicy(2.0).fit(pool)
    ...     budgets = policy.read(pool.ballots().prompts)
    >>> budgets.mean().round(2), policy.budgets_
    (np.float64(1.99), (1, 16))
    """

    kind = "heuristic"
    names = ("budget", "spread", "budgets", "longest", "weigh")

    budgets_: tuple[int, ...]  # those that any problem got, rising
    cuts_: tuple[float, ...]  # lengths from which the next of them is given

    def __init__(
        self,
        budget: float,
        *,
        spread: Spread = "ends",
        budgets: Sequence[int] = BUDGETS,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = number("budget", budget, low=0)
        one_of("spread", spread, get_args(Spread))
        self.spread = spread
        self._shares = shares(self.modes, self.budget, spread)  # (modes,)

    def fit(self, pool: Pool | Ballots) -> Self:
        lengths = np.sort(_lengths(ballots_of(pool).prompts))
        if not len(lengths):
            raise PolicyError("there is no problem to learn lengths from; give a pool with samples")
        above = np.round(np.cumsum(self._shares[::-1])[::-1] * len(lengths)).astype(np.int64)
        counts = above - np.append(above[1:], 0)  # (modes,) problems that get each
        used = np.flatnonzero(counts)
        edges = len(lengths) - above[used[1:]]  # the first problem of each used mode but the first
        self.budgets_ = tuple(self.modes[k] for k in used)
        self.cuts_ = tuple(((lengths[edges - 1] + lengths[edges]) / 2).tolist())
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "cuts_"):
            raise NotFitted("heuristic has seen no prompt lengths yet; call fit(pool) first")
        place = np.searchsorted(self.cuts_, _lengths(prompts), side="right")
        return np.asarray(self.budgets_, dtype=np.float64)[place][:, None]

    def settings(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "cuts_"):
            learned = {"budgets": list(self.budgets_), "cuts": list(self.cuts_)}
        return {"budget": self.budget, "spread": self.spread, **super().settings(), "learned": learned}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with restoring(cls.kind):
            given = taken(settings, (*cls.names, "learned"))
            learned = given.pop("learned")
            policy = cls(**given)
            if learned is not None:
                policy._learn(learned)
        return policy

    def _learn(self, learned: object) -> None:
        if not isinstance(learned, Mapping) or set(learned) != {"budgets", "cuts"}:
            raise PolicyError("learned has not budgets and cuts")
        budgets = ascending("learned budgets", learned["budgets"], high=self.longest)
        given = learned["cuts"]
        if not isinstance(given, list) or len(given) != len(budgets) - 1:
            raise PolicyError(f"learned cuts {given!r} don't part {len(budgets)} budgets")
        cuts = tuple(number("learned cut", cut, low=0) for cut in given)
        if any(a > b for a, b in pairwise(cuts)):
            raise PolicyError(f"learned cuts {given!r} don't rise")
        self.budgets_, self.cuts_ = budgets, cuts


def _lengths(prompts: Sequence[str]) -> Floats:
    """Lengths in characters, each with a lot below 1 that parts equals, (prompts,)."""
    return np.array([len(prompt) for prompt in prompts], dtype=np.float64) + lots(prompts, seed=_SEED)
