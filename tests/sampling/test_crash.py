"""kill -9, Ctrl-C, a full disk, a second collector: nothing that was paid for is lost or bought twice."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from collecting import asking, count, planned, process, run, stored
from killed import CONCURRENCY, PROBLEMS, SAMPLES
from wires import until

from adacompute.client import Timeouts
from adacompute.errors import PoolFull, PoolLocked
from adacompute.pool import open_pool
from tiers import leave_to_nightly
from upstream import Honest, Upstream

KILLED = Path(__file__).with_name("killed.py")
COMMAND = Path(sys.executable).parent / "adacompute"
KILLS = 50


@pytest.mark.slow
@pytest.mark.parametrize("manners", leave_to_nightly(["ignore", "honour"]))
def test_c29_killed_at_many_random_points_and_resumed_it_has_exactly_the_planned_samples(
    tmp_path: Path, manners: str
):
    path = tmp_path / "pool.sqlite"
    kills = KILLS if manners == "ignore" else 10
    with process("--n", manners, "--latency", "0.01") as url:
        words = [sys.executable, str(KILLED), url, str(path), str(kills), "29"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        served = count(url)
    with open_pool(path) as pool:
        found, account = stored(pool), pool.account("scripted", asking().parameters)
        assert pool.verify().ok
    assert set(found) == planned(PROBLEMS, SAMPLES)
    assert len(set(found.values())) == PROBLEMS * SAMPLES, "a response was stored twice"
    killed = int(done.stdout)
    assert killed > kills // 2, "it was done before it could be killed"
    lost = served["requests"] - account.calls
    assert 0 <= lost <= killed * 3 * CONCURRENCY, "the crash window is three times the concurrency"


@pytest.mark.slow
def test_c29_the_command_killed_and_given_again_goes_on(tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    source = tmp_path / "problems.csv"
    source.write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(30)))
    with process("--n", "ignore", "--latency", "0.03") as url:
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", url]
        words += ["--samples", "8", "--concurrency", "4", "--json"]
        for _ in range(2):
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as collector:
                served = count(url)["completions"]
                until(lambda served=served: count(url)["completions"] > served + 20)
                collector.kill()
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        served = count(url)
    assert done.returncode == 0, done.stderr
    with open_pool(path) as pool:
        assert set(stored(pool)) == planned(30, 8)
        assert len(set(stored(pool).values())) == 240
    assert served["choices"] <= 240 + 2 * 3 * 4


@pytest.mark.slow
@pytest.mark.parametrize("number", leave_to_nightly([signal.SIGINT, signal.SIGTERM]))
def test_c32_a_signal_finishes_what_is_in_flight_so_the_account_is_the_servers_count(
    tmp_path: Path, number: signal.Signals
):
    path, source = tmp_path / "pool.sqlite", tmp_path / "problems.csv"
    source.write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(200)))
    with process("--n", "ignore", "--latency", "0.2") as url:
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", url]
        words += ["--samples", "8", "--concurrency", "5"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collector:
            until(lambda: count(url)["completions"] > 20)
            collector.send_signal(number)
            out, err = collector.communicate(timeout=120)
        served = count(url)
    assert collector.returncode == 128 + number
    assert "it was stopped; the same command goes on from here" in err
    assert "Traceback" not in err
    assert "of 1,600 planned samples" in out
    with open_pool(path) as pool:
        (source_,) = pool.models
        assert pool.account(*source_).calls == served["requests"] == served["completions"]
        assert len(stored(pool)) == served["choices"]
        assert pool.verify().ok


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once_and_loses_only_what_was_in_flight(tmp_path: Path):
    path, source = tmp_path / "pool.sqlite", tmp_path / "problems.csv"
    source.write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(50)))
    with process("--n", "ignore", "--latency", "20") as url:
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collector:
            until(lambda: count(url)["in_flight"] > 0)
            collector.send_signal(signal.SIGINT)
            time.sleep(0.3)
            assert collector.poll() is None, "the first finishes what is in flight"
            collector.send_signal(signal.SIGINT)
            _, err = collector.communicate(timeout=120)
    assert collector.returncode == 130
    assert "calls in flight were abandoned" in err
    assert "Traceback" not in err
    with open_pool(path) as pool:
        assert pool.verify().ok


@pytest.mark.slow
def test_c30_a_second_collector_on_the_same_pool_is_told_who_writes(tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    with Upstream() as up, open_pool(path, create=True) as pool:
        with pytest.raises(PoolLocked, match=str(os.getpid())):
            open_pool(path, create=True)
        source = tmp_path / "problems.csv"
        source.write_text("question\nWhat?\n")
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", up.url]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, up.count.requests) == (1, 0)
        assert f"process {os.getpid()}" in done.stderr
        assert run(pool, up.url).complete


PATIENT = Timeouts(first_byte=60.0, total=60.0)  # a busy machine is no fault of the endpoint


@pytest.fixture
def small(small_disk: Callable[[str], Path]) -> Path:
    """A disk of 300 KB."""
    return small_disk("300k")


@pytest.mark.nightly
def test_c30_a_full_disk_stops_it_cleanly_and_what_was_stored_is_whole(small: Path, tmp_path: Path):
    with Upstream(Honest(n="ignore", tokens=400)) as up:
        with open_pool(small / "pool.sqlite", create=True) as pool:
            with pytest.raises(PoolFull):
                run(pool, up.url, count=60, samples=20, timeouts=PATIENT)
            asked = up.count.requests
            kept = stored(pool)
        assert 0 < len(kept) < 1200
        assert up.count.choices - len(kept) <= 3 * 4, "no more than was in flight or being written is lost"
        assert asked < 1200, "nothing more was asked for once the disk was full"
        for file in small.iterdir():
            shutil.copy(file, tmp_path / file.name)
        with open_pool(tmp_path / "pool.sqlite", write=True) as moved:
            assert moved.verify().ok
            assert stored(moved) == kept
            assert run(moved, up.url, count=60, samples=20, timeouts=PATIENT).complete
            assert set(stored(moved)) == planned(60, 20)


def test_c30_a_torn_write_at_the_end_of_the_log_takes_only_the_last_calls(tmp_path: Path):
    path, copy = tmp_path / "pool.sqlite", tmp_path / "copy.sqlite"
    with Upstream(Honest(n="ignore")) as up:
        with open_pool(path, create=True) as pool:
            run(pool, up.url, count=10, samples=5)
            shutil.copy(path, copy)
            log = (tmp_path / "pool.sqlite-wal").read_bytes()
        assert len(log) > 50_000
        (tmp_path / "copy.sqlite-wal").write_bytes(log[: len(log) * 2 // 3 + 7])  # as a power cut leaves it
        with open_pool(copy, write=True) as torn:
            assert torn.verify().ok
            before = len(stored(torn))
            assert 0 < before < 50
            assert run(torn, up.url, count=10, samples=5).added == 50 - before
            assert set(stored(torn)) == planned(10, 5)
