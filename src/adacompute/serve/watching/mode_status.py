"""Collects statistics of each mode, for Prometheus and the dashboard.

In a gateway with several modes, `ModeStatus` gets every finished request.

If a request has answers from a cheaper mode and from the most expensive one, these answers are compared.
Correct answers aren't known, but the share of equal answers usually changes if a mode's model or prompt
changes. The share also depends on the policy, which chooses the requests for the most expensive mode. So if
the gateway explores (sends some random requests to every mode), only the answers to these requests are
compared. Otherwise the answers to all requests are compared, and a new policy restarts the comparison.
"""

import logging
import math
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from adacompute.config import MODES_KEY, EndpointConfig, ServeConfig, parse_serve_budgets
from adacompute.errors import EndpointError
from adacompute.serve.messages.reply import REASONING_TOKENS, ModeUse, RequestOutcome
from adacompute.serve.spending.ledger import NO_SPEND, Spend, Unit
from adacompute.serve.watching.traffic_history import SPANS, DriftMonitor, SlotRing

FAILURE_KINDS: Final = frozenset(
    kind.kind for kind in EndpointError.__subclasses__() if kind.kind != "endpoint"
)
_OTHER = "other"
_LABEL = f"{MODES_KEY}_mode"
_UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
_TOKEN_KINDS = ("prompt", "completion", "cached", "reasoning")
# counts of each mode that are kept across restarts
_KEPT_COUNTS = ("requests", "samples", "missing", "replies")
_KEPT_AMOUNTS = ("samples", "tokens", "nanos")  # parts of each mode's cost that are kept across restarts

_log = logging.getLogger("adacompute.serve")


@dataclass(slots=True)
class ModeSums:
    """Counts and costs of one mode, summed over many requests."""

    requests: int = 0  # number of requests that drew samples from the mode
    samples: int = 0
    missing: int = 0  # number of samples requested but not received
    replies: int = 0  # number of requests whose reply was a sample from the mode
    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND  # maximum that may be charged in addition for calls whose cost is unknown
    # kind of error -> number of requests for which the mode failed with such an error
    failures: Counts[str] = field(default_factory=Counts)
    # kind of token, such as "prompt" -> number of tokens, as counted by the upstream
    tokens: Counts[str] = field(default_factory=Counts)

    def add_use(self, use: ModeUse, *, is_reply: bool) -> None:
        """Adds one request's use of the mode; `is_reply`: whether the reply was a sample from this mode."""
        self.requests += use.samples > 0
        self.samples += use.samples
        self.missing += use.missing
        self.replies += is_reply
        self.spent += use.spent
        self.maybe += use.maybe
        if use.failed:
            self.failures[use.failed if use.failed in FAILURE_KINDS else _OTHER] += 1
        usage = use.usage
        reasoning = int(usage.details.get(REASONING_TOKENS, 0))
        counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, reasoning)
        self.tokens += Counts(dict(zip(_TOKEN_KINDS, counts, strict=True)))

    def add_sums(self, other: "ModeSums") -> None:
        """Adds sums over other requests for the same mode."""
        for name in (*_KEPT_COUNTS, "spent", "maybe", "failures", "tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class SumsByMode:
    """Counts and costs of each mode, summed over many requests."""

    at: float = 0.0  # start of the time slot, in seconds since 1970
    requests: int = 0  # number of requests that drew samples from any mode
    modes: dict[str, ModeSums] = field(default_factory=dict)  # name of a mode -> its sums

    def add_outcome(self, outcome: RequestOutcome) -> None:
        """Adds a finished request."""
        self.requests += any(use.samples for use in outcome.modes)
        for use in outcome.modes:
            sums = self.modes.setdefault(use.name, ModeSums())
            sums.add_use(use, is_reply=outcome.status == 200 and outcome.answered_by == use.name)

    def add_sums(self, other: "SumsByMode") -> None:
        """Adds the sums over other requests, mode by mode."""
        self.requests += other.requests
        for name, sums in other.modes.items():
            self.modes.setdefault(name, ModeSums()).add_sums(sums)


class ModeStatus:
    """Keeps counts and costs by mode, and watches how often modes agree with the most expensive one.

    An alarm starts if a mode agrees much more often or less often than in the first requests.
    """

    def __init__(
        self,
        modes: Sequence[str],
        settings: ServeConfig,
        endpoint: EndpointConfig,
        registry: CollectorRegistry,
        *,
        now: Callable[[], float],
    ) -> None:
        """`modes` are names of modes, cheapest first.

        `endpoint` has the currency, and prices that are 0 if no mode's prices are known.
        """
        is_priced = bool(endpoint.input_price or endpoint.output_price)
        in_money = is_priced and parse_serve_budgets(settings)[0].unit != "tokens"
        self._modes = tuple(modes)
        self._unit: Unit = "money" if in_money else "tokens"  # unit of the costs that the dashboard shows
        self._currency = endpoint.currency
        # whether some random requests get samples from every mode; if so, only their answers are compared
        self._exploring = settings.explore > 0
        self._ever = _make_sums(modes)  # sums since the first start, including earlier runs of the gateway
        self._now, self._since = now, now()
        self._make_counters(registry)
        registry.register(self)
        self._drifts = self._make_monitors()
        self.start()
        # returns a mode's mean cost per sample, or None if unknown; set when the gateway starts
        self.find_cost: Callable[[str, Unit], float | None] = lambda *_: None
        # returns the modes that aren't called at present because they failed; set when the gateway starts
        self.list_resting: Callable[[], Collection[str]] = tuple

    def _make_counters(self, registry: CollectorRegistry) -> None:
        def make(name: str, what: str, *labels: str) -> Counter:
            names = (_LABEL, *labels)
            return Counter(f"adacompute_{MODES_KEY}_{name}", what, names, registry=registry)

        self._counts = {
            "requests": make("requests", "Requests with samples of a mode"),
            "samples": make("samples", "Samples drawn of a mode"),
            "missing": make("missing_samples", "Samples requested of a mode that did not arrive"),
            "replies": make("replies", "Requests whose reply is a sample of a mode"),
        }
        self._failures = make("failures", "Requests without a mode because it failed", "kind")
        self._tokens = make("tokens", "Tokens of a mode as counted by its upstream", "kind")
        self._spent = make("spent", "Cost of a mode's samples", "unit")
        self._maybe = make("maybe_spent", "Possible additional cost of a mode's failed calls", "unit")
        self._alarms = make("drift_alarms", "Drift alarms raised for a mode")
        for name in self._modes:
            # creates the counters, at zero, because Prometheus shows only counters that exist
            self._count(name, ModeSums())
        for name in self._modes[:-1]:
            self._alarms.labels(name)

    def start(self) -> None:
        """Clears the last hour's and day's sums, when the gateway starts or its budget's unit changes."""
        self._rings = {name: SlotRing(step, size, SumsByMode) for name, (step, size) in SPANS.items()}

    def _make_monitors(self) -> dict[str, DriftMonitor]:
        return {name: DriftMonitor() for name in self._modes[:-1]}

    def add_outcome(self, outcome: RequestOutcome) -> None:
        """Adds a finished request."""
        drawn = SumsByMode()
        drawn.add_outcome(outcome)
        at = self._now()
        for whole in (self._ever, *(ring.slot_at(at) for ring in self._rings.values())):
            whole.add_sums(drawn)
        for name, sums in drawn.modes.items():
            if name in self._modes:
                self._count(name, sums)
        if outcome.explored or not self._exploring:
            self._compare_answers(outcome)

    def _count(self, name: str, sums: ModeSums) -> None:
        for count, counter in self._counts.items():
            counter.labels(name).inc(getattr(sums, count))
        for counter, parts in ((self._failures, sums.failures), (self._tokens, sums.tokens)):
            for kind, number in parts.items():
                counter.labels(name, kind).inc(number)
        for counter, amount in ((self._spent, sums.spent), (self._maybe, sums.maybe)):
            for unit in _UNITS:
                counter.labels(name, unit).inc(amount.amount_in(unit))

    def forget_agreement(self) -> None:
        """Restarts the comparison of answers, unless it uses only requests that were chosen at random."""
        if not self._exploring:
            self._drifts = self._make_monitors()

    def _compare_answers(self, outcome: RequestOutcome) -> None:
        """Records for each mode whether its answer is the same text as the most expensive mode's answer."""
        answers = {use.name: use.answer for use in outcome.modes if use.answer is not None}
        dearest = answers.get(self._modes[-1])
        if dearest is None:
            return
        for name, monitor in self._drifts.items():
            if name in answers and monitor.add(float(answers[name] == dearest)):
                self._report_drift(name, monitor)

    def _report_drift(self, name: str, monitor: DriftMonitor) -> None:
        state, dearest = monitor.state(), self._modes[-1]
        if not state.alarm:
            _log.warning("drift: mode %r agrees with mode %r as expected again", name, dearest)
            return
        self._alarms.labels(name).inc()
        _log.warning(
            "drift: answers of mode %r are those of mode %r in %.2f of the last %d requests that have both, "
            "%s saw %.2f; a mode or the traffic is not what it was: record some of it, and fit again",
            name,
            dearest,
            state.live,
            state.requests,
            state.source,
            state.expected,
        )

    def state(self) -> dict[str, Any]:
        """Returns the sums since the first start, for `restore`."""
        kept = self._ever
        modes = {
            name: [
                *(getattr(sums, count) for count in _KEPT_COUNTS),
                *(getattr(sums.spent, part) for part in _KEPT_AMOUNTS),
            ]
            for name, sums in kept.modes.items()
        }
        return {
            "since": self._since,
            "currency": self._currency,
            "requests": kept.requests,
            "modes": modes,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a stored state; ignores an invalid one, or one in another currency."""
        try:
            since, requests, modes = float(state["since"]), state["requests"], state["modes"]
            earlier = {name: _read_sums(modes[name]) for name in self._modes if name in modes}
        except (KeyError, TypeError, ValueError):
            return
        valid = type(requests) is int and requests >= 0 and math.isfinite(since)
        if valid and state.get("currency") == self._currency:
            self._ever.add_sums(SumsByMode(0.0, requests, earlier))
            self._since = since

    def describe_span(self, span: str) -> dict[str, Any]:
        """Returns the dashboard's data about modes in a span (hour or day), as JSON data.

        - `unit`: the unit of all costs, "money" or "tokens".
        - `requests`: number of requests in the span that drew samples.
        - `modes`: a list of {name, requests, samples, missing, replies, spent, failures, sample_cost,
          resting, agreement}, one for each mode, cheapest first; see `ModeSums`. `failures` maps kinds of
          errors to numbers of requests. `sample_cost` is the mean cost of a sample, or None if unknown.
          `resting` says whether the mode isn't called at present because it failed. `agreement` is a
          `DriftState` of agreement with the most expensive mode, or None for the most expensive mode.
        - `spent`: a list of [start of a time slot, list of each mode's cost in it].
        - `ever`: {since, requests, spent} since the gateway's first start; `spent` lists each mode's cost.
        - `explored_only`: whether `agreement` covers only random requests that were sent to every mode.
        """
        total, spent = _make_sums(self._modes), []
        for slot in self._rings[span].slots_since(self._now()):
            total.add_sums(slot)
            if slot.modes:
                parts = [slot.modes[name].spent if name in slot.modes else NO_SPEND for name in self._modes]
                spent.append([slot.at, [part.amount_in(self._unit) for part in parts]])
        resting, kept = self.list_resting(), self._ever
        return {
            "unit": self._unit,
            "requests": total.requests,
            "modes": [self._describe_mode(name, total.modes[name], resting) for name in self._modes],
            "spent": spent,
            "ever": {
                "since": self._since,
                "requests": kept.requests,
                "spent": [kept.modes[name].spent.amount_in(self._unit) for name in self._modes],
            },
            "explored_only": self._exploring,
        }

    def _describe_mode(self, name: str, sums: ModeSums, resting: Collection[str]) -> dict[str, Any]:
        monitor = self._drifts.get(name)
        return {
            "name": name,
            **{count: getattr(sums, count) for count in _KEPT_COUNTS},
            "spent": sums.spent.amount_in(self._unit),
            "failures": dict(sums.failures),
            "sample_cost": self.find_cost(name, self._unit),
            "resting": name in resting,
            "agreement": None if monitor is None else asdict(monitor.state()),
        }

    def collect(self) -> Iterator[Metric]:
        """Yields all gauges of modes."""
        costs = _make_gauge("sample_cost", "Mean cost of one sample of a mode", "unit")
        resting = _make_gauge("resting", "1: a failing mode gets no calls for a moment")
        left_alone = self.list_resting()
        for name in self._modes:
            resting.add_metric([name], name in left_alone)
            if (cost := self.find_cost(name, self._unit)) is not None:
                costs.add_metric([name, self._unit], cost)
        yield from (costs, resting)
        gauges = {
            "alarm": _make_gauge("drift_alarm", "1: a mode's agreement has changed"),
            "z": _make_gauge("drift_z", "Drift in standard errors"),
            "live": _make_gauge("agreement_live", "Agreement with the most expensive mode"),
            "expected": _make_gauge("agreement_expected", "Agreement in the first requests"),
        }
        for name, monitor in self._drifts.items():
            state = monitor.state()
            for field_name, gauge in gauges.items():
                if (value := getattr(state, field_name)) is not None:
                    gauge.add_metric([name], value)
        yield from gauges.values()


def _make_sums(modes: Iterable[str]) -> SumsByMode:
    return SumsByMode(modes={name: ModeSums() for name in modes})


def _read_sums(numbers: Sequence[int]) -> ModeSums:
    """Parses a mode's stored sums; raises ValueError if they are invalid."""
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("sums are whole numbers")
    requests, samples, missing, replies, *amounts = numbers
    spent = Spend(**dict(zip(_KEPT_AMOUNTS, amounts, strict=True)))
    return ModeSums(requests, samples, missing, replies, spent)


def _make_gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"adacompute_{MODES_KEY}_{name}", what, labels=(_LABEL, *labels))
