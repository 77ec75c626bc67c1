"""A menu without a policy: the prior in the package decides, and is fitted to what is seen of the modes.

At first what a sample of each mode costs is guessed by its prices. Once that is measured, and far from the
guess, the rules are chosen anew. A small share of requests is drawn to the end in every mode; they tell how
often the cheapest mode gives the dearest one's answer, without labels, and the prior is settled on that.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adacompute.answers import Tally
from adacompute.client import ModeEndpoint
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.menu.prior import PairKind, load_menu_prior
from adacompute.pool.menu import Menu, Mode
from adacompute.records import Budget, BudgetUnit
from adacompute.serve.sample_loop import EXPLORED_SAMPLES, SampleLoop

__all__ = ["PairMonitor", "PriorUpdater", "choose_explore", "make_prior_policy"]

if TYPE_CHECKING:
    from adacompute.serve.chat import Gateway

_GUESSED_TOKENS = (100, 300)  # of a prompt and a response, before anything is known
_TOKEN_BYTES = 4  # of a prompt, on average
_COST_RATIO = 1.5  # of a mode's measured cost and the one in use, beyond which rules are chosen anew
_EXPLORE, _EXPLORE_COST = 0.02, 0.1  # of requests; of the budget, at most, where exploring isn't set
_MIN_EXPLORED = 20  # requests, before the kind of a pair is known
_VOTED = 4  # cheap samples whose vote is compared with a single one
_NOTE = "menu_pair"  # the ledger's note that keeps what a monitor has seen


def make_prior_policy(
    modes: Sequence[ModeEndpoint], unit: BudgetUnit, measured: Mapping[str, float] | None = None
) -> MenuPolicy:
    """The unfitted policy of these modes, at what a sample of each costs: as measured, else as guessed."""
    known = {} if measured is None else measured
    priced = tuple(Mode(name=mode.name, cost=known.get(mode.name, _guess_cost(mode, unit))) for mode in modes)
    if unit == "money":
        return MenuPolicy(Menu(modes=priced, unit="money", currency=modes[0].prices.currency))
    return MenuPolicy(Menu(modes=priced, unit="tokens"))


def _guess_cost(mode: ModeEndpoint, unit: BudgetUnit) -> float:
    prompt = _GUESSED_TOKENS[0] + mode.added_tokens / _TOKEN_BYTES
    response = min(mode.max_tokens or _GUESSED_TOKENS[1], _GUESSED_TOKENS[1])
    return mode.prices.cost(prompt, response) if unit == "money" else prompt + response


def choose_explore(share: float, budget: Budget, menu: Menu | None) -> float:
    """The share of requests that are drawn to the end: as set, else none, or a little of a prior's budget."""
    if share >= 0 or menu is None:
        return max(0.0, share)
    whole = EXPLORED_SAMPLES * float(menu.costs.sum())
    return min(_EXPLORE, _EXPLORE_COST * budget.amount / whole) if whole else _EXPLORE


class PairMonitor:
    """How often the cheapest mode gives the dearest one's answer, on requests that were drawn to the end."""

    def __init__(self) -> None:
        self.requests = 0
        self._single, self._voted = 0.0, 0.0  # of one cheap sample, and of the vote of four

    def add(self, tally: Tally, cheap: str, dear: str) -> None:
        """Takes a request into account; one without an answer of the dearest mode tells nothing."""
        numbers = tally.list_classes(cheap)
        leader = tally.find_mode_class(dear)
        if leader is None or not numbers:
            return
        first = numbers[:_VOTED]
        votes = [number for number in first if number >= 0]
        self.requests += 1
        self._single += sum(number == leader for number in numbers) / len(numbers)
        self._voted += bool(votes) and max(votes, key=votes.count) == leader

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
    """Keeps a gateway's prior at the measured costs, and on the kind of pair that its modes are."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self.monitor = PairMonitor()
        self._settled_at = 0  # requests, of the monitor, when the rules in use were chosen
        if (stored := gateway.resources.ledger.recall(_NOTE)) is not None:
            self.monitor.restore(stored)
        gateway.on_explored = self._observe
        self.update()

    def _observe(self, sampling: SampleLoop) -> None:
        modes = self._gateway.resources.modes
        self.monitor.add(sampling.tally, modes[0], modes[-1])

    def update(self) -> None:
        """Chooses the rules anew, where costs or the kind are known better than before."""
        gateway, monitor = self._gateway, self.monitor
        if monitor.requests:
            gateway.resources.ledger.remember(_NOTE, monitor.state())
        costs = self._find_new_costs()
        has_new_kind = monitor.kind is not None and monitor.requests >= 2 * self._settled_at
        if costs is None and not has_new_kind:
            return
        registry = gateway.policy_registry
        served = registry.get(registry.default)
        assert served.menu is not None
        in_use = {mode.name: mode.cost for mode in served.menu.modes}
        modes = [source.mode for source in gateway.resources.sources.values() if source.mode is not None]
        policy = make_prior_policy(modes, gateway.budget.unit, in_use if costs is None else costs)
        if monitor.kind is not None:
            policy.take_prior(load_menu_prior(), policy.stoppers_, monitor.kind)
            self._settled_at = monitor.requests
        registry.replace_default(policy)
        gateway.announce_policies()

    def _find_new_costs(self) -> dict[str, float] | None:
        """What a sample of each mode was measured to cost; None: not known yet, or near what is in use."""
        gateway, unit = self._gateway, self._gateway.budget.unit
        names = gateway.resources.modes
        costs = {name: cost for name in names if (cost := gateway.find_costs(name).find(unit))}
        menu = gateway.policy_registry.get(gateway.policy_registry.default).menu
        if menu is None or len(costs) < len(names):
            return None
        ratios = [costs[mode.name] / max(mode.cost, 1e-300) for mode in menu.modes]
        return None if all(1 / _COST_RATIO < ratio < _COST_RATIO for ratio in ratios) else costs
