"""Tells metrics, the dashboard, the log, telemetry and the recorder of what has ended, after the reply."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from adacompute.records import BudgetUnit, Call
from adacompute.serve.messages.reply import ForwardOutcome, RequestOutcome
from adacompute.serve.voting.sample_loop import SampleLoop
from adacompute.serve.watching.observability import Observability
from adacompute.serve.watching.recorder import RecordQueue

if TYPE_CHECKING:
    from adacompute.serve.watching.telemetry import ForwardSpan, RequestSpan

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("adacompute.serve")
_REPORT_SECONDS = 0.05  # that what has ended waits until observers are told of it
_SLICE_SECONDS = 0.001  # that observers hold the event loop at once
_PAUSE_SECONDS = 0.002  # between two slices
_MAX_WAITING = 128  # calls and requests


class RequestLog:
    """One line for each request, without its texts."""

    def __init__(self) -> None:
        self._log = logging.getLogger("adacompute.request")
        self._forwards = logging.getLogger("adacompute.serve")
        self._calls = logging.getLogger("adacompute.upstream")

    def log_request(self, outcome: RequestOutcome) -> None:
        """Logs a request that ended."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        fields: dict[str, object] = {
            "id": outcome.id,
            "key_name": outcome.key,
            "policy": outcome.policy,
            "mode": outcome.mode,
            "budget": outcome.budget,
            "status": outcome.status,
            "samples": outcome.samples,
            "waves": outcome.waves,
            "votes": sorted(outcome.votes.values(), reverse=True) if outcome.votes else [],
            "agreement": None if outcome.agreement is None else round(outcome.agreement, 4),
            "price": outcome.price,
            "seconds": round(outcome.seconds, 4),
            "spent_samples": outcome.spent.samples,
            "spent_tokens": outcome.spent.tokens,
            "spent_money": outcome.spent.amount_in("money"),
        }
        if outcome.unit != "samples":
            fields["budget_unit"] = outcome.unit
        if outcome.error:
            fields["code"] = outcome.error
        if outcome.missing:
            fields["missing"] = outcome.missing
        if outcome.modes:
            fields["modes"], fields["answered_by"] = outcome.mode_counts, outcome.answered_by
        if outcome.would is not None:
            fields["would"] = outcome.would
        if outcome.notes and (reason := outcome.no_vote_reason) is not None:
            fields["no_vote"] = reason
        _log_fields(self._log, "request", fields, outcome.at + outcome.seconds)

    def log_forward(self, outcome: ForwardOutcome) -> None:
        """Logs a request that was passed on, when it has ended."""
        if not self._forwards.isEnabledFor(logging.INFO):
            return
        fields: dict[str, object] = {
            "id": outcome.id,
            "key_name": outcome.key,
            "route": outcome.route,
            "method": outcome.method,
            "status": outcome.status,
            "seconds": round(outcome.seconds, 4),
            "spent_samples": outcome.spent.samples,
            "spent_tokens": outcome.spent.tokens,
        }
        _log_fields(self._forwards, "forwarded", fields, outcome.at + outcome.seconds)

    def log_call(self, call: Call) -> None:
        """Logs an attempt upstream that ended, at debug level."""
        if self._calls.isEnabledFor(logging.DEBUG):
            fields = {"kind": call.kind, "status": call.status, "asked": call.asked, "got": call.got}
            more = {"seconds": round(call.seconds, 4), "paid": call.paid}
            self._calls.debug("upstream", extra={**fields, **more})


def _log_fields(log: logging.Logger, message: str, fields: dict[str, object], ended_at: float) -> None:
    """Logs fields with the time at which a request ended: its line is written later."""
    record = log.makeRecord(log.name, logging.INFO, __file__, 0, message, (), None, extra=fields)
    record.created = ended_at
    log.handle(record)


request_log: Final = RequestLog()


class ObserverGuard:
    """Calls observers; what one raises is logged the first time, and goes no further.

    A reply is paid for before observers hear of it, so one that fails must not cost the client its
    reply, or keep the others from being called.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def __call__(self, observer: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Calls one; what it returns, or None if it failed."""
        try:
            return observer(*args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is
            name = getattr(observer, "__qualname__", repr(observer))
            if name not in self._failed:
                self._failed.add(name)
                _log.exception("%s failed; requests continue, and this is not logged again", name)
        return None


class Reporter:
    """Tells metrics, the dashboard, the log and telemetry of what has ended, and the recorder of its traffic.

    No reply waits for them. They are told 50 ms later of all that has ended since, in its order, for 1 ms at
    a time, so that the median request of a client that asks one after the other meets no report. What has to
    be up to date calls `report` first: `/metrics`, the dashboard's data, and the gateway at its end. If 128
    wait, the next one that ends has some of them reported at once, so that memory is bounded.

    The recorder is told in the next round of the event loop, so that a killed process loses no more traffic
    than the recorder itself has not written yet.
    """

    def __init__(self, observability: Observability, recorder: RecordQueue | None = None) -> None:
        self.recorder = recorder  # None: traffic isn't recorded
        self._observability = observability
        self._guard = ObserverGuard()
        self._waiting: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()  # the oldest first
        self._unrecorded: list[tuple[RequestOutcome, SampleLoop]] = []
        self._prices: dict[tuple[str, float, BudgetUnit], tuple[float, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def on_call(self, call: Call) -> None:
        """An attempt upstream has ended."""
        self._add(self._tell_of_call, call)

    def on_price(
        self, policy: str, budget: float, price: float, average: float, unit: BudgetUnit = "samples"
    ) -> None:
        """The present price of a policy at a budget, and its running average; only the last is told."""
        self._prices[policy, budget, unit] = price, average
        if self._timer is None:
            self._start_timer(_REPORT_SECONDS)

    def on_request_end(
        self, outcome: RequestOutcome, sampling: SampleLoop, span: "RequestSpan | None" = None
    ) -> None:
        """A request has ended, successfully or not."""
        self._add(self._tell_of_request, outcome, span)
        if self.recorder is not None:
            if not self._unrecorded:
                asyncio.get_running_loop().call_soon(self._record)
            self._unrecorded.append((outcome, sampling))

    def on_forward_end(self, outcome: ForwardOutcome, span: "ForwardSpan | None" = None) -> None:
        """A request that was passed on has ended, successfully or not."""
        self._add(self._tell_of_forward, outcome, span)

    def report(self) -> None:
        """Tells the observers of everything now."""
        self._record()
        self._report_for(math.inf)

    def _add(self, tell: Callable[..., None], *args: object) -> None:
        self._waiting.append((tell, args))
        if self._timer is None:
            self._start_timer(_REPORT_SECONDS)
        if len(self._waiting) > _MAX_WAITING:
            self._report_for(_SLICE_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._report_slice)

    def _report_slice(self) -> None:
        self._timer = None
        self._report_for(_SLICE_SECONDS)
        if self._waiting:
            self._start_timer(_PAUSE_SECONDS)

    def _report_for(self, seconds: float) -> None:
        """Tells the observers for so long, and of one thing at least."""
        end = time.perf_counter() + seconds
        prices, self._prices = self._prices, {}
        for (policy, budget, unit), (price, average) in prices.items():
            self._guard(self._observability.on_price, policy, budget, price, average, unit)
        while self._waiting:
            tell, args = self._waiting.popleft()
            tell(*args)
            if time.perf_counter() >= end:
                return

    def _tell_of_call(self, call: Call) -> None:
        self._guard(self._observability.on_call, call)
        self._guard(request_log.log_call, call)

    def _tell_of_request(self, outcome: RequestOutcome, span: "RequestSpan | None") -> None:
        self._guard(self._observability.on_request_end, outcome)
        self._guard(request_log.log_request, outcome)
        if span is not None:
            self._guard(span.end, outcome)

    def _tell_of_forward(self, outcome: ForwardOutcome, span: "ForwardSpan | None") -> None:
        self._guard(self._observability.on_forward_end, outcome)
        self._guard(request_log.log_forward, outcome)
        if span is not None:
            self._guard(span.end, outcome)

    def _record(self) -> None:
        requests, self._unrecorded = self._unrecorded, []
        for outcome, sampling in requests:
            if self.recorder is not None:
                self._guard(self.recorder.record, outcome, sampling.request, sampling.votes.samples)
