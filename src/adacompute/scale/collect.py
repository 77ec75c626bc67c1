"""Draws samples with collectors on a Ray cluster, which write shards that are merged into one pool.

A shard is a small pool with a part of the samples. A collector is a Ray actor that draws one shard after the
other. The process that started the run decides which samples each collector draws, and for how much money.
The endpoint's key is sent encrypted; its one-time pad is in a private file.
"""

import asyncio
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adacompute.answers import Task
from adacompute.client import Client, Endpoint, RateLimits
from adacompute.errors import EngineUnavailable, PoolError
from adacompute.pool import Pool, open_pool
from adacompute.records import Call, Secret, TokenPrices
from adacompute.sampling import Asking, CollectProgress
from adacompute.sampling.plan import CostBudget, SampleRange
from adacompute.sampling.shards import PAD, Indexes, make_shard_path, merge_shard, remove_shard_folder
from adacompute.sampling.workers import LocalWorkers, Sampler, StopReason
from adacompute.scale.cluster import check_alive, cluster, describe_error, is_lost, raise_worker_error

ShardQueue = deque[tuple[SampleRange, ...]]  # one item per shard not drawn yet: its ranges of samples
# number of shards per worker; several, so that a worker that finishes early can take another one
_SHARDS_A_WORKER = 4
_MIN_SHARD = 32  # minimum number of samples in a shard, unless workers would be idle
_MAX_SHARD = 4096  # maximum number of samples in a shard, because a larger one would make a long transaction
# one collector's minimum number of requests and tokens per minute; with less, the first calls of all
# collectors together would exceed the rate limits
_MIN_REQUESTS, _MIN_TOKENS = 60.0, 60_000.0
_POLL_SECONDS = 0.5  # interval between requests for the collectors' progress
# time limit for the first collector to start; long, because a cluster may have to start a node
_START_SECONDS = 1200.0
_CHECK_SECONDS = 10.0  # interval between checks that the cluster still exists, while no collector is drawing
_GRACE_SECONDS = 10.0  # time limit for storing arrived samples and recording the cost of abandoned calls
_MAX_LOSSES = 4  # number of collectors lost in a row, without storing anything, after which the run ends
_MAX_FAILING_PROBLEMS = 8  # number of problems that fail in a row before the endpoint is considered faulty


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedKey:
    """An encrypted key that can be sent through Ray; useless without its one-time pad.

    The pad is random bytes in a file that only its owner can read. So the key itself is neither in Ray (logs,
    dashboards, arguments, object stores) nor on disk.
    """

    pad: Path
    masked: bytes = field(repr=False)
    source: str = ""  # name of the file or environment variable that the key came from

    def open(self) -> Secret:
        """Decrypts the key with the pad's file. Raises EngineUnavailable if the file can't be read."""
        try:
            pad = self.pad.read_bytes()
        except OSError as exc:
            raise EngineUnavailable(
                f"{self.pad}: a worker can't read it ({exc.strerror or exc}); all workers need the pool's "
                "folder under the same path, and the same user"
            ) from exc
        plain_bytes = bytes(byte ^ pad_byte for byte, pad_byte in zip(self.masked, pad, strict=True))
        return Secret(plain_bytes.decode(), source=self.source)


def seal_key(key: Secret | None, pad: Path) -> SealedKey | None:
    """Encrypts a key for sending; writes its one-time pad to the file `pad`, which the caller must remove."""
    if key is None:
        return None
    plain_bytes = key.reveal().encode()
    pad_bytes = os.urandom(len(plain_bytes))
    pad.unlink(missing_ok=True)
    with os.fdopen(os.open(pad, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pad_bytes)
    masked = bytes(byte ^ pad_byte for byte, pad_byte in zip(plain_bytes, pad_bytes, strict=True))
    return SealedKey(pad=pad, masked=masked, source=key.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSetup:
    """The settings of a collector."""

    endpoint: Endpoint  # the endpoint, with this collector's share of the rate limits, and without the key
    key: SealedKey | None
    asking: Asking
    prices: TokenPrices
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectShard:
    """The ranges of samples to draw for a shard, and the path of the shard's pool."""

    path: Path
    runs: tuple[SampleRange, ...]
    money: float | None = None  # limit on the shard's cost; None means no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What a collector reports after drawing a shard; the samples themselves are in the shard's pool."""

    progress: CollectProgress  # counts and costs of this shard alone
    failures: Mapping[str, str]  # problem id -> why its latest failed call failed
    stopped: StopReason | None
    why: str | None
    per_call: int | None
    logprobs: bool | None


class Collector:
    """Draws one shard at a time, reports progress, and can be stopped."""

    def __init__(self, setup: CollectorSetup) -> None:
        self._setup = setup
        self._client: Client | None = None
        self._workers: LocalWorkers | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._cost_budget = CostBudget(prices=setup.prices, most_tokens=setup.asking.most_tokens)
        self._spent = 0.0  # cost of this collector's earlier shards
        self._stopped = False

    async def ready(self) -> None:
        """Does nothing, but once a call to it returns, the actor has started."""

    async def report_progress(self) -> CollectProgress | None:
        """Returns the progress of the current shard; None if there is none."""
        return None if self._workers is None else self._compute_progress(self._workers)

    async def stop(self) -> None:
        """Sends no more calls; those in flight are finished and stored."""
        self._stopped = True
        if self._workers is not None:
            self._workers.stop("signal")

    async def give_up(self) -> None:
        """Stops as `stop` does, but abandons calls in flight; their possible cost is still recorded."""
        await self.stop()
        if self._drawing is not None:
            self._drawing.cancel()

    async def draw(self, shard: CollectShard) -> ShardResult:
        """Draws all samples of a shard into its pool, which is closed at the end."""
        if not shard.path.parent.is_dir():
            raise EngineUnavailable(
                f"{shard.path.parent}: a worker on {os.uname().nodename} doesn't see it; all workers "
                "need the pool's file system, under the same path"
            )
        client = await self._ensure_client()
        asking = self._setup.asking
        self._spent = self._cost_budget.cap.spent
        self._cost_budget.cap.limit = None if shard.money is None else self._spent + shard.money
        with open_pool(shard.path, create=True, default_task=self._setup.task) as pool:
            pool.add_problems({run.problem.id: run.problem for run in shard.runs}.values())
            try:
                async with LocalWorkers(
                    pool, client, asking, self._cost_budget, on_progress=lambda: None
                ) as workers:
                    self._workers = workers
                    if self._stopped:
                        workers.stop("signal")
                    self._drawing = asyncio.create_task(workers.draw(iter(shard.runs)))
                    with suppress(asyncio.CancelledError):  # raised if `give_up` cancels the draw
                        await self._drawing
                return self._build_result(workers)
            finally:
                self._workers = self._drawing = None

    async def _ensure_client(self) -> Client:
        """Returns the client, or makes a new one if the previous one can't be used any more."""
        if self._client is None or self._client.gate.ended:
            if self._client is not None:
                await self._client.__aexit__(None, None, None)
                await asyncio.sleep(_refill_seconds(self._setup.endpoint.limits))
            key = self._setup.key  # decrypted here because errors in an actor's `__init__` are lost
            endpoint = replace(self._setup.endpoint, key=None if key is None else key.open())
            client = Client(endpoint, on_call=self._record_call)
            self._client = await client.__aenter__()
        return self._client

    def _record_call(self, call: Call) -> None:
        if self._workers is not None:
            self._workers.record_call(call)

    def _compute_progress(self, workers: LocalWorkers) -> CollectProgress:
        return replace(workers.progress(planned=0, before=0), cost=self._cost_budget.cap.spent - self._spent)

    def _build_result(self, workers: LocalWorkers) -> ShardResult:
        return ShardResult(
            progress=self._compute_progress(workers),
            failures=dict(workers.failures),
            stopped=workers.stopped,
            why=workers.why,
            per_call=workers.per_call,
            logprobs=workers.logprobs,
        )


def _refill_seconds(limits: RateLimits) -> float:
    """Returns how many seconds a client that replaces another must wait before its first calls.

    A new client may send many calls at once, so without this wait it might exceed the rate limits.
    """
    if limits.requests_per_minute is None and limits.tokens_per_minute is None:
        return 0.0
    return max(1.0, 60.0 / (limits.requests_per_minute or math.inf))


@dataclass(slots=True, eq=False)
class _Worker:
    """A Ray actor with a collector, and its current work."""

    number: int  # index of this collector's share of the rate limits
    actor: Any
    # ends when the collector has started or has drawn its shard; None: the collector is idle
    busy: "asyncio.Future[Any] | None"
    shard: CollectShard | None = None
    progress: CollectProgress | None = None  # latest known progress of `shard`


class CollectorCrew(Sampler):
    """Draws samples with collectors on a cluster. `draw` returns once all samples are in the pool."""

    def __init__(
        self,
        pool: Pool,
        engine: "RayEngine",
        *,
        asking: Asking,
        cost_budget: CostBudget,
        on_progress: Callable[[], None],
    ) -> None:
        super().__init__(cost_budget)
        self._engine = engine
        self._pool = pool
        self._endpoint = engine.endpoint
        self._asking = asking
        self._on_progress = on_progress
        self._exit_stack = ExitStack()  # the connection to Ray
        self._folder = pool.shard_folder
        self._pad = self._folder / (f"{PAD}{engine.place}" if engine.modes > 1 else PAD)
        self._key: SealedKey | None = None
        self._max_collectors = 0  # maximum number of collectors; 0 until the start
        self._money_shares = 0  # number of shares into which the remaining money is divided
        self._workers: list[_Worker] = []
        self._losses = 0

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Starts no more shards; lets collectors finish the calls in flight and store the samples."""
        super().stop(how, why, number=number)
        for worker in self._workers:
            worker.actor.stop.remote()

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """Returns the total progress of all collectors."""
        own = super().progress(planned=planned, before=before)
        running = [worker.progress for worker in self._workers if worker.progress is not None]
        return replace(CollectProgress.join([own, *running]), stopping=own.stopping)

    def add_result(self, result: ShardResult) -> int:
        """Adds a shard's counts and failures to the totals; returns how many problems failed in a row."""
        done = result.progress
        self._cost_budget.cap.spent += done.cost
        self.errors.update(done.errors)
        self._calls += done.calls
        self._tokens += done.tokens
        self._missing += done.failed
        self.failures.update(result.failures)
        self.per_call = self.per_call if result.per_call is None else result.per_call
        self.logprobs = self.logprobs if result.logprobs is None else result.logprobs
        if done.added:
            self._failing_problems.clear()
        else:
            self._failing_problems.update(result.failures)
        return len(self._failing_problems)

    async def draw(self, runs: Iterator[SampleRange]) -> None:
        """Divides these ranges of samples into shards and draws them, one shard per collector at a time."""
        todo = tuple(runs)
        if not todo or self.stopped is not None:
            return
        if not self._max_collectors:
            self._start()
        queue: ShardQueue = deque(split_runs(todo, self._max_collectors))
        polling = asyncio.create_task(self._poll_progress())
        try:
            while True:
                self._dispatch(queue)
                if not queue and not self._busy_workers:
                    return
                busy = [worker.busy for worker in self._workers if worker.busy is not None]
                await self._wait_for_any(busy)
                for worker in list(self._workers):
                    if worker.busy is not None and worker.busy.done():
                        await self._handle_end(worker, queue)
        finally:
            polling.cancel()

    async def _wait_for_any(self, busy: "list[asyncio.Future[Any]]") -> None:
        """Waits until any collector has ended its work; raises an error if none can be started."""
        until = asyncio.get_running_loop().time() + _START_SECONDS
        while True:
            patience = None if self._busy_workers else _CHECK_SECONDS
            done, _ = await asyncio.wait(busy, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            await asyncio.to_thread(check_alive)
            if asyncio.get_running_loop().time() > until:
                raise EngineUnavailable(
                    f"engine ray: no collector could be started in {_START_SECONDS / 60:.0f} minutes; the "
                    "cluster has no processor free for it: wait for other jobs, or give it another node"
                )

    async def close(self) -> None:
        """Ends all collectors: stores what has arrived; abandons other calls, but records their cost."""
        busy_workers = self._busy_workers
        for worker in busy_workers:
            worker.actor.give_up.remote()
        if pending := [worker.busy for worker in busy_workers if worker.busy is not None]:
            done, _ = await asyncio.wait(pending, timeout=_GRACE_SECONDS)
            for future in done:
                if future.exception() is None:
                    self.add_result(future.result())
        self._kill_collectors()
        for worker in busy_workers:
            with suppress(PoolError):  # if it can't be merged, the shard stays and the next run merges it
                await self._merge_shard(worker.shard)
        if self._max_collectors:
            self._pad.unlink(missing_ok=True)
            remove_shard_folder(self._pool)
        self._exit_stack.close()

    def abandon(self) -> None:
        """Ends all collectors immediately: their stored samples stay in shards for the next run.

        Does nothing after `close`.
        """
        self._kill_collectors()
        with suppress(OSError):
            self._pad.unlink()
        self._exit_stack.close()

    @property
    def _busy_workers(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.shard is not None]

    def _start(self) -> None:
        """Connects to Ray, makes the shards' folder, encrypts the key, and sets the number of collectors."""
        processors = self._exit_stack.enter_context(cluster(self._engine.workers))
        try:
            self._folder.mkdir(exist_ok=True)
            self._key = seal_key(self._endpoint.key, self._pad)
        except OSError as exc:
            raise PoolError(
                f"{self._folder}: collectors can't write their shards there ({exc.strerror or exc}); make "
                "room for a folder of that name"
            ) from exc
        self._max_collectors = self._money_shares = min(
            processors, count_useful_collectors(self._endpoint.limits)
        )

    def _start_collector(self, number: int) -> _Worker:
        import ray

        limits = split_limits(self._endpoint.limits, number, self._max_collectors)
        setup = CollectorSetup(
            endpoint=replace(self._endpoint, key=None, limits=limits),
            key=self._key,
            asking=self._asking,
            prices=self._cost_budget.prices,
            task=self._pool.task,
        )
        # Ray doesn't restart lost collectors: they are replaced here, once their samples are safe
        actor_class: Any = ray.remote(
            num_cpus=1 / self._engine.modes, max_restarts=0, scheduling_strategy="SPREAD"
        )(Collector)
        actor = actor_class.remote(setup)
        return _Worker(number, actor, _wrap_ref(actor.ready.remote()))

    def _kill_collectors(self) -> None:
        if self._workers:
            import ray  # imported here, because Ray may not be installed

            for worker in self._workers:
                ray.kill(worker.actor)
        self._workers = []

    def _dispatch(self, queue: ShardQueue) -> None:
        """Gives shards to idle collectors; starts more collectors if there are more shards."""
        if self.stopped is not None:
            queue.clear()
            return
        while len(self._workers) < min(self._max_collectors, len(queue) + len(self._busy_workers)):
            self._workers.append(self._start_collector(len(self._workers)))
        for worker in self._workers:
            if worker.busy is not None or not queue:
                continue
            money = self._next_shard_money()
            if money is None and self._cost_budget.cap.limit is not None:
                return
            worker.shard = CollectShard(path=make_shard_path(self._folder), runs=queue.popleft(), money=money)
            worker.busy = _wrap_ref(worker.actor.draw.remote(worker.shard))

    def _next_shard_money(self) -> float | None:
        """Returns the limit on the next shard's cost; None if the run has none, or no shard can start now.

        No shard can start while the shards that are being drawn have been promised all the money.
        """
        promised = [worker.shard.money or 0.0 for worker in self._workers if worker.shard is not None]
        if self._cost_budget.cap.limit is None or len(promised) >= self._money_shares:
            return None
        room = max(0.0, self._cost_budget.cap.limit - self._cost_budget.cap.spent - sum(promised))
        return room / (self._money_shares - len(promised))

    async def _handle_end(self, worker: _Worker, queue: ShardQueue) -> None:
        """Handles a collector whose task has ended: it has started, has drawn a shard, or has failed.

        After a shard, starts the next one if possible, then merges the drawn one. Replaces a lost collector.
        """
        busy, shard = worker.busy, worker.shard
        worker.busy = worker.shard = worker.progress = None
        error = None if busy is None else busy.exception()
        if error is not None:
            await self._replace_collector(worker, shard, error, queue)
        elif busy is not None and shard is not None:
            result: ShardResult = busy.result()
            in_a_row = self.add_result(result)
            self._losses = 0
            if result.stopped == "endpoint":
                self.stop("endpoint", result.why)
            elif in_a_row >= max(_MAX_FAILING_PROBLEMS, self._endpoint.limits.concurrency):
                self.stop("endpoint", next(reversed(self.failures.values())))
            if result.stopped != "max-cost":
                self._dispatch(queue)
            merged = await self._merge_shard(shard)
            if result.progress.added > sum(map(len, merged.values())):
                raise EngineUnavailable(
                    f"{self._folder}: lacks what a worker wrote there; all workers need to see the same file "
                    "system, under the same path"
                )
            if result.stopped == "max-cost" and self.stopped is None:
                self._handle_spent_shard(
                    find_missing_runs(shard.runs, merged, result.failures), queue, hopeless=not merged
                )
        self._on_progress()

    def _handle_spent_shard(
        self, rest: tuple[SampleRange, ...], queue: ShardQueue, *, hopeless: bool
    ) -> None:
        """Queues the samples in `rest`, which are missing from a shard because its money is spent.

        From now on, fewer shards are drawn at a time, so that each gets more money. But if this shard had all
        the remaining money and yet got no sample (`hopeless`), the run stops.
        """
        if self._money_shares == 1 and hopeless:
            self.stop("max-cost", self._cost_budget.describe_end())
        self._money_shares = max(1, self._money_shares // 2)
        if rest:
            queue.appendleft(rest)

    async def _replace_collector(
        self, worker: _Worker, shard: CollectShard | None, error: BaseException, queue: ShardQueue
    ) -> None:
        """Replaces a lost collector; merges the samples that it stored, and queues the rest of its shard."""
        import ray

        if not is_lost(error):
            raise_worker_error(error)
        ray.kill(worker.actor)  # the actor may still be running, although it can't be reached
        before = self._compute_spent()
        merged = await self._merge_shard(shard)
        self._losses = 0 if merged else self._losses + 1
        if self._losses >= _MAX_LOSSES:
            raise EngineUnavailable(
                f"engine ray: {_MAX_LOSSES} workers died one after the other before anything was stored "
                f"({describe_error(error)}); see Ray's logs, e.g. for memory; the same command goes on"
            )
        self._cost_budget.cap.spent += self._compute_spent() - before
        if shard is not None and (rest := find_missing_runs(shard.runs, merged)):
            queue.appendleft(rest)
        self._workers[self._workers.index(worker)] = self._start_collector(worker.number)

    def _compute_spent(self) -> float:
        """Computes the cost of this source's recorded calls, including failed ones that may be charged."""
        account = self._pool.account(self._asking.model, self._asking.parameters)
        return account.cost(self._cost_budget.prices, at_most=True)

    async def _merge_shard(self, shard: CollectShard | None) -> Indexes:
        if shard is None:
            return {}
        merged = await asyncio.to_thread(merge_shard, self._pool, shard.path)
        self.added += sum(map(len, merged.values()))
        return merged

    async def _poll_progress(self) -> None:
        """Asks the collectors for their progress regularly while they draw."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            for worker in self._busy_workers:
                with suppress(Exception):  # the error is handled when the shard ends
                    progress = await _wrap_ref(worker.actor.report_progress.remote())
                    worker.progress = progress if worker.shard is not None else None
            self._on_progress()


def _wrap_ref(ref: Any) -> "asyncio.Future[Any]":  # noqa: ANN401 - Ray's reference to whatever comes
    future: asyncio.Future[Any] = asyncio.wrap_future(ref.future())
    future.add_done_callback(_mark_retrieved)
    return future


def _mark_retrieved(future: "asyncio.Future[Any]") -> None:
    """Marks a future's error as seen, so that asyncio doesn't log the error of a killed collector."""
    if not future.cancelled():
        future.exception()


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """Draws from an endpoint with collectors on a Ray cluster, which share the endpoint's rate limits.

    Collectors write shards to the folder POOL.shards next to the pool, so all workers need the pool's file
    system under the same path. Finished shards are merged. After any interruption, even `kill -9`, no sample
    in a shard is lost: the next collection into the pool, with any engine, merges the shards first.
    """

    endpoint: Endpoint
    workers: int | None = None  # maximum number of collectors; None means the cluster's number of processors
    place: int = 0  # index of this mode among the modes that are sampled
    modes: int = 1  # number of modes that are sampled; their collectors share the processors

    @property
    def width(self) -> int:
        """The maximum number of parallel calls, over all collectors."""
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
        """Yields a sampler whose collectors start at the first draw; on exit, all samples are in the pool."""
        crew = CollectorCrew(pool, self, asking=asking, cost_budget=cost_budget, on_progress=on_progress)
        try:
            yield crew
            await crew.close()
        finally:
            crew.abandon()


def split_runs(runs: Sequence[SampleRange], workers: int) -> list[tuple[SampleRange, ...]]:
    """Splits ranges of samples into shards of similar size, in the given order; uses no randomness."""
    samples = sum(run.count for run in runs)
    count = max(min(_SHARDS_A_WORKER * workers, samples // _MIN_SHARD), workers, -(-samples // _MAX_SHARD))
    shards: list[list[SampleRange]] = [[] for _ in range(count)]
    before = 0
    for run in runs:
        shards[before * count // samples].append(run)
        before += run.count
    return [tuple(shard) for shard in shards if shard]


def count_useful_collectors(limits: RateLimits) -> int:
    """Computes how many collectors the rate limits can keep busy."""
    rates = ((limits.requests_per_minute, _MIN_REQUESTS), (limits.tokens_per_minute, _MIN_TOKENS))
    fit = [int(rate // minimum) for rate, minimum in rates if rate is not None]
    return max(1, min([limits.concurrency, *fit]))


def split_limits(limits: RateLimits, worker: int, workers: int) -> RateLimits:
    """Returns one worker's share of the rate limits; the shares of all workers add up to the limits."""
    calls, remainder = divmod(limits.concurrency, workers)
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return replace(
        limits,
        concurrency=calls + (worker < remainder),
        requests_per_minute=None if requests is None else requests / workers,
        tokens_per_minute=None if tokens is None else tokens / workers,
    )


def find_missing_runs(
    runs: Sequence[SampleRange], stored: Mapping[str, Collection[int]], failed: Collection[str] = ()
) -> tuple[SampleRange, ...]:
    """Returns the ranges of samples that aren't stored yet, except those of the problems in `failed`."""
    return tuple(
        part
        for run in runs
        if run.problem.id not in failed
        for part in run.without(stored.get(run.problem.id, ()))
    )
