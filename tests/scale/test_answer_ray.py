"""Batches on Ray: the answers of one process."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from collecting import asking, count, endpoint, problems, process, stored
from drawn_on_ray import COMMAND, SEEDED, Steady

from adacompute.client import Endpoint
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.sampling import Answers, SourcePlan, answer
from adacompute.sampling.workers import WorkerEngine
from adacompute.scale.collect import RayEngine
from upstream import Upstream


def run(
    path: Path, where: Endpoint | WorkerEngine, *, policy: Policy, budget: float | str, many: int
) -> Answers:
    with open_pool(path, create=True) as pool:
        plan = SourcePlan(endpoint=where, asking=asking(sampling=SEEDED))
        return answer(problems(many), pool, plan, policy=policy, budget=budget)


def digest(path: Path) -> str:
    with open_pool(path) as pool:
        assert pool.verify().ok
        return pool.digest()


@pytest.mark.usefixtures("on_ray")
def test_waves_on_the_cluster_end_where_one_process_does(tmp_path: Path):
    with Upstream(Steady()) as up:
        where = endpoint(up.url, concurrency=8)
        here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
        alone = run(here, where, policy=StoppingPolicy(), budget=2.0, many=12)
        both = run(there, RayEngine(endpoint=where, workers=2), policy=StoppingPolicy(), budget=2.0, many=12)
    assert both.rounds == alone.rounds > 2
    assert (both.each, both.price, both.spent) == (alone.each, alone.price, alone.spent)
    assert both.account == alone.account
    assert digest(there) == digest(here)


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_a_budget_in_tokens_holds_over_all_workers(tmp_path: Path):
    with Upstream(Steady()) as up:
        engine = RayEngine(endpoint=endpoint(up.url, concurrency=8), workers=2)
        done = run(tmp_path / "p.sqlite", engine, policy=StoppingPolicy(), budget="150 tokens", many=12)
    account = done.account
    assert done.stopped is None
    assert done.used == account.prompt_tokens + account.completion_tokens <= 12 * 150
    assert all(one.samples for one in done.each)
    assert done.spent > 12


@pytest.mark.nightly
def test_a_batch_whose_driver_is_killed_goes_on_and_spends_its_budget_once(
    tmp_path: Path, ray_environ: dict[str, str], adacompute: Any
):
    (tmp_path / "in.csv").write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(24)))
    words = ["answer", "in.csv", "-o", "out.jsonl"]
    words += ["--budget", "2", "--policy", "fixed", "--concurrency", "4", "--model", "scripted", "--json"]
    how: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | ray_environ, "text": True}
    with process("--n", "ignore", "--latency", "0.1") as url:
        words += ["--template", "plain", "--endpoint", url]
        on_ray = [str(COMMAND), *words, "--engine", "ray", "--workers", "1"]
        with subprocess.Popen(on_ray, **how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while count(url)["completions"] < 15:
                assert driver.poll() is None
                time.sleep(0.05)
            driver.kill()
        done = adacompute(*words)  # on whatever engine
        told, served = json.loads(done.stdout), count(url)
    assert (told["samples"], told["stopped"]) == (48, None)
    assert 0 < told["added"] < 48
    assert 0 <= served["requests"] - told["calls"] <= 3 * 4
    with open_pool(tmp_path / "out.pool.sqlite") as pool:
        found = stored(pool)
    assert len(set(found.values())) == len(found) == 48
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 24
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.jsonl", "out.pool.sqlite"]
