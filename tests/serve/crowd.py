"""Many clients of the gateway at the same time, each on a connection of its own. For tests."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from running import PATIENCE, QUESTION, Answer, Running
from wires import until

from adacompute.serve.spending.ledger import Balance

__all__ = ["Visit", "Watched", "crowd", "ledger_of", "settled", "until", "visits"]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One client: what it asks for, and after how many seconds it goes away, if it does."""

    body: Mapping[str, Any] = field(default_factory=dict)  # fields beyond those of QUESTION
    headers: Mapping[str, str] = field(default_factory=dict)
    leaves: float | None = None


def crowd(gate: Any, come: Sequence[Visit], *, at_once: int = 1000) -> list[Answer | None]:
    """What each of them got; None: it went away, or its connection broke off."""
    return asyncio.run(visits(gate, come, at_once=at_once))


async def visits(gate: Any, come: Sequence[Visit], *, at_once: int = 1000) -> list[Answer | None]:
    """As `crowd`, in a loop that runs already."""
    connector = aiohttp.TCPConnector(limit=at_once)
    # for each request from when it is sent: most of a crowd waits for a free connection first
    each = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=4 * PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=each) as session:
        return list(await asyncio.gather(*(_visit(session, gate.url, one) for one in come)))


async def _visit(session: aiohttp.ClientSession, url: str, visit: Visit) -> Answer | None:
    body = json.dumps({**QUESTION, **visit.body}).encode()
    headers = {"content-type": "application/json", **visit.headers}
    try:
        async with asyncio.timeout(visit.leaves):
            async with session.post(f"{url}/chat/completions", data=body, headers=headers) as got:
                names = {name.lower(): value for name, value in got.headers.items()}
                return Answer(got.status, names, await got.read())
    except (TimeoutError, aiohttp.ClientError):
        return None


class Watched:
    """While its context is open: the most that was ever taken of everything, seen from the gateway's loop."""

    def __init__(self, gate: Running) -> None:
        self._gate = gate
        self.most = 0.0
        self.looks = 0

    def __enter__(self) -> "Watched":
        self._task = asyncio.run_coroutine_threadsafe(self._look(), self._gate.loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()
        self.see()

    def see(self) -> None:
        taken = ledger_of(self._gate).total.amount_in(self._gate.config.serve.unit)
        self.most, self.looks = max(self.most, taken), self.looks + 1

    async def _look(self) -> None:
        while True:
            self.see()
            await asyncio.sleep(0.001)


def ledger_of(gate: Running) -> Balance:
    return gate.gateway.resources.ledger.account()


def settled(gate: Running) -> Balance:
    """The ledger, once nothing is under way any more; nothing is reserved then."""
    until(lambda: not gate.gateway.under_way)
    account = ledger_of(gate)
    assert (account.reserved.samples, account.reserved.tokens, account.reserved.nanos) == (0, 0, 0)
    assert gate.gateway.resources.client.in_flight == 0
    return account
