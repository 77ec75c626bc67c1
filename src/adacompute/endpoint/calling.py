"""One call with its retries: when its turn comes, what is tried again, and what is learned from it."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from yarl import URL

from adacompute.endpoint.attempt import Answer, Attempt
from adacompute.endpoint.breaker import Breaker
from adacompute.endpoint.faults import backoff, pushed_back, retried, transport
from adacompute.endpoint.gate import Gate
from adacompute.endpoint.manners import Manners
from adacompute.endpoint.outcome import Reply
from adacompute.endpoint.pace import Pace
from adacompute.endpoint.reply import cap_of, prompt_tokens
from adacompute.endpoint.settings import Endpoint
from adacompute.endpoint.totals import Totals
from adacompute.endpoint.understand import Question, WithoutLogprobs, understood
from adacompute.errors import EndpointError, EndpointTimeout, RateLimited
from adacompute.records import Call, Paid

if TYPE_CHECKING:
    from adacompute.endpoint.line import Line

__all__ = ["Asking", "Caller"]

_UNCAPPED = 512  # tokens that a response without a limit is reserved at, until it is known


class Caller:
    """Makes the calls of one client, under one pace, one breaker and one account."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        line: "Line",
        manners: Manners,
        account: Totals,
        gate: Gate,
        rng: random.Random,
        heard: Callable[[Call], None] | None,
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

    async def call(self, body: Mapping[str, Any], n: int, patience: float) -> Reply:
        """One call with its retries, ended by that time of the loop."""
        return await Asking(self, body, n, patience).run()


class Asking:
    """One call, and how far it has come."""

    __slots__ = (
        "_backoff",
        "_body",
        "_cap",
        "_data",
        "_n",
        "_patience",
        "_until",
        "_weight",
        "begun",
        "caller",
        "calls",
    )

    def __init__(self, caller: Caller, body: Mapping[str, Any], n: int, patience: float) -> None:
        self.caller = caller
        self.calls: list[Call] = []
        self.begun = False  # False: nothing has been sent yet
        self._n = n
        self._patience = patience
        self._until = min(patience, caller.loop.time() + caller.endpoint.retries.deadline)
        self._body = dict(body)
        if n > 1 or "n" in body:
            self._body["n"] = n
        self._cap = cap_of(body)
        self._data = b""
        self._weight = 0.0
        self._backoff = 0.0  # seconds to wait after the last attempt

    async def run(self) -> Reply:
        """The reply, or its error with all attempts that were made."""
        try:
            return await self._tried()
        except EndpointError as error:
            error.calls = tuple(self.calls)
            error.paid = any(call.paid != "no" for call in self.calls)
            raise

    async def _tried(self) -> Reply:
        tries, caller = 0, self.caller
        while True:
            self._prepare()
            await self._turn(tries)
            tries += 1
            try:
                return await self._try(tries)
            except WithoutLogprobs:
                tries -= 1  # nothing failed: it is asked again at once, without them
            except EndpointError as error:
                wait = self._wait(error, tries)
                if wait is None:
                    raise
                async with caller.gate.abiding():
                    await asyncio.sleep(wait)

    def _prepare(self) -> None:
        caller = self.caller
        if caller.manners.logprobs_refused and ("logprobs" in self._body or "top_logprobs" in self._body):
            self._body.pop("logprobs", None)
            self._body.pop("top_logprobs", None)
            self._data = b""
        if not self._data:
            self._data = _encoded(self._body)
            if caller.pace.weighs:
                each = _UNCAPPED if self._cap is None else self._cap
                self._weight = float(prompt_tokens(self._body) + self._n * each)

    async def _turn(self, tries: int) -> None:
        """Waits for the gate, the breaker and the pace. The settings' deadline runs from the first turn on:
        a queue of our own is no fault of the endpoint. The caller's own deadline runs all the time.
        """
        caller = self.caller
        if not (caller.gate.passable and caller.breaker.closed and caller.pace.entered(self._weight)):
            async with caller.gate.abiding():
                await self._queue(tries)
        now = caller.loop.time()
        if tries == 0:
            self._until = min(self._patience, now + caller.endpoint.retries.deadline)
        if now >= self._until:
            caller.breaker.unknown(caller.breaker.turn)
            caller.pace.unused(self._weight)
            raise self._no_turn()

    async def _queue(self, tries: int) -> None:
        caller, pace, retries = self.caller, self.caller.pace, self.caller.endpoint.retries
        latest = self._until if tries else self._patience
        while True:
            until = self._until if tries else min(self._patience, caller.loop.time() + retries.deadline)
            await caller.breaker.ready(until, probes=retries.attempts - tries)
            if pace.paused > latest:
                raise self._too_late(pace.paused - caller.loop.time())
            try:
                await pace.enter(self._weight, until=latest)
            except TimeoutError:
                raise self._no_turn() from None
            if self._sendable():
                return

    def _sendable(self) -> bool:
        """With a turn taken: is nothing else in the way? If there is, the turn is given back."""
        if self.caller.gate.passable and self.caller.breaker.passes():
            return True
        self.caller.pace.unused(self._weight)
        return False

    async def _try(self, tries: int) -> Reply:
        caller, self.begun = self.caller, True
        turn, used = caller.breaker.turn, None
        began, at = caller.loop.time(), time.time()
        attempt = Attempt(caller.endpoint, self._until, caller.loop)
        caller.account.in_flight += 1
        try:
            answer = await caller.line.exchange(caller.url, attempt, self._data)
            reply = self._understood(answer, at, began)
        except EndpointError as error:
            self._failed(error, attempt, turn, at=at, began=began)
            self._hold_back(error, tries)  # before it leaves, or another would be let in at once
            used = None if error.paid else 0.0
            raise
        except BaseException:
            caller.breaker.unknown(turn)
            self._hear(
                self._made(at, began, kind="cancelled", paid="maybe" if attempt.sent is not None else "no")
            )
            raise
        else:
            (call,) = reply.calls
            used = float((call.prompt_tokens or 0) + (call.completion_tokens or 0))
            if caller.breaker.worked(turn):
                caller.pace.restart()
            caller.pace.succeeded()
            self._hear(call)
            return replace(reply, calls=tuple(self.calls))
        finally:
            caller.account.in_flight -= 1
            caller.pace.leave(self._weight, used=used)

    def _understood(self, answer: Answer, at: float, began: float) -> Reply:
        caller = self.caller
        question = Question(self._body, self._n, self._cap, at, caller.loop.time() - began)
        return understood(question, answer, line=caller.line, url=caller.url, manners=caller.manners)

    def _failed(self, error: EndpointError, attempt: Attempt, turn: int, *, at: float, began: float) -> None:
        caller = self.caller
        hasty = self._patience <= self._until and attempt.expired and attempt.impatient
        news = hasty or not pushed_back(error) or caller.pace.pushed_back(began)
        if hasty or (error.status == 503 and not news):
            # a deadline that the caller set says nothing of the endpoint; nor does "no room" once more in the
            # round trip in which the pace was told so
            caller.breaker.unknown(turn)
        elif transport(error):
            caller.breaker.failed(turn)
        elif caller.breaker.worked(turn):
            caller.pace.restart()
        paid: Paid = "maybe" if error.paid else "no"
        self._hear(self._made(at, began, kind=error.kind, paid=paid, status=error.status))

    def _made(self, at: float, began: float, *, kind: str, paid: Paid, status: int | None = None) -> Call:
        seconds = self.caller.loop.time() - began
        return Call(at=at, seconds=seconds, asked=self._n, got=0, kind=kind, paid=paid, status=status)

    def _hear(self, call: Call) -> None:
        self.calls.append(call)
        self.caller.account.add(call)
        if self.caller.heard is not None:
            self.caller.heard(call)

    def _hold_back(self, error: EndpointError, tries: int) -> None:
        """Settles how long to wait; where it is asked to be slower, that holds for all callers."""
        caller, retries, asked = self.caller, self.caller.endpoint.retries, error.retry_after
        self._backoff = backoff(tries, retries, caller.rng, asked=asked)
        if isinstance(error, RateLimited):
            longest = retries.deadline if asked is not None and asked <= retries.deadline else retries.longest
            caller.pace.pause(caller.loop.time() + min(self._backoff, longest))

    def _wait(self, error: EndpointError, tries: int) -> float | None:
        """Seconds until the next try; None where there is none."""
        retries = self.caller.endpoint.retries
        if not retried(error, after_timeout=retries.after_timeout):
            return None
        asked, wait, now = error.retry_after, self._backoff, self.caller.loop.time()
        if isinstance(error, RateLimited) and asked is not None and now + asked > self._until:
            raise self._too_late(asked, error) from None
        useful = now + wait + min(wait, 1.0)  # one that is cut off by the deadline at once may still be paid
        return wait if tries < retries.attempts and useful < self._until else None

    def _too_late(self, asked: float, error: EndpointError | None = None) -> RateLimited:
        left = max(0.0, self._until - self.caller.loop.time())
        said = f"{error}; " if error is not None else f"{self.caller.url}: is rate-limited; "
        return RateLimited(
            f"{said}it asks to wait {asked:.3g} s, beyond the deadline of this call in {left:.3g} s",
            status=429,
        )

    def _no_turn(self) -> EndpointError:
        url = self.caller.url
        if self.caller.pace.paused > self.caller.loop.time():
            return RateLimited(f"{url}: is rate-limited beyond the deadline of this call; ask more slowly")
        return EndpointTimeout(
            f"{url}: no turn came before the deadline of the call; give more time, or ask less"
        )


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # half surrogates and numbers beyond 64 bits are JSON all the same
        return json.dumps(body).encode("ascii")
