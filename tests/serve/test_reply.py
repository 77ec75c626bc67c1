"""Replies are what the official SDK expects, and errors say what a client can do and no more."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adacompute import errors
from adacompute.client import Response
from adacompute.errors import (
    CapReached,
    ConnectionLost,
    EndpointError,
    EndpointFailed,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
    RequestInvalid,
    SendingStopped,
    ServeError,
    Unauthorized,
    WeakVote,
)
from adacompute.serve.messages.reply import (
    RequestOutcome,
    Usage,
    build_chunks,
    build_completion,
    build_error,
    build_extra,
    build_headers,
    dump_json,
)
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.spending.ledger import Spend

URL = "http://secret-host.internal:8000/v1/chat/completions"
LOGPROBS = {"content": [{"token": "4", "bytes": [52], "logprob": -0.5, "top_logprobs": []}]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def response(text: str = "It is 42.", **fields: Any) -> Response:
    message = fields.pop("message", {"role": "assistant", "content": text})
    return Response(text=text, finish_reason=fields.pop("finish_reason", "stop"), message=message, **fields)


def told(*responses: Response, **fields: Any) -> RequestOutcome:
    plain: dict[str, Any] = {
        "id": "chatcmpl-1",
        "at": 1_700_000_000.7,
        "seconds": 1.0,
        "key": "alice",
        "model": "scripted",
        "policy": "stopping",
        "mode": "adaptive",
        "budget": 2.0,
        "price": 0.25,
        "samples": len(responses),
        "responses": responses,
        "best": 0 if responses else None,
        "usage": Usage(prompt_tokens=30, completion_tokens=12),
        "spent": Spend(samples=3, tokens=42),
    }
    return RequestOutcome(**(plain | fields))


def whole(one: RequestOutcome, ask: ChatRequest | None = None) -> dict[str, Any]:
    """The completion as JSON; the SDK has taken it, strictly."""
    raw = dump_json(build_completion(one, ask or ChatRequest(body={}), unit="samples"))
    ChatCompletion.model_validate_json(raw, strict=True)
    found: dict[str, Any] = orjson.loads(raw)
    return found


def streamed(one: RequestOutcome, ask: ChatRequest | None = None) -> list[dict[str, Any]]:
    """The chunks as JSON; the SDK has taken each, strictly."""
    *events, done = build_chunks(one, ask or ChatRequest(body={}, stream=True), unit="samples")
    assert done == b"data: [DONE]\n\n"
    found = []
    for event in events:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        assert event.count(b"\n") == 2
        ChatCompletionChunk.model_validate_json(event[6:], strict=True)
        found.append(orjson.loads(event[6:]))
    return found


def said(events: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_a_completion_is_the_winner_with_the_usage_of_all():
    one = told(response("41"), response("42"), response("42."), best=1, answer="42", votes={"41": 1, "42": 2})
    found = whole(one)
    assert (found["id"], found["object"], found["created"]) == (
        "chatcmpl-1",
        "chat.completion",
        1_700_000_000,
    )
    assert found["model"] == "scripted"
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": "42"}
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert found["usage"] == {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert found["adacompute"] == {
        "samples": 3,
        "answer": "42",
        "votes": {"41": 1, "42": 2},
        "agreement": None,
        "price": 0.25,
        "policy": "stopping",
        "model": "scripted",
        "cost": 3.0,
        "unit": "samples",
    }


def test_where_nobody_won_the_first_response_is_given():
    assert whole(told(response("a"), response("b"), best=None))["choices"][0]["message"]["content"] == "a"


def test_the_choices_that_a_client_asked_for_itself_all_come_in_their_order():
    one, ask = (
        told(response("a"), response("b"), response("c"), best=None),
        ChatRequest(body={}, n=3, stream=True),
    )
    assert [(c["index"], c["message"]["content"]) for c in whole(one, ask)["choices"]] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]
    events = streamed(one, ask)
    assert [said(events, index) for index in range(3)] == ["a", "b", "c"]
    assert ["adacompute" in event for event in events] == [False] * (len(events) - 1) + [True]


def test_log_probabilities_are_for_those_who_asked():
    one = told(response("4", logprobs=LOGPROBS))
    assert whole(one)["choices"][0]["logprobs"] is None
    assert whole(one, ChatRequest(body={}, logprobs=True))["choices"][0]["logprobs"] == LOGPROBS
    assert b"logprob" not in b"".join(build_chunks(one, ChatRequest(body={}, stream=True), unit="samples"))
    events = streamed(one, ChatRequest(body={}, stream=True, logprobs=True))
    assert [e["choices"][0]["logprobs"] for e in events if e["choices"][0].get("logprobs")] == [LOGPROBS]


def test_cached_tokens_are_told_where_there_are_any():
    found = whole(told(response(), usage=Usage(prompt_tokens=9, completion_tokens=1, cached_tokens=5)))
    assert found["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}


def test_what_a_server_left_out_is_put_in():
    for message in ({}, {"content": "x"}, {"role": None, "content": "x"}, {"role": "model", "content": "x"}):
        (choice,) = whole(told(response("x", message=message, finish_reason=None)))["choices"]
        assert choice["message"] == {"role": "assistant", "content": "x"}
        assert choice["finish_reason"] == "stop"
    parts = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    assert whole(told(response("x", message=parts)))["choices"][0]["message"]["content"] == "x"
    refusal = {"role": "assistant", "content": None, "refusal": "no"}
    assert whole(told(response("no", message=refusal)))["choices"][0]["message"] == refusal


def test_what_a_server_says_beyond_openais_fields_is_passed_on():
    message = {"role": "assistant", "content": "x", "reasoning_content": "because"}
    assert whole(told(response("x", message=message)))["choices"][0]["message"] == message
    events = streamed(told(response("x", message=message)))
    assert events[0]["choices"][0]["delta"]["reasoning_content"] == "because"


def test_calls_of_tools_come_whole_and_in_a_stream_with_their_index():
    message = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    one = told(response("", message=message, finish_reason="tool_calls"))
    assert whole(one)["choices"][0]["message"] == message
    deltas = [event["choices"][0]["delta"] for event in streamed(one)]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], call["id"]) for call in calls] == [(0, "call_1"), (1, "call_2")]
    assert streamed(one)[-1]["choices"][0]["finish_reason"] == "tool_calls"


@given(st.text(max_size=2000))
@settings(max_examples=40, deadline=None)
def test_a_stream_says_the_same_as_a_completion(text: str):
    one = told(response(text))
    events = streamed(one)
    (choice,) = whole(one)["choices"]
    assert said(events) == choice["message"]["content"] == text
    first, *_, last = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * (len(events) - 1) + ["stop"]
    assert last["adacompute"] == build_extra(one, unit="samples")
    assert len({(e["id"], e["created"], e["model"], e["object"]) for e in events}) == 1
    assert all("usage" not in e for e in events)


def test_a_stream_ends_with_usage_where_it_was_asked_for():
    events = streamed(told(response()), ChatRequest(body={}, stream=True, include_usage=True))
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert all(event["usage"] is None for event in events[:-1])


def test_without_any_response_there_are_no_choices():
    assert whole(told())["choices"] == []
    assert streamed(told()) == []


DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"x": DEEP}


@pytest.mark.parametrize(
    "odd", ["\ud800", {"\udfff": 1}, 2**70, -(2**70), 10**400, float("nan"), float("inf"), DEEP, [[2**64]]]
)
def test_what_a_server_sent_that_is_no_json_breaks_nothing(odd: object):
    one = told(response("ok\ud800", message={"role": "assistant", "content": "ok\ud800", "odd": odd}))
    assert whole(one)["choices"][0]["message"]["content"] == "ok\ufffd"
    assert said(streamed(one)) == "ok\ufffd"


def test_the_extra_object_says_more_only_where_it_applies():
    plain = build_extra(told(), unit="tokens")
    assert (plain["cost"], plain["unit"]) == (42.0, "tokens")
    more = build_extra(told(notes=("a",), missing=2, would=0, weak=True, mode="shadow"), unit="samples")
    assert {name: more[name] for name in more.keys() - plain.keys()} == {
        "notes": ["a"],
        "missing": 2,
        "would": 0,
        "weak": True,
        "mode": "shadow",
    }


def test_headers_say_what_came_of_it_in_ascii():
    found = build_headers(told(response(), agreement=2 / 3, policy="käse\r\nx: y"))
    assert found["x-adacompute-samples"] == "1"
    assert (found["x-adacompute-agreement"], found["x-adacompute-price"]) == ("0.6667", "0.25")
    assert found["x-request-id"] == "chatcmpl-1"
    assert all(value.isascii() and value.isprintable() for value in found.values())
    assert "x-adacompute-price" not in build_headers(told(price=None))


def failed(error: ServeError | EndpointError) -> tuple[int, dict[str, str], dict[str, Any]]:
    """The reply of an error; what holds of all of them is checked here."""
    status, headers, raw = build_error(error)
    body = json.loads(raw)
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert headers["content-type"] == "application/json"
    assert all(name == name.lower() for name in headers)
    message = body["error"]["message"]
    assert 0 < len(message) <= 500
    assert len(message.splitlines()) == 1
    assert "secret-host" not in message
    assert "://" not in message
    return status, headers, body["error"]


def test_an_error_of_the_gateways_own_is_told_as_it_says():
    status, headers, about = failed(RequestInvalid("n is 0; give 1 to 16", param="n"))
    assert (status, headers.keys()) == (400, {"content-type"})
    assert about == {
        "message": "n is 0; give 1 to 16",
        "type": "invalid_request_error",
        "param": "n",
        "code": "invalid_request",
    }
    assert failed(RequestInvalid("too long", status=413, code="request_too_large"))[0] == 413


def test_when_to_try_again_is_rounded_up_and_whether_at_all_is_said():
    assert failed(ServeError("x", retry_after=1.2))[1]["retry-after"] == "2"
    assert failed(ServeError("x", retry_after=0.0))[1]["retry-after"] == "1"
    assert failed(ServeError("x", retry_after=float("inf")))[1]["retry-after"] == "86400"
    for error in (CapReached("x", retry_after=60.0), WeakVote("x")):
        assert failed(error)[1]["x-should-retry"] == "false"
    assert failed(Unauthorized("x"))[1]["www-authenticate"].startswith("Basic realm=")
    assert "www-authenticate" not in failed(Unauthorized("x", status=403))[1]


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422])
def test_what_the_upstream_says_about_the_clients_request_is_passed_on_without_its_address(status: int):
    words = f"too long, see {URL}/x and secret-host.internal:8000 there"
    got, _, about = failed(EndpointRefused(f"{URL}: answered {status}: {words}", status=status))
    assert (got, about["code"]) == (status, "upstream_refused")
    assert about["message"].startswith(f"the upstream answered {status}: too long, see the upstream")


@pytest.mark.parametrize("status", [401, 402, 403])
def test_c21_what_the_upstream_says_about_the_operators_key_is_not_passed_on(status: int):
    words = f"{URL}: answered {status}: Incorrect API key provided: sk-cana*****; check the key"
    got, _, about = failed(EndpointRefused(words, status=status))
    assert (got, about["code"]) == (502, "upstream_credentials")
    assert "sk-cana" not in about["message"]
    assert "Incorrect" not in about["message"]


@pytest.mark.parametrize(
    ("error", "status", "code", "retry"),
    [
        (RateLimited(f"{URL}: x", status=429), 429, "upstream_rate_limited", "1"),
        (EndpointTimeout(f"{URL}: x"), 504, "upstream_timeout", None),
        (EndpointResting("the endpoint failed"), 503, "upstream_resting", "1"),
        (SendingStopped("nothing more is sent"), 503, "stopping", "1"),
        (EndpointUnreachable(f"{URL}: no host secret-host:1"), 502, "upstream_unreachable", None),
        (ConnectionLost(f"{URL}: x secret-host"), 502, "upstream_failed", None),
        (EndpointFailed(f"{URL}: x secret-host", status=500), 502, "upstream_failed", None),
        (ReplyInvalid(f"{URL}: x secret-host", status=200), 502, "upstream_failed", None),
        (EndpointRefused(f"{URL}: a redirect to {URL}", status=302), 502, "upstream_failed", None),
        (EndpointRefused(f"{URL}: x"), 502, "upstream_failed", None),
        (EndpointError("secret-host"), 502, "upstream_failed", None),
    ],
)
def test_an_upstreams_failure_has_its_status(error: EndpointError, status: int, code: str, retry: str | None):
    got, headers, about = failed(error)
    assert (got, about["code"], headers.get("retry-after")) == (status, code, retry)


def test_an_upstreams_wish_to_wait_is_passed_on():
    error = RateLimited(f"{URL}: x", status=429)
    error.retry_after = 7.3
    assert failed(error)[1]["retry-after"] == "8"


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServeError | EndpointError)
]


@given(st.sampled_from(KINDS), st.text(max_size=800), st.none() | st.integers(300, 499))
@settings(max_examples=150, deadline=None)
def test_c10_every_error_has_openais_shape_whatever_it_says(kind: type, text: str, status: int | None):
    status_of, headers, raw = build_error(kind(f"{URL}: {text}", status=status))
    assert 300 <= status_of < 600
    message = json.loads(raw)["error"]["message"]
    assert len(message) <= 500
    assert len(message.splitlines()) == 1
    assert all(value.isascii() for value in headers.values())


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=300))
@settings(max_examples=100, deadline=None)
def test_an_upstreams_address_is_never_told(words: str):
    failed(EndpointRefused(f"{URL}: answered 400: {words.replace('://', '')} {URL} {words}", status=400))
