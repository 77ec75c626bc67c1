"""What solving gives: an allocation, the frontier, and how they were found. Knows nothing of how to solve."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, TableInvalid
from adacompute.records.table import Mode

__all__ = ["Allocation", "Frontier", "Limit", "LimitUse", "Mix", "Move", "Trace", "at_least"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """With this probability the problem gets this mode instead of its choice."""

    problem: int  # row
    mode: int  # column
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mix:
    """The problems that are mixed between modes, so that the expected cost is exactly the budget.

    At most one under one budget (at most as many as there are limits under several); the paper's method
    mixes every problem whose choice changes between two prices. Iterates over `Move`s.
    """

    problems: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # (moves,) rows
    modes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # (moves,) columns
    probabilities: Floats = field(default_factory=lambda: np.zeros(0))  # (moves,) 0 to 1

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Move]:
        for i, k, p in zip(self.problems, self.modes, self.probabilities, strict=True):
            yield Move(problem=int(i), mode=int(k), probability=float(p))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The steps of a bisection, for its diagnostics: one entry a step."""

    low: Floats  # (steps,) lower end of the price bracket before the step
    high: Floats  # (steps,) upper end
    price: Floats  # (steps,) the price tried, their middle
    cost: Floats  # (steps,) average cost at that price
    cost_low: Floats  # (steps,) average cost at the lower end
    cost_high: Floats  # (steps,) average cost at the upper end


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limit:
    """One more average that an allocation must keep: latency, tokens, money.

    >>> Limit(name="seconds", costs=[1.0, 2.5], at_most=1.5).at_most
    1.5
    """

    name: str
    costs: npt.ArrayLike  # (modes,) or (problems, modes), in any order of size
    at_most: float  # the average over problems


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """What became of one limit. The table's own cost under `budget` comes first, by its unit."""

    name: str
    at_most: float
    price: float  # accuracy per unit; 0: the limit isn't binding
    cost: float  # average of the deterministic choice
    mixed_cost: float  # average with the mixed problems mixed

    @property
    def slack(self) -> float:
        """What of the limit is left unspent in expectation, 0 where it binds."""
        return max(0.0, self.at_most - self.mixed_cost)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """A mode for each problem. `choice` is deterministic and keeps the budget; arrays are read-only.

    The best deterministic choice there is lies between `accuracy` and `bound`. Mixing reaches `bound`.
    """

    budget: float  # the average cost asked for
    price: float  # accuracy per unit of cost that one more unit must buy; 0: the budget isn't binding
    choice: Ints  # (problems,) columns of the table
    mix: Mix  # what to change, and how often, so that the expected cost is the budget
    cost: float  # average of `choice`
    accuracy: float  # average of `choice`
    mixed_cost: float  # expected, with the mix
    mixed_accuracy: float  # expected, with the mix
    bound: float  # no allocation within the budget is more accurate, mixed or not
    modes: tuple[Mode, ...]
    unit: str = "samples"
    limits: tuple[LimitUse, ...] = ()  # one a limit, where there are several; the budget's first
    trace: Trace | None = None  # of a bisection

    @property
    def gap(self) -> float:
        """How far `choice` may be from the best there is: bound less accuracy."""
        return max(0.0, self.bound - self.accuracy)

    @property
    def binding(self) -> bool:
        """Whether a larger budget would buy accuracy."""
        return self.price > 0

    @property
    def counts(self) -> tuple[int, ...]:
        """How many problems have each mode, (modes,)."""
        return tuple(np.bincount(self.choice, minlength=len(self.modes)).tolist())

    def draw(self, rng: np.random.Generator) -> Ints:
        """A choice with the mixed problems drawn, (problems,): its expected cost is `mixed_cost`."""
        if not isinstance(rng, np.random.Generator):
            raise TableInvalid(f"rng {rng!r} can't draw; give np.random.default_rng(seed)")
        drawn = self.choice.copy()
        rows, which = np.unique(self.mix.problems, return_inverse=True)
        chance = rng.random(len(rows))[which]  # (moves,) one throw a problem, whatever its moves
        before = np.zeros(len(which))  # what the problem's earlier moves have taken of it
        taken = np.zeros(len(rows))
        for at, row in enumerate(which) if len(rows) < len(which) else ():
            before[at] = taken[row]
            taken[row] += self.mix.probabilities[at]
        hit = (before <= chance) & (chance < before + self.mix.probabilities)
        drawn[self.mix.problems[hit]] = self.mix.modes[hit]
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Best accuracy at every average cost: its vertices, cheapest first. Arrays are read-only.

    From vertex v - 1 to v one more unit of cost buys `price[v]` of accuracy: at any price below that and not
    below `price[v + 1]`, vertex v is the cheapest best allocation. Between vertices one problem is mixed.
    """

    cost: Floats  # (vertices,) average, rising
    accuracy: Floats  # (vertices,) average, rising
    price: Floats  # (vertices,) accuracy per unit of cost, falling; the first is infinite
    unit: str = "samples"

    def __len__(self) -> int:
        return len(self.cost)

    @overload
    def at(self, cost: float) -> float: ...
    @overload
    def at(self, cost: npt.ArrayLike) -> float | Floats: ...
    def at(self, cost: npt.ArrayLike) -> float | Floats:
        """Best accuracy at an average cost, or at many; beyond the last vertex there is no more to buy."""
        wanted = self._within(cost)
        found = np.interp(wanted, self.cost, self.accuracy)
        return float(found) if wanted.ndim == 0 else found

    @overload
    def price_at(self, cost: float) -> float: ...
    @overload
    def price_at(self, cost: npt.ArrayLike) -> float | Floats: ...
    def price_at(self, cost: npt.ArrayLike) -> float | Floats:
        """What one more unit of cost buys there; 0 beyond the last vertex."""
        wanted = self._within(cost)
        after = np.searchsorted(self.cost, wanted, side="right")
        found = np.append(self.price, 0.0)[after]
        return float(found) if wanted.ndim == 0 else found

    def _within(self, cost: npt.ArrayLike) -> Floats:
        try:
            wanted = np.asarray(cost, dtype=np.float64)
        except (TypeError, ValueError) as exc:
            raise BudgetOutOfRange(f"an average cost of {cost!r} is no number; give one") from exc
        if not (wanted >= self.cost[0] * (1 - 1e-12)).all():  # a mean may be off by rounding
            low = np.atleast_1d(wanted)[np.atleast_1d(~(wanted >= self.cost[0]))][0]
            least = at_least(float(self.cost[0]))
            raise BudgetOutOfRange(
                f"an average cost of {low} is not among those that an allocation can have "
                f"(from {least} {self.unit}); give {least} or more"
            )
        return np.asarray(np.maximum(wanted, self.cost[0]))


def at_least(value: float) -> str:
    """A number in as few digits as don't make it smaller: whoever is told to give it may give just that."""
    shown = (f"{value:.{digits}g}" for digits in range(6, 18))
    return next((text for text in shown if float(text) >= value), repr(value))
