"""What a pool adds to the prior: trees of its own, and what its prompts hint at. Knows no dial.

With few problems the prior has most of the say, with many the pool has.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.paths import Paths, paths
from adacompute.policies.base import Arrays
from adacompute.policies.stopping.hints import COUNT, Hints, hints_for
from adacompute.policies.stopping.induction import learned
from adacompute.policies.stopping.judge import Judge
from adacompute.policies.stopping.prints import prints
from adacompute.policies.stopping.prior import Prior, worths
from adacompute.policies.stopping.states import NAMES
from adacompute.policies.stored import stored
from adacompute.pool import Ballots

__all__ = ["Own", "own_of"]

Floats = npt.NDArray[np.float64]

_PATHS = 12000  # in all
_ORDERS = (8, 64)  # a problem, at least and at most
_TAUGHT = 2000  # problems that words are learned on, at most: their time grows with the cube
_TRUSTED = 120  # problems: with so many, the pool and the prior have equal say
_TRUSTED_BARE = 480  # likewise, where prompts hint at nothing: the prior knows most of the rest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Own:
    """Learned on one pool."""

    judge: Judge  # of states, and hints where there are any
    hints: Hints | None
    problems: int
    labels: bool  # learned from labels too, not from agreement alone
    weighed: bool  # votes were
    taught: npt.NDArray[np.uint64]  # prints of the prompts it was learned on, ascending

    @property
    def share(self) -> float:
        """Its say beside the prior's, 0 to 1; none without weights and hints: the prior knows counts."""
        if self.hints is None and not self.weighed:
            return 0.0
        return self.problems / (self.problems + (_TRUSTED_BARE if self.hints is None else _TRUSTED))

    def arrays(self) -> Arrays:
        """What was learned."""
        found = {**self.judge.arrays("own_"), "taught": self.taught}
        return found if self.hints is None else {**found, **self.hints.arrays()}

    @classmethod
    def restored(cls, arrays: Arrays, *, problems: int, labels: bool, weighed: bool, hinted: bool) -> "Own":
        """What gave these arrays; PolicyInvalid where nothing could have."""
        judge = Judge.restored(arrays, "own_", features=len(NAMES) + (COUNT if hinted else 0))
        hints = Hints.restored(arrays) if hinted else None
        taught = np.sort(stored(arrays, "taught", np.uint64, (None,)))
        return cls(judge=judge, hints=hints, problems=problems, labels=labels, weighed=weighed, taught=taught)


def own_of(
    ballots: Ballots,
    prior: Prior,
    *,
    weigh: Weigh | None,
    longest: int,
    labels: bool,
    features: bool,
    seed: int,
) -> Own:
    """Learned on these samples; `features`: from the words of prompts too, where they help."""
    orders = int(np.clip(_PATHS // max(1, len(ballots)), *_ORDERS))
    some = paths(ballots, rng=np.random.default_rng(seed), orders=orders, longest=longest, weigh=weigh)
    values = worths(some, labels=labels)
    hints = _hints(ballots, some, labels=labels, seed=seed) if features else None
    told = None if hints is None else [hints.of(ballots.prompts)]  # of each by the others
    judge = learned([some], [values], prior.table, hints=told, seed=seed)
    return Own(
        judge=judge,
        hints=hints,
        problems=len(ballots),
        labels=labels,
        weighed=weigh is not None,
        taught=np.unique(prints(ballots.prompts)),
    )


def _hints(ballots: Ballots, some: Paths, *, labels: bool, seed: int) -> Hints | None:
    """Learned on problems with labels, where labels are used; on some of them where there are very many."""
    targets = _targets(some, labels=labels)
    rows = np.flatnonzero(np.isfinite(targets).all(axis=1))
    if len(rows) > _TAUGHT:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _TAUGHT, replace=False))
    return hints_for([ballots.prompts[row] for row in rows], targets[rows], seed=seed)


def _targets(some: Paths, *, labels: bool) -> Floats:
    """What prompts may hint at: one sample's worth, the last vote's, and what half of the draws add."""
    values = some.grade if labels else some.agrees
    one, half, last = (some.mean(values[t]) for t in (0, some.longest // 2 - 1, some.longest - 1))
    return np.stack([one, last, half - one], axis=1)
