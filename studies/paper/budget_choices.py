"""How the paper chooses a budget for each problem, by classifier or by rule, and what the choices are worth.

Classifiers are fitted on a random 80% of a recording's problems and asked about all of them. The same fits
serve both readings: judged on all problems, as the paper does, and on the other 20% alone, held-out. The
oracle's budgets are those of all problems together, as in the paper; all that a held-out reading sees of
the judged problems is one number, the price.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded
from adacompute.evaluate.resampling import random_split
from adacompute.evaluate.rivals import HeuristicPolicy, RandomPolicy
from adacompute.policies.baselines import FixedPolicy, OneShotPolicy
from adacompute.records import AccuracyTable
from adacompute.replay.matching import Bootstrap, Interval, make_interval
from adacompute.report.document import Spread
from adacompute.score import score
from adacompute.solve import solve
from studies.paper.learners import fit_learner
from studies.paper.paper_pool import PaperPool

__all__ = [
    "RULES",
    "ChoiceOutcome",
    "ClassifierFits",
    "FitReading",
    "JudgedTable",
    "align_budgets",
    "choose_by_rule",
    "compute_oracle_labels",
    "compute_spread",
    "fit_classifiers",
    "mix_accuracy",
    "predict_columns",
]

Floats = npt.NDArray[np.float64]


def mix_accuracy(costs: Floats, accuracy: Floats, cost: Floats) -> Floats:
    """The best accuracy of a mix of two modes at a cost, (n,); accuracies are (n, modes), costs rise.

    It matters at about 2 samples: where every sample has an answer, two votes are right as often as
    one, so a mix of 1 and 4 samples may buy more than 2 for all.

    >>> costs, accuracy = np.array([1.0, 2.0, 4.0]), np.array([[0.5, 0.5, 0.8]])
    >>> mix_accuracy(costs, accuracy, np.array([2.0])).round(3).tolist()
    [0.6]
    """
    cost = np.maximum(cost, costs[0])  # a mean of 1 may come out a rounding below it
    best = np.full(len(cost), -np.inf)
    for low in range(len(costs)):
        for high in range(low, len(costs)):
            share = (cost - costs[low]) / max(costs[high] - costs[low], 1e-300)
            value = accuracy[:, low] + np.clip(share, 0.0, 1.0) * (accuracy[:, high] - accuracy[:, low])
            best = np.where(costs[low] <= cost, np.maximum(best, value), best)
    return best


def align_budgets(cases: Sequence[PaperPool]) -> tuple[PaperPool, ...]:
    """Score the recordings at the budgets that all of them have."""
    if not cases:
        raise NotRecorded("no recording was given; give one or more")
    budgets = min((case.budgets for case in cases), key=len)
    return tuple(
        case
        if case.budgets == budgets
        else replace(
            case,
            budgets=budgets,
            windows=score(case.ballots, budgets, estimator="windows"),
            exact=score(case.ballots, budgets),
        )
        for case in cases
    )


Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitReading:
    """One reading of the same classifiers; each field has one value per seed, (seeds,)."""

    accuracy: Floats
    cost: Floats  # samples on average
    imitation: Floats  # share of problems given the oracle's budget
    majority: Floats  # share that has the commonest budget of the problems learned from
    oracle: Floats  # accuracy of the oracle's budgets on the judged problems
    uniform: Floats  # accuracy of uniform at the same cost, at the best mix of two budgets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassifierFits:
    """Classifiers for one average budget, one per seed."""

    budget: float
    price: float  # the oracle's
    model: str
    labels: Ints = field(repr=False)  # (problems,) columns of the table: the oracle's
    predicted: Ints = field(repr=False)  # (seeds, problems) columns
    train: Bools = field(repr=False)  # (seeds, problems) learned from

    def paper(self, case: PaperPool) -> FitReading:
        """Scored as the paper does: on all problems, by its windows."""
        return self._score(case.windows, np.ones_like(self.train))

    def held_out(self, case: PaperPool) -> FitReading:
        """On the problems not learned from, by all subsets of their samples."""
        return self._score(case.exact, ~self.train)

    def _score(self, table: AccuracyTable, judged: Bools) -> FitReading:
        rows = []
        for predicted, here, train in zip(self.predicted, judged, self.train, strict=True):
            at = np.flatnonzero(here)
            accuracy, cost = table.accuracy[at], table.cost_matrix[at]
            spent = float(np.take_along_axis(cost, predicted[at, None], axis=1).mean())
            common = np.bincount(self.labels[train]).argmax()
            rows.append(
                (
                    np.take_along_axis(accuracy, predicted[at, None], axis=1).mean(),
                    spent,
                    (predicted[at] == self.labels[at]).mean(),
                    (self.labels[at] == common).mean(),
                    np.take_along_axis(accuracy, self.labels[at, None], axis=1).mean(),
                    mix_accuracy(table.costs, accuracy.mean(axis=0)[None], np.array([spent]))[0],
                )
            )
        columns = np.array(rows, dtype=np.float64).T
        return FitReading(
            accuracy=columns[0],
            cost=columns[1],
            imitation=columns[2],
            majority=columns[3],
            oracle=columns[4],
            uniform=columns[5],
        )


def compute_oracle_labels(table: AccuracyTable, budget: float) -> tuple[Ints, float]:
    """Compute the oracle's column for each problem, (problems,), and its price."""
    plan = solve(table, budget=budget)
    return np.asarray(plan.choice, dtype=np.int64), float(plan.price)


def fit_classifiers(
    case: PaperPool, budgets: Sequence[float], *, seeds: int = 3, model: str = "xgboost", seed: int = 0
) -> dict[float, ClassifierFits]:
    """Fit classifiers for each average budget, with the same splits for all of them."""
    rng = np.random.default_rng([seed, 0xF175])
    train = np.zeros((seeds, len(case)), dtype=bool)
    for own in train:
        own[random_split(case.ballots.prompts, rng).train] = True
    fits_by_budget = {}
    for budget in budgets:
        labels, price = compute_oracle_labels(case.windows, budget)
        predicted = np.stack(
            [
                predict_columns(case.features, labels, own, model=model, seed=at)
                for at, own in enumerate(train)
            ]
        )
        fits_by_budget[float(budget)] = ClassifierFits(
            budget=float(budget), price=price, model=model, labels=labels, predicted=predicted, train=train
        )
    return fits_by_budget


def predict_columns(features: Floats, labels: Ints, train: Bools, *, model: str, seed: int) -> Ints:
    """Predict the column of every row, (rows,), with a classifier learned from the rows in `train`."""
    predict = fit_learner(model, features[train], labels[train], seed=seed)
    return np.asarray(predict(features), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceOutcome:
    """One way to decide: its accuracy and cost by seed, and over all seeds together."""

    accuracy: Floats  # (seeds,)
    cost: Floats  # (seeds,) samples on average
    interval: Interval  # accuracy of all seeds together, over problems
    spent: float  # samples on average, all seeds together
    alike: float  # accuracy of uniform at `spent`, at the best mix of two budgets
    gain: Interval  # over that, problems and samples spent drawn again together
    dealt: float  # accuracy of the same budgets given at random, as many of each
    knowing: Interval  # over that: what is gained by who gets them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedTable:
    """A table, which problems are judged on it under each seed, and the bootstrap of all intervals.

    A problem may be judged under several seeds, or under none: it counts as often as it is judged,
    and is drawn as a whole where an interval over problems is computed.
    """

    table: AccuracyTable = field(repr=False)  # (problems, budgets), costs the same for every problem
    mask: Bools = field(repr=False)  # (seeds, problems)
    draws: Bootstrap = field(repr=False)  # of the problems that are judged at all

    @classmethod
    def of(cls, table: AccuracyTable, mask: Bools) -> "JudgedTable":
        """With draws of its own; the same each time."""
        return cls(table=table, mask=mask, draws=Bootstrap.of(int(mask.any(axis=0).sum())))

    def mean_by_seed(self, values: Floats) -> Floats:
        """The mean of each seed, (seeds,) of (seeds, problems)."""
        return np.asarray((values * self.mask).sum(axis=1) / self.mask.sum(axis=1))

    def interval_over_problems(self, values: Floats) -> Interval:
        """The mean of (seeds, problems) over all that is judged, with its interval over problems."""
        mean, draws = self._means((values * self.mask).sum(axis=0)[:, None])
        return make_interval(float(mean[0]), draws[:, 0] if draws is not None else None)

    def compute_outcome(self, columns: Ints) -> ChoiceOutcome:
        """What budgets bring, (seeds, problems) columns of the table."""
        rows, modes = np.arange(columns.shape[1]), len(self.table.modes)
        accuracy, cost = self.table.accuracy[rows, columns], self.table.costs[columns]
        given = (columns[:, :, None] == np.arange(modes)) & self.mask[:, :, None]
        parts = [(values * self.mask).sum(axis=0)[:, None] for values in (accuracy, cost)]
        parts += [given.sum(axis=0), self.table.accuracy * self.mask.sum(axis=0)[:, None]]
        mean, draws = self._means(np.hstack(parts))
        alike, dealt = (float(value[0]) for value in self._compute_random(mean[None]))
        each = (
            (None, None) if draws is None else tuple(draws[:, 0] - lot for lot in self._compute_random(draws))
        )
        return ChoiceOutcome(
            accuracy=self.mean_by_seed(accuracy),
            cost=self.mean_by_seed(cost),
            interval=make_interval(float(mean[0]), None if draws is None else draws[:, 0]),
            spent=float(mean[1]),
            alike=alike,
            gain=make_interval(float(mean[0]) - alike, each[0]),
            dealt=dealt,
            knowing=make_interval(float(mean[0]) - dealt, each[1]),
        )

    def _compute_random(self, means: Floats) -> tuple[Floats, Floats]:
        """The accuracy of uniform at the same cost, and of the same budgets given at random, (n,) each."""
        modes = len(self.table.modes)
        shares, accuracy = means[:, 2 : 2 + modes], means[:, 2 + modes :]
        return mix_accuracy(self.table.costs, accuracy, means[:, 1]), np.asarray(
            (shares * accuracy).sum(axis=1)
        )

    def _means(self, sums: Floats) -> tuple[Floats, Floats | None]:
        """Means over all that is judged of sums over seeds, (problems, kinds): (kinds,), (draws, kinds)."""
        times = self.mask.sum(axis=0)
        here = times > 0
        mean = sums[here].sum(axis=0) / times[here].sum()
        if here.sum() < 2:
            return mean, None
        shares = self.draws.shares
        return mean, np.asarray((shares @ sums[here]) / (shares @ times[here])[:, None])


def compute_spread(values: Floats) -> Spread:
    """Mean and standard deviation over seeds, (seeds,); the deviation of a single seed is given as 0.

    >>> compute_spread(np.array([1.0, 2.0, 3.0]))
    Spread(mean=2.0, std=1.0)
    """
    return Spread(mean=float(values.mean()), std=float(values.std(ddof=1)) if len(values) > 1 else 0.0)


Rule = Literal["fixed", "random", "heuristic"]
RULES: tuple[Rule, ...] = ("fixed", "random", "heuristic")


def choose_by_rule(case: PaperPool, rule: Rule, budget: float, *, seen: Bools) -> Ints:
    """Choose each problem's column of the case's table by a rule, (seeds, problems).

    The heuristic takes its cuts from the prompts in `seen`, (seeds, problems); random choices differ
    by seed. The rules are the policies of the same names.
    """
    prompts, modes = case.ballots.prompts, np.asarray(case.budgets)
    rows = [_build_rule(case, rule, budget, own, at).read(prompts)[:, 0] for at, own in enumerate(seen)]
    return np.asarray(np.searchsorted(modes, np.stack(rows)), dtype=np.int64)


def _build_rule(case: PaperPool, rule: Rule, budget: float, seen: Bools, seed: int) -> OneShotPolicy:
    longest = case.budgets[-1]
    if rule == "fixed":
        return FixedPolicy(budget, budgets=case.budgets, longest=longest)
    if rule == "random":
        return RandomPolicy(budget, seed=seed, budgets=case.budgets, longest=longest)
    policy = HeuristicPolicy(budget, budgets=case.budgets, longest=longest)
    return policy.fit(case.ballots.only(np.flatnonzero(seen)))
