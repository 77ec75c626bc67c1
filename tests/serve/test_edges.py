"""What the gateway got wrong once, or nearly: each as a test of its own."""

import asyncio
import contextlib
import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from behaviours import Break, Reply, Stall
from running import Running
from wires import connect, post, reply_of, until

from adacompute.policies.baselines import FixedPolicy
from adacompute.serve.routes.chat import DisconnectWatch
from upstream import Upstream

PASSED = {"stream": True, "temperature": 0}


class Broken(FixedPolicy):
    """A policy that fails when it is asked."""

    def more(self, *_: Any, **__: Any) -> int:
        raise RuntimeError("broken")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Upstream, Running]]:
    four = tmp_path_factory.mktemp("policies") / "four"
    FixedPolicy(4).save(four)
    with Upstream() as up, Running(up.url, price=0.5, policies=(f"four={four}",)) as running:
        yield up, running


@pytest.fixture
def upstream(serving: tuple[Upstream, Running]) -> Upstream:
    serving[0].script = Reply(texts=["The answer is 42."])
    return serving[0]


@pytest.fixture
def gate(serving: tuple[Upstream, Running], upstream: Upstream) -> Running:
    return serving[1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_policy_that_fails_is_a_500_in_words_and_the_request_is_over(gate: Running, stream: bool):
    gate.gateway.policy_registry.get("four").policy = Broken(4)
    answer = gate.ask(stream=stream, headers={"x-adacompute-policy": "four"})
    assert answer.status == 500
    assert answer.error["code"] == "internal_error"
    assert gate.gateway.under_way == 0
    assert b"adacompute_in_flight 0.0" in gate.get("/metrics").raw
    assert gate.gateway.resources.ledger.account().reserved.samples == 0


@pytest.mark.parametrize("host", ["[", "[::1", "evil.example", "127.0.0.1.evil.example", "a]b"])
def test_a_host_that_is_none_or_not_this_machine_is_refused(gate: Running, host: str):
    answer = gate.ask(headers={"host": host})
    assert answer.status == 403
    assert answer.error["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "gate.localhost", "LOCALHOST"])
def test_this_machine_may_be_named_in_any_way(gate: Running, host: str):
    assert gate.get("/v1/models", {"host": host}).status == 200


def test_who_sends_another_request_before_the_reply_is_cut_off_with_its_calls(
    gate: Running, upstream: Upstream
):
    upstream.script = Stall()
    with connect(gate) as line:
        line.sendall(post())
        until(lambda: upstream.count.in_flight == 1)
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: upstream.count.in_flight == 0)
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(1) == b""
    until(lambda: gate.gateway.under_way == 0)


def test_no_more_requests_are_under_way_than_may_be_also_of_those_whose_bodies_came_late():
    with (
        Upstream(Stall()) as up,
        Running(up.url, budget=1.0, max_requests=2) as gate,
        contextlib.ExitStack() as stack,
    ):
        first, second, third = (stack.enter_context(connect(gate)) for _ in range(3))
        third.sendall(post()[:-1])  # let in: there is room yet
        first.sendall(post())
        second.sendall(post())
        until(lambda: up.count.in_flight == 2)
        assert gate.ask().error["code"] == "overloaded"
        third.sendall(post()[-1:])
        assert reply_of(third)[0] == 503
        assert up.count.requests == 2


def test_a_head_that_comes_together_with_a_long_body_is_not_too_long_itself(gate: Running):
    with connect(gate) as line:
        line.sendall(post(user="x" * 100_000) + b"GET /healthz HTT")
        assert reply_of(line)[0] == 200
        line.sendall(b"P/1.1\r\nHost: localhost\r\n\r\n")
        assert reply_of(line)[0] == 200


def test_one_connection_serves_on_after_each_kind_of_error(gate: Running, upstream: Upstream):
    with connect(gate) as line:
        for body, status in (
            ({"n": 999}, 400),
            ({"messages": []}, 400),
            ({"temperature": 9}, 400),
            ({}, 200),
        ):
            line.sendall(post(**body))
            assert reply_of(line)[0] == status
        line.sendall(
            b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 2\r\n\r\n{}"
        )
        assert reply_of(line)[0] == 404
        upstream.script = Reply(texts=["The answer is 42."])
        line.sendall(post())
        assert reply_of(line)[0] == 200


def test_what_is_no_plain_json_in_a_stream_is_passed_on_all_the_same(gate: Running, upstream: Upstream):
    """Numbers beyond 64 bits and half surrogates, in a chunk that is written again, with our words in it."""
    choice = b'{"index": 0, "delta": {"content": "\\ud800 42"}, "finish_reason": "stop"}'
    chunk = b'data: {"id": "c", "big": 123456789012345678901234567890, "choices": [' + choice + b"]}\n\n"
    upstream.script = Break(after=1, how=chunk + b"data: [DONE]\n\n")
    answer = gate.ask(**PASSED)
    lines = [line.removeprefix(b"data: ") for line in answer.raw.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    last = json.loads(lines[-2])
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["adacompute"]["samples"] == 1


def test_a_choice_that_ends_before_another_is_not_held_back_for_it(gate: Running, upstream: Upstream):
    def event(index: int, reason: str | None, content: str) -> bytes:
        delta = {"index": index, "delta": {"content": content}, "finish_reason": reason}
        return b"data: " + json.dumps({"id": "c", "choices": [delta]}).encode() + b"\n\n"

    told = event(0, None, "a") + event(0, "stop", "b") + event(1, None, "c") + event(1, "length", "d")
    upstream.script = Break(after=0, how=told + b"data: [DONE]\n\n")
    answer = gate.ask(n=2, stream=True)
    lines = [
        json.loads(line[6:]) for line in answer.raw.decode().split("\n\n") if line and "[DONE]" not in line
    ]
    assert [line["choices"][0]["delta"]["content"] for line in lines] == ["a", "b", "c", "d"]
    assert ["adacompute" in line for line in lines] == [False, False, False, True]


def test_a_request_that_has_ended_leaves_nothing_that_only_a_collection_would_free():
    # garbage of other threads in this process isn't looked at: only whether the watches themselves are gone
    async def serve() -> int:
        async def receive() -> dict[str, str]:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        watches = []
        for _ in range(50):
            watch = DisconnectWatch(receive)
            watches.append(weakref.ref(watch))
            with watch:
                await asyncio.sleep(0)
            del watch
        await asyncio.sleep(0.01)
        return sum(watch() is not None for watch in watches)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(serve()) == 0
    finally:
        gc.enable()
