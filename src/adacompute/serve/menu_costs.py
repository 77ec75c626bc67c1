"""A menu without a policy: plain cascades decide, by what a sample of each mode costs.

At first that is guessed by the modes' prices. Once it is measured, and far from the guess, the cascades are
chosen anew. A small share of requests is drawn to the end in every mode, to learn a policy from.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adacompute.client import ModeEndpoint
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.pool import Menu, Mode
from adacompute.records import GUESSED_PROMPT, BudgetUnit
from adacompute.serve.sample_loop import EXPLORED_SAMPLES

__all__ = ["choose_explore", "guess_cost", "make_cascades", "update_cascades"]

if TYPE_CHECKING:
    from adacompute.serve.chat import Gateway

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


def update_cascades(gateway: "Gateway", *, explores_freely: bool) -> None:
    """Chooses the cascades anew, once samples of every mode are known to cost something else.

    `explores_freely`: the share of requests that are drawn to the end is chosen here as well.
    """
    unit, registry = gateway.budget.unit, gateway.policy_registry
    known = {name: gateway.find_costs(name).find(unit) for name in gateway.resources.modes}
    costs = {name: cost for name, cost in known.items() if cost is not None}
    menu = registry.get(registry.default).menu
    if len(costs) < len(known) or menu is None:
        return
    if explores_freely:
        gateway.explore = choose_explore(gateway.budget.amount, list(costs.values()))
    if _are_far(costs, menu):
        modes = [source.mode for source in gateway.resources.sources.values() if source.mode is not None]
        registry.replace_default(make_cascades(modes, unit, costs))
        gateway.announce_policies()


def _are_far(costs: Mapping[str, float], menu: Menu) -> bool:
    """Whether costs, beside the dearest's, are far from those in use."""
    dearest = max(costs.values()) or 1.0
    pairs = [(costs[mode.name] / dearest, mode.cost) for mode in menu.modes]
    return any(
        new != old and not (old > 0 and 1 / _COST_RATIO < new / old < _COST_RATIO) for new, old in pairs
    )
