"""kill -9 and Ctrl-C: nothing that is stored is bought again, and the budget stays what it is."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batches import ASKING
from collecting import count, process, stored
from killed_batch import BUDGET, CONCURRENCY, REQUESTS

from adacompute.pool import open_pool

KILLED = Path(__file__).with_name("killed_batch.py")
COMMAND = Path(sys.executable).parent / "adacompute"


@pytest.mark.slow
def test_c29_a_batch_killed_at_many_points_and_resumed_spends_its_budget_once(tmp_path: Path):
    path, kills = tmp_path / "pool.sqlite", 20
    with process("--n", "ignore", "--latency", "0.01") as url:
        words = [sys.executable, str(KILLED), url, str(path), str(kills), "5"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        served = count(url)
    with open_pool(path) as pool:
        found, account = stored(pool), pool.account("scripted", ASKING.parameters)
        assert pool.verify().ok
    assert len(found) == BUDGET * REQUESTS
    assert len(set(found.values())) == len(found), "a response was stored twice"
    assert len({id_ for id_, _ in found}) == REQUESTS
    killed = int(done.stdout)
    assert killed > kills // 2, "it was done before it could be killed"
    lost = served["requests"] - account.calls
    assert 0 <= lost <= killed * 3 * CONCURRENCY, "the crash window is three times the concurrency"


@pytest.mark.slow
def test_ctrl_c_finishes_what_is_in_flight_and_the_same_command_goes_on(tmp_path: Path):
    (tmp_path / "in.csv").write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(40)))
    with process("--n", "ignore", "--latency", "0.1") as url:
        words = [str(COMMAND), "answer", "in.csv", "-o", "out.jsonl", "--endpoint", url, "--json"]
        words += ["--concurrency", "2", "--budget", "1.5", "--template", "plain"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
        with subprocess.Popen(words, **pipes) as first:
            while count(url)["completions"] < 10:
                assert first.poll() is None
                time.sleep(0.05)
            first.send_signal(signal.SIGINT)
            out, err = first.communicate(timeout=60)
        told = json.loads(out)
        assert first.returncode == 130, err
        assert (told["stopped"], told["file"]) == ("signal", None)
        assert "the same command goes on from here" in err
        assert told["samples"] == count(url)["completions"] == told["calls"] < 60
        assert not (tmp_path / "out.jsonl").exists()
        done = subprocess.run(words, **pipes, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        again = json.loads(done.stdout)
        assert again["samples"] == count(url)["completions"] == 60
        assert again["added"] == 60 - told["samples"]
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40
