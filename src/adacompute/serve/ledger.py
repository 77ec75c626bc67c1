"""Who may still spend: amounts are reserved before anything is drawn, and settled after, on every way out.

Knows nothing of requests or of HTTP. Balances in memory decide, all in one event loop, so nothing comes
between looking at a cap and reserving; a reservation counts once it is on the disk. What is reserved when a
process dies may have been spent, so it counts in full from then on (`maybe`).

`reserve` never lets spent + maybe + reserved pass a cap. An upstream that charges more than was reserved is
counted in full all the same, and then the cap is closed.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from adacompute.errors import CapReached, LedgerUnavailable
from adacompute.serve.journal import Changes, Journal, Row, Slot
from adacompute.serve.scribe import Scribe
from adacompute.serve.spend import NANOS, Spend, Unit
from adacompute.serve.window import Window, ends, hour_of, window_of

__all__ = ["Balance", "Caps", "Ledger", "Reservation"]

_NONE = Spend()
_NOTHING: Row = (_NONE, _NONE)
_SET_BACK = 86_400.0  # seconds that a clock may be set back while no gateway runs, and begin no window again
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits on spending, in one unit; None: none."""

    unit: Unit = "samples"
    total: float | None = None  # of all keys together
    each: float | None = None  # of a key that has none of its own
    own: Mapping[str, float] = field(default_factory=dict)  # by key
    window: Window = "ever"  # after which they begin anew, by UTC

    @property
    def tokens(self) -> bool:
        """Is there a cap that every token counts towards?"""
        return self.unit != "samples" and not (self.total is None and self.each is None and not self.own)

    def of(self, key: str) -> float | None:
        """The cap of a key; of all together for ""."""
        return self.own.get(key, self.each) if key else self.total


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount that can't be spent by anybody else until it is settled."""

    number: int
    key: str
    most: Spend
    hour: str  # that it was made in, and is settled into


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What counts against caps in the present window."""

    spent: Spend = _NONE
    maybe: Spend = _NONE  # at most: it may have been charged for
    reserved: Spend = _NONE
    keys: Mapping[str, "Balance"] = field(default_factory=dict, hash=False)

    @property
    def taken(self) -> Spend:
        """All three together."""
        return self.spent + self.maybe + self.reserved


class Ledger:
    """Made by `open`; for one event loop."""

    def __init__(self, caps: Caps, now: Callable[[], float]) -> None:
        self.caps = caps
        self._now = now
        self._hour = hour_of(now())
        self._total = Balance()
        self._keys: dict[str, Balance] = {}
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
            raise _closed()
        most = _sane(most)
        self._check(key, most)
        self._last += 1
        made = Reservation(self._last, key, most, self._hour)
        self._open[made.number] = made
        self._count(key, Balance(reserved=most))
        if scribe is not None:
            try:
                await scribe.written(Changes(open={made.number: ((made.hour, key), most)}))
            except OSError as exc:
                self.settle(made, _NONE)
                raise _closed() from exc
            except BaseException:  # nobody waits for it any more
                self.settle(made, _NONE)
                raise
        return made

    def extend(self, reservation: Reservation, more: Spend) -> bool:
        """Sets more aside for one that isn't settled yet; False where a cap or the disk is in the way.

        Unlike `reserve` it doesn't wait for the disk: a process that is killed within that moment may have
        sent what its file doesn't know of.
        """
        made = self._open.get(reservation.number)
        self._roll()
        if made is None or not self.available:
            return False
        try:
            self._check(made.key, more)
        except CapReached:
            return False
        grown = replace(made, most=made.most + more)
        self._open[made.number] = grown
        if window_of(made.hour, self.caps.window) == self._window:
            self._count(made.key, Balance(reserved=more))
        if self._scribe is not None:
            self._scribe.put(Changes(open={made.number: ((made.hour, made.key), grown.most)}))
        return True

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = _NONE) -> None:
        """Ends a reservation: what it took, and what it may have. A second time does nothing."""
        made = self._open.pop(reservation.number, None)
        if made is None:
            return
        spent, maybe = _sane(spent), _sane(maybe)
        slot = (reservation.hour, reservation.key)
        before = self._rows.get(slot, _NOTHING)
        changes = Changes(open={reservation.number: None})
        if spent != _NONE or maybe != _NONE:
            self._rows[slot] = changes.rows[slot] = (before[0] + spent, before[1] + maybe)
        if window_of(reservation.hour, self.caps.window) == self._window:
            back = _NONE - made.most
            self._count(reservation.key, Balance(spent=spent, maybe=maybe, reserved=back))
        if self._scribe is not None:
            self._scribe.put(changes)

    def account(self) -> Balance:
        """What counts against caps now, of all keys together and by key."""
        self._roll()
        total = self._total
        return Balance(spent=total.spent, maybe=total.maybe, reserved=total.reserved, keys=dict(self._keys))

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, over restarts."""
        self._notes[name] = json.dumps(dict(value), allow_nan=False)
        if self._scribe is not None:
            self._scribe.put(Changes(notes={name: self._notes[name]}))

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was last remembered under a name; None where nothing was, or it can't be read."""
        try:
            found = json.loads(self._notes.get(name, "null"))
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

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
        hour = hour_of(self._now())
        if hour <= self._hour:
            return
        before, self._hour = self._window, hour
        if self._window != before:
            self._total, self._keys = Balance(), {}
        busy = {made.hour for made in self._open.values()}
        self._rows = {slot: row for slot, row in self._rows.items() if slot[0] in busy}

    def _count(self, key: str, change: Balance) -> None:
        self._total = _plus(self._total, change)
        balance = _plus(self._keys.pop(key, Balance()), change)
        if balance != Balance():
            self._keys[key] = balance

    def _check(self, key: str, most: Spend) -> None:
        caps = self.caps
        own = caps.own.get(key, caps.each)
        for cap, whose, balance in (
            (own, f"key {key!r} has", self._keys.get(key, Balance())),
            (caps.total, "all keys together have", self._total),
        ):
            if cap is None:
                continue
            unit, limit = caps.unit, _whole(cap, caps.unit)
            left = limit - _amount(balance.taken, unit)
            if _amount(most, unit) > left:
                settled = _amount(balance.spent + balance.maybe + most, unit) <= limit
                raise self._reached(whose, cap, balance, most, soon=settled)

    def _reached(self, whose: str, cap: float, balance: Balance, most: Spend, *, soon: bool) -> CapReached:
        unit = self.caps.unit
        spent, maybe, reserved, asked = (
            f"{amount.of(unit):.12g}" for amount in (balance.spent, balance.maybe, balance.reserved, most)
        )
        perhaps = f", {maybe} perhaps" if _amount(balance.maybe, unit) else ""
        its = "its" if whose.startswith("key") else "their"
        end = ends(self._window)
        left = None if end is None else max(1.0, math.ceil(end - self._now()))
        if end is None:
            then = f"{its} cap doesn't begin anew: ask the operator for a higher one"
        else:
            then = f"{its} window ends at {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%MZ}"
        return CapReached(
            f"{whose} spent {spent} of {its} cap of {cap:.12g} {unit} ({reserved} reserved{perhaps}), "
            f"and this request may take {asked}; {then}",
            retry_after=1.0 if soon else left,
        )

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
            self._count(key, Balance(spent=spent, maybe=maybe))
        changes = Changes()
        lost = _NONE
        for number, (slot, most) in stored.open.items():
            before = self._rows.get(slot, _NOTHING)
            self._rows[slot] = changes.rows[slot] = (before[0], before[1] + most)
            changes.open[number] = None
            lost += most
            if window_of(slot[0], self.caps.window) == self._window:
                self._count(slot[1], Balance(maybe=most))
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
        self._rows = {(self._hour, key): (kept.spent, kept.maybe) for key, kept in self._keys.items()}
        kept = {made.number: ((made.hour, made.key), made.most) for made in self._open.values()}
        return Changes(rows=dict(self._rows), open=dict(kept), notes=dict(self._notes), afresh=self._window)


def _sane(spend: Spend) -> Spend:
    """Nobody is given anything back by a number below 0."""
    if spend.samples >= 0 and spend.tokens >= 0 and spend.nanos >= 0:
        return spend
    return Spend(samples=max(0, spend.samples), tokens=max(0, spend.tokens), nanos=max(0, spend.nanos))


def _closed() -> LedgerUnavailable:
    """For clients: which file it is, and what is wrong with it, is in the log."""
    return LedgerUnavailable(
        "the ledger is closed: what is spent can't be written down, so nothing is sent; try again, or tell the "
        "operator: the gateway's log says why",
        retry_after=1.0,
    )


def _plus(balance: Balance, change: Balance) -> Balance:
    return Balance(
        spent=balance.spent + change.spent,
        maybe=balance.maybe + change.maybe,
        reserved=balance.reserved + change.reserved,
    )


def _amount(spend: Spend, unit: Unit) -> int:
    """In whole units, or billionths of money: compared exactly."""
    return spend.nanos if unit == "money" else spend.samples if unit == "samples" else spend.tokens


def _whole(cap: float, unit: Unit) -> int:
    return int(Decimal(repr(float(cap))) * (NANOS if unit == "money" else 1))
