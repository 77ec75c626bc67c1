"""The ledger of a single gateway: spending by client key, in memory and in a file.

One event loop checks caps against balances in memory, so no other request can spend between a check and its
reservation. A reservation is valid when it is on disk. If the process is killed, its reservations may have
been spent, so the next process counts them in full as possibly spent (`maybe`). If an upstream charges more
than was reserved, all of it counts, even if the cap is then exceeded.

The event loop itself commits reservations: with a fast disk that takes 30 to 50 µs, less than a switch to
another thread and back. Ended reservations are committed within 50 ms, together with others; if the process
is killed before, they count in full. A thread handles everything that may be slow: a slow disk, a locked or
lost file, and checkpoints. It retries failed writes every second, so nothing is lost while the process lives.
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from adacompute.errors import CapReached, ConfigError
from adacompute.serve.spending.ledger import (
    NO_SPEND,
    Balance,
    CapChecker,
    Caps,
    LedgerChanges,
    Reservation,
    Spend,
    StoredLedger,
    count_elapsed,
    decode_note,
    format_hour,
    make_closed_error,
    make_reader,
    name_window,
)
from adacompute.serve.spending.ledger_file import LedgerFile, LedgerFileReplaced

_RETRY_SECONDS = 1.0  # seconds between two attempts to write, while writing fails
_MAX_DELAY = 0.05  # maximum number of seconds until a change queued by `put` is written
_SLOW_WRITE = 0.001  # writes that take longer than this, in seconds, count as slow
# after this number of consecutive slow writes, a thread commits instead of the event loop
_MAX_SLOW_WRITES = 4
_THREAD_SECONDS = 10.0  # after slow writes, a thread commits for this many seconds, then the event loop again
_COMMITS_PER_CHECKPOINT = 1_000  # number of commits after which the write-ahead log is copied into the file
_CHECKPOINT_NOTE = LedgerChanges(notes={"tidied": "{}"})
_log = logging.getLogger("adacompute.serve")


class LedgerWriter:
    """Writes changes to a ledger's file, with the help of a thread. Use it in the event loop that created it.

    If the file is lost or damaged, calls `snapshot` in the event loop for the content of a new file.
    """

    def __init__(
        self,
        journal: LedgerFile,
        snapshot: Callable[[], LedgerChanges],
        *,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self.trouble = ""  # why writing fails at present; "" if it works
        self._journal = journal
        self._snapshot = snapshot
        self._retry_seconds = retry_seconds
        self._loop = asyncio.get_running_loop()
        # guards the file, `_failing`, `_commits`, `_slow_writes` and `_thread_until`
        self._writing = threading.Lock()
        self._failing = False  # whether the thread's latest write failed
        self._commits = 0  # number of commits since the last checkpoint
        # number of consecutive slow writes; time (`time.perf_counter`) until which only the thread commits
        self._slow_writes, self._thread_until = 0, 0.0
        self._lock = threading.Lock()  # guards `_changes`, `_waiting` and `_ending`
        self._changes = LedgerChanges()  # changes that aren't committed yet
        self._waiting: list[asyncio.Future[None]] = []
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._wake, self._end = threading.Event(), threading.Event()
        self._ended = asyncio.Event()  # set after the thread has closed the file
        self._thread = threading.Thread(target=self._run, name="adacompute-ledger", daemon=True)
        self._thread.start()

    def put(self, changes: LedgerChanges) -> None:
        """Queues changes to be written soon, and returns at once."""
        with self._lock:
            self._changes.add(changes)
        if self._timer is None and not self._ending:
            self._timer = self._loop.call_later(_MAX_DELAY, self._on_timer)

    async def write(self, changes: LedgerChanges) -> None:
        """Writes changes, and returns once they are on disk; OSError if they can't be written."""
        if self._changes.can_wait and self._commit_in_loop(changes):
            return
        with self._lock:
            self._changes.add(changes)
        if self._commit_in_loop():
            return
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._waiting.append(future)
        self._wake.set()
        await future

    def read_file(self, window: str) -> StoredLedger | None:
        """Writes pending changes and reads the file, in the event loop; None if that fails now."""
        if self.trouble or not self._commit_in_loop() or not self._writing.acquire(blocking=False):
            return None
        try:
            return self._journal.read(window)
        except Exception:  # noqa: BLE001 - the thread finds out what is wrong when it writes next
            return None
        finally:
            self._writing.release()

    async def close(self) -> None:
        """Writes pending changes, with one retry, and ends the thread."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ending = True
        self.trouble = f"{self._journal.path}: the gateway is closing down"
        self._end.set()
        self._wake.set()
        await self._ended.wait()  # waits in the event loop, because at exit no thread can be started
        # these futures belong to `write` calls that came after the thread's last commit
        for future in self._waiting:
            if not future.done():
                future.set_exception(OSError(self.trouble))

    def _on_timer(self) -> None:
        self._timer = None
        if self._changes and not self._commit_in_loop():
            self._wake.set()

    def _commit_in_loop(self, changes: LedgerChanges | None = None) -> bool:
        """Commits changes in the event loop, by default all pending ones.

        Returns False if it fails, or if only the writer's thread may write at present.
        """
        start = time.perf_counter()
        if self._failing or self._ending or start < self._thread_until:
            return False
        if not self._writing.acquire(blocking=False):  # the writer's thread is using the file
            return False
        try:
            self._journal.write(self._changes if changes is None else changes, wait=False)
            if changes is None:
                self._changes = LedgerChanges()
        except Exception:  # noqa: BLE001 - the thread handles it
            return False
        finally:
            self._writing.release()
        # a busy processor may cause a single slow write, but several in a row mean a slow disk
        self._slow_writes = self._slow_writes + 1 if time.perf_counter() - start > _SLOW_WRITE else 0
        if self._slow_writes >= _MAX_SLOW_WRITES:
            self._slow_writes, self._thread_until = 0, start + _THREAD_SECONDS
        self._commits += 1
        if self._commits >= _COMMITS_PER_CHECKPOINT:
            self._wake.set()
        return True

    def _run(self) -> None:
        trouble = ""
        while True:
            (self._end.wait(self._retry_seconds) if trouble else self._wake.wait())
            self._wake.clear()
            with self._writing:
                with self._lock:
                    changes, self._changes = self._changes, LedgerChanges()
                    waiting, self._waiting = self._waiting, []
                    ending = self._ending
                previous, trouble, replaced = trouble, *self._try_commit(changes, reopen=bool(trouble))
                if trouble:
                    with self._lock:
                        changes.add(self._changes)
                        self._changes = changes
                self._failing = bool(trouble)
            if trouble != previous or waiting:
                # RuntimeError means that the event loop is closed, so nobody waits for the result
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._report, trouble, replaced, waiting)
            if ending and (previous or not trouble):
                break
        if trouble:
            _log.error("%s; what was spent last is not in it", trouble)
        try:
            self._journal.close()
        finally:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody waits
                self._loop.call_soon_threadsafe(self._ended.set)

    def _try_commit(self, changes: LedgerChanges, *, reopen: bool) -> tuple[str, bool]:
        """Commits changes; returns (error or "", whether a new file must be written whole)."""
        try:
            if reopen and self._journal.reopen() and changes.replaces_window is None:
                raise LedgerFileReplaced(
                    f"{self._journal.path}: the file is another one; it is written again"
                )
            self._journal.write(changes)
            self._commits += 1
            if self._commits >= _COMMITS_PER_CHECKPOINT:
                self._journal.checkpoint()
                # the first write after a checkpoint is slow, so this thread makes it, with a meaningless note
                self._journal.write(_CHECKPOINT_NOTE)
                self._commits = 0
        except (LedgerFileReplaced, ConfigError) as exc:
            return str(exc), True
        except Exception as exc:  # noqa: BLE001 - on any error the ledger is closed
            damaged = getattr(exc, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            return f"{self._journal.path}: can't be written ({exc}); check the file and the disk", damaged
        return "", False

    def _report(self, trouble: str, replaced: bool, waiting: "list[asyncio.Future[None]]") -> None:
        if not self._ending:
            if trouble and not self.trouble:
                _log.error("the ledger is closed: %s", trouble)
            elif self.trouble and not trouble:
                _log.warning("the ledger is open again")
            self.trouble = trouble
        if replaced:
            self.put(self._snapshot())
        for future in waiting:
            if not future.done() and trouble:
                future.set_exception(OSError(trouble))
            elif not future.done():
                future.set_result(None)


class MemoryWriter:
    """Keeps spending in memory; used instead of `LedgerWriter` if there is no file."""

    def __init__(self) -> None:
        self.trouble = ""
        self._written = LedgerChanges()

    def put(self, changes: LedgerChanges) -> None:
        """Adds the spending in `changes` to the sums in memory."""
        for slot, (spent, maybe) in changes.spent.items():
            self._written.count(slot, spent, maybe)

    async def write(self, changes: LedgerChanges) -> None:
        """Adds the spending in `changes` to the sums in memory, like `put`."""
        self.put(changes)

    def read_file(self, window: str) -> StoredLedger:
        """Returns the spending in a window."""
        sums = Balance()
        for (hour, key), (spent, maybe) in self._written.spent.items():
            if hour.startswith(window):
                sums.add(key, spent=spent, maybe=maybe)
        return StoredLedger({key: (sum_.spent, sum_.maybe) for key, sum_ in sums.keys.items()}, {}, {})

    async def close(self) -> None:
        """Marks the ledger as closed, so that nothing can be reserved any more."""
        self.trouble = "the gateway is closing down"


_NOTHING_STORED = StoredLedger({}, {}, {})
# name under which the ledger stores that the clock was set back: from the hour `until` to the hour `hour`
_CLOCK_NOTE = "clock"
_MAX_CLOCK_SETBACK = 3600.0  # a clock that is set back by up to this many seconds doesn't change the window


class Ledger:
    """The ledger of a single gateway. `open` creates it. Use it in one event loop."""

    def __init__(self, caps: Caps, now: Callable[[], float]) -> None:
        self.caps = caps
        self._now = now
        self._hour = format_hour(now())  # the current hour
        self._latest_hour = self._hour  # the latest hour so far; later than `_hour` if the clock was set back
        self._sums = Balance()  # amounts in the current window, in total and by key
        # name of a past window that still has reservations -> its sums
        self._former_sums: dict[str, Balance] = {}
        self._limits = CapChecker(caps)
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._last_number = 0
        self._writer: LedgerWriter | MemoryWriter = MemoryWriter()  # replaced by `open` if there is a file

    @classmethod
    async def open(
        cls,
        path: Path | None,
        caps: Caps,
        *,
        now: Callable[[], float] | None = None,
        elapsed: Callable[[], float] | None = None,
        retry_seconds: float = 1.0,
    ) -> "Ledger":
        """Opens a ledger in a file, which is created if missing; without a path, it is only in memory.

        Raises ConfigError if the file can't be used. `retry_seconds` is the time between attempts after a
        failed write. `now` reads the clock (default: the system's). Its jumps are ignored if `elapsed`, a
        clock that can't be set, contradicts them (see `WindowClock`).
        """
        if now is None:
            now, elapsed = time.time, elapsed or count_elapsed
        ledger = cls(caps, make_reader(now, elapsed))
        if path is None:
            return ledger
        opening = asyncio.get_running_loop().run_in_executor(None, ledger._open_file, path)
        try:
            journal = await asyncio.shield(opening)
        except asyncio.CancelledError:
            with contextlib.suppress(ConfigError):
                # waits for `opening` first: closing the file while another thread reads it crashes SQLite
                (await opening).close()
            raise
        ledger._writer = LedgerWriter(journal, ledger._snapshot, retry_seconds=retry_seconds)
        return ledger

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; the caller must pass the reservation to `settle` at the end.

        Raises CapReached if a cap would be exceeded, LedgerUnavailable if the ledger can't be written.
        """
        self._roll_window()
        if self._writer.trouble:
            raise make_closed_error() from OSError(self._writer.trouble)
        amount = amount.positive  # a negative amount must not make room under a cap
        if self._limits.has_limits and (refusal := self._find_refusal(self._sums, key, amount)):
            raise refusal
        self._last_number += 1
        reservation = Reservation(self._last_number, key, amount, self._hour)
        self._sums.add(key, reserved=amount)
        try:
            await self._writer.write(self._put_open(reservation))
        except OSError as exc:
            self.settle(reservation, NO_SPEND)
            raise make_closed_error() from exc
        except BaseException:  # the caller was cancelled and will never settle the reservation
            self.settle(reservation, NO_SPEND)
            raise
        return reservation

    def grow(self, reservation: Reservation, more: Spend) -> None:
        """Adds `more` to an open reservation because that much more was used, even if this exceeds a cap."""
        current, more = self._open.get(reservation.number), more.positive
        if current is not None:
            if (sums := self._find_sums(current.hour)) is not None:
                sums.add(current.key, reserved=more)
            self._writer.put(self._put_open(replace(current, amount=current.amount + more)))

    def _put_open(self, reservation: Reservation) -> LedgerChanges:
        """Stores a new or changed reservation; returns the changes to write."""
        self._open[reservation.number] = reservation
        entry = (reservation.hour, reservation.key), reservation.amount
        return LedgerChanges(open={reservation.number: entry})

    def check_send(self, reservation: Reservation) -> CapReached | None:
        """Checks the caps before an upstream call; returns an error if the call isn't allowed, else None.

        If the reservation was made in an earlier window, that window's spending counts.
        """
        if not self._limits.has_limits:
            return None
        self._roll_window()
        reservation = self._open.get(reservation.number, reservation)
        if (sums := self._find_sums(reservation.hour)) is None:
            return None
        return self._find_refusal(sums, reservation.key, reservation.amount, is_reserved=True)

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation; counts `spent` as spent, and `maybe` as possibly spent in addition.

        Does nothing if the reservation has already ended.
        """
        current = self._open.pop(reservation.number, None)
        if current is None:
            return
        spent, maybe = spent.positive, maybe.positive
        changes = LedgerChanges(open={current.number: None})
        if spent != NO_SPEND or maybe != NO_SPEND:
            changes.spent[current.hour, current.key] = spent, maybe
        if (sums := self._find_sums(current.hour)) is not None:
            sums.add(current.key, spent=spent, maybe=maybe, reserved=NO_SPEND - current.amount)
            if sums is not self._sums and sums.reserved == NO_SPEND:
                del self._former_sums[name_window(current.hour, self.caps.window)]
        self._writer.put(changes)

    def account(self) -> Balance:
        """Returns the amounts that count against the caps now, in total and by key."""
        self._roll_window()
        return self._sums.copy()

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Stores JSON data under a name; the data survives restarts."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) == text:
            return
        self._notes[name] = text
        self._writer.put(LedgerChanges(notes={name: text}))

    def recall(self, name: str) -> dict[str, Any] | None:
        """Returns the data stored under a name; None if missing or unreadable."""
        return decode_note(self._notes, name)

    async def close(self) -> None:
        """Writes pending changes and closes the file. Open reservations remain stored in it."""
        await self._writer.close()

    @property
    def available(self) -> bool:
        """Whether the ledger can be written to."""
        return not self._writer.trouble

    @property
    def _window(self) -> str:
        return name_window(self._hour, self.caps.window)

    def _roll_window(self) -> None:
        """Updates the current hour and window; ignores a clock that is set back by up to an hour."""
        now = self._now()
        hour = format_hour(now)
        if hour > self._hour or (hour < self._hour and format_hour(now + _MAX_CLOCK_SETBACK) < self._hour):
            self._change_hour(hour)

    def _change_hour(self, hour: str) -> None:
        """Changes the current hour to a later one, or to an earlier one if the clock was set back.

        If the clock was set back to an earlier window, spending in the later window counts in both windows.
        Otherwise, setting the clock back would make room under a cap.
        """
        window, previous_window = name_window(hour, self.caps.window), self._window
        goes_back = hour < self._hour
        is_known = hour <= self._latest_hour or previous_window != window <= name_window(
            self._latest_hour, self.caps.window
        )
        stored = self._writer.read_file(window) if is_known else _NOTHING_STORED
        if stored is None:
            return  # the file is busy, so the next request tries again
        previous, self._hour, self._latest_hour = self._sums, hour, max(hour, self._latest_hour)
        if goes_back:
            self._pull_back_reservations()
            self.remember(_CLOCK_NOTE, {"hour": hour, "until": self._latest_hour})
            _log.warning("the clock was set back to %s; what was spent later counts there as well", hour)
        if window != previous_window:
            if previous.reserved != NO_SPEND and not goes_back:
                self._former_sums[previous_window] = previous
            self._former_sums.pop(window, None)
            self._sums = self._sum_up(stored, previous if goes_back else None)

    def _sum_up(self, stored: StoredLedger, carried: Balance | None) -> Balance:
        """Returns the current window's balance: stored sums, plus open reservations, plus `carried`.

        `carried` is a later window's spending if the clock was set back, otherwise None.
        """
        sums = Balance()
        for key, (spent, maybe) in stored.sums.items():
            sums.add(key, spent=spent, maybe=maybe)
        for key, balance in (carried.keys if carried is not None else {}).items():
            sums.add(key, spent=balance.spent, maybe=balance.maybe)
        for entry in self._open.values():
            if name_window(entry.hour, self.caps.window) == self._window:
                sums.add(entry.key, reserved=entry.amount)
        return sums

    def _pull_back_reservations(self) -> None:
        """Moves open reservations from later hours to the current hour, after the clock was set back."""
        changes = LedgerChanges()
        for number, entry in self._open.items():
            if entry.hour > self._hour:
                self._open[number] = replace(entry, hour=self._hour)
                changes.open[number] = ((self._hour, entry.key), entry.amount)
        self._former_sums = {name: sums for name, sums in self._former_sums.items() if name < self._window}
        self._writer.put(changes)

    def _find_sums(self, hour: str) -> Balance | None:
        """Returns the sums of an hour's window; None if that window is past and has no open reservations."""
        if hour == self._hour or (window := name_window(hour, self.caps.window)) == self._window:
            return self._sums
        return self._former_sums.get(window)

    def _find_refusal(
        self, sums: Balance, key: str, amount: Spend, *, is_reserved: bool = False
    ) -> CapReached | None:
        return self._limits.find_refusal(
            key,
            amount,
            own=sums.keys.get(key, Balance()),
            total=sums,
            hour=self._hour,
            now=self._now,
            is_reserved=is_reserved,
        )

    def _open_file(self, path: Path) -> LedgerFile:
        """Opens the file, and takes over its content."""
        journal = LedgerFile(path)
        try:
            journal.write(self._load(journal))
        except BaseException:
            journal.close()
            raise
        return journal

    def _load(self, journal: LedgerFile) -> LedgerChanges:
        """Takes over a file's content; returns changes that count a dead process's reservations."""
        latest = journal.read_latest_hour()
        if self._hour < latest <= format_hour(self._now() + _MAX_CLOCK_SETBACK):
            self._hour = latest
        self._latest_hour = max(latest, self._hour)
        stored = journal.read(self._window)
        self._notes = dict(stored.notes)
        self._last_number = max(stored.open, default=0)
        for key, (spent, maybe) in stored.sums.items():
            self._sums.add(key, spent=spent, maybe=maybe)
        changes = LedgerChanges(notes=self._carry_later_window(journal, latest))
        lost_amount = NO_SPEND
        for number, ((hour, key), amount) in stored.open.items():
            slot = (min(hour, self._hour), key)
            changes.count(slot, NO_SPEND, amount)
            changes.open[number] = None
            lost_amount += amount
            if name_window(slot[0], self.caps.window) == self._window:
                self._sums.add(slot[1], maybe=amount)
        if stored.open:
            _log.warning(
                "%s: %d reservations of a process that died count as spent in full: at most %d samples, %d "
                "tokens",
                journal.path,
                len(stored.open),
                lost_amount.samples,
                lost_amount.tokens,
            )
        return changes

    def _carry_later_window(self, journal: LedgerFile, latest: str) -> dict[str, str]:
        """Adds a later window's spending to the current window, if the clock was ahead in an earlier run.

        `latest` is the latest hour with spending. Spending that was already added to another window isn't
        added again. Returns what to store about this in the file: name -> JSON text.
        """
        window, note = name_window(latest, self.caps.window), decode_note(self._notes, _CLOCK_NOTE) or {}
        known = str(note.get("until", "")) >= latest
        counted_in = name_window(str(note.get("hour", "")), self.caps.window) if known else self._window
        if latest <= self._hour or window == self._window or counted_in != self._window:
            return {}
        for key, (spent, maybe) in journal.read(window).sums.items():
            self._sums.add(key, spent=spent, maybe=maybe)
        _log.warning("%s: the clock was at %s; what was spent then counts now as well", journal.path, latest)
        if not known:
            self._notes[_CLOCK_NOTE] = json.dumps({"hour": self._hour, "until": latest})
        return {_CLOCK_NOTE: self._notes[_CLOCK_NOTE]}

    def _snapshot(self) -> LedgerChanges:
        """Returns all reservations, and this window's spending as if all of it had been in this hour."""
        return LedgerChanges(
            spent={(self._hour, key): (sums.spent, sums.maybe) for key, sums in self._sums.keys.items()},
            open={entry.number: ((entry.hour, entry.key), entry.amount) for entry in self._open.values()},
            notes=dict(self._notes),
            replaces_window=self._window,
        )
