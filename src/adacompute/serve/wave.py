"""What one wave of calls may take and has taken: set aside before, counted after. Knows nothing of votes."""

import asyncio

from adacompute.records import Call
from adacompute.serve.asked import Ask
from adacompute.serve.books import Books
from adacompute.serve.spend import Rates, Spend

__all__ = ["Wave"]

_NOTHING = Spend()


class Wave:
    """Samples that are asked for together; whoever has begun it settles it, however it ends."""

    def __init__(self, ask: Ask, count: int, *, ledger: Books, rates: Rates) -> None:
        self.count = count  # samples asked for
        self.calls: list[Call] = []  # that have ended
        self._ask = ask
        self._ledger = ledger
        self._rates = rates
        self._reserved = self._most(count)
        self._growing: asyncio.Future[bool] | None = None  # more is being set aside

    async def begin(self, key: str) -> "Wave":
        """Sets aside what it may take; CapReached or LedgerUnavailable where that can't be."""
        self._reservation = await self._ledger.reserve(key, self._reserved)
        return self

    def heard(self, call: Call) -> "bool | asyncio.Future[bool]":
        """Notes an attempt. May more be sent, be it once more what failed, or what is missing?

        Only where there is room for all that is still to come beside what was, or may have been, used: more
        is set aside where attempts took more than they were to. A future where that takes its time.
        """
        self.calls.append(call)
        if self._growing is not None and not self._growing.done():
            return self._growing  # it looks again before it ends
        more = self._lacking()
        if more == _NOTHING:
            return True
        said = self._ledger.extend(self._reservation, more)
        if not isinstance(said, bool):
            self._growing = asyncio.ensure_future(self._grown(more, said))
            return self._growing
        if said:
            self._reserved += more
        return said

    async def _grown(self, more: Spend, said: "bool | asyncio.Future[bool]") -> bool:
        while said if isinstance(said, bool) else await said:
            self._reserved += more
            more = self._lacking()
            if more == _NOTHING:
                return True
            said = self._ledger.extend(self._reservation, more)
        return False

    def _lacking(self) -> Spend:
        """What isn't set aside of all that was, or may have been, used and is still to come."""
        spent, maybe = self._used()
        left = max(0, self.count - sum(one.got for one in self.calls))
        return (spent + maybe + self._most(left) - self._reserved).positive

    def settle(self) -> tuple[Spend, Spend]:
        """It is over: what it took, in full, and what it may have."""
        spent, maybe = self._used()
        self._ledger.settle(self._reservation, spent, maybe)
        return spent, maybe

    def _most(self, samples: int) -> Spend:
        ask = self._ask
        return self._rates.most(samples=samples, prompt_tokens=ask.prompt_tokens, max_tokens=ask.max_tokens)

    def _used(self) -> tuple[Spend, Spend]:
        rates, ask = self._rates, self._ask
        maybe = rates.maybe(self.calls, prompt_tokens=ask.prompt_tokens, max_tokens=ask.max_tokens)
        return rates.spent(self.calls), maybe
