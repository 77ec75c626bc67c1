"""Another policy's budgets, dealt out by lot: what its *choice* is worth. Knows nothing of how it chose."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.errors import NotFitted, PolicyError
from adacompute.paths.standing import Floats, Standing
from adacompute.policies.base import LONGEST, Arrays, Policy, ballots_of
from adacompute.policies.oneshot import BUDGETS, SEEDS, OneShot, drawn_by_lot
from adacompute.policies.scored import scored
from adacompute.policies.settings import flag, number, restoring, taken, whole
from adacompute.pool import Ballots, Pool
from adacompute.solve import solve

__all__ = ["ShuffledPolicy"]

Like = Policy | npt.ArrayLike


class ShuffledPolicy(OneShot):
    """The histogram of another policy's budgets, each request drawing its own by lot.

    `fit(pool, like=…)` takes a policy that decides beforehand (and its `dial`, where it has one), or the
    budgets that any policy spent; without it, the histogram is that of the one-shot oracle at `budget` on the
    pool, which needs grades. `of` may give the histogram at once, as {budget: share or count}.

    >>> policy = ShuffledPolicy(of={1: 3, 5: 1})
    >>> policy.read([f"What is {i} + {i}?" for i in range(2000)]).mean().round(1)
    np.float64(2.0)
    """

    kind = "shuffled"
    names = ("budget", "seed", "budgets", "longest", "weigh")

    histogram_: dict[int, float]  # budget, rising -> how often, as a count or a share
    given_: bool = False  # whether it was given, by `of` or `like`, and is no oracle's at `budget`

    def __init__(
        self,
        budget: float | None = None,
        *,
        of: Mapping[int, float] | None = None,
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = None if budget is None else number("budget", budget, low=self.budgets[0])
        self.seed = whole("seed", seed, low=0, high=SEEDS)
        if of is not None:
            self._take(of)
            self.given_ = True

    def fit(self, pool: Pool | Ballots, *, like: Like | None = None, dial: float | None = None) -> Self:
        ballots = ballots_of(pool)
        if isinstance(like, Policy):
            spent: npt.ArrayLike = _beforehand(like, ballots, dial)
        elif like is not None:
            spent = like
        else:
            spent = self._oracle(ballots)
        values = np.asarray(spent)
        if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
            raise PolicyError("what was spent has to be a list of whole numbers, the budget of each request")
        found, counts = np.unique(values, return_counts=True)
        self._take(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        self.given_ = like is not None
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "histogram_"):
            raise NotFitted(
                "shuffled has no histogram yet; call fit(pool, like=policy), or give of={1: 3, 5: 1}"
            )
        part = np.array(list(self.histogram_.values()))
        return drawn_by_lot(prompts, tuple(self.histogram_), part / part.sum(), seed=self.seed)

    def _oracle(self, ballots: Ballots) -> npt.ArrayLike:
        if self.budget is None:
            raise PolicyError("shuffled has nothing to shuffle; give fit(pool, like=policy), or a budget")
        plan = solve(scored(ballots, self.modes, None), budget=self.budget)
        return np.asarray(self.modes)[plan.choice]

    def _take(self, histogram: object) -> None:
        if not isinstance(histogram, Mapping) or not histogram:
            raise PolicyError(
                f"histogram {histogram!r} can't be used; give shares by budget, e.g. {{1: 3, 5: 1}}"
            )
        pairs = sorted(
            (whole("budget in the histogram", budget, high=self.longest), number("share", part, low=0))
            for budget, part in histogram.items()
        )
        if not 0 < sum(part for _, part in pairs) < np.inf:
            raise PolicyError(f"histogram {histogram!r} has no shares that can be drawn; give positive ones")
        self.histogram_ = dict(pairs)

    def settings(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "histogram_"):
            learned = [[budget, part] for budget, part in self.histogram_.items()]
        own = {"budget": self.budget, "seed": self.seed, "learned": learned, "given": self.given_}
        return {**super().settings(), **own}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with restoring(cls.kind):
            stored = taken(settings, (*cls.names, "learned", "given"))
            learned, given = stored.pop("learned"), flag("given", stored.pop("given"))
            policy = cls(**stored, of=None if learned is None else _pairs(learned))
            policy.given_ = given
            return policy


def _pairs(learned: object) -> dict[Any, Any]:
    if not isinstance(learned, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in learned
    ):
        raise PolicyError("learned is no list of budgets and shares")
    if any(not isinstance(budget, int) for budget, _ in learned):
        raise PolicyError("learned has a budget that is no whole number")
    found = dict(learned)
    if len(found) != len(learned):
        raise PolicyError("learned names a budget twice")
    return found


def _beforehand(policy: Policy, ballots: Ballots, dial: float | None) -> npt.ArrayLike:
    if not policy.beforehand:
        raise PolicyError(
            f"{policy.kind} decides as the votes come in; replay it, and give what it spent: like=run.drawn"
        )
    return policy.decide(policy.read(ballots.prompts), Standing.empty(len(ballots)), dial)
