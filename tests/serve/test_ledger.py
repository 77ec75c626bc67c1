"""The ledger alone: real files, real threads, a killed process."""

import asyncio
import contextlib
import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from client_runs import Clock

from adacompute.errors import CapReached, ConfigError, LedgerUnavailable
from adacompute.serve.spending.ledger import NANOS, Balance, Caps, Reservation, Spend
from adacompute.serve.spending.local_ledger import Ledger

ONE = Spend(samples=1, tokens=10, nanos=100)
NOON = 1_794_744_000.0  # 2026-11-15T12:00Z


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def reserved_again(ledger: Ledger) -> Reservation:
    """A reservation, as soon as the ledger is open again."""
    for _ in range(3000):
        try:
            return await ledger.reserve("alice", ONE)
        except LedgerUnavailable:
            await asyncio.sleep(0.01)
    raise AssertionError("it never opened again")


def samples(balance: Balance) -> tuple[int, int, int]:
    return balance.spent.samples, balance.maybe.samples, balance.reserved.samples


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("caps", [Caps(total=50), Caps(per_key=50), Caps(by_key={"alice": 50}, per_key=1)])
def test_c14_200_tasks_at_the_last_unit_never_pass_a_cap(where: str, caps: Caps, tmp_path: Path) -> None:
    async def one(ledger: Ledger, most: list[int]) -> int:
        try:
            held = await ledger.reserve("alice", ONE)
        except CapReached:
            return 0
        taken = ledger.account().total.samples
        most.append(taken)
        await asyncio.sleep(0)
        ledger.settle(held, ONE)
        return 1

    async def storm() -> None:
        ledger = await Ledger.open(tmp_path / "l.sqlite" if where == "file" else None, caps)
        held = await ledger.reserve("alice", Spend(samples=49))
        ledger.settle(held, Spend(samples=49))
        most: list[int] = []
        got = await asyncio.gather(*(one(ledger, most) for _ in range(200)))
        assert sum(got) == 1
        assert max(most) == 50
        assert samples(ledger.account()) == (50, 0, 0)
        await ledger.close()

    run(storm())


async def test_c14_what_is_released_can_be_reserved_again() -> None:
    ledger = await Ledger.open(None, Caps(total=4))
    held = await ledger.reserve("alice", Spend(samples=4))
    with pytest.raises(CapReached) as told:
        await ledger.reserve("bob", ONE)
    assert told.value.retry_after == 1.0  # others may give back what they hold
    ledger.settle(held, Spend(samples=1), Spend(samples=1))
    await ledger.reserve("bob", Spend(samples=2))
    with pytest.raises(CapReached):
        await ledger.reserve("bob", ONE)


async def test_c15_a_second_settle_does_nothing(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    held = await ledger.reserve("alice", Spend(samples=8))
    ledger.settle(held, Spend(samples=3), Spend(samples=1))
    ledger.settle(held, Spend(samples=8))
    assert samples(ledger.account()) == (3, 1, 0)
    await ledger.close()
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    assert samples(ledger.account()) == (3, 1, 0)
    await ledger.close()


async def test_c15_a_task_cancelled_while_it_reserves_holds_nothing(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps(total=100))
    for turns in range(20):
        task = asyncio.create_task(ledger.reserve("alice", ONE))
        for _ in range(turns % 3):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            ledger.settle(await task, Spend())
    assert samples(ledger.account()) == (0, 0, 0)
    await ledger.close()
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps(total=100))
    assert samples(ledger.account()) == (0, 0, 0)
    await ledger.close()


async def test_an_upstream_that_charges_more_than_was_reserved_is_counted_in_full() -> None:
    ledger = await Ledger.open(None, Caps(per_key=10))
    ledger.settle(await ledger.reserve("alice", ONE), Spend(samples=12))
    assert ledger.account().spent.samples == 12
    with pytest.raises(CapReached, match="has spent 12 of its cap of 10 samples"):
        await ledger.reserve("alice", ONE)


async def test_c16_a_removed_file_closes_it_and_it_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps(total=100), retry_seconds=0.02)
    ledger.remember("prices", {"a": 0.5})
    ledger.settle(await ledger.reserve("alice", Spend(samples=5)), Spend(samples=5))
    held = await ledger.reserve("bob", Spend(samples=7))
    for name in ("l.sqlite", "l.sqlite-wal", "l.sqlite-shm"):
        (tmp_path / name).unlink()
    await asyncio.sleep(0.02)
    with pytest.raises(LedgerUnavailable) as caught:
        await ledger.reserve("alice", ONE)
    assert "was removed or replaced" in str(caught.value.__cause__)
    assert str(tmp_path) not in str(caught.value)  # clients aren't told where files lie
    assert samples(ledger.account()) == (5, 0, 7)
    ledger.settle(held, Spend(samples=6))  # kept, and written when it can be
    ledger.settle(await reserved_again(ledger), ONE)
    await ledger.close()
    ledger = await Ledger.open(path, Caps())
    assert samples(ledger.account()) == (12, 0, 0)
    assert samples(ledger.account().keys["bob"]) == (6, 0, 0)
    assert ledger.recall("prices") == {"a": 0.5}
    await ledger.close()


async def test_c16_a_damaged_file_closes_it_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps(total=100), retry_seconds=0.02)
    ledger.settle(await ledger.reserve("alice", Spend(samples=5)), Spend(samples=5))
    (tmp_path / "other").write_bytes(b"no ledger at all" * 1000)
    (tmp_path / "other").replace(path)
    await asyncio.sleep(0.02)
    for _ in range(20):
        with pytest.raises(LedgerUnavailable) as told:
            await ledger.reserve("alice", ONE)
        assert told.value.status == 503
        await asyncio.sleep(0.01)
    path.unlink()
    ledger.settle(await reserved_again(ledger), ONE)
    await ledger.close()
    ledger = await Ledger.open(path, Caps())
    assert samples(ledger.account()) == (6, 0, 0)
    await ledger.close()


def fill_up(folder: Path) -> None:
    with (folder / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


async def refusal(ledger: Ledger, held: list[Reservation]) -> str:
    """Reserves until it is closed, for a log of writes that has room in it is used up first; why it is."""
    while True:
        try:
            held.append(await ledger.reserve("alice", ONE))
        except LedgerUnavailable as exc:
            return str(exc.__cause__)


async def test_c16_a_full_disk_closes_it_and_nothing_settled_meanwhile_is_lost(
    small_disk: Callable[[str], Path],
) -> None:
    folder = small_disk("256k")
    path = folder / "l.sqlite"

    ledger = await Ledger.open(path, Caps(total=100_000), retry_seconds=0.02)
    held = [await ledger.reserve("alice", ONE) for _ in range(20)]
    fill_up(folder)
    assert "check the file and the disk" in await refusal(ledger, held)
    for one in held:
        ledger.settle(one, ONE)
    fill_up(folder)  # closing the file may have made room
    late: list[Reservation] = []
    await refusal(ledger, late)
    (folder / "filler").unlink()
    late.append(await reserved_again(ledger))
    for one in late:
        ledger.settle(one, ONE)
    spent = ledger.account()
    assert samples(spent) == (len(held) + len(late), 0, 0)
    await ledger.close()
    ledger = await Ledger.open(path, Caps())
    assert ledger.account() == spent
    await ledger.close()


async def test_c16_a_file_that_somebody_else_holds_locked_closes_it_for_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adacompute.serve.spending.ledger_file._BUSY_SECONDS", 0.01)
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps(), retry_seconds=0.02)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable) as caught:
        await ledger.reserve("alice", ONE)
    assert "locked" in str(caught.value.__cause__)
    other.execute("ROLLBACK")
    other.close()
    ledger.settle(await reserved_again(ledger), ONE)
    await ledger.close()
    with pytest.raises(LedgerUnavailable) as caught:
        await ledger.reserve("alice", ONE)
    assert "closing down" in str(caught.value.__cause__)


KILLED = """
import asyncio, sys
from pathlib import Path
from adacompute.serve.spending.ledger import Caps, Spend
from adacompute.serve.spending.local_ledger import Ledger

async def main():
    ledger = await Ledger.open(Path(sys.argv[1]), Caps(total=10_000_000))
    ledger.remember("prices", {"lane": 0.25})
    async def client(name):
        while True:
            held = await ledger.reserve(name, Spend(samples=8))
            print("r", flush=True)  # from now on it may be spent
            await asyncio.sleep(0)
            print("s", flush=True)
            ledger.settle(held, Spend(samples=3))
    await asyncio.gather(*(client(f"key {n}") for n in range(5)))
asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [11, 1000])
async def test_c17_after_kill_9_all_that_may_have_been_spent_is_counted(lines: int, tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    begun, ended = said.count("r\n"), said.count("s\n")

    ledger = await Ledger.open(path, Caps(total=10_000_000))
    found = ledger.account()
    assert found.reserved == Spend()
    settled, rest = divmod(found.spent.samples, 3)
    lost, more = divmod(found.maybe.samples, 8)
    assert rest == more == 0
    assert settled <= ended
    assert begun <= settled + lost <= begun + 5  # each was written before it could be spent
    assert lost <= 5 * 3
    assert ledger.recall("prices") == {"lane": 0.25}
    await ledger.close()
    again = await Ledger.open(path, Caps(total=10_000_000))  # the second start finds nothing left open
    assert again.account() == found
    await again.close()


async def test_c17_what_was_reserved_when_it_died_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps())
    await ledger.reserve("alice", Spend(samples=8))
    await ledger.close()
    with caplog.at_level(logging.WARNING):
        ledger = await Ledger.open(path, Caps(by_key={"alice": 8}))
    assert "1 reservations of a process that died count as spent in full: at most 8 samples" in caplog.text
    with pytest.raises(CapReached, match=r"has spent 0 of its cap of 8 samples \(0 reserved, 8 perhaps\)"):
        await ledger.reserve("alice", ONE)
    await ledger.close()


async def test_c17_a_window_begins_again_and_late_settles_belong_to_their_own(tmp_path: Path) -> None:
    path, clock = tmp_path / "l.sqlite", Clock(NOON)
    caps = Caps(per_key=10, window="hour")

    ledger = await Ledger.open(path, caps, now=clock)
    late = await ledger.reserve("alice", Spend(samples=9))
    with pytest.raises(CapReached, match="its window ends at 2026-11-15T13:00Z"):
        await ledger.reserve("alice", Spend(samples=2))
    clock.at += 3600
    held = await ledger.reserve("alice", Spend(samples=10))
    ledger.settle(late, Spend(samples=9))
    assert samples(ledger.account()) == (0, 0, 10)
    ledger.settle(held, Spend(samples=4))
    assert samples(ledger.account()) == (4, 0, 0)
    clock.at -= 3600  # a clock that is set back doesn't bring the old window back
    assert samples(ledger.account()) == (4, 0, 0)
    await ledger.close()
    for window, spent in (("hour", 4), ("day", 13), ("month", 13), ("ever", 13)):
        other = await Ledger.open(path, Caps(window=window), now=clock)  # type: ignore[arg-type]
        assert samples(other.account()) == (spent, 0, 0), window
        await other.close()


@pytest.mark.parametrize(
    ("window", "end"),
    [("hour", "2026-11-15T13:00Z"), ("day", "2026-11-16T00:00Z"), ("month", "2026-12-01T00:00Z")],
)
async def test_a_reached_cap_says_when_its_window_ends(window: Any, end: str) -> None:
    ledger = await Ledger.open(None, Caps(by_key={"alice": 100}, window=window), now=Clock(NOON + 0.5))
    ledger.settle(await ledger.reserve("alice", Spend(samples=99)), Spend(samples=99))
    held = await ledger.reserve("alice", ONE)
    ledger.settle(held, ONE)
    with pytest.raises(CapReached) as told:
        await ledger.reserve("alice", ONE)
    assert str(told.value) == (
        "key 'alice' has spent 100 of its cap of 100 samples (0 reserved): it is used up; "
        f"its window ends at {end}"
    )
    seconds = {"hour": 3600, "day": 12 * 3600, "month": 15.5 * 24 * 3600}[window]
    assert told.value.retry_after == seconds
    assert told.value.status == 429


async def test_c19_an_operators_key_has_caps_as_others_and_is_told() -> None:
    ledger = await Ledger.open(None, Caps(total=5, by_key={"operator": 3}))
    held = await ledger.reserve("operator", Spend(samples=3))
    with pytest.raises(
        CapReached, match=r"key 'operator' has spent 0 of its cap of 3 samples \(3 reserved\)"
    ):
        await ledger.reserve("operator", ONE)
    ledger.settle(held, Spend(samples=3))
    with pytest.raises(CapReached, match=r"ask the operator .* doesn't start again") as told:
        await ledger.reserve("operator", ONE)
    assert told.value.retry_after is None
    ledger.settle(await ledger.reserve("alice", Spend(samples=2)), Spend(samples=2))
    with pytest.raises(CapReached, match=r"^the gateway's cap is reached: it is used up; "):
        await ledger.reserve("alice", ONE)  # what others have spent is not told


async def test_money_is_compared_exactly() -> None:
    ledger = await Ledger.open(None, Caps(unit="money", per_key=0.3))
    for _ in range(3):  # 0.1 three times is more than 0.3 in floating point
        ledger.settle(await ledger.reserve("a", Spend(nanos=NANOS // 10)), Spend(nanos=NANOS // 10))
    with pytest.raises(CapReached, match=r"spent 0\.3 of its cap of 0\.3 USD"):
        await ledger.reserve("a", Spend(nanos=1))
    tokens = await Ledger.open(None, Caps(unit="tokens", total=10))
    await tokens.reserve("a", Spend(samples=999, tokens=10))
    with pytest.raises(CapReached):
        await tokens.reserve("a", Spend(tokens=1))


async def test_a_second_gateway_on_the_same_file_is_refused(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    with pytest.raises(ConfigError, match="another gateway keeps its ledger in it"):
        await Ledger.open(tmp_path / "l.sqlite", Caps())
    await ledger.close()
    await (await Ledger.open(tmp_path / "l.sqlite", Caps())).close()


def _text(path: Path) -> None:
    path.write_text("not a database")


def _other(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()


def _newer(path: Path) -> None:
    asyncio.run(_made(path))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def _torn(path: Path) -> None:
    asyncio.run(_made(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:1024] + b"\xff" * (len(whole) - 1024))  # all but its first page


def _negative(path: Path) -> None:
    asyncio.run(_made(path))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE hours SET samples = -5")
    connection.close()


async def _made(path: Path) -> None:
    ledger = await Ledger.open(path, Caps())
    ledger.settle(await ledger.reserve("alice", ONE), ONE)
    await ledger.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_text, "is not a gateway's ledger; name another file"),
        (_other, "is not a gateway's ledger; name another file"),
        (_newer, "from a newer version of adacompute; upgrade"),
        (_torn, "restore it from a copy|is not a gateway's ledger"),
        (_negative, "the ledger is damaged .* restore it from a copy"),
        (Path.mkdir, "is a folder; name a file in it"),
    ],
)
def test_what_is_no_ledger_is_refused_and_left_as_it_is(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "l.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigError, match=said):
        run(Ledger.open(path, Caps()))
    if make is not _torn:
        assert (path.read_bytes() if path.is_file() else b"") == before
    with pytest.raises(ConfigError, match=said):  # and nothing is left locked
        run(Ledger.open(path, Caps()))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its folder is not there"):
        run(Ledger.open(tmp_path / "no" / "l.sqlite", Caps()))


@pytest.mark.parametrize(
    ("amount", "limit", "above"),
    [
        (Spend(samples=2, tokens=5), Spend(samples=2, tokens=5), Spend()),
        (Spend(samples=1, tokens=9), Spend(samples=2, tokens=5), Spend(tokens=4)),
        (Spend(samples=3, nanos=7), Spend(tokens=5, nanos=6), Spend(samples=3, nanos=1)),
    ],
)
def test_what_is_above_a_limit_is_counted_in_each_unit(amount: Spend, limit: Spend, above: Spend) -> None:
    assert amount.beyond(limit) == above


async def test_amounts_beyond_a_database_are_kept_as_its_largest(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    held = await ledger.reserve("alice", Spend(samples=1, nanos=10**30))
    ledger.settle(held, Spend(samples=1, nanos=10**30))
    ledger.settle(await ledger.reserve("alice", ONE), ONE)
    await ledger.close()
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps(unit="money", total=1))
    with pytest.raises(CapReached):
        await ledger.reserve("alice", ONE)
    await ledger.close()


async def test_nothing_is_given_back_by_numbers_below_0() -> None:
    ledger = await Ledger.open(None, Caps(total=1))
    ledger.settle(await ledger.reserve("alice", ONE), Spend(samples=1, tokens=-5), Spend(samples=-1))
    with pytest.raises(CapReached):
        await ledger.reserve("alice", ONE)
    assert ledger.account().total == Spend(samples=1)


async def test_notes_are_kept_over_restarts_and_nonsense_is_none(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"

    ledger = await Ledger.open(path, Caps())
    ledger.remember("prices", {"a": 1.5, "b": [1, None]})
    ledger.remember("prices", {"a": 2.5})
    with pytest.raises(ValueError, match="JSON"):
        ledger.remember("prices", {"a": float("nan")})
    assert ledger.recall("nothing") is None
    await ledger.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO notes VALUES ('odd', '[1'), ('list', '[]')")
    connection.close()
    ledger = await Ledger.open(path, Caps())
    assert ledger.recall("prices") == {"a": 2.5}
    assert ledger.recall("odd") is None
    assert ledger.recall("list") is None
    await ledger.close()
