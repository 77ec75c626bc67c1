"""Collectors on Ray: a single collector's pool, whatever is killed; limits, money and keys are shared."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest, Reply, Stall, Status
from collecting import asking, count, endpoint, plan, planned, problems, process, stored
from drawn_on_ray import COMMAND, SEEDED, Steady, exported
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client import RateLimits
from adacompute.errors import EngineUnavailable, PoolError, SourceChanged
from adacompute.pool import open_pool
from adacompute.records import Secret, TokenPrices
from adacompute.sampling import Collected, SourcePlan, collect
from adacompute.sampling.plan import SampleRange
from adacompute.sampling.shards import make_shard_path, merge_leftover_shards, merge_shard
from adacompute.scale.collect import (
    RayEngine,
    count_useful_collectors,
    find_missing_runs,
    seal_key,
    split_limits,
    split_runs,
)
from upstream import Upstream

KEY = "sk-not-to-be-seen-anywhere"
Environ = dict[str, str]


def run(
    path: Path, url: str, *, workers: int | None = 2, many: int = 24, samples: int = 6, **how: Any
) -> Collected:
    """One collection: on Ray, or with no workers by a single collector here."""
    told = {name: how.pop(name) for name in ("key", "concurrency") if name in how}
    where = endpoint(url, **told)
    with open_pool(path, create=True) as pool:
        source = SourcePlan(
            endpoint=where if workers is None else RayEngine(endpoint=where, workers=workers),
            asking=how.pop("asking", asking(sampling=SEEDED)),
            samples=samples,
            prices=how.pop("prices", TokenPrices()),
        )
        return collect(problems(many), pool, source, **how)


@pytest.mark.usefixtures("on_ray")
def test_the_merged_pool_is_that_of_a_single_collector(tmp_path: Path):
    one, many = tmp_path / "one.sqlite", tmp_path / "many.sqlite"
    with Upstream(Steady(), key=KEY) as up:
        alone = run(one, up.url, workers=None, key=KEY)
        first = run(many, up.url, workers=None, samples=2, key=KEY)
        assert first.stored == 48
        both = run(many, up.url, key=KEY)
    assert both.complete
    assert (both.planned, both.stored, both.added) == (144, 144, 96)
    assert (both.logprobs, both.answered, both.finished) == (alone.logprobs, alone.answered, alone.finished)
    assert exported(many) == exported(one)
    with open_pool(one) as a, open_pool(many) as b:
        assert a.digest() == b.digest()
        assert b.verify().ok
        paid, also = (pool.account("scripted", asking(sampling=SEEDED).parameters) for pool in (a, b))
        assert also.completion_tokens == paid.completion_tokens
        assert (also.calls, also.prompt_tokens) == (48, 2 * paid.prompt_tokens)  # it came in two runs
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.sqlite", "one.sqlite"]
    with open_pool(many, write=True) as pool, pytest.raises(SourceChanged, match="other settings"):
        collect(problems(2), pool, plan(up.url, endpoint=RayEngine(endpoint=endpoint(up.url))))


@pytest.mark.usefixtures("on_ray")
def test_a_wrong_key_stops_all_and_a_key_is_in_no_file_of_rays(tmp_path: Path):
    from ray._private.worker import global_worker  # where its files are is nowhere else

    with Upstream(Steady(), key="sk-another-one") as up:
        refused = run(tmp_path / "other.sqlite", up.url, workers=1, many=4, key=KEY)
    assert (refused.stopped, refused.stored) == ("endpoint", 0)
    assert "401" in str(refused.why)
    session = Path(global_worker.node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_sealed_key_is_worthless_without_its_pad(tmp_path: Path):
    sealed = seal_key(Secret(KEY), tmp_path / "pad")
    assert sealed is not None
    assert sealed.open().reveal() == KEY
    assert KEY not in repr(sealed)
    assert KEY.encode() not in sealed.masked
    assert KEY.encode() not in (tmp_path / "pad").read_bytes()
    assert (tmp_path / "pad").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("on_ray")
def test_all_collectors_together_never_spend_past_the_limit_and_come_as_near_as_one(tmp_path: Path):
    prices = TokenPrices(input=0.0, output=1e6)  # a token costs 1, a response at most 32
    with Upstream(Steady(tokens=12)) as up:
        few = {"prices": prices, "max_cost": 400.0, "many": 12, "samples": 4, "concurrency": 4}
        alone = run(tmp_path / "one.sqlite", up.url, workers=None, **few)
        both = run(tmp_path / "many.sqlite", up.url, **few)
    for done in (alone, both):
        assert done.stopped == "max-cost"
        assert 400.0 - 32.0 < done.at_most <= 400.0
    assert both.cost == 12.0 * both.stored


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_what_fails_is_a_failure_there_as_here_and_is_asked_for_again(tmp_path: Path):
    steady, refused = Steady(), itertools.count()

    def script(number: int, body: dict[str, Any]) -> Reply | Status:
        wrong = "What is 3 + 3?" in body["messages"][-1]["content"] and next(refused) < 1
        return Status(code=400, message="not this one") if wrong else steady(number, body)

    with Upstream(script) as up:
        done = run(tmp_path / "pool.sqlite", up.url, workers=1, many=6, samples=2)
        again = run(tmp_path / "pool.sqlite", up.url, workers=1, many=6, samples=2)
    assert list(done.failures) == ["p3"]
    assert "not this one" in done.failures["p3"]
    assert (done.stored, done.stopped, done.account.calls) == (10, None, 6)
    assert (again.stored, again.failures, again.account.calls) == (12, {}, 7)


def command(path: Path, url: str, *, many: int, samples: int, concurrency: int = 4) -> list[str]:
    source = path.with_suffix(".csv")
    rows = (f"{one.id},{one.question},{one.gold}\n" for one in problems(many))
    source.write_text("id,question,gold\n" + "".join(rows))
    words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", url, "--engine", "ray"]
    words += ["--samples", str(samples), "--concurrency", str(concurrency), "--workers", "2"]
    words += ["--temperature", "0.7", "--max-tokens", "32"]
    return [*words, "--model", "scripted", "--template", "plain", "--json"]


def until(is_so: Callable[[], object], running: "subprocess.Popen[str]") -> None:
    late = time.monotonic() + 100
    while not is_so():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < late
        time.sleep(0.05)


def collectors(path: Path) -> list[int]:
    """The processes that write to shards of a pool now."""
    found = (lock.read_text("ascii").strip() for lock in path.with_name(path.name + ".shards").glob("*.lock"))
    return [int(number) for number in found if number]


def test_a_worker_killed_then_the_driver_killed_loses_and_doubles_nothing(
    tmp_path: Path, ray_environ: Environ
):
    path = tmp_path / "pool.sqlite"
    environ = os.environ | ray_environ
    with process("--n", "ignore", "--latency", "0.03") as url:
        words = command(path, url, many=32, samples=8)
        with subprocess.Popen(words, env=environ, stdout=-1, stderr=-1, text=True) as driver:
            until(lambda: count(url)["completions"] > 40 and len(collectors(path)) == 2, driver)
            os.kill(collectors(path)[0], signal.SIGKILL)
            before = count(url)["completions"]
            until(lambda: count(url)["completions"] > before + 60, driver)
            driver.kill()
            assert driver.stdout is not None
            assert driver.stdout.read() == "", "Ray told there that a worker died"
        assert shards_folder(path).is_dir()
        how = {"workers": None, "many": 32, "samples": 8, "asking": asking()}  # on whatever engine
        done = run(path, url, **how)
        assert done.complete
        assert done.added < 256 - 40, "what was in shards was not taken in"
        done = run(path, url, **how)  # a shard that was sent to a worker as its driver died may come late
        served = count(url)
    with open_pool(path) as pool:
        found = stored(pool)
        assert pool.verify().ok
    assert set(found) == planned(32, 8)
    assert len(set(found.values())) == 256, "a response was stored twice"
    assert 0 <= served["requests"] - done.account.calls <= 3 * 2 + 3 * 4, "one's window, then both's"
    assert not shards_folder(path).exists()


def shards_folder(path: Path) -> Path:
    return path.with_name(path.name + ".shards")


@pytest.mark.usefixtures("on_ray")
def test_a_signal_finishes_what_is_in_flight_so_the_account_is_the_servers_count(tmp_path: Path):
    with Upstream(Steady(delay=0.1)) as up:

        def once() -> None:
            while up.count.completions < 8:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGUSR1)

        sender = threading.Thread(target=once)
        sender.start()
        done = run(
            tmp_path / "pool.sqlite", up.url, workers=1, many=200, samples=1, signals=(signal.SIGUSR1,)
        )
        sender.join()
    assert (done.stopped, done.signal) == ("signal", signal.SIGUSR1)
    assert done.stored == done.account.calls == up.count.completions < 200
    assert [path.name for path in tmp_path.iterdir()] == ["pool.sqlite"]


def test_without_ray_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineUnavailable, match="Ray is not installed; pip install"):
        run(tmp_path / "pool.sqlite", "http://127.0.0.1:9/v1")
    assert [path.name for path in tmp_path.iterdir()] == ["pool.sqlite"]


@pytest.mark.usefixtures("on_ray")
def test_where_shards_can_not_be_written_the_folder_is_named(tmp_path: Path):
    (tmp_path / "pool.sqlite.shards").touch()
    with pytest.raises(PoolError, match=r"pool\.sqlite\.shards: collectors can't write .*File exists"):
        run(tmp_path / "pool.sqlite", "http://127.0.0.1:9/v1", key=KEY)


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_a_second_signal_gives_up_what_is_in_flight_and_accounts_for_it(tmp_path: Path):
    with Upstream(Stall()) as up:

        def twice() -> None:
            for _ in range(2):
                while up.count.in_flight < 4:
                    time.sleep(0.02)
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.3)

        sender = threading.Thread(target=twice)
        sender.start()
        done = run(tmp_path / "pool.sqlite", up.url, workers=1, signals=(signal.SIGUSR1,))
        sender.join()
    assert (done.stopped, done.signal, done.stored) == ("signal", signal.SIGUSR1, 0)
    assert (done.account.calls, done.account.maybe) == (4, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["pool.sqlite"]


def test_more_workers_than_calls_at_the_same_time_are_said_to_be_too_many(adacompute: Any, tmp_path: Path):
    (tmp_path / "in.csv").write_text("id,question\np,What?\n")
    words = ["collect", "in.csv", "--pool", "p.sqlite", "--endpoint", "http://127.0.0.1:9/v1", "--dry-run"]
    done = adacompute(*words, "--engine", "ray", "--workers", "8", "--concurrency", "2")
    assert "--workers 8: the endpoint's limits leave work for 2, so 2 of them draw" in done.stderr
    done = adacompute(*words, "--workers", "8", code=2)
    assert "only --engine ray has workers" in done.stderr


def test_a_shard_is_taken_in_once_wherever_a_crash_falls(tmp_path: Path):
    path, aside = tmp_path / "pool.sqlite", tmp_path / "aside"
    with Upstream(Honest()) as up:
        run(tmp_path / "part.sqlite", up.url, workers=None, many=5, samples=4)
    with open_pool(path, create=True) as pool:
        folder = pool.shard_folder
        folder.mkdir()
        shard = make_shard_path(folder)
        shutil.copy(tmp_path / "part.sqlite", shard)
        shutil.copy(tmp_path / "part.sqlite", aside)
        assert merge_shard(pool, shard) == {f"p{i}": {0, 1, 2, 3} for i in range(5)}
        shutil.copy(aside, shard)  # as if it had been killed before the shard was removed
        merge_leftover_shards(pool)
        assert not folder.exists()
        with open_pool(aside) as part:
            assert pool.digest() == part.digest()
            parameters = asking(sampling=SEEDED).parameters
            assert pool.account("scripted", parameters) == part.account("scripted", parameters)
        folder.mkdir()
        shutil.copy(aside, make_shard_path(folder))  # another one with samples that are there
        merge_leftover_shards(pool)
        assert len(stored(pool)) == 20
        assert pool.verify().ok


def test_what_somebody_else_keeps_in_a_folder_of_that_name_stays(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as pool:
        folder = pool.shard_folder
        (folder / "more").mkdir(parents=True)
        for name in ("part-0.parquet", "mine.sqlite", "pad"):
            (folder / name).write_text("no shard")
        merge_leftover_shards(pool)
        assert sorted(path.name for path in folder.iterdir()) == ["mine.sqlite", "more", "part-0.parquet"]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_shards_hold_every_run_once_and_in_order(counts: list[int], workers: int):
    runs = [
        SampleRange(problem, 0, number) for problem, number in zip(problems(len(counts)), counts, strict=True)
    ]
    shards = split_runs(runs, workers)
    assert list(itertools.chain(*shards)) == runs
    assert all(shards)


@given(st.integers(1, 100), st.integers(1, 20), st.floats(0.1, 1e6))
def test_shares_never_sum_up_to_more_than_the_limit(concurrency: int, workers: int, rate: float):
    limits = RateLimits(concurrency=concurrency, requests_per_minute=rate, tokens_per_minute=rate)
    workers = min(workers, count_useful_collectors(limits))
    shares = [split_limits(limits, worker, workers) for worker in range(workers)]
    assert sum(one.concurrency for one in shares) == concurrency
    assert sum(one.requests_per_minute or 0 for one in shares) <= rate * (1 + 1e-12)
    assert sum(one.tokens_per_minute or 0 for one in shares) <= rate * (1 + 1e-12)
    first = sum(max(1.0, (one.requests_per_minute or 0) / 60) for one in shares)  # calls let in at once
    assert first <= max(1.0, rate / 60) * (1 + 1e-12)


@given(st.sets(st.integers(0, 30)), st.integers(0, 10), st.integers(1, 20))
def test_the_rest_of_a_run_is_what_is_not_there(there: set[int], first: int, number: int):
    (problem,) = problems(1)
    rest = find_missing_runs([SampleRange(problem, first, number)], {problem.id: there})
    left = [index for run in rest for index in range(run.first, run.first + run.count)]
    assert left == [index for index in range(first, first + number) if index not in there]
    assert find_missing_runs([SampleRange(problem, first, number)], {}, failed={problem.id}) == ()
