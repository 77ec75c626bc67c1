"""The gateway in operation: its end in good order, its memory over time, and what its metrics tell."""

import random
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from behaviours import Behaviour, Break, Honest, Reply, Stall
from crowd import Visit, crowd, until
from running import Answer, Process, Running
from test_server import resident
from test_storm import QUICK, storm, stormy

from upstream import Upstream

ROOT = Path(__file__).resolve().parent.parent.parent
STATE = "adacompute-gateway.sqlite"


def in_thread(gate: Any, **fields: Any) -> "tuple[threading.Thread, list[Answer]]":
    got: list[Answer] = []
    thread = threading.Thread(target=lambda: got.append(gate.ask(**fields)), daemon=True)
    thread.start()
    return thread, got


# c25


@pytest.mark.slow
def test_c25_sigterm_lets_streams_finish_cuts_off_what_takes_longer_and_settles_all(tmp_path: Path):
    def script(_number: int, body: dict[str, Any]) -> Behaviour:
        if body["messages"][0]["content"] == "hang":
            return Break(after=3, how="stall") if body.get("stream") else Stall()
        return Reply(pieces=20, gap=0.05, delay=0.0 if body.get("stream") else 1.0)

    hang = [{"role": "user", "content": "hang"}]
    with Upstream(script) as up, Process(up.url, folder=tmp_path, grace=4.0, cap=100) as gate:
        passed = in_thread(gate, stream=True, temperature=0)
        plain = in_thread(gate, temperature=0)
        stuck = in_thread(gate, temperature=0, messages=hang)
        broken: list[bytes] = []
        breaking = threading.Thread(target=_streamed, args=(gate, hang, broken), daemon=True)
        breaking.start()
        until(lambda: up.count.in_flight == 4)
        began = time.monotonic()
        gate.terminate()
        until(lambda: gate.get("/readyz").status == 503)
        assert gate.get("/healthz").status == 200
        assert gate.ask().status == 503
        assert gate.wait() == 0, gate.log
        took = time.monotonic() - began
        for thread, _ in (passed, plain, stuck):
            thread.join(30)
        breaking.join(30)
    assert 3.5 < took < 4.0 + 10.0  # the grace time, and what a loaded machine may stall for
    assert passed[1][0].status == plain[1][0].status == 200
    assert passed[1][0].raw.rstrip().endswith(b"data: [DONE]")
    assert (stuck[1][0].status, stuck[1][0].error["code"]) == (503, "overloaded")
    assert b"[DONE]" not in broken[0]
    assert "cancelled because their grace period was over: 2" in gate.log
    spent, maybe, reserved = left(tmp_path / STATE)
    assert (spent, maybe, reserved) == (2, 2, 0)


def _streamed(gate: Process, messages: Any, got: list[bytes]) -> None:
    try:
        got.append(gate.ask(stream=True, temperature=0, messages=messages).raw)
    except Exception as exc:  # noqa: BLE001 - broken off, whichever way
        got.append(repr(exc).encode())


def left(state: Path) -> tuple[int, int, int]:
    """Samples spent, possibly spent and reserved, as the file has it."""
    file = sqlite3.connect(f"file:{state}?mode=ro", uri=True)
    spent = file.execute("SELECT sum(samples), sum(maybe_samples) FROM hours").fetchone()
    (reserved,) = file.execute("SELECT coalesce(sum(samples), 0) FROM reserved").fetchone()
    file.close()
    return int(spent[0]), int(spent[1]), int(reserved)


# c26


@pytest.mark.nightly
def test_c26_memory_does_not_grow_in_a_storm_of_mixed_errors(tmp_path: Path):
    rng, sizes = random.Random(26), []
    with (
        Upstream(stormy, keep=0) as up,
        Process(up.url, folder=tmp_path, price=0.02, endpoint=QUICK, log="error") as gate,
    ):
        crowd(gate, storm(200, rng), at_once=60)  # warm: pools of connections, caches of labels and answers
        until_end = time.monotonic() + 5.0
        while time.monotonic() < until_end or len(sizes) < 4:
            crowd(gate, storm(80, rng), at_once=60)
            sizes.append(resident(gate.pid))
        metrics = gate.get("/metrics").raw
        assert b"adacompute_in_flight 0.0" in metrics
        print(f"{up.count.requests} calls; MB {[round(size / 1e6, 1) for size in sizes]}")
        half = len(sizes) // 2
        early, late = min(sizes[:half]), min(sizes[half:])
        assert late - early < 16_000_000  # what a thousand requests leave; the long soak is a benchmark
        until(lambda: up.count.in_flight == 0)
        gate.terminate()
        assert gate.wait() == 0


# c27


def documented() -> set[str]:
    """The metrics that docs/reference/metrics.md lists."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    table = text.partition("\n| metric | |\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {name.removesuffix("_total") for row in rows for name in re.findall(r"`(\w+)`", row)}


def families(text: str) -> set[str]:
    found = set(re.findall(r"^# TYPE adacompute_(\w+) \w+$", text, re.MULTILINE))
    return {name.removesuffix("_total") for name in found if not name.endswith("_created")}


def series(text: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.slow
def test_c27_metrics_are_those_documented_bounded_and_without_any_text_of_a_client():
    canary = "canary prompt 7f3a"
    with Upstream(Honest()) as up, Running(up.url, price=0.5, max_budget=1000.0) as gate:

        def wave(numbers: range) -> str:
            visits = []
            for i in numbers:
                model = {"model": f"model-{canary}-{i}", "user": f"user-{canary}-{i}"}
                text = {"messages": [{"role": "user", "content": f"{canary} {i}: 2 + 2?"}]}
                budget = {"x-adacompute-budget": f"{1 + i}"}
                visits += [Visit(body=model | text, headers=budget)]
                visits += [Visit(headers={"x-adacompute-policy": f"policy-{canary}-{i}".replace(" ", "-")})]
                visits += [Visit(body={f"field-{canary}": i, "temperature": "x"})]
            assert {answer.status for answer in crowd(gate, visits, at_once=16)} <= {200, 400}
            for path in ("nothing", canary.replace(" ", "-"), "v1/models/canary"):
                assert gate.get(f"/{path}-{numbers[0]}").status == 404
            return gate.get("/metrics").raw.decode()

        first = wave(range(100))
        last = wave(range(100, 340))
        board = gate.get("/dashboard/data").raw.decode()
    assert families(last) == {name for name in documented() if not name.startswith("menu_")}
    assert "canary" not in last
    assert "canary" not in board  # texts are shown only where the operator allows
    assert len(series(last)) < 1500
    # buckets that only now have something in them are there from the start: no more series at all
    assert series(last) - series(first) == set()
    assert up.count.requests >= 340
