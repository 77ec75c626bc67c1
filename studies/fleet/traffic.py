"""What a request costs at each price, from recorded samples: the real policy along real paths.

Knows nothing of gateways or of time. A path's critical prices are asked of the policy once; then its samples
and waves at any price are exact, and tabled at prices half a per cent apart.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

import adacompute as ac
from adacompute.policies.paths import draw_paths

__all__ = ["HIGH", "LOW", "Recorded", "mixed_cost", "price_for", "recorded"]

LOW, HIGH = 1e-6, 1.0  # of prices, as the gateway bounds them
STEP = 0.005  # of a price's logarithm
_ORDERS = 12  # paths a problem

Floats = npt.NDArray[np.float64]
Small = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """Paths of one recording; a row for each price, from LOW up."""

    name: str
    drawn: Small  # (prices, paths) samples
    waves: Small  # (prices, paths) round trips
    cost: Floats  # (prices,) mean samples
    accuracy: Floats  # (prices,) share right

    @property
    def paths(self) -> int:
        """How many there are."""
        return int(self.drawn.shape[1])


def row_of(price: float) -> int:
    """The row of a price."""
    last = round(math.log(HIGH / LOW) / STEP)
    return min(max(round((math.log(max(price, LOW)) - math.log(LOW)) / STEP), 0), last)


def price_of(row: int) -> float:
    """The price of a row."""
    return math.exp(math.log(LOW) + STEP * row)


@cache
def recorded(name: str) -> Recorded:
    """Priced stopping, as it comes, on one of the bundled recordings."""
    ballots = ac.bundled(name).ballots()
    policy = ac.StoppingPolicy().settle(ballots)
    along = draw_paths(
        ballots, rng=np.random.default_rng(7), orders=_ORDERS, longest=policy.longest, weigh=policy.weigh
    )
    reading = policy.read(ballots.prompts)[along.problems]
    every = np.arange(len(along))
    critical = np.array(
        [
            policy.estimate_critical_prices(reading, along.state_after(every, np.full(len(along), at)))
            for at in range(1, policy.longest)
        ]
    )  # (longest - 1, paths) logarithms
    rows = range(row_of(HIGH) + 1)
    drawn = np.empty((len(rows), len(along)), dtype=np.int8)
    first = np.empty(len(rows), dtype=np.int8)
    grade = np.empty(len(rows))
    for row in rows:
        log = math.log(price_of(row))
        stays = np.flatnonzero(~(policy.prior_.price_quantiles[0] > log))  # as WavePlan's first wave
        first[row] = min(1 + int(stays[0] if len(stays) else policy.longest - 1), policy.longest)
        stops = critical <= log
        stops[: first[row] - 1] = False
        at = np.where(stops.any(axis=0), stops.argmax(axis=0) + 1, policy.longest)
        drawn[row] = at
        grade[row] = np.nanmean(along.grade[at - 1, every])
    return Recorded(
        name=name,
        drawn=drawn,
        waves=drawn - first[:, None] + np.int8(1),
        cost=drawn.mean(axis=1),
        accuracy=grade,
    )


def mixed_cost(parts: dict[str, float]) -> Floats:
    """Mean samples at each price of traffic that is so much of each recording, (prices,)."""
    return np.asarray(sum(share * recorded(name).cost for name, share in parts.items()))


def price_for(parts: dict[str, float], budget: float) -> float:
    """The lowest price at which the cost is not above a budget."""
    return price_of(int(np.argmax(mixed_cost(parts) <= budget)))
