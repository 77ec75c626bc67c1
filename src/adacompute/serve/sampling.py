"""The waves of one request: ask the policy, reserve, draw, count the votes, until it says stop.

Knows nothing of HTTP, or of what a reply looks like. The policy is asked exactly as in replay: its prompt,
the tally of the samples in their order, and a dial that is held for the whole request.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from adacompute.answers import Tally, Task, Weigh, stands_for
from adacompute.endpoint import LOGPROBS, Client, Failed, Response, Stream
from adacompute.errors import CapReached, EndpointError, LedgerUnavailable
from adacompute.paths.standing import Floats
from adacompute.records import Call, Sample
from adacompute.serve.asked import Ask, Route
from adacompute.serve.books import Books
from adacompute.serve.reading import read
from adacompute.serve.shelf import Served
from adacompute.serve.spend import Rates, Spend
from adacompute.serve.told import Usage, beside_of
from adacompute.serve.votable import Votable
from adacompute.serve.wave import Wave

__all__ = ["Means", "Sampling"]

_ALTERNATIVES = 5  # a token: what the entropy of a first sample is told by


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every request shares."""

    client: Client
    ledger: Books
    rates: Rates
    task: Task
    votable: Votable


class Sampling:
    """The samples of one request so far, and the votes on them."""

    def __init__(
        self,
        ask: Ask,
        route: Route,
        *,
        served: Served,
        dial: float | None,
        means: Means,
        explore: bool = False,
    ) -> None:
        self.ask = ask
        self.route = route
        self.served = served
        self.dial = dial
        self.unvoted = means.votable.before(ask)  # why there is no vote; "": there is one
        self.notes: list[str] = [*route.notes]
        self.weak = False  # the vote is weaker than the operator wants
        self.responses: list[Response] = []
        self.beside: dict[str, str] = {}  # what the upstream says of itself, in the first reply
        self.samples: list[Sample] = []
        self.missing = 0  # samples that were asked for and did not come
        self.waves = 0
        self.would: int | None = None  # in shadow mode, how many more the policy would have drawn
        self.spent = Spend()
        self.maybe = Spend()
        self.calls: list[Call] = []
        self.weigh: Weigh | None = None
        self._means = means
        self._model = str(ask.body.get("model", ""))
        self._explore = explore
        self._exploring = False  # it is being drawn to the end, to learn from
        self._asks = self.voted  # whether the policy has a say
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + route.deadline
        self._slowest = 0.0  # seconds of a wave
        self._error: EndpointError | None = None
        self._reading: Floats | None = None  # what the policy sees of the prompt
        self._over = False  # True: no further wave, whatever the policy says
        if self.voted:
            gives = means.client.manners.gives_logprobs(ask.body.get("model"))
            self.weigh = None if gives is False else served.weigh(self._model)
        self.tally = Tally(task=means.task, weigh=self.weigh)

    @property
    def voted(self) -> bool:
        """Is there a vote, as far as is known yet?"""
        return not self.unvoted and self.route.mode != "pass"

    @property
    def price(self) -> float | None:
        """The dial that it was decided at; None where nothing was."""
        return self.dial if self._asks else None

    @property
    def explored(self) -> bool:
        """Was it drawn to the end, to learn from?"""
        whole = len(self.responses) >= self.served.policy.longest
        return self._exploring and self.voted and whole and not self.missing

    @property
    def single(self) -> bool:
        """Is it certain beforehand that one round is all, so that it may be passed through as it comes?"""
        if not self.voted or self.route.mode == "shadow" or self.route.budget <= 1:
            return True
        return self.served.policy.beforehand and self._asked() <= 1 and not self._explore

    @property
    def body(self) -> Mapping[str, Any]:
        """What goes upstream: as it came, and a question for log-probabilities where they have a say.

        Where a cap on tokens or money would have no bound otherwise, also the operator's limit of tokens.
        """
        policy, body = self.served.policy, self.ask.body
        if not self.ask.limited and self._means.ledger.caps.tokens:
            body = {**body, "max_tokens": self.ask.max_tokens}
        entropy = self.voted and (policy.reads_entropy or (self.weigh and self.weigh.signal == "entropy"))
        if self.weigh is None and not entropy:
            return body
        asked = {**body, "logprobs": True}
        if entropy and not body.get("top_logprobs"):
            asked["top_logprobs"] = _ALTERNATIVES
        return asked

    @property
    def optional(self) -> frozenset[str]:
        """What the upstream may refuse and is asked without: what only we want."""
        return frozenset(name for name in LOGPROBS if not self.ask.body.get(name))

    @property
    def best(self) -> int | None:
        """The place of the sample that stands for the winner; the first where there was no vote."""
        if not self.responses:
            return None
        found = stands_for(self.samples, self.tally) if self.voted else 0
        return 0 if found is None else found

    @property
    def usage(self) -> Usage:
        """Tokens of all calls that were paid for."""
        paid = [call for call in self.calls if call.paid == "yes"]
        return Usage(
            prompt_tokens=sum(call.prompt_tokens or 0 for call in paid),
            completion_tokens=sum(call.completion_tokens or 0 for call in paid),
            cached_tokens=sum(call.cached_tokens or 0 for call in paid),
        )

    async def run(self) -> None:
        """Draws until the policy stops it. EndpointError and ServeError come out only where nothing came."""
        wanted = self._first()
        while wanted > 0:
            await self._wave(wanted)
            if not self.responses:
                raise self._error or EndpointError("the upstream gave nothing; try again")
            wanted = self._next()
        if self._exploring and not self.explored:
            came, longest = len(self.responses), self.served.policy.longest
            self.notes.append(f"not drawn to the end, to learn from: {came} of {longest} samples came")

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Stream]:
        """The one round of a request that is passed through as it comes; EndpointError or ServeError."""
        ask = self.ask
        wave = await self._begun(ask.n)
        try:
            async with self._means.client.stream(
                {**self.body, "n": ask.n} if ask.n > 1 else self.body,
                deadline=self._until - self._loop.time(),
                heard=wave.heard,
                optional=self.optional,
            ) as stream:
                yield stream
        finally:
            self._settle(wave)
        self.waves = 1
        await self._counted(list(stream.responses), ask.n)
        self._next()

    def _first(self) -> int:
        if not self.voted or self.route.mode == "shadow":
            return self.ask.n
        asked = 1 if self.route.budget <= 1 else self._asked()
        return 1 if asked > 1 and self._means.votable.doubtful(self.ask) else asked

    def _next(self) -> int:
        """How many more to draw; 0 where it ends, with a note of why unless the policy says so."""
        if self.unvoted or self.route.mode == "pass":
            return 0
        if self.waves == 1:
            self.unvoted = self._means.votable.after(self.ask.prompt, self.responses[0], self.samples[0])
            if self.unvoted:
                return 0
        self.unvoted = self._means.votable.silent(self.tally)
        if self.unvoted:
            return 0
        more = self._asked()
        if self.route.mode == "shadow":
            self.would = more
            return 0
        if self._over or self.route.budget <= 1:
            return 0
        if self._explore:
            self._explore, self._exploring = False, True
            more = self.served.policy.longest - len(self.responses)
        if more > 0 and self._loop.time() + self._slowest > self._until:
            self.notes.append(f"stopped by the deadline of {self.route.deadline:g} s")
            return 0
        return more

    def _asked(self) -> int:
        policy, prompt, tally = self.served.policy, self.ask.prompt, self.tally
        if self._reading is None and not policy.skips(tally):
            self._reading = policy.read([prompt])  # once a request: a long prompt takes its time
        return min(policy.more(prompt, tally, self.dial, reading=self._reading), policy.longest - tally.drawn)

    async def _wave(self, wanted: int) -> None:
        """Draws so many, and counts their votes in the order that they were asked for."""
        wave = await self._reserved(wanted)
        if wave is None:
            return
        began = self._loop.time()
        try:
            came = await (self._one(wave) if wave.count == 1 else self._several(wave))
        finally:
            self._settle(wave)
        self.waves += 1
        self._slowest = max(self._slowest, self._loop.time() - began)
        await self._counted(came, wave.count)

    async def _one(self, wave: Wave) -> list[Response]:
        """As `_several`, for a wave of one: most are, and this takes a fifth less of the processor."""
        try:
            reply = await self._means.client.call(
                self.body,
                first=len(self.responses) + self.missing,
                deadline=self._left,
                heard=wave.heard,
                optional=self.optional,
            )
        except EndpointError as exc:
            self._error, self._over = self._error or exc, True
            return []
        self.beside = self.beside or beside_of(reply.body)
        return list(reply.responses)

    async def _several(self, wave: Wave) -> list[Response]:
        came: dict[int, Response] = {}
        draw = self._means.client.draw(
            self.body,
            wave.count,
            first=len(self.responses) + self.missing,
            deadline=self._left,
            heard=wave.heard,
            optional=self.optional,
        )
        async with aclosing(draw) as drawing:
            async for outcome in drawing:
                if isinstance(outcome, Failed):
                    self._error, self._over = self._error or outcome.error, True
                else:
                    self.beside = self.beside or beside_of(outcome.body)
                    came.update(enumerate(outcome.responses, outcome.first))
        return [came[index] for index in sorted(came)]

    @property
    def _left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self._until - self._loop.time())

    async def _reserved(self, wanted: int) -> Wave | None:
        """The wave, of fewer where a cap leaves no room for all; None: it ends with what there is."""
        try:
            while True:
                try:
                    return await self._begun(wanted)
                except CapReached as exc:
                    if wanted == 1 or self.ask.n > 1:
                        raise
                    wanted = max(1, min(exc.left, wanted - 1))
        except (CapReached, LedgerUnavailable) as exc:
            if not self.responses:  # else what is paid for is not thrown away
                raise
            cause = "a cap" if isinstance(exc, CapReached) else "the ledger"
            self.notes.append(f"stopped by {cause}: {exc}")
        self._over = True
        return None

    async def _begun(self, count: int) -> Wave:
        means = self._means
        return await Wave(self.ask, count, ledger=means.ledger, rates=means.rates).begin(self.route.key)

    def _settle(self, wave: Wave) -> None:
        spent, maybe = wave.settle()
        self.calls += wave.calls
        self.spent += spent
        self.maybe += maybe

    async def _counted(self, came: list[Response], count: int) -> None:
        short = count - len(came)
        if short:
            self.missing += short
            kind = "" if self._error is None else f" ({self._error.kind})"
            rest = "; the vote is on what came" if self.voted else ""
            self.notes.append(f"{short} of {count} samples failed{kind}{rest}")
        self.responses += came
        if not self.voted:
            return
        new = [await read(response, self._means.task) for response in came]
        self.samples += new
        for sample in new:
            await self.tally.add_async(sample)
        self.served.saw(new, self._model)
