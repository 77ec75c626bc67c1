"""One attempt of a call, from its turn to its end: counted once, and learned from. Sends nothing itself."""

import time
from typing import Protocol

from adacompute.endpoint.attempt import Attempt
from adacompute.endpoint.caller import Caller
from adacompute.endpoint.faults import backoff, pushed_back, transport
from adacompute.errors import EndpointError, RateLimited
from adacompute.records import Call, Paid

__all__ = ["Trial", "Tried"]


class Tried(Protocol):
    """The call that an attempt belongs to."""

    caller: Caller
    n: int
    backoff: float

    @property
    def hasty(self) -> bool:
        """Is it the caller's deadline that comes first?"""

    def hear(self, call: Call) -> None:
        """Counts an attempt that has ended."""

    def leave(self, used: float | None) -> None:
        """Gives back the turn that it had."""


class Trial:
    """Ended by the first of `worked`, `failed` and `cancelled`, which counts it and gives its turn back."""

    __slots__ = ("_answering", "_asking", "_ended", "_tries", "_turn", "at", "attempt", "began")

    def __init__(self, asking: Tried, tries: int, until: float) -> None:
        caller = asking.caller
        self._asking = asking
        self._tries = tries
        self._turn = caller.breaker.turn
        self._ended = self._answering = False
        self.began, self.at = caller.loop.time(), time.time()
        self.attempt = Attempt(caller.endpoint, until, caller.loop)
        caller.account.in_flight += 1

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._asking.caller.loop.time() - self.began

    def answering(self) -> None:
        """It has begun to answer; its end may be far, so those who wait for a sign of life have it now."""
        caller, self._answering = self._asking.caller, True
        if not caller.breaker.closed and caller.breaker.worked(self._turn):
            caller.pace.restart()
        caller.pace.answering()

    def worked(self, call: Call) -> None:
        """It gave a reply, and took what that call says."""
        if self._ended:
            return
        caller = self._asking.caller
        if caller.breaker.worked(self._turn):
            caller.pace.restart()
        if not self._answering:
            caller.pace.succeeded()
        self._end(call, used=float((call.prompt_tokens or 0) + (call.completion_tokens or 0)))

    def failed(self, error: EndpointError, so_far: tuple[int, int] | None = None) -> None:
        """It gave nothing, or broke off after so many tokens of prompt and response."""
        if self._ended:
            return
        self._learn(error)
        self._hold_back(error)  # before it leaves, or another would be let in at once
        paid: Paid = "maybe" if error.paid else "no"
        call = self._made(error.kind, paid, so_far, status=error.status)
        self._end(call, used=None if error.paid else 0.0)

    def cancelled(self, so_far: tuple[int, int] | None = None) -> None:
        """The caller wants no more of it, after so many tokens."""
        if self._ended:
            return
        self._asking.caller.breaker.unknown(self._turn)
        paid: Paid = "maybe" if self.attempt.sent is not None else "no"
        self._end(self._made("cancelled", paid, so_far, status=None), used=None)

    def _learn(self, error: EndpointError) -> None:
        asking, caller = self._asking, self._asking.caller
        hasty = asking.hasty and self.attempt.expired and self.attempt.impatient
        news = hasty or not pushed_back(error) or caller.pace.pushed_back(self.began)
        if hasty or (error.status == 503 and not news):
            # a deadline that the caller set says nothing of the endpoint; nor does "no room" once more in the
            # round trip in which the pace was told so
            caller.breaker.unknown(self._turn)
        elif transport(error):
            caller.breaker.failed(self._turn)
        elif caller.breaker.worked(self._turn):
            caller.pace.restart()

    def _hold_back(self, error: EndpointError) -> None:
        """Settles how long to wait; where it is asked to be slower, that holds for all callers."""
        caller, retries = self._asking.caller, self._asking.caller.endpoint.retries
        asked = error.retry_after
        wait = self._asking.backoff = backoff(self._tries, retries, caller.rng, asked=asked)
        if isinstance(error, RateLimited):
            longest = retries.deadline if asked is not None and asked <= retries.deadline else retries.longest
            caller.pace.pause(caller.loop.time() + min(wait, longest))

    def _made(self, kind: str, paid: Paid, so_far: tuple[int, int] | None, *, status: int | None) -> Call:
        prompt, completion = so_far or (None, None)
        return Call(
            at=self.at,
            seconds=self.seconds,
            asked=self._asking.n,
            got=0,
            kind=kind,
            paid=paid,
            status=status,
            prompt_tokens=prompt,
            completion_tokens=completion,
            estimated=so_far is not None,
        )

    def _end(self, call: Call, *, used: float | None) -> None:
        self._ended = True
        try:
            self._asking.hear(call)
        finally:
            self._asking.caller.account.in_flight -= 1
            self._asking.leave(used)
