"""Splits of problems into training and test sets, and intervals over problems.

Intervals are from a bootstrap over problems. All statistics of an evaluation share the same draws, so
differences between policies are paired. A group of similar problems is always in one fold, and drawn whole: a
policy that has seen one of them knows something about all.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.pool.groups import ADVICE, are_enough, number_alike
from adacompute.replay.replay import RESAMPLES, draw_resamples, resample_groups

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SEED = 0
_PERCENTILES = (2.5, 97.5)  # of a 95% interval
_Z = 1.959964  # standard errors on each side of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over problems with its 95% interval; no ends for one problem or too few groups."""

    mean: float
    low: float | None
    high: float | None

    @property
    def holds_zero(self) -> bool:
        """Whether the interval includes zero; true if there is no interval."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bootstrap:
    """Bootstrap draws of problems: each problem's share in each draw; the shares in a draw sum to one."""

    shares: Floats = field(repr=False)  # (draws, problems); no draws: too few groups for an interval

    @classmethod
    def of(
        cls, problems: int, *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """Makes `draws` draws with as many problems each as there are."""
        rng = np.random.default_rng(_SEED) if rng is None else rng
        return cls(shares=draw_resamples(problems, rng, draws))

    @classmethod
    def of_groups(
        cls, groups: Iterable[Hashable], *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """Draws of whole groups; `groups` is each problem's group.

        >>> shares = Bootstrap.of_groups("aabcdefghij").shares
        >>> bool((shares[:, 0] == shares[:, 1]).all())
        True
        """
        rng, numbers = np.random.default_rng(_SEED) if rng is None else rng, number_alike(groups)
        return cls(shares=resample_groups(numbers, rng, draws if are_enough(numbers) else 0))

    def means(self, values: Floats) -> Floats:
        """The mean in each draw, (draws,), of values (problems,)."""
        return np.asarray(self.shares @ values)

    def interval(self, values: Floats) -> Interval:
        """The mean of values (problems,) with its percentile interval.

        >>> interval = Bootstrap.of(4).interval(np.array([0.0, 1.0, 1.0, 1.0]))
        >>> interval.mean, interval.low, interval.high
        (0.75, 0.25, 1.0)
        """
        return make_interval(float(values.mean()), self.means(values) if len(values) > 1 else None)

    def difference(self, first: Floats, second: Floats) -> Interval:
        """The mean of `first - second` by problem, with its interval, both (problems,)."""
        return self.interval(first - second)


def make_interval(mean: float, draws: Floats | None) -> Interval:
    """A statistic with the percentile interval of its values in draws, (draws,), if any."""
    if draws is None or not len(draws):
        return Interval(mean=mean, low=None, high=None)
    low, high = np.percentile(draws, _PERCENTILES)
    return Interval(mean=mean, low=float(low), high=float(high))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Rows for training and rows for testing."""

    train: Ints
    test: Ints


def kfold(groups: Iterable[Hashable], folds: int, rng: np.random.Generator) -> tuple[Split, ...]:
    """Splits problems into folds: each is tested once, after training on other groups.

    Folds are as equal in size as whole groups allow; there are at most as many folds as groups.

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
    """The paper's split: trains on a random share of the groups and tests on all problems."""
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
    """The oracle's accuracy minus uniform's, from 0 to 1, at both bounds."""

    low_end: float | None  # cross-fitted; None if there are too few samples
    high_end: float  # in-sample
    interval: tuple[float, float] | None  # 95% over problems, for the lower bound, paired


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """The value of a verifier's scores with a uniform number of samples, on held-out problems."""

    samples: int
    plain: float  # accuracy of unweighted votes
    weighted: Interval  # accuracy of votes weighted by score
    weighted_gain: Interval  # over unweighted votes
    best: Interval  # accuracy of the sample with the best score
    best_gain: Interval


def paired_interval(first: Floats, second: Floats) -> tuple[float, float] | None:
    """The 95% interval over problems of the mean of `first - second`, both (problems,).

    None if all problems differ by the same amount or there is only one: the spread then says nothing.

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
