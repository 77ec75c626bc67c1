"""The waves of one request: ask the policy, draw, count the votes, until the policy stops.

The policy is asked exactly as in replay: with the prompt, the tally of the samples in their order, and a dial
that is held for the whole request. `SampleLoop` decides what is drawn, `SampleDrawer` draws it, and
`RequestVotes` holds what came and the votes on it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from adacompute.answers import Tally, VoteWeights, pick_representative
from adacompute.client import AttemptTracer, Response, Stream
from adacompute.errors import CapReached, EndpointError, LedgerUnavailable, SendingStopped
from adacompute.policies.base import Draw
from adacompute.policies.place import OwnPrice
from adacompute.policies.votes import Floats
from adacompute.records import Sample, Signals
from adacompute.serve.messages.reply import NO_VERIFICATIONS, ModeUse
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.pricing.policy_registry import EXPLORED_SAMPLES, ServedPolicy
from adacompute.serve.voting.answer_reader import AnswerReader, select_candidates
from adacompute.serve.voting.drawing import SampleDrawer, SampleSource, SampleWave, SamplingResources
from adacompute.serve.voting.sample_scorer import SampleScorer

# alternatives of each token: most endpoints give as many; 20 make a reply four times as long
_TOP_LOGPROBS = 5
_NO_TIME = 0.05  # seconds before the deadline in which no other mode is tried


class RequestVotes:
    """The responses to one request so far, and the votes on them."""

    def __init__(
        self, request: ChatRequest, route: Route, served: ServedPolicy, resources: SamplingResources
    ) -> None:
        self.responses: list[Response] = []
        self.modes: list[str] = []  # of each response; "" where there is no menu
        self.samples: list[Sample] = []
        self.policy_modes = None if served.menu is None else served.menu.names  # None: whatever there is
        self.no_vote_reason = resources.eligibility.check_request(request) or self._check_modes(route)
        # ^ "": there is a vote
        self._request = request
        self._is_passed = route.mode == "pass"
        self._served = served
        self._resources = resources
        self._model = str(request.body.get("model", ""))
        self._candidates: list[bool] = []  # which samples the tally counts; the others are abstentions in it
        self._counted: list[tuple[str | None, bool]] = []  # their answers, and whether they are candidates
        self._reader: AnswerReader | None = None  # made only where there is a vote, as is the tally
        self._tally: Tally | None = None
        self._unobserved: list[tuple[slice, str]] = []  # samples that the policy's weights may learn from
        self.is_refuted = False  # whether its first sample shows that there is nothing to vote on
        self._answered_by_default = False  # whether the default mode was asked after all, without a vote
        self.weigh = self._choose_weights() if self.has_vote else None

    def _check_modes(self, route: Route) -> str:
        """Why there is no vote over the modes that a request names; "": there may be one."""
        if self.policy_modes is None or not route.modes:
            return ""
        knows = any(name in self.policy_modes for name in route.modes)
        return "" if knows else "the policy knows none of the modes that the request names"

    def _choose_weights(self) -> VoteWeights | None:
        """How votes weigh: on the live scale of the model, or of each mode."""
        resources, weigh = self._resources, self._served.weigh(self._model)
        if not resources.has_menu:
            gives_logprobs = resources.client.quirks.gives_logprobs(self._request.body.get("model"))
            if gives_logprobs is False and weigh is not None:  # only scores are left
                weigh = None if weigh.score is None else VoteWeights.by_score(weigh.score)
        scorer = resources.scorer
        if scorer is None or self._served.policy.needs_plain_votes:
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
                self._request,
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
    def has_vote(self) -> bool:
        """Whether there is a vote, as far as is known yet."""
        return not self.no_vote_reason and not self._is_passed

    @property
    def counted_tally(self) -> Tally | None:
        """The votes, where there are any."""
        return self.tally if self.has_vote and self.tally.drawn else None

    @property
    def is_weighted(self) -> bool:
        """Whether votes weigh by log-probabilities that an upstream gives."""
        weigh = self.weigh
        if weigh is None:
            return False
        if not weigh.modes:
            return self._resources.client.quirks.gives_logprobs(self._request.body.get("model")) is True
        sources = self._resources.sources
        return any(
            own.reads_tokens and sources[name].client.quirks.gives_logprobs(sources[name].mode.model) is True
            for name, own in weigh.modes
        )

    def choose_fields(self, mode: str) -> dict[str, Any]:
        """The fields of log-probabilities that a mode is asked for, if the policy or the vote uses them."""
        policy, weigh = self._served.policy, None if self.weigh is None else self.weigh.get_mode(mode)
        if self.has_vote and (policy.reads_entropy or (weigh is not None and weigh.reads_alternatives)):
            return {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
        return {"logprobs": True} if weigh is not None and weigh.reads_tokens else {}

    @property
    def representative(self) -> int | None:
        """The index of the sample that represents the winner; the first if there is no winner, or no vote."""
        if not self.responses:
            return None
        if self._answered_by_default:
            return len(self.responses) - 1
        has_winner = self.has_vote and self.tally.winner is not None
        modes = self.policy_modes or (self._resources.modes if self._resources.has_menu else ())
        index = pick_representative(self.samples, self.tally, modes=modes) if has_winner else None
        return self._first_candidate if index is None else index

    @property
    def _first_candidate(self) -> int:
        """The first sample of the kind that most samples are of: a call of certain tools, or a text."""
        return self._candidates.index(True) if True in self._candidates else 0

    def list_notes(self) -> list[str]:
        """Why there is no vote, or what the vote leaves out."""
        if self.no_vote_reason:
            return [f"no vote: {self.no_vote_reason}"]
        notes = []
        if self.has_vote:
            if left_out := self.reader.left_out:
                notes.append(f"free text isn't compared: {', '.join(left_out)[:200]}")
            if self.tally.is_outweighed:
                notes.append(_explain_no_winner(self.tally))
        return notes

    def skip(self, reason: str) -> None:
        """There is no vote: what is streamed can't be replaced by another sample any more."""
        self.no_vote_reason, self.weigh = reason, None

    def add_responses(self, source: SampleSource, responses: Sequence[Response]) -> None:
        """Adds what came of a source; where there is a vote, `read` and `count` follow."""
        self.responses += responses
        self.modes += [source.name] * len(responses)
        if not self.has_vote and responses and len(self.responses) > self._request.n:
            self._answered_by_default = True

    async def read(self, source: SampleSource, responses: list[Response]) -> list[Sample]:
        """The responses as samples; earlier ones are read anew with them."""
        samples = await self.reader.read(responses)
        for place, (old, new) in enumerate(zip(self.samples, samples, strict=False)):
            if new.answer != old.answer:
                signals = new.signals
                if old.signals is not None and old.signals.score is not None:
                    signals = replace(signals or Signals(), score=old.signals.score)
                self.samples[place] = replace(new, mode=old.mode, signals=signals)
        added = samples[len(self.samples) :]
        return [replace(sample, mode=source.name) for sample in added] if source.name else added

    async def count(self, source: SampleSource, samples: Sequence[Sample]) -> None:
        """Counts the votes of new samples; of all again, if earlier ones are read otherwise now."""
        places = slice(len(self.samples), len(self.samples) + len(samples))
        self.samples += samples
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
        self._unobserved.append((places, source.name or self._model))

    def teach(self) -> None:
        """Has the policy's weights and the reader learn from the samples: for later requests, not its own."""
        unobserved, self._unobserved = self._unobserved, []
        for places, name in unobserved:
            self._served.observe(self.samples[places], name)
        if self._reader is not None:
            self._reader.teach()

    def check(self, *, is_first: bool) -> str:
        """Why there is nothing to vote on, judging by the samples so far; "": there may be.

        `is_first`: they are the first wave.
        """
        eligibility, reader = self._resources.eligibility, self.reader
        if is_first and not self._answered_without_first and (reason := self._check_first(self.samples[0])):
            self.is_refuted = True
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

    def is_refuted_by(self, wave: Sequence[Sample]) -> bool:
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


class SampleLoop:
    """What is drawn for one request, wave by wave."""

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
        self.notes: list[str] = [*route.notes]
        self.votes = RequestVotes(request, route, served, resources)
        self.drawer = SampleDrawer(
            request, route, resources, add_fields=self.votes.choose_fields, notes=self.notes, tracer=tracer
        )
        self.weak = False  # whether the vote is below the operator's minimum
        self.waves = 0
        self.would: int | None = None  # in shadow mode, how many more the policy would have drawn
        self.left_out: dict[str, str] = {}  # modes that failed, and how
        self.verified = NO_VERIFICATIONS
        self._resources = resources
        self._explore = explore and not route.modes  # nothing is learned from some modes alone
        self._exploring = False  # whether it is being drawn to the end, for learning
        self._policy_decides = self.votes.has_vote
        self._loop = asyncio.get_running_loop()
        self._slowest = 0.0  # seconds of the slowest wave
        self._error: EndpointError | None = None
        self._features: Floats | None = None  # the prompt, as the policy sees it
        self._stopped = False  # True: no further wave, whatever the policy says
        self._rest: Draw | None = None  # what the first wave has besides a first sample that was streamed
        self._ahead: asyncio.Task[SampleWave | None] | None = None  # the rest of the first wave, under way

    @property
    def now(self) -> float:
        """The time by the event loop's clock."""
        return self._loop.time()

    @property
    def price(self) -> float | None:
        """The dial that it was decided at; None if nothing was decided."""
        return self.dial if self._policy_decides else None

    @property
    def is_certified(self) -> bool | None:
        """Whether the policy certifies the answer; None: there is none, or it certifies nothing."""
        policy, tally = self.served.policy, self.votes.counted_tally
        if tally is None or tally.winner is None or (policy.dial is not None and self.dial is None):
            return None
        return policy.certifies(tally, self.dial)

    @property
    def decided(self) -> bool:
        """Whether the policy decides how many, so that its cost belongs to the average of voted requests.

        Not where one sample is certain, nor where the first shows that there is nothing to vote on: what the
        first wave cost is no decision then. But it does where several samples were drawn, and none states
        an answer.
        """
        if not self._policy_decides or self.votes.is_refuted:
            return False
        return bool(self.votes.responses) or not self._resources.eligibility.is_doubtful(self.request)

    @property
    def explored(self) -> bool:
        """Whether it was drawn to the end, for learning."""
        if not self._exploring or not self.votes.has_vote or self.drawer.missing:
            return False
        return not self._list_unexplored()

    @property
    def is_single_round(self) -> bool:
        """Whether one round is certain to be all, so that its stream may be passed through."""
        if not self.votes.has_vote or self.route.mode == "shadow" or self.route.is_single:
            return True
        if not self.served.policy.one_shot or self._explore:
            return False
        draw = self._ask_policy()
        return draw is None or draw.count <= 1

    @property
    def uses(self) -> tuple[ModeUse, ...]:
        """What was drawn of each mode of a menu; none where there is one endpoint."""
        votes = self.votes
        return self.drawer.describe_modes(
            lambda name: votes.tally.find_mode_leader(name) if votes.has_vote else None, self.left_out
        )

    def list_notes(self) -> list[str]:
        """What the client is told besides its reply."""
        return [*self.notes, *self.votes.list_notes()]

    async def run(self) -> None:
        """Draws until the policy stops; continues after a first sample that was streamed.

        EndpointError and ServeError are raised only if nothing came.
        """
        if self.request.options.extract:
            await self.votes.reader.prepare()  # RequestInvalid, also where there is no vote
        if self._ahead is not None:
            await self._count_ahead(self._ahead)
        draws = self._next_draws() if self.votes.responses else self._first_draws()
        while draws:
            await self._draw_waves(draws)
            if not self.votes.responses and (self._stopped or not self._open_sources):
                raise self._error or EndpointError("the upstream returned nothing; try again")
            draws = self._next_draws() if self.votes.responses else self._first_draws()
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
        """The first sample as it comes, or all choices that the client asked for; counted when it has ended.

        EndpointError or ServeError. `run` draws what the policy wants besides, `end_round` nothing more.
        `ahead`: what the first wave has besides is drawn meanwhile.
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
        self.votes.skip(reason)
        self._policy_decides = False

    @property
    def _open_sources(self) -> list[str]:
        """The modes that may be drawn from, cheapest first: those that the request names, of what works."""
        names, known = self.route.modes or self._resources.sources, self.votes.policy_modes
        votable = names if known is None or not self.votes.has_vote else known
        return [name for name in names if name not in self.left_out and name in votable]

    @property
    def _plain_mode(self) -> str:
        """The mode that answers where there is no vote: the default, or the dearest of those left."""
        names, default = self._open_sources, self._resources.default
        return default if default in names or not names else names[-1]

    def _get_source(self, draw: Draw) -> SampleSource:
        """Where a draw comes from."""
        return self._resources.sources[self._plain_mode if draw.mode is None else draw.mode]

    def _first_draws(self) -> tuple[Draw, ...]:
        if not self.votes.has_vote or self.route.mode == "shadow":
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
        if self.votes.no_vote_reason or self.route.mode == "pass":
            return ()
        self.votes.no_vote_reason = self.votes.check(is_first=self.waves == 1)
        if self.votes.no_vote_reason:
            return self._ask_default()
        draw, self._rest = self._rest or self._ask_policy(), None
        count = 0 if draw is None else self._resources.eligibility.limit_wave(self.votes.tally, draw.count)
        if self.route.mode == "shadow":
            self.would = count
            return ()
        if self._stopped or self.route.is_single:
            return ()
        draws: tuple[Draw, ...] = () if draw is None or count == 0 else (replace(draw, count=count),)
        if self._explore:
            self._explore, self._exploring = False, True
            draws = self._list_unexplored()
        if draws and self._loop.time() + self._slowest > self.drawer.deadline:
            self.notes.append(f"stopped by the deadline of {self.route.deadline:g} s")
            return ()
        return draws

    def _list_unexplored(self) -> tuple[Draw, ...]:
        """What a request that is drawn to the end lacks: of every mode, all of it at the same time."""
        policy = self.served.policy
        if not self._resources.has_menu:
            left = policy.longest - len(self.votes.responses)
            return (Draw(mode=self._plain_mode, count=left),) if left > 0 else ()
        wanted = {name: EXPLORED_SAMPLES - self.votes.modes.count(name) for name in self._open_sources}
        return tuple(Draw(mode=name, count=count) for name, count in wanted.items() if count > 0)

    def _ask_default(self) -> tuple[Draw, ...]:
        """One sample of the default mode, where another one's shows that there is nothing to vote on."""
        resources = self._resources
        if not resources.has_menu or self._stopped or self.route.mode == "shadow" or self.drawer.has_streamed:
            return ()
        if resources.default not in self._open_sources or resources.default in self.votes.modes:
            return ()
        return (Draw(mode=resources.default),)

    def _ask_policy(self) -> Draw | None:
        policy, prompt, tally = self.served.policy, self.request.prompt, self.votes.tally
        if self._features is None and not policy.skips_prompt(tally):
            self._features = policy.read([prompt])  # once per request: a long prompt takes time
        modes = self._open_sources if self._resources.has_menu else None
        price = None if self.dial is None else OwnPrice(self.dial)
        draw = policy.next(prompt, tally, price, reading=self._features, modes=modes)
        if modes is not None and not modes:
            return None
        if draw is None or draw.count <= policy.longest - tally.drawn:
            return draw
        return replace(draw, count=policy.longest - tally.drawn) if tally.drawn < policy.longest else None

    async def _count_ahead(self, ahead: "asyncio.Task[SampleWave | None]") -> None:
        """Counts the rest of the first wave, unless the first sample shows that there is no vote."""
        if self.votes.responses and not self.votes.no_vote_reason:
            self.votes.no_vote_reason = self.votes.check(is_first=self.waves == 1)
        if self.votes.no_vote_reason:
            await self.drop_ahead()
            return
        self._rest = None
        wave = await ahead  # cancelled with whoever waits for it
        self._ahead = None
        if wave is not None:
            await self._count_wave(wave)

    async def _draw_waves(self, draws: Sequence[Draw]) -> None:
        """Draws these, all at the same time, and counts their votes in the order of the draws."""
        if len(draws) == 1:
            waves = [await self._fetch_wave(draws[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._fetch_wave(draw)) for draw in draws]
            waves = [task.result() for task in tasks]
        for wave in waves:
            if wave is not None:
                await self._count_wave(wave)

    async def _fetch_wave(self, draw: Draw) -> SampleWave | None:
        """Draws samples of one source; None: a cap or the ledger allows none, and there are others."""
        try:
            return await self.drawer.draw(self._get_source(draw), draw.count)
        except (CapReached, LedgerUnavailable) as exc:
            if not self.votes.responses and not self.drawer.has_streamed:
                raise  # else the samples that are paid for are used
            cause = "a cap" if isinstance(exc, CapReached) else "the ledger"
            self.notes.append(f"stopped by {cause}: {exc}")
            self._stopped = True
            return None

    async def _count_wave(self, wave: SampleWave) -> None:
        self.waves += 1
        self._slowest = max(self._slowest, wave.seconds)
        for error in wave.errors:
            self._handle_failure(wave.source, error)
        if wave.refusal is not None:
            self._stop_at_cap(wave.refusal, received=len(wave.responses))
        await self._count_votes(wave.source, wave.responses, wave.sent)

    def _handle_failure(self, source: SampleSource, error: EndpointError) -> None:
        """A source failed: a menu goes on without that mode, while there are others and time."""
        self._error = self._error or error
        others = [name for name in self._open_sources if name != source.name]
        has_time = self._loop.time() + _NO_TIME < self.drawer.deadline
        if not others or isinstance(error, SendingStopped) or not has_time:
            self._stopped = True
        elif source.name not in self.left_out:
            self.left_out[source.name] = error.kind
            self.notes.append(f"mode {source.name} failed ({error.kind}), and is left out")

    def _stop_at_cap(self, refusal: CapReached, *, received: int) -> None:
        """A wave was not sent, or not all of it: the request goes on with what came, if anything did."""
        if not self.votes.responses and not received:
            raise refusal
        self.notes.append(f"stopped by a cap: {refusal}")
        self._stopped = True

    async def _count_votes(self, source: SampleSource, responses: list[Response], count: int) -> None:
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
        if scorer is not None and not votes.is_refuted_by(samples):  # what isn't voted on needs no score
            samples = await self._verify(scorer, samples)
        await votes.count(source, samples)

    async def _verify(self, scorer: SampleScorer, samples: list[Sample]) -> list[Sample]:
        """The samples with their scores; what that costs is part of what the request costs."""
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


def _explain_no_winner(tally: Tally) -> str:
    return (
        f"no winner: {tally.abstained} of {tally.drawn} samples state no answer, which outweighs the "
        f"{tally.first} for the answer that leads; the first sample is returned"
    )
