"""One call with its retries: when its turn comes, what is tried again, and what is learned from it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from orjson import Fragment

from adacompute.endpoint.caller import Caller, Heard
from adacompute.endpoint.faults import retried
from adacompute.endpoint.outcome import Reply
from adacompute.endpoint.reply import cap_of, encoded_with, prompt_tokens
from adacompute.endpoint.trial import Trial
from adacompute.endpoint.understand import Question, TooMany, WithoutIt, understood
from adacompute.errors import EndpointError, EndpointRefused, EndpointTimeout, RateLimited, SendingStopped
from adacompute.records import Call

__all__ = ["NO_MORE", "Asking", "Plain"]

T = TypeVar("T")

NO_MORE = "nothing more is sent for this request, for no more may be spent on it; ask for less"
_UNCAPPED = 512  # tokens that a response without a limit is reserved at, until it is known


class Asking(Generic[T]):
    """One call, and how far it has come; what one attempt is, and gives, is settled by who inherits this."""

    __slots__ = (
        "_body",
        "_cap",
        "_data",
        "_fixed",
        "_heard",
        "_left_out",
        "_optional",
        "_patience",
        "_refused",
        "_until",
        "_weight",
        "asked",
        "backoff",
        "barred",
        "caller",
        "calls",
        "idle",
        "n",
    )

    def __init__(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        n: int,
        patience: float,
        heard: Heard | None = None,
        fixed: Mapping[str, Fragment] | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self.caller = caller
        self.calls: list[Call] = []
        self.idle = True  # no attempt is under way: it waits for its turn, or to try again
        self.barred = False  # True: nothing more is to be sent
        self.asked: asyncio.Future[Any] | None = None  # whether more may be: until then nothing is
        self.n = n
        self.backoff = 0.0  # seconds to wait after the last attempt
        self._heard = heard
        self._fixed = fixed  # fields of the body that are written already
        self._optional = optional  # fields that may be left out where they are refused
        self._left_out: set[str] = set()  # those that were, since it refused them:
        self._refused: EndpointRefused | None = None  # in these words, at first
        self._patience = patience
        self._until = min(patience, caller.loop.time() + caller.endpoint.retries.deadline)
        self._body = dict(body)
        if n > 1 or "n" in body:
            self._body["n"] = n
        self._cap = cap_of(body)
        self._data = b""
        self._weight = 0.0

    @property
    def hasty(self) -> bool:
        """Is it the caller's deadline that comes first?"""
        return self._patience <= self._until

    async def run(self) -> T:
        """What it gives, or its error with all attempts that were made."""
        try:
            return await self._tried()
        except EndpointError as error:
            self.blame(error)
            raise

    def blame(self, error: EndpointError) -> None:
        """The attempts that were made go with the error."""
        error.calls = tuple(self.calls)
        error.paid = any(call.paid != "no" for call in self.calls)

    def hear(self, call: Call) -> None:
        """Counts an attempt that has ended, and tells of it."""
        self.calls.append(call)
        self.caller.account.add(call)
        if self.caller.heard is not None:
            self.caller.heard(call)
        said = None if self._heard is None else self._heard(call)
        if isinstance(said, asyncio.Future):
            self.asked = said
        elif said is False:
            self.barred = True

    def leave(self, used: float | None) -> None:
        """Gives back the turn that the attempt had; `used` is what it took, where that is known."""
        self.caller.pace.leave(self._weight, used=used)

    async def _try(self, tries: int) -> T:
        """One attempt, ended by what its Trial is told."""
        raise NotImplementedError

    def question(self, trial: Trial) -> Question:
        """What is asked in that attempt, and how long it has taken so far."""
        return Question(self._body, self.n, self._cap, trial.at, trial.seconds, self._optional)

    async def _tried(self) -> T:
        tries, caller = 0, self.caller
        while True:
            self._prepare()
            await self._turn(tries)
            tries += 1
            try:
                given = await self._attempted(tries)
            except WithoutIt as error:
                await self._allowed()
                self._without(error)
                tries -= 1  # nothing failed: it is asked again at once, without what it refused
            except EndpointError as error:
                await self._allowed()
                self._check(error)
                wait = self._wait(error, tries)
                if wait is None:
                    raise
                async with caller.gate.abiding():
                    await asyncio.sleep(wait)
            else:
                self._learn()
                return given

    async def _attempted(self, tries: int) -> T:
        self.idle = False
        try:
            return await self._try(tries)
        finally:
            self.idle = True

    def _without(self, error: WithoutIt) -> None:
        """Leaves out what it refused; whether that was the reason is known when the rest has succeeded."""
        plain = EndpointRefused(str(error), status=error.status)
        if self.barred:
            raise plain from None
        self._refused = self._refused or plain
        self._left_out |= error.fields
        self._leave_out(error.fields)

    def _check(self, error: EndpointError) -> None:
        """Refused without it as well: then that wasn't the reason, and it is told what came first."""
        refused = isinstance(error, EndpointRefused) and not isinstance(error, TooMany)
        if self._refused is not None and refused:
            raise self._refused from None

    def _learn(self) -> None:
        """It succeeded: with what was in it, and without what it had refused."""
        models = self.caller.manners.models
        models.took(self._body)
        if self._left_out:
            models.did_without(self._body.get("model"), self._left_out)

    def _leave_out(self, fields: frozenset[str]) -> None:
        if "logprobs" in fields:
            fields |= {"top_logprobs"}  # which are nothing without
        for name in fields & self._body.keys():
            del self._body[name]
            self._data = b""

    def _prepare(self) -> None:
        caller = self.caller
        if self._optional and (fields := self._optional & self._body.keys()):
            self._leave_out(caller.manners.models.spared(self._body.get("model"), fields))
        if not self._data:
            self._data = encoded_with(self._body, self._fixed)
            if caller.pace.weighs:
                each = _UNCAPPED if self._cap is None else self._cap
                self._weight = float(prompt_tokens(self._body) + self.n * each)

    async def _turn(self, tries: int) -> None:
        """Waits for the gate, the breaker and the pace. The settings' deadline runs from the first turn on:
        a queue of our own is no fault of the endpoint. The caller's own deadline runs all the time.
        """
        caller = self.caller
        while True:
            await self._allowed()
            self._check_barred()
            if not (caller.gate.passable and caller.breaker.closed and caller.pace.entered(self._weight)):
                async with caller.gate.abiding():
                    await self._queue(tries)
            if self.asked is None:
                break
            self._give_back()  # what others of its draw took is being asked about: nobody waits with a turn
        now = caller.loop.time()
        if tries == 0:
            self._until = min(self._patience, now + caller.endpoint.retries.deadline)
        if now >= self._until or self.barred:
            self._give_back()
            self._check_barred()
            raise self._no_turn()

    async def _allowed(self) -> None:
        """Waits until it is known whether more may be sent."""
        while (asked := self.asked) is not None:
            said = await asyncio.shield(asked)  # others may wait for it too
            if self.asked is asked:
                self.asked = None
            self.barred = self.barred or said is False

    def _give_back(self) -> None:
        """Nothing is sent in the turn that came."""
        caller = self.caller
        caller.breaker.unknown(caller.breaker.turn)
        caller.pace.unused(self._weight)

    async def _queue(self, tries: int) -> None:
        caller, pace, retries = self.caller, self.caller.pace, self.caller.endpoint.retries
        latest, patience = self._until if tries else self._patience, caller.breaker.patience
        while True:
            now = caller.loop.time()
            until = self._until if tries else min(self._patience, now + retries.deadline)
            await caller.breaker.ready(until, probes=retries.attempts - tries, patience=patience)
            patience -= caller.loop.time() - now  # of which waiting for a turn takes nothing
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

    def _wait(self, error: EndpointError, tries: int) -> float | None:
        """Seconds until the next try; None where there is none."""
        retries = self.caller.endpoint.retries
        if self.barred or not retried(error, after_timeout=retries.after_timeout):
            return None
        asked, wait, now = error.retry_after, self.backoff, self.caller.loop.time()
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

    def _check_barred(self) -> None:
        if self.barred:
            raise SendingStopped(f"{self.caller.url}: {NO_MORE}")

    def _no_turn(self) -> EndpointError:
        url = self.caller.url
        if self.caller.pace.paused > self.caller.loop.time():
            return RateLimited(f"{url}: is rate-limited beyond the deadline of this call; ask more slowly")
        return EndpointTimeout(
            f"{url}: no turn came before the deadline of the call; give more time, or ask less"
        )


class Plain(Asking[Reply]):
    """A call whose reply comes as one."""

    __slots__ = ()

    async def _try(self, tries: int) -> Reply:
        caller = self.caller
        trial = Trial(self, tries, self._until)
        try:
            answer = await caller.line.exchange(caller.url, trial.attempt, self._data)
            question = self.question(trial)
            reply = understood(question, answer, line=caller.line, url=caller.url, manners=caller.manners)
        except EndpointError as error:
            trial.failed(error)
            raise
        except BaseException:
            trial.cancelled()
            raise
        trial.worked(reply.calls[0])
        return reply if len(self.calls) == 1 else replace(reply, calls=tuple(self.calls))
