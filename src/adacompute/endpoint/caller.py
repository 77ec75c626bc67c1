"""What all calls of one client share. Knows nothing of what they ask."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from yarl import URL

from adacompute.endpoint.breaker import Breaker
from adacompute.endpoint.gate import Gate
from adacompute.endpoint.manners import Manners
from adacompute.endpoint.pace import Pace
from adacompute.endpoint.settings import Endpoint
from adacompute.endpoint.totals import Totals
from adacompute.records import Call

if TYPE_CHECKING:
    from adacompute.endpoint.line import Line

__all__ = ["Caller", "Heard"]

# told of an attempt. False of one call's or draw's own: nothing more is to be sent for it. A future:
# nothing is until that has ended, and then only where it isn't False
Heard = Callable[[Call], object]


class Caller:
    """One pace, one breaker and one account, whoever calls."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        line: "Line",
        manners: Manners,
        account: Totals,
        gate: Gate,
        rng: random.Random,
        heard: Heard | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self.line = line
        self.manners = manners
        self.account = account
        self.gate = gate
        self.rng = rng
        self.heard = heard
        self.url = URL(endpoint.chat)
        self.pace = Pace(endpoint.limits, loop=self.loop, gate=gate)
        self.breaker = Breaker(endpoint.rest, loop=self.loop)
