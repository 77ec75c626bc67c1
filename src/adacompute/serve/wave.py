"""One wave: samples, or verifications, that are requested together, reserved before and settled after.

A wave belongs to one source: the gateway's endpoint, or one mode of its menu.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from adacompute.client import Client, ModeEndpoint
from adacompute.errors import CapReached, EndpointError, SendingStopped
from adacompute.records import Call
from adacompute.serve.ledger import NO_SPEND, LedgerProtocol, Rates, Spend
from adacompute.serve.request_parser import ChatRequest

__all__ = ["SampleSource", "TokenBounds", "Wave"]


class TokenBounds(Protocol):
    """The most tokens that one call can cost."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Bounds:
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """Where samples come from: the gateway's one endpoint, or a mode of its menu."""

    client: Client
    rates: Rates = field(default_factory=Rates)
    mode: ModeEndpoint | None = None  # None: requests go to the endpoint as they came

    @property
    def name(self) -> str:
        """Of its mode; "" where there is no menu."""
        return "" if self.mode is None else self.mode.name

    def build_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request's body as it goes there."""
        return body if self.mode is None else self.mode.build_body(body)

    def has_token_limit(self, request: ChatRequest) -> bool:
        """Whether the client or the mode limits the tokens of a response."""
        return request.has_token_limit or (self.mode is not None and self.mode.max_tokens is not None)

    def bound_tokens(self, request: ChatRequest) -> TokenBounds:
        """The most tokens that a call for one sample of a request can cost there."""
        mode = self.mode
        if mode is None:
            return request
        limit = mode.max_tokens
        return _Bounds(
            request.prompt_tokens + mode.added_tokens,
            request.max_tokens if limit is None else min(limit, request.max_tokens),
        )


class Wave:
    """Samples, or verifications, that are requested together: their reservation, and what they cost.

    Always settle one that was begun.
    """

    def __init__(self, request: TokenBounds, count: int, *, ledger: LedgerProtocol, rates: Rates) -> None:
        self.count = count  # samples requested
        self.calls: list[Call] = []  # finished
        self._request = request
        self._ledger = ledger
        self._rates = rates
        self._reserved = self._bound_cost(count)
        self._used = (NO_SPEND, NO_SPEND)  # what `calls` cost, and what they may have cost
        self._extension: asyncio.Future[bool] | None = None  # a pending extension of the reservation
        self.refusal: CapReached | None = None  # why nothing more of it was sent, where a cap was passed
        self.unsent = 0  # samples that were not asked for, because of that
        self._under_way = 0  # samples that are asked for by calls that were sent and haven't ended

    async def begin(self, key: str) -> "Wave":
        """Reserves the most that it can cost; CapReached or LedgerUnavailable if that fails."""
        self._reservation = await self._ledger.reserve(key, self._reserved)
        return self

    def may_send(self, samples: int) -> bool:
        """Asked when a call's turn has come, with 0, and right before it is sent: whether the caps allow it.

        What an upstream gave beyond what was asked for may have used up what this wave has reserved.
        """
        if self.refusal is None:
            self.refusal = self._ledger.check_send(self._reservation)
        if self.refusal is None:
            self._under_way += samples
        return self.refusal is None

    def record_call(self, call: Call) -> "bool | asyncio.Future[bool]":
        """Records an attempt. Whether more may be sent, be it a retry or what is missing.

        True only if the reservation covers all that is still to come besides what was, or may have
        been, used; it is extended if attempts cost more than expected. A future if that takes time.
        What was used beyond the reservation counts at once, so that nothing more is sent on it.
        """
        self.calls.append(call)
        if call.status is not None or call.paid != "no":  # it was sent
            self._under_way -= call.asked
        self._used = self._sum_used()
        self._count_excess()
        if self._extension is not None and not self._extension.done():
            return self._extension  # it checks again before it ends
        more = self._find_shortfall()
        if more is NO_SPEND:
            return True
        granted = self._ledger.extend(self._reservation, more)
        if not isinstance(granted, bool):
            self._extension = asyncio.ensure_future(self._extend(more, granted))
            return self._extension
        if granted:
            self._reserved += more
        return granted

    def note_failure(self, error: EndpointError, calls: Sequence[Call], count: int) -> None:
        """Samples that didn't come: whether a cap prevented that they were asked for at all."""
        if self.refusal is not None and isinstance(error, SendingStopped) and not calls:
            self.unsent += count

    def _count_excess(self) -> None:
        excess = self._find_lack(self._under_way)
        if excess is not NO_SPEND:
            self._ledger.grow(self._reservation, excess)
            self._reserved += excess

    async def _extend(self, more: Spend, granted: "bool | asyncio.Future[bool]") -> bool:
        while granted if isinstance(granted, bool) else await granted:
            self._reserved += more
            more = self._find_shortfall()
            if more is NO_SPEND:
                return True
            granted = self._ledger.extend(self._reservation, more)
        return False

    def _find_shortfall(self) -> Spend:
        """What the reservation lacks for all that was, or may have been, used and is still to come."""
        remaining = self.count
        for call in self.calls:
            remaining -= call.got
        return self._find_lack(max(0, remaining))

    def _find_lack(self, samples: int) -> Spend:
        """What the reservation lacks for what was, or may have been, used and so many samples besides."""
        spent, maybe = self._used
        needed = spent + maybe
        if samples:
            needed += self._bound_cost(samples)
        return needed.beyond(self._reserved)

    def settle(self) -> tuple[Spend, Spend]:
        """Ends the wave: what it cost, and what it may have cost."""
        spent, maybe = self._used
        self._ledger.settle(self._reservation, spent, maybe)
        return spent, maybe

    def _bound_cost(self, samples: int) -> Spend:
        request = self._request
        return self._rates.compute_max(
            samples=samples, prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens
        )

    def _sum_used(self) -> tuple[Spend, Spend]:
        rates, request = self._rates, self._request
        maybe = rates.compute_maybe(
            self.calls, prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens
        )
        return rates.compute_spent(self.calls), maybe
