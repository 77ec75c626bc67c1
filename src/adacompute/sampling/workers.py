"""Workers that draw samples from an endpoint and store them in a pool as they come.

A thread of its own writes, so that no call waits for the disk: while one batch is being flushed the next
one gathers, and a future tells each worker when its samples are safe.
"""

import asyncio
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from adacompute.client import LOGPROBS, Client, DrawFailure, DrawSuccess
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
from adacompute.records import Account, Call, Failure
from adacompute.sampling.cost_budget import CostBudget, estimate_prompt_size
from adacompute.sampling.plan import SampleRun
from adacompute.sampling.sampling_spec import Asking

__all__ = [
    "CollectProgress",
    "Collected",
    "PoolWriter",
    "Sampler",
    "SamplingEngine",
    "SamplingWorkers",
    "StopReason",
]

StopReason = Literal["signal", "max-cost", "endpoint"]


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
    concurrency: int  # what the endpoint bears now
    in_flight: int = 0  # calls
    stopping: bool = False  # nothing more is sent; what is in flight is finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The result of a collection."""

    planned: int  # samples
    stored: int  # of them, with those of earlier runs
    added: int  # by this run
    failures: Mapping[str, str]  # problem id -> why it lacks samples
    errors: Mapping[str, int]  # attempts of this run that gave nothing, by kind
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    seconds: float
    stopped: StopReason | None = None  # None: it came to its end
    why: str | None = None  # it was stopped
    signal: int | None = None  # its number, where it was one
    per_call: int | None = None  # samples that the endpoint gives in one call, at most; None: not learned
    logprobs: bool | None = None  # whether it gives log-probabilities
    answered: float | None = None  # share of the source's samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known

    @property
    def complete(self) -> bool:
        """Whether the pool holds all that was planned."""
        return self.stored == self.planned

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "planned": self.planned,
            "stored": self.stored,
            "added": self.added,
            "complete": self.complete,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "calls_paid": self.account.paid,
            "calls_maybe_paid": self.account.maybe,
            "calls_estimated": self.account.estimated,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "why": self.why,
            "samples_per_call": self.per_call,
            "logprobs": self.logprobs,
            "answered": self.answered,
            "finished": self.finished,
        }


_GATHER_SECONDS = 0.02  # a batch waits for more, because one flush costs as much as many samples
_MAX_BATCH = 256  # calls in one transaction: bounds memory, and how long it holds the interpreter

_MAX_NUMBER = 2**53
_RECORD_ERRORS = (RecordInvalid, DuplicateRecord, RecordNotFound)

_Item = tuple[DrawnSamples, "asyncio.Future[DrawnSamples]"]


class PoolWriter:
    """Writes to one source of a pool, from a running event loop. When it is closed, everything is
    stored.
    """

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
    """The calls, with failures in place of their samples: what was paid for nothing is accounted for,
    too.
    """
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


class Sampler(Protocol):
    """Draws runs of samples; when `draw` returns, everything that came of them is in the pool."""

    added: int  # samples
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


_FATAL_STATUSES = (401, 402, 403, 404)  # wrong key, no money or no such model: the same for every problem
_HARMLESS_KINDS = ("ok", "n-limit", "no-logprobs")  # the latter two: a limit of the endpoint was learned
_MAX_UNSTORED_FACTOR = 2  # calls that may have ended without being stored, as a multiple of the concurrency
_MAX_FAILING_PROBLEMS = 8  # problems that fail without a success in between: then the endpoint is at fault


class SamplingWorkers:
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
    ) -> None:
        self._client = client
        self._writer = writer
        self._asking = asking
        self._cost_budget = cost_budget
        self._on_progress = on_progress
        self._width = client.endpoint.limits.concurrency
        self._failing_problems: set[str] = set()  # problems that failed since a sample came
        self._unreported_calls: dict[int, Call] = {}  # attempts that no outcome has reported yet, by id()
        self._unstored = 0  # calls whose samples have arrived and are not on the disk yet
        self.added = 0
        self.tokens = 0
        self.calls = 0
        self.failures: dict[str, str] = {}  # problem id -> the last reason
        self.missing = 0  # samples that failed
        self.errors: Counter[str] = Counter()
        self.stopped: StopReason | None = None
        self.why: str | None = None
        self.signal: int | None = None
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
        if self.stopped is None:
            self.stopped, self.why = how, why
        self.signal = self.signal or number
        self._client.gate.end()

    def forget_failures(self) -> None:
        """Forgets failures, because the samples are requested once more."""
        self.failures.clear()
        self._failing_problems.clear()
        self.missing = 0

    def record_call(self, call: Call) -> None:
        """Records every attempt as it ends, before it is retried or followed by another."""
        self._unreported_calls[id(call)] = call
        if call.got:
            self._unstored += 1
            if (
                self._unstored >= _MAX_UNSTORED_FACTOR * self._width
            ):  # the disk is too slow: bound what can be lost
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
            failed=self.missing,
            tokens=self.tokens,
            cost=self._cost_budget.spent,
            errors=self.errors,
            calls=self.calls,
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
                outcomes_of_run = self._client.draw(body, count, first=first, optional=LOGPROBS)
                async with aclosing(outcomes_of_run) as outcomes:
                    async for outcome in outcomes:
                        storing += self._store_outcome(run, outcome, size)
                if storing:
                    await asyncio.wait(storing)
            finally:
                self._cost_budget.release(reserved)
            first, remaining = first + count, remaining - count

    def _stop_at_max_cost(self) -> None:
        self.stop("max-cost", f"the next call could cost more than is left of {self._cost_budget.limit:g}")

    def _store_outcome(
        self, run: SampleRun, outcome: DrawSuccess | DrawFailure, size: float
    ) -> "list[asyncio.Future[DrawnSamples]]":
        """Hands an outcome to the writer; returns the future of its being stored, if there is anything
        to store.
        """
        for call in outcome.calls:
            self._unreported_calls.pop(id(call), None)
        calls = self._cost_budget.record_calls(outcome.calls, size)
        self._count_calls(calls)
        record = (
            self._build_success(run, outcome, calls)
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
        self.tokens += sum(sample.tokens or 0 for _, sample in stored.samples)
        if record.problem_id is not None and len(stored.samples) < len(record.samples):
            self.missing += len(record.samples)
            self.failures[record.problem_id] = f"unstorable: {stored.failures[0].message}"
        try:
            self._on_progress()
        except Exception as exc:  # noqa: BLE001 - a callback's failure must not go unnoticed
            self._abort(exc)

    def _abort(self, error: BaseException) -> None:
        self.fatal_error = self.fatal_error or error
        self._client.gate.end()

    def _build_success(self, run: SampleRun, outcome: DrawSuccess, calls: tuple[Call, ...]) -> DrawnSamples:
        self._failing_problems.clear()
        samples = [(outcome.first + i, response.to_sample()) for i, response in enumerate(outcome.responses)]
        return DrawnSamples(run.problem.id, samples, (), calls)

    def _build_failure(
        self, run: SampleRun, outcome: DrawFailure, calls: tuple[Call, ...]
    ) -> DrawnSamples | None:
        error = outcome.error
        if isinstance(error, SendingStopped):  # it was stopped by us, so the endpoint didn't fail
            return DrawnSamples(run.problem.id, (), (), calls) if calls else None
        self.missing += outcome.count
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
        hopeless = isinstance(error, EndpointRefused) and error.status in _FATAL_STATUSES
        if hopeless or len(self._failing_problems) >= max(_MAX_FAILING_PROBLEMS, self._width):
            self.stop("endpoint", str(error))

    def _count_calls(self, calls: tuple[Call, ...]) -> None:
        self.calls += len(calls)
        self.errors.update(call.kind for call in calls if call.kind not in _HARMLESS_KINDS)
