"""OpenTelemetry: what a collector gets over OTLP, what goes upstream, and that no reply depends on it."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from collector import CollectedSpan, Collector
from other_routes import OtherRoutes
from running import QUESTION, Process, Running

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError
from tiers import leave_to_nightly
from upstream import Honest, Reply, Stall, Status, Upstream

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"}
KEY, CLIENT_KEY = "sk-canary-upstream-7f3a9c11", "sk-canary-client-5d1b77e2"
PROMPT, ANSWER = "canary prompt: what is six times seven?", "canary answer: forty-two. The answer is 42."


def sent_upstream(up: Upstream) -> list[str | None]:
    return [request.headers.get("traceparent") for request in up.requests if request.method == "POST"]


def format_parent(span: CollectedSpan, flags: str) -> str:
    return f"00-{span.trace}-{span.id}-{flags}"


def test_a_request_is_a_child_of_its_trace_and_every_call_a_child_of_the_request():
    script = [Status(code=500), *[Reply(choices=1)] * 20]
    with Collector() as collector:
        with Upstream(script) as up, Running(up.url, otel=collector.url, price=0.0) as gate:
            gate.gateway.resources.client.quirks.ensure("scripted").record_choices(4, 1)
            body = gate.ask(headers=SENT).json
            sent = sent_upstream(up)
        (request,), calls = collector.spans("SERVER"), collector.spans("CLIENT")
    assert (request.trace, request.parent, request.state) == (TRACE, PARENT, "rojo=1")
    assert {(call.trace, call.parent) for call in calls} == {(TRACE, request.id)}
    assert sorted(sent) == sorted(format_parent(call, "01") for call in calls)
    assert len({call.id for call in calls}) == len(calls) == body["adacompute"]["samples"] + 1
    assert all(request.start <= call.start <= call.end <= request.end + 10**8 for call in calls)
    (failed,) = [call for call in calls if call.error]
    assert failed.attributes["error.type"] == "server-error"
    assert failed.attributes["adacompute.call.maybe_paid"] is True
    assert failed.attributes["http.response.status_code"] == 500
    (again,) = [call for call in calls if "http.request.resend_count" in call.attributes]
    assert again.attributes["http.request.resend_count"] == 1


def test_a_request_without_a_trace_begins_one_that_goes_upstream():
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            gate.ask()
            gate.ask(headers={"traceparent": "nonsense"})
            sent = sent_upstream(up)
        requests, calls = collector.spans("SERVER"), collector.spans("CLIENT")
    assert [request.parent for request in requests] == ["", ""]
    assert [call.parent for call in calls] == [request.id for request in requests]
    assert len({request.trace for request in requests}) == 2
    assert [header[:52] for header in sent] == [format_parent(call, "")[:52] for call in calls]


def test_the_span_of_a_request_says_what_was_asked_and_what_came_of_it():
    with Collector() as collector:
        with Upstream(Honest(tokens=7)) as up, Running(up.url, otel=collector.url, budget=3.0) as gate:
            body = gate.ask(top_p=0.9, max_tokens=50, seed=5, presence_penalty=1).json
        (span,), calls = collector.spans("SERVER"), collector.spans("CLIENT")
    own, usage = body["adacompute"], body["usage"]
    assert span.name == "chat scripted"
    assert not span.error
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.id": body["id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.presence_penalty": 1.0,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.seed": 5,
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "adacompute.samples": own["samples"],
        "adacompute.agreement": own["agreement"],
        "adacompute.price": own["price"],
        "adacompute.policy": "stopping",
        "adacompute.mode": "adaptive",
        "adacompute.budget": 3.0,
        "adacompute.cost": float(own["samples"]),
        "adacompute.unit": "samples",
        "adacompute.waves": span.attributes["adacompute.waves"],
    }
    assert span.attributes == expected
    assert sum(call.attributes["adacompute.samples"] for call in calls) == own["samples"]
    assert sum(call.attributes["gen_ai.usage.output_tokens"] for call in calls) == usage["completion_tokens"]
    same = ("gen_ai.request.temperature", "gen_ai.request.max_tokens", "gen_ai.response.model")
    assert all(call.attributes[name] == expected[name] for call in calls for name in same)
    assert all(call.attributes["gen_ai.response.id"].startswith("chatcmpl-") for call in calls)
    assert collector.resource["service.name"] == "adacompute"


def test_metrics_have_the_conventions_names_units_and_buckets():
    with Collector() as collector:
        with Upstream(Honest(tokens=7)) as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            for _ in range(3):
                gate.ask()
            gate.ask(stream=True)
        tokens = {
            m.attributes["gen_ai.token.type"]: m for m in collector.metrics("gen_ai.client.token.usage")
        }
        (calls,) = collector.metrics("gen_ai.client.operation.duration")
        (requests,) = collector.metrics("gen_ai.server.request.duration")
        (first,) = collector.metrics("gen_ai.server.time_to_first_token")
    assert set(tokens) == {"input", "output"}
    assert (tokens["output"].count, tokens["output"].sum) == (4, 28)
    assert tokens["output"].bounds == tuple(4.0**power for power in range(14))
    assert calls.bounds == requests.bounds == tuple(0.01 * 2**power for power in range(14))
    assert (calls.count, requests.count, first.count) == (4, 4, 1)
    assert [m.unit for m in (tokens["input"], calls, requests, first)] == ["{token}", "s", "s", "s"]
    assert (
        calls.attributes
        == requests.attributes
        == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
        }
    )


def test_a_stream_s_span_says_when_its_first_chunk_came():
    with Collector() as collector:
        with Upstream(Honest(gap=0.05)) as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            assert gate.ask(stream=True).status == 200
        (call,), (request,) = collector.spans("CLIENT"), collector.spans("SERVER")
    assert call.attributes["gen_ai.request.stream"] is True
    assert 0 < call.attributes["gen_ai.response.time_to_first_chunk"] < (call.end - call.start) / 1e9
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert request.attributes["adacompute.no_vote"] == "mode"


@pytest.mark.parametrize(
    ("behaviour", "code", "kind", "is_error"),
    [
        (Status(code=500), "upstream_failed", "server-error", True),
        (Status(code=400), "upstream_refused", "refused", False),
    ],
)
def test_an_error_has_its_type_and_only_the_gateway_s_own_fault_is_one_of_the_request(
    behaviour: Status, code: str, kind: str, is_error: bool
):
    with Collector() as collector:
        with Upstream(behaviour) as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            answer = gate.ask()
        (request,), calls = collector.spans("SERVER"), collector.spans("CLIENT")
        metrics = collector.metrics("gen_ai.server.request.duration")
    assert answer.status == request.attributes["http.response.status_code"]
    assert request.attributes["error.type"] == code
    assert request.error is is_error
    assert all(call.error and call.attributes["error.type"] == kind for call in calls)
    assert [metric.attributes["error.type"] for metric in metrics] == [code]


PLAIN, UNREAD = {"content-type": "text/plain"}, "unsupported_media_type"
REFUSED = [  # what is asked, and the span's name, route, status and error
    ({"body": b"canary {"}, "chat", "/v1/chat/completions", 400, "invalid_request"),
    ({"headers": {"host": "elsewhere.example"}}, "chat", "/v1/chat/completions", 403, "host_not_allowed"),
    ({"path": "/v1/responses", "body": b"[]"}, "chat", "/v1/responses", 400, "invalid_request"),
    ({"path": "/v1/embeddings", "headers": PLAIN}, "embeddings", "/v1/embeddings", 415, UNREAD),
    ({"path": "/v1/completions", "body": b"{"}, "text_completion", "/v1/completions", 400, "invalid_request"),
    ({"path": "/v1/canary/x%00y", "body": b"{}"}, "POST", None, 404, "not_found"),
    ({"path": "/canary", "body": b"{}"}, "POST", None, 404, "not_found"),
    ({"path": "/metrics", "body": b"{}"}, "POST /metrics", "/metrics", 405, "method_not_allowed"),
]


@pytest.mark.parametrize(("asked", "name", "route", "status", "code"), REFUSED)
def test_a_request_that_is_refused_has_one_span_with_its_error_and_nothing_of_its_text(
    asked: dict, name: str, route: str | None, status: int, code: str
):
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url) as gate:
            body, headers = asked.get("body", QUESTION), asked.get("headers", {}) | SENT
            answer = gate.ask(body, headers, path=asked.get("path", "/v1/chat/completions"))
        (span,) = collector.spans()
        metrics = collector.metrics("gen_ai.server.request.duration")
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert (span.kind, span.name, span.trace, span.parent) == ("SERVER", name, TRACE, PARENT)
    assert span.attributes["http.response.status_code"] == status
    assert span.attributes["error.type"] == code
    assert span.attributes.get("http.route") == route
    assert "gen_ai.request.model" not in span.attributes
    assert not span.error  # the client's fault
    assert span.start <= span.end
    is_operation = "gen_ai.operation.name" in span.attributes
    assert is_operation == (route is not None and route.startswith("/v1/"))
    assert [metric.attributes["error.type"] for metric in metrics] == [code] * is_operation
    assert not any(b"canary" in body for body in collector.raw)


def test_a_gateway_that_turns_a_request_away_is_at_fault():
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url) as gate:
            gate.gateway.ready = False  # as while it closes down
            assert gate.ask().status == 503
        (span,) = collector.spans()
    assert (span.attributes["error.type"], span.error) == ("overloaded", True)


def test_a_request_beyond_its_cap_has_one_span_also_where_it_would_be_passed_on():
    with Collector() as collector:
        with OtherRoutes() as up, Running(up.url, otel=collector.url, cap=1.0) as gate:
            embed = json.dumps({"model": "embedder", "input": "x"}).encode()
            statuses = [gate.ask(embed, path="/v1/embeddings").status for _ in range(2)]
        first, second = collector.spans("SERVER")
    assert statuses == [200, 429]
    assert (second.name, second.attributes["error.type"]) == ("embeddings", "insufficient_quota")
    assert first.attributes["http.response.status_code"] == 200


def test_tokens_of_reasoning_are_told_apart():
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    usage["completion_tokens_details"] = {"reasoning_tokens": 5}
    with Collector() as collector:
        with Upstream(Reply(usage=usage)) as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            assert gate.ask().json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
        spans = collector.spans()
    assert len(spans) == 2
    assert [span.attributes["gen_ai.usage.reasoning.output_tokens"] for span in spans] == [5, 5]


def test_a_client_that_goes_away_leaves_a_span_that_says_so():
    with Collector() as collector:
        with Upstream(Stall()) as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            with pytest.raises(TimeoutError):
                gate.ask(timeout=2.0)
            until = time.monotonic() + 30
            while gate.gateway.under_way and time.monotonic() < until:
                time.sleep(0.01)
        (request,), (call,) = collector.spans("SERVER"), collector.spans("CLIENT")
    assert request.attributes["error.type"] == "client_gone"
    assert "http.response.status_code" not in request.attributes
    assert call.attributes["error.type"] == "cancelled"
    assert not request.error


def test_a_trace_that_is_not_sampled_is_passed_on_unsampled_and_counted_all_the_same():
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            assert gate.ask(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}).status == 200
            (sent,) = sent_upstream(up)
        assert collector.spans() == []
        (metric,) = collector.metrics("gen_ai.server.request.duration")
    assert sent.startswith(f"00-{TRACE}-")
    assert sent.endswith("-00")
    assert metric.count == 1


def test_what_is_passed_on_has_its_spans_too():
    with Collector() as collector:
        with OtherRoutes() as up, Running(up.url, otel=collector.url) as gate:
            embed = {"model": "embedder", "input": "canary input"}
            assert gate.ask(json.dumps(embed).encode(), SENT, path="/v1/embeddings").status == 200
            assert gate.get("/v1/files").status == 200
            assert gate.ask(b"{}", path="/v1/moderations").status == 404
            sent = up.of("/v1/embeddings")[0].headers["traceparent"]
        embedding, listing, failed = collector.spans("SERVER")
        call = collector.spans("CLIENT")[0]
        tokens = collector.metrics("gen_ai.client.token.usage")
    assert (embedding.trace, embedding.parent) == (TRACE, PARENT)
    assert (call.trace, call.parent) == (TRACE, embedding.id)
    assert sent == format_parent(call, "01")
    assert embedding.name == call.name == "embeddings embedder"
    assert embedding.attributes["gen_ai.operation.name"] == "embeddings"
    assert embedding.attributes["http.route"] == "/v1/embeddings"
    assert embedding.attributes["gen_ai.usage.input_tokens"] > 0
    assert listing.name == "GET /v1/files"
    assert not [name for name in listing.attributes if name.startswith("gen_ai")]
    assert (failed.name, failed.attributes["error.type"], failed.error) == ("moderations", "404", False)
    assert {metric.attributes["gen_ai.operation.name"] for metric in tokens} == {"embeddings"}
    assert not any(b"canary" in body for body in collector.raw)


def test_a_response_has_the_spans_of_a_chat_and_its_own_route():
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url) as gate:
            asked = {"model": "scripted", "input": "What is 6 times 7?"}
            body = gate.ask(json.dumps(asked).encode(), SENT, path="/v1/responses").json
        (request,), calls = collector.spans("SERVER"), collector.spans("CLIENT")
    assert (request.trace, request.parent) == (TRACE, PARENT)
    assert {call.parent for call in calls} == {request.id}
    assert request.attributes["http.route"] == "/v1/responses"
    assert request.attributes["gen_ai.response.id"] == body["id"]


def test_with_the_sdk_switched_off_a_trace_is_passed_on_as_it_came(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            assert gate.ask(headers=SENT).status == 200
            assert gate.ask().status == 200
            assert sent_upstream(up) == [SENT["traceparent"], None]
        assert collector.raw == []


def test_a_variable_that_can_t_be_used_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-5")
    with pytest.raises(ConfigError, match=r"-5.* check the environment variables OTEL_"):  # noqa: SIM117
        with Upstream() as up, Running(up.url, otel="env"):
            pass


def test_names_that_nobody_serves_make_no_labels():
    with Collector() as collector:
        with (
            Upstream(Status(code=404)) as up,
            Running(up.url, otel=collector.url, mode="pass", log="error") as gate,
        ):
            for i in range(70):
                gate.ask(model=f"made-up-{i}")
        labels = {
            m.attributes["gen_ai.request.model"] for m in collector.metrics("gen_ai.server.request.duration")
        }
        names = {span.name for span in collector.spans()}
    assert labels == {"other"}
    assert names == {"chat other"}


def test_models_that_are_served_are_labels_up_to_a_limit():
    with Collector() as collector:
        with Upstream() as up, Running(up.url, otel=collector.url, mode="pass") as gate:
            for i in range(70):
                gate.ask(model=f"served-{i}")
        labels = {
            m.attributes["gen_ai.request.model"] for m in collector.metrics("gen_ai.server.request.duration")
        }
    assert len(labels) == 65
    assert "other" in labels


def test_c21_no_text_no_key_and_no_address_is_exported(tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[alice]\nkey = "{CLIENT_KEY}"\noperator = true\n', "utf-8")
    key_file = tmp_path / "key"
    key_file.write_text(KEY, "utf-8")
    headers = {"authorization": f"Bearer {CLIENT_KEY}", "baggage": "canary=baggage", **SENT}
    script = [
        Reply(texts=[ANSWER]),
        Status(code=400, message=f"{KEY} {PROMPT}"),
        Status(code=500),
        Reply(texts=[ANSWER]),
    ]
    with Collector() as collector:
        with (
            Upstream(script, key=KEY) as up,
            Running(
                up.url,
                otel=collector.url,
                keys_file=str(keys),
                endpoint={"key_file": str(key_file)},
                mode="pass",
            ) as gate,
        ):
            messages = [{"role": "user", "content": PROMPT}]
            body = {**QUESTION, "messages": messages, "stop": ["canary stop"], "user": "canary user"}
            statuses = [gate.ask(body, headers, **more).status for more in ({}, {}, {"stream": True})]
            port = up.port
        exported = b"".join(collector.raw)
    assert statuses == [200, 400, 200]
    assert len(collector.spans("SERVER")) == 3
    for secret in ("canary", KEY, CLIENT_KEY, "forty-two", "alice", f":{port}", "127.0.0.1"):
        assert secret.encode() not in exported, secret


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("how", leave_to_nightly(["absent", "hangs", "fails"]))
def test_a_collector_that_is_gone_costs_no_reply_and_no_shutdown(how: str, tmp_path: Path):
    with Collector(status=500 if how == "fails" else 200, hang=how == "hangs") as collector:
        url = f"http://127.0.0.1:{closed_port()}" if how == "absent" else collector.url
        environ = {"OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
        with (
            Upstream() as up,
            Process(
                up.url, "--otel", url, "--mode", "pass", folder=tmp_path, environ=environ, grace=3.0
            ) as gate,
        ):
            for _ in range(20):
                began = time.monotonic()
                assert gate.ask().status == 200
                assert time.monotonic() - began < 8.0  # an export may take ten seconds
                time.sleep(0.03)
            began = time.monotonic()
            gate.terminate()
            assert gate.wait() == 0
            assert time.monotonic() - began < 20.0
        warnings = [
            line["message"] for line in map(json.loads, gate.log.splitlines()) if line["level"] == "warning"
        ]
    assert len(warnings) == len(set(warnings)) <= 3, warnings
    assert all("OpenTelemetry collector" in line for line in warnings)
    assert how == "hangs" or any("takes no spans" in line for line in warnings)


@pytest.mark.slow
def test_the_standard_variables_are_followed(tmp_path: Path):
    with Collector() as collector:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=blue",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "my-gateway",
        }
        with Upstream() as up, Process(up.url, "--otel", "env", folder=tmp_path, environ=environ) as gate:
            assert gate.ask().status == 200
        assert len(collector.spans("SERVER")) == 1
        assert collector.resource["service.name"] == "my-gateway"
        assert {headers["x-team"] for headers in collector.headers} == {"blue"}


def test_an_observer_that_fails_costs_no_reply():
    class Broken:
        def begin(self, *_: object) -> None:
            raise RuntimeError("broken")

    class BrokenSpan:
        def begin(self, *_: object) -> "BrokenSpan":
            return self

        def begin_attempt(self, *_: object) -> None:
            raise RuntimeError("broken")

        def end(self, *_: object) -> None:
            raise RuntimeError("broken")

    for telemetry in (Broken(), BrokenSpan()):
        with Upstream() as up, Running(up.url) as gate:
            gate.gateway.telemetry = telemetry
            assert gate.ask(headers=SENT).status == 200
            assert set(sent_upstream(up)) == {SENT["traceparent"]}


@pytest.mark.parametrize(
    "url", ["collector:4318", "ftp://host", "http://", "http://host:0", "http://[::1", "on"]
)
def test_an_address_that_can_t_be_used_is_refused(url: str):
    with pytest.raises(ConfigError, match=r"otel .*; give http://HOST:PORT"):
        ServeConfig(otel=url)


@pytest.mark.parametrize("url", ["http://me:canary@host", "http://host/?key=canary", "http://host/#canary"])
def test_an_address_with_a_secret_is_refused_without_showing_it(url: str):
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as raised:
        ServeConfig(otel=url)
    assert "canary" not in str(raised.value)


REFUSE = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which every Python refuses the libraries of the extra."""
    (tmp_path / "refuse").mkdir()
    (tmp_path / "refuse" / "sitecustomize.py").write_text(REFUSE, "utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path / "refuse"), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.slow
def test_without_the_extra_traces_are_passed_on(environ: dict[str, str], tmp_path: Path):
    with Upstream() as up, Process(up.url, "--mode", "pass", folder=tmp_path, environ=environ) as gate:
        assert gate.ask(headers=SENT).status == 200
        assert sent_upstream(up) == [SENT["traceparent"]]


@pytest.mark.slow
def test_without_the_extra_asking_for_it_is_one_line_with_the_remedy(environ: dict[str, str], tmp_path: Path):
    command = [
        str(Path(sys.executable).parent / "adacompute"),
        "serve",
        "--upstream",
        "http://127.0.0.1:1/v1",
    ]
    done = subprocess.run(
        [*command, "--otel", "http://127.0.0.1:4318", "--port", "0"],
        env={**os.environ, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith('opentelemetry is not installed; pip install "adacompute[otel]"')
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_nothing_of_it_is_loaded_where_it_is_off():
    code = (
        "import sys, adacompute.serve.http.server, adacompute.serve.http.app\n"
        "sys.exit(any(name.partition('.')[0] in ('opentelemetry', 'requests') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
