"""Draws the samples of one request in rounds (waves), and counts votes, until the policy stops.

As in a replay, the policy gets the prompt, the votes so far, and a price or threshold (the dial). The dial
stays the same for the whole request. `SampleLoop` decides what to draw. `SampleDrawer` builds the calls,
reserves their maximum cost, and draws the samples.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from adacompute.client import ADDED_LIMIT, LIMIT_NAME, LOGPROBS, AttemptTracer, DrawFailure, Response, Stream
from adacompute.client.retry import CallOptions
from adacompute.errors import CapReached, EndpointError, LedgerUnavailable, SendingStopped
from adacompute.policies.base import Criterion, Draw, OwnPrice
from adacompute.policies.votes import Floats
from adacompute.records import Call, Sample
from adacompute.serve.messages.reply import NO_VERIFICATIONS, ModeUse, Usage, read_server_info
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.pricing.policy_registry import EXPLORED_SAMPLES, ServedPolicy
from adacompute.serve.spending.ledger import NO_SPEND, Spend, WaveReservation
from adacompute.serve.voting.request_votes import GatewayResources, RequestVotes, VoteSource
from adacompute.serve.voting.scorer import Scorer

_Drawn = tuple[list[Response], tuple[EndpointError, ...]]  # (responses, errors of failed calls)
_NO_LIMIT = "the model takes no limit of tokens; what it gives beyond max_tokens may pass a cap"
_NO_TIME = 0.05  # with fewer seconds left before the deadline, no other mode is tried after a failure


class Wave(NamedTuple):
    """Samples that were requested together from one mode, and their responses."""

    source: VoteSource
    responses: list[Response]
    sent: int  # number of samples requested
    seconds: float
    errors: tuple[EndpointError, ...] = ()
    refusal: CapReached | None = None  # the error if a cap prevented some of the samples


@dataclass(slots=True, eq=False)
class _SourceUse:
    """What a request has drawn from one mode so far."""

    samples: int = 0
    missing: int = 0  # number of samples requested but not received
    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND
    calls: list[Call] = field(default_factory=list)
    # fields of the mode's first reply that describe the server
    server_info: dict[str, str] = field(default_factory=dict)


class SampleDrawer:
    """Draws samples for one request, and counts their cost.

    `add_fields` returns extra fields for the body of calls to a mode, such as `logprobs`. Notes for the
    client are appended to `notes`.
    """

    def __init__(
        self,
        request: ChatRequest,
        route: Route,
        resources: GatewayResources,
        *,
        add_fields: Callable[[str], Mapping[str, Any]],
        notes: list[str],
        tracer: AttemptTracer | None = None,
    ) -> None:
        self.has_streamed = False  # whether streaming of a first sample has begun
        # called when samples arrive, with their mode, the responses and the calls that returned them
        self.on_samples: Callable[[VoteSource, Sequence[Response], Sequence[Call]], None] | None = None
        self._request = request
        self._route = route
        self._resources = resources
        self._add_fields = add_fields
        self._notes = notes
        self._tracer = tracer
        # mode -> what was drawn from it; in order of first use
        self._uses = defaultdict[str, _SourceUse](_SourceUse)
        # a verifier's costs: (actual cost, what e.g. failed calls may cost in addition)
        self._other_costs = NO_SPEND, NO_SPEND
        self._loop = asyncio.get_running_loop()
        self.deadline = self._loop.time() + route.deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self.deadline - self._loop.time())

    @property
    def missing(self) -> int:
        """Number of samples requested but not received."""
        return sum([use.missing for use in self._uses.values()])

    @property
    def calls(self) -> list[Call]:
        """Every call to an upstream, grouped by mode."""
        return [call for use in self._uses.values() for call in use.calls]

    def get_server_info(self, mode: str) -> dict[str, str]:
        """Returns the fields of a mode's first reply that describe the server; the client gets them too."""
        return self._uses[mode].server_info if mode in self._uses else {}

    def describe_modes(
        self, find_leader: Callable[[str], str | None], failed: Mapping[str, str]
    ) -> tuple[ModeUse, ...]:
        """Describes how many samples came from each mode, what they cost, and the mode's leading answer."""
        sources = self._resources.sources
        return tuple(
            ModeUse(
                name=name,
                model=sources[name].mode.model,
                options=sources[name].mode.all_options,
                samples=use.samples,
                missing=use.missing,
                failed=failed.get(name, ""),
                answer=find_leader(name),
                spent=use.spent,
                maybe=use.maybe,
                usage=Usage.from_calls(use.calls),
            )
            for name, use in self._uses.items()
        )

    def count_samples(self, source: VoteSource, *, came: int = 0, missing: int = 0) -> None:
        """Counts received and missing samples of a mode."""
        use = self._uses[source.name]
        use.samples += came
        use.missing += missing

    def add_spent(self, spent: Spend, maybe: Spend) -> None:
        """Adds a verifier's cost (`spent`), and what e.g. failed calls may cost in addition (`maybe`)."""
        before, maybe_before = self._other_costs
        self._other_costs = before + spent, maybe_before + maybe

    def sum_costs(self) -> tuple[Spend, Spend]:
        """Returns the request's actual cost, and what e.g. failed calls may cost in addition."""
        spent, maybe = self._other_costs
        for use in self._uses.values():
            spent, maybe = spent + use.spent, maybe + use.maybe
        return spent, maybe

    async def draw(self, source: VoteSource, count: int) -> Wave:
        """Draws samples, as many as caps allow; raises CapReached or LedgerUnavailable if they allow none."""
        reservation = await self._reserve(source, count)
        began = self._loop.time()
        draw = self._draw_one if reservation.count == 1 else self._draw_several
        try:
            responses, errors = await draw(source, reservation)
        finally:
            self._settle(source, reservation)
        return Wave(
            source=source,
            responses=responses,
            sent=reservation.count - reservation.unsent,
            seconds=self._loop.time() - began,
            errors=errors,
            refusal=reservation.refusal,
        )

    @asynccontextmanager
    async def stream(self, source: VoteSource) -> AsyncIterator[Stream]:
        """Streams all choices that the client requested; raises CapReached if a cap forbids or stops it."""
        n, body = self._request.n, self._build_body(source)
        reservation = await self._begin(source, n)
        try:
            async with source.client.stream(
                {**body, "n": n} if n > 1 else body,
                deadline=self.deadline - self._loop.time(),
                **self._build_options(source, reservation),
            ) as stream:
                self.has_streamed = True
                yield stream
        except SendingStopped:
            if reservation.refusal is None:
                raise
            raise reservation.refusal from None
        finally:
            self._settle(source, reservation)
        self._uses[source.name].server_info = read_server_info(stream.body)

    def _build_body(self, source: VoteSource) -> Mapping[str, Any]:
        """Builds the body for a mode: the request with the fields that the policy or the vote needs.

        If there is a cap on tokens or money, and no token limit, adds the operator's token limit.
        """
        body, added = source.build_body(self._request), dict(self._add_fields(source.name))
        if self._adds_limit(source):
            added["max_tokens"] = self._request.max_tokens
        if body.get("top_logprobs"):
            added.pop("top_logprobs", None)
        return {**body, **added} if added else body

    def _build_options(self, source: VoteSource, reservation: WaveReservation) -> CallOptions:
        """Builds the options of a call; fields that the gateway added may be changed if they are refused."""
        fields, body = LOGPROBS, self._request.body
        if not fields.isdisjoint(body):
            fields = frozenset(name for name in LOGPROBS if not body.get(name))
        if self._adds_limit(source):
            fields |= ADDED_LIMIT
        # APIs name the token limit differently. The name may be changed if the client didn't choose it, i.e.
        # if the request was translated or the mode set the limit.
        elif self._request.original is not None or (source.name and not self._request.has_token_limit):
            fields |= LIMIT_NAME
        return {
            "on_call": reservation.record_call,
            "may_send": reservation.may_send,
            "optional": fields,
            "headers": self._route.trace,
            "tracer": self._tracer,
        }

    def _adds_limit(self, source: VoteSource) -> bool:
        """Checks whether the gateway must add a token limit, because there is none and a cap needs it."""
        has_limit = self._request.has_token_limit or source.limit is not None
        return not has_limit and self._resources.ledger.caps.counts_tokens

    async def _draw_one(self, source: VoteSource, reservation: WaveReservation) -> _Drawn:
        """Draws a single sample. `_draw_several` could do it too, but takes five times the processor time."""
        try:
            reply = await source.client.call(
                self._build_body(source),
                first=self._next_index(source),
                deadline=self.seconds_left,
                **self._build_options(source, reservation),
            )
        except EndpointError as exc:
            reservation.note_failure(exc, exc.calls, 1)
            return [], (exc,)
        use = self._uses[source.name]
        use.server_info = use.server_info or read_server_info(reply.body)
        if self.on_samples is not None:
            self.on_samples(source, reply.responses, reply.calls)
        return list(reply.responses), ()

    async def _draw_several(self, source: VoteSource, reservation: WaveReservation) -> _Drawn:
        responses: dict[int, Response] = {}
        errors: list[EndpointError] = []
        use = self._uses[source.name]
        drawing = source.client.draw(
            self._build_body(source),
            reservation.count,
            first=self._next_index(source),
            deadline=self.seconds_left,
            **self._build_options(source, reservation),
        )
        async with aclosing(drawing):
            async for outcome in drawing:
                if isinstance(outcome, DrawFailure):
                    errors.append(outcome.error)
                    reservation.note_failure(outcome.error, outcome.calls, outcome.count)
                else:
                    use.server_info = use.server_info or read_server_info(outcome.body)
                    responses.update(enumerate(outcome.responses, outcome.first))
                    if self.on_samples is not None:
                        self.on_samples(source, outcome.responses, outcome.calls)
        return [responses[index] for index in sorted(responses)], tuple(errors)

    def _next_index(self, source: VoteSource) -> int:
        """Returns the index of a mode's next sample; a sample that is still being streamed has index 0."""
        use = self._uses[source.name]
        is_streaming = self.has_streamed and not any(use.samples for use in self._uses.values())
        return max(use.samples + use.missing, int(is_streaming))

    async def _reserve(self, source: VoteSource, wanted: int) -> WaveReservation:
        """Reserves the cost of samples, or of fewer if a cap leaves no room for all."""
        while True:
            try:
                return await self._begin(source, wanted)
            except CapReached as exc:
                if wanted == 1 or self._request.n > 1:
                    raise
                wanted = max(1, min(exc.left, wanted - 1))

    def _begin(self, source: VoteSource, count: int) -> Awaitable[WaveReservation]:
        prompt, response = source.bound_tokens(self._request)
        return WaveReservation(
            count,
            prompt_tokens=prompt,
            max_tokens=response,
            ledger=self._resources.ledger,
            rates=source.rates,
        ).begin(self._route.key)

    def _settle(self, source: VoteSource, reservation: WaveReservation) -> None:
        """Settles a reservation, and adds its actual and possible cost to those of the mode."""
        spent, maybe = reservation.settle()
        use = self._uses[source.name]
        use.calls += reservation.calls
        use.spent += spent
        use.maybe += maybe
        if self._adds_limit(source) and _NO_LIMIT not in self._notes:
            model = source.mode.model or str(self._request.body.get("model", ""))
            if source.client.quirks.get(model).is_unbounded:
                self._notes.append(_NO_LIMIT)


class SampleLoop:
    """Decides which samples of one request to draw, round by round."""

    def __init__(
        self,
        request: ChatRequest,
        route: Route,
        *,
        served: ServedPolicy,
        dial: float | None,
        resources: GatewayResources,
        explore: bool = False,
        tracer: AttemptTracer | None = None,
    ) -> None:
        self.request = request
        self.route = route
        self.served = served
        self.dial = dial
        self.notes: list[str] = [*route.notes]
        self.votes = RequestVotes(request, route, served, resources)
        self.drawer = SampleDrawer(
            request, route, resources, add_fields=self.votes.choose_fields, notes=self.notes, tracer=tracer
        )
        self.weak = False  # whether the votes' agreement is below the operator's minimum
        # the maximum number of samples that the request may draw
        self.most_samples = min(served.policy.longest, resources.max_samples or served.policy.longest)
        self.waves = 0
        self.would: int | None = None  # with `mode = "shadow"`: how many more samples the policy would draw
        self.left_out: dict[str, str] = {}  # name of a failed mode -> its kind of error
        self.verified = NO_VERIFICATIONS
        # called after each decision, with the draws that follow; they are empty if sampling stops
        self.on_decision: Callable[[Sequence[Draw]], None] | None = None
        self._resources = resources
        # whether to draw the maximum number of samples, to learn from them; False if the request names modes
        self._explore = explore and not route.modes
        self._exploring = False  # whether the loop has begun to draw samples to learn from
        self._policy_decides = self.votes.has_vote
        self._loop = asyncio.get_running_loop()
        self._slowest = 0.0  # duration of the slowest round in seconds
        self._error: EndpointError | None = None
        self._features: Floats | None = None  # features that the policy computes from the prompt
        self._stopped = False  # True if no more samples are drawn, whatever the policy says
        # samples of the first round that still have to be drawn, because the first one was streamed alone
        self._rest: Draw | None = None
        # task that draws the rest of the first round while its first sample is being streamed
        self._ahead: asyncio.Task[Wave | None] | None = None

    @property
    def now(self) -> float:
        """The event loop's time, in seconds."""
        return self._loop.time()

    @property
    def price(self) -> float | None:
        """The policy's price or threshold for this request; None if a vote was impossible from the start."""
        return self.dial if self._policy_decides else None

    @property
    def is_certified(self) -> bool | None:
        """Whether the policy certifies the winner as the model's most frequent answer; None if unknown."""
        policy, tally = self.served.policy, self.votes.counted_tally
        if tally is None or tally.winner is None or (policy.dial is not None and self.dial is None):
            return None
        return policy.certifies(tally, self.dial)

    @property
    def decided(self) -> bool:
        """Whether the policy decided the number of samples. If so, its average cost includes this request.

        False if no vote was possible from the start, or if the first sample ruled it out. True even if
        several samples were drawn and none has an answer.
        """
        if not self._policy_decides or self.votes.is_refuted:
            return False
        return bool(self.votes.responses) or not self._resources.eligibility.is_doubtful(self.request)

    @property
    def explored(self) -> bool:
        """Whether the request got the maximum number of samples, so that the gateway can learn from it."""
        if not self._exploring or not self.votes.has_vote or self.drawer.missing:
            return False
        return not self._list_unexplored()

    @property
    def is_single_round(self) -> bool:
        """Whether a second round is impossible, so that the first sample can be streamed to the client."""
        if not self.votes.has_vote or self.route.mode == "shadow" or self.route.is_single:
            return True
        if not self.served.policy.one_shot or self._explore:
            return False
        draw = self._ask_policy()
        return draw is None or draw.count <= 1

    @property
    def uses(self) -> tuple[ModeUse, ...]:
        """What was drawn from each mode; empty if there is only one upstream."""
        votes = self.votes
        if not self._resources.modes:
            return ()
        return self.drawer.describe_modes(
            lambda name: votes.tally.find_mode_leader(name) if votes.has_vote else None, self.left_out
        )

    def list_notes(self) -> list[str]:
        """Returns the notes that are sent to the client with the reply."""
        return [*self.notes, *self.votes.list_notes()]

    async def run(self) -> None:
        """Draws samples until the policy stops; the first sample may have been streamed before.

        Raises EndpointError or ServeError only if there is no sample at all.
        """
        if self.request.options.extract:
            # checked even if there is no vote, because an invalid pattern must always raise RequestInvalid
            await self.votes.reader.prepare()
        if self._ahead is not None:
            await self._count_ahead(self._ahead)
        draws = self._decide()
        while draws:
            await self._draw_waves(draws)
            if not self.votes.responses and (self._stopped or not self._open_sources):
                raise self._error or EndpointError("the upstream returned nothing; try again")
            draws = self._decide()
        if not self.votes.responses:
            raise self._error or EndpointError("the upstream returned nothing; try again")
        if self._exploring and not self.explored:
            lacking = sum(draw.count for draw in self._list_unexplored())
            count = len(self.votes.responses)
            self.notes.append(
                f"not drawn to the end, to learn from: {count} of {count + lacking} samples came"
            )

    @asynccontextmanager
    async def stream(self, *, ahead: bool = False) -> AsyncIterator[Stream]:
        """Streams the first sample, or all choices if the client asked for several, and then counts votes.

        Raises EndpointError or ServeError. Afterwards, call `run` to draw the other samples that the policy
        wants, or `end_round` if no more may be drawn. With `ahead`, draws the rest of the first round during
        the stream.
        """
        request = self.request
        if request.options.extract:
            await self.votes.reader.prepare()
        while True:
            (draw,) = self._first_draws() or (Draw(mode=self._plain_mode),)
            self._rest = replace(draw, count=draw.count - request.n) if draw.count > request.n else None
            source, began, has_begun = self._get_source(draw), self._loop.time(), False
            try:
                async with self.drawer.stream(source) as stream:
                    has_begun = True
                    if ahead and self._rest is not None:
                        self._ahead = asyncio.ensure_future(self._fetch_wave(self._rest))
                    yield stream
            except BaseException as exc:
                await self.drop_ahead()
                if has_begun or not isinstance(exc, EndpointError):
                    raise
                self._handle_failure(source, exc)
                if self._stopped:
                    raise
                self.drawer.count_samples(source, missing=request.n)
                continue
            break
        self.waves = 1
        self._slowest = max(self._slowest, self._loop.time() - began)
        await self._count_votes(source, list(stream.responses), request.n)

    async def drop_ahead(self) -> None:
        """Cancels the task that draws samples during the stream; their cost so far still counts."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])
            if not ahead.cancelled():
                ahead.exception()  # retrieves the exception, so that asyncio doesn't log it

    def end_round(self) -> None:
        """Ends sampling after a stream that went to the client, and decides whether there was a vote."""
        self._next_draws()

    def skip_vote(self, reason: str) -> None:
        """Cancels the vote, because a reply that is already streamed can't be replaced."""
        self.votes.skip(reason)
        self._policy_decides = False

    @property
    def _open_sources(self) -> list[str]:
        """Names of the modes that haven't failed and that the request allows, cheapest first."""
        names, known = self.route.modes or self._resources.sources, self.votes.policy_modes
        votable = names if not known or not self.votes.has_vote else known
        return [name for name in names if name not in self.left_out and name in votable]

    @property
    def _plain_mode(self) -> str:
        """Name of the mode to use without a vote: the default, else the most expensive that can be used."""
        names, default = self._open_sources, self._resources.default
        return default if default in names or not names else names[-1]

    def _get_source(self, draw: Draw) -> VoteSource:
        """Returns the mode that these samples are to be drawn from."""
        return self._resources.sources[self._plain_mode if draw.mode is None else draw.mode]

    def _decide(self) -> tuple[Draw, ...]:
        draws = self._next_draws() if self.votes.responses else self._first_draws()
        if self.on_decision is not None:
            self.on_decision(draws)
        return draws

    def find_criterion(self) -> Criterion | None:
        """Returns the two numbers whose comparison made the policy continue or stop; None if unknown."""
        tally = self.votes.counted_tally
        if tally is None or self._features is None:
            return None
        return self.served.policy.find_criterion(tally, self.dial, reading=self._features)

    def _first_draws(self) -> tuple[Draw, ...]:
        if not self.votes.has_vote or self.route.mode == "shadow":
            return (Draw(mode=self._plain_mode, count=self.request.n),)
        resources = self._resources
        expects_text = resources.has_choice and resources.eligibility.expects_text(self.request)
        is_plain = self.route.is_single or expects_text
        draw = Draw(mode=self._plain_mode) if is_plain else self._ask_policy()
        if draw is None:
            return ()
        if draw.count > 1 and resources.eligibility.is_doubtful(self.request):
            draw = replace(draw, count=1)
        return (draw,)

    def _next_draws(self) -> tuple[Draw, ...]:
        """Returns the samples to draw next, or none to stop; adds a note if the deadline is the reason."""
        if self.votes.no_vote_reason or self.route.mode == "pass":
            return ()
        if not self.votes.check(is_first=self.waves == 1):
            return self._ask_default()
        draw, self._rest = self._rest or self._ask_policy(), None
        count = 0 if draw is None else self._resources.eligibility.limit_wave(self.votes.tally, draw.count)
        if self.route.mode == "shadow":
            self.would = count
            return ()
        if self._stopped or self.route.is_single or 0 < self._resources.max_rounds <= self.waves:
            return ()
        draws: tuple[Draw, ...] = () if draw is None or count == 0 else (replace(draw, count=count),)
        if self._explore and not self._resources.max_samples:
            self._explore, self._exploring = False, True
            draws = self._list_unexplored()
        if draws and self._loop.time() + self._slowest > self.drawer.deadline:
            self.notes.append(f"stopped by the deadline of {self.route.deadline:g} s")
            return ()
        return draws

    def _list_unexplored(self) -> tuple[Draw, ...]:
        """Lists the samples, per mode, that the request still needs so that the gateway can learn from it."""
        policy = self.served.policy
        if not self._resources.has_choice:
            left = policy.longest - len(self.votes.responses)
            return (Draw(mode=self._plain_mode, count=left),) if left > 0 else ()
        wanted = {name: EXPLORED_SAMPLES - self.votes.modes.count(name) for name in self._open_sources}
        return tuple(Draw(mode=name, count=count) for name, count in wanted.items() if count > 0)

    def _ask_default(self) -> tuple[Draw, ...]:
        """Returns what to draw if there is no vote: one sample of the default mode, if it has none yet."""
        resources, is_over = self._resources, self._stopped or self.drawer.has_streamed
        if not resources.has_choice or is_over or self.route.mode == "shadow":
            return ()
        if resources.default not in self._open_sources or resources.default in self.votes.modes:
            return ()
        return (Draw(mode=resources.default),)

    def _ask_policy(self) -> Draw | None:
        policy, prompt, tally = self.served.policy, self.request.prompt, self.votes.tally
        if self._features is None and not policy.skips_prompt(tally):
            # kept for later rounds, because reading a long prompt takes time
            self._features = policy.read([prompt])
        modes = self._open_sources if self._resources.has_choice else None
        price = None if self.dial is None else OwnPrice(self.dial)
        draw = policy.next(prompt, tally, price, reading=self._features, modes=modes)
        if modes is not None and not modes:
            return None
        left = self.most_samples - tally.drawn
        if draw is None or draw.count <= left:
            return draw
        return replace(draw, count=left) if left > 0 else None

    async def _count_ahead(self, ahead: "asyncio.Task[Wave | None]") -> None:
        """Waits for the samples drawn during the stream, and counts their votes.

        Cancels them instead if the streamed sample rules out a vote.
        """
        votes = self.votes
        if votes.no_vote_reason or (votes.responses and not votes.check(is_first=self.waves == 1)):
            await self.drop_ahead()
            return
        self._rest = None
        wave = await ahead  # if the caller is cancelled, `ahead` is cancelled too
        self._ahead = None
        if wave is not None:
            await self._count_wave(wave)

    async def _draw_waves(self, draws: Sequence[Draw]) -> None:
        """Draws samples from several modes at once, and counts their votes in the order of `draws`."""
        if len(draws) == 1:
            waves = [await self._fetch_wave(draws[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._fetch_wave(draw)) for draw in draws]
            waves = [task.result() for task in tasks]
        for wave in waves:
            if wave is not None:
                await self._count_wave(wave)

    async def _fetch_wave(self, draw: Draw) -> Wave | None:
        """Draws samples from one mode. If a cap or the ledger prevents it, stops sampling and returns None.

        If there is no sample yet, raises CapReached or LedgerUnavailable instead.
        """
        try:
            return await self.drawer.draw(self._get_source(draw), draw.count)
        except (CapReached, LedgerUnavailable) as exc:
            if not self.votes.responses and not self.drawer.has_streamed:
                raise
            cause = "a cap" if isinstance(exc, CapReached) else "the ledger"
            self.notes.append(f"stopped by {cause}: {exc}")
            self._stopped = True
            return None

    async def _count_wave(self, wave: Wave) -> None:
        self.waves += 1
        self._slowest = max(self._slowest, wave.seconds)
        for error in wave.errors:
            self._handle_failure(wave.source, error)
        if wave.refusal is not None:
            self._stop_at_cap(wave.refusal, received=len(wave.responses))
        await self._count_votes(wave.source, wave.responses, wave.sent)

    def _handle_failure(self, source: VoteSource, error: EndpointError) -> None:
        """Leaves out a failed mode if there are others and time is left; otherwise stops sampling."""
        self._error = self._error or error
        others = [name for name in self._open_sources if name != source.name]
        has_time = self._loop.time() + _NO_TIME < self.drawer.deadline
        if not others or isinstance(error, SendingStopped) or not has_time:
            self._stopped = True
        elif source.name not in self.left_out:
            self.left_out[source.name] = error.kind
            self.notes.append(f"mode {source.name} failed ({error.kind}), and is left out")

    def _stop_at_cap(self, refusal: CapReached, *, received: int) -> None:
        """Stops sampling because of a cap; raises the cap's error if no sample has arrived."""
        if not self.votes.responses and not received:
            raise refusal
        self.notes.append(f"stopped by a cap: {refusal}")
        self._stopped = True

    async def _count_votes(self, source: VoteSource, responses: list[Response], count: int) -> None:
        missing, votes = count - len(responses), self.votes
        self.drawer.count_samples(source, came=len(responses), missing=missing)
        if missing and source.name not in self.left_out:
            kind = "" if self._error is None else f" ({self._error.kind})"
            suffix = "; the vote is on what came" if votes.has_vote and responses else ""
            self.notes.append(f"{missing} of {count} samples failed{kind}{suffix}")
        votes.add_responses(source, responses)
        if not votes.has_vote:
            return
        await source.client.share.take_turn()
        samples, scorer = await votes.read(source, responses), self._resources.scorer
        # without a vote, scores would be useless
        if scorer is not None and not votes.is_refuted_by(samples):
            samples = await self._verify(scorer, samples)
        await votes.count(source, samples)

    async def _verify(self, scorer: Scorer, samples: list[Sample]) -> list[Sample]:
        """Lets the verifier score the samples, and adds the verifier's cost to the request's cost."""
        began = self._loop.time()
        samples, use = await scorer.score(
            self.request,
            samples,
            ledger=self._resources.ledger,
            key=self.route.key,
            deadline=self.drawer.seconds_left,
            on_spent=self.drawer.add_spent,
        )
        self._slowest = max(self._slowest, self._loop.time() - began)
        self.verified += use
        if use.note and use.note not in self.notes:
            self.notes.append(use.note)
        return samples
