"""The ledger of a fleet: balances are in Redis, and every gateway reserves there.

A script in Redis checks caps and reserves in one step, so that no other gateway can act in between. Windows
follow Redis's clock, so all gateways change to the next one together. What a gateway has reserved is stored
under its name, with a lease: when that runs out, another gateway counts it in full (`maybe`). A gateway that
was only slow corrects that when it settles.

While Redis can't be reached nothing is reserved, so nothing is sent. What was settled meanwhile waits in this
process.
"""

import asyncio
import json
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from adacompute.errors import CapReached
from adacompute.serve.spending.ledger import (
    NO_SPEND,
    Balance,
    CapChecker,
    Caps,
    Reservation,
    Spend,
    SpendCounter,
    decode_note,
    make_closed_error,
    name_window,
    unit_index,
    window_name_length,
)
from adacompute.serve.spending.redis_client import ActionResult, FleetClient, FleetTiming, LedgerAction

__all__ = ["FleetLedger"]

_MAX_WATCHED = 200  # keys whose sums are read with one call
_LUA_MAX = 2**53  # the largest integer that Lua's numbers hold exactly
_MAX_LIMIT = 2**62  # beyond, Redis can't hold the sums
_ACCOUNT_SECONDS_PER_SUM = 0.001  # added to the time between two reads of all balances
_KINDS = {"s": "spent", "m": "maybe", "r": "reserved"}
_FIELD_NAMES = frozenset(f"{kind}{place}" for kind in _KINDS for place in (1, 2, 3))
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_log = logging.getLogger("adacompute.serve.fleet")


class FleetLedger:
    """One gateway's access to the fleet's ledger. `join_fleet` sets its client; for one event loop."""

    def __init__(self, caps: Caps, *, timing: FleetTiming) -> None:
        self.caps = caps
        self.client: FleetClient  # set by `join_fleet`
        self._timing = timing
        self._limits = CapChecker(caps)
        self._unit_index = unit_index(caps.unit)
        self._last_number = 0
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._balance = Balance()
        self._next_account = 0.0  # when balances are read next
        self._sums: dict[str, SpendCounter] = {}  # by key, "" of all: as Redis said last, in the caps' unit
        self._sums_window = ""  # that they are of
        self._redis_now = 0.0  # Redis's time then, in seconds since 1970
        self._has_key_limits = caps.per_key is not None or bool(caps.by_key)
        self._next_sums = 0.0  # when those of keys are read next
        self._unsent: deque[tuple[int, str, int]] = deque()  # number, key, change: not in those sums yet
        self._unsent_changes: Counter[str] = Counter()  # their sums by key, "" of all

    @property
    def script_settings(self) -> dict[str, Any]:
        """The caps, as every call tells the script: the total limit (-1: none), the unit, the window."""
        total = self._limits.total_limit
        length = window_name_length(self.caps.window)
        return {"limit": _script_limit(total), "place": self._unit_index + 1, "window": length}

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; whoever gets a reservation settles it.

        CapReached if a cap has no room for it, LedgerUnavailable if Redis can't be reached.
        """
        if self.client.trouble:
            raise make_closed_error() from OSError(self.client.trouble)
        amount = amount.positive
        self._last_number += 1
        reservation = self._open[self._last_number] = Reservation(self._last_number, key, amount, "")
        try:
            result = await self.client.submit(
                ("r", str(reservation.number), key, self._limit_of(key), _to_amounts(amount), [])
            )
        except OSError as exc:
            self.settle(reservation, NO_SPEND)  # Redis may still make it
            raise make_closed_error() from exc
        except BaseException:  # nobody waits for it any more
            self.settle(reservation, NO_SPEND)
            raise
        if not result.done:
            del self._open[reservation.number]
            self._refuse(key, amount, result)
        reservation = self._open[reservation.number] = replace(reservation, hour=result.hour)
        return reservation

    def extend(self, reservation: Reservation, more: Spend) -> "bool | asyncio.Future[bool]":
        """Enlarges an open reservation; the result is known when Redis has answered."""
        current = self._open.get(reservation.number)
        if current is None or self.client.trouble:
            return False
        return asyncio.ensure_future(self._extend(current, more.positive))

    async def _extend(self, current: Reservation, more: Spend) -> bool:
        action: LedgerAction = (
            "x",
            str(current.number),
            current.key,
            self._limit_of(current.key),
            _to_amounts(more),
            [],
        )
        try:
            done = (await self.client.submit(action)).done
        except OSError:
            return False  # Redis may still do it; then it ends with the reservation
        if done and (latest := self._open.get(current.number)) is not None:
            self._open[current.number] = replace(latest, amount=latest.amount + more)
        return done

    def grow(self, reservation: Reservation, more: Spend) -> None:
        """Adds what an open reservation has used beyond its amount, even where that passes a cap."""
        current = self._open.get(reservation.number)
        if current is not None:
            more = more.positive
            self._open[current.number] = replace(current, amount=current.amount + more)
            self._enqueue(("g", str(current.number), current.key, -1, _to_amounts(more), []), more)

    def check_send(self, reservation: Reservation) -> CapReached | None:
        """Asked right before a call is sent: the error if a cap is passed by now, so that it may not be.

        From memory: as Redis said last, at most about `poll` and one round trip ago, and as this gateway
        has changed it since. What others know and Redis doesn't yet is not in it. A reservation of a
        window that is over was checked when it was made.
        """
        key, total = reservation.key, self._sums.get("")
        if total is None or name_window(reservation.hour, self.caps.window) != self._sums_window:
            return None
        own = self._sums.get(key)
        return self._limits.find_excess(
            key,
            reservation.amount,
            key_sums=None if own is None else self._bring_up_to_date(own, key),
            total_sums=self._bring_up_to_date(total, ""),
            window=self._sums_window,
            now=lambda: self._redis_now,
        )

    def _bring_up_to_date(self, sums: SpendCounter, key: str) -> SpendCounter:
        updated = SpendCounter()
        updated.spent, updated.maybe = list(sums.spent), sums.maybe
        updated.reserved = list(sums.reserved)
        change = self._unsent_changes[key]
        (updated.spent if change > 0 else updated.reserved)[self._unit_index] += change
        return updated

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation: what it cost, and what it may have cost. A second time does nothing."""
        current = self._open.pop(reservation.number, None)
        if current is None:
            return
        spent, maybe = spent.positive, maybe.positive
        action: LedgerAction = (
            "e",
            str(current.number),
            current.key,
            current.hour,
            _to_amounts(spent),
            _to_amounts(maybe),
        )
        self._enqueue(action, spent + maybe - current.amount)

    def _enqueue(self, action: LedgerAction, change: Spend) -> None:
        """Sends an action soon; what it changes counts here until Redis's sums include it."""
        units, key = _to_amounts(change)[self._unit_index], action[2]
        number = self.client.enqueue(action)
        self._unsent.append((number, key, units))
        self._unsent_changes.update({key: units, "": units})

    def account(self) -> Balance:
        """What counts against the caps in the whole fleet, as of about a second ago.

        With very many keys it is older.
        """
        return self._balance

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, for every gateway of the fleet that starts later."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) != text:
            self._notes[name] = text
            self.client.add_note(name, text)

    def recall(self, name: str) -> dict[str, Any] | None:
        """What any gateway had remembered under a name when this one was opened, or this one since."""
        return decode_note(self._notes, name)

    async def close(self) -> None:
        """Sends Redis all that is left, and leaves. Open reservations count in full."""
        if not await self.client.close():
            _log.error(
                "%s; what was spent last is not in the ledger, what was reserved is", self.client.trouble
            )

    @property
    def available(self) -> bool:
        """Whether Redis can be reached."""
        return not self.client.trouble

    def list_reservations(self) -> dict[str, str]:
        """All open reservations that Redis has made, by number, in the script's format."""
        return {
            str(number): " ".join(
                (reservation.hour, *map(str, _to_amounts(reservation.amount)), reservation.key)
            )
            for number, reservation in self._open.items()
            if reservation.hour
        }

    def build_query(self) -> dict[str, Any]:
        """What the next call asks for."""
        now, query = time.monotonic(), dict[str, Any]()
        if now >= self._next_account:
            query["account"] = True
        if now >= self._next_sums and self._has_key_limits:
            keys = {reservation.key for reservation in self._open.values()}
            query["watch"] = list(islice(keys, _MAX_WATCHED))
            self._next_sums = now + self._timing.poll / 2
        return query

    def handle_answer(self, answer: dict[str, Any]) -> None:
        """Takes in an answer."""
        if "notes" in answer:
            self._notes = _pair_up(answer["notes"])
        if "committed" in answer:
            self._take_sums(answer)
        if "account" in answer:
            sums = _pair_up(answer["account"])
            self._balance = _parse_balance(sums)
            self._next_account = (
                time.monotonic() + self._timing.account + _ACCOUNT_SECONDS_PER_SUM * len(sums)
            )
        for replica, count, samples, tokens in answer.get("reaped") or []:
            if count:
                _log.warning(
                    "replica %s gave no sign of life: %d reservations count as spent in full, unless it "
                    "settles them yet: at most %d samples, %d tokens",
                    replica,
                    count,
                    samples,
                    tokens,
                )

    def _take_sums(self, answer: dict[str, Any]) -> None:
        """The sums of all and of some keys, as of this answer."""
        window = name_window(answer["hour"], self.caps.window)
        if window != self._sums_window:
            self._sums, self._sums_window = {}, window
        self._redis_now = int(answer["now"]) / 1000
        if answer.get("watched"):
            self._sums = {}
        for key, *amounts in answer["committed"] or []:
            sums = self._sums[key] = SpendCounter()
            for kind, units in zip(_KINDS.values(), amounts, strict=True):
                getattr(sums, kind)[self._unit_index] = int(units)
        while self._unsent and self._unsent[0][0] <= self.client.done_count:
            _, key, units = self._unsent.popleft()
            self._unsent_changes.subtract({key: units, "": units})
        if not self._unsent:
            self._unsent_changes.clear()

    def _limit_of(self, key: str) -> int:
        return _script_limit(self._limits.limit_of(key))

    def _refuse(self, key: str, amount: Spend, result: ActionResult) -> None:
        """Raises CapReached, with the same message as the ledger in a file."""
        key_sums, total_sums = SpendCounter(), SpendCounter()
        for i, sums in enumerate((key_sums, total_sums)):
            for kind, units in zip(_KINDS.values(), result.taken[3 * i : 3 * i + 3], strict=True):
                getattr(sums, kind)[self._unit_index] = units
        window = name_window(result.hour, self.caps.window)
        self._limits.check(
            key, amount, key_sums=key_sums, total_sums=total_sums, window=window, now=lambda: result.now
        )
        raise make_closed_error()  # not reached: the script compares the same numbers


def _script_limit(limit: int | None) -> int:
    """A limit as the script takes it; -1: no limit."""
    return -1 if limit is None else min(limit, _MAX_LIMIT)


def _to_amounts(spend: Spend) -> list[int]:
    return [min(part, _LUA_MAX) for part in (spend.samples, spend.tokens, spend.nanos)]


def _pair_up(flat: object) -> dict[str, str]:
    """Names and values as Redis lists them; Lua's JSON writes an empty list as an empty object."""
    return dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else {}


def _parse_balance(fields: Mapping[str, str]) -> Balance:
    """The sums of a window's hash: s1:alice is what alice spent in samples, s1: what all did.

    Others can write to Redis as well: invalid fields are skipped.
    """
    keys: dict[str, SpendCounter] = {"": SpendCounter()}
    for name, amount in fields.items():
        kind, _, key = name.partition(":")
        if kind in _FIELD_NAMES and _INTEGER.fullmatch(amount):
            getattr(keys.setdefault(key, SpendCounter()), _KINDS[kind[0]])[int(kind[1]) - 1] = int(amount)
    total = keys.pop("")
    return total.to_balance({key: sums.to_balance() for key, sums in keys.items() if sums})
