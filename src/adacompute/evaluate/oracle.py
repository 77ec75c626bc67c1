"""The oracle as a bracket: chosen and judged on the same samples, and on different ones. Knows no policy.

Whoever chooses by noisy accuracies picks what luck has raised, and then reads that luck off as accuracy: the
in-sample value is too high. Choosing on half of the samples and judging on the other half takes the luck out
of the reading but makes the choice worse: that value is too low. The truth about this oracle lies between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.alike import Uniform, uniform
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable, Allocation
from adacompute.score import Estimate, halves, score
from adacompute.score.shrink import shrink as shrunk
from adacompute.score.summary import estimated
from adacompute.solve import solve

__all__ = ["Compared", "Crossfitted", "compared", "crossfitted", "halved"]

Floats = npt.NDArray[np.float64]
Pair = tuple[AccuracyTable, AccuracyTable]

_SPLITS = 5
_SEED = 0  # of the splits, where no generator is given: twice the same question has one answer
_DRAWS = 500  # subsets in a simulated score of a half: its samples are the noise that counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossfitted:
    """An oracle that chose on half of each problem's samples, judged on the other half, both ways."""

    budget: float  # the average cost asked for
    cost: float  # the average cost on the half that judged
    accuracy: Estimate  # with its 95% interval over problems
    splits: int  # random ones that it is the mean of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One average budget: spent where it pays, the oracle's bracket, and spent alike."""

    plan: Allocation  # in-sample: the upper end
    crossfitted: Crossfitted | None  # the lower end; None: too few samples to tell
    uniform: Uniform


def compared(table: AccuracyTable, plan: Allocation, halved: Sequence[Pair]) -> Compared:
    """An allocation of the table beside its cross-fitted value, and all alike at the same average cost."""
    return Compared(
        plan=plan,
        crossfitted=crossfitted(halved, budget=plan.budget) if halved else None,
        uniform=uniform(table, budget=plan.budget),
    )


def halved(
    ballots: Ballots,
    table: AccuracyTable,
    *,
    splits: int = _SPLITS,
    shrink: bool = False,
    rng: np.random.Generator | None = None,
    **how: Any,  # noqa: ANN401 - as `score` takes them
) -> tuple[Pair, ...]:
    """Tables to choose on and to judge on, two pairs a split: each half of the samples serves as both.

    They have the problems and budgets of `table`, which `score` made of these ballots; `how` is what it was
    told. Only the table to choose on is shrunk: it is the choice that suffers from luck, not the verdict.
    """
    rng = np.random.default_rng(_SEED) if rng is None else rng
    kept, budgets = _of(ballots, table), [int(mode) for mode in table.modes]
    least = int(kept.drawn.min())
    if least < 2 * budgets[-1]:
        raise TooFewSamples(
            f"choosing on half of the samples needs {2 * budgets[-1]} of each problem, and problem "
            f"{kept.ids[int(kept.drawn.argmin())]!r} has {least}; give smaller budgets or collect more"
        )
    pairs: list[Pair] = []
    for _ in range(splits):
        one, other = (score(half, budgets, draws=_DRAWS, **how) for half in halves(kept, rng))
        pairs += [(shrunk(one), other), (shrunk(other), one)] if shrink else [(one, other), (other, one)]
    return tuple(pairs)


def crossfitted(pairs: Sequence[Pair], *, budget: float) -> Crossfitted:
    """The value of choices made on the first table of each pair, judged on the second, mixes included.

    >>> luck = AccuracyTable.of([[0.5, 0.9]], costs=[1, 2])
    >>> truth = AccuracyTable.of([[0.5, 0.7]], costs=[1, 2])
    >>> crossfitted([(luck, truth)], budget=1.5).accuracy.mean
    0.6
    """
    plans = [(solve(chosen, budget=_reachable(chosen, budget)), judge) for chosen, judge in pairs]
    accuracy = np.mean([expected(judge.accuracy, plan) for plan, judge in plans], axis=0)  # (problems,)
    cost = np.mean([expected(judge.cost_matrix, plan) for plan, judge in plans])
    return Crossfitted(
        budget=budget, cost=float(cost), accuracy=estimated(accuracy), splits=max(1, len(pairs) // 2)
    )


def expected(values: Floats, plan: Allocation) -> Floats:
    """What each problem gets under an allocation, its mix included, (problems,) of (problems, modes)."""
    rows = np.arange(len(plan.choice))
    found = values[rows, plan.choice]
    moved, share = plan.mix.problems, plan.mix.probabilities
    np.add.at(found, moved, share * (values[moved, plan.mix.modes] - values[moved, plan.choice[moved]]))
    return np.asarray(found)


def _reachable(table: AccuracyTable, budget: float) -> float:
    """The budget, or what the cheapest modes cost where tokens happen to be dearer in this half."""
    return max(budget, float(table.cost_matrix.min(axis=1).mean()))


def _of(ballots: Ballots, table: AccuracyTable) -> Ballots:
    """The ballots of the table's problems."""
    wanted = set(table.ids or ballots.ids)
    rows = [row for row, name in enumerate(ballots.ids) if name in wanted]
    return ballots if len(rows) == len(ballots) else ballots.only(rows)
