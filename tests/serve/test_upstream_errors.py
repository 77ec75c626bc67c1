"""An upstream's errors reach the client as they are: status, type, code, param and the whole message."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from behaviours import Break, Garbage, Reply
from openai import OpenAI
from running import Running

from adacompute.client.error_object import build_error_object
from adacompute.errors import RateLimited
from adacompute.records import Secret
from adacompute.serve.messages.reply import build_error
from timing import find_least, measure_work
from upstream import Upstream

ASKED: Any = [{"role": "user", "content": "What is 6 times 7?"}]
KEY = "sk-canary-51f0aa77be"


def error(message: str, kind: str | None, code: Any, param: str | None = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}


BAD = "invalid_request_error"
FILTERED = {
    "code": "ResponsibleAIPolicyViolation",
    "content_filter_result": {
        "hate": {"filtered": True, "severity": "high"},
        "jailbreak": {"detected": False},
    },
}
LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. "
ERRORS: dict[str, tuple[int, dict[str, Any]]] = {
    "context": (400, error(LONG, BAD, "context_length_exceeded", "messages")),
    "long": (400, error(LONG * 40, BAD, "context_length_exceeded", "messages")),
    "lines": (400, error("Invalid schema:\n  - first\n  - second", BAD, "invalid_schema", "response_format")),
    "filter": (
        400,
        error("The response was filtered", None, "content_filter", "prompt", status=400, innererror=FILTERED),
    ),
    "policy": (403, error("Your request was flagged", BAD, "content_policy_violation")),
    "access": (403, error("Project has no access to model `gpt-9`", BAD, "model_not_found")),
    "model": (404, error("The model `gpt-9` does not exist", BAD, "model_not_found", "model")),
    "conflict": (409, error("It is locked", "conflict_error", "resource_locked")),
    "large": (413, error("The image is too large", BAD, "image_too_large", "messages.[0].content")),
    "media": (415, error("image/tiff isn't known", BAD, None)),
    "schema": (422, error("Unprocessable", BAD, 422, "tools")),
    "unsupported": (
        400,
        error("Unsupported value: 'temperature' is 0.7", BAD, "unsupported_value", "temperature"),
    ),
    "rate": (429, error("Rate limit reached for gpt-9 on requests", "requests", "rate_limit_exceeded")),
    "quota": (
        429,
        error(
            "You exceeded your quota, see https://platform.openai.com/docs/guides/error-codes.",
            "insufficient_quota",
            "insufficient_quota",
        ),
    ),
    "server": (500, error("The server had an error", "server_error", None)),
    "busy": (503, error("The engine is overloaded", "overloaded_error", "engine_overloaded")),
    "gone": (410, error("This model was retired", BAD, "model_deprecated", "model")),
    "llama": (
        400,
        error("the request exceeds", "exceed_context_size_error", 400, n_prompt_tokens=90, n_ctx=8),
    ),
}
ODD: dict[str, tuple[int, Any, str, str | None, Any]] = {  # status, body, message, param, code
    "vllm": (
        404,
        {"object": "error", "message": "no such model", "type": "NotFoundError", "param": None, "code": 404},
        "no such model",
        None,
        404,
    ),
    "detail": (400, {"detail": "too long"}, "too long", None, None),
    "fastapi": (
        422,
        {"detail": [{"loc": ["body", "top_k"], "msg": "must be an integer", "type": "int"}]},
        "top_k: must be an integer",
        "top_k",
        None,
    ),
    "message": (400, {"message": "bad thing", "code": "bad_thing"}, "bad thing", None, "bad_thing"),
    "ollama": (404, {"error": "model 'x' not found"}, "model 'x' not found", None, None),
    "gemini": (400, [{"error": {"code": 400, "message": "bad argument"}}], "bad argument", None, 400),
    "text": (400, "it is too long", "it is too long", None, "upstream_refused"),
    "failure": (500, {"detail": "out of memory"}, "out of memory", None, None),
}


def script(_number: int, body: dict[str, Any]) -> Any:
    name = body["model"]
    if name.startswith("event-"):
        said = ERRORS[name[6:]][1] if name[6:] in ERRORS else ODD[name[6:]][1]
        return Break(after=0, how=b"data: " + json.dumps(said).encode() + b"\n\n")
    if name.startswith("later-"):
        return Break(after=2, how=b"data: " + json.dumps(ERRORS[name[6:]][1]).encode() + b"\n\n")
    if name in ERRORS or name in ODD:
        status, value = ERRORS[name] if name in ERRORS else ODD[name][:2]
        raw = value if isinstance(value, str) else json.dumps(value)
        limits = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6ms"}
        wait = limits | {"Retry-After": "1"} if status == 429 else {}
        return Garbage(raw=raw.encode(), code=status, headers=wait)
    return Reply(texts=["The answer is 42."] * body.get("n", 1))


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(script, models=("scripted",)) as up:
        yield up


@pytest.fixture(scope="module")
def gate(upstream: Upstream) -> Iterator[Running]:
    with Running(upstream.url, endpoint={"attempts": 1}) as running:
        yield running


def ask(url: str, **fields: Any) -> openai.APIError:
    """The error that the SDK raises for a request."""
    with (
        OpenAI(base_url=url, api_key="any", max_retries=0) as client,
        pytest.raises(openai.APIError) as caught,
    ):
        list(client.chat.completions.create(messages=ASKED, **fields))
    return caught.value


def told(found: openai.APIError) -> tuple[Any, ...]:
    """All that a program may look at."""
    status = getattr(found, "status_code", None)
    return type(found), status, found.code, found.param, found.type, found.body, found.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_openais_shape_is_the_same_through_the_gateway(
    upstream: Upstream, gate: Running, name: str, stream: bool
):
    direct = ask(upstream.url, model=name, stream=stream)
    assert told(ask(gate.url, model=name, stream=stream)) == told(direct)
    assert direct.body == ERRORS[name][1]["error"]


@pytest.mark.parametrize("name", ["context", "filter", "model", "rate"])
def test_an_error_in_the_first_event_of_a_stream_is_an_error_of_http_with_its_status(
    gate: Running, name: str
):
    status, value = ERRORS[name]
    found = ask(gate.url, model=f"event-{name}", stream=True, temperature=0)
    assert isinstance(found, openai.APIStatusError)
    assert (found.status_code, found.body) == (status, value["error"])


@pytest.mark.parametrize("name", ["context", "filter", "server"])
def test_an_error_in_the_middle_of_a_stream_is_passed_on_unchanged(
    upstream: Upstream, gate: Running, name: str
):
    direct = ask(upstream.url, model=f"later-{name}", stream=True, temperature=0)
    found = ask(gate.url, model=f"later-{name}", stream=True, temperature=0)
    assert told(found) == told(direct)
    assert found.body == ERRORS[name][1]["error"]


@pytest.mark.parametrize("name", ODD)
def test_an_error_in_another_shape_is_brought_into_openais_with_what_it_says(gate: Running, name: str):
    status, _, message, param, code = ODD[name]
    reply = gate.ask(model=name)
    assert reply.status == status
    assert {"message", "type", "param", "code"} <= set(reply.error)
    assert (reply.error["message"], reply.error["param"], reply.error["code"]) == (message, param, code)
    assert isinstance(reply.error["type"], str)


def test_an_error_in_a_list_in_a_stream_is_an_error_of_http(gate: Running):
    reply = gate.ask(model="event-gemini", stream=True, temperature=0)
    assert (reply.status, reply.error["message"], reply.error["code"]) == (400, "bad argument", 400)


def test_when_to_come_again_is_said_as_the_upstream_says_it(gate: Running):
    reply = gate.ask(model="rate")
    assert reply.headers["retry-after"] == "1"
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    assert reply.headers["x-ratelimit-reset-requests"] == "6ms"


def test_an_upstream_that_asks_for_a_longer_wait_than_the_deadline_keeps_its_words_and_the_wait():
    refusal = Garbage(raw=json.dumps(ERRORS["rate"][1]).encode(), code=429, headers={"Retry-After": "900"})
    with Upstream(refusal) as up, Running(up.url) as gate:
        reply = gate.ask()
    assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
    assert reply.headers["retry-after"] == "900"
    assert up.count.requests == 1


def test_what_an_upstream_says_to_one_client_no_other_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    people = {name: {"authorization": f"Bearer {name}-key-0123456789"} for name in ("alice", "bob")}
    keys = tmp_path / "keys.toml"
    keys.write_text("".join(f'[{name}]\nkey = "{name}-key-0123456789"\n' for name in people))

    def quote(_number: int, body: dict[str, Any]) -> Garbage:
        said = error(f"Rate limit for: {body['messages'][-1]['content']}", "requests", "rate_limit_exceeded")
        return Garbage(raw=json.dumps(said).encode(), code=429, headers={"Retry-After": "900"})

    with Upstream(quote) as up, Running(up.url, keys_file=str(keys)) as gate:
        for path, field in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
            secret, hello = (
                [{"role": "user", "content": "alice's secret"}],
                [{"role": "user", "content": "hi"}],
            )
            own = gate.ask({"model": field, field: secret}, people["alice"], path=path)
            assert (own.status, "alice's secret" in own.error["message"]) == (429, True)
            other = gate.ask({"model": field, field: hello}, people["bob"], path=path)
            assert (other.status, other.error["code"]) == (429, "upstream_rate_limited")
            assert 800 < int(other.headers["retry-after"]) < 1000
            assert b"secret" not in other.raw
        pages = [gate.get(path, people["bob"]).raw for path in ("/readyz", "/metrics", "/dashboard/data")]
        assert b"secret" not in b"".join(pages)
    assert up.count.requests == 2
    assert "secret" not in caplog.text


def test_an_empty_account_is_not_asked_again():
    with (
        Upstream(Garbage(raw=json.dumps(ERRORS["quota"][1]).encode(), code=429)) as up,
        Running(up.url) as gate,
    ):
        assert gate.ask(temperature=0).error["code"] == "insufficient_quota"
    assert up.count.requests == 1


@pytest.mark.parametrize("status", [401, 402, 403])
def test_c21_what_is_said_of_the_gateways_own_key_stays_with_the_operator(status: int):
    said = error(f"Incorrect API key provided: {KEY[:8]}****; see {KEY}", BAD, "invalid_api_key")
    with (
        Upstream(Garbage(raw=json.dumps(said).encode(), code=status)) as up,
        Running(up.url, endpoint={"attempts": 1}) as gate,
    ):
        reply = gate.ask()
    assert (reply.status, reply.error["code"]) == (502, "upstream_credentials")
    assert b"canary" not in reply.raw


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
def test_c21_neither_key_nor_address_is_in_any_field_of_an_error_nor_in_a_log(
    status: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ADACOMPUTE_KEY", KEY)

    def leak(_number: int, _body: dict[str, Any]) -> Garbage:
        secret = (
            f"{KEY} {up.url} 127.0.0.1:{up.port} Bearer {KEY} sk-another-one-1234 http://10.0.0.7:8000/v1"
        )
        inner = {"trace": [secret, {secret: secret}], secret: 1}
        value = error(secret, secret, secret, secret, innererror=inner)
        headers = {"x-ratelimit-reset-tokens": KEY, "Retry-After": "1"}
        return Garbage(raw=json.dumps(value).encode(), code=status, headers=headers)

    with Upstream(leak) as up, Running(up.url, endpoint={"attempts": 1}) as gate:
        reply = gate.ask()
        told = reply.raw.decode() + str(reply.headers) + gate.get("/metrics").raw.decode()
        told += gate.get("/dashboard/data").raw.decode()
    assert reply.status == status
    for secret in (KEY, "127.0.0.1", str(up.port), "sk-another", "10.0.0.7"):
        assert secret not in told.replace(f"127.0.0.1:{gate.config.serve.port}", "")
    assert KEY not in caplog.text


PRIVATE = {  # what an upstream says, and what a client is told
    "connect to 10.0.0.5:8080 failed": "connect to the upstream failed",
    "no route to 10.0.0.5.": "no route to the upstream.",
    "172.16.3.4(refused), 192.168.1.20:80 and 52.3.1.9:8000": (
        "the upstream(refused), the upstream and the upstream"
    ),
    "gpu-7.svc.cluster.local is down": "the upstream is down",
    "upstream.internal.corp:443, then (box.lan)": "the upstream, then (the upstream)",
    "a.b.c.d.e.f.g.h.i.j.k.local/v1": "the upstream/v1",
    "dial [fd00::1]:8080 or fe80::1ff:fe23:4567:890a": "dial the upstream or the upstream",
    "localhost:8000 refused": "the upstream refused",
    "Limit 3 in organization org-ABC123 on tokens": "Limit 3 in organization *** on tokens",
    "project proj_aB3dE5gH7 has none": "project *** has none",
    "api_key=abcdefghijkl is wrong": "api_key=*** is wrong",
    "{'api_key': 'abcdef'}, x-api-key: abc123, apiKey:abcdef": (
        "{'api_key': '***'}, x-api-key: ***, apiKey:***"
    ),
}
PUBLIC = [
    "See https://platform.openai.com/docs/guides/error-codes/api-errors.",
    "See https://docs.vllm.ai/en/latest/ or docs.vllm.ai, main.py:12, threading.local() and localhost",
    "The org-wide limit, the org-chart and q_proj_weight1 of gpt-4.1-mini or Qwen/Qwen2.5-7B",
    "api_key: field required; pass api_key=None or set the api_key client option",
    "CUDA version 10.1.0.243, torch 2.1.0, numpy>=1.26.4, 0.2.3.1 at 12:30:45, ratio 3:2",
    "tools.0.function.parameters, e.g. this, i.e. that; torch.internal.foo; 8.8.8.8",
]


def mask(text: str) -> Any:
    found = build_error_object(error(text, BAD, None), 400, key=None, url="https://h.example.com/v1")
    assert found is not None
    return found.fields["message"]


@pytest.mark.parametrize("text", PRIVATE)
def test_c21_hosts_accounts_and_keys_of_the_operator_are_masked_in_sentences(text: str):
    assert mask(text) == PRIVATE[text]


@pytest.mark.parametrize("text", PUBLIC)
def test_links_to_documentation_and_ordinary_words_stay(text: str):
    assert mask(text) == text


@pytest.mark.parametrize("stream", [False, True])
def test_c21_a_client_never_sees_the_operators_hosts_or_account(stream: bool):
    said = error(" | ".join(PRIVATE), BAD, "x", innererror={"hosts": list(PRIVATE)})
    with (
        Upstream(Garbage(raw=json.dumps(said).encode(), code=400)) as up,
        Running(up.url, endpoint={"attempts": 1}) as gate,
    ):
        reply = gate.ask(stream=stream)
    assert (reply.status, reply.error["message"]) == (400, " | ".join(PRIVATE.values()))
    for secret in ("10.0.0.5", "cluster.local", "corp", "fd00", "ABC123", "aB3dE5gH7", "abcdef", "8080"):
        assert secret not in reply.raw.decode()


@pytest.mark.parametrize(
    "text",
    [
        *("x" * 50_000, "sk-" * 20_000, "a.b-" * 15_000, "http://" * 9_000, "Bearer " * 9_000),
        *("a." * 30_000, "org-a" * 9_000, "org-" + "a" * 50_000, "api_key: " * 9_000, "api_key=" * 9_000),
        *("api_key" + " " * 50_000, "fd00:" * 9_000, "[::" * 9_000, "10.0.0." * 9_000, "1.1.1.1:1 " * 9_000),
    ],
)
def test_c12_a_hostile_error_is_read_in_milliseconds(text: str):
    value = error(text, text, text, text, innererror={text: [text] * 9})

    def work() -> None:
        assert build_error_object(value, 400, key=Secret(KEY), url="http://10.0.0.7:8000/v1") is not None

    # some milliseconds; quadratic time would be seconds
    assert find_least(lambda: measure_work(work), 0.5) < 0.5


def test_a_huge_error_is_cut_to_some_kilobytes():
    big = error("x" * 20_000, BAD, "c" * 5_000, innererror={str(i): "y" * 1000 for i in range(30)})
    with Upstream(Garbage(raw=json.dumps(big).encode(), code=400)) as up, Running(up.url) as gate:
        reply = gate.ask()
    assert (reply.status, reply.error["message"][:3], reply.error["code"][:3]) == (400, "xxx", "ccc")
    assert 4_000 < len(reply.raw) < 20_000


def test_c27_an_upstreams_codes_are_no_labels():
    def refuse(number: int, _body: dict[str, Any]) -> Garbage:
        return Garbage(raw=json.dumps(error("no", BAD, f"code_{number}")).encode(), code=400)

    with Upstream(refuse) as up, Running(up.url) as running:
        for _ in range(30):
            running.ask()
        metrics = running.get("/metrics").raw.decode()
        shown = running.get("/dashboard/data").raw.decode()
    assert "code_1" not in metrics
    assert "upstream_refused" in shown


def test_a_failure_without_words_is_the_gateways_own_error():
    assert build_error(RateLimited("x", status=429))[0] == 429
    for body in (b"<html>502 Bad Gateway</html>", b"", b"Internal Server Error", b"{}", b"null"):
        with Upstream(Garbage(raw=body, code=502)) as up, Running(up.url, endpoint={"attempts": 1}) as gate:
            reply = gate.ask()
        assert (reply.status, reply.error["code"]) == (502, "upstream_failed")
