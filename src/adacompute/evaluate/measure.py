"""One policy on one split: fitted and calibrated on the training problems, run on the others' paths.

Doesn't know how splits are made, nor what is told of the numbers. A dial is calibrated by cost alone, on the
training problems: no label and no sample of a judged problem is used for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.evaluate.entrants import OURS, PLAIN, Entrant, Maker, dials
from adacompute.evaluate.folds import Split
from adacompute.evaluate.foretold import Foretold, foretold
from adacompute.evaluate.remembered import swept_once
from adacompute.paths.paths import Paths, paths
from adacompute.policies.base import Policy
from adacompute.policies.confidence import confidence
from adacompute.pool import Ballots

__all__ = ["Basis", "Dialled", "Ground", "Measured", "Setup", "measure"]

Floats = npt.NDArray[np.float64]
Basis = Literal["accuracy", "agreement"]

_CALIBRATED = 10  # orders of a training problem: their cost is a mean over many problems
_MORE = 1.6  # times the largest budget: a policy that underspends must have a point above it
_LESS = 1.2  # and one below the smallest
_TOLD = 3.0  # samples on average at which policies are asked how sure they are


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setup:
    """What all policies share."""

    ballots: Ballots = field(repr=False)
    budgets: tuple[float, ...]
    weighted: bool
    orders: int
    longest: int
    seed: int
    basis: Basis
    calibrates: bool = True  # False: hulls are wanted, and no rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """The dial that meets a budget on the training problems: `second` with `probability`, else `first`."""

    first: float
    second: float
    probability: float
    reached: bool  # False: no setting of the dial costs so little, or so much


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """One policy on one split's judged problems; what isn't known is NaN."""

    cost: Floats  # (budgets, problems)
    accuracy: Floats
    waves: Floats
    tokens: Floats
    dialled: tuple[Dialled | None, ...]  # (budgets,); None: it has no dial
    point_cost: Floats  # (settings, problems)
    point_accuracy: Floats
    point_tokens: Floats
    labels: tuple[str, ...]  # (settings,)
    imitation: Floats | None = None  # (budgets, 4) of a classifier: as `imitated` gives it
    foretold: Foretold | None = None  # of a policy that says how sure it is, at about three samples


class Ground:
    """One split: the problems to learn from and the paths to judge on, the same for every policy."""

    def __init__(self, setup: Setup, split: Split, number: int) -> None:
        self.setup, self.split, self.number = setup, split, number
        self.train = setup.ballots.only(split.train)
        self.test = setup.ballots.only(split.test)
        self.weigh: Weigh | None = confidence(self.train) if setup.weighted else None
        self._kept: dict[tuple[int, Weigh | None], Paths] = {}

    def train_paths(self, weigh: Weigh | None) -> Paths:
        """To calibrate on, votes weighed as the policy does."""
        return self._paths(weigh, self.train, min(_CALIBRATED, self.setup.orders), 0)

    def test_paths(self, weigh: Weigh | None) -> Paths:
        """To judge on: the same orders whatever the weights."""
        return self._paths(weigh, self.test, self.setup.orders, 1)

    def _paths(self, weigh: Weigh | None, ballots: Ballots, orders: int, stream: int) -> Paths:
        if (stream, weigh) not in self._kept:
            rng = np.random.default_rng([self.setup.seed, self.number, stream])
            self._kept[stream, weigh] = paths(
                ballots, rng=rng, orders=orders, longest=self.setup.longest, weigh=weigh
            )
        return self._kept[stream, weigh]

    def made(self, maker: Maker, budget: float) -> Policy:
        return maker(self.train, budget=budget, weigh=self.weigh, longest=self.setup.longest)


def measure(ground: Ground, entrant: Entrant) -> Measured:
    """An entrant on one split: a row a budget, and the points of its hull."""
    policy = ground.made(entrant.maker, ground.setup.budgets[0])
    if policy.dial is None:
        return _undialled(ground, entrant, policy)
    return _with_dial(ground, policy)


def _with_dial(ground: Ground, policy: Policy) -> Measured:
    """One fit for every budget: its dial is set by the cost on the training problems."""
    setup, grid = ground.setup, dials(policy).tolist()
    judged = swept(policy, ground.test_paths(policy.weigh), grid, setup.basis)  # (4, dials, problems)
    dialled, rows = [], [judged[:, 0]]
    if setup.calibrates:
        costs = swept(policy, ground.train_paths(policy.weigh), grid, setup.basis)[0].mean(axis=1)  # (dials,)
        for budget in setup.budgets:
            at, share, reached = between(costs, budget)
            then = min(at + 1, len(grid) - 1)
            dialled.append(Dialled(first=grid[at], second=grid[then], probability=share, reached=reached))
            rows.append((1 - share) * judged[:, at] + share * judged[:, then])
    cost, accuracy, waves, tokens = np.stack(rows, axis=1)[:, 1:]
    return Measured(
        cost=cost,
        accuracy=accuracy,
        waves=waves,
        tokens=tokens,
        dialled=tuple(dialled),
        point_cost=judged[0],
        point_accuracy=judged[1],
        point_tokens=judged[3],
        labels=tuple(f"{policy.dial} {dial:.3g}" for dial in grid),
        foretold=_foretold(ground, policy, dialled),
    )


def _foretold(ground: Ground, policy: Policy, dialled: Sequence[Dialled]) -> Foretold | None:
    """What it says of its answers, at the budget next to three samples."""
    if not dialled or not (policy.kind == OURS or hasattr(policy, "foretold")):
        return None
    budgets = ground.setup.budgets
    at = min(range(len(budgets)), key=lambda k: abs(budgets[k] - _TOLD))
    dial = dialled[at].second if dialled[at].probability > 0.5 else dialled[at].first
    agrees = ground.setup.basis == "agreement"
    paths_ = ground.test_paths(policy.weigh)
    return foretold(policy, paths_, dial=dial, budget=budgets[at], agrees=agrees)


def _undialled(ground: Ground, entrant: Entrant, first: Policy) -> Measured:
    """Made anew for every budget, and for some more, so that its hull reaches them all."""
    setup = ground.setup
    others = {min(float(setup.longest), _MORE * setup.budgets[-1]), min(_LESS, setup.budgets[0])}
    if entrant.name == PLAIN:
        others = {float(count) for count in range(1, setup.longest + 1)}
    wanted = [*setup.budgets, *sorted(others - set(setup.budgets))]
    made = [first, *(ground.made(entrant.maker, budget) for budget in wanted[1:])]
    runs = [swept(policy, ground.test_paths(policy.weigh), [None], setup.basis)[:, 0] for policy in made]
    cost, accuracy, waves, tokens = np.stack(runs, axis=1)  # (settings, problems) each
    asked = len(setup.budgets)
    return Measured(
        cost=cost[:asked],
        accuracy=accuracy[:asked],
        waves=waves[:asked],
        tokens=tokens[:asked],
        dialled=(None,) * asked,
        point_cost=cost,
        point_accuracy=accuracy,
        point_tokens=tokens,
        labels=tuple(f"budget {budget:g}" for budget in wanted),
        imitation=imitated(made[:asked], ground) if setup.basis == "accuracy" else None,
    )


def imitated(made: Sequence[Policy], ground: Ground) -> Floats | None:
    """How often classifiers name the oracle's budget, and how often the commonest label is it, (budgets, 4).

    First both on the judged problems, then both on those it learned from. The oracle's budgets are those of
    all problems together; the commonest is that of the training problems.
    """
    found = []
    for classifier in made:
        if classifier.kind != "classifier":
            return None
        policy: Any = classifier
        labels = policy.labels_of(ground.setup.ballots, policy.budget_)
        test, train = labels[ground.split.test], labels[ground.split.train]
        common = np.bincount(train).argmax()
        right = [policy.predicted(ground.test) == test, test == common]
        right += [policy.predicted(ground.train) == train, train == common]
        found.append([float(one.mean()) for one in right])
    return np.array(found)


def swept(policy: Policy, paths: Paths, grid: Sequence[float | None], basis: Basis) -> Floats:
    """Mean cost, accuracy, waves and tokens of each problem at each dial, (4, dials, problems)."""
    found = swept_once(policy, paths, grid)
    right = found.accuracy if basis == "accuracy" else found.agreement
    return np.stack([found.cost, right, found.waves, found.tokens])


def between(costs: Floats, budget: float) -> tuple[int, float, bool]:
    """Where falling costs pass a budget: the place before, the share of the next one, and whether they do.

    >>> between(np.array([8.0, 4.0, 2.0, 1.0]), 3.0)
    (1, 0.5, True)
    """
    if budget >= costs[0]:
        return 0, 0.0, bool(budget == costs[0])
    if budget <= costs[-1]:
        return len(costs) - 1, 0.0, bool(budget == costs[-1])
    after = int(np.argmax(costs <= budget))  # the first that is within the budget
    return after - 1, float((costs[after - 1] - budget) / (costs[after - 1] - costs[after])), True
