"""No reply, no stream and no crowd holds the gateway's event loop, whatever an upstream sends."""

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from behaviours import Garbage, Reply
from crowd import Visit, crowd, settled
from running import Answer, Running
from test_event_loop import CHEAP, HELD, hold

from adacompute.client.retry import find_reply_limits
from tiers import leave_to_nightly
from upstream import Upstream

MIB = 2**20
ONE = {"x-adacompute-policy": "single"}
HELD_BY_LARGE = 0.2  # seconds that a thread which reads a reply of many megabytes may hold Python's lock
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture(autouse=True)
def _collector_as_in_a_gateways_process() -> Iterator[None]:
    """Everything that a test run has loaded would be looked through again and again."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def held_by(gate: Running, **fields: Any) -> tuple[float, int, bytes]:
    """Seconds of the loop's time that a request holds it for, the least of some times; its status and end."""
    replies: list[Answer] = []
    seconds = hold(gate, lambda: replies.append(gate.ask(headers=ONE, **fields)))
    return seconds, replies[-1].status, replies[-1].raw[-600:]


def stream_of(size: int, piece: int, content: Any = None) -> bytes:
    delta = {"content": "x" * piece if content is None else content}
    event = b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"
    return event * (size // len(event))


@pytest.mark.parametrize("piece", leave_to_nightly([300, 30_000, 2_000_000]))
def test_a_stream_without_end_is_cut_off_and_holds_nobody(piece: int):
    raw = stream_of(12 * MIB, piece)
    with (
        Upstream(Garbage(raw=raw, content_type="text/event-stream")) as up,
        Running(up.url, cap=10**9, unit="tokens") as gate,
    ):
        gate.ask(headers=ONE)
        seconds, status, end = held_by(gate, stream=True, max_tokens=100)
        account = settled(gate)
    print(f"an endless stream in pieces of {piece}: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD
    assert status == 200
    assert b'"error"' in end
    assert b"data: [DONE]" not in end
    assert account.maybe.tokens >= 2 * 100  # it may be charged for


def test_a_long_stream_that_ends_is_passed_on_whole_and_holds_nobody():
    raw = stream_of(4 * MIB, 300) + END
    with Upstream(Garbage(raw=raw, content_type="text/event-stream")) as up, Running(up.url) as gate:
        gate.ask()
        seconds, status, end = held_by(gate, stream=True, temperature=0)
    print(f"a stream of 4 MiB: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD
    assert status == 200
    assert end.endswith(b"data: [DONE]\n\n")


BODIES = {
    "empty lists": b'{"choices": [' + b"[]," * (5 * MIB) + b"[]]}",
    "nested lists": b'{"choices": ' + b"[" * (8 * MIB) + b"]" * (8 * MIB) + b"}",
    "numbers": b'{"choices": [' + b"1," * (8 * MIB) + b"1]}",
    "not a number": b'{"choices": [' + b"NaN," * (4 * MIB) + b"1]}",
    "a torn text": b'{"choices": ["' + b"x" * (12 * MIB),
    "backslashes": b'{"choices": ["' + b"\\" * (12 * MIB) + b'"]}',
}


@pytest.mark.parametrize("name", leave_to_nightly(BODIES, but=2))
def test_a_hostile_reply_of_many_megabytes_is_refused_and_holds_nobody(name: str):
    with Upstream(Garbage(raw=BODIES[name])) as up, Running(up.url, endpoint={"attempts": 1}) as gate:
        gate.ask(headers=ONE)
        seconds, status, end = held_by(gate)
    print(f"a reply of {name}: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD
    assert status == 502, end


def test_a_large_honest_reply_is_read_in_a_thread_and_is_the_same():
    token = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": [{"token": "y", "logprob": -1.0}]}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "x" * 20_000},
        "finish_reason": "stop",
        "logprobs": {"content": [token] * 20_000},
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 20_000, "total_tokens": 20_009}
    raw = json.dumps({"choices": [choice], "usage": usage}).encode()
    assert len(raw) > MIB
    with Upstream(Garbage(raw=raw)) as up, Running(up.url) as gate:
        answer = gate.ask(headers=ONE, logprobs=True, top_logprobs=1, temperature=0)
    assert answer.status == 200
    assert answer.json["choices"][0]["logprobs"] == choice["logprobs"]
    assert answer.json["usage"]["completion_tokens"] == 20_000


def make_tokens(count: int) -> list[dict[str, Any]]:
    alternatives = [{"token": f" w{i}", "logprob": -0.1 - i, "bytes": [32, 119, 48 + i]} for i in range(5)]
    return [
        {"token": f" w{i % 997}", "logprob": -i / 1e6, "bytes": [32, 119], "top_logprobs": alternatives}
        for i in range(count)
    ]


def make_completion(count: int, **message: Any) -> dict[str, Any]:
    """A completion of so many tokens, each with some 400 bytes of log-probabilities."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": "w é" * count, **message},
        "finish_reason": "stop",
    }
    if not message:
        choice["logprobs"] = {"content": make_tokens(count), "refusal": None}
    usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}
    return {"id": "x", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


def make_stream(count: int) -> bytes:
    """The same as a stream of events with one token each."""
    choices = [
        {"index": 0, "delta": {"content": "w é"}, "finish_reason": None, "logprobs": {"content": [token]}}
        for token in make_tokens(count)
    ]
    return (
        b"".join(b"data: %s\n\n" % orjson.dumps({"id": "x", "choices": [choice]}) for choice in choices) + END
    )


COUNT = 40_000
ASKS_ALL = {"logprobs": True, "top_logprobs": 5, "temperature": 0}
LARGE: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "log-probabilities": (lambda: orjson.dumps(make_completion(COUNT)), ASKS_ALL),
    "without alternatives": (lambda: orjson.dumps(make_completion(COUNT)), ASKS_ALL | {"top_logprobs": 0}),
    "as a stream": (lambda: orjson.dumps(make_completion(COUNT)), ASKS_ALL | {"stream": True}),
    "a stream": (lambda: make_stream(COUNT), ASKS_ALL | {"stream": True}),
    "a text": (lambda: orjson.dumps(make_completion(1, content="line\n" * (3 * MIB))), {}),
    "a call": (
        lambda: orjson.dumps(
            make_completion(
                1,
                tool_calls=[
                    {"id": "c", "function": {"name": "f", "arguments": '{"a": "%s"}' % ("x" * 16 * MIB)}}
                ],
            )
        ),
        {},
    ),
}


def read_clock() -> float:
    """Processor time of this thread, the loop's, and of the one that reads large replies.

    While that one holds Python's lock, the loop stands: on an idle machine this is the time on the wall.
    """
    seconds = time.thread_time()
    for thread in threading.enumerate():
        if thread.name.startswith("adacompute-large-replies") and thread.ident is not None:
            seconds += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return seconds


@pytest.mark.parametrize("name", leave_to_nightly(LARGE))
def test_a_large_reply_holds_nobody_while_a_thread_reads_it(name: str):
    make, fields = LARGE[name]
    raw = make()
    kind = "text/event-stream" if name == "a stream" else "application/json"
    with Upstream(Garbage(raw=raw, content_type=kind)) as up, Running(up.url) as gate:
        gate.ask(headers=ONE)

        def ask() -> None:
            assert gate.ask(headers=ONE, **fields).status == 200

        seconds = hold(gate, ask, HELD_BY_LARGE, read_clock)
    print(f"{name}: held for {1000 * seconds:.0f} ms")
    assert seconds < HELD_BY_LARGE


def test_log_probabilities_of_a_large_reply_reach_the_client_as_they_were_asked_for():
    completion = make_completion(3000)
    text, tokens = completion["choices"][0]["message"]["content"], make_tokens(3000)
    plain = [{**token, "top_logprobs": []} for token in tokens]
    raw = orjson.dumps(completion)
    stream = make_stream(3000)
    assert len(raw) > MIB // 2  # and is packed
    with Upstream(Garbage(raw=raw)) as up, Running(up.url) as gate:
        for more, expected in ((ASKS_ALL, tokens), ({"logprobs": True}, plain), ({}, None)):
            whole = gate.ask(headers=ONE, **more).json["choices"][0]
            assert whole["message"]["content"] == text
            assert whole["logprobs"] == ({"content": expected, "refusal": None} if expected else None)
            for streamed in (Garbage(raw=raw), Garbage(raw=stream, content_type="text/event-stream")):
                replies = {True: streamed, None: Garbage(raw=raw)}
                up.script = lambda _, body, replies=replies: replies[body.get("stream")]
                for headers in (ONE, {}):  # the only sample, and one that may be voted on
                    events = read_events(gate.ask(headers=headers, **more, stream=True).raw)
                    assert "".join(delta.get("content") or "" for delta, _ in events) == text
                    assert [token for _, found in events for token in found] == (expected or [])
        answer = gate.ask(
            {"model": "m", "input": "?", "include": ["message.output_text.logprobs"], "top_logprobs": 5},
            path="/v1/responses",
        )
        part = answer.json["output"][0]["content"][0]
    assert part["text"] == text
    assert part["logprobs"] == tokens


def read_events(raw: bytes) -> list[tuple[dict[str, Any], list[Any]]]:
    """The delta and the tokens of each event."""
    values = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for value in values for choice in value["choices"]]
    return [(choice["delta"], (choice.get("logprobs") or {}).get("content") or []) for choice in choices]


def test_many_clients_with_distinct_answers_share_the_loop():
    def script(number: int, body: dict[str, Any]) -> Reply:
        count = body.get("n") or 1
        return Reply(
            texts=[f"The answer is {number * 37 + i}." for i in range(count)], logprobs=False, delay=0.2
        )

    with Upstream(script) as up, Running(up.url, price=CHEAP) as gate:
        gate.ask()

        def come() -> None:
            answers = crowd(gate, [Visit()] * 100)
            assert {answer.status for answer in answers if answer is not None} == {200}
            assert answers[0] is not None
            assert answers[0].json["adacompute"]["samples"] == 16

        seconds = hold(gate, come)
    print(f"100 clients with 16 distinct answers each: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD


def test_the_limits_of_a_reply_follow_what_was_asked_for():
    plain = find_reply_limits({}, 1, 100)
    assert 8 * MIB < plain.size < 9 * MIB
    assert plain.content < plain.size
    assert find_reply_limits({}, 16, 4096).size == 64 * MIB
    assert find_reply_limits({"logprobs": True}, 16, 4096).content == 64 * MIB
    assert find_reply_limits({}, 1, None).size == 64 * MIB
