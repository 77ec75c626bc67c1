"""The paper's estimator: votes of disjoint windows of b samples in recorded order. Knows no other order.

Of n samples there are n // b windows; leftovers are unused. Ties are shared equally, abstentions don't vote,
and a window in which all abstain is wrong. Its mean is that of all subsets, its variance is larger.
"""

from collections.abc import Sequence

import numpy as np

from adacompute.pool.ballots import ABSENT, Ballots
from adacompute.score.grades import Bools, Classes, Floats, Ints, Scored, class_values, graded

__all__ = ["agreement", "window_vote"]

_CELLS = 1 << 22  # counts held at a time


def window_vote(ballots: Ballots, grades: Floats, budgets: Sequence[int]) -> Scored:
    """The vote's mean accuracy over windows, (problems, budgets), and its error from their spread.

    Accuracy is NaN where a problem has fewer samples than the budget, or a sample without a known grade;
    the standard error also where there is one window.
    """
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    known, drawn = graded(ballots, grades), ballots.drawn
    for column, budget in enumerate(budgets):
        enough = np.flatnonzero(known & (drawn >= budget))
        for rows in _parts(enough, ballots.classes, budget):
            counts, there = _windows(ballots.classes[rows], budget)
            right = _right(counts, class_values(ballots.classes[rows], grades[rows])[1])
            accuracy[rows, column], error[rows, column] = _mean_and_error(right, there)
    return Scored(accuracy=accuracy, standard_error=error)


def agreement(classes: Classes, budget: int) -> Floats:
    """The leading answer's mean share of the answers in windows of `budget`, (problems,); NaN: no window."""
    found = np.full(len(classes), np.nan)
    enough = np.flatnonzero((classes != ABSENT).sum(axis=1) >= budget)
    for rows in _parts(enough, classes, budget):
        counts, there = _windows(classes[rows], budget)
        best, answered = counts.max(axis=2, initial=0), counts.sum(axis=2)  # (problems, windows) both
        share = np.divide(best, answered, out=np.zeros(best.shape), where=answered > 0)
        found[rows] = _mean_and_error(share, there)[0]
    return found


def _parts(rows: Ints, classes: Classes, budget: int) -> list[Ints]:
    """Rows, so many at a time that their windows' counts fit in memory."""
    kinds = int(classes.max(initial=0)) + 1
    step = max(1, _CELLS // (kinds * max(1, classes.shape[1] // budget)))
    return [rows[i : i + step] for i in range(0, len(rows), step)]


def _windows(classes: Classes, budget: int) -> tuple[Ints, Bools]:
    """Votes of each class in each window, (problems, windows, classes); which windows are whole."""
    rows, width, kinds = len(classes), classes.shape[1] // budget, int(classes.max(initial=-1)) + 1
    cut = classes[:, : width * budget].reshape(rows, width, budget)
    cell = np.arange(rows * width).reshape(rows, width, 1) * kinds + cut
    counts = np.bincount(cell[cut >= 0], minlength=rows * width * kinds)
    return counts.reshape(rows, width, kinds), np.asarray((cut != ABSENT).all(axis=2))


def _right(counts: Ints, values: Floats) -> Floats:
    """The worth of each window's leaders, shared, (problems, windows); `values` is (problems, classes)."""
    best = counts.max(axis=2, initial=0)[:, :, None]
    leads = (counts == best) & (best > 0)  # (problems, windows, classes)
    won = np.einsum("pwk,pk->pw", leads, values, optimize=False)
    ties = leads.sum(axis=2)
    return np.asarray(np.divide(won, ties, out=np.zeros(won.shape), where=ties > 0))


def _mean_and_error(values: Floats, there: Bools) -> tuple[Floats, Floats]:
    """The mean over whole windows, (problems,), and its standard error; NaN from one window."""
    count = there.sum(axis=1)
    mean = (values * there).sum(axis=1) / count
    squares = (((values - mean[:, None]) * there) ** 2).sum(axis=1)
    variance = np.divide(squares, count - 1, out=np.full(mean.shape, np.nan), where=count > 1)
    return mean, np.sqrt(variance / count)
