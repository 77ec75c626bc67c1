"""Is there room under the caps, and what is said where there is none? Doesn't know where sums are kept."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from adacompute.errors import CapReached
from adacompute.serve.balance import Balance, Caps, Sums, whole
from adacompute.serve.spend import Spend, Unit
from adacompute.serve.window import ends

__all__ = ["Limits", "place_of"]

_KEYS = 10_000  # whose caps are kept as whole numbers


def place_of(unit: Unit) -> int:
    """Where the unit stands in sums: samples, tokens, billionths of money."""
    return 0 if unit == "samples" else 1 if unit == "tokens" else 2


class Limits:
    """Caps as whole numbers of their unit, by key as they come to ask."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._place = place_of(caps.unit)
        self._keys: dict[str, int | None] = {}
        self.total = whole(caps.total, caps.unit)  # of all together; None: none

    def of(self, key: str) -> int | None:
        """The limit of a key; None: none."""
        if key not in self._keys:
            if len(self._keys) >= _KEYS:
                self._keys.clear()
            self._keys[key] = whole(self._caps.own.get(key, self._caps.each), self._caps.unit)
        return self._keys[key]

    def check(
        self, key: str, most: Spend, *, own: Sums | None, total: Sums, window: str, now: Callable[[], float]
    ) -> None:
        """CapReached where what was taken of a cap leaves no room; `own` is the key's, None: nothing yet."""
        place = self._place
        asked = (most.samples, most.tokens, most.nanos)[place]
        for limit, whose, sums in self._limiting(key, own, total):
            settled = sums.spent[place] + sums.maybe[place] + asked
            if settled + sums.reserved[place] > limit:
                soon = settled <= limit
                error = self._reached(whose, sums.balance(), most, soon=soon, window=window, now=now())
                error.left = self._fitting(key, own, total, -(-asked // max(1, most.samples)))
                raise error

    def _limiting(self, key: str, own: Sums | None, total: Sums) -> list[tuple[int, str | None, Sums]]:
        """The limits that a key is under: in whole units, whose it is (None: everybody's), what was taken."""
        found: list[tuple[int, str | None, Sums]] = []
        if (limit := self.of(key)) is not None:
            found.append((limit, key, own or Sums()))
        if self.total is not None:
            found.append((self.total, None, total))
        return found

    def _fitting(self, key: str, own: Sums | None, total: Sums, each: int) -> int:
        """How many samples that may take so much each there is room for."""
        place = self._place
        rooms = [
            limit - sums.spent[place] - sums.maybe[place] - sums.reserved[place]
            for limit, _, sums in self._limiting(key, own, total)
        ]
        return max(0, min(rooms) // max(1, each))

    def _reached(
        self, key: str | None, balance: Balance, most: Spend, *, soon: bool, window: str, now: float
    ) -> CapReached:
        unit, cap = self._caps.unit, self._caps.own.get(key or "", self._caps.each)
        spent, maybe, reserved, asked = (
            f"{amount.of(unit):.12g}" for amount in (balance.spent, balance.maybe, balance.reserved, most)
        )
        perhaps = f", {maybe} perhaps" if balance.maybe.of(unit) else ""
        end = ends(window)
        left = None if end is None else max(1.0, math.ceil(end - now))
        if end is None:
            then = "ask the operator for a higher cap, for it doesn't begin anew"
        else:
            then = f"its window ends at {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%MZ}"
        if unit != "samples":
            then = f"give a smaller max_tokens; {then}"
        said = "the gateway's cap is reached"  # what others have spent is nobody's business
        if key is not None:
            said = f"key {key!r} has spent {spent} of its cap of {cap:.12g} {unit} "
            said += f"({reserved} reserved{perhaps})"
        return CapReached(
            f"{said}, and this request may take {asked}; {then}", retry_after=1.0 if soon else left
        )
