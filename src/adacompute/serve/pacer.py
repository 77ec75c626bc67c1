"""The dial that keeps the average cost of live requests on a budget. Knows nothing of policies or of files.

Dual ascent on (cost - budget), made fit for requests that overlap. The dial lives on a scale where steps are
ratios (a price's logarithm, a threshold's log-odds), and is the sum of three parts:

- the *centre*, the dial at which traffic costs the budget. A request that was decided at dial x and cost c
  says that it is at x + (c - budget) / slope, however much later it ends; their mean, fast at first and over
  the last 50 requests in the end, is the estimate. The slope is learnt from the same pairs.
- a *push* that repays what was spent above the budget or below it so far, over a horizon that grows with the
  number of requests in flight. What those will add is foreseen from the dials that they were given, so the
  push doesn't repay the same debt once for each of them. It grows with the cube of the debt: an adversary
  who sees the price and picks hard questions while it is low meets a high price after a few.
- a *dither* of 2% up and down: cost is a staircase of the dial, and a budget between two steps is met by
  mixing them, as the solver mixes one problem.

What can't be spent isn't saved up for ever: where traffic costs less than the budget even at the lowest dial,
the credit that is carried is at most 5% of the requests seen (of the last 10,000 at most; 100 and those in
flight at least), in budgets. A debt is carried up to ten times that. Beyond either the average stays off.

What is in flight can't be called back: after a change of traffic, all requests that had their dial already
cost what they cost. In simulations (tests/serve/pacing.py; the constants below were chosen on the same
recordings) the average was within 2% of the budget after 2,000 requests on all traffic with up to 16 in
flight. With 64 it was up to 4% off in one case of twelve. With 256 it was up to 24% off after 2,000 where
traffic had changed, and after 10,000 within 3% (2% in most cases), or 5% on slow swings of difficulty.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from adacompute.errors import ConfigError
from adacompute.policies.base import Dial
from adacompute.serve.lately import Given, Sums

__all__ = ["Pacer"]

_LEAST = 1e-12  # of a price: its logarithm has an end
_EDGE = 1e-4  # of a threshold: its log-odds have an end
_SLOPE, _FLATTEST, _STEEPEST = 3.0, 0.75, 100.0  # cost lost by a step of 1 of the dial, in budgets
_TRUST = 0.02  # spread of the dial (its variance) at which what was seen of the slope weighs as the guess
_MEMORY = 0.02  # weight of the newest request, in the end
_WARMING = 8.0  # requests that the start counts for
_DITHER = 0.04  # from lowest to highest
_GOLDEN = 0.6180339887498949  # its multiples fill the dither evenly
# horizon of the push, in requests: at first, and more by each that was seen, for the same debt is then a
# smaller share of all, and by each in flight. A credit is given back with more care: a request may cost 15
# samples too many where the price is low, and no more than the budget too few where it is high
_SHORTEST, _PER_SEEN = 25.0, 0.01
_OF_DEBT, _OF_CREDIT = 0.5, 1.0
_URGENT = 3.0  # debts of so many horizons push as hard as can be
_INTEGRAL = 0.25  # share of the push that becomes the centre's, over a horizon
_CREDIT, _RECENT, _SMALL_CREDIT, _DEBT = 0.05, 10_000, 100.0, 10.0
_SILENCE = 60.0  # seconds, after which nothing can be in flight that matters


class Pacer:
    """Moves one dial so that requests cost `target` samples on average.

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
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        values = (target, start, low, high)
        if not all(map(math.isfinite, values)) or target <= 0 or not 0 <= low <= high or high <= 0:
            raise ConfigError(
                f"a pace to {target:g} samples from {dial} {start:g} within {low:g} to {high:g} can't be "
                "kept; give a budget above 0 and bounds in order"
            )
        self.target = target
        self.dial = dial
        self.requests = 0
        self._low, self._high = low, high
        self._bottom, self._top = self._scaled(low), self._scaled(high)
        self._now = now
        self._heard = now()
        self._spent = 0.0
        self._debt = 0.0  # spent above the budget so far, as far as it is carried
        self._flight = 0.0  # requests that end between a request's beginning and its end
        self._centre = self._scaled(min(max(start, low), high))
        self._slope = _SLOPE * target
        # running means of dial and cost, and of dial² and dial x cost about them
        self._mean_dial, self._mean_cost, self._spread, self._fall = self._centre, target, 0.0, 0.0
        self._given, self._sums = Given(), Sums()
        self._place()

    @property
    def price(self) -> float:
        """The dial to decide the next request at. Whoever asks is taken to do so."""
        if self._bottom < self._at < self._top:  # at a bound all are alike, and tell no age
            self._given.note(self._price, at=self.requests)
        return self._price

    @property
    def average(self) -> float:
        """Samples a request so far; the target before the first."""
        return self._spent / self.requests if self.requests else self.target

    @property
    def bounds(self) -> tuple[Dial, float, float]:
        """What is turned, its lowest and its highest."""
        return self.dial, self._low, self._high

    def settle(self, cost: float, price: float | None = None) -> None:
        """Notes that a request has ended that cost so many samples.

        `price` is the dial that it was decided at; without it, it is taken to have been the present one,
        which is worse the more requests overlap. Requests that gave nothing are not to be told of.
        """
        if not math.isfinite(cost) or cost < 0:
            return
        dial = self._at if price is None or not math.isfinite(price) else self._scaled(price)
        self._clock(price)
        self.requests += 1
        self._spent += cost
        over = cost - self.target
        credit = self._credit()
        self._debt = min(max(self._debt + over, -credit), _DEBT * credit)
        weight = max(_MEMORY, 1 / (self.requests + _WARMING))
        self._learn(dial, cost, weight)
        share = min(max(self._push, -1.0), 1.0) * _INTEGRAL / self._horizon(self._push)
        self._centre += weight * (dial + over / self._slope - self._centre) + share
        self._centre = min(max(self._centre, self._bottom), self._top)
        self._place()

    def state(self) -> dict[str, float | str]:
        """What `restore` takes, plain data."""
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
        """Goes on from what `state` gave, whole or not at all; ConfigError where nobody can have given it."""
        own = self.state()
        found = {name: _number(state.get(name)) for name in own if name != "dial"}
        wrong = [name for name, value in found.items() if not math.isfinite(value)]
        wrong += [name for name in ("target", "low", "high") if found[name] != own[name]]
        wrong += [name for name in ("requests", "spent") if found[name] < 0]
        wrong += [] if state.get("dial") == self.dial else ["dial"]  # another policy's: it says nothing here
        if wrong:
            raise ConfigError(
                f"a stored pace has {wrong[0]} {state.get(wrong[0])!r:.40}; it starts anew, at its first dial"
            )
        self.requests = int(found["requests"])
        self._spent = found["spent"]
        credit = self._credit()
        self._debt = min(max(found["debt"], -credit), _DEBT * credit)
        self._centre = min(max(found["centre"], self._bottom), self._top)
        self._slope = min(max(found["slope"], _FLATTEST * self.target), _STEEPEST * self.target)
        self._mean_dial, self._mean_cost, self._spread, self._fall = self._centre, self.target, 0.0, 0.0
        self._given, self._sums = Given(), Sums()
        self._place()

    def _horizon(self, debt: float) -> float:
        flying = (_OF_DEBT if debt > 0 else _OF_CREDIT) * self._flight
        return _SHORTEST + _PER_SEEN * min(self.requests, _RECENT) + flying

    def _credit(self) -> float:
        return self.target * max(_SMALL_CREDIT + self._flight, _CREDIT * min(self.requests, _RECENT))

    def _clock(self, price: float | None) -> None:
        """Learns how many requests are in flight, by how old the dial is that this one was given."""
        now = self._now()
        if now - self._heard > _SILENCE:
            self._flight = 0.0
        self._heard = now
        if price is None or not self._bottom < self._scaled(price) < self._top:
            return  # at a bound all dials are alike, and tell no age
        between = self._given.age(price, at=self.requests)
        if between is not None:
            self._flight += (between - self._flight) * (0.1 if between > self._flight else 0.01)
            self._given.reaches(self._flight, at=self.requests)

    def _learn(self, dial: float, cost: float, weight: float) -> None:
        """How much cost falls with the dial: a guess, until the dial has moved enough to tell."""
        off, more = dial - self._mean_dial, cost - self._mean_cost
        self._mean_dial += weight * off
        self._mean_cost += weight * more
        self._spread += weight * (off * off - self._spread)
        self._fall += weight * (-off * more - self._fall)
        slope = (_SLOPE * self.target * _TRUST + self._fall) / (_TRUST + self._spread)
        self._slope = min(max(slope, _FLATTEST * self.target), _STEEPEST * self.target)

    def _place(self) -> None:
        """The next dial to give out."""
        flying, mean = self._sums.last(int(self._flight))
        coming = 0.0  # what requests in flight will spend above the budget
        if flying:
            each = self._slope * (self._centre - mean)
            coming = flying * min(max(each, 1.0 - self.target), 8 * self.target)
        foreseen = self._debt + coming
        linear = min(max(foreseen / (self.target * self._horizon(foreseen)), -1.0), 1.0)
        urgent = self._debt / (self.target * self._horizon(self._debt))
        urgent = min(max(urgent, -_URGENT), _URGENT)
        self._push = self.target * (linear + urgent**3) / self._slope
        dither = _DITHER * (self.requests * _GOLDEN % 1 - 0.5)
        self._at = min(max(self._centre + self._push + dither, self._bottom), self._top)
        self._sums.add(self._at)
        self._price = self._unscaled(self._at)

    def _scaled(self, value: float) -> float:
        if self.dial == "price":
            return math.log(max(value, _LEAST))
        value = min(max(value, _EDGE), 1 - _EDGE)
        return math.log(value / (1 - value))

    def _unscaled(self, at: float) -> float:
        if at <= self._bottom:
            return self._low
        if at >= self._top:
            return self._high
        return math.exp(at) if self.dial == "price" else 1 / (1 + math.exp(-at))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
