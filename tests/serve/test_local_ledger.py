"""Where the ledger's changes are written: in the event loop while that is quick, by the thread where not."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adacompute.errors import LedgerUnavailable
from adacompute.serve.spending.ledger import NO_SPEND, Balance, Caps, Spend
from adacompute.serve.spending.ledger_file import ChangeLog, LedgerChanges, LedgerFile
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
    assert threading.current_thread().name not in writers
    assert writers.count("adacompute-ledger") >= 16


def test_no_reservation_waits_for_a_commit(tmp_path: Path, writers: list[str]) -> None:
    async def scenario() -> None:
        ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
        before = len(writers)
        held = [ledger.reserve("alice", ONE) for _ in range(50)]
        for pending in held:
            with pytest.raises(StopIteration):  # it doesn't even give way to the loop
                pending.send(None)
        assert len(writers) == before
        assert len((tmp_path / "l.sqlite-log").read_text().splitlines()) == 51
        await ledger.close()
        assert not (tmp_path / "l.sqlite-log").exists()

    asyncio.run(scenario())


DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from adacompute.serve.spending.ledger import Caps, Spend
from adacompute.serve.spending.local_ledger import Ledger

async def main():
    ledger = await Ledger.open(Path(sys.argv[1]), Caps())
    for number in range(200):
        reserved = await ledger.reserve(sys.argv[2], Spend(samples=8, tokens=1000))
        if number % 10 or number < 100:
            ledger.settle(reserved, Spend(samples=1, tokens=10), Spend(samples=number % 2))
        if number == 150:
            await asyncio.sleep(0.2)  # the first 150 are committed
    await asyncio.sleep(0)  # what was settled last is logged in the next round of the loop
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("damage", ["none", "torn"])
def test_a_killed_process_loses_nothing_that_it_logged_and_counts_nothing_twice(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "l.sqlite"
    assert subprocess.run([sys.executable, "-c", DYING, str(path), "alice"], check=False).returncode == -9
    if damage == "torn":
        with (tmp_path / "l.sqlite-log").open("ab") as file:
            file.write(b'\n[999,[["2026-11-17T10","alice",1')

    async def read() -> Balance:
        ledger = await Ledger.open(path, Caps())
        balance = ledger.account()
        await ledger.close()
        return balance

    for _ in range(2):  # the second start finds what the first has made of it
        balance = asyncio.run(read())
        assert balance.spent == Spend(samples=190, tokens=1900)
        assert balance.maybe == Spend(samples=10 * 8 + 100, tokens=10 * 1000)


def flip(line: bytes) -> bytes:
    return line[:30] + bytes([line[30] ^ 1]) + line[31:]


def seal(line: bytes) -> bytes:
    return b"%b %08x" % (line, zlib.crc32(line))


HUGE = b'[9999,[],[[%d,"2026-11-17T10","alice",1,1,1]],{}]' % (2**64 - 1)
DAMAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {  # and how many lines that are
    "a flipped bit": (lambda lines: [*lines[:-9], flip(lines[-9]), *lines[-8:]], 1),
    "a flipped bit in the last line": (lambda lines: [*lines[:-1], flip(lines[-1])], 1),
    "a number that SQLite can't hold": (lambda lines: [*lines, HUGE, lines[-1]], 1),
    "the same, with its checksum": (lambda lines: [*lines, seal(HUGE)], 1),
    "a line of another shape": (lambda lines: [*lines, seal(b'[9999,[],[[7,"h"]],{}]'), lines[-1]], 1),
    "notes that are a list": (lambda lines: [*lines, seal(b"[9999,[],[],[]]"), lines[-1]], 1),
    "no line at all": (lambda lines: [*lines[:-1], b"\xff\x00", lines[-1]], 1),
    "a torn line": (lambda lines: [*lines, lines[-1][:-3]], 0),
    "none, of an older version": (lambda lines: [line[:-9] for line in lines], 0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_f8_a_damaged_line_of_the_log_is_skipped_counted_and_said(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, log = tmp_path / "l.sqlite", tmp_path / "l.sqlite-log"
    assert subprocess.run([sys.executable, "-c", DYING, str(path), "alice"], check=False).returncode == -9
    make, count = DAMAGES[damage]
    log.write_bytes(b"\n".join(make(log.read_bytes().split(b"\n"))))

    async def read() -> tuple[Balance, Any]:
        ledger = await Ledger.open(path, Caps())
        balance, note = ledger.account(), ledger.recall("damage")
        await ledger.close()
        return balance, note

    for _ in range(2):  # the second start finds it noted
        balance, note = asyncio.run(read())
        assert 189 <= balance.spent.samples <= 190  # what the line said, at most, is lost
        assert (note or {"lines": 0})["lines"] == count
    said = [record.getMessage() for record in caplog.records if "damaged lines" in record.getMessage()]
    assert [str(log) in text and f"{count} damaged lines" in text for text in said] == [True] * bool(count)


def test_f8_a_flipped_bit_anywhere_in_the_log_is_noticed_and_a_cut_anywhere_in_its_last_line_is_no_damage(
    tmp_path: Path,
) -> None:
    log = ChangeLog(tmp_path / "log")
    log.begin("0123456789abcdef")
    for number in (1, 2):
        slot = ("2026-11-17T10", "alice")
        log.append(LedgerChanges(rows={slot: (Spend(samples=number), NO_SPEND)}, open={number: None}))
    log.close()
    whole = log.path.read_bytes()
    for place in range(len(whole)):
        for bit in (1, 128):
            flipped = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
            log.path.write_bytes(flipped)
            changes = log.read("0123456789abcdef", after=0)
            spent = [row[0].samples for row in changes.rows.values()]
            assert log.damaged_lines, place
            assert spent in ([2], [1], []), place
    for end in range(whole.rindex(b"\n"), len(whole)):
        log.path.write_bytes(whole[:end])
        assert log.read("0123456789abcdef", after=0).rows
        assert log.damaged_lines == 0


def test_a_log_of_another_ledger_does_not_count(tmp_path: Path) -> None:
    path, other = tmp_path / "l.sqlite", tmp_path / "other.sqlite"
    for place, key in ((path, "alice"), (other, "bob")):
        subprocess.run([sys.executable, "-c", DYING, str(place), key], check=False)
    other.with_name("other.sqlite-log").replace(tmp_path / "l.sqlite-log")

    async def read() -> Balance:
        ledger = await Ledger.open(path, Caps())
        balance = ledger.account()
        await ledger.close()
        return balance

    balance = asyncio.run(read())
    assert set(balance.keys) == {"alice"}
    assert balance.spent.samples >= 135  # what was committed


def test_a_log_that_was_removed_or_grew_large_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adacompute.serve.spending.ledger_file._MAX_LOG_BYTES", 1000)
    path, log = tmp_path / "l.sqlite", tmp_path / "l.sqlite-log"

    async def scenario() -> None:
        ledger = await Ledger.open(path, Caps())
        for _ in range(50):
            ledger.settle(await ledger.reserve("alice", ONE), ONE)
        assert log.stat().st_size > 1000
        for _ in range(500):
            await asyncio.sleep(0.01)
            if log.stat().st_size < 1000:
                break
        assert log.stat().st_size < 1000
        log.unlink()
        ledger.settle(await ledger.reserve("alice", ONE), ONE)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if log.exists():
                break
        held = await ledger.reserve("alice", Spend(samples=5))
        assert f'[{held.number},"' in log.read_text()
        await ledger.close()

    asyncio.run(scenario())


def test_what_is_settled_is_written_soon_though_nobody_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    async def scenario() -> None:
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

    asyncio.run(scenario())


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


def test_a_write_that_fails_once_at_the_end_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
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

    asyncio.run(main())


def test_who_comes_while_it_closes_is_refused_and_not_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
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

    asyncio.run(main())
