"""Workers that draw samples from an endpoint within a cost budget, and store them in a pool as they come.

The budget reserves money before each call and settles it afterwards. A thread of its own writes to the pool,
so that no call waits for the disk: while one batch is being flushed the next one gathers, and a future tells
each worker when its samples are safe.
"""

import asyncio
import math
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from adacompute.answers import Task, read_answers
from adacompute.client import LIMIT_NAME, LOGPROBS, Client, DrawFailure, DrawSuccess, Response, Verifier
from adacompute.client.response_parser import replace_surrogates
from adacompute.errors import (
    CollectError,
    DuplicateRecord,
    EndpointError,
    EndpointRefused,
    PoolError,
    RecordInvalid,
    RecordNotFound,
    SendingStopped,
)
from adacompute.pool import DrawnSamples, Pool
from adacompute.records import Account, Call, Failure, Sample, Signals, TokenPrices
from adacompute.sampling.plan import Asking, SampleRun, estimate_prompt_size

__all__ = [
    "CollectProgress",
    "CostBudget",
    "CostCap",
    "PoolWriter",
    "Sampler",
    "SamplerTotals",
    "SamplingEngine",
    "SamplingWorkers",
    "StopReason",
    "Stoppable",
    "add_score",
    "compute_batch_spent",
    "compute_max_cost",
    "compute_spent",
    "read_responses",
]

Scores = Mapping[int, float]  # of responses, by their place in a call's reply
StopReason = Literal["signal", "max-cost", "endpoint"]
_Item = tuple[DrawnSamples, "asyncio.Future[DrawnSamples]"]
_GATHER_SECONDS = 0.02  # a batch waits for more, because one flush costs as much as many samples
_MAX_BATCH = 256  # calls in one transaction: bounds memory, and how long it holds the interpreter
_MAX_NUMBER = 2**53
_RECORD_ERRORS = (RecordInvalid, DuplicateRecord, RecordNotFound)
_FATAL_STATUSES = (401, 402, 403, 404)  # wrong key, no money or no such model: the same for every problem
_HARMLESS_KINDS = ("ok", "n-limit", "no-logprobs", "token-limit")  # but for the first, something was learned
_MAX_UNSTORED_FACTOR = 2  # calls that may have ended without being stored, as a multiple of the concurrency
_MAX_TRIAL_CALLS = 4  # reserved at the same time until the first tells what a response really costs
_MAX_FAILING_PROBLEMS = 8  # problems that fail without a success in between: then the endpoint is at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectProgress:
    """How far a collection is."""

    planned: int  # samples
    stored: int  # of them, with those of earlier runs
    added: int  # by this run
    failed: int  # samples that this run asked for and did not get
    tokens: int  # of responses, by this run
    cost: float  # money, of all calls into this pool, with what may have been charged
    errors: Mapping[str, int]  # attempts that gave nothing, by kind
    calls: int
    concurrency: int  # calls at the same time that the rate limiter allows now
    in_flight: int = 0  # calls
    stopping: bool = False  # nothing more is sent; what is in flight is finished


class CostCap:
    """Money that calls have cost and may yet cost, within a limit; the modes of a menu share one."""

    def __init__(self, *, limit: float | None = None, spent: float = 0.0) -> None:
        if limit is not None and not (_is_amount(limit) and limit > 0):
            raise CollectError(f"max cost {limit!r} can't be used; give an amount above 0")
        self.limit = limit
        self.spent = spent  # with what may have been charged
        self.reserved = 0.0  # for calls that are running
        self.owed = 0.0  # cost of attempts that may be charged, of calls still running
        self.held = 0  # reservations that are not released yet
        self.released = asyncio.Event()

    @property
    def room(self) -> float:
        """What may still be reserved; infinite where there is no limit."""
        return math.inf if self.limit is None else self.limit - self.spent - self.reserved - self.owed


class CostBudget:
    """What calls to one model have cost, and may yet cost, within `limit`.

    A call is reserved at its worst: each sample as a call of its own, with all the tokens that it may
    have. Failed attempts that may be charged count in full, and one more try must fit beside them, so
    the limit holds even if they are charged. Prompts are estimated until some were counted; an endpoint
    that sends more than requested is reserved for accordingly from then on. So only a few calls are sent
    until the first response was counted: they are what such an endpoint can exceed the limit by.
    """

    def __init__(
        self,
        *,
        prices: TokenPrices,
        limit: float | None = None,
        spent: float = 0.0,
        most_tokens: int | None = None,
        cap: CostCap | None = None,  # shared with other models, in the place of `limit` and `spent`
    ) -> None:
        self._cap = CostCap(limit=limit, spent=spent) if cap is None else cap
        if cap is None and limit is not None and not prices:
            raise CollectError(
                "max cost needs prices; give --input-price and --output-price (a million tokens)"
            )
        if self._cap.limit is not None and prices and most_tokens is None:
            raise CollectError("max cost needs a limit of tokens a response; give max_tokens (--max-tokens)")
        self.prices = prices
        self._requested_tokens = most_tokens or 0
        self._max_tokens = most_tokens or 0
        self._held = 0  # reservations of this model that are not released yet
        self._measured = False  # whether a response was counted
        self._prompt_ratio = 1.0  # the largest ratio seen of counted to estimated tokens of a prompt
        self.longest_prompt = 0.0  # estimated tokens of the longest prompt so far

    @property
    def limit(self) -> float | None:
        """The most that all calls may cost; None: there is no limit."""
        return self._cap.limit

    @limit.setter
    def limit(self, limit: float | None) -> None:
        self._cap.limit = limit

    @property
    def spent(self) -> float:
        """What all calls have cost, with what may have been charged."""
        return self._cap.spent

    @spent.setter
    def spent(self, spent: float) -> None:
        self._cap.spent = spent

    @property
    def excess_tokens(self) -> int | None:
        """The most tokens of a response, if an endpoint sent more than max_tokens; None: it didn't."""
        return self._max_tokens if self._max_tokens > self._requested_tokens > 0 else None

    def describe_end(self) -> str:
        """Why nothing more is sent."""
        return f"the next call could cost more than is left of {self.limit:g} {self.prices.currency}"

    async def reserve(self, wanted: int, prompt: float) -> tuple[int, float]:
        """How many samples of a prompt may be requested now, and the reserved amount; 0: no more, ever."""
        self.longest_prompt = max(self.longest_prompt, prompt)
        if self.limit is None:
            return wanted, 0.0
        while True:
            sample_cost = self.prices.cost(prompt * self._prompt_ratio, self._max_tokens)
            room = self._cap.room
            count = min(wanted, int(room / sample_cost * (1 + 1e-12))) if sample_cost > 0 else wanted
            if count > 0 and (self._measured or self._held < _MAX_TRIAL_CALLS):
                self._held += 1
                self._cap.held += 1
                self._cap.reserved += count * sample_cost
                return count, count * sample_cost
            if self._cap.held <= 0:
                return 0, 0.0
            self._cap.released.clear()
            await self._cap.released.wait()

    def release(self, reserved: float) -> None:
        """Releases a reservation; its calls were recorded as they ended."""
        self._held = max(0, self._held - 1)
        self._cap.held = max(0, self._cap.held - 1)
        self._cap.reserved = max(0.0, self._cap.reserved - reserved)
        if self._cap.reserved < 1e-12:
            self._cap.reserved = 0.0
        self._cap.released.set()

    def record_attempt(self, call: Call) -> bool:
        """Records an attempt as it ends; False where its possible cost leaves no room for more."""
        if self.limit is None or call.paid != "maybe":
            return True
        self._cap.owed += self._worst_cost(call)
        return self._cap.room >= 0

    def _worst_cost(self, call: Call) -> float:
        return call.asked * self.prices.cost(self.longest_prompt * self._prompt_ratio, self._max_tokens)

    def record_calls(self, calls: Iterable[Call], prompt: float) -> tuple[Call, ...]:
        """Records calls; returns them with the highest cost where they may have been paid."""
        completed = tuple(self._complete_call(call, prompt) for call in calls)
        for call in completed:
            if call.paid == "maybe":
                self._cap.owed = max(0.0, self._cap.owed - self._worst_cost(call))
            if call.paid != "no":
                self.spent += self.prices.cost(call.prompt_tokens or 0, call.completion_tokens or 0)
        return completed

    def _complete_call(self, call: Call, prompt: float) -> Call:
        self._measured = self._measured or call.paid == "yes"
        if call.paid == "yes" and call.prompt_tokens and prompt:
            self._prompt_ratio = max(self._prompt_ratio, call.prompt_tokens / prompt)
        if call.paid == "yes" and call.completion_tokens and call.asked:  # more may come than was requested
            self._max_tokens = max(self._max_tokens, math.ceil(call.completion_tokens / call.asked))
        if call.paid != "maybe" or call.completion_tokens is not None:
            return call
        tokens = math.ceil(prompt * self._prompt_ratio)
        return replace(
            call, prompt_tokens=tokens, completion_tokens=call.asked * self._max_tokens, estimated=True
        )


def compute_max_cost(account: Account, prices: TokenPrices) -> float:
    """What calls have cost, including those that may have been charged."""
    return account.cost(prices, at_most=True)


def compute_spent(pool: Pool, prices: TokenPrices) -> float:
    """What all calls into a pool have cost at most, of any model."""
    return sum(compute_max_cost(pool.account(model, parameters), prices) for model, parameters in pool.models)


def compute_batch_spent(
    pool: Pool, ids: Collection[str], prices: TokenPrices, *, model: str, parameters: Mapping[str, Any]
) -> float:
    """What the calls for these problems have cost at most.

    Pools don't record which problem a call was for. If there are samples of other problems, too, responses
    count by the tokens of their samples, and prompts and failures by the number of samples.
    """
    source = pool.source_key(model, parameters)
    if source is None:
        return 0.0
    account, ballots = pool.account(model, parameters), pool.ballots_of(source)
    chosen = np.array([id_ in ids for id_ in ballots.ids], dtype=bool)
    if chosen.all():
        return compute_max_cost(account, prices)
    tokens = np.nansum(ballots.tokens, axis=1)
    share = float(ballots.drawn[chosen].sum() / ballots.drawn.sum())
    token_share = float(tokens[chosen].sum() / tokens.sum()) if tokens.sum() > 0 else share
    return prices.cost(
        (account.prompt_tokens + account.maybe_prompt_tokens) * share,
        account.completion_tokens * token_share + account.maybe_completion_tokens * share,
    )


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


class Stoppable(Protocol):
    """What a signal stops: a sampler, or those of all modes of a menu."""

    why: str | None

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Starts nothing more, and finishes what is running."""


class Sampler(Protocol):
    """Draws runs of samples; when `draw` returns, all their samples and failures are in the pool."""

    added: int  # samples
    verified: int  # responses that a verifier was asked about
    unscored: int  # of them, those without a score
    verifier_tokens: int  # of a model that was asked
    verifier_error: str | None  # why the first of them has no score
    failures: dict[str, str]  # problem id -> the last reason
    errors: Counter[str]  # attempts that gave nothing, by kind
    stopped: StopReason | None
    why: str | None
    signal: int | None  # its number, where one stopped it

    @property
    def per_call(self) -> int | None:
        """Samples that one call gives at most, as far as was learned."""

    @property
    def logprobs(self) -> bool | None:
        """Whether log-probabilities are given, as far as was learned."""

    async def draw(self, runs: Iterator[SampleRun]) -> None:
        """Draws all runs; fewer where it is stopped."""

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Starts nothing more, and finishes what is running."""

    def forget_failures(self) -> None:
        """Forgets failures, because the samples are requested once more."""

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """The progress, of so many planned samples, so many of which were stored before."""


@runtime_checkable
class SamplingEngine(Protocol):
    """Where samples are drawn: in this process, or elsewhere."""

    @property
    def width(self) -> int:
        """Calls at the same time, at most."""

    def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[Sampler], None],
        signals: Sequence[signal.Signals] = (),
    ) -> AbstractAsyncContextManager[Sampler]:
        """A sampler into a pool, which reports its progress; on leaving, everything that came is stored.

        The first of `signals` stops it in good order; the second leaves the block at once, and abandons
        what is in flight.
        """


def read_responses(responses: Sequence[Response], question: str, task: Task) -> list[str | None]:
    """The answers of one call's responses, read together, as the pool would."""
    texts = [replace_surrogates(response.text) for response in responses]
    ends = [response.finished is not False for response in responses]
    return read_answers(texts, question, task, finished=ends)


def add_score(sample: Sample, score: float | None) -> Sample:
    """The sample with a verifier's score, if there is one."""
    if score is None:
        return sample
    return replace(sample, signals=replace(sample.signals or Signals(), score=score))


class PoolWriter:
    """Writes to one source of a pool, from a running event loop. When it is closed, everything is stored."""

    def __init__(self, pool: Pool, *, model: str, parameters: Mapping[str, Any]) -> None:
        self._pool = pool
        self._model = model
        self._parameters = dict(parameters)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write_batches, name="adacompute-writer", daemon=True)
        self._thread.start()

    @property
    def task(self) -> Task:
        """How the pool reads answers."""
        return self._pool.task

    def add(self, record: DrawnSamples) -> "asyncio.Future[DrawnSamples]":
        """A future of what was stored; it fails with the reason where nothing can be stored."""
        future: asyncio.Future[DrawnSamples] = self._loop.create_future()
        self._queue.put((record, future))
        return future

    async def close(self) -> None:
        """Returns when everything that was added is stored, or has failed."""
        self._queue.put(None)
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def _write_batches(self) -> None:
        ending = False
        while not ending:
            batch = [item] if (item := self._queue.get()) is not None else []
            ending = item is None
            if batch and self._queue.empty():
                time.sleep(_GATHER_SECONDS)
            while len(batch) < _MAX_BATCH and not ending:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                ending = item is None
                if item is not None:
                    batch.append(item)
            if batch:
                self._store_batch(batch)

    def _store_batch(self, batch: list[_Item]) -> None:
        outcomes: list[DrawnSamples | BaseException]
        if self._error is not None:  # a full disk stays full: nothing is tried again
            outcomes = [self._error] * len(batch)
        else:
            try:
                self._add_to_pool([drawn for drawn, _ in batch])
                outcomes = [drawn for drawn, _ in batch]
            except BaseException as exc:  # noqa: BLE001 - passed to whoever waits, in the loop's thread
                # one record that can't be stored must not lose the others, which were paid for too
                outcomes = [self._set_error(exc)] * len(batch) if _is_fatal(exc) else self._store_each(batch)
        futures = [future for _, future in batch]
        self._loop.call_soon_threadsafe(_set_outcomes, list(zip(futures, outcomes, strict=True)))

    def _store_each(self, batch: list[_Item]) -> list[DrawnSamples | BaseException]:
        return [self._error or self._store_one(drawn) for drawn, _ in batch]

    def _store_one(self, record: DrawnSamples) -> DrawnSamples | BaseException:
        """Stores a record, or at least its calls, with failures in place of its samples."""
        try:
            self._add_to_pool([record])
        except BaseException as exc:  # noqa: BLE001 - as above
            if _is_fatal(exc):
                return self._set_error(exc)
            failure_record = _as_failures(record, exc)
        else:
            return record
        try:
            self._add_to_pool([failure_record])
        except BaseException as exc:  # noqa: BLE001 - as above
            return self._set_error(exc) if _is_fatal(exc) else exc
        return failure_record

    def _set_error(self, error: BaseException) -> BaseException:
        self._error = error
        return error

    def _add_to_pool(self, records: list[DrawnSamples]) -> None:
        self._pool.add_drawn(records, model=self._model, parameters=self._parameters)


def _is_fatal(error: BaseException) -> bool:
    """Whether the pool itself can't be written, not just one record."""
    ours = isinstance(error, PoolError) and not isinstance(error, _RECORD_ERRORS)
    return ours or not isinstance(error, Exception)


def _set_outcomes(
    outcomes: "list[tuple[asyncio.Future[DrawnSamples], DrawnSamples | BaseException]]",
) -> None:
    for future, outcome in outcomes:
        if future.cancelled():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
            future.exception()  # marks it as retrieved: nobody may be waiting any more
        else:
            future.set_result(outcome)


def _as_failures(record: DrawnSamples, why: BaseException) -> DrawnSamples:
    """The calls, with failures in place of their samples: what was paid for nothing is accounted for, too."""
    message = str(why).encode("utf-8", "replace").decode()
    failures = [
        Failure(index=index, kind="unstorable", message=message)
        for index in [*(index for index, _ in record.samples), *(f.index for f in record.failures)]
    ]
    return DrawnSamples(record.problem_id, (), failures, [_drop_unfit_numbers(call) for call in record.calls])


def _drop_unfit_numbers(call: Call) -> Call:
    """A call without numbers that can't be stored."""
    return replace(
        call,
        status=_fit_number(call.status),
        prompt_tokens=_fit_number(call.prompt_tokens),
        completion_tokens=_fit_number(call.completion_tokens),
        estimated=True,
    )


def _fit_number(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < _MAX_NUMBER else None


class SamplerTotals:
    """What every sampler counts: samples, failures and errors so far, and what stopped it."""

    def __init__(self, cost_budget: CostBudget) -> None:
        self._cost_budget = cost_budget
        self._failing_problems: set[str] = set()  # problems that failed since a sample came
        self._calls = 0
        self._tokens = 0
        self._missing = 0  # samples that failed
        self.added = 0
        self.verified = 0  # responses that a verifier was asked about
        self.unscored = 0  # of them, those without a score
        self.verifier_tokens = 0  # of a model that was asked
        self.verifier_error: str | None = None  # why the first of them has no score
        self.failures: dict[str, str] = {}  # problem id -> the last reason
        self.errors: Counter[str] = Counter()
        self.stopped: StopReason | None = None
        self.why: str | None = None
        self.signal: int | None = None

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Records that nothing more is to start. `number` is that of a signal."""
        if self.stopped is None:
            self.stopped, self.why = how, why
        self.signal = self.signal or number

    def forget_failures(self) -> None:
        """Forgets failures, because the samples are requested once more."""
        self.failures.clear()
        self._failing_problems.clear()
        self._missing = 0


class SamplingWorkers(SamplerTotals):
    """Draws runs, stores each call's samples before they count, and stops in good order.

    As many calls as may run at the same time are in flight, and at most twice as many more have ended
    and are not yet on the disk: only these can be lost by `kill -9`. Stopping sends nothing more, and
    finishes what is in flight.
    """

    def __init__(
        self,
        client: Client,
        writer: PoolWriter,
        asking: Asking,
        cost_budget: CostBudget,
        *,
        on_progress: Callable[[], None],
        verifier: Verifier | None = None,
    ) -> None:
        super().__init__(cost_budget)
        self._verifier = verifier
        self._client = client
        self._writer = writer
        self._asking = asking
        self._on_progress = on_progress
        self._width = client.endpoint.limits.concurrency
        self._unreported_calls: dict[int, Call] = {}  # attempts that no outcome has reported yet, by id()
        self._unstored = 0  # calls whose samples have arrived and are not on the disk yet
        self.fatal_error: BaseException | None = None  # the pool can't be written any more

    @property
    def per_call(self) -> int | None:
        """Samples that the endpoint gives in one call, at most; None: not learned."""
        return self._client.quirks.max_choices

    @property
    def logprobs(self) -> bool | None:
        """Whether the endpoint gives log-probabilities; None: not learned."""
        return self._client.quirks.logprobs

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Sends nothing more; what is in flight is finished and stored. `number` is that of a signal."""
        super().stop(how, why, number=number)
        self._client.gate.end()

    def record_call(self, call: Call) -> None:
        """Records every attempt as it ends, before it is retried or followed by another."""
        self._unreported_calls[id(call)] = call
        if call.got:
            self._unstored += 1
            # the disk is too slow: bound what can be lost
            if self._unstored >= _MAX_UNSTORED_FACTOR * self._width:
                self._client.gate.shut()
        if not self._cost_budget.record_attempt(call):
            self._stop_at_max_cost()

    def store_unreported_calls(self) -> None:
        """Stores the attempts of calls that were cancelled: they may have been paid for, too."""
        if self._unreported_calls:
            calls = self._cost_budget.record_calls(
                self._unreported_calls.values(), self._cost_budget.longest_prompt
            )
            self._writer.add(DrawnSamples(None, (), (), calls))
            self._count_calls(calls)
            self._unreported_calls.clear()

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """The progress, of so many planned samples, so many of which were stored before."""
        return CollectProgress(
            planned=planned,
            stored=before + self.added,
            added=self.added,
            failed=self._missing,
            tokens=self._tokens,
            cost=self._cost_budget.spent,
            errors=self.errors,
            calls=self._calls,
            concurrency=self._client.concurrency,
            in_flight=self._client.totals.in_flight,
            stopping=self.stopped is not None,
        )

    async def draw(self, runs: Iterator[SampleRun]) -> None:
        """Draws all runs, in their order, as many at the same time as the endpoint allows."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2 * self._width):  # while one half waits for the disk, the other sends
                tasks.create_task(self._work(runs))
        if self.fatal_error is not None:
            raise self.fatal_error

    async def _work(self, runs: Iterator[SampleRun]) -> None:
        for run in runs:  # all workers share the iterator, so each run is taken once
            if self.stopped is not None or self.fatal_error is not None:
                return
            try:
                await self._draw_run(run)
            except Exception as exc:  # noqa: BLE001 - the other workers finish and store what they have
                self._abort(exc)

    async def _draw_run(self, run: SampleRun) -> None:
        body = self._asking.body(run.problem)
        size = estimate_prompt_size(body["messages"])
        first, remaining = run.first, run.count
        while remaining and self.stopped is None and self.fatal_error is None:
            count, reserved = await self._cost_budget.reserve(remaining, size)
            if not count:
                self._stop_at_max_cost()
                return
            storing: list[asyncio.Future[DrawnSamples]] = []
            try:
                outcomes_of_run = self._client.draw(body, count, first=first, optional=LOGPROBS | LIMIT_NAME)
                async with aclosing(outcomes_of_run) as outcomes:
                    async for outcome in outcomes:
                        try:
                            scores = await self._score_outcome(body["messages"], run, outcome)
                        except asyncio.CancelledError:  # the samples are paid for: stored without scores
                            self._store_outcome(run, outcome, size, {})
                            raise
                        storing += self._store_outcome(run, outcome, size, scores)
                if storing:
                    await asyncio.wait(storing)
            finally:
                self._cost_budget.release(reserved)
            first, remaining = first + count, remaining - count

    def _stop_at_max_cost(self) -> None:
        self.stop("max-cost", self._cost_budget.describe_end())

    async def _score_outcome(
        self, messages: Sequence[Mapping[str, Any]], run: SampleRun, outcome: DrawSuccess | DrawFailure
    ) -> Scores:
        """The verifier's scores of responses that state an answer, by their place; none without one."""
        if self._verifier is None or isinstance(outcome, DrawFailure):
            return {}
        answers = read_responses(outcome.responses, run.problem.question, self._writer.task)
        places = [place for place, answer in enumerate(answers) if answer is not None]
        replies = await asyncio.gather(
            *[
                self._verifier.score(
                    messages, outcome.responses[place].text, answers[place], prompt=run.problem.question
                )
                for place in places
            ]
        )
        self.verified += len(places)
        self.unscored += sum(reply.score is None for reply in replies)
        self.verifier_tokens += sum(reply.tokens for reply in replies)
        error = next((reply.error for reply in replies if reply.error is not None), None)
        self.verifier_error = self.verifier_error or (None if error is None else str(error))
        return {
            place: reply.score
            for place, reply in zip(places, replies, strict=True)
            if reply.score is not None
        }

    def _store_outcome(
        self, run: SampleRun, outcome: DrawSuccess | DrawFailure, size: float, scores: Scores
    ) -> "list[asyncio.Future[DrawnSamples]]":
        """Hands an outcome to the writer; returns a future of its storing, if any."""
        for call in outcome.calls:
            self._unreported_calls.pop(id(call), None)
        calls = self._cost_budget.record_calls(outcome.calls, size)
        self._count_calls(calls)
        record = (
            self._build_success(run, outcome, calls, scores)
            if isinstance(outcome, DrawSuccess)
            else self._build_failure(run, outcome, calls)
        )
        if record is None:
            return []
        future = self._writer.add(record)
        future.add_done_callback(partial(self._handle_stored, record))
        return [future]

    def _handle_stored(self, record: DrawnSamples, future: "asyncio.Future[DrawnSamples]") -> None:
        """Counts samples, now that they are stored."""
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._abort(error)
            return
        self._unstored -= sum(call.got > 0 for call in record.calls)
        if self._unstored < _MAX_UNSTORED_FACTOR * self._width:
            self._client.gate.open()
        stored = future.result()
        self.added += len(stored.samples)
        self._tokens += sum(sample.tokens or 0 for _, sample in stored.samples)
        if record.problem_id is not None and len(stored.samples) < len(record.samples):
            self._missing += len(record.samples)
            self.failures[record.problem_id] = f"unstorable: {stored.failures[0].message}"
        try:
            self._on_progress()
        except Exception as exc:  # noqa: BLE001 - a callback's failure must not go unnoticed
            self._abort(exc)

    def _abort(self, error: BaseException) -> None:
        self.fatal_error = self.fatal_error or error
        self._client.gate.end()

    def _build_success(
        self, run: SampleRun, outcome: DrawSuccess, calls: tuple[Call, ...], scores: Scores
    ) -> DrawnSamples:
        self._failing_problems.clear()
        responses = outcome.responses
        answers: list[str | None] = [None] * len(responses)
        if any(response.signals is not None for response in responses):  # the pool gets no tokens
            answers = read_responses(responses, run.problem.question, self._writer.task)
        samples = [
            (outcome.first + i, add_score(response.to_sample(answer=answer), scores.get(i)))
            for i, (response, answer) in enumerate(zip(responses, answers, strict=True))
        ]
        return DrawnSamples(run.problem.id, samples, (), calls)

    def _build_failure(
        self, run: SampleRun, outcome: DrawFailure, calls: tuple[Call, ...]
    ) -> DrawnSamples | None:
        error = outcome.error
        if isinstance(error, SendingStopped):  # it was stopped by us, so the endpoint didn't fail
            return DrawnSamples(run.problem.id, (), (), calls) if calls else None
        self._missing += outcome.count
        self.failures[run.problem.id] = f"{error.kind}: {error}"
        self._failing_problems.add(run.problem.id)
        self._stop_if_hopeless(error)
        at = calls[-1].at if calls else None
        failures = [
            Failure(index=outcome.first + i, kind=error.kind, attempt=len(calls), message=str(error), at=at)
            for i in range(outcome.count)
        ]
        return DrawnSamples(run.problem.id, (), failures, calls)

    def _stop_if_hopeless(self, error: EndpointError) -> None:
        is_fatal = isinstance(error, EndpointRefused) and error.status in _FATAL_STATUSES
        hopeless = is_fatal or self._client.is_unreachable
        if hopeless or len(self._failing_problems) >= max(_MAX_FAILING_PROBLEMS, self._width):
            self.stop("endpoint", str(error))

    def _count_calls(self, calls: tuple[Call, ...]) -> None:
        self._calls += len(calls)
        self.errors.update(call.kind for call in calls if call.kind not in _HARMLESS_KINDS)
