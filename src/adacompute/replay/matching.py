"""A policy at one average cost, beside others at the same: the mix of two settings around it, and intervals.

Settings are what a policy costs and gives at some values of its dial, problem by problem. Intervals come from
a bootstrap over problems, or over groups of alike ones; gains are paired.
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

HullCurve: TypeAlias = tuple[Floats, Floats]  # cost and accuracy, both (corners,)

_PERCENTILES = (2.5, 97.5)  # ends of a 95% interval
_BOOTSTRAP_SEED, _VERDICT_SEED = 0, 17
_DRAWS = 2000
_LEVEL = 0.95
FEWEST_SPREAD = 1e-12  # a smaller standard error is none
RULE_OF_THREE = 3.0  # over the number of problems: 95% limit of a share of which no case was seen
_WINDOW = 1.25  # factor around the budget within which a curve's slope is measured
_TOLERANCE = 1e-9
_QUALITY_COSTS, QUALITY_DIGITS = 60, 5  # average costs at which a quality is measured; digits of what is told


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
        rng = np.random.default_rng(_BOOTSTRAP_SEED) if rng is None else rng
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
        rng, numbers = np.random.default_rng(_BOOTSTRAP_SEED) if rng is None else rng, number_alike(groups)
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
        """The mean of `first - second` over problems, with its interval; both arguments are (problems,)."""
        return self.interval(first - second)


def make_interval(mean: float, draws: Floats | None) -> Interval:
    """A statistic with the percentile interval of its values in draws, (draws,), if any."""
    if draws is None or not len(draws):
        return Interval(mean=mean, low=None, high=None)
    low, high = np.percentile(draws, _PERCENTILES)
    return Interval(mean=mean, low=float(low), high=float(high))


def trace_hull(cost: Floats, accuracy: Floats) -> HullCurve:
    """The corners of the upper concave hull of points, both (points,)."""
    corners = find_hull(cost, accuracy)
    return cost[corners], accuracy[corners]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Rounds per request: a round is all samples requested together, before any of them is seen."""

    mean: float
    p95: int  # 95th percentile

    @classmethod
    def of(cls, shares: Floats) -> Self:
        """From the share of requests with 0, 1, ... rounds.

        >>> Rounds.of(np.array([0.0, 0.5, 0.46, 0.04]))
        Rounds(mean=1.54, p95=2)
        """
        return cls(mean=round(float(shares @ np.arange(len(shares))), 12), p95=count_most(shares, 0.95))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyPoints:
    """The settings of a policy, run on the same problems; both arrays are (settings, problems)."""

    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    labels: tuple[str, ...] = ()  # (settings,)
    rounds: Floats | None = field(default=None, repr=False)  # (settings, rounds + 1) shares of requests

    def count_rounds(self, settings: tuple[int, int], probability: float) -> "Rounds | None":
        """Rounds of requests that get the second setting with this probability, and otherwise the first."""
        if self.rounds is None:
            return None
        low, high = (self.rounds[one] for one in settings)
        return Rounds.of((1 - probability) * low + probability * high)

    def curve(self) -> tuple[Floats, Floats]:
        """Average cost and accuracy at the corners of the hull, cheapest first, both (corners,)."""
        return trace_hull(self.cost.mean(axis=1), self.accuracy.mean(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatchedCost:
    """The best mix of two settings at one average cost.

    `each` is every problem's contribution to the accuracy at that cost: its accuracy minus its cost above the
    average at the current price (the hull's slope). The mean is the accuracy. With other problems, the mix
    would have to change to meet the cost; `each` includes this effect to first order, as the bootstrap
    requires.
    """

    budget: float
    cost: float  # the budget, or less where the best setting costs less
    accuracy: float
    settings: tuple[int, int]  # rows; equal if one setting is enough
    probability: float  # probability of the second one
    price: float  # accuracy per sample: the slope of the hull
    each: Floats = field(repr=False)  # (problems,)
    rounds: Rounds | None = None


def match_neighbours(points: PolicyPoints, budget: float) -> MatchedCost | None:
    """A policy at one average cost: the mix of the two settings around it, chosen by cost alone.

    Unlike `match_cost`, accuracy doesn't affect the choice, so nothing is selected by luck. None if even the
    cheapest setting costs more.
    """
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)  # (settings,)
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
    """The accuracy of one more sample on average near a budget: the value of extra cost elsewhere."""
    ends = np.clip([budget / _WINDOW, budget * _WINDOW], cost[0], cost[-1])
    if ends[1] - ends[0] < _TOLERANCE:
        return 0.0
    low, high = np.interp(ends, cost, accuracy)
    return max(0.0, float((high - low) / (ends[1] - ends[0])))


def sum_by_group(values: Floats, groups: npt.NDArray[np.int64]) -> Floats:
    """Turns values of problems, (settings, problems), into shares of groups with the same mean."""
    count = int(groups.max()) + 1
    if count == len(groups):
        return values
    sums = np.zeros((len(values), count))
    np.add.at(sums.T, groups, values.T)
    return sums * (count / len(groups))


def draw_bootstrap(groups: int) -> Bootstrap:
    """The bootstrap draws of groups shared by all intervals of a verdict."""
    return Bootstrap.of(groups, draws=_DRAWS, rng=np.random.default_rng([_VERDICT_SEED, 0xB007]))


def estimate_intervals(values: Floats, boot: Bootstrap) -> tuple[list[Interval], list[Interval], float]:
    """95% intervals of the means of values (groups, budgets): separately, jointly, and the joint critical
    value in standard errors.

    Bootstrap-t: in each draw of groups, the distance from the overall mean is measured in the draw's own
    standard errors. If no two groups differ, the spread says nothing and the rule of three is used: what was
    seen in none of n may still happen in a share of 3/n.
    """
    count = len(values)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(count)
    varies = error > FEWEST_SPREAD
    means = boot.shares @ values  # (draws, budgets)
    squares = boot.shares @ values**2
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / (count - 1))
    distance = np.abs(means - mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(distance <= FEWEST_SPREAD, 0.0, distance / np.maximum(errors, FEWEST_SPREAD))
    t = np.where(varies, t, 0.0)
    alone = np.quantile(t, _LEVEL, axis=0)
    joint = float(np.quantile(t.max(axis=1), _LEVEL))
    half_alone = np.where(varies, alone * error, RULE_OF_THREE / count)
    half_joint = np.where(varies, joint * error, RULE_OF_THREE / count)
    return _make_intervals(mean, half_alone), _make_intervals(mean, half_joint), joint


def _make_intervals(mean: Floats, half: Floats) -> list[Interval]:
    return [
        Interval(mean=float(value), low=float(max(-1.0, value - width)), high=float(min(1.0, value + width)))
        for value, width in zip(mean, half, strict=True)
    ]


class UniformVotes(NamedTuple):
    """A uniform number of samples from one mode."""

    samples: int
    mode: str | None
    cost: float  # per request
    rights: Floats  # (questions,)


def compare_qualities(
    points: PolicyPoints, rivals: Sequence[UniformVotes], *, digits: str
) -> tuple[QualityCurve, ...]:
    """A policy against each rival at many costs, rounded to `digits`; intervals are for single costs."""
    mean = points.cost.mean(axis=1)  # (settings,)
    grid = np.geomspace(mean.min(), mean.max(), _QUALITY_COSTS).tolist()
    costs = sorted({float(f"{cost:{digits}}") for cost in grid})
    matched = [(cost, mix) for cost in costs if (mix := match_neighbours(points, cost)) is not None]
    own = np.stack([mix.each for _, mix in matched], axis=1)  # (questions, costs)
    boot = draw_bootstrap(len(own))
    curves = []
    for rival in rivals:
        gaps = own - rival.rights[:, None]
        alone, _, _ = estimate_intervals(gaps, boot)
        # drawing all that the rival draws, it is the rival: nothing is left to doubt
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
