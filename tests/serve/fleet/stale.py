"""A fleet's traffic, simulated: the real pacemaker and followers, with prices and costs that are old.

Time goes in steps of 10 ms. Requests come at even distances, to each gateway in turn, and take a while. A
gateway tells its costs, and reads the price, once in a period of its own; the pacemaker does so too, and
publishes what it has come to at once. What a request costs at a price is that of the recorded samples of
tests/serve/pacing.py.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from pacing import HIGH, LOW, Costs, _traffic

from adacompute.policies.base import spread_price
from adacompute.serve.pricing.fleet import FleetPacer, Pacemaker, name_lane

STEP = 0.01  # seconds


@dataclass
class Fleet:
    """What Redis would hold, and the gateways."""

    target: float
    replicas: int
    start: float
    period: float = 0.1  # seconds
    costs: list[str] = field(default_factory=list)
    published: tuple[str, str, str] | None = None
    state: str = ""
    paced: int = 0

    def __post_init__(self) -> None:
        lane = ("stopping", self.target, "price", LOW, HIGH)
        self.lane = name_lane(lane)
        self.outbox: list[list[str]] = [[] for _ in range(self.replicas)]
        self.followers = [
            FleetPacer(lane, self.start, lambda _lane, _start, cost, box=box: box.append(cost))
            for box in self.outbox
        ]
        self.maker = Pacemaker()

    def beat(self, step: int) -> None:
        """The gateways whose turn it is talk to Redis; the first of them is the pacemaker."""
        every = max(1, round(self.period / STEP))
        for i, (box, follower) in enumerate(zip(self.outbox, self.followers, strict=True)):
            if (step + i * every // self.replicas) % every:
                continue
            self.costs += box
            box.clear()
            if i == 0 and self.costs:
                self.pace()
            if self.published is not None:
                follower.update(*self.published)

    def pace(self) -> None:
        due = [self.lane, repr(self.start), str(self.paced) if self.paced else False, self.state, self.costs]
        (told,) = self.maker.pace_lanes([due])
        self.published = told["price"], told["average"], told["requests"]
        self.paced, self.state, self.costs = int(told["requests"]), told["state"], []

    def takeover(self) -> None:
        """Another gateway paces from now on: it knows what was published, and no more."""
        self.maker = Pacemaker()


def simulated(
    fleet: Fleet,
    costs: Costs,
    kind: str = "stationary",
    *,
    requests: int,
    rate: float,
    takes: float = 0.5,
    seed: int = 0,
    takeovers: int = 0,
) -> tuple[float, list[float]]:
    """The average cost of so many requests at `rate` a second, of `takes` seconds each, and all prices."""
    rng = np.random.default_rng(seed)
    places = rng.random(requests)
    chosen = _traffic(kind, costs, fleet.target, requests, rng)
    flying: deque[tuple[float, int, int, float]] = deque()  # ends, gateway, cost, price
    total, begun, ended, step = 0, 0, 0, 0
    prices: list[float] = []
    while ended < requests:
        now = step * STEP
        while begun < requests and begun / rate <= now:
            follower = fleet.followers[begun % fleet.replicas]
            row = costs.at(spread_price(follower.price, places[begun]))
            cost = costs.rows[row][chosen(begun, row)]
            flying.append((now + takes * rng.uniform(0.8, 1.2), begun % fleet.replicas, cost, follower.price))
            prices.append(follower.price)
            begun += 1
            if takeovers and begun % (requests // (takeovers + 1)) == 0:
                fleet.takeover()
        for _ in range(len(flying)):
            end, gateway, cost, price = flying.popleft()
            if end <= now:
                fleet.followers[gateway].settle(cost, price)
                total, ended = total + cost, ended + 1
            else:
                flying.append((end, gateway, cost, price))
        fleet.beat(step)
        step += 1
    return total / ended, prices
