"""The waves of one request: ask the policy, reserve, draw, count the votes, until the policy stops.

The policy is asked exactly as in replay: with the prompt, the tally of the samples in their order, and a dial
that is held for the whole request.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from adacompute.answers import Tally, Task, VoteWeights, pick_representative
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
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.errors import CapReached, EndpointError, LedgerUnavailable, SendingStopped
from adacompute.policies.base import Draw, Floats
from adacompute.records import Call, Sample, Signals
from adacompute.serve.messages.reply import NO_VERIFICATIONS, ModeUse, Usage, read_server_info
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.pricing.policy_registry import ServedPolicy
from adacompute.serve.pricing.start import EXPLORED_SAMPLES
from adacompute.serve.spending.ledger import (
    NO_SPEND,
    LedgerProtocol,
    Rates,
    Spend,
    TokenBounds,
    WaveReservation,
)
from adacompute.serve.voting.answer_reader import AnswerReader, FieldMemory, select_candidates
from adacompute.serve.voting.sample_scorer import SampleScorer
from adacompute.serve.voting.vote_eligibility import VoteEligibility

__all__ = ["SampleLoop", "SampleSource", "SamplingResources"]

_Fetched = tuple["SampleSource", WaveReservation, list[Response]]  # a wave that has ended, and what came
_NO_LIMIT = "the model takes no limit of tokens; what it gives beyond max_tokens may pass a cap"
# alternatives of each token: most endpoints give as many; 20 make a reply four times as long
_TOP_LOGPROBS = 5
_NO_TIME = 0.05  # seconds before the deadline in which no other mode is tried


@dataclass(frozen=True, slots=True)
class _Bounds:
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """Where samples come from: the gateway's one endpoint, or a mode of its menu."""

    client: Client
    rates: Rates = field(default_factory=Rates)
    mode: ModeEndpoint | None = None  # None: requests go to the endpoint as they came
    name: str = field(init=False)  # of its mode; "" where there is no menu

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "" if self.mode is None else self.mode.name)

    def build_body(self, request: ChatRequest) -> Mapping[str, Any]:
        """A request's body as it goes there; the operator's limit of tokens holds for a mode's as well."""
        if self.mode is None:
            return request.body
        body = self.mode.build_body(request.body)
        limits = {name: min(body[name], request.max_tokens) for name in LIMIT_NAMES if body.get(name)}
        return {**body, **limits}

    def has_token_limit(self, request: ChatRequest) -> bool:
        """Whether the client or the mode limits the tokens of a response."""
        return request.has_token_limit or (self.mode is not None and self.mode.max_tokens is not None)

    def bound_tokens(self, request: ChatRequest) -> TokenBounds:
        """The most tokens that a call for one sample of a request can cost there."""
        mode = self.mode
        if mode is None:
            return request
        limit = mode.max_tokens
        return _Bounds(
            request.prompt_tokens + mode.added_tokens,
            request.max_tokens if limit is None else min(limit, request.max_tokens),
        )


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
    client: Client = field(init=False)  # of the endpoint, or of the default mode, for what isn't a sample
    rates: Rates = field(init=False)  # the token prices there
    has_menu: bool = field(init=False)  # whether there are several modes to choose among
    modes: tuple[str, ...] = field(init=False)  # of a menu; none where there is one endpoint

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


@dataclass(slots=True, eq=False)
class _SourceUse:
    """What a request has drawn from one source so far."""

    samples: int = 0
    missing: int = 0
    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND
    calls: list[Call] = field(default_factory=list)
    server_info: dict[str, str] = field(default_factory=dict)  # of its first reply


class SampleLoop:
    """The samples of one request so far, and the votes on them."""

    def __init__(
        self,
        request: ChatRequest,
        route: Route,
        *,
        served: ServedPolicy,
        dial: float | None,
        resources: SamplingResources,
        explore: bool = False,
        tracer: AttemptTracer | None = None,
    ) -> None:
        self.request = request
        self.route = route
        self.served = served
        self.dial = dial
        self._policy_modes = None if served.menu is None else served.menu.names  # None: whatever there is
        self.no_vote_reason = resources.eligibility.check_request(request) or self._check_modes()
        # ^ "": there is a vote
        self.notes: list[str] = [*route.notes]
        self.weak = False  # whether the vote is below the operator's minimum
        self.responses: list[Response] = []
        self.modes: list[str] = []  # of each response; "" where there is no menu
        self.samples: list[Sample] = []
        self.missing = 0  # samples requested but not received
        self.waves = 0
        self.would: int | None = None  # in shadow mode, how many more the policy would have drawn
        self.spent = NO_SPEND
        self.maybe = NO_SPEND
        self.left_out: dict[str, str] = {}  # modes that failed, and how
        self.verified = NO_VERIFICATIONS
        self.weigh: VoteWeights | None = None
        self._resources = resources
        self._uses: dict[str, _SourceUse] = {}  # by mode, in the order of their first draw
        self._answered_by_default = False  # whether the default mode was asked after all, without a vote
        self._tracer = tracer
        self._model = str(request.body.get("model", ""))
        self._explore = explore and not route.modes  # of some modes alone, nothing is learned
        self._exploring = False  # whether it is being drawn to the end, for learning
        self._policy_decides = self.has_vote
        self._refuted = False  # whether its first sample shows that there is nothing to vote on
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + route.deadline
        self._slowest = 0.0  # seconds of the slowest wave
        self._error: EndpointError | None = None
        self._features: Floats | None = None  # of the prompt, as the policy sees it
        self._stopped = False  # True: no further wave, whatever the policy says
        self._rest: Draw | None = None  # what the first wave has besides a first sample that was streamed
        self._streams = False  # whether a first sample is, or was, streamed
        self._ahead: asyncio.Task[_Fetched | None] | None = None  # the rest of the first wave, under way
        if self.has_vote:
            self.weigh = self._choose_weights()
        self._candidates: list[bool] = []  # which samples the tally counts; the others are abstentions in it
        self._counted: list[tuple[str | None, bool]] = []  # their answers, and whether they are candidates
        self._reader: AnswerReader | None = None  # made only where there is a vote, as is the tally
        self._tally: Tally | None = None
        self._unobserved: list[tuple[slice, str]] = []  # samples that the policy's weights may learn from

    def _check_modes(self) -> str:
        """Why there is no vote over the modes that a request names; "": there may be one."""
        if self._policy_modes is None or not self.route.modes:
            return ""
        knows = any(name in self._policy_modes for name in self.route.modes)
        return "" if knows else "the policy knows none of the modes that the request names"

    def _choose_weights(self) -> VoteWeights | None:
        """How votes weigh: on the live scale of the model, or of each mode."""
        resources, weigh = self._resources, self.served.weigh(self._model)
        if not resources.has_menu:
            gives_logprobs = resources.client.quirks.gives_logprobs(self.request.body.get("model"))
            if gives_logprobs is False and weigh is not None:  # only scores are left
                weigh = None if weigh.score is None else VoteWeights.by_score(weigh.score)
        scorer = resources.scorer
        if scorer is None or self.served.policy.needs_plain_votes:
            return weigh
        if weigh is None or not weigh.modes:
            return scorer.add_weights(weigh)
        scored = [(name, own, scorer.add_weights(own)) for name, own in weigh.modes]
        return replace(weigh, modes=tuple((name, own if new is None else new) for name, own, new in scored))

    @property
    def reader(self) -> AnswerReader:
        """Reads the samples."""
        if self._reader is None:
            resources, eligibility = self._resources, self._resources.eligibility
            self._reader = AnswerReader(
                self.request,
                resources.task,
                loose=eligibility.reads_everything,
                finds_json=eligibility.votes_on_json,
                memory=resources.memory,
            )
        return self._reader

    @property
    def tally(self) -> Tally:
        """The votes so far."""
        if self._tally is None:
            self._tally = Tally(task=self._resources.task, weigh=self.weigh)
        return self._tally

    @property
    def now(self) -> float:
        """The time by the event loop's clock."""
        return self._loop.time()

    @property
    def has_vote(self) -> bool:
        """Whether there is a vote, as far as is known yet."""
        return not self.no_vote_reason and self.route.mode != "pass"

    @property
    def price(self) -> float | None:
        """The dial that it was decided at; None if nothing was decided."""
        return self.dial if self._policy_decides else None

    @property
    def is_certified(self) -> bool | None:
        """Whether the policy certifies the answer; None: there is none, or it certifies nothing."""
        policy = self.served.policy
        if not self.has_vote or self.tally.winner is None or (policy.dial is not None and self.dial is None):
            return None
        return policy.certifies(self.tally, self.dial)

    @property
    def decided(self) -> bool:
        """Whether the policy decides how many, so that its cost belongs to the average of voted requests.

        Not where one sample is certain, nor where the first shows that there is nothing to vote on: what the
        first wave cost is no decision then. But it does where several samples were drawn, and none states
        an answer.
        """
        if not self._policy_decides or self._refuted:
            return False
        return bool(self.responses) or not self._resources.eligibility.is_doubtful(self.request)

    @property
    def explored(self) -> bool:
        """Whether it was drawn to the end, for learning."""
        if not self._exploring or not self.has_vote or self.missing:
            return False
        return not self._list_unexplored()

    @property
    def is_single_round(self) -> bool:
        """Whether one round is certain to be all, so that its stream may be passed through."""
        if not self.has_vote or self.route.mode == "shadow" or self.route.is_single:
            return True
        if not self.served.policy.one_shot or self._explore:
            return False
        draw = self._ask_policy()
        return draw is None or draw.count <= 1

    @property
    def calls(self) -> list[Call]:
        """Every attempt upstream, in the order of its source's first draw."""
        return [call for use in self._uses.values() for call in use.calls]

    @property
    def is_weighted(self) -> bool:
        """Whether votes weigh by log-probabilities that an upstream gives."""
        weigh = self.weigh
        if weigh is None:
            return False
        if not weigh.modes:
            return self._resources.client.quirks.gives_logprobs(self.request.body.get("model")) is True
        sources = self._resources.sources
        return any(
            own.reads_tokens
            and sources[name].client.quirks.gives_logprobs(self._get_mode(name).model) is True
            for name, own in weigh.modes
        )

    @property
    def uses(self) -> tuple[ModeUse, ...]:
        """What was drawn of each mode of a menu; none where there is one endpoint."""
        if not self._resources.modes:
            return ()
        leaders = {name: self.tally.find_mode_leader(name) for name in self._uses} if self.has_vote else {}
        return tuple(
            ModeUse(
                name=name,
                model=self._get_mode(name).model,
                options=self._get_mode(name).all_options,
                samples=use.samples,
                missing=use.missing,
                failed=self.left_out.get(name, ""),
                answer=leaders.get(name),
                spent=use.spent,
                maybe=use.maybe,
                usage=Usage.from_calls(use.calls),
            )
            for name, use in self._uses.items()
        )

    def get_server_info(self, mode: str) -> dict[str, str]:
        """What the upstream of a mode says of itself, for the reply."""
        return self._uses[mode].server_info if mode in self._uses else {}

    def _build_body(self, source: SampleSource) -> Mapping[str, Any]:
        """What goes to a source: the request, and log-probabilities if the policy or the vote uses them.

        If a cap on tokens or money would have no bound otherwise, also the operator's limit of tokens.
        """
        policy, body = self.served.policy, source.build_body(self.request)
        weigh = None if self.weigh is None else self.weigh.get_mode(source.name)
        if self._adds_limit(source):
            body = {**body, "max_tokens": self.request.max_tokens}
        reads_alternatives = self.has_vote and (
            policy.reads_entropy or (weigh is not None and weigh.reads_alternatives)
        )
        if not reads_alternatives and (weigh is None or not weigh.reads_tokens):
            return body
        extended = {**body, "logprobs": True}
        if reads_alternatives and not body.get("top_logprobs"):
            extended["top_logprobs"] = _TOP_LOGPROBS
        return extended

    def _list_optional_fields(self, source: SampleSource) -> frozenset[str]:
        """Fields that only the gateway wants: if the upstream refuses them, they are changed or left out."""
        fields, body = LOGPROBS, self.request.body
        if not fields.isdisjoint(body):
            fields = frozenset(name for name in LOGPROBS if not body.get(name))
        if self._adds_limit(source):
            return fields | ADDED_LIMIT
        # what was translated into a chat has a limit whose name the client didn't choose; a mode's neither
        is_own = self.request.original is None and (source.mode is None or self.request.has_token_limit)
        return fields if is_own else fields | LIMIT_NAME

    def _adds_limit(self, source: SampleSource) -> bool:
        """Whether the gateway adds a limit of tokens, because nobody gave one and a cap counts them."""
        return not source.has_token_limit(self.request) and self._resources.ledger.caps.counts_tokens

    @property
    def representative(self) -> int | None:
        """The index of the sample that represents the winner; the first if there is no winner, or no vote."""
        if not self.responses:
            return None
        if self._answered_by_default:
            return len(self.responses) - 1
        has_winner = self.has_vote and self.tally.winner is not None
        modes = self._policy_modes or (self._resources.modes if self._resources.has_menu else ())
        index = pick_representative(self.samples, self.tally, modes=modes) if has_winner else None
        return self._first_candidate if index is None else index

    @property
    def _first_candidate(self) -> int:
        """The first sample of the kind that most samples are of: a call of certain tools, or a text."""
        return self._candidates.index(True) if True in self._candidates else 0

    @property
    def usage(self) -> Usage:
        """Tokens of all calls that were paid for."""
        return Usage.from_calls(self.calls)

    def list_notes(self) -> list[str]:
        """What the client is told besides its reply: why there is no vote, and what the vote leaves out."""
        if self.no_vote_reason:
            return [*self.notes, f"no vote: {self.no_vote_reason}"]
        notes = [*self.notes]
        if self.has_vote:
            if left_out := self.reader.left_out:
                notes.append(f"free text isn't compared: {', '.join(left_out)[:200]}")
            if self.tally.is_outweighed:
                notes.append(_explain_no_winner(self.tally))
        return notes

    async def run(self) -> None:
        """Draws until the policy stops; continues after a first sample that was streamed.

        EndpointError and ServeError are raised only if nothing came.
        """
        if self.request.options.extract:
            await self._check_pattern()
        if self._ahead is not None:
            await self._count_ahead(self._ahead)
        draws = self._next_draws() if self.responses else self._first_draws()
        while draws:
            await self._draw_waves(draws)
            if not self.responses and (self._stopped or not self._open_sources):
                raise self._error or EndpointError("the upstream returned nothing; try again")
            draws = self._next_draws() if self.responses else self._first_draws()
        if not self.responses:
            raise self._error or EndpointError("the upstream returned nothing; try again")
        if self._exploring and not self.explored:
            lacking = sum(draw.count for draw in self._list_unexplored())
            count = len(self.responses)
            self.notes.append(
                f"not drawn to the end, to learn from: {count} of {count + lacking} samples came"
            )

    @asynccontextmanager
    async def stream(self, *, ahead: bool = False) -> AsyncIterator[Stream]:
        """The first sample as it comes, or all choices that the client asked for; counted when it has ended.

        EndpointError or ServeError. `run` draws what the policy wants besides, `end_round` nothing more.
        `ahead`: what the first wave has besides is drawn meanwhile.
        """
        request = self.request
        if request.options.extract:
            await self._check_pattern()
        while True:
            (draw,) = self._first_draws() or (Draw(mode=self._plain_mode),)
            self._rest = replace(draw, count=draw.count - request.n) if draw.count > request.n else None
            source = self._get_source(draw)
            wave = await self._begin_wave(source, request.n)
            began, has_begun = self._loop.time(), False
            body = self._build_body(source)
            try:
                async with source.client.stream(
                    {**body, "n": request.n} if request.n > 1 else body,
                    deadline=self._deadline - self._loop.time(),
                    on_call=wave.record_call,
                    may_send=wave.may_send,
                    optional=self._list_optional_fields(source),
                    headers=self.route.trace,
                    tracer=self._tracer,
                ) as stream:
                    self._streams = has_begun = True
                    if ahead and self._rest is not None:
                        self._ahead = asyncio.ensure_future(self._fetch_wave(self._rest))
                    yield stream
            except BaseException as exc:
                await self.drop_ahead()
                if isinstance(exc, SendingStopped) and wave.refusal is not None:
                    raise wave.refusal from None
                if has_begun or not isinstance(exc, EndpointError):
                    raise
                self._handle_failure(source, exc)
                if self._stopped:
                    raise
                self._get_use(source).missing += request.n
                self.missing += request.n
                continue
            finally:
                self._settle(source, wave)
            break
        self.waves = 1
        self._slowest = max(self._slowest, self._loop.time() - began)
        self._get_use(source).server_info = read_server_info(stream.body)
        await self._count_votes(source, list(stream.responses), request.n)

    async def drop_ahead(self) -> None:
        """Ends what is drawn ahead of its turn; what it has cost counts."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])
            if not ahead.cancelled():
                ahead.exception()  # nobody else retrieves it

    def end_round(self) -> None:
        """Judges a stream that was passed through: there is no further round."""
        self._next_draws()

    def skip_vote(self, reason: str) -> None:
        """There is no vote: what is streamed can't be replaced by another sample any more."""
        self.no_vote_reason, self.weigh, self._policy_decides = reason, None, False

    async def _check_pattern(self) -> None:
        """RequestInvalid if a pattern of the request's own can't be used, also where there is no vote."""
        await self.reader.prepare()

    @property
    def _open_sources(self) -> list[str]:
        """The modes that may be drawn from, cheapest first: those that the request names, of what works."""
        names = self.route.modes or self._resources.sources
        votable = self._policy_modes if self.has_vote and self._policy_modes is not None else names
        return [name for name in names if name not in self.left_out and name in votable]

    @property
    def _plain_mode(self) -> str:
        """The mode that answers where there is no vote: the default, or the dearest of those left."""
        names, default = self._open_sources, self._resources.default
        return default if default in names or not names else names[-1]

    def _get_source(self, draw: Draw) -> SampleSource:
        """Where a draw comes from."""
        return self._resources.sources[self._plain_mode if draw.mode is None else draw.mode]

    def _get_mode(self, name: str) -> ModeEndpoint:
        mode = self._resources.sources[name].mode
        assert mode is not None
        return mode

    def _get_use(self, source: SampleSource) -> _SourceUse:
        use = self._uses.get(source.name)
        if use is None:
            use = self._uses[source.name] = _SourceUse()
        return use

    def _first_draws(self) -> tuple[Draw, ...]:
        if not self.has_vote or self.route.mode == "shadow":
            return (Draw(mode=self._plain_mode, count=self.request.n),)
        resources = self._resources
        expects_text = resources.has_menu and resources.eligibility.expects_text(self.request)
        is_plain = self.route.is_single or expects_text
        draw = Draw(mode=self._plain_mode) if is_plain else self._ask_policy()
        if draw is None:
            return ()
        if draw.count > 1 and resources.eligibility.is_doubtful(self.request):
            draw = replace(draw, count=1)
        return (draw,)

    def _next_draws(self) -> tuple[Draw, ...]:
        """What to draw next; nothing at the end, with a note of why unless the policy decided so."""
        if self.no_vote_reason or self.route.mode == "pass":
            return ()
        self.no_vote_reason = self._find_no_vote_reason()
        if self.no_vote_reason:
            return self._ask_default()
        draw, self._rest = self._rest or self._ask_policy(), None
        count = 0 if draw is None else self._resources.eligibility.limit_wave(self.tally, draw.count)
        if self.route.mode == "shadow":
            self.would = count
            return ()
        if self._stopped or self.route.is_single:
            return ()
        draws: tuple[Draw, ...] = () if draw is None or count == 0 else (replace(draw, count=count),)
        if self._explore:
            self._explore, self._exploring = False, True
            draws = self._list_unexplored()
        if draws and self._loop.time() + self._slowest > self._deadline:
            self.notes.append(f"stopped by the deadline of {self.route.deadline:g} s")
            return ()
        return draws

    def _list_unexplored(self) -> tuple[Draw, ...]:
        """What a request that is drawn to the end lacks: of every mode, all of it at the same time."""
        policy = self.served.policy
        if not self._resources.has_menu:
            left = policy.longest - len(self.responses)
            return (Draw(mode=self._plain_mode, count=left),) if left > 0 else ()
        wanted = {name: EXPLORED_SAMPLES - self.modes.count(name) for name in self._open_sources}
        return tuple(Draw(mode=name, count=count) for name, count in wanted.items() if count > 0)

    def _ask_default(self) -> tuple[Draw, ...]:
        """One sample of the default mode, where another one's shows that there is nothing to vote on."""
        resources = self._resources
        if not resources.has_menu or self._stopped or self.route.mode == "shadow" or self._streams:
            return ()
        if resources.default not in self._open_sources or resources.default in self.modes:
            return ()
        return (Draw(mode=resources.default),)

    def _find_no_vote_reason(self) -> str:
        """Why there is nothing to vote on, judging by the samples so far; "": there may be."""
        eligibility, reader = self._resources.eligibility, self.reader
        is_first = self.waves == 1 and not self._answered_without_first
        if is_first and (reason := self._check_first(self.samples[0])):
            self._refuted = True
            return reason
        silent = sum(
            is_candidate and sample.answer is None and sample.finished is not False
            for sample, is_candidate in zip(self.samples, self._candidates, strict=True)
        )
        return eligibility.check_tally(self.tally, silent) or (
            "" if eligibility.reads_everything else reader.check_different()
        )

    def _check_first(self, first: Sample) -> str:
        """Why the first sample shows that there is nothing to vote on; "": it doesn't."""
        eligibility, reader = self._resources.eligibility, self.reader
        reason = None if eligibility.reads_everything else reader.check_first_sample()
        if reason is None:
            text = reader.get_text(self.responses[0])
            reason = eligibility.check_first_sample(reader.question, text, first)
        return reason or ""

    def _is_refuted_by(self, wave: Sequence[Sample]) -> bool:
        """Whether these samples are the first wave, and show that there is nothing to vote on."""
        if self.samples or not wave:
            return False
        if wave[0].answer is None and any(sample.answer is not None for sample in wave):
            return False  # as `_answered_without_first`
        return bool(self._check_first(wave[0]))

    @property
    def _answered_without_first(self) -> bool:
        """Whether the first sample states no answer, and another of its wave does, which is paid for."""
        return self.samples[0].answer is None and self.tally.answered > 0

    def _ask_policy(self) -> Draw | None:
        policy, prompt, tally = self.served.policy, self.request.prompt, self.tally
        if self._features is None and not policy.skips_prompt(tally):
            self._features = policy.read([prompt])  # once per request: a long prompt takes time
        modes = self._open_sources if self._resources.has_menu else None
        draw = policy.next(prompt, tally, self.dial, reading=self._features, modes=modes)
        if modes is not None and not modes:
            return None
        if draw is None or draw.count <= policy.longest - tally.drawn:
            return draw
        return replace(draw, count=policy.longest - tally.drawn) if tally.drawn < policy.longest else None

    async def _count_ahead(self, ahead: "asyncio.Task[_Fetched | None]") -> None:
        """Counts the rest of the first wave, unless the first sample shows that there is no vote."""
        if self.responses and not self.no_vote_reason:
            self.no_vote_reason = self._find_no_vote_reason()
        if self.no_vote_reason:
            await self.drop_ahead()
            return
        self._rest = None
        fetched = await ahead  # cancelled with whoever waits for it
        self._ahead = None
        if fetched is not None:
            await self._count_wave(*fetched)

    async def _draw_waves(self, draws: Sequence[Draw]) -> None:
        """Draws these, all at the same time, and counts their votes in the order of the draws."""
        if len(draws) == 1:
            fetched = await self._fetch_wave(draws[0])
            if fetched is not None:
                await self._count_wave(*fetched)
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._fetch_wave(draw)) for draw in draws]
        for task in tasks:
            if (fetched := task.result()) is not None:
                await self._count_wave(*fetched)

    async def _fetch_wave(self, draw: Draw) -> "_Fetched | None":
        """Draws samples of one source; None: a cap or the ledger allows none, and there are others."""
        source = self._get_source(draw)
        wave = await self._reserve_wave(source, draw.count)
        if wave is None:
            return None
        began = self._loop.time()
        try:
            responses = await (
                self._draw_one(source, wave) if wave.count == 1 else self._draw_several(source, wave)
            )
        finally:
            self._settle(source, wave)
        self._slowest = max(self._slowest, self._loop.time() - began)
        return source, wave, responses

    async def _count_wave(
        self, source: SampleSource, wave: WaveReservation, responses: list[Response]
    ) -> None:
        self.waves += 1
        if wave.refusal is not None:
            self._stop_at_cap(wave.refusal, received=len(responses))
        await self._count_votes(source, responses, wave.count - wave.unsent)

    def _handle_failure(self, source: SampleSource, error: EndpointError) -> None:
        """A source failed: a menu goes on without that mode, while there are others and time."""
        self._error = self._error or error
        others = [name for name in self._open_sources if name != source.name]
        has_time = self._loop.time() + _NO_TIME < self._deadline
        if not others or isinstance(error, SendingStopped) or not has_time:
            self._stopped = True
        elif source.name not in self.left_out:
            self.left_out[source.name] = error.kind
            self.notes.append(f"mode {source.name} failed ({error.kind}), and is left out")

    def _stop_at_cap(self, refusal: CapReached, *, received: int) -> None:
        """A wave was not sent, or not all of it: the request goes on with what came, if anything did."""
        if not self.responses and not received:
            raise refusal
        self.notes.append(f"stopped by a cap: {refusal}")
        self._stopped = True

    async def _draw_one(self, source: SampleSource, wave: WaveReservation) -> list[Response]:
        """As `_draw_several`, for a wave of one: most are, and this takes a fifth less processor time."""
        try:
            reply = await source.client.call(
                self._build_body(source),
                first=self._next_index(source),
                deadline=self._seconds_left,
                on_call=wave.record_call,
                may_send=wave.may_send,
                optional=self._list_optional_fields(source),
                headers=self.route.trace,
                tracer=self._tracer,
            )
        except EndpointError as exc:
            self._handle_failure(source, exc)
            wave.note_failure(exc, exc.calls, 1)
            return []
        use = self._get_use(source)
        use.server_info = use.server_info or read_server_info(reply.body)
        return list(reply.responses)

    async def _draw_several(self, source: SampleSource, wave: WaveReservation) -> list[Response]:
        responses: dict[int, Response] = {}
        use = self._get_use(source)
        drawing = source.client.draw(
            self._build_body(source),
            wave.count,
            first=self._next_index(source),
            deadline=self._seconds_left,
            on_call=wave.record_call,
            may_send=wave.may_send,
            optional=self._list_optional_fields(source),
            headers=self.route.trace,
            tracer=self._tracer,
        )
        async with aclosing(drawing):
            async for outcome in drawing:
                if isinstance(outcome, DrawFailure):
                    self._handle_failure(source, outcome.error)
                    wave.note_failure(outcome.error, outcome.calls, outcome.count)
                else:
                    use.server_info = use.server_info or read_server_info(outcome.body)
                    responses.update(enumerate(outcome.responses, outcome.first))
        return [responses[index] for index in sorted(responses)]

    def _next_index(self, source: SampleSource) -> int:
        """The index of a source's next sample; the first is 0, also while it is streamed."""
        use = self._get_use(source)
        return max(use.samples + use.missing, int(self._streams and not self.responses))

    @property
    def _seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self._deadline - self._loop.time())

    async def _reserve_wave(self, source: SampleSource, wanted: int) -> WaveReservation | None:
        """The wave, smaller if a cap leaves no room for all of it; None: stop with what there is."""
        try:
            while True:
                try:
                    return await self._begin_wave(source, wanted)
                except CapReached as exc:
                    if wanted == 1 or self.request.n > 1:
                        raise
                    wanted = max(1, min(exc.left, wanted - 1))
        except (CapReached, LedgerUnavailable) as exc:
            if not self.responses and not self._streams:  # else the samples that are paid for are used
                raise
            cause = "a cap" if isinstance(exc, CapReached) else "the ledger"
            self.notes.append(f"stopped by {cause}: {exc}")
        self._stopped = True
        return None

    def _begin_wave(self, source: SampleSource, count: int) -> Awaitable[WaveReservation]:
        bounds = source.bound_tokens(self.request)
        wave = WaveReservation(bounds, count, ledger=self._resources.ledger, rates=source.rates)
        return wave.begin(self.route.key)

    def _settle(self, source: SampleSource, wave: WaveReservation) -> None:
        """Ends a wave, and counts what it cost and what it may have cost."""
        spent, maybe = wave.settle()
        use = self._get_use(source)
        use.calls += wave.calls
        use.spent += spent
        use.maybe += maybe
        self._add_spent(spent, maybe)
        model = self._model if source.mode is None else source.mode.model
        refuses_limit = source.client.quirks.token_limits.is_unbounded(model)
        if refuses_limit and self._adds_limit(source) and _NO_LIMIT not in self.notes:
            self.notes.append(_NO_LIMIT)

    def _add_spent(self, spent: Spend, maybe: Spend) -> None:
        self.spent += spent
        self.maybe += maybe

    async def _count_votes(self, source: SampleSource, responses: list[Response], count: int) -> None:
        missing, use = count - len(responses), self._get_use(source)
        use.samples += len(responses)
        if missing:
            use.missing += missing
            self.missing += missing
            kind = "" if self._error is None else f" ({self._error.kind})"
            suffix = "; the vote is on what came" if self.has_vote and responses else ""
            if source.name not in self.left_out:
                self.notes.append(f"{missing} of {count} samples failed{kind}{suffix}")
        self.responses += responses
        self.modes += [source.name] * len(responses)
        if not self.has_vote:
            came_after = bool(responses) and len(self.responses) > self.request.n
            self._answered_by_default = self._answered_by_default or came_after
            return
        await source.client.share.take_turn()
        samples = await self._read(source, responses)
        scorer = self._resources.scorer
        if scorer is not None and not self._is_refuted_by(samples):  # what isn't voted on needs no score
            samples = await self._verify(scorer, samples)
        places = slice(len(self.samples), len(self.samples) + len(samples))
        self.samples += samples
        await self._tally_samples()
        self._unobserved.append((places, self._model if source.mode is None else source.name))

    async def _read(self, source: SampleSource, responses: list[Response]) -> list[Sample]:
        """The responses as samples; earlier ones are read anew with them."""
        samples = await self.reader.read(responses)
        for place, (old, new) in enumerate(zip(self.samples, samples, strict=False)):
            if new.answer != old.answer:
                signals = new.signals
                if old.signals is not None and old.signals.score is not None:
                    signals = replace(signals or Signals(), score=old.signals.score)
                self.samples[place] = replace(new, mode=old.mode, signals=signals)
        added = samples[len(self.samples) :]
        return added if source.mode is None else [replace(sample, mode=source.name) for sample in added]

    def teach(self) -> None:
        """Has the policy's weights and the reader learn from the samples: for later requests, not its own."""
        unobserved, self._unobserved = self._unobserved, []
        for places, name in unobserved:
            self.served.observe(self.samples[places], name)
        if self._reader is not None:
            self._reader.teach()

    async def _verify(self, scorer: SampleScorer, samples: list[Sample]) -> list[Sample]:
        """The samples with their scores; what that costs is part of what the request costs."""
        began = self._loop.time()
        samples, use = await scorer.score(
            self.request,
            samples,
            ledger=self._resources.ledger,
            key=self.route.key,
            deadline=self._seconds_left,
            on_spent=self._add_spent,
        )
        self._slowest = max(self._slowest, self._loop.time() - began)
        self.verified += use
        if use.note and use.note not in self.notes:
            self.notes.append(use.note)
        return samples

    async def _tally_samples(self) -> None:
        """Counts the votes of new samples; of all again, if earlier ones are read otherwise now."""
        self._candidates = select_candidates(self.reader.readings)
        votes = [(sample.answer, own) for sample, own in zip(self.samples, self._candidates, strict=True)]
        counted = len(self._counted)
        if votes[:counted] != self._counted:
            self._tally, counted = None, 0
        self._counted = votes
        for sample, is_candidate in list(zip(self.samples, self._candidates, strict=True))[counted:]:
            await self._resources.client.share.take_turn()
            if is_candidate:
                await self.tally.add_async(sample)
            else:
                self.tally.pass_over(sample)


def _explain_no_winner(tally: Tally) -> str:
    return (
        f"no winner: {tally.abstained} of {tally.drawn} samples state no answer, which outweighs the "
        f"{tally.first} for the answer that leads; the first sample is returned"
    )
