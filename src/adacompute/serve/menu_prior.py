"""A menu without a policy: the prior in the package decides, and is fitted to what is seen of the modes.

At first what a sample of each mode costs is guessed by its prices. Once that is measured, and far from the
guess, the rules are chosen anew. A small share of requests is drawn to the end in every mode; they tell how
often the cheapest mode gives the dearest one's answer, without labels, and the prior is settled on that.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adacompute.client import ModeEndpoint
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.menu.prior import PairKind, load_menu_prior
from adacompute.pool.menu import Menu, Mode
from adacompute.records import GUESSED_PROMPT, BudgetUnit
from adacompute.serve.sample_loop import EXPLORED_SAMPLES, ModeClasses

__all__ = ["PairMonitor", "PriorUpdater", "choose_explore", "guess_cost", "make_prior_policy"]

if TYPE_CHECKING:
    from adacompute.serve.chat import Gateway

_TOKEN_BYTES = 4  # of a prompt, on average
_COST_RATIO = 1.5  # of a mode's measured cost and the one in use, beyond which rules are chosen anew
_EXPLORE, _EXPLORE_COST = 0.02, 0.1  # of requests; of the budget, at most, where exploring isn't set
_MIN_EXPLORED = 20  # requests, before the kind of a pair is known
_VOTED = 4  # cheap samples whose vote is compared with a single one
_NOTE = "menu_pair"  # the ledger's note that keeps what a monitor has seen


def make_prior_policy(
    modes: Sequence[ModeEndpoint], unit: BudgetUnit, measured: Mapping[str, float] | None = None
) -> MenuPolicy:
    """The unfitted policy of these modes, at what a sample of each costs beside one of the dearest.

    That is as measured; a mode that wasn't is guessed by its prices.
    """
    known = {} if measured is None else measured
    costs = {mode.name: known.get(mode.name, guess_cost(mode, unit)) for mode in modes}
    dearest = max(costs.values()) or 1.0
    order = sorted(costs, key=lambda name: costs[name])  # stable: of equal ones the later is the dearer
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


class PairMonitor:
    """How often the cheapest mode gives the dearest one's answer, on requests that were drawn to the end."""

    def __init__(self) -> None:
        self.requests = 0
        self._single, self._voted = 0.0, 0.0  # of one cheap sample, and of the vote of four

    def add(self, votes: ModeClasses, cheap: str, dear: str) -> None:
        """Takes a request into account; one without an answer of the dearest mode tells nothing."""
        numbers, _ = votes[cheap]
        _, leader = votes[dear]
        if leader is None or not numbers:
            return
        first = numbers[:_VOTED]
        answered = [number for number in first if number >= 0]
        self.requests += 1
        self._single += sum(number == leader for number in numbers) / len(numbers)
        self._voted += bool(answered) and max(answered, key=answered.count) == leader

    @property
    def kind(self) -> PairKind | None:
        """The kind of the pair; None: too few requests were drawn to the end."""
        if self.requests < _MIN_EXPLORED:
            return None
        single = self._single / self.requests
        return PairKind(single, self._voted / self.requests - single)

    def state(self) -> dict[str, float]:
        """Plain data for `restore`."""
        return {"requests": float(self.requests), "single": self._single, "voted": self._voted}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continues from a `state`; one that is invalid changes nothing."""
        values = [state.get(name) for name in ("requests", "single", "voted")]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        if len(numbers) == 3 and all(0 <= number <= numbers[0] < 2**53 for number in numbers):
            self.requests, self._single, self._voted = int(numbers[0]), numbers[1], numbers[2]


class PriorUpdater:
    """Keeps a gateway's prior at the measured costs, and on the kind of pair that its modes are.

    `explores_freely`: the share of requests that are drawn to the end is chosen here as well. In a fleet each
    gateway measures for itself.
    """

    def __init__(self, gateway: "Gateway", *, explores_freely: bool) -> None:
        self._gateway = gateway
        self._explores_freely = explores_freely
        self._pair = ("", "")  # the cheapest and the dearest mode, which the monitor compares
        self.monitor = PairMonitor()
        self._settled_at = 0  # requests, of the monitor, when the rules in use were chosen
        gateway.on_explored = self._observe
        self._choose_pair()
        stored = None if gateway.settings.redis else gateway.resources.ledger.recall(_NOTE)
        if stored is not None and stored.get("modes") == self._describe_pair():
            self.monitor.restore(stored)

    def update(self) -> None:
        """Chooses the rules anew, where costs or the kind are known better than before."""
        gateway, costs = self._gateway, self._measure_costs()
        if self._explores_freely and costs is not None:
            gateway.explore = choose_explore(gateway.budget.amount, list(costs.values()))
        has_new_costs = costs is not None and self._are_far(costs)
        has_new_kind = self.monitor.kind is not None and self.monitor.requests >= 2 * self._settled_at
        if has_new_costs or has_new_kind:
            self._replace_policy(costs)
        self.save()

    def save(self) -> None:
        """Saves what the monitor has seen, for the next start; in a fleet nothing is kept."""
        if self.monitor.requests and not self._gateway.settings.redis:
            note = {**self.monitor.state(), "modes": self._describe_pair()}
            self._gateway.resources.ledger.remember(_NOTE, note)

    def _observe(self, votes: ModeClasses) -> None:
        self.monitor.add(votes, *self._pair)

    def _replace_policy(self, costs: Mapping[str, float] | None) -> None:
        gateway = self._gateway
        modes = [source.mode for source in gateway.resources.sources.values() if source.mode is not None]
        in_use = {mode.name: mode.cost for mode in self._menu.modes}
        policy = make_prior_policy(modes, gateway.budget.unit, in_use if costs is None else costs)
        kind = self.monitor.kind
        if kind is not None and (policy.names[0], policy.names[-1]) == self._pair:
            policy.take_prior(load_menu_prior(), policy.stoppers_, kind)
            self._settled_at = self.monitor.requests
        gateway.policy_registry.replace_default(policy)
        gateway.announce_policies()
        self._choose_pair()

    def _choose_pair(self) -> None:
        """Compares the modes that are the cheapest and the dearest by now; another pair from scratch."""
        pair = (self._menu.names[0], self._menu.names[-1])
        if pair != self._pair:
            self._pair, self.monitor, self._settled_at = pair, PairMonitor(), 0

    @property
    def _menu(self) -> Menu:
        registry = self._gateway.policy_registry
        menu = registry.get(registry.default).menu
        assert menu is not None, "the prior serves where there are several modes"
        return menu

    def _describe_pair(self) -> list[str]:
        """The modes that are compared, with their models: what is stored of others doesn't apply to them."""
        modes = [self._gateway.resources.sources[name].mode for name in self._pair]
        return [text for mode in modes if mode is not None for text in (mode.name, mode.model)]

    def _measure_costs(self) -> dict[str, float] | None:
        """What a sample of each mode costs, in the unit of the budget; None: not known of all yet."""
        gateway, unit = self._gateway, self._gateway.budget.unit
        known = {name: gateway.find_costs(name).find(unit) for name in gateway.resources.modes}
        costs = {name: cost for name, cost in known.items() if cost is not None}
        return costs if len(costs) == len(known) else None

    def _are_far(self, costs: Mapping[str, float]) -> bool:
        """Whether costs, beside the dearest's, are far from those in use."""
        dearest = max(costs.values())
        pairs = [(costs[mode.name] / dearest, mode.cost) for mode in self._menu.modes] if dearest else []
        return any(
            new != old and not (old > 0 and 1 / _COST_RATIO < new / old < _COST_RATIO) for new, old in pairs
        )
