"""Many responses to one request, by as few calls as the endpoint's manners allow. Knows nothing of HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adacompute.endpoint.calling import Caller, TooMany
from adacompute.endpoint.outcome import Answered, Failed, Reply
from adacompute.errors import EndpointError, EndpointRefused
from adacompute.records import Call

__all__ = ["draw"]


@dataclass(frozen=True, slots=True)
class _Span:
    """Responses still to ask for: `count` of them from index `first` on, at most `most` in one call."""

    first: int
    count: int
    most: int
    calls: tuple[Call, ...] = ()  # made for them already, in vain


async def draw(
    caller: Caller, body: Mapping[str, Any], n: int, *, first: int, patience: float
) -> AsyncGenerator[Answered | Failed, None]:
    """Yields what each call gave, or that it failed, as the calls end.

    Asks for all in one call first, unless it is known that fewer come; what is missing then is asked for
    by parallel calls. An integer "seed" in the body is that of index 0: the call whose responses begin at
    index i sends seed + i, for calls with one and the same seed would give one sample over and over.
    """
    spans = [_Span(first, n, n)] if n > 0 else []
    held: list[_Span] = []  # until it is known whether a smaller call passes
    running: dict[asyncio.Task[Reply], _Span] = {}
    ended: asyncio.Queue[asyncio.Task[Reply]] = asyncio.Queue()
    try:
        while spans or held or running:
            parts = [part for span in spans for part in _split(span, caller.manners.portion(span.count))]
            if len(parts) == 1 and not running:  # no task for a lone call
                part, outcome = parts[0], await _lone(caller, body, parts[0], patience)
            else:
                for part in parts:
                    task = asyncio.ensure_future(caller.call(_seeded(body, part.first), part.count, patience))
                    running[task] = part
                    task.add_done_callback(ended.put_nowait)
                task = await ended.get()
                part, outcome = running.pop(task), _result(task)
            if isinstance(outcome, TooMany):
                calls = part.calls + outcome.calls
                smaller, *rest = _split(replace(part, calls=calls), caller.manners.portion(part.count))
                spans, held = [smaller], held + rest
                continue
            events, spans = _told(part, outcome, held)
            held = []
            for event in events:
                yield event
    finally:
        if running:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _lone(
    caller: Caller, body: Mapping[str, Any], part: _Span, patience: float
) -> Reply | EndpointError:
    try:
        return await caller.call(_seeded(body, part.first), part.count, patience)
    except EndpointError as error:
        return error


def _result(task: "asyncio.Task[Reply]") -> Reply | EndpointError:
    try:
        return task.result()
    except EndpointError as error:
        return error


def _told(
    part: _Span, outcome: Reply | EndpointError, held: list[_Span]
) -> tuple[list[Answered | Failed], list[_Span]]:
    """What to tell of a call that ended, and what is still to ask for."""
    if isinstance(outcome, EndpointError):
        calls = part.calls + outcome.calls
        failed: list[Answered | Failed] = [
            Failed(error=outcome, calls=calls, first=part.first, count=part.count)
        ]
        if not isinstance(outcome, EndpointRefused):
            return failed, held
        # even a small call was refused: it is the request, and more of it would be refused likewise
        failed += [Failed(error=outcome, calls=(), first=span.first, count=span.count) for span in held]
        return failed, []
    came = len(outcome.responses)
    answered = Answered(responses=outcome.responses, calls=part.calls + outcome.calls, first=part.first)
    missing = part.count - came
    short = [_Span(part.first + came, missing, came)] if missing else []
    return [answered], short + held


def _split(span: _Span, portion: int) -> list[_Span]:
    """The calls for a span; the calls already made for it are told with the first."""
    size = max(1, min(portion, span.most))
    return [
        _Span(
            first,
            min(size, span.first + span.count - first),
            span.most,
            span.calls if first == span.first else (),
        )
        for first in range(span.first, span.first + span.count, size)
    ]


def _seeded(body: Mapping[str, Any], first: int) -> Mapping[str, Any]:
    seed = body.get("seed")
    if first == 0 or not isinstance(seed, int) or isinstance(seed, bool):
        return body
    return {**body, "seed": seed + first}
