"""Several processes behind one port: one ledger, one price, one face, and they stop as one."""

import contextlib
import http.client
import json
import logging
import os
import re
import signal
import socket
import sqlite3
import ssl
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest, Reply
from crowd import Visit, crowd, until
from menus import MenuUpstreams, list_questions
from running import Answer, Process, Running
from test_menu_gateway import ask, read_extra
from test_menu_gateway import run as serve_menu
from test_server import certificate  # noqa: F401 - a fixture
from test_storm import taken_of

from adacompute.errors import ConfigError
from adacompute.policies import FixedPolicy
from adacompute.pool import open_pool
from adacompute.serve import server
from clusters import RedisServer
from upstream import Upstream

STATE = "adacompute-gateway.sqlite"
SURE = Reply(texts=["The answer is 42."])
linux = pytest.mark.skipif(sys.platform != "linux", reason="children and open files are read from /proc")


def children(pid: int) -> list[int]:
    """The processes that a process has started, without those that they have started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if b"run_worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def sockets(pid: int) -> set[str]:
    """The sockets that a process holds."""
    held = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if (link := str(each.readlink())).startswith("socket:"):
                held.add(link)
    return held


def count_held(workers: list[int], clients: list[socket.socket]) -> list[int]:
    """How many of these clients' connections each worker holds."""
    ports = {each.getsockname()[1] for each in clients}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    server_port = clients[0].getpeername()[1]
    ends = {
        f"socket:[{row[9]}]"
        for row in rows
        if int(row[1][-4:], 16) == server_port and int(row[2][-4:], 16) in ports
    }
    return [len(sockets(pid) & ends) for pid in workers]


def metric(gate: Any, name: str) -> float:
    text = gate.get("/metrics").raw.decode()
    return sum(float(value) for value in re.findall(rf"^adacompute_{name}(?:{{.*}})? (\S+)$", text, re.M))


def lines(gate: Process, words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gate.log.splitlines() if words in line]


def check_settled(gate: Any, up: Upstream) -> dict[str, float]:
    """What the gateway has taken, when nothing is under way: it covers what the upstream gave."""
    until(lambda: up.count.in_flight == 0)
    taken = taken_of(gate)
    assert taken["spent"] <= up.count.choices <= taken["spent"] + taken["maybe"]
    assert (taken["reserved"], metric(gate, "in_flight")) == (0, 0)
    return taken


@linux
@pytest.mark.slow
def test_caps_are_exact_and_all_that_is_shown_is_of_the_whole_and_connections_are_spread(tmp_path: Path):
    cap = 150
    pool = tmp_path / "traffic.sqlite"
    with (
        Upstream(Honest(latency=0.01)) as up,
        Process(up.url, folder=tmp_path, workers=3, cap=cap, record=str(pool), concurrency=30) as gate,
    ):
        workers = children(gate.pid)
        assert len(workers) == 3
        where = ("127.0.0.1", int(gate.base.rpartition(":")[2]))
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(socket.create_connection(where, timeout=60)) for _ in range(12)]
            for each in idle:
                each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert each.recv(65_536).startswith(b"HTTP/1.1 200")
            assert count_held(workers, idle) == [4, 4, 4]
        answers = crowd(gate, [Visit() for _ in range(200)], at_once=24)
        statuses = Counter(answer.status for answer in answers if answer is not None)
        assert set(statuses) == {200, 429}
        taken = taken_of(gate)
        assert taken == {"spent": up.count.choices, "maybe": 0, "reserved": 0}
        assert cap - 16 < up.count.choices <= cap
        drawn = sum(answer.json["adacompute"]["samples"] for answer in answers if answer.status == 200)
        assert drawn == up.count.choices
        assert metric(gate, "requests_total") == 200
        assert metric(gate, "samples_sum") == drawn
        assert metric(gate, "upstream_calls_total") == up.count.requests
        assert metric(gate, "in_flight") == 0
        boards = [gate.get("/dashboard/data").json for _ in range(6)]  # whichever worker answers
        assert {board["requests"] for board in boards} == {200}
        assert len(lines(gate, '"message":"request"')) == 200
        gate.terminate()
        assert gate.wait() == 0
    with open_pool(pool) as recorded:
        assert recorded.counts().samples == drawn


@linux
@pytest.mark.slow
def test_the_average_is_on_target_with_two_workers(tmp_path: Path):
    budget = 3.0
    with Upstream() as up, Process(up.url, folder=tmp_path, workers=2, budget=budget) as gate:
        answers = crowd(gate, [Visit() for _ in range(500)], at_once=8)
        assert {answer.status for answer in answers} == {200}
        samples = [answer.json["adacompute"]["samples"] for answer in answers]
        average = sum(samples) / len(samples)
        print(f"average {average:.3f}")
        assert abs(average - budget) / budget < 0.06
        assert metric(gate, "overall_average_samples") == pytest.approx(average)
        assert metric(gate, "average_samples") == pytest.approx(average)
        assert sum(samples) == up.count.choices == taken_of(gate)["spent"]


@linux
@pytest.mark.slow
def test_a_killed_worker_comes_back_and_after_the_gateway_is_killed_nothing_is_left_or_lost(tmp_path: Path):
    with Upstream(Honest(latency=0.05)) as up:
        with Process(up.url, folder=tmp_path, workers=2, cap=100_000) as gate:
            first = children(gate.pid)
            come = [Visit() for _ in range(300)]
            got: list[list[Answer | None]] = []
            storming = threading.Thread(target=lambda: got.append(crowd(gate, come, at_once=20)))
            storming.start()
            until(lambda: up.count.choices > 50)
            os.kill(first[0], signal.SIGKILL)
            storming.join(60)
            until(lambda: lines(gate, "serves again"))
            assert {answer.status for answer in got[0] if answer is not None} == {200}
            answered = sum(answer is not None for answer in got[0])
            assert 250 < answered < 300, "some connections broke off, and all others were served"
            taken = check_settled(gate, up)
            assert 0 < taken["maybe"] <= 10 * 16  # of its ten requests under way
            assert "which died, count as spent in full" in gate.log
            second = children(gate.pid)
            assert len(second) == 2
            assert len(set(first) & set(second)) == 1
            storming = threading.Thread(target=lambda: got.append(crowd(gate, come, at_once=20)))
            storming.start()
            drawn = up.count.choices
            until(lambda: up.count.choices > drawn + 50)
            gate.kill()
            storming.join(60)
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in second))
        until(lambda: up.count.in_flight == 0)
        with Process(up.url, folder=tmp_path, cap=100_000) as gate:  # one process takes the same file over
            after = taken_of(gate)
            assert after["reserved"] == 0
            assert after["spent"] <= up.count.choices <= after["spent"] + after["maybe"]
            assert after["spent"] > taken["spent"]


@linux
@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_and_comes_back_and_what_it_had_reserved_may_be_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(server, "_BEAT_SECONDS", 0.3)
    caplog.set_level(logging.INFO, "adacompute.serve")
    with (
        Upstream(Honest(latency=0.05)) as up,
        Running(up.url, folder=tmp_path, workers=2, cap=100_000) as gate,
    ):
        first = children(os.getpid())
        got: list[list[Answer | None]] = []
        come = [Visit() for _ in range(200)]
        storming = threading.Thread(target=lambda: got.append(crowd(gate, come, at_once=20)))
        storming.start()
        until(lambda: up.count.choices > 50)
        os.kill(first[0], signal.SIGSTOP)
        storming.join(60)
        assert not storming.is_alive(), "connections of the worker that hangs break off"
        until(lambda: "serves again" in caplog.text)
        assert {answer.status for answer in got[0] if answer is not None} == {200}
        answered = sum(answer is not None for answer in got[0])
        assert 100 < answered < 200, "those that the other worker had, or got after that, were served"
        taken = check_settled(gate, up)
        assert taken["maybe"] > 0
        second = children(os.getpid())
        assert len(second) == 2
        assert first[0] not in second
        assert first[1] in second
        assert {gate.ask().status for _ in range(4)} == {200}
    ends = [record.getMessage() for record in caplog.records if "has ended" in record.getMessage()]
    assert len(ends) == 1
    assert "(exit code -9): it answered nothing for 3 s and was killed; it is started again" in ends[0]


@linux
@pytest.mark.slow
def test_signals_reload_and_drain_all_workers_as_one(tmp_path: Path):
    mine = tmp_path / "mine"
    FixedPolicy(2.0).save(mine)
    with Upstream(SURE) as up, Process(up.url, folder=tmp_path, workers=2, policy=str(mine)) as gate:
        assert {gate.ask().json["adacompute"]["samples"] for _ in range(4)} == {2}
        FixedPolicy(4.0).save(mine)
        gate.signal(signal.SIGHUP)
        until(lambda: lines(gate, "serves now, in place of"))
        assert {gate.ask().json["adacompute"]["samples"] for _ in range(6)} == {4}
        assert metric(gate, "reloads_total") == 1
        assert len(lines(gate, "serves now, in place of")) == 1
        up.script = Honest(latency=1.5)
        got: list[Answer] = []
        asking = [threading.Thread(target=lambda: got.append(gate.ask())) for _ in range(4)]
        for each in asking:
            each.start()
        until(lambda: metric(gate, "in_flight") == 4)
        for pid in (*children(gate.pid), gate.pid):  # as Ctrl-C does: to the whole group
            os.kill(pid, signal.SIGINT)
        until(lambda: not gate.ready())
        for each in asking:
            each.join(60)
        assert [answer.status for answer in got] == [200] * 4
        assert gate.wait() == 0, gate.log
        assert len(lines(gate, "stopping:")) == len(lines(gate, '"stopped"')) == 1
        assert not lines(gate, "Traceback")
    assert stored_samples(tmp_path / STATE) == up.count.choices


def stored_samples(state: Path) -> int:
    file = sqlite3.connect(f"file:{state}?mode=ro", uri=True)
    (samples,) = file.execute("SELECT coalesce(sum(samples + maybe_samples), 0) FROM hours").fetchone()
    (reserved,) = file.execute("SELECT count(*) FROM reserved").fetchone()
    file.close()
    assert reserved == 0
    return int(samples)


@pytest.mark.slow
def test_with_redis_a_gateway_and_its_workers_are_one_replica_and_the_cap_holds_for_the_fleet(
    redis_server: RedisServer, tmp_path: Path
):
    cap, together = 60, {"redis": redis_server.url, "cap": 60}
    (tmp_path / "other").mkdir()
    with (
        Upstream(Honest(latency=0.01)) as up,
        Running(up.url, folder=tmp_path, workers=2, **together) as gate,
        Running(up.url, folder=tmp_path / "other", **together) as other,
    ):
        got: list[list[Answer | None]] = []
        asking = [
            threading.Thread(target=lambda each=each: got.append(crowd(each, [Visit()] * 60, at_once=8)))
            for each in (gate, other)
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join(60)
        assert {answer.status for answers in got for answer in answers} == {200, 429}
        assert cap - 16 < up.count.choices <= cap
        for each in (gate, other):
            until(lambda each=each: taken_of(each)["spent"] == up.count.choices)  # read once a second
            assert metric(each, "fleet_replicas") == 2


@pytest.mark.slow
def test_a_menus_cascades_follow_what_samples_of_all_workers_cost(tmp_path: Path):
    more = {"small": "options = { max_tokens = 10 }"}  # so that the first guess of costs is far off
    with (
        MenuUpstreams(seed=8) as menu,
        serve_menu(menu, tmp_path, "", workers=2, explore=0.3, budget="0.0005 USD", more=more) as gate,
    ):
        registry = gate.gateway.policy_registry
        guessed = registry.get("menu").menu.costs.tolist()
        extras = [read_extra(ask(gate, question)) for _, question in list_questions(100, seed=9)]
        until(lambda: registry.get("menu").menu.costs.tolist() != guessed)
        assert registry.get("menu").menu.costs.tolist() == pytest.approx([0.05, 1.0], rel=0.05)
        assert ask(gate, list_questions(1)[0][1]).status == 200
        shown = gate.get("/dashboard/data").json
    assert {name for extra in extras for name in extra["modes"]} == {"small", "large"}
    assert shown["menu"]["requests"] == shown["requests"] == 101
    assert sum(mode["samples"] for mode in shown["menu"]["modes"]) == sum(menu.count_samples().values())


@pytest.mark.slow
def test_under_a_cap_on_tokens_workers_bound_requests_and_refuse_what_cant_be_counted(tmp_path: Path):
    with Upstream(SURE) as up, Process(up.url, folder=tmp_path, workers=2, unit="tokens", cap=10**6) as gate:
        assert gate.ask().status == 200
        assert up.requests[-1].body["max_tokens"] > 0  # the client gave none
        refused = gate.ask({"input_file_id": "f"}, path="/v1/batches")
        assert (refused.status, refused.error["code"]) == (403, "cost_unknown")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 2, "max_requests": 1}, "workers 2 is more than max_requests 1, which they share"),
        ({"workers": 3, "concurrency": 2}, "workers 3 is more than concurrency 2, which they share"),
    ],
)
def test_what_cant_be_shared_is_refused(settings: dict[str, Any], words: str):
    with Upstream(SURE) as up, pytest.raises(ConfigError, match=words), Running(up.url, **settings):
        pass


@pytest.mark.parametrize(
    ("value", "words"),
    [("0", "workers 0 can't be used; give 1 to 64"), ("65", "workers 65 can't be used"), ("x", "--workers")],
)
def test_a_number_of_workers_that_cant_be_is_one_line(value: str, words: str, adacompute: Any):
    done = adacompute("serve", "--upstream", "http://127.0.0.1:9/v1", "--workers", value, code=None)
    assert done.returncode in (1, 2)
    assert words in done.stderr


def test_a_worker_that_never_gets_ready_ends_the_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_WORKER_CODE", "raise SystemExit(3)")
    monkeypatch.setattr(server, "_RESTART_SECONDS", 0.01)
    with (
        Upstream(SURE) as up,
        pytest.raises(ConfigError, match=r"worker \d ended 3 times .*exit code 3"),
        Running(up.url, workers=2),
    ):
        pass


def test_clients_need_their_keys_at_every_worker_over_https(tmp_path: Path, certificate: Path):  # noqa: F811
    (tmp_path / "keys.toml").write_text('[ann]\nkey = "sk-ann-0123456789abcdef"\ncap = 6\n', "utf-8")
    ann = {"authorization": "Bearer sk-ann-0123456789abcdef"}
    files = {"tls_cert": str(certificate / "one.pem"), "tls_key": str(certificate / "one.key")}
    with Upstream(SURE) as up:
        gate = Running(
            up.url, folder=tmp_path, workers=2, keys_file=str(tmp_path / "keys.toml"), price=1.0, **files
        )
        gate.context = ssl.create_default_context(cafile=certificate / "one.pem")
        with gate:
            assert [gate.ask().status for _ in range(4)] == [401] * 4
            assert [gate.ask(headers=ann).status for _ in range(8)] == [200] * 6 + [429] * 2
            assert up.count.choices == 6
            assert gate.get("/metrics", ann).status == 403


@pytest.mark.slow
def test_a_second_signal_ends_all_workers_at_once():
    with Upstream(Honest(latency=300.0)) as up, Process(up.url, workers=2, grace=600.0) as gate:
        got: list[Answer] = []
        asking = threading.Thread(target=lambda: got.append(gate.ask()))
        asking.start()
        until(lambda: up.count.in_flight)
        gate.terminate()
        until(lambda: not gate.ready())
        gate.terminate()
        assert gate.wait() == 0, gate.log
        asking.join(30)
        assert got[0].status == 503
        with pytest.raises((OSError, http.client.HTTPException)):
            gate.get("/healthz")
