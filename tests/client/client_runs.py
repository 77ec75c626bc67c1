"""What tests of the client share: a request, an endpoint in a hurry, and running a draw to its end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from adacompute.client import (
    BreakerSettings,
    Client,
    DrawFailure,
    DrawSuccess,
    Endpoint,
    RateLimits,
    Response,
    Retries,
    Timeouts,
)
from adacompute.client.retry import CallListener
from adacompute.errors import EndpointError
from adacompute.records import Call, Secret
from upstream import Script, Upstream

BODY = {
    "model": "scripted",
    "messages": [{"role": "user", "content": "What is 6 times 7?"}],
    "temperature": 0.7,
    "max_tokens": 64,
}
KEY = "sk-canary-7f3a9c"
CALM = BreakerSettings(failures=1000)  # a breaker that stays out of tests of other things


@dataclass(slots=True)
class CallTotals:
    """Running totals over all attempts of a client."""

    calls: int = 0  # attempts, also failed and cancelled ones
    kinds: Counter[str] = field(default_factory=Counter)  # "ok", or the kind of the error
    paid: int = 0  # calls that were paid for
    maybe: int = 0  # calls that may have been
    responses: int = 0  # choices that could be used
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, call: Call) -> None:
        """Counts one attempt."""
        self.calls += 1
        self.kinds[call.kind] += 1
        self.paid += call.paid == "yes"
        self.maybe += call.paid == "maybe"
        self.responses += call.got
        self.prompt_tokens += call.prompt_tokens or 0
        self.completion_tokens += call.completion_tokens or 0


class CountedClient(Client):
    """A client with totals of what its `on_call` hears."""

    def __init__(self, endpoint: Endpoint, *, on_call: CallListener | None = None, **settings: Any) -> None:
        self.totals = CallTotals()
        listeners = [self.totals.add, *([] if on_call is None else [on_call])]
        super().__init__(endpoint, on_call=lambda call: [listen(call) for listen in listeners], **settings)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def endpoint(
    url: str,
    *,
    timeouts: Timeouts | None = None,
    retries: Retries | None = None,
    limits: RateLimits | None = None,
    breaker: BreakerSettings = CALM,
    key: str | None = None,
) -> Endpoint:
    return Endpoint(
        url=url,
        key=None if key is None else Secret(key),
        timeouts=timeouts or Timeouts(connect=2.0, first_byte=5.0, total=10.0),
        retries=retries or Retries(first=0.01, longest=0.05, deadline=20.0),
        limits=limits or RateLimits(),
        breaker=breaker,
    )


@dataclass
class DrawRun:
    """What came of a draw, in order of index."""

    client: CountedClient
    events: list[DrawSuccess | DrawFailure]
    heard: list[Call]
    up: Upstream
    seconds: float

    responses: dict[int, Response] = field(default_factory=dict)
    failed: list[DrawFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        for event in self.events:
            if isinstance(event, DrawFailure):
                self.failed.append(event)
                continue
            for i, response in enumerate(event.responses):
                assert event.first + i not in self.responses, "an index came twice"
                self.responses[event.first + i] = response

    @property
    def error(self) -> EndpointError:
        (failed,) = self.failed
        return failed.error


def run_draw(
    script: Script | None, n: int, body: dict[str, Any] | None = None, *, first: int = 0, **settings: Any
) -> DrawRun:
    """Draws n responses from an upstream of that script."""
    deadline = settings.pop("deadline", None)

    async def run(client: CountedClient, _: Upstream) -> list[DrawSuccess | DrawFailure]:
        return [
            e async for e in client.draw(BODY if body is None else body, n, first=first, deadline=deadline)
        ]

    return run_client(script, run, **settings)


def run_client(
    script: Script | None, how: Callable[[CountedClient, Upstream], Awaitable[Any]], **settings: Any
) -> DrawRun:
    """Runs `how` with a client of an upstream of that script; what is always true is checked here."""
    heard: list[Call] = []

    async def run() -> DrawRun:
        async with CountedClient(endpoint(up.url, **settings), on_call=heard.append) as client:
            began = asyncio.get_running_loop().time()
            events = await how(client, up) or []
            seconds = asyncio.get_running_loop().time() - began
            assert client.in_flight == 0
            return DrawRun(client, events, heard, up, seconds)

    with Upstream(script) as up:
        done = asyncio.run(run())
    account = done.client.totals
    told = [call for event in done.events for call in event.calls]
    assert account.calls == len(heard) == sum(account.kinds.values())
    if done.events:
        assert sorted(told, key=lambda c: c.at) == sorted(heard, key=lambda c: c.at), "a call is told once"
    return done
