"""What counts against caps, and what was set aside. Knows nothing of files, clocks or requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from adacompute.serve.spend import NANOS, Spend, Unit
from adacompute.serve.window import Window

__all__ = ["NOTHING", "Balance", "Caps", "Reservation", "Sums", "add", "whole"]

NOTHING = Spend()


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

    spent: Spend = NOTHING
    maybe: Spend = NOTHING  # at most: it may have been charged for
    reserved: Spend = NOTHING
    keys: Mapping[str, "Balance"] = field(default_factory=dict, hash=False)

    @property
    def taken(self) -> Spend:
        """All three together."""
        return self.spent + self.maybe + self.reserved


class Sums:
    """What a Balance is made from: whole numbers that change in place, for each request counts four times."""

    __slots__ = ("maybe", "reserved", "spent")

    def __init__(self) -> None:
        self.spent = [0, 0, 0]  # samples, tokens, billionths of money
        self.maybe = [0, 0, 0]
        self.reserved = [0, 0, 0]

    def balance(self, keys: Mapping[str, Balance] | None = None) -> Balance:
        spent, maybe, reserved = (
            Spend(samples=a, tokens=b, nanos=c) for a, b, c in (self.spent, self.maybe, self.reserved)
        )
        return Balance(spent=spent, maybe=maybe, reserved=reserved, keys=keys or {})

    def __bool__(self) -> bool:
        return any(self.reserved) or any(self.spent) or any(self.maybe)


def add(sums: list[int], spend: Spend, times: int = 1) -> None:
    """Adds to sums in place."""
    if spend is not NOTHING:
        sums[0] += times * spend.samples
        sums[1] += times * spend.tokens
        sums[2] += times * spend.nanos


def whole(cap: float | None, unit: Unit) -> int | None:
    """A cap in whole units, or billionths of money; None: none."""
    if cap is None:
        return None
    return int(Decimal(repr(float(cap))) * (NANOS if unit == "money" else 1))
