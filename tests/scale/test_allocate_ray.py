"""The same allocation on Ray as in one process, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prompt_files import file_of, folder_of, long_prompts, questions, table_of

from adacompute.errors import ScaleError
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.pool import open_pool
from adacompute.scale.allocate import AllocateResult, allocate

pytestmark = pytest.mark.usefixtures("on_ray")


def same(one: Path, other: Path) -> bool:
    """The same files with the same rows, of the same types."""
    parts = [sorted(path.glob("*")) if path.is_dir() else [path] for path in (one, other)]
    assert len(parts[0]) == len(parts[1])
    return all(
        pq.ParquetFile(a).read().equals(pq.ParquetFile(b).read(), check_metadata=True)
        for a, b in zip(*parts, strict=True)
    )


def numbers(told: AllocateResult) -> tuple[object, ...]:
    return told.price, told.counts, told.cost, told.mix, told.budget, told.rounds


def check_equal(
    source: Path, policy: CurvePolicy, folder: Path, *, budget: float
) -> tuple[AllocateResult, AllocateResult]:
    local = allocate(source, policy, budget=budget, into=folder / "local")
    ray = allocate(source, policy, budget=budget, into=folder / "ray", engine="ray", workers=2)
    assert same(folder / "local", folder / "ray")
    assert numbers(local) == numbers(ray)
    assert (ray.accuracy, ray.bound) == pytest.approx((local.accuracy, local.bound), abs=1e-12)
    assert not list(folder.glob(".*"))
    return local, ray


@pytest.mark.nightly
def test_every_prompt_gets_the_same_where_many_tie_at_the_price(tmp_path: Path, curve: CurvePolicy):
    prompts = (questions() * 5)[:3000]
    source = folder_of(tmp_path / "in", prompts, [1100, 0, 1, 700])
    local, ray = check_equal(source, curve, tmp_path, budget=2.3007)  # not whole: one prompt is mixed
    assert local.mix is not None
    assert ray.shards > 5  # more than one of a file
    assert ray.files == 5


@pytest.mark.nightly
@pytest.mark.recordings
def test_every_prompt_of_the_recordings_gets_the_same(tmp_path: Path, recordings: Path):
    with open_pool(recordings / "math500-r1-distill-llama-8b.jsonl.gz") as pool:
        ballots = pool.ballots()
    policy = CurvePolicy(features="text").fit(ballots.only(range(0, len(ballots), 2)))
    source = folder_of(tmp_path / "in", ballots.prompts * 3, [300, 700])
    check_equal(source, policy, tmp_path, budget=1.9)


@pytest.mark.nightly
def test_a_policy_without_a_price_gives_the_same_and_workers_find_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder_of(tmp_path / "in", questions()[:600], [200])
    monkeypatch.chdir(tmp_path)
    told = [
        allocate("in", FixedPolicy(3.0, mix=True), budget=3, into=tmp_path / engine, engine=engine)  # type: ignore[arg-type]
        for engine in ("local", "ray")
    ]
    assert same(tmp_path / "local", tmp_path / "ray")
    assert numbers(told[0]) == numbers(told[1])


@pytest.mark.nightly
def test_what_is_wrong_with_a_file_comes_back_in_one_line_and_nothing_is_written(
    tmp_path: Path, curve: CurvePolicy
):
    source = folder_of(tmp_path / "in", questions()[:30], [10])
    table = table_of(["a", "b"])
    pq.write_table(table.set_column(1, "prompt", [["a", None]]), source / "part-9.parquet")
    with pytest.raises(ScaleError, match=r"part-9\.parquet: row 2 has no 'prompt'"):
        allocate(source, curve, budget=2, into=tmp_path / "out", engine="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def reading(path: Path) -> Iterator[int]:
    """Workers of Ray that have a file open just now."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            titled = (process / "cmdline").read_bytes().startswith(b"ray::")
            if titled and any(link.readlink() == path for link in (process / "fd").iterdir()):
                yield int(process.name)
        except OSError:
            continue  # it has ended


def kill_one_that_reads(path: Path, killed: list[int], stop: threading.Event) -> None:
    while not killed and not stop.is_set():
        for process in reading(path):
            os.kill(process, signal.SIGKILL)
            killed.append(process)
            return
        time.sleep(0.005)


def test_a_worker_killed_in_mid_run_changes_nothing(tmp_path: Path, curve: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", long_prompts(6000), group=1500)
    local = allocate(source, curve, budget=2.3, into=tmp_path / "local")
    killed: list[int] = []
    stop = threading.Event()
    killer = threading.Thread(target=kill_one_that_reads, args=(source, killed, stop))
    killer.start()
    try:
        ray = allocate(source, curve, budget=2.3, into=tmp_path / "ray", engine="ray", workers=2)
    finally:
        stop.set()
        killer.join()
    assert killed
    assert same(tmp_path / "local", tmp_path / "ray")
    assert numbers(local) == numbers(ray)


@pytest.mark.nightly
def test_a_driver_killed_in_mid_run_leaves_nothing_and_the_same_command_starts_again(
    tmp_path: Path, curve: CurvePolicy, ray_environ: dict[str, str]
):
    curve.save(tmp_path / "policy")
    source = file_of(tmp_path / "in.parquet", long_prompts(6000), group=1500)
    words = ["allocate", str(source), "--policy", str(tmp_path / "policy"), "--budget", "2.3"]
    words += ["-o", str(tmp_path / "ray"), "--engine", "ray", "--workers", "2"]
    command = Path(sys.executable).with_name("adacompute")
    with subprocess.Popen([command, *words], env={**os.environ, **ray_environ}) as driver:
        until = time.monotonic() + 120
        while driver.poll() is None and time.monotonic() < until and not list(reading(source)):
            time.sleep(0.01)
        ended = driver.poll()
        driver.kill()
    assert ended is None
    assert not (tmp_path / "ray").exists()
    assert (tmp_path / ".ray.allocating").exists()
    check_equal(source, curve, tmp_path, budget=2.3)
