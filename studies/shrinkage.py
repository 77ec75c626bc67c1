"""Empirical Bayes against the winner's curse: a table's rows are pulled toward rows like them.

Choosing by noisy accuracies picks what luck has raised, so a choice claims more than it gives. A
posterior mean has no such bias, whatever is chosen by it. Ours is Tweedie's: a row moves along the
slope of the density of all rows, which a kernel estimates from the table itself, without assuming
a shape (problems pile up at 0 and 1, so a normal prior does harm; studies/findings.md).

Rows are compared on the arcsine scale, where the noise of a share is the same for all rows. A
mode's noise is that of some number of right-or-wrong trials, from its standard errors. The noises
of two modes are taken to correlate by the fourth root of their costs' ratio, as those of votes do
on the recordings. The kernel is four times as wide, in variance, as the noise, and each row goes
half of the way to its neighbours' mean: Tweedie's quarter, doubled because so wide a kernel
flattens the density. Both numbers were chosen by cross-fitting on the recordings: they remove most
of the bias and hardly ever make a choice worse.

A unanimous row's standard error of 0 is not certainty: variances are at least those of Laplace's
rule, with as many trials as the least noisy mode has.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScoreError
from adacompute.records import AccuracyTable

__all__ = ["shrink"]

Floats = npt.NDArray[np.float64]

_WIDTH = 4.0  # of the kernel, in variances of the noise
_STEP = 0.5  # of the way to the neighbours' mean
_OWN = 0.02  # share of a mode's noise that is its own, so that modes of equal cost differ
_EXACT = 1e6  # trials: a mode without any noise
_ROWS = 4096  # to compare with, at the most: a density needs no more
_CELLS = 1 << 21  # pairs of rows held at a time


def shrink(table: AccuracyTable) -> AccuracyTable:
    """The table with accuracies as posterior means and standard errors as posterior deviations."""
    error = _check_errors(table)
    values = table.accuracy
    sizes = _estimate_trials(values, error)
    noisy = sizes[sizes < _EXACT]
    variance = np.maximum(error**2, _compute_least_variance(values, float(noisy.max(initial=0.0)) or _EXACT))
    points = np.arcsin(np.sqrt((values * sizes + 0.375) / (sizes + 0.75))) @ _compute_whitening(table, sizes)
    mean, spread = _average_neighbours(points, values)
    accuracy = _centre_means(values + _STEP * (mean - values), values.mean(axis=0))
    # the derivative of a posterior mean by its row, times the noise, is the posterior variance
    after = np.minimum((1 - _STEP) * variance + _STEP / _WIDTH * spread, variance)
    deviation = np.sqrt(after)
    for array in (accuracy, deviation):
        array.setflags(write=False)
    note = "shrunk toward rows like it (empirical Bayes)"
    return replace(
        table,
        accuracy=accuracy,
        standard_error=deviation,
        protocol=f"{table.protocol}; {note}" if table.protocol else note,
    )


def _centre_means(values: Floats, means: Floats) -> Floats:
    """Moves each mode to its mean over problems, which needs no shrinking, as far as 0 and 1 allow."""
    for _ in range(3):  # what 0 and 1 cut off is little, and made up for at once
        values = np.clip(values + (means - values.mean(axis=0)), 0.0, 1.0)
    return values


def _check_errors(table: AccuracyTable) -> Floats:
    error = table.standard_error
    if error is None:
        raise ScoreError(
            "a table without standard errors can't be shrunk: nothing says how noisy it is; "
            "make it with score(pool, …), or give AccuracyTable.of(…, standard_error=…)"
        )
    if not np.isfinite(error).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(error))[0])
        raise ScoreError(
            f"the standard error of {table.problem(row)} in mode {table.modes[column]!r} is "
            f"{error[row, column]}, so it can't be shrunk; use modes of fewer samples than were recorded"
        )
    return error


def _estimate_trials(values: Floats, error: Floats) -> Floats:
    """How many right-or-wrong trials would have each mode's noise, (modes,)."""
    noise, most = (error**2).sum(axis=0), (values * (1 - values)).sum(axis=0)
    sizes = np.divide(most, noise, out=np.full(len(noise), _EXACT), where=noise > 0)
    return np.asarray(np.clip(sizes, 1.0, _EXACT))


def _compute_least_variance(values: Floats, size: float) -> Floats:
    """The variance of each share under Laplace's rule, (problems, modes): above 0 for 0 and 1 too."""
    share = (values * size + 1) / (size + 2)
    return share * (1 - share) / (size + 3)


def _compute_whitening(table: AccuracyTable, sizes: Floats) -> Floats:
    """The matrix that makes kernel distances Euclidean, (modes, modes)."""
    costs = table.cost_matrix.mean(axis=0)
    low, high = np.minimum.outer(costs, costs), np.maximum.outer(costs, costs)
    ratio = np.divide(low, high, out=np.ones(low.shape), where=high > 0)
    correlation = (1 - _OWN) * ratio**0.25 + _OWN * np.eye(len(costs))
    deviation = 0.5 / np.sqrt(sizes + 0.5)  # on the arcsine scale
    noise = correlation * np.outer(deviation, deviation)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(_WIDTH * noise)))


def _average_neighbours(points: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Kernel mean and variance of the rows around each row, including itself, (problems, modes) both."""
    sampled_rows = np.arange(0, len(points), -(-len(points) // _ROWS))
    sampled_points, sampled_values = points[sampled_rows], values[sampled_rows]
    mean, square = np.empty((2, *values.shape))
    step = max(1, _CELLS // len(sampled_rows))
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        similarity = points[rows] @ sampled_points.T  # (rows, some)
        similarity -= 0.5 * (sampled_points**2).sum(axis=1)
        similarity -= 0.5 * (points[rows] ** 2).sum(axis=1)[:, None]
        weights = np.exp(np.minimum(similarity, 0.0), out=similarity)
        weights[sampled_rows[None, :] == np.arange(len(points))[rows, None]] = 0.0
        total = 1.0 + weights.sum(axis=1, keepdims=True)
        own = values[rows]
        mean[rows] = (own + weights @ sampled_values) / total
        square[rows] = (own**2 + weights @ sampled_values**2) / total
    return mean, np.maximum(square - mean**2, 0.0)
