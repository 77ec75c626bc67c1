"""Gets a verifier's scores for samples, counts their cost, and turns them into vote weights."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from adacompute.answers import VoteWeights
from adacompute.answers.vote import MIN_SETTLED, ScoreWeights
from adacompute.client import Verifier, VerifierReply
from adacompute.client.verifier import VERDICT_TOKENS
from adacompute.errors import CapReached, LedgerUnavailable
from adacompute.records import Sample, Signals
from adacompute.serve.messages.reply import NO_VERIFICATIONS, VerifierUse
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.spending.ledger import NO_SPEND, LedgerProtocol, Rates, Spend, WaveReservation

_log = logging.getLogger("adacompute.serve")
_SCORE_MEMORY = 2000  # approximate number of recent scores that the running means cover
# vote weights only change if the mean or standard deviation of recent scores moves by more than this share of
# the standard deviation
_MIN_SHIFT = 0.05
# a smaller variance of scores counts as 0; given as a share of their mean square, or of 1 if that is greater
_MIN_VARIANCE = 1e-9


class Scorer:
    """Lets the verifier score samples; reserves the highest possible cost in the ledger, which enforces caps.

    Calls to a judge model cost tokens and money at the verifier's prices. Calls to a plain scoring endpoint
    count as free, without tokens. Neither counts as a sample.
    """

    def __init__(self, verifier: Verifier, rates: Rates, *, beta: float = 0.0) -> None:
        self.verifier = verifier
        self._beta = beta  # how strongly scores change vote weights, if the policy doesn't say
        self._rates = rates
        # number of scores, mean score, mean of the squared scores
        self._count, self._mean, self._square = 0, 0.0, 0.0
        self._last: ScoreWeights | None = None  # score weights in use; replaced once recent scores have moved
        self._failing = False  # whether the latest calls failed; further failures then aren't logged

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
        """Returns the samples with scores, and the verifier's usage. Raises nothing if the verifier fails.

        Calls `on_spent` with (actual cost, possible further cost), even if this task is cancelled.
        """
        places = [place for place, sample in enumerate(samples) if sample.answer is not None and sample.text]
        if not places:
            return list(samples), NO_VERIFICATIONS
        wave: WaveReservation | None = None
        if self.verifier.model:
            wave = WaveReservation(
                len(places),
                prompt_tokens=max(
                    self.verifier.bound_prompt_tokens(request.prompt_tokens, sample.text or "", sample.answer)
                    for sample in map(samples.__getitem__, places)
                ),
                max_tokens=VERDICT_TOKENS,
                ledger=ledger,
                rates=self._rates,
            )
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
        """Returns the policy's vote weights (`weigh`), with weights for the verifier's scores added.

        Scores count relative to the mean of recent ones. While there are few, returns `weigh` unchanged.
        """
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
        if beta == 0 or spread == 0:  # scores have no influence, or all are equal
            return None if fitted is None else replace(fitted, beta=0.0)
        last = self._last
        if last is None or max(abs(last.centre - self._mean), abs(last.spread - spread)) > (
            _MIN_SHIFT * last.spread
        ):  # otherwise the old mean and spread stay, so that equal scores keep equal weights
            last = self._last = ScoreWeights(beta=beta, centre=self._mean, spread=spread)
        return last if last.beta == beta else replace(last, beta=beta)

    def _observe(self, scores: Iterable[float]) -> None:
        for score in scores:
            self._count += 1
            share = 1.0 / min(self._count, _SCORE_MEMORY)
            self._mean += (score - self._mean) * share
            self._square += (score * score - self._square) * share

    def _verify(
        self, request: ChatRequest, sample: Sample, wave: WaveReservation | None, deadline: float
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

    def _log_failures(self, outcomes: Sequence[VerifierReply]) -> None:
        """Logs the first of several consecutive failures; the verifier's reply is logged at debug level."""
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
