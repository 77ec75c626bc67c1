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
from adacompute.endpoint import Client, Failed, Response, Stream
from adacompute.errors import CapReached, EndpointError
from adacompute.paths.standing import Floats
from adacompute.records import Call, Sample
from adacompute.serve.asked import Ask, Route
from adacompute.serve.ledger import Ledger, Reservation
from adacompute.serve.reading import read
from adacompute.serve.shelf import Served
from adacompute.serve.spend import Rates, Spend
from adacompute.serve.told import Usage
from adacompute.serve.votable import Votable

__all__ = ["Means", "Sampling"]

_ALTERNATIVES = 5  # a token: what the entropy of a first sample is told by


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every request shares."""

    client: Client
    ledger: Ledger
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
        self.explored = False
        self.unvoted = means.votable.before(ask)  # why there is no vote; "": there is one
        self.notes: list[str] = [*route.notes]
        self.weak = False  # the vote is weaker than the operator wants
        self.responses: list[Response] = []
        self.samples: list[Sample] = []
        self.missing = 0  # samples that were asked for and did not come
        self.waves = 0
        self.would: int | None = None  # in shadow mode, how many more the policy would have drawn
        self.spent = Spend()
        self.maybe = Spend()
        self.calls: list[Call] = []
        self.weigh: Weigh | None = None
        self._means = means
        self._explore = explore
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + route.deadline
        self._slowest = 0.0  # seconds of a wave
        self._error: EndpointError | None = None
        self._reading: Floats | None = None  # what the policy sees of the prompt
        self._over = False  # True: no further wave, whatever the policy says
        if self.voted:
            self.weigh = None if means.client.manners.logprobs is False else served.weigh()
        self.tally = Tally(task=means.task, weigh=self.weigh)

    @property
    def voted(self) -> bool:
        """Is there a vote, as far as is known yet?"""
        return not self.unvoted and self.route.mode != "pass"

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
        """Draws until the policy stops it. Raises EndpointError or ServeError only where nothing came."""
        wanted = self._first()
        while wanted > 0:
            await self._wave(wanted)
            if not self.responses:
                raise self._error or EndpointError("the upstream gave nothing; try again")
            wanted = self._next()

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Stream]:
        """The one round of a request that is passed through as it comes; EndpointError or ServeError."""
        ask, calls = self.ask, list[Call]()
        reservation = await self._means.ledger.reserve(self.route.key, self._most(ask.n))
        try:
            async with self._means.client.stream(
                {**self.body, "n": ask.n} if ask.n > 1 else self.body,
                deadline=self._until - self._loop.time(),
                heard=lambda call: self._heard(calls, reservation, call),
            ) as stream:
                yield stream
        finally:
            self._settle(reservation, calls)
        self.waves = 1
        await self._counted([stream.response], 1)
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
        more = self._asked()
        if self.route.mode == "shadow":
            self.would = more
            return 0
        if self._over or self.route.budget <= 1:
            return 0
        if self._explore:
            self._explore, self.explored = False, True
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
        granted = await self._reserved(wanted)
        if granted is None:
            return
        reservation, count = granted
        first, began, calls = len(self.responses) + self.missing, self._loop.time(), list[Call]()
        came: dict[int, Response] = {}
        draw = self._means.client.draw(
            self.body,
            count,
            first=first,
            deadline=max(0.001, self._until - began),
            heard=lambda call: self._heard(calls, reservation, call),
        )
        try:
            async with aclosing(draw) as drawing:
                async for outcome in drawing:
                    if isinstance(outcome, Failed):
                        self._error, self._over = self._error or outcome.error, True
                    else:
                        came.update(enumerate(outcome.responses, outcome.first))
        finally:
            self._settle(reservation, calls)
        self.waves += 1
        self._slowest = max(self._slowest, self._loop.time() - began)
        await self._counted([came[index] for index in sorted(came)], count)

    async def _reserved(self, wanted: int) -> tuple[Reservation, int] | None:
        """The reservation, for fewer where a cap leaves no room for all; None: it ends with what there is."""
        for count in dict.fromkeys((wanted, 1)):
            try:
                return await self._means.ledger.reserve(self.route.key, self._most(count)), count
            except CapReached as exc:
                if count > 1 and self.ask.n == 1:
                    continue
                if not self.responses:
                    raise
                self.notes.append(f"stopped by a cap: {exc}")
        self._over = True
        return None

    def _most(self, samples: int) -> Spend:
        ask = self.ask
        return self._means.rates.most(
            samples=samples, prompt_tokens=ask.prompt_tokens, max_tokens=ask.max_tokens
        )

    def _heard(self, calls: list[Call], reservation: Reservation, call: Call) -> bool:
        """Notes an attempt. May it be tried again? If it may have been paid for, only where there is room."""
        calls.append(call)
        return call.paid != "maybe" or self._means.ledger.extend(reservation, self._most(call.asked))

    def _settle(self, reservation: Reservation, calls: list[Call]) -> None:
        rates, ask = self._means.rates, self.ask
        spent = rates.spent(calls)
        maybe = rates.maybe(calls, prompt_tokens=ask.prompt_tokens, max_tokens=ask.max_tokens)
        self._means.ledger.settle(reservation, spent, maybe)
        self.calls += calls
        self.spent += spent
        self.maybe += maybe

    async def _counted(self, came: list[Response], count: int) -> None:
        short = count - len(came)
        if short:
            self.missing += short
            kind = "" if self._error is None else f" ({self._error.kind})"
            self.notes.append(f"{short} of {count} samples failed{kind}; the vote is on what came")
        self.responses += came
        if not self.voted:
            return
        new = [await read(response, self._means.task) for response in came]
        self.samples += new
        for sample in new:
            await self.tally.add_async(sample)
        self.served.saw(new)
