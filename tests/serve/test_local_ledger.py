"""Where the ledger's changes are written: in the event loop while that is quick, by the thread where not."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from adacompute.errors import LedgerUnavailable
from adacompute.serve.spending.ledger import Caps, LedgerChanges, Spend
from adacompute.serve.spending.ledger_file import LedgerFile
from adacompute.serve.spending.local_ledger import Ledger

ONE = Spend(samples=1)


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that wrote, one for each commit."""
    seen: list[str] = []
    write = LedgerFile.write

    def noted(self: LedgerFile, changes: LedgerChanges, *, wait: bool = True) -> None:
        seen.append(threading.current_thread().name)
        write(self, changes, wait=wait)

    monkeypatch.setattr(LedgerFile, "write", noted)
    return seen


async def spend(path: Path, times: int, pause: float = 0.0) -> None:
    ledger = await Ledger.open(path, Caps())
    for _ in range(times):
        ledger.settle(await ledger.reserve("alice", ONE), ONE)
        await asyncio.sleep(pause)
    await ledger.close()
    ledger = await Ledger.open(path, Caps())
    assert ledger.account().spent == Spend(samples=times)
    await ledger.close()


def test_a_disk_that_is_slow_each_time_is_left_to_the_thread(
    tmp_path: Path, writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adacompute.serve.spending.local_ledger._SLOW_WRITE", -1.0)
    asyncio.run(spend(tmp_path / "l.sqlite", 20))
    assert writers.count(threading.current_thread().name) == 4  # until that is known
    assert writers.count("adacompute-ledger") >= 16


async def test_a_reservation_is_on_disk_when_it_is_granted(tmp_path: Path, writers: list[str]) -> None:
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    with sqlite3.connect(tmp_path / "l.sqlite") as other:
        for number in range(50):
            held = ledger.reserve("alice", ONE)
            with pytest.raises(StopIteration) as done:  # it doesn't even give way to the loop
                held.send(None)
            ids = [id_ for (id_,) in other.execute("SELECT id FROM reserved").fetchall()]
            assert ids[-1] == done.value.value.number == number + 1
            ledger.settle(done.value.value, ONE)
    other.close()
    assert set(writers[1:]) == {threading.current_thread().name}  # the first is of opening it
    await ledger.close()


async def test_what_is_settled_is_written_soon_though_nobody_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps())
    ledger.settle(await ledger.reserve("alice", ONE), ONE)
    with sqlite3.connect(path) as other:
        for _ in range(1000):
            if other.execute("SELECT samples FROM hours").fetchall() == [(1,)]:
                break
            await asyncio.sleep(0.01)
        assert other.execute("SELECT count(*) FROM reserved").fetchone() == (0,)
    other.close()
    await ledger.close()


def test_the_log_is_moved_into_the_file_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adacompute.serve.spending.local_ledger._COMMITS_PER_CHECKPOINT", 10)
    tidied: list[str] = []
    tidy = LedgerFile.checkpoint
    monkeypatch.setattr(
        LedgerFile, "checkpoint", lambda self: (tidied.append(threading.current_thread().name), tidy(self))[1]
    )
    monkeypatch.setattr("adacompute.serve.spending.local_ledger._MAX_DELAY", 0.001)
    asyncio.run(spend(tmp_path / "l.sqlite", 60, pause=0.005))
    assert tidied
    assert set(tidied) == {"adacompute-ledger"}


async def test_a_write_that_fails_once_at_the_end_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ledger = await Ledger.open(tmp_path / "state.sqlite", Caps())
    ledger.settle(await ledger.reserve("alice", Spend(samples=50)), ONE)
    write, failed = LedgerFile.write, []

    def faltering(self: LedgerFile, changes: LedgerChanges, *, wait: bool = True) -> None:
        if not failed:
            failed.append(True)
            raise OSError("once")
        write(self, changes, wait=wait)

    monkeypatch.setattr(LedgerFile, "write", faltering)
    await ledger.close()
    monkeypatch.undo()
    again = await Ledger.open(tmp_path / "state.sqlite", Caps())
    assert (again.account().spent, again.account().maybe) == (ONE, Spend())
    await again.close()


async def test_who_comes_while_it_closes_is_refused_and_not_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ledger = await Ledger.open(tmp_path / "state.sqlite", Caps())
    write, begun, go_on = LedgerFile.write, threading.Event(), threading.Event()

    def slow(self: LedgerFile, changes: LedgerChanges, *, wait: bool = True) -> None:
        begun.set()
        go_on.wait(30)
        write(self, changes, wait=wait)

    monkeypatch.setattr(LedgerFile, "write", slow)
    closing = asyncio.create_task(ledger.close())
    await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(LedgerUnavailable):
        await asyncio.wait_for(ledger.reserve("alice", ONE), 30)
    go_on.set()
    await closing


async def test_a_ledger_whose_opening_is_cancelled_is_closed_once_its_thread_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_read, may_go_on, closed = threading.Event(), threading.Event(), list[LedgerFile]()
    read, close = LedgerFile.read_latest_hour, LedgerFile.close

    def read_slowly(self: LedgerFile) -> str:
        is_read.set()
        may_go_on.wait(60)
        return read(self)

    def note_close(self: LedgerFile) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(LedgerFile, "read_latest_hour", read_slowly)
    monkeypatch.setattr(LedgerFile, "close", note_close)

    opening = asyncio.create_task(Ledger.open(tmp_path / "l.sqlite", Caps()))
    await asyncio.to_thread(is_read.wait, 60)
    opening.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert closed == []
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert len(closed) == 1
    await (await Ledger.open(tmp_path / "l.sqlite", Caps())).close()  # nobody holds its lock
