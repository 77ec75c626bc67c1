"""W3C trace context: a client's goes upstream with every call of its request; what is wrong is ignored."""

import http.client
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import QUESTION, Running

from adacompute.serve.messages.trace_context import read_trace_headers
from upstream import Honest, Reply, Status, Upstream

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (PARENT, PARENT),
        (f"  {PARENT}\t", PARENT),
        (f"00-{TRACE}-{SPAN}-ff", f"00-{TRACE}-{SPAN}-ff"),
        (f"cc-{TRACE}-{SPAN}-03", PARENT),  # a later version: what this one knows of it
        (f"cc-{TRACE}-{SPAN}-01-what-comes-then", PARENT),
    ],
)
def test_a_valid_parent_is_passed_on(parent: str, expected: str):
    assert read_trace_headers({"traceparent": parent}) == {"traceparent": expected}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        f"{PARENT}-more",  # version 00 has no more
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
        f"{PARENT}, {PARENT}",  # given twice
        f"{PARENT}\n",
        f"{PARENT}\r\nauthorization: Bearer other",
        "٠٠-" + PARENT[3:],
    ],
)
def test_an_invalid_parent_is_ignored_with_its_state(parent: str):
    assert read_trace_headers({"traceparent": parent, "tracestate": "a=1"}) is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("congo=t61rcWkgMzE", "congo=t61rcWkgMzE"),
        ("rojo=00f067aa0ba902b7,congo=t61", "rojo=00f067aa0ba902b7,congo=t61"),
        (" rojo=1 ,\tcongo=2, ,", "rojo=1,congo=2"),
        ("tenant@system=x y", "tenant@system=x y"),
        ("", ""),
        ("no value", ""),
        ("Upper=1", ""),
        ("a=1,a=2", ""),
        ("a=b=c", ""),
        ("a=\x01", ""),
        ("a=ä", ""),
        (",".join(f"k{i}=1" for i in range(33)), ""),
        ("a=" + "x" * 257, ""),
        ("a=" + "x" * 9000, ""),
        (f"a={'x' * 200},b={'y' * 200},c={'z' * 200},d=1", "d=1"),  # long ones are left out first
        (",".join(f"k{i}={'x' * 96}" for i in range(9)), ",".join(f"k{i}={'x' * 96}" for i in range(5))),
    ],
)
def test_the_state_is_passed_on_within_its_bounds(state: str, expected: str):
    headers = read_trace_headers({"traceparent": PARENT, "tracestate": state})
    assert headers == {"traceparent": PARENT} | ({"tracestate": expected} if expected else {})


@given(parent=st.text(max_size=80), state=st.text(max_size=1000))
def test_whatever_comes_nothing_is_raised_and_no_more_than_the_bounds_go_on(parent: str, state: str):
    assert read_trace_headers({"traceparent": parent, "tracestate": state}) is None
    headers = read_trace_headers({"traceparent": PARENT, "tracestate": state})
    assert headers is not None
    assert len(headers.get("tracestate", "")) <= 512
    assert all(text.isascii() and text.isprintable() for text in headers.values())


def contexts_of(up: Upstream) -> set[tuple[str | None, str | None, str | None]]:
    return {
        tuple(request.headers.get(name) for name in ("traceparent", "tracestate", "baggage"))
        for request in up.requests
        if request.method == "POST"
    }


SENT = {"traceparent": PARENT, "tracestate": "rojo=1,congo=2", "baggage": "user=alice"}
PASSED = {(PARENT, "rojo=1,congo=2", None)}


def test_every_call_of_a_request_carries_its_trace_and_no_baggage():
    with Upstream(Honest(n="ignore")) as up, Running(up.url, budget=4.0, price=0.0) as gate:
        assert gate.ask(headers=SENT).status == 200
        assert len([each for each in up.requests if each.method == "POST"]) > 1
        assert contexts_of(up) == PASSED


def test_retries_and_streams_carry_it_too():
    failing = [Status(code=500), Reply()]
    for fields in ({}, {"stream": True}, {"n": 2}):
        with Upstream(failing) as up, Running(up.url, mode="pass") as gate:
            assert gate.ask(headers=SENT, **fields).status == 200
            assert len([each for each in up.requests if each.method == "POST"]) == 2
            assert contexts_of(up) == PASSED


def test_requests_side_by_side_keep_their_own_trace():
    with Upstream(Honest(latency=0.05)) as up, Running(up.url, mode="pass") as gate:
        connections = []
        for i in range(8):
            connection = http.client.HTTPConnection(
                "127.0.0.1", int(gate.base.rpartition(":")[2]), timeout=60
            )
            trace = {"traceparent": f"00-{i + 1:032x}-{SPAN}-01"} if i % 2 else {}
            body = {**QUESTION, "user": str(i)}
            headers = {"content-type": "application/json", **trace}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            connections.append(connection)
        assert [connection.getresponse().status for connection in connections] == [200] * 8
        sent = {
            request.body["user"]: request.headers.get("traceparent")
            for request in up.requests
            if request.body
        }
        for connection in connections:
            connection.close()
    assert sent == {str(i): f"00-{i + 1:032x}-{SPAN}-01" if i % 2 else None for i in range(8)}


@pytest.mark.parametrize("parent", ["", "nonsense", f"00-{TRACE}-{'0' * 16}-01", "x" * 5000])
def test_an_invalid_trace_is_no_error_and_goes_nowhere(parent: str):
    with Upstream() as up, Running(up.url, mode="pass") as gate:
        assert gate.ask(headers={"traceparent": parent, "tracestate": "a=1"}).status == 200
        assert contexts_of(up) == {(None, None, None)}
