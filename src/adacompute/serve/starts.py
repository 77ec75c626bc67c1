"""The bounds of a dial, and where it starts if no chart tells: rough, the pacer does the rest.

Knows nothing of traffic.
"""

import math

import numpy as np
import numpy.typing as npt

from adacompute.policies.base import Dial, Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.waves import QUANTILES

__all__ = ["Bounds", "bounds_of", "guessed"]

Floats = npt.NDArray[np.float64]
Bounds = tuple[Dial, float, float]  # what is turned, its lowest and its highest

_THRESHOLD = 0.5
_PRICE = 0.02  # of one sample, in accuracy
_LOW, _HIGH = 1e-6, 1.0  # prices of one sample that make a difference
_STEPS = 50
_SPREAD = 0.1  # of logarithms, at least: quantiles may fall together


def bounds_of(policy: Policy) -> Bounds | None:
    """What a pacer may do with a policy's dial; None: it has none."""
    if policy.dial != "price":
        return None if policy.dial is None else (policy.dial, 0.0, 1.0)
    return policy.dial, policy.priced(_LOW), policy.priced(_HIGH)


def guessed(policy: Policy, budget: float) -> float:
    """A dial at which a policy may cost about so many samples a request."""
    if policy.dial == "threshold":
        return _THRESHOLD
    if not isinstance(policy, StoppingPolicy):
        return policy.priced(_PRICE)
    openings = policy.prior_.openings[:, : policy.longest - 1]
    low, high = math.log(_LOW), math.log(_HIGH)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _cost(middle, openings) > budget else (low, middle)
    return policy.priced(math.exp(high))


def _cost(log: float, openings: Floats) -> float:
    """Samples a request at the logarithm of a price: the first, and each further one by who goes on for it.

    Who goes on after a draw is read off the quantiles of critical prices there; who has stopped stays so.
    """
    going = 1.0
    total = 1.0
    for quantiles in openings.T:
        going = min(going, _share(log, quantiles))
        total += going
    return total


def _share(log: float, quantiles: Floats) -> float:
    """The share of tallies whose critical price is above, between the quantiles and beyond the last."""
    if log <= quantiles[-1]:
        return 1.0 - float(np.interp(log, quantiles, QUANTILES, left=0.0))
    spread = max(_SPREAD, float(quantiles[-1] - quantiles[-2]))  # of a fifth of them, next to the median
    return (1 - QUANTILES[-1]) * math.exp(-0.5 * float(log - quantiles[-1]) / spread)
