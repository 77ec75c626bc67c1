"""Where a policy begins, before anything is measured: its dial, and what a sample of each mode costs.

A menu without a policy is served by plain cascades, by those costs: guessed by the modes' prices at first.
Once they are measured, and far from the guess, the cascades are chosen anew. A small share of requests is
drawn to the end in every mode, to learn a policy from.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adacompute.client import ModeEndpoint
from adacompute.policies.base import Policy
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.critical_price import WAVE_QUANTILES
from adacompute.policies.votes import Floats
from adacompute.pool import Menu, Mode
from adacompute.records import GUESSED_PROMPT, BudgetUnit
from adacompute.serve.pricing.pacer import Bounds

__all__ = [
    "EXPLORED_SAMPLES",
    "are_far",
    "choose_explore",
    "find_bounds",
    "find_menu",
    "guess_cost",
    "guess_start",
    "make_cascades",
]

EXPLORED_SAMPLES = 8  # samples of each mode of a menu, at most, that a request drawn to the end gets
_TOKEN_BYTES = 4  # a prompt's mean
_COST_RATIO = 1.5  # cascades are chosen anew if a measured cost is so many times the one in use
_EXPLORE, _EXPLORE_COST = 0.02, 0.1  # explored share of requests, at most that share of the budget
_START_THRESHOLD = 0.5
_START_PRICE = 0.02  # what one sample costs, in accuracy
_MIN_SAMPLE_PRICE, _MAX_SAMPLE_PRICE = 1e-6, 1.0  # prices of one sample that make a difference
_CASCADE_PRICES = (1e-6, 1e4)  # what a sample of the dearest mode may be priced at without a fit
_BISECTIONS = 50
_MIN_SPREAD = 0.1  # between logarithms: quantiles may coincide


def find_bounds(policy: Policy) -> Bounds | None:
    """The bounds of a policy's dial; None if it has none."""
    if policy.dial != "price":
        return None if policy.dial is None else (policy.dial, 0.0, 1.0)
    menu = find_menu(policy)
    if isinstance(policy, MenuPolicy) and policy.origin_ != "fitted" and menu is not None:
        return policy.dial, *_CASCADE_PRICES  # its costs are measured while it serves: the dial goes on
    if menu is not None:
        costs = [cost for cost in menu.costs.tolist() if 0 < cost < math.inf] or [1.0]
        return policy.dial, _MIN_SAMPLE_PRICE / max(costs), _MAX_SAMPLE_PRICE / min(costs)
    return policy.dial, policy.convert_price(_MIN_SAMPLE_PRICE), policy.convert_price(_MAX_SAMPLE_PRICE)


def guess_start(policy: Policy, budget: float) -> float:
    """A rough first dial for a policy that has no chart: it may cost about `budget` samples a request."""
    if policy.dial == "threshold":
        return _START_THRESHOLD
    menu = find_menu(policy)
    if menu is not None:
        return _guess_menu_price(policy, menu, budget)
    if not isinstance(policy, StoppingPolicy):
        return policy.convert_price(_START_PRICE)
    openings = policy.prior_.price_quantiles[:, : policy.longest - 1]
    low, high = math.log(_MIN_SAMPLE_PRICE), math.log(_MAX_SAMPLE_PRICE)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _estimate_cost(middle, openings) > budget else (low, middle)
    return policy.convert_price(math.exp(high))


def find_menu(policy: Policy) -> Menu | None:
    """The menu of a policy that chooses among several modes; None: it draws samples of one."""
    menu = getattr(policy, "menu", None)
    return menu if isinstance(menu, Menu) and len(menu) > 1 else None


def _guess_menu_price(policy: Policy, menu: Menu, budget: float) -> float:
    """The price at which a policy over a menu cost so much on what it has learned from."""
    if isinstance(policy, MenuPolicy) and len(policy.cost_) > 1:
        position = np.interp(budget, policy.cost_, -np.log(policy.prices_))
        return float(np.exp(-position))
    return _START_PRICE / max(float(np.min(menu.costs[menu.costs > 0], initial=math.inf)), 1e-12)


def _estimate_cost(log_price: float, openings: Floats) -> float:
    """Samples per request at a price: the first, and then each by the share of requests that go on.

    That share after each draw is read off the quantiles of critical prices there; what has stopped
    stays stopped.
    """
    share = 1.0
    total = 1.0
    for quantiles in openings.T:
        share = min(share, _share_above(log_price, quantiles))
        total += share
    return total


def _share_above(log_price: float, quantiles: Floats) -> float:
    """The share of tallies with a higher critical price, interpolated between the quantiles.

    Beyond the last quantile it is extrapolated.
    """
    if log_price <= quantiles[-1]:
        return 1.0 - float(np.interp(log_price, quantiles, WAVE_QUANTILES, left=0.0))
    spread = max(
        _MIN_SPREAD, float(quantiles[-1] - quantiles[-2])
    )  # over the fifth of them next to the median
    return (1 - WAVE_QUANTILES[-1]) * math.exp(-0.5 * float(log_price - quantiles[-1]) / spread)


def make_cascades(
    modes: Sequence[ModeEndpoint], unit: BudgetUnit, measured: Mapping[str, float] | None = None
) -> MenuPolicy:
    """The unfitted policy of these modes, at what a sample of each costs beside one of the dearest.

    Without `measured` costs they are guessed by the modes' prices.
    """
    costs = measured or {mode.name: guess_cost(mode, unit) for mode in modes}
    dearest = max(costs.values()) or 1.0
    order = sorted((mode.name for mode in modes), key=costs.__getitem__)  # equal ones keep their order
    return MenuPolicy(Menu(modes=tuple(Mode(name=name, cost=costs[name] / dearest) for name in order)))


def guess_cost(mode: ModeEndpoint, unit: BudgetUnit) -> float:
    """What a sample of a mode may cost, before anything is known, in the unit of a budget."""
    prompt = GUESSED_PROMPT + mode.added_tokens / _TOKEN_BYTES
    return mode.prices.guess_cost(max_tokens=mode.max_tokens, prompt_tokens=prompt, unit=unit)


def choose_explore(budget: float, costs: Sequence[float]) -> float:
    """The share of requests to draw to the end, for a tenth of the budget at most, by a sample's costs.

    >>> choose_explore(0.5, [0.1, 1.0]) < choose_explore(100.0, [0.1, 1.0]) == 0.02
    True
    """
    whole = EXPLORED_SAMPLES * sum(costs)
    return min(_EXPLORE, _EXPLORE_COST * budget / whole) if whole else _EXPLORE


def are_far(costs: Mapping[str, float], menu: Menu) -> bool:
    """Whether costs of samples, beside the dearest's, are far from those in use."""
    dearest = max(costs.values()) or 1.0
    pairs = [(costs[mode.name] / dearest, mode.cost) for mode in menu.modes]
    return any(
        new != old and not (old > 0 and 1 / _COST_RATIO < new / old < _COST_RATIO) for new, old in pairs
    )
