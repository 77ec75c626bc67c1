"""Many responses to one request, by as few calls as the endpoint's manners allow. Knows nothing of HTTP."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orjson import Fragment

from adacompute.endpoint.caller import Caller, Heard
from adacompute.endpoint.calling import NO_MORE, Asking, Plain
from adacompute.endpoint.outcome import Answered, Failed, Reply
from adacompute.endpoint.reply import fixed_of
from adacompute.endpoint.understand import TooMany
from adacompute.errors import EndpointError, EndpointRefused, SendingStopped
from adacompute.records import Call

__all__ = ["draw", "seeded"]

_AHEAD = 2  # calls that wait for a turn or run, for each that may run at the same time
_WIDTHS = (31, 32, 63)  # bits that servers keep a seed in
_REFUSED = (400, 413, 422)  # where one choice is refused so, it is the request, which is the same for all


@dataclass(frozen=True, slots=True)
class _Span:
    """Responses still to ask for: `count` of them from index `first` on, at most `most` in one call."""

    first: int
    count: int
    most: int
    calls: tuple[Call, ...] = ()  # made for them already, in vain


async def draw(
    caller: Caller,
    body: Mapping[str, Any],
    n: int,
    *,
    first: int,
    patience: float,
    heard: Heard | None = None,
    optional: frozenset[str] = frozenset(),
) -> AsyncGenerator[Answered | Failed, None]:
    """Yields what each call gave, or that it failed, as the calls end.

    Asks for all in one call first, unless it is known that fewer come; what is missing then is asked for
    by parallel calls. An integer "seed" in the body is that of index 0: the call whose responses begin at
    index i sends seed + i, for calls with one and the same seed would give one sample over and over.
    Where `heard` answers False, nothing more is sent: what is under way goes on, the rest is Failed.
    """
    drawing = _Drawing(caller, body, patience, heard, optional)
    if n > 0:
        drawing.todo.append(_Span(first, n, n))
    try:
        while drawing.todo or drawing.held or drawing.running:
            part, outcome = await drawing.ended()
            for event in drawing.told(part, outcome):
                yield event
    finally:
        await drawing.close()


class _Drawing:
    """The state of one draw."""

    def __init__(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        patience: float,
        heard: Heard | None,
        optional: frozenset[str],
    ) -> None:
        self._caller = caller
        self._heard = heard
        self._optional = optional
        self._stopped = False  # True: nothing more is to be sent
        self._asked: asyncio.Future[Any] | None = None  # whether more may be
        self._body = body
        self._fixed: dict[str, Fragment] | None = None
        self._patience = patience
        self._ended: asyncio.Queue[asyncio.Task[Reply]] = asyncio.Queue()
        self._dropped: list[asyncio.Task[Reply]] = []
        self._fewer = sys.maxsize  # in one call: what was refused of this request, whatever others get
        self._most = _AHEAD * caller.endpoint.limits.concurrency
        self.todo: deque[_Span] = deque()
        self.held: list[_Span] = []  # until it is known whether a smaller call passes
        self.running: dict[asyncio.Task[Reply], tuple[_Span, Asking[Reply]]] = {}

    async def ended(self) -> tuple[_Span, Reply | EndpointError]:
        """Starts what may be started, and waits for a call to end."""
        while self.todo and len(self.running) < self._most:
            part = self._next()
            body = seeded(self._body, part.first)
            lone = not (self.todo or self.running)
            if self._fixed is None and not lone:
                self._fixed = fixed_of(self._body)  # else a long prompt would be written for every call
            asking = Plain(
                self._caller, body, part.count, self._patience, self._hear, self._fixed, self._optional
            )
            asking.asked = self._asked
            if lone:  # no task for it
                return part, await _outcome(asking.run())
            task = asyncio.ensure_future(asking.run())
            self.running[task] = part, asking
            task.add_done_callback(self._ended.put_nowait)
        while (task := await self._ended.get()) not in self.running:
            pass  # it was dropped
        part, _ = self.running.pop(task)
        return part, await _outcome(task)

    def _hear(self, call: Call) -> "bool | asyncio.Future[Any]":
        said = None if self._heard is None else self._heard(call)
        if isinstance(said, asyncio.Future):
            self._asked = said
            for _, asking in self.running.values():
                asking.asked = said
            said.add_done_callback(self._answered)  # before those who wait for it go on
            return said
        if said is False:
            self._stop()
        return not self._stopped

    def _answered(self, asked: "asyncio.Future[Any]") -> None:
        if self._asked is asked:
            self._asked = None
        if asked.cancelled() or asked.exception() is not None or asked.result() is False:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        for _, asking in self.running.values():
            asking.barred = True  # at once: its turn may come before this draw is told of anything

    def told(self, part: _Span, outcome: Reply | EndpointError) -> list[Answered | Failed]:
        """What to tell of a call that ended; settles what is still to ask for."""
        events = self._told(part, outcome)
        if self._stopped and (unsent := [*self.held, *self._unsent()]):
            self.held = []
            events += _all_failed(unsent, SendingStopped(f"{self._caller.url}: {NO_MORE}"))
        return events

    def _told(self, part: _Span, outcome: Reply | EndpointError) -> list[Answered | Failed]:
        if isinstance(outcome, TooMany):
            self._fewer = min(self._fewer, outcome.fewer)
            smaller, *rest = self._split(replace(part, calls=part.calls + outcome.calls))
            self.held += [*rest, *self.todo]
            self.todo = deque([smaller])
            return []
        held, self.held = self.held, []
        if isinstance(outcome, EndpointError):
            return self._failed(part, outcome, held)
        came = len(outcome.responses)
        answered = Answered(
            responses=outcome.responses,
            calls=part.calls + outcome.calls,
            first=part.first,
            body=outcome.body,
        )
        self.todo.extend(held)
        if came < part.count:
            self.todo.appendleft(_Span(part.first + came, part.count - came, came))
        return [answered]

    def _failed(self, part: _Span, error: EndpointError, held: list[_Span]) -> list[Answered | Failed]:
        failed = [Failed(error=error, calls=part.calls + error.calls, first=part.first, count=part.count)]
        if _hopeless(error, part):
            held += self._unsent()
        elif not isinstance(error, EndpointRefused):
            self.todo.extend(held)
            held = []
        # even a small call was refused: it is the request, and more of it would be refused likewise
        return [*failed, *_all_failed(held, error)]

    def _unsent(self) -> list[_Span]:
        """All that isn't under way, which is called off; the attempts made for it already go with it."""
        spans, self.todo = list(self.todo), deque()
        for task, (span, asking) in list(self.running.items()):
            if asking.idle and not task.done():
                task.cancel()
                self._dropped.append(task)
                del self.running[task]
                spans.append(replace(span, calls=(*span.calls, *asking.calls)))
        return spans

    def _next(self) -> _Span:
        """The next call; what it leaves of its span stays to be done."""
        part, *rest = self._split(self.todo.popleft())
        self.todo.extendleft(rest)
        return part

    def _split(self, span: _Span) -> list[_Span]:
        """The first call for a span, and the rest; the calls already made for it are told with the first."""
        wanted = min(span.count, span.most, self._fewer)
        size = max(1, self._caller.manners.portion(wanted, self._body.get("model")))
        if size >= span.count:
            return [span]
        return [replace(span, count=size), _Span(span.first + size, span.count - size, span.most)]

    async def close(self) -> None:
        """Cancels what is still under way."""
        for task in self.running:
            task.cancel()
        if self.running or self._dropped:
            await asyncio.gather(*self.running, *self._dropped, return_exceptions=True)


def _hopeless(error: EndpointError, part: _Span) -> bool:
    """Would it be the same for all that isn't sent yet?"""
    if isinstance(error, SendingStopped):
        return True
    return isinstance(error, EndpointRefused) and part.count == 1 and error.status in _REFUSED


async def _outcome(reply: Awaitable[Reply]) -> Reply | EndpointError:
    try:
        return await reply
    except EndpointError as error:
        return error


def _all_failed(spans: list[_Span], error: EndpointError) -> list[Failed]:
    return [Failed(error=error, calls=s.calls, first=s.first, count=s.count) for s in _joined(spans)]


def _joined(spans: list[_Span]) -> list[_Span]:
    """The same, those that follow each other as one."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        last = joined[-1] if joined else None
        if last is not None and last.first + last.count == span.first:
            joined[-1] = replace(last, count=last.count + span.count, calls=last.calls + span.calls)
        else:
            joined.append(span)
    return joined


def seeded(body: Mapping[str, Any], first: int) -> Mapping[str, Any]:
    """The body of a call whose responses begin at that index: its seed is stepped, within its own width."""
    seed = body.get("seed")
    if first == 0 or not isinstance(seed, int) or isinstance(seed, bool):
        return body
    width = next((bits for bits in _WIDTHS if abs(seed) < 2**bits), _WIDTHS[-1])
    stepped = seed + first
    return {**body, "seed": stepped if stepped < 2**width else stepped % 2**width}
