"""The benchmarks of the gateway still run, on little; their speed is nobody's test."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module


def test_the_bare_proxy_passes_on_what_the_upstream_gives_and_the_load_counts_it(benchmarks, tmp_path: Path):
    serving, processes = benchmarks("benchmarks.serving"), benchmarks("benchmarks.processes")
    with processes.upstream() as url, serving.bare(url, tmp_path) as proxy:
        found = serving.asked(proxy, 2, 0.3)
        assert found["whole"] == serving.drawn(proxy) > 0
        assert found["cpu"] > 0


@pytest.mark.slow
def test_an_embedding_goes_through_the_bare_proxy_and_through_the_gateway(benchmarks, tmp_path: Path):
    serving, processes = benchmarks("benchmarks.serving"), benchmarks("benchmarks.processes")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        processes.upstream() as url,
        serving.bare(url, tmp_path / "a") as proxy,
        serving.gateway(url, tmp_path / "b") as ours,
    ):
        for way in (proxy, ours):
            assert serving.asked(serving._embed(way), 2, 0.3)["whole"] > 0


def test_the_upstream_gives_as_many_choices_as_asked_and_streams(benchmarks):
    upstream = benchmarks("benchmarks.upstream")
    body = json.loads(upstream.reply(8, logprobs=True, size=600).partition(b"\r\n\r\n")[2])
    assert len(body["choices"]) == 8
    assert all(abs(len(choice["message"]["content"]) - 600) < 10 for choice in body["choices"])
    told = b"".join(upstream.events(600, 1))
    assert told.count(b"data: ") == upstream.PIECES + 3
    assert told.endswith(b"0\r\n\r\n")


def test_a_slope_is_not_moved_by_a_spike(benchmarks):
    slope = benchmarks("benchmarks.soak").slope
    held = [(float(i), 1000 + 3 * i) for i in range(100)]
    assert slope(held) == 3.0
    held[40] = (40.0, 10**9)
    assert slope(held) == 3.0


def test_the_command_knows_its_names():
    words = [sys.executable, "-m", "benchmarks", "nothing"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "soak" in done.stderr


@pytest.mark.slow
def test_the_table_of_peers_shows_a_peer_that_can_t_be_had_and_why(benchmarks, monkeypatch):
    serving, peers = benchmarks("benchmarks.serving"), benchmarks("benchmarks.peers")
    gateway = benchmarks("benchmarks.gateway")

    def refuse(*_: object) -> None:
        raise peers.Absent("no registry here")

    monkeypatch.setattr(peers, "litellm", refuse)
    monkeypatch.setattr(serving, "SECONDS", 0.2)
    rows = (serving.Row("bare"), serving.Row("litellm"), serving.Row("single", beside="litellm", aim=20.0))
    lines = serving.peers_beside(connections=(1, 2), rounds=2, rows=rows)
    monkeypatch.setattr(serving, "peers_beside", lambda: lines)
    monkeypatch.setattr(serving, "COMPARED", 2)
    bare, absent, single = gateway.rates_table()
    assert absent["server"].endswith("not measured, no registry here")
    assert absent["1 connection"] == absent["of the peer's"] == single["aim"] == "–"
    assert float(bare["2 connections"].split()[0].replace(",", "")) > 0
    assert "×" in single["of the bare proxy's"]


@pytest.mark.slow
def test_memory_is_watched_after_the_requests_and_over_the_minutes(benchmarks, monkeypatch):
    soak = benchmarks("benchmarks.soak")
    monkeypatch.setattr(soak, "TURN", 0.2)
    row = soak.run(0.1, requests=20)
    assert row["filled"] >= 20
    assert row["processes"] >= 1
    assert 10**7 < row["resident"] < 10**9
    assert row["requests"] == sum(row["got"].values()) > 0
    assert row["first"] > 0
