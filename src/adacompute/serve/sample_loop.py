"""The waves of one request: ask the policy, reserve, draw, count the votes, until the policy stops.

The policy is asked exactly as in replay: with the prompt, the tally of the samples in their order, and a dial
that is held for the whole request.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from adacompute.answers import Tally, Task, VoteWeights, pick_representative
from adacompute.answers.vote import MIN_SETTLED, ScoreWeights
from adacompute.client import (
    ADDED_LIMIT,
    LIMIT_NAME,
    LOGPROBS,
    AttemptTracer,
    Client,
    DrawFailure,
    Response,
    Stream,
    Verifier,
    VerifierReply,
)
from adacompute.client.verifier import VERDICT_TOKENS
from adacompute.errors import CapReached, EndpointError, LedgerUnavailable, SendingStopped
from adacompute.policies.base import Floats
from adacompute.records import Call, Sample, Signals
from adacompute.serve.answer_reader import AnswerReader, select_candidates
from adacompute.serve.ledger import NO_SPEND, LedgerProtocol, Rates, Spend
from adacompute.serve.policy_registry import ServedPolicy
from adacompute.serve.reply import NO_VERIFICATIONS, Usage, VerifierUse, read_server_info
from adacompute.serve.request_parser import ChatRequest, Route
from adacompute.serve.vote_eligibility import VoteEligibility

__all__ = ["SampleLoop", "SampleScorer", "SamplingResources"]

_log = logging.getLogger("adacompute.serve")
_SCORE_MEMORY = 2000  # scores that the running means cover, about
_MIN_SHIFT = 0.05  # spreads: smaller moves of the scores' centre or spread are ignored
_MIN_VARIANCE = 1e-9  # of scores, as a share of their square: below it they differ by rounding only


class TokenBounds(Protocol):
    """The most tokens that one call can cost."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...


class Wave:
    """Samples, or verifications, that are requested together: their reservation, and what they cost.

    Always settle one that was begun.
    """

    def __init__(self, request: TokenBounds, count: int, *, ledger: LedgerProtocol, rates: Rates) -> None:
        self.count = count  # samples requested
        self.calls: list[Call] = []  # finished
        self._request = request
        self._ledger = ledger
        self._rates = rates
        self._reserved = self._bound_cost(count)
        self._used = (NO_SPEND, NO_SPEND)  # what `calls` cost, and what they may have cost
        self._extension: asyncio.Future[bool] | None = None  # a pending extension of the reservation
        self.refusal: CapReached | None = None  # why nothing more of it was sent, where a cap was passed
        self.unsent = 0  # samples that were not asked for, because of that
        self._under_way = 0  # samples that are asked for by calls that were sent and haven't ended

    async def begin(self, key: str) -> "Wave":
        """Reserves the most that it can cost; CapReached or LedgerUnavailable if that fails."""
        self._reservation = await self._ledger.reserve(key, self._reserved)
        return self

    def may_send(self, samples: int) -> bool:
        """Asked when a call's turn has come, with 0, and right before it is sent: whether the caps allow it.

        What an upstream gave beyond what was asked for may have used up what this wave has reserved.
        """
        if self.refusal is None:
            self.refusal = self._ledger.check_send(self._reservation)
        if self.refusal is None:
            self._under_way += samples
        return self.refusal is None

    def record_call(self, call: Call) -> "bool | asyncio.Future[bool]":
        """Records an attempt. Whether more may be sent, be it a retry or what is missing.

        True only if the reservation covers all that is still to come besides what was, or may have
        been, used; it is extended if attempts cost more than expected. A future if that takes time.
        What was used beyond the reservation counts at once, so that nothing more is sent on it.
        """
        self.calls.append(call)
        if call.status is not None or call.paid != "no":  # it was sent
            self._under_way -= call.asked
        self._used = self._sum_used()
        self._count_excess()
        if self._extension is not None and not self._extension.done():
            return self._extension  # it checks again before it ends
        more = self._find_shortfall()
        if more is NO_SPEND:
            return True
        granted = self._ledger.extend(self._reservation, more)
        if not isinstance(granted, bool):
            self._extension = asyncio.ensure_future(self._extend(more, granted))
            return self._extension
        if granted:
            self._reserved += more
        return granted

    def note_failure(self, error: EndpointError, calls: Sequence[Call], count: int) -> None:
        """Samples that didn't come: whether a cap prevented that they were asked for at all."""
        if self.refusal is not None and isinstance(error, SendingStopped) and not calls:
            self.unsent += count

    def _count_excess(self) -> None:
        excess = self._find_lack(self._under_way)
        if excess is not NO_SPEND:
            self._ledger.grow(self._reservation, excess)
            self._reserved += excess

    async def _extend(self, more: Spend, granted: "bool | asyncio.Future[bool]") -> bool:
        while granted if isinstance(granted, bool) else await granted:
            self._reserved += more
            more = self._find_shortfall()
            if more is NO_SPEND:
                return True
            granted = self._ledger.extend(self._reservation, more)
        return False

    def _find_shortfall(self) -> Spend:
        """What the reservation lacks for all that was, or may have been, used and is still to come."""
        remaining = self.count
        for call in self.calls:
            remaining -= call.got
        return self._find_lack(max(0, remaining))

    def _find_lack(self, samples: int) -> Spend:
        """What the reservation lacks for what was, or may have been, used and so many samples besides."""
        spent, maybe = self._used
        needed = spent + maybe
        if samples:
            needed += self._bound_cost(samples)
        return needed.beyond(self._reserved)

    def settle(self) -> tuple[Spend, Spend]:
        """Ends the wave: what it cost, and what it may have cost."""
        spent, maybe = self._used
        self._ledger.settle(self._reservation, spent, maybe)
        return spent, maybe

    def _bound_cost(self, samples: int) -> Spend:
        request = self._request
        return self._rates.compute_max(
            samples=samples, prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens
        )

    def _sum_used(self) -> tuple[Spend, Spend]:
        rates, request = self._rates, self._request
        maybe = rates.compute_maybe(
            self.calls, prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens
        )
        return rates.compute_spent(self.calls), maybe


class VerifierRates(Rates):
    """Token prices of a verifier: its calls give no samples."""

    def compute_max(self, *, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that so many verifications can cost."""
        most = super().compute_max(samples=samples, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
        return replace(most, samples=0)

    def compute_spent(self, calls: Iterable[Call]) -> Spend:
        """What the calls that were paid for cost."""
        return replace(super().compute_spent(calls), samples=0)

    def compute_maybe(self, calls: Iterable[Call], *, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that calls may be charged for beyond that."""
        most = super().compute_maybe(calls, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
        return most if most is NO_SPEND else replace(most, samples=0)


@dataclass(frozen=True, slots=True)
class _VerdictBounds:
    prompt_tokens: int
    max_tokens: int = VERDICT_TOKENS


class SampleScorer:
    """Has the verifier score samples, reserves what that may cost, and logs a failure once.

    A plain scoring endpoint has no tokens: its calls cost nothing here. What is asked of a model is reserved
    and counted in tokens and money, at the verifier's prices; it is no sample.
    """

    def __init__(self, verifier: Verifier, rates: VerifierRates, *, beta: float = 0.0) -> None:
        self.verifier = verifier
        self._beta = beta  # of policies that have none of their own
        self._rates = rates
        self._count, self._mean, self._square = 0, 0.0, 0.0  # of scores; running means of them and squares
        self._last: ScoreWeights | None = None  # on the live scale, until that has moved
        self._failing = False  # whether that it fails was logged, and it hasn't worked since

    async def score(
        self,
        request: ChatRequest,
        samples: Sequence[Sample],
        *,
        ledger: LedgerProtocol,
        key: str,
        deadline: float,
        on_spent: Callable[[Spend, Spend], None],
    ) -> tuple[list[Sample], VerifierUse]:
        """The samples, with a score where one came, and what that took; never raises for the verifier.

        `on_spent` is told what it cost and may have cost, also if this is cancelled.
        """
        places = [place for place, sample in enumerate(samples) if sample.answer is not None and sample.text]
        if not places:
            return list(samples), NO_VERIFICATIONS
        wave: Wave | None = None
        if self.verifier.model:
            prompt_tokens = max(self._bound_prompt(request, samples[place]) for place in places)
            wave = Wave(_VerdictBounds(prompt_tokens), len(places), ledger=ledger, rates=self._rates)
            try:
                await wave.begin(key)
            except (CapReached, LedgerUnavailable) as exc:
                note = f"not verified: {exc}"
                return list(samples), VerifierUse(calls=0, failed=len(places), tokens=0, note=note)
        spent = NO_SPEND
        try:
            outcomes = await asyncio.gather(
                *[self._verify(request, samples[place], wave, deadline) for place in places]
            )
        finally:
            if wave is not None:
                spent, maybe = wave.settle()
                on_spent(spent, maybe)
        scored = list(samples)
        for place, outcome in zip(places, outcomes, strict=True):
            if outcome.score is not None:
                signals = samples[place].signals or Signals()
                scored[place] = replace(samples[place], signals=replace(signals, score=outcome.score))
        self._observe(outcome.score for outcome in outcomes if outcome.score is not None)
        self._log_failures(outcomes)
        return scored, VerifierUse(
            calls=len(places),
            failed=sum(outcome.score is None for outcome in outcomes),
            tokens=spent.tokens,
        )

    def add_weights(self, weigh: VoteWeights | None) -> VoteWeights | None:
        """A policy's vote weights, with those of scores: on the live scale, once enough were seen."""
        fitted = None if weigh is None else weigh.score
        score = self._settle_weights(fitted)
        if score is None or score is fitted:
            return weigh
        return VoteWeights.by_score(score) if weigh is None else replace(weigh, score=score)

    def _settle_weights(self, fitted: ScoreWeights | None) -> ScoreWeights | None:
        if self._count < MIN_SETTLED:
            return fitted
        beta = self._beta if fitted is None else fitted.beta
        variance = self._square - self._mean * self._mean
        spread = math.sqrt(variance) if variance > _MIN_VARIANCE * max(1.0, self._square) else 0.0
        if beta == 0 or spread == 0:  # all scores are the same
            return None if fitted is None else replace(fitted, beta=0.0)
        last = self._last
        if last is None or max(abs(last.centre - self._mean), abs(last.spread - spread)) > (
            _MIN_SHIFT * last.spread
        ):  # else the same votes would weigh a little different each time
            last = self._last = ScoreWeights(beta=beta, centre=self._mean, spread=spread)
        return last if last.beta == beta else replace(last, beta=beta)

    def _observe(self, scores: Iterable[float]) -> None:
        for score in scores:
            self._count += 1
            share = 1.0 / min(self._count, _SCORE_MEMORY)
            self._mean += (score - self._mean) * share
            self._square += (score * score - self._square) * share

    def _verify(
        self, request: ChatRequest, sample: Sample, wave: Wave | None, deadline: float
    ) -> Awaitable[VerifierReply]:
        return self.verifier.score(
            request.body["messages"],
            sample.text or "",
            sample.answer,
            prompt=request.prompt,
            deadline=deadline,
            on_call=None if wave is None else wave.record_call,
            may_send=None if wave is None else wave.may_send,
        )

    def _bound_prompt(self, request: ChatRequest, sample: Sample) -> int:
        return self.verifier.bound_prompt_tokens(request.prompt_tokens, sample.text or "", sample.answer)

    def _log_failures(self, outcomes: Sequence[VerifierReply]) -> None:
        """Logs the first failure in a row; the verifier's own words may quote a client: at debug only."""
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        if error is None:
            self._failing = False
        elif not self._failing:
            self._failing = True
            status = f"answered {error.status}" if error.status is not None else "failed"
            _log.warning(
                "the verifier %s (%s): votes go on without its scores; not logged again until it works",
                status,
                error.kind,
            )
            _log.debug("verifier: %s", error)


_Fetched = tuple[Wave, list[Response]]  # a wave that has ended, and what came of it
_NO_LIMIT = "the model takes no limit of tokens; what it gives beyond max_tokens may pass a cap"
# alternatives of each token: most endpoints give as many; 20 make a reply four times as long
_TOP_LOGPROBS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingResources:
    """What every request shares."""

    client: Client
    ledger: LedgerProtocol
    rates: Rates
    task: Task
    eligibility: VoteEligibility
    scorer: SampleScorer | None = None  # None: there is no verifier


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
        self.no_vote_reason = resources.eligibility.check_request(request)  # "": there is a vote
        self.notes: list[str] = [*route.notes]
        self.weak = False  # whether the vote is below the operator's minimum
        self.responses: list[Response] = []
        self.server_info: dict[str, str] = {}  # of the upstream's first reply
        self.samples: list[Sample] = []
        self.missing = 0  # samples requested but not received
        self.waves = 0
        self.would: int | None = None  # in shadow mode, how many more the policy would have drawn
        self.spent = NO_SPEND
        self.maybe = NO_SPEND
        self.calls: list[Call] = []
        self.verified = NO_VERIFICATIONS
        self.weigh: VoteWeights | None = None
        self._resources = resources
        self._tracer = tracer
        self._model = str(request.body.get("model", ""))
        self._explore = explore
        self._exploring = False  # whether it is being drawn to the end, for learning
        self._policy_decides = self.has_vote
        self._refuted = False  # whether its first sample shows that there is nothing to vote on
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + route.deadline
        self._slowest = 0.0  # seconds of the slowest wave
        self._error: EndpointError | None = None
        self._features: Floats | None = None  # of the prompt, as the policy sees it
        self._stopped = False  # True: no further wave, whatever the policy says
        self._rest = 0  # samples of the first wave that are still to be drawn, because the first was streamed
        self._streams = False  # whether a first sample is, or was, streamed
        self._ahead: asyncio.Task[_Fetched | None] | None = None  # the rest of the first wave, under way
        if self.has_vote:
            gives_logprobs = resources.client.quirks.gives_logprobs(request.body.get("model"))
            self.weigh = served.weigh(self._model)
            if gives_logprobs is False and self.weigh is not None:  # only scores are left
                self.weigh = None if self.weigh.score is None else VoteWeights.by_score(self.weigh.score)
            if resources.scorer is not None and not served.policy.needs_plain_votes:
                self.weigh = resources.scorer.add_weights(self.weigh)
        self._candidates: list[bool] = []  # which samples the tally counts; the others are abstentions in it

    @cached_property
    def reader(self) -> AnswerReader:
        """Reads the samples; made only where there is a vote, as is the tally."""
        resources, eligibility = self._resources, self._resources.eligibility
        return AnswerReader(
            self.request,
            resources.task,
            loose=eligibility.reads_everything,
            finds_json=eligibility.votes_on_json,
        )

    @cached_property
    def tally(self) -> Tally:
        """The votes so far."""
        return Tally(task=self._resources.task, weigh=self.weigh)

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
        return len(self.responses) >= self.served.policy.longest

    @property
    def is_single_round(self) -> bool:
        """Whether one round is certain to be all, so that its stream may be passed through."""
        if not self.has_vote or self.route.mode == "shadow" or self.route.is_single:
            return True
        return self.served.policy.one_shot and self._ask_policy() <= 1 and not self._explore

    @property
    def upstream_body(self) -> Mapping[str, Any]:
        """What goes upstream: the request, and log-probabilities if the policy or the vote uses them.

        If a cap on tokens or money would have no bound otherwise, also the operator's limit of tokens.
        """
        policy, body = self.served.policy, self.request.body
        if self._adds_limit:
            body = {**body, "max_tokens": self.request.max_tokens}
        reads_alternatives = self.has_vote and (
            policy.reads_entropy or (self.weigh is not None and self.weigh.reads_alternatives)
        )
        if not reads_alternatives and (self.weigh is None or not self.weigh.reads_tokens):
            return body
        extended = {**body, "logprobs": True}
        if reads_alternatives and not body.get("top_logprobs"):
            extended["top_logprobs"] = _TOP_LOGPROBS
        return extended

    @property
    def optional_fields(self) -> frozenset[str]:
        """Fields that only the gateway wants: if the upstream refuses them, they are changed or left out."""
        fields, body = LOGPROBS, self.request.body
        if not fields.isdisjoint(body):
            fields = frozenset(name for name in LOGPROBS if not body.get(name))
        if self._adds_limit:
            return fields | ADDED_LIMIT
        # what was translated into a chat has a limit whose name the client didn't choose
        return fields if self.request.original is None else fields | LIMIT_NAME

    @property
    def _adds_limit(self) -> bool:
        """Whether the gateway adds a limit of tokens, because the client gave none and a cap counts them."""
        return not self.request.has_token_limit and self._resources.ledger.caps.counts_tokens

    @property
    def representative(self) -> int | None:
        """The index of the sample that represents the winner; the first if there is no winner, or no vote."""
        if not self.responses:
            return None
        has_winner = self.has_vote and self.tally.winner is not None
        index = pick_representative(self.samples, self.tally) if has_winner else None
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
        await self._check_pattern()
        if self._ahead is not None:
            await self._count_ahead(self._ahead)
        wanted = self._next_count() if self.responses else self._first_count()
        while wanted > 0:
            await self._draw_wave(wanted)
            if not self.responses:
                raise self._error or EndpointError("the upstream returned nothing; try again")
            wanted = self._next_count()
        if self._exploring and not self.explored:
            count, longest = len(self.responses), self.served.policy.longest
            self.notes.append(f"not drawn to the end, to learn from: {count} of {longest} samples came")

    @asynccontextmanager
    async def stream(self, *, ahead: bool = False) -> AsyncIterator[Stream]:
        """The first sample as it comes, or all choices that the client asked for; counted when it has ended.

        EndpointError or ServeError. `run` draws what the policy wants besides, `end_round` nothing more.
        `ahead`: what the first wave has besides is drawn meanwhile.
        """
        request = self.request
        await self._check_pattern()
        self._rest = self._first_count() - request.n
        wave = await self._begin_wave(request.n)
        began = self._loop.time()
        try:
            async with self._resources.client.stream(
                {**self.upstream_body, "n": request.n} if request.n > 1 else self.upstream_body,
                deadline=self._deadline - self._loop.time(),
                on_call=wave.record_call,
                may_send=wave.may_send,
                optional=self.optional_fields,
                headers=self.route.trace,
                tracer=self._tracer,
            ) as stream:
                self._streams = True
                if ahead and self._rest > 0:
                    self._ahead = asyncio.ensure_future(self._fetch_wave(self._rest))
                yield stream
        except BaseException as exc:
            await self.drop_ahead()
            if isinstance(exc, SendingStopped) and wave.refusal is not None:
                raise wave.refusal from None
            raise
        finally:
            self._settle(wave)
        self.waves = 1
        self._slowest = max(self._slowest, self._loop.time() - began)
        self.server_info = read_server_info(stream.body)
        await self._count_votes(list(stream.responses), request.n)

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
        self._next_count()

    def skip_vote(self, reason: str) -> None:
        """There is no vote: what is streamed can't be replaced by another sample any more."""
        self.no_vote_reason, self.weigh, self._policy_decides = reason, None, False

    async def _check_pattern(self) -> None:
        """RequestInvalid if a pattern of the request's own can't be used, also where there is no vote."""
        if self.request.options.extract:
            await self.reader.prepare()

    def _first_count(self) -> int:
        if not self.has_vote or self.route.mode == "shadow":
            return self.request.n
        count = 1 if self.route.is_single else self._ask_policy()
        return 1 if count > 1 and self._resources.eligibility.is_doubtful(self.request) else count

    def _next_count(self) -> int:
        """How many more to draw; 0 at the end, with a note of why unless the policy decided so."""
        if self.no_vote_reason or self.route.mode == "pass":
            return 0
        self.no_vote_reason = self._find_no_vote_reason()
        if self.no_vote_reason:
            return 0
        more, self._rest = self._rest if self._rest > 0 else self._ask_policy(), 0
        more = self._resources.eligibility.limit_wave(self.tally, more)
        if self.route.mode == "shadow":
            self.would = more
            return 0
        if self._stopped or self.route.is_single:
            return 0
        if self._explore:
            self._explore, self._exploring = False, True
            more = self.served.policy.longest - len(self.responses)
        if more > 0 and self._loop.time() + self._slowest > self._deadline:
            self.notes.append(f"stopped by the deadline of {self.route.deadline:g} s")
            return 0
        return more

    def _find_no_vote_reason(self) -> str:
        """Why there is nothing to vote on, judging by the samples so far; "": there may be."""
        eligibility, reader = self._resources.eligibility, self.reader
        is_first = self.waves == 1 and not self._answered_without_first
        if is_first and (reason := self._check_first(self.samples[0])):
            self._refuted = True
            return reason
        return eligibility.check_tally(self.tally) or (
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

    def _ask_policy(self) -> int:
        policy, prompt, tally = self.served.policy, self.request.prompt, self.tally
        if self._features is None and not policy.skips_prompt(tally):
            self._features = policy.read([prompt])  # once per request: a long prompt takes time
        return min(
            policy.more(prompt, tally, self.dial, reading=self._features), policy.longest - tally.drawn
        )

    async def _count_ahead(self, ahead: "asyncio.Task[_Fetched | None]") -> None:
        """Counts the rest of the first wave, unless the first sample shows that there is no vote."""
        if self.responses and not self.no_vote_reason:
            self.no_vote_reason = self._find_no_vote_reason()
        if self.no_vote_reason:
            await self.drop_ahead()
            return
        self._rest = 0
        fetched = await ahead  # cancelled with whoever waits for it
        self._ahead = None
        if fetched is not None:
            await self._count_wave(*fetched)

    async def _draw_wave(self, wanted: int) -> None:
        """Draws so many samples, and counts their votes in the order in which they were requested."""
        fetched = await self._fetch_wave(wanted)
        if fetched is not None:
            await self._count_wave(*fetched)

    async def _fetch_wave(self, wanted: int) -> "_Fetched | None":
        """Draws so many samples; None: a cap or the ledger allows none, and there are others."""
        wave = await self._reserve_wave(wanted)
        if wave is None:
            return None
        began = self._loop.time()
        try:
            responses = await (self._draw_one(wave) if wave.count == 1 else self._draw_several(wave))
        finally:
            self._settle(wave)
        self._slowest = max(self._slowest, self._loop.time() - began)
        return wave, responses

    async def _count_wave(self, wave: Wave, responses: list[Response]) -> None:
        self.waves += 1
        if wave.refusal is not None:
            self._stop_at_cap(wave.refusal, received=len(responses))
        await self._count_votes(responses, wave.count - wave.unsent)

    def _stop_at_cap(self, refusal: CapReached, *, received: int) -> None:
        """A wave was not sent, or not all of it: the request goes on with what came, if anything did."""
        if not self.responses and not received:
            raise refusal
        self.notes.append(f"stopped by a cap: {refusal}")
        self._stopped = True

    async def _draw_one(self, wave: Wave) -> list[Response]:
        """As `_draw_several`, for a wave of one: most are, and this takes a fifth less processor time."""
        try:
            reply = await self._resources.client.call(
                self.upstream_body,
                first=self._next_index,
                deadline=self._seconds_left,
                on_call=wave.record_call,
                may_send=wave.may_send,
                optional=self.optional_fields,
                headers=self.route.trace,
                tracer=self._tracer,
            )
        except EndpointError as exc:
            self._error, self._stopped = self._error or exc, True
            wave.note_failure(exc, exc.calls, 1)
            return []
        self.server_info = self.server_info or read_server_info(reply.body)
        return list(reply.responses)

    async def _draw_several(self, wave: Wave) -> list[Response]:
        responses: dict[int, Response] = {}
        draw = self._resources.client.draw(
            self.upstream_body,
            wave.count,
            first=self._next_index,
            deadline=self._seconds_left,
            on_call=wave.record_call,
            may_send=wave.may_send,
            optional=self.optional_fields,
            headers=self.route.trace,
            tracer=self._tracer,
        )
        async with aclosing(draw) as drawing:
            async for outcome in drawing:
                if isinstance(outcome, DrawFailure):
                    self._error, self._stopped = self._error or outcome.error, True
                    wave.note_failure(outcome.error, outcome.calls, outcome.count)
                else:
                    self.server_info = self.server_info or read_server_info(outcome.body)
                    responses.update(enumerate(outcome.responses, outcome.first))
        return [responses[index] for index in sorted(responses)]

    @property
    def _next_index(self) -> int:
        """The index of the next sample; the first is 0, also while it is streamed."""
        return max(len(self.responses) + self.missing, int(self._streams))

    @property
    def _seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.001, self._deadline - self._loop.time())

    async def _reserve_wave(self, wanted: int) -> Wave | None:
        """The wave, smaller if a cap leaves no room for all of it; None: stop with what there is."""
        try:
            while True:
                try:
                    return await self._begin_wave(wanted)
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

    def _begin_wave(self, count: int) -> Awaitable[Wave]:
        resources = self._resources
        wave = Wave(self.request, count, ledger=resources.ledger, rates=resources.rates)
        return wave.begin(self.route.key)

    def _settle(self, wave: Wave) -> None:
        spent, maybe = wave.settle()
        self.calls += wave.calls
        self._add_spent(spent, maybe)
        refuses_limit = self._resources.client.quirks.token_limits.is_unbounded(self._model)
        if refuses_limit and self._adds_limit and _NO_LIMIT not in self.notes:
            self.notes.append(_NO_LIMIT)

    def _add_spent(self, spent: Spend, maybe: Spend) -> None:
        self.spent += spent
        self.maybe += maybe

    async def _count_votes(self, responses: list[Response], count: int) -> None:
        missing = count - len(responses)
        if missing:
            self.missing += missing
            kind = "" if self._error is None else f" ({self._error.kind})"
            suffix = "; the vote is on what came" if self.has_vote and responses else ""
            self.notes.append(f"{missing} of {count} samples failed{kind}{suffix}")
        self.responses += responses
        if not self.has_vote:
            return
        share, samples = self._resources.client.share, []
        for response in responses:
            await share.take_turn()
            samples.append(await self.reader.read(response))
        scorer = self._resources.scorer
        if scorer is not None and not self._is_refuted_by(samples):  # what isn't voted on needs no score
            samples = await self._verify(scorer, samples)
        self.samples += samples
        await self._tally_samples()
        self.served.observe(samples, self._model)

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
        """Counts the votes of new samples; of all again, if others than before are candidates now."""
        candidates, counted = select_candidates(self.reader.readings), len(self._candidates)
        if candidates[:counted] != self._candidates:
            self.tally, counted = Tally(task=self._resources.task, weigh=self.weigh), 0
        self._candidates = candidates
        for sample, is_candidate in list(zip(self.samples, candidates, strict=True))[counted:]:
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
