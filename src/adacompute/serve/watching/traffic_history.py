"""Keeps average costs by policy and budget, the traffic of the last hour and day, and drift.

`DialTable` has averages and savings for each pair of policy and budget (called a dial here). `TrafficHistory`
has the data that the dashboard plots. `DriftMonitor` says whether answers agree much more or much less often
than expected (drift).

Averages are in the unit of the budget: samples, tokens or money. "voted" averages are over requests whose
number of samples a policy decided. "all" averages also include requests without a vote, which usually get one
sample.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from adacompute.errors import shorten
from adacompute.policies.chart import Chart
from adacompute.pool.ballots import count_calls
from adacompute.records import BudgetUnit
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, RequestOutcome
from adacompute.serve.pricing.pacer import choose_average, name_lane, parse_lane, round_budget
from adacompute.serve.spending.ledger import PromptCost, Spend

MAX_DIALS = 64  # maximum number of pairs of policy and budget with statistics
# if an upstream can return more samples per call than this, statistics use this number
_MAX_CHOICES = 64
# fields of `DialStats` stored across restarts
_KEPT = ("requests", "samples", "decided", "cost", "decided_cost")


def format_budget(budget: float, unit: BudgetUnit = "samples") -> str:
    """Formats a budget as a label, rounded so that clients can't create an unlimited number of labels."""
    return f"{round_budget(budget, unit):g}" + ("" if unit == "samples" else f" {unit}")


@dataclass(slots=True)
class DialStats:
    """Statistics of a policy at a budget: its price, average cost and savings."""

    policy: str
    budget: float
    unit: BudgetUnit = "samples"
    price: float | None = None
    average: float | None = None  # average cost that the pacer reports; None if it hasn't reported any
    requests: int = 0  # number of requests that count in averages, including earlier runs of the gateway
    samples: int = 0
    decided: int = 0  # how many of the `requests` had their number of samples decided by the policy
    cost: float = 0.0  # total cost of the `requests`, in the budget's unit
    decided_cost: float = 0.0  # total cost of the requests counted in `decided`, in the budget's unit
    # number of requests with a vote, from which savings are computed; without random requests that got all
    # possible samples, to learn from
    voted: int = 0
    voted_samples: int = 0  # total number of samples of the requests counted in `voted`
    voted_tokens: float = 0.0  # total number of tokens of the requests counted in `voted`
    voted_money: float = 0.0
    # sum, over the requests counted in `voted`, of each request's mean number of response tokens per sample
    single_tokens: float = 0.0
    single_money: float = 0.0
    # Maximum number of samples per upstream call (None: unknown) -> (tokens, money) for sending the prompt of
    # each request with this maximum once. Only for the requests counted in `voted`.
    prompts: dict[int | None, tuple[float, float]] = field(default_factory=dict)
    # number of samples that uniform sampling needs per request for the same accuracy; None if unknown
    uniform: float | None = None
    # maximum number of samples per call for requests whose maximum is unknown; taken from the policy's chart
    choices: int | None = None
    protocol: str = ""  # how `uniform` was measured
    reason: str = ""  # why `uniform` is unknown

    @property
    def averages(self) -> dict[str, float | None]:
        """Mean cost of the requests in `decided` ("voted") and `requests` ("all"); None if there are none."""
        return {
            "voted": self.decided_cost / self.decided if self.decided else None,
            "all": self.cost / self.requests if self.requests else None,
        }

    @property
    def uniform_cost(self) -> tuple[float, float]:
        """(tokens, money) that uniform sampling with the same accuracy would have cost in total: an estimate.

        A sample is assumed to cost as much as its request's mean response. Each call also pays the prompt.
        """
        samples = self.uniform or 0.0
        tokens, money = self.single_tokens * samples, self.single_money * samples
        for choices, (prompt_tokens, prompt_money) in self.prompts.items():
            calls = float(count_calls(samples, choices or self.choices))
            tokens, money = tokens + prompt_tokens * calls, money + prompt_money * calls
        return tokens, money

    def set_worth(self, uniform: float | None, protocol: str = "", reason: str = "") -> None:
        """Sets how many samples uniform sampling needs for the same accuracy; None if unknown.

        `protocol` says how this was measured, and `reason` why it is unknown.
        """
        is_known = uniform is not None and math.isfinite(uniform) and uniform > 0 and bool(protocol)
        self.uniform = uniform if is_known else None
        self.protocol, self.reason = (protocol, "") if is_known else ("", reason)


class DialTable:
    """Statistics of the first 64 pairs of policy and budget. Requests of other pairs count only in totals."""

    def __init__(self, unit: BudgetUnit = "samples", currency: str = "") -> None:
        self._currency = currency  # stored statistics in another currency are ignored
        self._dials: dict[tuple[str, float, BudgetUnit], DialStats] = {}
        self._counted = 0  # number of requests that count in averages, whatever the unit of their budgets
        self.count_in(unit)

    def count_in(self, unit: BudgetUnit) -> None:
        """Restarts the overall averages. From now on, they are over requests with budgets in this unit."""
        self._unit = unit
        # kind of average -> [number of requests, sum of their costs, sum of their budgets]
        self._sums: dict[str, list[float]] = {"all": [0, 0.0, 0.0], "voted": [0, 0.0, 0.0]}

    def __iter__(self) -> Iterator[DialStats]:
        return iter(self._dials.values())

    def get(self, policy: str, budget: float, unit: BudgetUnit = "samples") -> DialStats:
        """Returns the statistics of a policy at a budget. New ones aren't kept if there are already 64."""
        key = (policy, round_budget(budget, unit), unit)
        dial = self._dials.get(key)
        if dial is None:
            dial = DialStats(*key)
            if len(self._dials) < MAX_DIALS:
                self._dials[key] = dial
        return dial

    def add_request(self, outcome: RequestOutcome) -> None:
        """Adds a request that counts in averages."""
        dial = self.get(outcome.policy, outcome.budget, outcome.unit)
        samples, cost = outcome.cost_samples, outcome.budget_cost
        dial.requests += 1
        dial.samples += samples
        dial.cost += cost
        if outcome.decided:
            dial.decided += 1
            dial.decided_cost += cost
        if outcome.agreement is not None and not outcome.explored:
            dial.voted += 1
            dial.voted_samples += samples
            _add_spent(dial, outcome.spent, outcome.prompt_cost)
        self._counted += 1
        if outcome.unit == self._unit:
            for kind in ("all", "voted") if outcome.decided else ("all",):
                requests, costs, budgets = self._sums[kind]
                self._sums[kind] = [requests + 1, costs + cost, budgets + outcome.budget]

    def forget(self, policy: str) -> None:
        """Resets a policy's savings, because another version of it is now in use."""
        for dial in self:
            if dial.policy == policy:
                dial.voted = dial.voted_samples = 0
                dial.voted_tokens = dial.voted_money = dial.single_tokens = dial.single_money = 0.0
                dial.prompts = {}
                dial.set_worth(None)

    def look_up_worth(self, charts: Mapping[str, Chart | None]) -> None:
        """Looks up in `charts` how many samples uniform sampling needs for the same accuracy.

        `charts` maps a policy's name to the policy's chart: its measurements at several budgets.
        """
        for dial in self:
            chart = charts.get(dial.policy)
            if chart is None or not dial.voted:
                continue
            mean = dial.voted_samples / dial.voted
            row, reason = chart.row_at(mean), ""
            if row is None:
                first, last = chart.rows[0].budget, chart.rows[-1].budget
                reason = (
                    f"votes take {mean:.2f} samples on average, and the chart goes from {first:g} to {last:g}"
                )
            uniform = None if row is None else row.uniform
            dial.set_worth(uniform, chart.protocol, reason)
            dial.choices = chart.choices

    def compute_overall(self) -> dict[str, Any]:
        """Returns the number, mean cost and mean budget of requests that count in averages, since the start.

        "voted" has the same for requests whose number of samples a policy decided. Only requests with a
        budget in the unit of the gateway's budget are included.
        """
        return {
            **_compute_means(*self._sums["all"]),
            "voted": _compute_means(*self._sums["voted"]),
        }

    def state(self) -> dict[str, list[float]]:
        """Returns the sums of each pair of policy and budget, for `restore`."""
        return {
            name_lane(lane, self._currency): [getattr(dial, name) for name in _KEPT]
            for lane, dial in self._dials.items()
            if dial.requests
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state; skips invalid entries, and those in another currency."""
        for name, counts in list(state.items())[:MAX_DIALS]:
            lane = parse_lane(name, self._currency)
            if lane is None or not isinstance(counts, list) or len(counts) != len(_KEPT):
                continue
            if all(type(number) in (int, float) and 0 <= number < math.inf for number in counts):
                dial = self.get(*lane)
                for field_name, number in zip(_KEPT, counts, strict=True):
                    setattr(dial, field_name, number)

    def compute_savings(self) -> dict[str, Any]:
        """Returns how much was saved compared with uniform sampling of the same accuracy, as JSON data."""
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
        """Returns the statistics of each pair of policy and budget as JSON data, most requests first.

        `paced` (the setting `average`) chooses one of `averages` if the pacer has reported no average.
        """
        return [
            {
                "policy": dial.policy,
                "budget": dial.budget,
                "unit": dial.unit,
                "price": dial.price,
                "average": dial.average
                if dial.average is not None
                else dial.averages[choose_average(paced, dial.unit)],
                "averages": dial.averages,
                "requests": dial.requests,
                "decided": dial.decided,
                "version": versions.get(dial.policy, ""),
            }
            for dial in sorted(self, key=lambda dial: -dial.requests)
            # leaves out budgets of the operator that have neither requests nor a price yet
            if dial.requests or dial.price is not None
        ]


def _add_spent(dial: DialStats, spent: Spend, prompt_cost: PromptCost) -> None:
    """Adds the cost of a request with a vote, its mean response cost per sample, and its prompt's cost."""
    samples, responses, prompt = max(1, spent.samples), spent - prompt_cost.every, prompt_cost.single
    dial.voted_tokens += spent.tokens
    dial.voted_money += spent.money
    dial.single_tokens += responses.tokens / samples
    dial.single_money += responses.money / samples
    choices = None if prompt_cost.choices is None else min(_MAX_CHOICES, max(1, prompt_cost.choices))
    before_tokens, before_money = dial.prompts.get(choices, (0.0, 0.0))
    dial.prompts[choices] = (before_tokens + prompt.tokens, before_money + prompt.money)


def _compare_with_uniform(pairs: list[tuple[float, float]]) -> dict[str, float] | None:
    """Adds up pairs (actual cost, cost of uniform sampling); returns both sums, and the cost saved.

    Returns None if the actual cost is 0.
    """
    spent, uniform = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return {"spent": spent, "uniform": uniform, "saved": uniform - spent} if spent else None


def _compute_means(requests: float, cost: float, target: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "average": cost / requests if requests else None,
        "target": target / requests if requests else None,
    }


# name of a span -> (seconds per time slot, number of slots)
SPANS: Mapping[str, tuple[float, int]] = {"hour": (10.0, 360), "day": (300.0, 288)}
COLUMNS = (
    *("at", "requests", "errors", "counted", "samples", "target", "decided", "decided_samples"),
    *("decided_target", "voted", "agreement", "seconds", "cost", "decided_cost", "money"),
)
_COST_COLUMNS = {"target", "decided_target", "cost", "decided_cost", "money"}
# maximum number of samples, and of rounds, in the dashboard's charts; higher numbers are shown as this one
MAX_SAMPLES = 32
_MAX_DIALS = 6  # maximum number of pairs of policy and budget whose prices are kept per time slot
_MAX_RECENT = 50
_MAX_CLASSES = 8  # maximum number of answers shown for a request; votes for further answers are added up
# maximum number of characters kept of an answer, a prompt and a note
_ANSWER_LENGTH, _PROMPT_LENGTH, _NOTE_LENGTH = 80, 300, 200

_DialKey = tuple[str, float, BudgetUnit]  # (name of a policy, budget, unit of the budget)
_COST_PLACES = 9  # number of decimals of costs, which may be small amounts of money


@dataclass(slots=True)
class TimeSlot:
    """Sums over the requests that ended in a time slot."""

    at: float = 0.0  # start of the time slot, in seconds since 1970
    requests: int = 0
    errors: int = 0  # number of requests with status 4xx or 5xx, except disconnected clients
    # number of requests that count in averages and whose budget has the unit of the gateway's budget
    counted: int = 0
    samples: int = 0  # total number of samples of the requests counted in `counted`
    target: float = 0.0  # sum of the budgets of the requests counted in `counted`
    # how many of the requests counted in `counted` had their number of samples decided by the policy
    decided: int = 0
    decided_samples: int = 0  # total number of samples of the requests counted in `decided`
    decided_target: float = 0.0  # sum of the budgets of the requests counted in `decided`
    voted: int = 0
    agreement: float = 0.0  # sum, over requests with a vote, of the share of votes for the winner
    seconds: float = 0.0  # total duration of all requests
    cost: float = 0.0  # total cost of the requests counted in `counted`, in the unit of their budgets
    decided_cost: float = 0.0  # total cost of the requests counted in `decided`, in the unit of their budgets
    money: float = 0.0  # money spent on all requests
    drawn: Counter[int] = field(default_factory=Counter)  # number of samples -> number of requests
    rounds: Counter[int] = field(default_factory=Counter)  # number of rounds -> number of requests
    # number of rounds -> total duration of these requests in seconds
    round_seconds: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    # kind of result, such as "ok" -> number of upstream calls
    calls: Counter[str] = field(default_factory=Counter)
    prices: dict[_DialKey, float] = field(default_factory=dict)  # policy and budget -> their latest price

    def row(self) -> list[float]:
        """Returns the sums in the order of `COLUMNS`."""
        return [round(getattr(self, name), _COST_PLACES if name in _COST_COLUMNS else 4) for name in COLUMNS]


class Slot(Protocol):
    """The interface of time slots that `SlotRing` keeps."""

    at: float  # start of the time slot, in seconds since 1970


S = TypeVar("S", bound=Slot)


class SlotRing(Generic[S]):
    """Keeps a fixed number of time slots of equal length: the newest ones."""

    def __init__(self, step: float, size: int, make: Callable[[float], S]) -> None:
        self.step = step
        self._slots: deque[S] = deque(maxlen=size)
        self._size, self._make = size, make

    def slot_at(self, at: float) -> S:
        """Returns the slot for a time, or the newest slot if the clock was set back."""
        begin = at - at % self.step
        if not self._slots or begin > self._slots[-1].at:
            self._slots.append(self._make(begin))
        return self._slots[-1]

    def slots_since(self, at: float) -> Iterator[S]:
        """Returns the slots of the ring's time span up to the time `at`, oldest first, without empty ones."""
        oldest = at - self.step * self._size
        return (slot for slot in self._slots if slot.at > oldest)


class TrafficHistory:
    """Keeps sums by time slot for the last hour and the last day, and the last 50 requests."""

    def __init__(self, *, texts: bool, now: Callable[[], float]) -> None:
        self._texts = texts
        self._now = now
        self._recent: deque[dict[str, Any]] = deque(maxlen=_MAX_RECENT)
        self.start()
        self.reserved_dials: list[_DialKey] = []  # the operator's own pairs of policy and budget

    def start(self) -> None:
        """Clears all slots, when the gateway starts or its budget's unit changes."""
        self._rings = {name: SlotRing(step, size, TimeSlot) for name, (step, size) in SPANS.items()}

    def reserve_dial(self, dial: _DialKey) -> None:
        """Reserves a place for the prices of an operator's policy and budget; there are 6 places."""
        if dial not in self.reserved_dials and len(self.reserved_dials) < _MAX_DIALS:
            self.reserved_dials.append(dial)

    def add_request(self, outcome: RequestOutcome, *, is_counted: bool) -> None:
        """Adds a finished request. `is_counted`: whether it counts in averages."""
        is_error = outcome.status >= 400 and outcome.status != CLIENT_GONE_STATUS
        samples, cost, money = outcome.cost_samples, outcome.budget_cost, outcome.spent.money
        drawn, waves = min(outcome.samples, MAX_SAMPLES), min(outcome.waves, MAX_SAMPLES)
        agreement = outcome.calibrated_agreement
        for slot in self._current_slots():
            slot.requests += 1
            slot.seconds += outcome.seconds
            slot.errors += is_error
            slot.money += money
            if is_counted:
                slot.counted += 1
                slot.samples += samples
                slot.cost += cost
                slot.target += outcome.budget
            if is_counted and outcome.decided:
                slot.decided += 1
                slot.decided_samples += samples
                slot.decided_cost += cost
                slot.decided_target += outcome.budget
            if drawn:
                slot.drawn[drawn] += 1
            if waves:
                slot.rounds[waves] += 1
                slot.round_seconds[waves] += outcome.seconds
            if agreement is not None:
                slot.voted += 1
                slot.agreement += agreement
        self._recent.append(_describe_request(outcome, texts=self._texts))

    def add_call(self, kind: str) -> None:
        """Adds a finished upstream call; `kind` is the kind of its result, such as "ok"."""
        for slot in self._current_slots():
            slot.calls[kind] += 1

    def add_price(self, dial: _DialKey, price: float) -> None:
        """Adds the current price of a policy at a budget."""
        for slot in self._current_slots():
            prices = slot.prices
            if dial in prices or dial in self.reserved_dials or len(prices) < _MAX_DIALS:
                prices[dial] = price

    def _current_slots(self) -> tuple[TimeSlot, TimeSlot]:
        """Returns the current time slot of the last hour's data, and that of the last day's data."""
        at, rings = self._now(), self._rings
        return rings["hour"].slot_at(at), rings["day"].slot_at(at)

    def recent(self) -> list[dict[str, Any]]:
        """Returns the latest requests, newest first."""
        return list(reversed(self._recent))

    def board(self, span: str) -> dict[str, Any]:
        """Returns the time slots of an hour or day and their sums as JSON data for the dashboard."""
        slots = list(self._rings[span].slots_since(self._now()))
        total = TimeSlot()
        prices: dict[_DialKey, list[list[float]]] = {}
        for slot in slots:
            for name in COLUMNS[1:]:
                setattr(total, name, getattr(total, name) + getattr(slot, name))
            total.drawn.update(slot.drawn)
            total.calls.update(slot.calls)
            total.rounds.update(slot.rounds)
            for rounds, seconds in slot.round_seconds.items():
                total.round_seconds[rounds] += seconds
            for dial, price in slot.prices.items():
                if dial in prices or dial in self.reserved_dials or len(prices) < _MAX_DIALS:
                    prices.setdefault(dial, []).append([slot.at, float(f"{price:.5g}")])
        return {
            "step": self._rings[span].step,
            "columns": list(COLUMNS),
            "rows": [slot.row() for slot in slots],
            "total": dict(zip(COLUMNS[1:], total.row()[1:], strict=True)),
            "samples": sorted([n, count] for n, count in total.drawn.items()),
            "rounds": sorted([n, k, round(total.round_seconds[n], 4)] for n, k in total.rounds.items()),
            "upstream": [[kind, n] for kind, n in total.calls.most_common()],
            "prices": [
                {"policy": policy, "budget": budget, "unit": unit, "points": points}
                for (policy, budget, unit), points in sorted(prices.items(), key=lambda item: -len(item[1]))
            ],
        }


def _describe_request(outcome: RequestOutcome, *, texts: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "at": outcome.at,
        "id": outcome.id[-8:],
        "key": outcome.key,
        "policy": outcome.policy,
        "mode": outcome.mode,
        "budget": outcome.budget,
        "unit": outcome.unit,
        "money": outcome.spent.money,
        "tokens": outcome.spent.tokens,
        "samples": outcome.samples,
        "missing": outcome.missing,
        "modes": [[use.name, use.samples] for use in outcome.modes],
        "answered_by": outcome.answered_by,
        "would": outcome.would,
        "votes": _describe_votes(outcome, texts=texts) if outcome.votes else [],
        "abstained": max(0, outcome.samples - sum(outcome.votes.values())) if outcome.votes else 0,
        "agreement": outcome.agreement,
        "price": outcome.price,
        "seconds": round(outcome.seconds, 3),
        "status": outcome.status,
        "error": outcome.error,
        "notes": [note[:_NOTE_LENGTH] for note in outcome.notes[:4]],
    }
    if texts:
        row["prompt"] = shorten(outcome.prompt, _PROMPT_LENGTH)
        row["answer"] = None if outcome.answer is None else shorten(outcome.answer, _ANSWER_LENGTH)
    return row


def _describe_votes(outcome: RequestOutcome, *, texts: bool) -> list[list[Any]]:
    """Returns a list of [label, number of votes], the winner first.

    A label is an answer or, without `texts`, a name such as "answer 1".
    """
    counts = outcome.votes
    order = list(counts)
    if len(order) > 1:
        order.sort(key=lambda answer: (answer != outcome.answer, -counts[answer]))
    votes = [
        [shorten(answer, _ANSWER_LENGTH) if texts else f"answer {place}", counts[answer]]
        for place, answer in enumerate(order[:_MAX_CLASSES], 1)
    ]
    if len(order) > _MAX_CLASSES:
        votes.append(["others", sum([counts[answer] for answer in order[_MAX_CLASSES:]])])
    return votes


ExpectationSource = Literal["calibration", "first requests", "none yet"]

DRIFT_WINDOW = 500  # number of recent requests whose agreement is compared with the expected agreement
MIN_DRIFT_VOTES = 200  # minimum number of recent requests for an alarm
# (standard errors, absolute value): an alarm starts if |live - expected agreement| exceeds both limits
ALARM_ON = (5.0, 0.05)
# (standard errors, absolute value): an alarm ends if |live - expected agreement| is within either limit
ALARM_OFF = (3.0, 0.03)
_CHECK_EVERY = 10  # number of requests between two checks for drift, because a check takes time
_MIN_DEVIATION = 0.02  # if the agreement's standard deviation is smaller, this is used instead


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """How agreement in recent requests compares with the expected agreement; see `DriftMonitor`."""

    live: float | None  # mean agreement of recent requests; None if there are none yet
    expected: float | None
    source: ExpectationSource  # where the expected agreement comes from
    requests: int  # number of recent requests from which `live` and `z` were computed
    # live minus expected agreement, in standard errors; None if there are too few requests
    z: float | None
    alarm: bool


class DriftMonitor:
    """Raises an alarm if agreement differs too much from the expected agreement.

    A policy's agreement is the winner's share of votes. A mode's agreement is how often its answer equals the
    most expensive mode's. The expected agreement comes from calibration data or the first 500 requests. An
    alarm ends at a smaller difference than it starts at, so that it doesn't start and end all the time.
    Correlated consecutive requests count as fewer independent ones.
    """

    def __init__(self) -> None:
        self._votes: deque[float] = deque(maxlen=DRIFT_WINDOW)  # agreement of each recent request
        self._expected: float | None = None
        self._deviation = 0.0
        self._reference_size = math.inf  # number of requests from which the expected agreement was computed
        self._source: ExpectationSource = "none yet"
        self._alarm = False
        self._unmeasured = 0  # number of requests since the last check

    def expect(self, agreement: float, deviation: float) -> None:
        """Sets the expected agreement: its mean and standard deviation over the calibration data."""
        if math.isfinite(agreement) and math.isfinite(deviation):
            self._set_reference(agreement, deviation, math.inf, "calibration")

    def add(self, agreement: float) -> bool:
        """Adds a request's agreement, from 0 to 1; returns whether an alarm has just started or ended."""
        if not 0.0 <= agreement <= 1.0:
            return False
        self._votes.append(agreement)
        if self._source == "none yet":
            if len(self._votes) == DRIFT_WINDOW:
                self._set_reference(*_measure_votes(self._votes), "first requests")
                # these requests set the expectation, so they aren't compared with it
                self._votes.clear()
            return False
        self._unmeasured += 1
        if self._unmeasured < _CHECK_EVERY:
            return False
        self._unmeasured = 0
        previous, self._alarm = self._alarm, self._is_alarming()
        return self._alarm != previous

    def state(self) -> DriftState:
        """Returns the current agreement, the expected one, and whether there is an alarm."""
        return DriftState(
            live=_measure_votes(self._votes)[0] if self._votes else None,
            expected=self._expected,
            source=self._source,
            requests=len(self._votes),
            z=None if (offset := self._compare()) is None else offset[0],
            alarm=self._alarm,
        )

    def _set_reference(self, mean: float, deviation: float, size: float, source: ExpectationSource) -> None:
        self._expected, self._deviation = mean, max(deviation, _MIN_DEVIATION)
        self._reference_size, self._source = size, source

    def _compare(self) -> tuple[float, float] | None:
        """Returns live minus expected agreement, as (in standard errors, absolute); None if unknown yet."""
        if self._expected is None or len(self._votes) < MIN_DRIFT_VOTES:
            return None
        mean, _, size = _measure_votes(self._votes)
        error = self._deviation * math.sqrt(1 / size + 1 / self._reference_size)
        return (mean - self._expected) / error, mean - self._expected

    def _is_alarming(self) -> bool:
        offset = self._compare()
        if offset is None:
            return self._alarm
        errors, difference = ALARM_OFF if self._alarm else ALARM_ON
        return abs(offset[0]) > errors and abs(offset[1]) > difference


def _measure_votes(votes: Sequence[float]) -> tuple[float, float, float]:
    """Returns (mean, standard deviation, effective number): correlated values count as fewer ones."""
    values = np.array(votes)
    mean, deviation, count = float(values.mean()), float(values.std()), float(len(values))
    if count < 3 or deviation < 1e-5:
        return mean, deviation, count
    neighbours = float((values[1:] * values[:-1]).mean())
    correlation = min(max((neighbours - mean * mean) / (deviation * deviation), 0.0), 0.95)
    return mean, deviation, count * (1 - correlation) / (1 + correlation)
