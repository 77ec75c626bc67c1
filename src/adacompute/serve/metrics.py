"""Counts for Prometheus, in a registry of their own. Knows nothing of where they come from.

Every label is of a bounded set: policies and budgets up to 64, then `other`; kinds and statuses that exist.
No prompt, no answer, no key and no name that a client gives is ever a label.
"""

import re
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from adacompute.errors import EndpointError
from adacompute.records import Call
from adacompute.serve.asked import Mode
from adacompute.serve.drift import Drifted
from adacompute.serve.spend import Unit
from adacompute.serve.told import GONE, Told

__all__ = ["CONTENT_TYPE", "KINDS", "UNVOTED", "Few", "Metrics", "budget_label", "unvoted_reason"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of the text below
OTHER = "other"
MOST = 64  # values of a label that isn't a fixed set

KINDS: Final = frozenset(
    {"ok", "cancelled", *(kind.kind for kind in EndpointError.__subclasses__() if kind.kind != "endpoint")}
)
_STATUSES = frozenset({*(int(one) for one in HTTPStatus), GONE})
_MODES: Final = frozenset(get_args(Mode))
_UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
_CODE = re.compile(r"[a-z][a-z_]{0,39}")
_SAMPLES = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_SHARES = tuple(i / 10 for i in range(1, 11))
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)

# why there was no vote: words of the note -> the class that it is counted in; the first that fits
UNVOTED: Final[Sequence[tuple[str, str]]] = (
    ("n is ", "n"),
    ("tool", "tools"),
    ("temperature", "temperature"),
    ("json", "json"),
    ("refusal", "refusal"),
    ("asks for a text", "text"),
    ("cut off", "cut-off"),
    ("no answer", "no-answer"),
    ("empty", "no-answer"),
    ("code or data", "no-answer"),
    ("operator", "rule"),
)
_NO_VOTE = "no vote: "

_T = TypeVar("_T", bound=MetricWrapperBase)


class Few:
    """The first values that come, up to a number; the rest are `other`."""

    def __init__(self, known: Collection[str] = (), *, most: int = MOST) -> None:
        self._known = set(known)
        self._most = most

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


def budget_label(budget: float) -> str:
    """A budget to two places, so that clients can't make ever more of them."""
    return f"{round(budget, 2):g}"


def unvoted_reason(told: Told) -> str:
    """The class of why there was no vote."""
    if told.mode != "adaptive":
        return "mode"
    why = next((note.lower() for note in told.notes if note.startswith(_NO_VOTE)), "")
    return next((name for words, name in UNVOTED if words in why), OTHER)


class Metrics:
    """All counters and gauges of one gateway. `text` is what `/metrics` answers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._children: dict[tuple[Any, ...], Any] = {}  # label lookups are slow: each is done once
        self._policies = Few()
        self._budgets = Few()
        self._codes = Few()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("requests", "Requests that ended", "policy", "mode", "status")
        self.refused = counter("refused", "Requests turned away before sampling", "code")
        self.samples = histogram("samples", "Samples drawn for a request", _SAMPLES, "policy")
        self.would = histogram("would_samples", "Shadow mode: what it would have drawn", _SAMPLES, "policy")
        self.agreement = histogram("agreement", "The winner's share of a vote", _SHARES, "policy")
        self.seconds = histogram("request_seconds", "Time from request to reply", _SECONDS)
        self.waves = counter("waves", "Rounds of samples")
        self.missing = counter("missing_samples", "Samples that were asked for and did not come")
        self.unvoted = counter("unvoted", "Requests answered without a vote", "reason")
        self.late = counter("late_answers", "Texts that took too long to be read, and so have no answer")
        self.explored = counter("explored", "Requests drawn to the end, to learn from")
        self.gone = counter("clients_gone", "Requests whose client went away")
        self.tokens = counter("tokens", "Tokens as the upstream counts them", "kind")
        self.spent = counter("spent", "What requests cost", "unit")
        self.maybe = counter("maybe_spent", "What calls that gave nothing can have cost at most", "unit")
        self.calls = counter("upstream_calls", "Attempts upstream, by what came of them", "kind")
        self.calls_maybe = counter("upstream_maybe_paid", "Attempts that gave nothing and may be charged for")
        self.cancelled = counter("upstream_cancelled", "Attempts that were cancelled")
        self.call_seconds = histogram("upstream_seconds", "Time of one attempt upstream", _SECONDS)
        self.reloads = counter("reloads", "Times the policies were read anew", "result")
        self.alarms = counter("drift_alarms", "Times the drift alarm went on", "policy")
        self.in_flight = gauge("in_flight", "Requests under way")
        self.price = gauge("price", "The dial that requests are decided at", "policy", "budget")
        self.average = gauge("average_samples", "Running average cost of a request", "policy", "budget")
        self.target = gauge("target_samples", "What that average is to be", "policy", "budget")
        self.overall = gauge("overall_average_samples", "Average cost of all requests since the start")
        self.overall_target = gauge("overall_target_samples", "Mean of these requests' targets")
        self.drift = gauge("drift_alarm", "1: agreement has left what calibration saw", "policy")
        self.drift_z = gauge("drift_z", "Standard errors from what is expected", "policy")
        self.live = gauge("agreement_live", "Mean agreement of the last votes", "policy")
        self.expected = gauge("agreement_expected", "What calibration, or the first votes, saw", "policy")
        self.ledger = gauge("ledger", "What the ledger holds, in the unit of the caps", "state", "unit")
        self.cap = gauge("ledger_cap", "The cap of all keys together; absent without one", "unit")
        self.fleet = gauge("fleet_replicas", "Gateways of the fleet that are alive; 0: there is none")
        self.pacemaker = gauge("fleet_pacemaker", "1: this gateway sets the fleet's price")
        self.price_age = gauge("fleet_price_age_seconds", "Since the fleet's price was last read")
        self.recorder = gauge("recorder_requests", "Requests for the pool, since the start", "result")
        self.policy = gauge("policy_info", "1: the version that is served", "policy", "version")

    def ended(self, told: Told) -> None:
        """A request got to its end, well or not."""
        policy, status = self.policy_label(told.policy), told.status
        self.of(self.requests, policy, _mode(told.mode), _status(status)).inc()
        self.seconds.observe(told.seconds)
        if told.samples:
            self.of(self.samples, policy).observe(told.samples)
        if told.would is not None:
            self.of(self.would, policy).observe(told.samples + told.would)
        if told.agreement is not None:
            self.of(self.agreement, policy).observe(told.agreement)
        elif status == 200:
            self.of(self.unvoted, unvoted_reason(told)).inc()
        for counter, amount in (
            (self.waves, told.waves),
            (self.missing, told.missing),
            (self.explored, told.explored),
            (self.gone, status == GONE),
        ):
            if amount:
                counter.inc(amount)
        self._paid(told)

    def _paid(self, told: Told) -> None:
        usage = told.usage
        for kind, tokens in (
            ("prompt", usage.prompt_tokens),
            ("completion", usage.completion_tokens),
            ("cached", usage.cached_tokens),
        ):
            if tokens:
                self.of(self.tokens, kind).inc(tokens)
        for counter, spend in ((self.spent, told.spent), (self.maybe, told.maybe)):
            if spend.samples or spend.tokens or spend.nanos:
                for unit in _UNITS:
                    self.of(counter, unit).inc(spend.of(unit))

    def turned_away(self, status: int, code: str) -> str:
        """A request never got to sampling; the code that it was counted as."""
        code = self._codes(code) if _CODE.fullmatch(code) else OTHER
        self.of(self.requests, "none", "none", _status(status)).inc()
        self.of(self.refused, code).inc()
        return code

    def called(self, call: Call) -> str:
        """An attempt upstream ended; the kind that it was counted as."""
        kind = call.kind if call.kind in KINDS else OTHER
        self.of(self.calls, kind).inc()
        self.call_seconds.observe(call.seconds)
        if call.paid == "maybe":
            self.calls_maybe.inc()
        if kind == "cancelled":
            self.cancelled.inc()
        return kind

    def holds(self, budget: float) -> None:
        """Keeps a place for a budget of the operator's, however many others clients name."""
        self._budgets(budget_label(budget))

    def dial(self, policy: str, budget: float, *, price: float | None, average: float | None) -> None:
        """Where the dial of a policy at a budget is."""
        labels = self.policy_label(policy), self._budgets(budget_label(budget))
        for gauge, value in ((self.price, price), (self.average, average), (self.target, budget)):
            if value is not None:
                self.of(gauge, *labels).set(value)

    def drifted(self, policy: str, state: Drifted) -> None:
        """How a policy's agreement stands."""
        label = self.policy_label(policy)
        self.of(self.drift, label).set(state.alarm)
        for gauge, value in (
            (self.drift_z, state.z),
            (self.live, state.live),
            (self.expected, state.expected),
        ):
            if value is not None:
                self.of(gauge, label).set(value)

    def serves(self, policy: str, old: str | None, version: str) -> None:
        """Another version of a policy is in service."""
        label = self.policy_label(policy)
        if old is not None:
            self.policy.remove(label, old)
        self.policy.labels(label, version).set(1)

    def policy_label(self, name: str) -> str:
        """A policy's name, where there are not too many."""
        return self._policies(name)

    def of(self, metric: _T, *labels: str) -> _T:
        """The metric at these labels."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def text(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"adacompute_{name}", what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"adacompute_{name}", what, labels, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"adacompute_{name}", what, labels, registry=self._registry, buckets=buckets)


def _mode(mode: str) -> str:
    return mode if mode in _MODES else OTHER


def _status(status: int) -> str:
    return str(status) if status in _STATUSES else OTHER
