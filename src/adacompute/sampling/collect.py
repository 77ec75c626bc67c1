"""`collect`: draws the samples that a pool lacks from an endpoint, and stores them.

Also the session that `collect` and `answer` share: client, workers, signals.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from adacompute.client import Client, Endpoint
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Problem
from adacompute.sampling.cost_budget import CostBudget, Prices, compute_max_cost, compute_spent
from adacompute.sampling.plan import RemainingSamples, find_remaining
from adacompute.sampling.sampling_spec import Asking, add_problems, check_source
from adacompute.sampling.shard_merge import merge_leftover_shards
from adacompute.sampling.workers import (
    Collected,
    CollectProgress,
    PoolWriter,
    Sampler,
    SamplingEngine,
    SamplingWorkers,
)

__all__ = [
    "check_arguments",
    "collect",
    "handle_signals",
    "make_engine",
    "run_coroutine",
    "start_workers",
    "summarise_run",
]

T = TypeVar("T")


@contextlib.asynccontextmanager
async def open_workers(
    pool: Pool,
    *,
    endpoint: Endpoint,
    asking: Asking,
    cost_budget: CostBudget,
    on_progress: Callable[[SamplingWorkers], None],
    signals: Sequence[signal.Signals] = (),
) -> AsyncIterator[SamplingWorkers]:
    """Workers that draw from an endpoint; on leaving, everything that came is stored.

    The first of `signals` stops the workers in good order; the second leaves the block at once, and
    abandons what is in flight.
    """
    async with (
        Client(endpoint, on_call=lambda call: workers.record_call(call)) as client,
        start_workers(pool, client, asking=asking, cost_budget=cost_budget, on_progress=on_progress) as workers,
        handle_signals(signals, workers, on_progress=lambda: on_progress(workers)),
    ):
        yield workers


@contextlib.asynccontextmanager
async def start_workers(
    pool: Pool,
    client: Client,
    *,
    asking: Asking,
    cost_budget: CostBudget,
    on_progress: Callable[[SamplingWorkers], None],
) -> AsyncIterator[SamplingWorkers]:
    """Workers from a client into a pool; on leaving, everything that came is stored.

    The client's `on_call` must call their `record_call`.
    """
    writer = PoolWriter(pool, model=asking.model, parameters=asking.parameters)
    workers = SamplingWorkers(client, writer, asking, cost_budget, on_progress=lambda: on_progress(workers))
    try:
        yield workers
    finally:
        workers.store_unreported_calls()
        await writer.close()
    if workers.fatal_error is not None:
        raise workers.fatal_error


@contextlib.asynccontextmanager
async def handle_signals(
    signals: Sequence[signal.Signals], sampler: Sampler, *, on_progress: Callable[[], None]
) -> AsyncIterator[None]:
    """The first of `signals` stops a sampler in good order; the second leaves the block at once."""

    def stop(number: int) -> None:
        sampler.stop("signal", number=number)
        on_progress()

    abort = _Abort()
    try:
        with _install_handlers(signals, stop, asyncio.current_task(), abort):
            yield
    except asyncio.CancelledError:  # the second signal: what is in flight is abandoned
        if not abort.requested:  # somebody else cancelled the task
            raise
        _clear_cancellation(asyncio.current_task())
        sampler.why = "at once: calls in flight were abandoned, and may have been paid for"


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine that draws in this process."""

    endpoint: Endpoint

    @property
    def width(self) -> int:
        return self.endpoint.limits.concurrency

    def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[Sampler], None],
        signals: Sequence[signal.Signals] = (),
    ) -> contextlib.AbstractAsyncContextManager[Sampler]:
        """As `open_workers`, from its endpoint."""
        return open_workers(
            pool, endpoint=self.endpoint, asking=asking, cost_budget=cost_budget, on_progress=on_progress, signals=signals
        )


def make_engine(endpoint: Endpoint | SamplingEngine) -> SamplingEngine:
    """The engine itself, or one that draws from an endpoint in this process."""
    return LocalEngine(endpoint) if isinstance(endpoint, Endpoint) else endpoint


def check_arguments(
    problems: Iterable[Problem], pool: Pool, endpoint: Endpoint | SamplingEngine, asking: Asking
) -> tuple[Problem, ...]:
    """Checks the types of the arguments, and returns the problems."""
    for name, value, fits, kind in (
        ("pool", pool, isinstance(pool, Pool), "Pool"),
        ("endpoint", endpoint, isinstance(endpoint, Endpoint | SamplingEngine), "Endpoint"),
        ("asking", asking, isinstance(asking, Asking), "Asking"),
    ):
        if not fits:
            raise CollectError(f"{name} is {type(value).__name__}; give an ac.{kind}")
    if isinstance(problems, str | bytes | Problem) or not isinstance(problems, Iterable):
        raise CollectError(f"problems are {type(problems).__name__}; give a list of ac.Problem")
    return tuple(problems)


def summarise_run(sampler: Sampler, pool: Pool, asking: Asking, prices: Prices) -> dict[str, Any]:
    """The fields that every result has: its errors, the cost of all runs, and what stopped it."""
    account = pool.account(asking.model, asking.parameters)
    return {
        "errors": dict(sampler.errors),
        "account": account,
        "cost": account.cost(input_price=prices.input, output_price=prices.output),
        "at_most": compute_max_cost(account, prices),
        "stopped": sampler.stopped,
        "why": sampler.why,
        "signal": sampler.signal,
    }


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end; in a thread of its own where this thread has an event loop, as in notebooks."""
    if not _has_running_loop():
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(slots=True)
class _Abort:
    requested: bool = False


@contextlib.contextmanager
def _install_handlers(
    signals: Sequence[signal.Signals],
    on_first: Callable[[int], None],
    task: "asyncio.Task[Any] | None",
    abort: _Abort,
) -> Iterator[None]:
    """The first signal calls `on_first`, the second cancels `task`; afterwards the old handlers are
    back.
    """
    if not signals or threading.current_thread() is not threading.main_thread() or task is None:
        yield
        return
    loop, count = asyncio.get_running_loop(), 0

    def handle(number: int) -> None:
        nonlocal count
        count += 1
        if count == 1:
            on_first(number)
        else:
            abort.requested = True
            task.cancel()

    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _clear_cancellation(task: "asyncio.Task[Any] | None") -> None:
    """Clears a task's cancellation, because it has to go on: to store and to account."""
    while task is not None and task.cancelling():
        task.uncancel()


def collect(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    endpoint: Endpoint | SamplingEngine,
    asking: Asking,
    samples: int = 48,
    prices: Prices | None = None,
    max_cost: float | None = None,
    retry_rounds: int = 0,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Collected:
    """Draws what the pool lacks of `samples` samples of each problem, and stores each sample as it
    comes.

    Whatever ends it, even `kill -9`, the same call continues where it stopped: nothing stored is
    requested again. The first of `signals` ends it in good order, the second at once. Raises
    SourceChanged where the pool's samples are of another model, template or parameter, unless
    `another`. A problem that is there is updated, and may differ in everything but what the model is
    asked; in its gold answer only with `regrade`. Instead of an endpoint, which is asked from this
    process, an engine may draw elsewhere.
    """
    problems = check_arguments(problems, pool, endpoint, asking)
    if type(retry_rounds) is not int or retry_rounds < 0:
        raise CollectError(f"retry rounds {retry_rounds!r} can't be used; give a whole number from 0 up")
    if type(samples) is not int or samples < 1:
        raise CollectError(f"samples {samples!r} can't be used; give a whole number from 1 up")
    prices = prices or Prices()
    merge_leftover_shards(pool)
    check_source(pool, asking.model, asking.parameters, another=another)
    add_problems(pool, problems, asking.template, regrade=regrade)
    spent = compute_spent(pool, prices)
    cost_budget = CostBudget(prices=prices, limit=max_cost, spent=spent, most_tokens=asking.most_tokens)
    collection = _Collection(problems, pool, make_engine(endpoint), asking, samples, cost_budget, progress)
    return run_coroutine(collection.run(retry_rounds, signals))


class _Collection:
    """One collection, from its plan to its result."""

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        engine: SamplingEngine,
        asking: Asking,
        samples: int,
        cost_budget: CostBudget,
        progress: Callable[[CollectProgress], None] | None,
    ) -> None:
        self._problems = problems
        self._pool = pool
        self._engine = engine
        self._asking = asking
        self._samples = samples
        self._cost_budget = cost_budget
        self._progress = progress

    async def run(self, rounds: int, signals: Sequence[signal.Signals]) -> Collected:
        start = time.monotonic()
        before = self._find_remaining()
        async with self._engine.open_sampler(
            self._pool,
            asking=self._asking,
            cost_budget=self._cost_budget,
            on_progress=lambda workers: self._report(before, workers),
            signals=signals,
        ) as workers:
            self._report(before, workers)  # shows what is there already at once
            await self._draw_rounds(workers, before, rounds)
        return self._build_result(workers, time.monotonic() - start)

    async def _draw_rounds(self, workers: Sampler, remaining: RemainingSamples, rounds: int) -> None:
        for number in range(rounds + 1):
            await workers.draw(iter(remaining.runs))
            if workers.stopped is not None or not workers.failures or number == rounds:
                return
            workers.forget_failures()
            remaining = self._find_remaining()

    def _find_remaining(self) -> RemainingSamples:
        return find_remaining(
            self._problems,
            self._pool,
            samples=self._samples,
            model=self._asking.model,
            parameters=self._asking.parameters,
        )

    def _report(self, before: RemainingSamples, workers: Sampler) -> None:
        if self._progress is not None:
            self._progress(workers.progress(planned=before.planned, before=before.stored))

    def _build_result(self, workers: Sampler, seconds: float) -> Collected:
        remaining = self._find_remaining()
        totals = self._pool.totals(self._pool.source_key(self._asking.model, self._asking.parameters))
        return Collected(
            planned=remaining.planned,
            stored=remaining.stored,
            added=workers.added,
            failures=dict(workers.failures),
            seconds=seconds,
            per_call=workers.per_call,
            logprobs=workers.logprobs,
            answered=totals.answered,
            finished=totals.finished,
            **summarise_run(workers, self._pool, self._asking, self._cost_budget.prices),
        )
