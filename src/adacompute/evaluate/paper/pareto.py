"""Accuracy against average budget on a dense grid, from 1 sample to the most there are. Knows no drawing.

Rules and oracle stand at every budget of the grid, the classifier at every second one: there it is fitted
once a fold, so that held-out each problem is judged once, by a classifier that never saw its question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.folds import kfold
from adacompute.evaluate.oracle import crossfitted
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import columns, oracle_labels
from adacompute.evaluate.paper.judged import Judged, Outcome
from adacompute.evaluate.paper.main import halves_of
from adacompute.evaluate.paper.mixing import mixed
from adacompute.evaluate.paper.rules import RULES, ruled
from adacompute.records import AccuracyTable
from adacompute.solve import solve

__all__ = ["Curve", "Pareto", "Taught", "folded", "log_spaced", "pareto"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STEPS, _QUICK_STEPS = 24, 10  # of the grid; even, so that every second budget reaches its end
_FOLDS, _QUICK_FOLDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """One way to decide, at some budgets of the grid."""

    budget: Floats  # (points,) asked for
    cost: Floats  # (points,) samples spent on average
    accuracy: Floats  # (points,)
    gain: tuple[Interval, ...] = ()  # (points,) over all alike at the same cost; (): not told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pareto:
    """Every way to decide, in both readings."""

    name: str
    grid: Floats  # (budgets,) average budgets, log-spaced
    modes: tuple[int, ...]  # numbers of samples that may be chosen
    problems: int
    folds: int
    paper: Mapping[str, Curve] = field(repr=False)  # by method: fixed, random, heuristic, classifier, oracle
    held_out: Mapping[str, Curve] = field(repr=False)  # the same; "uniform"; "crossfitted" if it can be told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taught:
    """Classifiers of one average budget, one a fold."""

    budget: float
    labels: Ints = field(repr=False)  # (problems,) columns: the oracle's
    predicted: Ints = field(repr=False)  # (folds, problems) columns
    train: Bools = field(repr=False)  # (folds, problems) learned from


def pareto(case: Case, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Pareto:
    """Frontiers of one recording."""
    steps = _QUICK_STEPS if quick else _STEPS
    grid = log_spaced(case.budgets[-1], steps)
    folds = _QUICK_FOLDS if quick else _FOLDS
    taught = folded(case, case.windows, grid[::2], folds=folds, model=model, seed=seed)
    train = taught[0].train
    as_paper = Judged.of(case.windows, np.ones_like(train))
    held_out = Judged.of(case.exact, ~train)
    return Pareto(
        name=case.name,
        grid=grid,
        modes=case.budgets,
        problems=len(case),
        folds=len(train),
        paper=_curves(case, as_paper, grid, taught, seen=as_paper.mask),
        held_out=_curves(case, held_out, grid, taught, seen=train)
        | {"uniform": _uniform(case.exact, grid)}
        | _crossfitted(case, grid),
    )


def log_spaced(most: float, steps: int) -> Floats:
    """Average budgets from 1 to `most`, (steps + 1,), each the same multiple of the one before.

    >>> log_spaced(16, 4).tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0]
    """
    return np.round(np.geomspace(1.0, most, steps + 1), 9)  # 8 itself, not a rounding below it


def folded(
    case: Case, table: AccuracyTable, budgets: Sequence[float] | Floats, *, folds: int, model: str, seed: int
) -> tuple[Taught, ...]:
    """Classifiers of the oracle's budgets by `table`, for each average budget, the same folds for all."""
    rng = np.random.default_rng([seed, 0xFA1D])
    prompts = case.ballots.prompts
    train = np.zeros((min(folds, len(set(prompts))), len(case)), dtype=bool)
    for own, split in zip(train, kfold(prompts, len(train), rng), strict=True):
        own[split.train] = True
    found: list[Taught] = []
    for budget in budgets:
        labels, _ = oracle_labels(table, float(budget))
        if found and np.array_equal(labels, found[-1].labels):  # an oracle that wants no more
            predicted = found[-1].predicted
        else:
            each = [columns(case.features, labels, own, model=model, seed=at) for at, own in enumerate(train)]
            predicted = np.stack(each)
        found.append(Taught(budget=float(budget), labels=labels, predicted=predicted, train=train))
    return tuple(found)


def _curves(
    case: Case, judged: Judged, grid: Floats, taught: Sequence[Taught], *, seen: Bools
) -> dict[str, Curve]:
    found = {}
    for rule in RULES:
        outcomes = [judged.outcome(ruled(case, rule, float(budget), seen=seen)) for budget in grid]
        found[rule] = _curve(grid, outcomes)
    known = [judged.outcome(own.predicted) for own in taught]
    return found | {
        "classifier": _curve(np.array([own.budget for own in taught]), known, gains=True),
        "oracle": _oracle(judged.table, grid),
    }


def _curve(budgets: Floats, outcomes: Sequence[Outcome], *, gains: bool = False) -> Curve:
    return Curve(
        budget=budgets,
        cost=np.array([outcome.spent for outcome in outcomes]),
        accuracy=np.array([outcome.interval.mean for outcome in outcomes]),
        gain=tuple(outcome.gain for outcome in outcomes) if gains else (),
    )


def _oracle(table: AccuracyTable, grid: Floats) -> Curve:
    plans = [solve(table, budget=float(budget)) for budget in grid]
    return Curve(
        budget=grid,
        cost=np.array([plan.mixed_cost for plan in plans]),
        accuracy=np.array([plan.mixed_accuracy for plan in plans]),
    )


def _uniform(table: AccuracyTable, grid: Floats) -> Curve:
    """All alike, at the best mix of two budgets."""
    accuracy = np.repeat(table.accuracy.mean(axis=0)[None], len(grid), axis=0)
    return Curve(budget=grid, cost=grid, accuracy=mixed(table.costs, accuracy, grid))


def _crossfitted(case: Case, grid: Floats) -> dict[str, Curve]:
    pairs = halves_of(case)
    if not pairs:
        return {}
    told = [crossfitted(pairs, budget=float(budget)) for budget in grid]
    return {
        "crossfitted": Curve(
            budget=grid,
            cost=np.array([one.cost for one in told]),
            accuracy=np.array([one.accuracy.mean for one in told]),
        )
    }
