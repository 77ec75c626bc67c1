"""The ledger of a fleet: balances are in Redis, and every gateway reserves there. One of the two `Books`.

Knows nothing of requests or of HTTP. A script in Redis looks at caps and reserves as one, so no gateway comes
between; windows are those of Redis's clock, so all roll over together. What a gateway has reserved is there
under its name, with a lease: where that runs out, another gateway counts it in full (`maybe`), and one that
was only slow corrects that, once, when it settles.

Where Redis can't be reached nothing is reserved, so nothing is sent. What was settled meanwhile waits here.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adacompute.serve.balance import NOTHING, Balance, Caps, Reservation, Sums
from adacompute.serve.books import closed, recalled
from adacompute.serve.capped import Limits, place_of
from adacompute.serve.fleet.post import Deed, Post, Said
from adacompute.serve.fleet.settings import Pulse
from adacompute.serve.spend import Spend
from adacompute.serve.window import window_length, window_of

__all__ = ["FleetLedger"]

_LARGEST = 2**53  # that Lua's numbers hold exactly
_HIGHEST = 2**62  # limit: beyond, sums are none that Redis can hold
_LEISURELY = 0.001  # seconds more between two looks at all balances, for each sum in them
_KINDS = {"s": "spent", "m": "maybe", "r": "reserved"}
_FIELDS = frozenset(f"{kind}{place}" for kind in _KINDS for place in (1, 2, 3))
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_log = logging.getLogger(__name__)


class FleetLedger:
    """One gateway's hold on the fleet's ledger. Given its post by `joined`; for one event loop."""

    def __init__(self, caps: Caps, *, pulse: Pulse) -> None:
        self.caps = caps
        self.post: Post  # set once there is one
        self._pulse = pulse
        self._limits = Limits(caps)
        self._place = place_of(caps.unit)
        self._last = 0
        self._open: dict[int, Reservation] = {}
        self._notes: dict[str, str] = {}
        self._balance = Balance()
        self._look = 0.0  # when balances are to be asked for next

    @property
    def fixed(self) -> dict[str, Any]:
        """What each call to Redis says of caps: the limit of all (-1: none), the unit, and the window."""
        total = self._limits.total
        length = window_length(self.caps.window)
        return {"limit": _whole(total), "place": self._place + 1, "window": length}

    async def reserve(self, key: str, most: Spend) -> Reservation:
        """Sets an amount aside; CapReached where a cap has no room for it, LedgerUnavailable where Redis
        can't be told. Whoever gets one settles it."""
        if self.post.trouble:
            raise closed() from OSError(self.post.trouble)
        most = most.positive
        self._last += 1
        made = self._open[self._last] = Reservation(self._last, key, most, "")
        try:
            said = await self.post.asked(("r", str(made.number), key, self._limit(key), _three(most), []))
        except OSError as exc:
            self.settle(made, NOTHING)  # Redis may yet come to make it
            raise closed() from exc
        except BaseException:  # nobody waits for it any more
            self.settle(made, NOTHING)
            raise
        if not said.done:
            del self._open[made.number]
            self._refuse(key, most, said)
        made = self._open[made.number] = replace(made, hour=said.hour)
        return made

    def extend(self, reservation: Reservation, more: Spend) -> "bool | asyncio.Future[bool]":
        """Sets more aside for one that isn't settled yet; it is known when Redis has said so."""
        made = self._open.get(reservation.number)
        if made is None or self.post.trouble:
            return False
        return asyncio.ensure_future(self._extended(made, more.positive))

    async def _extended(self, made: Reservation, more: Spend) -> bool:
        deed: Deed = ("x", str(made.number), made.key, self._limit(made.key), _three(more), [])
        try:
            done = (await self.post.asked(deed)).done
        except OSError:
            return False  # Redis may yet come to do it; then it ends with the reservation
        if done and (held := self._open.get(made.number)) is not None:
            self._open[made.number] = replace(held, most=held.most + more)
        return done

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NOTHING) -> None:
        """Ends a reservation: what it took, and what it may have. A second time does nothing."""
        made = self._open.pop(reservation.number, None)
        if made is None:
            return
        amounts = _three(spent.positive), _three(maybe.positive)
        self.post.tell(("e", str(made.number), made.key, made.hour, *amounts))

    def account(self) -> Balance:
        """What counts against caps in the whole fleet, as of a moment ago (about a second; longer with very
        many keys)."""
        return self._balance

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, for every gateway of the fleet that starts later."""
        text = json.dumps(dict(value), allow_nan=False)
        if self._notes.get(name) != text:
            self._notes[name] = text
            self.post.note(name, text)

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was remembered under a name, by any of them, when this one was opened, or by itself since."""
        return recalled(self._notes, name)

    async def close(self) -> None:
        """Tells Redis all that is left, and leaves. What is still reserved counts in full."""
        if not await self.post.close():
            _log.error(
                "%s; what was spent last is not in the ledger, what was reserved is", self.post.trouble
            )

    @property
    def available(self) -> bool:
        """Can Redis be told?"""
        return not self.post.trouble

    def known(self) -> dict[str, str]:
        """All reservations that Redis has made and that aren't settled, by number, as it writes them."""
        return {
            str(number): " ".join((made.hour, *map(str, _three(made.most)), made.key))
            for number, made in self._open.items()
            if made.hour
        }

    def ask(self) -> dict[str, Any]:
        """What is asked with the next call."""
        return {"account": True} if time.monotonic() >= self._look else {}

    def hear(self, answer: dict[str, Any]) -> None:
        """Takes in what was answered."""
        if "notes" in answer:
            self._notes = _paired(answer["notes"])
        if "account" in answer:
            found = _paired(answer["account"])
            self._balance = _balance(found)
            self._look = time.monotonic() + self._pulse.account + _LEISURELY * len(found)
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

    def _limit(self, key: str) -> int:
        return _whole(self._limits.of(key))

    def _refuse(self, key: str, most: Spend, said: Said) -> None:
        """Raises CapReached, in the words of the ledger in a file."""
        own, total = Sums(), Sums()
        for i, sums in enumerate((own, total)):
            for kind, amount in zip(_KINDS.values(), said.taken[3 * i : 3 * i + 3], strict=True):
                getattr(sums, kind)[self._place] = amount
        window = window_of(said.hour, self.caps.window)
        self._limits.check(key, most, own=own, total=total, window=window, now=lambda: said.now)
        raise closed()  # not reached: numbers are compared there as here


def _whole(limit: int | None) -> int:
    """A limit as the script takes it; -1: none."""
    return -1 if limit is None else min(limit, _HIGHEST)


def _three(spend: Spend) -> list[int]:
    return [min(each, _LARGEST) for each in (spend.samples, spend.tokens, spend.nanos)]


def _paired(flat: object) -> dict[str, str]:
    """Names and values as Redis lists them; an empty list is an empty object in Lua's JSON."""
    return dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else {}


def _balance(found: Mapping[str, str]) -> Balance:
    """Sums as they lie in a window's hash: s1:alice is what alice spent in samples, s1: what all did.

    Others can write to Redis as well: what is no sum is left out.
    """
    keys: dict[str, Sums] = {"": Sums()}
    for name, amount in found.items():
        kind, _, key = name.partition(":")
        if kind in _FIELDS and _WHOLE.fullmatch(amount):
            getattr(keys.setdefault(key, Sums()), _KINDS[kind[0]])[int(kind[1]) - 1] = int(amount)
    total = keys.pop("")
    return total.balance({key: sums.balance() for key, sums in keys.items() if sums})
