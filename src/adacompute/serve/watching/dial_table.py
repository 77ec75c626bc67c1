"""What requests cost at each dial, a policy at a budget: the averages, and what is saved by them.

Averages are in the unit of the budget: samples, tokens or money.
Two averages stand side by side. That of *voted* requests is of those whose number of samples a policy
decided; that of *all* has also those that can't be voted on, which cost one sample whatever the price.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from adacompute.policies.chart import Chart
from adacompute.pool.ballots import count_calls
from adacompute.records import BudgetUnit
from adacompute.serve.pricing.pacer import is_in_currency, round_budget
from adacompute.serve.spending.ledger import NO_PROMPT_COST, NO_SPEND, PromptCost, Spend

__all__ = ["DialStats", "DialTable", "format_budget"]

MAX_DIALS = 64  # pairs of a policy and a budget
_MAX_CHOICES = 64  # samples a call: more than uniform sampling needs
_COUNTS = ("requests", "samples", "decided", "decided_samples")  # of a dial, kept over restarts
_COSTS = ("cost", "decided_cost")  # also kept, if its unit isn't samples


def format_budget(budget: float, unit: BudgetUnit = "samples") -> str:
    """A budget, rounded, so that clients can't create ever more labels; samples are a bare number."""
    return f"{round_budget(budget, unit):g}" + ("" if unit == "samples" else f" {unit}")


@dataclass(slots=True)
class DialStats:
    """One policy at one budget: its price, its average cost, and what that saves."""

    policy: str
    budget: float
    unit: BudgetUnit = "samples"  # of the budget
    price: float | None = None
    average: float | None = None  # of its pacer
    requests: int = 0  # that a policy could have decided on, if they can be voted on; kept over restarts
    samples: int = 0  # of these
    decided: int = 0  # those of them that can be voted on, so that the policy decided
    decided_samples: int = 0  # of these
    cost: float = 0.0  # of all, in the unit of the budget
    decided_cost: float = 0.0  # of those decided
    voted: int = 0  # requests with a vote that the policy decided to the end, as in calibration
    voted_samples: int = 0  # samples of these
    voted_tokens: float = 0.0  # that these cost
    voted_money: float = 0.0
    single_tokens: float = 0.0  # of their responses with one sample each, by the mean of their samples
    single_money: float = 0.0
    # cost of their prompts with one call each, tokens and money, by how many samples a call gives at most
    prompts: dict[int | None, tuple[float, float]] = field(default_factory=dict)
    uniform: float | None = None  # samples per request for the same accuracy without a policy; None: unknown
    choices: int | None = (
        None  # samples a call, as the policy's pool recorded it; for upstreams not asked yet
    )
    protocol: str = ""  # how that was measured
    reason: str = ""  # why it is unknown

    @property
    def averages(self) -> dict[str, float | None]:
        """Cost per request: of those that can be voted on, and of all; None before the first."""
        return {
            "voted": self.decided_cost / self.decided if self.decided else None,
            "all": self.cost / self.requests if self.requests else None,
        }

    @property
    def uniform_cost(self) -> tuple[float, float]:
        """Tokens and money of uniform sampling with the same accuracy: responses, and a prompt a call."""
        samples = self.uniform or 0.0
        tokens, money = self.single_tokens * samples, self.single_money * samples
        for choices, (prompt_tokens, prompt_money) in self.prompts.items():
            calls = float(count_calls(samples, choices or self.choices))
            tokens, money = tokens + prompt_tokens * calls, money + prompt_money * calls
        return tokens, money

    @property
    def voted_mean(self) -> float | None:
        """Samples per request that was voted on; None before the first."""
        return self.voted_samples / self.voted if self.voted else None


class DialTable:
    """At most 64 dials; requests at others count in the total only."""

    def __init__(self, unit: BudgetUnit = "samples", currency: str = "") -> None:
        self._currency = currency  # of dials in money: those stored in another one are not continued
        self._dials: dict[tuple[str, float, BudgetUnit], DialStats] = {}
        self._counted = 0  # requests since the start, in any unit
        self.count_in(unit)

    def count_in(self, unit: BudgetUnit) -> None:
        """Starts the overall average, of requests whose budget is in the unit of the gateway's own."""
        self._unit = unit
        self._requests = self._decided = 0
        self._cost = self._decided_cost = self._target = self._decided_target = 0.0

    def __iter__(self) -> Iterator[DialStats]:
        return iter(self._dials.values())

    def get(self, policy: str, budget: float, unit: BudgetUnit = "samples") -> DialStats:
        """The dial of a policy at a budget, which is rounded; a temporary one if there are too many."""
        key = (policy, round_budget(budget, unit), unit)
        dial = self._dials.get(key)
        if dial is None:
            dial = DialStats(*key)
            if len(self._dials) < MAX_DIALS:
                self._dials[key] = dial
        return dial

    def add_request(
        self,
        policy: str,
        budget: float,
        samples: int,
        *,
        voted: bool,
        decided: bool = True,
        unit: BudgetUnit = "samples",
        cost: float | None = None,
        spent: Spend = NO_SPEND,
        prompt_cost: PromptCost = NO_PROMPT_COST,
    ) -> None:
        """Adds a request that counts in the average.

        `decided`: its policy decided how many samples; `voted`: to the end, with a vote. `cost` is in the
        unit of its budget; None: its samples. `spent` is what it cost in every unit, and `prompt_cost` how
        much of that is for prompts.
        """
        cost = float(samples) if cost is None else cost
        dial = self.get(policy, budget, unit)
        dial.requests += 1
        dial.samples += samples
        dial.cost += cost
        if decided:
            dial.decided += 1
            dial.decided_samples += samples
            dial.decided_cost += cost
        if voted:
            dial.voted += 1
            dial.voted_samples += samples
            _add_spent(dial, spent, prompt_cost)
        self._counted += 1
        if unit != self._unit:
            return
        self._requests += 1
        self._cost += cost
        self._target += budget
        if decided:
            self._decided += 1
            self._decided_cost += cost
            self._decided_target += budget

    def forget(self, policy: str) -> None:
        """Another version of a policy serves: the numbers of the old one don't apply to it."""
        for dial in self:
            if dial.policy == policy:
                dial.voted = dial.voted_samples = 0
                dial.voted_tokens = dial.voted_money = dial.single_tokens = dial.single_money = 0.0
                dial.prompts = {}
                dial.uniform, dial.protocol, dial.reason = None, "", ""

    def set_worth(
        self,
        policy: str,
        budget: float,
        uniform: float | None,
        protocol: str,
        *,
        reason: str = "",
        unit: BudgetUnit = "samples",
    ) -> None:
        """How many samples per request are as accurate without a policy.

        None, or no protocol: that is unknown, for this `reason`.
        """
        dial = self.get(policy, budget, unit)
        if uniform is not None and math.isfinite(uniform) and uniform > 0 and protocol:
            dial.uniform, dial.protocol, dial.reason = uniform, protocol, ""
        else:
            dial.uniform, dial.protocol, dial.reason = None, "", reason

    def look_up_worth(self, charts: Mapping[str, Chart | None]) -> None:
        """Looks up in the charts, by policy, what the present averages are worth."""
        for dial in self:
            chart, mean = charts.get(dial.policy), dial.voted_mean
            if chart is None or mean is None:
                continue
            row, reason = chart.row_at(mean), ""
            if row is None:
                first, last = chart.rows[0].budget, chart.rows[-1].budget
                reason = (
                    f"votes take {mean:.2f} samples on average, and the chart goes from {first:g} to {last:g}"
                )
            uniform = None if row is None else row.uniform
            self.set_worth(dial.policy, dial.budget, uniform, chart.protocol, reason=reason, unit=dial.unit)
            dial.choices = chart.choices

    def compute_overall(self) -> dict[str, Any]:
        """Average and mean target since the start, of all requests that count and of voted ones.

        In the unit of the gateway's budget, of requests whose budget is in that unit.
        """
        return {
            **_compute_means(self._requests, self._cost, self._target),
            "voted": _compute_means(self._decided, self._decided_cost, self._decided_target),
        }

    def state(self) -> dict[str, list[float]]:
        """Plain data for `restore`: by dial, what its averages are made of."""
        return {_name_dial(dial, self._currency): _list_kept(dial) for dial in self if dial.requests}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The averages go on from a `state`; those in another currency or unreadable are skipped."""
        for name, counts in list(state.items())[:MAX_DIALS]:
            try:
                policy, budget, *units = json.loads(name)
                if not is_in_currency(name, self._currency):
                    continue
                numbers = dict(zip(_COUNTS, counts, strict=False))
                valid = isinstance(policy, str) and all(type(n) is int and n >= 0 for n in numbers.values())
                budget, unit = float(budget), (units or ["samples"])[0]
                costs = [numbers["samples"], numbers["decided_samples"]]
                if unit != "samples":
                    costs = [float(cost) for cost in counts[len(_COUNTS) :]]
            except (ValueError, TypeError, KeyError):
                continue
            valid = valid and len(costs) == len(_COSTS) and all(0 <= cost < math.inf for cost in costs)
            if valid and unit in get_args(BudgetUnit) and math.isfinite(budget):
                dial = self.get(policy, budget, unit)
                for name, number in [*numbers.items(), *zip(_COSTS, costs, strict=True)]:
                    setattr(dial, name, number)

    def compute_savings(self) -> dict[str, Any]:
        """What is saved against uniform sampling at the same accuracy; no number without its protocol."""
        voted = [dial for dial in self if dial.voted]
        known = [dial for dial in voted if dial.uniform is not None]
        n = sum(dial.voted for dial in known)
        result: dict[str, Any] = dict.fromkeys(("share", "uniform", "average"))
        result |= {"protocol": "", "covered": n / self._counted if self._counted else 0.0, "why": ""}
        result |= {"requests": n, "tokens": None, "money": None}
        if not self._counted:
            return result | {"why": "no requests yet"}
        if not voted:
            return result | {"why": "not known: no request was voted on yet"}
        if not known:
            busiest = max(voted, key=lambda dial: dial.voted)
            return result | {"why": f"not known: {busiest.reason or 'the policy has no chart with labels'}"}
        uniform = sum((dial.uniform or 0.0) * dial.voted for dial in known) / n
        average = sum(dial.voted_samples for dial in known) / n
        protocols = dict.fromkeys(dial.protocol for dial in known)
        return result | {
            "share": 1 - average / uniform,
            "uniform": uniform,
            "average": average,
            "protocol": "; ".join(list(protocols)[:3]),
            "tokens": _compare_with_uniform([(dial.voted_tokens, dial.uniform_cost[0]) for dial in known]),
            "money": _compare_with_uniform([(dial.voted_money, dial.uniform_cost[1]) for dial in known]),
        }

    def describe(self, versions: Mapping[str, str], *, paced: str) -> list[dict[str, Any]]:
        """Each as JSON data, the busiest first; `paced` is the average that is to meet the budget."""
        return [
            {
                "policy": dial.policy,
                "budget": dial.budget,
                "unit": dial.unit,
                "price": dial.price,
                "average": dial.average if dial.average is not None else dial.averages[paced],
                "averages": dial.averages,
                "requests": dial.requests,
                "decided": dial.decided,
                "version": versions.get(dial.policy, ""),
            }
            for dial in sorted(self, key=lambda dial: -dial.requests)
            if dial.requests or dial.price is not None  # others are only reserved places
        ]


def _add_spent(dial: DialStats, spent: Spend, prompt_cost: PromptCost) -> None:
    """Adds what a request with a vote cost, what one sample of it did, and what one prompt did."""
    samples, responses, prompt = max(1, spent.samples), spent - prompt_cost.every, prompt_cost.single
    dial.voted_tokens += spent.tokens
    dial.voted_money += spent.money
    dial.single_tokens += responses.tokens / samples
    dial.single_money += responses.money / samples
    choices = None if prompt_cost.choices is None else min(_MAX_CHOICES, max(1, prompt_cost.choices))
    before_tokens, before_money = dial.prompts.get(choices, (0.0, 0.0))
    dial.prompts[choices] = (before_tokens + prompt.tokens, before_money + prompt.money)


def _compare_with_uniform(pairs: list[tuple[float, float]]) -> dict[str, float] | None:
    """What requests cost, what uniform sampling with the same accuracy would have, and the difference.

    Uniform sampling draws as many samples for every request. So it costs that many times what the requests'
    responses cost with one sample each, which is less for each sample than the policy pays if it draws more
    where responses are longer; and the prompt once for each call that they take (`count_calls`), by the
    upstream's own limit of samples a call, or as the policy's pool recorded it.
    """
    spent, uniform = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return {"spent": spent, "uniform": uniform, "saved": uniform - spent} if spent else None


def _name_dial(dial: DialStats, currency: str) -> str:
    key = [dial.policy, dial.budget]
    if dial.unit == "money" and currency:
        return json.dumps([*key, dial.unit, currency])
    return json.dumps(key if dial.unit == "samples" else [*key, dial.unit])


def _list_kept(dial: DialStats) -> list[float]:
    names = _COUNTS if dial.unit == "samples" else (*_COUNTS, *_COSTS)
    return [getattr(dial, name) for name in names]


def _compute_means(requests: int, cost: float, target: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "average": cost / requests if requests else None,
        "target": target / requests if requests else None,
    }
