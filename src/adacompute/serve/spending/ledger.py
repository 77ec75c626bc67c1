"""Spending and caps: amounts, token prices, the periods to which caps apply, and the interface of ledgers.

There are two ledgers: `local_ledger.Ledger` in a file for one gateway, and `fleet_ledger.FleetLedger` in
Redis for several. Both check amounts with `CapChecker`.

An amount has samples, tokens and money, all as integers, so that sums are exact.

Caps apply per window: an hour, day or month in UTC, or "ever". A window's name is its start in ISO 8601, such
as "2026-11" for a month and "2026-11-15T14" for an hour; the name of "ever" is "". So names sort by time, and
the name of an hour begins with the name of each window that contains it.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from adacompute.errors import (
    BudgetInvalid,
    CapReached,
    ConfigError,
    EndpointError,
    LedgerUnavailable,
    SendingStopped,
)
from adacompute.records import DEFAULT_CURRENCY, Budget, BudgetUnit, Call

_log = logging.getLogger("adacompute.serve")

Unit = Literal["samples", "tokens", "money"]
NANOS = 1_000_000_000  # amounts of money are stored as integers, in billionths of the currency
_MAX_UNWRITTEN = 8  # maximum number of settled reservations that may wait to be written together
_CLOCK_TOLERANCE = 60.0  # a clock that jumps by up to this many seconds between two readings is still trusted
_CLOCK_PROBATION = 3600.0  # number of seconds after which a clock that jumped is trusted again


class Spend(Struct, frozen=True, kw_only=True):
    """An amount of samples, tokens and money together.

    >>> (Spend(samples=2, tokens=10) + Spend(samples=1)).amount_in("samples")
    3.0
    """

    samples: int = 0
    tokens: int = 0  # prompt tokens plus response tokens
    nanos: int = 0  # billionths of the currency

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples + other.samples,
            tokens=self.tokens + other.tokens,
            nanos=self.nanos + other.nanos,
        )

    def __sub__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples - other.samples,
            tokens=self.tokens - other.tokens,
            nanos=self.nanos - other.nanos,
        )

    @property
    def positive(self) -> "Spend":
        """The same amount with negative parts set to 0."""
        if self.samples >= 0 and self.tokens >= 0 and self.nanos >= 0:
            return self
        return self.beyond(NO_SPEND)

    def beyond(self, limit: "Spend") -> "Spend":
        """Returns by how much this amount exceeds a limit, in each unit."""
        return Spend(
            samples=max(0, self.samples - limit.samples),
            tokens=max(0, self.tokens - limit.tokens),
            nanos=max(0, self.nanos - limit.nanos),
        )

    @property
    def money(self) -> float:
        """The amount of money, in units of the currency."""
        return self.nanos / NANOS

    def amount_in(self, unit: Unit) -> float:
        """Returns the amount in one unit."""
        return self.money if unit == "money" else float(self.units_in(unit))

    def units_in(self, unit: Unit) -> int:
        """Returns the amount in one unit as an integer; money is in billionths."""
        return self.samples if unit == "samples" else self.tokens if unit == "tokens" else self.nanos


NO_SPEND = Spend()


class PromptCost(Struct, frozen=True, kw_only=True):
    """What a request's prompt costs: each upstream call pays for it once, however many samples it returns."""

    every: Spend = NO_SPEND  # prompt cost of all upstream calls
    single: Spend = NO_SPEND  # prompt cost of the first upstream call alone
    choices: int | None = None  # maximum number of samples per upstream call; None: no known limit


NO_PROMPT_COST = PromptCost()


def _split_prompt(call: Call) -> tuple[int, int]:
    """Splits a call's prompt tokens into those not cached and those cached upstream."""
    prompt = call.prompt_tokens or 0
    cached = min(call.cached_tokens, prompt) if call.cached_tokens else 0
    return prompt - cached, cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Token prices per million tokens."""

    input: float = 0.0
    cached: float | None = None  # price of prompt tokens cached upstream; None: the input price
    output: float = 0.0
    gives_samples: bool = True  # False if calls don't return samples, e.g. calls of a verifier

    def compute_max(self, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        """Returns the highest possible cost of calls that return `samples` samples in total.

        `prompt_tokens` is the total of all calls; `max_tokens` is the maximum of response tokens per sample.
        """
        completions = samples * max_tokens
        return Spend(
            samples=samples if self.gives_samples else 0,
            tokens=prompt_tokens + completions,
            nanos=self._compute_nanos(prompt_tokens, 0, completions),
        )

    def price(self, prompt_tokens: float, completion_tokens: float, *, unit: Unit) -> float:
        """Returns the cost in `unit`: the number of tokens, or their price without a discount for caching."""
        if unit == "tokens":
            return prompt_tokens + completion_tokens
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6

    def compute_spent(self, calls: Iterable[Call]) -> Spend:
        """Returns the total cost of the calls that were certainly charged: those whose `paid` is "yes"."""
        samples = fresh = cached = completions = 0
        for call in calls:
            if call.paid == "yes":
                own_fresh, own_cached = _split_prompt(call)
                samples += call.got + call.surplus
                fresh += own_fresh
                cached += own_cached
                completions += call.completion_tokens or 0
        return Spend(
            samples=samples if self.gives_samples else 0,
            tokens=fresh + cached + completions,
            nanos=self._compute_nanos(fresh, cached, completions),
        )

    def compute_prompts(self, calls: Iterable[Call], *, choices: int | None) -> PromptCost:
        """Returns what the prompts cost in calls whose `paid` is "yes"; `choices` is copied to the result."""
        prompts = [_split_prompt(call) for call in calls if call.paid == "yes"]
        if not prompts:
            return NO_PROMPT_COST
        single = every = self._price_prompt(*prompts[0])
        if len(prompts) > 1:
            every = self._price_prompt(*map(sum, zip(*prompts, strict=True)))
        return PromptCost(every=every, single=single, choices=choices)

    def _price_prompt(self, fresh: int, cached: int) -> Spend:
        return Spend(tokens=fresh + cached, nanos=self._compute_nanos(fresh, cached, 0))

    def compute_maybe(self, calls: Iterable[Call], prompt_tokens: int, max_tokens: int) -> Spend:
        """Returns the maximum that calls may be charged beyond what `compute_spent` returns.

        A call without a result may be charged in full. So may a call whose usage is missing or impossible:
        the estimate from its text may be too low. `prompt_tokens` is per call, `max_tokens` per sample.
        """
        total = NO_SPEND
        for call in calls:
            if call.paid == "maybe":
                total += self.compute_max(call.asked, prompt_tokens, max_tokens)
            elif call.paid == "yes" and call.unmetered:
                samples = max(call.asked, call.got + call.surplus)
                counted = replace(self.compute_spent([call]), samples=samples)
                total += self.compute_max(samples, prompt_tokens, max_tokens).beyond(counted)
        return total

    def _compute_nanos(self, fresh: int, cached: int, completions: int) -> int:
        if not (self.input or self.output or self.cached):
            return 0
        price = self.input if self.cached is None else self.cached
        # amount in millionths of the currency
        money = fresh * self.input + cached * price + completions * self.output
        return math.ceil(money * (NANOS / 1e6) - 1e-6)


Window = Literal["ever", "hour", "day", "month"]

_NAME_LENGTHS = {"ever": 0, "month": len("2026-11"), "day": len("2026-11-15"), "hour": len("2026-11-15T14")}


def format_hour(now: float) -> str:
    """Returns the name of an hour, e.g. "2026-11-15T14"."""
    return _format_start(now // 3600 * 3600)


@lru_cache(maxsize=16)
def _format_start(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H}"


def window_name_length(window: Window) -> int:
    """Returns n: the first n characters of an hour's name are the name of the window that contains it."""
    return _NAME_LENGTHS[window]


def name_window(hour: str, window: Window) -> str:
    """Returns the name of the window that contains an hour."""
    return hour[: _NAME_LENGTHS[window]]


def find_window_end(name: str) -> float | None:
    """Returns when a window ends, in seconds since 1970; None for "ever"."""
    if not name:
        return None
    if len(name) == _NAME_LENGTHS["month"]:
        start = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
        return (start.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
    if len(name) == _NAME_LENGTHS["day"]:
        return (datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)).timestamp()
    return (datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC) + timedelta(hours=1)).timestamp()


def parse_cap(place: str, value: float | str, unit: BudgetUnit, currency: str) -> Budget | None:
    """Parses a cap, a number in `unit` or a text such as "5 USD"; None if it is 0. Errors name `place`."""
    try:
        return None if value == 0 else Budget.parse(value, unit=unit, currency=currency, total=True)
    except BudgetInvalid as exc:
        raise ConfigError(f"{place}: {exc}; give a sum, e.g. '5 USD', or 0 for no cap") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits on spending in one unit; None means no limit."""

    unit: Unit = "samples"
    total: float | None = None  # limit for all keys together
    per_key: float | None = None  # limit for each key without its own cap
    by_key: Mapping[str, float] = field(default_factory=dict)  # limits by key name
    window: Window = "ever"  # period in UTC after which spending starts from 0 again
    place: str = ""  # where the ledger is, shown in messages to clients; "": not shown
    currency: str = DEFAULT_CURRENCY

    @property
    def unit_name(self) -> str:
        """The unit's name for display; for money, the currency."""
        return self.currency if self.unit == "money" else self.unit

    @property
    def counts_tokens(self) -> bool:
        """Whether there are caps in tokens or in money, for which tokens must be counted."""
        has_caps = self.total is not None or self.per_key is not None or bool(self.by_key)
        return self.unit != "samples" and has_caps

    def for_key(self, key: str) -> float | None:
        """Returns the cap of a key, or of all keys together if `key` is ""."""
        return self.by_key.get(key, self.per_key) if key else self.total


class Reservation(Struct, frozen=True):
    """An amount set aside until it is settled."""

    number: int
    key: str
    amount: Spend
    hour: str  # name of an hour; the amount counts in the window that contains it


class Balance(Struct):
    """The amounts that count against the caps in a window, for one key or in total."""

    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND  # maximum that may be charged in addition for calls whose cost is unknown
    reserved: Spend = NO_SPEND
    keys: dict[str, "Balance"] = struct_field(default_factory=dict)

    @property
    def total(self) -> Spend:
        """Sum of the spent, possibly spent and reserved amounts."""
        return self.spent + self.maybe + self.reserved

    def add(
        self, key: str, *, spent: Spend = NO_SPEND, maybe: Spend = NO_SPEND, reserved: Spend = NO_SPEND
    ) -> None:
        """Adds amounts to a key and to the total; a released reservation is a negative amount."""
        own = self.keys.setdefault(key, Balance())
        for sums in (self, own):
            if spent != NO_SPEND:
                sums.spent += spent
            if maybe != NO_SPEND:
                sums.maybe += maybe
            if reserved != NO_SPEND:
                sums.reserved += reserved
        if own == NO_BALANCE:
            del self.keys[key]

    def copy(self) -> "Balance":
        """Returns an independent copy."""
        return replace(self, keys={key: replace(own) for key, own in self.keys.items()})


NO_BALANCE = Balance()

HourKey = tuple[str, str]  # (name of an hour, name of a key)
SpendPair = tuple[Spend, Spend]  # (spent, possibly spent)


@dataclass(slots=True)
class LedgerChanges:
    """Changes to a ledger that are written in one transaction."""

    spent: dict[HourKey, SpendPair] = field(default_factory=dict)  # (hour, key) -> amounts to add
    # a reservation's number -> its (hour, key) and amount; None to delete it, because it was settled
    open: dict[int, tuple[HourKey, Spend] | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    # name of a window; its spending in the file, and all reservations, are deleted first; None: nothing is
    replaces_window: str | None = None

    def __bool__(self) -> bool:
        return bool(self.spent or self.open or self.notes or self.replaces_window is not None)

    @property
    def can_wait(self) -> bool:
        """Whether the changes are only a few settled reservations, which needn't be written immediately."""
        return len(self.open) < _MAX_UNWRITTEN and not self.notes and self.replaces_window is None

    def count(self, slot: HourKey, spent: Spend, maybe: Spend) -> None:
        """Adds amounts spent and possibly spent (`maybe`) to an hour and key."""
        if slot in self.spent:
            spent, maybe = self.spent[slot][0] + spent, self.spent[slot][1] + maybe
        self.spent[slot] = spent, maybe

    def add(self, newer: "LedgerChanges") -> None:
        """Merges newer changes into this object."""
        if newer.replaces_window is not None:
            self.spent, self.open, self.notes = {}, {}, {}
            self.replaces_window = newer.replaces_window
        for slot, amounts in newer.spent.items():
            self.count(slot, *amounts)
        self.open.update(newer.open)
        self.notes.update(newer.notes)


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """The content of a ledger's file for one window."""

    sums: dict[str, SpendPair]  # key -> (spent, possibly spent)
    open: dict[int, tuple[HourKey, Spend]]
    notes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendStatus:
    """The cap and the spending of one key, or of all keys, in the unit of the caps."""

    name: str  # the key's name; "": all keys
    spent: float
    maybe: float = 0.0  # maximum that may be charged in addition for calls whose cost is unknown
    reserved: float = 0.0  # amount reserved by requests in flight
    cap: float | None = None
    tokens: float = 0.0  # tokens spent, even if the caps are in another unit
    money: float = 0.0


def to_whole_units(cap: float | None, unit: Unit) -> int | None:
    """Converts a cap to an integer, with money in billionths; None if there is no cap."""
    if cap is None:
        return None
    return int(Decimal(repr(float(cap))) * (NANOS if unit == "money" else 1))


class CapChecker:
    """Checks amounts against the caps, as integers in the caps' unit."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self.total_limit = to_whole_units(caps.total, caps.unit)  # limit for all keys together, or None
        self.has_limits = caps.total is not None or caps.per_key is not None or bool(caps.by_key)

    def limit_of(self, key: str) -> int | None:
        """Returns the limit of a key; None if it has none."""
        return to_whole_units(self._caps.by_key.get(key, self._caps.per_key), self._caps.unit)

    def find_refusal(
        self,
        key: str,
        amount: Spend,
        *,
        own: Balance,
        total: Balance,
        hour: str,
        now: Callable[[], float],
        is_reserved: bool = False,
    ) -> CapReached | None:
        """Returns an error if a cap leaves no room for a key's amount; None if there is room.

        `own` is the key's balance, `total` the balance of all keys. If `is_reserved`, both already include
        `amount`. The error says when the window of `hour` (an hour's name) ends. `now` returns the present
        time, from which the client's waiting time is computed.
        """
        unit = self._caps.unit
        added = 0 if is_reserved else amount.units_in(unit)
        limits = [(self.limit_of(key), key, own), (self.total_limit, None, total)]
        rooms = [
            (limit - sums.total.units_in(unit), limit, owner, sums)
            for limit, owner, sums in limits
            if limit is not None
        ]
        for room, limit, owner, sums in rooms:
            if room < added:
                may_free_up = (sums.spent + sums.maybe).units_in(unit) + max(1, added) <= limit
                error = self._make_error(owner, sums, amount, may_free_up=may_free_up, hour=hour, now=now())
                per_sample = -(-amount.units_in(unit) // max(1, amount.samples))
                error.left = max(0, min(room for room, *_ in rooms) // max(1, per_sample))
                return error
        return None

    def _make_error(
        self, key: str | None, balance: Balance, amount: Spend, *, may_free_up: bool, hour: str, now: float
    ) -> CapReached:
        unit, cap = self._caps.unit, self._caps.for_key(key or "") or 0.0
        spent, maybe, reserved, requested = (
            f"{spend.amount_in(unit):.12g}"
            for spend in (balance.spent, balance.maybe, balance.reserved, amount)
        )
        requested += "" if unit == "samples" else f" {self._caps.unit_name}"
        maybe_text = f", {maybe} perhaps" if balance.maybe.amount_in(unit) else ""
        end = find_window_end(name_window(hour, self._caps.window))
        seconds_left = None if end is None else max(1.0, math.ceil(end - now))
        remedy = "ask the operator for a higher cap, because it doesn't start again"
        if end is not None:
            remedy = f"its window ends at {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%MZ}"
        need = f", and this request may take {requested}"
        if (balance.spent + balance.maybe).amount_in(unit) >= cap:
            place = f" (what was spent is kept in {self._caps.place})" if self._caps.place else ""
            need = f": it is used up{place}"
        elif unit != "samples":
            remedy = f"give a smaller max_tokens; {remedy}"
        # states no amounts, because they would tell a client what others have spent
        problem = "the gateway's cap is reached"
        if key is not None:
            problem = f"key {key!r} has spent {spent} of its cap of {cap:.12g} {self._caps.unit_name} "
            problem += f"({reserved} reserved{maybe_text})"
        return CapReached(f"{problem}{need}; {remedy}", retry_after=1.0 if may_free_up else seconds_left)


class LedgerProtocol(Protocol):
    """The interface of a ledger: amounts are reserved before samples are drawn, and settled afterwards.

    Use it in one event loop. `reserve` never lets the sum of spent, possibly spent and reserved amounts
    exceed a cap, even with concurrent reservations.
    """

    caps: Caps

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; the caller must settle the reservation.

        Raises CapReached if a cap would be exceeded, LedgerUnavailable if the ledger can't be written.
        """

    def grow(self, reservation: Reservation, more: Spend) -> None:
        """Adds `more` to an open reservation because that much more was used, even if this exceeds a cap."""

    def check_send(self, reservation: Reservation) -> CapReached | None:
        """Checks the caps before an upstream call; returns an error if the call isn't allowed.

        This is fast, because it only uses memory.
        """

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NO_SPEND) -> None:
        """Ends a reservation; counts `spent` as spent, and `maybe` as possibly spent in addition.

        Has no effect if the reservation has already ended.
        """

    def account(self) -> Balance:
        """Returns the amounts that count against the caps now, in total and by key."""

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Stores JSON data under a name; the data survives restarts."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """Returns the data stored under a name; None if missing or unreadable."""

    async def close(self) -> None:
        """Writes all pending changes, and closes the ledger."""

    @property
    def available(self) -> bool:
        """Whether the ledger can be written to."""


def make_closed_error() -> LedgerUnavailable:
    """Makes the error for clients if the ledger is unusable. Its path and the reason are only logged."""
    return LedgerUnavailable(
        "the ledger is closed: spending can't be recorded, so nothing is sent; try again, or tell "
        "the operator: the gateway's log says why",
        retry_after=1.0,
    )


def decode_note(notes: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """Decodes the JSON data stored under a name; None if missing, or if unreadable (which is logged)."""
    if name not in notes:
        return None
    try:
        value = json.loads(notes[name])
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    _log.warning("the stored note %s can't be read (%.40r); it is left out", name, notes[name])
    return None


# returns the seconds of a monotonic clock that, on Linux, goes on while the machine is asleep
count_elapsed: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class WindowClock:
    """Tells the time for finding the current window: the clock's time, unless the clock has jumped.

    Pass it every reading of the clock, and of a monotonic clock, which can't be set. After a jump of over a
    minute, time advances with the monotonic clock. So no window begins early if the clock is wrong for less
    than an hour. The clock is trusted again if it jumps back, or after an hour without another jump: it may
    have been wrong before the first one.
    """

    def __init__(self) -> None:
        # trusted time minus the monotonic clock's time, in seconds; None before the first reading
        self._offset: float | None = None
        self._doubted = 0.0  # the clock's time minus the monotonic clock's, while the clock isn't trusted
        # the monotonic clock's time when the clock jumped; None while the clock is trusted
        self._doubted_since: float | None = None

    def read(self, now: float, elapsed: float) -> float:
        """Returns the trusted time in seconds since 1970, given the clock's reading `now`."""
        offset = now - elapsed
        if self._offset is not None and abs(offset - self._offset) > _CLOCK_TOLERANCE:
            if self._doubted_since is None or abs(offset - self._doubted) > _CLOCK_TOLERANCE:
                self._doubted_since = elapsed
            self._doubted = offset
            if elapsed - self._doubted_since < _CLOCK_PROBATION:
                return elapsed + self._offset
        self._offset, self._doubted_since = offset, None
        return now

    def estimate(self, elapsed: float) -> float | None:
        """Returns the trusted time without reading the clock; None before the first reading."""
        return None if self._offset is None else elapsed + self._offset


def make_reader(now: Callable[[], float], elapsed: Callable[[], float] | None = None) -> Callable[[], float]:
    """Returns a function that reads the clock `now`.

    If `elapsed` (a clock that can't be set) is given, jumps of `now` are ignored as in `WindowClock`.
    """
    if elapsed is None:
        return now
    clock = WindowClock()
    return lambda: clock.read(now(), elapsed())


class WaveReservation:
    """The reservation and the cost of samples or verifications that are requested together (a wave).

    `prompt_tokens` is the maximum per call, `max_tokens` the maximum of response tokens per sample. After
    `begin`, `settle` must be called.
    """

    def __init__(
        self, count: int, *, prompt_tokens: int, max_tokens: int, ledger: LedgerProtocol, rates: Rates
    ) -> None:
        self.count = count  # number of samples requested
        self.calls: list[Call] = []  # calls that have ended
        self.refusal: CapReached | None = None  # the error if a cap prevented some calls
        self.unsent = 0  # number of samples never sent because of a cap
        self._most = prompt_tokens, max_tokens
        self._ledger = ledger
        self._rates = rates
        self._reservations: list[Reservation] = []  # the first reservation, then any additional ones
        self._reserved = self._bound_cost(count)
        self._used = (NO_SPEND, NO_SPEND)  # cost of `calls`: (certainly charged, may be charged in addition)
        self._under_way = 0  # number of samples in calls that haven't ended

    async def begin(self, key: str) -> "WaveReservation":
        """Reserves the highest possible cost; raises CapReached or LedgerUnavailable if that fails."""
        self._reservations = [await self._ledger.reserve(key, self._reserved)]
        return self

    async def may_send(self, samples: int) -> bool:
        """Checks whether the caps allow an upstream call. Call this once before each one, including retries.

        Reserves more if the reservation is used up: an upstream may have returned more samples or tokens than
        requested, and failed attempts may have been charged.
        """
        if self.refusal is None:
            self.refusal = self._ledger.check_send(self._reservations[0])
        if self.refusal is not None:
            return False
        # added before the `await` below, because other calls may begin during it
        self._under_way += samples
        if not self.calls and self._under_way <= self.count:
            return True
        more = self._find_lack()
        self._reserved += more
        allowed = False
        try:
            allowed = more == NO_SPEND or await self._reserve_more(more)
        finally:
            if not allowed:
                self._under_way -= samples
                self._reserved -= more
        return allowed

    async def _reserve_more(self, more: Spend) -> bool:
        """Makes another reservation; returns whether the call that needs it may be sent.

        Returns False if the reservation fails, or if a new window has begun since the first reservation: the
        cost is recorded only in the first one's window.
        """
        first, window = self._reservations[0], self._ledger.caps.window
        try:
            further = await self._ledger.reserve(first.key, more)
        except (CapReached, LedgerUnavailable):
            return False
        self._reservations.append(further)
        return name_window(further.hour, window) == name_window(first.hour, window)

    def record_call(self, call: Call) -> None:
        """Records an ended call; if it used more than was reserved, the reservation grows immediately."""
        self.calls.append(call)
        self._under_way -= call.asked
        rates = self._rates
        self._used = rates.compute_spent(self.calls), rates.compute_maybe(self.calls, *self._most)
        excess = self._find_lack()
        if excess != NO_SPEND:
            self._ledger.grow(self._reservations[0], excess)
            self._reserved += excess

    def note_failure(self, error: EndpointError, calls: Sequence[Call], count: int) -> None:
        """Adds the `count` samples of a failed draw to `unsent` if a cap stopped it before it sent a call."""
        if self.refusal is not None and isinstance(error, SendingStopped) and not calls:
            self.unsent += count

    def settle(self) -> tuple[Spend, Spend]:
        """Settles all reservations; returns (cost certainly charged, maximum further cost)."""
        first, *further = self._reservations
        self._ledger.settle(first, *self._used)
        for reservation in further:
            self._ledger.settle(reservation, NO_SPEND)
        return self._used

    def _find_lack(self) -> Spend:
        """Returns how much larger the reservation must be to cover all calls, including those under way."""
        spent, maybe = self._used
        needed = spent + maybe
        if self._under_way:
            needed += self._bound_cost(self._under_way)
        return needed.beyond(self._reserved)

    def _bound_cost(self, samples: int) -> Spend:
        """Returns the highest possible cost of these samples, if each one needs its own upstream call."""
        prompt_tokens, max_tokens = self._most
        return self._rates.compute_max(samples, samples * prompt_tokens, max_tokens)
