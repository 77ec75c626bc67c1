"""Full disks and read-only folders: what can be read is read, and the rest is said."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pool_lines import line, write

from adacompute.errors import PoolError, PoolFull
from adacompute.pool import import_file, open_pool


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def small(small_disk: Callable[[str], Path]) -> Path:
    """A disk of half a megabyte."""
    return small_disk("512k")


def fill_up(folder: Path) -> Path:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return folder / "filler"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_can_be_read_and_leaves_no_lock(tmp_path: Path, small: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), small / "p.sqlite")
    filler = fill_up(small)
    with open_pool(small / "p.sqlite") as pool:
        assert [recorded.problem.id for recorded in pool] == ["p1"]
        assert pool.verify().ok
    for call in (
        lambda: open_pool(small / "p.sqlite", write=True),
        lambda: open_pool(small / "new.sqlite", create=True),
    ):
        for _ in range(2):  # the second is not told that the first still writes
            with pytest.raises(PoolFull):
                call()
    assert names(small) == ["filler", "p.sqlite"]
    filler.unlink()
    open_pool(small / "new.sqlite", create=True).close()
    assert names(small) == ["new.sqlite", "p.sqlite"]


KILLED = """
import os, sys
from adacompute.pool import open_pool
from adacompute.records import Problem
pool = open_pool(sys.argv[1], write=True)
pool.add_problem(Problem(id="logged", question="?"))
os.kill(os.getpid(), 9)
"""


def test_a_log_that_cant_be_read_is_never_passed_over(tmp_path: Path, small: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), small / "p.sqlite")
    run(KILLED, small / "p.sqlite")
    (small / "p.sqlite-shm").unlink()
    filler = fill_up(small)
    with pytest.raises(PoolError, match=r"has calls in the log beside it \(p\.sqlite-wal\)"):
        open_pool(small / "p.sqlite")
    filler.unlink()
    with open_pool(small / "p.sqlite") as pool:
        assert [problem.id for problem in pool.problems()] == ["p1", "logged"]


READ_ONLY = """
import os, sys, urllib.parse  # before the folder of the standard library is out of reach
from adacompute.errors import PoolError
from adacompute.pool import open_pool
if os.getuid() == 0: os.setuid(65534)
try:
    with open_pool(sys.argv[1]) as pool: print(len(pool), pool.verify().ok)
except PoolError as exc:
    print(exc)
"""


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder with a pool of one problem, open to all users: pytest's own is not."""
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(tmp_path / "p.sqlite", folder)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_folder_can_be_read(closed: Path):
    (closed / "p.sqlite").chmod(0o444)
    closed.chmod(0o555)
    assert run(READ_ONLY, closed / "p.sqlite") == "1 True\n"
    assert names(closed) == ["p.sqlite"]


@pytest.mark.slow
def test_in_a_read_only_folder_a_log_is_read_or_said_to_be_unreadable(closed: Path):
    run(KILLED, closed / "p.sqlite")
    for path in closed.iterdir():
        path.chmod(0o444)
    closed.chmod(0o555)
    assert run(READ_ONLY, closed / "p.sqlite") == "2 True\n"
    closed.chmod(0o755)
    (closed / "p.sqlite-shm").unlink()
    closed.chmod(0o555)
    said = run(READ_ONLY, closed / "p.sqlite")
    assert "has calls in the log beside it (p.sqlite-wal)" in said
    assert said.count("\n") == 1
