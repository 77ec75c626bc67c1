"""Forks, threads, killed exports, locks: nobody takes what is another's, or sees half of it."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pool_lines import line, write

from adacompute.atomic import WriterLock
from adacompute.errors import NotAPool, PoolError
from adacompute.pool import export_file, import_file, open_pool
from adacompute.pool.pool_files import export_shards
from adacompute.records import Problem, Sample
from adacompute.score import summarise


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


FORK = """
import os, subprocess, sys
from adacompute.errors import PoolError
from adacompute.pool import open_pool
from adacompute.records import Problem
pool = open_pool(sys.argv[1], create=True)
pool.add_problem(Problem(id="a", question="?"))
reading = iter(pool)
next(reading)
if (child := os.fork()) == 0:
    new = Problem(id="b", question="?")
    for call in (lambda: len(pool), lambda: list(pool), lambda: pool.add_problem(new)):
        try:
            call()
        except PoolError as exc:
            print(exc, flush=True)
    pool.close()
    del reading
    sys.exit(0)
os.waitpid(child, 0)
print(os.path.exists(sys.argv[1] + ".lock"), os.path.exists(sys.argv[1] + "-wal"), flush=True)
second = "import sys; from adacompute.pool import open_pool; open_pool(sys.argv[1], write=True)"
done = subprocess.run([sys.executable, "-c", second, sys.argv[1]], capture_output=True, text=True)
print(done.stderr.splitlines()[-1].split(": ")[-1])
pool.add_problem(Problem(id="c", question="?"))
print(len(pool), pool.verify().ok)
"""


@pytest.mark.slow
def test_a_forked_child_that_exits_takes_nothing_from_its_parent(tmp_path: Path):
    said = run(FORK, tmp_path / "p.sqlite").splitlines()
    assert [("of which this is a fork; open it again" in text) for text in said[:3]] == [True] * 3
    assert said[3] == "True True"
    assert said[4].startswith("process ")
    assert "is writing to it" in said[4]
    assert said[5] == "2 True"
    assert [p.name for p in tmp_path.iterdir()] == ["p.sqlite"]


def test_a_lock_is_not_a_forked_childs_to_release(tmp_path: Path):
    script = (
        "import os, pathlib, sys; from adacompute.atomic import WriterLock\n"
        "held = WriterLock(pathlib.Path(sys.argv[1]))\n"
        "if (child := os.fork()) == 0: held.close(); os._exit(0)\n"
        "os.waitpid(child, 0); print(held.path.exists()); held.close(); print(held.path.exists())"
    )
    assert run(script, tmp_path / "p.sqlite") == "True\nFalse\n"


def test_reads_never_see_a_call_that_has_not_returned(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line("p0"), line("p1")]), tmp_path / "p.sqlite")
    with open_pool(tmp_path / "p.sqlite", write=True) as pool:
        before = pool.digest(), pool.counts(), list(pool), pool.keys("m"), pool.models, summarise(pool)
        inside, seen = threading.Event(), threading.Event()

        def import_and_fail() -> None:
            def stop(problems: int, samples: int) -> None:
                inside.set()
                assert seen.wait(60)
                raise KeyboardInterrupt

            big = write(tmp_path / "b.jsonl", [line(f"n{i}", model="other") for i in range(300)])
            with pytest.raises(KeyboardInterrupt):
                import_file(big, pool, progress=stop)

        writer = threading.Thread(target=import_and_fail)
        writer.start()
        assert inside.wait(60)
        during = pool.digest(), pool.counts(), list(pool), pool.keys("m"), pool.models, summarise(pool)
        assert (len(pool), [p.id for p in pool.problems()], pool.keys("other")) == (2, ["p0", "p1"], set())
        seen.set()
        writer.join()
        assert before == during
        assert pool.verify().ok


def test_a_summary_is_of_one_state_while_others_write(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        stop = threading.Event()

        def draw() -> None:
            for i in range(10_000):
                if stop.is_set():
                    return
                pool.add_problem(Problem(id=f"p{i}", question="?", gold="4", subject="s"))
                pool.add_samples(f"p{i}", [(j, Sample(answer="4")) for j in range(3)], model="m")

        writer = threading.Thread(target=draw)
        writer.start()
        try:
            for _ in range(30):
                found = summarise(pool)
                assert found.gold_known == found.problems == sum((found.subjects or {}).values())
                assert found.samples == sum(source.samples for source in found.sources)
                assert len(list(pool)) >= found.problems
        finally:
            stop.set()
            writer.join()


def test_an_iteration_goes_on_with_the_state_it_began_with_and_others_see_the_present(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line("p0"), line("p1")]), tmp_path / "p.sqlite")
    with open_pool(tmp_path / "p.sqlite", write=True) as pool:
        reading = iter(pool)
        seen = [next(reading).problem.id]
        pool.add_problem(Problem(id="new", question="?"))
        assert len(pool) == 3
        assert [*seen, *(recorded.problem.id for recorded in reading)] == ["p0", "p1"]
        late = iter(pool)
        next(late)
    with pytest.raises(PoolError, match="the pool is closed"):
        next(late)


def test_records_share_nothing_that_can_be_changed(tmp_path: Path):
    rows = [line(f"p{i}", parameters={"stop": ["x"]}) for i in range(2)]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        first, second = pool
        first.parameters["stop"].append("y")
        first.samples[0].extra["x"] = 1
        assert second.parameters == {"stop": ["x"]}
        assert (first.samples[1].extra, second.samples[0].extra) == ({}, {})
        assert pool.models == [("m", {"stop": ["x"]})]


def test_leftovers_of_killed_processes_are_swept_and_those_of_the_living_are_not(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    host = os.uname().nodename
    dead = tmp_path / f".out.jsonl.{host}.{gone.pid}.part"
    kept = [
        tmp_path / f".out.jsonl.{host}.{os.getppid()}.part",
        tmp_path / f".out.jsonl.elsewhere.{gone.pid}.part",
        tmp_path / f".other.jsonl.{host}.{gone.pid}.part",
    ]
    for path in (dead, *kept):
        path.write_text("half")
    with open_pool(source) as pool:
        export_file(pool, tmp_path / "out.jsonl")
    assert not dead.exists()
    assert all(path.exists() for path in kept)
    import_file(source, tmp_path / "p.sqlite")
    for call in (
        lambda: open_pool(tmp_path / "p.sqlite", write=True).close(),
        lambda: import_file(source, tmp_path / "p.sqlite", existing="skip"),
    ):
        (tmp_path / ".p.sqlite.building").write_text("half")
        call()
        assert not (tmp_path / ".p.sqlite.building").exists()


def test_a_lock_whose_file_was_replaced_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, real, calls = tmp_path / "p.sqlite", fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if not calls:  # the holder before us is done in this very moment
            path.with_name("p.sqlite.lock").unlink()
        calls.append(descriptor)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    held = WriterLock(path)
    assert len(calls) == 2
    assert os.path.samestat(os.fstat(held._descriptor), held.path.stat())
    held.close()


def test_a_file_system_without_locks_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(PoolError, match="Operation not supported; check the file and the disk"):
        open_pool(tmp_path / "p.sqlite", create=True)
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_a_folder_of_shards_whatever_the_umask(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    before = os.umask(0o077)
    try:
        with open_pool(tmp_path / "p.sqlite") as pool:
            export_shards(pool, tmp_path / "shards", shards=1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "shards").stat().st_mode) == 0o755


def test_the_root_folder_is_no_pool(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    for folder in ("/", str(tmp_path), "."):
        with pytest.raises(NotAPool, match="is a folder; name a file in it"):
            import_file(source, folder)


def test_a_reader_cant_write_even_past_us_and_a_writer_flushes_every_call(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    with open_pool(tmp_path / "p.sqlite", write=True) as pool:
        assert pool._writer is not None
        assert pool._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert pool._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert pool._connection.execute("PRAGMA query_only").fetchone() == (1,)
    for path in ("p.sqlite", "a.jsonl"):
        with open_pool(tmp_path / path) as pool:
            assert pool._connection.execute("PRAGMA query_only").fetchone() == (1,)


WRITER = """
import sys
from adacompute.pool import open_pool
from adacompute.records import Problem, Sample
with open_pool(sys.argv[1], create=True) as pool:
    pool.add_problem(Problem(id="p", question="?"))
    for i in range(int(sys.argv[2])):
        pool.add_samples("p", [(i, Sample(answer="1"))], model="m")
        if i == 0:
            print("begun", flush=True)
            sys.stdin.readline()
            with open_pool(sys.argv[1]) as again:  # a second one in this process must free no lock either
                again.counts()
    print(pool.counts().samples, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_looking_into_a_pool_that_is_being_written_takes_nothing_from_it(tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    look = [
        sys.executable,
        "-c",
        "import sys, adacompute as ac; print(ac.open_pool(sys.argv[1]).counts().samples)",
    ]
    words = [sys.executable, "-c", WRITER, str(path), "40"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "begun\n"
        for _ in range(2):
            seen = subprocess.run([*look, str(path)], capture_output=True, text=True, check=True)
            assert seen.stdout == "1\n"
        assert (tmp_path / "pool.sqlite-wal").exists(), "a reader took itself for the last, and tidied up"
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "40\n"
        seen = subprocess.run([*look, str(path)], capture_output=True, text=True, check=True)
        assert seen.stdout == "40\n", "readers see what was committed meanwhile"
        writer.kill()
    with open_pool(path) as pool:
        assert pool.counts().samples == 40
        assert pool.verify().ok
