"""The paper's classifiers on one recording: fitted on a random 80% of its problems, asked about all.

Knows nothing of tables. The same fits serve both readings: judged on all problems, those learned from
included, is what the paper does; judged on the other 20% alone is held-out. The oracle's budgets, which are
to be foretold, are those of all problems together, as in the paper: what a held-out reading sees of the
judged problems is one number, the price.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.folds import shares
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.mixing import mixed
from adacompute.policies.learners import learned
from adacompute.records import AccuracyTable
from adacompute.solve import solve

__all__ = ["Fits", "Reading", "columns", "fitted", "oracle_labels"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """One reading of the same classifiers, a value a seed, (seeds,) each."""

    accuracy: Floats
    cost: Floats  # samples on average
    imitation: Floats  # share of problems given the oracle's budget
    majority: Floats  # share that has the commonest budget of the problems learned from
    oracle: Floats  # accuracy of the oracle's budgets on the judged problems
    uniform: Floats  # accuracy of all alike at the same cost, at the best mix of two budgets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fits:
    """Classifiers for one average budget, one a seed."""

    budget: float
    price: float  # the oracle's
    model: str
    labels: Ints = field(repr=False)  # (problems,) columns of the table: the oracle's
    predicted: Ints = field(repr=False)  # (seeds, problems) columns
    train: Bools = field(repr=False)  # (seeds, problems) learned from

    def paper(self, case: Case) -> Reading:
        """Scored as the paper does: on all problems, by its windows."""
        return self._read(case.windows, np.ones_like(self.train))

    def held_out(self, case: Case) -> Reading:
        """On the problems not learned from, by all subsets of their samples."""
        return self._read(case.exact, ~self.train)

    def _read(self, table: AccuracyTable, judged: Bools) -> Reading:
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
                    mixed(table.costs, accuracy.mean(axis=0)[None], np.array([spent]))[0],
                )
            )
        found = np.array(rows, dtype=np.float64).T
        return Reading(
            accuracy=found[0],
            cost=found[1],
            imitation=found[2],
            majority=found[3],
            oracle=found[4],
            uniform=found[5],
        )


def oracle_labels(table: AccuracyTable, budget: float) -> tuple[Ints, float]:
    """The oracle's column for each problem, (problems,), and its price."""
    plan = solve(table, budget=budget)
    return np.asarray(plan.choice, dtype=np.int64), float(plan.price)


def fitted(
    case: Case, budgets: Sequence[float], *, seeds: int = 3, model: str = "xgboost", seed: int = 0
) -> dict[float, Fits]:
    """Classifiers for each average budget; the same splits for all of them."""
    rng = np.random.default_rng([seed, 0xF175])
    train = np.zeros((seeds, len(case)), dtype=bool)
    for own in train:
        own[shares(case.ballots.prompts, rng).train] = True
    found = {}
    for budget in budgets:
        labels, price = oracle_labels(case.windows, budget)
        predicted = np.stack(
            [columns(case.features, labels, own, model=model, seed=at) for at, own in enumerate(train)]
        )
        found[float(budget)] = Fits(
            budget=float(budget), price=price, model=model, labels=labels, predicted=predicted, train=train
        )
    return found


def columns(features: Floats, labels: Ints, train: Bools, *, model: str, seed: int) -> Ints:
    """What a classifier, learned from the rows in `train`, foretells for every row, (rows,)."""
    scorer, classes = learned(model, features[train], labels[train], seed=seed)
    return np.asarray(classes[scorer.best(features)], dtype=np.int64)
