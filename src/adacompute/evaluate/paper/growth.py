"""What must be recorded: held-out accuracy by problems learned from, and by samples of each.

Knows nothing of drawing. The paper asks how much the classifier gains as it learns from more; it scores it on
what it learned from. Here every problem is judged by what was learned from the other half of them, at exactly
the same average cost, and priced stopping stands beside the classifier: it begins with its bundled prior,
which has seen no problem of this recording.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.evaluate.bootstrap import Bootstrap, Interval
from adacompute.evaluate.folds import Split, kfold
from adacompute.evaluate.matched import Points, matched
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.prepare import weighable
from adacompute.evaluate.remembered import swept_once
from adacompute.paths.paths import Paths, paths
from adacompute.policies.base import Policy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.confidence import confidence
from adacompute.policies.oneshot import FixedPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots

__all__ = ["PROBLEMS", "SAMPLES", "Amount", "Growth", "growth"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PROBLEMS = (25, 50, 100, 200)  # learned from; and none, and all there are
SAMPLES = (8, 16, 32)  # of each problem; and all there are
ORDERS = 10  # of a judged problem's samples
_BUDGETS = (3.0, 2.0, 1.5)  # samples on average: the first that the recording allows
_LONGEST = 16
_FEW = 25  # problems: which ones matters most here, so two lots of them are learned from
_SAME = 1.6  # all there are, where that is not so many times the number before
_ACROSS = 50  # problems that the number of samples is varied with
_PRICES = (0.0, *np.geomspace(0.004, 0.3, 14).tolist(), 1.1)
_DEARER = 1.6  # times the budget: a classifier that underspends must have a point above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """One policy, learned from so much."""

    policy: str
    problems: int  # learned from; 0: the bundled prior as it is
    samples: int  # recorded of each
    cost: float  # samples on average: the budget, or less where it can't spend it
    accuracy: Interval  # held-out
    gain: Interval  # over all alike at the same cost, problem by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Both policies by what was recorded."""

    budget: float  # samples on average, met exactly
    uniform: Interval  # accuracy of all alike
    by_problems: tuple[Amount, ...]  # with all samples of each
    by_samples: tuple[Amount, ...]  # with `across` problems
    across: int
    most: int  # samples recorded of each
    weighted: bool  # votes were, by confidence
    orders: int

    def of(self, policy: str, *, by: str) -> tuple[Amount, ...]:
        """One policy's amounts, by "problems" or "samples", rising."""
        found = self.by_problems if by == "problems" else self.by_samples
        return tuple(one for one in found if one.policy == policy)


def growth(
    case: Case,
    *,
    problems: Sequence[int] = PROBLEMS,
    samples: Sequence[int] = SAMPLES,
    cap: int | None = None,
    orders: int = ORDERS,
    seed: int = 0,
) -> Growth:
    """Stopping and the classifier, learned from more and more of one half and judged on the other.

    With a `cap`, from no more than so many problems, which is quicker.
    """
    ballots = case.ballots
    most = int(ballots.drawn.min())
    longest = min(_LONGEST, most)
    budget = next((one for one in _BUDGETS if one < longest), _BUDGETS[-1])
    rng = np.random.default_rng([seed, 0x6507])
    weighted = weighable(ballots, "auto")
    halves = [
        _Half(ballots, split, rng, weighted=weighted, orders=orders, longest=longest)
        for split in kfold(ballots.prompts, 2, rng)
    ]
    there = min(cap or len(ballots), *(len(half.train) for half in halves))
    sizes = [*(size for size in problems if size * _SAME <= there), there]
    across = max((size for size in sizes if size <= _ACROSS), default=there)
    cuts = [cut for cut in samples if 2 <= cut < most and cut > budget]
    found = _Found(halves, budget, Bootstrap.of(len(ballots)))
    by_problems = [found.amount("stopping", 0, most)]
    for policy in _MAKERS:
        by_problems += [found.amount(policy, size, most) for size in sizes]
    by_samples = [found.amount(policy, across, cut) for policy in _MAKERS for cut in (*cuts, most)]
    return Growth(
        budget=budget,
        uniform=found.draws.interval(found.alike(budget)),
        by_problems=tuple(by_problems),
        by_samples=tuple(by_samples),
        across=across,
        most=most,
        weighted=weighted,
        orders=orders,
    )


class _Half:
    """Problems to judge, and the others, in the order in which they are taken to learn from."""

    def __init__(
        self,
        ballots: Ballots,
        split: Split,
        rng: np.random.Generator,
        *,
        weighted: bool,
        orders: int,
        longest: int,
    ) -> None:
        self.all, self.test, self.longest = ballots, split.test, longest
        self.weighted = weighted
        self.train: Ints = rng.permutation(split.train)
        self._judged, self._orders, self._seed = ballots.only(split.test), orders, int(rng.integers(2**31))
        self._kept: dict[Weigh | None, Paths] = {}

    def learned_from(self, problems: int, samples: int, lot: int) -> Ballots:
        """So many problems, with the first so many samples of each."""
        rows = np.sort(self.train[lot * problems : (lot + 1) * problems])
        return _cut(self.all.only(rows), samples)

    def points(self, policies: Sequence[Policy], dials: Sequence[float | None]) -> tuple[Floats, Floats]:
        """Cost and accuracy of each policy at each dial on the judged problems, (settings, judged) both."""
        found = [swept_once(policy, self.paths(policy.weigh), dials) for policy in policies]
        return np.concatenate([one.cost for one in found]), np.concatenate([one.accuracy for one in found])

    def paths(self, weigh: Weigh | None) -> Paths:
        """The same orders whatever the weights."""
        if weigh not in self._kept:
            rng = np.random.default_rng(self._seed)
            self._kept = {
                weigh: paths(self._judged, rng=rng, orders=self._orders, longest=self.longest, weigh=weigh)
            }
        return self._kept[weigh]

    @property
    def weigh(self) -> Weigh | None:
        """How those weigh votes that learn nothing else."""
        return confidence(self.all.only(self.train)) if self.weighted else None


@dataclass(frozen=True, slots=True)
class _Made:
    """A policy, learned from so much of a half."""

    policy: str
    budget: float
    problems: int
    samples: int
    lot: int

    def __call__(self, half: _Half) -> tuple[Floats, Floats]:
        learned = half.learned_from(self.problems, self.samples, self.lot)
        return _MAKERS[self.policy](half, self.budget, learned)


class _Found:
    """Amounts, each found once."""

    def __init__(self, halves: Sequence[_Half], budget: float, draws: Bootstrap) -> None:
        self.halves, self.budget, self.draws = halves, budget, draws
        self._known: dict[tuple[str, int, int], Amount] = {}
        self._uniform = self._pooled(_alike)

    def alike(self, cost: float) -> Floats:
        """Each problem's part in the accuracy of all alike at an average cost, (problems,)."""
        found = matched(self._uniform, cost)
        assert found is not None  # a cost is 1 or more, and one sample is among the settings
        return found.each

    def amount(self, policy: str, problems: int, samples: int) -> Amount:
        """A policy learned from so much, at the budget."""
        key = (policy, problems, samples)
        if key not in self._known:
            self._known[key] = self._amount(*key)
        return self._known[key]

    def _amount(self, policy: str, problems: int, samples: int) -> Amount:
        there = min(len(half.train) for half in self.halves)
        lots = 2 if 0 < problems <= _FEW and 2 * problems <= there else 1
        runs = [self._pooled(_Made(policy, self.budget, problems, samples, lot)) for lot in range(lots)]
        points = Points(
            cost=np.mean([run.cost for run in runs], axis=0),
            accuracy=np.mean([run.accuracy for run in runs], axis=0),
        )
        found = matched(points, self.budget)
        assert found is not None
        return Amount(
            policy=policy,
            problems=problems,
            samples=samples,
            cost=found.cost,
            accuracy=self.draws.interval(found.each),
            gain=self.draws.difference(found.each, self.alike(max(1.0, found.cost))),
        )

    def _pooled(self, points: Callable[[_Half], tuple[Floats, Floats]]) -> Points:
        """Each problem's numbers are of the half that it was judged in."""
        parts = [points(half) for half in self.halves]
        whole = np.empty((2, len(parts[0][0]), sum(len(half.test) for half in self.halves)))
        for half, part in zip(self.halves, parts, strict=True):
            whole[:, :, half.test] = part
        return Points(cost=whole[0], accuracy=whole[1])


def _alike(half: _Half) -> tuple[Floats, Floats]:
    counts = range(1, half.longest + 1)
    made = [FixedPolicy(float(n), budgets=counts, longest=half.longest, weigh=half.weigh) for n in counts]
    return half.points(made, [None])


def _stopping(half: _Half, budget: float, learned: Ballots) -> tuple[Floats, Floats]:  # noqa: ARG001
    longest = min(half.longest, int(learned.drawn.min(initial=half.longest)))
    policy = StoppingPolicy(weigh="auto" if half.weighted else None, longest=longest).without(half.all)
    return half.points([policy.fit(learned) if len(learned) else policy], _PRICES)


def _classifier(half: _Half, budget: float, learned: Ballots) -> tuple[Floats, Floats]:
    longest = min(half.longest, int(learned.drawn.min()))
    weigh = confidence(learned) if half.weighted else None
    one: Policy = FixedPolicy(1.0, longest=longest, weigh=weigh)
    made = [
        ClassifierPolicy(longest=longest, weigh=weigh).fit(learned, budget=min(asked, float(longest)))
        for asked in (budget, _DEARER * budget)
    ]
    return half.points([one, *made], [None])


_MAKERS: dict[str, Callable[[_Half, float, Ballots], tuple[Floats, Floats]]] = {
    "stopping": _stopping,
    "classifier": _classifier,
}


def _cut(ballots: Ballots, samples: int) -> Ballots:
    """The first so many samples of each problem."""
    names = ("classes", "correct", "tokens", "logprob", "entropy")
    return replace(ballots, **{name: getattr(ballots, name)[:, :samples] for name in names})
