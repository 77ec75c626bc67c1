"""The ledger of one gateway: who may still spend, in memory and in a file. One of the two `Books`.

Knows nothing of requests or of HTTP. Balances in memory decide, all in one event loop, so nothing comes
between looking at a cap and reserving; a reservation counts once it is on the disk. What is reserved when a
process dies may have been spent, so it counts in full from then on (`maybe`).

`reserve` never lets spent + maybe + reserved pass a cap. An upstream that charges more than was reserved is
counted in full all the same, and then the cap is closed.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adacompute.errors import CapReached
from adacompute.serve.balance import NOTHING, Balance, Caps, Reservation, Sums, add
from adacompute.serve.books import closed, recalled
from adacompute.serve.capped import Limits
from adacompute.serve.journal import Changes, Journal, Row, Slot
from adacompute.serve.scribe import Scribe
from adacompute.serve.spend import Spend
from adacompute.serve.window import hour_of, window_of

__all__ = ["Balance", "Caps", "Ledger", "Reservation"]

_NO_ROW: Row = (NOTHING, NOTHING)
_HOUR = 3600.0
_SET_BACK = 86_400.0  # seconds that a clock may be set back while no gateway runs, and begin no window again
_log = logging.getLogger(__name__)


class Ledger:
    """Made by `open`; for one event loop."""

    def __init__(self, caps: Caps, now: Callable[[], float]) -> None:
        self.caps = caps
        self._now = now
        self._hour, self._over = hour_of(now()), 0.0  # the hour, and when it ends
        self._total = Sums()
        self._keys: dict[str, Sums] = {}
        self._limits = Limits(caps)
        self._rows: dict[Slot, Row] = {}  # of hours that may still change
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._last = 0
        self._scribe: Scribe | None = None

    @classmethod
    async def open(
        cls, path: Path | None, caps: Caps, *, now: Callable[[], float] = time.time, again: float = 1.0
    ) -> "Ledger":
        """The ledger in a file, made where there is none; None: in memory, gone with the process.

        ConfigError where the file can't be used. `again` is how many seconds after a write failed it is
        tried again.
        """
        ledger = cls(caps, now)
        if path is not None:
            journal = await asyncio.to_thread(Journal, path)
            try:
                changes = await asyncio.to_thread(ledger._take, journal)
                await asyncio.to_thread(journal.write, changes)
            except BaseException:
                journal.close()
                raise
            ledger._scribe = Scribe(journal, ledger._everything, again=again)
        return ledger

    async def reserve(self, key: str, most: Spend) -> Reservation:
        """Sets an amount aside; CapReached where a cap has no room for it, LedgerUnavailable where it can't
        be written down. Whoever gets one settles it."""
        self._roll()
        scribe = self._scribe
        if scribe is not None and scribe.trouble:
            raise closed() from OSError(scribe.trouble)
        most = most.positive  # nobody is given anything back by a number below 0
        self._check(key, most)
        self._last += 1
        made = Reservation(self._last, key, most, self._hour)
        self._open[made.number] = made
        self._count(key, reserved=most)
        if scribe is not None:
            try:
                changes = Changes(open={made.number: ((made.hour, key), most)})
                await scribe.written(changes, alone=len(self._open) == 1)
            except OSError as exc:
                self.settle(made, NOTHING)
                raise closed() from exc
            except BaseException:  # nobody waits for it any more
                self.settle(made, NOTHING)
                raise
        return made

    def extend(self, reservation: Reservation, more: Spend) -> bool:
        """Sets more aside for one that isn't settled yet; False where a cap or the disk is in the way, or its
        window is over.

        Unlike `reserve` it doesn't wait for the disk: a process that is killed within that moment may have
        sent what its file doesn't know of.
        """
        made = self._open.get(reservation.number)
        self._roll()
        if made is None or not self.available or window_of(made.hour, self.caps.window) != self._window:
            return False
        try:
            self._check(made.key, more)
        except CapReached:
            return False
        grown = replace(made, most=made.most + more)
        self._open[made.number] = grown
        self._count(made.key, reserved=more)
        if self._scribe is not None:
            self._scribe.put(Changes(open={made.number: ((made.hour, made.key), grown.most)}))
        return True

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NOTHING) -> None:
        """Ends a reservation: what it took, and what it may have. A second time does nothing."""
        made = self._open.pop(reservation.number, None)
        if made is None:
            return
        spent, maybe = spent.positive, maybe.positive
        slot = (reservation.hour, reservation.key)
        before = self._rows.get(slot, _NO_ROW)
        changes = Changes(open={reservation.number: None})
        if spent != NOTHING or maybe != NOTHING:
            perhaps = before[1] if maybe == NOTHING else before[1] + maybe
            self._rows[slot] = changes.rows[slot] = (before[0] + spent, perhaps)
        if reservation.hour == self._hour or window_of(reservation.hour, self.caps.window) == self._window:
            self._count(reservation.key, spent=spent, maybe=maybe, freed=made.most)
        if self._scribe is not None:
            self._scribe.put(changes)

    def account(self) -> Balance:
        """What counts against caps now, of all keys together and by key."""
        self._roll()
        return self._total.balance({key: sums.balance() for key, sums in self._keys.items()})

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, over restarts."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) == text:
            return  # it is there already
        self._notes[name] = text
        if self._scribe is not None:
            self._scribe.put(Changes(notes={name: text}))

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was last remembered under a name; None where nothing was, or it can't be read."""
        return recalled(self._notes, name)

    async def close(self) -> None:
        """Writes all that is left, and lets others have the file. What is still reserved stays so in it."""
        if self._scribe is not None:
            await self._scribe.close()

    @property
    def available(self) -> bool:
        """Can it be written to?"""
        return self._scribe is None or not self._scribe.trouble

    @property
    def _window(self) -> str:
        return window_of(self._hour, self.caps.window)

    def _roll(self) -> None:
        """Begins the next window where it is time. A clock that is set back begins none again."""
        now = self._now()
        if now < self._over:
            return
        hour = hour_of(now)
        if hour <= self._hour:
            self._over = (now // _HOUR + 1) * _HOUR
            return
        before, self._hour = self._window, hour
        if self._window != before:
            self._total, self._keys = Sums(), {}
        busy = {made.hour for made in self._open.values()}
        self._rows = {slot: row for slot, row in self._rows.items() if slot[0] in busy}

    def _count(
        self,
        key: str,
        *,
        spent: Spend = NOTHING,
        maybe: Spend = NOTHING,
        reserved: Spend = NOTHING,
        freed: Spend = NOTHING,
    ) -> None:
        sums = self._keys.get(key)
        if sums is None:
            sums = self._keys[key] = Sums()
        for each in (self._total, sums):
            add(each.spent, spent)
            add(each.maybe, maybe)
            add(each.reserved, reserved)
            add(each.reserved, freed, -1)
        if not sums:
            del self._keys[key]

    def _check(self, key: str, most: Spend) -> None:
        own = self._keys.get(key)
        self._limits.check(key, most, own=own, total=self._total, window=self._window, now=self._now)

    def _take(self, journal: Journal) -> Changes:
        """Goes on from a file; answers what has to be changed in it."""
        latest = journal.latest()
        if self._hour < latest <= hour_of(self._now() + _SET_BACK):
            self._hour = latest
        stored = journal.read(self._window, self._hour)
        self._rows = dict(stored.rows)
        self._notes = dict(stored.notes)
        self._last = max(stored.open, default=0)
        for key, (spent, maybe) in stored.sums.items():
            self._count(key, spent=spent, maybe=maybe)
        changes = Changes()
        lost = NOTHING
        for number, (slot, most) in stored.open.items():
            before = self._rows.get(slot, _NO_ROW)
            self._rows[slot] = changes.rows[slot] = (before[0], before[1] + most)
            changes.open[number] = None
            lost += most
            if window_of(slot[0], self.caps.window) == self._window:
                self._count(slot[1], maybe=most)
        if stored.open:
            _log.warning(
                "%s: %d reservations of a process that died count as spent in full: at most %d samples, %d "
                "tokens",
                journal.path,
                len(stored.open),
                lost.samples,
                lost.tokens,
            )
        return changes

    def _everything(self) -> Changes:
        """All that counts now, for a file that was lost: the window's sums, as of this hour."""
        balances = {key: sums.balance() for key, sums in self._keys.items()}
        self._rows = {(self._hour, key): (kept.spent, kept.maybe) for key, kept in balances.items()}
        kept = {made.number: ((made.hour, made.key), made.most) for made in self._open.values()}
        return Changes(rows=dict(self._rows), open=dict(kept), notes=dict(self._notes), afresh=self._window)
