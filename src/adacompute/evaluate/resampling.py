"""Splits of problems into training and test sets, and intervals over problems.

Intervals come from a bootstrap over problems. All statistics of one evaluation share the same
draws, so differences between policies are paired. Problems with the same question always fall
into the same fold: a policy that has seen the question has seen the problem, whatever its id.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.pool import Ballots
from adacompute.pool.ballots import number_prompts
from adacompute.replay.replay import RESAMPLES, draw_resamples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SEED = 0
_PERCENTILES = (2.5, 97.5)  # percentiles of a 95% interval
_Z = 1.959964  # standard errors to each side of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over problems with its 95% interval; both ends are None where there is only one problem."""

    mean: float
    low: float | None
    high: float | None

    @property
    def holds_zero(self) -> bool:
        """Whether zero lies within the interval; true where there is no interval."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bootstrap:
    """Bootstrap draws of problems: the share of each problem in each draw; a draw's shares add up to one."""

    shares: Floats = field(repr=False)  # (draws, problems)

    @classmethod
    def of(
        cls, problems: int, *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """Make `draws` draws, each of as many problems as there are."""
        rng = np.random.default_rng(_SEED) if rng is None else rng
        return cls(shares=draw_resamples(problems, rng, draws))

    @classmethod
    def of_groups(
        cls, groups: Sequence[str], *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """Draws of whole groups, e.g. families of problems; `groups` names that of each problem.

        >>> shares = Bootstrap.of_groups(["a", "a", "b"]).shares
        >>> bool((shares[:, 0] == shares[:, 1]).all())
        True
        """
        group = number_prompts(groups)
        drawn = cls.of(int(group.max(initial=-1)) + 1, draws=draws, rng=rng).shares[:, group]
        return cls(shares=drawn / drawn.sum(axis=1, keepdims=True))

    def means(self, values: Floats) -> Floats:
        """The mean of each draw, (draws,), of values of shape (problems,)."""
        return np.asarray(self.shares @ values)

    def interval(self, values: Floats) -> Interval:
        """The mean of (problems,) with its percentile interval.

        >>> interval = Bootstrap.of(4).interval(np.array([0.0, 1.0, 1.0, 1.0]))
        >>> interval.mean, interval.low, interval.high
        (0.75, 0.25, 1.0)
        """
        return make_interval(float(values.mean()), self.means(values) if len(values) > 1 else None)

    def difference(self, first: Floats, second: Floats) -> Interval:
        """The interval of the mean of `first - second`, problem by problem, both (problems,)."""
        return self.interval(first - second)


def make_interval(mean: float, draws: Floats | None) -> Interval:
    """A statistic with the percentile interval of its values in the draws, (draws,); None: no interval."""
    if draws is None:
        return Interval(mean=mean, low=None, high=None)
    low, high = np.percentile(draws, _PERCENTILES)
    return Interval(mean=mean, low=float(low), high=float(high))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Rows to learn from and rows to judge on."""

    train: Ints
    test: Ints


def list_groups(ballots: Ballots, *, families: bool) -> tuple[str, ...]:
    """What is held out and resampled together, by problem: its question, or its subject."""
    if not families:
        return ballots.prompts
    known = [subject for subject in ballots.subjects if subject is not None]
    if len(known) < len(ballots) or len(set(known)) < 2:
        raise TooFewSamples(
            f"{len(known)} of {len(ballots)} problems have a subject, and they have {len(set(known))} "
            "different ones; families can be held out where every problem has a subject; leave families out"
        )
    return tuple(known)


def kfold(prompts: Sequence[str], folds: int, rng: np.random.Generator) -> tuple[Split, ...]:
    """Split problems into folds: each problem is judged once, by what was learned from the other folds.

    >>> [split.test.tolist() for split in kfold(["a", "b", "a", "c"], 2, np.random.default_rng(0))]
    [[0, 2, 3], [1]]
    """
    group = number_prompts(prompts)
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        raise TooFewSamples(
            f"{count} different question{'' if count == 1 else 's'} can't be split into some to learn from "
            "and others to judge on; collect 2 or more"
        )
    if not 2 <= folds <= count:
        raise TooFewSamples(f"{folds} folds can't be made of {count} different questions; give 2 to {count}")
    fold = np.empty(count, dtype=np.int64)
    for number, members in enumerate(np.array_split(rng.permutation(count), folds)):
        fold[members] = number
    return tuple(
        Split(train=np.flatnonzero(fold[group] != number), test=np.flatnonzero(fold[group] == number))
        for number in range(folds)
    )


def random_split(prompts: Sequence[str], rng: np.random.Generator, *, train_share: float = 0.8) -> Split:
    """The paper's split: learn from a random share of the problems and judge on all of them."""
    group = number_prompts(prompts)
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        raise TooFewSamples(f"{count} different questions can't be split; collect more problems")
    train_groups = rng.permutation(count)[: min(count - 1, max(1, round(train_share * count)))]
    return Split(train=np.flatnonzero(np.isin(group, train_groups)), test=np.arange(len(prompts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleGain:
    """The oracle's accuracy minus the uniform one's, as a share between 0 and 1, at both bounds."""

    low_end: float | None  # cross-fitted; None: too few samples
    high_end: float  # in-sample
    interval: tuple[float, float] | None  # 95% over problems, of the lower bound, paired


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """What a verifier's scores are worth if every request gets so many samples, on held-out problems."""

    samples: int
    plain: float  # accuracy of votes that all count the same
    weighted: Interval  # accuracy of votes that are weighted by score
    weighted_gain: Interval  # over plain votes
    best: Interval  # accuracy of the sample with the best score
    best_gain: Interval


def paired_interval(first: Floats, second: Floats) -> tuple[float, float] | None:
    """The 95% interval over problems of the mean of `first - second`, both (problems,).

    None where all problems differ by the same amount, or there is one problem: the spread
    says nothing then.

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
