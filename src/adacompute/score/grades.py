"""What each sample is worth, and what a score is. Knows nothing of votes, budgets or estimators.

A sample's grade is what was recorded as `correct`; an abstention of which nothing was recorded is wrong
where the problem's gold answer or grades are known, and else unknown, as its problem is then.
A null answer that was graded right is no abstention: there the answers were not recorded, so problems
without any answer can't be voted on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots

__all__ = [
    "DECIMALS",
    "Bools",
    "Classes",
    "Floats",
    "Ints",
    "Scored",
    "class_values",
    "graded",
    "grades",
    "votable",
]

DECIMALS = 13  # of a score: rounding errors are below, so equal scores are equal, and nobody pays for 1e-16

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Classes = npt.NDArray[np.int32]  # by first appearance; -1 abstains, -2 absent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """The accuracy of each problem at each budget, and how sure it is."""

    accuracy: Floats  # (problems, budgets) 0 to 1
    standard_error: Floats  # (problems, budgets) NaN where it can't be told
    simulated: bool = False  # False: exact
    simulation_error: Floats | None = None  # (problems, budgets) Monte Carlo standard error, where simulated


def grades(ballots: Ballots) -> Floats:
    """Each sample's grade, (problems, samples) 0 to 1; NaN: not known, or absent."""
    found = ballots.correct.astype(np.float64)
    known = ballots.gold_known | ~np.isnan(found).all(axis=1)
    found[(ballots.classes == ABSTAINS) & np.isnan(found) & known[:, None]] = 0.0
    return found


def graded(ballots: Ballots, values: Floats) -> Bools:
    """Problems that have samples, each with a known grade, (problems,); `values` are their `grades`."""
    there = ballots.classes != ABSENT
    return np.asarray(there.any(axis=1) & ~(np.isnan(values) & there).any(axis=1))


def votable(ballots: Ballots) -> Bools:
    """Problems whose answers were recorded, as far as one can tell, (problems,)."""
    if not ((ballots.classes == ABSTAINS) & (ballots.correct > 0)).any():
        return np.ones(len(ballots), dtype=bool)
    return np.asarray((ballots.classes >= 0).any(axis=1))


def class_values(classes: Classes, values: Floats) -> tuple[Floats, Floats]:
    """How many samples each class has, and their mean grade, both (problems, classes), 0 where it has none.

    `classes` and `values`, the samples' grades, are (problems, samples).
    """
    width = int(classes.max(initial=ABSTAINS)) + 1
    there = classes >= 0
    cell = (np.arange(len(classes))[:, None] * width + classes)[there]
    sizes = np.bincount(cell, minlength=len(classes) * width).astype(np.float64)
    sums = np.bincount(cell, weights=values[there], minlength=len(classes) * width)
    worth = np.divide(sums, sizes, out=np.zeros(sizes.shape), where=sizes > 0)
    return sizes.reshape(len(classes), width), worth.reshape(len(classes), width)
