"""Adjusts a policy's dial (its price or threshold) so that live requests cost the budget on average.

The dial rises if requests cost more than the budget (in samples, tokens or money), and falls if they cost
less (dual ascent, adapted to concurrent requests). It moves on a scale whose steps are ratios: a price's
logarithm, or a threshold's log-odds. On this scale, the dial is the sum of two parts:

- the *centre*, the dial at which traffic costs the budget. A request with dial x and cost c suggests
  x + (c - budget) / slope, however much later it ends. The centre is the running mean of these suggestions.
  It moves fast at first; later it covers about the last 50 requests. The slope (how much the cost falls if
  the dial rises by 1) is learnt, too.
- a *push* that repays past overspending (a debt) or underspending (a credit) over a number of requests, the
  *horizon*. The horizon grows with the requests in flight and with the first 10,000 ended ones. The cost of
  requests in flight is forecast from their dials, so that no debt is repaid twice. The push grows with the
  cube of the debt: an adversary who sends hard questions while the price is low is soon stopped.

Cost as a function of the dial has steps. A budget between two steps is met by mixing both: the gateway shifts
each request's dial at random (`policies.base`). The pacer learns from the unshifted dial.

Credit can't grow forever if traffic costs less than the budget even at the lowest dial. In budgets, it is at
most 100 plus the number of requests in flight, or 5% of the ended requests (at most 500) if that is more. A
debt is at most ten times that. Anything beyond these limits is forgotten.

A request in flight keeps its dial. In simulations (tests/serve/pacing.py; the constants below were tuned on
the same recordings), the average was within 2% of the budget after 2,000 requests on all kinds of traffic
with up to 16 in flight. Requests that are always hard while the price is above its recent median can make it
4% higher. With 64 in flight, one case of twelve was up to 4% off. With 256 in flight and a
change of traffic, it was up to 24% off; after 10,000 requests within 3%, or 5% if difficulty changes slowly.

Costs in tokens and money vary more than in samples. If lengths vary widely (a standard deviation of 1 in
their logarithm), the average was within 4% of the budget after 2,000 requests of steady traffic with up to 64
in flight. A budget below the cost of one sample can't be met: every request then gets one sample.
"""

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol, get_args
from weakref import WeakValueDictionary

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError, format_count
from adacompute.policies.base import Dial
from adacompute.records import Budget, BudgetUnit
from adacompute.serve.spending.ledger import Spend

_MAX_KEPT = 4096
# highest n if only every n-th dial (price or threshold) is kept: 4,096 dials then cover four million requests
_MAX_STRIDE = 1024
# n doubles if this number times n ended requests in a row don't find their dials among 4,096 kept ones
_MAX_MISSES = 64


class DialAges:
    """Stores how many requests had ended when each dial (price or threshold) was given to a request.

    The number that end while a request is in flight shows how many are in flight. Keeps 4,096 dials: the
    latest ones, or only every second, fourth, … one if more requests are in flight.

    >>> ages = DialAges()
    >>> ages.record(0.05, at=10)
    >>> ages.find_age(0.05, at=14), ages.find_age(0.06, at=14)
    (4, None)
    """

    def __init__(self) -> None:
        # dial -> number of requests that had ended when this dial was given to a request
        self._recorded_at: dict[float, int] = {}
        self._last = 0
        self._stride = 1
        self._missed = 0

    def record(self, dial: float, *, at: int) -> None:
        """Records that a dial (price or threshold) is issued after `at` requests have ended."""
        if self._recorded_at and at - self._last < self._stride:
            return
        self._recorded_at[dial] = self._last = at
        if len(self._recorded_at) > _MAX_KEPT:
            del self._recorded_at[next(iter(self._recorded_at))]

    def find_age(self, dial: float, *, at: int) -> int | None:
        """Returns how many requests have ended since a dial was issued; None if the dial isn't kept."""
        recorded_at = self._recorded_at.get(dial)
        if recorded_at is not None:
            self._missed = 0
            return at - recorded_at
        self._missed += 1
        if self._missed > _MAX_MISSES * self._stride:
            self._thin()
        return None

    def ensure_reach(self, flight: float, *, at: int) -> None:
        """Keeps only every second dial if 4,096 dials cover fewer than twice the requests in flight."""
        if self._recorded_at and flight > (at - next(iter(self._recorded_at.values()))) / 2:
            self._thin()

    def _thin(self) -> None:
        self._missed = 0
        if len(self._recorded_at) >= _MAX_KEPT and self._stride < _MAX_STRIDE:
            self._stride *= 2
            self._recorded_at = dict(list(self._recorded_at.items())[::2])


class DialMeans:
    """Computes the mean of the latest dials (prices or thresholds), one per request.

    >>> means = DialMeans()
    >>> for dial in (1.0, 2.0, 4.0):
    ...     means.add(dial)
    >>> means.average_last(2)
    (2, 3.0)
    """

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        # cumulative (number of dials, sum of dials), appended after every `_stride` dials
        self._kept: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=_MAX_KEPT)
        self._stride = 1

    def add(self, dial: float) -> None:
        self._count += 1
        self._sum += dial
        if self._count % self._stride == 0:
            self._kept.append((self._count, self._sum))

    def average_last(self, count: int) -> tuple[int, float]:
        """Returns the number and mean of the last `count` dials, or of fewer if older ones weren't kept."""
        while count > self._stride * (_MAX_KEPT - 1) and self._stride < _MAX_STRIDE:
            self._stride *= 2
            kept = [(count_, total) for count_, total in self._kept if count_ % self._stride == 0]
            self._kept = deque(kept, maxlen=_MAX_KEPT)
        back = min(count // self._stride, len(self._kept) - 1)
        count_before, sum_before = self._kept[-1 - back]
        covered = self._count - count_before
        return min(count, covered), (self._sum - sum_before) / covered if covered else 0.0


Bounds = tuple[Dial, float, float]  # (kind of dial: price or threshold, lowest value, highest value)

_MIN_PRICE = 1e-12  # lower limit of a price, so that its logarithm is finite
_MIN_THRESHOLD = 1e-4  # thresholds stay this far from 0 and 1, so that their log-odds are finite
# (initial, lowest, highest) slope: how much a request's cost falls, in multiples of the budget, if a price's
# logarithm or a threshold's log-odds rises by 1
_SLOPE, _MIN_SLOPE, _MAX_SLOPE = 3.0, 0.75, 100.0
# variance of the dial at which the slope seen in traffic weighs as much as the initial slope
_SLOPE_TRUST = 0.02
_MEMORY = 0.02  # minimum weight of the newest request in running means
# Each ended request suggests a dial. In their mean, the initial dial counts as this many suggestions.
_WARMUP = 8.0
# Overspending (a debt) or underspending (a credit) is repaid over a number of requests, the horizon. It is
# the sum of a minimum, a part per ended request, and a part per request in flight. The last part is larger
# for a credit: at a low price, a request may cost many budgets; at a high price, it saves at most one.
_MIN_HORIZON, _HORIZON_PER_REQUEST = 25.0, 0.01
_DEBT_HORIZON_PER_FLIGHT, _CREDIT_HORIZON_PER_FLIGHT = 0.5, 1.0
# maximum overspending that each request repays, in budgets; its cube enters the push explained below
_MAX_URGENCY = 3.0
# The dial is a running mean (the centre) plus a push that repays overspending. Each ended request moves the
# centre by this share of the push, divided by the number of requests that repay (the horizon).
_INTEGRAL = 0.25
_CREDIT, _RECENT, _SMALL_CREDIT, _DEBT = 0.05, 10_000, 100.0, 10.0
_SILENCE = 60.0  # if no request has ended for this number of seconds, none is assumed to be in flight


_RECENT_COSTS = 1000  # approximate number of requests that the mean cost per sample covers
_ENOUGH_COSTS = 20  # number of requests after which the mean cost per sample is reported
_RECORDED_COSTS = 10.0  # number of live requests that weigh as much as a cost known from recorded responses
# With a budget in tokens or money, the initial price or threshold depends on a sample's mean cost. It is
# computed again after each of this number of first requests.
EARLY_REQUESTS = 50
# Each ended request suggests a dial; the pacer takes the running mean of these suggestions. With a budget in
# tokens or money, the first ones count as at most this far from the mean, on a log scale.
_EARLY_STEP = 0.5
_KNOWN_UNITS: tuple[BudgetUnit, ...] = ("tokens", "money")


class MeanCosts:
    """Estimates the cost per sample in tokens and in money: the mean over about the last 1,000 requests.

    Every request has the same weight in the mean, whatever its number of samples.

    >>> costs = MeanCosts()
    >>> costs.add(Spend(samples=2, tokens=500))
    >>> costs.estimate("tokens"), costs.find("tokens")
    (250.0, None)
    """

    def __init__(self) -> None:
        self.requests = 0
        self._means: dict[str, float] = dict.fromkeys(_KNOWN_UNITS, 0.0)

    def add(self, spent: Spend) -> None:
        """Adds an ended request, with its total cost and number of samples."""
        if spent.samples <= 0:
            return
        self.requests += 1
        weight = 1 / min(self.requests, _RECENT_COSTS)
        for unit, amount in (("tokens", spent.tokens), ("money", spent.money)):
            self._means[unit] += weight * (amount / spent.samples - self._means[unit])

    def estimate(self, unit: BudgetUnit, recorded: float | None = None) -> float | None:
        """Returns the mean cost per sample so far; None if unknown.

        `recorded` is the cost per sample in recorded responses; it weighs as much as 10 live requests.
        """
        if unit == "samples":
            return 1.0
        if recorded is not None:
            weight = _RECORDED_COSTS / (_RECORDED_COSTS + self.requests)
            return weight * recorded + (1 - weight) * self._means[unit]
        return self._means[unit] if self.requests else None

    def find(self, unit: BudgetUnit) -> float | None:
        """Returns the mean cost per sample; None if fewer than 20 requests have ended."""
        return self.estimate(unit) if self.requests >= _ENOUGH_COSTS else None

    def describe_surplus(self, budget: Budget, longest: int) -> str:
        """Returns a warning if even the maximum number of samples costs less than the budget; else ""."""
        cost = self.estimate(budget.unit)
        if not cost or longest * cost >= budget.amount:  # no note if all samples so far were free
            return ""
        most = Budget(float(f"{longest * cost:.3g}"), budget.unit, budget.currency)
        return f"even {longest} samples cost {most} on average, less than the budget of {budget}"

    def state(self) -> dict[str, float]:
        """Returns the state for `restore`."""
        return {"requests": float(self.requests), **self._means}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state; ignores an invalid one."""
        numbers = {name: _to_float(state.get(name)) for name in self.state()}
        if all(math.isfinite(value) and value >= 0 for value in numbers.values()):
            self.requests = int(numbers.pop("requests"))
            self._means = {unit: numbers[unit] for unit in _KNOWN_UNITS}


def check_budget(budget: Budget, settings: ServeConfig, *, longest: int, modes: Collection[str]) -> None:
    """Raises ConfigError for a budget in samples with several modes, or too small for the setting `explore`.

    `explore` is the share of requests that get `longest` samples. All others get at least one.
    """
    if budget.unit == "samples" and len(modes) > 1:
        raise ConfigError(f"budget {budget} can't be kept over several modes; give it in money or in tokens")
    if budget.unit != "samples" or settings.mode != "adaptive":
        return  # the cost of exploring isn't known yet in tokens or money
    maximum = (budget.amount - 1) / max(1, longest - 1)
    if settings.explore > maximum:
        raise ConfigError(
            f"explore {settings.explore:g} of requests to {format_count(longest, 'sample')} each is more "
            f"than a budget of {budget.amount:g} on average allows; give at most {maximum:.3g}, or a larger "
            "budget"
        )


def round_budget(budget: float, unit: BudgetUnit) -> float:
    """Rounds samples to 2 decimals, tokens and money to 4 digits, so that similar budgets share a pacer."""
    return round(budget, 2) if unit == "samples" else float(f"{budget:.4g}")


# which requests must meet the budget on average: only those that can be voted on, or all
Average = Literal["voted", "all"]


def choose_average(setting: str, unit: BudgetUnit) -> Average:
    """Returns which requests must meet the budget on average, given the operator's setting `average`.

    "auto" means "voted" if the budget is in samples, otherwise "all". Requests that can't be voted on always
    cost one sample, so they would distort an average in samples.
    """
    return "voted" if setting == "voted" or (setting == "auto" and unit == "samples") else "all"


class Pacer:
    """Adjusts a dial (price or threshold) so that requests cost `target` on average, in any unit.

    `unit` only sets a request's minimum cost: 1 if it is samples, otherwise 0.

    >>> pacer = Pacer(2.0, start=0.05, low=1e-6, high=1.0)
    >>> dial = pacer.price
    >>> for _ in range(50):
    ...     pacer.settle(4, price=pacer.price)
    >>> pacer.price > dial, pacer.average
    (True, 4.0)
    """

    def __init__(
        self,
        target: float,
        *,
        dial: Dial = "price",
        start: float,
        low: float,
        high: float,
        unit: BudgetUnit = "samples",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        values = (target, start, low, high)
        if not all(map(math.isfinite, values)) or target <= 0 or not 0 <= low <= high or high <= 0:
            raise ConfigError(
                f"a budget of {target:g} can't be kept with {dial} {start:g} between {low:g} and {high:g}; "
                "give a budget above 0 and bounds in order"
            )
        self.target = target
        self.dial = dial
        self.bounds: Bounds = (dial, low, high)
        self.requests = 0
        self._low, self._high = low, high
        self._least = 1.0 if unit == "samples" else 0.0
        self._bottom, self._top = self._to_scale(low), self._to_scale(high)
        self._now = now
        self._last_settled = now()
        self._spent = 0.0
        self._debt = 0.0  # overspending so far (below 0: underspending), limited by `_max_credit`
        self._in_flight = 0.0  # estimated number of requests in flight
        self._centre = self._start = self._to_scale(_clamp(start, low, high))
        self._start_share = 1.0  # weight of the initial dial in the weighted mean of dials (`_centre`)
        self._slope = _SLOPE * target
        # means of dial and cost, the dial's variance, and the covariance of dial and cost times -1
        self._mean_dial, self._mean_cost, self._spread, self._fall = self._centre, target, 0.0, 0.0
        self._dial_ages, self._dial_means = DialAges(), DialMeans()
        self._choose_dial()

    @property
    def price(self) -> float:
        """Returns the price or threshold for the next request. Each read counts as a started request."""
        # at a bound, many requests get the same dial, so the dial doesn't show when a request began
        if self._bottom < self._position < self._top:
            self._dial_ages.record(self._price, at=self.requests)
        return self._price

    @property
    def average(self) -> float:
        """Mean cost per request so far; the target before any request has ended."""
        return self._spent / self.requests if self.requests else self.target

    def settle(self, cost: float, price: float | None = None, *, start: float | None = None) -> None:
        """Learns from an ended request and its cost.

        `price` is the dial that the request got. The default is the current dial, which is less accurate with
        many concurrent requests. `start` is a new estimate of the best initial dial; it is ignored after the
        first 50 requests. Don't call this for requests without a result.
        """
        is_early = start is not None and self.requests < EARLY_REQUESTS
        if start is not None and is_early:
            self._move_start(self._to_scale(_clamp(start, self._low, self._high)))
        if not math.isfinite(cost) or cost < 0:
            return
        if price is not None and not math.isfinite(price):
            price = None
        dial = self._position if price is None else self._to_scale(price)
        self._measure_flight(price, dial)
        self.requests += 1
        self._spent += cost
        excess = cost - self.target
        credit = self._max_credit()
        self._debt = _clamp(self._debt + excess, -credit, _DEBT * credit)
        weight = max(_MEMORY, 1 / (self.requests + _WARMUP))
        self._learn_slope(dial, cost, weight)
        share = _clamp(self._push, -1.0, 1.0) * _INTEGRAL / self._horizon(self._push)
        step = dial + excess / self._slope - self._centre
        # The initial dial may be far off, so no early request may move the centre far.
        if is_early:
            step = _clamp(step, -_EARLY_STEP, _EARLY_STEP)
        self._start_share *= 1 - weight
        self._centre = _clamp(self._centre + weight * step + share, self._bottom, self._top)
        self._choose_dial()

    def state(self) -> dict[str, float | str]:
        """Returns the state for `restore`."""
        return {
            "dial": self.dial,
            "low": self._low,
            "high": self._high,
            "target": self.target,
            "requests": float(self.requests),
            "spent": self._spent,
            "debt": self._debt,
            "centre": self._centre,
            "slope": self._slope,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state; if it is invalid, raises ConfigError and changes nothing."""
        current = self.state()
        numbers = {name: _to_float(state.get(name)) for name in current if name != "dial"}
        invalid = [name for name, value in numbers.items() if not math.isfinite(value)]
        invalid += [name for name in ("target", "low", "high") if numbers[name] != current[name]]
        invalid += [name for name in ("requests", "spent") if numbers[name] < 0]
        # a state with another kind of dial belongs to another policy
        invalid += [] if state.get("dial") == self.dial else ["dial"]
        if invalid:
            raise ConfigError(
                f"a stored pace has {invalid[0]} {state.get(invalid[0])!r:.40}; "
                "it starts again from the beginning"
            )
        self.requests = int(numbers["requests"])
        self._spent = numbers["spent"]
        credit = self._max_credit()
        self._debt = _clamp(numbers["debt"], -credit, _DEBT * credit)
        self._centre = _clamp(numbers["centre"], self._bottom, self._top)
        self._slope = _clamp(numbers["slope"], _MIN_SLOPE * self.target, _MAX_SLOPE * self.target)
        self._mean_dial, self._mean_cost, self._spread, self._fall = self._centre, self.target, 0.0, 0.0
        self._dial_ages, self._dial_means = DialAges(), DialMeans()
        self._choose_dial()

    def _move_start(self, start: float) -> None:
        """Replaces the initial dial, also in the weighted mean of dials (`_centre`) that includes it."""
        self._centre += self._start_share * (start - self._start)
        self._start = start

    def _horizon(self, debt: float) -> float:
        in_flight = (_DEBT_HORIZON_PER_FLIGHT if debt > 0 else _CREDIT_HORIZON_PER_FLIGHT) * self._in_flight
        return _MIN_HORIZON + _HORIZON_PER_REQUEST * min(self.requests, _RECENT) + in_flight

    def _max_credit(self) -> float:
        return self.target * max(_SMALL_CREDIT + self._in_flight, _CREDIT * min(self.requests, _RECENT))

    def _measure_flight(self, price: float | None, position: float) -> None:
        """Estimates the number of requests in flight: how many have ended since this one got its dial.

        `price` is this dial; `position` is the dial on the pacer's scale.
        """
        now = self._now()
        if now - self._last_settled > _SILENCE:
            self._in_flight = 0.0
        self._last_settled = now
        if price is None or not self._bottom < position < self._top:
            return  # at a bound, many requests get the same dial, so its age is unknown
        age = self._dial_ages.find_age(price, at=self.requests)
        if age is not None:
            self._in_flight += (age - self._in_flight) * (0.1 if age > self._in_flight else 0.01)
            self._dial_ages.ensure_reach(self._in_flight, at=self.requests)

    def _learn_slope(self, dial: float, cost: float, weight: float) -> None:
        """Learns how fast the cost falls as the dial rises; a guess counts less once the dial varies."""
        dial_offset, cost_offset = dial - self._mean_dial, cost - self._mean_cost
        self._mean_dial += weight * dial_offset
        self._mean_cost += weight * cost_offset
        self._spread += weight * (dial_offset * dial_offset - self._spread)
        self._fall += weight * (-dial_offset * cost_offset - self._fall)
        slope = (_SLOPE * self.target * _SLOPE_TRUST + self._fall) / (_SLOPE_TRUST + self._spread)
        self._slope = _clamp(slope, _MIN_SLOPE * self.target, _MAX_SLOPE * self.target)

    def _choose_dial(self) -> None:
        """Sets the next dial: the centre, plus a push that repays overspending or underspending."""
        in_flight, mean = self._dial_means.average_last(int(self._in_flight))
        expected = 0.0  # expected overspending of the requests in flight
        if in_flight:
            excess = self._slope * (self._centre - mean)
            expected = in_flight * _clamp(excess, self._least - self.target, 8 * self.target)
        forecast = self._debt + expected
        linear = _clamp(forecast / (self.target * self._horizon(forecast)), -1.0, 1.0)
        urgent = self._debt / (self.target * self._horizon(self._debt))
        urgent = _clamp(urgent, -_MAX_URGENCY, _MAX_URGENCY)
        self._push = self.target * (linear + urgent**3) / self._slope
        self._position = _clamp(self._centre + self._push, self._bottom, self._top)
        self._dial_means.add(self._position)
        self._price = self._from_scale(self._position)

    def _to_scale(self, value: float) -> float:
        if self.dial == "price":
            return math.log(max(value, _MIN_PRICE))
        value = _clamp(value, _MIN_THRESHOLD, 1 - _MIN_THRESHOLD)
        return math.log(value / (1 - value))

    def _from_scale(self, position: float) -> float:
        if position <= self._bottom:
            return self._low
        if position >= self._top:
            return self._high
        return math.exp(position) if self.dial == "price" else 1 / (1 + math.exp(-position))


def _clamp(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


def _to_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


class PacerProtocol(Protocol):
    """The interface of a pacer, either a gateway's own `Pacer` or one that follows the fleet's price."""

    @property
    def price(self) -> float:
        """The dial (price or threshold) for the next request."""

    @property
    def requests(self) -> int:
        """Number of ended requests."""

    @property
    def average(self) -> float:
        """Mean cost per request so far; the target before any request has ended."""

    @property
    def bounds(self) -> Bounds:
        """Kind of dial (price or threshold), lowest and highest value."""

    def settle(self, cost: float, price: float | None = None, *, start: float | None = None) -> None:
        """Learns from an ended request's cost and its dial (`price`).

        `start` is a new estimate of the best initial dial.
        """

    def state(self) -> dict[str, float | str]:
        """Returns the state for `restore`."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state."""


_MAX_LANES = 64  # maximum number of pacers kept for policies and budgets that only clients name
_log = logging.getLogger("adacompute.serve")

Lane = tuple[str, float, BudgetUnit]  # (name of a policy, budget, unit of the budget)


class Pacers:
    """Keeps a limited number of pacers, one per lane (a policy at a budget); drops the least recently used.

    Pacers of the operator's own lanes (`permanent`) are never dropped. A pacer is kept from the end of its
    first request; before that, only as long as a request uses it.
    """

    def __init__(
        self,
        permanent: Collection[tuple[str, float]] = (),
        *,
        unit: BudgetUnit = "samples",
        average: str = "all",
        currency: str = "",
    ) -> None:
        self._currency = currency
        self._average = average  # the setting `average`: which requests' mean cost must meet the budget
        self.set_permanent(permanent, unit)
        # lane -> pacer with at least one ended request, least recently used first
        self._lanes: dict[Lane, PacerProtocol] = {}
        # lane -> pacer, including pacers whose first request is still in flight
        self._alive: WeakValueDictionary[Lane, PacerProtocol] = WeakValueDictionary()
        # lane -> state from an earlier run of the gateway, for pacers none of whose requests has ended yet
        self._stored: dict[Lane, Mapping[str, Any]] = {}

    def set_permanent(self, lanes: Collection[tuple[str, float]], unit: BudgetUnit) -> None:
        """Sets the operator's own policies and budgets, whose pacers are never dropped."""
        self._permanent = frozenset((policy, round_budget(budget, unit), unit) for policy, budget in lanes)

    def get(
        self,
        policy: str,
        budget: float,
        make: Callable[[float], PacerProtocol],
        *,
        bounds: Bounds,
        unit: BudgetUnit = "samples",
    ) -> PacerProtocol:
        """Returns the pacer of a policy at a budget.

        If there is none, `make` makes one for the rounded budget, which continues from its stored state. A
        pacer with other `bounds` of its dial belonged to another policy of the same name, and is replaced.
        """
        lane = (policy, round_budget(budget, unit), unit)
        pacer = self._alive.get(lane)
        if pacer is None or pacer.bounds != bounds:
            pacer = self._alive[lane] = self._make(lane, make)
        return pacer

    def settle(
        self,
        policy: str,
        budget: float,
        pacer: PacerProtocol,
        cost: float,
        price: float | None,
        *,
        unit: BudgetUnit = "samples",
        start: float | None = None,
    ) -> None:
        """Passes the cost of an ended request to its pacer, and keeps this pacer from now on."""
        pacer.settle(cost, price, start=start)
        lane = (policy, round_budget(budget, unit), unit)
        if self._alive.get(lane) is not pacer:  # the policy has been replaced since the request began
            return
        self._lanes.pop(lane, None)
        self._stored.pop(lane, None)
        self._lanes[lane] = pacer
        if len(self._lanes) > _MAX_LANES:
            evictable = [other for other in self._lanes if other not in self._permanent]
            for other in evictable[: max(0, len(evictable) - _MAX_LANES)]:
                del self._lanes[other]

    def state(self) -> dict[str, Any]:
        """Returns the state for `restore`."""
        states = dict(self._stored) | {
            lane: {**pacer.state(), "average": choose_average(self._average, lane[2])}
            for lane, pacer in self._lanes.items()
        }
        permanent = {lane: state for lane, state in states.items() if lane in self._permanent}
        others = [(lane, state) for lane, state in states.items() if lane not in permanent]
        kept = [*others[-_MAX_LANES:], *permanent.items()]
        return {name_lane(lane, self._currency): dict(state) for lane, state in kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Sets the states from which new pacers continue; logs and skips invalid states.

        Also skips states in another currency, in which the same number is a different budget.
        """
        for name, values in list(state.items())[-_MAX_LANES - len(self._permanent) :]:
            lane = parse_lane(name, self._currency)
            if lane is None or not isinstance(values, Mapping):
                _log.warning(
                    "the stored pace %.80s is invalid, or not in %s; it is skipped", name, self._currency
                )
            else:
                self._stored[lane] = values

    def _make(self, lane: Lane, make: Callable[[float], PacerProtocol]) -> PacerProtocol:
        pacer = make(lane[1])
        stored = self._stored.get(lane)
        if stored is not None:
            try:
                pacer.restore(self._convert_state(stored, lane[2]))
            except ConfigError as exc:
                _log.warning("policy %r at budget %g %s: %s", *lane, exc)
                del self._stored[lane]
        return pacer

    def _convert_state(self, state: Mapping[str, Any], unit: BudgetUnit) -> Mapping[str, Any]:
        """Returns a stored state; its counts and debt become 0 if the setting `average` has changed."""
        if state.get("average") == choose_average(self._average, unit):
            return state
        return {**state, "requests": 0.0, "spent": 0.0, "debt": 0.0}


def name_lane(lane: Lane, currency: str) -> str:
    """Returns a policy and budget as JSON text, with the currency if the budget is money."""
    return json.dumps([*lane, currency if lane[2] == "money" else ""])


def parse_lane(name: str, currency: str) -> Lane | None:
    """Parses a policy and budget; None if the text is invalid, or the budget is in another currency."""
    try:
        policy, budget, unit, _ = json.loads(name)
        lane = (policy, round_budget(float(budget), unit), unit)
    except (ValueError, TypeError):
        return None
    is_valid = isinstance(policy, str) and unit in get_args(BudgetUnit) and math.isfinite(lane[1])
    return lane if is_valid and name == name_lane(lane, currency) else None
