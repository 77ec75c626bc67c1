"""The oracle as a bracket: chosen and judged on the same samples, and on different ones. Knows no policy.

Whoever chooses by noisy accuracies picks what luck has raised, and then reads that luck off as accuracy: the
in-sample value is too high. Choosing on half of the samples and judging on the other half takes the luck out
of the reading but makes the choice worse: that value is too low. The truth about this oracle lies between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScoreError, TooFewSamples
from adacompute.evaluate.alike import Uniform, uniform
from adacompute.evaluate.difference import Difference, paired
from adacompute.evaluate.scoring import Scoring
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable, Allocation
from adacompute.score import Estimate, halves
from adacompute.score.shrink import shrink as shrunk
from adacompute.score.summary import estimated
from adacompute.solve import solve

__all__ = ["Compared", "Crossfitted", "compared", "crossfitted", "expected", "halved"]

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
    each: Floats = field(repr=False, compare=False)  # (problems,) accuracy of each, expected


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One average budget: spent by the oracle, with its two ends, and spent on all problems alike."""

    plan: Allocation  # in-sample: the upper end
    crossfitted: Crossfitted | None  # the lower end; None: too few samples to tell
    uniform: Uniform
    difference: Difference


def compared(table: AccuracyTable, plan: Allocation, pairs: Sequence[Pair]) -> Compared:
    """An allocation beside its cross-fitted value, and beside all problems alike within its budget.

    `table` is as scored, not shrunk: choosing is what luck misleads, and all alike choose nothing. `pairs`
    are what `halved` gives; without any there is no lower end.
    """
    alike = uniform(table, budget=plan.budget)
    fitted = crossfitted(pairs, budget=plan.budget) if pairs else None
    return Compared(plan=plan, crossfitted=fitted, uniform=alike, difference=_difference(plan, fitted, alike))


def _difference(plan: Allocation, fitted: Crossfitted | None, alike: Uniform) -> Difference:
    base = alike.accuracy.mean
    return Difference(
        low_end=None if fitted is None else fitted.accuracy.mean - base,
        high_end=plan.mixed_accuracy - base,  # both by lot where that spends the budget
        interval=None if fitted is None else paired(fitted.each, alike.each),
    )


def halved(
    ballots: Ballots,
    table: AccuracyTable,
    *,
    how: Scoring,
    splits: int = _SPLITS,
    shrink: bool = False,
    rng: np.random.Generator | None = None,
) -> tuple[Pair, ...]:
    """Tables to choose on and to judge on, two pairs a split: each half of the samples serves as both.

    They have the problems and budgets of `table`, which was scored of these ballots, and in the same way,
    `how`. Only the table to choose on is shrunk: it is the choice that suffers from luck, not the verdict.
    """
    rng = np.random.default_rng(_SEED) if rng is None else rng
    kept, budgets = _of(ballots, table), [int(mode) for mode in table.modes]
    how = how.of(_rows(ballots, table), len(ballots))
    least = int(kept.drawn.min())
    if least < 2 * budgets[-1]:
        raise TooFewSamples(
            f"choosing on half of the samples needs {2 * budgets[-1]} of each problem, and problem "
            f"{kept.ids[int(kept.drawn.argmin())]!r} has {least}; give smaller budgets or collect more"
        )
    pairs: list[Pair] = []
    for _ in range(splits):
        one, other = (how.table(half, budgets, draws=_DRAWS) for half in halves(kept, rng))
        pairs += [(_shrunk(one), other), (_shrunk(other), one)] if shrink else [(one, other), (other, one)]
    return tuple(pairs)


def _shrunk(half: AccuracyTable) -> AccuracyTable:
    try:
        return shrunk(half)
    except ScoreError as exc:  # all of the samples could be shrunk, so it is half of them that are too few
        raise TooFewSamples(f"half of the samples are too few to shrink: {exc}") from exc


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
        budget=budget,
        cost=float(cost),
        accuracy=estimated(accuracy),
        splits=max(1, len(pairs) // 2),
        each=accuracy,
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
    rows = _rows(ballots, table)
    return ballots if len(rows) == len(ballots) else ballots.only(rows)


def _rows(ballots: Ballots, table: AccuracyTable) -> list[int]:
    wanted = set(table.ids or ballots.ids)
    return [row for row, name in enumerate(ballots.ids) if name in wanted]
