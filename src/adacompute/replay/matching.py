"""Compares policies at the same average cost, with intervals.

A setting is one value of a policy's price or threshold. To meet an average cost exactly, requests get one of
two settings at random: those whose costs are just below and just above it. Intervals come from a bootstrap
over problems, or over groups of similar problems. Gains are paired by problem.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from adacompute.policies.quality import QualityCurve
from adacompute.policies.votes import Floats
from adacompute.pool.groups import are_enough, number_alike
from adacompute.replay.per_problem import count_most
from adacompute.replay.replay import RESAMPLES, draw_resamples, resample_groups
from adacompute.solve.hull import find_hull

# average costs and accuracies at the corners of an upper concave hull
HullCurve: TypeAlias = tuple[Floats, Floats]

_PERCENTILES = (2.5, 97.5)  # percentiles at the two ends of a 95% interval
_BOOTSTRAP_SEED, _VERDICT_SEED = 0, 17
_DRAWS = 2000
_LEVEL = 0.95
LEAST_SPREAD = 1e-12  # standard errors below this are rounding errors
RULE_OF_THREE = 3.0  # an event seen in none of n problems has a rate of at most 3 / n (95% confidence)
_WINDOW = 1.25  # a curve's slope is measured from budget / 1.25 to budget * 1.25
_TOLERANCE = 1e-9
# the number of costs at which policies are compared, and the number of decimals in results
_QUALITY_COSTS, QUALITY_DIGITS = 60, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over problems with its 95% interval; the ends are None if there are too few problems."""

    mean: float
    low: float | None
    high: float | None

    @property
    def holds_zero(self) -> bool:
        """Whether the interval includes zero; also true if its ends are unknown."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bootstrap:
    """Bootstrap draws of n problems: each draw picks n of them at random with replacement.

    `shares` has each problem's share of each draw; the shares of a draw sum to 1."""

    # weight of each problem in each draw; shape (draws, problems), with 0 draws if there are too few groups
    shares: Floats = field(repr=False)

    @classmethod
    def of(
        cls, problems: int, *, draws: int = RESAMPLES, rng: np.random.Generator | None = None
    ) -> "Bootstrap":
        """Makes `draws` draws; each picks `problems` problems at random, with replacement."""
        rng = np.random.default_rng(_BOOTSTRAP_SEED) if rng is None else rng
        return cls(shares=draw_resamples(problems, rng, draws))

    @classmethod
    def of_groups(cls, groups: Iterable[Hashable], *, rng: np.random.Generator | None = None) -> "Bootstrap":
        """Draws whole groups of problems at random; `groups` has each problem's group.

        >>> shares = Bootstrap.of_groups("aabcdefghij").shares
        >>> bool((shares[:, 0] == shares[:, 1]).all())
        True
        """
        rng, numbers = np.random.default_rng(_BOOTSTRAP_SEED) if rng is None else rng, number_alike(groups)
        return cls(shares=resample_groups(numbers, rng, RESAMPLES if are_enough(numbers) else 0))

    def means(self, values: Floats) -> Floats:
        """Returns the mean of the problems' values in each draw."""
        return np.asarray(self.shares @ values)

    def interval(self, values: Floats) -> Interval:
        """Returns the mean of the problems' values with its percentile interval.

        >>> interval = Bootstrap.of(4).interval(np.array([0.0, 1.0, 1.0, 1.0]))
        >>> interval.mean, interval.low, interval.high
        (0.75, 0.25, 1.0)
        """
        return make_interval(float(values.mean()), self.means(values) if len(values) > 1 else None)

    def difference(self, first: Floats, second: Floats) -> Interval:
        """Returns the mean over problems of `first` minus `second`, with its interval."""
        return self.interval(first - second)


def make_interval(mean: float, draws: Floats | None) -> Interval:
    """Builds a mean's interval from the means of bootstrap draws; without draws, its ends are None."""
    if draws is None or not len(draws):
        return Interval(mean=mean, low=None, high=None)
    low, high = np.percentile(draws, _PERCENTILES)
    return Interval(mean=mean, low=float(low), high=float(high))


def trace_hull(cost: Floats, accuracy: Floats) -> HullCurve:
    """Returns cost and accuracy at the corners of the points' upper concave hull."""
    corners = find_hull(cost, accuracy)
    return cost[corners], accuracy[corners]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Statistics of the rounds per request. A round is all samples that are requested at the same time."""

    mean: float
    p95: int  # 95th percentile of the rounds per request

    @classmethod
    def of(cls, shares: Floats) -> Self:
        """Computes mean and 95th percentile from the shares of requests with 0, 1, 2, ... rounds.

        >>> Rounds.of(np.array([0.0, 0.5, 0.46, 0.04]))
        Rounds(mean=1.54, p95=2)
        """
        return cls(mean=round(float(shares @ np.arange(len(shares))), 12), p95=count_most(shares, 0.95))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyPoints:
    """A policy's mean cost and accuracy at each setting, for each problem.

    A setting is a value of the price or threshold. `cost` and `accuracy` have shape (settings, problems)."""

    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    # at each setting: shares of requests with 0, 1, ... rounds of calls
    rounds: Floats | None = field(default=None, repr=False)

    def count_rounds(self, settings: tuple[int, int], probability: float) -> "Rounds | None":
        """Computes rounds per request if each gets the second setting with `probability`, else the first."""
        if self.rounds is None:
            return None
        low, high = (self.rounds[one] for one in settings)
        return Rounds.of((1 - probability) * low + probability * high)

    def curve(self) -> tuple[Floats, Floats]:
        """Returns average costs and accuracies of the settings on the upper concave hull, cheapest first."""
        return trace_hull(self.cost.mean(axis=1), self.accuracy.mean(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatchedCost:
    """A policy at one average cost: a random mix of two of its settings that has exactly this cost.

    A bootstrap draw of problems has another average cost, so its mix would have to change. To correct for
    that to first order, `each` is a problem's accuracy minus `price` times its cost above the average.
    """

    budget: float
    cost: float  # average cost: the budget, or less if even the most expensive setting costs less
    accuracy: float
    # indexes of the two settings that are mixed; if one setting is enough, its index twice
    settings: tuple[int, int]
    probability: float  # probability that a request gets the second setting in `settings`
    price: float  # accuracy gained per additional unit of average cost, at this cost
    # each problem's accuracy, adjusted for its cost; their mean is the policy's accuracy; shape (problems,)
    each: Floats = field(repr=False)
    rounds: Rounds | None = None


def match_neighbours(points: PolicyPoints, budget: float) -> MatchedCost | None:
    """Mixes the settings whose costs are just below and above the budget, so that the mix costs the budget.

    Settings are chosen by cost alone, so none is chosen because its accuracy is high by luck. Returns None if
    even the cheapest costs more than the budget. The most expensive is used alone if it costs less.
    """
    # average over problems, for each setting
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)
    order = np.argsort(cost, kind="stable")
    rising = cost[order]
    if budget < rising[0] - _TOLERANCE:
        return None
    above = int(np.searchsorted(rising, budget - _TOLERANCE))
    if above == 0 or above == len(rising):
        low = high = int(order[min(above, len(rising) - 1)])
        share = 0.0
    else:
        low, high = int(order[above - 1]), int(order[above])
        share = min(1.0, float((budget - cost[low]) / (cost[high] - cost[low])))
    mix = MatchedCost(
        budget=budget,
        cost=float((1 - share) * cost[low] + share * cost[high]),
        accuracy=float((1 - share) * accuracy[low] + share * accuracy[high]),
        settings=(low, high),
        probability=share,
        price=_slope(rising, accuracy[order], budget) if above < len(rising) else 0.0,
        each=(1 - share) * points.accuracy[low] + share * points.accuracy[high],
        rounds=points.count_rounds((low, high), share),
    )
    return replace(mix, each=mix.each - mix.price * (mix_cost(points, mix) - mix.cost))


def mix_cost(points: PolicyPoints, mix: MatchedCost) -> Floats:
    low, high = mix.settings
    return np.asarray((1 - mix.probability) * points.cost[low] + mix.probability * points.cost[high])


def _slope(cost: Floats, accuracy: Floats, budget: float) -> float:
    """Returns how much accuracy rises per unit of average cost, near a budget."""
    ends = np.clip([budget / _WINDOW, budget * _WINDOW], cost[0], cost[-1])
    if ends[1] - ends[0] < _TOLERANCE:
        return 0.0
    low, high = np.interp(ends, cost, accuracy)
    return max(0.0, float((high - low) / (ends[1] - ends[0])))


def sum_by_group(values: Floats, groups: npt.NDArray[np.int64]) -> Floats:
    """Sums `values` (settings, problems) by group, and scales the sums so that the mean stays the same."""
    count = int(groups.max()) + 1
    if count == len(groups):
        return values
    sums = np.zeros((len(values), count))
    np.add.at(sums.T, groups, values.T)
    return sums * (count / len(groups))


def draw_bootstrap(groups: int) -> Bootstrap:
    """Draws groups for the bootstrap, with a fixed seed, so that all intervals use the same draws."""
    return Bootstrap.of(groups, draws=_DRAWS, rng=np.random.default_rng([_VERDICT_SEED, 0xB007]))


def estimate_intervals(values: Floats, boot: Bootstrap) -> tuple[list[Interval], list[Interval], float]:
    """Estimates 95% intervals of the means of `values`, which have shape (groups, budgets).

    Returns an interval for each budget on its own, wider intervals that hold for all budgets at once, and how
    many standard errors the wider ones extend to each side.

    By bootstrap-t: a draw's distance from the mean is measured in the draw's own standard errors. If all
    groups have the same value, the rule of three applies: an event seen in none of n groups has a rate of at
    most 3/n.
    """
    count = len(values)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(count)
    varies = error > LEAST_SPREAD
    means = boot.shares @ values  # mean of each bootstrap draw, for each budget
    squares = boot.shares @ values**2
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / (count - 1))
    distance = np.abs(means - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(distance <= LEAST_SPREAD, 0.0, distance / np.maximum(errors, LEAST_SPREAD))
    t = np.where(varies, t, 0.0)
    alone = np.quantile(t, _LEVEL, axis=0)
    joint = float(np.quantile(t.max(axis=1), _LEVEL))
    half_alone = np.where(varies, alone * error, RULE_OF_THREE / count)
    half_joint = np.where(varies, joint * error, RULE_OF_THREE / count)
    return _make_intervals(mean, half_alone), _make_intervals(mean, half_joint), joint


def estimate_gain(each: Floats, groups: npt.NDArray[np.int64]) -> Interval:
    """Estimates the 95% interval of the mean of `each`, one value per problem, by bootstrap-t over groups.

    Its ends are None if there are too few groups.
    """
    if not are_enough(groups):
        return Interval(mean=float(each.mean()), low=None, high=None)
    values = sum_by_group(each[None], groups).T
    return estimate_intervals(values, draw_bootstrap(len(values)))[0][0]


def _make_intervals(mean: Floats, half: Floats) -> list[Interval]:
    return [
        Interval(mean=float(value), low=float(max(-1.0, value - width)), high=float(min(1.0, value + width)))
        for value, width in zip(mean, half, strict=True)
    ]


class UniformVotes(NamedTuple):
    """A rival to compare a policy with: the same number of samples from one mode for every question."""

    samples: int
    mode: str | None
    cost: float  # average cost per request
    rights: Floats  # accuracy of the vote on each question, 0 to 1


def compare_qualities(
    points: PolicyPoints, rivals: Sequence[UniformVotes], *, digits: str
) -> tuple[QualityCurve, ...]:
    """Compares a policy with each rival at many average costs, rounded by the format `digits` (".4g")."""
    mean = points.cost.mean(axis=1)  # average cost of each setting
    grid = np.geomspace(mean.min(), mean.max(), _QUALITY_COSTS).tolist()
    costs = sorted({float(f"{cost:{digits}}") for cost in grid})
    matched = [(cost, mix) for cost in costs if (mix := match_neighbours(points, cost)) is not None]
    own = np.stack([mix.each for _, mix in matched], axis=1)  # accuracy on each question at each cost
    boot = draw_bootstrap(len(own))
    curves = []
    for rival in rivals:
        gaps = own - rival.rights[:, None]
        alone, _, _ = estimate_intervals(gaps, boot)
        # if costs and accuracies are equal, policy and rival drew the same samples, so neither is better
        is_rival = (np.abs(gaps).max(axis=0) < 1e-9) & np.isclose([cost for cost, _ in matched], rival.cost)
        lows = np.where(is_rival, 0.0, [gain.low or 0.0 for gain in alone]).round(QUALITY_DIGITS)
        curve = QualityCurve(
            samples=rival.samples,
            mode=rival.mode,
            rival_cost=rival.cost,
            accuracy=round(float(rival.rights.mean()), QUALITY_DIGITS),
            costs=tuple(cost for cost, _ in matched),
            gains=tuple(round(gain.mean, QUALITY_DIGITS) for gain in alone),
            lows=tuple(lows.tolist()),
        )
        curves.append(curve)
    return tuple(curves)
