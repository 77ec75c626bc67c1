"""Drawing samples of one request: what goes to a source, reserving what it can cost, and the calls."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.client import (
    ADDED_LIMIT,
    LIMIT_NAME,
    LOGPROBS,
    AttemptTracer,
    Client,
    DrawFailure,
    ModeEndpoint,
    Response,
    Stream,
)
from adacompute.client.retry import CallOptions
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.errors import CapReached, EndpointError, SendingStopped
from adacompute.records import Call
from adacompute.serve.messages.reply import ModeUse, Usage, read_server_info
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.spending.ledger import (
    NO_SPEND,
    LedgerProtocol,
    Rates,
    Spend,
    WaveReservation,
)
from adacompute.serve.voting.answer_reader import FieldMemory
from adacompute.serve.voting.sample_scorer import SampleScorer
from adacompute.serve.voting.vote_eligibility import VoteEligibility

_Drawn = tuple[list[Response], tuple[EndpointError, ...]]  # what came, and what failed
_NO_LIMIT = "the model takes no limit of tokens; what it gives beyond max_tokens may pass a cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """Where samples come from: a mode, of a menu or alone."""

    client: Client
    mode: ModeEndpoint
    name: str = field(init=False)  # its mode's; "" where there is no menu
    rates: Rates = field(init=False)
    limit: int | None = field(init=False)  # tokens of a response that the mode itself allows; None: any
    added_tokens: int = field(init=False)  # that the mode adds to a prompt, at most
    is_plain: bool = field(init=False)  # whether requests go there as they came

    def __post_init__(self) -> None:
        mode = self.mode
        derived = {
            "name": mode.name,
            "rates": Rates(input=mode.prices.input, cached=mode.cached_price, output=mode.prices.output),
            "limit": mode.max_tokens,
            "added_tokens": mode.added_tokens,
            "is_plain": not mode.model and not mode.all_options,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def build_body(self, request: ChatRequest) -> Mapping[str, Any]:
        """A request's body as it goes there; the operator's limit of tokens holds for a mode's as well."""
        if self.is_plain:
            return request.body
        body = self.mode.build_body(request.body)
        limits = {name: min(body[name], request.max_tokens) for name in LIMIT_NAMES if body.get(name)}
        return {**body, **limits}

    def has_token_limit(self, request: ChatRequest) -> bool:
        """Whether the client or the mode limits the tokens of a response."""
        return request.has_token_limit or self.limit is not None

    def bound_tokens(self, request: ChatRequest) -> tuple[int, int]:
        """The most tokens of prompt and response that a call for one sample can cost there."""
        limit = request.max_tokens if self.limit is None else min(self.limit, request.max_tokens)
        return request.prompt_tokens + self.added_tokens, limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingResources:
    """What every request shares."""

    sources: Mapping[str, SampleSource]  # by mode, the cheapest first; "" where there is no menu
    default: str = ""  # the mode that answers what can't be voted on
    ledger: LedgerProtocol
    task: Task
    eligibility: VoteEligibility
    scorer: SampleScorer | None = None  # None: there is no verifier
    memory: FieldMemory = field(default_factory=FieldMemory)
    client: Client = field(init=False)  # the endpoint's, or the default mode's, for what isn't a sample
    rates: Rates = field(init=False)  # the token prices there
    has_menu: bool = field(init=False)  # whether there are several modes to choose among
    modes: tuple[str, ...] = field(init=False)  # a menu's; none where there is one endpoint

    def __post_init__(self) -> None:
        default = self.sources[self.default]
        derived = {
            "client": default.client,
            "rates": default.rates,
            "has_menu": len(self.sources) > 1,
            "modes": tuple(name for name in self.sources if name),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


class SampleWave(NamedTuple):
    """Samples that were asked of one source at once, and what came of it."""

    source: SampleSource
    responses: list[Response]
    sent: int  # samples that were asked for
    seconds: float
    errors: tuple[EndpointError, ...] = ()
    refusal: CapReached | None = None  # why not all of it was sent


@dataclass(slots=True, eq=False)
class _SourceUse:
    """What a request has drawn from one source so far."""

    samples: int = 0
    missing: int = 0  # samples requested but not received
    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND
    calls: list[Call] = field(default_factory=list)
    server_info: dict[str, str] = field(default_factory=dict)  # what its first reply says


class SampleDrawer:
    """Draws samples of one request, and counts what they cost.

    `add_fields` gives the fields that are added to the body for a mode, such as log-probabilities. What the
    client is to be told is added to `notes`.
    """

    def __init__(
        self,
        request: ChatRequest,
        route: Route,
        resources: SamplingResources,
        *,
        add_fields: Callable[[str], Mapping[str, Any]],
        notes: list[str],
        tracer: AttemptTracer | None = None,
    ) -> None:
        self.spent = NO_SPEND
        self.maybe = NO_SPEND
        self.has_streamed = False  # whether a first sample is, or was, streamed
        self._request = request
        self._route = route
        self._resources = resources
        self._add_fields = add_fields
        self._notes = notes
        self._tracer = tracer
        self._uses: dict[str, _SourceUse] = {}  # by mode, in the order of their first draw
        self._loop = asyncio.get_running_loop()
        self.deadline = self._loop.time() + route.deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self.deadline - self._loop.time())

    @property
    def missing(self) -> int:
        """Samples requested but not received."""
        return sum(use.missing for use in self._uses.values())

    @property
    def calls(self) -> list[Call]:
        """Every attempt upstream, in the order of its source's first draw."""
        return [call for use in self._uses.values() for call in use.calls]

    def get_server_info(self, mode: str) -> dict[str, str]:
        """What the upstream of a mode says of itself, for the reply."""
        return self._uses[mode].server_info if mode in self._uses else {}

    def describe_modes(
        self, find_leader: Callable[[str], str | None], failed: Mapping[str, str]
    ) -> tuple[ModeUse, ...]:
        """What was drawn of each mode of a menu, with the answer that leads there; none without a menu."""
        modes = {name: self._resources.sources[name].mode for name in self._uses if name}
        return tuple(
            ModeUse(
                name=name,
                model=mode.model,
                options=mode.all_options,
                samples=use.samples,
                missing=use.missing,
                failed=failed.get(name, ""),
                answer=find_leader(name),
                spent=use.spent,
                maybe=use.maybe,
                usage=Usage.from_calls(use.calls),
            )
            for name, mode in modes.items()
            for use in [self._uses[name]]
        )

    def count_samples(self, source: SampleSource, *, came: int = 0, missing: int = 0) -> None:
        """Counts what came of a source, and what didn't."""
        use = self._get_use(source)
        use.samples += came
        use.missing += missing

    def add_spent(self, spent: Spend, maybe: Spend) -> None:
        """Counts what something cost, and what it may have cost."""
        self.spent += spent
        self.maybe += maybe

    async def draw(self, source: SampleSource, count: int) -> SampleWave:
        """Draws so many samples, or as many as a cap allows; CapReached or LedgerUnavailable if none."""
        reservation = await self._reserve(source, count)
        began = self._loop.time()
        draw = self._draw_one if reservation.count == 1 else self._draw_several
        try:
            responses, errors = await draw(source, reservation)
        finally:
            self._settle(source, reservation)
        return SampleWave(
            source=source,
            responses=responses,
            sent=reservation.count - reservation.unsent,
            seconds=self._loop.time() - began,
            errors=errors,
            refusal=reservation.refusal,
        )

    @asynccontextmanager
    async def stream(self, source: SampleSource) -> AsyncIterator[Stream]:
        """All choices that the client asked for, as they come; CapReached where a cap ends it."""
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
        self._get_use(source).server_info = read_server_info(stream.body)

    def _build_body(self, source: SampleSource) -> Mapping[str, Any]:
        """What goes to a source: the request, and what the policy or the vote needs besides.

        If a cap on tokens or money would have no bound otherwise, also the operator's limit of tokens.
        """
        body, added = source.build_body(self._request), dict(self._add_fields(source.name))
        if self._adds_limit(source):
            added["max_tokens"] = self._request.max_tokens
        if body.get("top_logprobs"):
            added.pop("top_logprobs", None)
        return {**body, **added} if added else body

    def _build_options(self, source: SampleSource, reservation: WaveReservation) -> CallOptions:
        return {
            "on_call": reservation.record_call,
            "may_send": reservation.may_send,
            "optional": self._list_optional_fields(source),
            "headers": self._route.trace,
            "tracer": self._tracer,
        }

    def _list_optional_fields(self, source: SampleSource) -> frozenset[str]:
        """Fields that only the gateway wants: if the upstream refuses them, they are changed or left out."""
        fields, body = LOGPROBS, self._request.body
        if not fields.isdisjoint(body):
            fields = frozenset(name for name in LOGPROBS if not body.get(name))
        if self._adds_limit(source):
            return fields | ADDED_LIMIT
        # what was translated into a chat has a limit whose name the client didn't choose; a mode's neither
        is_own = self._request.original is None and (not source.name or self._request.has_token_limit)
        return fields if is_own else fields | LIMIT_NAME

    def _adds_limit(self, source: SampleSource) -> bool:
        """Whether the gateway adds a limit of tokens, because nobody gave one and a cap counts them."""
        return not source.has_token_limit(self._request) and self._resources.ledger.caps.counts_tokens

    async def _draw_one(self, source: SampleSource, reservation: WaveReservation) -> _Drawn:
        """As `_draw_several`, for one sample: most waves are, and this takes a fifth less processor time."""
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
        use = self._get_use(source)
        use.server_info = use.server_info or read_server_info(reply.body)
        return list(reply.responses), ()

    async def _draw_several(self, source: SampleSource, reservation: WaveReservation) -> _Drawn:
        responses: dict[int, Response] = {}
        errors: list[EndpointError] = []
        use = self._get_use(source)
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
        return [responses[index] for index in sorted(responses)], tuple(errors)

    def _next_index(self, source: SampleSource) -> int:
        """The index of a source's next sample; the first is 0, also while it is streamed."""
        use = self._get_use(source)
        is_streaming = self.has_streamed and not any(use.samples for use in self._uses.values())
        return max(use.samples + use.missing, int(is_streaming))

    async def _reserve(self, source: SampleSource, wanted: int) -> WaveReservation:
        """The reservation, of fewer samples if a cap leaves no room for all of them."""
        while True:
            try:
                return await self._begin(source, wanted)
            except CapReached as exc:
                if wanted == 1 or self._request.n > 1:
                    raise
                wanted = max(1, min(exc.left, wanted - 1))

    def _begin(self, source: SampleSource, count: int) -> Awaitable[WaveReservation]:
        prompt, response = source.bound_tokens(self._request)
        return WaveReservation(
            count,
            prompt_tokens=prompt,
            max_tokens=response,
            ledger=self._resources.ledger,
            rates=source.rates,
        ).begin(self._route.key)

    def _settle(self, source: SampleSource, reservation: WaveReservation) -> None:
        """Ends a wave, and counts what it cost and what it may have cost."""
        spent, maybe = reservation.settle()
        use = self._get_use(source)
        use.calls += reservation.calls
        use.spent += spent
        use.maybe += maybe
        self.add_spent(spent, maybe)
        model = source.mode.model or str(self._request.body.get("model", ""))
        refuses_limit = source.client.quirks.get(model).is_unbounded
        if refuses_limit and self._adds_limit(source) and _NO_LIMIT not in self._notes:
            self._notes.append(_NO_LIMIT)

    def _get_use(self, source: SampleSource) -> _SourceUse:
        use = self._uses.get(source.name)
        if use is None:
            use = self._uses[source.name] = _SourceUse()
        return use
