"""What the gateway is seen to do: one object told of everything, for metrics and the dashboard alike.

Knows nothing of HTTP. No process-wide state: several may live side by side.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from adacompute.config import ServeConfig
from adacompute.policies.chart import Chart
from adacompute.records import Call
from adacompute.serve.dials import Dials
from adacompute.serve.drift import Drifts
from adacompute.serve.history import SPANS, History
from adacompute.serve.metrics import Metrics, unvoted_reason
from adacompute.serve.told import Told

__all__ = ["InService", "Seen", "Standing"]

_LOG = logging.getLogger(__name__)
_POLICIES = 64  # whose versions are kept
_KEYS = 20  # standings that a board shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one key, or all of them, may spend and has spent, in the unit of the caps."""

    name: str  # of the key; "": all together
    spent: float
    maybe: float = 0.0  # at most: calls that gave nothing
    reserved: float = 0.0  # by requests under way
    cap: float | None = None


class InService(Protocol):
    """A policy as the shelf holds it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def chart(self) -> Chart | None: ...


class InFleet(Protocol):
    """How a gateway stands in its fleet."""

    @property
    def replicas(self) -> int: ...
    @property
    def pacemaker(self) -> bool: ...
    @property
    def age(self) -> float: ...


class Seen:
    """All that is counted. `began` and `ended` come in pairs; `refused` is of a request without either."""

    def __init__(self, settings: ServeConfig, *, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._since = now()
        self._metrics = Metrics()
        self._history = History(texts=settings.show_texts, now=now)
        self._dials = Dials()
        self._drifts = Drifts()
        self._versions: dict[str, str] = {}
        self._charts: dict[str, Chart | None] = {}
        self._expected_at: dict[str, float] = {}  # by policy, the budget whose agreement is expected
        self._refused: dict[str, int] = {}
        self._unvoted: dict[str, int] = {}
        self._reloads = {"ok": 0, "refused": 0}
        self._in_flight = self._requests = 0
        self._standings: Callable[[], Sequence[Standing]] | None = None
        self._recorder: Callable[[], tuple[int, int]] | None = None
        self._fleet: Callable[[], InFleet] | None = None
        self._late: Callable[[], int] | None = None
        self._late_before = 0

    def began(self) -> None:
        """A request is to be sampled for; `ended` follows, whatever happens."""
        self._in_flight += 1

    def ended(self, told: Told) -> None:
        """It has ended, well or not."""
        self._in_flight -= 1
        self._requests += 1
        self._metrics.ended(told)
        self._history.ended(told)
        if told.paced:
            voted = told.agreement is not None and not told.explored
            self._dials.ended(told.policy, told.budget, told.cost_samples, voted=voted)
        if told.agreement is None:
            if told.status == 200:
                _count(self._unvoted, unvoted_reason(told))
        elif told.mode == "adaptive" and not told.explored:
            at = round(told.budget, 2)
            if self._expected_at.get(told.policy, at) == at:  # at another budget votes are of another size
                self._voted(told.policy, told.agreement)

    def refused(self, status: int, code: str) -> None:
        """A request that never got to sampling: no `began`, no `ended`."""
        _count(self._refused, self._metrics.turned_away(status, code))

    def called(self, call: Call) -> None:
        """One attempt upstream has ended."""
        self._history.called(self._metrics.called(call))

    def paced(self, policy: str, budget: float, price: float, average: float) -> None:
        """Where the dial of a policy at a budget is now, and its running average."""
        if math.isfinite(price) and math.isfinite(average):
            dial = self._dials.of(policy, budget)
            dial.price, dial.average = price, average
            self._history.paced((policy, dial.budget), price)

    def expects(self, policy: str, agreement: float, deviation: float) -> None:
        """The agreement that calibration saw: mean, and deviation from request to request."""
        self._drifts.of(policy).expects(agreement, deviation)

    def worth(self, policy: str, budget: float, uniform: float | None, protocol: str) -> None:
        """How many samples each are as accurate as this policy at its running average, and how that is known.

        None, or no protocol: not known, and no savings are shown.
        """
        self._dials.worth(policy, budget, uniform, protocol)

    def serves(self, served: InService, *, budget: float) -> None:
        """A policy is in service now, for this budget where a request names none.

        What its chart says is what is expected. Votes of another version under the same name are forgotten.
        """
        name, version, chart = served.name, served.version, served.chart
        old = self._versions.get(name)
        if old is None and len(self._versions) >= _POLICIES:
            return
        if old != version:
            self._drifts.forget(name)
            self._dials.forget(name)
            self._versions[name] = version
            self._metrics.serves(name, old, version)
        self._charts[name] = chart
        self._history.holds((name, self._dials.of(name, budget).budget))
        self._metrics.holds(budget)
        if chart is not None and (row := chart.at(budget)) is not None:
            self._expected_at[name] = round(budget, 2)
            self.expects(name, row.agreement, row.deviation)

    def reloaded(self, *, ok: bool) -> None:
        """Policies were read anew; False: one was refused, and the last good one serves on."""
        result = "ok" if ok else "refused"
        self._reloads[result] += 1
        self._metrics.of(self._metrics.reloads, result).inc()

    def balances(self, give: Callable[[], Sequence[Standing]]) -> None:
        """Whom to ask what was spent: all together first, with the name "", then each key."""
        self._standings = give

    def recording(self, give: Callable[[], tuple[int, int]]) -> None:
        """Whom to ask how many requests were stored for the pool, and how many dropped."""
        self._recorder = give

    def fleet(self, give: Callable[[], InFleet]) -> None:
        """Whom to ask how this gateway stands in its fleet."""
        self._fleet = give

    def reading(self, give: Callable[[], int]) -> None:
        """Whom to ask how many answers took too long to be read; what was counted before is not ours."""
        self._late, self._late_before = give, give()

    def metrics(self) -> bytes:
        """What `/metrics` answers, of the type `metrics.CONTENT_TYPE`."""
        metrics = self._metrics
        metrics.in_flight.set(self._in_flight)
        for dial in self._dials:
            if dial.requests or dial.price is not None:
                metrics.dial(dial.policy, dial.budget, price=dial.price, average=dial.average)
        if (overall := self._dials.overall())["requests"]:
            metrics.overall.set(overall["average"])
            metrics.overall_target.set(overall["target"])
        for policy, drifted in self._drifts.states().items():
            metrics.drifted(policy, drifted)
        if standings := self._given():
            whole, unit = standings[0], self._settings.unit
            for state in ("spent", "maybe", "reserved"):
                metrics.of(metrics.ledger, state, unit).set(getattr(whole, state))
            if whole.cap is not None:
                metrics.of(metrics.cap, unit).set(whole.cap)
        if self._fleet is not None:
            standing = self._fleet()
            metrics.fleet.set(standing.replicas)
            metrics.pacemaker.set(standing.pacemaker)
            metrics.price_age.set(standing.age)
        if self._recorder is not None:
            for result, n in zip(("stored", "dropped"), self._recorder(), strict=True):
                metrics.of(metrics.recorder, result).set(n)
        if self._late is not None:
            late = self._late()
            metrics.late.inc(late - self._late_before)
            self._late_before = late
        return metrics.text()

    def board(self, span: str = "hour") -> dict[str, Any]:
        """What the dashboard shows, as JSON data. `span` is "hour" or "day"; anything else is an hour.

        `at`, `since`: now and the start, seconds since 1970. `mode`, `exploring`, `unit`, `window`,
        `keys` (are there any), `texts` (are they shown): settings.
        `in_flight`; `requests`, `refused` (by code), `unvoted` (by reason), `reloads`: since the start.
        `ever`: {requests, average, target} of requests that count, since the start.
        `span`: its name; `step`: seconds a slot; `columns` and `rows`: its slots, sums each; `total`: their
        sums; `samples`: [samples, requests] pairs; `upstream`: [kind, calls] pairs; `prices`: {policy,
        budget, points} each, of [time, price] pairs.
        `dials`: {policy, budget, price, average, requests, version} each, the busiest first.
        `savings`: {share, uniform, average, protocol, covered, why}; share is None where it isn't known, and
        `why` says why; it is about requests with a vote that their policy decided, and `covered` is their
        share of all that count.
        `drift`: {policy, live, expected, source, requests, z, alarm} each.
        `spend`: {name, spent, maybe, reserved, cap} each, all together first. `recorder`: {stored, dropped}.
        `recent`: the last 50 requests, newest first: {at, id, key, policy, mode, budget, samples, missing,
        would, votes ([label, count] pairs, the winner first), abstained, agreement, price, seconds, status,
        error, notes}, and only where texts are shown: prompt, answer.
        """
        span = span if span in SPANS else "hour"
        self._appraise()
        settings = self._settings
        return {
            "at": self._now(),
            "since": self._since,
            "mode": settings.mode,
            "exploring": settings.explore > 0,
            "unit": settings.unit,
            "window": settings.window,
            "keys": bool(settings.keys_file),
            "texts": settings.show_texts,
            "in_flight": self._in_flight,
            "requests": self._requests,
            "refused": dict(self._refused),
            "unvoted": dict(self._unvoted),
            "reloads": dict(self._reloads),
            "ever": self._dials.overall(),
            "span": span,
            **self._history.board(span),
            "dials": self._dials.board(self._versions),
            "savings": self._dials.savings(),
            "drift": [{"policy": name} | asdict(state) for name, state in self._drifts.states().items()],
            "spend": [asdict(standing) for standing in self._given()[: _KEYS + 1]],
            "recorder": self._recorded(),
            "recent": self._history.recent(),
        }

    def _appraise(self) -> None:
        """What the charts say of the averages as they are now."""
        for dial in self._dials:
            chart, mean = self._charts.get(dial.policy), dial.mean
            if chart is None or mean is None:
                continue
            row, why = chart.at(mean), ""
            if row is None:
                first, last = chart.rows[0].budget, chart.rows[-1].budget
                why = (
                    f"votes take {mean:.2f} samples on average, and the chart goes from {first:g} to {last:g}"
                )
            uniform = None if row is None else row.uniform
            self._dials.worth(dial.policy, dial.budget, uniform, chart.protocol, why=why)

    def _given(self) -> Sequence[Standing]:
        return () if self._standings is None else self._standings()

    def _recorded(self) -> dict[str, int] | None:
        if self._recorder is None:
            return None
        stored, dropped = self._recorder()
        return {"stored": stored, "dropped": dropped}

    def _voted(self, policy: str, agreement: float) -> None:
        drift = self._drifts.of(policy)
        if not drift.saw(agreement):
            return
        state = drift.state()
        if not state.alarm:
            _LOG.warning("drift: agreement of policy %r is back where it was expected", policy)
            return
        metrics = self._metrics
        metrics.of(metrics.alarms, metrics.policy_label(policy)).inc()
        _LOG.warning(
            "drift: agreement of policy %r is %.2f over the last %d votes, %s saw %.2f; traffic is not what "
            "it was fitted on: record some of it, and fit anew",
            policy,
            state.live,
            state.requests,
            state.source,
            state.expected,
        )


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
