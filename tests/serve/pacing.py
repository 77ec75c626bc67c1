"""Live traffic for a pacer, simulated: the real policy's cost on recorded samples, or a made-up staircase.

What each recorded path costs is tabled at prices that are closer where cost falls faster, so a simulation of
thousands of requests takes a fraction of a second. Requests overlap: one is settled after `delay` others
have begun, a little out of order.
"""

import bisect
import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

import adacompute as ac
from adacompute.policies.base import spread_price
from adacompute.policies.paths import draw_paths
from adacompute.replay import PolicyRun, run_policy
from adacompute.serve.pricing.pacer import Pacer
from shared import read_votes

LOW, HIGH = 1e-6, 1.0
KINDS = ("stationary", "easy then hard", "hard then easy", "seasons", "sorted", "bursts", "spends", "saves")


@dataclass(frozen=True, eq=False)
class Costs:
    """What paths cost at prices; arrays are (prices, paths)."""

    logs: list[float]  # of prices, rising
    drawn: npt.NDArray[np.int64] | npt.NDArray[np.float64]  # samples, or another cost
    right: npt.NDArray[np.float64]
    rows: list[list[float]] = field(init=False, repr=False)  # `drawn`, quicker to look up
    mean: list[float] = field(init=False)  # cost at each price
    order: npt.NDArray[np.int64] = field(init=False)  # of paths, easiest first

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.drawn.tolist())
        object.__setattr__(self, "mean", self.drawn.mean(axis=1).tolist())
        object.__setattr__(self, "order", np.argsort(self.drawn.mean(axis=0), kind="stable"))

    def at(self, price: float) -> int:
        """The row of a price."""
        return min(bisect.bisect_left(self.logs, math.log(max(price, 1e-12))), len(self.logs) - 1)

    def price(self, budget: float) -> float:
        """The lowest price at which the cost is not above a budget, as calibration finds it."""
        return math.exp(next(log for log, cost in zip(self.logs, self.mean, strict=True) if cost <= budget))


@cache
def recorded(name: str, points: int = 40) -> Costs:
    """The stopping policy, as it comes, on one of the bundled recordings."""
    ballots = read_votes(name)
    policy = ac.StoppingPolicy().settle(ballots)
    along = draw_paths(
        ballots, rng=np.random.default_rng(7), orders=4, longest=policy.longest, weigh=policy.weigh
    )
    reading = policy.read(ballots.prompts)

    def found(log: float) -> PolicyRun:
        return run_policy(policy, along, dial=math.exp(log), reading=reading)

    runs = {log: found(log) for log in np.linspace(math.log(LOW), math.log(HIGH), 15).tolist()}
    while len(runs) < points:  # halves the gap in which cost falls most
        logs = sorted(runs)
        falls = [
            (runs[a].drawn.mean() - runs[b].drawn.mean(), (a + b) / 2)
            for a, b in itertools.pairwise(logs)
            if b - a > 1e-4
        ]
        middle = max(falls)[1]
        runs[middle] = found(middle)
    logs = sorted(runs)
    return Costs(
        logs, np.stack([runs[log].drawn for log in logs]), np.stack([runs[log].grade for log in logs])
    )


def staircase(steps: list[tuple[float, float, int]], paths: int = 1000) -> Costs:
    """Paths that cost 1, but for (share, price, cost) each below its price."""
    logs = sorted({math.log(price) for _, price, _ in steps} | {math.log(HIGH)})
    drawn = np.ones((len(logs), paths), dtype=np.int64)
    first = 0
    for share, price, cost in steps:
        last = first + round(share * paths)
        drawn[[log <= math.log(price) for log in logs], first:last] = cost
        first = last
    return Costs(logs, drawn, np.zeros(drawn.shape))


def in_tokens(costs: Costs, *, spread: float, seed: int = 0) -> tuple[Costs, float]:
    """What the same paths cost in tokens, and what one sample costs on average.

    Each path has a typical length, log-normal with that spread and longer where it is hard; its samples
    vary about it. Each sample has a prompt of 50 tokens.
    """
    rng = np.random.default_rng(seed)
    paths, longest = costs.drawn.shape[1], int(costs.drawn.max())
    rank = np.empty(paths)
    rank[costs.order] = np.arange(paths) / paths
    normal = 0.5 * (rank - 0.5) * math.sqrt(12) + math.sqrt(0.75) * rng.normal(size=paths)
    lengths = 100 * np.exp(spread * normal[:, None] + 0.4 * rng.normal(size=(paths, longest)))
    sums = np.concatenate([np.zeros((paths, 1)), np.cumsum(50 + lengths, axis=1)], axis=1)
    tokens = np.stack([sums[np.arange(paths), drawn] for drawn in costs.drawn])
    return Costs(costs.logs, tokens, costs.right), float(50 + lengths[:, 0].mean())


@dataclass(frozen=True)
class Outcome:
    """What traffic cost, and how the dial moved."""

    average: float  # of all requests that were settled
    chosen: list[int] = field(repr=False)  # paths
    prices: list[float] = field(repr=False)
    averages: list[float] = field(repr=False)


def paced(
    pacer: Pacer,
    costs: Costs,
    kind: str = "stationary",
    *,
    requests: int = 2000,
    delay: int = 0,
    seed: int = 0,
    blind: bool = False,
) -> Outcome:
    """Sends requests until so many are settled; `blind`: the pacer isn't told the price they were given."""
    rng = np.random.default_rng(seed)
    chosen = _traffic(kind, costs, pacer.target, requests + delay, rng)
    flying: deque[tuple[int, float]] = deque()
    taken: list[int] = []
    prices: list[float] = []
    averages: list[float] = []
    turns = rng.integers(0, 8, requests + delay).tolist()
    places = rng.random(requests + delay)
    total = 0.0
    began = 0
    while len(averages) < requests:
        price = pacer.price
        row = costs.at(spread_price(price, places[began], dial=pacer.dial))
        path = chosen(began, row)
        flying.append((costs.rows[row][path], price))
        taken.append(path)
        prices.append(price)
        began += 1
        if len(flying) > delay:
            turn = min(turns[began - 1], len(flying) - 1)
            flying.rotate(-turn)
            cost, price = flying.popleft()
            flying.rotate(turn)
            pacer.settle(cost) if blind else pacer.settle(cost, price=price)
            total += cost
            averages.append(total / (len(averages) + 1))
    return Outcome(averages[-1], taken, prices, averages)


def _traffic(
    kind: str, costs: Costs, budget: float, count: int, rng: np.random.Generator
) -> Callable[[int, int], int]:
    """Which path comes as the i-th request, while the price is that of a row."""
    size = costs.drawn.shape[1]
    at = rng.random(count)
    part = np.arange(count) / count
    if kind in ("spends", "saves"):  # sees the price; hard while it is low, or while it is high

        def adversary(number: int, row: int) -> int:
            hard = (costs.mean[row] >= budget) == (kind == "spends")
            return int(costs.order[int((0.75 * hard + 0.25 * at[number]) * size)])

        return adversary
    place = {
        "stationary": at,
        "easy then hard": 0.5 * (part >= 0.5) + 0.5 * at,
        "hard then easy": 0.5 * (part < 0.5) + 0.5 * at,
        "seasons": 0.5 * (0.5 + 0.5 * np.sin(8 * np.pi * part)) + 0.5 * at,
        "sorted": part,
        "bursts": 0.5 * (np.arange(count) // 100 % 2) + 0.5 * at,
    }[kind]
    listed: list[int] = costs.order[np.minimum((place * size).astype(np.int64), size - 1)].tolist()
    return lambda number, row: listed[number]
