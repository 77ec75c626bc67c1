"""One request from its question to what came of it. Knows nothing of HTTP's requests and replies.

Every part has its own file; here they meet: who decides (shelf), at what price (paces), within what limits
(ledger), what is drawn (sampling), and who is told (seen, recorder).
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from adacompute.config import Config, ServeConfig
from adacompute.errors import EndpointError, Overloaded, ServeError, WeakVote
from adacompute.records import Call
from adacompute.serve.asked import Ask, Route
from adacompute.serve.keys import Keys
from adacompute.serve.listing import Listing
from adacompute.serve.logs import log
from adacompute.serve.pace import NewPace, Pace, paced_here
from adacompute.serve.paces import Paces
from adacompute.serve.recorder import Recorder
from adacompute.serve.relay import Relay
from adacompute.serve.reply import extra, failure, usage_of
from adacompute.serve.sampling import Means, Sampling
from adacompute.serve.seen import Seen
from adacompute.serve.shelf import SINGLE, Served, Shelf
from adacompute.serve.telling import Telling
from adacompute.serve.told import GONE, Told

__all__ = ["Gateway", "Request"]

_LOG = logging.getLogger("adacompute.serve")
_MOMENT = 0.005  # seconds until observers are told of requests that have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request under way."""

    id: str
    at: float  # seconds since 1970
    began: float  # by the loop's clock
    sampling: Sampling
    pacer: Pace | None  # that its cost is told to
    passed: bool  # a stream of one sample, which is passed through as it comes


@dataclass(eq=False, kw_only=True)
class Gateway:
    """All that requests share. Made by `opened`, which also closes it."""

    config: Config
    means: Means
    listing: Listing
    shelf: Shelf
    paces: Paces
    keys: Keys
    seen: Seen
    recorder: Recorder
    new_pace: NewPace = paced_here
    telling: Telling = field(default_factory=Telling)
    rng: random.Random = field(default_factory=random.Random)
    model: str = ""  # of requests that name none: the operator's, or the only one that the upstream lists
    ready: bool = False  # False: new requests are turned away, those under way go on
    under_way: int = 0
    _untold: list[tuple[Told, Sampling]] = field(default_factory=list)
    _calls: list[Call] = field(default_factory=list)

    @property
    def settings(self) -> ServeConfig:
        """The gateway's own settings."""
        return self.config.serve

    def begin(self, ask: Ask, route: Route) -> Request:
        """Settles who decides and at what price; nothing is sent yet."""
        if route.policy == SINGLE:
            route = replace(route, mode="pass")
        served, fixed = self.shelf.of(route.policy), self.settings.price
        pacer = self._pacer(served, route.budget)
        dial = None if served.policy.dial is None else pacer.price if pacer is not None else max(0.0, fixed)
        explore = self.settings.explore
        sampling = Sampling(
            ask,
            route,
            served=served,
            dial=dial,
            means=self.means,
            explore=explore > 0 and self.rng.random() < explore,
        )
        request = Request(
            id=f"chatcmpl-{os.urandom(16).hex()}",
            at=time.time(),
            began=asyncio.get_running_loop().time(),
            sampling=sampling,
            pacer=pacer,
            passed=ask.stream and sampling.single and not self._refusing(sampling),
        )
        self.under_way += 1  # last: what can fail has gone well
        self.seen.began()
        return request

    async def complete(self, request: Request) -> Told:
        """What came of it; EndpointError or ServeError where that is nothing. Cancel it to end its calls."""
        try:
            await request.sampling.run()
            if (weak := self._weak(request.sampling)) is not None:
                raise weak
        except BaseException as exc:
            self._ended(request, exc)
            raise
        return self._ended(request)

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The events of a request that is passed on; errors before the first are raised, as by `complete`.

        Closing it ends the upstream's stream.
        """
        sampling = request.sampling
        relay = Relay(sampling.ask)
        try:
            async with sampling.stream() as stream, aclosing(relay.events(stream)) as events:
                async for event in events:
                    yield event
            self._weak(sampling)
        except BaseException as exc:
            self._ended(request, exc)
            raise
        told = self._ended(request)
        yield relay.end(extra(told, unit=self.settings.unit), usage_of(told))

    async def models(self, *, anew: bool = False) -> list[str]:
        """The models that the upstream lists, and the operator's own; `anew`: whatever went wrong before."""
        listed = await self.listing.names(anew=anew)
        own = self.config.endpoint.model
        self.model = own or (listed[0] if len(listed) == 1 else "")
        return list(dict.fromkeys([*([own] if own else []), *listed]))

    async def reload(self) -> list[str]:
        """Reads the policies anew; a line for each that changed or was refused."""
        reading = await asyncio.to_thread(self.shelf.read)
        lines = self.shelf.swap(reading)
        self.expect()
        self.seen.reloaded(ok=not reading.refused)
        return lines

    def expect(self) -> None:
        """Tells what calibration saw of each policy, so that leaving it can be noticed."""
        for name in self.shelf.names:
            self.seen.serves(self.shelf.of(name), budget=self.settings.budget)

    def resume(self, prices: Mapping[str, Any]) -> None:
        """Goes on from the prices of before; that of the operator's own budget is shown at once."""
        self.paces.restore(prices)
        served, budget = self.shelf.of(self.shelf.default), self.settings.budget
        pacer = self._pacer(served, budget)
        if pacer is not None and pacer.requests:
            self.seen.paced(served.name, budget, pacer.price, pacer.average)

    def _pacer(self, served: Served, budget: float) -> Pace | None:
        bounds = served.bounds
        if self.settings.price >= 0 or bounds is None:
            return None

        def made(target: float) -> Pace:
            start, low, high = served.start(target) or (0.0, 0.0, 1.0)
            return self.new_pace(served.name, target, dial=bounds[0], start=start, low=low, high=high)

        return self.paces.of(served.name, budget, made, bounds=bounds)

    def _weak(self, sampling: Sampling) -> WeakVote | None:
        """Marks a vote that is too weak; the error where the operator refuses it."""
        least, tally = self.settings.min_agreement, sampling.tally
        if not least or not tally.drawn or not sampling.voted or sampling.route.mode != "adaptive":
            return None
        share = tally.agreement * tally.answered / tally.drawn  # samples without an answer don't agree
        if tally.leader is not None and share >= least:
            return None
        words = f"the vote is weak: {share:.2f} of it is for the winner, below the operator's {least:g}"
        sampling.weak = True
        sampling.notes.append(words)
        if not self._refusing(sampling):
            return None
        return WeakVote(f"{words}; ask with a larger x-adacompute-budget")

    def _refusing(self, sampling: Sampling) -> bool:
        """Is its reply to be kept back where the vote is weak?"""
        settings = self.settings
        refuses = settings.weak == "refuse" and settings.min_agreement > 0
        return refuses and sampling.voted and sampling.route.mode == "adaptive"

    def _ended(self, request: Request, error: BaseException | None = None) -> Told:
        """The request is over: whoever needs to know is told, once."""
        self.under_way -= 1
        told = self._told(request, error)
        if isinstance(error, EndpointError):
            _complain(request.id, error)
        if request.pacer is not None and told.steers:
            self.telling(self._settle, request.pacer, told, request.sampling.dial)
        # a moment later, many at once: nobody waits for it, and a reply needn't
        self._untold.append((told, request.sampling))
        if len(self._untold) == 1 and not self._calls:
            asyncio.get_running_loop().call_later(_MOMENT, self.tell)
        return told

    def called(self, call: Call) -> None:
        """An attempt upstream has ended."""
        self._calls.append(call)
        if len(self._calls) == 1 and not self._untold:
            asyncio.get_running_loop().call_later(_MOMENT, self.tell)

    def tell(self) -> None:
        """Tells metrics, the recorder and the log of calls and requests that have ended since."""
        calls, self._calls = self._calls, []
        for call in calls:
            self.telling(self.seen.called, call)
            self.telling(log.call, call)
        untold, self._untold = self._untold, []
        for told, sampling in untold:
            self._tell(told, sampling)

    def _settle(self, pacer: Pace, told: Told, price: float | None) -> None:
        self.paces.settle(told.policy, told.budget, pacer, told.cost_samples, price)
        self.seen.paced(told.policy, told.budget, pacer.price, pacer.average)

    def _tell(self, told: Told, sampling: Sampling) -> None:
        self.telling(self.seen.ended, told)
        self.telling(self.recorder.told, told, sampling.ask, sampling.samples)
        self.telling(log.request, told)

    def _told(self, request: Request, error: BaseException | None = None) -> Told:
        sampling = request.sampling
        ask, route, tally = sampling.ask, sampling.route, sampling.tally
        status, code = _status(error, closing=not self.ready)
        voted = sampling.voted and sampling.tally.drawn > 0
        notes = sampling.notes + ([f"no vote: {sampling.unvoted}"] if sampling.unvoted else [])
        return Told(
            id=request.id,
            at=request.at,
            seconds=asyncio.get_running_loop().time() - request.began,
            key=route.key,
            model=str(ask.body.get("model", "")),
            policy=route.policy,
            mode=route.mode,
            budget=route.budget,
            price=sampling.price,
            stream=ask.stream,
            n=ask.n,
            status=status,
            error=code,
            samples=max(len(sampling.responses), sum(call.got for call in sampling.calls)),
            missing=sampling.missing,
            waves=sampling.waves,
            would=sampling.would,
            answer=tally.leader if voted else None,
            votes=tally.votes if voted else {},
            abstained=tally.abstained if voted else 0,
            agreement=tally.agreement if voted else None,
            weak=sampling.weak,
            weighted=sampling.weigh is not None
            and self.means.client.manners.gives_logprobs(ask.body.get("model")) is True,
            explored=sampling.explored,
            notes=tuple(notes),
            usage=sampling.usage,
            spent=sampling.spent,
            maybe=sampling.maybe,
            responses=tuple(sampling.responses),
            beside=sampling.beside,
            best=sampling.best,
            prompt=ask.prompt,
        )


def _complain(name: str, error: EndpointError) -> None:
    """Says in the log what is wrong with the upstream; its own words may quote the client: at debug only."""
    if error.status is None:
        _LOG.warning("request %s: %s", name, error)
        return
    _LOG.warning("request %s: the upstream answered %d (%s)", name, error.status, error.kind)
    _LOG.debug("request %s: %s", name, error)


def _status(error: BaseException | None, *, closing: bool) -> tuple[int, str]:
    if error is None:
        return 200, ""
    if isinstance(error, ServeError):
        return error.status, error.code
    if isinstance(error, EndpointError):
        status, _, body = failure(error)
        return status, str(orjson.loads(body)["error"]["code"])
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return (Overloaded.status, Overloaded.code) if closing else (GONE, "client_gone")
    return 500, "internal_error"
