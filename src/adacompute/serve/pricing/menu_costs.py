"""A menu without a policy: plain cascades decide, by what a sample of each mode costs.

At first that is guessed by the modes' prices. Once it is measured, and far from the guess, the cascades are
chosen anew. A small share of requests is drawn to the end in every mode, to learn a policy from.
"""

from collections.abc import Mapping, Sequence

from adacompute.client import ModeEndpoint
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.pool.menu import Menu, Mode
from adacompute.records import GUESSED_PROMPT, BudgetUnit

__all__ = ["EXPLORED_SAMPLES", "are_far", "choose_explore", "guess_cost", "make_cascades"]

EXPLORED_SAMPLES = 8  # samples of each mode of a menu, at most, that a request drawn to the end gets
_TOKEN_BYTES = 4  # a prompt's mean
_COST_RATIO = 1.5  # cascades are chosen anew if a measured cost is so many times the one in use
_EXPLORE, _EXPLORE_COST = 0.02, 0.1  # explored share of requests, at most that share of the budget


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
