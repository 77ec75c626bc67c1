"""Sends OpenTelemetry data: a span for each request and each upstream call, and metrics for both.

Attributes follow OpenTelemetry's GenAI conventions; our own begin with `adacompute.`. Spans and metrics never
contain prompts, answers, keys or upstream addresses.

This module needs the extra adacompute[otel], so it is imported only if the operator enables telemetry. A
request's span begins with the request: calls send the ids of their own spans upstream, and the request's span
is the parent of these. After the reply, the `Reporter` completes all spans of the request. Then a thread of
the OpenTelemetry SDK exports them from a queue of limited size.
"""

import asyncio
import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from adacompute.client import ForwardRequest
from adacompute.client.response_parser import replace_surrogates
from adacompute.config import ServeConfig
from adacompute.errors import ConfigError, shorten
from adacompute.records import Call
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, ForwardOutcome, Refusal, RequestOutcome
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.messages.trace_context import TRACE_PARENT, TRACE_STATE
from adacompute.serve.watching.observability import CALL_KINDS, MAX_LABELS, OTHER, classify_unvoted

_log = logging.getLogger("adacompute.serve")
_NAME = "adacompute"  # name of this package in OpenTelemetry data, and the default name of the service
_PROVIDER = "openai"  # the provider whose API the gateway uses, even if another provider serves the models
_MAX_TEXT = 200  # maximum length of an attribute, in characters
# seconds that exporters get for stopping, after they were told to stop retrying
_LAST_WORDS_SECONDS = 0.5
_INT64 = 2**63
_REASON = re.compile(r"[a-z][a-z_]{0,39}")  # format of a valid finish reason or error code
_UNKNOWN_ERROR = "_OTHER"  # error type that OpenTelemetry's conventions prescribe for unknown errors

# name of a numeric field in a request's body -> name of its attribute in OpenTelemetry
_FLOAT_FIELDS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
# bucket boundaries that OpenTelemetry's conventions recommend for histograms of token counts
_TOKEN_BUCKETS: Final = [4.0**power for power in range(14)]
_SECOND_BUCKETS: Final = [0.01 * 2.0**power for power in range(14)]
_FIRST_TOKEN_BUCKETS: Final = [
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
]
# route -> its name in OpenTelemetry's conventions, if that is different
_OPERATIONS: Final = {"completions": "text_completion"}
# path to the number of reasoning tokens in an upstream's usage data
_REASONING_PATH: Final = ("completion_tokens_details", "reasoning_tokens")
_Attributes = dict[str, str | int | float | bool | Sequence[str]]


class ModelLabels:
    """Limits model names in labels to models that the upstream lists, or that have answered a request.

    All other names become `other`, because clients can name any model. So do new names after the first 64.
    """

    def __init__(self) -> None:
        # returns the names of models that the upstream lists
        self.list_known: Callable[[], Collection[str]] = frozenset
        self._names: set[str] = set()

    def label(self, name: str, *, answered: bool) -> str:
        """Returns the name or `other`; `answered` says whether the model has just answered a request."""
        if name in self._names:
            return name
        if len(self._names) >= MAX_LABELS or not (answered or name in self.list_known()):
            return OTHER
        self._names.add(name)
        return name


class AttemptSpan:
    """The span of an upstream call. It keeps the call's result until the request's span is completed."""

    def __init__(self, span: Span, headers: Mapping[str, str] | None, resends: int) -> None:
        self.span = span
        self.headers = headers
        self.resends = resends
        self.started_at = time.time_ns()
        self.answering_at = self.ended_at = 0
        self.call: Call | None = None
        self.reply: _Attributes = {}

    def mark_answering(self) -> None:
        """Stores the time when the first event of a stream arrived."""
        self.answering_at = time.time_ns()

    def end(self, call: Call, body: Mapping[str, Any] | None) -> None:
        """Stores the end and the result of the call; `body` is the completion, or None if there is none."""
        self.ended_at, self.call = time.time_ns(), call
        if body is not None:
            self.reply = _describe_reply(body)


class RequestSpan:
    """The span of a request. The upstream client uses it as a tracer, to begin a span for each call."""

    def __init__(self, telemetry: "Telemetry", request: ChatRequest, route: Route) -> None:
        self.request = request
        self.attempts: list[AttemptSpan] = []
        self.started_at = time.time_ns()
        self._telemetry = telemetry
        self._incoming = route.trace
        parent = _PROPAGATOR.extract(route.trace or {}, Context())
        self._operation = _describe_operation(_read_model(request))
        self.span = telemetry.start_span(SpanKind.SERVER, parent, self._operation)
        self._context = set_span_in_context(self.span, Context())

    def begin_attempt(self, resends: int) -> AttemptSpan:
        """Begins the span of an upstream call, which is a retry if `resends` is above 0."""
        span = self._telemetry.start_span(SpanKind.CLIENT, self._context, self._operation)
        attempt = AttemptSpan(span, _build_headers(span, self._incoming), resends)
        self.attempts.append(attempt)
        return attempt

    def end(self, outcome: RequestOutcome) -> None:
        """Completes the request's span and those of its calls, and updates the metrics."""
        self._telemetry.end_request(self, outcome)


class ForwardSpan:
    """The spans of a forwarded request and of its single upstream call."""

    def __init__(self, telemetry: "Telemetry", request: ForwardRequest, route: str) -> None:
        self.route = route
        # OpenTelemetry's name for the operation; "" if the request is free, e.g. a file upload
        self.operation = _OPERATIONS.get(route, route) if request.samples else ""
        self.model = _clip(request.model)
        self.started_at = time.time_ns()
        self._telemetry = telemetry
        attributes = _describe_operation(self.model, self.operation) if self.operation else {}
        parent = _PROPAGATOR.extract(request.headers, Context())
        self.span = telemetry.start_span(SpanKind.SERVER, parent, attributes)
        self.call_span = telemetry.start_span(
            SpanKind.CLIENT, set_span_in_context(self.span, Context()), attributes
        )
        headers = _build_headers(self.call_span, request.headers) or {}
        # the request with the headers of the upstream call's span
        self.request = replace(request, headers={**request.headers, **headers})

    def end(self, outcome: ForwardOutcome) -> None:
        """Completes both spans, and counts the request in the metrics."""
        calls = outcome.calls
        self._telemetry.end_forward(self, outcome.status, calls[-1] if calls else None, outcome.seconds)


_PROPAGATOR = TraceContextTextMapPropagator()


class Telemetry:
    """Creates the spans and metrics of one gateway, and exports them."""

    def __init__(self, settings: ServeConfig) -> None:
        _quiet_sdk()
        self.models = ModelLabels()
        self._unit = settings.unit
        # limits labels for the model names in upstream replies: the first 64, then `other`
        self._answering_models = ModelLabels()
        self._errors: set[str] = set()
        try:
            self._open(_list_endpoints(settings.otel))
        except Exception as exc:  # the SDK may raise any exception if an environment variable is wrong
            raise ConfigError(
                f"otel {settings.otel!r} can't be set up ({shorten(' '.join(str(exc).split()), _MAX_TEXT)}); "
                "check the environment variables OTEL_…"
            ) from exc

    def _open(self, endpoints: tuple[str | None, str | None]) -> None:
        self._watch = watch = _ExportWatch()
        self._exporters = (_SpanExporter(endpoints[0], watch), _MetricExporter(endpoints[1], watch))
        resource = _build_resource()
        self._tracing = TracerProvider(
            resource=resource, shutdown_on_exit=False, span_limits=SpanLimits(max_attribute_length=_MAX_TEXT)
        )
        self._tracing.add_span_processor(BatchSpanProcessor(self._exporters[0]))
        self._metering = MeterProvider(
            [PeriodicExportingMetricReader(self._exporters[1])], resource=resource, shutdown_on_exit=False
        )
        self._tracer = self._tracing.get_tracer(_NAME)
        self._tokens = self._make_histogram("client.token.usage", "{token}", _TOKEN_BUCKETS)
        self._call_seconds = self._make_histogram("client.operation.duration", "s", _SECOND_BUCKETS)
        self._request_seconds = self._make_histogram("server.request.duration", "s", _SECOND_BUCKETS)
        self._first_token = self._make_histogram("server.time_to_first_token", "s", _FIRST_TOKEN_BUCKETS)

    def _make_histogram(self, name: str, unit: str, buckets: Sequence[float]) -> Histogram:
        return self._metering.get_meter(_NAME).create_histogram(
            f"gen_ai.{name}", unit=unit, explicit_bucket_boundaries_advisory=buckets
        )

    def begin(self, request: ChatRequest, route: Route) -> RequestSpan:
        """Begins the span of a request, as a child of the client's span if the client sent one."""
        return RequestSpan(self, request, route)

    def begin_forward(self, request: ForwardRequest, route: str) -> ForwardSpan:
        """Begins the spans of a forwarded request. `route` is the first word of its path."""
        return ForwardSpan(self, request, route)

    def start_span(self, kind: SpanKind, parent: Context, attributes: "_Attributes") -> Span:
        """Starts a span with its first attributes; the span gets its final name when it ends."""
        return self._tracer.start_span(_NAME, parent, kind, attributes)

    def _end_attempt(self, attempt: AttemptSpan, request: ChatRequest, *, latest: int) -> None:
        """Completes the span of an upstream call, and counts the call in the metrics.

        A call without a result isn't counted. Its span ends at `latest`, in nanoseconds since 1970.
        """
        call, span, model = attempt.call, attempt.span, _read_model(request)
        if call is None:  # the upstream client stopped this call without reporting a result
            span.end(latest)
            return
        label = self.models.label(model, answered=call.kind == "ok")
        operation = _describe_operation(label)
        if name := attempt.reply.get("gen_ai.response.model"):
            operation["gen_ai.response.model"] = self._answering_models.label(str(name), answered=True)
        error = self._count_call(call, operation)
        if not span.is_recording():
            return
        span.update_name(f"chat {label}")
        span.set_attributes(
            _describe_request(request, call.asked, stream=attempt.answering_at > 0)
            | _describe_call(call)
            | attempt.reply
        )
        if attempt.resends:
            span.set_attribute("http.request.resend_count", attempt.resends)
        if attempt.answering_at:
            seconds = (attempt.answering_at - attempt.started_at) / 1e9
            span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        _mark_error(span, error, is_fault=error != "cancelled")
        span.end(attempt.ended_at)

    def _count_call(self, call: Call, operation: _Attributes) -> str:
        """Counts an upstream call in the metrics; returns the kind of its error, or ""."""
        if call.kind == "ok" and not call.estimated:
            for kind, tokens in (("input", call.prompt_tokens), ("output", call.completion_tokens)):
                if tokens is not None:
                    self._tokens.record(tokens, operation | {"gen_ai.token.type": kind}, Context())
        error = "" if call.kind == "ok" else call.kind if call.kind in CALL_KINDS else _UNKNOWN_ERROR
        self._call_seconds.record(call.seconds, operation | _describe_error(error), Context())
        return error

    def end_request(self, request_span: RequestSpan, outcome: RequestOutcome) -> None:
        """Completes the spans of a request and its calls, and counts them in the metrics."""
        span, request, attempts = request_span.span, request_span.request, request_span.attempts
        ended_at = request_span.started_at + int(outcome.seconds * 1e9)
        for attempt in attempts:
            self._end_attempt(attempt, request, latest=ended_at)
        replies = [attempt.reply for attempt in attempts if attempt.reply]
        # name of the model that the first reply states
        model = str(replies[0].get("gen_ai.response.model", "")) if replies else ""
        label = self.models.label(_read_model(request), answered=outcome.status == 200)
        error = self._label_error(outcome.error)
        attributes = _describe_operation(label)
        if model:
            attributes["gen_ai.response.model"] = self._answering_models.label(model, answered=True)
        if answering := [attempt.answering_at for attempt in attempts if attempt.answering_at]:
            first_token = (min(answering) - request_span.started_at) / 1e9
            self._first_token.record(first_token, attributes, Context())
        self._request_seconds.record(outcome.seconds, attributes | _describe_error(error), Context())
        if not span.is_recording():
            return
        span.update_name(f"chat {label}")
        span.set_attributes(
            _describe_request(request, request.n, stream=request.stream)
            | _describe_outcome(outcome)
            | self._describe_vote(outcome)
        )
        if model:
            span.set_attribute("gen_ai.response.model", model)
        _mark_error(span, error, is_fault=outcome.status >= 500)
        span.end(ended_at)

    def end_forward(self, forward: ForwardSpan, status: int, call: Call | None, seconds: float) -> None:
        """Completes the spans of a forwarded request, and updates the metrics unless it is free."""
        label = self.models.label(forward.model, answered=status < 300) if forward.model else ""
        error = "" if status < 400 else "client_gone" if status == CLIENT_GONE_STATUS else str(status)
        call_error = error
        if forward.operation:
            operation = _describe_operation(label, forward.operation)
            self._request_seconds.record(seconds, operation | _describe_error(error), Context())
            call_error = error if call is None else self._count_call(call, operation)
        attributes: _Attributes = {
            "http.request.method": forward.request.method,
            "http.route": f"/v1/{forward.route}",
            **({"http.response.status_code": status} if status != CLIENT_GONE_STATUS else {}),
        }
        name = f"{forward.operation} {label}".strip() or f"{forward.request.method} /v1/{forward.route}"
        ended_at = forward.started_at + int(seconds * 1e9)
        for span, kind in ((forward.call_span, call_error), (forward.span, error)):
            span.update_name(name)
            span.set_attributes(attributes if call is None else attributes | _describe_tokens(call))
            _mark_error(span, kind, is_fault=status >= 500)
            span.end(ended_at)

    def record_refusal(self, refusal: Refusal, trace: Mapping[str, str] | None) -> None:
        """Records the span of a refused request, and counts the request if its route calls a model.

        The span names no model, because the refused request may be unreadable or wrong.
        """
        error = self._label_error(refusal.code)
        operation: _Attributes = {}
        if refusal.operation:
            operation = _describe_operation("", _OPERATIONS.get(refusal.operation, refusal.operation))
            seconds = (refusal.ended_at - refusal.started_at) / 1e9
            self._request_seconds.record(seconds, operation | _describe_error(error), Context())
        name = operation.get("gen_ai.operation.name") or f"{refusal.method} {refusal.route}".strip()
        attributes: _Attributes = {
            **operation,
            "http.request.method": refusal.method,
            "http.response.status_code": refusal.status,
            **({"http.route": refusal.route} if refusal.route else {}),
        }
        parent = _PROPAGATOR.extract(trace or {}, Context())
        span = self._tracer.start_span(
            str(name), parent, SpanKind.SERVER, attributes, start_time=refusal.started_at
        )
        _mark_error(span, error, is_fault=refusal.status >= 500)
        span.end(refusal.ended_at)

    def _describe_vote(self, outcome: RequestOutcome) -> _Attributes:
        unvoted = outcome.agreement is None and outcome.status == 200
        attributes = {
            "samples": outcome.samples,
            "waves": outcome.waves,
            "policy": outcome.policy,
            "mode": outcome.mode,
            "budget": outcome.budget,
            "cost": outcome.spent.amount_in(self._unit),
            "unit": self._unit,
            "agreement": outcome.agreement,
            "price": outcome.price,
            "missing": outcome.missing or None,
            "would": outcome.would,
            "weak": outcome.weak or None,
            "budget.unit": None if outcome.unit == "samples" else outcome.unit,
            "explored": outcome.explored or None,
            "modes": outcome.mode_counts or None,
            "answered_by": outcome.answered_by or None,
            "no_vote": classify_unvoted(outcome) if unvoted else None,
        }
        return {f"adacompute.{name}": value for name, value in _omit_none(attributes).items()}

    def _label_error(self, code: str) -> str:
        """Returns an error code, or `_OTHER` if it is invalid or 64 others are known; "" means no error."""
        if not code or code in self._errors:
            return code
        if len(self._errors) >= MAX_LABELS or not _REASON.fullmatch(code):
            return _UNKNOWN_ERROR
        self._errors.add(code)
        return code

    async def close(self, seconds: float) -> None:
        """Sends the queued spans and metrics; those that aren't sent within `seconds` are lost."""
        threads = [_run_in_thread(provider.shutdown) for provider in (self._tracing, self._metering)]
        if not await _have_ended(threads, seconds):
            _log.warning("the OpenTelemetry collector didn't take the last spans and metrics; they are lost")
            for exporter in self._exporters:
                threads.append(_run_in_thread(exporter.shutdown))  # makes the exporter stop retrying
            await _have_ended(threads, _LAST_WORDS_SECONDS)
        self._watch.close()


async def _have_ended(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Waits up to `seconds` for all threads to end; returns whether they did."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while any(thread.is_alive() for thread in threads):
        if loop.time() >= until:
            return False
        await asyncio.sleep(0.01)
    return True


def _run_in_thread(function: Callable[[], object]) -> threading.Thread:
    """Starts a function in a daemon thread; its exceptions are ignored."""

    def run() -> None:
        with contextlib.suppress(Exception):
            function()

    thread = threading.Thread(target=run, name="adacompute-telemetry", daemon=True)
    thread.start()
    return thread


def _list_endpoints(otel: str) -> tuple[str | None, str | None]:
    """Returns the URLs for spans and for metrics; None if environment variables define them."""
    if otel == "env":  # the SDK reads the collector's address from OpenTelemetry's environment variables
        return None, None
    base = otel.rstrip("/")
    return f"{base}/v1/traces", f"{base}/v1/metrics"


def _build_resource() -> Resource:
    attributes = {"service.instance.id": str(uuid.uuid4())}
    with contextlib.suppress(metadata.PackageNotFoundError):
        attributes["service.version"] = metadata.version(_NAME)
    resource = Resource.create(attributes)
    is_named = not str(resource.attributes["service.name"]).startswith("unknown_service")
    return resource if is_named else resource.merge(Resource({"service.name": _NAME}))


def _build_headers(span: Span, incoming: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Returns the trace headers of an upstream call: `span` as parent, and the client's trace state."""
    context = span.get_span_context()
    if not context.is_valid:  # OpenTelemetry is disabled
        return incoming
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = None if incoming is None else incoming.get(TRACE_STATE)
    return {TRACE_PARENT: parent, TRACE_STATE: state} if state else {TRACE_PARENT: parent}


def _read_model(request: ChatRequest) -> str:
    return _clip(str(request.body.get("model", "")))


def _clip(text: str) -> str:
    return replace_surrogates(text[:_MAX_TEXT])


def _mark_error(span: Span, error: str, *, is_fault: bool) -> None:
    """Sets a span's error type unless `error` is "". With `is_fault`, the span's status is failure too."""
    span.set_attributes(_describe_error(error))
    if error and is_fault:
        span.set_status(Status(StatusCode.ERROR))


def _describe_error(error: str) -> _Attributes:
    return {"error.type": error} if error else {}


def _describe_operation(model: str, operation: str = "chat") -> _Attributes:
    """Returns the attributes common to all spans and metrics; `model` is "" if the request names none."""
    attributes: _Attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": _PROVIDER}
    return attributes | {"gen_ai.request.model": model} if model else attributes


def _describe_request(request: ChatRequest, n: int, *, stream: bool) -> _Attributes:
    """Returns a request's settings as attributes; `n` is the number of choices requested."""
    body = request.body
    attributes: _Attributes = {"gen_ai.system": _PROVIDER}  # an older name of `gen_ai.provider.name`
    for field, name in _FLOAT_FIELDS.items():
        value = body.get(field)
        if isinstance(value, int | float) and not isinstance(value, bool):
            attributes[name] = float(value)
    seed = body.get("seed")
    has_seed = isinstance(seed, int) and not isinstance(seed, bool) and -_INT64 <= seed < _INT64
    return attributes | _omit_none(
        {
            "gen_ai.request.seed": seed if has_seed else None,
            "gen_ai.request.max_tokens": request.max_tokens if request.has_token_limit else None,
            "gen_ai.request.choice.count": None if n == 1 else n,
            "gen_ai.request.stream": stream or None,
            "gen_ai.output.type": "json" if request.json else None,
        }
    )


def _omit_none(attributes: Mapping[str, Any]) -> _Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _describe_reply(body: Mapping[str, Any]) -> _Attributes:
    """Returns a completion's metadata, such as its id and model, as attributes."""
    attributes: _Attributes = {}
    for field in ("id", "model"):
        if isinstance(text := body.get(field), str) and text:
            attributes[f"gen_ai.response.{field}"] = _clip(text)
    if isinstance(choices := body.get("choices"), list):
        reasons = [choice.get("finish_reason") for choice in choices if isinstance(choice, Mapping)]
        attributes["gen_ai.response.finish_reasons"] = _label_reasons(reasons)
    return attributes


def _label_reasons(reasons: Sequence[object]) -> list[str]:
    return [
        reason if isinstance(reason, str) and _REASON.fullmatch(reason) else OTHER
        for reason in reasons
        if reason is not None
    ]


def _describe_call(call: Call) -> _Attributes:
    attributes = {
        "http.request.method": "POST",
        "adacompute.samples": call.got,
        "adacompute.call.maybe_paid": True if call.paid == "maybe" else None,
        "http.response.status_code": call.status,
    }
    return _omit_none(attributes) | _describe_tokens(call)


def _describe_tokens(call: Call) -> _Attributes:
    attributes = {
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": _read_reasoning(call.usage_details),
        # True if the token counts are estimated, because the upstream didn't state them; otherwise left out
        "adacompute.call.estimated": call.estimated or None,
    }
    return _omit_none(attributes)


def _read_reasoning(details: Mapping[tuple[str, ...], float]) -> int | None:
    """Returns the number of reasoning tokens; None if the upstream doesn't report it."""
    tokens = details.get(_REASONING_PATH)
    return None if tokens is None else int(tokens)


def _describe_outcome(outcome: RequestOutcome) -> _Attributes:
    usage, best = outcome.usage, outcome.best or 0
    returned = outcome.responses if outcome.n > 1 else outcome.responses[best : best + 1]
    is_received = outcome.status != CLIENT_GONE_STATUS  # if the client left, it didn't receive the status
    reasons = [response.finish_reason for response in returned]
    attributes = {
        "http.request.method": "POST",
        "http.route": "/v1/responses" if outcome.id.startswith("resp_") else "/v1/chat/completions",
        "gen_ai.response.id": outcome.id,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": _read_reasoning(usage.details),
        "http.response.status_code": outcome.status if is_received else None,
        "gen_ai.response.finish_reasons": _label_reasons(reasons) if returned else None,
    }
    return _omit_none(attributes)


class _ExportWatch:
    """Logs a warning at the first of several consecutive failed exports, but not at the others."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._closed = False

    def close(self) -> None:
        """Ends logging: an exporter's thread may run on, and must not log after the log is closed."""
        self._closed = True

    def note_export(self, what: str, *, ok: bool) -> None:
        """Records that an export of spans or metrics succeeded or failed."""
        if ok:
            self._failing.discard(what)
        elif what not in self._failing and not self._closed:
            self._failing.add(what)
            _log.warning(
                "the OpenTelemetry collector takes no %s: they are lost until it does; requests are served "
                "as before, and this is not logged again",
                what,
            )


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str | None, watch: _ExportWatch) -> None:
        super().__init__(endpoint)
        self._watch = watch

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._watch.note_export("spans", ok=result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, endpoint: str | None, watch: _ExportWatch) -> None:
        super().__init__(endpoint)
        self._watch = watch

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)
        self._watch.note_export("metrics", ok=result is MetricExportResult.SUCCESS)
        return result


class _SdkLog(logging.Handler):
    """Logs the SDK's own messages at debug level, without arguments, which may contain credentials."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.debug("%s: %s", record.name, shorten(str(record.msg), _MAX_TEXT))


def _quiet_sdk() -> None:
    """Stops the SDK from logging every failed export, because `_ExportWatch` logs the first one."""
    logger = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _SdkLog) for handler in logger.handlers):
        logger.addHandler(_SdkLog())
        logger.propagate = False
