"""Log-probabilities of more than 1,024 streamed tokens become structs; clients get them as they came."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from behaviours import Garbage
from running import Running
from test_loop_stalls import read_events

from adacompute.client import Response
from adacompute.client.large_json import MAX_INLINE, compact_tokens
from adacompute.serve.messages.reply import RequestOutcome, build_chunks, build_completion, dump_json
from adacompute.serve.messages.request_parser import ChatRequest
from upstream import Upstream

COUNT = 1200
ONE = {"x-adacompute-policy": "single"}
WAIT = {"x-adacompute-stream-mode": "wait"}
FIRST = {"x-adacompute-stream-mode": "first"}
NUMBER = "What is 6 times 7?"
NAME = "Who painted the Mona Lisa?"
HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
USAGE = {"prompt_tokens": 10, "completion_tokens": COUNT, "total_tokens": COUNT + 10}


def make_token(number: int) -> dict[str, Any]:
    return {"token": f"t{number}", "logprob": -number / 1e9, "bytes": [116], "top_logprobs": []}


TOKENS = [make_token(number) for number in range(COUNT)]
UNSURE = [{**TOKENS[0], "logprob": -5.0}]


def make_stream() -> bytes:
    """The answer 42 in 12 events with 100 tokens each; only the first has a text."""
    choices: list[dict[str, Any]] = [
        {
            "index": 0,
            "delta": {"content": "42" if start == 0 else ""},
            "finish_reason": None,
            "logprobs": {"content": TOKENS[start : start + 100]},
        }
        for start in range(0, COUNT, 100)
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [HEAD | {"choices": [choice]} for choice in choices]
    chunks.append(HEAD | {"choices": [], "usage": USAGE})
    return b"".join(b"data: %s\n\n" % orjson.dumps(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def make_whole(n: int, first: list[dict[str, Any]]) -> bytes:
    """Samples with the same answer; the first has these tokens, the others are less sure."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": "42"},
            "finish_reason": "stop",
            "logprobs": {"content": first if index == 0 else UNSURE},
        }
        for index in range(n)
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}
    return orjson.dumps({"id": "x", "object": "chat.completion", "choices": choices, "usage": usage})


def script(_: int, body: dict[str, Any]) -> Garbage:
    if body.get("stream"):
        return Garbage(raw=make_stream(), content_type="text/event-stream")
    streams_first = body["messages"][-1]["content"] == NAME  # then that sample is to win, else a whole one
    return Garbage(raw=make_whole(body.get("n") or 1, UNSURE if streams_first else TOKENS))


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    assert len(make_stream()) < MAX_INLINE
    with Upstream(script) as up, Running(up.url, price=1e-6) as running:
        yield running


@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("question", [NUMBER, NAME])
@pytest.mark.parametrize("headers", [ONE, {}, WAIT, FIRST], ids=["one", "default", "wait", "first"])
def test_a_stream_has_all_tokens_of_the_upstreams(
    gate: Running, headers: dict[str, str], question: str, top: int | None
):
    more = {} if top is None else {"top_logprobs": top}
    messages = [{"role": "user", "content": question}]
    answer = gate.ask(headers=headers, messages=messages, stream=True, logprobs=True, **more)
    assert answer.status == 200
    assert answer.raw.endswith(b"data: [DONE]\n\n")
    events = read_events(answer.raw)
    assert "".join(delta.get("content") or "" for delta, _ in events) == "42"
    assert [token for _, tokens in events for token in tokens] == TOKENS


@pytest.mark.parametrize("headers", [ONE, {}, WAIT, FIRST], ids=["one", "default", "wait", "first"])
def test_a_streamed_response_has_all_tokens_of_the_upstreams(gate: Running, headers: dict[str, str]):
    body = {
        "model": "scripted",
        "input": NAME,
        "include": ["message.output_text.logprobs"],
        "temperature": 0.7,
        "stream": True,
    }
    answer = gate.ask(body, path="/v1/responses", headers=headers)
    assert answer.status == 200
    values = [json.loads(line[6:]) for line in answer.raw.decode().splitlines() if line.startswith("data: {")]
    assert values[-1]["type"] == "response.completed"
    part = values[-1]["response"]["output"][0]["content"][0]
    assert part["text"] == "42"
    assert part["logprobs"] == TOKENS
    deltas = [value["logprobs"] for value in values if value["type"] == "response.output_text.delta"]
    assert [token for tokens in deltas for token in tokens] == TOKENS


LONG = " " * MAX_INLINE  # makes a whole reply large, so that its tokens are structs


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("padding", ["", LONG], ids=["small", "large"])
def test_a_whole_reply_has_all_tokens_of_the_upstreams(path: str, padding: str):
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "42"},
        "finish_reason": "stop",
        "logprobs": {"content": TOKENS},
    }
    raw = json.dumps({"id": "x", "choices": [choice], "usage": USAGE}).encode() + padding.encode()
    include = {"include": ["message.output_text.logprobs"]}
    with Upstream(Garbage(raw=raw)) as up, Running(up.url) as gate:
        if path == "/v1/responses":
            answer = gate.ask({"model": "m", "input": "?", **include}, path=path)
            found = answer.json["output"][0]["content"][0]["logprobs"]
        else:
            answer = gate.ask(headers=ONE, logprobs=True)
            found = answer.json["choices"][0]["logprobs"]["content"]
    assert answer.status == 200
    assert found == TOKENS


def test_a_reply_with_tokens_as_structs_can_be_written_whatever_its_size():
    response = Response(
        text="42",
        finish_reason="stop",
        message={"role": "assistant", "content": "42"},
        logprobs={"content": compact_tokens(TOKENS[:1000]) + TOKENS[1000:], "refusal": None},
    )
    outcome = RequestOutcome(
        id="chatcmpl-1",
        at=1.0,
        seconds=1.0,
        key="alice",
        model="scripted",
        policy="single",
        mode="adaptive",
        budget=1.0,
        price=None,
        responses=(response,),
        best=0,
    )
    request = ChatRequest(body={"logprobs": True, "top_logprobs": 1}, logprobs=True)
    assert not outcome.is_large
    whole = json.loads(dump_json(build_completion(outcome, request, unit="samples")))
    assert whole["choices"][0]["logprobs"] == {"content": TOKENS, "refusal": None}
    events = read_events(b"".join(build_chunks(outcome, request, unit="samples")))
    assert [token for _, tokens in events for token in tokens] == TOKENS


def test_what_orjson_refuses_is_replaced_beside_tokens_as_structs():
    tokens = compact_tokens(TOKENS[:2])
    assert tokens != TOKENS[:2]  # structs
    value = {"text": "\udc00", "tokens": tokens, "number": 2**70}
    assert json.loads(dump_json(value)) == {"text": "\ufffd", "tokens": TOKENS[:2], "number": 2.0**70}
    with pytest.raises(TypeError):
        dump_json({"bytes": b"abc"})
