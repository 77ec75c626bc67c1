"""The plain vote's accuracy as the mean over all subsets of b samples. Knows nothing of costs or pools.

Ties are shared equally, abstentions are drawn but don't vote, and where all abstain the vote is wrong. A
class is worth the mean grade of its samples, so there may be several right classes and partial credit.
Standard errors are by the delete-one jackknife over a problem's samples, each class keeping its worth: where
one answer was graded now right, now wrong, the noise of the grades is not in them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from adacompute.errors import ScoreError
from adacompute.pool.ballots import ABSTAINS, Ballots
from adacompute.score.grades import DECIMALS, Bools, Classes, Floats, Ints, Scored, class_values, graded
from adacompute.score.leads import lead

__all__ = ["LARGEST", "check_largest", "exact_vote", "slab_vote", "slabs"]

LARGEST = 256  # budget: above it the products take seconds a problem
_SLAB = 1024  # problems at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kinds:
    """The classes of some problems, those of one problem with the same size and value taken together."""

    problem: Ints  # (kinds,) ascending
    size: Ints  # (kinds,) samples in each such class
    value: Floats  # (kinds,) 0 to 1
    classes: Ints  # (kinds,) how many such classes


def exact_vote(ballots: Ballots, grades: Floats, budgets: Sequence[int]) -> Scored:
    """The vote's accuracy over all subsets of each budget, (problems, budgets), with its standard error.

    Accuracy is NaN where a problem has fewer samples than the budget, or a sample without a known grade;
    the standard error also where it has no more than the budget.
    """
    check_largest(budgets)
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    for total, rows in slabs(ballots.drawn, graded(ballots, grades)):
        accuracy[rows], error[rows] = slab_vote(
            ballots.classes[rows], grades[rows], total=total, budgets=budgets
        )
    return Scored(accuracy=accuracy.round(DECIMALS), standard_error=error.round(DECIMALS))


def check_largest(budgets: Sequence[int]) -> None:
    """Refuses budgets that take too long."""
    if max(budgets, default=0) > LARGEST:
        raise ScoreError(
            f"budget {max(budgets)} is above {LARGEST}, the largest that is scored exactly; "
            "give smaller budgets, or estimator='windows' (--estimator windows)"
        )


def slabs(drawn: Ints, known: Bools) -> Iterator[tuple[int, Ints]]:
    """Which problems are scored together: their number of samples, and their rows; those not known never.

    Sums within a slab may differ in the last place when it is made of other problems.
    """
    for total in np.unique(drawn[known]).tolist():
        alike = np.flatnonzero(known & (drawn == total))
        for start in range(0, len(alike), _SLAB):
            yield total, alike[start : start + _SLAB]


def slab_vote(
    classes: Classes, grades: Floats, *, total: int, budgets: Sequence[int]
) -> tuple[Floats, Floats]:
    """Accuracy and standard error of problems of `total` samples each, (problems, budgets), not rounded."""
    accuracy, error = np.full((2, len(classes), len(budgets)), np.nan)
    kinds = _kinds(classes, grades)
    silent = (classes == ABSTAINS).sum(axis=1)
    for column, budget in enumerate(budgets):
        if budget <= total:
            accuracy[:, column], error[:, column] = _slab(kinds, silent, total=total, budget=budget)
    return accuracy, error


def _kinds(classes: Classes, grades: Floats) -> _Kinds:
    sizes, values = class_values(classes, grades)
    problem, column = np.nonzero(sizes)
    size, value = sizes[problem, column].astype(np.int64), values[problem, column]
    order = np.lexsort((value, size, problem))
    problem, size, value = problem[order], size[order], value[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(problem) != 0) | (np.diff(size) != 0) | (np.diff(value) != 0)
    first = np.flatnonzero(new)
    return _Kinds(
        problem=problem[first],
        size=size[first],
        value=value[first],
        classes=np.diff(np.append(first, len(order))),
    )


def _slab(kinds: _Kinds, silent: Ints, *, total: int, budget: int) -> tuple[Floats, Floats]:
    """Accuracy and standard error of some problems that have `total` samples each, (problems,) both."""
    sizes, where = np.unique(np.concatenate([[0], kinds.size]), return_inverse=True)
    where = where[1:]  # (kinds,) columns; column 0 counts abstentions
    among = np.zeros((len(silent), len(sizes)))  # (problems, sizes) classes of that size
    np.add.at(among, (kinds.problem, where), kinds.classes)
    among[:, 0] = silent
    right = np.flatnonzero(kinds.value)  # rows
    problem, value, column = kinds.problem[right], kinds.value[right], where[right]
    others = among[problem]  # (rows, sizes)
    others[np.arange(len(right)), column] -= 1
    found = lead(others, kinds.size[right], sizes, total=total, budget=budget)
    credit = value * kinds.classes[right]  # (rows,)
    accuracy = np.bincount(problem, weights=credit * found.share, minlength=len(silent))
    if budget == total:
        return np.clip(accuracy, 0, 1), np.full(len(silent), np.nan)
    # (problems, sizes) accuracy when a worthless class of that size has a sample less
    without = np.zeros(among.shape)
    np.add.at(without, problem, credit[:, None] * found.less_other)
    left = without[kinds.problem, where]  # (kinds,) accuracy when one of its samples is deleted
    left[right] += value * (found.less_own - found.less_other[np.arange(len(right)), column])
    return np.clip(accuracy, 0, 1), _jackknife(kinds, left, silent, without[:, 0], total)


def _jackknife(kinds: _Kinds, left: Floats, silent: Ints, mute: Floats, total: int) -> Floats:
    """The standard error from every deletion's accuracy: `left` (kinds,) of votes, `mute` (problems,)."""
    samples = kinds.size * kinds.classes  # (kinds,)
    mean = (np.bincount(kinds.problem, weights=samples * left, minlength=len(silent)) + silent * mute) / total
    votes = np.bincount(
        kinds.problem, weights=samples * (left - mean[kinds.problem]) ** 2, minlength=len(silent)
    )
    spread = votes + silent * (mute - mean) ** 2  # (problems,)
    return np.asarray(np.sqrt(spread * (total - 1) / total))
