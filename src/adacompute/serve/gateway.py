"""One request from its question to what came of it. Knows nothing of HTTP's requests and replies.

Every part has its own file; here they meet: who decides (shelf), at what price (paces), within what limits
(ledger), what is drawn (sampling), and who is told (seen, recorder).
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from adacompute.config import Config, ServeConfig
from adacompute.errors import EndpointError, ServeError, WeakVote
from adacompute.serve.asked import Ask, Route
from adacompute.serve.keys import Keys
from adacompute.serve.logs import log
from adacompute.serve.pacer import Pacer
from adacompute.serve.paces import Paces
from adacompute.serve.recorder import Recorder
from adacompute.serve.relay import Relay
from adacompute.serve.reply import extra, failure
from adacompute.serve.sampling import Means, Sampling
from adacompute.serve.seen import Seen
from adacompute.serve.shelf import SINGLE, Served, Shelf
from adacompute.serve.told import Told

__all__ = ["Gateway", "Request"]

_MODELS = 60.0  # seconds that the upstream's list of models is kept
GONE = 499  # the status of a request whose client went away, as nginx has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request under way."""

    id: str
    at: float  # seconds since 1970
    began: float  # by the loop's clock
    sampling: Sampling
    pacer: Pacer | None  # that its cost is told to
    passed: bool  # a stream of one sample, which is passed through as it comes


@dataclass(eq=False, kw_only=True)
class Gateway:
    """All that requests share. Made by `opened`, which also closes it."""

    config: Config
    means: Means
    shelf: Shelf
    paces: Paces
    keys: Keys
    seen: Seen
    recorder: Recorder
    rng: random.Random = field(default_factory=random.Random)
    model: str = ""  # of requests that name none: the operator's, or the only one that the upstream lists
    ready: bool = False  # False: new requests are turned away, those under way go on
    under_way: int = 0
    _models: tuple[float, list[str]] | None = None

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
            passed=ask.stream and sampling.single,
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
        except BaseException as exc:
            self._ended(request, exc)
            raise
        yield relay.end(extra(self._ended(request), unit=self.settings.unit))

    async def models(self) -> list[str]:
        """The models that the upstream lists, and the operator's own."""
        now = asyncio.get_running_loop().time()
        if self._models is None or now - self._models[0] > _MODELS:
            self._models = now, await self.means.client.models()
        listed = self._models[1]
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

    def _pacer(self, served: Served, budget: float) -> Pacer | None:
        if self.settings.price >= 0 or served.policy.dial is None:
            return None

        def made(target: float) -> Pacer:
            start, low, high = served.start(target) or (0.0, 0.0, 1.0)
            return Pacer(target, dial=served.policy.dial or "price", start=start, low=low, high=high)

        return self.paces.of(served.name, budget, made)

    def _weak(self, sampling: Sampling) -> WeakVote | None:
        """Marks a vote that is too weak; the error where the operator refuses it."""
        least, tally = self.settings.min_agreement, sampling.tally
        if not least or not sampling.voted or (tally.leader is not None and tally.agreement >= least):
            return None
        words = f"the vote is weak: agreement {tally.agreement:.2f} is below the operator's {least:g}"
        sampling.weak = True
        sampling.notes.append(words)
        return WeakVote(f"{words}; ask for a larger budget") if self.settings.weak == "refuse" else None

    def _ended(self, request: Request, error: BaseException | None = None) -> Told:
        """The request is over: whoever needs to know is told, once."""
        sampling, route = request.sampling, request.sampling.route
        self.under_way -= 1
        told = self._told(request, error)
        if request.pacer is not None and told.paced:
            request.pacer.settle(told.samples, price=told.price)
            self.seen.paced(route.policy, route.budget, request.pacer.price, request.pacer.average)
        # once the reply is on its way, and before anything else that comes
        asyncio.get_running_loop().call_soon(self._tell, told, sampling)
        return told

    def _tell(self, told: Told, sampling: Sampling) -> None:
        self.seen.ended(told)
        self.recorder.told(told, sampling.ask, sampling.samples)
        log.request(told)

    def _told(self, request: Request, error: BaseException | None = None) -> Told:
        sampling = request.sampling
        ask, route, tally = sampling.ask, sampling.route, sampling.tally
        status, code = _status(error)
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
            price=sampling.dial,
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
            agreement=tally.agreement if voted else None,
            weak=sampling.weak,
            weighted=sampling.weigh is not None and self.means.client.manners.logprobs is True,
            explored=sampling.explored,
            notes=tuple(notes),
            usage=sampling.usage,
            spent=sampling.spent,
            maybe=sampling.maybe,
            responses=tuple(sampling.responses),
            best=sampling.best,
            prompt=ask.prompt,
        )


def _status(error: BaseException | None) -> tuple[int, str]:
    if error is None:
        return 200, ""
    if isinstance(error, ServeError):
        return error.status, error.code
    if isinstance(error, EndpointError):
        status, _, body = failure(error)
        return status, str(orjson.loads(body)["error"]["code"])
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return GONE, "client_gone"
    return 500, "internal_error"
