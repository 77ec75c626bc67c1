"""Splits of problems into training and test sets, and intervals over problems.

A group of similar problems is never divided, because a policy that has seen one of them knows something about
all. The interval here is a normal approximation; other intervals come from a bootstrap (`replay.matching`).
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.pool.groups import ADVICE, number_alike
from adacompute.replay.matching import Interval

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SEED = 0
_Z = 1.959964  # a 95% interval reaches this number of standard errors to each side


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Indices of the problems to train on, and of the problems to test on."""

    train: Ints
    test: Ints


def kfold(groups: Iterable[Hashable], folds: int, rng: np.random.Generator) -> tuple[Split, ...]:
    """Splits problems into folds: each problem is tested in one split, which trains on other groups.

    Folds are about equal in size and never divide a group, so there are at most as many folds as groups.

    >>> [split.test.tolist() for split in kfold(["a", "b", "a", "c"], 2, np.random.default_rng(0))]
    [[0, 2], [1, 3]]
    """
    group = number_alike(groups)
    sizes = np.bincount(group)
    _check_groups(group, len(sizes))
    if folds < 2:
        raise TooFewSamples(f"{folds} folds can't be made; give 2 or more")
    folds = min(folds, len(sizes))
    order, loads = rng.permutation(len(sizes)), np.zeros(folds, dtype=np.int64)
    fold = np.empty(len(sizes), dtype=np.int64)
    several = order[sizes[order] > 1]
    for large in several[np.argsort(-sizes[several], kind="stable")]:
        fold[large] = loads.argmin()
        loads[fold[large]] += sizes[large]
    single, full = order[sizes[order] == 1], loads.copy()
    for _ in single:
        full[full.argmin()] += 1
    fold[single] = np.repeat(np.arange(folds), full - loads)
    return tuple(
        Split(train=np.flatnonzero(fold[group] != number), test=np.flatnonzero(fold[group] == number))
        for number in range(folds)
    )


def random_split(groups: Iterable[Hashable], rng: np.random.Generator, *, train_share: float = 0.8) -> Split:
    """Makes the paper's split: trains on a random share of the groups and tests on all problems."""
    group = number_alike(groups)
    count = int(group.max(initial=-1)) + 1
    _check_groups(group, count)
    train_groups = rng.permutation(count)[: min(count - 1, max(1, round(train_share * count)))]
    return Split(train=np.flatnonzero(np.isin(group, train_groups)), test=np.arange(len(group)))


def _check_groups(group: Ints, count: int) -> None:
    if count > 1:
        return
    if len(group) < 2:
        problems = "1 problem" if len(group) else "a pool without problems"
        raise TooFewSamples(f"{problems} can't be split; collect 2 problems or more")
    raise TooFewSamples(f"{len(group)} problems are all alike, so none can be held out. {ADVICE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleGain:
    """Lower and upper bound on the oracle's gain in accuracy over uniform sampling."""

    # lower bound: choices are made and evaluated on different samples; None if there are too few samples
    low_end: float | None
    high_end: float  # upper bound: choices are made and evaluated on the same samples
    interval: tuple[float, float] | None  # 95% confidence interval of the lower bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """How much a verifier's scores improve votes of a fixed number of samples, on held-out problems."""

    samples: int
    plain: float  # accuracy of unweighted votes
    weighted: Interval  # accuracy of votes weighted by the verifier's scores
    weighted_gain: Interval  # accuracy gain of weighted votes over unweighted votes
    best: Interval  # accuracy of the sample with the best score
    best_gain: Interval


def paired_interval(first: Floats, second: Floats) -> tuple[float, float] | None:
    """Computes the 95% confidence interval of the mean of `first - second` over problems.

    Returns None if the difference is the same for all problems, or if there is only one problem.

    >>> low, high = paired_interval(np.array([0.5, 0.9, 0.7]), np.array([0.4, 0.6, 0.5]))
    >>> round(low, 3), round(high, 3)
    (0.087, 0.313)
    """
    difference = first - second
    if np.ptp(difference) == 0:
        return None
    mean = float(difference.mean())
    half_width = _Z * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return mean - half_width, mean + half_width
