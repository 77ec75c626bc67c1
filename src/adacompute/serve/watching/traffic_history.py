"""Average costs per dial (a policy at a budget), traffic in the last hour and day, and drift.

`DialTable` has averages and savings; `TrafficHistory` has the data of the dashboard's charts; `DriftMonitor`
says whether the votes' agreement has left the calibrated range. Averages are in the unit of the budget:
samples, tokens or money. *voted* averages count requests whose number of samples a policy decided; *all* also
counts those that can't be voted on, which cost one sample at any price.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from adacompute.errors import shorten
from adacompute.policies.chart import Chart
from adacompute.pool.ballots import count_calls
from adacompute.records import BudgetUnit
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, RequestOutcome
from adacompute.serve.pricing.pacer import choose_average, name_lane, parse_lane, round_budget
from adacompute.serve.spending.ledger import PromptCost, Spend

MAX_DIALS = 64  # pairs of policy and budget
_MAX_CHOICES = 64  # samples per call: more than uniform sampling needs
# stored per dial across restarts
_KEPT = ("requests", "samples", "decided", "cost", "decided_cost")


def format_budget(budget: float, unit: BudgetUnit = "samples") -> str:
    """A rounded budget, so that clients can't create unlimited labels; samples are a bare number."""
    return f"{round_budget(budget, unit):g}" + ("" if unit == "samples" else f" {unit}")


@dataclass(slots=True)
class DialStats:
    """A policy at a budget: its price, average cost and savings."""

    policy: str
    budget: float
    unit: BudgetUnit = "samples"  # unit of the budget
    price: float | None = None
    average: float | None = None  # from its pacer
    requests: int = 0  # decided by a policy if they can be voted on; kept across restarts
    samples: int = 0
    decided: int = 0  # those that can be voted on, so that the policy decided
    cost: float = 0.0  # sum over all requests, in the budget's unit
    decided_cost: float = 0.0  # cost of the decided requests
    voted: int = 0  # requests with a vote that the policy fully decided, as in calibration
    voted_samples: int = 0  # samples of voted requests
    voted_tokens: float = 0.0  # tokens of voted requests
    voted_money: float = 0.0
    single_tokens: float = 0.0  # response tokens of one sample each, from the mean of their samples
    single_money: float = 0.0
    # prompt costs with one call each, tokens and money, by samples per call
    prompts: dict[int | None, tuple[float, float]] = field(default_factory=dict)
    uniform: float | None = None  # uniform samples per request for the same accuracy; None: unknown
    choices: int | None = None  # samples per call, as the pool recorded it, until the upstream shows it
    protocol: str = ""  # how that was measured
    reason: str = ""  # why it is unknown

    @property
    def averages(self) -> dict[str, float | None]:
        """Mean cost per request, for voted and for all requests; None before the first."""
        return {
            "voted": self.decided_cost / self.decided if self.decided else None,
            "all": self.cost / self.requests if self.requests else None,
        }

    @property
    def uniform_cost(self) -> tuple[float, float]:
        """Tokens and money of uniform sampling with the same accuracy: responses, and a prompt per call."""
        samples = self.uniform or 0.0
        tokens, money = self.single_tokens * samples, self.single_money * samples
        for choices, (prompt_tokens, prompt_money) in self.prompts.items():
            calls = float(count_calls(samples, choices or self.choices))
            tokens, money = tokens + prompt_tokens * calls, money + prompt_money * calls
        return tokens, money

    def set_worth(self, uniform: float | None, protocol: str = "", reason: str = "") -> None:
        """Sets the uniform samples per request for the same accuracy; None: unknown, because of `reason`."""
        is_known = uniform is not None and math.isfinite(uniform) and uniform > 0 and bool(protocol)
        self.uniform = uniform if is_known else None
        self.protocol, self.reason = (protocol, "") if is_known else ("", reason)

    @property
    def voted_mean(self) -> float | None:
        """Mean samples per voted request; None before the first."""
        return self.voted_samples / self.voted if self.voted else None


class DialTable:
    """At most 64 dials; requests at others only count in the total."""

    def __init__(self, unit: BudgetUnit = "samples", currency: str = "") -> None:
        self._currency = currency  # dials stored in another currency aren't continued
        self._dials: dict[tuple[str, float, BudgetUnit], DialStats] = {}
        self._counted = 0  # requests since the start, in any unit
        self.count_in(unit)

    def count_in(self, unit: BudgetUnit) -> None:
        """Starts the overall average, counting requests whose budget is in the gateway's unit."""
        self._unit = unit
        # requests, their cost and their budgets, for all and for voted requests
        self._sums: dict[str, list[float]] = {"all": [0, 0.0, 0.0], "voted": [0, 0.0, 0.0]}

    def __iter__(self) -> Iterator[DialStats]:
        return iter(self._dials.values())

    def get(self, policy: str, budget: float, unit: BudgetUnit = "samples") -> DialStats:
        """The dial of a policy at a (rounded) budget; a temporary one if there are too many."""
        key = (policy, round_budget(budget, unit), unit)
        dial = self._dials.get(key)
        if dial is None:
            dial = DialStats(*key)
            if len(self._dials) < MAX_DIALS:
                self._dials[key] = dial
        return dial

    def add_request(self, outcome: RequestOutcome, cost: "RequestCost") -> None:
        """Adds a request that counts in the average."""
        dial = self.get(outcome.policy, outcome.budget, outcome.unit)
        dial.requests += 1
        dial.samples += cost.samples
        dial.cost += cost.amount
        if cost.decided:
            dial.decided += 1
            dial.decided_cost += cost.amount
        if outcome.agreement is not None and not outcome.explored:
            dial.voted += 1
            dial.voted_samples += cost.samples
            _add_spent(dial, outcome.spent, outcome.prompt_cost)
        self._counted += 1
        if outcome.unit == self._unit:
            for sums in self._sums.values() if cost.decided else (self._sums["all"],):
                for place, amount in enumerate((1, cost.amount, outcome.budget)):
                    sums[place] += amount

    def forget(self, policy: str) -> None:
        """Resets a policy's dials when another version serves."""
        for dial in self:
            if dial.policy == policy:
                dial.voted = dial.voted_samples = 0
                dial.voted_tokens = dial.voted_money = dial.single_tokens = dial.single_money = 0.0
                dial.prompts = {}
                dial.set_worth(None)

    def look_up_worth(self, charts: Mapping[str, Chart | None]) -> None:
        """Looks up in the charts, by policy, what the current averages are worth."""
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
            dial.set_worth(uniform, chart.protocol, reason)
            dial.choices = chart.choices

    def compute_overall(self) -> dict[str, Any]:
        """Average cost and mean target since the start, for all counted requests and for voted ones.

        Only for budgets in the gateway's unit.
        """
        return {
            **_compute_means(*self._sums["all"]),
            "voted": _compute_means(*self._sums["voted"]),
        }

    def state(self) -> dict[str, list[float]]:
        """State for `restore`: by dial, the sums of its averages."""
        return {
            name_lane(lane, self._currency): [getattr(dial, name) for name in _KEPT]
            for lane, dial in self._dials.items()
            if dial.requests
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`; skips dials in another currency or invalid ones."""
        for name, counts in list(state.items())[:MAX_DIALS]:
            lane = parse_lane(name, self._currency)
            if lane is None or not isinstance(counts, list) or len(counts) != len(_KEPT):
                continue
            if all(type(number) in (int, float) and 0 <= number < math.inf for number in counts):
                dial = self.get(*lane)
                for field_name, number in zip(_KEPT, counts, strict=True):
                    setattr(dial, field_name, number)

    def compute_savings(self) -> dict[str, Any]:
        """The savings against uniform sampling at the same accuracy, with their protocol."""
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
        """All dials as JSON data, busiest first; `paced` is the setting `average`."""
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
            if dial.requests or dial.price is not None  # others are only reserved
        ]


def _add_spent(dial: DialStats, spent: Spend, prompt_cost: PromptCost) -> None:
    """Adds the costs of a voted request, of one of its samples, and of one prompt."""
    samples, responses, prompt = max(1, spent.samples), spent - prompt_cost.every, prompt_cost.single
    dial.voted_tokens += spent.tokens
    dial.voted_money += spent.money
    dial.single_tokens += responses.tokens / samples
    dial.single_money += responses.money / samples
    choices = None if prompt_cost.choices is None else min(_MAX_CHOICES, max(1, prompt_cost.choices))
    before_tokens, before_money = dial.prompts.get(choices, (0.0, 0.0))
    dial.prompts[choices] = (before_tokens + prompt.tokens, before_money + prompt.money)


def _compare_with_uniform(pairs: list[tuple[float, float]]) -> dict[str, float] | None:
    """The cost of requests, that of uniform sampling with the same accuracy, and the difference.

    Uniform sampling draws equally many samples for every request. It costs that many times the mean response
    of each request, which is less per sample than the policy pays if it draws more for longer responses, plus
    one prompt per call (`count_calls`), by the upstream's limit of samples per call, or as the policy's pool
    recorded it.
    """
    spent, uniform = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return {"spent": spent, "uniform": uniform, "saved": uniform - spent} if spent else None


def _compute_means(requests: float, cost: float, target: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "average": cost / requests if requests else None,
        "target": target / requests if requests else None,
    }


# seconds per slot, number of slots
SPANS: Mapping[str, tuple[float, int]] = {"hour": (10.0, 360), "day": (300.0, 288)}
COLUMNS = (
    *("at", "requests", "errors", "counted", "samples", "target", "decided", "decided_samples"),
    *("decided_target", "voted", "agreement", "seconds", "cost", "decided_cost", "money"),
)
_COST_COLUMNS = {"target", "decided_target", "cost", "decided_cost", "money"}
MAX_SAMPLES = 32  # requests with more are counted here
_MAX_DIALS = 6  # whose prices are kept per slot
_MAX_RECENT = 50
_MAX_CLASSES = 8  # answers shown separately
_ANSWER_LENGTH, _PROMPT_LENGTH, _NOTE_LENGTH = 80, 300, 200  # characters kept

_DialKey = tuple[str, float, BudgetUnit]  # a policy's name, and the budget
_COST_PLACES = 9  # decimals of costs, which may be small amounts of money


class RequestCost(NamedTuple):
    """A request's contribution to sums, computed once for several of them."""

    samples: int  # charged or possibly charged
    amount: float  # what it counts for in the average, in the unit of its budget
    counted: bool  # in the average
    decided: bool  # in the average of voted requests
    same_unit: bool  # whether its budget is in the gateway's unit
    agreement: float | None  # as in calibration


@dataclass(slots=True)
class TimeSlot:
    """Sums over the requests that ended in a time slot."""

    at: float = 0.0  # its beginning
    requests: int = 0
    errors: int = 0  # 4xx and 5xx, except clients that disconnected
    counted: int = 0  # requests counted in the average, with budgets in the gateway's unit
    samples: int = 0  # samples of these requests
    target: float = 0.0  # sum of their budgets
    decided: int = 0  # those that can be voted on
    decided_samples: int = 0  # samples of these requests
    decided_target: float = 0.0  # sum of their budgets
    voted: int = 0
    agreement: float = 0.0  # sum over the votes
    seconds: float = 0.0  # sum over all
    cost: float = 0.0  # cost of counted requests, in the unit of their budgets
    decided_cost: float = 0.0  # cost of those that can be voted on
    money: float = 0.0  # spent on all requests
    drawn: dict[int, int] = field(default_factory=dict)  # requests by number of samples
    # requests and seconds by number of rounds
    rounds: dict[int, tuple[int, float]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)  # upstream, by kind
    prices: dict[_DialKey, float] = field(default_factory=dict)  # the latest of each

    def add(self, outcome: RequestOutcome, cost: "RequestCost") -> None:
        """Adds an ended request."""
        self.requests += 1
        self.seconds += outcome.seconds
        self.errors += outcome.status >= 400 and outcome.status != CLIENT_GONE_STATUS
        self.money += outcome.spent.amount_in("money")
        if cost.counted and cost.same_unit:
            self.counted += 1
            self.samples += cost.samples
            self.cost += cost.amount
            self.target += outcome.budget
        if cost.decided and cost.same_unit:
            self.decided += 1
            self.decided_samples += cost.samples
            self.decided_cost += cost.amount
            self.decided_target += outcome.budget
        if outcome.samples:
            drawn = min(outcome.samples, MAX_SAMPLES)
            self.drawn[drawn] = self.drawn.get(drawn, 0) + 1
        if outcome.waves:
            self.add_rounds(min(outcome.waves, MAX_SAMPLES), 1, outcome.seconds)
        if cost.agreement is not None:
            self.voted += 1
            self.agreement += cost.agreement

    def add_rounds(self, rounds: int, requests: int, seconds: float) -> None:
        """Adds requests with this number of rounds and total duration."""
        known, lasted = self.rounds.get(rounds, (0, 0.0))
        self.rounds[rounds] = known + requests, lasted + seconds

    def row(self) -> list[float]:
        """The sums in the order of `COLUMNS`."""
        return [round(getattr(self, name), _COST_PLACES if name in _COST_COLUMNS else 4) for name in COLUMNS]


class Slot(Protocol):
    """Sums over a time slot."""

    at: float  # its beginning


S = TypeVar("S", bound=Slot)


class SlotRing(Generic[S]):
    """The newest slots; older ones are dropped."""

    def __init__(self, step: float, size: int, make: Callable[[float], S]) -> None:
        self.step = step
        self._slots: deque[S] = deque(maxlen=size)
        self._size, self._make = size, make

    def slot_at(self, at: float) -> S:
        """The slot for a time; the newest if the clock was set back."""
        begin = at - at % self.step
        if not self._slots or begin > self._slots[-1].at:
            self._slots.append(self._make(begin))
        return self._slots[-1]

    def slots_since(self, at: float) -> Iterator[S]:
        """The slots within the ring's length, oldest first, without empty ones."""
        oldest = at - self.step * self._size
        return (slot for slot in self._slots if slot.at > oldest)


class TrafficHistory:
    """Slots for an hour and a day, and the last 50 requests."""

    def __init__(self, *, texts: bool, now: Callable[[], float]) -> None:
        self._texts = texts
        self._now = now
        self._recent: deque[dict[str, Any]] = deque(maxlen=_MAX_RECENT)
        self.start()
        self.reserved_dials: list[_DialKey] = []  # the operator's own

    def start(self) -> None:
        """Starts empty, initially and whenever the unit of sums changes."""
        self._rings = {name: SlotRing(step, size, TimeSlot) for name, (step, size) in SPANS.items()}
        self._slots: Sequence[TimeSlot] = ()  # the newest of each ring
        self._slots_end = -math.inf  # end of the first of them

    def reserve_dial(self, dial: _DialKey) -> None:
        """Reserves a place for an operator's dial, however many others come first."""
        if dial not in self.reserved_dials and len(self.reserved_dials) < _MAX_DIALS:
            self.reserved_dials.append(dial)

    def add_request(self, outcome: RequestOutcome, cost: RequestCost) -> None:
        """Adds an ended request."""
        for slot in self._get_slots():
            slot.add(outcome, cost)
        self._recent.append(_describe_request(outcome, texts=self._texts))

    def add_call(self, kind: str) -> None:
        """Adds an ended upstream call; `kind` is from a fixed set."""
        for slot in self._get_slots():
            slot.calls[kind] = slot.calls.get(kind, 0) + 1

    def add_price(self, dial: _DialKey, price: float) -> None:
        """Adds the current price of a dial."""
        for slot in self._get_slots():
            prices = slot.prices
            if dial in prices or dial in self.reserved_dials or len(prices) < _MAX_DIALS:
                prices[dial] = price

    def _get_slots(self) -> Sequence[TimeSlot]:
        """The current slots, one per ring."""
        at = self._now()
        if at >= self._slots_end:
            rings = self._rings.values()
            self._slots = [ring.slot_at(at) for ring in rings]
            self._slots_end = min(slot.at + ring.step for slot, ring in zip(self._slots, rings, strict=True))
        return self._slots

    def recent(self) -> list[dict[str, Any]]:
        """The latest requests, newest first."""
        return list(reversed(self._recent))

    def board(self, span: str) -> dict[str, Any]:
        """A span as JSON data: its slots and their sums. See `Observability.dashboard_data`."""
        slots = list(self._rings[span].slots_since(self._now()))
        total = TimeSlot()
        prices: dict[_DialKey, list[list[float]]] = {}
        for slot in slots:
            for name in COLUMNS[1:]:
                setattr(total, name, getattr(total, name) + getattr(slot, name))
            for drawn, n in slot.drawn.items():
                total.drawn[drawn] = total.drawn.get(drawn, 0) + n
            for rounds, (n, seconds) in slot.rounds.items():
                total.add_rounds(rounds, n, seconds)
            for kind, n in slot.calls.items():
                total.calls[kind] = total.calls.get(kind, 0) + n
            for dial, price in slot.prices.items():
                if dial in prices or dial in self.reserved_dials or len(prices) < _MAX_DIALS:
                    prices.setdefault(dial, []).append([slot.at, float(f"{price:.5g}")])
        return {
            "step": self._rings[span].step,
            "columns": list(COLUMNS),
            "rows": [slot.row() for slot in slots],
            "total": dict(zip(COLUMNS[1:], total.row()[1:], strict=True)),
            "samples": sorted([n, count] for n, count in total.drawn.items()),
            "rounds": sorted([rounds, n, round(seconds, 4)] for rounds, (n, seconds) in total.rounds.items()),
            "upstream": sorted(
                ([kind, n] for kind, n in total.calls.items()), key=lambda pair: -int(pair[1])
            ),
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
        "money": outcome.spent.amount_in("money"),
        "tokens": outcome.spent.tokens,
        "samples": outcome.samples,
        "missing": outcome.missing,
        "modes": [[use.name, use.samples] for use in outcome.modes],
        "answered_by": outcome.answered_by,
        "would": outcome.would,
        "votes": _describe_votes(outcome, texts=texts),
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
    """Labels and counts, winner first: an answer's spelling, or its number if texts aren't shown."""
    counts = outcome.votes
    order = list(counts)
    if len(order) > 1:
        order.sort(key=lambda answer: (answer != outcome.answer, -counts[answer]))
    votes = [
        [shorten(answer, _ANSWER_LENGTH) if texts else f"answer {place}", counts[answer]]
        for place, answer in enumerate(order[:_MAX_CLASSES], 1)
    ]
    if rest := sum([counts[answer] for answer in order[_MAX_CLASSES:]]):
        votes.append(["others", rest])
    return votes


ExpectationSource = Literal["calibration", "first requests", "none yet"]

DRIFT_WINDOW = 500  # requests compared
MIN_DRIFT_VOTES = 200  # needed for an alarm
ALARM_ON = (5.0, 0.05)  # standard errors, and difference in agreement: both must be exceeded
ALARM_OFF = (3.0, 0.03)  # below either the alarm ends
_MIN_DEVIATION = 0.02  # with a deviation of 0 any difference would be an alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """The state of a policy's agreement."""

    live: float | None  # mean over the window; None: no votes yet
    expected: float | None
    source: ExpectationSource  # origin of the expectation
    requests: int  # in the window
    z: float | None  # standard errors between the two; None: too few votes
    alarm: bool


class DriftMonitor:
    """An alarm for when the agreement of a policy's votes leaves the expected range.

    It starts and ends at different levels, to avoid flickering. Without calibration data the first 500
    requests are the reference. Similar requests in sequence count as fewer, by the correlation of neighbours.
    """

    def __init__(self) -> None:
        self._window = _VoteWindow()
        self._expected: float | None = None
        self._deviation = 0.0
        self._reference_size = math.inf  # number of requests behind the expectation
        self._source: ExpectationSource = "none yet"
        self._alarm = False

    def expect(self, agreement: float, deviation: float) -> None:
        """Sets the calibrated mean and standard deviation over requests."""
        if math.isfinite(agreement) and math.isfinite(deviation):
            self._set_reference(agreement, deviation, math.inf, "calibration")

    def add(self, agreement: float) -> bool:
        """Adds a vote; True if the alarm started or ended."""
        if not 0.0 <= agreement <= 1.0:
            return False
        self._window.add(agreement)
        if self._source == "none yet":
            if self._window.size == DRIFT_WINDOW:
                self._set_reference(*self._window.measure(), "first requests")
                self._window = _VoteWindow()  # these votes are the reference now
            return False
        previous, self._alarm = self._alarm, self._is_alarming()
        return self._alarm != previous

    def state(self) -> DriftState:
        """The current state."""
        return DriftState(
            live=self._window.measure()[0] if self._window.size else None,
            expected=self._expected,
            source=self._source,
            requests=self._window.size,
            z=None if (offset := self._compare()) is None else offset[0],
            alarm=self._alarm,
        )

    def _set_reference(self, mean: float, deviation: float, size: float, source: ExpectationSource) -> None:
        self._expected, self._deviation = mean, max(deviation, _MIN_DEVIATION)
        self._reference_size, self._source = size, source

    def _compare(self) -> tuple[float, float] | None:
        """How far votes are from the expectation, in standard errors and in agreement; None: too few."""
        if self._expected is None or self._window.size < MIN_DRIFT_VOTES:
            return None
        mean, _, size = self._window.measure()
        error = self._deviation * math.sqrt(1 / size + 1 / self._reference_size)
        return (mean - self._expected) / error, mean - self._expected

    def _is_alarming(self) -> bool:
        offset = self._compare()
        if offset is None:
            return self._alarm
        errors, difference = ALARM_OFF if self._alarm else ALARM_ON
        return abs(offset[0]) > errors and abs(offset[1]) > difference


class _VoteWindow:
    """The last 500 votes, with sums for mean, deviation and correlation."""

    def __init__(self) -> None:
        self._votes: deque[float] = deque()
        self._sum = self._squares = self._products = 0.0  # products of neighbours

    @property
    def size(self) -> int:
        """Their number."""
        return len(self._votes)

    def add(self, vote: float) -> None:
        """Adds a vote; drops the oldest if there are too many."""
        votes = self._votes
        if len(votes) == DRIFT_WINDOW:
            oldest = votes.popleft()
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._products -= oldest * votes[0]
        self._sum += vote
        self._squares += vote * vote
        self._products += vote * votes[-1] if votes else 0.0
        votes.append(vote)

    def measure(self) -> tuple[float, float, float]:
        """Their mean and deviation, and the equivalent number of independent requests."""
        count = len(self._votes)
        mean = self._sum / count
        deviation = math.sqrt(max(0.0, self._squares / count - mean * mean))
        if count < 3 or deviation < 1e-5:
            return mean, deviation, float(count)
        neighbours = self._products / (count - 1)
        correlation = min(max((neighbours - mean * mean) / (deviation * deviation), 0.0), 0.95)
        return mean, deviation, count * (1 - correlation) / (1 + correlation)
