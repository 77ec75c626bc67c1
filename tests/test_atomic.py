"""Files and folders appear whole or not at all, whoever is killed, waits or writes at the same time."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adacompute import atomic
from adacompute.errors import PoolLocked, PoolNotFound

LONGEST = 255  # bytes of a file's name


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs `code` and has printed its first line."""
    setup = "import sys, time\nfrom pathlib import Path\nfrom adacompute import atomic\n"
    process = subprocess.Popen(
        [sys.executable, "-c", setup + code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


IN_THE_MIDDLE = {
    "publish_file": """
with atomic.publish_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
""",
    "publish_file, locked": """
with atomic.publish_file(Path(sys.argv[1]), exclusive=True) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
""",
    "write_files": """
def stop(path):
    print("ready", flush=True)
    time.sleep(60)
Path.replace = lambda self, target: stop(self)
atomic.write_files({Path(sys.argv[1]): b"new"})
""",
}

AGAIN: dict[str, Callable[[Path], None]] = {
    "publish_file": lambda path: publish(path, "new"),
    "publish_file, locked": lambda path: publish(path, "new", exclusive=True),
    "write_files": lambda path: atomic.write_files({path: b"new"}),
}


def publish(path: Path, text: str, *, exclusive: bool = False) -> None:
    with atomic.publish_file(path, exclusive=exclusive) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("way", IN_THE_MIDDLE)
def test_a_writer_killed_in_the_middle_leaves_the_old_file_and_the_next_one_sweeps(tmp_path, way):
    target = tmp_path / "out.txt"
    target.write_text("old")
    kill(start(IN_THE_MIDDLE[way], target))
    assert target.read_text() == "old"
    assert len(names(tmp_path)) == 2
    AGAIN[way](target)
    assert target.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]


def test_what_others_have_not_finished_is_left_to_them(tmp_path):
    target, host = tmp_path / "out.txt", os.uname().nodename
    others = [f".out.txt.{host}.{os.getppid()}.part", f".out.txt.elsewhere.{2**22}.part", ".other.txt.1.part"]
    for name in others:
        (tmp_path / name).touch()
    publish(target, "new")
    assert names(tmp_path) == sorted(["out.txt", *others])


@pytest.mark.parametrize("way", AGAIN)
def test_a_name_as_long_as_names_may_be_is_published(tmp_path, way):
    path = tmp_path / ("é" * (LONGEST // 2))
    AGAIN[way](path)
    AGAIN[way](path)
    assert path.read_text() == "new"
    assert names(tmp_path) == [path.name]


def test_leftovers_of_a_long_name_are_swept_too(tmp_path):
    path = tmp_path / ("n" * LONGEST)
    kill(start(IN_THE_MIDDLE["publish_file"], path))
    assert len(names(tmp_path)) == 1
    publish(path, "new")
    assert names(tmp_path) == [path.name]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "pool.jsonl", tmp_path / "link.jsonl"
    target.write_text("old")
    link.symlink_to(target)
    with atomic.publish_file(link) as temporary:
        temporary.write_text("new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert (names(tmp_path), names(tmp_path / "disk")) == (["disk", "link.jsonl"], ["pool.jsonl"])


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    target = tmp_path / "out.txt"
    publish(target, "old")
    with pytest.raises(TypeError), atomic.publish_file(target) as temporary:
        temporary.write_text(3)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_several_files_are_all_written_before_the_first_is_moved(tmp_path, monkeypatch):
    files = {tmp_path / name: b"new" for name in "abc"}
    for path in files:
        path.write_bytes(b"old")
    write, writes = atomic.write_synced, []

    def run_out(path: Path, content: bytes) -> None:
        writes.append(path)
        if len(writes) == 3:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(atomic, "write_synced", run_out)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_files(files)
    assert {path.read_bytes() for path in files} == {b"old"}
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(PoolNotFound, match=r"its folder is not there; create .*no first"):
        publish(tmp_path / "no" / "out.txt", "new")
    with pytest.raises(FileNotFoundError):
        atomic.write_files({tmp_path / "no" / "out.txt": b"new"})
    with pytest.raises(FileNotFoundError), atomic.lock_folder(tmp_path / "no"):
        pass
    with atomic.lock_folder(tmp_path / "yes", create=True):
        assert names(tmp_path) == ["yes"]


def test_a_folder_appears_with_all_its_files(tmp_path):
    target = tmp_path / "new"
    with atomic.publish_folder(target) as temporary:
        atomic.write_synced(temporary / "a", b"1")
        assert not target.exists()
    assert names(target) == ["a"]
    assert names(tmp_path) == ["new"]


def test_a_folder_replaces_an_empty_one_and_no_other(tmp_path):
    target = tmp_path / "new"
    target.mkdir()
    with atomic.publish_folder(target) as temporary:
        (temporary / "a").touch()
    with pytest.raises(FileExistsError), atomic.publish_folder(target) as temporary:
        (temporary / "b").touch()
    assert names(target) == ["a"]
    assert names(tmp_path) == ["new"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(TypeError), atomic.publish_folder(tmp_path / "new") as temporary:
        atomic.write_synced(temporary / "a", 3)
    assert names(tmp_path) == []


def test_a_second_writer_to_a_folder_waits(tmp_path):
    order: list[str] = []

    def write_second() -> None:
        with atomic.lock_folder(tmp_path):
            order.append("second")

    second = threading.Thread(target=write_second)
    with atomic.lock_folder(tmp_path):
        second.start()
        time.sleep(0.05)
        order.append("first")
    second.join()
    assert order == ["first", "second"]


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_without_locks_a_folder_is_written_only_where_a_lock_is_not_required(tmp_path, monkeypatch):
    refuse_locks(monkeypatch, errno.ENOLCK)
    with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)), atomic.lock_folder(tmp_path):
        pytest.fail("not locked")
    with atomic.lock_folder(tmp_path, required=False):
        atomic.write_files({tmp_path / "a": b"1"})
    assert names(tmp_path) == ["a"]


def test_a_second_process_that_writes_the_same_files_does_not_take_the_firsts(tmp_path):
    target = tmp_path / "out.txt"
    first = start(IN_THE_MIDDLE["write_files"], target)
    half = names(tmp_path)
    atomic.write_files({target: b"second"})
    assert target.read_text() == "second"
    assert names(tmp_path) == sorted([*half, "out.txt"])
    kill(first)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EIO])
@pytest.mark.parametrize("existing", [True, False])
def test_a_lock_file_is_removed_only_if_it_is_new_and_nobody_can_hold_it(
    tmp_path, monkeypatch, number, existing
):
    path = tmp_path / "pool.lock"
    if existing:
        path.write_text("7\n")
    refuse_locks(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        atomic.lock_file(path)
    assert path.exists() == (existing or number not in (errno.ENOTSUP, errno.ENOSYS))
    assert not existing or path.read_text() == "7\n"


HOLD = """
lock = atomic.WriterLock(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_second_writer_to_a_pool_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "pool.sqlite"
    first = start(HOLD, path)
    with pytest.raises(PoolLocked, match=f"process {first.pid} is writing to it"):
        atomic.WriterLock(path)
    with pytest.raises(BlockingIOError):
        atomic.lock_file(tmp_path / "pool.sqlite.lock")
    kill(first)
    atomic.WriterLock(path).close()
    assert names(tmp_path) == []


def test_what_is_left_at_a_temporary_name_is_removed_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    atomic.temporary_path(tmp_path / "out").symlink_to("mine")
    atomic.replace_file(tmp_path / "out", b"new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert names(tmp_path) == ["mine", "out"]
