"""Every route, asked what nobody would think of: by its description, and by any bytes at all."""

import contextlib
import dataclasses
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import QUESTION, Running, serve_one_answer
from wires import connect, reply_of

from adacompute.config import ServeConfig
from adacompute.serve.http.app import build_app
from adacompute.serve.messages.reply import ModeUse, RequestOutcome, build_extra, build_headers
from adacompute.serve.messages.request_parser import OPTIONS_FIELD, RequestOptions, get_header

ROOT = Path(__file__).parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
ERRORS_PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
SOURCES = [
    path.read_text("utf-8")
    for path in (ROOT / "src" / "adacompute" / "errors.py", *(ROOT / "src/adacompute/serve").rglob("*.py"))
]
QUIET: Any = {"deadline": None, "suppress_health_check": list(HealthCheck)}
SHAPE = {"message", "type", "param", "code"}
PIECES = (
    *(
        b"GET ",
        b"POST ",
        b"/v1/chat/completions",
        b"/healthz",
        b" HTTP/1.1\r\n",
        b" HTTP/9.9\r\n",
        b"\r\n\r\n",
    ),
    *(
        b"Host: localhost\r\n",
        b"Host: [\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"\0",
        b"\xff",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b"{}",
    ),
    *(
        b"Content-Type: application/json\r\n",
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        b": x\r\n",
        b"%zz",
    ),
)


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    with serve_one_answer() as running:
        yield running


def well_told(status: int, headers: dict[str, str], body: bytes) -> None:
    """Asserts that it is not a failure of ours, and in OpenAI's shape where it is an error."""
    assert status < 500, body
    if status >= 400:
        assert headers["content-type"] == "application/json"
        error = json.loads(body)["error"]
        assert set(error) == SHAPE
        assert error["message"]
        assert error["code"]


def test_the_description_names_every_route_and_the_limits_as_they_are(gate: Running):
    routes = {re.sub(r":path\}", "}", route.path) for route in build_app(gate.gateway)._app._router.routes}
    assert set(DOCUMENT["paths"]) == routes
    default, fields = ServeConfig(), DOCUMENT["components"]["schemas"]["Request"]["properties"]
    assert fields["n"]["maximum"] == default.max_n
    assert fields["max_tokens"]["maximum"] == fields["max_completion_tokens"]["maximum"] == default.max_tokens
    assert fields["messages"]["maxItems"] == default.max_messages


COMPONENTS = DOCUMENT["components"]
VOTED_PATHS = ("/v1/chat/completions", "/v1/responses")
FULL = RequestOutcome(  # with everything that a reply may tell
    id="chatcmpl-1",
    at=0.0,
    seconds=1.0,
    key="k",
    model="m",
    policy="p",
    budget=2.0,
    mode="shadow",
    price=0.1,
    agreement=0.5,
    notes=("a note",),
    abstained=1,
    missing=1,
    would=1,
    agreed=True,
    weak=True,
    certified=True,
    modes=(ModeUse(name="small"),),
    answered_by="small",
)


def follow(part: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for."""
    kind, name = part["$ref"].split("/")[-2:]
    return COMPONENTS[kind][name]


@pytest.mark.parametrize("path", VOTED_PATHS)
def test_the_description_names_every_option_and_header(path: str):
    post = DOCUMENT["paths"][path]["post"]
    options = set(RequestOptions.__struct_fields__)
    assert {follow(part)["name"] for part in post["parameters"]} == set(map(get_header, options))
    assert set(COMPONENTS["schemas"]["Options"]["properties"]) == options
    body = follow(post["requestBody"]["content"]["application/json"]["schema"])
    assert follow(body["properties"][OPTIONS_FIELD]) is COMPONENTS["schemas"]["Options"]
    assert set(post["responses"]["200"]["headers"]) == {*build_headers(FULL), "x-adacompute-stream-mode"}


def test_the_description_names_all_that_a_reply_tells_of_its_vote():
    told = COMPONENTS["schemas"]["Told"]
    assert set(told["properties"]) == set(build_extra(FULL, unit="samples"))
    least = dataclasses.replace(FULL, mode="adaptive", notes=(), abstained=0, missing=0, would=None)
    least = dataclasses.replace(least, agreed=None, weak=False, certified=None, modes=())
    assert set(told["required"]) == set(build_extra(least, unit="samples"))


def test_the_description_names_every_code_of_an_error_as_the_docs_do():
    described = {code: name for name, part in COMPONENTS["responses"].items() for code in part["x-codes"]}
    rows = re.findall(r"^\| ([45]\d\d(?:, \d+)*) \| (.*?) \|", ERRORS_PAGE, re.MULTILINE)
    assert len(rows) > 10
    in_docs = {
        code: {f"Error{status}" for status in statuses.split(", ")}
        for statuses, codes in rows
        for code in re.findall(r"`(\w+)`", codes)
    }
    assert set(described) == set(in_docs) - {"rate_limit_exceeded"} | {"upstream_refused"}
    assert all(described[code] in names for code, names in in_docs.items() if code in described)
    in_code = {code for text in SOURCES for code in re.findall(r"\bcode ?= ?\"(\w+)\"", text)}
    assert in_code - set(described) == {"rate_limit_exceeded"}  # of an event in a response's stream


def test_each_operation_refers_to_errors_of_its_own_statuses():
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for status, reply in operation["responses"].items():
                name = reply.get("$ref", "").rpartition("/")[2]
                expected = "Error" if status == "default" else f"Error{status}"
                assert name in ("", expected), (path, method, status)


texts = st.text(max_size=20)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(
    (
        *DOCUMENT["components"]["schemas"]["Request"]["properties"],
        *("stream_options", "stop", "logit_bias", "tool_choice", "functions", "top_logprobs", "metadata"),
        *("modalities", "audio", "prompt", "user", "prediction", "reasoning_effort"),
    )
)


@given(more=st.dictionaries(fields, values, max_size=4))
@settings(max_examples=100, **QUIET)
def test_c10_any_field_of_any_kind_is_served_or_refused_in_words(gate: Running, more: dict[str, Any]):
    answer = gate.ask({**QUESTION, **more})
    well_told(answer.status, answer.headers, answer.raw)


@given(
    messages=st.lists(
        st.fixed_dictionaries({}, optional={"role": values, "content": values, "x": values}) | values
    )
)
@settings(max_examples=60, **QUIET)
def test_c10_any_messages_are_served_or_refused_in_words(gate: Running, messages: Any):
    answer = gate.ask({**QUESTION, "messages": messages})
    well_told(answer.status, answer.headers, answer.raw)


@given(raw=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=100, **QUIET)
def test_c10_any_body_is_refused_in_words(gate: Running, raw: bytes):
    answer = gate.ask(raw)
    assert answer.status == 400
    well_told(answer.status, answer.headers, answer.raw)


names = st.sampled_from(
    (
        *(
            "host",
            "authorization",
            "content-type",
            "content-encoding",
            "expect",
            "connection",
            "x-adacompute-x",
        ),
        *("x-adacompute-budget", "x-adacompute-policy", "x-adacompute-mode", "x-adacompute-deadline"),
        *("x-adacompute-extract", "x-adacompute-exclude", "x-adacompute-fields", "x-adacompute-stream-mode"),
    )
)
worth = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=30)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "CONNECT"]),
    path=st.sampled_from([*DOCUMENT["paths"], "/", "/v1", "/v1/", "/metrics/"])
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30).map("/".__add__),
    headers=st.dictionaries(names, worth, max_size=4),
)
@settings(max_examples=100, **QUIET)
def test_c10_any_method_path_and_headers_are_served_or_refused_in_words(
    gate: Running, method: str, path: str, headers: dict[str, str]
):
    raw = json.dumps(QUESTION).encode()
    given = {
        "host": "localhost",
        "content-type": "application/json",
        **headers,
        "content-length": str(len(raw)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    with connect(gate) as line:
        line.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + raw)
        status, told, body = reply_of(line, head=method == "HEAD")
    if method != "HEAD":
        well_told(status, told, body)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_c10_every_route_keeps_to_its_description(pytestconfig: pytest.Config):
    # to import schemathesis and to collect its cases takes three seconds: once, not in each process of a run
    options = ["--tier=check", "--hypothesis-seed=0"] if pytestconfig.option.tier else []
    cases = Path(__file__).with_name("schema_cases.py")
    words = [sys.executable, "-m", "pytest", "-n", "0", "-p", "schemathesis", *options, str(cases)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout


@given(raw=st.binary(min_size=1, max_size=200) | st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
@settings(max_examples=100, **QUIET)
def test_c10_any_bytes_on_a_connection_leave_the_gateway_well(gate: Running, raw: bytes):
    with connect(gate) as line:
        line.sendall(raw)
        line.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while more := line.recv(65_536):
                got += more
    assert b"HTTP/1.1 500" not in got
    assert got == b"" or got.startswith(b"HTTP/1.1 ")


def test_c10_the_gateway_is_alive_after_all_that(gate: Running):
    assert gate.ask().status == 200
    assert gate.get("/readyz").status == 200
