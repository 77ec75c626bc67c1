"""Responses, what is passed on, models and CORS, asked what nobody would think of: no 500, only words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from behaviours import Reply
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from other_routes import OtherRoutes
from other_routes import status as reply
from running import Running
from wires import connect, reply_of

from upstream import Upstream

QUIET: Any = {"deadline": None, "suppress_health_check": list(HealthCheck)}
ORIGIN = "https://app.example"
SHAPE = {"message", "type", "param", "code"}
ASKED = {"model": "scripted", "input": "What is 6 times 7?"}
texts = st.text(max_size=20)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    with (
        Upstream(Reply(texts=["The answer is 42."], logprobs=False)) as up,
        Running(up.url, price=0.5, cors=(ORIGIN,)) as running,
    ):
        yield running
        assert running.gateway.under_way == 0


@pytest.fixture(scope="module")
def native() -> Iterator[Running]:
    """Over an upstream that has /v1/responses of its own."""
    completion = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
    routes = {"responses": reply(200, {"object": "response"}), "chat/completions": reply(200, completion)}
    with OtherRoutes(**routes) as up, Running(up.url, cap=1e6) as running:
        yield running
        assert running.gateway.under_way == 0


def check(status: int, body: bytes) -> None:
    """Not a failure of ours; where it is an error, in OpenAI's shape, in words."""
    assert status < 500, body
    if status >= 400 and body:
        error = json.loads(body)["error"]
        assert error["message"]
        if "code" in error:  # the scripted upstream's own refusals have a message only
            assert set(error) == SHAPE


fields = st.sampled_from(
    (
        *(
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "text",
            "reasoning",
            "metadata",
            "stream",
            "store",
        ),
        *("max_output_tokens", "temperature", "top_p", "include", "previous_response_id", "truncation"),
        *("parallel_tool_calls", "conversation", "background", "prompt", "model", "adacompute", "user"),
    )
)


@given(more=st.dictionaries(fields, values, max_size=4))
@settings(max_examples=60, **QUIET)
def test_c10_any_field_of_a_response_is_served_or_refused_in_words(gate: Running, more: dict[str, Any]):
    answer = gate.ask({**ASKED, **more}, path="/v1/responses")
    check(answer.status, answer.raw)


kinds = st.sampled_from(
    ("message", "function_call", "function_call_output", "reasoning", "item_reference", "input_text", "x")
)
parts = st.fixed_dictionaries(
    {}, optional={"type": kinds, "text": values, "image_url": values, "annotations": values}
)
items = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds,
        "role": st.sampled_from(("user", "assistant", "system", "developer", "tool")) | values,
        "content": st.lists(parts, max_size=3) | values,
        "call_id": values,
        "name": values,
        "arguments": values,
        "output": values,
    },
)


@given(given_items=st.lists(items | values, max_size=4), stream=st.booleans())
@settings(max_examples=50, **QUIET)
def test_c10_any_items_of_a_response_are_served_or_refused_in_words(
    gate: Running, given_items: list[Any], stream: bool
):
    answer = gate.ask({**ASKED, "input": given_items, "stream": stream}, path="/v1/responses")
    check(answer.status, b"" if answer.status == 200 else answer.raw)


tool_kinds = st.sampled_from(("function", "web_search", "allowed_tools", "mcp", "custom")) | values
named_tools = st.fixed_dictionaries({"type": tool_kinds}, optional={"name": st.just("f") | values})
tools = st.fixed_dictionaries(
    {"type": st.just("function") | tool_kinds},
    optional={
        "name": st.just("f") | values,
        **dict.fromkeys(("parameters", "strict", "description", "defer_loading"), values),
    },
)
choices = st.fixed_dictionaries(
    {"type": st.just("allowed_tools") | tool_kinds},
    optional={
        "mode": st.sampled_from(("auto", "required")) | values,
        "tools": st.lists(named_tools, max_size=3) | values,
        "name": st.just("f") | values,
    },
)
forms = st.fixed_dictionaries(
    {"type": st.sampled_from(("text", "json_object", "json_schema", "grammar")) | values},
    optional=dict.fromkeys(("name", "schema", "strict", "description"), values),
)
structures = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.lists(tools, max_size=3) | values,
        "tool_choice": choices | values,
        "parallel_tool_calls": values,
        "text": st.fixed_dictionaries({}, optional={"format": forms | values, "verbosity": values}) | values,
        "include": st.lists(st.just("message.output_text.logprobs") | values, max_size=3) | values,
        "top_logprobs": values,
        "reasoning": st.fixed_dictionaries({}, optional={"effort": values, "summary": values}) | values,
        "stream_options": values,
        "store": st.booleans() | values,
        "background": values,
        "max_output_tokens": values,
        "metadata": values,
        "model": st.just("m") | values,
    },
)


UNHASHABLE = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": ["x"]}]}


@given(more=structures, stream=st.booleans())
@example(more={"tool_choice": UNHASHABLE}, stream=False)
@settings(max_examples=60, **QUIET)
def test_c10_any_structure_in_a_response_is_served_or_refused_in_words(
    gate: Running, native: Running, more: dict[str, Any], stream: bool
):
    for running in (gate, native):
        answer = running.ask({**ASKED, **more, "stream": stream}, path="/v1/responses")
        check(answer.status, b"" if answer.status == 200 else answer.raw)


words = st.sampled_from(
    (
        "embeddings",
        "completions",
        "files",
        "audio",
        "images",
        "batches",
        "models",
        "..",
        ".",
        "",
        "%2e%2e",
        "x",
    )
)
paths = st.lists(words | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8), max_size=4)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]),
    path=paths.map("/".join),
    kind=st.sampled_from(["application/json", "multipart/form-data; boundary=b", "text/plain", "", "\xff"]),
    raw=st.binary(max_size=100) | values.map(lambda value: json.dumps(value).encode()),
)
@settings(max_examples=100, **QUIET)
def test_c10_any_passed_on_request_is_served_or_refused_in_words(
    gate: Running, method: str, path: str, kind: str, raw: bytes
):
    head = f"{method} /v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
    with connect(gate) as line:
        line.sendall(f"{head}content-length: {len(raw)}\r\n\r\n".encode("latin-1") + raw)
        status, _, body = reply_of(line)
    check(status, body)


@given(name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
@settings(max_examples=60, **QUIET)
def test_c10_any_name_of_a_model_is_described_or_not_found(gate: Running, name: str):
    with connect(gate) as line:
        line.sendall(f"GET /v1/models/{name} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode("latin-1"))
        status, _, body = reply_of(line)
    check(status, body)


@given(
    path=st.sampled_from(
        ("/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/embeddings", "/metrics")
    ),
    origin=st.sampled_from((ORIGIN, "https://evil.example", "null", "")) | texts,
    method=st.sampled_from(("POST", "GET", "DELETE", "")) | texts,
    headers=texts,
)
@settings(max_examples=50, **QUIET)
def test_c10_any_preflight_is_answered_and_only_the_named_origin_is_let_in(
    gate: Running, path: str, origin: str, method: str, headers: str
):
    lines = {"origin": origin, "access-control-request-method": method}
    lines["access-control-request-headers"] = headers
    text = "".join(f"{name}: {''.join(c for c in v if c.isprintable())}\r\n" for name, v in lines.items())
    with connect(gate) as line:
        line.sendall(f"OPTIONS {path} HTTP/1.1\r\nhost: localhost\r\n{text}\r\n".encode("latin-1", "replace"))
        status, told, body = reply_of(line)
    check(status, body)
    allowed = told.get("access-control-allow-origin")
    assert allowed in (None, ORIGIN)
    assert allowed is None or origin.strip() == ORIGIN


def test_c10_the_gateway_is_well_after_all_that(gate: Running):
    assert gate.ask(ASKED, path="/v1/responses").status == 200
    assert gate.get("/readyz").status == 200
