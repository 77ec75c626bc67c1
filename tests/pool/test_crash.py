"""kill -9 at any point, a full disk, a flipped bit: what had returned is there, and nothing twice."""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pool_lines import line, write

from adacompute.errors import PoolDamaged, PoolFull
from adacompute.pool import export_file, import_file, open_pool
from adacompute.records import Failure, Problem, Sample
from tiers import leave_to_nightly

WRITER = """
import sys
from adacompute.pool import open_pool
from adacompute.records import Problem, Sample
with open_pool(sys.argv[1], create=True) as pool:
    done = pool.keys("m", {"t": 1})
    known = {problem.id for problem in pool.problems()}
    print("open", flush=True)
    for i in range(10_000):
        if f"p{i}" not in known:
            pool.add_problem(Problem(id=f"p{i}", question="?" * 300, gold="1"))
        plan = [(f"p{i}", j) for j in range(6)]
        for j in sorted(set(plan) - done):
            drawn = [(j[1], Sample(text="x" * 900, answer=str(j[1] % 3)))]
            pool.add_samples(j[0], drawn, model="m", parameters={"t": 1})
            print(j[0], j[1], flush=True)
"""


@pytest.mark.slow
def test_kill_at_any_point_loses_nothing_that_returned(tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    rng = random.Random(29)
    returned: set[tuple[str, int]] = set()
    for point in range(15):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            if point % 5 == 4:  # while starting, too: creating, recovering, opening
                time.sleep(rng.uniform(0.1, 0.4))
                said = ""
            else:
                said = "".join(writer.stdout.readline() for _ in range(rng.randint(1, 40)))
                assert said.startswith("open\n")
            writer.send_signal(signal.SIGKILL)
            whole = (said + writer.stdout.read()).split("\n")[:-1]  # the kill may have cut off the last line
            lines = [text.split() for text in whole if " " in text]
        returned |= {(name, int(index)) for name, index in lines}
        with open_pool(path) as pool:
            stored = pool.keys("m", {"t": 1})
            assert returned <= stored
            assert len(stored) == pool.counts().samples
            assert len(stored - returned) <= 1 + point  # at most the one call in flight each time
    with open_pool(path, write=True) as pool:
        assert pool.verify().ok
        assert len(returned) > 100
    assert [p.name for p in tmp_path.iterdir()] == ["pool.sqlite"]


IMPORTER = """
import sys, time
from adacompute.pool import import_file
def progress(problems, samples):
    print(problems, flush=True)
    time.sleep(0.2)
import_file(sys.argv[1], sys.argv[2], progress=progress)
"""


@pytest.mark.slow
@pytest.mark.parametrize("existing", leave_to_nightly([True, False]))
def test_an_import_killed_midway_leaves_what_was_there(tmp_path: Path, existing: bool):
    path = tmp_path / "pool.sqlite"
    big = write(tmp_path / "big.jsonl", [line(f"n{i}", ("4",) * 20) for i in range(3000)])
    if existing:
        import_file(write(tmp_path / "old.jsonl", [line(f"old{i}") for i in range(50)]), path)
        with open_pool(path) as pool:
            before = pool.digest()
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTER, str(big), str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) > 0
        assert int(child.stdout.readline()) > 0
        child.kill()
    if existing:
        with open_pool(path) as pool:
            assert pool.digest() == before
            assert pool.verify().ok
    else:
        assert not path.exists()
    assert import_file(big, path).samples == 60_000
    with open_pool(path) as pool:
        assert len(pool) == 3000 + 50 * existing
        assert pool.verify().ok
    assert not list(tmp_path.glob(".*"))


def test_a_full_pool_says_so_and_keeps_what_it_had(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        pool.add_problem(Problem(id="p", question="?"))
        (pages,) = pool._writer.execute("PRAGMA page_count").fetchone()
        pool._writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        stored = 0
        with pytest.raises(PoolFull, match="free some space and retry"):  # noqa: PT012 - it fills up
            for stored in range(1000):
                pool.add_samples("p", [(stored, Sample(text="x" * 2000))], model="m")
        big = write(tmp_path / "big.jsonl", [line(f"n{i}", ("4",) * 50) for i in range(100)])
        with pytest.raises(PoolFull):
            import_file(big, pool)
        assert len(pool.keys("m", {})) == stored
        assert pool.verify().ok
        pool._writer.execute(f"PRAGMA max_page_count = {2**30}")
        pool.add_samples("p", [(stored, Sample(text="x" * 2000))], model="m")
        assert len(pool.keys("m", {})) == stored + 1


LIMITED = """
import resource, sys
from adacompute.errors import PoolFull
from adacompute.pool import export_file, import_file, open_pool
source, way, target = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    if way == "import":
        import_file(source, target)
    else:
        with open_pool(source) as pool:
            export_file(pool, target, overwrite=True)
except PoolFull as exc:
    print(exc)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "target"),
    [("import", "new.sqlite"), ("import", "old.sqlite"), ("export", "out.jsonl"), ("export", "out.parquet")],
)
def test_a_disk_that_refuses_writes_leaves_all_as_it_was(tmp_path: Path, way: str, target: str):
    noise = random.Random(1)
    rows = [
        line(f"p{i}", (), samples=[{"text": noise.randbytes(1500).hex(), "answer": "4"}]) for i in range(400)
    ]
    source = write(tmp_path / "big.jsonl", rows)
    import_file(write(tmp_path / "small.jsonl", [line("old")]), tmp_path / "old.sqlite")
    (tmp_path / "out.jsonl").write_text("before")
    (tmp_path / "out.parquet").write_text("before")
    names = sorted(p.name for p in tmp_path.iterdir())
    with open_pool(tmp_path / "old.sqlite") as pool:
        before = pool.digest()
    command = [sys.executable, "-c", LIMITED, str(source), way, str(tmp_path / target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "free some space and retry" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert (tmp_path / "out.jsonl").read_text() == (tmp_path / "out.parquet").read_text() == "before"
    with open_pool(tmp_path / "old.sqlite") as pool:
        assert pool.digest() == before
        assert pool.verify().ok


def test_a_truly_full_file_system(tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        source = write(tmp_path / "big.jsonl", [line(f"p{i}", ("4",) * 40) for i in range(500)])
        with pytest.raises(PoolFull):
            import_file(source, small / "p.sqlite")
        with open_pool(source) as pool, pytest.raises(PoolFull):
            export_file(pool, small / "out.jsonl")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "pool.sqlite"
    with open_pool(path, create=True) as pool:
        for i in range(30):
            pool.add_problem(Problem(id=f"p{i}", question=f"question {i}", gold="4", level=i))
            drawn = [
                (j, Sample(text=f"text {i} {j} " + "é" * 50, answer=str(j % 5), tokens=j)) for j in range(8)
            ]
            pool.add_samples(f"p{i}", drawn, model="m", parameters={"t": 0.5})
            pool.add_failure(f"p{i}", Failure(index=9, kind="timeout"), model="m", parameters={"t": 0.5})
    return path


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE samples SET text = text || '.' WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET answer = '9' WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET class = class + 1 WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET correct = 1 - correct WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET tokens = NULL WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET tokens = 'many' WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET logprob = 0 WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET finished = 1 WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET extra = '{}' WHERE record = 3 AND idx = 5", "problem 'p2', sample 5"),
        ("UPDATE samples SET idx = 77 WHERE record = 3 AND idx = 5", "problem 'p2', sample 77"),
        ("UPDATE samples SET record = 4, idx = 78 WHERE record = 3 AND idx = 5", "problem 'p3', sample 78"),
        (
            "UPDATE samples SET text = CAST(x'ff' AS TEXT) WHERE record = 3 AND idx = 5",
            "problem 'p2', sample 5",
        ),
        ("UPDATE problems SET gold = '5' WHERE id = 'p2'", "problem 'p2'"),
        ("UPDATE problems SET level = 99 WHERE id = 'p2'", "problem 'p2'"),
        ("UPDATE problems SET id = 'q' WHERE id = 'p2'", "problem 'q'"),
        ("UPDATE records SET spelling = '{}' WHERE key = 3", "problem 'p2': its source"),
        ("UPDATE failures SET kind = 'refused' WHERE key = 3", "problem 'p2', failure of sample 9"),
        ("UPDATE sources SET parameters = '{\"t\":0.6}'", "parameters of model 'm'"),
        ("UPDATE settings SET value = replace(value, 'numeric', 'boxed') || ' '", "setting 'task'"),
        ("INSERT INTO settings VALUES ('more', '1', x'00')", "setting 'more'"),
        ("UPDATE sources SET model = 'other'", "problem 'p2', sample 5"),
    ],
)
def test_a_changed_row_is_found_and_named(filled: Path, statement: str, named: str):
    with open_pool(filled) as pool:
        found = pool.verify()
        assert found.ok
        assert (found.problems, found.samples, found.failures) == (30, 240, 30)
    connection = sqlite3.connect(filled, isolation_level=None)
    assert connection.execute(statement).rowcount >= 1
    connection.close()
    with open_pool(filled) as pool:
        found = pool.verify()
    assert not found.ok
    assert named in found.mismatches
    assert found.to_dict()["ok"] is False


def test_a_row_that_points_nowhere_is_found(filled: Path):
    connection = sqlite3.connect(filled, isolation_level=None)
    connection.execute("DELETE FROM records WHERE key = 3")
    connection.close()
    with open_pool(filled) as pool:
        found = pool.verify()
    assert not found.ok
    assert any("points at a missing row of records" in text for text in found.foreign_keys)


def test_a_flipped_bit_in_the_file_is_found(filled: Path):
    whole = filled.read_bytes()
    rng = random.Random(5)
    used = [i for i in range(8192, len(whole)) if whole[i]]
    spots = [whole.index("é".encode() * 20, 5000) + 9, *rng.sample(used, 25)]
    missed = 0
    for spot in spots:
        damaged = bytearray(whole)
        damaged[spot] ^= 1 << rng.randrange(8)
        filled.write_bytes(damaged)
        try:
            with open_pool(filled) as pool:
                missed += pool.verify().ok
        except PoolDamaged:
            pass
    assert missed <= 2, "but for bits in free space and in counters that SQLite doesn't need"
    filled.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PoolDamaged, match="restore it from a copy"):
        open_pool(filled)
