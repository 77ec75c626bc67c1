"""Shares prices in a fleet of gateways: one gateway, the pacemaker, sets them, and all use them.

A *lane* is a policy at a budget, and has one price (or threshold). Its name is JSON: the policy's name, the
budget and its unit, the kind and bounds of the dial (price or threshold), and which requests must meet the
budget on average. Gateways share a price if all of these are equal.

The pacemaker has an ordinary pacer for each lane, which learns from the fleet's requests in the order in
which they reached Redis. Its state is stored in Redis, so another gateway can continue from there.
"""

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from weakref import WeakValueDictionary

from adacompute.errors import ConfigError
from adacompute.policies.base import Dial
from adacompute.records import BudgetUnit, Secret
from adacompute.serve.pricing.pacer import Average, Pacer, choose_average
from adacompute.serve.spending.fleet_ledger import FleetLedger
from adacompute.serve.spending.ledger import Caps
from adacompute.serve.spending.redis_client import (
    DEFAULT_TIMING,
    FleetClient,
    FleetTiming,
    connect_redis,
    describe_error,
    find_durability_risks,
    redis_errors,
)

# this number of newest pacers stays in memory, and their prices are read, even if no request uses them
_MAX_LANES = 64

# (policy's name, budget, kind of dial ("price" or "threshold"), lowest dial, highest dial)
FleetLane = tuple[str, float, Dial, float, float]


def name_lane(lane: FleetLane, average: str = "all", unit: BudgetUnit = "samples") -> str:
    """Returns the name under which Redis stores a lane (a policy at a budget).

    `average` says which requests must meet the budget on average: "voted" or "all". `unit` is the budget's
    unit.
    """
    return json.dumps([*lane, average, unit])


def parse_lane(name: str) -> tuple[FleetLane, BudgetUnit]:
    """Parses a lane's name; returns the lane and its budget's unit. ValueError if the name is invalid."""
    policy, budget, dial, low, high, average, unit = json.loads(name)
    is_known = (
        dial in ("price", "threshold") and average in get_args(Average) and unit in get_args(BudgetUnit)
    )
    if not is_known or not all(math.isfinite(number) for number in (budget, low, high)):
        raise ValueError(f"{name:.80} is not a lane")
    return (str(policy), float(budget), dial, float(low), float(high)), unit


class FleetPacer:
    """A pacer that doesn't compute its price, but copies the fleet's published price and average cost."""

    def __init__(
        self,
        lane: FleetLane,
        start: float,
        report_cost: Callable[[str, str, str], None],
        *,
        average: str = "all",
        unit: BudgetUnit = "samples",
    ) -> None:
        self.unit = unit
        self.policy, self.target, self.dial, low, high = lane
        self.bounds = (self.dial, low, high)
        self.price = min(max(start, low), high)
        self.average = self.target
        self.requests = 0  # number of ended requests of all gateways in the fleet
        self.name = name_lane(lane, average, unit)
        self._start, self._report_cost = repr(self.price), report_cost

    def settle(self, cost: float, price: float | None = None, *, start: float | None = None) -> None:
        """Reports a request's cost to the gateway that sets prices."""
        self._start = self._start if start is None else repr(start)
        if math.isfinite(cost) and cost >= 0:
            decided_at = self.price if price is None or not math.isfinite(price) else price
            self._report_cost(self.name, self._start, f"{cost!r} {decided_at!r}")

    def update(self, price: object, average: object, requests: object) -> None:
        """Takes over the fleet's price, average cost and number of requests; ignores invalid numbers."""
        try:
            new_price, mean, count = float(str(price)), float(str(average)), int(str(requests))
        except ValueError:
            return
        _, low, high = self.bounds
        if low <= new_price <= high and math.isfinite(mean):  # the comparison is False for NaN
            self.price, self.average, self.requests = new_price, mean, count

    def state(self) -> dict[str, float | str]:
        """Returns an empty dict, because Redis keeps the state."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Does nothing, because the price comes from the fleet."""


class FleetPacers:
    """Keeps a `FleetPacer` for each policy and budget in use, and the 64 that were made last.

    Their prices are read from Redis at a fixed interval, and after a new pacer is made.
    """

    def __init__(
        self, report_cost: Callable[[str, str, str], None], *, every: float, average: str = "all"
    ) -> None:
        self._report_cost = report_cost
        self._average = average
        self._lanes: WeakValueDictionary[str, FleetPacer] = WeakValueDictionary()
        self._every, self._due = every, 0.0
        # a function that is called when a price changes, with the arguments of `Reporter.on_price`
        self.on_price: Callable[[str, float, float, float, BudgetUnit], None] | None = None
        self._recent: deque[FleetPacer] = deque(maxlen=_MAX_LANES)
        self._queried: list[FleetPacer] = []

    def get(
        self,
        policy: str,
        target: float,
        *,
        dial: Dial,
        start: float,
        low: float,
        high: float,
        unit: BudgetUnit = "samples",
    ) -> FleetPacer:
        """Returns the pacer of a policy at a budget (`target`).

        `start` is the initial price or threshold. If gateways pass different values, the first one counts.
        """
        lane = (policy, target, dial, low, high)
        average = choose_average(self._average, unit)
        name = name_lane(lane, average, unit)
        pacer = self._lanes.get(name)
        if pacer is None:
            pacer = self._lanes[name] = FleetPacer(lane, start, self._report_cost, average=average, unit=unit)
            self._recent.append(pacer)
            self._due = 0.0
        return pacer

    def build_query(self) -> dict[str, Any]:
        """Returns the policies and budgets whose price the next call to Redis should read."""
        now, self._queried = time.monotonic(), []
        if now >= self._due:
            self._queried, self._due = list(self._lanes.values()), now + self._every
        return {"lanes": [follower.name for follower in self._queried]} if self._queried else {}

    def handle_answer(self, answer: dict[str, Any]) -> None:
        """Updates the pacers with the prices that Redis returned for the last `build_query`."""
        for follower, values in zip(self._queried, answer.get("lanes") or [], strict=False):
            if values[0] is False:
                continue  # no request of this policy and budget has ended yet
            previous = follower.price
            follower.update(*values)
            if follower.price != previous and self.on_price is not None:
                self.on_price(
                    follower.policy, follower.target, follower.price, follower.average, follower.unit
                )


# maximum number of pacers kept in memory; a pacer that was dropped is made again from its state in Redis
_MAX_PACERS = 1_024
_MAX_COST = 1e9  # maximum plausible cost of a request, in any unit; a higher cost is ignored
_log = logging.getLogger("adacompute.serve.fleet")


class Pacemaker:
    """Sets the fleet's price for each policy and budget while this gateway is elected to do so."""

    def __init__(self) -> None:
        self._pacers: dict[str, Pacer] = {}
        self._invalid_lanes: set[str] = set()  # names of lanes already logged as invalid

    def pace_lanes(self, due: list[list[Any]]) -> list[dict[str, Any]]:
        """Passes new costs to the pacer of each lane (a policy at a budget); returns new prices and states.

        `due` has a list for each lane: its name, initial dial, number of requests in its stored state, this
        state, and costs that the state doesn't include yet.
        """
        results = []
        for name, start, requests, state, costs in due:
            try:
                results.append(self._pace_lane(name, start, requests or "0", state, costs))
            except (ValueError, TypeError, ConfigError) as exc:  # other programs can write to Redis too
                if name not in self._invalid_lanes and len(self._invalid_lanes) < _MAX_PACERS:
                    self._invalid_lanes.add(name)
                    _log.warning("lane %.200s can't be paced: %s", name, exc)
        return results

    def _pace_lane(self, name: str, start: Any, since: str, state: Any, costs: list[str]) -> dict[str, Any]:  # noqa: ANN401 - of JSON
        settled = [pair for text in costs if (pair := _parse_cost(text)) is not None]
        pacer = self._pacers.pop(name, None)
        # if the stored number of requests differs, another gateway has set prices since: uses its state
        if pacer is None or str(pacer.requests) != since:
            pacer = _make_pacer(name, start, state)
        self._pacers[name] = pacer
        if len(self._pacers) > _MAX_PACERS:
            del self._pacers[next(iter(self._pacers))]
        for cost, price in settled:
            pacer.settle(cost, price)
        return {
            "lane": name,
            "since": since,
            "took": len(costs),
            "price": repr(pacer.price),
            "average": repr(pacer.average),
            "requests": str(pacer.requests),
            "state": json.dumps(pacer.state()),
        }


def _parse_cost(text: str) -> tuple[float, float] | None:
    """Parses "COST DIAL": a request's cost, and the price or threshold in use for it. None if invalid."""
    try:
        cost, price = map(float, text.split())
    except ValueError:
        return None
    return (cost, price) if 0 <= cost <= _MAX_COST else None


def _make_pacer(name: str, start: Any, state: Any) -> Pacer:  # noqa: ANN401 - of JSON
    (_, target, dial, low, high), unit = parse_lane(name)
    pacer = Pacer(target, dial=dial, start=float(start or low), low=low, high=high, unit=unit)
    if state:
        try:
            pacer.restore(json.loads(state))
        except (ConfigError, ValueError, AttributeError) as exc:
            _log.warning("lane %.200s: %s", name, exc)
    return pacer


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """What a gateway knows about its fleet: its size, and whether this gateway sets the prices."""

    replicas: int  # number of gateways that are alive
    pacemaker: bool  # whether this gateway sets the price
    age: float  # seconds since Redis last answered


class Fleet:
    """Connects a gateway to its fleet, in which all gateways share spending, prices and budget."""

    def __init__(self, caps: Caps, *, timing: FleetTiming, average: str = "all") -> None:
        self.replica = os.urandom(6).hex()  # random name of this gateway within the fleet
        self.ledger = FleetLedger(caps, timing=timing)
        self.pacers = FleetPacers(
            lambda lane, start, cost: self.client.add_cost(lane, start, cost),
            every=timing.poll / 2,
            average=average,
        )
        self.client: FleetClient  # set by `join_fleet`
        # budget that an operator has set for all gateways until they restart, as text; "": none
        self.budget = ""
        self.on_budget: Callable[[str], None] | None = None  # called when an operator sets a new budget
        self._pacemaker = Pacemaker()
        self._replicas, self._sets_price, self._beat = 1, False, timing.beat

    def status(self) -> FleetStatus:
        """Returns this gateway's view of the fleet, for metrics."""
        age = time.monotonic() - self.client.answered_at
        # if Redis hasn't answered for `_beat` seconds, another gateway may set the prices by now
        sets_price = self._sets_price and age < self._beat
        return FleetStatus(replicas=self._replicas, pacemaker=sets_price, age=age)

    async def share_budget(self, text: str) -> None:
        """Publishes an operator's budget ("" for none) to all gateways; waits until Redis has stored it."""
        self.client.add_note("budget", text)
        await self.client.flush()

    def build_query(self) -> dict[str, Any]:
        """Returns the part of the next call to Redis that asks for spending and prices."""
        return self.ledger.build_query() | self.pacers.build_query()

    def handle_answer(self, answer: dict[str, Any]) -> None:
        """Updates spending, prices and budget from a reply of Redis. The pacemaker also sets new prices."""
        self.ledger.handle_answer(answer)
        self.pacers.handle_answer(answer)
        if "replicas" not in answer:
            return  # the repeat of a lost answer has neither prices nor fleet data; the next answer has them
        self._replicas = answer["replicas"]
        if answer["budget"] != self.budget:
            self.budget = answer["budget"]
            if self.on_budget is not None:
                self.on_budget(self.budget)
        if answer["pacemaker"] != self._sets_price:
            self._sets_price = answer["pacemaker"]
            _log.info(
                "replica %s %s the price of its fleet",
                self.replica,
                "sets" if self._sets_price else "no longer sets",
            )
        if published := self._pacemaker.pace_lanes(answer.get("due") or []):
            self.client.publish(published)


async def join_fleet(
    url: str,
    name: str,
    caps: Caps,
    *,
    key: Secret | None = None,
    timing: FleetTiming = DEFAULT_TIMING,
    average: str = "all",
) -> Fleet:
    """Joins a fleet as another gateway; raises ConfigError if Redis can't be used.

    `average` is the setting of that name: which requests must meet the budget on average.
    """
    redis = connect_redis(url, key=key, timeout=timing.timeout)
    fleet = Fleet(caps, timing=timing, average=average)
    new = os.urandom(8).hex()
    try:
        info = await redis.info()
        fleet.client = fleet.ledger.client = FleetClient(
            redis,
            url=url,
            base=f"adacompute:{{{name}}}",
            replica=fleet.replica,
            script_settings=fleet.ledger.script_settings,
            timing=timing,
            build_query=fleet.build_query,
            handle_answer=fleet.handle_answer,
            list_reservations=fleet.ledger.list_reservations,
        )
        answer = await fleet.client.begin(new)
    except redis_errors() as exc:
        await redis.aclose()
        raise ConfigError(describe_error(url, exc)) from None
    except (ValueError, KeyError, TypeError) as exc:  # other programs can write to Redis too
        await redis.aclose()
        raise ConfigError(
            f"{url}: what it holds of the fleet {name} can't be read ({type(exc).__name__}: {exc}); see who "
            "else writes there, or give another fleet"
        ) from None
    for risk in find_durability_risks(info):
        _log.warning("%s: hard caps are as durable as Redis, and %s", url, risk)
    if answer["id"] == new:
        _log.warning("%s: a new ledger was created for the fleet %s, at 0", url, name)
    _log.info("replica %s has joined the fleet %s, of %d with it", fleet.replica, name, answer["replicas"])
    return fleet
