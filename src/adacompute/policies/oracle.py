"""The one-shot oracle as a policy: it has seen the answers. Knows nothing of prompts it wasn't fitted on.

Judged on the samples it was fitted on, it is the upper end of what deciding beforehand can reach; fitted on
one half of each problem's samples and judged on the other (`adacompute.score.halves`), the lower end.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.errors import NotFitted, PolicyError
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import LONGEST, Arrays, ballots_of
from adacompute.policies.lots import key
from adacompute.policies.oneshot import BUDGETS, OneShot
from adacompute.policies.settings import checked_dial, restoring, taken
from adacompute.pool import Ballots, Pool
from adacompute.score import score
from adacompute.solve.hull import grained, slopes

__all__ = ["OraclePolicy"]


class OraclePolicy(OneShot):
    """Each problem's best budget at a price, by its own accuracy; a prompt never seen gets the average's.

    The price is accuracy per sample. Kept are the slopes of each problem's concave hull, under a hash of its
    prompt: a budget is worth its price as far as they lie above it. Problems of the same prompt share one
    curve, their mean.

    >>> from adacompute.answers import Tally
    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy, prompts = OraclePolicy().fit(pool), pool.ballots().prompts
    >>> policy.more_batch(prompts[:6], [Tally()] * 6, 0.01)
    [8, 8, 8, 8, 8, 4]
    """

    kind = "oracle"
    dial = "price"
    names = ("budgets", "longest", "weigh")

    keys_: npt.NDArray[np.uint64]  # (prompts,) hashes, rising
    slopes_: Floats  # (prompts, modes - 1) of the hull over each step to the next mode, never rising
    mean_: Floats  # (modes - 1,) of the mean curve

    def __init__(
        self, *, budgets: Sequence[int] = BUDGETS, longest: int = LONGEST, weigh: Weigh | None = None
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        ballots = ballots_of(pool)
        how: dict[str, Any] = {} if self.weigh is None else {"aggregate": "weighted", "by": self.weigh}
        accuracy = score(ballots, self.modes, **how).accuracy  # (problems, modes)
        hashes = np.array([key(prompt) for prompt in ballots.prompts], dtype=np.uint64)
        self.keys_, place = np.unique(hashes, return_inverse=True)
        curves = np.zeros((len(self.keys_), len(self.modes)))
        np.add.at(curves, place, accuracy)
        curves /= np.bincount(place)[:, None]
        costs = np.array(self.modes, dtype=np.float64)
        self.slopes_ = np.ascontiguousarray(slopes(curves, costs).T)
        self.mean_ = slopes(accuracy.mean(axis=0, keepdims=True), costs)[:, 0].copy()
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        """The slopes of each prompt's curve, (prompts, modes - 1)."""
        if not hasattr(self, "keys_"):
            raise NotFitted("oracle has seen no answers yet; call fit(pool) with graded samples first")
        wanted = np.array([key(prompt) for prompt in prompts], dtype=np.uint64)
        place = np.minimum(np.searchsorted(self.keys_, wanted), len(self.keys_) - 1)
        known = self.keys_[place] == wanted
        return np.where(known[:, None], self.slopes_[place], self.mean_)

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:
        price = grained(np.array([checked_dial("price", dial)]))
        budget = np.array(self.modes)[(reading > price).sum(axis=1)]
        return np.asarray(np.maximum(budget - standing.drawn, 0))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "learned": hasattr(self, "keys_")}

    def arrays(self) -> Arrays:
        if not hasattr(self, "keys_"):
            return {}
        return {"keys": self.keys_, "slopes": self.slopes_, "mean": self.mean_}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        with restoring(cls.kind):
            given = taken(settings, (*cls.names, "learned"))
            learned = given.pop("learned")
            policy = cls(**given)
            if not isinstance(learned, bool) or set(arrays) != (
                {"keys", "slopes", "mean"} if learned else set()
            ):
                raise PolicyError(f"arrays {sorted(arrays)} don't go with learned {learned!r}")
            if learned:
                policy._learn(arrays)
        return policy

    def _learn(self, arrays: Arrays) -> None:
        keys, found, mean = arrays["keys"], arrays["slopes"], arrays["mean"]
        steps = len(self.modes) - 1
        if keys.dtype != np.uint64 or keys.ndim != 1 or not len(keys) or (keys[1:] <= keys[:-1]).any():
            raise PolicyError("array 'keys' is not of rising hashes")
        for name, array, shape in (("slopes", found, (len(keys), steps)), ("mean", mean, (steps,))):
            if array.dtype != np.float64 or array.shape != shape:
                raise PolicyError(
                    f"array {name!r} is {array.dtype} of shape {array.shape}, not float64 of {shape}"
                )
            if not ((array >= 0) & (array <= 1)).all() or (np.diff(array, axis=-1) > 0).any():
                raise PolicyError(
                    f"array {name!r} has no slopes of a concave curve, from 0 to 1 and never rising"
                )
        self.keys_, self.slopes_, self.mean_ = keys, found, mean
