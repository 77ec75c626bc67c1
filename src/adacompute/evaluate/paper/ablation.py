"""Five learners of the oracle's budgets, side by side, each on the same splits. Knows nothing of drawing.

Rows are problems at each average budget, of one recording or several: what one of the 16 features would have
to tell, the average budget itself, isn't among them. So they can be split in two ways. At random, as the
paper must have done: then most questions stand on both sides, at another budget. Or by question: held-out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.exhibits import Spread
from adacompute.evaluate.folds import shares
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import oracle_labels
from adacompute.evaluate.paper.mixing import mixed
from adacompute.evaluate.paper.search import TARGETS, reachable
from adacompute.evaluate.paper.together import together
from adacompute.policies.learners import LEARNERS, Learner, learned, network
from adacompute.solve.theory import net_values

__all__ = ["MODELS", "READINGS", "STEPS", "Ablation", "Outcome", "Points", "ablation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

READINGS = ("scored as the paper does", "held-out")
STEPS = 200  # rounds of the MLP, scikit-learn's own default: as served it may take 1,000, and then overfits
MODELS: dict[str, str] = {  # the paper's order, and its names
    "logistic": "logistic regression",
    "svm": "SVM (RBF)",
    "forest": "random forest",
    "mlp": "MLP (64)",
    "xgboost": "boosted trees",
}
_LEARNERS: dict[str, Learner] = {**LEARNERS, "mlp": partial(network, steps=STEPS)}
_TRAIN = 0.8
_SLIP = 1e-12  # rounding errors are no breach of a bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """One learner in one reading, over splits."""

    model: str  # of MODELS
    reading: str  # of READINGS
    accuracy: Spread
    gap: Spread  # of the oracle over it, on the judged rows
    imitation: Spread
    majority: Spread  # share of judged rows that have the commonest budget of those learned from
    cost: Spread  # samples on average
    uniform: Spread  # accuracy of all alike at the same cost
    by_case: tuple[Spread, ...]  # (cases,) accuracy on each recording's judged rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """The regret bound's quantities in one reading, a point a split and learner, (points,) each.

    By the table that the oracle's budgets were told from, in both readings: the theorem speaks of that one.
    """

    reading: str
    model: tuple[str, ...]
    error: Floats  # ε: share of judged rows that aren't given the oracle's budget
    task: Floats  # regret in accuracy: the oracle's less the learner's
    relaxed: Floats  # regret in net value, each row at its own price


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ablation:
    """All learners in both readings."""

    cases: tuple[str, ...]
    targets: tuple[float, ...]  # average budgets
    budgets: tuple[int, ...]
    rows: int
    splits: int
    outcomes: tuple[Outcome, ...]  # readings × models
    points: tuple[Points, ...]  # (readings,)
    mean_gap: float  # of M over all rows, which the paper takes for the bound's factor
    worst_gap: float  # the largest M, which the theorem has
    confusion: Floats = field(repr=False)  # (readings, budgets, budgets) counts of oracle by boosted trees

    def of(self, model: str, reading: str) -> Outcome:
        """One learner in one reading."""
        return next(one for one in self.outcomes if (one.model, one.reading) == (model, reading))

    def best(self, reading: str) -> Outcome:
        """The learner with the highest accuracy in one reading."""
        return max(
            (one for one in self.outcomes if one.reading == reading), key=lambda one: one.accuracy.mean
        )

    def above(self, which: str, *, of: str) -> int:
        """How many points lie above a line: `which` regret, task or relaxed, over ε times mean or worst M."""
        slope = self.mean_gap if of == "mean" else self.worst_gap
        return sum(int((getattr(some, which) > slope * some.error + _SLIP).sum()) for some in self.points)

    @property
    def normalised(self) -> Floats:
        """The confusion matrices, each row adding up to 1, (readings, budgets, budgets); NaN: no such row."""
        size = self.confusion.sum(axis=2, keepdims=True)
        return np.asarray(np.where(size > 0, self.confusion / np.maximum(size, 1), np.nan))

    @property
    def slope(self) -> float:
        """Task regret per unit of ε, over all points: the line through 0 that fits them best."""
        error = np.concatenate([some.error for some in self.points])
        task = np.concatenate([some.task for some in self.points])
        return float((error * task).sum() / max(float((error**2).sum()), _SLIP))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Every problem at every average budget."""

    features: Floats  # (rows, features)
    labels: Ints  # (rows,) columns
    windows: Floats  # (rows, budgets) accuracy
    exact: Floats  # (rows, budgets)
    net: Floats  # (rows, budgets) net values by the windows, at the row's own price
    owner: Ints  # (rows,) the case
    prompts: tuple[str, ...]  # (rows,)
    costs: Floats  # (budgets,)


def ablation(
    cases: Sequence[Case],
    *,
    targets: Sequence[float] = TARGETS,
    splits: int = 10,
    seed: int = 0,
) -> Ablation:
    """Learners on all recordings together, at the budgets that they share."""
    cases = together(cases)
    budgets, kept = cases[0].budgets, reachable(cases[0], targets)
    if not kept:
        raise TooFewSamples(
            f"no average budget of {', '.join(f'{one:g}' for one in targets)} can be reached with "
            f"{budgets[-1]} samples; collect more samples of every problem"
        )
    rows = _rows(cases, kept)
    outcomes: list[Outcome] = []
    points: list[Points] = []
    confusion = np.zeros((len(READINGS), len(budgets), len(budgets)))
    for at, reading in enumerate(READINGS):
        rng = np.random.default_rng([seed, 0xAB1A, at])
        found = []
        for number in range(splits):
            train = _at_random(rows.labels, rng) if at == 0 else _by_question(rows.prompts, rng)
            found.append({name: _one(rows, train, name, seed=number) for name in MODELS})
        outcomes += [_outcome(rows, [one[name] for one in found], name, at, cases) for name in MODELS]
        points.append(_points(rows, found, reading))
        for one in found:
            judged, predicted = one["xgboost"].judged, one["xgboost"].predicted
            np.add.at(confusion[at], (rows.labels[judged], predicted), 1)
    gaps = np.take_along_axis(rows.net, rows.labels[:, None], axis=1)[:, 0] - rows.net.min(axis=1)
    return Ablation(
        cases=tuple(case.name for case in cases),
        targets=kept,
        budgets=budgets,
        rows=len(rows.labels),
        splits=splits,
        outcomes=tuple(outcomes),
        points=tuple(points),
        mean_gap=float(gaps.mean()),
        worst_gap=float(gaps.max()),
        confusion=confusion,
    )


def _rows(cases: Sequence[Case], targets: Sequence[float]) -> _Rows:
    parts: list[tuple[Floats, Ints, Floats, Floats, Floats, Ints]] = []
    most = max(case.features.shape[1] for case in cases)
    for at, case in enumerate(cases):
        features = np.full((len(case), most), np.nan)  # NaN: an entropy that this recording doesn't have
        features[:, : case.features.shape[1]] = case.features
        for target in targets:
            labels, price = oracle_labels(case.windows, target)
            parts.append(
                (
                    features,
                    labels,
                    case.windows.accuracy,
                    case.exact.accuracy,
                    net_values(case.windows, price),
                    np.full(len(case), at, dtype=np.int64),
                )
            )
    features, labels, windows, exact, net, owner = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _Rows(
        features=features,
        labels=labels,
        windows=windows,
        exact=exact,
        net=net,
        owner=owner,
        prompts=tuple(prompt for case in cases for _ in targets for prompt in case.ballots.prompts),
        costs=np.asarray(cases[0].windows.costs, dtype=np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """What one learner says of the rows it hasn't learned from."""

    judged: Ints  # (judged,) rows
    predicted: Ints  # (judged,) columns
    common: int  # the commonest column of the rows learned from


def _one(rows: _Rows, train: Bools, name: str, *, seed: int) -> _Judged:
    scorer, classes = learned(_LEARNERS[name], rows.features[train], rows.labels[train], seed=seed)
    judged = np.flatnonzero(~train)
    return _Judged(
        judged=judged,
        predicted=np.asarray(classes[scorer.best(rows.features[judged])], dtype=np.int64),
        common=int(np.bincount(rows.labels[train]).argmax()),
    )


def _at_random(labels: Ints, rng: np.random.Generator) -> Bools:
    """Four fifths of the rows of each label: the paper's always-1 learner imitates at ± 0.000."""
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        train[own[: max(1, round(_TRAIN * len(own)))]] = True
    if train.all():  # few rows, each a label of its own
        train[rng.integers(len(train))] = False
    return train


def _by_question(prompts: Sequence[str], rng: np.random.Generator) -> Bools:
    train = np.zeros(len(prompts), dtype=bool)
    train[shares(prompts, rng, train=_TRAIN).train] = True
    return train


def _outcome(rows: _Rows, found: Sequence[_Judged], name: str, at: int, cases: Sequence[Case]) -> Outcome:
    accuracy = rows.windows if at == 0 else rows.exact
    values, by_case = [], []
    for one in found:
        here, labels = accuracy[one.judged], rows.labels[one.judged]
        got = np.take_along_axis(here, one.predicted[:, None], axis=1)[:, 0]
        oracle = np.take_along_axis(here, labels[:, None], axis=1)[:, 0]
        cost = rows.costs[one.predicted].mean()
        uniform = mixed(rows.costs, here.mean(axis=0)[None], np.array([cost]))[0]
        imitation, majority = (one.predicted == labels).mean(), (labels == one.common).mean()
        values.append((got.mean(), (oracle - got).mean(), imitation, majority, cost, uniform))
        owner = rows.owner[one.judged]
        by_case.append(
            [got[owner == own].mean() if (owner == own).any() else np.nan for own in range(len(cases))]
        )
    spreads = [_spread(column) for column in np.array(values, dtype=np.float64).T]
    return Outcome(
        model=name,
        reading=READINGS[at],
        accuracy=spreads[0],
        gap=spreads[1],
        imitation=spreads[2],
        majority=spreads[3],
        cost=spreads[4],
        uniform=spreads[5],
        by_case=tuple(_spread(column) for column in np.array(by_case, dtype=np.float64).T),
    )


def _points(rows: _Rows, found: Sequence[dict[str, _Judged]], reading: str) -> Points:
    names, values = [], []
    for split in found:
        for name, one in split.items():
            labels, at = rows.labels[one.judged], one.judged
            task = rows.windows[at, labels] - rows.windows[at, one.predicted]
            relaxed = rows.net[at, labels] - rows.net[at, one.predicted]
            names.append(name)
            values.append(((one.predicted != labels).mean(), task.mean(), relaxed.mean()))
    error, task, relaxed = np.array(values, dtype=np.float64).T
    return Points(reading=reading, model=tuple(names), error=error, task=task, relaxed=relaxed)


def _spread(values: Floats) -> Spread:
    """Over splits; splits that have no such row don't count."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Spread(mean=float("nan"), std=float("nan"))
    return Spread(mean=float(known.mean()), std=float(known.std(ddof=1)) if len(known) > 1 else 0.0)
