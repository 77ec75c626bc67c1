"""The ledger of one gateway: what each key has spent, and whether a cap leaves room for more.

Balances in memory decide, all in one event loop, so nothing happens between checking a cap and reserving;
a reservation counts once it is on disk. What is reserved when a process dies may have been spent, so it
counts in full from then on (`maybe`).

`reserve` never lets spent + maybe + reserved exceed a cap. An upstream that charges more than was reserved is
still counted in full, and then the cap is closed.

Caps count in windows: hours, days and months by UTC. A window's name is how its start is written in ISO 8601:
an hour's name begins with its day's, a day's with its month's, and every name with that of "ever", which is
empty. So names sort by time, and an hour lies in a window if its name begins with the window's.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol

from adacompute.errors import CapReached, LedgerUnavailable
from adacompute.serve.ledger_writer import HourKey, LedgerChanges, LedgerFile, LedgerWriter, SpendPair
from adacompute.serve.request import NANOS, Spend, Unit

__all__ = [
    "NO_SPEND",
    "Balance",
    "CapChecker",
    "Caps",
    "Ledger",
    "LedgerProtocol",
    "Reservation",
    "SpendCounter",
    "decode_note",
    "format_hour",
    "make_closed_error",
    "name_window",
    "unit_index",
    "window_name_length",
]

Window = Literal["ever", "hour", "day", "month"]

_NAME_LENGTHS = {"ever": 0, "month": len("2026-11"), "day": len("2026-11-15"), "hour": len("2026-11-15T14")}


def format_hour(now: float) -> str:
    """The name of the hour, e.g. "2026-11-15T14"."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H")


def window_name_length(window: Window) -> int:
    """The length of the names of such windows, as a prefix of an hour's name."""
    return _NAME_LENGTHS[window]


def name_window(hour: str, window: Window) -> str:
    """The name of the window that an hour is in."""
    return hour[: _NAME_LENGTHS[window]]


def find_window_end(name: str) -> float | None:
    """When the window of that name ends, in seconds since 1970; None: never."""
    if not name:
        return None
    if len(name) == _NAME_LENGTHS["month"]:
        start = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
        return (start.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
    if len(name) == _NAME_LENGTHS["day"]:
        return (datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)).timestamp()
    return (datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC) + timedelta(hours=1)).timestamp()


NO_SPEND = Spend()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits on spending, in one unit; None: no limit."""

    unit: Unit = "samples"
    total: float | None = None  # of all keys together
    per_key: float | None = None  # of a key without a cap of its own
    by_key: Mapping[str, float] = field(default_factory=dict)  # caps of single keys, by name
    window: Window = "ever"  # after which they start again, by UTC

    @property
    def counts_tokens(self) -> bool:
        """Whether there is a cap that every token counts towards."""
        return self.unit != "samples" and not (
            self.total is None and self.per_key is None and not self.by_key
        )

    def for_key(self, key: str) -> float | None:
        """The cap of a key; of all together for ""."""
        return self.by_key.get(key, self.per_key) if key else self.total


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount that nobody else can spend until it is settled."""

    number: int
    key: str
    amount: Spend
    hour: str  # in which it was made and counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What counts against the caps in the present window."""

    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND  # upper bound: it may have been charged for
    reserved: Spend = NO_SPEND
    keys: Mapping[str, "Balance"] = field(default_factory=dict, hash=False)

    @property
    def total(self) -> Spend:
        """Spent, maybe spent and reserved together."""
        return self.spent + self.maybe + self.reserved


class SpendCounter:
    """The numbers behind a Balance, changed in place, because every request updates them four times."""

    __slots__ = ("maybe", "reserved", "spent")

    def __init__(self) -> None:
        self.spent = [0, 0, 0]  # samples, tokens, billionths of money
        self.maybe = [0, 0, 0]
        self.reserved = [0, 0, 0]

    def to_balance(self, keys: Mapping[str, Balance] | None = None) -> Balance:
        """The numbers as a Balance."""
        spent, maybe, reserved = (
            Spend(samples=a, tokens=b, nanos=c) for a, b, c in (self.spent, self.maybe, self.reserved)
        )
        return Balance(spent=spent, maybe=maybe, reserved=reserved, keys=keys or {})

    def __bool__(self) -> bool:
        return any(self.reserved) or any(self.spent) or any(self.maybe)


def add_spend(sums: list[int], spend: Spend, times: int = 1) -> None:
    """Adds to sums in place."""
    if spend is not NO_SPEND:
        sums[0] += times * spend.samples
        sums[1] += times * spend.tokens
        sums[2] += times * spend.nanos


def to_whole_units(cap: float | None, unit: Unit) -> int | None:
    """A cap in whole units, or billionths of money; None: no cap."""
    if cap is None:
        return None
    return int(Decimal(repr(float(cap))) * (NANOS if unit == "money" else 1))


_MAX_KEYS = 10_000  # whose caps are cached as whole numbers


def unit_index(unit: Unit) -> int:
    """The index of the unit in sums: samples, tokens, billionths of money."""
    return 0 if unit == "samples" else 1 if unit == "tokens" else 2


class CapChecker:
    """Checks amounts against the caps, as whole numbers of their unit."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._unit_index = unit_index(caps.unit)
        self._keys: dict[str, int | None] = {}
        self.total_limit = to_whole_units(caps.total, caps.unit)  # of all together; None: none

    def limit_of(self, key: str) -> int | None:
        """The limit of a key; None: no limit."""
        if key not in self._keys:
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            self._keys[key] = to_whole_units(self._caps.by_key.get(key, self._caps.per_key), self._caps.unit)
        return self._keys[key]

    def check(
        self,
        key: str,
        amount: Spend,
        *,
        key_sums: SpendCounter | None,
        total_sums: SpendCounter,
        window: str,
        now: Callable[[], float],
    ) -> None:
        """CapReached if a cap leaves no room for an amount; `key_sums` is None before the key has spent
        anything.
        """
        index = self._unit_index
        units = (amount.samples, amount.tokens, amount.nanos)[index]
        for limit, owner, sums in self._list_limits(key, key_sums, total_sums):
            committed = sums.spent[index] + sums.maybe[index] + units
            if committed + sums.reserved[index] > limit:
                may_free_up = committed <= limit
                error = self._make_error(
                    owner, sums.to_balance(), amount, may_free_up=may_free_up, window=window, now=now()
                )
                error.left = self._count_fitting(
                    key, key_sums, total_sums, -(-units // max(1, amount.samples))
                )
                raise error

    def _list_limits(
        self, key: str, key_sums: SpendCounter | None, total_sums: SpendCounter
    ) -> list[tuple[int, str | None, SpendCounter]]:
        """The limits of a key: in whole units, whose it is (None: everybody's), and what counts against
        it.
        """
        limits: list[tuple[int, str | None, SpendCounter]] = []
        if (limit := self.limit_of(key)) is not None:
            limits.append((limit, key, key_sums or SpendCounter()))
        if self.total_limit is not None:
            limits.append((self.total_limit, None, total_sums))
        return limits

    def _count_fitting(
        self, key: str, key_sums: SpendCounter | None, total_sums: SpendCounter, per_sample: int
    ) -> int:
        """How many samples that may take so much each there is room for."""
        index = self._unit_index
        rooms = [
            limit - sums.spent[index] - sums.maybe[index] - sums.reserved[index]
            for limit, _, sums in self._list_limits(key, key_sums, total_sums)
        ]
        return max(0, min(rooms) // max(1, per_sample))

    def _make_error(
        self, key: str | None, balance: Balance, amount: Spend, *, may_free_up: bool, window: str, now: float
    ) -> CapReached:
        unit, cap = self._caps.unit, self._caps.by_key.get(key or "", self._caps.per_key)
        spent, maybe, reserved, requested = (
            f"{spend.amount_in(unit):.12g}"
            for spend in (balance.spent, balance.maybe, balance.reserved, amount)
        )
        maybe_text = f", {maybe} perhaps" if balance.maybe.amount_in(unit) else ""
        end = find_window_end(window)
        seconds_left = None if end is None else max(1.0, math.ceil(end - now))
        if end is None:
            remedy = "ask the operator for a higher cap, because it doesn't start again"
        else:
            remedy = f"its window ends at {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%MZ}"
        if unit != "samples":
            remedy = f"give a smaller max_tokens; {remedy}"
        problem = "the gateway's cap is reached"  # what others have spent is not shown
        if key is not None:
            problem = f"key {key!r} has spent {spent} of its cap of {cap:.12g} {unit} "
            problem += f"({reserved} reserved{maybe_text})"
        return CapReached(
            f"{problem}, and this request may take {requested}; {remedy}",
            retry_after=1.0 if may_free_up else seconds_left,
        )


class LedgerProtocol(Protocol):
    """A ledger, in a file or in Redis. Amounts are reserved before anything is drawn, and settled after.

    For one event loop. `reserve` never lets spent + maybe + reserved exceed a cap, whoever else reserves.
    """

    caps: Caps

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; whoever gets a reservation settles it.

        CapReached if a cap has no room for it, LedgerUnavailable if it can't be written.
        """

    def extend(self, reservation: Reservation, more: Spend) -> "bool | asyncio.Future[bool]":
        """Enlarges an open reservation; False if that can't be done, e.g. because its window is over.

        A future if it isn't known yet.
        """

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation: what it cost, and what it may have cost. A second time does nothing."""

    def account(self) -> Balance:
        """What counts against the caps now, in total and by key."""

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, across restarts."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was last remembered under a name; None if nothing was, or it can't be read."""

    async def close(self) -> None:
        """Writes all that is left."""

    @property
    def available(self) -> bool:
        """Whether it can be written to."""


def make_closed_error() -> LedgerUnavailable:
    """The error for clients: where the ledger is kept, and what is wrong with it, is in the log."""
    return LedgerUnavailable(
        "the ledger is closed: spending can't be recorded, so nothing is sent; try again, or tell "
        "the operator: the gateway's log says why",
        retry_after=1.0,
    )


def decode_note(notes: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """The plain data of a note; None if there is none, or it can't be read."""
    try:
        value = json.loads(notes.get(name, "null"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_NO_ROW: SpendPair = (NO_SPEND, NO_SPEND)
_HOUR_SECONDS = 3600.0
_MAX_CLOCK_SETBACK = 86_400.0  # seconds between two runs that don't repeat a window
_log = logging.getLogger(__name__)


class Ledger:
    """The ledger of a single gateway. Made by `open`; for one event loop."""

    def __init__(self, caps: Caps, now: Callable[[], float]) -> None:
        self.caps = caps
        self._now = now
        self._hour, self._hour_end = format_hour(now()), 0.0  # the present hour, and when it ends
        self._total = SpendCounter()
        self._keys: dict[str, SpendCounter] = {}
        self._limits = CapChecker(caps)
        self._rows: dict[HourKey, SpendPair] = {}  # of the hours that may still change
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._last_number = 0
        self._writer: LedgerWriter | None = None

    @classmethod
    async def open(
        cls,
        path: Path | None,
        caps: Caps,
        *,
        now: Callable[[], float] = time.time,
        retry_seconds: float = 1.0,
    ) -> "Ledger":
        """The ledger in a file, created if it doesn't exist; None: in memory only.

        ConfigError if the file can't be used. `retry_seconds` is the time between attempts after a
        failed write.
        """
        ledger = cls(caps, now)
        if path is not None:
            journal = await asyncio.to_thread(LedgerFile, path)
            try:
                changes = await asyncio.to_thread(ledger._load, journal)
                await asyncio.to_thread(journal.write, changes)
            except BaseException:
                journal.close()
                raise
            ledger._writer = LedgerWriter(journal, ledger._snapshot, retry_seconds=retry_seconds)
        return ledger

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; whoever gets a reservation settles it.

        CapReached if a cap has no room for it, LedgerUnavailable if it can't be written.
        """
        self._roll_window()
        writer = self._writer
        if writer is not None and writer.trouble:
            raise make_closed_error() from OSError(writer.trouble)
        amount = amount.positive  # a negative number must not free anything
        self._check_caps(key, amount)
        self._last_number += 1
        reservation = Reservation(self._last_number, key, amount, self._hour)
        self._open[reservation.number] = reservation
        self._add_to_sums(key, reserved=amount)
        if writer is not None:
            try:
                changes = LedgerChanges(open={reservation.number: ((reservation.hour, key), amount)})
                await writer.submit(changes, immediately=len(self._open) == 1)
            except OSError as exc:
                self.settle(reservation, NO_SPEND)
                raise make_closed_error() from exc
            except BaseException:  # nobody waits for it any more
                self.settle(reservation, NO_SPEND)
                raise
        return reservation

    def extend(self, reservation: Reservation, more: Spend) -> bool:
        """Enlarges an open reservation; False if a cap or the disk prevents it, or its window is over.

        Unlike `reserve` it doesn't wait for the disk: a process that is killed in that moment may
        have sent calls that its file doesn't know of.
        """
        current = self._open.get(reservation.number)
        self._roll_window()
        if (
            current is None
            or not self.available
            or name_window(current.hour, self.caps.window) != self._window
        ):
            return False
        try:
            self._check_caps(current.key, more)
        except CapReached:
            return False
        larger = replace(current, amount=current.amount + more)
        self._open[current.number] = larger
        self._add_to_sums(current.key, reserved=more)
        if self._writer is not None:
            self._writer.put(
                LedgerChanges(open={current.number: ((current.hour, current.key), larger.amount)})
            )
        return True

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation: what it cost, and what it may have cost. A second time does nothing."""
        current = self._open.pop(reservation.number, None)
        if current is None:
            return
        spent, maybe = spent.positive, maybe.positive
        slot = (reservation.hour, reservation.key)
        row = self._rows.get(slot, _NO_ROW)
        changes = LedgerChanges(open={reservation.number: None})
        if spent != NO_SPEND or maybe != NO_SPEND:
            maybe_sum = row[1] if maybe == NO_SPEND else row[1] + maybe
            self._rows[slot] = changes.rows[slot] = (row[0] + spent, maybe_sum)
        if reservation.hour == self._hour or name_window(reservation.hour, self.caps.window) == self._window:
            self._add_to_sums(reservation.key, spent=spent, maybe=maybe, released=current.amount)
        if self._writer is not None:
            self._writer.put(changes)

    def account(self) -> Balance:
        """What counts against the caps now, in total and by key."""
        self._roll_window()
        return self._total.to_balance({key: sums.to_balance() for key, sums in self._keys.items()})

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, across restarts."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) == text:
            return
        self._notes[name] = text
        if self._writer is not None:
            self._writer.put(LedgerChanges(notes={name: text}))

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was last remembered under a name; None if nothing was, or it can't be read."""
        return decode_note(self._notes, name)

    async def close(self) -> None:
        """Writes what is left, and releases the file. Open reservations stay in it."""
        if self._writer is not None:
            await self._writer.close()

    @property
    def available(self) -> bool:
        """Whether it can be written to."""
        return self._writer is None or not self._writer.trouble

    @property
    def _window(self) -> str:
        return name_window(self._hour, self.caps.window)

    def _roll_window(self) -> None:
        """Starts the next window when it is time. A clock that is set back repeats none."""
        now = self._now()
        if now < self._hour_end:
            return
        hour = format_hour(now)
        if hour <= self._hour:
            self._hour_end = (now // _HOUR_SECONDS + 1) * _HOUR_SECONDS
            return
        previous, self._hour = self._window, hour
        if self._window != previous:
            self._total, self._keys = SpendCounter(), {}
        open_hours = {reservation.hour for reservation in self._open.values()}
        self._rows = {slot: kept for slot, kept in self._rows.items() if slot[0] in open_hours}

    def _add_to_sums(
        self,
        key: str,
        *,
        spent: Spend = NO_SPEND,
        maybe: Spend = NO_SPEND,
        reserved: Spend = NO_SPEND,
        released: Spend = NO_SPEND,
    ) -> None:
        sums = self._keys.get(key)
        if sums is None:
            sums = self._keys[key] = SpendCounter()
        for counter in (self._total, sums):
            add_spend(counter.spent, spent)
            add_spend(counter.maybe, maybe)
            add_spend(counter.reserved, reserved)
            add_spend(counter.reserved, released, -1)
        if not sums:
            del self._keys[key]

    def _check_caps(self, key: str, amount: Spend) -> None:
        key_sums = self._keys.get(key)
        self._limits.check(
            key, amount, key_sums=key_sums, total_sums=self._total, window=self._window, now=self._now
        )

    def _load(self, journal: LedgerFile) -> LedgerChanges:
        """Continues from a file; what has to be changed in it."""
        latest = journal.read_latest_hour()
        if self._hour < latest <= format_hour(self._now() + _MAX_CLOCK_SETBACK):
            self._hour = latest
        stored = journal.read(self._window, self._hour)
        self._rows = dict(stored.rows)
        self._notes = dict(stored.notes)
        self._last_number = max(stored.open, default=0)
        for key, (spent, maybe) in stored.sums.items():
            self._add_to_sums(key, spent=spent, maybe=maybe)
        changes = LedgerChanges()
        lost_amount = NO_SPEND
        for number, (slot, amount) in stored.open.items():
            row = self._rows.get(slot, _NO_ROW)
            self._rows[slot] = changes.rows[slot] = (row[0], row[1] + amount)
            changes.open[number] = None
            lost_amount += amount
            if name_window(slot[0], self.caps.window) == self._window:
                self._add_to_sums(slot[1], maybe=amount)
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

    def _snapshot(self) -> LedgerChanges:
        """All that counts now, for a file that was lost: the window's sums, as of this hour."""
        balances = {key: sums.to_balance() for key, sums in self._keys.items()}
        self._rows = {(self._hour, key): (balance.spent, balance.maybe) for key, balance in balances.items()}
        reserved = {entry.number: ((entry.hour, entry.key), entry.amount) for entry in self._open.values()}
        return LedgerChanges(
            rows=dict(self._rows), open=dict(reserved), notes=dict(self._notes), replaces_window=self._window
        )
