"""The paper's main table: five ways to decide × average budgets, in both readings. Knows no drawing.

Held-out, rules and classifier learn from 80% of the problems and are judged on the others. The oracle sees
the judged samples themselves, so it has a second, cross-fitted value: chosen on half of each problem's
samples, judged on the other half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.oracle import Pair, expected, halved
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.judged import Judged, Outcome
from adacompute.evaluate.paper.rules import RULES, ruled
from adacompute.evaluate.paper.search import TARGETS, reachable
from adacompute.evaluate.scoring import Scoring
from adacompute.solve import solve

__all__ = ["METHODS", "TARGETS", "Crossed", "MainResults", "fitted_for", "halves_of", "main_results"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

METHODS = (*RULES, "classifier", "oracle")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Crossed:
    """An oracle that chose on half of each problem's samples, on the held-out problems' other halves."""

    accuracy: Floats  # (seeds,)
    cost: Floats  # (seeds,) samples on average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MainResults:
    """One recording's part of the main table, by method and average budget."""

    name: str
    budgets: tuple[float, ...]  # average ones that the pool can reach
    modes: tuple[int, ...]  # numbers of samples that may be chosen
    seeds: int
    problems: int
    learned_from: int  # problems, under each seed, about
    paper: Mapping[tuple[str, float], Outcome] = field(repr=False)  # scored as the paper does
    held_out: Mapping[tuple[str, float], Outcome] = field(repr=False)
    crossfitted: Mapping[float, Crossed] = field(repr=False)  # the oracle's other end; {}: can't be told


def main_results(case: Case, fits: Mapping[float, Fits]) -> MainResults:
    """The table of one recording; `fits` are those of `fitted`, one for each average budget."""
    budgets = fitted_for(case, fits)
    train = fits[budgets[0]].train
    everyone = np.ones_like(train)
    as_paper, held_out = Judged.of(case.windows, everyone), Judged.of(case.exact, ~train)
    paper: dict[tuple[str, float], Outcome] = {}
    apart: dict[tuple[str, float], Outcome] = {}
    for budget in budgets:
        own = fits[budget]
        told = {"classifier": own.predicted, "oracle": np.broadcast_to(own.labels, own.predicted.shape)}
        for method, columns in told.items():
            paper[method, budget] = as_paper.outcome(columns)
            apart[method, budget] = held_out.outcome(columns)
        for rule in RULES:
            paper[rule, budget] = as_paper.outcome(ruled(case, rule, budget, seen=everyone))
            apart[rule, budget] = held_out.outcome(ruled(case, rule, budget, seen=train))
    pairs = halves_of(case)
    return MainResults(
        name=case.name,
        budgets=budgets,
        modes=case.budgets,
        seeds=len(train),
        problems=len(case),
        learned_from=round(float(train.sum(axis=1).mean())),
        paper=paper,
        held_out=apart,
        crossfitted={budget: _crossed(pairs, budget, held_out) for budget in budgets} if pairs else {},
    )


def fitted_for(case: Case, fits: Mapping[float, Fits]) -> tuple[float, ...]:
    """The paper's average budgets that there are classifiers and samples for, rising; else all there are."""
    within = sorted(reachable(case, list(fits)))
    return tuple(budget for budget in within if budget in TARGETS) or tuple(within)


def halves_of(case: Case) -> tuple[Pair, ...]:
    """Tables to choose on and to judge on, for `crossfitted`; none where samples are too few to halve."""
    try:
        return halved(case.ballots, case.exact, how=Scoring(), splits=2)
    except TooFewSamples:
        return ()


def _crossed(pairs: Sequence[Pair], budget: float, judged: Judged) -> Crossed:
    plans = [(solve(chosen, budget=budget), judge) for chosen, judge in pairs]
    accuracy = np.mean([expected(judge.accuracy, plan) for plan, judge in plans], axis=0)  # (problems,)
    cost = np.mean([expected(judge.cost_matrix, plan) for plan, judge in plans], axis=0)
    shape = judged.mask.shape
    return Crossed(
        accuracy=judged.each(np.broadcast_to(accuracy, shape)), cost=judged.each(np.broadcast_to(cost, shape))
    )
