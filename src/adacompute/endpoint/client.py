"""The door to one OpenAI-compatible endpoint. Knows nothing of problems, pools or answers."""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from yarl import URL

from adacompute.endpoint.attempt import Attempt
from adacompute.endpoint.caller import Caller, Heard
from adacompute.endpoint.calling import Plain
from adacompute.endpoint.drawing import draw, seeded
from adacompute.endpoint.gate import Gate
from adacompute.endpoint.manners import Manners
from adacompute.endpoint.outcome import Answered, Failed, Reply, sound
from adacompute.endpoint.settings import Endpoint
from adacompute.endpoint.streaming import Stream, Streaming
from adacompute.endpoint.totals import Totals
from adacompute.errors import EndpointError, ReplyInvalid

__all__ = ["Client"]

_AGENT = "adacompute"
_LISTING = 30.0  # seconds that a list of models may take


class Client:
    """Asks one endpoint, over one long-lived session: an async context manager.

    `heard` is told of every attempt, also of failed and cancelled ones, in the event loop. `rng` jitters
    the waits between attempts.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        rng: random.Random | None = None,
        heard: Heard | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.manners = Manners()
        self.account = Totals()
        self.gate = Gate()  # shut or end it to hold back, or turn away, all that isn't sent yet
        self._rng = rng or random.Random()  # noqa: S311 - it spreads waits, and guards nothing
        self._heard = heard
        self._caller: Caller | None = None

    async def __aenter__(self) -> "Client":
        from adacompute.endpoint.line import Line  # here: it loads aiohttp, which takes its time

        line = Line(self.endpoint, agent=_AGENT)
        self._caller = Caller(
            self.endpoint,
            line=line,
            manners=self.manners,
            account=self.account,
            gate=self.gate,
            rng=self._rng,
            heard=self._heard,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._caller is not None:
            await self._caller.line.close()
            self._caller = None

    @property
    def concurrency(self) -> int:
        """How many calls the pace lets run at the same time now."""
        return self.endpoint.limits.concurrency if self._caller is None else self._caller.pace.concurrency

    async def call(
        self,
        body: Mapping[str, Any],
        *,
        n: int = 1,
        first: int = 0,
        deadline: float | None = None,
        heard: Heard | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> Reply:
        """One POST of the body as given, plus "n" (none where n is 1 and the body has none), with retries.

        Raises EndpointError; its `calls` are the attempts that were made, its `paid` says whether any of
        them may have been paid for. Fewer responses than asked for may come. `deadline` is in seconds from
        now, waiting for a turn included; the settings' own deadline counts from the first turn. `heard` is
        told of every attempt of this call, besides the client's own; where it answers False, that was the
        last one. `first` is the index of its first response, as in `draw`. `optional` names fields of the
        body that are left out where they are refused, of "logprobs" and "top_logprobs"; the refusal of any
        other field is raised.
        """
        caller = self._open()
        patience = _patience(caller, deadline)
        return await Plain(caller, seeded(body, first), n, patience, heard=heard, optional=optional).run()

    def draw(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        first: int = 0,
        deadline: float | None = None,
        heard: Heard | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> AsyncGenerator[Answered | Failed, None]:
        """`n` responses, numbered from `first`, by as few calls as the server's manners allow, in parallel.

        Yields as calls end; never raises EndpointError. Closing it cancels its calls. An integer "seed" is
        that of index 0: a call whose responses begin at index i sends seed + i, so that no two are alike.
        Where `heard` answers False, what isn't sent yet ends as Failed; `optional` as for `call`.
        """
        caller = self._open()
        patience = _patience(caller, deadline)
        return draw(caller, body, n, first=first, patience=patience, heard=heard, optional=optional)

    @asynccontextmanager
    async def stream(
        self,
        body: Mapping[str, Any],
        *,
        deadline: float | None = None,
        heard: Heard | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> AsyncIterator[Stream]:
        """The same call as a stream of events; retried until the first of them is here, and no more then.

        Entering raises what `call` would. What the stream took is in the account when it ends, breaks off
        or is left; leaving it closes the connection at once. The usage is always asked for, unless that was
        refused.
        """
        caller = self._open()
        stream = await Streaming(caller, body, _patience(caller, deadline), heard, optional).run()
        try:
            yield stream
        finally:
            await stream.close()

    async def models(self) -> list[str]:
        """The names of the models that it lists; unpaid, and not in the account."""
        caller, url = self._open(), URL(self.endpoint.models)
        attempt = Attempt(self.endpoint, caller.loop.time() + _LISTING, caller.loop)
        try:
            answer = await caller.line.exchange(url, attempt)
            if answer.status != 200:
                raise caller.line.refusal(url, answer)[0]
        except EndpointError as error:
            error.paid = False
            raise
        data = answer.value.get("data") if isinstance(answer.value, dict) else None
        names = [one.get("id") for one in data if isinstance(one, dict)] if isinstance(data, list) else None
        if names is None or not all(isinstance(name, str) for name in names):
            raise ReplyInvalid(f"{url}: lists no models; name the model yourself", status=200)
        return [sound(str(name)) for name in names]

    def _open(self) -> Caller:
        if self._caller is None:
            raise EndpointError("the client is not open; use it as `async with Client(endpoint) as client:`")
        return self._caller


def _patience(caller: Caller, deadline: float | None) -> float:
    return float("inf") if deadline is None else caller.loop.time() + deadline
