"""How many labelled problems the paper's classifier needs: accuracy by share of the training part.

Knows nothing of other policies. Each curve is read twice off the same fits: on all problems, those learned
from included, as in the paper; and on the fifth that no fit has seen, which is the same for every share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.exhibits import Spread
from adacompute.evaluate.folds import shares
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits, Reading, columns, oracle_labels
from adacompute.evaluate.paper.judged import spread
from adacompute.evaluate.paper.search import TARGETS, reachable
from adacompute.records import AccuracyTable

__all__ = ["SHARES", "Curve", "Efficiency", "Followed", "efficiency"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Followed:
    """One reading of one curve, a spread over seeds for each share."""

    accuracy: tuple[Spread, ...]  # (shares,)
    cost: tuple[Spread, ...]  # samples on average
    gain: tuple[Spread, ...]  # over all alike at the same cost
    oracle: float  # accuracy of the oracle's budgets, mean over seeds
    fixed: float  # accuracy of the largest budget not above B for all
    fixed_cost: float

    def crosses(self, shares: Sequence[float]) -> float | None:
        """The share from which on the mean stays above `fixed`; None: it ends below."""
        above = [one.mean > self.fixed for one in self.accuracy]
        last = max((at for at, so in enumerate(above) if not so), default=-1)
        return None if last == len(above) - 1 else shares[last + 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """One average budget."""

    budget: float
    paper: Followed  # scored as the paper does
    held_out: Followed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Efficiency:
    """Curves for each average budget."""

    shares: tuple[float, ...]  # of the training part
    learned: tuple[int, ...]  # (shares,) problems learned from
    problems: int
    seeds: int
    curves: tuple[Curve, ...]


def efficiency(
    case: Case,
    *,
    targets: Sequence[float] = TARGETS,
    fractions: Sequence[float] = SHARES,
    seeds: int = 4,
    seed: int = 0,
) -> Efficiency:
    """Boosted trees learned from more and more of the same 80%, for the average budgets within reach."""
    train = np.zeros((seeds, len(case)), dtype=bool)
    parts: list[list[Bools]] = []  # a seed's shares, each within the next
    for at, own in enumerate(train):
        rng = np.random.default_rng([seed, 0xEFF1, at])
        rows = shares(case.ballots.prompts, rng).train
        own[rows] = True
        order = rng.permutation(rows)
        parts.append([_mask(order[: _count(part, len(rows))], len(case)) for part in fractions])
    return Efficiency(
        shares=tuple(fractions),
        learned=tuple(int(np.mean([own[at].sum() for own in parts])) for at in range(len(fractions))),
        problems=len(case),
        seeds=seeds,
        curves=tuple(_curve(case, target, train, parts) for target in reachable(case, targets)),
    )


def _curve(case: Case, budget: float, train: Bools, parts: Sequence[Sequence[Bools]]) -> Curve:
    labels, price = oracle_labels(case.windows, budget)
    paper, held_out = [], []
    for at in range(len(parts[0])):
        predicted = [
            columns(case.features, labels, own[at], model="xgboost", seed=seed)
            for seed, own in enumerate(parts)
        ]
        fits = Fits(
            budget=budget,
            price=price,
            model="xgboost",
            labels=labels,
            predicted=np.stack(predicted),
            train=train,  # the whole part, whatever was learned from: the judged stay the same
        )
        paper.append(fits.paper(case))
        held_out.append(fits.held_out(case))
    return Curve(
        budget=budget,
        paper=_followed(paper, case.windows, np.ones_like(train), budget),
        held_out=_followed(held_out, case.exact, ~train, budget),
    )


def _followed(readings: Sequence[Reading], table: AccuracyTable, judged: Bools, budget: float) -> Followed:
    within = np.flatnonzero(np.asarray(table.costs) <= budget)
    column = int(within[-1]) if len(within) else 0
    return Followed(
        accuracy=tuple(spread(one.accuracy) for one in readings),
        cost=tuple(spread(one.cost) for one in readings),
        gain=tuple(spread(one.accuracy - one.uniform) for one in readings),
        oracle=float(readings[-1].oracle.mean()),
        fixed=float(np.mean([table.accuracy[own, column].mean() for own in judged])),
        fixed_cost=float(np.asarray(table.costs)[column]),
    )


def _count(part: float, rows: int) -> int:
    return min(rows, max(1, round(part * rows)))


def _mask(rows: npt.NDArray[np.int64], size: int) -> Bools:
    found = np.zeros(size, dtype=bool)
    found[rows] = True
    return found
