"""Spending and its caps: amounts and token prices, the windows that caps count in, and what a ledger does.

Two classes keep a ledger: `local_ledger.Ledger` in a file, for one gateway, and `fleet.FleetLedger` in Redis,
for several. Both check amounts with `CapChecker`.

Amounts are counted in samples, tokens and money at once, in whole numbers, so that sums are exact.

Caps count in windows: hours, days and months by UTC. A window's name is how its start is written in ISO 8601:
an hour's name begins with its day's, a day's with its month's, and every name with that of "ever", which is
empty. So names sort by time, and an hour lies in a window if its name begins with the window's.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
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
NANOS = 1_000_000_000  # in one unit of money
_MAX_UNWRITTEN = 8  # settled reservations that wait for each other
_CLOCK_TOLERANCE = 60.0  # seconds between two readings that a clock may be adjusted by
_CLOCK_PROBATION = 3600.0  # seconds after which a clock that has jumped is believed


class Spend(Struct, frozen=True, kw_only=True):
    """An amount in every unit.

    >>> (Spend(samples=2, tokens=10) + Spend(samples=1)).amount_in("samples")
    3.0
    """

    samples: int = 0
    tokens: int = 0  # prompts and responses
    nanos: int = 0  # billionths of the unit of money

    def __add__(self, other: "Spend") -> "Spend":
        if other is NO_SPEND:  # as most of what is added
            return self
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
        """The same with negative parts set to 0."""
        if self.samples >= 0 and self.tokens >= 0 and self.nanos >= 0:
            return self
        return Spend(samples=max(0, self.samples), tokens=max(0, self.tokens), nanos=max(0, self.nanos))

    def beyond(self, limit: "Spend") -> "Spend":
        """What of it is above a limit, in each unit; `NO_SPEND` if nothing is."""
        if self.samples <= limit.samples and self.tokens <= limit.tokens and self.nanos <= limit.nanos:
            return NO_SPEND
        return (self - limit).positive

    @property
    def money(self) -> float:
        """The amount of money."""
        return self.nanos / NANOS

    def amount_in(self, unit: Unit) -> float:
        """The amount in one unit."""
        return self.money if unit == "money" else float(self.units_in(unit))

    def units_in(self, unit: Unit) -> int:
        """The amount in one unit, in whole numbers: money in billionths."""
        return self.samples if unit == "samples" else self.tokens if unit == "tokens" else self.nanos


NO_SPEND = Spend()


class PromptCost(Struct, frozen=True, kw_only=True):
    """What of a request is paid for its prompt: each call pays it once, however many samples it gives."""

    every: Spend = NO_SPEND  # all calls
    single: Spend = NO_SPEND  # the first call
    choices: int | None = None  # samples that one call gives at most; None: no limit is known


NO_PROMPT_COST = PromptCost()


def _split_prompt(call: Call) -> tuple[int, int]:
    """The tokens of a call's prompt: those that the upstream hadn't cached, and those that it had."""
    prompt = call.prompt_tokens or 0
    cached = min(call.cached_tokens, prompt) if call.cached_tokens else 0
    return prompt - cached, cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Token prices: money for a million tokens."""

    input: float = 0.0
    cached: float | None = None  # for prompt tokens that the upstream had cached; None: as other input
    output: float = 0.0
    gives_samples: bool = True  # False: what calls give is no sample, such as a verifier's score

    def compute_max(self, *, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that so many samples can cost, each drawn by a call of its own."""
        return self._bound_calls(samples, samples * prompt_tokens, max_tokens)

    def price(self, prompt_tokens: float, completion_tokens: float, *, unit: Unit) -> float:
        """What so many tokens cost in tokens or money, as a number that may be estimated with."""
        if unit == "tokens":
            return prompt_tokens + completion_tokens
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6

    def compute_spent(self, calls: Iterable[Call]) -> Spend:
        """What the calls that were paid for cost."""
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
        """What of the calls that were paid for is for prompts."""
        prompts = [_split_prompt(call) for call in calls if call.paid == "yes"]
        if not prompts:
            return NO_PROMPT_COST
        single = every = self._price_prompt(*prompts[0])
        if len(prompts) > 1:
            every = self._price_prompt(*map(sum, zip(*prompts, strict=True)))
        return PromptCost(every=every, single=single, choices=choices)

    def _price_prompt(self, fresh: int, cached: int) -> Spend:
        return Spend(tokens=fresh + cached, nanos=self._compute_nanos(fresh, cached, 0))

    def compute_maybe(self, calls: Iterable[Call], *, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that calls may be charged for beyond what `compute_spent` counts.

        A call without a result may be charged for in full, and one whose usage is missing or can't be
        right for up to its reservation: an estimate by the length of a text may be too low.
        """
        total = NO_SPEND
        for call in calls:
            if call.paid == "yes" and not call.unmetered:
                continue
            if call.paid == "maybe":
                total += self._bound_calls(call.asked, prompt_tokens, max_tokens)
            elif call.paid == "yes":
                samples = max(call.asked, call.got + call.surplus)
                counted = replace(self.compute_spent([call]), samples=samples)
                total += (self._bound_calls(samples, prompt_tokens, max_tokens) - counted).positive
        return total

    def _bound_calls(self, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        completions = samples * max_tokens
        return Spend(
            samples=samples if self.gives_samples else 0,
            tokens=prompt_tokens + completions,
            nanos=self._compute_nanos(prompt_tokens, 0, completions),
        )

    def _compute_nanos(self, fresh: int, cached: int, completions: int) -> int:
        if not (self.input or self.output or self.cached):
            return 0
        price = self.input if self.cached is None else self.cached
        money = fresh * self.input + cached * price + completions * self.output  # in millionths
        return math.ceil(money * (NANOS / 1e6) - 1e-6)


Window = Literal["ever", "hour", "day", "month"]

_NAME_LENGTHS = {"ever": 0, "month": len("2026-11"), "day": len("2026-11-15"), "hour": len("2026-11-15T14")}


def format_hour(now: float) -> str:
    """The name of the hour, e.g. "2026-11-15T14"."""
    return _format_start(now // 3600 * 3600)


@lru_cache(maxsize=16)
def _format_start(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H")


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


def parse_cap(place: str, value: float | str, unit: BudgetUnit, currency: str) -> Budget | None:
    """A cap: a number, which counts in `unit`, or a text such as "5 USD"; None: 0 is none."""
    try:
        return None if value == 0 else Budget.parse(value, unit=unit, currency=currency, total=True)
    except BudgetInvalid as exc:
        raise ConfigError(f"{place}: {exc}; a cap is a sum, e.g. '5 USD', and 0 is none") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits on spending, in one unit; None: no limit."""

    unit: Unit = "samples"
    total: float | None = None  # all keys together
    per_key: float | None = None  # for a key without a cap of its own
    by_key: Mapping[str, float] = field(default_factory=dict)  # caps of single keys, by name
    window: Window = "ever"  # after which they start again, by UTC
    place: str = ""  # where clients are told that the ledger is; "": nowhere
    currency: str = DEFAULT_CURRENCY

    @property
    def unit_name(self) -> str:
        """The unit for people: money by its currency."""
        return self.currency if self.unit == "money" else self.unit

    @property
    def counts_tokens(self) -> bool:
        """Whether there is a cap that every token counts towards."""
        has_caps = self.total is not None or self.per_key is not None or bool(self.by_key)
        return self.unit != "samples" and has_caps

    def for_key(self, key: str) -> float | None:
        """The cap of a key; of all together for ""."""
        return self.by_key.get(key, self.per_key) if key else self.total


class Reservation(Struct, frozen=True):
    """An amount that nobody else can spend until it is settled."""

    number: int
    key: str
    amount: Spend
    hour: str  # in which it was made and counts


class Balance(Struct):
    """What counts against the caps in a window, of one key or of all."""

    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND  # upper bound: it may have been charged for
    reserved: Spend = NO_SPEND
    keys: dict[str, "Balance"] = struct_field(default_factory=dict)

    @property
    def total(self) -> Spend:
        """Spent, maybe spent and reserved together."""
        return self.spent + self.maybe + self.reserved

    def __bool__(self) -> bool:
        return not self.spent == self.maybe == self.reserved == NO_SPEND

    def add(
        self, key: str, *, spent: Spend = NO_SPEND, maybe: Spend = NO_SPEND, reserved: Spend = NO_SPEND
    ) -> None:
        """Adds amounts of a key, in all and its own; what is no longer reserved is negative."""
        own = self.keys.setdefault(key, Balance())
        for sums in (self, own):
            sums.spent += spent
            sums.maybe += maybe
            sums.reserved += reserved
        if not own:
            del self.keys[key]

    def copy(self) -> "Balance":
        """The same, which later additions don't change."""
        return replace(self, keys={key: replace(own) for key, own in self.keys.items()})


HourKey = tuple[str, str]  # hour, key
SpendPair = tuple[Spend, Spend]  # spent, maybe


@dataclass(slots=True)
class LedgerChanges:
    """What is written together."""

    spent: dict[HourKey, SpendPair] = field(default_factory=dict)  # to be added
    open: dict[int, tuple[HourKey, Spend] | None] = field(default_factory=dict)  # None: settled
    notes: dict[str, str] = field(default_factory=dict)
    replaces_window: str | None = None  # a window: it and all reservations are written again

    def __bool__(self) -> bool:
        return bool(self.spent or self.open or self.notes or self.replaces_window is not None)

    @property
    def can_wait(self) -> bool:
        """Whether it is only a few settled reservations."""
        return len(self.open) < _MAX_UNWRITTEN and not self.notes and self.replaces_window is None

    def count(self, slot: HourKey, spent: Spend, maybe: Spend) -> None:
        """Adds to what was spent, and may have been."""
        before = self.spent.get(slot, (NO_SPEND, NO_SPEND))
        self.spent[slot] = before[0] + spent, before[1] + maybe

    def add(self, newer: "LedgerChanges") -> None:
        """Merges later changes into these."""
        if newer.replaces_window is not None:
            self.spent, self.open, self.notes = {}, {}, {}
            self.replaces_window = newer.replaces_window
        for slot, amounts in newer.spent.items():
            self.count(slot, *amounts)
        self.open.update(newer.open)
        self.notes.update(newer.notes)


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """What a file holds of one window."""

    sums: dict[str, SpendPair]  # by key
    open: dict[int, tuple[HourKey, Spend]]
    notes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendStatus:
    """What one key, or all of them, may spend and has spent, in the unit of the caps."""

    name: str  # the key's; "": the total
    spent: float
    maybe: float = 0.0  # upper bound for calls that gave nothing
    reserved: float = 0.0  # by requests in progress
    cap: float | None = None
    tokens: float = 0.0  # spent, whatever the unit
    money: float = 0.0


def to_whole_units(cap: float | None, unit: Unit) -> int | None:
    """A cap in whole units, or billionths of money; None: no cap."""
    if cap is None:
        return None
    return int(Decimal(repr(float(cap))) * (NANOS if unit == "money" else 1))


class CapChecker:
    """Checks amounts against the caps, as whole numbers of their unit."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self.total_limit = to_whole_units(caps.total, caps.unit)  # all keys together; None: none
        self.has_limits = caps.total is not None or caps.per_key is not None or bool(caps.by_key)

    def limit_of(self, key: str) -> int | None:
        """The limit of a key; None: no limit."""
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
        """The error if a cap leaves no room for an amount that a key is to reserve.

        `own` is what counts for the key. If the amount `is_reserved` already, a cap is passed only where an
        upstream gave, and charges for, more than was reserved.
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
        problem = "the gateway's cap is reached"  # what others have spent is not shown
        if key is not None:
            problem = f"key {key!r} has spent {spent} of its cap of {cap:.12g} {self._caps.unit_name} "
            problem += f"({reserved} reserved{maybe_text})"
        return CapReached(f"{problem}{need}; {remedy}", retry_after=1.0 if may_free_up else seconds_left)


class LedgerProtocol(Protocol):
    """A ledger, in a file or in Redis. Amounts are reserved before anything is drawn, and settled after.

    For one event loop. `reserve` never lets spent + maybe + reserved exceed a cap, whoever else reserves.
    """

    caps: Caps

    async def reserve(self, key: str, amount: Spend) -> Reservation:
        """Reserves an amount; whoever gets a reservation settles it.

        CapReached if a cap has no room for it, LedgerUnavailable if it can't be written.
        """

    def grow(self, reservation: Reservation, more: Spend) -> None:
        """Adds what an open reservation has used beyond its amount, even where that passes a cap."""

    def check_send(self, reservation: Reservation) -> CapReached | None:
        """Asked before each call: the error if a cap is passed by now, so that it may not be sent.

        Quick: from memory. None: at this moment spent + maybe + reserved is within the caps.
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
    """The plain data of a note; None if there is none, or it can't be read, which is logged."""
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


def count_elapsed() -> float:
    """Seconds that have passed since some moment, also while the machine slept, on Linux."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


class WindowClock:
    """The time that windows follow: the clock on the wall, unless it jumps. It is told every reading.

    A clock that is set wrong and right again must neither begin windows that aren't due nor keep a cap
    closed until a time that is years away. So the wall clock is compared with the time that has passed
    since it was read last. Where they disagree, the time that has passed decides for an hour; a clock that
    still says so then is believed, because it may have been wrong before.
    """

    def __init__(self) -> None:
        self._offset: float | None = None  # believed time minus elapsed time
        self._doubted = 0.0  # another offset, that the clock says and that isn't believed yet
        self._doubted_since: float | None = None  # elapsed time

    def read(self, now: float, elapsed: float) -> float:
        """The time that is believed, in seconds since 1970, where the clock says `now`."""
        offset = now - elapsed
        if self._offset is None or abs(offset - self._offset) <= _CLOCK_TOLERANCE:
            return self._believe(offset, now)
        if self._doubted_since is None or abs(offset - self._doubted) > _CLOCK_TOLERANCE:
            self._doubted_since = elapsed
        self._doubted = offset
        if elapsed - self._doubted_since >= _CLOCK_PROBATION:
            return self._believe(offset, now)
        return elapsed + self._offset

    def estimate(self, elapsed: float) -> float | None:
        """The time that is believed, without a new reading; None before the first."""
        return None if self._offset is None else elapsed + self._offset

    def _believe(self, offset: float, now: float) -> float:
        self._offset, self._doubted_since = offset, None
        return now


def make_reader(now: Callable[[], float], elapsed: Callable[[], float] | None = None) -> Callable[[], float]:
    """Reads the clock `now` at each call; where `elapsed` is None, it is believed whatever it says."""
    if elapsed is None:
        return now
    clock = WindowClock()
    return lambda: clock.read(now(), elapsed())


class WaveReservation:
    """Samples, or verifications, that are requested together: what is reserved for them, and what they cost.

    A call for one can cost so many tokens of its prompt and its response at most. Always settle one that was
    begun.
    """

    def __init__(
        self, count: int, *, prompt_tokens: int, max_tokens: int, ledger: LedgerProtocol, rates: Rates
    ) -> None:
        self.count = count  # samples requested
        self.calls: list[Call] = []  # finished
        self.refusal: CapReached | None = None  # why nothing more of it was sent, where a cap was passed
        self.unsent = 0  # samples never sent because of that
        self._most = {"prompt_tokens": prompt_tokens, "max_tokens": max_tokens}
        self._ledger = ledger
        self._rates = rates
        self._reservations: list[Reservation] = []  # the first, and those for calls beyond it
        self._reserved = self._bound_cost(count)
        self._used = (NO_SPEND, NO_SPEND)  # what `calls` cost, and what they may have cost
        self._under_way = 0  # samples requested by calls that haven't ended

    async def begin(self, key: str) -> "WaveReservation":
        """Reserves the most that it can cost; CapReached or LedgerUnavailable if that fails."""
        self._reservations = [await self._ledger.reserve(key, self._reserved)]
        return self

    async def may_send(self, samples: int) -> bool:
        """Asked once for each call, also for retries, before it is sent: whether the caps allow it.

        What an upstream gave beyond what was asked for may have used up what this wave has reserved. What a
        call may cost beyond it, because earlier attempts may have been paid for, is reserved now.
        """
        if self.refusal is None:
            self.refusal = self._ledger.check_send(self._reservations[0])
        if self.refusal is not None:
            return False
        more = NO_SPEND
        if self.calls or self._under_way + samples > self.count:
            more = self._find_lack(self._under_way + samples)
        self._under_way += samples  # before waiting: others of the wave may come meanwhile
        self._reserved += more
        allowed = False
        try:
            allowed = more is NO_SPEND or await self._reserve_more(more)
        finally:
            if not allowed:
                self._under_way -= samples
                self._reserved -= more
        return allowed

    async def _reserve_more(self, more: Spend) -> bool:
        """Whether more could be reserved, in the window that the wave counts in."""
        first, window = self._reservations[0], self._ledger.caps.window
        try:
            further = await self._ledger.reserve(first.key, more)
        except (CapReached, LedgerUnavailable):
            return False
        self._reservations.append(further)
        return name_window(further.hour, window) == name_window(first.hour, window)

    def record_call(self, call: Call) -> None:
        """Records an attempt. What it used beyond the reservation counts at once."""
        self.calls.append(call)
        self._under_way -= call.asked
        rates = self._rates
        self._used = rates.compute_spent(self.calls), rates.compute_maybe(self.calls, **self._most)
        excess = self._find_lack(self._under_way)
        if excess is not NO_SPEND:
            self._ledger.grow(self._reservations[0], excess)
            self._reserved += excess

    def note_failure(self, error: EndpointError, calls: Sequence[Call], count: int) -> None:
        """Counts samples that didn't come, if a cap is why they were never sent."""
        if self.refusal is not None and isinstance(error, SendingStopped) and not calls:
            self.unsent += count

    def settle(self) -> tuple[Spend, Spend]:
        """Ends the wave: what it cost, and what it may have cost."""
        first, *further = self._reservations
        self._ledger.settle(first, *self._used)
        for reservation in further:
            self._ledger.settle(reservation, NO_SPEND)
        return self._used

    def _find_lack(self, samples: int) -> Spend:
        """What the reservation lacks for what was, or may have been, used and so many samples besides."""
        spent, maybe = self._used
        return (spent + maybe + self._bound_cost(samples)).beyond(self._reserved)

    def _bound_cost(self, samples: int) -> Spend:
        return self._rates.compute_max(samples=samples, **self._most)
