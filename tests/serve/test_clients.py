"""Clients as they come: they go away, send too much, don't read, or do nothing at all."""

import contextlib
import json
import resource
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
from behaviours import Behaviour, Break, Honest, Reply, Script, Stall
from running import Process, Running
from wires import connect, end, post, reply_of, resident, until

from adacompute.policies.baselines import FixedPolicy
from upstream import Upstream

LIMIT = 1_000_000  # bytes of a body
DEAR = 0.5  # a price at which one sample is enough


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as up:
        yield up


@pytest.fixture(scope="module")
def gate(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    four = tmp_path_factory.mktemp("policies") / "four"
    FixedPolicy(4).save(four)
    with Running(upstream.url, price=DEAR, policies=(f"four={four}",), max_body=LIMIT) as running:
        upstream.script = Honest(n="ignore")  # it learns that each sample takes a call of its own
        assert running.ask(headers={"x-adacompute-policy": "four"}).json["adacompute"]["samples"] == 4
        yield running


@pytest.fixture(scope="module")
def process(upstream: Upstream) -> Iterator[Process]:
    with Process(upstream.url, max_body=LIMIT, price=DEAR, max_requests=100) as running:
        yield running


@pytest.fixture(autouse=True)
def afresh(upstream: Upstream) -> None:
    upstream.script = Reply(texts=["The answer is 42."])


def gone(gate: Running) -> int:
    """How many clients went away, by the gateway's metrics."""
    lines = gate.get("/metrics").raw.decode().splitlines()
    counts = [
        line for line in lines if line.startswith("adacompute_requests_total{") and 'status="499"' in line
    ]
    return sum(int(float(line.rpartition(" ")[2])) for line in counts)


# c08: clients that go away

PASSED = {"stream": True, "temperature": 0}
FACT = {"stream": True, "messages": [{"role": "user", "content": "Who keeps the light?"}]}
STORY = {"stream": True, "messages": [{"role": "user", "content": "Write a story about a keeper."}]}
FIRST, FOUR = {"x-adacompute-stream-mode": "first"}, {"x-adacompute-policy": "four"}
LONG = Reply(texts=["once upon a time, " * 30], pieces=30)


def answer_then_stall(_number: int, body: dict[str, Any]) -> Behaviour:
    """Answers what is streamed, and nothing else."""
    return Reply(texts=["The answer is 7."]) if body.get("stream") else Stall()


def stall_all(_number: int, body: dict[str, Any]) -> Behaviour:
    """Stalls: a stream after some chunks, all else at once."""
    return Break(after=3) if body.get("stream") else Stall()


WAYS: dict[str, tuple[dict[str, Any], dict[str, str], Script, int, bytes]] = {
    # fields, headers, the upstream's script, its calls that are under way then, what has come by then
    "plain": ({}, {}, Stall(), 1, b""),
    "plain, in the body": ({}, {}, Stall(before="body"), 1, b""),
    "plain, four calls": ({}, {"x-adacompute-policy": "four"}, Stall(), 4, b""),
    "passed on": (PASSED, {}, Stall(), 1, b""),
    "passed on, in the middle": (PASSED, {}, Break(after=3), 1, b'"content"'),
    "voted": ({"stream": True}, {}, Stall(), 1, b""),
    "voted, four calls": ({"stream": True}, {"x-adacompute-policy": "four"}, Stall(), 4, b""),
    "held back": (FACT, {}, Break(after=3), 1, b""),
    "held back, then passed on": (FACT, {}, Break(after=9, reply=LONG), 1, b'"content":"on'),
    "at once": (STORY, {}, Break(after=3), 1, b'"content"'),
    "first, in the middle": ({"stream": True}, FIRST, Break(after=3), 1, b'"content"'),
    "first, with the others": ({"stream": True}, FIRST | FOUR, stall_all, 4, b'"content"'),
    "first, in the vote": ({"stream": True}, FIRST | FOUR, answer_then_stall, 3, b"7."),
}


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("way", WAYS)
def test_c08_who_goes_away_takes_all_upstream_calls_along(
    gate: Running, upstream: Upstream, way: str, how: str
):
    fields, headers, script, calls, come = WAYS[way]
    upstream.script = script
    before, aborted = gone(gate), upstream.count.aborted
    with connect(gate) as line:
        line.sendall(post(None, headers, **fields))
        got = b""
        while come not in got:
            got += line.recv(65_536)
        until(lambda: (upstream.count.in_flight, gate.gateway.under_way) == (calls, 1))
        end(line, how)
        seconds = until(lambda: upstream.count.in_flight == 0)
        until(lambda: gate.gateway.under_way == 0)
    print(f"{way}, {how}: aborted after {seconds * 1000:.0f} ms")
    assert seconds < 15.0  # 1 s, and what a loaded machine may stall for
    assert upstream.count.aborted - aborted == calls
    account = gate.gateway.resources.ledger.account()
    assert (account.reserved.samples, account.reserved.tokens) == (0, 0)
    assert gone(gate) == before + 1
    upstream.script = Reply(texts=["The answer is 42."])
    assert gate.ask().status == 200


def test_c08_who_goes_away_with_the_body_half_sent_leaves_nothing_behind(gate: Running, upstream: Upstream):
    asked = upstream.count.requests
    for how in ("fin", "rst", "half"):
        with connect(gate) as line:
            line.sendall(post()[:-5])
            end(line, how)
    assert gate.ask().status == 200
    assert gate.gateway.under_way == 0
    assert upstream.count.requests > asked


def test_c08_a_hundred_clients_that_go_away_at_any_moment_leave_nothing_behind(
    gate: Running, upstream: Upstream
):
    upstream.script = Reply(texts=["The answer is 42."], delay=0.02, gap=0.002)
    fields: tuple[dict[str, Any], ...] = ({}, {"stream": True}, PASSED)
    for number in range(100):
        line = connect(gate)
        line.sendall(post(**fields[number % 3]))
        time.sleep(0.0007 * (number % 50))
        end(line, ("fin", "rst")[number % 2])
    until(lambda: gate.gateway.under_way == 0 and upstream.count.in_flight == 0)
    account = gate.gateway.resources.ledger.account()
    assert (account.reserved.samples, account.reserved.tokens) == (0, 0)
    assert gate.gateway.resources.client.in_flight == 0
    until(lambda: b"adacompute_in_flight 0.0" in gate.get("/metrics").raw)  # told some milliseconds later
    assert gate.ask().status == 200


# c09: clients that send too much

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("length", [LIMIT + 1, 10**12, 10**18])
def test_c09_a_body_that_is_announced_too_long_is_refused_before_it_comes(gate: Running, length: int):
    with connect(gate) as line:
        line.sendall(HEAD + b'Content-Length: %d\r\n\r\n{"model": "' % length)
        status, headers, body = reply_of(line)
    assert status == 413
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["error"]["code"] == "request_too_large"


def test_c09_who_waits_for_leave_to_send_too_much_gets_none(gate: Running):
    with connect(gate) as line:
        line.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % 10**9)
        assert reply_of(line)[0] == 413


def test_c09_a_connection_goes_on_after_a_body_that_was_refused_and_dropped(gate: Running):
    with connect(gate) as line:
        for _ in range(3):
            line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (2 * LIMIT))
            assert reply_of(line)[0] == 413
            line.sendall(b"x" * (2 * LIMIT))
            line.sendall(post())
            assert reply_of(line)[0] == 200


@pytest.mark.slow
def test_c09_an_endless_body_is_cut_off_at_the_limit_and_takes_no_memory(
    process: Process, upstream: Upstream
):
    assert process.ask().status == 200
    asked, before, sent = upstream.count.requests, resident(process.pid), 0
    with connect(process) as line:
        line.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        while sent < 2 * LIMIT:
            line.sendall(piece)
            sent += len(piece)
        assert reply_of(line)[0] == 413
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it isn't listened to for ever
            while sent < 100 * LIMIT:
                line.sendall(piece)
                sent += len(piece)
    assert sent < 50 * LIMIT
    grown = resident(process.pid) - before
    print(f"an endless body: {sent / 1e6:.0f} MB sent, memory grew by {grown / 1e6:.1f} MB")
    assert grown < 16_000_000
    assert upstream.count.requests == asked


@pytest.mark.slow
def test_c09_slow_bodies_keep_nobody_out_until_there_are_twice_as_many_as_requests_may_be(process: Process):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connect(process)) for _ in range(150)]
        for line in lines:  # their bodies are still to come
            line.sendall(post()[:-1])
        assert process.ask().status == 200
        more = [stack.enter_context(connect(process)) for _ in range(50)]
        for line in more:
            line.sendall(post()[:-1])
        until(lambda: process.ask().status == 503)
        assert process.ask().error["code"] == "overloaded"
        assert process.get("/readyz").status == 200
        for line in lines + more:
            line.sendall(post()[-1:])
            assert reply_of(line)[0] == 200
    assert process.ask().status == 200


# c13: clients that don't read, and clients that do nothing

TEXT = "a long story " * 80_000  # 1 MB


def latencies(process: Process, count: int = 60) -> tuple[float, float]:
    """Median and 99th percentile of so many requests, one after the other, in seconds."""
    taken = []
    for _ in range(count):
        began = time.monotonic()
        assert process.ask().status == 200
        taken.append(time.monotonic() - began)
    return statistics.median(taken), sorted(taken)[int(0.99 * (count - 1))]


@contextlib.contextmanager
def idle(process: Process) -> Iterator[None]:
    """A thousand connections that say nothing; half of them have asked something before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connect(process)) for _ in range(1000)]
        for line in lines[::2]:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(reply_of(line)[0] == 200 for line in lines[::2])
        yield


@contextlib.contextmanager
def unread(process: Process, upstream: Upstream) -> Iterator[None]:
    """Twenty clients that ask for a megabyte and read nothing of it: half as a stream, half in one piece."""
    asked = upstream.count.requests
    with contextlib.ExitStack() as stack:
        for number in range(20):
            line = stack.enter_context(connect(process, receive=4096))
            line.sendall(post(temperature=0, stream=number % 2 == 0, user="slow"))
        until(lambda: upstream.count.requests >= asked + 20)
        time.sleep(0.3)
        yield


@pytest.mark.slow
def test_c13_idle_clients_and_such_that_do_not_read_cost_little_memory_and_nobody_elses_time(
    process: Process, upstream: Upstream
):
    def script(_number: int, body: dict[str, Any]) -> Reply:
        if body.get("user") == "slow":
            return Reply(texts=[TEXT], pieces=1000)
        return Reply(texts=["The answer is 42."])

    upstream.script = script
    alone, before = latencies(process), resident(process.pid)
    with idle(process), unread(process, upstream):
        crowded, grown = latencies(process), resident(process.pid) - before
    print(
        f"alone {1000 * alone[0]:.1f} ms, p99 {1000 * alone[1]:.1f} ms; among 1,000 idle and 20 that don't "
        f"read {1000 * crowded[0]:.1f} ms, p99 {1000 * crowded[1]:.1f} ms; memory {grown / 1e6:+.1f} MB"
    )
    assert grown < 75_000_000  # 20 MB of replies, in two forms, and what the thread for large ones keeps
    assert crowded[0] < 5 * alone[0] + 0.05
    assert crowded[1] < 5 * alone[1] + 1.0
