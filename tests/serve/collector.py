"""An OpenTelemetry collector for tests: takes OTLP over HTTP, as protobuf, and keeps what comes.

with Collector() as collector, Upstream() as up, Running(up.url, otel=collector.url) as gate:
    gate.ask()
(span,) = collector.spans(kind="SERVER")        # the gateway has sent all when it is closed
assert span.attributes["gen_ai.operation.name"] == "chat"
"""

import gzip
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["CollectedMetric", "CollectedSpan", "Collector"]


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it came; ids in hexadecimal."""

    name: str
    kind: str  # "SERVER" or "CLIENT"
    trace: str
    id: str
    parent: str  # "": it has none
    state: str
    start: int
    end: int
    error: bool
    attributes: dict[str, Any]


@dataclass(frozen=True)
class CollectedMetric:
    """One data point of a histogram."""

    name: str
    unit: str
    attributes: dict[str, Any]
    count: int
    sum: float
    bounds: tuple[float, ...]


class Collector:
    """Listens on loopback, in threads of its own. `status` is what it answers; `hang`: it never does."""

    def __init__(self, *, status: int = 200, hang: bool = False) -> None:
        self.status = status
        self.raw: list[bytes] = []  # every body
        self.headers: list[dict[str, str]] = []
        self._hang = threading.Event()
        if not hang:
            self._hang.set()
        self._resources: list[dict[str, Any]] = []
        self._spans: list[CollectedSpan] = []
        self._metrics: list[CollectedMetric] = []

    def __enter__(self) -> "Collector":
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                owner.headers.append({name.lower(): value for name, value in self.headers.items()})
                owner._hang.wait(60)
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if owner.status == 200:
                    owner._keep(self.path, body)
                self.send_response(owner.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def resource(self) -> dict[str, Any]:
        return self._resources[0]

    def spans(self, kind: str = "") -> list[CollectedSpan]:
        """Those that came, in the order in which they began."""
        spans = [span for span in self._spans if kind in ("", span.kind)]
        return sorted(spans, key=lambda span: span.start)

    def wait_for_spans(self, count: int) -> list[CollectedSpan]:
        until = time.monotonic() + 60
        while len(self._spans) < count:
            assert time.monotonic() < until, "the spans don't come"
            time.sleep(0.02)
        return self.spans()

    def metrics(self, name: str) -> list[CollectedMetric]:
        """The last data points of a histogram: they are cumulative."""
        points = {
            tuple(sorted(metric.attributes.items())): metric
            for metric in self._metrics
            if metric.name == name
        }
        return list(points.values())

    def _keep(self, path: str, body: bytes) -> None:
        self.raw.append(body)
        if path == "/v1/traces":
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                self._resources.append(_attributes(part.resource.attributes))
                self._spans += [_span(span) for scope in part.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in part.scope_metrics for metric in scope.metrics):
                    self._metrics += [_point(metric, point) for point in metric.histogram.data_points]
        else:
            raise AssertionError(path)


def _span(span: Any) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        state=span.trace_state,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        error=span.status.code == 2,
        attributes=_attributes(span.attributes),
    )


def _point(metric: Any, point: Any) -> CollectedMetric:
    return CollectedMetric(
        metric.name,
        metric.unit,
        _attributes(point.attributes),
        point.count,
        point.sum,
        tuple(point.explicit_bounds),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return (
        [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)
    )
