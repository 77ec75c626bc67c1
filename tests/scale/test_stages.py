"""score, solve and replay over shards on Ray: the numbers of one machine, and its errors, word for word."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import adacompute as ac
from adacompute.cli.app import app
from adacompute.errors import AdacomputeError, ScaleError
from adacompute.policies import POLICIES
from adacompute.policies.baselines import FixedPolicy
from adacompute.pool.formats import write_parquet
from adacompute.pool.pool import Pool
from adacompute.records import AccuracyTable
from adacompute.replay import per_problem
from adacompute.replay.per_problem import skip_draws
from adacompute.scale.stages import (
    MAX_SHARDS,
    group_files,
    open_shards,
)
from adacompute.score import aggregates
from adacompute.score.grades import BlockMap
from tiers import leave_to_nightly

SMALL = (1, 2, 4)


def score_shards(
    folder: Path,
    budgets: Any = SMALL,
    *,
    model: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> AccuracyTable:
    with open_shards(folder, model=model, workers=workers) as (ballots, run):
        return ac.score(ballots, budgets, map_blocks=run, **options)


def replay_shards(policy: ac.Policy, folder: Path, **options: Any) -> ac.Replayed:
    with open_shards(folder) as (ballots, run):
        return ac.replay(policy, ballots, map_blocks=run, **options)


def written(lines: Iterable[dict[str, Any]], folder: Path, cuts: Iterable[int]) -> Path:
    """Lines as Parquet files, cut at these places."""
    every = list(lines)
    levels = {{int: "integer", float: "real"}.get(type(line.get("level")), "text") for line in every}
    start = 0
    folder.mkdir(parents=True, exist_ok=True)
    for number, end in enumerate([*cuts, len(every)]):
        write_parquet(every[start:end], folder / f"part-{number}.parquet", levels=levels)
        start = end
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in three files, one of them of a single problem."""
    with ac.bundled("facts") as pool:
        return written(pool.lines(), tmp_path_factory.mktemp("facts"), (1, 130))


@pytest.fixture(scope="module")
def both(folder: Path, on_ray: None) -> Iterator[tuple[ac.Ballots, BlockMap, Pool]]:
    """The folder's votes as Ray reads them, what maps blocks there, and the folder as a pool here."""
    with ac.open_pool(folder) as pool, open_shards(folder, workers=2) as (ballots, map_blocks):
        yield ballots, map_blocks, pool


def assert_same_table(found: AccuracyTable, wanted: AccuracyTable) -> None:
    for name in ("accuracy", "costs", "standard_error"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name), equal_nan=True), name
    for name in ("modes", "ids", "unit", "dropped", "protocol", "ascending"):
        assert getattr(found, name) == getattr(wanted, name), name


def assert_same_plan(found: ac.Allocation, wanted: ac.Allocation) -> None:
    assert (found.price, list(found.mix), found.counts) == (wanted.price, list(wanted.mix), wanted.counts)
    assert np.array_equal(found.choice, wanted.choice)
    for name in ("budget", "cost", "accuracy", "mixed_cost", "mixed_accuracy", "bound", "gap"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-12), name


def assert_same_replay(found: Any, wanted: Any) -> None:
    assert found.to_dict() == wanted.to_dict()
    assert np.array_equal(found.each_cost, wanted.each_cost)
    assert np.array_equal(found.each_accuracy, wanted.each_accuracy, equal_nan=True)


def test_shards_hold_the_ballots_of_the_pool(both):
    found, _, pool = both
    wanted = pool.ballots()
    for name in ("ids", "prompts", "subjects", "levels", "extras", "model", "parameters"):
        assert getattr(found, name) == getattr(wanted, name)
    for name in ("gold_known", "classes", "correct", "tokens", "logprob", "entropy"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.mark.parametrize(
    "way",
    leave_to_nightly(
        [
            {},
            {"cost": "tokens"},
            {"estimator": "windows"},
            {"aggregate": "best-of", "by": "entropy"},
            {"aggregate": "any-correct"},
            {"aggregate": "weighted", "draws": 200},
            {"cost": ac.TokenPrices(input=1, output=2)},
        ]
    ),
    ids=lambda way: "-".join(map(str, way)) or "plain",
)
def test_every_way_of_scoring_gives_the_table_of_one_machine(both, way: dict[str, Any], monkeypatch):
    ballots, map_blocks, pool = both
    monkeypatch.setattr(aggregates, "_BLOCK_PROBLEMS", 100)  # so that there are several blocks
    found = ac.score(ballots, SMALL, map_blocks=map_blocks, **way)
    monkeypatch.undo()
    assert_same_table(found, ac.score(pool, SMALL, **way))


@pytest.mark.parametrize(
    ("policy", "price"),
    leave_to_nightly(
        [
            (ac.StoppingPolicy(longest=8), 0.01),
            (FixedPolicy(budget=4), None),
            (ac.StoppingPolicy(longest=8, max_waves=3, weigh=None), 0.01),
        ]
    ),
    ids=["weighted", "exact", "waves"],
)
def test_a_policy_is_replayed_on_the_very_paths_of_one_machine(both, policy, price, monkeypatch):
    ballots, map_blocks, pool = both
    here, there = (np.random.default_rng(3) for _ in range(2))
    wanted = ac.replay(policy, pool, price=price, orders=9, rng=here)
    monkeypatch.setattr(per_problem, "_MAX_CELLS", 10_000)  # so that there are several blocks
    found = ac.replay(policy, ballots, price=price, orders=9, rng=there, map_blocks=map_blocks)
    assert_same_replay(found, wanted)
    assert here.bit_generator.state == there.bit_generator.state


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["asc", "oracle"])
def test_the_dial_for_a_budget_is_that_of_one_machine(both, kind, monkeypatch):
    ballots, map_blocks, pool = both
    policy = POLICIES[kind]().fit(pool)
    monkeypatch.setattr(per_problem, "_MAX_CELLS", 10_000)  # so that there are several blocks
    found = ac.calibrate(policy, ballots, 3.0, orders=3, map_blocks=map_blocks)
    assert found == ac.calibrate(policy, pool, 3.0, orders=3)


@pytest.mark.nightly
def test_a_fitted_policy_is_said_to_be_in_sample(both):
    ballots, map_blocks, pool = both
    policy = ac.StoppingPolicy(longest=2, weigh=None, features=False).fit(pool)
    found = ac.replay(policy, ballots, price=0.02, orders=5, map_blocks=map_blocks)
    assert found.in_sample == found.problems == 353
    assert_same_replay(found, ac.replay(policy, pool, price=0.02, orders=5))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [
        ("score", "--json"),
        ("solve", "--budget", "1.5", "--budgets", "1,2"),
        ("replay", "--policy", "POLICY", "--budget", "2.5", "--orders", "3", "--json"),
    ],
    ids=lambda words: words[0],
)
def test_commands_print_the_same_on_both_engines(both, folder: Path, tmp_path: Path, words):
    ac.StoppingPolicy(longest=4).save(tmp_path / "policy")
    command, *rest = [str(tmp_path / "policy") if word == "POLICY" else word for word in words]
    here, there = (
        CliRunner().invoke(app, [command, str(folder), *rest, *engine])
        for engine in ((), ("--engine", "ray", "--workers", "2"))
    )
    assert here.exit_code == there.exit_code == 0, there.output
    assert there.stdout == here.stdout


def below(process: int, top: int) -> bool:
    """Whether a process was started by another one, or by one that it started."""
    while process > 1 and process != top:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process == top


@pytest.mark.nightly  # `allocate` has the same law
def test_a_killed_worker_changes_nothing(both, folder: Path, ray_pid: int):
    stop, killed = threading.Event(), []

    def kill() -> None:
        while not stop.wait(0.02) and not killed:
            for entry in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    named = entry.joinpath("cmdline").read_bytes().startswith(b"ray::Map(_run_block)")
                    if named and below(int(entry.name), ray_pid):
                        os.kill(int(entry.name), signal.SIGKILL)
                        killed.append(entry.name)
                        break

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:  # a quick task may be over before it is seen
            found = score_shards(folder, SMALL, workers=2)
    finally:
        stop.set()
        thread.join()
    assert killed
    assert_same_table(found, ac.score(both[2], SMALL))


MADE = [
    {
        "id": f"p{i}",
        "question": f"{i}?",
        "gold": "1",
        "model": model,
        "samples": [{"answer": a} for a in said],
    }
    for i, model, said in [
        (0, "a", "1121"),
        (1, "b", "112"),
        (2, "a", "2211"),
        (1, "a", "11"),
        (3, "a", "1111"),
        (0, "b", "21"),
    ]
]


@pytest.mark.parametrize("model", ["a", "b"])
def test_problems_that_are_in_several_files_stand_where_they_first_appear(tmp_path: Path, on_ray, model):
    written(MADE, tmp_path, (1, 2, 4))
    write_parquet([], tmp_path / "part-9.parquet", levels=set())
    for too_few in ("drop", "error"):
        with ac.open_pool(tmp_path) as pool:
            here = outcome(lambda: ac.score(pool, (1, 3), model=model, too_few=too_few))  # noqa: B023
        there = outcome(lambda: score_shards(tmp_path, (1, 3), model=model, too_few=too_few))  # noqa: B023
        if isinstance(here, AccuracyTable):
            assert isinstance(there, AccuracyTable), there
            assert_same_table(there, here)
        else:
            assert there == here


def outcome(call: Any) -> Any:
    try:
        return call()
    except AdacomputeError as exc:
        return type(exc), str(exc)


def broken(folder: Path) -> None:
    (folder / "part-1.parquet").write_bytes(b"no Parquet")


def doubled(folder: Path) -> None:
    (folder / "part-7.parquet").write_bytes((folder / "part-0.parquet").read_bytes())


@pytest.mark.nightly
@pytest.mark.parametrize("harm", [broken, doubled, lambda _: None], ids=["broken", "doubled", "two models"])
def test_errors_of_shards_are_those_of_the_pool_word_for_word(tmp_path: Path, on_ray, harm):
    written(MADE, tmp_path, (1, 2, 4))
    harm(tmp_path)

    def here() -> AccuracyTable:
        with ac.open_pool(tmp_path) as pool:
            return ac.score(pool, (1,))

    wanted = outcome(here)
    assert issubclass(wanted[0], AdacomputeError)
    assert outcome(lambda: score_shards(tmp_path, (1,))) == wanted


def test_what_is_no_folder_is_refused_with_the_remedy(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(ScaleError, match=r"adacompute export .*a\.jsonl FOLDER --shards 8"):
        score_shards(tmp_path / "a.jsonl")


@pytest.mark.recordings
@pytest.mark.parametrize(
    "name", leave_to_nightly(["math500-r1-distill-llama-8b", "words-qwen2.5-coder-1.5b"])
)
def test_recordings_give_the_same_on_both_engines(recordings: Path, tmp_path: Path, on_ray, name):
    with ac.open_pool(recordings / f"{name}.jsonl.gz") as pool:
        written(islice(pool.lines(), 80), tmp_path, (20, 50))
    policy = ac.StoppingPolicy(longest=8, weigh=None)
    with ac.open_pool(tmp_path) as pool:
        wanted, one = ac.score(pool, SMALL), ac.replay(policy, pool, price=0.02, orders=5)
    found = score_shards(tmp_path, SMALL)
    assert_same_table(found, wanted)
    assert_same_plan(ac.solve(found, budget=2.0), ac.solve(wanted, budget=2.0))
    assert_same_replay(replay_shards(policy, tmp_path, price=0.02, orders=5), one)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_a_stream_is_entered_in_the_middle_as_if_all_before_had_been_drawn(kind):
    for bits in (50, 57, 61):
        whole, part = (np.random.Generator(kind(5)) for _ in range(2))
        for rng in (whole, part):
            rng.integers(0, 10)  # leaves half of a number over, which has to be kept
        drawn = whole.integers(0, 1 << bits, 700, dtype=np.int64)
        skip_draws(part, 300)
        assert np.array_equal(part.integers(0, 1 << bits, 400, dtype=np.int64), drawn[300:])
        assert part.integers(0, 1000, 5).tolist() == whole.integers(0, 1000, 5).tolist()


def test_many_small_files_make_few_shards_in_order():
    shards = group_files([100] * 5000 + [10**6] + [1] * 5000)
    assert len(shards) <= MAX_SHARDS
    assert [file for shard in shards for file in shard] == list(range(10001))
