"""Prometheus metrics in a registry of their own, and the drift alarm that some of them show.

Every label has a bounded set of values: policies and budgets up to 64, then `other`; kinds and statuses that
exist. No prompt, no answer, no key and no name that a client gives is ever a label.
"""

import itertools
import math
import re
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from adacompute.errors import EndpointError
from adacompute.records import Call
from adacompute.serve.request import CLIENT_GONE_STATUS, Mode, RequestOutcome, Unit

__all__ = ["CALL_KINDS", "UNVOTED_REASONS", "DriftMonitor", "DriftMonitors", "Metrics", "classify_unvoted"]

ExpectationSource = Literal["calibration", "first requests", "none yet"]

WINDOW = 500  # requests that are compared
MIN_VOTES = 200  # before an alarm
ALARM_ON = (5.0, 0.05)  # standard errors, and difference of agreement: both must be exceeded
ALARM_OFF = (3.0, 0.03)  # below either it goes off
_MAX_POLICIES = 64
_MIN_DEVIATION = 0.02  # with a deviation of 0 any difference would be an alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """The state of a policy's agreement."""

    live: float | None  # mean over the window; None: no vote yet
    expected: float | None
    source: ExpectationSource  # of the expectation
    requests: int  # in the window
    z: float | None  # standard errors between the two; None: too few votes
    alarm: bool


class DriftMonitor:
    """Whether the agreement of one policy's votes has left what is expected of it; the alarm doesn't
    flicker.

    Without numbers from calibration the first 500 requests are the reference. Requests that come in
    bunches of a kind count for fewer than they are: by the correlation of neighbours.
    """

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._sum = self._squares = self._products = 0.0  # of the window; products are of neighbours
        self._pushes = 0
        self._expected: float | None = None
        self._deviation = 0.0
        self._reference_size = math.inf  # requests behind the expectation
        self._source: ExpectationSource = "none yet"
        self._alarm = False

    def expect(self, agreement: float, deviation: float) -> None:
        """What calibration measured: mean and standard deviation over requests."""
        if math.isfinite(agreement) and math.isfinite(deviation):
            self._set_reference(agreement, deviation, math.inf, "calibration")

    def add(self, agreement: float) -> bool:
        """Adds one vote; True if the alarm went on or off."""
        if not 0.0 <= agreement <= 1.0:
            return False
        self._push(agreement)
        if self._source == "none yet":
            if len(self._window) == WINDOW:
                self._set_reference(*self._mean_deviation(), self._effective_size(), "first requests")
                self._clear()  # these are the reference now
            return False
        previous, self._alarm = self._alarm, self._is_alarming()
        return self._alarm != previous

    def state(self) -> DriftState:
        """The present state."""
        n = len(self._window)
        return DriftState(
            live=self._sum / n if n else None,
            expected=self._expected,
            source=self._source,
            requests=n,
            z=self._z_score(),
            alarm=self._alarm,
        )

    def _set_reference(self, mean: float, deviation: float, size: float, source: ExpectationSource) -> None:
        self._expected, self._deviation = mean, max(deviation, _MIN_DEVIATION)
        self._reference_size, self._source = size, source

    def _push(self, value: float) -> None:
        window = self._window
        if len(window) == WINDOW:
            oldest = window.popleft()
            self._sum -= oldest
            self._squares -= oldest * oldest
            self._products -= oldest * window[0]
        if window:
            self._products += window[-1] * value
        window.append(value)
        self._sum += value
        self._squares += value * value
        self._pushes += 1
        if self._pushes >= 100 * WINDOW:  # running sums accumulate rounding errors
            self._pushes = 0
            items = list(window)
            self._sum, self._squares = sum(items), sum(x * x for x in items)
            self._products = sum(x * y for x, y in itertools.pairwise(items))

    def _clear(self) -> None:
        self._window.clear()
        self._sum = self._squares = self._products = 0.0

    def _mean_deviation(self) -> tuple[float, float]:
        n = len(self._window)
        mean = self._sum / n
        return mean, math.sqrt(max(self._squares / n - mean * mean, 0.0))

    def _effective_size(self) -> float:
        """How many independent requests the window is worth."""
        n = len(self._window)
        mean, deviation = self._mean_deviation()
        if n < 3 or deviation < 1e-6:
            return float(n)
        correlation = (self._products / (n - 1) - mean * mean) / (deviation * deviation)
        correlation = min(max(correlation, 0.0), 0.95)
        return n * (1 - correlation) / (1 + correlation)

    def _z_score(self) -> float | None:
        if self._expected is None or len(self._window) < MIN_VOTES:
            return None
        error = self._deviation * math.sqrt(1 / self._effective_size() + 1 / self._reference_size)
        return (self._sum / len(self._window) - self._expected) / error

    def _is_alarming(self) -> bool:
        z = self._z_score()
        if z is None or self._expected is None:
            return self._alarm
        difference = abs(self._sum / len(self._window) - self._expected)
        if self._alarm:
            return not (abs(z) < ALARM_OFF[0] or difference < ALARM_OFF[1])
        return abs(z) > ALARM_ON[0] and difference > ALARM_ON[1]


class DriftMonitors:
    """One monitor for each policy, by its name; at most 64."""

    def __init__(self) -> None:
        self._by_policy: dict[str, DriftMonitor] = {}

    def get(self, policy: str) -> DriftMonitor:
        """A policy's monitor; a temporary one if there are too many."""
        drift = self._by_policy.get(policy)
        if drift is None:
            drift = DriftMonitor()
            if len(self._by_policy) < _MAX_POLICIES:
                self._by_policy[policy] = drift
        return drift

    def forget(self, policy: str) -> None:
        """Another policy has the same name now: the votes of the old one don't apply to it."""
        self._by_policy.pop(policy, None)

    def states(self) -> dict[str, DriftState]:
        """The state of each."""
        return {name: drift.state() for name, drift in self._by_policy.items()}


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of the text below
OTHER = "other"
MAX_LABELS = 64  # values of a label that isn't a fixed set

CALL_KINDS: Final = frozenset(
    {"ok", "cancelled", *(kind.kind for kind in EndpointError.__subclasses__() if kind.kind != "endpoint")}
)
_STATUSES = frozenset({*(int(status) for status in HTTPStatus), CLIENT_GONE_STATUS})
_MODES: Final = frozenset(get_args(Mode))
_UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
_ERROR_CODE = re.compile(r"[a-z][a-z_]{0,39}")
_SAMPLE_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_SHARE_BUCKETS = tuple(i / 10 for i in range(1, 11))
_SECOND_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)

# why there was no vote: words of the note -> the reason that it is counted as; the first that fits
UNVOTED_REASONS: Final[Sequence[tuple[str, str]]] = (
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


class BoundedLabels:
    """Label values: the first ones that come, up to a limit; the rest become `other`."""

    def __init__(self, known: Collection[str] = (), *, limit: int = MAX_LABELS) -> None:
        self._known = set(known)
        self._limit = limit

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


def format_budget(budget: float) -> str:
    """A budget to two places, so that clients can't create ever more labels."""
    return f"{round(budget, 2):g}"


def classify_unvoted(outcome: RequestOutcome) -> str:
    """The class of the reason why there was no vote."""
    if outcome.mode != "adaptive":
        return "mode"
    reason = next((note.lower() for note in outcome.notes if note.startswith(_NO_VOTE)), "")
    return next((name for words, name in UNVOTED_REASONS if words in reason), OTHER)


class Metrics:
    """All counters and gauges of one gateway. `render` gives the text of `/metrics`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._children: dict[tuple[Any, ...], Any] = {}  # label lookups are slow: each is done once
        self._policies = BoundedLabels()
        self._budgets = BoundedLabels()
        self._codes = BoundedLabels()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("requests", "Requests that ended", "policy", "mode", "status")
        self.refused = counter("refused", "Requests turned away before sampling", "code")
        self.samples = histogram("samples", "Samples drawn for a request", _SAMPLE_BUCKETS, "policy")
        self.would = histogram(
            "would_samples", "Shadow mode: what it would have drawn", _SAMPLE_BUCKETS, "policy"
        )
        self.agreement = histogram("agreement", "The winner's share of a vote", _SHARE_BUCKETS, "policy")
        self.seconds = histogram("request_seconds", "Time from request to reply", _SECOND_BUCKETS)
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
        self.call_seconds = histogram("upstream_seconds", "Time of one attempt upstream", _SECOND_BUCKETS)
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

    def count_request(self, outcome: RequestOutcome) -> None:
        """Counts a request that ended, successfully or not."""
        policy, status = self.policy_label(outcome.policy), outcome.status
        self.at_labels(self.requests, policy, _mode_label(outcome.mode), _status_label(status)).inc()
        self.seconds.observe(outcome.seconds)
        if outcome.samples:
            self.at_labels(self.samples, policy).observe(outcome.samples)
        if outcome.would is not None:
            self.at_labels(self.would, policy).observe(outcome.samples + outcome.would)
        if outcome.agreement is not None:
            self.at_labels(self.agreement, policy).observe(outcome.agreement)
        elif status == 200:
            self.at_labels(self.unvoted, classify_unvoted(outcome)).inc()
        for counter, amount in (
            (self.waves, outcome.waves),
            (self.missing, outcome.missing),
            (self.explored, outcome.explored),
            (self.gone, status == CLIENT_GONE_STATUS),
        ):
            if amount:
                counter.inc(amount)
        self._count_spend(outcome)

    def _count_spend(self, outcome: RequestOutcome) -> None:
        usage = outcome.usage
        for kind, tokens in (
            ("prompt", usage.prompt_tokens),
            ("completion", usage.completion_tokens),
            ("cached", usage.cached_tokens),
        ):
            if tokens:
                self.at_labels(self.tokens, kind).inc(tokens)
        for counter, spend in ((self.spent, outcome.spent), (self.maybe, outcome.maybe)):
            if spend.samples or spend.tokens or spend.nanos:
                for unit in _UNITS:
                    self.at_labels(counter, unit).inc(spend.amount_in(unit))

    def count_refusal(self, status: int, code: str) -> str:
        """Counts a request that was refused before sampling; the code that it is counted as."""
        code = self._codes(code) if _ERROR_CODE.fullmatch(code) else OTHER
        self.at_labels(self.requests, "none", "none", _status_label(status)).inc()
        self.at_labels(self.refused, code).inc()
        return code

    def count_call(self, call: Call) -> str:
        """Counts an attempt upstream that ended; the kind that it is counted as."""
        kind = call.kind if call.kind in CALL_KINDS else OTHER
        self.at_labels(self.calls, kind).inc()
        self.call_seconds.observe(call.seconds)
        if call.paid == "maybe":
            self.calls_maybe.inc()
        if kind == "cancelled":
            self.cancelled.inc()
        return kind

    def reserve_budget(self, budget: float) -> None:
        """Reserves a label for a budget of the operator's, however many others clients name."""
        self._budgets(format_budget(budget))

    def set_dial(self, policy: str, budget: float, *, price: float | None, average: float | None) -> None:
        """Sets the present price and average of a policy at a budget."""
        labels = self.policy_label(policy), self._budgets(format_budget(budget))
        for gauge, value in ((self.price, price), (self.average, average), (self.target, budget)):
            if value is not None:
                self.at_labels(gauge, *labels).set(value)

    def set_drift(self, policy: str, state: DriftState) -> None:
        """Sets the state of a policy's agreement."""
        label = self.policy_label(policy)
        self.at_labels(self.drift, label).set(state.alarm)
        for gauge, value in (
            (self.drift_z, state.z),
            (self.live, state.live),
            (self.expected, state.expected),
        ):
            if value is not None:
                self.at_labels(gauge, label).set(value)

    def set_version(self, policy: str, old: str | None, version: str) -> None:
        """Sets the version of a policy in service."""
        label = self.policy_label(policy)
        if old is not None:
            self.policy.remove(label, old)
        self.policy.labels(label, version).set(1)

    def policy_label(self, name: str) -> str:
        """A policy's name, or `other` if there are too many."""
        return self._policies(name)

    def at_labels(self, metric: _T, *labels: str) -> _T:
        """The metric at these labels."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def render(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"adacompute_{name}", what, labels, registry=self._registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"adacompute_{name}", what, labels, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"adacompute_{name}", what, labels, registry=self._registry, buckets=buckets)


def _mode_label(mode: str) -> str:
    return mode if mode in _MODES else OTHER


def _status_label(status: int) -> str:
    return str(status) if status in _STATUSES else OTHER
