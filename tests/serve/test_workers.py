"""`serve --workers`: real processes at one port, with one ledger and one price in a real Redis."""

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest, Reply
from crowd import Visit, crowd, until
from running import Answer, Process
from test_mode_status import make_observability
from test_server import certificate  # noqa: F401 - a fixture
from traffic import Clock, Policy, chart, menu_request, request

from adacompute.config import Config, EndpointConfig, ServeConfig
from adacompute.errors import ConfigError
from adacompute.policies import FixedPolicy
from adacompute.pool import open_pool
from adacompute.records import Call
from adacompute.serve.http import workers
from adacompute.serve.pricing.fleet import FleetStatus
from adacompute.serve.watching.board import merge_boards
from adacompute.serve.watching.observability import Observability
from clusters import RedisServer
from upstream import Upstream

SURE = Reply(texts=["The answer is 42."])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are read from /proc")


def list_workers(pid: int) -> list[int]:
    """The workers of a gateway."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if b"run_worker" in read_words(child)[5]]


def read_words(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") + [b""] * 7
    return [b""] * 7


def find_folder(worker: int) -> Path:
    return Path(read_words(worker)[6].decode())


def count_own(worker: int) -> dict[str, Any]:
    """What one worker has counted by itself."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(find_folder(worker) / f"{worker}.sock"))
        asking.sendall(b"\n")
        with asking.makefile("rb") as reply:
            return json.loads(reply.read())


def read_metric(gate: Process, name: str) -> float:
    text = gate.get("/metrics").raw.decode()
    return sum(float(value) for value in re.findall(rf"^adacompute_{name}(?:{{.*}})? (\S+)$", text, re.M))


def list_lines(gate: Process, words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gate.log.splitlines() if words in line]


def serve(up: Upstream, redis_server: RedisServer, folder: Path, *words: str, **settings: Any) -> Process:
    return Process(up.url, *words, folder=folder, redis=redis_server.url, workers=2, **settings)


def ask_aside(gate: Process, got: list[Answer], count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=lambda: got.append(gate.ask())) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.slow
def test_two_processes_serve_one_port_with_one_cap_and_all_that_is_shown_and_recorded_is_of_both(
    redis_server: RedisServer, tmp_path: Path
):
    cap, pool = 150, tmp_path / "traffic.sqlite"
    with (
        Upstream(Honest(latency=0.01)) as up,
        serve(up, redis_server, tmp_path, cap=cap, record=str(pool)) as gate,
    ):
        pids = list_workers(gate.pid)
        assert len(pids) == 2
        answers = crowd(gate, [Visit() for _ in range(200)], at_once=24)
        statuses = Counter(answer.status for answer in answers if answer is not None)
        assert set(statuses) == {200, 429}
        assert cap - 16 < up.count.choices <= cap
        drawn = sum(answer.json["adacompute"]["samples"] for answer in answers if answer.status == 200)
        assert drawn == up.count.choices
        own = [count_own(pid)["requests"] for pid in pids]
        assert all(own)
        assert sum(own) == 200
        assert read_metric(gate, "requests_total") == 200
        assert read_metric(gate, "samples_sum") == drawn
        assert read_metric(gate, "upstream_calls_total") == up.count.requests
        assert read_metric(gate, "overall_average_samples") == pytest.approx(drawn / statuses[200])
        boards = [gate.get("/dashboard/data").json for _ in range(8)]  # whichever worker answers
        assert {board["requests"] for board in boards} == {200}
        assert {board["total"]["samples"] for board in boards} == {drawn}
        until(lambda: gate.get("/dashboard/data").json["spend"][0]["spent"] == drawn)  # read once a second
        until(lambda: gate.get("/dashboard/data").json["recorder"] == {"stored": statuses[200], "dropped": 0})
        assert read_metric(gate, "fleet_replicas") == 3  # the main process is one of them
        assert len(list_lines(gate, '"message":"request"')) == 200
        folder = find_folder(pids[0])
        files = list(folder.glob("*.db"))  # mapped into memory: where they have no space, writing kills
        assert {path.name.split("_")[0] for path in files} == {"counter", "gauge", "histogram"}
        assert all(512 * path.stat().st_blocks >= path.stat().st_size == 2**20 for path in files)
        gate.terminate()
        assert gate.wait() == 0, gate.log
        assert not folder.exists()
    with open_pool(pool) as recorded:
        assert recorded.counts().samples == drawn


@pytest.mark.slow
def test_both_serve_at_one_price_that_meets_the_budget(redis_server: RedisServer, tmp_path: Path):
    budget = 3.0
    with Upstream() as up, serve(up, redis_server, tmp_path, budget=budget) as gate:
        answers = crowd(gate, [Visit() for _ in range(250)], at_once=8)
        assert {answer.status for answer in answers} == {200}
        samples = [answer.json["adacompute"]["samples"] for answer in answers]
        assert sum(samples) / len(samples) == pytest.approx(budget, rel=0.12)

        def list_prices() -> set[float]:
            return {count_own(pid)["dials"][0]["price"] for pid in list_workers(gate.pid)}

        until(lambda: len(list_prices()) == 1)
        assert read_metric(gate, "price") in list_prices()


@pytest.mark.slow
def test_a_killed_worker_comes_back_and_no_count_is_lost_and_after_the_main_process_is_killed_none_is_left(
    redis_server: RedisServer, tmp_path: Path
):
    pool = tmp_path / "traffic.sqlite"
    with (
        Upstream(Honest(latency=0.05)) as up,
        serve(up, redis_server, tmp_path, cap=100_000, record=str(pool)) as gate,
    ):
        first = list_workers(gate.pid)
        assert {answer.status for answer in crowd(gate, [Visit()] * 40, at_once=20)} == {200}
        counted = count_own(first[0])["requests"]
        assert counted > 0
        got: list[list[Answer | None]] = []
        storming = threading.Thread(
            target=lambda: got.append(crowd(gate, [Visit() for _ in range(300)], at_once=20))
        )
        storming.start()
        drawn = up.count.choices
        until(lambda: up.count.choices > drawn + 50)
        os.kill(first[0], signal.SIGKILL)
        storming.join(60)
        until(lambda: list_lines(gate, "serves again"))
        assert {answer.status for answer in got[0] if answer is not None} == {200}
        answered = [answer for answer in got[0] if answer is not None]
        assert 100 < len(answered) < 300, "some connections broke off, and all others were served"
        second = list_workers(gate.pid)
        assert len(second) == 2
        assert len(set(first) & set(second)) == 1
        assert read_metric(gate, "requests_total") >= counted + count_own(first[1])["requests"]
        assert "it is started again" in gate.log
        until(lambda: count_own(second[-1])["fleet"]["replicas"] == 3)

        def has_all_spending() -> bool:  # the dashboard's sums may be a second old
            spent = gate.get("/dashboard/data").json["spend"][0]
            return bool(spent["spent"] + spent["maybe"] + spent["reserved"] >= up.count.choices)

        until(has_all_spending)
        # some of the twenty requests that were under way may not have been handed over
        stored = gate.get("/dashboard/data").json["recorder"]["stored"]
        assert stored >= 40 + len(answered) - 20
        folder = find_folder(second[0])
        gate.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in second))
    shutil.rmtree(folder)  # nobody could
    with open_pool(pool) as recorded:
        assert recorded.verify().ok
        assert recorded.counts().samples >= stored


@pytest.mark.slow
def test_signals_reach_all_workers(redis_server: RedisServer, tmp_path: Path):
    mine = tmp_path / "mine"
    FixedPolicy(2.0).save(mine)
    with Upstream(SURE) as up, serve(up, redis_server, tmp_path, policy=str(mine)) as gate:
        assert {gate.ask().json["adacompute"]["samples"] for _ in range(6)} == {2}
        FixedPolicy(4.0).save(mine)
        gate.signal(signal.SIGHUP)
        until(lambda: len(list_lines(gate, "serves now, in place of")) == 3)  # the main process says so too
        assert {gate.ask().json["adacompute"]["samples"] for _ in range(8)} == {4}
        up.script = Honest(latency=1.5)
        got: list[Answer] = []
        asking = ask_aside(gate, got, 4)
        until(lambda: read_metric(gate, "in_flight") == 4)
        for pid in (*list_workers(gate.pid), gate.pid):  # as Ctrl-C does: to the whole group
            os.kill(pid, signal.SIGINT)
        for each in asking:
            each.join(60)
        assert [answer.status for answer in got] == [200] * 4
        assert gate.wait() == 0, gate.log
        assert not list_lines(gate, "Traceback")


@pytest.mark.nightly  # test_server.py has it for one
def test_a_second_signal_ends_all_workers_at_once(redis_server: RedisServer, tmp_path: Path):
    with (
        Upstream(Honest(latency=300.0)) as up,
        serve(up, redis_server, tmp_path, grace=600.0) as gate,
    ):
        got: list[Answer] = []
        asking = ask_aside(gate, got, 3)
        until(lambda: up.count.in_flight)
        gate.terminate()
        until(lambda: len(list_lines(gate, "stopping:")) == 2)
        gate.terminate()
        assert gate.wait() == 0, gate.log
        for each in asking:
            each.join(30)
        assert {answer.status for answer in got} == {503}
        with pytest.raises((OSError, http.client.HTTPException)):
            gate.get("/healthz")


@pytest.mark.slow
def test_clients_need_their_keys_at_every_worker_over_https_and_the_port_is_the_gateways_own(
    redis_server: RedisServer,
    tmp_path: Path,
    certificate: Path,  # noqa: F811
    adacompute: Any,
):
    (tmp_path / "keys.toml").write_text('[ann]\nkey = "sk-ann-0123456789abcdef"\ncap = 6\n', "utf-8")
    ann = {"authorization": "Bearer sk-ann-0123456789abcdef"}
    files = {"tls_cert": str(certificate / "one.pem"), "tls_key": str(certificate / "one.key")}
    with Upstream(SURE) as up:
        gate = serve(up, redis_server, tmp_path, keys_file=str(tmp_path / "keys.toml"), price=1.0, **files)
        gate.context = ssl.create_default_context(cafile=certificate / "one.pem")
        with gate:
            assert [gate.ask().status for _ in range(4)] == [401] * 4
            assert [gate.ask(headers=ann).status for _ in range(8)] == [200] * 6 + [429] * 2
            assert up.count.choices == 6
            assert gate.get("/metrics", ann).status == 403
            port = gate.base.rpartition(":")[2]
            words = ("--upstream", up.url, "--port", port, "--redis", redis_server.url)
            for count in ("1", "2"):
                refused = adacompute("serve", *words, "--workers", count, code=1)
                assert f"port {port} of 127.0.0.1 is in use" in refused.stderr


def test_workers_do_not_say_that_settings_are_reloaded_if_they_are_not(
    redis_server: RedisServer, tmp_path: Path
):
    settings = tmp_path / "settings.toml"
    settings.write_text("[serve]\nbudget = 2\n", "utf-8")
    with Upstream(SURE) as up, serve(up, redis_server, tmp_path, "--config", str(settings)) as gate:
        settings.write_text("[serve]\nbudget = nothing\n", "utf-8")
        gate.signal(signal.SIGHUP)
        until(lambda: list_lines(gate, "settings not reloaded"))
        until(lambda: [count_own(pid)["reloads"]["ok"] for pid in list_workers(gate.pid)] == [1, 1])
        assert not list_lines(gate, "nothing has changed")


def test_a_temporary_folder_whose_name_is_too_long_for_sockets_is_said(
    redis_server: RedisServer, tmp_path: Path, installed: Any
):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    words = ("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--workers", "2")
    refused = installed(*words, "--redis", redis_server.url, code=1, TMPDIR=str(folder))
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "too long for sockets in it; set TMPDIR to a shorter one" in refused.stderr


def test_a_worker_that_is_started_again_has_the_keys_of_the_others(redis_server: RedisServer, tmp_path: Path):
    keys, text = tmp_path / "keys.toml", '[{0}]\nkey = "sk-{0}-0123456789abcdef"\n'
    keys.write_text(text.format("ann"), "utf-8")
    with Upstream(SURE) as up, serve(up, redis_server, tmp_path, keys_file=str(keys), price=1.0) as gate:
        keys.write_text(text.format("bob"), "utf-8")
        for worker in list_workers(gate.pid):
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(list_lines(gate, "serves again")) == 2)
        for name, status in (("ann", 200), ("bob", 401)):
            headers = {"authorization": f"Bearer sk-{name}-0123456789abcdef"}
            assert {gate.ask(headers=headers).status for _ in range(4)} == {status}


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_without_redis_workers_are_refused_in_one_line(words: tuple[str, ...], adacompute: Any):
    with Upstream(SURE) as up:
        done = adacompute("serve", "--upstream", up.url, "--port", "0", "--workers", "2", *words, code=1)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "workers 2 need a ledger that they share" in done.stderr
    assert "give --redis URL, or leave --workers out" in done.stderr


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "workers is 0; give a whole number from 1 to 64"),
        ("65", "workers is 65; give a whole number from 1 to 64"),
        ("x", "--workers"),
    ],
)
def test_a_number_of_workers_that_cant_be_is_one_line(value: str, words: str, adacompute: Any):
    done = adacompute("serve", "--upstream", "http://127.0.0.1:9/v1", "--workers", value, code=None)
    assert done.returncode in (1, 2)
    assert words in done.stderr


def test_a_worker_that_cant_serve_ends_the_whole(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workers, "_WORKER_CODE", "raise SystemExit(3)")
    with Upstream(SURE) as up, pytest.raises(ConfigError, match=r"worker \d can't serve: exit code 3"):
        workers.serve(
            Config(
                serve=ServeConfig(port=0, workers=2, redis=redis_server.url),
                endpoint=EndpointConfig(url=up.url),
            ),
            on_listening=print,
            on_open=lambda _: None,
            reread=Config,
        )


def test_a_worker_says_why_it_cant_serve_and_ends(tmp_path: Path):
    words = [sys.executable, "-c", workers._WORKER_CODE, str(tmp_path), *sys.path]
    config = {"endpoint": {"url": "http://127.0.0.1:9/v1"}, "serve": {"redis": "redis://127.0.0.1:9"}}
    settings = json.dumps({"config": config, "keys": []})
    done = subprocess.run(words, input=f"{settings}\n".encode(), capture_output=True, timeout=60, check=False)
    assert b"can't be reached" in done.stdout


def make_whole_and_parts(make: Any) -> tuple[Observability, list[Observability]]:
    seen = [make(), make(), make()]
    for one in seen:
        one.read_fleet = lambda: FleetStatus(replicas=3, pacemaker=False, age=0.0)
        one.read_recorder = lambda: (0, 0)
    return seen[0], seen[1:]


@pytest.mark.parametrize("menu", [False, True])
@pytest.mark.parametrize("span", ["", "hour", "day"])
def test_what_two_have_counted_is_merged_into_what_one_would_have(menu: bool, span: str):
    clock, rng = Clock(), random.Random(4)
    make = (lambda: make_observability(clock)) if menu else (lambda: Observability(ServeConfig(), now=clock))
    whole, parts = make_whole_and_parts(make)
    for seen in (whole, *parts):
        budget = {"budget": 0.001, "unit": "money"} if menu else {"budget": 2.0}
        seen.on_policy(
            Policy("menu" if menu else "stopping", "3f9c2a1e", None if menu else chart()), **budget
        )
    for i in range(300):
        clock.at += 11
        outcome = menu_request(clock.at, rng) if menu else request(clock.at, rng)
        for seen in (whole, parts[0] if rng.random() < 0.7 else parts[1]):
            seen.on_request_start()
            seen.on_call(Call(at=clock.at, seconds=0.1, asked=1, got=1, kind="ok" if i % 5 else "timeout"))
            seen.on_request_end(outcome)
            if i % 50 == 0:
                seen.on_refusal(401, "invalid_api_key")
    describe = (lambda seen: seen.dashboard_data(span)) if span else (lambda seen: seen.summarise())
    expected, merged = describe(whole), merge_boards([describe(part) for part in parts])
    by_share = {"drift", "savings"}  # each worker's own
    if menu and span:
        for board in (expected, merged):
            for mode in board["menu"]["modes"]:
                del mode["agreement"]
    for name in expected.keys() - by_share:
        assert round_numbers(merged[name]) == round_numbers(expected[name]), name


def round_numbers(value: Any) -> Any:
    """The same data with numbers that can be compared."""
    if isinstance(value, dict):
        return {name: round_numbers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(item) for item in value]
    return pytest.approx(value, rel=1e-3, abs=1e-3) if isinstance(value, float) else value
