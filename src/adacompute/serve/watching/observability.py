"""Collects statistics for Prometheus and the dashboard.

`Observability` has a method for every kind of event, such as the end of a request. The method updates the
metrics for Prometheus (`Metrics`) and the dashboard's sums (see traffic_history.py).

There are no global variables, because a process may have several gateways. Memory is limited: only the
latest requests, and sums by time slot for an hour and a day, are kept. Texts are kept only if the operator
allows it.

Every metric label has a limited number of values, e.g. 64 policies; all others are counted as `other`.
Prompts, answers, keys and names chosen by clients are never labels.
"""

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from adacompute.config import MODES_KEY, EndpointConfig, ServeConfig, parse_serve_budgets
from adacompute.errors import shorten
from adacompute.policies.chart import Chart
from adacompute.records import Budget, BudgetUnit, Call
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, ForwardOutcome, RequestOutcome
from adacompute.serve.pricing.fleet import FleetStatus
from adacompute.serve.pricing.pacer import choose_average, round_budget
from adacompute.serve.pricing.policy_registry import ServedPolicy
from adacompute.serve.spending.ledger import NO_SPEND, Spend, SpendStatus
from adacompute.serve.watching.mode_status import FAILURE_KINDS, ModeStatus
from adacompute.serve.watching.traffic_history import (
    SPANS,
    DialTable,
    DriftMonitor,
    TrafficHistory,
    format_budget,
)

OTHER = "other"
MAX_LABELS = 64  # maximum number of different values of a label, such as policy names, in the metrics

CALL_KINDS: Final = FAILURE_KINDS | {"ok", "cancelled"}
_STATUSES = frozenset({*(int(status) for status in HTTPStatus), CLIENT_GONE_STATUS})
_ERROR_CODE = re.compile(r"[a-z][a-z_]{0,39}")
_SAMPLE_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_SHARE_BUCKETS = tuple(i / 10 for i in range(1, 11))
_SECOND_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)

# (words, metric label): a reason for no vote gets the label of the first pair whose words it contains
UNVOTED_REASONS: Final[Sequence[tuple[str, str]]] = (
    ("n is ", "n"),
    ("tool", "tools"),
    ("temperature", "temperature"),
    ("request asks for none", "request"),
    ("json", "json"),
    ("refusal", "refusal"),
    ("asks for a text", "text"),
    ("was streamed", "text"),
    ("cut off", "cut-off"),
    ("no answer", "no-answer"),
    ("empty", "no-answer"),
    ("code or data", "no-answer"),
    ("operator", "rule"),
)
_MEANS = (
    ("average_samples", "Mean number of samples"),
    ("target_samples", "Mean target in samples"),
    ("average_cost", "Mean cost in tokens or money", "unit"),
)


class BoundedLabels:
    """Limits a label to 64 different values: returns the first 64 unchanged, and `other` for any other."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= MAX_LABELS:
            return OTHER
        self._known.add(value)
        return value


def classify_unvoted(outcome: RequestOutcome) -> str:
    """Returns the metric label for the reason why a request had no vote."""
    if outcome.mode != "adaptive":
        return "mode"
    reason = (outcome.no_vote_reason or "").lower()
    return next((name for words, name in UNVOTED_REASONS if words in reason), OTHER)


class _Children(dict[tuple[Any, ...], Any]):
    """Caches (metric, label values) -> the metric for these label values, because `labels` is slow."""

    def __missing__(self, key: tuple[Any, ...]) -> object:
        return self.setdefault(key, key[0].labels(*key[1:]))


class Metrics:
    """All metrics of one gateway. `render` returns the text of `/metrics`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._children = _Children()
        # counter -> amount that `publish` will add to it; added up here first, because counters are slow
        self._counts = defaultdict[Counter, float](float)
        self.policy_label = BoundedLabels()
        self._budgets = BoundedLabels()
        self._codes = BoundedLabels()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("requests", "Requests that ended", "policy", "mode", "status")
        self.refused = counter("refused", "Requests refused before sampling", "code")
        self.forwarded = counter(
            "forwarded", "Requests forwarded to other routes of the upstream", "route", "status"
        )
        self.samples = histogram("samples", "Samples drawn for a request", _SAMPLE_BUCKETS, "policy")
        self.would = histogram("would_samples", "Samples in shadow mode", _SAMPLE_BUCKETS, "policy")
        self.agreement = histogram("agreement", "Share of the votes for the winner", _SHARE_BUCKETS, "policy")
        self.seconds = histogram("request_seconds", "Time from request to reply", _SECOND_BUCKETS)
        self.waves = counter("waves", "Rounds of samples")
        self.missing = counter("missing_samples", "Samples requested that did not arrive")
        self.unvoted = counter("unvoted", "Requests answered without a vote", "reason")
        self.late = counter("late_answers", "Texts without an answer because reading them took too long")
        self.explored = counter("explored", "Requests that got the maximum of samples, to learn from")
        self.gone = counter("clients_gone", "Requests whose client disconnected")
        self.tokens = counter("tokens", "Tokens as counted by the upstream", "kind")
        self.verified = counter("verifications", "Samples sent to the verifier", "result")
        self.spent = counter("spent", "Cost of requests", "unit")
        self.maybe = counter("maybe_spent", "Possible additional cost of failed calls, at most", "unit")
        self.calls = counter("upstream_calls", "Calls to the upstream, by result", "kind")
        self.calls_maybe = counter("upstream_maybe_paid", "Failed calls that may be charged for")
        self.cancelled = counter("upstream_cancelled", "Cancelled calls to the upstream")
        self.call_seconds = histogram("upstream_seconds", "Duration of upstream calls", _SECOND_BUCKETS)
        self.resting = gauge("upstream_resting", "Failing models or modes at rest", "what")
        self.reloads = counter("reloads", "Reloads of the policies", "result")
        self.alarms = counter("drift_alarms", "Drift alarms raised", "policy")
        self.in_flight = gauge("in_flight", "Requests in progress")
        self.price = gauge("price", "Price or threshold of a policy at a budget", "policy", "budget")
        self.average = gauge("average_samples", "Running average of samples", "policy", "budget")
        self.target = gauge("target_samples", "Target of the average samples", "policy", "budget")
        self.average_cost = gauge("average_cost", "Running average of the cost", "policy", "budget", "unit")
        self.target_cost = gauge("target_cost", "Target of the average cost", "policy", "budget", "unit")
        self.means = {
            (which, name): gauge(f"{which}_{name}", f"{what} since the start, of {of}", *labels)
            for which, of in (("overall", "all requests"), ("voted", "requests with a vote"))
            for name, what, *labels in _MEANS
        }
        self.drift = gauge("drift_alarm", "1: agreement differs from that in calibration", "policy")
        self.drift_z = gauge("drift_z", "Drift in standard errors", "policy")
        self.live = gauge("agreement_live", "Mean agreement of the last votes", "policy")
        self.expected = gauge("agreement_expected", "Agreement in calibration or at first", "policy")
        self.ledger = gauge("ledger", "Amounts in the ledger, in the unit of the caps", "state", "unit")
        self.cap = gauge("ledger_cap", "Cap for all keys together; absent without a cap", "unit")
        self.fleet = gauge("fleet_replicas", "Live gateways in the fleet; 0: no fleet")
        self.pacemaker = gauge("fleet_pacemaker", "1: this gateway sets the fleet's price")
        self.price_age = gauge("fleet_price_age_seconds", "Seconds since the fleet's price was last read")
        self.recorder = gauge("recorder_requests", "Requests recorded to the pool since the start", "result")
        self.policy = gauge("policy_info", "1: the version in service", "policy", "version")

    def count_request(self, outcome: RequestOutcome, *, unvoted: str = "") -> None:
        """Counts a finished request. `unvoted` is the label for why it had no vote; "" if it had one."""
        children, counts = self._children, self._counts
        policy, status, usage = self.policy_label(outcome.policy), outcome.status, outcome.usage
        counts[children[self.requests, policy, outcome.mode, _status_label(status)]] += 1
        self.seconds.observe(outcome.seconds)
        if outcome.samples:
            children[self.samples, policy].observe(outcome.samples)
        if outcome.would is not None:
            children[self.would, policy].observe(outcome.samples + outcome.would)
        if outcome.agreement is not None:
            children[self.agreement, policy].observe(outcome.agreement)
        if unvoted:
            counts[children[self.unvoted, unvoted]] += 1
        counts[self.waves] += outcome.waves
        counts[self.missing] += outcome.missing
        counts[self.explored] += outcome.explored
        counts[self.gone] += status == CLIENT_GONE_STATUS
        if use := outcome.verified:
            counts[children[self.verified, "ok"]] += max(0, use.calls - use.failed)
            counts[children[self.verified, "failed"]] += use.failed
            counts[children[self.tokens, "verifier"]] += use.tokens
        tokens = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        for kind, count in zip(("prompt", "completion", "cached"), tokens, strict=True):
            if count:
                counts[children[self.tokens, kind]] += count
        self._count_amounts(outcome.spent, outcome.maybe)

    def count_forward(self, outcome: ForwardOutcome) -> None:
        """Counts a finished request that was only passed on to the upstream, without a vote."""
        self._counts[self._children[self.forwarded, outcome.route, _status_label(outcome.status)]] += 1
        self._count_amounts(outcome.spent, outcome.maybe)

    def _count_amounts(self, spent: Spend, maybe: Spend) -> None:
        for counter, spend in ((self.spent, spent), (self.maybe, maybe)):
            if spend != NO_SPEND:
                self._counts[self._children[counter, "samples"]] += spend.samples
                self._counts[self._children[counter, "tokens"]] += spend.tokens
                self._counts[self._children[counter, "money"]] += spend.money

    def count_refusal(self, status: int, code: str) -> str:
        """Counts a request refused before sampling; returns the label of its error code."""
        code = self._codes(code) if _ERROR_CODE.fullmatch(code) else OTHER
        self.requests.labels("none", "none", _status_label(status)).inc()
        self.refused.labels(code).inc()
        return code

    def count_call(self, call: Call) -> str:
        """Counts a finished upstream call; returns the label of its outcome."""
        kind = call.kind if call.kind in CALL_KINDS else OTHER
        counts = self._counts
        counts[self._children[self.calls, kind]] += 1
        counts[self.calls_maybe] += call.paid == "maybe"
        counts[self.cancelled] += kind == "cancelled"
        self.call_seconds.observe(call.seconds)
        return kind

    def publish(self) -> None:
        """Adds to Prometheus's counters what was counted since `publish` was last called."""
        counts, self._counts = self._counts, defaultdict(float)
        for counter, count in counts.items():
            if count:
                counter.inc(count)

    def reserve_budget(self, budget: float, unit: BudgetUnit = "samples") -> None:
        """Reserves a label for the operator's budget, before clients' budgets can use up all labels."""
        self._budgets(format_budget(budget, unit))

    def set_means(self, which: str, average: float, target: float, unit: BudgetUnit) -> None:
        """Sets the mean cost (`average`) and the mean budget (`target`) of requests since the start.

        `which` is "overall" for all requests, "voted" for those whose number of samples a policy decided. If
        `unit` isn't samples, the gauges in samples become NaN, and the mean budget isn't reported.
        """
        for name, value in (("average_samples", average), ("target_samples", target)):
            self.means[which, name].set(value if unit == "samples" else math.nan)
        if unit != "samples":
            self.means[which, "average_cost"].labels(unit).set(average)

    def set_dial(
        self,
        policy: str,
        budget: float,
        *,
        price: float | None,
        average: float | None,
        unit: BudgetUnit = "samples",
    ) -> None:
        """Sets the current price and average of a policy at a budget."""
        labels = self.policy_label(policy), self._budgets(format_budget(budget, unit))
        units = () if unit == "samples" else (unit,)
        averages = (self.average_cost, self.target_cost) if units else (self.average, self.target)
        if price is not None:
            self.price.labels(*labels).set(price)
        for gauge, value in zip(averages, (average, budget), strict=True):
            if value is not None:
                gauge.labels(*labels, *units).set(value)

    def set_drift(self, drift: Mapping[str, Any]) -> None:
        """Sets a policy's drift metrics: the winner's live and expected share of votes, `z` and the alarm."""
        label = self.policy_label(drift["policy"])
        self.drift.labels(label).set(drift["alarm"])
        gauges = {"z": self.drift_z, "live": self.live, "expected": self.expected}
        for name, gauge in gauges.items():
            if drift[name] is not None:
                gauge.labels(label).set(drift[name])

    def set_version(self, policy: str, old: str | None, version: str) -> None:
        """Reports which version of a policy is now in use; `old` is the version before, or None."""
        label = self.policy_label(policy)
        if old is not None:
            self.policy.remove(label, old)
        self.policy.labels(label, version).set(1)

    def render(self, *, of_workers: bool = False) -> bytes:
        """Returns all metrics as text for Prometheus.

        If `of_workers`, counters and histograms are sums over all worker processes.
        """
        self.publish()
        return generate_latest(_WorkersCollector(self.registry) if of_workers else self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"adacompute_{name}", what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"adacompute_{name}", what, labels, registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"adacompute_{name}", what, labels, registry=self.registry, buckets=buckets)


class _WorkersCollector(Collector):
    """Collects this process's gauges, and the counters and histograms of all workers from shared files."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics."""
        yield from (metric for metric in self._registry.collect() if metric.type == "gauge")
        summed = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
        yield from (metric for metric in summed if metric.type != "gauge")


def _status_label(status: int) -> str:
    return str(status) if status in _STATUSES else OTHER


_log = logging.getLogger("adacompute.serve")
_MAX_POLICIES = 64  # maximum number of policies whose versions are kept
_MAX_KEYS = 20  # maximum number of keys shown on the dashboard
_MAX_MODEL = 80  # maximum length of a model's name on the dashboard, in characters


class Observability:
    """Counts every event for metrics and the dashboard.

    For each request, call `on_request_start` and later `on_request_end`. If the request is refused before
    sampling begins, call only `on_refusal`.
    """

    def __init__(
        self,
        settings: ServeConfig,
        endpoint: EndpointConfig | None = None,
        *,
        modes: Sequence[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """`endpoint` has the prices and their currency. `modes` are names of modes, cheapest first."""
        self._settings = settings
        self._endpoint = EndpointConfig() if endpoint is None else endpoint
        self._budget = parse_serve_budgets(settings)[0]
        self._now = now
        self._since = now()
        self._metrics = Metrics()
        # updates Prometheus's counters by the events that were counted since its last call
        self.publish = self._metrics.publish
        self._history = TrafficHistory(texts=settings.show_texts, now=now)
        self.cap_unit: BudgetUnit = settings.unit  # unit in which the dashboard shows caps
        self._dials = DialTable(self._budget.unit, self._endpoint.currency)
        # name of a policy -> monitor of the agreement: the share of votes for the winner of each request
        self._drifts = defaultdict[str, DriftMonitor](DriftMonitor)
        self._versions: dict[str, str] = {}
        self._charts: dict[str, Chart | None] = {}
        # name of a policy -> (budget, unit) to which its expected agreement (share of votes) applies
        self._expected_at: dict[str, tuple[float, BudgetUnit]] = {}
        self._refused = defaultdict[str, int](int)
        self._unvoted = defaultdict[str, int](int)
        self._forwarded = defaultdict[str, int](int)
        self._reloads = {"ok": 0, "refused": 0}
        self._in_flight = self._requests = 0
        # The functions below are placeholders, which are replaced when the gateway starts. `read_spending`
        # returns the gateway's spending, then each key's.
        self.read_spending: Callable[[], Sequence[SpendStatus]] = tuple
        # returns how many requests the recorder has stored and how many it has dropped
        self.read_recorder: Callable[[], tuple[int, int]] | None = None
        self.read_fleet: Callable[[], FleetStatus] | None = None
        # returns the names of models that aren't called at present because they have failed; "": all models
        self.list_resting: Callable[[], Sequence[str]] = tuple
        self.describe_quality: Callable[[], str] = str
        # returns a warning if one sample costs more than the budget, or ""
        self.describe_shortfall: Callable[[], str] = str
        self._late: Callable[[], int] | None = None
        self._late_before = 0
        self.modes = None
        if modes:
            self.modes = ModeStatus(modes, settings, self._endpoint, self._metrics.registry, now=now)

    def on_request_start(self) -> None:
        """Counts a request that starts sampling; `on_request_end` follows."""
        self._in_flight += 1

    def on_request_end(self, outcome: RequestOutcome) -> None:
        """Counts a finished request, successful or not."""
        self._in_flight -= 1
        self._requests += 1
        agreement = outcome.calibrated_agreement
        is_unvoted = outcome.agreement is None and outcome.status == 200
        unvoted = classify_unvoted(outcome) if is_unvoted else ""
        self._metrics.count_request(outcome, unvoted=unvoted)
        is_counted = outcome.counts_in_average
        self._history.add_request(outcome, is_counted=is_counted and outcome.unit == self._budget.unit)
        if self.modes is not None:
            self.modes.add_outcome(outcome)
        if is_counted:
            self._dials.add_request(outcome)
        if agreement is None:
            if unvoted:
                self._unvoted[unvoted] += 1
        elif outcome.mode == "adaptive" and not outcome.explored:
            budget = self._expected_at.get(outcome.policy)
            # the winner's expected share of votes applies to one budget, so other requests aren't compared
            if budget is None or budget == (round_budget(outcome.budget, outcome.unit), outcome.unit):
                self._track_agreement(outcome.policy, agreement)

    def on_refusal(self, status: int, code: str) -> None:
        """Counts a request refused before sampling."""
        self._refused[self._metrics.count_refusal(status, code)] += 1

    def on_forward_end(self, outcome: ForwardOutcome) -> None:
        """Counts a finished forwarded request; it isn't included in any average cost."""
        self._forwarded[outcome.route] += 1
        self._metrics.count_forward(outcome)

    def on_call(self, call: Call) -> None:
        """Counts a finished upstream call."""
        self._history.add_call(self._metrics.count_call(call))

    def on_price(
        self, policy: str, budget: float, price: float, average: float, unit: BudgetUnit = "samples"
    ) -> None:
        """Stores a policy's current price at a budget, and its running average cost."""
        if math.isfinite(price) and math.isfinite(average):
            dial = self._dials.get(policy, budget, unit)
            dial.price, dial.average = price, average
            self._history.add_price((policy, dial.budget, unit), price)

    def on_policy(self, served: ServedPolicy, *, budget: float, unit: BudgetUnit = "samples") -> None:
        """Stores which version of a policy is now in use. `budget` is the gateway's budget, in `unit`.

        If the version is new, drift and savings start again. If the budget is in samples, takes the expected
        mean share of votes for the winner from the policy's chart (its measurements at several budgets).
        """
        name, version, chart = served.name, served.version, served.chart
        old = self._versions.get(name)
        if old is None and len(self._versions) >= _MAX_POLICIES:
            return
        if old != version:
            self._drifts.pop(name, None)
            self._dials.forget(name)
            if self.modes is not None:
                self.modes.forget_agreement()
            self._versions[name] = version
            self._metrics.set_version(name, old, version)
        self._charts[name] = chart
        self._history.reserve_dial((name, self._dials.get(name, budget, unit).budget, unit))
        self._metrics.reserve_budget(budget, unit)
        if unit != "samples":
            # A chart says which share of votes the winner should get, but only for budgets in samples. For
            # other budgets, the mean share in the first requests is expected.
            return
        if chart is not None and (row := chart.row_at(budget)) is not None:
            self._expected_at[name] = (round_budget(budget, unit), unit)
            self._drifts[name].expect(row.agreement, row.deviation)

    def on_budget(self, budget: Budget) -> None:
        """Changes the gateway's budget; if its unit changes, averages restart. Call `on_policy` next."""
        if budget.unit != self._budget.unit:
            for which in ("overall", "voted"):
                self._metrics.set_means(which, math.nan, math.nan, self._budget.unit)
            self._dials.count_in(budget.unit)
            self._history.start()
            if self.modes is not None:
                self.modes.start()
        self._budget = budget
        self._history.reserved_dials.clear()
        self._expected_at.clear()
        self._drifts.clear()  # start again, because the winner's share of votes depends on the budget

    def on_reload(self, *, ok: bool) -> None:
        """Counts a reload of the policies; `ok` is False if the gateway refused one of them."""
        result = "ok" if ok else "refused"
        self._reloads[result] += 1
        self._metrics.reloads.labels(result).inc()

    def watch_late_answers(self, read: Callable[[], int]) -> None:
        """Lets `read` report how many texts have no answer so far because reading them took too long.

        The metric counts only texts after this call.
        """
        self._late, self._late_before = read, read()

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs: each policy's average costs, and each mode's counts and costs."""
        return self._dials.state() | ({} if self.modes is None else {MODES_KEY: self.modes.state()})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues each policy's average costs, and each mode's counts and costs, from a stored state."""
        self._dials.restore(state)
        if self.modes is not None and isinstance(sums := state.get(MODES_KEY), Mapping):
            self.modes.restore(sums)

    def render_metrics(self, summary: Mapping[str, Any] | None = None, *, of_workers: bool = False) -> bytes:
        """Returns the text of `/metrics` for Prometheus.

        With `of_workers`, the text covers all worker processes. `summary` must then be the data that
        `summarise` returns in each of them, merged.
        """
        metrics, shown = self._metrics, self.summarise() if summary is None else summary
        metrics.in_flight.set(shown["in_flight"])
        for dial in shown["dials"]:
            names = ("policy", "budget", "price", "average", "unit")
            policy, budget, price, average, unit = (dial[name] for name in names)
            # without a price, no pacer keeps the average at the budget, so the average isn't reported
            paced = None if price is None else average
            metrics.set_dial(policy, budget, price=price, average=paced, unit=unit)
        for which, means in (("overall", shown["ever"]), ("voted", shown["ever"]["voted"])):
            if means["requests"]:
                metrics.set_means(which, means["average"], means["target"], self._budget.unit)
        for drift in shown["drift"]:
            metrics.set_drift(drift)
        for total in shown["spend"][:1]:
            for state in ("spent", "maybe", "reserved"):
                metrics.ledger.labels(state, self.cap_unit).set(total[state])
            if total["cap"] is not None:
                metrics.cap.labels(self.cap_unit).set(total["cap"])
        metrics.resting.labels("upstream").set("" in shown["resting"])
        metrics.resting.labels("models").set(len(set(shown["resting"]) - {""}))
        if (fleet := shown["fleet"]) is not None:
            metrics.fleet.set(fleet["replicas"])
            metrics.pacemaker.set(fleet["pacemaker"])
            metrics.price_age.set(fleet["age"])
        for result, count in (shown["recorder"] or {}).items():
            metrics.recorder.labels(result).set(count)
        return metrics.render(of_workers=of_workers)

    def summarise(self) -> dict[str, Any]:
        """Returns the part of `dashboard_data` that has counts since the start and current values."""
        if self._late is not None:
            late = self._late()
            self._metrics.late.inc(late - self._late_before)
            self._late_before = late
        return {
            "at": self._now(),
            "since": self._since,
            "in_flight": self._in_flight,
            "requests": self._requests,
            "refused": dict(self._refused),
            "unvoted": dict(self._unvoted),
            "forwarded": dict(self._forwarded),
            "reloads": dict(self._reloads),
            "ever": self._dials.compute_overall(),
            "dials": self._dials.describe(self._versions, paced=self._settings.average),
            "drift": [{"policy": name} | asdict(drift.state()) for name, drift in self._drifts.items()],
            "spend": [asdict(status) for status in self.read_spending()[: _MAX_KEYS + 1]],
            "recorder": self.read_recorder
            and dict(zip(("stored", "dropped"), self.read_recorder(), strict=True)),
            "resting": [shorten(name, _MAX_MODEL) for name in self.list_resting()[:_MAX_KEYS]],
            "fleet": self.read_fleet and asdict(self.read_fleet()),
        }

    def dashboard_data(self, span: str = "hour") -> dict[str, Any]:
        """Returns the dashboard's data as JSON data. `span` is "hour" or "day"; anything else means an hour.

        Times are in seconds since 1970. Tuples in this description are lists in the data.

        - Settings: `mode` ("adaptive", "shadow" or "pass"), `budget` and `budget_unit`, `unit` and `window`
          of caps, `currency`. Whether there are client keys (`keys`) and token prices (`priced`), whether
          texts are shown (`texts`), and whether random requests get all samples, to learn (`exploring`).
        - `quality`: the budget, if it was given as a quality; "" if it was an amount.
        - `shortfall`: a warning if one sample costs more than the budget; "" if not.
        - `at`: the present time. `since`: when the gateway started.
        - Counts since the start: `requests`, `refused` {error code: number}, `unvoted` {reason: number},
          `forwarded` {route: number}, `reloads` {result: number}.
        - `ever`: {requests, average, target, voted} since the start: number of requests, their mean cost and
          their mean budget. `voted` has these numbers for requests whose number of samples a policy decided.
        - `average_over`: which requests must cost the budget on average: "voted" (see `ever`) or "all".
        - Averages, `cost` and `target` are in the unit of the budget.
        - `in_flight`: number of requests that haven't finished.
        - The span: its name `span`, and `step`, the seconds per time slot. `rows` has the numbers of each
          time slot, `columns` names them, and `total` has their sums over all slots. These are lists:
          `samples` of (number of samples, requests), `rounds` of (number of rounds, requests, total seconds
          until the reply), `upstream` of (result, calls), and `prices` of {policy, budget, unit, points}.
          A point is (time, price).
        - `dials`: a list of {policy, budget, unit, price, average, averages, requests, decided, version},
          the busiest first. `averages` is {voted, all}: the mean costs of "voted" and of all requests.
          `average` is the mean cost that should meet the budget. `decided` is the number of "voted" requests.
        - `savings`: {share, uniform, average, protocol, covered, why, requests, tokens, money}. `share` is
          the part of the samples saved, compared with uniform sampling of the same accuracy. `uniform` is how
          many samples per request uniform sampling takes, measured as `protocol` says. `average` is how many
          were drawn. `requests` is the number of requests included, `covered` their share of all requests in
          averages. `tokens` and `money` are totals {spent, uniform, saved}, or None. `why` says why `share`
          is None.
        - `drift`: a list of {policy, live, expected, source, requests, z, alarm}; see `DriftState`.
        - `MODES_KEY`: what `ModeStatus.describe_span` returns; None if there is only one mode.
        - `resting`: names of models that aren't called at present because they have failed; "": all models.
        - `spend`: a list of {name, spent, maybe, reserved, cap, tokens, money}; first the sum of all keys,
          then each key. See `SpendStatus`.
        - `recorder`: {stored, dropped}: numbers of requests stored in the pool, and lost.
        - `fleet`: {replicas, pacemaker, age}, see `FleetStatus`; None without a fleet.
        - `recent`: the last 50 requests, newest first, from `_describe_request`. Their `votes` are (label,
          count), the winner first.
        """
        span = span if span in SPANS else "hour"
        self._dials.look_up_worth(self._charts)
        settings = self._settings
        return {
            **self.summarise(),
            "mode": settings.mode,
            "budget": self._budget.amount,
            "budget_unit": self._budget.unit,
            "currency": self._endpoint.currency,
            "priced": bool(self._endpoint.input_price or self._endpoint.output_price),
            "shortfall": self.describe_shortfall(),
            "quality": self.describe_quality(),
            "exploring": settings.explore > 0,
            "unit": self.cap_unit,
            "window": settings.window,
            "keys": bool(settings.keys_file),
            "texts": settings.show_texts,
            "average_over": choose_average(settings.average, self._budget.unit),
            "span": span,
            **self._history.board(span),
            "savings": self._dials.compute_savings(),
            MODES_KEY: self.modes and self.modes.describe_span(span),
            "recent": self._history.recent(),
        }

    def _track_agreement(self, policy: str, agreement: float) -> None:
        drift = self._drifts[policy]
        if not drift.add(agreement):
            return
        state = drift.state()
        if not state.alarm:
            _log.warning("drift: agreement of policy %r is as expected again", policy)
            return
        metrics = self._metrics
        metrics.alarms.labels(metrics.policy_label(policy)).inc()
        _log.warning(
            "drift: agreement of policy %r is %.2f over the last %d votes, %s saw %.2f; traffic is not what "
            "it was fitted on: record some of it, and fit again",
            policy,
            state.live,
            state.requests,
            state.source,
            state.expected,
        )
