"""The ledger of a fleet of gateways: they reserve amounts from balances that they share in Redis.

A script in Redis checks caps and reserves amounts atomically. Hours, days and months follow Redis's clock, so
they begin for all gateways together. Each gateway has a lease in Redis: the time until which it counts as
alive, which it keeps renewing. If a gateway's lease expires, all its reserved amounts are recorded as
possibly spent (`maybe`). If it was only slow, its later settlements replace these amounts by actual costs.

While Redis is unreachable, nothing can be reserved, so no request is sent upstream. Until Redis is back,
settled amounts are kept in this process.
"""

import json
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from adacompute.errors import CapReached, ServeError
from adacompute.serve.spending.ledger import (
    NO_BALANCE,
    NO_SPEND,
    Balance,
    CapChecker,
    Caps,
    Reservation,
    Spend,
    Unit,
    decode_note,
    make_closed_error,
    name_window,
    window_name_length,
)
from adacompute.serve.spending.redis_client import ActionResult, FleetClient, FleetTiming, LedgerAction

_MAX_WATCHED = 200  # maximum number of clients' keys whose sums are read in one call to Redis
_LUA_MAX = 2**53  # largest exact integer in Lua
_MAX_LIMIT = 2**62  # maximum value of a limit, because sums in Redis must stay below 2**63
# all sums are read at intervals, which grow by this number of seconds for each sum in Redis
_ACCOUNT_SECONDS_PER_SUM = 0.001
_KINDS = "smr"  # first letter of a field's name in Redis: s (spent), m (possibly spent) or r (reserved)
_PLACES: dict[Unit, int] = {"samples": 1, "tokens": 2, "money": 3}
_FIELD_NAMES = frozenset(f"{kind}{place}" for kind in _KINDS for place in (1, 2, 3))
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_log = logging.getLogger("adacompute.serve.fleet")


class FleetLedger:
    """Gives one gateway access to the fleet's ledger in Redis. Use it in one event loop."""

    def __init__(self, caps: Caps, *, timing: FleetTiming) -> None:
        self.caps = caps
        self.client: FleetClient  # set by `join_fleet`
        self._timing = timing
        self._limits = CapChecker(caps)
        self._last_number = 0
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._balance = Balance()
        self._next_account = 0.0  # time (`time.monotonic`) of the next read of all balances
        # client's key -> its balance as last read from Redis, in the caps' unit; "" -> the total of all keys
        self._sums: dict[str, Balance] = {}
        self._sums_window = ""  # name of the hour, day or month that `_sums` belongs to
        self._redis_now = 0.0  # Redis's time when it sent the sums, in seconds since 1970
        self._has_key_limits = caps.per_key is not None or bool(caps.by_key)
        self._next_sums = 0.0  # time (`time.monotonic`) of the next read of the balances of single keys
        # changes that `_sums` doesn't include yet: (number of the action, client's key, amount)
        self._unsent: deque[tuple[int, str, int]] = deque()
        # client's key -> sum of its amounts in `_unsent`; "" -> sum of all amounts
        self._unsent_changes: Counter[str] = Counter()

    @property
    def script_settings(self) -> dict[str, Any]:
        """The caps as sent with every call to Redis: total limit (-1: none), unit, length of window names."""
        total = self._limits.total_limit
        length = window_name_length(self.caps.window)
        return {"limit": _script_limit(total), "place": _PLACES[self.caps.unit], "window": length}

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; the caller must settle the reservation.

        Raises CapReached if a cap would be exceeded, LedgerUnavailable if Redis is unreachable.
        """
        if self.client.trouble:
            raise make_closed_error() from OSError(self.client.trouble)
        amount = amount.positive
        limit = _script_limit(self._limits.limit_of(key))
        self._last_number += 1
        reservation = self._open[self._last_number] = Reservation(self._last_number, key, amount, "")
        try:
            result = await self.client.submit(
                ("r", str(reservation.number), key, limit, _to_amounts(amount), [])
            )
        except OSError as exc:
            self.settle(reservation, NO_SPEND)  # Redis may still make the reservation, so release it
            raise make_closed_error() from exc
        except BaseException:  # the caller was cancelled and will never settle the reservation
            self.settle(reservation, NO_SPEND)
            raise
        if not result.done:
            del self._open[reservation.number]
            raise self._find_refusal(key, amount, result)
        reservation = self._open[reservation.number] = replace(reservation, hour=result.hour)
        return reservation

    def grow(self, reservation: Reservation, more: Spend) -> None:
        """Adds `more` to an open reservation because that much more was used, even if this exceeds a cap."""
        current = self._open.get(reservation.number)
        if current is not None:
            more = more.positive
            self._open[current.number] = replace(current, amount=current.amount + more)
            self._enqueue(("g", str(current.number), current.key, -1, _to_amounts(more), []), more)

    def check_send(self, reservation: Reservation) -> CapReached | None:
        """Checks the caps before an upstream call; returns an error if the call isn't allowed.

        Uses the latest sums from Redis, about `FleetTiming.poll` seconds old, and this gateway's newer
        changes. Allows the call if the sums are from another hour, day or month than the reservation.
        """
        key = reservation.key
        if "" not in self._sums or name_window(reservation.hour, self.caps.window) != self._sums_window:
            return None
        return self._limits.find_refusal(
            key,
            reservation.amount,
            own=self._bring_up_to_date(key) if key in self._sums else Balance(),
            total=self._bring_up_to_date(""),
            hour=reservation.hour,
            now=lambda: self._redis_now,
            is_reserved=True,
        )

    def _bring_up_to_date(self, key: str) -> Balance:
        sums, change = self._sums[key], self._make_spend(self._unsent_changes[key])
        if self._unsent_changes[key] > 0:
            return replace(sums, spent=sums.spent + change)
        return replace(sums, reserved=sums.reserved + change)

    def _make_spend(self, units: int) -> Spend:
        """Returns an amount that is 0 except in the unit of the caps."""
        return Spend(**{"nanos" if self.caps.unit == "money" else self.caps.unit: units})

    def _make_balance(self, amounts: Sequence[int | str]) -> Balance:
        """Makes a balance from spent, possibly spent and reserved amounts in the unit of the caps."""
        spent, maybe, reserved = (self._make_spend(int(units)) for units in amounts)
        return Balance(spent, maybe, reserved)

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation; counts `spent` as spent, and `maybe` as possibly spent in addition.

        Has no effect if the reservation has already ended.
        """
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
        """Queues an action for Redis, and adds its change to the sums here until Redis's sums include it."""
        units, key = min(change.units_in(self.caps.unit), _LUA_MAX), action[2]
        number = self.client.enqueue(action)
        self._unsent.append((number, key, units))
        self._unsent_changes.update({key: units, "": units})

    def account(self) -> Balance:
        """Returns the amounts that count against the caps in the whole fleet, in total and by key.

        The data is about a second old, and older if there are thousands of keys.
        """
        return self._balance

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Stores JSON data under a name, for all gateways that start later."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) != text:
            self._notes[name] = text
            self.client.add_note(name, text)

    def recall(self, name: str) -> dict[str, Any] | None:
        """Returns the data stored under a name; None if missing or unreadable.

        Doesn't see data that other gateways have stored since this one started.
        """
        return decode_note(self._notes, name)

    async def close(self) -> None:
        """Sends pending data to Redis and leaves the fleet. Open reservations count as possibly spent."""
        if not await self.client.close():
            _log.error(
                "%s; what was spent last is not in the ledger, what was reserved is", self.client.trouble
            )

    @property
    def available(self) -> bool:
        """Whether Redis is reachable."""
        return not self.client.trouble

    def list_reservations(self) -> dict[str, str]:
        """Returns the open reservations that Redis has made: number -> text in the Redis script's format."""
        return {
            str(number): " ".join(
                (reservation.hour, *map(str, _to_amounts(reservation.amount)), reservation.key)
            )
            for number, reservation in self._open.items()
            if reservation.hour
        }

    def build_query(self) -> dict[str, Any]:
        """Returns the fields of the next call to Redis that say which balances to read."""
        now, query = time.monotonic(), dict[str, Any]()
        if now >= self._next_account:
            query["account"] = True
        if now >= self._next_sums and self._has_key_limits:
            keys = {reservation.key for reservation in self._open.values()}
            query["watch"] = list(islice(keys, _MAX_WATCHED))
            self._next_sums = now + self._timing.poll / 2
        return query

    def handle_answer(self, answer: dict[str, Any]) -> None:
        """Takes over the balances, and the data stored under names, from a reply of Redis.

        Logs a warning about each gateway that still had reservations when its lease expired.
        """
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
        """Replaces the sums for checking caps with those in Redis's answer; forgets changes they include."""
        window = name_window(answer["hour"], self.caps.window)
        if window != self._sums_window:
            self._sums, self._sums_window = {}, window
        self._redis_now = int(answer["now"]) / 1000
        if answer.get("watched"):
            self._sums = {}
        for key, *amounts in answer["committed"] or []:
            self._sums[key] = self._make_balance(amounts)
        while self._unsent and self._unsent[0][0] <= self.client.done_count:
            _, key, units = self._unsent.popleft()
            self._unsent_changes.subtract({key: units, "": units})
        if not self._unsent:
            self._unsent_changes.clear()

    def _find_refusal(self, key: str, amount: Spend, result: ActionResult) -> ServeError:
        """Builds the error for a reservation that Redis refused, with the same message as a local ledger."""
        refusal = self._limits.find_refusal(
            key,
            amount,
            own=self._make_balance(result.taken[:3]),
            total=self._make_balance(result.taken[3:]),
            hour=result.hour,
            now=lambda: result.now,
        )
        # Redis checked the same sums and limits, so `refusal` is None only if Redis rounds large numbers
        return refusal or make_closed_error()


def _script_limit(limit: int | None) -> int:
    """Converts a limit to the number that the Redis script expects; None becomes -1."""
    return -1 if limit is None else min(limit, _MAX_LIMIT)


def _to_amounts(spend: Spend) -> list[int]:
    return [min(part, _LUA_MAX) for part in (spend.samples, spend.tokens, spend.nanos)]


def _pair_up(flat: object) -> dict[str, str]:
    """Converts Redis's list of names and values to a dictionary; Lua's JSON writes an empty list as {}."""
    return dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else {}


def _parse_balance(fields: Mapping[str, str]) -> Balance:
    """Makes a balance from sums in Redis, such as "s1:alice" -> "12": the key alice has spent 12 samples.

    The letter is s (spent), m (possibly spent) or r (reserved). The digit is 1 (samples), 2 (tokens) or 3
    (billionths of the currency). A name without a key, such as "s1:", has the sum of all keys. Skips invalid
    fields, because other programs can write to Redis too.
    """
    amounts: dict[str, dict[str, list[int]]] = {"": {kind: [0, 0, 0] for kind in _KINDS}}
    for name, amount in fields.items():
        kind, _, key = name.partition(":")
        if kind in _FIELD_NAMES and _INTEGER.fullmatch(amount):
            parts = amounts.setdefault(key, {kind: [0, 0, 0] for kind in _KINDS})
            parts[kind[0]][int(kind[1]) - 1] = int(amount)
    balances = {}
    for key, parts in amounts.items():
        spent, maybe, reserved = (Spend(samples=a, tokens=b, nanos=c) for a, b, c in parts.values())
        balances[key] = Balance(spent, maybe, reserved)
    total = balances.pop("")
    return replace(total, keys={key: balance for key, balance in balances.items() if balance != NO_BALANCE})
