"""Foretells accuracy at every budget, and buys by price: one fit for every average. Knows no single budget.

The curve of a request is what other problems like it had: see regress.py, which also says when features are
not to be believed. Where entropies are recorded, one sample is drawn first, and the curve is that of votes
that begin with a sample as sure as this one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from adacompute.answers import Weigh
from adacompute.errors import NotFitted, PolicyError
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import LONGEST, Arrays, ballots_of
from adacompute.policies.foretelling import Foretelling
from adacompute.policies.oneshot import BUDGETS
from adacompute.policies.openings import openings
from adacompute.policies.regress import curves
from adacompute.policies.repeated import Repeated
from adacompute.policies.settings import (
    checked_dial,
    flag,
    plain_weigh,
    restoring,
    taken,
)
from adacompute.policies.sight import Sight
from adacompute.policies.stored import stored
from adacompute.policies.trees import Trees
from adacompute.pool import Ballots, Pool
from adacompute.score import score

__all__ = ["CurvePolicy", "critical_prices"]

_NAMES = ("budgets", "features", "seed", "longest", "weigh")
_ROWS = 5_000  # to learn from, about: orders of each problem are drawn until there are as many
_FALLS = 0.05  # of what some problems gain, lost by others: the most that passes for a curve that rises
_ORDERS = (8, 32)  # of a problem, at the least and the most


class CurvePolicy(Foretelling):
    """Draws up to the budget whose accuracy, less its price, is foretold to be best; ties to the cheaper.

    The price is accuracy per sample. `features` joins parts of "text", "embedding" (an extra) and "entropy"
    by "+"; the entropy is left out where it isn't recorded.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = CurvePolicy(features="text").fit(pool)
    >>> policy.curve(["Ann has 3 apples and buys 4 more. How many has she now?"]).shape
    (1, 5)
    """

    kind = "curve"
    dial = "price"

    trees_: Trees  # outputs: accuracy of the cheapest budget, and what each dearer one adds to it
    rises_: Ints  # (budgets - 1,) 1 where hardly a problem's curve falls: there none foretold does
    sight_: Sight

    def __init__(
        self,
        *,
        budgets: Sequence[int] = BUDGETS,
        features: str = "text+entropy",
        seed: int = 0,
        longest: int = LONGEST,
        weigh: Weigh | None = None,
    ) -> None:
        super().__init__(budgets=budgets, features=features, seed=seed, longest=longest, weigh=weigh)

    @property
    def tells_apart(self) -> bool:
        """Whether requests get different curves: features helped on problems not learned from."""
        return bool((self._fitted().output > 0).any())

    def fit(self, pool: Pool | Ballots) -> Self:
        """Learns curves from graded samples, as many of each problem as the largest budget."""
        ballots = ballots_of(pool)
        table = score(ballots, self.modes)  # refuses what can't be scored, saying why
        sight = Sight.of(self.features).seen(ballots)
        read = sight.read(ballots.prompts)
        if not sight.entropy and self.weigh is None:
            orders, targets, entropy = 1, table.accuracy, np.full(len(ballots), np.nan)
        else:
            orders = int(np.clip(_ROWS // len(ballots), *_ORDERS))
            rng = np.random.default_rng(self.seed)
            found = openings(ballots, self.modes, orders=orders, rng=rng, weigh=self.weigh)
            targets, entropy = found.accuracy.reshape(-1, len(self.modes)), found.entropy.reshape(-1)
            if not sight.entropy:
                orders, targets = 1, found.accuracy.mean(axis=1)
                entropy = np.full(len(ballots), np.nan)
        rows = sight.rows(np.repeat(read, orders, axis=0), entropy)
        owner = np.repeat(np.arange(len(ballots)), orders)
        every = np.arange(sight.width)
        groups = [every[-1:], every] if sight.entropy and sight.width > 1 else [every]
        alike = _alike(ballots.prompts)
        trees = curves(rows, targets, owner, alike=alike, groups=groups, seed=self.seed)
        self._settle(trees, _rises(table.accuracy), sight)
        return self

    def curve(self, prompts: Sequence[str], entropy: Sequence[float] | None = None) -> Floats:
        """Accuracy foretold at each budget, (prompts, budgets); `entropy` is of first samples, in nats."""
        known = np.full(len(prompts), np.nan) if entropy is None else np.asarray(entropy, dtype=np.float64)
        return self._curves(self.sight_.rows(self.read(prompts), known))

    def foretold(self, reading: Floats, standing: Standing) -> Floats:
        """Accuracy foretold of requests that stand at one of its budgets, (requests,)."""
        curves_ = self._curves(self.sight_.rows(reading, standing.entropy))
        at = np.searchsorted(self.modes, standing.drawn)
        return np.asarray(np.clip(curves_[np.arange(len(at)), at], 0.0, 1.0))

    def read(self, prompts: Sequence[str]) -> Floats:
        self._fitted()
        return self.sight_.read(prompts)

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:
        self._fitted()
        price = checked_dial("price", dial)
        more = np.full(len(standing), self.modes[0], dtype=np.int64)
        begun = np.arange(len(standing))
        if self.sight_.entropy:
            more[:] = 1  # to be seen first
            begun = np.flatnonzero(standing.drawn)
        if len(begun):
            prices = self._prices(self.sight_.rows(reading[begun], standing.entropy[begun]))
            budget = np.array(self.modes, dtype=np.int64)[(prices > price).sum(axis=1)]
            more[begun] = np.maximum(budget - standing.drawn[begun], 0)
        return more

    def _curves(self, rows: Floats) -> Floats:
        """(rows, budgets)"""
        found = self.trees_.scores(rows)
        steps = found[:, 1:].copy()
        steps[:, 1:] -= found[:, 1:-1]
        np.maximum(steps, self._least, out=steps)
        np.clip(found[:, 0], 0.0, 1.0, out=found[:, 0])
        np.add(found[:, :1], np.cumsum(steps, axis=1), out=found[:, 1:])
        return found

    def _fitted(self) -> Trees:
        if not hasattr(self, "trees_"):
            raise NotFitted("curve has learned nothing yet; call fit(pool) first")
        return self.trees_

    def _settle(self, trees: Trees, rises: Any, sight: Sight) -> None:  # noqa: ANN401
        self.trees_, self.rises_, self.sight_ = trees, np.asarray(rises, dtype=np.int64), sight
        self.beforehand = not sight.entropy
        self.reads_entropy = sight.entropy
        self.max_waves = 1 if self.beforehand else 2
        self._least = np.where(self.rises_ > 0, 0.0, -np.inf)  # that a step of a curve may be
        modes = np.array(self.modes, dtype=np.float64)
        self._prices = Repeated(lambda rows: critical_prices(self._curves(rows), modes))

    def settings(self) -> dict[str, Any]:
        learned = {"entropy": self.sight_.entropy} if hasattr(self, "trees_") else None
        return {
            "budgets": list(self.budgets),
            "features": self.features,
            "seed": self.seed,
            "longest": self.longest,
            "weigh": plain_weigh(self.weigh),
            "learned": learned,
        }

    def arrays(self) -> Arrays:
        return {**self.trees_.arrays(), "rises": self.rises_} if hasattr(self, "trees_") else {}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        with restoring(cls.kind):
            given = taken(settings, (*_NAMES, "learned"))
            learned = given.pop("learned")
            policy = cls(**given)
            if learned is not None:
                policy._learn(learned, arrays)
        return policy

    def _learn(self, learned: object, arrays: Arrays) -> None:
        if not isinstance(learned, Mapping) or set(learned) != {"entropy"}:
            raise PolicyError("learned has not entropy")
        sight = Sight.of(self.features).with_entropy(flag("learned entropy", learned["entropy"]))
        trees = Trees.restored(arrays, features=sight.width, outputs=len(self.modes))
        self._settle(trees, stored(arrays, "rises", np.int64, (len(self.modes) - 1,)), sight)


def _alike(prompts: Sequence[str]) -> Ints:
    """A number for each problem, from 0 in order of appearance, the same for those of one prompt."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(prompt, len(seen)) for prompt in prompts], dtype=np.int64)


def _rises(accuracy: Floats) -> Any:  # noqa: ANN401 # truth values
    """Between which budgets more votes hardly ever hurt, (budgets - 1,); hopeless problems say otherwise."""
    steps = np.diff(accuracy, axis=1)
    return np.maximum(-steps, 0.0).mean(axis=0) <= _FALLS * np.maximum(steps, 0.0).mean(axis=0)


def critical_prices(curves: Floats, budgets: Floats) -> Floats:
    """The price below which each budget but the cheapest, or a dearer one, is bought, (rows, budgets - 1).

    Falling along a row: so only the upper concave hull is bought from, and cost never rises with the price.

    >>> critical_prices(np.array([[0.5, 0.5, 0.8]]), np.array([1.0, 2.0, 4.0])).round(3).tolist()
    [[0.1, 0.1]]
    """
    apart = budgets[None, :] - budgets[:, None]
    apart[apart <= 0] = 1.0  # such pairs aren't looked at
    slopes = (curves[:, None, :] - curves[:, :, None]) / apart  # (rows, from, to)
    # a budget is passed where one from it on is worth more than each one before it
    least = np.minimum.accumulate(slopes, axis=1)
    best = np.maximum.accumulate(least[:, :, ::-1], axis=2)[:, :, ::-1]
    place = np.arange(len(budgets) - 1)
    return np.asarray(np.minimum.accumulate(best[:, place, place + 1], axis=1))
