"""What a gateway asks of its ledger, wherever that is kept. Knows nothing of files, servers or requests."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from adacompute.errors import LedgerUnavailable
from adacompute.serve.balance import NOTHING, Balance, Caps, Reservation
from adacompute.serve.spend import Spend

__all__ = ["Books", "closed", "recalled"]


class Books(Protocol):
    """Amounts are reserved before anything is drawn, and settled after. For one event loop.

    `reserve` never lets spent + maybe + reserved pass a cap, whoever else reserves.
    """

    caps: Caps

    async def reserve(self, key: str, most: Spend) -> Reservation:
        """Sets an amount aside; CapReached where a cap has no room for it, LedgerUnavailable where it can't
        be written down. Whoever gets one settles it."""

    def extend(self, reservation: Reservation, more: Spend) -> "bool | asyncio.Future[bool]":
        """Sets more aside for one that isn't settled yet; False: that can't be, e.g. its window is over.
        A future: it isn't known yet."""

    def settle(self, reservation: Reservation, spent: Spend, maybe: Spend = NOTHING) -> None:
        """Ends a reservation: what it took, and what it may have. A second time does nothing."""

    def account(self) -> Balance:
        """What counts against caps now, of all keys together and by key."""

    def remember(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps plain data under a name, over restarts."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was last remembered under a name; None where nothing was, or it can't be read."""

    async def close(self) -> None:
        """Writes all that is left."""

    @property
    def available(self) -> bool:
        """Can it be written to?"""


def closed() -> LedgerUnavailable:
    """For clients: where it is kept, and what is wrong with it, is in the log."""
    return LedgerUnavailable(
        "the ledger is closed: what is spent can't be written down, so nothing is sent; try again, or tell "
        "the operator: the gateway's log says why",
        retry_after=1.0,
    )


def recalled(notes: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """The plain data of a note; None where there is none, or it can't be read."""
    try:
        found = json.loads(notes.get(name, "null"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
