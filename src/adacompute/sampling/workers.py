"""Workers that draw samples from an endpoint within a cost budget, and store them in a pool on arrival.

A separate thread writes to the pool, so that calls don't wait for the disk. A worker gets a future for its
samples, which is done when they are on disk.
"""

import asyncio
import queue
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from adacompute.answers import Task, read_answers
from adacompute.client import (
    LIMIT_NAME,
    LOGPROBS,
    Client,
    DrawFailure,
    DrawSuccess,
    Endpoint,
    Response,
    Verifier,
)
from adacompute.client.response_parser import replace_surrogates
from adacompute.errors import (
    DuplicateRecord,
    EndpointError,
    EndpointRefused,
    PoolError,
    RecordInvalid,
    RecordNotFound,
    SendingStopped,
)
from adacompute.pool import DrawnSamples, Pool
from adacompute.records import Call, Failure, Sample, Signals
from adacompute.sampling.plan import Asking, CostBudget, SampleRange, estimate_prompt_size

Scores = Mapping[int, float]  # index of a response in its call -> the verifier's score
StopReason = Literal["signal", "max-cost", "endpoint"]
_Item = tuple[DrawnSamples, "asyncio.Future[DrawnSamples]"]
# how long, in seconds, to gather samples for one write, because a write is slow even for few samples
_GATHER_SECONDS = 0.02
# maximum number of calls stored per transaction, to limit memory and how long the GIL is held
_MAX_BATCH = 256
_MAX_NUMBER = 2**53
_RECORD_ERRORS = (RecordInvalid, DuplicateRecord, RecordNotFound)
# HTTP statuses for a wrong key, no money or no such model, with which every request would fail
_FATAL_STATUSES = (401, 402, 403, 404)
# outcomes of calls that don't count as errors
_HARMLESS_KINDS = ("ok", "n-limit", "no-logprobs", "token-limit")
# maximum number of ended calls that aren't stored yet, as a multiple of the parallel calls allowed
_MAX_UNSTORED_FACTOR = 2
_MAX_FAILING_PROBLEMS = 8  # number of problems that fail in a row before the endpoint is considered faulty


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectProgress:
    """The progress of a collection."""

    planned: int  # number of planned samples
    stored: int  # number of samples in the pool, including those of earlier runs
    added: int  # number of samples added by this run
    failed: int  # number of samples that this run requested and didn't get
    tokens: int  # number of response tokens in this run
    cost: float  # cost in money of all calls recorded in the pool, including failed calls that may be charged
    errors: Mapping[str, int]  # kind of error -> number of attempts that ended with it
    calls: int
    concurrency: int  # number of parallel calls that the rate limiter allows now
    in_flight: int = 0  # number of calls in flight
    stopping: bool = False  # True: the run only finishes calls in flight
    modes: Mapping[str, "CollectProgress"] = field(default_factory=dict)  # name of a mode -> its progress

    @classmethod
    def join(cls, parts: "Sequence[CollectProgress]") -> "CollectProgress":
        """Adds up the progress of several sources, including their costs."""
        others = ("errors", "stopping", "modes")
        counts = [each.name for each in fields(cls) if each.name not in others]
        return cls(
            **{name: sum(getattr(part, name) for part in parts) for name in counts},
            errors=sum((Counter(part.errors) for part in parts), Counter()),
        )


class Sampler(ABC):
    """Draws samples of one source; when `draw` returns, all samples and failures are stored in the pool."""

    def __init__(self, cost_budget: CostBudget) -> None:
        self._cost_budget = cost_budget
        # ids of the problems that have failed since the last sample arrived
        self._failing_problems: set[str] = set()
        self._calls = 0
        self._tokens = 0
        self._missing = 0  # number of samples that were requested but not received
        self.added = 0  # number of samples stored
        self.scores: Counter[str] = Counter()  # totals for the verifier: calls, failed calls and tokens
        self.verifier_error: str | None = None  # message of the verifier's first failure
        self.failures: dict[str, str] = {}  # problem id -> why its latest failed call failed
        self.errors: Counter[str] = Counter()  # kind of error -> number of attempts that ended with it
        self.stopped: StopReason | None = None
        self.why: str | None = None
        self.signal: int | None = None  # number of the signal that stopped the run
        self.per_call: int | None = None  # maximum number of samples per call; None if unknown
        self.logprobs: bool | None = None  # whether log-probabilities are given; None if unknown

    @abstractmethod
    async def draw(self, runs: Iterator[SampleRange]) -> None:
        """Draws the samples in these ranges; if the run is stopped, only some of them."""

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """Returns the progress, given the numbers of planned and of previously stored samples."""
        return CollectProgress(
            planned=planned,
            stored=before + self.added,
            added=self.added,
            failed=self._missing,
            tokens=self._tokens,
            cost=self._cost_budget.cap.spent,
            errors=self.errors,
            calls=self._calls,
            concurrency=0,
            stopping=self.stopped is not None,
        )

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Starts no more calls, and finishes those in flight. `number` is the signal's number, if any."""
        if self.stopped is None:
            self.stopped, self.why = how, why
        self.signal = self.signal or number


@runtime_checkable
class WorkerEngine(Protocol):
    """Draws samples in this process or elsewhere."""

    @property
    def width(self) -> int:
        """The maximum number of parallel calls."""

    def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[], None],
    ) -> AbstractAsyncContextManager[Sampler]:
        """Opens a sampler that writes to a pool; on exit, everything that arrived is stored."""


def read_responses(responses: Sequence[Response], question: str, task: Task) -> list[str | None]:
    """Extracts the answers from all responses of one call together."""
    texts = [replace_surrogates(response.text) for response in responses]
    ends = [response.finished is not False for response in responses]
    return read_answers(texts, question, task, finished=ends)


def add_score(sample: Sample, score: float | None) -> Sample:
    """Adds a verifier's score to a sample, if there is one."""
    if score is None:
        return sample
    return replace(sample, signals=replace(sample.signals or Signals(), score=score))


class PoolWriter:
    """Writes one source's samples to a pool, in a thread beside the event loop. Closing stores everything."""

    def __init__(self, pool: Pool, *, model: str, parameters: Mapping[str, Any]) -> None:
        self._pool = pool
        self._model = model
        self._parameters = dict(parameters)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write_batches, name="adacompute-writer", daemon=True)
        self._thread.start()

    def add(self, record: DrawnSamples) -> "asyncio.Future[DrawnSamples]":
        """Queues a record; the future returns what was stored, or raises an error if that is impossible."""
        future: asyncio.Future[DrawnSamples] = self._loop.create_future()
        self._queue.put((record, future))
        return future

    async def close(self) -> None:
        """Returns once everything added is stored or has failed."""
        self._queue.put(None)
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def _write_batches(self) -> None:
        batch: list[_Item] = []
        while (item := self._queue.get()) is not None:
            if not batch and self._queue.empty():
                time.sleep(_GATHER_SECONDS)
            batch.append(item)
            if len(batch) == _MAX_BATCH or self._queue.empty():
                self._store_batch(batch)
                batch = []
        if batch:
            self._store_batch(batch)

    def _store_batch(self, batch: list[_Item]) -> None:
        records = [record for record, _ in batch]
        outcomes: list[DrawnSamples | BaseException] = [*records]
        if self._add_to_pool(records) is not None:
            # if one record can't be stored, the others must not be lost: they were paid for
            outcomes = [self._store_one(record) for record in records]
        futures = [future for _, future in batch]
        self._loop.call_soon_threadsafe(_set_outcomes, list(zip(futures, outcomes, strict=True)))

    def _store_one(self, record: DrawnSamples) -> DrawnSamples | BaseException:
        """Stores a record. If that fails, stores its calls, with failures in place of its samples."""
        if (error := self._add_to_pool([record])) is None:
            return record
        failure_record = _as_failures(record, error)
        return self._add_to_pool([failure_record]) or failure_record

    def _add_to_pool(self, records: list[DrawnSamples]) -> BaseException | None:
        """Stores records together; returns the error if that fails."""
        if self._error is not None:  # no retries: a full disk stays full
            return self._error
        try:
            self._pool.add_drawn(records, model=self._model, parameters=self._parameters)
        except BaseException as exc:  # noqa: BLE001 - passed to whoever waits, in the loop's thread
            self._error = exc if _is_fatal(exc) else None
            return exc
        return None


def _is_fatal(error: BaseException) -> bool:
    """Whether the error affects the whole pool, not just one record."""
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
            future.exception()  # reads the exception, because asyncio logs exceptions that nobody has read
        else:
            future.set_result(outcome)


def _as_failures(record: DrawnSamples, why: BaseException) -> DrawnSamples:
    """Replaces a record's samples by failures; keeps its calls, because they were paid for."""
    message = str(why).encode("utf-8", "replace").decode()
    failures = [
        Failure(index=index, kind="unstorable", message=message)
        for index in [*(index for index, _ in record.samples), *(f.index for f in record.failures)]
    ]
    return DrawnSamples(record.problem_id, (), failures, [_drop_unfit_numbers(call) for call in record.calls])


def _drop_unfit_numbers(call: Call) -> Call:
    """Removes from a call those numbers that are negative or too large to be stored."""
    return replace(
        call,
        status=_fit_number(call.status),
        prompt_tokens=_fit_number(call.prompt_tokens),
        completion_tokens=_fit_number(call.completion_tokens),
        estimated=True,
    )


def _fit_number(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < _MAX_NUMBER else None


class LocalWorkers(Sampler):
    """Draws samples in parallel calls from this process, and stores them in a pool.

    As many calls as allowed are in flight. At most twice as many have ended without their samples being on
    disk; only these samples can be lost by `kill -9`. Samples count as drawn once they are on disk. After
    `stop`, no more calls are sent, and those in flight are finished. At the end of the `async with` block,
    every sample that arrived is stored. The client's `on_call` must call `record_call`.
    """

    def __init__(
        self,
        pool: Pool,
        client: Client,
        asking: Asking,
        cost_budget: CostBudget,
        *,
        on_progress: Callable[[], None],
        verifier: Verifier | None = None,
    ) -> None:
        super().__init__(cost_budget)
        self._task = pool.task
        self._verifier = verifier
        self._client = client
        self._writer = PoolWriter(pool, model=asking.model, parameters=asking.parameters)
        self._asking = asking
        self._on_progress = on_progress
        self._width = client.endpoint.limits.concurrency
        # id(record) -> record of an attempt that has ended, in a call that may still be retrying
        self._unreported_calls: dict[int, Call] = {}
        self._unstored = 0  # number of calls whose samples have arrived but aren't on disk yet
        # the error after which the pool can't be written any more, if any
        self.fatal_error: BaseException | None = None

    async def __aenter__(self) -> "LocalWorkers":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store_unreported_calls()
        await self._writer.close()
        if error is None and self.fatal_error is not None:
            raise self.fatal_error

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Sends no more calls; those in flight are finished and stored. `number` is the signal's, if any."""
        super().stop(how, why, number=number)
        self._client.gate.end()

    def record_call(self, call: Call) -> None:
        """Records an attempt that has ended; called by the client before any retry."""
        self._unreported_calls[id(call)] = call
        if call.got:
            self._unstored += 1
            # the disk is too slow: send nothing until it catches up, so that a crash can't lose more samples
            if self._unstored >= _MAX_UNSTORED_FACTOR * self._width:
                self._client.gate.shut()
        if not self._cost_budget.record_attempt(call):
            self._stop_at_max_cost()

    def _store_unreported_calls(self) -> None:
        """Stores the attempts of cancelled calls, which may have been charged."""
        if self._unreported_calls:
            calls = self._cost_budget.record_calls(
                self._unreported_calls.values(), self._cost_budget.longest_prompt
            )
            self._writer.add(DrawnSamples(None, (), (), calls))
            self._count_calls(calls)
            self._unreported_calls.clear()

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """Returns the progress, including calls in flight."""
        return replace(
            super().progress(planned=planned, before=before),
            concurrency=self._client.concurrency,
            in_flight=self._client.in_flight,
        )

    async def draw(self, runs: Iterator[SampleRange]) -> None:
        """Draws the samples in these ranges in order, with as many parallel calls as the endpoint allows."""
        async with asyncio.TaskGroup() as tasks:
            # twice as many workers as calls, because half of them may be waiting for the disk
            for _ in range(2 * self._width):
                tasks.create_task(self._work(runs))
        if self.fatal_error is not None:
            raise self.fatal_error

    async def _work(self, runs: Iterator[SampleRange]) -> None:
        for run in runs:  # all workers share the iterator, so each range of samples is drawn once
            if self.stopped is not None or self.fatal_error is not None:
                return
            try:
                await self._draw_run(run)
            except Exception as exc:  # noqa: BLE001 - the other workers finish and store what they have
                self._abort(exc)

    async def _draw_run(self, run: SampleRange) -> None:
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
                        # the samples are paid for, so store them even without scores
                        except asyncio.CancelledError:
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
        self, messages: Sequence[Mapping[str, Any]], run: SampleRange, outcome: DrawSuccess | DrawFailure
    ) -> Scores:
        """Asks the verifier to score the responses that have an answer; returns the scores by index."""
        if self._verifier is None or isinstance(outcome, DrawFailure):
            return {}
        answers = read_responses(outcome.responses, run.problem.question, self._task)
        places = [place for place, answer in enumerate(answers) if answer is not None]
        replies = await asyncio.gather(
            *[
                self._verifier.score(
                    messages, outcome.responses[place].text, answers[place], prompt=run.problem.question
                )
                for place in places
            ]
        )
        failed = sum(reply.score is None for reply in replies)
        self.scores.update(calls=len(places), failed=failed, tokens=sum(reply.tokens for reply in replies))
        error = next((reply.error for reply in replies if reply.error is not None), None)
        self.verifier_error = self.verifier_error or (None if error is None else str(error))
        return {
            place: reply.score
            for place, reply in zip(places, replies, strict=True)
            if reply.score is not None
        }

    def _store_outcome(
        self, run: SampleRange, outcome: DrawSuccess | DrawFailure, size: float, scores: Scores
    ) -> "list[asyncio.Future[DrawnSamples]]":
        """Passes an outcome to the writer; returns futures that end when it is stored."""
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
        """Counts samples once they are stored."""
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
        self, run: SampleRange, outcome: DrawSuccess, calls: tuple[Call, ...], scores: Scores
    ) -> DrawnSamples:
        self._failing_problems.clear()
        responses = outcome.responses
        answers: list[str | None] = [None] * len(responses)
        # the confidence in an answer must be computed now, from its tokens, which the pool doesn't store
        if any(response.signals is not None for response in responses):
            answers = read_responses(responses, run.problem.question, self._task)
        samples = [
            (outcome.first + i, add_score(response.to_sample(answer=answer), scores.get(i)))
            for i, (response, answer) in enumerate(zip(responses, answers, strict=True))
        ]
        return DrawnSamples(run.problem.id, samples, (), calls)

    def _build_failure(
        self, run: SampleRange, outcome: DrawFailure, calls: tuple[Call, ...]
    ) -> DrawnSamples | None:
        error = outcome.error
        # the client stopped sending, which is no failure of the endpoint
        if isinstance(error, SendingStopped):
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
        self.per_call, self.logprobs = self._client.quirks.max_choices, self._client.quirks.logprobs
        self.errors.update(call.kind for call in calls if call.kind not in _HARMLESS_KINDS)


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Draws samples in this process."""

    endpoint: Endpoint
    verifier: Verifier | None = None

    @property
    def width(self) -> int:
        """The maximum number of parallel calls."""
        return self.endpoint.limits.concurrency

    @asynccontextmanager
    async def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[], None],
    ) -> AsyncIterator[Sampler]:
        """Opens workers that draw from the endpoint; on exit, everything that arrived is stored."""
        async with (
            self.verifier or nullcontext(),
            Client(self.endpoint, on_call=lambda call: workers.record_call(call)) as client,
            LocalWorkers(
                pool, client, asking, cost_budget, on_progress=on_progress, verifier=self.verifier
            ) as workers,
        ):
            yield workers


@asynccontextmanager
async def handle_signals(
    signals: Sequence[signal.Signals], *, on_first: Callable[[int], None], on_second: Callable[[], None]
) -> AsyncIterator[None]:
    """Calls `on_first` at the first signal; at the second, leaves the `with` block and calls `on_second`.

    Restores the old handlers at the end. Outside the main thread, signals aren't handled.
    """
    task, loop, count = asyncio.current_task(), asyncio.get_running_loop(), 0
    if not signals or threading.current_thread() is not threading.main_thread() or task is None:
        yield
        return

    def handle(number: int) -> None:
        nonlocal count
        count += 1
        if count == 1:
            on_first(number)
        else:
            task.cancel()

    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    except asyncio.CancelledError:
        if count < 2:  # without a second signal, something else has cancelled the task
            raise
        # undo the cancellation, because the task must still store samples and record calls
        while task.cancelling():
            task.uncancel()
        on_second()
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
