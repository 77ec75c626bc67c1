"""The price that a fleet has agreed on, as one gateway follows it. Knows nothing of how it is set.

A *lane* is a policy at a budget. Its name is JSON, and holds the bounds of the dial as well: gateways that
serve another version of a policy, with other bounds, have a lane of their own.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from adacompute.policies.base import Dial

__all__ = ["Followed", "Lane", "lane_of", "named"]

_LANES = 64  # that are followed though nobody holds them: those last made

Lane = tuple[str, float, Dial, float, float]  # policy, budget, what is turned, its lowest and highest


def named(lane: Lane) -> str:
    """A lane as Redis knows it."""
    return json.dumps(lane)


def lane_of(name: str) -> Lane:
    """The lane of a name; ValueError where it is none."""
    policy, budget, dial, low, high = json.loads(name)
    if dial not in ("price", "threshold") or not all(math.isfinite(each) for each in (budget, low, high)):
        raise ValueError(f"{name:.80} is no lane")
    return str(policy), float(budget), dial, float(low), float(high)


class Follower:
    """One lane, with the face of a pacer: its price is the fleet's, and so is its average."""

    def __init__(self, lane: Lane, start: float, told: Callable[[str, str, str], None]) -> None:
        self.policy, self.target, self.dial, low, high = lane
        self.bounds = (self.dial, low, high)
        self.price = min(max(start, low), high)
        self.average = self.target
        self.requests = 0  # of all gateways
        self.name, self._start, self._told = named(lane), repr(self.price), told

    def settle(self, cost: float, price: float | None = None) -> None:
        """A request of this gateway has ended: whoever sets the price is told, soon."""
        if math.isfinite(cost) and cost >= 0:
            given = self.price if price is None or not math.isfinite(price) else price
            self._told(self.name, self._start, f"{cost!r} {given!r}")

    def hear(self, price: object, average: object, requests: object) -> None:
        """What the fleet has come to; nonsense changes nothing."""
        try:
            found, mean, count = float(str(price)), float(str(average)), int(str(requests))
        except ValueError:
            return
        _, low, high = self.bounds
        if low <= found <= high and math.isfinite(mean):  # NaN isn't
            self.price, self.average, self.requests = found, mean, count

    def state(self) -> dict[str, float | str]:
        """Nothing: it is kept in Redis."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """It follows the others."""


class Followed:
    """The lanes that one gateway follows: all that somebody holds, and the last that were made.

    They are read once in `every` seconds, and with the next call where one is new.
    """

    def __init__(self, told: Callable[[str, str, str], None], *, every: float) -> None:
        self._told = told
        self._every, self._due = every, 0.0
        self.shown: Callable[[str, float, float, float], None] | None = (
            None  # told of news, as `Seen.paced` is
        )
        self._lanes: WeakValueDictionary[str, Follower] = WeakValueDictionary()
        self._made: deque[Follower] = deque(maxlen=_LANES)
        self._asked: list[Follower] = []

    def of(
        self, policy: str, target: float, *, dial: Dial, start: float, low: float, high: float
    ) -> Follower:
        """The follower of a lane; `start` is what the first of all gateways begins at."""
        lane = (policy, target, dial, low, high)
        name = named(lane)
        found = self._lanes.get(name)
        if found is None:
            found = self._lanes[name] = Follower(lane, start, self._told)
            self._made.append(found)
            self._due = 0.0
        return found

    def ask(self) -> dict[str, Any]:
        """What is asked with the next call."""
        now, self._asked = time.monotonic(), []
        if now >= self._due:
            self._asked, self._due = list(self._lanes.values()), now + self._every
        return {"lanes": [follower.name for follower in self._asked]} if self._asked else {}

    def hear(self, answer: dict[str, Any]) -> None:
        """Takes in what was answered."""
        for follower, found in zip(self._asked, answer.get("lanes") or [], strict=False):
            if found[0] is False:
                continue  # nobody was told of a request of it yet
            before = follower.price
            follower.hear(*found)
            if follower.price != before and self.shown is not None:
                self.shown(follower.policy, follower.target, follower.price, follower.average)
