"""`collect`: draws the samples that a pool lacks from an endpoint, and stores them.

Below it: the session that `collect` and `answer` share (client, workers, signals), and shards. A shard is a
pool that a worker on another machine writes beside the pool, with the samples, failures and calls of some
runs. It is merged exactly once: its content and the note that it was merged are one transaction, and only
then is it removed, so a crash between any two steps loses and duplicates nothing.
"""

import asyncio
import contextlib
import re
import signal
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from adacompute.atomic import WriterLock, sync_path
from adacompute.client import Client, Endpoint, Verifier
from adacompute.errors import (
    CollectError,
    DuplicateRecord,
    PoolError,
    PoolLocked,
)
from adacompute.pool import DrawnSamples, Pool, open_pool
from adacompute.records import Account, Problem, TokenPrices
from adacompute.sampling.plan import (
    Asking,
    RemainingSamples,
    add_problems,
    check_source,
    find_remaining,
)
from adacompute.sampling.workers import (
    CollectProgress,
    CostBudget,
    PoolWriter,
    Sampler,
    SamplingEngine,
    SamplingWorkers,
    Stoppable,
    StopReason,
    compute_max_cost,
    compute_spent,
)

__all__ = [
    "PAD",
    "Collected",
    "Indexes",
    "LocalEngine",
    "SampleCollection",
    "check_arguments",
    "check_prices",
    "collect",
    "find_shard_folder",
    "handle_signals",
    "make_engine",
    "make_shard_path",
    "merge_leftover_shards",
    "merge_shard",
    "prepare_pool",
    "remove_shard_folder",
    "run_coroutine",
    "start_workers",
    "summarise_run",
    "summarise_scores",
]

T = TypeVar("T")
Indexes = dict[str, set[int]]  # of samples, by problem
PAD = "pad"  # the file beside the shards that holds the pad of a key; it is removed with them
_WRITER_SECONDS = 30.0  # time for a worker that was killed, or whose driver was, to be gone
_SUFFIXES = ("", "-wal", "-shm")
_SHARD_NAME = re.compile(r"[0-9a-f]{32}\.sqlite")
_OUR_NAMES = re.compile(
    rf"{PAD}[0-9]*(\.lock)?|\.?[0-9a-f]{{32}}\.sqlite([.-].*)?"
)  # anything else is the user's


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
    verifier: Mapping[str, Any] | None = None  # what a verifier was asked by this run; None: nothing

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
            "verifier": self.verifier,
        }


def collect(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    endpoint: Endpoint | SamplingEngine,
    asking: Asking,
    samples: int = 48,
    prices: TokenPrices | None = None,
    max_cost: float | None = None,
    retry_rounds: int = 0,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
    verifier: Verifier | None = None,
) -> Collected:
    """Draws what the pool lacks of `samples` samples of each problem, and stores each sample as it comes.

    Whatever ends it, even `kill -9`, the same call continues where it stopped: nothing stored is
    requested again. The first of `signals` ends it in good order, the second at once. Raises
    SourceChanged where the pool's samples are of another model, template or parameter, unless
    `another`. A problem that is there is updated, and may differ in everything but what the model is
    asked; in its gold answer only with `regrade`. Instead of an endpoint, which is asked from this
    process, an engine may draw elsewhere. A `verifier` scores each new sample that states an answer, before
    it is stored; what that costs isn't in the pool, nor in `max_cost`.
    """
    problems = check_arguments(problems, pool, endpoint, asking)
    if type(retry_rounds) is not int or retry_rounds < 0:
        raise CollectError(f"retry rounds {retry_rounds!r} can't be used; give a whole number from 0 up")
    if type(samples) is not int or samples < 1:
        raise CollectError(f"samples {samples!r} can't be used; give a whole number from 1 up")
    cost_budget = prepare_pool(
        pool, problems, asking, prices=prices, max_cost=max_cost, another=another, regrade=regrade
    )
    engine = make_engine(endpoint, verifier)
    collection = SampleCollection(problems, pool, engine, asking, samples, cost_budget, progress)
    return run_coroutine(collection.run(retry_rounds, signals))


class SampleCollection:
    """One collection from one model, from its plan to its result."""

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
        self._seconds = 0.0
        self._before = self._find_remaining()

    async def run(self, rounds: int, signals: Sequence[signal.Signals]) -> Collected:
        """Draws what the pool lacks, and asks again so many times for what failed."""
        async with self.open_sampler(signals) as sampler:
            await self.draw(sampler, rounds)
        return self.build_result(sampler)

    def open_sampler(
        self, signals: Sequence[signal.Signals] = ()
    ) -> contextlib.AbstractAsyncContextManager[Sampler]:
        """Opens the sampler to draw with; on leaving, everything that came is stored."""
        return self._engine.open_sampler(
            self._pool,
            asking=self._asking,
            cost_budget=self._cost_budget,
            on_progress=self.report,
            signals=signals,
        )

    async def draw(self, sampler: Sampler, rounds: int) -> None:
        """Draws all that is missing; in each further round, what failed."""
        start = time.monotonic()
        try:
            self.report(sampler)  # shows what is there already at once
            await self._draw_rounds(sampler, rounds)
        finally:
            self._seconds = time.monotonic() - start

    async def _draw_rounds(self, sampler: Sampler, rounds: int) -> None:
        remaining = self._before
        for number in range(rounds + 1):
            await sampler.draw(iter(remaining.runs))
            if sampler.stopped is not None or not sampler.failures or number == rounds:
                return
            sampler.forget_failures()
            remaining = self._find_remaining()

    def _find_remaining(self) -> RemainingSamples:
        return find_remaining(
            self._problems,
            self._pool,
            samples=self._samples,
            model=self._asking.model,
            parameters=self._asking.parameters,
        )

    def report(self, sampler: Sampler) -> None:
        """Reports the progress, if anybody listens."""
        if self._progress is not None:
            before = self._before
            self._progress(sampler.progress(planned=before.planned, before=before.stored))

    def build_result(self, sampler: Sampler) -> Collected:
        """What the pool has now, after the sampler was closed."""
        remaining = self._find_remaining()
        totals = self._pool.totals(self._pool.source_key(self._asking.model, self._asking.parameters))
        return Collected(
            planned=remaining.planned,
            stored=remaining.stored,
            added=sampler.added,
            failures=dict(sampler.failures),
            seconds=self._seconds,
            per_call=sampler.per_call,
            logprobs=sampler.logprobs,
            answered=totals.answered,
            finished=totals.finished,
            **summarise_run(sampler, self._pool, self._asking, self._cost_budget.prices),
        )


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


def prepare_pool(
    pool: Pool,
    problems: Sequence[Problem],
    asking: Asking,
    *,
    prices: TokenPrices | None,
    max_cost: float | None,
    another: bool,
    regrade: bool,
) -> CostBudget:
    """Merges leftover shards, checks the pool's source, adds the problems; returns what may be spent."""
    prices = prices or TokenPrices()
    check_prices(prices)
    merge_leftover_shards(pool)
    check_source(pool, asking.model, asking.parameters, another=another)
    add_problems(pool, problems, asking.template, regrade=regrade)
    spent = compute_spent(pool, prices)
    return CostBudget(prices=prices, limit=max_cost, spent=spent, most_tokens=asking.most_tokens)


def check_prices(prices: TokenPrices) -> None:
    """Raises CollectError where prices are of recorded samples, not of calls."""
    if prices.prompts == "once" or prices.prompt_tokens is not None:
        raise CollectError("prices with prompts='once' or prompt_tokens are for score; leave both out here")


def summarise_run(sampler: Sampler, pool: Pool, asking: Asking, prices: TokenPrices) -> dict[str, Any]:
    """The fields that every result has: its errors, the cost of all runs, and what stopped it."""
    account = pool.account(asking.model, asking.parameters)
    return {
        "errors": dict(sampler.errors),
        "account": account,
        "cost": account.cost(prices),
        "at_most": compute_max_cost(account, prices),
        "stopped": sampler.stopped,
        "why": sampler.why,
        "signal": sampler.signal,
        "verifier": summarise_scores(sampler),
    }


def summarise_scores(sampler: Sampler) -> dict[str, Any] | None:
    """What a verifier was asked; None: nothing."""
    if not sampler.verified:
        return None
    return {
        "calls": sampler.verified,
        "failed": sampler.unscored,
        "tokens": sampler.verifier_tokens,
        "why": sampler.verifier_error,
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


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine that draws in this process."""

    endpoint: Endpoint
    verifier: Verifier | None = None

    @property
    def width(self) -> int:
        return self.endpoint.limits.concurrency

    @contextlib.asynccontextmanager
    async def open_sampler(
        self,
        pool: Pool,
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[Sampler], None],
        signals: Sequence[signal.Signals] = (),
    ) -> AsyncIterator[Sampler]:
        """Workers that draw from the endpoint; on leaving, everything that came is stored."""
        async with (
            self.verifier or contextlib.nullcontext(),
            Client(
                self.endpoint, on_call=lambda call: workers.record_call(call), signals_only=True
            ) as client,
            start_workers(
                pool,
                client,
                asking=asking,
                cost_budget=cost_budget,
                on_progress=on_progress,
                verifier=self.verifier,
            ) as workers,
            handle_signals(signals, workers, on_progress=lambda: on_progress(workers)),
        ):
            yield workers


def make_engine(endpoint: Endpoint | SamplingEngine, verifier: Verifier | None = None) -> SamplingEngine:
    """The engine itself, or one that draws from an endpoint in this process."""
    if isinstance(endpoint, Endpoint):
        return LocalEngine(endpoint, verifier)
    if verifier is not None:
        raise CollectError(
            f"verifier {verifier.url} scores what this process draws; give an endpoint (--engine local), or "
            "leave the verifier out"
        )
    return endpoint


@contextlib.asynccontextmanager
async def start_workers(
    pool: Pool,
    client: Client,
    *,
    asking: Asking,
    cost_budget: CostBudget,
    on_progress: Callable[[SamplingWorkers], None],
    verifier: Verifier | None = None,
) -> AsyncIterator[SamplingWorkers]:
    """Workers from a client into a pool; on leaving, everything that came is stored.

    The client's `on_call` must call their `record_call`.
    """
    writer = PoolWriter(pool, model=asking.model, parameters=asking.parameters)
    workers = SamplingWorkers(
        client, writer, asking, cost_budget, on_progress=lambda: on_progress(workers), verifier=verifier
    )
    try:
        yield workers
    finally:
        workers.store_unreported_calls()
        await writer.close()
    if workers.fatal_error is not None:
        raise workers.fatal_error


@contextlib.asynccontextmanager
async def handle_signals(
    signals: Sequence[signal.Signals], sampler: Stoppable, *, on_progress: Callable[[], None]
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
    """The first signal calls `on_first`, the second cancels `task`; afterwards the old handlers are back."""
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
    """Clears a task's cancellation, so that it can still store samples and account for calls."""
    while task is not None and task.cancelling():
        task.uncancel()


def find_shard_folder(pool: Pool) -> Path:
    """The folder of a pool's shards, whether it exists or not."""
    real = Path(pool.path).resolve()
    return real.with_name(real.name + ".shards")


def make_shard_path(folder: Path) -> Path:
    """The path of a new shard."""
    return folder / f"{uuid.uuid4().hex}.sqlite"


def merge_leftover_shards(pool: Pool) -> None:
    """Merges everything that the workers of a killed run have left beside a pool."""
    folder = find_shard_folder(pool)
    if folder.is_dir():
        done: set[Path] = set()
        # workers may live a moment longer than their driver
        while new := _list_started_shards(folder) - done:
            for path in sorted(new):
                merge_shard(pool, path)
            done |= new
        remove_shard_folder(pool)


def merge_shard(pool: Pool, path: Path, *, patience: float = _WRITER_SECONDS) -> Indexes:
    """Merges a shard into the pool and returns the samples it had; PoolLocked if its writer lives on."""
    merged: Indexes = {}
    _wait_for_writer(path, patience)
    if not path.exists():  # its worker never started it
        return merged
    with open_pool(path, write=True) as shard:
        for number, (model, parameters) in enumerate(shard.list_sources()):
            records = list(_read_records(shard, pool, model, parameters))
            note = f"{path.name} {number}"
            try:
                pool.add_drawn(records, model=model, parameters=parameters, once=note)
            except DuplicateRecord:  # e.g. the pool is a copy that was made in between
                stored = pool.keys(model, parameters)
                pool.add_drawn(
                    [_drop_stored(record, stored) for record in records],
                    model=model,
                    parameters=parameters,
                    once=note,
                )
            for each in records:
                if each.problem_id is not None and each.samples:
                    merged.setdefault(each.problem_id, set()).update(index for index, _ in each.samples)
    for end in _SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)
    return merged


def remove_shard_folder(pool: Pool) -> None:
    """Removes the folder and the notes of merged shards; those still being written stay.

    Files that aren't ours stay as well: somebody may have a folder of that name.
    """
    folder = find_shard_folder(pool)
    if not folder.is_dir() or _list_shards(folder):
        return
    sync_path(folder)  # the notes are removed only when the shards can't come back
    pool.forget()
    for path in [path for path in folder.iterdir() if _OUR_NAMES.fullmatch(path.name)]:
        name = path.name.removeprefix(".").removesuffix(".lock").removesuffix(".building")
        with contextlib.suppress(PoolLocked, OSError):
            lock = WriterLock(folder / name)
            path.unlink(missing_ok=True)
            lock.release()
    with contextlib.suppress(OSError):  # not empty: a worker is starting, and will find its driver gone
        folder.rmdir()


def _wait_for_writer(path: Path, patience: float) -> None:
    """Waits until nobody writes to a shard any more; it may not exist yet."""
    until = time.monotonic() + patience
    while _is_locked(path) and time.monotonic() < until:
        time.sleep(0.05)


def _list_shards(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _SHARD_NAME.fullmatch(path.name)]


def _list_started_shards(folder: Path) -> set[Path]:
    """Shards that exist, and those that somebody has begun to make."""
    names = (path.name.removesuffix(".lock") for path in folder.iterdir())
    return {folder / name for name in names if _SHARD_NAME.fullmatch(name)}


def _is_locked(path: Path) -> bool:
    try:
        WriterLock(path).release()
    except PoolLocked:
        return True
    return False


def _read_records(
    shard: Pool, pool: Pool, model: str | None, parameters: Mapping[str, Any]
) -> Iterator[DrawnSamples]:
    """All records of one source in a shard; problems that the pool lacks are added to it."""
    indexes = dict(shard.indexes(model, parameters))
    for recorded in shard:
        if recorded.model != model or recorded.parameters != parameters:
            continue
        problem = recorded.problem
        known = pool.problem(problem.id)
        if known is None:
            pool.add_problems([problem])
        elif known.question != problem.question:
            raise PoolError(
                f"{shard.path}: has samples of problem {problem.id!r} under another question than "
                f"{pool.path}; it is of another pool: move it away"
            )
        numbers = sorted(indexes.get(problem.id, ()))
        samples = list(zip(numbers, recorded.samples, strict=True))
        yield DrawnSamples(problem.id, samples, recorded.failures)
    yield DrawnSamples(None, (), (), list(shard.calls(model, parameters)))


def _drop_stored(record: DrawnSamples, stored: set[tuple[str, int]]) -> DrawnSamples:
    new = [(index, sample) for index, sample in record.samples if (record.problem_id, index) not in stored]
    return record._replace(samples=new)
