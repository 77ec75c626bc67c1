"""Windows of caps bear a clock that jumps: none stays closed for years, and none can be spent twice."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.errors import CapReached
from adacompute.serve.spending.ledger import Caps, Spend, Window, WindowClock, count_elapsed, name_window
from adacompute.serve.spending.local_ledger import Ledger

NOON = 1_794_744_000.0  # 2026-11-15T12:00Z
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365.25 * 86_400
WINDOWS: tuple[Window, ...] = ("hour", "day", "month")
LENGTHS = {"hour": HOUR, "day": DAY, "month": 31 * DAY}


class Clock:
    """A clock on the wall, and the time that passes."""

    def __init__(self) -> None:
        self.at, self.elapsed = NOON, 1000.0

    def wait(self, seconds: float) -> None:
        self.at += seconds
        self.elapsed += seconds

    def now(self) -> float:
        return self.at

    def passed(self) -> float:
        return self.elapsed


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def spend(ledger: Ledger, samples: int) -> str:
    """Spends an amount, and gives the hour that it counts in."""
    held = await ledger.reserve("alice", Spend(samples=samples))
    ledger.settle(held, Spend(samples=samples))
    return held.hour


def test_a_jump_is_believed_after_an_hour_and_small_corrections_at_once():
    clock, elapsed = WindowClock(), 5.0
    assert clock.read(NOON, elapsed) == NOON
    assert clock.read(NOON + 31, elapsed + 1) == NOON + 31  # corrected by 30 s
    assert clock.read(NOON + 10 * YEAR, elapsed + 2) == NOON + 32
    assert clock.read(NOON + 10 * YEAR + 3000, elapsed + 3002) == NOON + 3032
    assert clock.read(NOON + 3070, elapsed + 3040) == NOON + 3070  # right again
    assert clock.read(NOON - YEAR, elapsed + 4000) == NOON + 4030
    assert clock.read(NOON - 2 * YEAR, elapsed + 7000) == NOON + 7030  # another jump: the hour begins again
    assert clock.read(NOON - 2 * YEAR + 3000, elapsed + 10_000) == NOON + 10_030
    assert clock.read(NOON - 2 * YEAR + 3601, elapsed + 10_601) == NOON - 2 * YEAR + 3601
    assert clock.estimate(elapsed + 10_602) == NOON - 2 * YEAR + 3602
    assert count_elapsed() <= count_elapsed()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("jump", [10 * YEAR, -10 * YEAR, 26 * HOUR, -26 * HOUR])
async def test_a_clock_that_is_wrong_for_less_than_an_hour_changes_nothing(
    window: Window, jump: float, tmp_path: Path
):
    clock, caps = Clock(), Caps(per_key=10, window=window)
    ledger = await Ledger.open(tmp_path / "l.sqlite", caps, now=clock.now, elapsed=clock.passed)
    first = await spend(ledger, 4)
    clock.wait(60)
    clock.at += jump
    assert await spend(ledger, 6) == first
    with pytest.raises(CapReached) as caught:
        await spend(ledger, 1)
    assert caught.value.retry_after is not None
    assert caught.value.retry_after <= LENGTHS[window]
    clock.wait(600)
    clock.at -= jump
    with pytest.raises(CapReached):
        await spend(ledger, 1)
    clock.wait(LENGTHS[window])
    assert await spend(ledger, 10) > first  # the next window, when it is due
    await ledger.close()


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("window", WINDOWS)
async def test_what_was_spent_by_a_clock_that_was_ahead_counts_when_it_is_back(
    window: Window, where: str, tmp_path: Path
):
    clock, caps = Clock(), Caps(per_key=10, total=11, window=window)
    path = tmp_path / "l.sqlite" if where == "file" else None
    ledger = await Ledger.open(path, caps, now=clock.now)  # a clock that is believed at once
    await spend(ledger, 1)
    clock.at += 10 * YEAR
    await spend(ledger, 6)
    late = await ledger.reserve("alice", Spend(samples=2))
    clock.at -= 10 * YEAR
    assert ledger.account().total.samples == 9  # 1 + 6, and 2 that are reserved
    assert ledger.check_send(late) is None
    ledger.settle(late, Spend(samples=2))
    await spend(ledger, 1)
    with pytest.raises(CapReached) as caught:  # the window isn't spent twice
        await spend(ledger, 1)
    assert caught.value.retry_after is not None
    assert caught.value.retry_after <= LENGTHS[window]  # and not closed for ten years
    if path is not None:
        await ledger.close()
        ledger = await Ledger.open(path, caps, now=clock.now)
        assert ledger.account().spent.samples == 10
    clock.at += LENGTHS[window]
    await spend(ledger, 10)  # the next window is whole
    if path is not None:
        await ledger.close()
        ledger = await Ledger.open(path, caps, now=clock.now)
        assert ledger.account().spent.samples == 10  # what was spent "in 2036" doesn't count again
        clock.at += LENGTHS[window]
        assert ledger.account().spent.samples == 0
    await ledger.close()


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_gateway_that_starts_when_the_clock_is_back_counts_what_was_spent_before(
    window: Window, tmp_path: Path
):
    clock, caps, path = Clock(), Caps(per_key=10, window=window), tmp_path / "l.sqlite"
    clock.at += 10 * YEAR
    ledger = await Ledger.open(path, caps, now=clock.now)
    await spend(ledger, 6)
    await ledger.reserve("alice", Spend(samples=1))  # it dies with this
    await ledger.close()
    clock.at -= 10 * YEAR
    for _ in range(2):
        ledger = await Ledger.open(path, caps, now=clock.now)
        assert ledger.account().total.samples == 7
        await ledger.close()
    ledger = await Ledger.open(path, caps, now=clock.now)
    await spend(ledger, 3)
    with pytest.raises(CapReached):
        await spend(ledger, 1)
    await ledger.close()
    clock.at += LENGTHS[window]
    ledger = await Ledger.open(path, caps, now=clock.now)
    await spend(ledger, 10)
    await ledger.close()


async def test_a_machine_that_starts_in_1970_forgets_nothing(tmp_path: Path):
    clock, caps, path = Clock(), Caps(per_key=10, window="month"), tmp_path / "l.sqlite"
    ledger = await Ledger.open(path, caps, now=clock.now)
    await spend(ledger, 6)
    await ledger.close()
    clock.at = 60.0
    ledger = await Ledger.open(path, caps, now=clock.now)
    await spend(ledger, 3)
    with pytest.raises(CapReached):
        await spend(ledger, 2)
    clock.at = NOON + HOUR  # the clock is set
    assert ledger.account().spent.samples == 6
    await spend(ledger, 4)
    with pytest.raises(CapReached):
        await spend(ledger, 1)
    await ledger.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.integers(1, 6)),
        st.tuples(
            st.just("jump"), st.sampled_from([0.5, 1, 3, 30, 800, 90_000, -0.5, -3, -30, -800, -90_000])
        ),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(window=st.sampled_from(WINDOWS), in_file=st.booleans(), steps=STEPS)
def test_any_jumps_keep_what_was_spent_in_a_window_and_never_close_it_for_long(
    window: Window, in_file: bool, steps: list[tuple[str, float]]
):
    async def work(folder: Path) -> None:
        clock, caps = Clock(), Caps(per_key=10, window=window)
        path = folder / "l.sqlite" if in_file else None
        ledger = await Ledger.open(path, caps, now=clock.now)
        spent: dict[str, int] = {}  # by the window that it counts in
        latest, present = "", name_window(ledger._hour, window)
        for kind, amount in steps:
            if kind == "jump":
                clock.at = max(0.0, clock.at + amount * HOUR)
            elif kind == "restart" and path is not None:
                await ledger.close()
                ledger = await Ledger.open(path, caps, now=clock.now)
            account = ledger.account()
            latest, present = max(latest, present), name_window(ledger._hour, window)
            assert spent.get(present, 0) <= account.spent.samples  # nothing is forgotten
            if present > latest:
                assert account.spent.samples == 0  # and nothing closes a window that is new
            if kind == "spend":
                try:
                    hour = await spend(ledger, int(amount))
                except CapReached as exc:
                    wait = exc.retry_after
                    assert account.spent.samples + amount > 10
                    assert wait is not None
                    assert wait <= LENGTHS[window] + 2 * HOUR
                    continue
                assert account.spent.samples + amount <= 10
                spent[name_window(hour, window)] = spent.get(name_window(hour, window), 0) + int(amount)
        await ledger.close()

    with tempfile.TemporaryDirectory() as folder:
        run(work(Path(folder)))
