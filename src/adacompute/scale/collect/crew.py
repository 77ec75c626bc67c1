"""The collectors of one run, as their driver sees them: who draws what, and for how much.

Knows nothing of plans: it is given runs, and when they are drawn all that came is in the pool.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from adacompute.collect import Asking, Progress
from adacompute.collect.engine import Drawer
from adacompute.collect.left import Run
from adacompute.collect.outcome import Stop
from adacompute.collect.purse import Purse, spent_so_far
from adacompute.collect.shards import PAD, Indexes, fresh, shards_of, take_in, tidy
from adacompute.endpoint import Endpoint
from adacompute.errors import EngineUnavailable, PoolError
from adacompute.pool import Pool
from adacompute.scale.cluster import cluster
from adacompute.scale.collect.collector import Collector, Drew, Setup, Shard
from adacompute.scale.collect.counts import Counts
from adacompute.scale.collect.failed import check_alive, is_lost, raise_here, said
from adacompute.scale.collect.sealed import Sealed, seal
from adacompute.scale.collect.shares import cut, most_of, rest_of, share

__all__ = ["Crew"]

_LOOK = 0.5  # seconds between two looks at how far collectors are
_ARRIVAL = 1200.0  # seconds for a first collector: a cluster may have to get a node for it
_CHECK = 10.0  # seconds between two looks at whether there is a cluster at all, while nobody draws
_GRACE = 10.0  # seconds to store and account for what is given up
_LOSSES = 4  # collectors lost in a row with nothing stored: then it is no accident
_IN_A_ROW = 8  # problems that fail with no sample between them, at least: then it is the endpoint

Queue = deque[tuple[Run, ...]]  # shards that nobody draws yet


@dataclass(slots=True, eq=False)
class _Worker:
    """A collector, and what it does now."""

    number: int  # of its share
    actor: Any
    busy: "asyncio.Future[Any] | None"  # until it is there, or has drawn its shard
    shard: Shard | None = None
    told: Progress | None = None  # how far the shard is


class Crew(Counts):
    """Collectors on a cluster. A drawer: `draw` returns when its runs are drawn and merged into the pool."""

    def __init__(
        self,
        pool: Pool,
        *,
        endpoint: Endpoint,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        workers: int | None,
    ) -> None:
        super().__init__(purse)
        self._pool = pool
        self._endpoint = endpoint
        self._asking = asking
        self._told = told
        self._asked = workers
        self._held = ExitStack()  # the connection to Ray
        self._folder = shards_of(pool)
        self._key: Sealed | None = None
        self._most = 0  # collectors; 0: not begun
        self._split = 0  # shards that what is left of the money is divided by
        self._workers: list[_Worker] = []
        self._losses = 0

    def stop(self, how: Stop, why: str | None = None, *, number: int | None = None) -> None:
        """Begins no shard more; collectors finish and store what is in flight."""
        super().stop(how, why, number=number)
        for worker in self._workers:
            worker.actor.stop.remote()

    async def draw(self, runs: Iterator[Run]) -> None:
        """All runs: in shards, as many at the same time as there are collectors."""
        todo = tuple(runs)
        if not todo or self.stopped is not None:
            return
        if not self._most:
            self._begin()
        queue: Queue = deque(cut(todo, self._most))
        looking = asyncio.create_task(self._look())
        try:
            while True:
                self._dispatch(queue)
                if not queue and not self._at_work:
                    return
                busy = [worker.busy for worker in self._workers if worker.busy is not None]
                await self._any(busy)
                for worker in list(self._workers):
                    if worker.busy is not None and worker.busy.done():
                        await self._ended(worker, queue)
        finally:
            looking.cancel()

    async def _any(self, busy: "list[asyncio.Future[Any]]") -> None:
        """Waits for one of them; but not for ever for a first collector, on a cluster that has no room."""
        until = asyncio.get_running_loop().time() + _ARRIVAL
        while True:
            patience = None if self._at_work else _CHECK
            done, _ = await asyncio.wait(busy, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            await asyncio.to_thread(check_alive)
            if asyncio.get_running_loop().time() > until:
                raise EngineUnavailable(
                    f"engine ray: no collector could be started in {_ARRIVAL / 60:.0f} minutes; the cluster "
                    "has no processor free for it: wait for other jobs, or give it another node"
                )

    async def close(self) -> None:
        """Ends all collectors; what they still draw is given up, accounted for and stored."""
        left = self._at_work
        for worker in left:
            worker.actor.give_up.remote()
        if pending := [worker.busy for worker in left if worker.busy is not None]:
            done, _ = await asyncio.wait(pending, timeout=_GRACE)
            for future in done:
                if future.exception() is None:
                    self.count(future.result())
        self._dismiss()
        for worker in left:
            with suppress(PoolError):  # it stays where it is, and the next run takes it in
                await self._take_in(worker.shard)
        if self._most:
            (self._folder / PAD).unlink(missing_ok=True)
            tidy(self._pool)
        self._held.close()

    def abandon(self) -> None:
        """Ends all collectors as they are: what they stored stays in their shards, for the next run.

        Where all was closed in good order it does nothing.
        """
        self._dismiss()
        with suppress(OSError):
            (self._folder / PAD).unlink()
        self._held.close()

    @property
    def _at_work(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.shard is not None]

    def _begin(self) -> None:
        """Connects to Ray, and makes ready what collectors share."""
        there = self._held.enter_context(cluster(self._asked))
        try:
            self._folder.mkdir(exist_ok=True)
            self._key = seal(self._endpoint.key, self._folder / PAD)
        except OSError as exc:
            raise PoolError(
                f"{self._folder}: collectors can't write their shards there ({exc.strerror or exc}); make "
                "room for a folder of that name"
            ) from exc
        self._most = self._split = min(there, most_of(self._endpoint.limits))

    def _hired(self, number: int) -> _Worker:
        import ray

        limits = share(self._endpoint.limits, number, self._most)
        setup = Setup(
            endpoint=replace(self._endpoint, key=None, limits=limits),
            key=self._key,
            asking=self._asking,
            prices=self._purse.prices,
            task=self._pool.task,
        )
        # not restarted by Ray: one that is lost is replaced here, when what it stored is safe
        made: Any = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(Collector)
        actor = made.remote(setup)
        return _Worker(number, actor, _future(actor.ready.remote()))

    def _dismiss(self) -> None:
        if self._workers:
            import ray  # not before: where it isn't installed there is nobody to dismiss

            for worker in self._workers:
                ray.kill(worker.actor)
        self._workers, self.now = [], []

    def _dispatch(self, queue: Queue) -> None:
        """Hands shards to those who have none; there are as many collectors as shards, up to the most."""
        if self.stopped is not None:
            queue.clear()
            return
        while len(self._workers) < min(self._most, len(queue) + len(self._at_work)):
            self._workers.append(self._hired(len(self._workers)))
        for worker in self._workers:
            if worker.busy is not None or not queue:
                continue
            money = self._money()
            if money is None and self._purse.limit is not None:
                return
            worker.shard = Shard(path=fresh(self._folder), runs=queue.popleft(), money=money)
            worker.busy = _future(worker.actor.draw.remote(worker.shard))

    def _money(self) -> float | None:
        """What the next shard may cost; None: no limit, or it has to wait until others are done."""
        given = [worker.shard.money or 0.0 for worker in self._workers if worker.shard is not None]
        if self._purse.limit is None or len(given) >= self._split:
            return None
        room = max(0.0, self._purse.limit - self._purse.spent - sum(given))
        return room / (self._split - len(given))

    async def _ended(self, worker: _Worker, queue: Queue) -> None:
        """Takes note of what a collector did; where it can, the next shard goes out before the merge."""
        busy, shard = worker.busy, worker.shard
        worker.busy = worker.shard = worker.told = None
        self._refresh()
        error = None if busy is None else busy.exception()
        if error is not None:
            await self._lost(worker, shard, error, queue)
        elif busy is not None and shard is not None:
            drew: Drew = busy.result()
            in_a_row = self.count(drew)
            self._losses = 0
            if drew.stopped == "endpoint":
                self.stop("endpoint", drew.why)
            elif in_a_row >= max(_IN_A_ROW, self._endpoint.limits.concurrency):
                self.stop("endpoint", next(reversed(self.failures.values())))
            if drew.stopped != "max-cost":
                self._dispatch(queue)
            taken = await self._take_in(shard)
            if drew.progress.added > sum(map(len, taken.values())):
                raise EngineUnavailable(
                    f"{self._folder}: lacks what a worker wrote there; all workers need to see the same file "
                    "system, under the same path"
                )
            if drew.stopped == "max-cost" and self.stopped is None:
                self._poor(rest_of(shard.runs, taken, drew.failures), queue, hopeless=not taken)
        self._told(self)

    def _poor(self, rest: tuple[Run, ...], queue: Queue, *, hopeless: bool) -> None:
        """A shard's money was spent: fewer with more each go on, until one has all, and it isn't enough."""
        if self._split == 1 and hopeless:
            self.stop("max-cost", f"the next call could cost more than is left of {self._purse.limit:g}")
        self._split = max(1, self._split // 2)
        if rest:
            queue.appendleft(rest)

    async def _lost(self, worker: _Worker, shard: Shard | None, error: BaseException, queue: Queue) -> None:
        """Another collector in its place; what it stored is taken in, and the rest of its shard goes out."""
        import ray

        if not is_lost(error):
            raise_here(error)
        ray.kill(worker.actor)  # it may only be out of reach
        taken = await self._take_in(shard)
        self._losses = 0 if taken else self._losses + 1
        if self._losses >= _LOSSES:
            raise EngineUnavailable(
                f"engine ray: {_LOSSES} workers died one after the other before anything was stored "
                f"({said(error)}); see Ray's logs, e.g. for memory; the same command goes on"
            )
        self._purse.spent = spent_so_far(self._pool, self._purse.prices)
        if shard is not None and (rest := rest_of(shard.runs, taken)):
            queue.appendleft(rest)
        self._workers[self._workers.index(worker)] = self._hired(worker.number)

    async def _take_in(self, shard: Shard | None) -> Indexes:
        if shard is None:
            return {}
        taken = await asyncio.to_thread(take_in, self._pool, shard.path)
        self.added += sum(map(len, taken.values()))
        return taken

    async def _look(self) -> None:
        """Asks collectors how far they are, for as long as they draw."""
        while True:
            await asyncio.sleep(_LOOK)
            for worker in self._at_work:
                with suppress(Exception):  # whoever waits for its shard is told
                    told = await _future(worker.actor.told.remote())
                    worker.told = told if worker.shard is not None else None
            self._refresh()
            self._told(self)

    def _refresh(self) -> None:
        self.now = [worker.told for worker in self._workers if worker.told is not None]


def _future(ref: Any) -> "asyncio.Future[Any]":  # noqa: ANN401 - Ray's reference to whatever comes
    future: asyncio.Future[Any] = asyncio.wrap_future(ref.future())
    future.add_done_callback(_seen)
    return future


def _seen(future: "asyncio.Future[Any]") -> None:
    """What a collector that was dismissed has failed with is of no interest."""
    if not future.cancelled():
        future.exception()
